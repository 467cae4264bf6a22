"""Fits that a bench needs daily: the fringe of a heater, a ring, loss against hops, bit errors against OSNR.

Each takes a scan and the names of what is to be fitted, leaves out what is no number, and returns a frozen result with
standard errors. These follow from the scatter of the points about the curve (least squares, unweighted unless said), so
they hold if the scatter is independent from point to point and the model is right; ``residual`` shows whether it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lumion_hw.acquisition.columns import State, choose
from lumion_hw.acquisition.scan_data import ScanData
from lumion_hw.errors import ConfigError
from lumion_hw.files import AnyPath
from lumion_hw.quantities import SPEED_OF_LIGHT_M_PER_S

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Real = NDArray[np.float64]
_LEAST_DEGREES = 1


class _Told(NamedTuple):
    """How one result is told: its name, the attributes that hold it and its error, format and unit."""

    name: str
    value: str
    error: str
    form: str
    unit: str = ""


@dataclass(frozen=True, eq=False)
class FittedCurve:
    """Points and the curve through them.

    Attributes:
        x: Where the points are, shape ``(n,)``.
        y: The points, shape ``(n,)``.
        residual: Point minus curve, shape ``(n,)``.
        x_label: What x is, with unit.
        y_label: What y is, with unit.
        n_left_out: Points that were no numbers.
    """

    x: Real = field(repr=False)
    y: Real = field(repr=False)
    residual: Real = field(repr=False)
    x_label: str
    y_label: str
    n_left_out: int
    _told: ClassVar[tuple[_Told, ...]] = ()

    def plot(self, target: AnyPath | None = None) -> Figure:
        """Draw points and curve, with the residual below them.

        Args:
            target: The picture to write: .png, .svg or .pdf.

        Raises:
            ConfigError: matplotlib is not installed, or the picture cannot be written.
        """
        from lumion_hw.acquisition.scan_plot import draw_fit

        return draw_fit(self, self.words(), target)

    def words(self) -> str:
        """Return the result in one line."""
        return ", ".join(
            f"{name} = {getattr(self, value):{form}} ± {getattr(self, error):.2g} {unit}".rstrip()
            for name, value, error, form, unit in self._told
        )


@dataclass(frozen=True, eq=False)
class FringeFit(FittedCurve):
    """``y = mean · (1 + visibility · cos(π · P / p_pi + offset))`` over the electrical power P of a heater.

    Attributes:
        p_pi_mw: Power for half a turn of the phase, and its standard error.
        p_pi_error_mw: See ``p_pi_mw``.
        offset_rad: Phase without heat, -π to π.
        offset_error_rad: Its standard error.
        visibility: (max - min) / (max + min), 0 to 1.
        visibility_error: Its standard error.
        mean: Middle of the fringe, in the unit of the reading.
        mean_error: Its standard error.
    """

    p_pi_mw: float
    p_pi_error_mw: float
    offset_rad: float
    offset_error_rad: float
    visibility: float
    visibility_error: float
    mean: float
    mean_error: float
    _told = (
        _Told("Pπ", "p_pi_mw", "p_pi_error_mw", ".4g", "mW"),
        _Told("offset", "offset_rad", "offset_error_rad", ".3f", "rad"),
        _Told("visibility", "visibility", "visibility_error", ".4f"),
    )


@dataclass(frozen=True, eq=False)
class RingFit(FittedCurve):
    """An all-pass or add-drop ring: ``y = top · (1 - depth / (1 + F · sin²(π (ν - ν0) / FSR)))``.

    Attributes:
        fsr_ghz: Free spectral range in optical frequency.
        fsr_error_ghz: Its standard error.
        resonance_thz: The resonance nearest to the middle of the sweep.
        resonance_error_thz: Its standard error.
        fwhm_ghz: Full width of a resonance at half its depth.
        fwhm_error_ghz: Its standard error.
        q: Loaded quality factor, ν0 / fwhm.
        q_error: Its standard error.
        extinction_db: Highest over lowest transmission of the curve; infinite if the lowest is not above zero.
        extinction_error_db: Its standard error.
        fsr_nm: Free spectral range in vacuum wavelength at the resonance.
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
    _told = (
        _Told("FSR", "fsr_ghz", "fsr_error_ghz", ".5g", "GHz"),
        _Told("Q", "q", "q_error", ".4g"),
        _Told("extinction", "extinction_db", "extinction_error_db", ".2f", "dB"),
    )

    @property
    def fsr_nm(self) -> float:
        """Free spectral range in vacuum wavelength at the resonance."""
        return SPEED_OF_LIGHT_M_PER_S * self.fsr_ghz / (1e3 * self.resonance_thz) ** 2


@dataclass(frozen=True, eq=False)
class HopLossFit(FittedCurve):
    """A straight line through losses over numbers of hops.

    Attributes:
        loss_per_hop_db: Its slope.
        loss_per_hop_error_db: Standard error of the slope.
        access_loss_db: What is lost without a hop.
        access_loss_error_db: Its standard error.
    """

    loss_per_hop_db: float
    loss_per_hop_error_db: float
    access_loss_db: float
    access_loss_error_db: float
    _told = (
        _Told("loss per hop", "loss_per_hop_db", "loss_per_hop_error_db", ".4f", "dB"),
        _Told("access loss", "access_loss_db", "access_loss_error_db", ".3f", "dB"),
    )


@dataclass(frozen=True, eq=False)
class BerFit(FittedCurve):
    """Bit errors over OSNR: ``1/SNR = penalty / SNR_ase + 1/SNR_floor``, drawn as log10 of the bit error ratio.

    Attributes:
        penalty_db: Implementation penalty: how much more OSNR it takes than by theory, far from the floor.
        penalty_error_db: Its standard error.
        inverse_floor: 1 / SNR that no OSNR improves, as of the transceivers; may scatter about zero.
        inverse_floor_error: Its standard error.
        modulation: ``16qam`` or ``qpsk``.
        symbol_rate_gbd: Symbol rate.
    """

    penalty_db: float
    penalty_error_db: float
    inverse_floor: float
    inverse_floor_error: float
    modulation: str
    symbol_rate_gbd: float
    _told = (_Told("implementation penalty", "penalty_db", "penalty_error_db", ".2f", "dB"),)

    @property
    def floor_snr_db(self) -> float:
        """SNR that no OSNR improves; infinite if none is seen."""
        return -10.0 * math.log10(self.inverse_floor) if self.inverse_floor > 0.0 else math.inf

    def required_osnr_db(self, ber: float) -> float:
        """Return the OSNR in 0.1 nm at which the curve has this bit error ratio; infinite if it never has."""
        noise = 1.0 / snr_of_ber(ber, self.modulation) - self.inverse_floor
        if noise <= 0.0:
            return math.inf
        return 10.0 * math.log10(self.symbol_rate_gbd / OSNR_BANDWIDTH_GHZ / noise) + self.penalty_db

    def penalty_at_db(self, ber: float) -> float:
        """Return how much more OSNR it takes at this bit error ratio than by theory, floor included."""
        ideal = self.symbol_rate_gbd / OSNR_BANDWIDTH_GHZ * snr_of_ber(ber, self.modulation)
        return self.required_osnr_db(ber) - 10.0 * math.log10(ideal)

    def words(self) -> str:
        """Return the result in one line."""
        return f"{super().words()}, floor at SNR {self.floor_snr_db:.1f} dB"


# -- the fits


def fit_fringe(data: ScanData, reading: str, setting: str = "", *, heater_ohm: float | None = None) -> FringeFit:
    """Fit the fringe of a heater: a reading over its current.

    Args:
        data: A scan over one heater current in mA, from nearly half a fringe on.
        reading: Name of the channel.
        setting: Name of the current; may be left out if it alone was swept.
        heater_ohm: Resistance of the heater; by default that of the bench file.

    Raises:
        ConfigError: There is no such reading or setting, it is no current, there are too few points, or they show less
            than half a fringe.
    """
    points = _Points.of(data, reading, setting)
    if points.unit != "mA":
        raise ConfigError(f"{points.name} is in {points.unit or 'no unit'}; a fringe is fitted over a current in mA")
    ohm = _heater_ohm(data, points.name) if heater_ohm is None else heater_ohm
    power_mw, y = points.x**2 * ohm * 1e-3, points.y
    points.check(5)
    span_mw = float(np.ptp(power_mw))
    if not span_mw > 0.0:
        raise ConfigError(f"{points.name} had one value only", hint="Sweep it.")

    def terms(p_pi: float) -> Real:
        angle = np.pi * power_mw / p_pi
        return np.stack([np.ones_like(angle), np.cos(angle), np.sin(angle)], axis=1)

    # For every Pπ the rest is linear: from half a fringe over the whole sweep to one every four points.
    trial = span_mw / np.geomspace(0.5, max(len(y) / 2.0, 1.0), 400)
    left = [np.sum((y - (a := terms(p)) @ np.linalg.lstsq(a, y, rcond=None)[0]) ** 2) for p in trial]
    p_pi = float(trial[int(np.argmin(left))])
    mean, cosine, sine = np.linalg.lstsq(terms(p_pi), y, rcond=None)[0]
    start = [p_pi, math.atan2(-sine, cosine), math.hypot(cosine, sine) / mean if mean else 0.5, mean]

    def curve(at: Real) -> Real:
        return np.asarray(at[3] * (1.0 + at[2] * np.cos(np.pi * power_mw / at[0] + at[1])))

    found, errors, residual = _least_squares(curve, y, start)
    if not 0.0 < found[0] <= 2.2 * span_mw or not errors[0] < found[0]:
        raise ConfigError(
            f"{reading} shows less than half a fringe over {span_mw:.3g} mW of {points.name}",
            hint="Sweep further, or read where this heater has more effect.",
        )
    offset_rad = (found[1] + np.pi) % (2.0 * np.pi) - np.pi
    found[1] = offset_rad
    pairs = [float(number) for pair in zip(found, errors, strict=True) for number in pair]
    x_label = f"power of {points.name} (mW)"
    return FringeFit(power_mw, y, residual, x_label, points.y_label, points.n_left_out, *pairs)


def fit_ring(data: ScanData, reading: str, setting: str = "") -> RingFit:
    """Fit the resonances of a ring: a power in W, mW or mA over wavelength or frequency.

    Its dispersion over the sweep is neglected. The curve is the transmission of an all-pass ring (Bogaerts et al.,
    "Silicon microring resonators", Laser Photonics Rev. 6, 47, 2012); a drop port has a negative depth.

    Args:
        data: A scan over ``wavelength_nm`` or ``frequency_thz``, over two resonances at least.
        reading: Name of the channel.
        setting: Name of the wavelength or frequency; may be left out if it alone was swept.

    Raises:
        ConfigError: There is no such reading or setting, or there are fewer than two resonances.
    """
    points = _Points.of(data, reading, setting)
    if points.unit not in ("nm", "THz"):
        raise ConfigError(f"{points.name} is in {points.unit or 'no unit'}; a ring is fitted over nm or THz")
    if points.y_unit.startswith("dB"):
        raise ConfigError(f"{reading} is in {points.y_unit}; a ring is fitted to a power that is not logarithmic")
    points.check(8)
    thz = SPEED_OF_LIGHT_M_PER_S / points.x * 1e-3 if points.unit == "nm" else points.x
    order = np.argsort(thz)
    thz, y = thz[order], points.y[order]
    middle = float(thz.mean())
    ghz = 1e3 * (thz - middle)
    start = _ring_start(ghz, y, reading)

    def curve(at: Real) -> Real:
        top, depth, fsr, place, log_f = at
        resonant = 1.0 + np.exp(log_f) * np.sin(np.pi * (ghz - place) / fsr) ** 2
        return np.asarray(top * (1.0 - depth / resonant))

    found, covariance, residual = _solved(curve, y, start)

    def derived(at: Real) -> Real:
        top, depth, fsr, place, log_f = at
        finesse = math.exp(log_f)
        place -= fsr * round(place / fsr)
        fwhm = 2.0 * fsr / np.pi * math.asin(min(1.0 / math.sqrt(finesse), 1.0))
        ends = (top * (1.0 - depth), top * (1.0 - depth / (1.0 + finesse)))
        ratio = 10.0 * math.log10(max(ends) / min(ends)) if min(ends) > 0.0 else math.inf
        return np.array([fsr, middle + 1e-3 * place, fwhm, (1e3 * middle + place) / fwhm, ratio])

    values = derived(found)
    errors = _propagated(derived, found, covariance)
    pairs = [number for pair in zip(values, errors, strict=True) for number in pair]
    x_label = "optical frequency (THz)"
    return RingFit(thz, y, residual, x_label, points.y_label, points.n_left_out, *(float(each) for each in pairs))


def _ring_start(ghz: Real, y: Real, reading: str) -> list[float]:
    """Return parameters to begin with, from the peaks that stand out."""
    from scipy.signal import find_peaks, peak_widths

    even = np.linspace(ghz[0], ghz[-1], len(ghz))
    level = float(np.median(y))
    dips = float(y.max()) - level < level - float(y.min())
    upright = np.interp(even, ghz, -y if dips else y)
    peaks, _ = find_peaks(upright, prominence=0.5 * float(np.ptp(upright)), distance=2)
    if len(peaks) < 2:
        raise ConfigError(
            f"{reading} shows {len(peaks)} resonances, and a free spectral range needs two", hint="Sweep further."
        )
    step = float(even[1] - even[0])
    fsr = float(np.median(np.diff(even[peaks])))
    width = max(float(np.median(peak_widths(upright, peaks, rel_height=0.5)[0])) * step, step)
    top, extreme = (float(y.max()), float(y.min())) if dips else (float(y.min()), float(y.max()))
    top = top or 1e-3 * extreme
    return [top, 1.0 - extreme / top, fsr, float(even[peaks[0]]), 2.0 * math.log(2.0 * fsr / (np.pi * width))]


def fit_loss_per_hop(
    data: ScanData, reading: str, hops: Sequence[float], *, launched_dbm: float | None = None
) -> HopLossFit:
    """Fit a straight line to losses over the number of hops.

    Args:
        data: A scan whose points are ways of different lengths.
        reading: Name of the channel: a power in W or dBm.
        hops: How many hops each point of the scan has, in their order.
        launched_dbm: Power at the beginning of every way; without it the loss without a hop is counted from 0 dBm.

    Raises:
        ConfigError: There is no such reading, the numbers do not fit the points, or all have equally many hops.
    """
    if len(hops) != data.plan.n_points:
        raise ConfigError(f"there are {data.plan.n_points} points, and hops for {len(hops)}")
    name, values, good = _numbers(data, reading)
    numbers = np.asarray(hops, dtype=np.float64)
    unit = data.unit[name]
    if unit not in ("W", "dBm"):
        raise ConfigError(f"{name} is in {unit}, which is no power", hint="Choose a channel in W or dBm.")
    good &= np.isfinite(numbers)
    if unit == "W":
        good &= values > 0.0
    x, power = numbers[good], values[good]
    if len(x) < 3 or not np.ptp(x) > 0.0:
        raise ConfigError(f"{name}: {len(x)} points with a number, and three of different lengths are the least")
    loss_db = (0.0 if launched_dbm is None else launched_dbm) - (
        power if unit == "dBm" else 10.0 * np.log10(1e3 * power)
    )
    found, errors, residual = _least_squares(lambda at: at[0] * x + at[1], loss_db, [0.0, 0.0])
    return HopLossFit(
        x, loss_db, residual, "hops", f"loss to {name} (dB)", int(len(numbers) - len(x)),
        float(found[0]), errors[0], float(found[1]), errors[1],
    )  # fmt: skip


OSNR_BANDWIDTH_GHZ = 12.5
"""Noise bandwidth of an OSNR: 0.1 nm at 1550 nm."""
_PER_SYMBOL = {"16qam": (0.375, 10.0), "qpsk": (0.5, 2.0)}
_LINES = {"400ZR": (59.84375, "16qam")}


def ber_of_snr(snr: Real | float, modulation: str) -> Any:
    """Return the bit error ratio in Gaussian noise, Gray-coded.

    3/8 erfc(sqrt(SNR/10)) of 16QAM, 1/2 erfc(sqrt(SNR/2)) of QPSK (Proakis, "Digital Communications", nearest
    neighbours only); SNR is per symbol and polarization.

    Raises:
        ConfigError: No such modulation.
    """
    from scipy.special import erfc

    factor, divisor = _modulation(modulation)
    return factor * erfc(np.sqrt(np.asarray(snr) / divisor))


def snr_of_ber(ber: Any, modulation: str) -> Any:
    """Return the SNR per symbol of a bit error ratio, the inverse of :func:`ber_of_snr`."""
    from scipy.special import erfcinv

    factor, divisor = _modulation(modulation)
    return divisor * erfcinv(np.asarray(ber) / factor) ** 2


def _modulation(name: str) -> tuple[float, float]:
    if name not in _PER_SYMBOL:
        raise ConfigError(f"no modulation {name!r}", hint=f"There are {', '.join(_PER_SYMBOL)}.")
    return _PER_SYMBOL[name]


def fit_ber(
    data: ScanData,
    ber: str,
    osnr: str,
    *,
    symbol_rate_gbd: float = _LINES["400ZR"][0],
    modulation: str = _LINES["400ZR"][1],
) -> BerFit:
    """Fit bit errors before correction over OSNR, of two polarizations, by the published curve and what it lacks.

    ``SNR_ase = OSNR · 12.5 GHz / symbol rate`` (Essiambre et al., J. Lightwave Technol. 28, 662, 2010, for two
    polarizations) and the bit error ratio of the modulation in Gaussian noise, with two parameters: a penalty that
    multiplies the noise, and noise of the transceivers that no OSNR takes away. Fitted to the logarithm of the ratio.

    Args:
        data: A scan that changes the OSNR; it does not matter by what.
        ber: Name of the channel of the bit error ratio, such as ``zr-b.prefec_ber``.
        osnr: Name of the channel of the OSNR in dB in 0.1 nm, such as ``zr-b.osnr_db``.
        symbol_rate_gbd: Symbol rate; by default that of 400ZR (OIF-400ZR-01.0, 59.84375 GBd).
        modulation: ``16qam`` or ``qpsk``.

    Raises:
        ConfigError: There is no such channel or modulation, or there are too few different points.
    """
    (factor, _), (ber_name, ratios, good) = _modulation(modulation), _numbers(data, ber)
    osnr_name, osnr_db, known = _numbers(data, osnr)
    good &= known & (ratios > 0.0) & (ratios < factor)
    x_db, y = osnr_db[good], np.log10(ratios[good])
    if len(y) < 4 or not np.ptp(x_db) > 0.0:
        raise ConfigError(
            f"{ber_name}: {len(y)} points with a bit error ratio, and four of different OSNR are the least",
            hint="Sweep further, or wait for the link to lock at every point.",
        )
    noise = symbol_rate_gbd / OSNR_BANDWIDTH_GHZ * 10.0 ** (-x_db / 10.0)

    def curve(at: Real) -> Real:
        inverse = 10.0 ** (at[0] / 10.0) * noise + at[1]
        found: Real = np.log10(np.maximum(ber_of_snr(1.0 / np.maximum(inverse, 1e-4), modulation), 1e-300))
        return found

    # Noise over noise is a straight line: where it begins and how it rises is where the search begins.
    slope, begin = np.polyfit(noise, 1.0 / snr_of_ber(ratios[good], modulation), 1)
    start = [10.0 * math.log10(max(float(slope), 0.1)), float(begin)]
    found, errors, residual = _least_squares(curve, y, start)
    return BerFit(
        x_db, y, residual, f"{osnr_name} (dB in 0.1 nm)", f"log10 {ber_name}", int(len(ratios) - len(y)),
        float(found[0]), errors[0], float(found[1]), errors[1], modulation, symbol_rate_gbd,
    )  # fmt: skip


# -- what they share


@dataclass(frozen=True, eq=False)
class _Points:
    """A reading over one setting, numbers alone."""

    name: str
    unit: str
    x: Real
    y: Real
    y_unit: str
    y_label: str
    n_left_out: int

    @classmethod
    def of(cls, data: ScanData, reading: str, setting: str) -> _Points:
        at, chosen = data.swept(setting)
        if any(size > 1 for other, size in enumerate(data.plan.shape) if other != at):
            raise ConfigError(
                f"the scan has several dimensions, {chosen.name} is one", hint="Fit a scan over this setting alone."
            )
        name, values, good = _numbers(data, reading)
        # Of a sweep that a laser ran, where it was counts, not where it was sent.
        x = data.setting_was.get(chosen.name, chosen.numbers).ravel()
        return cls(
            chosen.name, chosen.unit, x[good], values[good], data.unit[name], f"{name} ({data.unit[name]})",
            int(len(x) - good.sum()),
        )  # fmt: skip

    def check(self, least: int) -> None:
        """Refuse too few points."""
        if len(self.y) < least:
            raise ConfigError(f"{self.y_label}: {len(self.y)} points with a number, {least} are the least")


def _numbers(data: ScanData, reading: str) -> tuple[str, Real, NDArray[np.bool_]]:
    """Return name, values and which of them are numbers, point by point."""
    devices = {column.name: column.device for column in data.header.columns if column.name in data.value}
    names = choose([reading], devices)
    if len(names) > 1:
        raise ConfigError(f"{reading!r} means {len(names)} channels, a fit takes one", hint=f"Name {names[0]}.")
    values = data.value[names[0]].ravel()
    return names[0], values, (data.state[names[0]].ravel() == State.OK) & np.isfinite(values)


def _heater_ohm(data: ScanData, setting: str) -> float:
    """Return the resistance of a heater in the bench file that the data carry."""
    from lumion_hw.bench.loader import load_bench

    device = next(each.device for each in data.plan.settings if each.name == setting)
    file = data.header.bench_file
    try:
        model = None if file is None else load_bench(file.name or "the bench", text=file.text)
    except ConfigError:  # of another version, or with kinds of devices that are not installed here
        model = None
    ohm = None if model is None else getattr(model.devices.get(device), "heater_ohm", None)
    if not isinstance(ohm, float):
        raise ConfigError(f"the data do not say what the resistance of {setting} is", hint="Give heater_ohm.")
    return ohm


def _solved(curve: Callable[[Real], Real], y: Real, start: Sequence[float]) -> tuple[Real, Real, Real]:
    """Return parameters, their covariance by the scatter of the points, and the residual."""
    from scipy.optimize import least_squares

    begin = np.asarray(start, dtype=np.float64)
    scale = float(np.std(y)) or 1.0

    def misfit(at: Real) -> Real:
        return np.asarray((curve(at) - y) / scale, dtype=np.float64)

    found = least_squares(misfit, begin, x_scale="jac", max_nfev=2000)
    degrees = len(y) - len(begin)
    slopes = np.asarray(found.jac, dtype=np.float64)
    curvature = slopes.T @ slopes
    if degrees < _LEAST_DEGREES or np.linalg.matrix_rank(curvature) < len(begin):
        covariance = np.full((len(begin), len(begin)), np.inf)
    else:
        covariance = np.linalg.inv(curvature) * float(np.sum(found.fun**2)) / degrees
    return found.x, covariance, -scale * found.fun


def _least_squares(
    curve: Callable[[Real], Real], y: Real, start: Sequence[float]
) -> tuple[Real, tuple[float, ...], Real]:
    """Return parameters, their standard errors, and the residual."""
    found, covariance, residual = _solved(curve, y, start)
    return found, tuple(float(each) for each in np.sqrt(np.diag(covariance))), residual


def _propagated(derived: Callable[[Real], Real], at: Real, covariance: Real) -> Real:
    """Return standard errors of what follows from parameters, to first order."""
    steps = 1e-6 * np.maximum(np.abs(at), 1e-6)
    slopes = np.stack(
        [
            (derived(at + step) - derived(at - step)) / (2.0 * size)
            for step, size in zip(np.diag(steps), steps, strict=True)
        ]
    )
    errors: Real = np.sqrt(np.maximum(np.diag(slopes.T @ covariance @ slopes), 0.0))
    return errors
