"""Complete calibration procedure.

The same bench, seed and readings give the same record.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from calibration.diagnose.drift_trajectory import excess_db, measure_drift
from calibration.diagnose.element_faults import (
    DEAD_MONITOR,
    FAINT_MONITOR,
    STUCK_PUC,
    heater_name,
    relabel_in_low_light,
)
from calibration.diagnose.heater_ageing import PhaseChange, describe_unsteady_heater, measure_phase_change
from calibration.diagnose.outliers import MAX_OUTLIER_SHARE, MIN_OUTLIER_CHI2, describe_outliers, is_different
from calibration.fit.bound import fit_bound
from calibration.fit.diagnosed_fit import DiagnosedFit, FaultDiagnosis, TimedReadings
from calibration.fit.global_fit import MAX_ROUNDS, FitResult, Round
from calibration.fit.phase_search import SearchPlan, is_same_valley_from_other_search
from calibration.fit.stated_errors import with_law_error
from calibration.measure.fibre_levels import SETTINGS_PER_SOURCE, fibre_losses_db, losses_from_levels_db
from calibration.measure.heater_fringe import HeaterFit
from calibration.measure.heater_resistance import measure_resistances
from calibration.measure.logbook import HardwareTimes, Logbook, LogbookEntry, times_s
from calibration.measure.port_survey import MIN_CONTRAST, ReferenceChange, reference_changes
from calibration.measure.probe import Probe, check_wavelengths, tune_sources
from calibration.model.arrays import Real
from calibration.model.device_under_test import DeviceUnderTest
from calibration.model.heating import LATE
from calibration.model.likelihood import SETTING_DRIFT, Likelihood, with_model_error
from calibration.model.mesh_model import MeshModel
from calibration.model.observations import Observations, select_monitors
from calibration.model.physics import Physics
from calibration.model.priors import FREE_GROUPS, FREE_WITH_MODULES, coupler_spreads, run_prior
from calibration.model.space import ParameterSpace
from calibration.model.work import FIRST_FITS_SHARE, FitWork
from calibration.record.conversion import Origin, build_record
from calibration.record.regimes import REGIMES, Kind
from calibration.run import conclusions
from calibration.run.blas_threads import one_blas_thread
from calibration.run.bootstrap import Bootstrap, BootstrapPlan, Progress, Start
from calibration.run.by_hand import BY_HAND_FIELD_ERROR, HandMeasurement
from calibration.run.freed_memory import keep_freed_memory
from calibration.run.planning import AdaptiveMeasurement, Goal, Knowledge, light_change_s, shortfall
from calibration.run.verification import (
    SETTINGS,
    TOLERANCE_DB,
    Verification,
    regime_rest_s,
    regime_settings,
    verify,
    verify_at,
    verify_readings,
    verify_regimes,
)
from calibration.run.wavelengths import Extended, WavelengthExtension
from lumion_hw.errors import LumionError
from lumion_hw.mesh.record.calibration_record import (
    EMULATED_CHIP,
    NOT_CERTIFIED,
    USES,
    CalibrationRecord,
    Conditions,
    Defect,
    Use,
    not_certified_for,
)
from lumion_hw.mesh.waves.cell import BASIC_UNIT_DELAY_S
from lumion_hw.quantities import frequency_hz_from_wavelength_m, wavelength_m_from_frequency_hz

_SETTINGS_UNSEEN = 16
_MORE_STARTS = 4
# Largest relative field error of a fit in the right valley; in wrong ones it is 0.018 to 0.077 (60 searches on 15
# PUCs).
_RIGHT_VALLEY = 0.01
# A fit with a field error up to this is near the solution, so that more settings show which effect it lacks. With more,
# they did not help on five chips of five.
_MAX_NEAR_DISCREPANCY = 0.01
_MAX_DOUBLINGS = 2
# Fitted crosstalk above this multiple of the published value is real: the prior is one third of it wide.
_MIN_STRONGER_CROSSTALK = 3.0
# Relative uncertainty of crosstalk that a first fit has found. With more, laws and crosstalk of a chip with ten heaters
# can hardly be told apart, and a fit does not converge in 60 rounds.
_FITTED_CROSSTALK_SPREAD = 0.1
# Number of searches that must end in the same valley before it is accepted.
_MAX_CONFIRMATIONS = 2

Residual = Callable[[str, float], None]
"""Called with the misfit of a stage: its name with unit, and its value."""


@dataclass
class Calibration:
    """One calibration: call :meth:`run`; after an interruption, :meth:`record` returns the results so far.

    Attributes:
        probe: Access to the mesh.
        device: The device under test.
        seed: Seed of all random choices.
        progress: Called after every step.
        on_heater: Called after every sweep with the heater and its law.
        plan: Measurement plan; by default chosen for the device.
        goal: Required accuracy, and limits of the effort.
        before: Answers of an interrupted run with equal plan, seed and bench.
        wavelengths_nm: Further wavelengths (need a tunable source); the record is then valid for the whole range.
        conditions: Returns the conditions of the bench; called at the start and at the end.
        residual: Called with name and value of the misfit of a stage when it changes.
        left_out: PUCs that are not part of this calibration; they get no light.
    """

    probe: Probe
    device: DeviceUnderTest
    seed: int
    progress: Progress = lambda stage, done, total: None
    on_heater: Callable[[int, HeaterFit], None] = lambda heater, fit: None
    plan: BootstrapPlan | None = None
    goal: Goal = field(default_factory=Goal)
    before: Sequence[LogbookEntry] = ()
    wavelengths_nm: Sequence[float] = ()
    conditions: Callable[[], Conditions] = Conditions
    residual: Residual = lambda name, value: None
    left_out: frozenset[int] = frozenset()
    faults: list[str] = field(default_factory=list)
    quality: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Open the logbook; nothing is measured. Raises as :func:`calibration.measure.probe.check_wavelengths`."""
        check_wavelengths(self.wavelengths_nm, self.device)
        if warning := conclusions.short_reach(self.device.heaters, self.probe.heater_max_ma):
            self.faults.append(warning)
        # Separate lasers differ by a phase per PUC: 0.44 rad for 0.05 nm.
        spread_rad = 2.0 * np.pi * BASIC_UNIT_DELAY_S * self.device.source_spread_hz
        plan = self.plan = self.plan or BootstrapPlan(search=SearchPlan(source_phase_rad=spread_rad))
        self.logbook = Logbook(self.probe, HardwareTimes.waiting(self.device.settle_s), before=self.before)
        self._bootstrap = Bootstrap(self.logbook, self.device, self.seed, plan, self.progress, self.on_heater)
        self._start: Start | None = None
        self._diagnosed: DiagnosedFit | None = None
        self._fibres: dict[int, tuple[float, float]] = {}
        self._resistances: Real | None = None
        self._launched_dbm: dict[int, float] = {}
        self._reference_nm = self.device.wavelength_nm
        self._reported_hz: dict[int, float] = {}
        self._extended: Extended | None = None
        self._complete = False
        self._conditions = Conditions()
        self._work = FitWork()
        self._fitted = np.zeros(0, np.int64)

    @property
    def fitted(self) -> Observations | None:
        """Settings and readings of the fit; ``None`` before they are measured."""
        return self._start.random if self._start else None

    @one_blas_thread()
    @keep_freed_memory()
    def run(self) -> CalibrationRecord:
        """Run all stages and return the record; heaters and sources are off afterwards.

        Raises:
            CalibrationError: No source or no monitor works, or ``before`` belongs to another run.
        """
        began_cpu_s = time.process_time()
        try:
            self._conditions = self.conditions()
            self._stages()
            self._conditions = self.conditions()
            self._complete = True
        finally:
            self.probe.switch_everything_off()
            if not self._complete:
                with contextlib.suppress(LumionError):  # the first error must be reported
                    tune_sources(self.probe, self._reference_hz, self._reported_hz)
            effort = self.logbook.effort
            self.quality |= {"settings": float(effort.settings), "source_changes": float(effort.source_changes)}
            self.quality |= {"hardware_s": effort.hardware_s, "bench_s": self.logbook.elapsed_s()}
            self.quality["cpu_s"] = time.process_time() - began_cpu_s
        return self.record()

    def _stages(self) -> None:
        self._tune()
        self._start = self._bootstrap.run(self._explains)
        self.residual("search_unexplained_share", self._start.search.unexplained)
        survey, space = self._start.survey, self._model(self._start).space
        readings = self._bootstrap.usual_settings(survey) * len(survey.monitors)
        if self._bootstrap.by_hand is not None:  # ports without the moved meter are computed, too
            readings = self._start.random.reading_ma.size
        self._work.allowed = FitWork.allowed_for(readings, space.plain)

        def keep(start: Start, diagnosed: DiagnosedFit) -> None:
            self._start, self._diagnosed = start, diagnosed
            # Settings that failed searches added raise the work limit only once the phases are found.
            if not _may_be_in_wrong_valley(diagnosed.fit):
                allowed = FitWork.allowed_for(start.random.reading_ma.size, space.plain)
                self._work.allowed = max(self._work.allowed, allowed)

        start, diagnosed = first_fit(self._bootstrap, self._start, self._diagnosis, keep, self._work)
        keep(start, diagnosed)  # the last cause may have added effects
        by_hand = self._bootstrap.by_hand
        measure = self._measure_on if by_hand is None else self._measured_by_hand
        start, diagnosed = measure(start, diagnosed)
        diagnosed = self._diagnosis(start).stated(diagnosed)
        keep(start, diagnosed)
        noise = start.survey.noise
        self.quality |= {"monitor_noise_relative": noise.relative, "monitor_noise_floor_ma": noise.floor_ma}
        self.quality |= {"unexplained_share": start.search.unexplained, "fit_certified": float(diagnosed.certified)}
        self.quality["fit_chi2_per_dof"] = diagnosed.fit.chi2_per_dof
        self.quality["unexplained_field"] = diagnosed.physics.field_error
        self.quality["work_share"] = self._work.spent / self._work.allowed
        self.quality |= {f"widened_{name}": factor for name, factor in diagnosed.widened.items()}
        self.quality["outliers"] = float(len(diagnosed.outliers))
        # The last settings with heaters on are those of the fit; a tour with fibres moved by hand has its own order.
        is_on = self.logbook.observations().currents_ma.any(axis=1)
        self._fitted = np.flatnonzero(is_on)[-len(start.random) :] if by_hand is None else np.array(by_hand.random)
        if diagnosed.outliers:
            self.faults.append(describe_outliers(times_s(self.logbook.entries)[self._fitted][list(diagnosed.outliers)]))
        for heater, change in sorted(diagnosed.physics.unsteady.items()):
            self.faults.append(describe_unsteady_heater(heater_name(heater, self.device.heater_channels), change))
        if diagnosed.miswiring:  # with a wrong channel map no programmed state would be the intended one
            return
        if by_hand is not None:
            self._finish_by_hand(by_hand, start, diagnosed)
            return
        for number, source in enumerate(start.survey.sources, start=1):
            self.logbook.light_only_port(source)
            self.logbook.measure(np.zeros(2 * self.probe.mesh.n_pucs))
            self._launched_dbm[source] = self.logbook.launched_dbm(source)
            self.progress("sources", number, len(start.survey.sources))
        self._resistances = measure_resistances(self.logbook, 0.5 * self._bootstrap.reach_ma())
        on_step = partial(self.progress, "fibres")
        self._fibres = fibre_losses_db(self.logbook, self._model(start), diagnosed.parameters, start.random, on_step)
        if self.wavelengths_nm:
            self._extend(start, diagnosed.fit)
        self._verify(start, diagnosed)
        self._repeat_reference(start)

    def _measured_by_hand(self, start: Start, diagnosed: DiagnosedFit) -> tuple[Start, DiagnosedFit]:
        space, goal_rad = self._model(start).space, self.goal.sigma_rad
        knowledge = Knowledge.of(space, diagnosed.fit, goal_rad)
        self.quality |= {"phase_sigma_rad": knowledge.rms_rad(space), "phase_sigma_wanted_rad": goal_rad}
        reason = "fibres that are moved by hand visit each port once"
        if diagnosed.certified and (missed := shortfall(space, knowledge, diagnosed.fit, goal_rad, reason)):
            self.faults.append(missed)
        return start, diagnosed

    def _finish_by_hand(self, measured: HandMeasurement, start: Start, diagnosed: DiagnosedFit) -> None:
        for source in start.survey.sources:
            self._launched_dbm[source] = self.logbook.launched_dbm(source)
        observations = self.logbook.observations()
        numbers = np.array([reading.setting for reading in measured.fibres])
        selected = select_monitors(observations[numbers], start.survey.monitors, start.survey.dark_ma)
        levels = [reading.level_dbm for reading in measured.fibres]
        self._fibres = losses_from_levels_db(self._model(start), diagnosed.parameters, selected, levels)
        held_out = np.array(measured.held_out)
        verification = verify_readings(self.logbook, self.record(), observations[held_out])
        self._keep_figures(verification.figures())
        self._judge((verification, held_out))
        self._report_changes(measured.changes)

    def _tune(self) -> None:
        tunable = self.device.tunable_hz
        self._reported_hz = tune_sources(self.logbook, self._reference_hz, tunable)
        # A fixed source defines the reference; without one, the grid of the lasers does.
        if tunable and set(self.probe.sources) <= set(tunable):
            stated_hz = float(np.median(list(self._reported_hz.values())))
            self._reference_nm = round(wavelength_m_from_frequency_hz(stated_hz) * 1e9, 6)

    @property
    def _reference_hz(self) -> float:
        return frequency_hz_from_wavelength_m(self._reference_nm * 1e-9)

    def _extend(self, start: Start, fit: FitResult) -> None:
        extension = WavelengthExtension(
            self.logbook,
            self._model(start),
            fit.parameters,
            self._likelihood(start),
            self._bootstrap.reach_ma(),
            self._reported_hz,
            self._reference_nm,
            self.seed,
            start.survey.dark_ma,
            on_step=partial(self.progress, "wavelengths"),
        )
        self._extended = extension.run(self.wavelengths_nm)
        self.quality |= self._extended.quality()
        self.faults += self._extended.warnings()

    def _model(self, start: Start) -> MeshModel:
        return MeshModel(
            self.probe.mesh,
            start.survey.sources,
            start.survey.monitors,
            self.device.heater_ohm,
            seconds=self.device.seconds,
            channels=self.device.heater_channels,
            reference_hz=self._reference_hz,
            physics=self._diagnosed.physics if self._diagnosed else None,
            work=self._work,
        )

    def _explains(self, start: Start) -> bool:
        """Return whether a fit from a start explains almost all light, as it does near the right phases only."""
        spent = self._work.spent
        fit = self._diagnosis(start).fit_from(start.parameters)
        # Each search that fails gets such a fit. Together they would leave no work to find the causes of a misfit.
        self._work.spent = spent
        return fit.discrepancy < _RIGHT_VALLEY

    def _likelihood(self, start: Start) -> Likelihood:
        """Return the likelihood (readings with noise) of the random settings, without the heater sweeps."""
        field_error = max(self._diagnosed.physics.field_error if self._diagnosed else 0.0, self._min_field_error)
        return Likelihood(
            start.random, with_model_error(start.survey.noise), drift=SETTING_DRIFT, field_error=field_error
        )

    def _measure_on(self, start: Start, diagnosed: DiagnosedFit) -> tuple[Start, DiagnosedFit]:
        if not diagnosed.certified:
            start, diagnosed = self._measure_more(start, diagnosed)
        if not diagnosed.certified:
            return start, diagnosed
        # Reserve for the later stages (fibres, verification, final check), so that further measurements do not use up
        # their time.
        settings = len(start.survey.sources) * (2 + SETTINGS_PER_SOURCE) + SETTINGS
        settings += regime_settings(self.probe.mesh, len(start.survey.sources), len(self._bootstrap.heaters))
        # There is no published time of a source change; this bench has shown it by now.
        times = replace(self.logbook.times, input_change_s=light_change_s(self.logbook.entries))
        measuring = AdaptiveMeasurement(
            self.logbook,
            self._model(start),
            self._likelihood(start),
            self._bootstrap.reach_ma(),
            self.goal,
            np.random.default_rng(np.random.SeedSequence([self.seed, 0x60A1])),
            times,
            reserve_s=settings * float(times.setting_s(np.array(2 * self.probe.mesh.n_pucs)))
            + regime_rest_s(len(start.survey.sources)),
            reserve_settings=settings,
            dark_ma=start.survey.dark_ma,
            dead=[defect.evidence for defect in start.survey.defects],
            on_step=partial(self.progress, "chosen settings"),
        )

        def refit(observations: Observations, last: FitResult) -> tuple[MeshModel, FitResult]:
            nonlocal diagnosed
            diagnosed = self._diagnosed = self._diagnosis(replace(start, random=observations)).continue_from(diagnosed)
            return self._model(start), diagnosed.fit

        _, random, outcome = measuring.run(diagnosed.fit, start.random, refit)
        self.quality |= {"phase_sigma_rad": outcome.sigma_rad, "phase_sigma_wanted_rad": self.goal.sigma_rad}
        self.quality["chosen_settings"] = float(outcome.settings)
        if outcome.shortfall:
            self.faults.append(outcome.shortfall)
        return replace(start, random=random), diagnosed

    def _measure_more(self, start: Start, diagnosed: DiagnosedFit) -> tuple[Start, DiagnosedFit]:
        """Measure more random settings while a fit nearly explains its readings.

        Strong thermal crosstalk differs from heater to heater. Too few readings cannot tell the differences apart, so
        that the fit does not include them.
        """
        for _ in range(_MAX_DOUBLINGS):
            if diagnosed.certified or diagnosed.miswiring or diagnosed.fit.discrepancy > _MAX_NEAR_DISCREPANCY:
                break
            start = self._bootstrap.measure_more(start)
            self._work.allowed += FitWork.allowed_for(start.random.reading_ma.size // 2, self._model(start).space.plain)
            diagnosed = self._diagnosed = self._diagnosis(start).continue_from(diagnosed)
        return start, diagnosed

    @property
    def _min_field_error(self) -> float:
        # A tour cannot add settings until the errors of three-term heater laws average out in dark readings.
        return 0.0 if self._bootstrap.by_hand is None else BY_HAND_FIELD_ERROR

    def _diagnosis(self, start: Start) -> FaultDiagnosis:
        model = self._model(start).with_physics(Physics())
        prior = run_prior(model.space, start.parameters, self.device, start.crosstalk_spread)
        if self._diagnosed is not None:
            fit = self._diagnosed.fit
            sigma = np.full(len(fit.vector), np.inf)
            sigma[fit.free] = np.sqrt(np.diag(fit.inverse))
            prior = prior.moved(coupler_spreads(model.space, prior, fit.vector, sigma), model.space)
        free = model.space.free(FREE_WITH_MODULES if self.device.source_spread_hz else FREE_GROUPS)
        rounds = itertools.count(1)

        tried: list[str] = []

        def on_round(last: Round) -> None:
            self.residual("global_fit_chi2_per_reading", last.chi2_per_reading)
            stage = f"global fit, trying {tried[-1]}" if tried else "global fit"
            self.progress(stage, min(next(rounds), MAX_ROUNDS), MAX_ROUNDS)

        all_readings = select_monitors(self.logbook.observations(), start.survey.monitors, start.survey.dark_ma)
        time_s, by_hand = times_s(self.logbook.entries), self._bootstrap.by_hand
        if by_hand is not None:  # its random settings are not the last ones
            all_readings, time_s = start.random, time_s[by_hand.random]
        return FaultDiagnosis(
            model,
            prior,
            free,
            self._bootstrap.reach_ma(),
            self.device.heater_channels,
            [fit.modulation_sigma for fit in start.heaters],
            self.device.heaters,
            replace(self._likelihood(start), field_error=self._min_field_error),
            TimedReadings(all_readings, time_s),
            on_round,
            tried.append,
            follows_drift=by_hand is None,
            min_field_error=self._min_field_error,
        )

    def _verify(self, start: Start, diagnosed: DiagnosedFit) -> None:
        first, record = len(self.logbook), self.record()
        verification = verify(self.logbook, record, self.seed, partial(self.progress, "verification"))
        basic = np.arange(first, len(self.logbook))
        regimes, numbers = verify_regimes(self.logbook, record, self.seed, partial(self.progress, "regimes of use"))
        verification = self._without_outliers(start, verification, basic)
        regimes = self._without_outliers(start, regimes, numbers)
        self._keep_figures(verification.figures())
        self._keep_figures(regimes.figures_by_regime())
        self._judge((verification, basic), (regimes, numbers))
        common = self._measure_heater_ageing(start, diagnosed, numbers)
        if diagnosed.trajectories is None:  # drift after the fit changes the light of all heaters
            self._add_heater_changes(start, regimes.heater_changes(common))
        unseen_nm = self._extended.unseen_nm if self._extended else None
        if unseen_nm is not None:
            at_unseen = verify_at(self.logbook, self.record(), unseen_nm, self.seed, settings=_SETTINGS_UNSEEN)
            if at_unseen.results:
                self.quality |= {"unseen_wavelength_nm": unseen_nm, "unseen_wavelength_rms_db": at_unseen.rms_db}
                self.quality["unseen_wavelength_excess_db"] = at_unseen.excess_db

    def _measure_heater_ageing(self, start: Start, diagnosed: DiagnosedFit, numbers: NDArray[np.int64]) -> float:
        """Return the relative change of all heaters since the fitted settings; add it to the errors of their laws.

        ``numbers`` are the numbers of the last settings in the logbook, some of which were measured before.
        """
        observations = self.logbook.observations()
        lit = [number for number in numbers.tolist() if observations.source[number] in start.survey.sources]
        pairs = [(first, number) for number in lit if (first := _find_first_same(observations, number)) is not None]
        if not pairs:
            return 0.0
        early, late = np.array(pairs).T
        selected = select_monitors(observations, start.survey.monitors, start.survey.dark_ma)
        model, noise = self._model(start), start.survey.noise
        change = measure_phase_change(model, diagnosed.parameters, selected[early], selected[late], noise)
        if change is None or not change.is_significant:
            return 0.0
        # Heaters age by their heat, and the laws are those at the mean heat of the fitted settings.
        lasted_s = np.diff(times_s(self.logbook.entries), prepend=0.0)
        heat = np.cumsum((observations.currents_ma**2).sum(axis=1) * lasted_s)
        since_fit = heat[late].mean() - heat[self._fitted].mean()
        share = change.relative * float(np.clip(since_fit / (heat[late].mean() - heat[early].mean()), 0.0, 1.0))
        self._add_law_error(start, share, range(2 * model.mesh.n_pucs))
        self.quality["heater_phase_change"] = change.relative
        self.faults.append(
            f"the phases of all heaters changed by {100.0 * change.relative:+.3f} % at equal power during the run; "
            "the errors of the heater laws include this change. Heaters age: calibrate again later"
        )
        return share

    def _add_heater_changes(self, start: Start, changes: Mapping[int, PhaseChange]) -> None:
        """Add significant changes of single heaters since the fitted settings to the errors of their laws."""
        for heater, change in changes.items():
            if change.is_significant:
                self._add_law_error(start, change.relative, [heater])
                name = heater_name(heater, self.device.heater_channels)
                self.faults.append(describe_unsteady_heater(name, change.relative))

    def _add_law_error(self, start: Start, relative: float, heaters: Sequence[int]) -> None:
        if (diagnosed := self._diagnosed) is not None:
            fit = with_law_error(self._model(start).space, diagnosed.fit, relative, heaters)
            self._diagnosed = replace(diagnosed, fit=fit)

    def _without_outliers(self, start: Start, verification: Verification, numbers: NDArray[np.int64]) -> Verification:
        """Measure the settings that deviate most again; leave those out whose light is different then.

        ``numbers`` are the numbers of the settings in the logbook.
        """
        deviating = verification.deviating_settings(MIN_OUTLIER_CHI2)
        if not deviating or len(deviating) > max(MAX_OUTLIER_SHARE * len(numbers), 1.0):
            return verification
        observations = self.logbook.observations()
        outliers = set[int]()
        for setting in deviating:
            number, first = numbers[setting], len(self.logbook)
            self.logbook.light_only_port(int(observations.source[number]))
            self.logbook.measure(observations.currents_ma[number])
            again_ma, before_ma = self.logbook.observations(first).reading_ma[0], observations.reading_ma[number]
            if is_different(again_ma, before_ma, start.survey.noise):
                outliers.add(setting)
        if outliers:
            self.quality["outliers"] += len(outliers)
            self.faults.append(describe_outliers(times_s(self.logbook.entries)[numbers[sorted(outliers)]]))
        return replace(
            verification, results=tuple(result for result in verification.results if result.setting not in outliers)
        )

    def _keep_figures(self, figures: Mapping[str, float]) -> None:
        self.quality |= figures
        for name, value in figures.items():
            if name.endswith("_db"):
                self.residual(name, value)

    def _judge(self, *verified: tuple[Verification, NDArray[np.int64]]) -> None:
        """Withhold the certificate for the uses whose light is wrong.

        ``verified`` are results, with the number of each setting in the logbook.
        """
        measured, wrong = set[Use](), dict[Kind, str]()
        for verification, numbers in verified:
            for kind, regime in REGIMES.items():
                part = replace(verification.of(kind), suspects=verification.suspects)
                settings = numbers[sorted({result.setting for result in part.results})]
                measured |= set(regime.uses) if part.results else set()
                # Drift after the fit makes every prediction wrong and is reported as drift; the record may be right.
                if part.is_wrong and self._is_verification_wrong(settings):
                    wrong[kind] = part.description(regime.description)
        # A use that no regime shows stands on the others.
        withheld = {use for kind in wrong for use in REGIMES[kind].uses} | (set(USES) - measured if wrong else set())
        if withheld == set(USES):
            self.faults += [f"{NOT_CERTIFIED}{text}" for text in wrong.values()]
            self.quality["fit_certified"] = 0.0
            return
        for use in (use for use in USES if use in withheld):
            texts = [text for kind, text in wrong.items() if use in REGIMES[kind].uses]
            self.faults += [f"{not_certified_for(use)}{text}" for text in texts or wrong.values()]

    def _is_verification_wrong(self, settings: NDArray[np.int64]) -> bool:
        start, diagnosed = self._start, self._diagnosed
        if start is None or diagnosed is None or diagnosed.trajectories is None:
            return True
        model = self._model(start)
        observations = select_monitors(
            self.logbook.observations()[settings], start.survey.monitors, start.survey.dark_ma
        )
        has_light = np.isin(observations.source, start.survey.sources)
        observations, when_s = observations[has_light], times_s(self.logbook.entries)[settings][has_light]
        drift = measure_drift(
            model, diagnosed.parameters, observations, when_s, start.survey.noise, self._bootstrap.reach_ma()
        )
        excess = excess_db(drift, model, diagnosed.parameters, observations, start.survey.noise)
        self.quality["held_out_excess_followed_db"] = excess
        return excess > TOLERANCE_DB

    def _repeat_reference(self, start: Start) -> None:
        for source in start.survey.sources:
            self.logbook.light_only_port(source)
            self.logbook.measure(np.zeros(2 * self.probe.mesh.n_pucs))
        noise = start.survey.noise
        # Changes from drift or from failed monitors are reported separately.
        dead = {defect.number for defect in self._defects() if defect.kind in (DEAD_MONITOR, FAINT_MONITOR)}
        columns = [column for column, port in enumerate(self.probe.monitors) if port in dead]
        self._report_changes(reference_changes(self.logbook.entries, start.survey.sources, noise, columns))

    def _report_changes(self, changes: Sequence[ReferenceChange]) -> None:
        """Report changes of the light in settings that were measured again."""
        self.quality["reference_power_db"] = max((abs(change.power_db) for change in changes), default=0.0)
        self.quality["reference_shape_sigma"] = max((change.shape_sigma for change in changes), default=0.0)
        # Slow heat depends on earlier settings, so with it two readings at rest always differ.
        late = self._diagnosed is not None and not self._diagnosed.physics.widths.keys().isdisjoint(LATE)
        if not late and (self._diagnosed is None or self._diagnosed.trajectories is None):
            self.faults += [f"reference setting, {text}" for change in changes for text in change.descriptions()]

    def record(self) -> CalibrationRecord:
        """Return the record of the results so far; it is complete only after all stages."""
        start, fit = self._start, self._diagnosed.fit if self._diagnosed else None
        survey = start.survey if start else None
        sources = survey.sources if survey else tuple(sorted(self.probe.sources))
        monitors = survey.monitors if survey else self.probe.monitors
        physics = self._diagnosed.physics if self._diagnosed else None
        space = ParameterSpace(self.probe.mesh, sources, monitors, self.device.seconds, physics)
        nominal = self._bootstrap.nominal(space.sources, space.monitors)
        parameters = self._diagnosed.parameters if self._diagnosed else nominal
        covariance = fit.covariance() if fit else None
        bound = None
        if start and fit and self._complete:
            bound = fit_bound(fit, self._model(start), self._bootstrap.reach_ma(), self._likelihood(start))
        if covariance is not None and self._extended is not None:
            parameters, covariance = self._extended.parameters, self._extended.within(covariance, space)
        return build_record(space, parameters, self._origin(), covariance, bound)

    def _origin(self) -> Origin:
        from lumion_hw import __version__

        device, heaters, start, diagnosed = self.device, self._bootstrap.heaters, self._start, self._diagnosed
        defects = self._defects()
        warnings: tuple[str, ...] = ()
        unknown = dict.fromkeys(range(self.probe.mesh.n_pucs), conclusions.NOT_REACHED)
        if start is not None and diagnosed is not None:
            warnings = conclusions.collect_warnings(start, diagnosed, self._model(start), self._likelihood(start))
            unknown = conclusions.unknown_pucs(diagnosed, self._model(start).space, self.left_out)
        return Origin(
            serial=device.serial,
            model=device.model,
            firmware=device.firmware,
            heater_channels=device.heater_channels,
            wavelength_nm=self._reference_nm,
            heater_max_ma=self.probe.heater_max_ma,
            heater_reach_ma=dict(enumerate(self._bootstrap.reach_ma().tolist())),
            heater_ohm=device.heater_ohm,
            complete=self._complete,
            unknown_pucs=unknown,
            puc_notes={defect.number: conclusions.stuck_at(defect) for defect in defects if defect.kind == STUCK_PUC},
            launched_dbm=self._launched_dbm,
            output_loss_db=self._fibres,
            monitor_dark_ma=self._start.survey.dark_ma if self._start else {},
            monitor_floor_ma=self._start.survey.noise.floor_ma if self._start else None,
            heater_resistances=self._resistances,
            heater_residual_sigma={heater: fit.residual_sigma for heater, fit in heaters.items()},
            faults=(*self.faults, *(defect.evidence for defect in defects), *warnings),
            conditions=self._present_conditions(),
            defects=defects,
            quality=self.quality,
            gains=diagnosed.gains if diagnosed else {},
            provenance={"software": f"lumion-hw {__version__}", "seed": str(self.seed)}
            | ({} if device.emulated_chip is None else {EMULATED_CHIP: device.emulated_chip}),
        )

    def _defects(self) -> tuple[Defect, ...]:
        start, diagnosed = self._start, self._diagnosed
        if start is None:
            return ()
        channels, max_ma = self.device.heater_channels, self.probe.heater_max_ma
        defects = start.defects
        if diagnosed is not None:
            defects = conclusions.collect_defects(start, diagnosed, self._model(start).space, channels, max_ma)
        defects = tuple(defect for defect in defects if defect.element != "puc" or defect.number not in self.left_out)
        if start.survey.contrast < MIN_CONTRAST:  # too little light to tell dim elements from dead ones
            defects = relabel_in_low_light(defects, start.survey.contrast, MIN_CONTRAST, channels)
        return defects

    def _present_conditions(self) -> Conditions:
        conditions = replace(self._conditions, heater_tau_s=self.device.heater_tau_s)
        if self._reported_hz:
            conditions = replace(conditions, reference_hz=self._reference_hz)
        return self._extended.conditions(conditions) if self._extended else conditions


def _find_first_same(observations: Observations, number: int) -> int | None:
    """Return the number of the first earlier setting that equals a setting in which several heaters are on."""
    currents_ma = observations.currents_ma[number]
    if np.count_nonzero(currents_ma) < 2:
        return None
    is_same = (observations.source[:number] == observations.source[number]) & np.all(
        observations.currents_ma[:number] == currents_ma, axis=1
    )
    return int(is_same.argmax()) if is_same.any() else None


def first_fit(
    bootstrap: Bootstrap,
    start: Start,
    diagnosis: Callable[[Start], FaultDiagnosis],
    on_fit: Callable[[Start, DiagnosedFit], None],
    work: FitWork,
) -> tuple[Start, DiagnosedFit]:
    """Fit from one start after another until a fit explains the readings; return the start and the fit.

    ``start`` is the result of the first search; ``bootstrap`` can search again. ``diagnosis`` returns the fault
    diagnosis for a start. ``on_fit`` is called with every start and its fit.
    """
    work.spent += start.search.work
    if start.miswiring is not None and (miswired := diagnosis(start).miswired(start.parameters, start.miswiring)):
        on_fit(start, miswired)
        return start, miswired
    work.share, confirmations = FIRST_FITS_SHARE, 0
    best = _with_fitted_crosstalk((start, diagnosis(start).begin(start.parameters)), diagnosis, work)
    on_fit(*best)
    # Another search comes before the diagnosis: a search takes seconds, but every cause needs fits. From a wrong valley
    # the diagnosis would find failures and drifts that do not exist.
    for is_settled in (False, *(True,) * _MORE_STARTS):
        if work.is_used_up:
            break
        # A second search that ends in the same valley confirms it.
        if (
            _may_be_in_wrong_valley(best[1].fit)
            and confirmations < _MAX_CONFIRMATIONS
            and (is_settled or best[0].trusted)
        ):
            other = bootstrap.search_again(best[0])
            work.spent += other.search.work
            if is_same_valley_from_other_search(other.search, best[0].search):
                confirmations += 1
            else:
                confirmations, best = 0, _better(best, other, diagnosis(other), is_settled=is_settled)
            on_fit(*best)
        if not is_settled:
            best = best[0], diagnosis(best[0]).settle(best[1])
            on_fit(*best)
    start, diagnosed = best[0], diagnosis(best[0]).accept_field_error(best[1])
    # The last cause has its own work limit, because searches for a better start may have used up the rest.
    work.share = 1.0
    if not _may_be_in_wrong_valley(diagnosed.fit):
        return start, diagnosed
    return start, diagnosis(start).miswired_from(start.parameters, diagnosed)


def _with_fitted_crosstalk(
    fitted: tuple[Start, DiagnosedFit], diagnosis: Callable[[Start], FaultDiagnosis], work: FitWork
) -> tuple[Start, DiagnosedFit]:
    """Fit again with a prior for the crosstalk that the fit found, if it is stronger than the search assumed.

    On a small chip the search succeeds in spite of strong crosstalk. The prior for the published crosstalk then shifts
    heater laws, which the readings can hardly tell from the crosstalk at large distance.
    """
    start, diagnosed = fitted
    before, after = start.parameters.crosstalk_rad_per_mw, diagnosed.fit.parameters.crosstalk_rad_per_mw
    factor = after[0] / before[0]
    if work.is_used_up or (factor < _MIN_STRONGER_CROSSTALK and (start.crosstalk_spread is None or factor <= 0.0)):
        return fitted
    crosstalk = before * np.array([factor, 1.0, factor])
    parameters = replace(diagnosed.fit.parameters, crosstalk_rad_per_mw=crosstalk)
    start = replace(start, parameters=parameters, crosstalk_spread=_FITTED_CROSSTALK_SPREAD)
    other = diagnosis(start).begin(parameters)
    # The strength that the first fit found may be wrong.
    is_near = other.fit.discrepancy <= max(diagnosed.fit.discrepancy, _MAX_NEAR_DISCREPANCY)
    return (start, other) if is_near else fitted


def _may_be_in_wrong_valley(fit: FitResult) -> bool:
    """Return whether a fit may have ended in a false minimum. It has not if almost everything is explained."""
    return not fit.certified and (not fit.converged or fit.discrepancy > _RIGHT_VALLEY)


def _better(
    best: tuple[Start, DiagnosedFit], other: Start, diagnosis: FaultDiagnosis, *, is_settled: bool
) -> tuple[Start, DiagnosedFit]:
    candidate = diagnosis.begin(other.parameters)
    candidate = diagnosis.settle(candidate) if is_settled else candidate
    return (other, candidate) if candidate.fit.chi2_per_dof < best[1].fit.chi2_per_dof else best
