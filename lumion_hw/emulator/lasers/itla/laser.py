"""Physics of an ITLA's laser: frequency, power, and duration of changes.

Registers report exact frequencies, but the light has a fixed frequency and power error. The output is dark while the
laser tunes to another channel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from lumion_hw.emulator.optics.light import Light
from lumion_hw.quantities import w_from_dbm, wavelength_m_from_frequency_hz

# Errors and times are typical of the data sheets of such modules (model choice).
FREQUENCY_ERROR_HZ = 0.3e9
POWER_ERROR_DB = 0.25
POWER_TAU_S = 0.5
DARK_DBM = -60.0
CASE_C = 35.0
DIODE_C = 45.0


@dataclass(frozen=True)
class ItlaProfile:
    """Properties of one ITLA module.

    Attributes:
        manufacturer: String of register 02.
        model: String of register 03.
        date: Manufacturing date, the string of register 05: day-month-year.
        release: Firmware release, the string of register 06.
        msa: Version of the ITLA agreement. ``01.2`` has no registers for the MHz part of frequencies.
        boot_s: Time from power-on or reset to ready.
        enable_s: Time from enabling to locked.
        tune_s: Time from one channel to another.
        power_s: Time of a power change while the output is on.
        fine_tune_s: Time of fine tuning while the output is on.
        low_noise: Whether register 90 selects a low-noise mode (one vendor's).
    """

    manufacturer: str = "LUMION"
    model: str = "ITLA-C"
    date: str = "01-JAN-2025"
    release: str = "01.03.00"
    msa: str = "01.3"
    power_dbm: tuple[float, float] = (6.0, 13.5)
    frequency_thz: tuple[float, float] = (191.3, 196.1)
    min_grid_ghz: float = 5.0
    fine_tune_ghz: float = 6.0
    boot_s: float = 2.0
    enable_s: float = 5.0
    tune_s: float = 2.0
    power_s: float = 2.0
    fine_tune_s: float = 0.5
    low_noise: bool = False


@dataclass
class ItlaSettings:
    """Settings that the host has made on the ITLA.

    Attributes:
        channel: Channel, from 1; 0 for none.
        grid: Channel spacing as two signed numbers to be added, in tenths of a GHz and in MHz.
        first_mhz: Frequency of channel 1.
        power_cdbm: Power in hundredths of a dBm.
        stored: Values of the registers that only store a value.
    """

    channel: int = 1
    grid: tuple[int, int] = (500, 0)
    first_mhz: int = 193_100_000
    power_cdbm: int = 1000
    fine_mhz: int = 0
    stored: dict[int, int] = field(default_factory=dict)

    def copy(self) -> ItlaSettings:
        """Return an independent copy of the settings."""
        return ItlaSettings(self.channel, self.grid, self.first_mhz, self.power_cdbm, self.fine_mhz, dict(self.stored))

    @property
    def grid_mhz(self) -> int:
        """Channel spacing of the frequency grid in MHz."""
        return 100 * self.grid[0] + self.grid[1]

    @property
    def channel_mhz(self) -> int:
        """Frequency of the selected channel in MHz, without fine tuning."""
        return self.first_mhz + (self.channel - 1) * self.grid_mhz


class ItlaPhysics:
    """True light of one ITLA, with fixed random errors of frequency and power."""

    def __init__(self, rng: np.random.Generator, now_s: float) -> None:
        self._frequency_error_hz = float(np.clip(rng.normal(0.0, FREQUENCY_ERROR_HZ), -1e9, 1e9))
        self._power_error_db = float(np.clip(rng.normal(0.0, POWER_ERROR_DB), -0.5, 0.5))
        self._level_dbm = self._target_dbm = 0.0
        self._updated_s = now_s
        self.emits = False
        self.dark = False

    def set_target(self, power_dbm: float, now_s: float, *, emits: bool, dark: bool) -> None:
        """Set the target power in dBm.

        Args:
            power_dbm: Power that the output approaches.
            now_s: Time of the change.
            emits: Whether the laser is on.
            dark: Whether the output is dark because the laser is tuning.
        """
        self.level_dbm(now_s)  # up to now, the level follows the earlier target
        if emits and not self.emits:
            # After switching on, the level rises from below, so that OOP shows the loop at work.
            self._level_dbm = power_dbm - 3.0
        self._target_dbm = power_dbm
        self.emits, self.dark = emits, dark

    def level_dbm(self, now_s: float) -> float:
        """Return the power in dBm that the ITLA reports (register OOP), about a second late."""
        remaining = math.exp(-max(now_s - self._updated_s, 0.0) / POWER_TAU_S)
        self._updated_s = max(now_s, self._updated_s)
        self._level_dbm = self._target_dbm + (self._level_dbm - self._target_dbm) * remaining
        return self._level_dbm if self.emits and not self.dark else DARK_DBM

    def light(self, frequency_mhz: float, now_s: float) -> Light:
        """Return the true light while the ITLA reports a given frequency."""
        nm = wavelength_m_from_frequency_hz(frequency_mhz * 1e6 + self._frequency_error_hz) * 1e9
        reported_dbm = self.level_dbm(now_s)
        on = self.emits and not self.dark
        return Light(w_from_dbm(reported_dbm + self._power_error_db) if on else 0.0, nm)
