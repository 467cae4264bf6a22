"""Fits the resonances of a ring and calculates the free spectral range."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from lumion_hw.acquisition.fitted import FitPoints, FittedCurve, FitTerm, LeastSquares, Real, propagated, solve
from lumion_hw.acquisition.ring.search import Resonances, find_resonances
from lumion_hw.acquisition.scan_data import ScanData
from lumion_hw.errors import ConfigError
from lumion_hw.quantities import SPEED_OF_LIGHT_M_PER_S

_WIDTHS = 8.0
"""Half width of the fitted range, in widths of the resonance."""
_MIN_POINTS = 9
_CLEAR = 4.0
"""Minimum depth of a dip (or height of a peak) over its standard error; below it the resonance is ignored."""
_MIN_CLEAR_FRACTION = 0.6
"""Minimum fraction of the resonances that are significant."""
_MAX_UNEVENNESS = 0.2
"""Maximum median distance of resonances from even spacing, in full widths of a resonance."""
_ABOVE = 2.0
"""Minimum ratio of the power at the bottom of a dip to its error; below it the extinction is a lower bound."""
_BRIGHT = 0.5
"""Minimum power of the reported resonance, relative to the brightest resonance."""
_CURVED = 3.0
"""Minimum ratio of the dispersion to its error; below it the dispersion is taken as zero."""


@dataclass(frozen=True)
class RingResonance:
    """One fitted resonance of a ring.

    Attributes:
        frequency_thz: Optical frequency of the resonance.
        fwhm_ghz: Full width at half depth.
        extinction_db: Highest over lowest transmission; a lower bound if its error is infinite.
        extinction_error_db: Standard error of ``extinction_db``; infinite for a lower bound.
    """

    frequency_thz: float
    frequency_error_thz: float
    fwhm_ghz: float
    fwhm_error_ghz: float
    extinction_db: float
    extinction_error_db: float

    @property
    def q(self) -> float:
        """Loaded quality factor of the resonance."""
        return 1e3 * self.frequency_thz / self.fwhm_ghz

    @property
    def q_error(self) -> float:
        """Standard error of the loaded quality factor."""
        return self.q * self.fwhm_error_ghz / self.fwhm_ghz


@dataclass(frozen=True, eq=False)
class RingFit(FittedCurve):
    """Resonances of an all-pass or add-drop ring. Each is ``top · (1 - depth / (1 + F · sin²(π (ν - ν0) / FSR)))``.

    Attributes:
        fsr_ghz: Free spectral range (FSR) at ``resonance_thz``.
        resonance_thz: Frequency ν0 of the reported resonance: a bright one near the middle of the sweep.
        fwhm_ghz: Full width of the reported resonance at half depth.
        q: Loaded quality factor of the reported resonance, ν0 / fwhm.
        extinction_db: Highest over lowest transmission at ν0; a lower bound if its error is infinite.
        extinction_error_db: Standard error of ``extinction_db``; infinite for a lower bound.
        fsr_nm: Free spectral range in vacuum wavelength, at ν0.
    """

    fsr_ghz: float
    fsr_error_ghz: float
    resonance_thz: float
    resonance_error_thz: float
    fwhm_ghz: float
    fwhm_error_ghz: float
    q: float
    q_error: float
    extinction_db: float
    extinction_error_db: float
    resonances: tuple[RingResonance, ...] = field(default=(), repr=False)
    _terms = (
        FitTerm("FSR", "fsr_ghz", "fsr_error_ghz", ".5g", "GHz"),
        FitTerm("Q", "q", "q_error", ".4g"),
        FitTerm("extinction", "extinction_db", "extinction_error_db", ".2f", "dB"),
    )

    @property
    def fsr_nm(self) -> float:
        """Free spectral range in vacuum wavelength at the resonance."""
        return SPEED_OF_LIGHT_M_PER_S * self.fsr_ghz / (1e3 * self.resonance_thz) ** 2

    def _word(self, term: FitTerm) -> str:
        if term.value == "extinction_db" and math.isinf(self.extinction_error_db):
            return f"extinction > {self.extinction_db:.2f} dB"
        return super()._word(term)


def fit_ring(data: ScanData, reading: str, setting: str = "", *, reference: str | ScanData | None = None) -> RingFit:
    """Fit the resonances of a ring in a spectrum over wavelength or frequency.

    The model is an all-pass ring (Bogaerts et al., "Silicon microring resonators", Laser Photonics Rev. 6, 47, 2012);
    at a drop port the resonances are peaks.

    Args:
        data: A scan over ``wavelength_nm`` or ``frequency_thz`` with at least two resonances.
        reading: Name of the channel: a power in W, mW or mA, or in dB or dBm.
        setting: Name of the wavelength or frequency; needed only if several settings were swept.
        reference: Spectrum to divide by: another channel of the scan, or a scan without the ring.

    Raises:
        ConfigError: The reading or setting does not exist, the reference does not cover the sweep, or fewer than two
            resonances were found.
    """
    points = FitPoints.of(data, reading, setting)
    if points.unit not in ("nm", "THz"):
        raise ConfigError(f"{points.name} is in {points.unit or 'no unit'}, but a ring fit needs nm or THz")
    thz, light = _spectrum(points)
    if reference is not None:
        light = light / _reference(thz, data, reading, setting, reference)
    points.check(_MIN_POINTS)
    even_thz = np.linspace(thz[0], thz[-1], len(thz))
    fits = _clear_resonances(thz, light, even_thz)
    if len(fits) < 2:
        raise ConfigError(
            f"{reading} shows fewer than two resonances, but a free spectral range needs two",
            hint="Sweep further, or divide by a reference.",
        )
    fsr_ghz = _FreeSpectralRange.of(fits)
    chosen = _reported(fits, 0.5 * float(thz[0] + thz[-1]))
    about = chosen.resonance
    used = np.unique(np.concatenate([fit.used for fit in fits]))
    curve = np.full(len(thz), np.nan)
    for fit in fits:
        curve[fit.used] = fit.curve
    return RingFit(
        thz[used], light[used], (light - curve)[used], "optical frequency (THz)", f"{reading} (linear)" if
        points.y_unit.startswith("dB") else points.y_label, points.n_left_out, *fsr_ghz.at(chosen.order),
        about.frequency_thz, about.frequency_error_thz, about.fwhm_ghz, about.fwhm_error_ghz, about.q, about.q_error,
        about.extinction_db, about.extinction_error_db, tuple(fit.resonance for fit in fits),
    )  # fmt: skip


def _spectrum(points: FitPoints) -> tuple[Real, Real]:
    thz = SPEED_OF_LIGHT_M_PER_S / points.x * 1e-3 if points.unit == "nm" else points.x
    light = 10.0 ** (points.y / 10.0) if points.y_unit.startswith("dB") else points.y
    order = np.argsort(thz)
    return thz[order], light[order]


def _reference(thz: Real, data: ScanData, reading: str, setting: str, reference: str | ScanData) -> Real:
    name, of = (reference, data) if isinstance(reference, str) else (reading, reference)
    spectrum_thz, light = _spectrum(FitPoints.of(of, name, setting))
    if not len(light) or not np.all(light > 0.0) or spectrum_thz[0] > thz[0] or spectrum_thz[-1] < thz[-1]:
        raise ConfigError(
            f"the reference {name} has no light in a part of the sweep",
            hint="Sweep scan and reference over the same range.",
        )
    interpolated: Real = np.interp(thz, spectrum_thz, light)
    return interpolated


class _FittedResonance(NamedTuple):
    """A fitted resonance: its number, the points used with the fitted curve, and the light away from it."""

    order: int
    resonance: RingResonance
    used: np.ndarray[tuple[int], np.dtype[np.intp]]
    curve: Real
    light: float


def _clear_resonances(thz: Real, light: Real, even_thz: Real) -> list[_FittedResonance]:
    for resonances in find_resonances(np.interp(even_thz, thz, light)):
        fits = _fitted(thz, light, even_thz, resonances)
        of_all = len(fits) / len(resonances.orders)
        if len(fits) > 2 and of_all >= _MIN_CLEAR_FRACTION and _is_regular(fits):
            return fits
        if len(fits) == 2 and of_all == 1.0:
            return fits
    return []


def _is_regular(fits: list[_FittedResonance]) -> bool:
    """Return whether resonances are evenly spaced apart from dispersion. Three or fewer always are."""
    if len(fits) < 4:
        return True
    orders = np.array([fit.order for fit in fits], dtype=np.float64)
    ghz = 1e3 * np.array([fit.resonance.frequency_thz for fit in fits])
    orders, ghz = orders - orders.mean(), ghz - ghz.mean()
    deviation_ghz = np.abs(ghz - np.polyval(np.polyfit(orders, ghz, 2), orders))
    return float(np.median(deviation_ghz)) < _MAX_UNEVENNESS * float(
        np.median([fit.resonance.fwhm_ghz for fit in fits])
    )


def _fitted(thz: Real, light: Real, even_thz: Real, resonances: Resonances) -> list[_FittedResonance]:
    step_ghz = 1e3 * float(even_thz[1] - even_thz[0])
    fits = []
    for order, position in zip(resonances.orders.tolist(), resonances.positions.tolist(), strict=True):
        fit = _fit_resonance(
            thz, light, resonances.dips, order, float(even_thz[position]), resonances.spacing * step_ghz
        )
        if fit is not None:
            fits.append(fit)
    return fits


def _fit_resonance(
    thz: Real, light: Real, dips: bool, order: int, at_thz: float, fsr_ghz: float
) -> _FittedResonance | None:
    width_ghz = _half_width_ghz(thz, light, dips, at_thz, fsr_ghz)
    solved = shape = None
    # Twice: the range of the fit depends on the width, and the first estimate of the width is rough.
    for _ in range(2):
        reach_thz = 1e-3 * min(0.5 * fsr_ghz, max(_WIDTHS * width_ghz, 1e3 * _MIN_POINTS * (thz[1] - thz[0])))
        used = np.flatnonzero(np.abs(thz - at_thz) <= reach_thz)
        if len(used) < _MIN_POINTS:
            return None
        shape = _Shape(1e3 * (thz[used] - at_thz), 1e3 * reach_thz, fsr_ghz, dips)
        top = float(np.abs(light[used]).max())
        solved = solve(
            shape.curve, light[used] / top, shape.start(light[used] / top, width_ghz), shape.sizes(width_ghz)
        )
        width_ghz = min(math.exp(min(solved.at[2], 50.0)), fsr_ghz)
    if solved is None or shape is None or not shape.is_clear(solved, width_ghz):
        return None
    light_of = top * math.exp(solved.at[0]) * (1.0 - float(solved.at[3]))
    return _FittedResonance(order, shape.resonance(solved, at_thz), used, top * shape.curve(solved.at), light_of)


def _half_width_ghz(thz: Real, light: Real, dips: bool, at_thz: float, fsr_ghz: float) -> float:
    """Return a first estimate of the width of a dip or peak, in GHz."""
    nearby = np.flatnonzero(np.abs(thz - at_thz) <= 0.5e-3 * fsr_ghz)
    upright = -light[nearby] if dips else light[nearby]
    middle = int(np.argmin(np.abs(thz[nearby] - at_thz)))
    half = 0.5 * (float(upright[middle]) + float(np.median(upright)))
    below = np.flatnonzero(upright < half)
    before, after = below[below < middle], below[below > middle]
    first = int(before[-1]) if len(before) else 0
    last = int(after[0]) if len(after) else len(nearby) - 1
    return max(1e3 * float(thz[nearby[last]] - thz[nearby[first]]), 2e3 * float(thz[1] - thz[0]))


class _Shape(NamedTuple):
    """Model curve of one resonance with background.

    Parameters: log of top level, position, log of width, lowest transmission over top level, slope, curvature.
    """

    ghz: Real
    reach_ghz: float
    fsr_ghz: float
    dips: bool

    def start(self, light: Real, width_ghz: float) -> list[float]:
        """Return initial parameters; ``light`` is relative power, shape ``(n,)``."""
        # Most points lie between resonances, so the median is the light away from the dips or peaks.
        ends = (
            (float(np.median(light)), float(light.min()))
            if self.dips
            else (float(light.max()), float(np.median(light)))
        )
        high = max(ends[0], 1e-6)
        contrast = math.sqrt(min(max(ends[1] / high, 1e-4), 0.9))
        return [math.log(high), 0.0, math.log(width_ghz), contrast, 0.0, *([0.0] if self.dips else [])]

    def sizes(self, width_ghz: float) -> list[float]:
        """Return the typical size of each parameter, as a scale for the solver."""
        return [1.0, width_ghz, 1.0, 0.1, 1.0, *([1.0] if self.dips else [])]

    def finesse(self, log_width: float) -> float:
        """Return F, the factor of sin² in the transmission of a ring, from the log of the resonance width."""
        share = math.exp(min(max(log_width, -50.0), 50.0)) / self.fsr_ghz
        return 1.0 / math.sin(0.5 * math.pi * min(max(share, 1e-7), 1.0)) ** 2

    def curve(self, at: Real) -> Real:
        """Return the relative power at every point for the given parameters, shape ``(n,)``."""
        level, centre_ghz, log_width, depth, slope, *bend = at.tolist()
        relative = self.ghz / self.reach_ghz
        top = np.exp(np.clip(level + slope * relative + (bend[0] * relative**2 if bend else 0.0), -100.0, 100.0))
        resonant = 1.0 / (1.0 + self.finesse(log_width) * np.sin(np.pi * (self.ghz - centre_ghz) / self.fsr_ghz) ** 2)
        spectrum: Real = top * (1.0 - (1.0 - depth) * resonant if self.dips else depth + (1.0 - depth) * resonant)
        return spectrum

    def is_clear(self, solved: LeastSquares, width_ghz: float) -> bool:
        """Return whether a fit shows a resonance inside the fitted range and well above its errors."""
        errors = solved.errors
        if not np.all(np.isfinite(errors)) or not abs(solved.at[1]) < self.reach_ghz:
            return False
        return bool(1.0 - solved.at[3] > _CLEAR * errors[3] and errors[2] < 0.5 and width_ghz < self.fsr_ghz)

    def resonance(self, solved: LeastSquares, at_thz: float) -> RingResonance:
        """Return the fitted resonance; ``at_thz`` is the frequency to which its position in GHz refers."""
        at, error = solved.at.copy(), float(solved.errors[3])
        bounded = not at[3] > _ABOVE * error
        if bounded:  # the remaining light is unknown; use its upper bound
            at[3] = min(max(float(at[3]), 0.0) + _ABOVE * error, 1.0)

        def derived(at: Real) -> Real:
            finesse, lowest = self.finesse(at[2]), max(float(at[3]), 1e-12)
            far = 1.0 / (1.0 + finesse)
            ratio = (1.0 - (1.0 - lowest) * far) / lowest if self.dips else 1.0 / (lowest + (1.0 - lowest) * far)
            return np.array([at_thz + 1e-3 * at[1], math.exp(min(at[2], 50.0)), 10.0 * math.log10(max(ratio, 1.0))])

        errors = propagated(derived, at, solved.covariance)
        centre_thz, width, extinction = derived(at)
        return RingResonance(
            float(centre_thz), float(errors[0]), float(width), float(errors[1]), float(extinction),
            math.inf if bounded else float(errors[2]),
        )  # fmt: skip


def _reported(fits: list[_FittedResonance], middle_thz: float) -> _FittedResonance:
    brightest = max(fit.light for fit in fits)
    bright = [fit for fit in fits if fit.light >= _BRIGHT * brightest]
    return min(bright, key=lambda fit: abs(fit.resonance.frequency_thz - middle_thz))


class _FreeSpectralRange(NamedTuple):
    """Polynomial of resonance frequencies in GHz over the resonance number, relative to the middle number."""

    middle: float
    terms: Real
    covariance: Real

    @classmethod
    def of(cls, fits: list[_FittedResonance]) -> _FreeSpectralRange:
        """Fit the frequencies over the orders: a straight line, or a parabola if the curvature is significant."""
        orders = np.array([fit.order for fit in fits], dtype=np.float64)
        middle = float(orders.mean())
        ghz = 1e3 * np.array([fit.resonance.frequency_thz for fit in fits])
        sigma = 1e3 * np.array([fit.resonance.frequency_error_thz for fit in fits])
        straight = _polynomial(orders - middle, ghz, sigma, 1)
        if len(fits) < 4:
            return cls(middle, *straight)
        curved = _polynomial(orders - middle, ghz, sigma, 2)
        is_curved = abs(curved[0][2]) > _CURVED * math.sqrt(curved[1][2, 2])
        return cls(middle, *(curved if is_curved else straight))

    def at(self, order: int) -> tuple[float, float]:
        """Return the free spectral range at an order and its standard error, both in GHz."""
        from_middle = order - self.middle
        slope = np.array([power * from_middle ** max(power - 1, 0) for power in range(len(self.terms))])
        return float(slope @ self.terms), math.sqrt(max(float(slope @ self.covariance @ slope), 0.0))


def _polynomial(x: Real, y: Real, sigma: Real, degree: int) -> tuple[Real, Real]:
    """Return the coefficients of a polynomial by weighted least squares, and their covariance."""
    # A lower limit, because standard errors of data without noise are 0.
    floor = max(float(np.median(sigma)) * 1e-3, 1e-12)
    weight = 1.0 / np.maximum(sigma, floor)
    terms = np.vander(x, degree + 1, increasing=True) * weight[:, None]
    coefficients, *_ = np.linalg.lstsq(terms, y * weight, rcond=None)
    covariance = np.linalg.inv(terms.T @ terms)
    # Scatter beyond the standard errors increases the covariance; a smaller scatter does not reduce it.
    free = len(y) - degree - 1
    if free > 0:
        covariance = covariance * max(float(np.sum((terms @ coefficients - y * weight) ** 2)) / free, 1.0)
    return np.asarray(coefficients, dtype=np.float64), np.asarray(covariance, dtype=np.float64)
