"""Start of the global fit, in about 1,500 settings and half a minute.

Stages: survey, heater sweeps, random settings, estimate of passive phases, phase search (docs/calibration.md, 5).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from calibration.diagnose.breakdowns import Breakdown, find_dead_monitors, without_dead_monitors
from calibration.diagnose.element_faults import (
    heater_defects,
    merge_dead_ports,
    monitor_breakdown_defect,
    saturation_defects,
)
from calibration.diagnose.miswiring import SHARED, Miswiring, miswiring_candidates
from calibration.fit.exchanged_monitors import exchange_candidates, exchange_monitors
from calibration.fit.frequencies import nearest_branches
from calibration.fit.phase_search import (
    Levels,
    PhaseSearch,
    SearchPlan,
    SearchResult,
    guess_passive_phases,
    mean_levels,
)
from calibration.measure.design import CHANGED, IncrementalSettings, usually_changed
from calibration.measure.heater_fringe import NOT_SWEPT, HeaterFit
from calibration.measure.heater_sweeps import HeaterSweepPlan, HeaterSweeps
from calibration.measure.logbook import Logbook
from calibration.measure.port_survey import Survey, take_survey
from calibration.model.arrays import Real
from calibration.model.device_under_test import PUC_LOSS_DB, DeviceUnderTest
from calibration.model.gauge import has_visible_phase, visible_joint_directions
from calibration.model.heating import Heating
from calibration.model.ideal_mesh import AmplitudeModel, MeanLight
from calibration.model.observations import Observations, select_monitors
from calibration.model.parameters import MeshParameters
from calibration.model.physics import BOTH_ARMS
from calibration.model.space import ParameterSpace
from calibration.model.work import MAX_SEARCH_WORK, usual_work
from calibration.run.by_hand import MIN_READINGS, READINGS_PER_PHASE, HandMeasurement, HandMeasurements
from lumion_hw.errors import CalibrationError
from lumion_hw.mesh.layout.cells import NO_CHANNEL
from lumion_hw.mesh.layout.topology import MeshTopology, State
from lumion_hw.mesh.record.calibration_record import Defect
from lumion_hw.mesh.waves.cell import BASIC_UNIT_DELAY_S

# Readings per phase with which a search usually succeeds; the second value is for one laser first on a large mesh.
_READINGS_PER_PHASE, _OF_ONE_LASER = 70, 100
_MIN_SETTINGS = 200
# With fewer, effects of a small chip cannot be told apart: 43 of 49 chips were certified with 300, 96 of 100 with this.
_MIN_FEED_FORWARD = 600
_MORE_SHARE = 3
_WIDENED_PRIOR = 0.1
_FIRST_STARTS = 3
# Thermal crosstalk that is tried if no phases explain the light: its strength relative to that of the published chip,
# and the share of a heater's phase that both arms of its PUC get in addition. With a strength of 36, a heater adds 5 %
# of its own phase to the other arm; with 60, to the arms one PUC away.
_CROSSTALK_TRIALS = ((1.0, 0.03), (20.0, 0.0), (40.0, 0.0), (60.0, 0.0))
_STRONG_CROSSTALK_SPREAD = 1.0  # the factors are a factor of two apart
# Couplers that split unevenly and heat on the other arm leave so much light unexplained at the right phases.
_MAX_FITTED_UNEXPLAINED = 0.03
_MAX_SHARED_TRIALS = 6
_MAX_UNEXPLAINED_RATIO = 0.9  # the right factor leaves 0.6 to 0.8 of the light that factor 1 leaves unexplained
# Smallest share of the random settings in which a usable monitor works.
_MIN_WORKING_FRACTION = 0.3
_REACH_RAD = 2.2 * np.pi

Progress = Callable[[str, int, int], None]
"""Called with the stage, the number of finished steps, and the number of all steps."""


@dataclass(frozen=True)
class BootstrapPlan:
    """Settings of the search for a start point.

    Attributes:
        random_settings: Number of random settings; by default the smallest with which the search usually succeeds (70
            readings per phase, more for some large meshes).
        portions: Maximum number of attempts; each further one adds a third more random settings.
        changed: Number of heaters changed from setting to setting; all of them where light never turns back.
        off_share: Fraction of the heaters that are off.
        source_rounds: Number of times that the random settings use all sources in turn.
    """

    sweeps: HeaterSweepPlan = field(default_factory=HeaterSweepPlan)
    random_settings: int | None = None
    portions: int = 4
    changed: int = CHANGED
    off_share: float = 0.25
    source_rounds: int = 1
    search: SearchPlan = field(default_factory=SearchPlan)


@dataclass(frozen=True, eq=False)
class Start:
    """Result of the stages before the global fit.

    Attributes:
        parameters: Start of the global fit, with phases to some 50 mrad and heater laws to 1 %.
        survey: Noise, and working sources and monitors.
        heaters: Result of the sweeps for each heater.
        random: Readings of the random settings, at working monitors.
        trusted: Whether the phases explain the readings.
        warnings: Other problems, as sentences.
        crosstalk_spread: Relative uncertainty of the crosstalk in ``parameters``; ``None`` if it is the published one.
        miswiring: Wrong wiring of two heaters with which the phases were searched; ``None`` if the wiring is right.
            ``random`` has the currents of the channels.
    """

    parameters: MeshParameters
    survey: Survey
    heaters: tuple[HeaterFit, ...]
    search: SearchResult
    random: Observations
    trusted: bool
    defects: tuple[Defect, ...] = ()
    warnings: tuple[str, ...] = ()
    crosstalk_spread: float | None = None
    miswiring: Miswiring | None = None


class Bootstrap:
    """Stages before the global fit. ``on_heater`` is called after every sweep with the heater and its law."""

    def __init__(
        self,
        logbook: Logbook,
        device: DeviceUnderTest,
        seed: int,
        plan: BootstrapPlan | None = None,
        progress: Progress = lambda stage, done, total: None,
        on_heater: Callable[[int, HeaterFit], None] = lambda heater, fit: None,
    ) -> None:
        self._logbook, self._mesh = logbook, logbook.mesh
        self._device, self._expected = device, device.heaters
        plan = plan or BootstrapPlan()
        self._plan, self._progress = replace(plan, search=plan.search.on(self._mesh.n_pucs)), progress
        # Every stage has its own random stream, so that a stage does not influence the next and a resumed run makes the
        # same choices.
        self._rng = np.random.default_rng(np.random.SeedSequence([seed, 0xB007]))
        self._seconds, self._channels = dict(device.seconds), device.heater_channels
        self._light = MeanLight.of(self._mesh).dual_input_ports(self._seconds)
        sources = (*logbook.sources, *self._seconds.values())
        has_channel = np.array(self._channels) != NO_CHANNEL
        self._driven = has_visible_phase(self._mesh, sources, logbook.monitors) & has_channel
        self._on_heater = on_heater
        self.by_hand: HandMeasurement | None = None
        """Readings with fibres that are moved by hand, if any."""
        self.heaters: dict[int, HeaterFit] = {}
        """Sweep results so far, by heater."""
        self._crosstalk = 1.0, 0.0

    def run(self, explains: Callable[[Start], bool] = lambda start: False) -> Start:
        """Run survey, sweeps and random settings, and search for the phases.

        ``explains`` is called with a start whose search leaves slightly too much light unexplained. It returns whether
        a fit from there explains this light, so that no further search is needed.

        Raises:
            CalibrationError: No source or no monitor works.
        """
        if self._device.sources_by_hand or self._device.monitors_by_hand:
            return self._run_by_hand()
        self._progress("survey", 0, 1)
        survey = take_survey(self._logbook, self._rng, self._driven)
        self._progress("survey", 1, 1)
        sweeps = HeaterSweeps(
            self._logbook, self._light, survey.sources, survey.noise, self._expected, self._plan.sweeps, self._rng,
            self._driven,
        )  # fmt: skip
        sweeps.run(self.heaters, partial(self._progress, "sweeps"), self._on_heater)
        heaters = self._fits()
        swept = len(self._logbook)
        nominal = self.nominal(survey.sources, survey.monitors)
        breakdowns: dict[int, Breakdown] = {}
        before: SearchResult | None = None
        work = 0.0
        # More settings are cheaper than more starts: one start was enough on 5 of 5 meshes with 400 settings, but on 3
        # of 5 with 200 (docs/decisions/0007).
        for portion in range(self._plan.portions):
            count = self.usual_settings(survey)
            self._measure_random(survey, -(-count // _MORE_SHARE) if portion else count)
            observations = _without_reference(self._logbook.observations(swept))
            random, deaths = _without_failed_monitors(observations, survey, self._light)
            # A monitor that failed early is removed completely.
            if random.monitors != survey.monitors:
                survey = replace(survey, monitors=random.monitors)
                nominal, before = self.nominal(survey.sources, survey.monitors), None
            breakdowns |= {death.number: death for death in deaths}
            is_last = portion == self._plan.portions - 1
            plan = self._plan.search if is_last else _with_few_starts(self._plan.search)
            max_work = self._max_search_work(survey) - work
            result = self._search(survey, random, nominal, plan, before, max_work=max_work)
            start = Start(nominal, survey, heaters, result, random, True)
            trusted = result.unexplained < self._plan.search.plausible or (
                result.unexplained < _MAX_FITTED_UNEXPLAINED and explains(self._with_parameters(start))
            )
            if not trusted and portion == 0 and (shared := self._try_shared_channels(start, explains)):
                return self._concluded(shared, breakdowns.values())
            if not trusted and portion == 0:
                exchanged = self._try_exchanges(survey, random, nominal)
                result = exchanged or self._try_stronger_crosstalk(survey, random, result)
                nominal = self.nominal(survey.sources, survey.monitors)
                trusted = result.unexplained < self._plan.search.plausible
            work += result.work
            before = result = replace(result, work=work)
            # Two starts ended in the same valley, so the remaining misfit is a task of the diagnosis.
            if trusted or result.agreed:
                break
        start = Start(nominal, survey, heaters, result, random, trusted)
        return self._concluded(start, breakdowns.values())

    def _concluded(self, start: Start, breakdowns: Iterable[Breakdown]) -> Start:
        """Return a start, which has nominal parameters, with the parameters found, defects and warnings."""
        defects = (
            *merge_dead_ports(start.survey.defects),
            *(monitor_breakdown_defect(death.number, death.first, len(start.random)) for death in breakdowns),
            *heater_defects(start.heaters, self._channels, self._mesh, self._driven),
            *saturation_defects(start.random),
        )
        return replace(
            self._with_parameters(start),
            defects=defects,
            warnings=_search_warnings(start.search, start.trusted),
            crosstalk_spread=_STRONG_CROSSTALK_SPREAD if self._crosstalk[0] > 1.0 else None,
        )

    def _try_shared_channels(self, start: Start, explains: Callable[[Start], bool]) -> Start | None:
        """Search again with one channel that heats two heaters, and return the result that explains the light.

        The sweep of the channel of one heater shows no effect then, and no law fits the sweep of the other channel.
        """
        heaters = start.heaters
        dead = [heater for heater, fit in enumerate(heaters) if fit.law is None and fit.modulation_sigma > 0.0]
        uncertain = [
            heater
            for heater, fit in enumerate(heaters)
            if fit.law is not None and fit.turn_sigma_rad > self._plan.sweeps.turn_sigma_rad
        ]
        wirings = [wiring for wiring in miswiring_candidates(uncertain, dead) if wiring.kind == SHARED]
        wirings.sort(key=lambda wiring: -heaters[wiring.first].turn_sigma_rad)
        plan = _with_few_starts(self._plan.search)
        max_work, state = self._max_search_work(start.survey), self._rng.bit_generator.state
        for wiring in wirings[:_MAX_SHARED_TRIALS]:
            self._rng.bit_generator.state = state
            parameters = wiring.with_expected_laws(start.parameters, self._expected)
            random = wiring.corrected(start.random)
            result = self._search(start.survey, random, parameters, plan, max_work=max_work)
            trial = replace(start, parameters=parameters, search=result, random=random)
            if explains(self._with_parameters(trial)):
                return replace(trial, random=start.random, miswiring=wiring)
        self._rng.bit_generator.state = state
        return None

    def _run_by_hand(self) -> Start:
        logbook = self._logbook
        measurements = HandMeasurements(
            logbook, self._light, self._device, self._driven, self.heaters, self._plan.sweeps, self._rng,
            self._progress, self._on_heater,
        )  # fmt: skip
        n_read = 1 if self._device.monitors_by_hand else len(logbook.monitors)
        settings = self._plan.random_settings or settings_by_hand(self._mesh, self._driven, n_read)
        self.by_hand = measured = measurements.run(settings)
        survey, observations = measured.survey, logbook.observations()
        measured.random = [number for number in measured.random if observations.currents_ma[number].any()]
        random, deaths = _without_failed_monitors(observations[np.array(measured.random)], survey, self._light)
        nominal = self.nominal(survey.sources, survey.monitors)
        result = self._search_by_hand(survey, random, nominal)
        trusted = result.unexplained < self._plan.search.plausible
        return self._concluded(Start(nominal, survey, self._fits(), result, random, trusted), deaths)

    def _search_by_hand(self, survey: Survey, random: Observations, nominal: MeshParameters) -> SearchResult:
        """Search for the phases in the light of one port pair after the other, those that show few PUCs first."""
        plan, max_work = self._plan.search, self._max_search_work(survey)
        if self._device.monitors_by_hand:
            # A moved meter gives one reading per setting, so a step of the search needs more settings.
            plan = replace(plan, portion=max(plan.portion, plan.portion * len(survey.monitors) // 2))
        result = self._search(survey, random, nominal, _with_few_starts(plan), max_work=max_work)
        if result.unexplained < plan.plausible or result.agreed:
            return result
        # With one source, no wrong level of another source misleads the search; a few monitors depend on fewer phases.
        for shares in ((1.0,), (0.5, 0.75, 1.0)):
            if result.work > max_work:
                break
            other = self._search_in_stages(survey, random, nominal, plan, shares)
            result = replace(min((result, other), key=lambda search: search.unexplained), work=result.work + other.work)
            if result.unexplained < plan.plausible:
                break
        return result

    def _search_in_stages(
        self, survey: Survey, random: Observations, nominal: MeshParameters, plan: SearchPlan, shares: Sequence[float]
    ) -> SearchResult:
        """Search in the light of the source with most monitors, with growing shares of them; then in all light.

        The first monitors are those that depend on fewest phases.
        """
        # Number of readings of every monitor in the light of each source.
        counts = {
            source: np.isfinite(random.reading_ma[random.source == source]).sum(axis=0) for source in survey.sources
        }
        source = max(counts, key=lambda port: int((counts[port] > 0).sum()))
        columns = np.flatnonzero(counts[source])
        passed = (self._light.entering[:, source, None] > 0.0) & (self._light.entering[:, list(survey.monitors)] > 0.0)
        columns = columns[np.argsort(passed.sum(axis=0)[columns], kind="stable")]
        own = random[np.flatnonzero(random.source == source)]
        before: SearchResult | None = None
        levelled, work = tuple[int, ...](), 0.0
        for count in (math.ceil(share * len(columns)) for share in shares):
            ports = tuple(np.array(survey.monitors)[np.sort(columns[:count])].tolist())
            some = select_monitors(own, ports, {})
            some = some[np.flatnonzero(np.isfinite(some.reading_ma).any(axis=1))]
            if before is not None:
                levels = mean_levels(some, (source,), self._light)
                # Monitors of earlier stages keep their levels.
                is_levelled = np.isin(ports, levelled)
                levels.monitor[is_levelled] = before.levels.monitor * before.levels.source[0] / levels.source[0]
                before = replace(before, levels=levels)
            part = replace(survey, sources=(source,), monitors=ports)
            before = self._search(part, some, nominal, plan, before=before)
            levelled, work = ports, work + before.work
        if before is None:
            raise CalibrationError("no source gives light", hint="See 'wiring.inputs' in the bench file.")
        levels = mean_levels(random, survey.sources, self._light)
        monitor_levels = levels.monitor.copy()
        monitor_levels[np.sort(columns)] = before.levels.monitor
        # Each source is related to the others by the monitor that reads it most.
        shared = np.array([int(np.argmax(counts[port])) for port in survey.sources])
        powers = levels.source * levels.monitor[shared] / monitor_levels[shared]
        powers[survey.sources.index(source)] = before.levels.source[0]
        extended = replace(before, source_phase_rad=np.zeros(len(powers)), levels=Levels(powers, monitor_levels))
        result = self._search(survey, random, nominal, plan, before=extended)
        return replace(result, work=work + result.work)

    def measure_more(self, start: Start) -> Start:
        """Measure as many random settings again and add them to those of a start."""
        first = len(self._logbook)
        self._measure_random(start.survey, len(start.random))
        added = _without_reference(self._logbook.observations(first))
        return replace(start, random=start.random + select_monitors(added, start.survey.monitors, start.survey.dark_ma))

    def search_again(self, start: Start) -> Start:
        """Search again from other random loop phases, with the same readings."""
        nominal = self.nominal(start.survey.sources, start.survey.monitors)
        # The first valley explained enough but was wrong, so a stricter limit applies now.
        max_unexplained = 0.5 * start.search.unexplained
        # A source far from the others was moved a sixth of a turn nearer if the readings did not decide.
        prior = _WIDENED_PRIOR * self._plan.search.source_prior
        plan = replace(self._plan.search, unexplained=max_unexplained, plausible=max_unexplained, source_prior=prior)
        result = self._search(start.survey, start.random, nominal, plan, seed_result=start.search)
        trusted = result.unexplained < self._plan.search.plausible
        warnings = _search_warnings(result, trusted)
        found = replace(start, parameters=nominal, search=result, trusted=trusted, warnings=warnings)
        return self._with_parameters(found)

    def _fits(self) -> tuple[HeaterFit, ...]:
        return tuple(self.heaters.get(heater, NOT_SWEPT) for heater in range(len(self._driven)))

    def _max_search_work(self, survey: Survey) -> float:
        space = ParameterSpace(self._mesh, survey.sources, survey.monitors, self._seconds)
        return MAX_SEARCH_WORK * usual_work(self.usual_settings(survey) * len(survey.monitors), space.plain)

    def _measure_random(self, survey: Survey, count: int) -> None:
        changed = usually_changed(self._mesh, self._plan.changed)
        walk = IncrementalSettings(
            self.reach_ma(), survey.sources, survey.monitors, changed=changed, off_share=self._plan.off_share
        )
        currents = walk.random(count, self._rng).currents_ma
        # Each source for a whole segment, because changing the source takes longer than changing heaters.
        stretches = len(survey.sources) * self._plan.source_rounds
        first_only = 0
        if self._plan.search.one_laser_first:
            first_only = count * _OF_ONE_LASER // (_OF_ONE_LASER + _READINGS_PER_PHASE)
        turn = np.concatenate([np.zeros(first_only), np.arange(count - first_only) * stretches // (count - first_only)])
        for stretch in range(stretches):
            own = turn == stretch
            self._logbook.light_only_port(survey.sources[stretch % len(survey.sources)])
            if own.any():
                self._logbook.measure(np.zeros(currents.shape[1]))  # the reference setting from time to time
                self._logbook.measure_batch(currents[own])
                self._progress("random settings", int((turn <= stretch).sum()), count)

    def usual_settings(self, survey: Survey) -> int:
        """Return the number of random settings if the first phase search succeeds."""
        return self._plan.random_settings or first_settings(
            self._mesh, len(survey.monitors), one_laser_first=self._plan.search.one_laser_first
        )

    def reach_ma(self) -> Real:
        """Return the largest current of each heater in random settings, shape ``(heaters,)``."""
        laws = [fit.law for fit in self._fits()]
        # Slightly more than one turn.
        return np.array([0.0 if law is None else law.current_ma(min(_REACH_RAD, law.max_phase_rad)) for law in laws])

    def nominal(self, sources: tuple[int, ...], monitors: tuple[int, ...]) -> MeshParameters:
        """Return mesh parameters with measured heater laws where available, and otherwise nominal values."""
        n_pucs = self._mesh.n_pucs
        laws = np.zeros((2 * n_pucs, 3))
        for heater, fit in self.heaters.items():
            if fit.law is not None:
                laws[heater] = fit.law.rho2_rad_per_ma2, fit.law.rho4_rad_per_ma4, fit.law.rho6_rad_per_ma6
        factor, share = self._crosstalk
        kernel = self._expected.kernel * np.array([factor, 1.0, factor])
        if factor > 1.0:
            # A sweep shows the difference of two arms: what the heater adds to the other arm is missing in its law.
            to_other_arm = (kernel[0] + kernel[2]) * self._expected.p_pi_mw / np.pi
            laws[np.repeat(self._mesh.interferes, 2)] /= 1.0 - to_other_arm
        return MeshParameters(
            passive_phase_rad=np.zeros(n_pucs),
            heater_law=laws,
            loss_db=PUC_LOSS_DB * self._mesh.loss_share,
            coupler_common_rad=np.zeros(n_pucs),
            coupler_difference_rad=np.zeros(n_pucs),
            joint_phase_rad=np.zeros(len(self._mesh.joints)),
            source_db=np.zeros(len(sources)),
            second_db=np.zeros(sum(port in self._seconds for port in sources)),
            monitor_ma_per_mw=np.full(len(monitors), self._device.monitor_ma_per_mw),
            crosstalk_rad_per_mw=kernel,
            extra_physics={BOTH_ARMS: np.array([share])} if share else {},
        )

    def _search(
        self,
        survey: Survey,
        random: Observations,
        nominal: MeshParameters,
        plan: SearchPlan,
        before: SearchResult | None = None,
        seed_result: SearchResult | None = None,
        max_work: float = math.inf,
        turned: Collection[int] = (),
    ) -> SearchResult:
        sources = survey.sources
        heated = Heating(self._mesh, self._expected.ohm).phases(nominal, random.currents_ma)
        levels = mean_levels(random, sources, self._light)
        guess = guess_passive_phases(random, heated.arm_rad, sources, self._light, levels)
        guess.passive_rad[list(turned)] += np.pi

        def phase_search_for(used_sources: tuple[int, ...], plan: SearchPlan) -> PhaseSearch:
            """Return a phase search that uses only the readings with light from the given sources."""
            own = np.isin(random.source, used_sources)
            return PhaseSearch(
                AmplitudeModel(self._mesh, used_sources, survey.monitors, self._seconds),
                random[np.flatnonzero(own)],
                np.searchsorted(used_sources, random.source[own]),
                heated.arm_rad[own],
                heated.joint_rad[own],
                survey.noise,
                plan,
                self._rng,
            )

        def on_step(step: int, _: float) -> None:
            self._progress("search", step, plan.steps * plan.starts)

        search, first_work = phase_search_for(sources, plan), 0.0
        if plan.one_laser_first and before is None:
            only = phase_search_for(sources[:1], replace(plan, source_phase_rad=0.0))
            first_result = only.run(guess, levels.first_source_only(), on_step, max_work=max_work)
            before, first_work = search.add_other_lasers(first_result, levels), first_result.work
        result = search.run(guess, levels, on_step, before, seed_result, max_work - first_work)
        return replace(result, work=first_work + result.work)

    def _try_stronger_crosstalk(self, survey: Survey, random: Observations, result: SearchResult) -> SearchResult:
        """Search again with stronger thermal crosstalk; keep the factor that explains the light best.

        The work does not count against the limit of the run, so that the fits still have theirs.
        """
        plan = _with_few_starts(self._plan.search)
        best, work, max_work = self._crosstalk, result.work, self._max_search_work(survey)
        for trial in _CROSSTALK_TRIALS:
            self._crosstalk = trial
            nominal = self.nominal(survey.sources, survey.monitors)
            # Heat on the other arm alone leaves a search in the right valley.
            before = result if trial[1] else None
            other = self._search(survey, random, nominal, plan, before, max_work=max_work)
            if other.unexplained < _MAX_UNEXPLAINED_RATIO * result.unexplained:
                result, best = other, trial
            if result.unexplained < plan.plausible:
                break
        # The fit adds the effect of the other arm if its readings need it.
        self._crosstalk = best[0], 0.0
        return replace(result, work=work)

    def _try_exchanges(self, survey: Survey, random: Observations, nominal: MeshParameters) -> SearchResult | None:
        """Search again with two monitors exchanged, or, where these belong to one PUC, with half a turn more in it.

        Return the result if one is found without an exchange.

        Raises:
            CalibrationError: The readings are those of a mesh with two exchanged monitors.
        """
        heated = Heating(self._mesh, self._expected.ohm).phases(nominal, random.currents_ma)
        candidates = exchange_candidates(random, heated.arm_rad, survey.sources, self._light, self._mesh.interferes)
        plan = _with_few_starts(self._plan.search)
        max_work, state = self._max_search_work(survey), self._rng.bit_generator.state
        for first, second in candidates:
            # All candidates, and the searches after them, begin with the same random numbers.
            self._rng.bit_generator.state = state
            ports = random.monitors[first], random.monitors[second]
            pucs = {interfering_puc(self._mesh, port) for port in ports}
            if len(pucs) == 1:
                # An exchange gives the same light as half a turn in this PUC, by which its phase was wrongly guessed:
                # in a symmetric network the mean powers at both inputs of the PUC, from which it is guessed, are equal.
                result = self._search(survey, random, nominal, plan, max_work=max_work, turned=pucs)
                if result.unexplained < plan.plausible:
                    return result
                continue
            exchanged = exchange_monitors(random, first, second)
            result = self._search(survey, exchanged, nominal, plan, max_work=max_work)
            if result.unexplained < plan.plausible:
                raise CalibrationError(
                    f"the fibres or channels of the monitors at ports {ports[0]} and {ports[1]} are exchanged: the "
                    "readings fit the mesh only with these two exchanged",
                    hint="Exchange the two fibres, or the two ports under 'wiring.outputs' in the bench file, and "
                    "calibrate again.",
                )
        self._rng.bit_generator.state = state
        return None

    def _with_parameters(self, start: Start) -> Start:
        """Return a start, which has nominal parameters, with those that its search found."""
        # Only differences of common phases per PUC are observable; their mean is assumed to match the stated
        # frequencies.
        result = start.search
        source_phase_rad = nearest_branches(result.source_phase_rad)
        middle = source_phase_rad.mean()
        second = np.zeros(0) if result.levels.second is None else result.levels.second
        parameters = replace(
            start.parameters,
            passive_phase_rad=np.mod(result.passive_rad, 2.0 * np.pi),
            joint_phase_rad=np.mod(result.joint_rad + middle, 2.0 * np.pi),
            source_db=10.0 * np.log10(result.levels.source / self._device.monitor_ma_per_mw),
            monitor_ma_per_mw=self._device.monitor_ma_per_mw * result.levels.monitor,
            second_db=10.0 * np.log10(second[second > 0.0]),
            source_detuning_hz=(source_phase_rad - middle) / (2.0 * np.pi * BASIC_UNIT_DELAY_S),
        )
        return replace(start, parameters=parameters)


def interfering_puc(mesh: MeshTopology, port: int) -> int:
    """Return the PUC whose two arms interfere nearest to a port; phase shifters and waveguides may lie between."""
    bar: dict[int, State] = dict.fromkeys(range(mesh.n_pucs), "bar")
    pucs = mesh.trace(port, bar).pucs
    return next((puc for puc in pucs if mesh.interferes[puc]), pucs[0])


def _with_few_starts(plan: SearchPlan) -> SearchPlan:
    return replace(plan, starts=min(_FIRST_STARTS, plan.starts))


def _without_reference(observations: Observations) -> Observations:
    return observations[np.flatnonzero(observations.currents_ma.any(axis=1))]


def first_settings(mesh: MeshTopology, monitors: int, *, one_laser_first: bool = False) -> int:
    """Return the number of random settings to measure before the first phase search."""
    per_phase = _READINGS_PER_PHASE + one_laser_first * _OF_ONE_LASER
    settings = -(-per_phase * (mesh.n_pucs + len(mesh.joints)) // monitors)
    if not mesh.faces and settings > _MIN_FEED_FORWARD:
        # Where light never turns back, every phase that it shows is in a few powers, and no other phase is searched.
        phases = int(mesh.interferes.sum()) + int(visible_joint_directions(mesh).shape[1])
        settings = max(-(-per_phase * phases // monitors), _MIN_FEED_FORWARD)
    return max(settings, _MIN_SETTINGS)


def settings_by_hand(mesh: MeshTopology, driven: NDArray[np.bool_], monitors: int) -> int:
    """Return the number of random settings with fibres that are moved by hand, for so many ``monitors`` per setting.

    ``driven``, shape ``(2E,)``, are the heaters that may be used.
    """
    driven_pucs = int(np.count_nonzero(driven.reshape(mesh.n_pucs, -1).any(axis=1)))
    phases = driven_pucs + int(visible_joint_directions(mesh).shape[1])
    return max(-(-READINGS_PER_PHASE * phases // monitors), MIN_READINGS // min(monitors, 3))


def _without_failed_monitors(
    observations: Observations, survey: Survey, light: MeanLight
) -> tuple[Observations, tuple[Breakdown, ...]]:
    """Return the settings with NaN for failed monitors; monitors that hardly ever worked are removed."""
    selected = select_monitors(observations, survey.monitors, survey.dark_ma)
    deaths = find_dead_monitors(selected, survey.noise, light)
    early_failures = {death.number for death in deaths if death.first < _MIN_WORKING_FRACTION * len(observations)}
    # The level of a monitor cannot be determined from too few settings.
    working = tuple(port for port in survey.monitors if port not in early_failures)
    return select_monitors(without_dead_monitors(selected, deaths), working, {}), deaths


def _search_warnings(result: SearchResult, trusted: bool) -> tuple[str, ...]:
    if trusted:
        return ()
    return (
        f"the phases found leave {100 * result.unexplained:.1f} % of the light unexplained after {result.starts} "
        "starts. Channels may be exchanged, elements broken in unknown ways, or the power per π of the heaters "
        "unexpected (check mesh.typical in the bench file)",
    )
