"""The optical amplifier, such as an erbium-doped fibre amplifier: one input, one output."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol


class AmplifierMode(enum.Enum):
    """What an amplifier holds constant."""

    CURRENT = "pump current"
    POWER = "output power"
    GAIN = "gain"


@dataclass(frozen=True)
class AmplifierSettings:
    """What is set on an amplifier.

    Attributes:
        mode: What it holds constant.
        current_ma: Pump current held; ``None`` in another mode.
        power_dbm: Output power held; ``None`` in another mode.
        gain_db: Gain held; ``None`` in another mode.
        enabled: The pump is switched on.
    """

    mode: AmplifierMode
    current_ma: float | None
    power_dbm: float | None
    gain_db: float | None
    enabled: bool


@dataclass(frozen=True)
class AmplifierLimits:
    """Lowest and highest settings, both ends included; ``None`` for what the amplifier cannot hold.

    Attributes:
        current_ma: Pump currents.
        power_dbm: Output powers.
        gain_db: Gains.
    """

    current_ma: tuple[float, float] | None
    power_dbm: tuple[float, float] | None
    gain_db: tuple[float, float] | None


@dataclass(frozen=True)
class AmplifierState:
    """What an amplifier does at one moment.

    Attributes:
        emitting: The pump is switched on.
        ready: It is switched on, nothing is pending and no alarm is active.
        input_power_dbm: Power at the input; ``None`` if it is dark or not measured.
        output_power_dbm: Power at the output; ``None`` if it is dark or not measured.
        pump_current_ma: Current of the pump, of the first one if there are several; ``None`` if not measured.
        temperature_c: Temperature of the case; ``None`` if not measured.
        flags: Warnings and alarms that are active, in plain words.
        timestamp_s: Host clock when the last of these arrived.
    """

    emitting: bool
    ready: bool
    input_power_dbm: float | None
    output_power_dbm: float | None
    pump_current_ma: float | None
    temperature_c: float | None
    flags: tuple[str, ...]
    timestamp_s: float


class OpticalAmplifier(Protocol):
    """An optical amplifier. Thread-safe; every set is read back. What it cannot hold raises ``NotSupportedError``.

    Opening and closing leave the output as it is.
    """

    @property
    def model(self) -> str:
        """Model as the instrument says it."""

    @property
    def serial(self) -> str:
        """Serial number as the instrument says it."""

    def hold_current_ma(self, current_ma: float) -> None:
        """Hold this pump current.

        Raises:
            NotSupportedError: The amplifier cannot hold it.
            LimitError: Outside the amplifier's limits; nothing was changed.
            DeviceError: The amplifier refuses, such as another mode while it emits.
            VerifyError: It keeps another setting.
        """

    def hold_power_dbm(self, power_dbm: float) -> None:
        """Hold this output power. Raises as :meth:`hold_current_ma`."""

    def hold_gain_db(self, gain_db: float) -> None:
        """Hold this gain. Raises as :meth:`hold_current_ma`."""

    def enable(self) -> None:
        """Switch the pump on. The light may need longer than this call: see :meth:`wait_ready`.

        Raises:
            DeviceError: The amplifier refuses, such as with its interlock open.
        """

    def disable(self) -> None:
        """Switch the pump off, and verify it."""

    def wait_ready(self, timeout_s: float) -> AmplifierState:
        """Wait until the amplifier emits at its settings, at most ``timeout_s`` from now; return that state.

        Raises:
            DeviceError: The pump is off, or the amplifier reports a failure.
            DeviceTimeoutError: The amplifier answers, but was not ready in time.
            LimitError: The time is negative or no number.
        """

    def state(self) -> AmplifierState:
        """Ask the amplifier what it does."""

    def settings(self) -> AmplifierSettings:
        """Ask for the settings in force."""

    def limits(self) -> AmplifierLimits:
        """Ask for the limits of the settings."""

    def close(self) -> None:
        """Release the link; idempotent. The output is left as it is."""
