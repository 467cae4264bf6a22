"""The device under calibration with its nominal data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from calibration.model.nominal_heaters import NominalHeaters

MONITOR_SPREAD_DB = 0.15
"""Spread of photodiode responsivities on one chip (assumption)."""
PUC_LOSS_DB = 0.5
"""Mean loss of a PUC: 0.46 to 0.55 dB over chips (Sánchez-Jácome 2025)."""


@dataclass(frozen=True)
class Device:
    """A mesh and the wavelength of its light.

    Attributes:
        heater_channels: Drive channel of every heater, index 2·PUC + arm.
    """

    serial: str
    model: str
    firmware: str
    heater_channels: tuple[int, ...]
    wavelength_nm: float


@dataclass(frozen=True)
class DeviceUnderTest(Device):
    """The device under calibration with its nominal data.

    Attributes:
        heater_ohm: Nominal heater resistance.
        p_pi_mw: Smallest and largest expected heater power for a phase of π.
        monitor_ma_per_mw: Nominal responsivity of the monitors.
        puc_loss_db: Expected loss of a PUC with two heated arms.
        source_spread_hz: Spread of the frequencies of separate lasers; 0 for one laser.
        tunable_hz: Lowest and highest frequency of tunable sources, by port.
        seconds: Second port of each source with two ports, by its first port.
        sources_by_hand: Ports of the laser that is moved by hand.
        monitors_by_hand: Ports of the meter that is moved by hand.
        settle_s: Wait after every setting; ``None`` for the default.
        heater_tau_s: Thermal time constant of the heaters, if known.
        emulated_chip: Name of the chip if it is emulated in this process.
    """

    heater_ohm: float
    p_pi_mw: tuple[float, float]
    monitor_ma_per_mw: float
    puc_loss_db: float = PUC_LOSS_DB
    monitor_spread_db: float = MONITOR_SPREAD_DB
    source_spread_hz: float = 0.0
    tunable_hz: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    seconds: Mapping[int, int] = field(default_factory=dict)
    sources_by_hand: tuple[int, ...] = ()
    monitors_by_hand: tuple[int, ...] = ()
    settle_s: float | None = None
    heater_tau_s: float | None = None
    emulated_chip: str | None = None

    @property
    def heaters(self) -> NominalHeaters:
        """Expected heaters of the chip."""
        return NominalHeaters(self.heater_ohm, *self.p_pi_mw)
