"""Fits for daily work: fringe of a heater, loss over hops, bit error ratio over OSNR.

Each fit ignores points without a number, and returns standard errors and the residual. Fits of ring resonators are in
``ring.fit``.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lumion_hw.acquisition.columns import select_names
from lumion_hw.acquisition.fitted import FitPoints, FittedCurve, FitTerm, LeastSquares, Real, numbers_of, solve
from lumion_hw.acquisition.scan_data import ScanData
from lumion_hw.errors import ConfigError


@dataclass(frozen=True, eq=False)
class FringeFit(FittedCurve):
    """Fit of a heater fringe: ``y = mean · (1 + visibility · cos(π · P / p_pi + offset))`` over the heater power P.

    P is calculated with the cold resistance and corrected for the change of resistance with temperature (the bend).

    Attributes:
        p_pi_mw: Electrical power of the warm heater for a phase shift of π. With the cold resistance R0 and the bend γ,
            the current is given by I²·R0 = Pπ / (1 + γ·Pπ).
        offset_rad: Phase without heating, -π to π.
        visibility: (max - min) / (max + min), 0 to 1.
        mean: Mean of the fringe, in the unit of the reading.
        bend_per_mw: Relative change of resistance and efficiency per mW of heat; 0 if the sweep is too short to fit it.
        bend_error_per_mw: Standard error of ``bend_per_mw``; an assumed value if the sweep is too short.
    """

    p_pi_mw: float
    p_pi_error_mw: float
    offset_rad: float
    offset_error_rad: float
    visibility: float
    visibility_error: float
    mean: float
    mean_error: float
    bend_per_mw: float
    bend_error_per_mw: float
    _terms = (
        FitTerm("Pπ", "p_pi_mw", "p_pi_error_mw", ".4g", "mW"),
        FitTerm("offset", "offset_rad", "offset_error_rad", ".3f", "rad"),
        FitTerm("visibility", "visibility", "visibility_error", ".4f"),
        FitTerm("bend", "bend_per_mw", "bend_error_per_mw", ".4f", "per mW"),
    )


@dataclass(frozen=True, eq=False)
class HopLossFit(FittedCurve):
    """Result of a straight-line fit of loss over the number of hops.

    Attributes:
        loss_per_hop_db: Loss of one hop: the slope of the line.
        access_loss_db: Loss of a path without hops.
    """

    loss_per_hop_db: float
    loss_per_hop_error_db: float
    access_loss_db: float
    access_loss_error_db: float
    _terms = (
        FitTerm("loss per hop", "loss_per_hop_db", "loss_per_hop_error_db", ".4f", "dB"),
        FitTerm("access loss", "access_loss_db", "access_loss_error_db", ".3f", "dB"),
    )


@dataclass(frozen=True, eq=False)
class BerFit(FittedCurve):
    """Fit of the logarithm of the bit error ratio over the OSNR, with ``1/SNR = penalty / SNR_ase + 1/SNR_floor``.

    Attributes:
        penalty_db: Implementation penalty: additional OSNR needed compared with theory.
        inverse_floor: 1 / SNR of the transceivers at infinite OSNR; noise can make it negative.
        modulation: ``16qam`` or ``qpsk``.
    """

    penalty_db: float
    penalty_error_db: float
    inverse_floor: float
    inverse_floor_error: float
    modulation: str
    symbol_rate_gbd: float
    _terms = (FitTerm("implementation penalty", "penalty_db", "penalty_error_db", ".2f", "dB"),)

    @property
    def floor_snr_db(self) -> float:
        """SNR of the transceivers at infinite OSNR; infinite if the fit finds no limit."""
        return -10.0 * math.log10(self.inverse_floor) if self.inverse_floor > 0.0 else math.inf

    def required_osnr_db(self, ber: float) -> float:
        """Return the OSNR in dB in 0.1 nm that a bit error ratio needs; infinite if no OSNR is sufficient."""
        noise = 1.0 / snr_of_ber(ber, self.modulation) - self.inverse_floor
        if noise <= 0.0:
            return math.inf
        return 10.0 * math.log10(self.symbol_rate_gbd / OSNR_BANDWIDTH_GHZ / noise) + self.penalty_db

    def penalty_at_db(self, ber: float) -> float:
        """Return the additional OSNR in dB, compared with theory, for a bit error ratio.

        Transceiver noise is included.
        """
        ideal = self.symbol_rate_gbd / OSNR_BANDWIDTH_GHZ * snr_of_ber(ber, self.modulation)
        return self.required_osnr_db(ber) - 10.0 * math.log10(ideal)

    def summary(self) -> str:
        """Return the result of the fit in one line."""
        return f"{super().summary()}, floor at SNR {self.floor_snr_db:.1f} dB"


class NoFringeError(ConfigError):
    """A reading of a scan shows no fringe: too few points, no light, only noise, or less than half a fringe."""


# -- the fits


def fit_fringe(
    data: ScanData, reading: str, setting: str = "", *, heater_ohm: float | None = None, measured: str = ""
) -> FringeFit:
    """Fit the fringe of a heater: a reading over its current, voltage or power.

    Args:
        data: A scan over a heater current in mA, voltage in V or power in mW, over at least half a fringe.
        reading: Name of the channel.
        setting: Name of the swept current, voltage or power; needed only if several settings were swept.
        heater_ohm: Cold resistance of the heater; by default from the bench file. Not needed if the power was swept.
        measured: Channel with the measured voltage in V (if the current was swept) or current in mA (if the voltage was
            swept). The power is then voltage times current.

    Raises:
        NoFringeError: The points of this reading are too few, or show noise, no light or less than half a fringe.
        ConfigError: The reading or setting does not exist, or the setting does not drive a heater.
    """
    points = FitPoints.of(data, reading, setting)
    drive, power_mw, y = _driven(data, points, heater_ohm, measured)
    if len(y) < 5:
        raise NoFringeError(f"{points.y_label}: {len(y)} points have a value, but at least 5 are needed")
    if not y.any():
        raise NoFringeError(f"all values of {reading} are zero", hint="Check that the light is on during the scan.")
    span_mw = float(np.ptp(power_mw))
    if not span_mw > 0.0:
        raise ConfigError(f"{points.name} has only one value", hint="Sweep this setting over several values.")
    at, errors, residual = _solved_fringe(_Fringe(drive, power_mw, y))
    if not _is_above_noise(y, residual):
        raise NoFringeError(
            f"{reading} shows no fringe above its noise over {span_mw:.3g} mW of {points.name}",
            hint="Check that the light is on during the scan, or read at a port where this heater has more effect.",
        )
    if not 0.0 < at[0] <= 2.2 * span_mw or not errors[0] < at[0]:
        raise NoFringeError(
            f"{reading} shows less than half a fringe over {span_mw:.3g} mW of {points.name}",
            hint="Sweep further, or read at a port where this heater has more effect.",
        )
    at[1] = (at[1] + np.pi) % (2.0 * np.pi) - np.pi
    pairs = [float(number) for pair in zip(at, errors, strict=True) for number in pair]
    n_left_out = len(points.is_valid) - len(y)
    return FringeFit(power_mw, y, residual, f"power of {points.name} (mW)", points.y_label, n_left_out, *pairs)


def fit_clearest_fringe(data: ScanData, readings: Sequence[str] = ("*",)) -> FringeFit:
    """Fit the fringe of the swept heater in the reading that gives Pπ with the smallest relative error.

    Args:
        data: A scan over a heater current, voltage or power; see :func:`fit_fringe`.
        readings: Names of channels, with shell wildcards. Channels in decibels are not used.

    Raises:
        NoFringeError: No reading shows a fringe.
        ConfigError: There is no such reading, or the scan is not over one heater.
    """
    devices = {column.name: column.device for column in data.header.columns if column.name in data.value}
    names = [name for name in select_names(readings, devices) if not data.unit[name].startswith("dB")]
    if not names:
        raise ConfigError(
            "all selected readings are in decibels, but a fringe is fitted to light in a linear unit",
            hint="Choose readings in mA or W.",
        )
    fits: list[FringeFit] = []
    errors: list[NoFringeError] = []
    for name in names:
        try:
            fits.append(fit_fringe(data, name))
        except NoFringeError as error:
            errors.append(error)
    if not fits and len(errors) == 1:
        raise errors[0]
    if not fits:
        raise NoFringeError(
            f"none of the {len(names)} readings that were fitted shows a fringe",
            hint="Check that the light is on during the scan, sweep further, or read at a port where this heater has "
            "more effect.",
        )
    return min(fits, key=lambda fit: fit.p_pi_error_mw / fit.p_pi_mw)


_MAX_CHANCE = 1e-4
"""Largest probability that noise alone passes for a fringe."""


def _is_above_noise(y: Real, residual: Real) -> bool:
    """Return whether the fringe explains more of the scatter of the points than it could explain of noise (F test)."""
    from scipy.special import fdtrc

    n_free, n_fitted = len(y) - 5, 4
    left = float(np.sum(residual**2))
    explained = float(np.sum((y - y.mean()) ** 2)) - left
    if n_free < 1 or not left > 0.0:
        return explained > 0.0
    # The fit chooses the best of about one period per two points, and of several bends.
    n_tried = len(y) / 2.0 * len(_BENT_START)
    return bool(n_tried * fdtrc(n_fitted, n_free, (explained / n_fitted) / (left / n_free)) < _MAX_CHANCE)


class _Drive(enum.Enum):
    """Quantity that drives the heater in a scan; the value is its unit."""

    CURRENT = "mA"
    VOLTAGE = "V"
    POWER = "mW"

    def heat_mw(self, cold_mw: Real, bend_per_mw: float) -> Real:
        """Return the heat of a heater from the power at the cold resistance R0.

        The resistance at heat P is R0·(1 + γ·P), where γ is the bend. A current I gives P = I²R0 / (1 - γ·I²R0), and a
        voltage U gives P·(1 + γ·P) = U²/R0. A measured power is multiplied by 1 + γ·P.
        """
        bend = bend_per_mw * cold_mw
        if self is _Drive.CURRENT:
            return cold_mw / np.maximum(1.0 - bend, 0.1)
        if self is _Drive.VOLTAGE:
            return 2.0 * cold_mw / (1.0 + np.sqrt(np.maximum(1.0 + 4.0 * bend, 0.01)))
        return cold_mw * (1.0 + bend)


def _driven(data: ScanData, points: FitPoints, heater_ohm: float | None, measured: str) -> tuple[_Drive, Real, Real]:
    units = [drive.value for drive in _Drive]
    if points.unit not in units:
        unit = points.unit or "no unit"
        raise ConfigError(f"{points.name} is in {unit}, but a fringe fit needs mA, V or mW")
    drive, x, y = _Drive(points.unit), points.x, points.y
    if measured:
        name, other, is_valid = numbers_of(data, measured)
        expected_unit = {"mA": "V", "V": "mA"}.get(points.unit)
        if data.unit[name] != expected_unit:
            raise ConfigError(f"{name} is in {data.unit[name]}, but with {points.name} it must be in {expected_unit}")
        has_both = is_valid[points.is_valid]
        drive, power_mw, y = _Drive.POWER, (x * other[points.is_valid])[has_both], y[has_both]
    elif drive is _Drive.POWER:
        power_mw = x
    else:
        ohm = _heater_ohm(data, points.name) if heater_ohm is None else heater_ohm
        power_mw = x**2 * ohm * 1e-3 if drive is _Drive.CURRENT else 1e3 * x**2 / ohm
    order = np.argsort(power_mw)
    return drive, power_mw[order], y[order]


_BENT_START = (0.0, 0.1, 0.2, -0.1)
"""Initial values of the bend that are tried: relative change of the heat over the sweep."""
_BEND_ALLOWED = 0.1
"""Assumed standard deviation of the bend: the resistance of metal heaters increases by about 10 % up to their current
limit.
"""
_MAX_SEARCH_POINTS = 2000
"""Maximum number of points in the search for the initial Pπ."""
_MAX_BEND = 3.0
"""Largest plausible bend, in units of ``_BEND_ALLOWED``."""


class _Fringe(NamedTuple):
    """Points of a fringe: power at the cold resistance in mW, and reading; both of shape ``(points,)``."""

    drive: _Drive
    power_mw: Real
    y: Real

    def curve(self, at: Real) -> Real:
        """Return the fringe for the parameters Pπ in mW, phase, contrast, mean and, if given, bend per mW."""
        heat_mw = self.drive.heat_mw(self.power_mw, float(at[4]) if len(at) > 4 else 0.0)
        fringe: Real = at[3] * (1.0 + at[2] * np.cos(np.pi * heat_mw / at[0] + at[1]))
        return fringe

    def start(self, bends: Sequence[float]) -> list[float]:
        """Return initial parameters of :meth:`curve`, with the best of ``bends`` (relative change over the sweep)."""
        tried = [(*self._best_turn(bend), bend) for bend in bends]
        _, p_pi, (mean, cosine, sine), bend = min(tried, key=lambda start: start[0])
        contrast = math.hypot(cosine, sine) / mean if mean else 0.5
        return [p_pi, math.atan2(-sine, cosine), contrast, mean, bend / float(self.power_mw.max())]

    def _best_turn(self, bend: float) -> tuple[float, float, Real]:
        """Search the best Pπ for a bend; return the residual, Pπ, and the mean, cosine and sine parts of the fringe."""
        sample = slice(None, None, max(len(self.y) // _MAX_SEARCH_POINTS, 1))
        heat_mw, y = self.drive.heat_mw(self.power_mw, bend / float(self.power_mw.max()))[sample], self.y[sample]
        # From half a fringe over the whole sweep to one fringe per four points.
        p_pi = float(np.ptp(heat_mw)) / np.geomspace(0.5, max(len(y) / 2.0, 1.0), 400)
        # For a given Pπ the fringe is linear in mean, cosine and sine. So only Pπ needs a search, over its whole range:
        # a fit from one start could end at a wrong number of fringes.
        angle = np.pi * heat_mw / p_pi[:, None]
        terms = np.stack([np.ones_like(angle), np.cos(angle), np.sin(angle)], axis=2)
        square = np.einsum("tni,tnj->tij", terms, terms) + 1e-9 * len(y) * np.eye(3)
        projection = np.einsum("tni,n->ti", terms, y)
        coefficients = np.linalg.solve(square, projection[:, :, None])[:, :, 0]
        residual = float(y @ y) - np.einsum("ti,ti->t", projection, coefficients)
        best = int(np.argmin(residual))
        return float(residual[best]), float(p_pi[best]), coefficients[best]

    def solve(self, start: Sequence[float]) -> LeastSquares:
        """Fit the fringe; without a fifth parameter in ``start`` the bend stays 0."""
        sizes = [abs(start[0]), 1.0, 1.0, abs(start[3]) or 1.0, _BEND_ALLOWED / float(self.power_mw.max())]
        return solve(self.curve, self.y, start, sizes[: len(start)])


def _solved_fringe(fringe: _Fringe) -> tuple[Real, Real, Real]:
    allowed = _BEND_ALLOWED / float(fringe.power_mw.max())
    if len(fringe.y) > 6:
        bent_fit = fringe.solve(fringe.start(_BENT_START))
        if bent_fit.errors[4] < allowed and abs(bent_fit.at[4]) < _MAX_BEND * allowed:
            return bent_fit.at, bent_fit.errors, bent_fit.residual
    # The sweep does not determine the bend: fit without it, and add the effect of a typical bend to the errors.
    straight = fringe.solve(fringe.start((0.0,))[:4])
    step = 1e-3 * allowed
    shift = [fringe.curve(np.append(straight.at, direction * step)) for direction in (1.0, -1.0)]
    moved = np.linalg.lstsq(straight.slopes, (shift[0] - shift[1]) / (2.0 * step), rcond=None)[0]
    errors = np.hypot(straight.errors, np.abs(moved) * allowed)
    return np.append(straight.at, 0.0), np.append(errors, allowed), straight.residual


def fit_loss_per_hop(
    data: ScanData, reading: str, hops: Sequence[float], *, launched_dbm: float | None = None
) -> HopLossFit:
    """Fit a straight line to losses over the number of hops.

    Args:
        data: A scan whose points are paths with different numbers of hops.
        reading: Name of the channel: a power in W or dBm.
        hops: Number of hops at each point of the scan, in the order of the points.
        launched_dbm: Power at the input of every path; 0 dBm by default.

    Raises:
        ConfigError: The reading does not exist, the number of hops does not match the points, or all hops are equal.
    """
    if len(hops) != data.plan.n_points:
        raise ConfigError(f"the scan has {data.plan.n_points} points, but hops has {len(hops)} values")
    name, values, is_valid = numbers_of(data, reading)
    numbers = np.asarray(hops, dtype=np.float64)
    unit = data.unit[name]
    if unit not in ("W", "dBm"):
        raise ConfigError(f"{name} is in {unit}, not a power", hint="Choose a channel in W or dBm.")
    is_valid &= np.isfinite(numbers)
    if unit == "W":
        is_valid &= values > 0.0
    x, power = numbers[is_valid], values[is_valid]
    if len(x) < 3 or not np.ptp(x) > 0.0:
        raise ConfigError(
            f"{name}: {len(x)} points have a value, but at least three with different numbers of hops are needed",
        )
    loss_db = (0.0 if launched_dbm is None else launched_dbm) - (
        power if unit == "dBm" else 10.0 * np.log10(1e3 * power)
    )
    fit = solve(lambda at: at[0] * x + at[1], loss_db, [0.0, 0.0], [1.0, 1.0])
    parameters, errors, residual = fit.at, fit.errors, fit.residual
    return HopLossFit(
        x, loss_db, residual, "hops", f"loss to {name} (dB)", int(len(numbers) - len(x)),
        float(parameters[0]), float(errors[0]), float(parameters[1]), float(errors[1]),
    )  # fmt: skip


OSNR_BANDWIDTH_GHZ = 12.5
"""Noise bandwidth of the OSNR: 0.1 nm at 1550 nm."""
_PER_SYMBOL = {"16qam": (0.375, 10.0), "qpsk": (0.5, 2.0)}
_LINES = {"400ZR": (59.84375, "16qam")}


def ber_of_snr(snr: Real | float, modulation: str) -> Any:
    """Return the bit error ratio of a Gray-coded modulation in Gaussian noise.

    The ratio is 3/8 erfc(sqrt(SNR/10)) for 16QAM and 1/2 erfc(sqrt(SNR/2)) for QPSK (Proakis, "Digital
    Communications"); SNR is per symbol and polarization.

    Raises:
        ConfigError: The modulation is unknown.
    """
    from scipy.special import erfc

    factor, divisor = _modulation(modulation)
    return factor * erfc(np.sqrt(np.asarray(snr) / divisor))


def snr_of_ber(ber: Any, modulation: str) -> Any:
    """Return the SNR per symbol at a bit error ratio: the inverse of :func:`ber_of_snr`."""
    from scipy.special import erfcinv

    factor, divisor = _modulation(modulation)
    return divisor * erfcinv(np.asarray(ber) / factor) ** 2


def _modulation(name: str) -> tuple[float, float]:
    if name not in _PER_SYMBOL:
        raise ConfigError(f"unknown modulation {name!r}", hint=f"Modulations: {', '.join(_PER_SYMBOL)}.")
    return _PER_SYMBOL[name]


def fit_ber(
    data: ScanData,
    ber: str,
    osnr: str,
    *,
    symbol_rate_gbd: float = _LINES["400ZR"][0],
    modulation: str = _LINES["400ZR"][1],
) -> BerFit:
    """Fit the bit error ratio before error correction over the OSNR.

    The model is the bit error ratio in Gaussian noise, with ``SNR_ase = OSNR · 12.5 GHz / symbol rate`` (Essiambre et
    al., J. Lightwave Technol. 28, 662, 2010, for two polarizations). The fitted parameters are the penalty and the SNR
    of the transceivers.

    Args:
        data: A scan in which the OSNR changes.
        ber: Name of the channel of the bit error ratio, such as ``zr-b.prefec_ber``.
        osnr: Name of the channel of the OSNR in dB in 0.1 nm.
        symbol_rate_gbd: Symbol rate; by default that of 400ZR (OIF-400ZR-01.0, 59.84375 GBd).
        modulation: ``16qam`` or ``qpsk``.

    Raises:
        ConfigError: A channel or the modulation does not exist, or there are too few different points.
    """
    (factor, _), (ber_name, ratios, is_valid) = _modulation(modulation), numbers_of(data, ber)
    osnr_name, osnr_db, level_columns = numbers_of(data, osnr)
    is_valid &= level_columns & (ratios > 0.0) & (ratios < factor)
    x_db, y = osnr_db[is_valid], np.log10(ratios[is_valid])
    if len(y) < 4 or not np.ptp(x_db) > 0.0:
        raise ConfigError(
            f"{ber_name}: {len(y)} points with a bit error ratio, but at least four with different OSNR are needed",
            hint="Sweep further, or wait for the link to lock at every point.",
        )
    noise = symbol_rate_gbd / OSNR_BANDWIDTH_GHZ * 10.0 ** (-x_db / 10.0)

    def curve(at: Real) -> Real:
        inverse = 10.0 ** (at[0] / 10.0) * noise + at[1]
        log_ber: Real = np.log10(np.maximum(ber_of_snr(1.0 / np.maximum(inverse, 1e-4), modulation), 1e-300))
        return log_ber

    # Total noise over ASE noise is a straight line: its offset and slope are the initial parameters.
    slope, begin = np.polyfit(noise, 1.0 / snr_of_ber(ratios[is_valid], modulation), 1)
    start = [10.0 * math.log10(max(float(slope), 0.1)), float(begin)]
    fit = solve(curve, y, start, [1.0, 1e-3])
    parameters, errors, residual = fit.at, fit.errors, fit.residual
    return BerFit(
        x_db, y, residual, f"{osnr_name} (dB in 0.1 nm)", f"log10 {ber_name}", int(len(ratios) - len(y)),
        float(parameters[0]), float(errors[0]), float(parameters[1]), float(errors[1]), modulation, symbol_rate_gbd,
    )  # fmt: skip


def _heater_ohm(data: ScanData, setting: str) -> float:
    from lumion_hw.bench.file.loader import load_bench

    device = next(swept.device for swept in data.plan.settings if swept.name == setting)
    file = data.header.bench_file
    try:
        model = None if file is None else load_bench(file.name or "the bench", text=file.text)
    except ConfigError:  # of another version, or with device kinds that are not installed
        model = None
    ohm = None if model is None else getattr(model.devices.get(device), "heater_ohm", None)
    if not isinstance(ohm, float):
        raise ConfigError(f"the data do not contain the resistance of {setting}", hint="Give heater_ohm.")
    return ohm
