"""Plan of a calibration without any device: cost, expected accuracy, and limits.

It uses the bench file and a nominal mesh with random phases.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from calibration.diagnose.element_faults import describe_unseen_puc
from calibration.fit.bound import Bound, plan_bound
from calibration.fit.global_fit import FitResult
from calibration.fit.phase_search import SearchPlan
from calibration.measure.design import DESIGN_GROUPS, IncrementalSettings, usually_changed
from calibration.measure.fibre_levels import SETTINGS_PER_SOURCE
from calibration.measure.heater_sweeps import first_levels
from calibration.measure.light_sources import dual_input_ports
from calibration.measure.logbook import HardwareTimes
from calibration.measure.visit_planning import Responses, plan_visits
from calibration.model.arrays import Real
from calibration.model.gauge import has_visible_phase
from calibration.model.likelihood import SETTING_DRIFT, Likelihood, with_model_error
from calibration.model.mesh_model import MeshModel
from calibration.model.nominal_heaters import NominalHeaters
from calibration.model.observations import NoiseModel, Observations
from calibration.model.parameters import MeshParameters
from calibration.model.priors import PHASE_GROUPS, default_prior, modulo_a_turn
from calibration.run.bootstrap import BootstrapPlan, Progress, first_settings, settings_by_hand
from calibration.run.by_hand import MIN_RANDOM
from calibration.run.planning import STRETCH, Goal, Knowledge, designer_after, shortfall
from calibration.run.verification import SETTINGS, regime_rest_s, regime_settings
from lumion_hw.bench.file.devices import HeaterDriverModel
from lumion_hw.bench.file.model import BenchModel
from lumion_hw.bench.kinds.cmis import CmisModel
from lumion_hw.errors import ConfigError, LimitError
from lumion_hw.interfaces.wiring import InputPath
from lumion_hw.mesh.layout.cells import NO_CHANNEL

# Assumed launch power of a module or laser.
_LAUNCH_DBM = 0.0
# Power that enters from a coherent module: 400ZR launches at least -10 dBm (OIF-400ZR), and half of two tributaries is
# TE.
_TRANSMIT_DBM = {"400zr": -13.0, "800zr": -13.0, "zr-plus-high-power": -3.0}
# Relative noise, and -60 dBm for a responsivity of 1 mA/mW (assumed).
_NOISE = NoiseModel(0.005, 1e-6)
# Converter step of a controller: 5 mA over 16 bits like the emulated board (assumption; a real board reports its own).
_STEP_MA = 5.0 / 65535
# Range of the random heater settings: 2.2 π as in the bootstrap.
_TURNS = 1.1
# Sweeps per heater: some heaters need another sweep (1.1 to 1.6 times on the 72-PUC mesh).
_RESWEPT_FACTOR = 1.25
_READS = 16
_REPEATED_READINGS, _MIN_REPEATED_READINGS = 3, 24
_PEAK_SIGMA = 4.0


@dataclass(frozen=True)
class StagePlan:
    """Expected cost of one stage of a calibration.

    Attributes:
        settings: Number of settings of heaters and light.
        hardware_s: Hardware time without source changes.
        peak_mw: Largest total heat.
    """

    name: str
    settings: int
    source_changes: int
    hardware_s: float
    peak_mw: float


@dataclass(frozen=True, eq=False)
class DryRun:
    """Plan of a calibration: cost, expected accuracy and limits.

    Attributes:
        peak_ma: Largest current of a heater.
        limit_ma: Current limit of the controller.
        limit_mw: Limit of the total heat in the bench file.
        sigma_rad: Predicted rms standard error by parameter group; for losses in dB.
        bound: Cramér-Rao bound of the planned settings.
        shortfall: Reason why the goal will be missed; empty if it will be reached.
        pluggings: Number of times that an operator connects a fibre.
        left_out: One sentence for each PUC from which no light reaches a monitor.
    """

    stages: tuple[StagePlan, ...]
    sources: tuple[int, ...]
    monitors: tuple[int, ...]
    peak_ma: float
    limit_ma: float
    limit_mw: float
    sigma_rad: dict[str, float]
    bound: Bound
    shortfall: str
    pluggings: int = 0
    left_out: tuple[str, ...] = ()

    @property
    def settings(self) -> int:
        """Total number of settings in all stages."""
        return sum(stage.settings for stage in self.stages)

    @property
    def source_changes(self) -> int:
        """Total number of source changes in all stages."""
        return sum(stage.source_changes for stage in self.stages)

    @property
    def hardware_s(self) -> float:
        """Total hardware time of all stages."""
        return sum(stage.hardware_s for stage in self.stages)

    @property
    def peak_mw(self) -> float:
        """Largest total heat, in mW."""
        return max(stage.peak_mw for stage in self.stages)

    def check(self) -> None:
        """Raise ``LimitError`` if the plan exceeds a limit in the bench file."""
        _check_heat(self.stages, self.limit_mw)


def _check_heat(stages: Sequence[StagePlan], limit_mw: float) -> None:
    worst = max(stages, key=lambda stage: stage.peak_mw)
    if worst.peak_mw > limit_mw:
        raise LimitError(
            f"too much heat of all heaters in stage '{worst.name}'", requested=round(worst.peak_mw), limit=limit_mw,
            unit="mW", hint="Increase total_power_mw of the controller if chip and supply allow it.",
        )  # fmt: skip


def dry_run(
    model: BenchModel,
    seed: int,
    goal: Goal | None = None,
    without_sources: Collection[int] = (),
    without_monitors: Collection[int] = (),
    progress: Progress = lambda stage, done, total: None,
) -> DryRun:
    """Plan the calibration of a bench; no device is opened.

    Args:
        model: The bench.
        seed: Random seed.
        goal: Required accuracy of the phases, and limits of the effort.
        without_sources: Ports of sources to ignore.
        without_monitors: Ports of monitors to ignore.
        progress: Called with the stage, the number of finished steps, and the maximum number of steps.

    Raises:
        ConfigError: No source or monitor is left, or the controller does not accept currents.
        LimitError: A stage needs more heat than the bench file allows.
    """
    nominal = _Nominal(model, without_sources, without_monitors)
    rng = np.random.default_rng(np.random.SeedSequence([seed, 0xD1]))
    return _RunPlanner(nominal, goal or Goal(), rng, progress).run()


def expected_heat_mw(model: BenchModel) -> float:
    """Return the largest total heat that a calibration of a bench needs, in mW.

    Raises:
        ConfigError: There is no source or monitor, or the controller does not accept currents.
    """
    planner = _RunPlanner(_Nominal(model, (), ()), Goal(), np.random.default_rng(0), lambda stage, done, total: None)
    return max(stage.peak_mw for stage in planner.fixed_stages())


class _Nominal:
    """Typical properties of a bench; powers in dBm by port. Raises ``ConfigError`` as :func:`dry_run`."""

    def __init__(self, model: BenchModel, without_sources: Collection[int], without_monitors: Collection[int]) -> None:
        device = model.devices[model.mesh_section.controller]
        if not isinstance(device, HeaterDriverModel):
            raise ConfigError("this bench has no controller for heater currents, so it cannot be calibrated")
        typical, wiring = model.mesh_section.typical, model.to_wiring()
        self.mesh, self.device, self.settle_s = model.topology(), device, model.mesh_section.settle_s
        self.seconds = dual_input_ports(wiring.inputs)
        first_of = {second: first for first, second in self.seconds.items()}
        inputs = [path for path in wiring.inputs if first_of.get(path.port, path.port) not in without_sources]
        monitor_ports = model.monitors() or tuple(output.port for output in wiring.outputs if output.meter)
        self.monitors = tuple(port for port in monitor_ports if port not in without_monitors)
        if not inputs or not self.monitors:
            raise ConfigError(
                f"{len(inputs)} sources and {len(self.monitors)} monitors are left, but a calibration needs at least "
                "one of each"
            )
        inputs.sort(key=lambda path: path.port)
        level_db = {
            path.port: _assumed_launch_dbm(model, path) + path.gain_db - path.loss_db - typical.access_loss_db
            for path in inputs
        }
        self.sources = tuple(port for port in level_db if port not in first_of)
        self.source_dbm = np.array([level_db[port] for port in self.sources])
        self.second_db = np.array(
            [level_db[self.seconds[port]] - level_db[port] for port in self.sources if port in self.seconds]
        )
        self.own_lasers = len({path.source for path in inputs if path.laser is None}) > 1
        self.responsivity = device.photodiodes_a_per_w or 1.0
        self.step_ma = _STEP_MA * (device.photodiodes_a_per_w is not None)
        self.heaters = NominalHeaters(device.heater_ohm, typical.p_pi_min_mw, typical.p_pi_max_mw)
        self.puc_loss_db = typical.puc_loss_db
        self.driven = has_visible_phase(self.mesh, (*self.sources, *self.seconds.values()), self.monitors) & (
            np.array(model.mesh_section.channels()) != NO_CHANNEL
        )
        self.sources_by_hand = tuple(path.port for path in inputs if path.by_hand)
        self.monitors_by_hand = tuple(
            output.port
            for output in wiring.outputs
            if output.by_hand and output.port in self.monitors and not model.monitors()
        )
        self.has_meters = any(output.meter for output in wiring.outputs)

    def parameters(self, rng: np.random.Generator) -> MeshParameters:
        """Return random chip parameters that fit the nominal values."""
        n_pucs = self.mesh.n_pucs
        laws = np.zeros((2 * n_pucs, 3))
        # Random Pπ within the range of the bench file; the information of settings hardly depends on it.
        p_pi_mw = rng.uniform(self.heaters.p_pi_min_mw, self.heaters.p_pi_max_mw, 2 * n_pucs)
        laws[:, 0] = np.pi * self.device.heater_ohm * 1e-3 / p_pi_mw
        return MeshParameters(
            passive_phase_rad=rng.uniform(0.0, 2.0 * np.pi, n_pucs),
            heater_law=laws,
            loss_db=self.puc_loss_db * self.mesh.loss_share,
            coupler_common_rad=rng.normal(0.0, 0.01, n_pucs),
            coupler_difference_rad=rng.normal(0.0, 0.006, n_pucs),
            joint_phase_rad=rng.uniform(0.0, 2.0 * np.pi, len(self.mesh.joints)),
            source_db=self.source_dbm,
            second_db=self.second_db,
            monitor_ma_per_mw=np.full(len(self.monitors), self.responsivity),
            crosstalk_rad_per_mw=self.heaters.kernel,
        )


def _assumed_launch_dbm(model: BenchModel, path: InputPath) -> float:
    device = model.devices[path.source]
    return _TRANSMIT_DBM.get(device.profile, _LAUNCH_DBM) if isinstance(device, CmisModel) else _LAUNCH_DBM


class _RunPlanner:
    """Predicts the stages, the time and the standard errors of a calibration."""

    def __init__(self, nominal: _Nominal, goal: Goal, rng: np.random.Generator, progress: Progress) -> None:
        self._nominal, self._goal, self._rng, self._progress = nominal, goal, rng, progress
        self._times, self._mesh = HardwareTimes.waiting(nominal.settle_s), nominal.mesh
        self._parameters = nominal.parameters(rng)
        self._model = MeshModel(
            self._mesh, nominal.sources, nominal.monitors, nominal.device.heater_ohm, seconds=nominal.seconds
        )
        reach_ma = np.sqrt(2.0 * np.pi * _TURNS / self._parameters.heater_law[:, 0])
        # Arms without a heater, and heaters whose phase no power shows, stay off.
        self._max_ma = np.where(nominal.driven, np.minimum(reach_ma, nominal.device.heater_max_ma), 0.0)
        self._n_driven = int(nominal.driven.sum())
        self._full_s = float(self._times.setting_s(np.array(self._n_driven)))

    def fixed_stages(self) -> tuple[StagePlan, ...]:
        """Return the stages whose number of settings does not depend on the fit: survey, sweeps and final checks."""
        metered, sources = int(self._nominal.has_meters), len(self._nominal.sources)
        regimes = self._completed_stage("regimes of use", 0, regime_settings(self._mesh, sources, self._n_driven))
        return (
            self._survey(),
            self._sweeps(),
            # Without meters the stage ends after the first source.
            self._completed_stage("fibres", 1 + metered * SETTINGS_PER_SOURCE, (1 - metered) * SETTINGS_PER_SOURCE),
            self._completed_stage("verification", 1, SETTINGS),
            replace(regimes, hardware_s=regimes.hardware_s + regime_rest_s(sources)),
        )

    def run(self) -> DryRun:
        """Return the prediction. Raises ``ConfigError`` if a stage needs more heat than the controller may supply."""
        if self._nominal.sources_by_hand or self._nominal.monitors_by_hand:
            return self._run_by_hand()
        survey, sweeps, *after = self.fixed_stages()
        before = [survey, sweeps]
        # Several sources are assumed to be separate lasers, because the file does not say.
        search = SearchPlan(source_phase_rad=float(len(self._nominal.sources) > 1)).on(self._mesh.n_pucs)
        count = first_settings(self._mesh, len(self._nominal.monitors), one_laser_first=search.one_laser_first)
        random = self._random_walk().random(count, self._rng)
        random.source.sort()  # one segment per source
        before.append(self._stage("random settings", random))
        # Before the step that takes minutes on a large mesh.
        _check_heat((*before, *after), self._nominal.device.total_power_mw)
        fit = self._fit(random, "first fit")
        remaining_s = self._goal.hardware_s - sum(stage.hardware_s for stage in (*before, *after))
        remaining_settings = self._goal.settings - sum(stage.settings for stage in (*before, *after))
        chosen, reason = self._choose_settings(fit, remaining_s, remaining_settings)
        last_fit = self._fit(random + chosen, "last fit")
        return self._result((*before, self._stage("chosen settings", chosen), *after), last_fit, reason)

    def _run_by_hand(self) -> DryRun:
        nominal = self._nominal
        responses = Responses(
            self._mesh, nominal.sources, nominal.monitors, nominal.heaters, nominal.driven, self._max_ma, self._rng
        )
        visits = plan_visits(responses, nominal.sources_by_hand, nominal.monitors_by_hand)
        n_read = 1 if nominal.monitors_by_hand else len(nominal.monitors)
        settings = settings_by_hand(self._mesh, nominal.driven, n_read)
        counts = settings * responses.shares(visits, nominal.monitors_by_hand)
        walk, parts = self._random_walk(), list[Observations]()
        for visit, count in zip(visits, counts.tolist(), strict=True):
            currents = walk.random(max(int(count), MIN_RANDOM), self._rng).currents_ma
            currents = np.concatenate([responses.currents_ma, currents])
            part = walk.with_light(currents, np.full(len(currents), visit.source))
            part.reading_ma[:] = np.nan
            part.reading_ma[:, responses.columns(visit, nominal.monitors_by_hand)] = 0.0
            parts.append(part)
        random = functools.reduce(operator.add, parts)
        survey, sweeps, _, verification, _ = self.fixed_stages()
        stages = (survey, sweeps, self._stage("random settings", random), verification)
        _check_heat(stages, nominal.device.total_power_mw)
        result = self._result(stages, self._fit(random, "fit"), "")
        return replace(result, pluggings=sum(len(visit.moves) for visit in visits))

    def _result(self, stages: tuple[StagePlan, ...], fit: FitResult, reason: str) -> DryRun:
        device = self._nominal.device
        space, sources = self._model.space, (*self._nominal.sources, *self._nominal.seconds.values())
        knowledge = Knowledge.of(space, fit, self._goal.sigma_rad)
        return DryRun(
            stages=stages,
            sources=self._nominal.sources,
            monitors=self._nominal.monitors,
            peak_ma=float(max(self._max_ma.max(), np.sqrt(self._swept_ma2()))),
            limit_ma=device.heater_max_ma,
            limit_mw=device.total_power_mw,
            sigma_rad={
                name: _rms(knowledge.sigma[space.group(name)]) for name in DESIGN_GROUPS if name in space.groups
            },
            bound=Bound(space, fit.free, fit.information, fit.prior_information),
            shortfall=shortfall(space, knowledge, fit, self._goal.sigma_rad, reason),
            left_out=tuple(
                describe_unseen_puc(self._mesh, puc, sources, space.monitors)
                for puc in np.flatnonzero(~space.illuminated.pucs).tolist()
            ),
        )

    def _walk(self) -> IncrementalSettings:
        return IncrementalSettings(self._max_ma, self._nominal.sources, self._nominal.monitors, STRETCH)

    def _random_walk(self) -> IncrementalSettings:
        return replace(self._walk(), changed=usually_changed(self._mesh), off_share=BootstrapPlan().off_share)

    def _fit(self, plan: Observations, stage: str) -> FitResult:
        self._progress(stage, 0, 1)
        space, nominal = self._model.space, self._nominal
        groups = (*DESIGN_GROUPS, "coupler_difference_rad", "crosstalk", "heat_factor")
        free = space.free((*groups, "source_detuning_hz") if nominal.own_lasers else groups)
        prior = default_prior(space, self._parameters, nominal.heaters, nominal.puc_loss_db)
        prior = prior.moved({"monitor_db": 0.15}, space)
        bound = plan_bound(self._model, self._parameters, plan, self._noise(), prior, free, SETTING_DRIFT)
        self._progress(stage, 1, 1)
        prior_information = modulo_a_turn(bound.prior_information, space.mask(PHASE_GROUPS)[free])
        return FitResult(
            self._parameters, space.pack(self._parameters), free, bound.information, prior_information,
            True, 0.0, 1.0, plan.reading_ma.size, (), len(plan),
        )  # fmt: skip

    def _noise(self) -> NoiseModel:
        floor_ma = _NOISE.floor_ma * self._nominal.responsivity
        noise = NoiseModel(_NOISE.relative, float(np.hypot(floor_ma, self._nominal.step_ma / np.sqrt(12.0))))
        return with_model_error(noise)

    def _choose_settings(self, fit: FitResult, remaining_s: float, remaining_settings: int) -> tuple[Observations, str]:
        walk = self._walk()
        knowledge = Knowledge.of(self._model.space, fit, self._goal.sigma_rad)
        likelihood = Likelihood(walk.random(1, self._rng), self._noise(), drift=SETTING_DRIFT)
        designer = designer_after(self._model, fit, likelihood, self._times, knowledge.wanted)
        max_settings = max(remaining_settings, 0)
        design = designer.choose(
            walk, remaining_s, self._goal.sigma_rad, self._rng, max_settings=max_settings,
            progress=lambda chosen: self._progress("chosen settings", chosen, max_settings),
        )  # fmt: skip
        if design.reached:
            return design.plan, ""
        settings = len(design.plan) >= remaining_settings
        limit = f"{self._goal.settings} settings" if settings else f"{self._goal.hardware_s:g} s of hardware time"
        return design.plan, f"{limit} will be used up"

    # What stages cost ------------------------------------------------------------------------------------------------

    def _stage(self, name: str, plan: Observations) -> StagePlan:
        changes = int((np.diff(plan.source) != 0).sum()) + 1 if len(plan) else 0
        max_ma2 = float((plan.currents_ma**2).sum(axis=-1).max(initial=0.0))
        seconds = self._times.plan_s(plan) if len(plan) else 0.0
        return StagePlan(name, len(plan), changes, seconds, self._heat_mw(max_ma2))

    def _survey(self) -> StagePlan:
        sources = len(self._nominal.sources)
        backgrounds = max(_REPEATED_READINGS, -(-_MIN_REPEATED_READINGS // sources))
        reads = (_READS * (1 + _REPEATED_READINGS) + backgrounds * sources) * self._times.read_s
        max_ma2 = 0.65 * self._nominal.device.heater_max_ma**2
        return StagePlan(
            "survey", 1 + backgrounds * sources, backgrounds * sources, backgrounds * self._full_s + reads,
            self._peak_mw(max_ma2),
        )  # fmt: skip

    def _sweeps(self) -> StagePlan:
        heaters, levels = self._n_driven, first_levels(BootstrapPlan().sweeps, self._mesh, len(self._nominal.monitors))
        settings = round(_RESWEPT_FACTOR * heaters * (levels - 1)) + len(self._nominal.sources)
        seconds = settings * float(self._times.setting_s(np.array(1)))
        return StagePlan("sweeps", settings, len(self._nominal.sources), seconds, self._peak_mw(self._swept_ma2()))

    def _swept_ma2(self) -> float:
        return BootstrapPlan().sweeps.reach_ma2(self._nominal.heaters, self._nominal.device.heater_max_ma)

    def _peak_mw(self, max_ma2: float) -> float:
        heaters = self._n_driven
        # Mean and spread of a sum of uniform numbers; a run of some thousand settings does not exceed four sigma.
        square = max_ma2 * (heaters / 2.0 + _PEAK_SIGMA * np.sqrt(heaters / 12.0))
        return self._heat_mw(float(square))

    def _heat_mw(self, sum_ma2: float) -> float:
        return sum_ma2 * self._nominal.device.heater_ohm * 1e-3

    def _completed_stage(self, name: str, per_source: int, more: int = 0) -> StagePlan:
        sources = len(self._nominal.sources)
        settings = per_source * sources + more
        mean_ma2 = float(np.mean(self._max_ma[self._nominal.driven] ** 2)) if self._n_driven else 0.0
        return StagePlan(name, settings, 2 * sources, settings * self._full_s, self._peak_mw(mean_ma2))


def _rms(sigma: Real) -> float:
    free = sigma[sigma > 0.0]
    return float(np.sqrt(np.mean(free**2))) if len(free) else 0.0
