"""Standard errors that stay true where the model does not, and when even these cannot be believed.

The covariance of a fit holds for a chip that obeys the model. On top comes what physics does that is not fitted: every
row of the table that was left out, with the width that light leaves it, and pairs of crosstalk in directions that are
not fitted. What no row describes shows in residuals that belong together, setting by setting or monitor by monitor:
where slopes of the likelihood scatter more than their information says, errors are larger by as much (sandwich).
docs/decisions/0021-stated-errors.md compares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration.fit.global_fit import FitResult
from calibration.fit.growth import Scores
from calibration.fit.row_scores import MIN_GAIN, RowScore
from calibration.model.physics import ROWS
from calibration.model.space import ParameterSpace

Real = NDArray[np.float64]

MAX_ERROR_FACTOR = 2.0
"""Factor by which errors of a group may be widened by what no row of the table describes."""
# Growth of a group's errors by leaving out a row, below which the row is left out: a fit with it costs more than it is
# worth.
_HARMLESS = 1.1
_JUDGED = ("passive_phase_rad", "loops", "coupler_common_rad", "coupler_difference_rad", "loss_db", "rho2")
_MOST_NAMED = 4
# As many times the largest width for one parameter: no chip has it.
_FAR_OFF = 5.0


@dataclass(frozen=True, eq=False)
class StatedErrors:
    """A fit with the errors it is stated with.

    Attributes:
        fit: The fit, widened.
        widened: By group, the factor by which its errors grew, root mean square.
        doubts: Why it cannot be certified all the same; in words.
    """

    fit: FitResult
    widened: dict[str, float]
    doubts: tuple[str, ...]


def needed_rows(
    space: ParameterSpace, fit: FitResult, rows: Sequence[RowScore], by: float = _HARMLESS
) -> tuple[RowScore, ...]:
    """Return the rows that, left out of a fit, make the errors of some group of parameters larger by a factor."""
    return tuple(row for row in rows if _grown_by(space, fit, row) > by)


def _grown_by(space: ParameterSpace, fit: FitResult, row: RowScore) -> float:
    """Return the factor by which the errors of the group that it harms most grow by leaving out a row."""
    plain, numbers = np.diag(fit.inverse), np.flatnonzero(fit.free)
    grown = 1.0 + (row.excluded_effect**2).sum(axis=1) / np.maximum(plain, 1e-300)
    groups = [mine for name in _JUDGED if (mine := _of(space, name, numbers)).any()]
    return max(float(np.sqrt(np.mean(grown[mine]))) for mine in groups)


def stated_errors(space: ParameterSpace, fit: FitResult, scores: Scores) -> StatedErrors:
    """Return a fit with its errors widened to what they are.

    Args:
        space: Where parameters have their places.
        fit: The fit.
        scores: What a pass over the data says about it.
    """
    plain = fit.inverse
    whole = plain + sum((row.excluded_effect @ row.excluded_effect.T for row in scores.rows), np.zeros_like(plain))
    if scores.tail is not None:
        # What stood for it in the weights of readings is not counted twice.
        noise = np.sqrt(np.maximum(1.0 - scores.tail.as_noise / np.maximum(np.diag(plain), 1e-300), 0.0))
        whole = whole + plain * (np.outer(noise, noise) - 1.0) + scores.tail.covariance
    factors = sandwich_factors(space, fit, scores)
    factor = np.ones(len(plain))
    numbers = np.flatnonzero(fit.free)
    known = np.diag(whole) / np.maximum(np.diag(plain), 1e-300)
    for name, value in factors.items():
        # Both see the same light: what rows that were left out explain of the scatter is not counted twice.
        mine = _of(space, name, numbers)
        factor[mine] = max(value / np.sqrt(np.mean(known[mine])), 1.0)
    whole = whole * np.outer(factor, factor)
    grown = np.sqrt(np.diag(whole) / np.maximum(np.diag(plain), 1e-300))
    widened = {
        name: float(np.sqrt(np.mean(grown[mine] ** 2))) for name in _JUDGED if (mine := _of(space, name, numbers)).any()
    }
    return StatedErrors(replace(fit, stated=whole), widened, find_objections(space, fit, scores, factors))


def sandwich_factors(
    space: ParameterSpace, fit: FitResult, scores: Scores, clusters: tuple[str, ...] = ("by_segment", "by_monitor")
) -> dict[str, float]:
    """Return by group how much larger errors are than noise makes them, by slopes that scatter together.

    The larger one of the ways to put residuals together counts (White 1980; Cameron, Gelbach, Miller 2011).
    """
    numbers, inverse = np.flatnonzero(fit.free), fit.inverse
    # Of the settings looked at: fewer of them scatter more, and expect to.
    expected = ((inverse @ scores.information) * inverse).sum(axis=1)
    found: dict[str, float] = {}
    for name in clusters:
        slopes: Real = getattr(scores, name)
        # Slopes of a fit add up to that of the prior: what they have in common is none of their scatter.
        seen = ((slopes - slopes.mean(axis=0)) @ inverse) ** 2
        ratio = seen.sum(axis=0) * len(slopes) / max(len(slopes) - 1, 1) / np.maximum(expected, 1e-300)
        for group in space.groups:
            if (mine := _of(space, group, numbers) & (expected > 0.0)).any():
                found[group] = max(found.get(group, 0.0), float(np.sqrt(np.mean(ratio[mine]))))
    return found


def find_objections(
    space: ParameterSpace, fit: FitResult, scores: Scores, factors: dict[str, float]
) -> tuple[str, ...]:
    """Return in words why the errors of a fit cannot be believed; nothing if they can."""
    found = []
    for name, width in space.physics.widths.items():
        row, values = ROWS[name], fit.vector[space.group(name)]
        # What was found counts as well: a width that was chosen before the fit stays below the largest. Where arms lose
        # far apart, light that meets a PUC from one side only is explained as well by couplers far from balance.
        beyond = np.sqrt(np.mean(values**2)) > row.largest or np.abs(values).max() > _FAR_OFF * row.largest
        if beyond or width >= row.largest * 0.999:
            found.append(f"{row.words}: light asks for more than {row.largest:g} ({name}), which no chip has")
    # Errors are widened by what a row left out may do; where that is more than twice, they are only a guess.
    asked = {row.name: row for row in (*scores.chosen, *(row for row in scores.rows if row.is_supported_by_data))}
    missing = [row for row in asked.values() if _grown_by(space, fit, row) > MAX_ERROR_FACTOR]
    found += [
        f"{ROWS[row.name].words} would explain more of the light (evidence {row.gain:.0f}), but was not fitted"
        for row in missing
    ]
    worst = max((factors[name] for name in _JUDGED if name in factors), default=0.0)
    if worst > MAX_ERROR_FACTOR or not fit.certified:
        suspect = max(scores.rows, key=lambda row: row.gain, default=None)
        known = suspect is not None and suspect.gain > MIN_GAIN
        best = f"{ROWS[suspect.name].words} would explain most of it" if suspect and known else "no known physics would"
        found.append(
            f"residuals belong together and make errors {worst:.1f} times what noise makes them; {best}; "
            f"{_where(space, fit, scores)}"
        )
    return tuple(found)


def _where(space: ParameterSpace, fit: FitResult, scores: Scores) -> str:
    """Return the light and the PUCs that residuals are worst at, in words."""
    worst = []
    for kind, ports, square in (
        ("monitors of ports", space.monitors, scores.by_reading.mean(axis=0)),
        ("light from ports", space.sources, scores.by_source),
    ):
        order = np.argsort(-square)[: min(_MOST_NAMED, len(ports) // 2 or 1)]
        named = (f"{ports[int(index)]} (χ² {square[int(index)]:.2f})" for index in order)
        worst.append(f"{kind} {', '.join(named)}")
    pucs = np.flatnonzero(fit.free)
    place = space.groups["passive_phase_rad"]
    mine = np.flatnonzero((pucs >= place.start) & (pucs < place.stop))
    if len(mine) and len(scores.by_segment):
        felt = np.diag(scores.information)[mine]
        square = (scores.by_segment[:, mine] ** 2).sum(axis=0) / np.maximum(felt, 1e-300)
        order = np.argsort(-square)[:_MOST_NAMED]
        worst.append("PUCs " + ", ".join(str(int(pucs[mine[index]]) - place.start) for index in order))
    return "worst at " + ", at ".join(worst)


def _of(space: ParameterSpace, name: str, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    place = space.groups[name]
    inside: NDArray[np.bool_] = (numbers >= place.start) & (numbers < place.stop)
    return inside
