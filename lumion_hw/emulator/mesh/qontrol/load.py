"""Electrical loads of an output: heater with self-heating, broken wire, short circuit.

Units are volts, milliamperes and milliwatts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from lumion_hw.errors import ConfigError


@dataclass(frozen=True)
class HeaterLoad:
    """A resistor with self-heating: R = R0·(1 + γ·P) at heating power P.

    Attributes:
        cold_ohm: Resistance without power; 0 for a short circuit, infinity for a broken wire.
        rise_per_mw: Relative change of the resistance per mW; negative if the resistance falls.
    """

    cold_ohm: float = 1000.0
    rise_per_mw: float = 0.0

    def __post_init__(self) -> None:
        if not (self.cold_ohm >= 0.0 and math.isfinite(self.rise_per_mw)):
            raise ConfigError(
                f"a load cannot have {self.cold_ohm} Ohm with a rise of {self.rise_per_mw} per mW",
                hint="Give a resistance of at least 0 and a finite change per mW.",
            )

    @property
    def is_open(self) -> bool:
        """Whether the load is open, so that no current can flow."""
        return math.isinf(self.cold_ohm)

    def voltage_v(self, current_ma: float) -> float:
        """Return the voltage at a current of at least 0; infinite for a current that cannot flow."""
        if current_ma == 0.0:
            return 0.0
        cold_kohm = self.cold_ohm * 1e-3
        if self.is_open:
            return math.inf
        # P = I²·R and R = R0·(1 + γ·P) give R = R0 / (1 - γ·R0·I²): above some current the heat diverges.
        remaining = 1.0 - self.rise_per_mw * cold_kohm * current_ma**2
        return current_ma * cold_kohm / remaining if remaining > 0.0 else math.inf

    def current_ma(self, voltage_v: float) -> float:
        """Return the current in mA at a voltage of at least 0; infinite for a short circuit."""
        if voltage_v == 0.0 or self.is_open:
            return 0.0
        cold_kohm = self.cold_ohm * 1e-3
        if cold_kohm == 0.0:
            return math.inf
        # P = V²/R gives R² - R0·R - γ·R0·V² = 0.
        # A resistance that falls has no solution above some voltage; it then stays at half of its cold value.
        root = math.sqrt(max(1.0 + 4.0 * self.rise_per_mw * voltage_v**2 / cold_kohm, 0.0))
        hot_kohm = 0.5 * cold_kohm * (1.0 + root)
        return voltage_v / hot_kohm

    def current_for_power_ma(self, power_mw: float) -> float:
        """Return the current in mA that produces ``power_mw`` of heat; 0 for an open or shorted load."""
        hot_kohm = self.cold_ohm * 1e-3 * (1.0 + self.rise_per_mw * power_mw)
        return 0.0 if self.is_open or hot_kohm == 0.0 else math.sqrt(power_mw / hot_kohm)


OPEN = HeaterLoad(math.inf)
"""A broken wire."""
SHORT = HeaterLoad(0.0)
"""A short circuit."""


class Limited(Enum):
    """The limit (voltage or current) that an output has reached."""

    NONE = 0
    VOLTAGE = 1
    CURRENT = 2


@dataclass(frozen=True)
class Output:
    """Voltage and current of an output, and the limit (if any) that the output has reached."""

    voltage_v: float
    current_ma: float
    limited: Limited


def settle(load: HeaterLoad, *, setpoint: float, is_current: bool, vmax_v: float, imax_ma: float) -> Output:
    """Return the steady state of an output.

    Args:
        load: Load of the output.
        setpoint: Current in mA or voltage in V, at least 0.
        is_current: Whether ``setpoint`` is a current.
        vmax_v: Voltage limit.
        imax_ma: Current limit.
    """
    if is_current:
        current = min(setpoint, imax_ma)
        limited = Limited.CURRENT if setpoint > imax_ma else Limited.NONE
        voltage = load.voltage_v(current)
        # The source reaches its voltage limit: the heater is open, or needs a higher voltage.
        if voltage > vmax_v:
            return Output(vmax_v, load.current_ma(vmax_v), Limited.VOLTAGE)
        return Output(voltage, current, limited)
    voltage = min(setpoint, vmax_v)
    limited = Limited.VOLTAGE if setpoint > vmax_v else Limited.NONE
    current = load.current_ma(voltage)
    if current > imax_ma:
        return Output(load.voltage_v(imax_ma), imax_ma, Limited.CURRENT)
    return Output(voltage, current, limited)
