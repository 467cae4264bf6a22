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

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration.model.nominal_heaters import PUBLISHED_BENDING_PER_MA2, NominalHeaters
from calibration.model.observations import NoiseModel
from lumion_hw.mesh.waves.heater import HeaterLaw

Real = NDArray[np.float64]

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
_STEPS = np.array([1e-4, 1e-4, 1e-3, 1e-3])
_ROUNDS = 20
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
    # All constants of the fit hold for the published heaters, so squared currents are in units in which this heater
    # equals them.
    per_ma2 = heaters.per_ma2
    traces = [_scaled(sweep, noise, per_ma2) for sweep in sweeps]
    low, high = heaters.rho2_range
    rho2_range = low / per_ma2, high / per_ma2
    modulation = max(t.modulation for t in traces)
    if modulation < MODULATION_SIGMA:
        return HeaterFit(None, np.inf, modulation, modulation)
    first, *others = _forms(terms)
    fit, per_freedom = _fit_model(first, traces, rho2_range)
    # The simplest form comes first; more terms must improve the fit enough, because with eight levels each term uses an
    # eighth of the data.
    for form in others:
        other, other_per_freedom = _fit_model(form, traces, rho2_range)
        if other_per_freedom * form.bending.min_improvement < per_freedom:
            fit, per_freedom = other, other_per_freedom
    best = fit[0]
    rho2, bending = best.point[:2]
    law = HeaterLaw(
        float(rho2 * per_ma2),
        float(rho2 * bending * per_ma2**2),
        heater_max_ma,
        float(rho2 * bending**2 * per_ma2**3),
    )
    # If another ρ2 fits nearly as well, the heater is swept again with another source instead of guessing.
    ambiguous = any(
        abs(other.point[0] - rho2) > _DISTINCT and other.cost - best.cost < _AMBIGUOUS_SIGMA * max(per_freedom, 1.0)
        for other in fit[1:]
    )
    sigma = np.inf if ambiguous else np.sqrt(max(per_freedom, 1.0)) * _turn_sigma(best)
    return HeaterFit(law, float(sigma), float(np.sqrt(per_freedom)), modulation)


_BENDING = PUBLISHED_BENDING_PER_MA2


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


_AS_PUBLISHED = _BendingPrior(0.004, (_BENDING,), 1.3)
# The resistance changes by -5 to 9 % per π (assumed: foundries rarely state it).
_WIDE_BENDING_PRIOR = _BendingPrior(0.02, (-0.02, _BENDING, 0.05), 3.0)


@dataclass(frozen=True)
class _NumeratorForm:
    """One variant of the power formula (see the module) that is tried in a fit.

    Attributes:
        orders: Harmonics of the phase φ that the numerators contain.
        drift: Whether the numerators drift with the heat.
        bending: Prior of κ, the relative change of the resistance over the range of the sweep.
        terms: What the paths of light allow for D and E.
    """

    orders: tuple[int, ...]
    drift: bool
    bending: _BendingPrior
    terms: FringeTerms


def _forms(terms: FringeTerms) -> list[_NumeratorForm]:
    return [
        _NumeratorForm(orders, drift, bending, terms)
        for bending in (_AS_PUBLISHED, _WIDE_BENDING_PRIOR)
        for orders in terms.orders
        for drift in (False, True)
    ]


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
    """Minimum of the fit: ρ2 and κ of the law, D and E of every sweep, cost and normal matrix."""

    point: Real
    cost: float
    matrix: Real


def _fit_model(
    form: _NumeratorForm, traces: Sequence[_SweepTrace], rho2_range: tuple[float, float]
) -> tuple[list[_Point], float]:
    """Fit a heater law with one form of numerators; return minima, lowest first, and χ² per degree of freedom."""
    starts = _initial_guesses(traces, rho2_range, form)
    fits = sorted(_refine_fits(starts, traces, form), key=lambda fit: fit.cost)
    fits = [fit for fit in fits if not _is_half_rate_alias(fit, traces, form)] or fits
    # A step may leave the expected range, towards a law of half the rate with a strong second harmonic.
    low, high = (1.0 - _OUTSIDE) * rho2_range[0], (1.0 + _OUTSIDE) * rho2_range[1]
    fits = [fit for fit in fits if low <= fit.point[0] <= high] or fits
    columns = 1 + 2 * len(form.orders) + form.drift
    freedom = sum(t.detectors * (len(t.squares) - columns) for t in traces) - 2
    if form.terms is RECIRCULATING:
        freedom -= 2 * len(traces)  # D and E
    return fits, fits[0].cost / max(freedom, 1)


def _is_half_rate_alias(point: _Point, traces: Sequence[_SweepTrace], form: _NumeratorForm) -> bool:
    """Return whether a fitted law has half the true ρ2, so that its second harmonic fits the fringe."""
    if form.orders == (1,):
        return False
    # At half the true rate the second harmonic replaces the first. Such a law fits as well without its first harmonic.
    first, second = (_cost(point.point, traces, replace(form, orders=(order,))) for order in (2, 1))
    cost = _cost(point.point, traces, form)
    return first - cost < _HALF_RATE_SHARE * (second - cost)


def _cost(point: Real, traces: Sequence[_SweepTrace], form: _NumeratorForm) -> float:
    residuals = (
        _residual(point[:1], point[1:2], point[None, 2 + 2 * index : 4 + 2 * index], trace, form)
        for index, trace in enumerate(traces)
    )
    return sum(float((part**2).sum()) for part in residuals)


def _scaled(sweep: HeaterSweep, noise: NoiseModel, per_ma2: float) -> _SweepTrace:
    readings = sweep.reading_ma[:, np.isfinite(sweep.reading_ma).all(axis=0)]
    mean = readings.mean(axis=0)
    # The weight of a detector is its noise at the mean reading, plus half a per cent for effects that this formula
    # ignores.
    scaled = (readings - mean) / np.hypot(noise.sigma_ma(mean), _MODEL_ERROR * mean)
    modulation = float(np.sqrt((scaled**2).mean(axis=0).max(initial=0.0)))
    # The numerators are free for each detector, so only the column space counts: 28 detectors are compressed without
    # loss to as many columns as there are levels.
    basis, size, _ = np.linalg.svd(scaled, full_matrices=False)
    return _SweepTrace(sweep.squares_ma2 * per_ma2, basis * size, scaled.shape[1], modulation)


def _residual(rho2: Real, bending: Real, loop: Real, trace: _SweepTrace, form: _NumeratorForm) -> Real:
    """Return the residuals of k trial laws, ``(k, n, m)``, at n currents in m columns.

    ``loop`` contains the denominator terms D and E, shape ``(k, 2)``.
    """
    square, bend = trace.squares, bending[:, None]
    phase = rho2[:, None] * square * (1.0 + bend * square * (1.0 + bend * square))
    cosine, sine = np.cos(phase), np.sin(phase)
    lower = 1.0 + loop[:, :1] * cosine + loop[:, 1:] * sine
    columns = [np.ones_like(phase)]
    for order in form.orders:
        columns += [np.cos(order * phase), np.sin(order * phase)]
    if form.drift:
        columns.append(square * np.ones_like(phase))
    # Variable projection: for given ρ2, κ, D and E the numerators are linear, and QR subtracts their best fit for all
    # detectors at once.
    basis, _ = np.linalg.qr(np.stack(columns, axis=-1) / lower[..., None])
    residual: Real = trace.values - basis @ (np.swapaxes(basis, 1, 2) @ trace.values)
    return residual


def _initial_guesses(
    traces: Sequence[_SweepTrace], rho2_range: tuple[float, float], form: _NumeratorForm
) -> list[Real]:
    largest_ma2 = max(float(t.squares.max()) for t in traces)
    rho2, bending = (
        grid.ravel()
        for grid in np.meshgrid(np.arange(*rho2_range, _GRID_RAD / largest_ma2), form.bending.starts, indexing="ij")
    )
    grid_loops = form.terms.loops
    laws, bends = np.repeat(rho2, len(grid_loops)), np.repeat(bending, len(grid_loops))
    loops = np.tile(grid_loops, (len(rho2), 1))
    total, chosen = np.zeros(len(rho2)), []
    for trace in traces:
        residual = _residual(laws, bends, loops, trace, form)
        cost = (residual**2).sum(axis=(1, 2)).reshape(len(rho2), -1)
        # Each sweep has its own background and hence its own D, E; the sweeps share the law.
        total += cost.min(axis=1)
        chosen.append(grid_loops[cost.argmin(axis=1)])
    starts: list[Real] = []
    for index in np.argsort(total, kind="stable"):
        # The start points lie in different fringes; neighbours on one slope would all end in the same minimum.
        if all(abs(rho2[index] - start[0]) > _DISTINCT for start in starts):
            starts.append(np.array([rho2[index], bending[index], *(value for loop in chosen for value in loop[index])]))
        if len(starts) == _STARTS:
            break
    return starts


def _refine_fits(starts: Sequence[Real], traces: Sequence[_SweepTrace], form: _NumeratorForm) -> list[_Point]:
    size = 2 + 2 * len(traces)
    steps = np.concatenate([_STEPS[:2], np.tile(_STEPS[2:], len(traces))])
    sigma = np.concatenate([[np.inf, form.bending.sigma], np.full(2 * len(traces), form.terms.loop_sigma)])
    mean = np.zeros(size)
    mean[1] = _BENDING

    def residuals(points: Real) -> Real:
        parts = [
            _residual(points[:, 0], points[:, 1], points[:, 2 + 2 * i : 4 + 2 * i], trace, form).reshape(
                len(points), -1
            )
            for i, trace in enumerate(traces)
        ]
        return np.concatenate([*parts, (points - mean) / sigma], axis=1)

    point = np.array(starts)
    residual, damping = residuals(point), np.full(len(point), 1e-2)
    matrix, slope = np.zeros((len(point), size, size)), np.zeros((len(point), size))
    rounds, on_the_way = np.zeros(len(point), dtype=np.int64), np.arange(len(point))
    unchecked = on_the_way
    while len(on_the_way):
        if len(unchecked):
            # Derivatives change only for accepted steps.
            turned = residuals((point[unchecked, None] + np.diag(steps)).reshape(-1, size)).reshape(
                len(unchecked), size, -1
            )
            jacobian = (turned - residual[unchecked, None]) / steps[:, None]
            matrix[unchecked] = jacobian @ np.swapaxes(jacobian, 1, 2)
            slope[unchecked] = (jacobian @ residual[unchecked, :, None])[..., 0]
            rounds[unchecked] += 1
        matrices = matrix[on_the_way]
        damped = matrices + damping[on_the_way, None, None] * (matrices * np.eye(size))
        trial = point[on_the_way] - np.linalg.solve(damped, slope[on_the_way, :, None])[..., 0]
        trial_residual = residuals(trial)
        before = (residual[on_the_way] ** 2).sum(axis=1)
        gain = before - (trial_residual**2).sum(axis=1)
        # A denominator near zero would fit any data.
        is_valid = (np.hypot(trial[:, 2::2], trial[:, 3::2]) < _STRONGEST_LOOP).all(axis=1) & (gain > 0.0)
        unchecked, refused = on_the_way[is_valid], on_the_way[~is_valid]
        point[unchecked], residual[unchecked] = trial[is_valid], trial_residual[is_valid]
        damping[unchecked], damping[refused] = np.maximum(damping[unchecked] / 5.0, 1e-6), damping[refused] * 5.0
        enough = gain[is_valid] < 1e-5 * (1.0 + before[is_valid] - gain[is_valid])
        unchecked = unchecked[~enough & (rounds[unchecked] < _ROUNDS)]
        on_the_way = np.sort(np.concatenate([unchecked, refused[damping[refused] < 1e4]]))
    return [_Point(point[i], float(residual[i] @ residual[i]), matrix[i]) for i in range(len(point))]


def _turn_sigma(point: _Point) -> float:
    rho2, bending = point.point[:2]
    square = 2.0 * np.pi / rho2
    slope = np.zeros(len(point.point))
    slope[:2] = square * (1.0 + bending * square), rho2 * square**2
    return float(np.sqrt(slope @ np.linalg.solve(point.matrix, slope)))
