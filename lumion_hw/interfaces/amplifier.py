"""Interface of an optical amplifier."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol


class AmplifierMode(enum.Enum):
    """Quantity that an amplifier keeps constant."""

    CURRENT = "pump current"
    POWER = "output power"
    GAIN = "gain"


@dataclass(frozen=True)
class AmplifierSettings:
    """Settings of an amplifier. Quantities that ``mode`` does not keep constant are ``None``.

    Attributes:
        mode: Quantity that is kept constant.
        enabled: Whether the pump is switched on.
    """

    mode: AmplifierMode
    current_ma: float | None
    power_dbm: float | None
    gain_db: float | None
    enabled: bool


@dataclass(frozen=True)
class AmplifierLimits:
    """Lowest and highest pump current, output power and gain; ``None`` for a quantity that cannot be kept constant."""

    current_ma: tuple[float, float] | None
    power_dbm: tuple[float, float] | None
    gain_db: tuple[float, float] | None


@dataclass(frozen=True)
class AmplifierState:
    """Present state of an amplifier.

    Attributes:
        emitting: Whether the pump is switched on.
        ready: Whether the pump is on, no operation is pending and no alarm is active.
        input_power_dbm: Power at the input; ``None`` if the input is dark or not measured.
        output_power_dbm: Power at the output; ``None`` if the output is dark or not measured.
        pump_current_ma: Current of the first pump; ``None`` if not measured.
        temperature_c: Case temperature; ``None`` if not measured.
        flags: Active warnings and alarms, in plain words.
        timestamp_s: Host clock when the last value arrived.
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
    """An optical amplifier. Thread-safe; every setting is read back. Unsupported modes raise ``NotSupportedError``.

    Opening and closing do not switch the output.
    """

    @property
    def model(self) -> str:
        """Model name that the instrument reports."""

    @property
    def serial(self) -> str:
        """Serial number that the instrument reports."""

    def hold_current_ma(self, current_ma: float) -> None:
        """Keep this pump current constant.

        Raises:
            NotSupportedError: The amplifier has no such mode.
            LimitError: The current is outside the amplifier's limits; nothing was changed.
            DeviceError: The amplifier refuses, for example to change mode while it emits.
            VerifyError: The setting read back differs.
        """

    def hold_power_dbm(self, power_dbm: float) -> None:
        """Hold this output power constant. Raises the errors of :meth:`hold_current_ma`."""

    def hold_gain_db(self, gain_db: float) -> None:
        """Hold this gain constant. Raises the errors of :meth:`hold_current_ma`."""

    def enable(self) -> None:
        """Switch the pump on. The light may appear later; see :meth:`wait_ready`.

        Raises:
            DeviceError: The amplifier refuses, for example with an open interlock.
        """

    def disable(self) -> None:
        """Switch the pump off and verify that it is off."""

    def wait_ready(self, timeout_s: float) -> AmplifierState:
        """Wait until the amplifier emits at its settings, and return the state of the amplifier.

        Args:
            timeout_s: Longest wait, from now.

        Raises:
            DeviceError: The pump is off, or the amplifier reports a failure.
            DeviceTimeoutError: The amplifier responds, but was not ready in time.
            LimitError: ``timeout_s`` is negative or not a number.
        """

    def state(self) -> AmplifierState:
        """Read the present state of the amplifier."""

    def settings(self) -> AmplifierSettings:
        """Return the present settings."""

    def limits(self) -> AmplifierLimits:
        """Return the limits of the settings."""

    def close(self) -> None:
        """Release the link; idempotent. The output stays as it is."""
