"""Fit of a heater law (phase φ against current I) to a few settings, independent of the rest of the mesh.

With x = e^{-jφ} every field transmission is (a + b·x) / (c + d·x), with the same c and d for all detectors, and every
power is

    P_q = (A_q + B_q·cos φ + C_q·sin φ) / (1 + D·cos φ + E·sin φ)

Light in loops gives the denominator. If light passes the arm in both directions, the numerators contain a second
harmonic. Where light never turns back there is neither, so that fewer settings determine the law.

The law is φ = ρ2·I²·(1 + κ·I² + κ²·I⁴), the series for a resistance that rises with its heat
(docs/decisions/0006-global-fit.md).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration.model.arrays import Real
from calibration.model.nominal_heaters import PUBLISHED_BENDING_PER_MA2, NominalHeaters
from calibration.model.observations import NoiseModel
from lumion_hw.mesh.waves.heater import HeaterLaw

MODULATION_SIGMA = 2.5
"""Smallest rms swing of the best detector, in units of noise, that counts as an effect of the heater."""

# A passive mesh has |D + jE| below 1, and the search keeps a distance to this limit.
_STRONGEST_LOOP = 0.9
# Relative error of the model: the swept heater warms its neighbours.
_MODEL_ERROR = 0.005
# Grid step over ρ2, given as phase at the largest current.
_GRID_RAD = 0.15
_STARTS = 3
_HALF_RATE_SHARE = 0.25
_DISTINCT = 0.1
_ROUNDS = 20
# A column of the numerators that is smaller than this part of the first, without its projection on the others, depends
# on the others.
_DEPENDENT, _TINY = 1e-12, 1e-150
# Keeps equations solvable where the numerators explain every reading and nothing determines ρ2.
_RIDGE = 1e-12
_OUTSIDE = 0.1
# Excess of χ², relative to the best fit, up to which another law may be the true one.
_AMBIGUOUS_SIGMA = 25.0


@dataclass(frozen=True, eq=False)
class HeaterSweep:
    """Monitor readings at n currents of one heater, with all others constant.

    Attributes:
        squares_ma2: Shape ``(n,)``; squared heater currents.
        reading_ma: Shape ``(n, monitors)``; photocurrents. Monitors with a NaN are ignored.
    """

    squares_ma2: Real
    reading_ma: Real


@dataclass(frozen=True)
class FringeTerms:
    """What the paths of light through a mesh add to a fringe.

    Attributes:
        loops: Shape ``(n, 2)``; D and E of the denominator with which a fit may start.
        loop_sigma: Prior standard deviation of D and E.
        orders: Harmonics of the phase that the numerators may contain, the simplest variant first.
    """

    loops: Real
    loop_sigma: float
    orders: tuple[tuple[int, ...], ...]


RECIRCULATING = FringeTerms(
    np.array([(0.0, 0.0), *((0.35 * np.cos(a), 0.35 * np.sin(a)) for a in np.arange(6) * np.pi / 3)]),
    0.4,
    ((1,), (1, 2)),
)
"""Light runs in loops and passes an arm in both directions."""
FEED_FORWARD = FringeTerms(np.zeros((1, 2)), 1e-4, ((1,),))
"""Light never turns back. Two facets that reflect 1e-4 of the power each make loops of this strength."""


@dataclass(frozen=True)
class HeaterFit:
    """Heater law (phase against current) fitted to the sweeps of one heater.

    Attributes:
        law: The law; ``None`` if no detector showed an effect.
        turn_sigma_rad: Standard error of the phase at one turn; infinite if the law is ambiguous.
        residual_sigma: Rms residual in units of noise.
        modulation_sigma: Rms swing of the best detector in units of noise.
    """

    law: HeaterLaw | None
    turn_sigma_rad: float
    residual_sigma: float
    modulation_sigma: float


NOT_SWEPT = HeaterFit(None, np.inf, 0.0, 0.0)
"""Result for an arm without a heater, or without an effect on any monitor."""


def fit_heater(
    sweeps: Sequence[HeaterSweep],
    noise: NoiseModel,
    heater_max_ma: float,
    heaters: NominalHeaters,
    terms: FringeTerms = RECIRCULATING,
) -> HeaterFit:
    """Fit phase against current to one or several sweeps of one heater.

    ``heaters`` are the expected heaters of the chip, ``terms`` what the paths of light add to a fringe.
    """
    # The constants hold for published heaters: squared currents are in units in which this heater equals them.
    per_ma2 = heaters.per_ma2
    traces = [_scaled(sweep, noise, per_ma2) for sweep in sweeps]
    low, high = heaters.rho2_range
    rho2_range = low / per_ma2, high / per_ma2
    modulation = max(t.modulation for t in traces)
    if modulation < MODULATION_SIGMA:
        return HeaterFit(None, np.inf, modulation, modulation)
    choices = itertools.product((_AS_PUBLISHED, _WIDE_BENDING_PRIOR), terms.orders, (False, True))
    forms = [_NumeratorForm(orders, drift, bending) for bending, orders, drift in choices]
    (fit, per_freedom), *others = _fit_forms(forms, traces, rho2_range, terms)
    # The simplest form comes first. More terms must improve the fit enough: each uses one level of some eight.
    for form, (other_fit, other_per_freedom) in zip(forms[1:], others, strict=True):
        if other_per_freedom * form.bending.min_improvement < per_freedom:
            fit, per_freedom = other_fit, other_per_freedom
    best = fit[0]
    rho2, bending = best.point[:2]
    rho2_ma2, rho4_ma4, rho6_ma6 = (float(rho2 * bending**n * per_ma2 ** (n + 1)) for n in range(3))
    law = HeaterLaw(rho2_ma2, rho4_ma4, heater_max_ma, rho6_ma6)
    # If another ρ2 fits nearly as well, the heater is swept again with another source instead of guessing.
    excess = max(per_freedom, 1.0)
    similar = [other for other in fit[1:] if other.cost - best.cost < _AMBIGUOUS_SIGMA * excess]
    ambiguous = any(abs(other.point[0] - rho2) > _DISTINCT for other in similar)
    sigma = np.inf if ambiguous else np.sqrt(excess) * _turn_sigma(best)
    return HeaterFit(law, float(sigma), float(np.sqrt(per_freedom)), modulation)


@dataclass(frozen=True)
class _BendingPrior:
    """Prior for κ, the relative change of the heater resistance per mA².

    Attributes:
        sigma: Standard deviation about the published value.
        starts: Start values of κ.
        min_improvement: This prior is used only if it lowers χ² per degree of freedom by this factor.
    """

    sigma: float
    starts: tuple[float, ...]
    min_improvement: float


_AS_PUBLISHED = _BendingPrior(0.004, (PUBLISHED_BENDING_PER_MA2,), 1.3)
# The resistance changes by -5 to 9 % per π (assumed: foundries rarely state it).
_WIDE_BENDING_PRIOR = _BendingPrior(0.02, (-0.02, PUBLISHED_BENDING_PER_MA2, 0.05), 3.0)


@dataclass(frozen=True)
class _NumeratorForm:
    """One variant of the power formula (see the module) that is tried in a fit.

    Attributes:
        orders: Harmonics of the phase φ that the numerators contain.
        drift: Whether the numerators drift with the heat.
        bending: Prior of κ, the relative change of the resistance over the range of the sweep.
    """

    orders: tuple[int, ...]
    drift: bool
    bending: _BendingPrior

    @property
    def columns(self) -> list[int]:
        """Indices of the functions of :func:`_functions` that the numerators contain, padded with the last."""
        harmonics = [index for order in self.orders for index in (2 * order - 1, 2 * order)]
        columns = [0, *harmonics, *([_DRIFT] if self.drift else [])]
        return columns + [_ZERO] * (_ZERO - len(columns))


# Indices of functions of the phase, see _functions.
_DRIFT, _ZERO = 5, 6


@dataclass(frozen=True, eq=False)
class _SweepTrace:
    """Heater sweep in units of noise, with the detectors compressed to as many columns as there are currents.

    Attributes:
        squares: Shape ``(n,)``; squared currents in units of the published heaters.
        values: Shape ``(n, m)``; readings at n currents, in units of noise, in m columns.
        modulation: Rms swing of the detector with the largest swing.
    """

    squares: Real
    values: Real
    detectors: int
    modulation: float


@dataclass(frozen=True, eq=False)
class _Point:
    """Minimum of the fit: form of the numerators, ρ2 and κ of the law, D and E of every sweep, cost, normal matrix."""

    form: _NumeratorForm
    point: Real
    cost: float
    matrix: Real


def _fit_forms(
    forms: Sequence[_NumeratorForm], traces: Sequence[_SweepTrace], rho2_range: tuple[float, float], terms: FringeTerms
) -> list[tuple[list[_Point], float]]:
    """Fit a heater law with each form of numerators; return minima, lowest first, and χ² per degree of freedom."""
    points = _refine_fits(forms, _initial_guesses(forms, traces, rho2_range, terms), traces, terms)
    aliases = _half_rate_aliases(points, traces) if len(terms.orders) > 1 else []
    # A step may leave the expected range, towards a law of half the rate with a strong second harmonic.
    low, high = (1.0 - _OUTSIDE) * rho2_range[0], (1.0 + _OUTSIDE) * rho2_range[1]
    results = []
    for form in forms:
        fits = sorted((point for point in points if point.form is form), key=lambda fit: fit.cost)
        fits = [fit for fit in fits if fit not in aliases] or fits
        fits = [fit for fit in fits if low <= fit.point[0] <= high] or fits
        columns = 1 + 2 * len(form.orders) + form.drift
        freedom = sum(t.detectors * (len(t.squares) - columns) for t in traces) - 2
        if terms is RECIRCULATING:
            freedom -= 2 * len(traces)  # D and E
        results.append((fits, fits[0].cost / max(freedom, 1)))
    return results


def _half_rate_aliases(fits: Sequence[_Point], traces: Sequence[_SweepTrace]) -> list[_Point]:
    """Return the fitted laws of half the true ρ2, whose second harmonic fits the fringe."""
    # At half the true rate the second harmonic replaces the first. Such a law fits as well without its first harmonic.
    fits = [fit for fit in fits if fit.form.orders != (1,)]
    columns = [replace(fit.form, orders=o).columns for o in ((1, 2), (2,), (1,)) for fit in fits]
    points = np.tile([fit.point for fit in fits], (3, 1))
    costs = np.zeros(len(points))
    for index, trace in enumerate(traces):
        costs += (_Projection(points, np.array(columns), index, trace).residual ** 2).sum(axis=(1, 2))
    cost, without_first, without_second = costs.reshape(3, -1)
    is_alias = without_first - cost < _HALF_RATE_SHARE * (without_second - cost)
    return [fit for fit, alias in zip(fits, is_alias, strict=True) if alias]


def _scaled(sweep: HeaterSweep, noise: NoiseModel, per_ma2: float) -> _SweepTrace:
    readings = sweep.reading_ma[:, np.isfinite(sweep.reading_ma).all(axis=0)]
    mean = readings.mean(axis=0)
    # The weight of a detector: noise at the mean reading, plus half a per cent for effects that are ignored here.
    scaled = (readings - mean) / np.hypot(noise.sigma_ma(mean), _MODEL_ERROR * mean)
    modulation = float(np.sqrt((scaled**2).mean(axis=0).max(initial=0.0)))
    # The numerators are free for each detector, so only the column space counts: 28 detectors are compressed without
    # loss to as many columns as there are levels.
    basis, size, _ = np.linalg.svd(scaled, full_matrices=False)
    return _SweepTrace(sweep.squares_ma2 * per_ma2, basis * size, scaled.shape[1], modulation)


def _functions(phase: Real, square: Real) -> Real:
    """Return the functions that numerators consist of, shape ``(..., 7)``: harmonics, drift with the heat, and 0."""
    values = np.zeros((*phase.shape, _ZERO + 1))
    cosine, sine = np.cos(phase), np.sin(phase)
    values[..., 0], values[..., 1], values[..., 2] = 1.0, cosine, sine
    values[..., 3], values[..., 4] = (cosine - sine) * (cosine + sine), 2.0 * sine * cosine
    values[..., _DRIFT] = square
    return values


# Column j of the functions times this matrix is the derivative of function j by the phase.
_BY_PHASE = np.zeros((_ZERO + 1, _ZERO + 1))
_BY_PHASE[[2, 1, 4, 3], [1, 2, 3, 4]] = -1.0, 1.0, -2.0, 2.0


class _Projection:
    """Readings of one sweep at k trial laws, without their best fit by numerators (variable projection).

    For given ρ2, κ, D and E the numerators are linear, and QR subtracts their best fit for all detectors at once.

    Args:
        points: Shape ``(k, 2 + 2·traces)``; ρ2 and κ of the law, D and E of every sweep.
        columns: Shape ``(k, 6)``; functions of the phase in the numerators.
        index: Number of the sweep.

    Attributes:
        residual: Shape ``(k, n, m)``, at n currents in m columns.
    """

    def __init__(self, points: Real, columns: NDArray[np.int64], index: int, trace: _SweepTrace) -> None:
        self._square = trace.squares
        self._rho2, self._bend, self._d, self._e = (
            points[:, column, None] for column in (0, 1, 2 + 2 * index, 3 + 2 * index)
        )
        bent = self._bend * self._square
        self._phase = self._rho2 * self._square * (1.0 + bent * (1.0 + bent))
        self._values = _functions(self._phase, self._square)
        self._cosine, self._sine = self._values[..., 1], self._values[..., 2]
        self._lower = (1.0 + self._d * self._cosine + self._e * self._sine)[..., None]
        # As many columns as there are currents can explain every reading.
        rows, currents = np.arange(len(points)), np.arange(len(self._square))
        self._chosen = rows[:, None, None], currents[:, None], columns[:, None, : len(currents)]
        self._upper = self._values[self._chosen] / self._lower
        basis, self._triangle = np.linalg.qr(self._upper)
        size = np.abs(np.diagonal(self._triangle, axis1=1, axis2=2))
        self._is_used = size > _DEPENDENT * size[:, :1]
        self._basis = basis * self._is_used[:, None]
        self._parts = np.swapaxes(self._basis, 1, 2) @ trace.values
        self.residual: Real = trace.values - self._basis @ self._parts

    def jacobian(self) -> Real:
        """Return the derivatives of the residuals by ρ2, κ, D and E, shape ``(k, 4, n, m)``.

        Golub and Pereyra, SIAM J. Numer. Anal. 10, 413 (1973).
        """
        cosine, sine, square = self._cosine, self._sine, self._square
        by_lower = self._upper / self._lower
        by_phase = (self._values @ _BY_PHASE)[self._chosen] / self._lower
        by_phase -= by_lower * (self._e * cosine - self._d * sine)[..., None]
        slopes = np.empty((len(by_phase), 4, *by_phase.shape[1:]))
        np.multiply(by_phase, (self._phase / self._rho2)[..., None], out=slopes[:, 0])
        by_bend = self._rho2 * square**2 * (1.0 + 2.0 * self._bend * square)
        np.multiply(by_phase, by_bend[..., None], out=slopes[:, 1])
        np.multiply(by_lower, -cosine[..., None], out=slopes[:, 2])
        np.multiply(by_lower, -sine[..., None], out=slopes[:, 3])
        used = self._is_used[:, :, None] & self._is_used[:, None]
        inverse = np.linalg.inv(np.where(used, self._triangle, np.eye(used.shape[1])))
        moved = slopes @ (inverse @ self._parts)[:, None]
        turn = np.swapaxes(inverse, 1, 2)[:, None] @ (np.swapaxes(slopes, 2, 3) @ self.residual[:, None])
        basis = self._basis[:, None]
        derivative: Real = basis @ (np.swapaxes(basis, 2, 3) @ moved - turn) - moved
        return derivative


def _initial_guesses(
    forms: Sequence[_NumeratorForm], traces: Sequence[_SweepTrace], rho2_range: tuple[float, float], terms: FringeTerms
) -> list[list[Real]]:
    """Return the start points of every form: the lowest points of a grid over ρ2, κ, D and E."""
    largest_ma2 = max(float(t.squares.max()) for t in traces)
    all_rho2 = np.arange(*rho2_range, _GRID_RAD / largest_ma2)
    all_bending = _WIDE_BENDING_PRIOR.starts
    costs = [_grid_costs(all_rho2, np.array(all_bending), terms, trace) for trace in traces]
    starts = []
    for form in forms:
        used = [all_bending.index(bend) for bend in form.bending.starts]
        rho2, bending = np.repeat(all_rho2, len(used)), np.tile(form.bending.starts, len(all_rho2))
        by_trace = [cost[form.orders, form.drift][:, used].reshape(len(rho2), -1) for cost in costs]
        # Each sweep has its own background and hence its own D, E; the sweeps share the law.
        total = np.sum([cost.min(axis=1) for cost in by_trace], axis=0)
        chosen = [terms.loops[cost.argmin(axis=1)] for cost in by_trace]
        points: list[Real] = []
        for index in np.argsort(total, kind="stable"):
            # The start points lie in different fringes; neighbours on one slope would all end in the same minimum.
            if all(abs(rho2[index] - point[0]) > _DISTINCT for point in points):
                loops = (value for loop in chosen for value in loop[index])
                points.append(np.array([rho2[index], bending[index], *loops]))
            if len(points) == _STARTS:
                break
        starts.append(points)
    return starts


def _grid_costs(
    rho2: Real, bending: Real, terms: FringeTerms, trace: _SweepTrace
) -> dict[tuple[tuple[int, ...], bool], Real]:
    """Return the sum of squared residuals, shape ``(ρ2, κ, loops)``, for each choice of harmonics and drift."""
    square = trace.squares[:, None, None]
    bent = bending * square
    phase = rho2[:, None] * square * (1.0 + bent * (1.0 + bent))
    values = np.moveaxis(_functions(phase, square), -1, 0)
    lower = 1.0 + values[1, ..., None] * terms.loops[:, 0] + values[2, ..., None] * terms.loops[:, 1]
    columns = (values[..., None] / lower).reshape(len(values), len(square), -1)
    costs = {}
    unexplained = (trace.values**2).sum()
    basis: list[Real] = []
    added = 0
    for orders in terms.orders:
        # Forms are nested, so a harmonic only adds its own part.
        for column in columns[added : 2 * max(orders) + 1]:
            basis.append(_unit_rest(column, basis))
            unexplained = unexplained - _explained(basis[-1], trace)
        added = 2 * max(orders) + 1
        drift = _explained(_unit_rest(columns[_DRIFT], basis), trace)
        shape = lower.shape[1:]
        costs[orders, False], costs[orders, True] = unexplained.reshape(shape), (unexplained - drift).reshape(shape)
    return costs


def _unit_rest(column: Real, basis: Sequence[Real]) -> Real:
    """Return the part of a column, shape ``(n, k)``, outside an orthonormal basis, with unit length."""
    for unit in basis:
        column = column - unit * np.einsum("nk,nk->k", unit, column)
    return np.asarray(column / np.maximum(np.linalg.norm(column, axis=0), _TINY))


def _explained(unit: Real, trace: _SweepTrace) -> Real:
    return np.asarray(((trace.values.T @ unit) ** 2).sum(axis=0))


def _refine_fits(
    forms: Sequence[_NumeratorForm], starts: Sequence[Sequence[Real]], traces: Sequence[_SweepTrace], terms: FringeTerms
) -> list[_Point]:
    """Return the minima next to the start points of every form, by the Levenberg-Marquardt method."""
    owner = np.repeat(np.arange(len(forms)), [len(points) for points in starts])
    columns = np.array([form.columns for form in forms])[owner]
    size = 2 + 2 * len(traces)
    weight = np.full((len(owner), size), terms.loop_sigma**-2)
    weight[:, 0], weight[:, 1] = 0.0, np.array([form.bending.sigma for form in forms])[owner] ** -2
    mean = np.zeros(size)
    mean[1] = PUBLISHED_BENDING_PER_MA2

    def normal_equations(points: Real, index: NDArray[np.int64]) -> tuple[Real, Real, Real]:
        """Return cost, gradient and Gauss-Newton matrix of several points, prior included; first axis: point."""
        off = points - mean
        cost, slope = (weight[index] * off**2).sum(axis=1), weight[index] * off
        matrix = (weight[index, :, None] + _RIDGE) * np.eye(size)
        for number, trace in enumerate(traces):
            projection = _Projection(points, columns[index], number, trace)
            residual = projection.residual.reshape(len(points), -1, 1)
            jacobian = projection.jacobian().reshape(len(points), 4, -1)
            own = np.array([0, 1, 2 + 2 * number, 3 + 2 * number])
            cost += (residual[..., 0] ** 2).sum(axis=1)
            slope[:, own] += (jacobian @ residual)[..., 0]
            matrix[:, own[:, None], own] += jacobian @ np.swapaxes(jacobian, 1, 2)
        return cost, slope, matrix

    point = np.array([start for points in starts for start in points])
    on_the_way = np.arange(len(point))
    cost, slope, matrix = normal_equations(point, on_the_way)
    damping, rounds = np.full(len(point), 1e-2), np.ones(len(point), dtype=np.int64)
    while len(on_the_way):
        matrices = matrix[on_the_way]
        damped = matrices + damping[on_the_way, None, None] * (matrices * np.eye(size))
        trial = point[on_the_way] - np.linalg.solve(damped, slope[on_the_way, :, None])[..., 0]
        trial_cost, trial_slope, trial_matrix = normal_equations(trial, on_the_way)
        gain = cost[on_the_way] - trial_cost
        # A denominator near zero would fit any data, and a falling law fits as well as the rising one.
        is_valid = (np.hypot(trial[:, 2::2], trial[:, 3::2]) < _STRONGEST_LOOP).all(axis=1) & (gain > 0.0)
        is_valid &= trial[:, 0] > 0.0
        moved, refused = on_the_way[is_valid], on_the_way[~is_valid]
        point[moved], cost[moved] = trial[is_valid], trial_cost[is_valid]
        slope[moved], matrix[moved] = trial_slope[is_valid], trial_matrix[is_valid]
        damping[moved], damping[refused] = np.maximum(damping[moved] / 5.0, 1e-6), damping[refused] * 5.0
        enough = gain[is_valid] < 1e-5 * (1.0 + cost[moved])
        moved = moved[~enough & (rounds[moved] < _ROUNDS)]
        rounds[moved] += 1
        on_the_way = np.sort(np.concatenate([moved, refused[damping[refused] < 1e4]]))
    return [_Point(forms[owner[i]], point[i], float(cost[i]), matrix[i]) for i in range(len(point))]


def _turn_sigma(point: _Point) -> float:
    rho2, bending = point.point[:2]
    square = 2.0 * np.pi / rho2
    slope = np.zeros(len(point.point))
    slope[:2] = square * (1.0 + bending * square), rho2 * square**2
    return float(np.sqrt(slope @ np.linalg.solve(point.matrix, slope)))
