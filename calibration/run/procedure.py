"""The whole procedure: bootstrap, global fit, fibres, verification, record.

Everything random comes from one seed: the same bench, seed and readings give the same record.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from calibration.diagnose.drift_trajectory import drift_of, excess_db
from calibration.diagnose.element_faults import DEAD_MONITOR, FAINT_MONITOR, STUCK_PUC, in_little_light
from calibration.fit.account import Account, Accountant, TimedReadings
from calibration.fit.bound import bound_of
from calibration.fit.global_fit import MOST_ROUNDS, FitResult, Round
from calibration.fit.phase_search import SearchPlan
from calibration.measure.design import HardwareTimes
from calibration.measure.entry import LogbookEntry, times_s
from calibration.measure.heater_fringe import HeaterFit
from calibration.measure.logbook import Logbook
from calibration.measure.probe import Probe
from calibration.measure.reference import reference_changes
from calibration.measure.survey import LEAST_CONTRAST
from calibration.measure.tuning import check_wavelengths, tune_sources
from calibration.model.device_under_test import Subject
from calibration.model.likelihood import SETTING_DRIFT, Likelihood, with_model_error
from calibration.model.mesh_model import MeshModel
from calibration.model.observations import Observations
from calibration.model.priors import FREE_GROUPS, FREE_WITH_MODULES, run_prior
from calibration.model.space import ParameterSpace
from calibration.record.conversion import Origin, record_from
from calibration.run.bootstrap import Bootstrap, BootstrapPlan, Progress, Start, seen_by
from calibration.run.conclusions import NOT_REACHED, defects_of, doubts_of, stuck_at, unknown_pucs
from calibration.run.fibre_levels import SETTINGS_PER_SOURCE, fibre_losses_db
from calibration.run.first_account import first_account
from calibration.run.one_thread import on_one_blas_thread
from calibration.run.planning import Goal, Pursuit, light_change_s
from calibration.run.verification import SETTINGS, TOLERANCE_DB, verify, verify_at
from calibration.run.wavelengths import Extended, WavelengthExtension
from lumion_hw.errors import LumionError
from lumion_hw.mesh.cell import BASIC_UNIT_DELAY_S
from lumion_hw.mesh.record import CalibrationRecord, Conditions, Defect
from lumion_hw.quantities import frequency_hz_from_wavelength_m, wavelength_m_from_frequency_hz

_SETTINGS_UNSEEN = 16


@dataclass
class Calibration:
    """One run of the procedure. Call :meth:`run`; after an interruption :meth:`record` holds what was found so far.

    Attributes:
        probe: Access to the mesh.
        subject: Whose calibration this is.
        seed: Seed of everything random.
        progress: Told of every step.
        found: Told of every heater swept.
        plan: How to measure; chosen for the subject if not given.
        goal: How well the phases are to be known, and what that may cost.
        before: Answers in an interrupted run with the same plan, seed and bench, which need not be asked again.
        wavelengths_nm: Further wavelengths the record is to hold for, with all between; needs light that can be tuned.
        conditions: Asked at beginning and end what the bench is like.
    """

    probe: Probe
    subject: Subject
    seed: int
    progress: Progress = lambda stage, done, total: None
    found: Callable[[int, HeaterFit], None] = lambda heater, fit: None
    plan: BootstrapPlan | None = None
    goal: Goal = field(default_factory=Goal)
    before: Sequence[LogbookEntry] = ()
    wavelengths_nm: Sequence[float] = ()
    conditions: Callable[[], Conditions] = Conditions
    faults: list[str] = field(default_factory=list)
    quality: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Open the logbook; nothing is measured yet. Raises as :func:`calibration.measure.tuning.check_wavelengths`."""
        check_wavelengths(self.wavelengths_nm, self.subject)
        spread_rad = 2.0 * np.pi * BASIC_UNIT_DELAY_S * self.subject.source_spread_hz
        plan = self.plan = self.plan or BootstrapPlan(search=SearchPlan(source_phase_rad=spread_rad))
        self.logbook = Logbook(self.probe, HardwareTimes.waiting(self.subject.settle_s), before=self.before)
        self._bootstrap = Bootstrap(
            self.logbook,
            self.subject.heater_ohm,
            self.subject.rho2_range,
            self.subject.monitor_ma_per_mw,
            self.seed,
            plan,
            self.subject.heater_channels,
            self.progress,
            self.found,
            self.subject.seconds,
        )
        self._start: Start | None = None
        self._account: Account | None = None
        self._fibres: dict[int, tuple[float, float]] = {}
        self._launched_dbm: dict[int, float] = {}
        self._reference_nm = self.subject.wavelength_nm
        self._stated_hz: dict[int, float] = {}
        self._extended: Extended | None = None
        self._complete = False
        self._conditions = Conditions()

    @property
    def fitted(self) -> Observations | None:
        """Settings and readings that the fit explains; ``None`` before they are taken."""
        return self._start.random if self._start else None

    @on_one_blas_thread
    def run(self) -> CalibrationRecord:
        """Run all stages and return the record; heaters and sources are off afterwards, whatever happens.

        Raises:
            CalibrationError: No source or no monitor is alive, or the readings of ``before`` are of another run.
        """
        began_cpu_s = time.process_time()
        try:
            self._conditions = self.conditions()
            self._stages()
            self._conditions = self.conditions()
            self._complete = True
        finally:
            self.probe.safe()
            if not self._complete:
                with contextlib.suppress(LumionError):  # what cut the run short is the news
                    tune_sources(self.probe, frequency_hz_from_wavelength_m(self._reference_nm * 1e-9), self._stated_hz)
            self._count(self.logbook.elapsed_s(), time.process_time() - began_cpu_s)
        return self.record()

    def _stages(self) -> None:
        """Bootstrap, global fit, fibres, further wavelengths, verification."""
        self._tune()
        self._start = self._bootstrap.run()

        def found(start: Start, account: Account) -> None:
            self._start, self._account = start, account

        start, account = self._pursued(*first_account(self._bootstrap, self._start, self._accountant, found))
        account = self._accountant(start).stated(account)
        found(start, account)
        noise = start.survey.noise
        self.quality |= {"monitor_noise_relative": noise.relative, "monitor_noise_floor_ma": noise.floor_ma}
        self.quality |= {"unexplained_share": start.search.unexplained, "fit_certified": float(account.certified)}
        self.quality["fit_chi2_per_dof"] = account.fit.chi2_per_dof
        if account.exchanged:  # with this map nothing that would be programmed is what was meant
            return
        for number, source in enumerate(start.survey.sources, start=1):
            self.logbook.light(source)
            self.logbook.measure(np.zeros(2 * self.probe.mesh.n_pucs))
            self._launched_dbm[source] = self.logbook.launched_dbm(source)
            self.progress("sources", number, len(start.survey.sources))
        self._fibres = fibre_losses_db(
            self.logbook,
            self._model(start),
            account.parameters,
            start.random,
            self.subject.heater_ohm,
            lambda step, total: self.progress("fibres", step, total),
        )
        if self.wavelengths_nm:
            self._extend(start, account.fit)
        self._verify()
        self._look_back(start)

    def _tune(self) -> None:
        """Let all light that can be tuned have the reference wavelength; without other light, that is where it got."""
        tunable = self.subject.tunable_hz
        self._stated_hz = tune_sources(self.logbook, frequency_hz_from_wavelength_m(self._reference_nm * 1e-9), tunable)
        if tunable and set(self.probe.sources) <= set(tunable):
            stated_hz = float(np.median(list(self._stated_hz.values())))
            self._reference_nm = round(wavelength_m_from_frequency_hz(stated_hz) * 1e9, 6)

    def _extend(self, start: Start, fit: FitResult) -> None:
        """Find what changes with wavelength."""
        extension = WavelengthExtension(
            self.logbook,
            self._model(start),
            fit.parameters,
            self._likelihood(start),
            self._reach_ma(),
            self._stated_hz,
            self._reference_nm,
            self.seed,
            start.survey.dark_ma,
            done=lambda step, total: self.progress("wavelengths", step, total),
        )
        self._extended = extension.run(self.wavelengths_nm)
        self.quality |= self._extended.quality()
        self.faults += self._extended.doubts()

    def _model(self, start: Start) -> MeshModel:
        return MeshModel(
            self.probe.mesh,
            start.survey.sources,
            start.survey.monitors,
            self.subject.heater_ohm,
            seconds=self.subject.seconds,
            reference_hz=frequency_hz_from_wavelength_m(self._reference_nm * 1e-9),
        )

    def _likelihood(self, start: Start) -> Likelihood:
        """Return what the fit is to explain: the random settings. Sweeps drive heaters beyond what three terms hold."""
        return Likelihood(start.random, with_model_error(start.survey.noise), drift=SETTING_DRIFT)

    def _reach_ma(self) -> NDArray[np.float64]:
        """Return the current up to which every heater is driven at random, shape ``(2E,)``."""
        return np.array([reach_ma for _, reach_ma in sorted(self._bootstrap.reach_ma().items())])

    def _pursued(self, start: Start, account: Account) -> tuple[Start, Account]:
        """Measure and fit on until the phases are known as well as wanted; what was measured is added to the start."""
        if not account.certified:
            return start, account
        # Those still to come: fibres, verification, looking back.
        settings = len(start.survey.sources) * (2 + SETTINGS_PER_SOURCE) + SETTINGS
        times = replace(self.logbook.times, input_change_s=light_change_s(self.logbook.entries))
        pursuit = Pursuit(
            self.logbook,
            self._model(start),
            self._likelihood(start),
            self._reach_ma(),
            self.goal,
            np.random.default_rng(np.random.SeedSequence([self.seed, 0x60A1])),
            times,
            reserve_s=settings * float(times.setting_s(np.array(2 * self.probe.mesh.n_pucs))),
            reserve_settings=settings,
            dark_ma=start.survey.dark_ma,
            dead=[defect.evidence for defect in start.survey.defects],
            done=lambda done, total: self.progress("chosen settings", done, total),
        )

        def refit(observations: Observations, last: FitResult) -> FitResult:
            nonlocal account
            account = self._account = self._accountant(replace(start, random=observations)).go_on(account)
            return account.fit

        with self.logbook.stage("chosen settings"):
            _, random, outcome = pursuit.run(account.fit, start.random, refit)
        self.quality |= {"phase_sigma_rad": outcome.sigma_rad, "phase_sigma_wanted_rad": self.goal.sigma_rad}
        self.quality["chosen_settings"] = float(outcome.settings)
        if outcome.shortfall:
            self.faults.append(outcome.shortfall)
        return replace(start, random=random), account

    def _accountant(self, start: Start) -> Accountant:
        """Return who fits the random settings of a start."""
        model = self._model(start)
        prior = run_prior(model.space, start.parameters, self.subject)
        free = model.space.mask(FREE_WITH_MODULES if self.subject.source_spread_hz else FREE_GROUPS)
        rounds = itertools.count(1)

        def done(_: Round) -> None:
            self.progress("global fit", min(next(rounds), MOST_ROUNDS), MOST_ROUNDS)

        whole = seen_by(self.logbook.observations(), start.survey.monitors, start.survey.dark_ma)
        return Accountant(
            model,
            prior,
            free,
            self._reach_ma(),
            self.subject.heater_channels,
            [fit.modulation_sigma for fit in start.heaters],
            self.subject.rho2_range,
            self._likelihood(start),
            TimedReadings(whole, times_s(self.logbook.entries)),
            done,
        )

    def _verify(self) -> None:
        """Compare predicted and measured light on settings that took no part in any fit."""
        first = len(self.logbook)
        found = verify(
            self.logbook, self.record(), self.seed, lambda step, total: self.progress("verification", step, total)
        )
        self.quality |= found.figures()
        if found.results and found.excess_db > TOLERANCE_DB and self._strange(first):
            self.faults.append(found.words())
        unseen_nm = self._extended.unseen_nm if self._extended else None
        if unseen_nm is not None:
            there = verify_at(self.logbook, self.record(), unseen_nm, self.seed, settings=_SETTINGS_UNSEEN)
            if there.results:
                self.quality |= {"unseen_wavelength_nm": unseen_nm, "unseen_wavelength_rms_db": there.rms_db}
                self.quality["unseen_wavelength_excess_db"] = there.excess_db

    def _strange(self, first: int) -> bool:
        """Whether light on later settings is off by more than what a drift that is named anyway explains."""
        start, account = self._start, self._account
        if start is None or account is None or account.courses is None:
            return True
        model = self._model(start)
        taken = seen_by(self.logbook.observations(first), start.survey.monitors, start.survey.dark_ma)
        lit = np.isin(taken.source, start.survey.sources)
        taken, when_s = taken[lit], times_s(self.logbook.entries)[first:][lit]
        drift = drift_of(model, account.parameters, taken, when_s, start.survey.noise, self._reach_ma())
        excess = excess_db(drift, model, account.parameters, taken, start.survey.noise)
        self.quality["held_out_excess_followed_db"] = excess
        return excess > TOLERANCE_DB

    def _look_back(self, start: Start) -> None:
        """Measure the reference setting once more, and say what has changed since the run began."""
        for source in start.survey.sources:
            self.logbook.light(source)
            self.logbook.measure(np.zeros(2 * self.probe.mesh.n_pucs))
        noise = start.survey.noise
        # What a drift or a monitor that died has changed is named as such.
        dead = {defect.number for defect in self._defects() if defect.kind in (DEAD_MONITOR, FAINT_MONITOR)}
        columns = [column for column, port in enumerate(self.probe.monitors) if port in dead]
        changes = reference_changes(self.logbook.entries, start.survey.sources, noise, columns)
        self.quality["reference_power_db"] = max((abs(each.power_db) for each in changes), default=0.0)
        self.quality["reference_shape_sigma"] = max((each.shape_sigma for each in changes), default=0.0)
        if self._account is None or self._account.courses is None:
            self.faults += [f"reference setting, {words}" for each in changes for words in each.words()]

    def _count(self, bench_s: float, cpu_s: float) -> None:
        """Write down what the run has cost."""
        total = self.logbook.effort
        self.quality["settings"] = float(total.settings)
        self.quality["source_changes"] = float(total.source_changes)
        self.quality["hardware_s"] = total.hardware_s
        self.quality["bench_s"] = bench_s
        self.quality["cpu_s"] = cpu_s

    def record(self) -> CalibrationRecord:
        """Return the record of what was found so far; complete only after all stages."""
        start, fit = self._start, self._account.fit if self._account else None
        survey = start.survey if start else None
        sources = survey.sources if survey else tuple(sorted(self.probe.sources))
        monitors = survey.monitors if survey else self.probe.monitors
        space = ParameterSpace(self.probe.mesh, sources, monitors, self.subject.seconds)
        nominal = self._bootstrap.nominal(space.sources, space.monitors)
        parameters = self._account.parameters if self._account else nominal
        covariance = fit.covariance() if fit else None
        bound = None
        if start and fit and self._complete:
            bound = bound_of(fit, self._model(start), self._reach_ma(), self._likelihood(start))
        if covariance is not None and self._extended is not None:
            parameters, covariance = self._extended.parameters, self._extended.within(covariance, space)
        return record_from(space, parameters, self._origin(), covariance, bound)

    def _origin(self) -> Origin:
        """Return what the record says besides the parameters."""
        from lumion_hw import __version__

        subject, heaters, start, account = self.subject, self._bootstrap.heaters, self._start, self._account
        defects = self._defects()
        doubts: tuple[str, ...] = ()
        unknown = dict.fromkeys(range(self.probe.mesh.n_pucs), NOT_REACHED)
        if start is not None and account is not None:
            doubts = doubts_of(start, account, self._model(start), self._likelihood(start))
            unknown = unknown_pucs(account, self._model(start).space)
        return Origin(
            serial=subject.serial,
            model=subject.model,
            firmware=subject.firmware,
            heater_channels=subject.heater_channels,
            wavelength_nm=self._reference_nm,
            heater_max_ma=self.probe.heater_max_ma,
            heater_reach_ma=self._bootstrap.reach_ma(),
            heater_ohm=subject.heater_ohm,
            complete=self._complete,
            unknown_pucs=unknown,
            puc_notes={defect.number: stuck_at(defect) for defect in defects if defect.kind == STUCK_PUC},
            launched_dbm=self._launched_dbm,
            output_loss_db=self._fibres,
            monitor_dark_ma=self._start.survey.dark_ma if self._start else {},
            monitor_floor_ma=self._start.survey.noise.floor_ma if self._start else None,
            heater_residual_sigma={heater: fit.residual_sigma for heater, fit in heaters.items()},
            faults=(*self.faults, *(defect.evidence for defect in defects), *doubts),
            conditions=self._held_under(),
            defects=defects,
            quality=self.quality,
            provenance={"software": f"lumion-hw {__version__}", "seed": str(self.seed)},
        )

    def _defects(self) -> tuple[Defect, ...]:
        start, account = self._start, self._account
        if start is None:
            return ()
        channels, most_ma = self.subject.heater_channels, self.probe.heater_max_ma
        found = start.defects
        if account is not None:
            found = defects_of(start, account, self._model(start).space, channels, most_ma)
        if start.survey.is_dim:
            found = in_little_light(found, start.survey.contrast, LEAST_CONTRAST, channels)
        return found

    def _held_under(self) -> Conditions:
        """Return what the record was made under; light that was tuned says where its phases are given."""
        conditions = replace(self._conditions, heater_tau_s=self.subject.heater_tau_s)
        if self._stated_hz:
            reference_hz = frequency_hz_from_wavelength_m(self._reference_nm * 1e-9)
            conditions = replace(conditions, reference_hz=reference_hz)
        return self._extended.conditions(conditions) if self._extended else conditions
