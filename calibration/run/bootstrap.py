"""From nothing but light at ports to a start for the global fit, in some 1,500 settings and half a minute.

Survey; sweeps of all heaters; a few hundred random settings; correlation and search (docs/calibration.md, 5:
heaters need no known PUC to be measured, and random settings show all PUCs and loops at once). The
random settings are those of the global fit: finding the start costs only the sweeps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from calibration.diagnose.breakdowns import Breakdown, find_dead_monitors, without_dead_monitors
from calibration.diagnose.element_faults import (
    heater_defects,
    merge_dead_ports,
    monitor_breakdown_defect,
    saturation_defects,
)
from calibration.fit.frequencies import nearest_branches
from calibration.fit.phase_search import (
    PassiveGuess,
    PhaseSearch,
    SearchPlan,
    SearchResult,
    guess_passive_phases,
    mean_levels,
)
from calibration.measure.design import CHANGED, IncrementalSettings
from calibration.measure.heater_fringe import HeaterFit
from calibration.measure.heater_sweeps import HeaterSweepPlan, HeaterSweeps
from calibration.measure.logbook import Logbook
from calibration.measure.survey import Survey, take_survey
from calibration.model.heating import Heating
from calibration.model.ideal_mesh import TYPICAL_LOSS_DB, AmplitudeModel, MeanLight
from calibration.model.observations import Observations, seen_by
from calibration.model.parameters import MeshParameters
from calibration.model.priors import PUBLISHED_KERNEL
from calibration.model.space import ParameterSpace
from calibration.model.work import MOST_SEARCHED, usual_work
from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.mesh.record.calibration_record import Defect
from lumion_hw.mesh.waves.cell import BASIC_UNIT_DELAY_S
from lumion_hw.mesh.waves.heater import HeaterLaw

Real = NDArray[np.float64]


# Readings for each phase with which a search mostly ends well; and in the light of one laser alone, on a large mesh.
_READINGS_PER_PHASE, _OF_ONE_LASER = 70, 100
_LEAST_SETTINGS = 200
_MORE_SHARE = 3
_PRIOR_AGAIN = 0.1
_FIRST_STARTS = 3
# Share of the random settings in which a monitor has to be alive to be used.
_LEAST_ALIVE = 0.3
_REACH_RAD = 2.2 * np.pi

Progress = Callable[[str, int, int], None]
"""Called with the stage, the steps done and the steps in all."""


@dataclass(frozen=True)
class BootstrapPlan:
    """How to find a start.

    Attributes:
        sweeps: How heaters are swept.
        random_settings: Random settings, by default the fewest with which the search mostly ends well: seventy
            readings per phase, and more where a large mesh is searched in the light of one laser first. What the fit
            needs beyond them is chosen (:mod:`calibration.run.planning`).
        portions: How often settings are taken at most: a third as many again as long as the phases found explain too
            little. More settings are cheaper than more starts, so only the last search makes all of its starts.
        changed: Heaters that move from one of them to the next.
        off_share: Share of the heaters that are off in each of them.
        source_rounds: How often the light goes round all sources meanwhile.
        search: How phases are searched.
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
    """What the bootstrap found.

    Attributes:
        parameters: Start of the global fit: phases good to some 50 mrad, laws to a percent, nominal couplers, losses
            and crosstalk.
        survey: Noise, live sources and monitors.
        heaters: What the sweeps say about each heater.
        guess: First passive phases.
        search: How the search ended.
        sweeps: Readings of the sweeps, live monitors only.
        random: Readings of the random settings, likewise.
        trusted: Whether the phases found explain the readings.
        defects: Elements found wrong.
        warnings: What else was found wrong, in words.
    """

    parameters: MeshParameters
    survey: Survey
    heaters: tuple[HeaterFit, ...]
    guess: PassiveGuess
    search: SearchResult
    sweeps: Observations
    random: Observations
    trusted: bool
    defects: tuple[Defect, ...]
    warnings: tuple[str, ...]

    @property
    def faults(self) -> tuple[str, ...]:
        """All that was found wrong, in words."""
        return *(defect.evidence for defect in self.defects), *self.warnings


class Bootstrap:
    """The stages before the global fit; everything is a function of plan, seed and readings.

    Args:
        logbook: Access to the mesh.
        heater_ohm: Nominal resistance of a heater.
        rho2_range: Least and largest ρ2 to expect, rad/mA².
        monitor_ma_per_mw: Nominal responsivity of the monitors.
        seed: Seed of everything random.
        plan: How to go about it.
        channels: Drive channel of every heater, to name it by; its number if not given.
        seconds: Second ports that sources light, as of :class:`calibration.model.space.ParameterSpace`.
        progress: Told of every step.
        found: Told of every heater swept.
    """

    def __init__(
        self,
        logbook: Logbook,
        heater_ohm: float,
        rho2_range: tuple[float, float],
        monitor_ma_per_mw: float,
        seed: int,
        plan: BootstrapPlan | None = None,
        channels: Sequence[int] | None = None,
        progress: Progress = lambda stage, done, total: None,
        found: Callable[[int, HeaterFit], None] = lambda heater, fit: None,
        seconds: Mapping[int, int] | None = None,
    ) -> None:
        self._logbook, self._mesh = logbook, logbook.probe.mesh
        self._ohm, self._rho2_range, self._nominal = heater_ohm, rho2_range, monitor_ma_per_mw
        given = plan or BootstrapPlan()
        self._plan, self._progress = replace(given, search=given.search.on(self._mesh.n_pucs)), progress
        # A stream of its own for every stage: what one draws does not change what the next does, and a resumed run
        # draws the same.
        self._rng = np.random.default_rng(np.random.SeedSequence([seed, 0xB007]))
        self._seconds = dict(seconds or {})
        self._light = MeanLight.of(self._mesh).dual_input_ports(self._seconds)
        self._channels = range(2 * self._mesh.n_pucs) if channels is None else channels
        self._found = found
        self.heaters: dict[int, HeaterFit] = {}
        """What is known of heaters so far, also of a run cut short."""

    def run(self) -> Start:
        """Measure and search.

        Raises:
            CalibrationError: No source or no monitor is alive.
        """
        self._progress("survey", 0, 1)
        with self._logbook.stage("survey"):
            survey = take_survey(self._logbook, self._rng)
        self._progress("survey", 1, 1)
        first = len(self._logbook)
        with self._logbook.stage("sweeps"):
            heaters = self._sweep(survey)
        swept = len(self._logbook)
        sweeps = seen_by(self._logbook.observations(first, swept), survey.monitors, survey.dark_ma)
        nominal = self.nominal(survey.sources, survey.monitors)
        died: dict[int, Breakdown] = {}
        before: SearchResult | None = None
        work = 0.0
        # More settings are cheaper than more starts: one start was enough on 5 of 5 meshes with 400 settings, on 3 with
        # 200 (docs/decisions/0007).
        for portion in range(self._plan.portions):
            with self._logbook.stage("random settings"):
                count = self.usual_settings(survey)
                self._look_at_random(survey, heaters, -(-count // _MORE_SHARE) if portion else count)
            taken = _without_reference(self._logbook.observations(swept))
            random, deaths = _seen_alive(taken, survey)
            # A monitor that died early is left out for good: its sweeps are cut to the same columns.
            if random.monitors != survey.monitors:
                survey = replace(survey, monitors=random.monitors)
                sweeps = seen_by(self._logbook.observations(first, swept), survey.monitors, survey.dark_ma)
                nominal, before = self.nominal(survey.sources, survey.monitors), None
            died |= {death.number: death for death in deaths}
            with self._logbook.stage("search"):
                left = self._most_searched(survey) - work
                guess, found = self._search(survey, random, nominal, self._search_plan(portion), before, max_work=left)
                work += found.work
                before = found = replace(found, work=work)
            trusted = found.unexplained < self._plan.search.plausible
            # Two starts in one valley: what is left unexplained is not for the search to find, but for the diagnosis.
            if trusted or found.agreed:
                break
        defects = (
            *merge_dead_ports(survey.defects),
            *(monitor_breakdown_defect(death.number, death.first, len(random)) for death in died.values()),
            *heater_defects(heaters, self._channels),
            *saturation_defects(random),
        )
        parameters = self._start(nominal, found)
        warnings = _search_warnings(found, trusted)
        return Start(parameters, survey, heaters, guess, found, sweeps, random, trusted, defects, warnings)

    def again(self, start: Start) -> Start:
        """Return another start from the same readings: a new search, with first loops drawn anew."""
        with self._logbook.stage("search"):
            nominal = self.nominal(start.survey.sources, start.survey.monitors)
            # A valley that explained enough and was false all the same: this time more has to be explained.
            most = 0.5 * start.search.unexplained
            # A source far from the others has been put a sixth of a turn nearer, if the readings hardly told.
            prior = _PRIOR_AGAIN * self._plan.search.source_prior
            plan = replace(self._plan.search, unexplained=most, plausible=most, source_prior=prior)
            guess, found = self._search(start.survey, start.random, nominal, plan, seed_result=start.search)
        trusted = found.unexplained < self._plan.search.plausible
        parameters = self._start(nominal, found)
        return replace(
            start,
            parameters=parameters,
            guess=guess,
            search=found,
            trusted=trusted,
            warnings=_search_warnings(found, trusted),
        )

    def _sweep(self, survey: Survey) -> tuple[HeaterFit, ...]:
        sweeps = HeaterSweeps(
            self._logbook, self._light, survey.sources, survey.noise, self._rho2_range, self._plan.sweeps, self._rng
        )
        sweeps.run(self.heaters, lambda done, total: self._progress("sweeps", done, total), self._found)
        return tuple(self.heaters[heater] for heater in sorted(self.heaters))

    def _search_plan(self, portion: int) -> SearchPlan:
        """Return the plan of the search after a portion of settings, the first being 0."""
        plan = self._plan.search
        return plan if portion == self._plan.portions - 1 else replace(plan, starts=min(_FIRST_STARTS, plan.starts))

    def _most_searched(self, survey: Survey) -> float:
        """Return the work from which on no further start is begun."""
        space = ParameterSpace(self._mesh, survey.sources, survey.monitors, self._seconds)
        return MOST_SEARCHED * usual_work(self.usual_settings(survey) * len(survey.monitors), space.plain)

    def _look_at_random(self, survey: Survey, heaters: tuple[HeaterFit, ...], count: int) -> None:
        most_ma = np.array([_reach_ma(fit.law) for fit in heaters])
        walk = IncrementalSettings(
            most_ma, survey.sources, survey.monitors, changed=self._plan.changed, off_share=self._plan.off_share
        )
        currents = walk.random(count, self._rng).currents_ma
        # Every source in turn for a stretch: moving the light costs more than moving heaters.
        stretches = len(survey.sources) * self._plan.source_rounds
        alone = 0
        if self._plan.search.one_laser_first:
            alone = count * _OF_ONE_LASER // (_OF_ONE_LASER + _READINGS_PER_PHASE)
        turn = np.concatenate([np.zeros(alone), np.arange(count - alone) * stretches // (count - alone)])
        for stretch in range(stretches):
            own = turn == stretch
            self._logbook.light_only_port(survey.sources[stretch % len(survey.sources)])
            if own.any():
                self._logbook.measure(np.zeros(currents.shape[1]))  # the reference setting, now and then
                self._logbook.measure_many(currents[own])
                self._progress("random settings", int((turn <= stretch).sum()), count)

    def usual_settings(self, survey: Survey) -> int:
        """Return how many random settings a run takes whose first search ends well."""
        alone = self._plan.search.one_laser_first
        return self._plan.random_settings or first_settings(self._mesh, len(survey.monitors), one_laser_first=alone)

    def reach_ma(self) -> dict[int, float]:
        """Return the current up to which each heater found so far is driven at random: so far its law will hold."""
        return {heater: _reach_ma(fit.law) for heater, fit in self.heaters.items()}

    def nominal(self, sources: tuple[int, ...], monitors: tuple[int, ...]) -> MeshParameters:
        """Return a mesh with the laws found so far and everything else nominal."""
        n_pucs = self._mesh.n_pucs
        laws = np.zeros((2 * n_pucs, 3))
        for heater, fit in self.heaters.items():
            if fit.law is not None:
                laws[heater] = fit.law.rho2_rad_per_ma2, fit.law.rho4_rad_per_ma4, fit.law.rho6_rad_per_ma6
        return MeshParameters(
            passive_phase_rad=np.zeros(n_pucs),
            heater_law=laws,
            loss_db=np.full(n_pucs, TYPICAL_LOSS_DB),
            coupler_common_rad=np.zeros(n_pucs),
            coupler_difference_rad=np.zeros(n_pucs),
            joint_phase_rad=np.zeros(len(self._mesh.joints)),
            source_db=np.zeros(len(sources)),
            second_db=np.zeros(sum(port in self._seconds for port in sources)),
            monitor_ma_per_mw=np.full(len(monitors), self._nominal),
            crosstalk_rad_per_mw=np.array(PUBLISHED_KERNEL),
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
    ) -> tuple[PassiveGuess, SearchResult]:
        sources = survey.sources
        heated = Heating(self._mesh, self._ohm).phases(nominal, random.currents_ma)
        levels = mean_levels(random, sources, self._light)
        guess = guess_passive_phases(random, heated.arm_rad, sources, self._light, levels)
        most = plan.steps * plan.starts

        def among(lit: tuple[int, ...], plan: SearchPlan) -> PhaseSearch:
            own = np.isin(random.source, lit)
            return PhaseSearch(
                AmplitudeModel(self._mesh, lit, survey.monitors, self._seconds),
                random[np.flatnonzero(own)],
                np.searchsorted(lit, random.source[own]),
                heated.arm_rad[own],
                heated.joint_rad[own],
                survey.noise,
                plan,
                self._rng,
            )

        def done(step: int, _: float) -> None:
            self._progress("search", step, most)

        search, spent = among(sources, plan), 0.0
        if plan.one_laser_first and before is None:
            only = among(sources[:1], replace(plan, source_phase_rad=0.0))
            alone = only.run(guess, levels.first_source_only(), done, max_work=max_work)
            before, spent = search.add_other_lasers(alone, levels), alone.work
        found = search.run(guess, levels, done, before, seed_result, max_work - spent)
        return guess, replace(found, work=spent + found.work)

    def _start(self, nominal: MeshParameters, found: SearchResult) -> MeshParameters:
        """Return the nominal mesh with phases and levels as found."""
        # Common phases per PUC are seen against each other only: their mean is taken for the stated frequency.
        source_phase_rad = nearest_branches(found.source_phase_rad)
        middle = source_phase_rad.mean()
        second = np.zeros(0) if found.levels.second is None else found.levels.second
        return replace(
            nominal,
            passive_phase_rad=np.mod(found.passive_rad, 2.0 * np.pi),
            joint_phase_rad=np.mod(found.joint_rad + middle, 2.0 * np.pi),
            source_db=10.0 * np.log10(found.levels.source / self._nominal),
            monitor_ma_per_mw=self._nominal * found.levels.monitor,
            second_db=10.0 * np.log10(second[second > 0.0]),
            source_detuning_hz=(source_phase_rad - middle) / (2.0 * np.pi * BASIC_UNIT_DELAY_S),
        )


def _without_reference(observations: Observations) -> Observations:
    """Return the settings in which a heater is on."""
    return observations[np.flatnonzero(observations.currents_ma.any(axis=1))]


def first_settings(mesh: MeshTopology, monitors: int, *, one_laser_first: bool = False) -> int:
    """Return how many random settings a search needs to begin with, on a mesh with so many monitors.

    Args:
        mesh: The mesh.
        monitors: How many.
        one_laser_first: As the plan of the search has it.
    """
    phases = mesh.n_pucs + len(mesh.joints)
    each = _READINGS_PER_PHASE + one_laser_first * _OF_ONE_LASER
    return max(-(-each * phases // monitors), _LEAST_SETTINGS)


def _seen_alive(observations: Observations, survey: Survey) -> tuple[Observations, tuple[Breakdown, ...]]:
    """Return settings without the readings of monitors that died; those that were hardly seen alive are left out."""
    seen = seen_by(observations, survey.monitors, survey.dark_ma)
    deaths = find_dead_monitors(seen, survey.noise)
    gone = {death.number for death in deaths if death.first < _LEAST_ALIVE * len(observations)}
    # A monitor seen alive in too few settings cannot tell its level.
    kept = tuple(port for port in survey.monitors if port not in gone)
    return seen_by(without_dead_monitors(seen, deaths), kept, {}), deaths


def _reach_ma(law: HeaterLaw | None) -> float:
    """Return the current for a little more than one turn, or the most there is; 0 for a heater without effect."""
    return 0.0 if law is None else law.current_ma(min(_REACH_RAD, law.max_phase_rad))


def _search_warnings(found: SearchResult, trusted: bool) -> tuple[str, ...]:
    if trusted:
        return ()
    return (
        f"the phases found leave {100 * found.unexplained:.1f} % of the light unexplained after {found.starts} starts; "
        "channels may be exchanged, elements broken in ways not thought of, or the heaters not of the power per π "
        "expected (mesh.typical in the bench file)",
    )
