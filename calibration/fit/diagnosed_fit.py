"""A fit together with the causes that explain its readings.

If the model does not explain all readings, known causes are tested: drift, a heater that failed, a heater law that is
wrong by one fringe, two exchanged channels. The cause that explains most is corrected, and everything is fitted again.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from calibration.diagnose.breakdowns import (
    Breakdown,
    coarse_cost,
    cost_reduction,
    find_better_law,
    find_dead_heater,
    find_dead_monitors,
    without_dead_heater,
    without_dead_monitors,
)
from calibration.diagnose.drift_trajectory import DriftTrajectories, fit_drift_trajectories, measure_drift
from calibration.diagnose.element_faults import heater_breakdown_defect, miswiring_defects
from calibration.diagnose.miswiring import EXCHANGED, Miswiring, miswiring_candidates
from calibration.diagnose.outliers import MAX_OUTLIER_SHARE, find_outliers
from calibration.fit.coupler_signs import equivalent_solutions, fit_with_best_signs
from calibration.fit.frequencies import fit_on_best_branch
from calibration.fit.global_fit import CONVERGED_SIGMA, ON_THE_WAY_SIGMA, FitResult, GlobalFit, Round
from calibration.fit.growth import Scores, pair_directions, score_rows
from calibration.fit.row_scores import MIN_GAIN, RowScore, fitted_prior_width
from calibration.fit.stated_errors import MAX_ERROR_FACTOR, needed_rows, stated_errors
from calibration.model.arrays import Real
from calibration.model.ideal_mesh import MeanLight
from calibration.model.likelihood import Likelihood, SettingDrift, drift_of_readings
from calibration.model.mesh_model import MeshModel
from calibration.model.nominal_heaters import NominalHeaters
from calibration.model.normal_equations import drift_at, mean_squared_residual
from calibration.model.observations import Observations, positions_in_run, replace_end
from calibration.model.parameters import MeshParameters
from calibration.model.physics import (
    BOTH_ARMS,
    BOTH_ARMS_SCATTER,
    LAW_DEVIATION,
    PHYSICS,
    ROWS,
    SLOW_CROSSTALK,
    Physics,
)
from calibration.model.priors import COUPLER_GROUPS, Prior
from calibration.model.space import LAW_TERMS
from calibration.model.work import ADD_EFFECT_WORK, derivatives_work
from lumion_hw.mesh.record.calibration_record import CROSSTALK_PAIRS, Defect

_log = logging.getLogger(__name__)

_MAX_ROUNDS = 6
_MAX_DRIFT_CORRECTIONS = 2
_HEATER_GROUPS = (*LAW_TERMS, "heat_factor")
# Number of PUCs between whose heaters an exchange is searched.
_SUSPECTS = 5
_MISWIRED_SHARE = 0.6
_SWEPT_WORKING_SIGMA = 8.0
# Share of the readings' freedom that a fit must leave before its residuals show the drift from setting to setting.
_MIN_SPARE = 0.3
# Change of the measured drift, as a factor, after which the fit is repeated.
_DRIFT_CHANGE = 1.5
# Last step of a fit that needs no further step for final values.
_LAST_STEP_SIGMA = 0.1
# Fitted crosstalk, relative to the expected, that may be heat through the oxide; share of a heater's phase that both
# arms get from it, as the start of a fit and prior width.
_MIN_STRONGER_CROSSTALK = 1.5
_OXIDE_SHARE = 0.03
# Growth of the number of settings after which the directions of pairs are chosen again.
_MIN_SETTINGS_GROWTH = 1.3
# Largest model discrepancy at which the slopes of a fit still show which physics is missing.
_NEARLY = 0.1
MAX_FIELD_ERROR = 3e-3
"""Largest relative field error that counts as noise if no effect explains it: that of a phase wrong by 3 mrad."""
# Smaller changes of the field error change the weights of readings too little for another fit.
_FIELD_ERROR_CHANGE = 0.2
_MAX_FIELD_ERROR_ROUNDS = 4


@dataclass(frozen=True, eq=False)
class DiagnosedFit:
    """A fit with the causes that explain its readings.

    Attributes:
        fit: The fit.
        likelihood: The corrected readings.
        dead: Heaters without effect at the end of the run.
        miswiring: Wrong wiring of two heater channels; ``None`` if there is none.
        trajectories: Drift during the run; ``None`` if not tested.
        deaths: Heaters that failed, with the setting of the failure.
        followed: Number of drift corrections since settings were last added.
        rough: Whether the fit did not converge because it started too far from the solution.
        physics: Additional physical effects in the fit.
        gains: Gain in log evidence by each additional effect.
        refused: Names of effects that explained less than predicted.
        widened: By parameter group, the factor by which standard errors were increased.
        doubts: Reasons why the fit or its errors cannot be certified.
        outliers: Numbers of the settings that were left out, because they disagree with all others.
    """

    fit: FitResult
    likelihood: Likelihood
    dead: frozenset[int]
    defects: tuple[Defect, ...] = ()
    miswiring: Miswiring | None = None
    trajectories: DriftTrajectories | None = None
    deaths: tuple[Breakdown, ...] = ()
    followed: int = 0
    rough: bool = False
    physics: Physics = field(default_factory=Physics)
    gains: Mapping[str, float] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()
    widened: Mapping[str, float] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()
    outliers: tuple[int, ...] = ()

    @property
    def certified(self) -> bool:
        """Whether the fit explains all readings with correct wiring, and its errors are reliable."""
        return self.fit.certified and not self.miswiring and not self.doubts

    @property
    def parameters(self) -> MeshParameters:
        """Parameters at the end of the run; dead heaters have no effect."""
        laws = self.fit.parameters.heater_law.copy()
        laws[sorted(self.dead)] = 0.0
        return replace(self.fit.parameters, heater_law=laws)


@dataclass(frozen=True, eq=False)
class TimedReadings:
    """All settings of a run in time order.

    Attributes:
        observations: Settings and readings.
        time_s: Shape ``(settings,)``; time of every setting.
    """

    observations: Observations
    time_s: Real


@dataclass(frozen=True, eq=False)
class FaultDiagnosis:
    """Fits readings and searches for causes where the model does not explain them.

    Attributes:
        model: Model of the mesh.
        prior: Prior knowledge.
        free: Shape ``(size,)``; which parameters are free.
        reach_ma: Shape ``(2E,)``; largest current of every heater in the settings, for E PUCs.
        channels: Drive channel of every heater, for messages.
        swept_sigma: By heater, the size of its effect in its sweep, in units of noise.
        heaters: Expected heaters of the chip.
        likelihood: The readings to explain.
        all_readings: All settings of the run; the likelihood may contain only the last part of them.
        on_round: Called after every step of a fit.
        trying: Called with a description of the tested cause.
        follows_drift: Whether the run can tell drift from errors of the phases. It cannot if every source gave light
            during one part of the run only.
        min_field_error: Smallest relative error of predicted fields that counts as noise of the readings.
        scored: The last scores of effects, with their fit.
    """

    model: MeshModel
    prior: Prior
    free: NDArray[np.bool_]
    reach_ma: Real
    channels: Sequence[int]
    swept_sigma: Sequence[float]
    heaters: NominalHeaters
    likelihood: Likelihood
    all_readings: TimedReadings
    on_round: Callable[[Round], None] = lambda _: None
    trying: Callable[[str], None] = lambda _: None
    follows_drift: bool = True
    min_field_error: float = 0.0
    scored: dict[tuple[int, frozenset[str]], tuple[FitResult, Scores]] = field(default_factory=dict)

    def with_physics(self, physics: Physics) -> FaultDiagnosis:
        """Return a diagnosis of the same readings with other additional physical effects."""
        if physics is self.model.space.physics:
            return self
        model = self.model.with_physics(physics)
        free = np.ones(model.space.size, dtype=np.bool_)
        n_kept = min(model.space.size, self.model.space.size, self.model.space.plain)
        free[:n_kept] = self.free[:n_kept]
        likelihood = replace(self.likelihood, field_error=max(physics.field_error, self.min_field_error))
        return replace(self, model=model, prior=self.prior.with_physics(model.space), free=free, likelihood=likelihood)

    def fit_from(self, start: MeshParameters) -> FitResult:
        """Return a fit from a start point. Heaters without a law there are dead and are not fitted."""
        return self._fit(start, self._live_readings, _dead_heaters(start))

    def begin(self, start: MeshParameters) -> DiagnosedFit:
        """Fit from a start point without a search for causes. Heaters that have no law there are taken as dead."""
        diagnosed = DiagnosedFit(self.fit_from(start), self._live_readings, _dead_heaters(start))
        diagnosed = self._try_heat_through_oxide(diagnosed)
        diagnosis = self.with_physics(diagnosed.physics)
        diagnosed = diagnosis._try_other_branches(diagnosed)
        # Near the solution the slopes show missing physics; in a wrong valley they mislead.
        is_near = 0.0 < diagnosed.fit.discrepancy < _NEARLY
        diagnosed = diagnosis._try_coupler_signs(diagnosed) if is_near else diagnosed
        if not is_near or (extended := diagnosis._extend_physics(diagnosed)) is diagnosed:
            return diagnosed
        # Half a turn per PUC changes the light very little, so missing physics may have led to the wrong branch.
        diagnosis = self.with_physics(extended.physics)
        extended = diagnosis._try_other_branches(extended)
        return diagnosis._try_coupler_signs(extended) if extended.fit.discrepancy > 0.0 else extended

    @property
    def _common_phases_are_observable(self) -> bool:
        """Whether light shows a phase that is common to both arms of a PUC: only loops do."""
        return bool(self.free[self.model.space.group("loops")].any())

    def _try_heat_through_oxide(self, diagnosed: DiagnosedFit) -> DiagnosedFit:
        """Fit with heat that reaches the other arm of each PUC, if crosstalk seems much stronger than expected.

        Crosstalk as a function of distance can take the place of this heat, and hardly gives way to it later.
        """
        crosstalk = self.model.space.group("crosstalk")
        expected, parameters = self.prior.mean[crosstalk], diagnosed.fit.parameters
        is_usual = parameters.crosstalk_rad_per_mw[0] < _MIN_STRONGER_CROSSTALK * expected[0]
        if is_usual or not self._common_phases_are_observable or self.model.work.is_used_up:
            return diagnosed
        start = replace(parameters, crosstalk_rad_per_mw=expected, extra_physics={BOTH_ARMS: np.array([_OXIDE_SHARE])})
        physics = diagnosed.physics.having(BOTH_ARMS, _OXIDE_SHARE)
        physics = physics.having(BOTH_ARMS_SCATTER, ROWS[BOTH_ARMS_SCATTER].usual)
        fits = (
            self.with_physics(physics)._fit(start, diagnosed.likelihood, diagnosed.dead, near=near)
            for near in (True, False)
        )
        fit = min(fits, key=lambda fit: (fit.discrepancy, fit.chi2_per_reading))
        gain = 0.5 * fit.readings * (diagnosed.fit.chi2_per_reading - fit.chi2_per_reading)
        if fit.discrepancy > diagnosed.fit.discrepancy or gain < MIN_GAIN:
            return diagnosed
        return replace(diagnosed, fit=fit, physics=physics, gains=dict.fromkeys((BOTH_ARMS, BOTH_ARMS_SCATTER), gain))

    def settle(self, diagnosed: DiagnosedFit) -> DiagnosedFit:
        """Correct one cause of misfit after another until all readings are explained or no known cause is left."""
        diagnosis = self.with_physics(diagnosed.physics)
        return diagnosis._with_defects(
            diagnosis.accept_field_error(diagnosis._try_exchanged_channels(diagnosis._correct_causes(diagnosed)))
        )

    def continue_from(self, before: DiagnosedFit) -> DiagnosedFit:
        """Fit all readings, starting from a fit of some of them, then search for causes."""
        diagnosis = self.with_physics(before.physics)
        diagnosed = diagnosis._extrapolate_drift(before)
        has_grown = len(self.likelihood.observations) > _MIN_SETTINGS_GROWTH * len(before.likelihood.observations)
        if before.physics.pairs is not None and has_grown and diagnosis._has_work_for_rows():
            # On readings that are corrected for the drift known now.
            likelihood = replace(diagnosis._live_readings, observations=diagnosis._corrected_observations(diagnosed))
            pairs = pair_directions(diagnosis.model, diagnosed.fit, likelihood, diagnosis.prior, before.physics.pairs)
            diagnosed = replace(
                diagnosed,
                physics=diagnosed.physics.having(CROSSTALK_PAIRS, diagnosed.physics.widths[CROSSTALK_PAIRS], pairs),
            )
            return self.with_physics(diagnosed.physics).settle(self.with_physics(diagnosed.physics)._refit(diagnosed))
        return diagnosis.settle(diagnosis._refit(diagnosed, before.fit))

    def stated(self, diagnosed: DiagnosedFit) -> DiagnosedFit:
        """Add all physical effects that the readings require; return the fit with final standard errors."""
        if not diagnosed.fit.certified:
            return self._with_objections(diagnosed)
        diagnosed = self.with_physics(diagnosed.physics)._try_coupler_signs(diagnosed)
        diagnosed = self.with_physics(diagnosed.physics)._follow_measured_drift(diagnosed)
        diagnosed = self.with_physics(diagnosed.physics)._finish_fit(diagnosed)
        (diagnosed, scores), is_overdrawn = self._with_scores(diagnosed), False
        first = diagnosed.physics
        while scores.chosen:
            rows = scores.chosen
            if not self.with_physics(diagnosed.physics)._has_work_for_rows():
                # One fit beyond the work limit is allowed if the certificate depends on it.
                rows = () if is_overdrawn else self._rows_for_certificate(diagnosed, rows)
                is_overdrawn = True
            if not rows:
                break
            diagnosed, scores = self._with_scores(self.with_physics(diagnosed.physics)._add_rows(diagnosed, rows))
        if (usual := self.with_physics(diagnosed.physics)._try_without_rare_rows(diagnosed)) is not diagnosed:
            diagnosed, scores = self._with_scores(usual)
        if diagnosed.physics is not first and diagnosed.trajectories is not None and not self.model.work.is_used_up:
            # Missing physics may have been mistaken for drift, so the drift is determined once more.
            diagnosis, diagnosed = self.with_physics(diagnosed.physics), replace(diagnosed, followed=0)
            if SLOW_CROSSTALK in diagnosed.physics.widths:
                # Late crosstalk and drift look alike: with a wrong drift, the time constants stay wrong.
                diagnosed = diagnosis._refit(replace(diagnosed, trajectories=None, outliers=()))
            diagnosed, scores = self._with_scores(diagnosis._correct_causes(diagnosed))
        diagnosis = self.with_physics(diagnosed.physics)
        if diagnosed.physics is not first and (other := diagnosis._try_other_branches(diagnosed)) is not diagnosed:
            diagnosed, scores = self._with_scores(other)
        diagnosis = self.with_physics(diagnosed.physics)
        if diagnosed.physics is not first:
            diagnosed = diagnosis._finish_fit(diagnosed)
            # Before the missing effects were added, the drift may have stood for them.
            if (followed := diagnosis._follow_measured_drift(diagnosed)) is not diagnosed:
                diagnosed, scores = self._with_scores(followed)
        diagnosis = self.with_physics(diagnosed.physics)
        fit = diagnosis._fitting(diagnosed.likelihood, diagnosed.dead).stated(diagnosed.fit)
        by_signs = equivalent_solutions(diagnosis.model, diagnosed.likelihood, fit)
        errors = stated_errors(diagnosis.model.space, fit, scores, by_signs)
        return replace(diagnosed, fit=errors.fit, widened=errors.widened, doubts=errors.doubts)

    def _outliers(self, diagnosed: DiagnosedFit) -> tuple[int, ...]:
        """Return the settings that disagree with all others; the present ones if too many disagree."""
        # Settings that were left out may agree with a better fit.
        observations = self._corrected_observations(replace(diagnosed, outliers=()))
        likelihood = replace(diagnosed.likelihood, observations=observations)
        found = find_outliers(self.model, diagnosed.fit.parameters, likelihood)
        return tuple(found.tolist()) if len(found) <= MAX_OUTLIER_SHARE * len(observations) else diagnosed.outliers

    def _has_work_for_rows(self) -> bool:
        derivatives = derivatives_work(self.model.space.size) * self.likelihood.target_ma.size
        return self.model.work.reaches(ADD_EFFECT_WORK * derivatives)

    def _with_scores(self, diagnosed: DiagnosedFit) -> tuple[DiagnosedFit, Scores]:
        """Score the effects missing from a fit, after changes of single heaters were counted as noise."""
        scores, known = self._score_needed_rows(diagnosed), diagnosed.physics.unsteady
        if scores.unsteady.keys() <= known.keys() or self.model.work.is_used_up:
            return diagnosed, scores
        _log.info("counting changes of heaters during the run as noise: %s", scores.unsteady)
        physics = replace(diagnosed.physics, unsteady={**scores.unsteady, **known})
        diagnosis = self.with_physics(physics)
        diagnosed = diagnosis._finish_fit(diagnosis._refit(replace(diagnosed, physics=physics)))
        return diagnosed, diagnosis._score_needed_rows(diagnosed)

    def _finish_fit(self, diagnosed: DiagnosedFit) -> DiagnosedFit:
        inputs, fit = (diagnosed.fit.parameters, diagnosed.likelihood, diagnosed.dead), diagnosed.fit
        # The next step is a tenth of the last one or less.
        if fit.converged and fit.rounds[-1].step_sigma < _LAST_STEP_SIGMA:
            return diagnosed
        finished = self._fit(*inputs, near=True, earlier_fit=fit, convergence_sigma=CONVERGED_SIGMA)
        # The limit of rounds may end it just before: with weakly determined parameters the steps shrink slowly.
        is_final = finished.converged or (fit.converged and finished.rounds[-1].step_sigma < _LAST_STEP_SIGMA)
        return replace(diagnosed, fit=replace(finished, converged=is_final))

    def _score_needed_rows(self, diagnosed: DiagnosedFit) -> Scores:
        """Score the effects missing from a fit that explains its readings."""
        diagnosis = self.with_physics(diagnosed.physics)
        scores = diagnosis._scores(diagnosed)
        return replace(scores, chosen=needed_rows(diagnosis.model.space, diagnosed.fit, scores.chosen))

    def _try_without_rare_rows(self, diagnosed: DiagnosedFit) -> DiagnosedFit:
        """Fit without rare effects; return the better fit. A rare effect may have taken the place of a usual one."""
        widths = {name: width for name, width in diagnosed.physics.widths.items() if not ROWS[name].rare}
        if len(widths) == len(diagnosed.physics.widths) or not self._has_work_for_rows():
            return diagnosed
        self.trying("without rare effects")
        diagnosis = self.with_physics(replace(diagnosed.physics, widths=widths))
        fit = diagnosis._fit(diagnosed.fit.parameters, diagnosed.likelihood, diagnosed.dead, near=True)
        usual = replace(diagnosed, physics=diagnosis.model.space.physics, fit=fit, refused=frozenset())
        for _ in range(_MAX_ROUNDS):
            rows = self.with_physics(usual.physics)._score_needed_rows(usual).chosen
            if not rows or not self._has_work_for_rows():
                break
            usual = self.with_physics(usual.physics)._add_rows(usual, rows)
        cost = usual.fit.cost(self.with_physics(usual.physics).prior)
        is_better = usual.fit.certified and cost < diagnosed.fit.cost(self.prior)
        return usual if is_better else diagnosed

    def _rows_for_certificate(self, diagnosed: DiagnosedFit, rows: Sequence[RowScore]) -> tuple[RowScore, ...]:
        """Return the physical effects that a fit must include before its errors can be certified."""
        return needed_rows(self.with_physics(diagnosed.physics).model.space, diagnosed.fit, rows, MAX_ERROR_FACTOR)

    def _with_objections(self, diagnosed: DiagnosedFit) -> DiagnosedFit:
        diagnosis = self.with_physics(diagnosed.physics)
        scores = diagnosis._scores(diagnosed)
        used_up = ("the search for causes reached its work limit",) if self.model.work.is_used_up else ()
        errors = stated_errors(diagnosis.model.space, diagnosed.fit, scores)
        return replace(diagnosed, fit=errors.fit, widened=errors.widened, doubts=(*used_up, *errors.doubts))

    # -- additional physics -------------------------------------------------------------------------------------------

    def _scores(self, diagnosed: DiagnosedFit) -> Scores:
        key = id(diagnosed.fit), diagnosed.refused
        if key not in self.scored:
            self.trying("additional physics")
            excluded = set(diagnosed.physics.widths) | (
                set() if self._common_phases_are_observable else {BOTH_ARMS, BOTH_ARMS_SCATTER}
            )
            names = [row.name for row in PHYSICS if row.name not in excluded]
            self.scored.clear()
            self.scored[key] = (
                diagnosed.fit,
                score_rows(self.model, diagnosed.fit, diagnosed.likelihood, self.prior, names, diagnosed.refused),
            )
        return self.scored[key][1]

    def _rows(self, diagnosed: DiagnosedFit) -> tuple[RowScore, ...]:
        if self.model.work.is_used_up or diagnosed.miswiring:
            return ()
        return self._scores(diagnosed).chosen

    def _extend_physics(self, diagnosed: DiagnosedFit) -> DiagnosedFit:
        for _ in PHYSICS:
            rows = self.with_physics(diagnosed.physics)._rows(diagnosed) if diagnosed.fit.discrepancy > 0.0 else ()
            if not rows:
                break
            diagnosed = self.with_physics(diagnosed.physics)._add_rows(diagnosed, rows)
        return diagnosed

    def _add_rows(self, diagnosed: DiagnosedFit, rows: Sequence[RowScore]) -> DiagnosedFit:
        """Add physical effects and fit again; if the fit is no better, return the old fit."""
        self.trying(", ".join(ROWS[row.name].description for row in rows))
        _log.info(
            "adding to the fit: %s; field error so far %.3g", "; ".join(map(str, rows)), diagnosed.fit.discrepancy
        )
        physics = self._estimate_widths(diagnosed)
        for row in rows:
            physics = physics.having(row.name, min(row.width, ROWS[row.name].largest), row.pairs)
        diagnosis, likelihood = self.with_physics(physics), diagnosed.likelihood
        # The weights stay the same before and after; otherwise the gain of the rows could not be compared.
        if physics.pairs is not diagnosed.physics.pairs:
            likelihood = diagnosis._update_weights(likelihood, diagnosed)
        start = self._predicted_start(diagnosed, rows, diagnosis.model)
        fit = diagnosis._fit(start, likelihood, diagnosed.dead, near=True)
        chi2_decrease = diagnosed.fit.chi2_per_reading * diagnosed.fit.readings - fit.chi2_per_reading * fit.readings
        no_less = fit.discrepancy == diagnosed.fit.discrepancy and chi2_decrease < rows[0].gain
        if fit.discrepancy > diagnosed.fit.discrepancy or no_less:
            if len(rows) > 1:  # too many rows at once: try the first one alone
                return self._add_rows(diagnosed, rows[:1])
            return replace(diagnosed, refused=diagnosed.refused | {row.name for row in rows})
        gains = {**diagnosed.gains, **{row.name: row.gain for row in rows}}
        # With these effects, one that was refused before may fit.
        return replace(
            diagnosed, physics=physics, fit=fit, likelihood=likelihood, gains=gains, rough=False, refused=frozenset()
        )

    def _predicted_start(self, diagnosed: DiagnosedFit, rows: Sequence[RowScore], model: MeshModel) -> MeshParameters:
        """Return where a fit with added physical effects will end, as their scores predict it.

        If the prediction is no better than the present fit, return the parameters of this fit.
        """
        fit, likelihood = diagnosed.fit, diagnosed.likelihood
        _, scores = self.scored.get((id(fit), diagnosed.refused), (fit, None))
        if scores is None or scores.step is None or list(rows) != list(scores.chosen):
            return fit.parameters
        predicted = model.space.unpack(scores.predicted_vector(fit, self.model.space, model.space))
        reading_ma = model.predict(predicted, likelihood.observations)
        drift_ma = drift_at(model, predicted, likelihood.observations, reading_ma, likelihood.drift)
        is_better = likelihood.discrepancy(reading_ma, drift_ma) <= fit.discrepancy
        return predicted if is_better else fit.parameters

    def accept_field_error(self, diagnosed: DiagnosedFit) -> DiagnosedFit:
        """Return a fit that counts a small field error as noise if no cause explains it."""
        for _ in range(_MAX_FIELD_ERROR_ROUNDS):
            if diagnosed.miswiring or not diagnosed.fit.discrepancy + diagnosed.physics.field_error > 0.0:
                break
            size = self._field_error(diagnosed)
            if size > MAX_FIELD_ERROR:
                break
            if not diagnosed.physics.law_deviation and (share := self._law_deviation(diagnosed)):
                _log.info("counting a phase error of heaters of %.3g, relative to their fitted phase, as noise", share)
                diagnosed = replace(diagnosed, physics=replace(diagnosed.physics, law_deviation=share))
                diagnosed = self.with_physics(diagnosed.physics)._refit(diagnosed)
            elif abs(size - diagnosed.physics.field_error) > _FIELD_ERROR_CHANGE * size:
                _log.info("counting a relative field error of %.3g as noise", size)
                diagnosed = replace(diagnosed, physics=replace(diagnosed.physics, field_error=size))
                diagnosed = self.with_physics(diagnosed.physics)._refit(diagnosed)
            elif rows := self.with_physics(diagnosed.physics)._rows(diagnosed):
                diagnosed = self.with_physics(diagnosed.physics)._add_rows(diagnosed, rows)
            else:
                break
        return diagnosed

    def _law_deviation(self, diagnosed: DiagnosedFit) -> float:
        """Return the relative deviation of heater laws from three terms that the readings show; 0 if they show none."""
        scores = self.with_physics(diagnosed.physics)._scores(diagnosed).rows
        supported = (row for row in scores if row.name == LAW_DEVIATION and row.is_supported_by_data)
        return max((min(row.width, ROWS[LAW_DEVIATION].largest) for row in supported), default=0.0)

    def _field_error(self, diagnosed: DiagnosedFit) -> float:
        """Return the relative field error that the physical effects of a fit leave unexplained."""
        model = self.with_physics(diagnosed.physics).model
        likelihood, parameters = replace(diagnosed.likelihood, field_error=0.0), diagnosed.fit.parameters
        reading_ma = model.predict(parameters, likelihood.observations)
        drift_ma = drift_at(model, parameters, likelihood.observations, reading_ma, likelihood.drift)
        return likelihood.discrepancy(reading_ma, drift_ma)

    def _update_weights(self, likelihood: Likelihood, diagnosed: DiagnosedFit) -> Likelihood:
        unmodelled_ma2 = self.model.unmodelled_ma2(diagnosed.fit.parameters, likelihood.observations)
        return self._with_measured_drift(replace(likelihood, unmodelled_ma2=unmodelled_ma2), diagnosed)

    def _with_measured_drift(self, likelihood: Likelihood, diagnosed: DiagnosedFit) -> Likelihood:
        """Return the likelihood with the drift from setting to setting that the residuals of a fit show."""
        usual, fit = self.likelihood.drift, diagnosed.fit
        spare = 1.0 - len(fit.information) / max(int(likelihood.used.sum()), 1)
        if fit.discrepancy > 0.0 or not usual.power_db or not usual.common_phase_rad or spare < _MIN_SPARE:
            return replace(likelihood, drift=diagnosed.likelihood.drift)
        reading_ma = self.model.predict(fit.parameters, likelihood.observations)
        drift_ma = drift_at(self.model, fit.parameters, likelihood.observations, reading_ma, usual)
        scale = np.where(likelihood.used, 1.0 / likelihood.sigma_ma(0.0), 0.0)
        power, phase = drift_of_readings(likelihood.residual(reading_ma, 0.0), drift_ma * scale[..., None], spare)
        return replace(likelihood, drift=SettingDrift(usual.power_db * power, usual.common_phase_rad * phase))

    def _follow_measured_drift(self, diagnosed: DiagnosedFit) -> DiagnosedFit:
        """Fit with the drift between settings that the readings show; return the old fit if this explains them less."""
        likelihood = self._with_measured_drift(diagnosed.likelihood, diagnosed)
        phase = likelihood.drift.common_phase_rad, diagnosed.likelihood.drift.common_phase_rad
        if max(phase) < _DRIFT_CHANGE * min(phase) or self.model.work.is_used_up:
            return diagnosed
        fit = self._fit(diagnosed.fit.parameters, likelihood, diagnosed.dead, near=True)
        # A large assumed drift may have hidden errors of the model.
        followed = self.accept_field_error(replace(diagnosed, likelihood=likelihood, fit=fit))
        return followed if followed.fit.certified else diagnosed

    def _estimate_widths(self, diagnosed: DiagnosedFit) -> Physics:
        physics = diagnosed.physics
        for name, width in diagnosed.physics.widths.items() if diagnosed.fit.certified else ():
            physics = physics.having(name, fitted_prior_width(self.model.space, diagnosed.fit, name, width))
        return physics

    def _with_defects(self, diagnosed: DiagnosedFit) -> DiagnosedFit:
        if diagnosed.miswiring:
            return replace(diagnosed, defects=miswiring_defects(diagnosed.miswiring, self.channels))
        settings = len(diagnosed.likelihood.observations)
        named = [
            heater_breakdown_defect(death.number, self.channels, death.first, settings) for death in diagnosed.deaths
        ]
        return replace(diagnosed, defects=tuple(named))

    @cached_property
    def _live_readings(self) -> Likelihood:
        observations = self.likelihood.observations
        deaths = find_dead_monitors(observations, self.likelihood.noise, MeanLight.of(self.model.mesh))
        return replace(self.likelihood, observations=without_dead_monitors(observations, deaths))

    def _correct_causes(self, diagnosed: DiagnosedFit) -> DiagnosedFit:
        for _ in range(_MAX_ROUNDS):
            if diagnosed.physics is not self.model.space.physics:
                return self.with_physics(diagnosed.physics)._correct_causes(diagnosed)
            other = None if self.model.work.is_used_up else self._correct_one_cause(diagnosed)
            if other is None:
                break
            if other.physics is not diagnosed.physics or other.refused != diagnosed.refused:
                diagnosed = other  # fitted already
                continue
            refitted = self._refit(other, diagnosed.fit if other.deaths == diagnosed.deaths else None)
            law = (
                other is not diagnosed
                and other.trajectories is diagnosed.trajectories
                and other.deaths == diagnosed.deaths
                and other.outliers == diagnosed.outliers
            )
            # If another law explains no more, the cause is elsewhere; continuing would try all heaters in turn.
            if law and refitted.fit.discrepancy >= diagnosed.fit.discrepancy:  # the law is not the cause
                break
            diagnosed = refitted
        return diagnosed

    def _try_other_branches(self, diagnosed: DiagnosedFit) -> DiagnosedFit:
        """Fit with the phase of one source moved by half a turn per PUC; return the best fit."""
        group = self.model.space.group("source_detuning_hz")
        if not self.free[group].all() or self.model.work.is_used_up:
            return diagnosed
        fitting, sigma_hz = self._fitting(diagnosed.likelihood, diagnosed.dead), float(self.prior.sigma[group].mean())
        fit = fit_on_best_branch(fitting, sigma_hz, diagnosed.fit)
        return diagnosed if fit is diagnosed.fit else replace(diagnosed, fit=fit)

    def _try_coupler_signs(self, diagnosed: DiagnosedFit) -> DiagnosedFit:
        fitting = self._fitting(diagnosed.likelihood, diagnosed.dead)
        fit = fit_with_best_signs(fitting, self.model, diagnosed.likelihood, self.prior, diagnosed.fit)
        return diagnosed if fit is diagnosed.fit else replace(diagnosed, fit=fit)

    def _extrapolate_drift(self, before: DiagnosedFit) -> DiagnosedFit:
        """Correct the drift of all settings of the run, if the previous fit includes drift."""
        diagnosed = replace(before, followed=0)
        if diagnosed.trajectories is None:
            return diagnosed
        trajectories = self._measure_trajectories(diagnosed)
        return (
            replace(self._follow_trajectories(diagnosed, trajectories), followed=0)
            if trajectories.differs(diagnosed.trajectories)
            else diagnosed
        )

    def _correct_one_cause(self, diagnosed: DiagnosedFit) -> DiagnosedFit | None:
        # Drift is corrected at most twice for the same settings, because the same readings show no more. The same holds
        # if the fit has hardly moved since.
        is_unmoved = diagnosed.followed > 0 and diagnosed.fit.path_length_sigma < ON_THE_WAY_SIGMA
        tests_drift = self.follows_drift and diagnosed.followed < _MAX_DRIFT_CORRECTIONS and not is_unmoved
        trajectories = self._measure_trajectories(diagnosed) if tests_drift else None
        if diagnosed.fit.discrepancy > 0.0 and not diagnosed.rough:
            # The cause that explains more is corrected first, then everything is fitted again: a failure looks like
            # drift in the settings after it, and vice versa.
            self.trying("a failed element")
            death = find_dead_heater(self.model, diagnosed.fit.parameters, diagnosed.likelihood, diagnosed.dead)
            rows = self._rows(diagnosed) if diagnosed.fit.discrepancy < _NEARLY else ()
            other_gains = [0.0 if death is None else death.gain]
            other_gains.append(0.0 if trajectories is None else self._drift_gain(diagnosed, trajectories))
            if rows and sum(row.gain for row in rows) > max(other_gains):
                return self._add_rows(diagnosed, rows)
            if death is not None and (trajectories is None or death.gain > self._drift_gain(diagnosed, trajectories)):
                _log.info("assuming for the next fit: %s; field error so far %.3g", death, diagnosed.fit.discrepancy)
                return replace(diagnosed, dead=diagnosed.dead | {death.number}, deaths=(*diagnosed.deaths, death))
        if trajectories is not None and (
            trajectories.moved if diagnosed.trajectories is None else trajectories.differs(diagnosed.trajectories)
        ):
            _log.info("correcting drift for the next fit; relative field error so far %.3g", diagnosed.fit.discrepancy)
            return self._follow_trajectories(diagnosed, trajectories)
        if diagnosed.rough:  # the start may not have been near enough: fit with damping from the start
            return diagnosed
        return self._correct_outliers_or_law(diagnosed)

    def _correct_outliers_or_law(self, diagnosed: DiagnosedFit) -> DiagnosedFit | None:
        if (outliers := self._outliers(diagnosed)) != diagnosed.outliers:
            return replace(diagnosed, outliers=outliers)
        if diagnosed.fit.discrepancy == 0.0:
            return None
        law = find_better_law(self.model, diagnosed.fit.parameters, diagnosed.likelihood, self.heaters, diagnosed.dead)
        return None if law is None else replace(diagnosed, fit=replace(diagnosed.fit, parameters=law))

    def _measure_trajectories(self, diagnosed: DiagnosedFit) -> DriftTrajectories:
        all_readings, noise = self.all_readings, self._live_readings.noise
        # Drift is determined from readings that are corrected for failures and exchanges, but not for earlier drift;
        # otherwise drift that is corrected already would no longer be found.
        joined = replace_end(
            all_readings.observations, self._corrected_observations(replace(diagnosed, trajectories=None))
        )
        return fit_drift_trajectories(
            measure_drift(self.model, diagnosed.fit.parameters, joined, all_readings.time_s, noise, self.reach_ma)
        )

    def _drift_gain(self, diagnosed: DiagnosedFit, trajectories: DriftTrajectories) -> float:
        other = self._corrected_observations(replace(diagnosed, trajectories=trajectories))
        return cost_reduction(self.model, diagnosed.fit.parameters, diagnosed.likelihood, other)

    def _corrected_observations(self, diagnosed: DiagnosedFit) -> Observations:
        observations = self._live_readings.observations
        for death in diagnosed.deaths:
            observations = without_dead_heater(observations, death)
        if diagnosed.miswiring:
            observations = diagnosed.miswiring.corrected(observations)
        if diagnosed.trajectories is not None:
            time_s = self.all_readings.time_s[positions_in_run(self.all_readings.observations, observations)]
            observations = diagnosed.trajectories.corrected(observations, time_s, diagnosed.fit.parameters.delay_s)
        if diagnosed.outliers:
            reading_ma = observations.reading_ma.copy()
            reading_ma[list(diagnosed.outliers)] = np.nan
            observations = replace(observations, reading_ma=reading_ma)
        return observations

    def _follow_trajectories(self, diagnosed: DiagnosedFit, trajectories: DriftTrajectories) -> DiagnosedFit:
        """Return the fit with new drift, with its parameters converted to the new end of the drift."""
        following = replace(diagnosed, trajectories=trajectories, followed=diagnosed.followed + 1)
        before, parameters = diagnosed.likelihood.observations, diagnosed.fit.parameters
        after = self._corrected_observations(following)[np.arange(len(before))]
        # The correction of every setting changes by a different amount; the median is their common part.
        turn_hz = float(np.median(before.detunings_hz - after.detunings_hz))
        source_db = np.array(parameters.source_db, dtype=np.float64)
        for number, port in enumerate(self.model.space.sources):
            of_source = before.source == port
            previous, corrected = before.reading_ma[of_source], after.reading_ma[of_source]
            bright = (previous > 0.0) & (corrected > 0.0)
            if bright.any():
                source_db[number] += 10.0 * float(np.log10(np.median(corrected[bright] / previous[bright])))
        joints = parameters.joint_phase_rad + 2.0 * np.pi * parameters.delay_s * turn_hz
        moved = replace(parameters, joint_phase_rad=joints, source_db=source_db)
        return replace(following, fit=replace(diagnosed.fit, parameters=moved))

    def _refit(self, diagnosed: DiagnosedFit, earlier_fit: FitResult | None = None) -> DiagnosedFit:
        """Fit the corrected readings again, starting at ``diagnosed``.

        ``earlier_fit`` is an earlier fit with almost the same settings and parameters, to save time.
        """
        likelihood = self._update_weights(
            replace(self._live_readings, observations=self._corrected_observations(diagnosed)), diagnosed
        )
        passive = diagnosed.fit.parameters.passive_phase_rad.copy()
        laws = diagnosed.fit.parameters.heater_law.copy()
        for death in diagnosed.deaths:
            if death.first == 0 and laws[death.number].any():
                laws[death.number] = 0.0
                passive[death.number // 2] += death.turn_rad
        start = replace(diagnosed.fit.parameters, passive_phase_rad=passive, heater_law=laws)
        # A heater that failed during the run keeps its law, because it worked before.
        never = frozenset(np.flatnonzero(laws[:, 0] == 0.0).tolist())
        near = diagnosed.fit.certified
        # The information of the last fit contains readings that are no longer used.
        if not np.array_equal(diagnosed.likelihood.used, likelihood.used[: len(diagnosed.likelihood.used)]):
            earlier_fit = None
        fit = self._fit(start, likelihood, never, near=near, earlier_fit=earlier_fit)
        return replace(diagnosed, fit=fit, likelihood=likelihood, rough=near and not fit.certified)

    def _try_exchanged_channels(self, diagnosed: DiagnosedFit) -> DiagnosedFit:
        """Return the fit with two heater channels exchanged, if this fits better than two dead heaters."""
        # If two heaters look dead although their sweeps showed clear effects, their channels are probably exchanged.
        suspects = [d.number for d in diagnosed.deaths if self.swept_sigma[d.number] > _SWEPT_WORKING_SIGMA]
        for first, second in itertools.combinations(sorted(suspects), 2):
            if first // 2 == second // 2:
                continue
            wiring = Miswiring(EXCHANGED, first, second)
            remaining_deaths = tuple(death for death in diagnosed.deaths if death.number not in wiring.heaters)
            case = replace(
                diagnosed,
                dead=diagnosed.dead - {first, second},
                miswiring=wiring,
                deaths=remaining_deaths,
                trajectories=None,
            )
            readings = replace(self._live_readings, observations=self._corrected_observations(case))
            start, _ = wiring.start(self.model, diagnosed.fit.parameters, readings, self.prior, self.heaters)
            refitted = self._refit(
                replace(case, fit=replace(diagnosed.fit, parameters=start), trajectories=diagnosed.trajectories)
            )
            if (
                refitted.fit.discrepancy < diagnosed.fit.discrepancy
                or refitted.fit.chi2_per_dof < diagnosed.fit.chi2_per_dof
            ):
                return refitted
        return diagnosed

    def miswired_from(self, start: MeshParameters, diagnosed: DiagnosedFit) -> DiagnosedFit:
        """Return the fit with two heaters wired to wrong channels, if this explains all readings.

        Args:
            start: Start point of the fit.
            diagnosed: The fit that does not explain all readings.
        """
        dead = _dead_heaters(start)
        misfit = mean_squared_residual(self.model, start, self._live_readings)[
            self.model.space.group("passive_phase_rad")
        ]
        suspects = np.argsort(-misfit)[:_SUSPECTS].tolist()
        live = [heater for puc in suspects for heater in (2 * puc, 2 * puc + 1) if heater not in dead]
        # Among ten heaters some pair always fits a little better; the right pair lowers the cost by at least two
        # fifths.
        lowest_cost, best = _MISWIRED_SHARE * coarse_cost(self.model, start, self._live_readings), None
        # A heater without a channel, or without light, has no sweep.
        without_effect = [heater for heater in dead if self.swept_sigma[heater] > 0.0]
        for wiring in miswiring_candidates(live, without_effect):
            readings = replace(self._live_readings, observations=wiring.corrected(self._live_readings.observations))
            point, cost = wiring.start(self.model, start, readings, self.prior, self.heaters)
            if cost < lowest_cost:
                lowest_cost, best = cost, (point, wiring)
        if best is None:
            return diagnosed
        return self.miswired(*best) or diagnosed

    def miswired(self, start: MeshParameters, wiring: Miswiring) -> DiagnosedFit | None:
        """Return the fit with two heaters wired to wrong channels; ``None`` if this does not explain all readings."""
        _log.info("trying %s", wiring)
        corrected = replace(self._live_readings, observations=wiring.corrected(self._live_readings.observations))
        dead = _dead_heaters(start) - set(wiring.heaters)
        case = DiagnosedFit(self._fit(start, corrected, dead), corrected, dead, miswiring=wiring)
        fitted = self._correct_causes(case)
        is_plausible = wiring.is_plausible(fitted.fit.parameters, self.heaters)
        return self._with_defects(fitted) if fitted.fit.certified and is_plausible else None

    def _fit(
        self,
        start: MeshParameters,
        likelihood: Likelihood,
        dead: frozenset[int],
        *,
        near: bool = False,
        earlier_fit: FitResult | None = None,
        convergence_sigma: float = ON_THE_WAY_SIGMA,
    ) -> FitResult:
        fitting = self._fitting(likelihood, dead)
        return fitting.run(
            start, near=near, earlier_fit=earlier_fit, allow_near_information=True, convergence_sigma=convergence_sigma
        )

    def _fitting(self, likelihood: Likelihood, dead: frozenset[int]) -> GlobalFit:
        free = self.free.copy()
        for name in _HEATER_GROUPS:
            free[self.model.space.group(name).start + np.array(sorted(dead), dtype=np.int64)] = False
        # Both heaters of a PUC are dead, so its couplers are fixed (see above).
        pairs = [heater // 2 for heater in sorted(dead) if heater % 2 == 0 and heater + 1 in dead]
        stuck = np.array([puc for puc in pairs if self.model.mesh.interferes[puc]], np.int64)
        for name in COUPLER_GROUPS:
            free[self.model.space.group(name).start + stuck] = False
        # A fit that does not explain its readings stops at the work limit and is not certified. A fit that does explain
        # them is only a few rounds from its end and may finish.
        work = self.model.work

        def should_stop(discrepancy: float) -> bool:
            return discrepancy > 0.0 and work.is_used_up

        return GlobalFit(self.model, likelihood, self.prior, free, self.on_round, should_stop)


def _dead_heaters(start: MeshParameters) -> frozenset[int]:
    return frozenset(np.flatnonzero(start.heater_law[:, 0] == 0.0).tolist())
