"""Selection of additional physical effects from the table ``PHYSICS``, without another fit for each.

The gain is predicted from slope and information of the likelihood for the parameters of the effect. The evidence of an
effect with prior width s around zero is

    L(s) = Σ ½·(s²u²/(1 + s²λ) - ln(1 + s²λ))        λ: eigenvalues of this information; u: slope along eigenvectors

(Laplace; exact for a linear model; a score test of a variance component at s = 0, Rao 1948). An effect is added only if
each half of the settings confirms the values found from the other half.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from calibration.diagnose.heater_ageing import find_unsteady_heaters
from calibration.fit.global_fit import FitResult
from calibration.fit.heater_laws import HeaterLaws
from calibration.fit.pair_crosstalk import Pairs, Tail
from calibration.fit.row_scores import Pass, RowScore, Selection, predicted_step
from calibration.model.arrays import Real
from calibration.model.heating import DIRECTIONAL
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.physics import LAW_DEVIATION, PHYSICS, ROWS, PairDirections, Physics, size_of
from calibration.model.priors import PHASE_GROUPS, Prior, modulo_a_turn
from calibration.model.space import ParameterSpace
from lumion_hw.mesh.record.calibration_record import CROSSTALK_PAIRS

# Maximum number of readings in a pass.
_MAX_READINGS = 12_000
# Field error that some small effect explains, and no effect that is larger than on any known chip.
_MAX_SMALL_ERROR = 3e-3
# Memory limit for the derivatives of a pass: 240 MB in single precision.
_MAX_NUMBERS = 6e7


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of the physical effects that a fit with P free parameters does not include.

    Attributes:
        rows: All scores, the largest gain first.
        chosen: Scores of the effects to add together.
        information: Shape ``(P, P)``; Fisher information of the used settings.
        by_segment: Shape ``(c, P)``; slope of the likelihood in each of c groups of consecutive settings with the same
            source.
        by_monitor: Shape ``(M, P)``; slope of the likelihood at each of M monitors.
        tail: Errors due to pair crosstalk that is not fitted; ``None`` if no pairs are fitted.
        by_reading: Shape ``(N, M)``; squared residual of each setting at each monitor, relative to the noise.
        by_source: Shape ``(S,)``; mean squared residual of each source, relative to the noise.
        unsteady: Relative change of the phases of heaters that changed during the run, by heater.
        step: Shape ``(P + k,)``; predicted change of the fitted parameters and of the k parameters of the chosen
            effects if these are added; ``None`` if not predicted.
    """

    rows: tuple[RowScore, ...]
    chosen: tuple[RowScore, ...]
    information: Real
    by_segment: Real
    by_monitor: Real
    tail: Tail | None
    by_reading: Real
    by_source: Real
    unsteady: Mapping[int, float] = field(default_factory=dict)
    step: Real | None = None

    def predicted_vector(self, fit: FitResult, before: ParameterSpace, after: ParameterSpace) -> Real:
        """Return the parameters, ``(size,)``, at which a fit with the chosen effects is predicted to end.

        ``before`` is the layout of the parameters of the scored fit, ``after`` that with the effects. There must be a
        :attr:`step`.
        """
        vector, first = after.pack(fit.parameters), int(np.count_nonzero(fit.free))
        step = np.zeros(0) if self.step is None else self.step
        positions = np.concatenate([np.arange(after.size)[after.groups[name]] for name in before.groups])
        vector[positions[fit.free]] += step[:first]
        for row in self.chosen:
            group = after.groups[row.name]
            vector[group] = step[first : first + group.stop - group.start]
            first += group.stop - group.start
        return vector


def score_rows(
    model: MeshModel,
    fit: FitResult,
    likelihood: Likelihood,
    prior: Prior,
    names: Sequence[str],
    excluded: Collection[str] = (),
) -> Scores:
    """Score the physical effects that a fit does not include.

    ``names`` lists the effects; those in ``excluded`` are never chosen.
    """
    small, current_physics = [name for name in names if name != CROSSTALK_PAIRS], model.space.physics
    excluded = {*excluded, *(row.name for row in PHYSICS if not row.fitted)}
    thinned = _select_settings(likelihood, _MAX_READINGS, model, small)
    share = len(thinned.observations) / len(likelihood.observations)
    prior_slope = prior.information(fit.free) @ (fit.vector - prior.mean)[fit.free] * share
    prior_information = fit.prior_information * share
    pass_ = Pass(model, fit, thinned, small)
    own_rad = model.heating.phases(fit.parameters, thinned.observations.currents_ma).own_rad
    unsteady = find_unsteady_heaters(pass_.misfit, pass_.by_phase, own_rad)
    laws = HeaterLaws(model, fit, likelihood.observations.currents_ma.max(axis=0), pass_.places)
    equations = laws.at_constant_phase(pass_.equations())
    selection = Selection(equations, prior_information, prior_slope, pass_.places, share)
    rows, tail, step = selection.rows(excluded), None, None
    chosen = selection.chosen({*excluded, *(row.name for row in PHYSICS if row.rare)}) or selection.chosen(excluded)
    number = [row.name for row in rows].index(LAW_DEVIATION)
    effect = laws.deviation_effect(*selection.effect(LAW_DEVIATION), rows[number].width, share)
    rows[number] = replace(rows[number], shift=lambda: effect)
    del selection, equations  # half a gigabyte on a large mesh, and pairs need as much
    places = [(pass_.places[row.name], row.width) for row in chosen]
    if CROSSTALK_PAIRS in names:
        score, with_pairs = Pairs(model, fit, pass_).score(prior_information, prior_slope, places, share)
        rows = sorted([*rows, score], key=lambda row: -row.gain)
        if score.is_supported_by_data and score.name not in excluded:
            chosen, step = [*chosen, score], with_pairs
    elif current_physics.pairs is not None:
        # With single pairs fitted, a large dependence on direction is no property of the die: few readings show it.
        rows, chosen = ([row for row in part if not _is_implausible_direction(row)] for part in (rows, chosen))
        tail = Pairs(model, fit, pass_).unfitted_effect(
            current_physics.pairs, current_physics.widths[CROSSTALK_PAIRS], thinned, prior_information, share
        )
    # One effect may look like another that is too large for any chip. The latter waits for the scores of the next fit.
    plausible = [row for row in chosen if row.width <= ROWS[row.name].largest]
    if len(plausible) < len(chosen) and (plausible or fit.discrepancy < _MAX_SMALL_ERROR):
        chosen, step = plausible, None
    if step is None and chosen and chosen[-1].name != CROSSTALK_PAIRS:
        places = [(pass_.places[row.name], row.width) for row in chosen]
        step = predicted_step(pass_.halves, places, prior_information, prior_slope, share)
    return Scores(
        tuple(rows),
        tuple(chosen),
        pass_.information[0] + pass_.information[1],
        pass_.by_segment,
        pass_.by_monitor,
        tail,
        pass_.misfit**2,
        np.array([_mean_square(pass_.misfit[thinned.observations.source == port]) for port in model.space.sources]),
        unsteady,
        step,
    )


def pair_directions(
    model: MeshModel, fit: FitResult, likelihood: Likelihood, prior: Prior, before: PairDirections
) -> PairDirections:
    """Return the best-determined combinations of pair crosstalk (from one heater to one waveguide).

    The search starts at the combinations ``before``, which the fit already includes.
    """
    physics = model.space.physics
    widths = {name: width for name, width in physics.widths.items() if name != CROSSTALK_PAIRS}
    fixed_values = {CROSSTALK_PAIRS: fit.parameters.extra_physics[CROSSTALK_PAIRS]}
    other = model.with_physics(Physics(widths, fixed_values=fixed_values))
    thinned, size = _select_settings(likelihood, _MAX_READINGS, other), other.space.size
    small_fit = replace(fit, free=fit.free[:size], vector=fit.vector[:size])
    share = len(thinned.observations) / len(likelihood.observations)
    pairs = Pairs(model, fit, Pass(other, small_fit, thinned, ()))
    phases = other.space.mask(PHASE_GROUPS)[small_fit.free]
    prior_information = modulo_a_turn(prior.with_physics(other.space).information(small_fit.free), phases) * share
    return pairs.best(before, prior_information, physics.widths[CROSSTALK_PAIRS], share)


def _select_settings(
    likelihood: Likelihood, max_readings: int, model: MeshModel, small: Sequence[str] = ()
) -> Likelihood:
    settings, monitors = likelihood.target_ma.shape
    sizes = (size_of(ROWS[name], model.mesh, len(model.space.sources), monitors) for name in small)
    per_reading = model.space.size + sum(sizes) + 2 * model.mesh.n_pucs + len(model.mesh.joints)
    max_settings = min(settings, max(min(max_readings, int(_MAX_NUMBERS / per_reading)) // monitors, 1))
    return likelihood[np.unique(np.linspace(0, settings - 1, max_settings).astype(np.int64))]


def _is_implausible_direction(row: RowScore) -> bool:
    return row.name in DIRECTIONAL and row.width > ROWS[row.name].largest


def _mean_square(values: Real) -> float:
    return float(np.mean(values**2)) if values.size else 0.0
