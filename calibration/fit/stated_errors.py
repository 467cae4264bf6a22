"""Standard errors that remain valid where the model is incomplete, and reasons why a fit is not certified.

Effects that are not fitted increase the errors (docs/decisions/0021-standard-errors.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration.fit.global_fit import FitResult
from calibration.fit.growth import Scores
from calibration.fit.row_scores import MIN_GAIN, RowScore
from calibration.model.arrays import Real
from calibration.model.heating import DIRECTIONAL, HEAT_GROUPS
from calibration.model.physics import ROWS
from calibration.model.space import LAW_TERMS, ParameterSpace
from lumion_hw.mesh.record.calibration_record import CROSSTALK_PAIRS

MAX_ERROR_FACTOR = 2.0
"""Largest factor by which unknown effects may increase the errors of a group in a certified fit."""
# A row is left out if that increases the errors of every group by less than this factor; fitting it costs more.
_HARMLESS = 1.1
_CHECKED_GROUPS = ("passive_phase_rad", "loops", "coupler_common_rad", "coupler_difference_rad", "loss_db", "rho2")
_MAX_NAMED = 4
# Degrees of freedom of the prior that the residuals of a fit are not correlated (assumed).
_PRIOR_FREEDOM = 4.0
# Largest plausible single value, as a multiple of the largest width.
_FAR_OFF = 5.0
_NONE: Real = np.zeros((1, 0))


@dataclass(frozen=True, eq=False)
class StatedErrors:
    """A fit with its final standard errors.

    Attributes:
        fit: The fit with increased errors.
        widened: By parameter group, the rms factor by which its errors were increased.
        doubts: Reasons why the fit is not certified.
    """

    fit: FitResult
    widened: dict[str, float]
    doubts: tuple[str, ...]


def needed_rows(
    space: ParameterSpace, fit: FitResult, rows: Sequence[RowScore], by: float = _HARMLESS
) -> tuple[RowScore, ...]:
    """Return the effects that increase the errors of a parameter group by more than a factor ``by`` if left out."""
    return tuple(row for row in rows if _error_growth(space, fit, row) > by)


def _error_growth(space: ParameterSpace, fit: FitResult, row: RowScore) -> float:
    plain, numbers = np.diag(fit.inverse), np.flatnonzero(fit.free)
    growth = 1.0 + (row.excluded_effect**2).sum(axis=1) / np.maximum(plain, 1e-300)
    groups = [members for name in _CHECKED_GROUPS if (members := _members_of(space, name, numbers)).any()]
    return max(float(np.sqrt(np.mean(growth[members]))) for members in groups)


def stated_errors(space: ParameterSpace, fit: FitResult, scores: Scores, by_signs: Real = _NONE) -> StatedErrors:
    """Return the fit with standard errors that include the effects missing in the model.

    Args:
        space: Parameters of the fit.
        fit: The fit, with P parameters.
        scores: Scores of the missing effects.
        by_signs: Shape ``(P, k)``; factor of the covariance due to solutions with the same light.
    """
    plain = fit.inverse
    total = plain + sum((row.excluded_effect @ row.excluded_effect.T for row in scores.rows), np.zeros_like(plain))
    if scores.tail is not None:
        # The part that the reading weights already include is not counted twice.
        total = total - plain + scores.tail.from_noise(fit) + scores.tail.covariance
    factors, significant = sandwich_factors(space, fit, scores)
    factor, unexplained = np.ones(len(plain)), dict[str, float]()
    numbers = np.flatnonzero(fit.free)
    growth_by_rows = np.diag(total) / np.maximum(np.diag(plain), 1e-300)
    for name, value in factors.items():
        # Rows that are left out explain part of the scatter; this part is not counted twice.
        members = _members_of(space, name, numbers)
        unexplained[name] = float(value / np.sqrt(np.mean(growth_by_rows[members])))
    heater_phase = unexplained.get(LAW_TERMS[0], 1.0)
    # The light shows the phase between two arms, to which law and crosstalk contribute. Different factors for the two
    # would make its error far too large, because it is much smaller than that of either.
    for name, value in unexplained.items():
        factor[_members_of(space, name, numbers)] = max(heater_phase if name in HEAT_GROUPS else value, 1.0)
    # Correlated residuals widen only the error that is due to readings, and not that due to the prior.
    from_prior = plain @ (fit.prior_information @ plain)
    total = from_prior + np.outer(factor, factor) * (total - from_prior) + by_signs @ by_signs.T
    growth = np.sqrt(np.diag(total) / np.maximum(np.diag(plain), 1e-300))
    widened = {
        name: float(np.sqrt(np.mean(growth[members] ** 2)))
        for name in _CHECKED_GROUPS
        if (members := _members_of(space, name, numbers)).any()
    }
    # A factor from few monitors scatters: only what is above its scatter is an objection.
    unexplained = {name: value * significant[name] / factors[name] for name, value in unexplained.items()}
    doubts, fit = find_objections(space, fit, scores, unexplained), replace(fit, stated=total)
    for heater, relative in space.physics.unsteady.items():
        fit = with_law_error(space, fit, relative, [heater])
    return StatedErrors(fit, widened, doubts)


def with_law_error(space: ParameterSpace, fit: FitResult, relative: float, heaters: Sequence[int]) -> FitResult:
    """Return the fit with an error that changes the phases of some heaters by the same share."""
    change = np.zeros(space.size)
    for term in LAW_TERMS:
        places = space.group(term).start + np.asarray(heaters)
        change[places] = relative * fit.vector[places]
    change = change[fit.free]
    return replace(fit, stated=(fit.inverse if fit.stated is None else fit.stated) + np.outer(change, change))


def sandwich_factors(
    space: ParameterSpace, fit: FitResult, scores: Scores
) -> tuple[dict[str, float], dict[str, float]]:
    """Return, by parameter group, the factors by which correlated residuals increase the standard errors.

    Residuals are grouped by settings and by monitors (White 1980; Cameron et al. 2011).

    Returns:
        The factors averaged with 1, because a few groups of residuals determine a factor badly; and the factors divided
        by the largest one that as many groups of independent residuals show in 99 of 100 cases.
    """
    numbers, inverse = np.flatnonzero(fit.free), fit.inverse
    # For the settings in this pass: fewer settings scatter more, as expected.
    expected = ((inverse @ scores.information) * inverse).sum(axis=1)
    averaged, above_scatter = dict[str, float](), dict[str, float]()
    for slopes in (scores.by_segment, scores.by_monitor):
        # The slopes of a fit add up to that of the prior, so their mean is not scatter.
        squares = ((slopes - slopes.mean(axis=0)) @ inverse) ** 2
        freedom = max(len(slopes) - 1, 1)
        ratio = squares.sum(axis=0) * len(slopes) / freedom / np.maximum(expected, 1e-300)
        for factors, values in (
            (averaged, (_PRIOR_FREEDOM + freedom * ratio) / (_PRIOR_FREEDOM + freedom)),
            (above_scatter, ratio / _chi2_quantile_per_freedom(freedom)),
        ):
            for group in space.groups:
                if (members := _members_of(space, group, numbers) & (expected > 0.0)).any():
                    factors[group] = max(factors.get(group, 0.0), float(np.sqrt(np.mean(values[members]))))
    return averaged, above_scatter


def _chi2_quantile_per_freedom(freedom: int) -> float:
    """Return the 99 % quantile of χ² over its degrees of freedom (Wilson, Hilferty 1931)."""
    spread = 2.0 / (9.0 * freedom)
    return float((1.0 - spread + 2.326 * np.sqrt(spread)) ** 3)


def find_objections(
    space: ParameterSpace, fit: FitResult, scores: Scores, factors: dict[str, float]
) -> tuple[str, ...]:
    """Return the reasons why the errors of a fit are unreliable."""
    objections, numbers = list[str](), np.flatnonzero(fit.free)
    widths = dict(space.physics.widths)
    if CROSSTALK_PAIRS in widths:
        # With single pairs fitted, the dependence on direction is only a start for them and no property of the die.
        widths = {name: width for name, width in widths.items() if name not in DIRECTIONAL}
    for name, width in widths.items():
        row, group = ROWS[name], space.group(name)
        values, is_fitted = fit.vector[group], (numbers >= group.start) & (numbers < group.stop)
        # A value that the readings hardly determine may exceed the limit by chance.
        error = float(np.sqrt(np.mean(np.diag(fit.inverse)[is_fitted]))) if is_fitted.any() else 0.0
        # Fitted values count as well, because a width chosen before the fit never exceeds the largest. Example: if the
        # losses of two arms differ strongly and light reaches the PUC from one side only, unbalanced couplers explain
        # the readings as well.
        size = float(np.sqrt(np.mean(values**2)))
        is_too_large = size - 2.0 * error > row.largest or np.abs(values).max() > _FAR_OFF * row.largest
        # A width at its limit means little if the values are within their errors.
        if is_too_large or (width >= row.largest * 0.999 and size > 2.0 * error):
            objections.append(
                f"{row.description}: the readings require more than {row.largest:g} ({name}), which is larger than "
                "on any known chip"
            )
    # Omitted rows increase the errors. More than a factor of two makes the errors unreliable.
    supported = {row.name: row for row in (*scores.chosen, *(row for row in scores.rows if row.is_supported_by_data))}
    missing = [row for row in supported.values() if _error_growth(space, fit, row) > MAX_ERROR_FACTOR]
    # The errors of an effect that is never fitted are known, unless it is larger than on any known chip.
    missing = [row for row in missing if ROWS[row.name].fitted or row.width > ROWS[row.name].largest]
    objections += [
        f"{ROWS[row.name].description} would explain the readings better (log evidence {row.gain:.0f}), "
        "but was not fitted"
        for row in missing
    ]
    worst = max((factors[name] for name in _CHECKED_GROUPS if name in factors), default=0.0)
    if worst > MAX_ERROR_FACTOR or not fit.certified:
        suspect = max(scores.rows, key=lambda row: row.gain, default=None)
        is_likely = suspect is not None and suspect.gain > MIN_GAIN
        best = (
            f"{ROWS[suspect.name].description} would explain most of this"
            if suspect and is_likely
            else "no known effect explains this"
        )
        objections.append(
            f"residuals are correlated and increase the errors to {worst:.1f} times those from noise; {best}; "
            f"{_worst_elements(space, fit, scores)}"
        )
    return tuple(objections)


def _worst_elements(space: ParameterSpace, fit: FitResult, scores: Scores) -> str:
    worst = []
    for kind, ports, square in (
        ("monitors of ports", space.monitors, scores.by_reading.mean(axis=0)),
        ("light from ports", space.sources, scores.by_source),
    ):
        order = np.argsort(-square)[: min(_MAX_NAMED, len(ports) // 2 or 1)]
        named = (f"{ports[int(index)]} (χ² {square[int(index)]:.2f})" for index in order)
        worst.append(f"{kind} {', '.join(named)}")
    pucs = np.flatnonzero(fit.free)
    group = space.groups["passive_phase_rad"]
    free_phases = np.flatnonzero((pucs >= group.start) & (pucs < group.stop))
    if len(free_phases) and len(scores.by_segment):
        information = np.diag(scores.information)[free_phases]
        square = (scores.by_segment[:, free_phases] ** 2).sum(axis=0) / np.maximum(information, 1e-300)
        order = np.argsort(-square)[:_MAX_NAMED]
        worst.append("PUCs " + ", ".join(str(int(pucs[free_phases[index]]) - group.start) for index in order))
    return "worst at " + ", at ".join(worst)


def _members_of(space: ParameterSpace, name: str, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    group = space.groups[name]
    inside: NDArray[np.bool_] = (numbers >= group.start) & (numbers < group.stop)
    return inside
