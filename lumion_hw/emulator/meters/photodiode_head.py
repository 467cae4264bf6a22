"""Physics of one optical head of a Keysight power meter: from optical power to the displayed value.

Sources: programming guides and data sheets of the N774xC and the 81635A. Each head has random noise and absolute error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.clock import Clock
from lumion_hw.emulator.optics.light import Light
from lumion_hw.quantities import ratio_from_db

HIGHEST_RANGE_DBM = 10
LOWEST_RANGE_DBM = -70
WAVELENGTH_LIMITS_M = (1.25e-6, 1.65e-6)
AVERAGING_LIMITS_S = (1e-6, 10.0)
DEFAULT_WAVELENGTH_M = 1.55e-6
DEFAULT_AVERAGING_S = 0.1
COUNTS = 20_000
"""Number of display steps up to full scale, which is 1.9999 times the nominal power of the range."""

NOISE_W_AT_1_S = 1e-12
"""Standard deviation of a 1 s average in W: a sixth of the noise of the lowest range, 5-7 pW peak to peak."""
ZERO_OFFSET_W = 20e-12  # typical of the class: data sheets give the noise after zeroing, not the offset before
ZERO_DRIFT_W = 2e-12
ZERO_DRIFT_PERIOD_S = 7200.0
ZEROING_S = 3.0
ZEROING_LIGHT_LIMIT_W = 1e-9
"""Input power in W above which zeroing fails."""
GAIN_SIGMA = 0.01
GAIN_LIMIT = 0.025  # ±2.5 %: absolute error of the N77xx class
RANGE_STEP_SIGMA_DB = 0.004
RANGE_CHANGE_S = 2e-3
AUTORANGE_LOWER = 0.09
"""Smallest reading, as a fraction of full scale, that automatic ranging keeps in a range."""

RESPONSIVITY_NM = np.array([1250.0, 1300.0, 1350.0, 1400.0, 1450.0, 1500.0, 1550.0, 1600.0, 1625.0, 1650.0])
RESPONSIVITY_A_PER_W = np.array([0.84, 0.89, 0.93, 0.96, 0.99, 1.01, 1.02, 1.00, 0.93, 0.76])
"""Responsivity in A/W of a typical InGaAs photodiode."""


@dataclass(frozen=True)
class HeadProfile:
    """Properties of one model of optical head.

    Attributes:
        noise_w_at_1_s: Standard deviation of a 1 s average.
        responsivity_nm: Wavelengths of the responsivity table.
        responsivity_a_per_w: Responsivities at these wavelengths.
        limited_top: Whether the highest range ends at its nominal power instead of full scale (N774x).
        max_points: Largest number of logged points.
        counts: Steps of the display up to full scale.
    """

    wavelength_limits_m: tuple[float, float] = WAVELENGTH_LIMITS_M
    averaging_limits_s: tuple[float, float] = AVERAGING_LIMITS_S
    range_limits_dbm: tuple[int, int] = (LOWEST_RANGE_DBM, HIGHEST_RANGE_DBM)
    noise_w_at_1_s: float = NOISE_W_AT_1_S
    responsivity_nm: tuple[float, ...] = tuple(RESPONSIVITY_NM.tolist())
    responsivity_a_per_w: tuple[float, ...] = tuple(RESPONSIVITY_A_PER_W.tolist())
    limited_top: bool = True
    max_points: int = 1_000_000
    counts: int = COUNTS


N77XX = HeadProfile()
HEAD_81635A = HeadProfile(
    wavelength_limits_m=(0.8e-6, 1.65e-6),
    averaging_limits_s=(100e-6, 10.0),
    range_limits_dbm=(-80, 10),
    noise_w_at_1_s=3.5e-12,
    responsivity_nm=(800.0, 900.0, 1000.0, *RESPONSIVITY_NM.tolist()),
    responsivity_a_per_w=(0.20, 0.45, 0.68, *RESPONSIVITY_A_PER_W.tolist()),
    limited_top=False,
    max_points=4000,
)
"""One channel of the dual sensor 81635A: noise of about 20 pW peak to peak, logging of up to 4000 points."""

_MAX_EVALUATIONS = 20_001
"""Largest number of times for which one update computes the light; it is interpolated in between."""


def full_scale_w(range_dbm: float) -> float:
    """Return the full scale of a power range in watts: 1.9999 times the nominal power of the range."""
    return 1.9999e-3 * ratio_from_db(range_dbm)


def overflow_w(range_dbm: float, profile: HeadProfile = N77XX) -> float:
    """Return the power in watts above which a range overflows."""
    limited = profile.limited_top and range_dbm >= profile.range_limits_dbm[1]
    return 1e-3 * ratio_from_db(range_dbm) if limited else full_scale_w(range_dbm)


@dataclass
class HeadSettings:
    """Settings of one head; the defaults are those after ``*RST``.

    Attributes:
        wavelength_m: Set wavelength, which selects the responsivity.
        watts: Whether readings are in W rather than dBm.
        range_dbm: Present range, a multiple of 10 dBm.
        gain_automatic: Automatic gain, without effect.
        offset_db: Calibration offset, added to the reading in dB.
        continuous: Whether the head measures without being triggered.
        relative: Whether readings are in dB relative to the reference.
    """

    wavelength_m: float = DEFAULT_WAVELENGTH_M
    averaging_s: float = DEFAULT_AVERAGING_S
    watts: bool = False
    range_dbm: int = HIGHEST_RANGE_DBM
    automatic: bool = True
    gain_automatic: bool = True
    offset_db: float = 0.0
    continuous: bool = True
    relative: bool = False
    reference_w: float = 1e-3


@dataclass(frozen=True)
class HeadReading:
    """A displayed reading in watts; ``None`` above the input limit of the range."""

    power_w: float | None


@dataclass(frozen=True)
class Exposure:
    """A reading in progress.

    Attributes:
        averaging_s: Averaging time at the start of the reading.
    """

    start_w: float
    averaging_s: float
    end_s: float


class EmulatedHead:
    """One photodiode with its amplifier: fixed measurement errors, noise, ranges and readings.

    Args:
        power_w: Returns the present optical power, in watts.
        light_wavelength_m: Returns the present wavelength of the light, in metres.
        rng: Random numbers for this head only.
        light_at: Returns the light at a past time; by default the light is interpolated linearly between two updates.
    """

    def __init__(
        self,
        power_w: Callable[[], float],
        light_wavelength_m: Callable[[], float],
        rng: np.random.Generator,
        now_s: Callable[[], float],
        *,
        profile: HeadProfile = N77XX,
        light_at: Callable[[float], Light] | None = None,
    ) -> None:
        self.profile = profile
        self._light_at = light_at
        self._nm = np.array(profile.responsivity_nm)
        self._power_w = power_w
        self._light_wavelength_m = light_wavelength_m
        self._rng = rng
        self._now_s = now_s
        self._gain = 1.0 + float(np.clip(rng.normal(0.0, GAIN_SIGMA), -GAIN_LIMIT, GAIN_LIMIT))
        self._zero_w = float(rng.normal(0.0, ZERO_OFFSET_W))
        self._drift_phase = float(rng.uniform(0.0, 2.0 * math.pi))
        tilt = float(rng.normal(0.0, 0.005))
        self._responsivity = np.array(profile.responsivity_a_per_w) * (1.0 + tilt * (self._nm - 1550.0) / 100.0)
        ranges = range(profile.range_limits_dbm[0], profile.range_limits_dbm[1] + 1, 10)
        self._steps = {range_dbm: ratio_from_db(float(rng.normal(0.0, RANGE_STEP_SIGMA_DB))) for range_dbm in ranges}
        self._correction_w = 0.0
        self.settings = HeadSettings()
        self.zeroing_until_s = -math.inf
        self._last: HeadReading | None = None
        self._last_light = (now_s(), 0.0, DEFAULT_WAVELENGTH_M * 1e9)
        self._is_first_sample = False
        self.restart()

    # -- settings

    def reset(self) -> None:
        """Reset the settings and abort zeroing. The stored zero stays valid."""
        self.settings = HeadSettings()
        self.zeroing_until_s = -math.inf
        self.restart()

    def restart(self) -> None:
        """Begin a new average."""
        self._window_start_s = self._now_s()
        self._windows_reported = 0

    def set_wavelength(self, wavelength_m: float) -> None:
        """Select the responsivity at a wavelength in m."""
        self.settings.wavelength_m = wavelength_m
        if self.settings.automatic:
            self.settings.range_dbm = self.profile.range_limits_dbm[1]
        self.restart()

    def present_range(self) -> int:
        """Return the present power range in dBm."""
        if self.settings.continuous:
            self._update_range(self._light(), self.settings.averaging_s)
        return self.settings.range_dbm

    def set_range(self, range_dbm: float) -> None:
        """Select the power range nearest to a value in dBm, without automatic ranging."""
        self.settings.range_dbm = 10 * math.floor(range_dbm / 10.0 + 0.5)
        self.settings.automatic = False
        self.restart()

    def responsivity_table(self) -> NDArray[np.float64]:
        """Return rows of wavelength in metres and responsivity in A/W."""
        return np.column_stack((self._nm * 1e-9, self._responsivity))

    # -- readings

    def expose(self) -> Exposure:
        """Start a reading."""
        start_w = self._light()
        begin_s = max(self._now_s(), self.zeroing_until_s)
        averaging_s = self.settings.averaging_s
        range_changed = self._update_range(start_w, averaging_s)
        return Exposure(start_w, averaging_s, begin_s + averaging_s + RANGE_CHANGE_S * range_changed)

    def complete(self, exposure: Exposure) -> HeadReading:
        """Complete a reading. The light is taken to change linearly from start to end."""
        mean_w = 0.5 * (exposure.start_w + self._light())
        # Repeated, because light that came during the reading may not fit the range selected at its start.
        self._update_range(mean_w, exposure.averaging_s)
        self._last = self._display(mean_w, exposure.averaging_s)
        return self._last

    def fetch(self) -> HeadReading:
        """Return the last valid reading; in continuous mode, a new reading per averaging time."""
        if self.settings.continuous:
            # 1e-6: an averaging time that ends now has ended, despite rounding errors of the clock.
            windows = math.floor((self._now_s() - self._window_start_s) / self.settings.averaging_s + 1e-6)
            if windows > self._windows_reported:
                self._windows_reported = windows
                self._last = None
        return self._last or self.complete(self.expose())

    def _light(self) -> float:
        power_w = self._power_w()
        if not math.isfinite(power_w):
            raise ValueError(f"the light at the head has no valid power: {power_w} W")
        return power_w

    def _panel_gain(self) -> float:
        """Return displayed power divided by optical power."""
        nm = np.array([self._light_wavelength_m(), self.settings.wavelength_m]) * 1e9
        true, set_response = np.interp(nm, self._nm, self._responsivity)
        return float(self._gain * self._steps[self.settings.range_dbm] * true / set_response)

    def _update_range(self, power_w: float, averaging_s: float) -> bool:
        if not self.settings.automatic:
            return False
        before = self.settings.range_dbm
        offset_w = self._present_offset_w() - self._correction_w
        # A margin of four sigma: noise alone must not overflow the selected range.
        display_w = power_w * self._panel_gain() + offset_w + 4.0 * self._noise_w(averaging_s)
        if not AUTORANGE_LOWER * full_scale_w(before) <= display_w <= overflow_w(before, self.profile):
            # The lowest range that fits; above all ranges the highest, which then overflows.
            ranges = (
                range_dbm for range_dbm in sorted(self._steps) if display_w <= overflow_w(range_dbm, self.profile)
            )
            self.settings.range_dbm = next(ranges, self.profile.range_limits_dbm[1])
        return self.settings.range_dbm != before

    def _display(self, power_w: float, averaging_s: float) -> HeadReading:
        noise_w = float(self._rng.normal(0.0, self._noise_w(averaging_s)))
        display_w = power_w * self._panel_gain() + self._present_offset_w() - self._correction_w + noise_w
        if display_w > overflow_w(self.settings.range_dbm, self.profile):
            return HeadReading(None)
        count_w = full_scale_w(self.settings.range_dbm) / self.profile.counts
        return HeadReading(round(display_w / count_w) * count_w * ratio_from_db(self.settings.offset_db))

    def _noise_w(self, averaging_s: float) -> float:
        return self.profile.noise_w_at_1_s / math.sqrt(averaging_s)

    def _present_offset_w(self) -> float:
        angle = 2.0 * math.pi * self._now_s() / ZERO_DRIFT_PERIOD_S + self._drift_phase
        return self._zero_w + ZERO_DRIFT_W * math.sin(angle)

    # -- runs of samples

    def start_run(self) -> None:
        """Record the present light at the start of logging."""
        self._is_first_sample = True
        self._last_light = (self._now_s(), self._light(), self._light_wavelength_m() * 1e9)

    def samples(
        self, middles_s: NDArray[np.float64], averaging_s: float, assumed_nm: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Return logged samples in W; ``inf`` above the input limit. The first sample selects the automatic range.

        Args:
            middles_s: Middle of each sample's time, ascending, not in the future.
            averaging_s: Averaging time of each sample.
            assumed_nm: Wavelength that selects the responsivity for each sample; by default the set wavelength.
        """
        power_w, nm = self._light_during(middles_s)
        true = np.interp(nm, self._nm, self._responsivity)
        set_nm = self.settings.wavelength_m * 1e9 if assumed_nm is None else assumed_nm
        set_response = np.interp(set_nm, self._nm, self._responsivity)
        if self._is_first_sample and len(power_w):
            self._update_range(float(power_w[0]), averaging_s)
            self._is_first_sample = False
        range_dbm = self.settings.range_dbm
        noise_w = self._rng.normal(0.0, self._noise_w(averaging_s), len(middles_s))
        gain = self._gain * self._steps[range_dbm] / set_response
        display_w = power_w * gain * true + self._present_offset_w() - self._correction_w + noise_w
        count_w = full_scale_w(range_dbm) / self.profile.counts
        # 0.0 is added so that a rounded -0.0 becomes 0.0.
        counted_w = (np.rint(display_w / count_w) + 0.0) * count_w * ratio_from_db(self.settings.offset_db)
        return np.where(display_w > overflow_w(range_dbm, self.profile), np.inf, counted_w)

    def _light_during(self, middles_s: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the power in W and the wavelength in nm of the light at past times."""
        if self._light_at is None:
            before, after = self._last_light, (self._now_s(), self._light(), self._light_wavelength_m() * 1e9)
            self._last_light = after
            times = np.array([before[0], max(after[0], before[0] + 1e-12)])  # ascending, whatever the clock
            power_w = np.interp(middles_s, times, [before[1], after[1]])
            return power_w, np.interp(middles_s, times, [before[2], after[2]])
        times_s = middles_s
        if len(times_s) > _MAX_EVALUATIONS:
            # Each evaluation computes the light of the whole bench; with so many points, interpolation is accurate
            # enough.
            times_s = np.linspace(middles_s[0], middles_s[-1], _MAX_EVALUATIONS)
        lights = [self._light_at(float(at_s)) for at_s in times_s]
        power_w, nm = (
            np.array([getattr(range_dbm, key) for range_dbm in lights]) for key in ("power_w", "wavelength_nm")
        )
        if times_s is not middles_s:
            power_w, nm = np.interp(middles_s, times_s, power_w), np.interp(middles_s, times_s, nm)
        if not np.isfinite(power_w).all():
            raise ValueError("the light at the head has no valid power")
        return power_w, nm

    # -- zeroing

    @property
    def zeroing(self) -> bool:
        """Whether zeroing is in progress."""
        return self.zeroing_until_s > self._now_s()

    def start_zero(self) -> bool:
        """Start zeroing. Return whether the input is dark."""
        dark = self._light() <= ZEROING_LIGHT_LIMIT_W
        self.zeroing_until_s = self._now_s() + ZEROING_S
        return dark

    def finish_zero(self, was_dark: bool) -> bool:
        """End zeroing. Return whether a new offset was stored, which requires a dark input at start and end."""
        self.zeroing_until_s = -math.inf
        dark = was_dark and self._light() <= ZEROING_LIGHT_LIMIT_W
        if dark:
            # The zero is itself an average over ZEROING_S, with the noise of that average.
            self._correction_w = self._present_offset_w() + float(self._rng.normal(0.0, self._noise_w(ZEROING_S)))
            self.restart()
        return dark


def make_head(
    light: Callable[[int, int, float], Light],
    channel: tuple[int, int],
    rng: np.random.Generator,
    clock: Clock,
    profile: HeadProfile,
) -> EmulatedHead:
    """Create the emulated head of one meter channel.

    Args:
        light: Returns the light at a channel (given by two numbers) at a present or past time.
        channel: Slot and channel, or module and port.
        rng: Random numbers for this head only.
        clock: Clock that gives the present time.
        profile: Properties of this model of head.
    """

    def light_at(at_s: float) -> Light:
        return light(*channel, at_s)

    return EmulatedHead(
        lambda: light_at(clock.now()).power_w,
        lambda: light_at(clock.now()).wavelength_nm * 1e-9,
        rng,
        clock.now,
        profile=profile,
        light_at=light_at,
    )
