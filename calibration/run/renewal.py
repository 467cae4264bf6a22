"""Check and renewal of a calibration record after some time (docs/calibration.md, 6).

At most two settings per heater are measured. Settings with all heaters off, and with every PUC in bar or cross, show
whether the record is still valid. Random settings show what has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from calibration.diagnose.element_faults import LEFT_OUT
from calibration.fit.ageing import LARGEST_CHANGE, Kind, RenewedFit, find_changes
from calibration.fit.drift import MAX_CHI2, DriftModel, Health, Posterior, check_health, prior_after_time
from calibration.measure.design import Designer, IncrementalSettings
from calibration.measure.heater_resistance import measure_resistances
from calibration.measure.logbook import Logbook
from calibration.measure.probe import Probe
from calibration.model.arrays import Real
from calibration.model.gauge import gauge_fixed_difference, wrapped
from calibration.model.likelihood import Likelihood, SettingDrift, with_model_error
from calibration.model.observations import NoiseModel, Observations, select_monitors
from calibration.model.parameters import MeshParameters
from calibration.model.space import ParameterSpace, space_from_record
from calibration.record.conversion import (
    build_record,
    covariance_from_record,
    dark_by_port_ma,
    model_of_record,
    origin_from_record,
    parameters_from_record,
)
from calibration.run.blas_threads import one_blas_thread
from calibration.run.bootstrap import Progress
from calibration.run.conclusions import UNSEEN
from lumion_hw.errors import CalibrationError, LimitError
from lumion_hw.mesh.layout.topology import State
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.mesh.programming.inverse import heater_currents_ma
from lumion_hw.mesh.programming.prediction import LOOP_DIRECTIONS
from lumion_hw.mesh.record.calibration_record import HEATER_RESISTANCES, CalibrationRecord, Conditions

# Relative increase of every variance, because the factor in the record has single precision.
_JITTER = 1e-12


@dataclass(frozen=True, eq=False)
class RecordPosterior:
    """Parameters and errors in a record.

    Attributes:
        free: Parameters with a standard error, shape ``(size,)``.
        matrix: Covariance of all parameters, shape ``(size, size)``.
    """

    parameters: MeshParameters
    vector: Real
    free: NDArray[np.bool_]
    matrix: Real

    @classmethod
    def of(cls, record: CalibrationRecord) -> RecordPosterior:
        """Return the parameters and errors in a record.

        Raises:
            CalibrationError: The record lacks the required data; the message says which.
        """
        space, parameters = space_from_record(record), parameters_from_record(record)
        entry = record.covariance
        unknown = [
            puc
            for puc, puc_entry in enumerate(record.pucs)
            if puc_entry.passive_phase_rad is None and puc_entry.note not in (UNSEEN, LEFT_OUT)
        ]
        problem = ""
        if record.joints is None or entry is None or not space.sources:
            problem = "cannot be renewed, because it has no loop phases, no covariance or no source powers"
        elif unknown:
            problem = f"cannot be renewed, because it has no passive phases of PUCs {unknown}"
        elif entry.groups != tuple((name, group.stop - group.start) for name, group in space.groups.items()):
            problem = "has a different number of parameters than this software expects"
        if problem:
            raise CalibrationError(f"this calibration record {problem}", hint="Calibrate again.")
        matrix = _with_converted_loops(covariance_from_record(record), record, space)
        variance = np.diag(matrix).copy()
        # Single precision in the file can make an eigenvalue slightly negative.
        matrix[np.diag_indices_from(matrix)] += _JITTER * variance
        vector = space.pack(parameters)
        return cls(space.unpack(vector), vector, variance > 0.0, matrix)

    def covariance(self) -> Real:
        """Return the covariance of all parameters."""
        return self.matrix


def _with_converted_loops(covariance: Real, record: CalibrationRecord, space: ParameterSpace) -> Real:
    """Convert the loop parameters of a covariance from the basis of the record to that of this software."""
    stored = record.arrays.get(LOOP_DIRECTIONS)
    if stored is None or np.array_equal(stored, space.directions):
        return covariance
    turn = np.eye(space.size)
    loops = space.groups["loops"]
    turn[loops, loops] = space.directions.T @ np.asarray(stored, dtype=np.float64)
    return turn @ covariance @ turn.T


SECONDS = 2.0
"""Hardware time of the random settings, in seconds.

With 72 PUCs and eight sources, this is enough for about 100 settings.
"""
_TRIES = 8
# Most settings per source before the source changes.
_SETTINGS_PER_VISIT = 12
SETTINGS_PER_HEATER = 2
"""Maximum number of settings of a check per heater."""
# Random settings have half of their heaters on, because gains change the light of warm heaters only.
_OFF_SHARE = 0.5
# Groups that drift; settings are chosen for these.
_DESIGNED = ("passive_phase_rad", "loops", "rho2", "source_db", "second_db", "monitor_db")
_VERIFICATION = 8
_DRAWS = 5
# Noise of a reading, for records without this value (assumed).
_RELATIVE, _MIN_FLOOR_MA = 0.005, 1e-9
# Drift during the settings: polarization, laser power, and some millikelvin.
_DRIFT_DURING_RUN = SettingDrift(power_db=0.02, common_phase_rad=3e-3)


@dataclass(frozen=True)
class RecordChange:
    """Changes of a mesh between two calibration records.

    Attributes:
        worst_puc: PUC with the largest change of its passive phase.
        temperature_k: Change of the chip temperature, from the phase common to all joints.
        resistance_rms: Rms relative change of the heater resistances.
    """

    passive_rms_rad: float
    passive_worst_rad: float
    worst_puc: int
    loops_rms_rad: float
    temperature_k: float
    resistance_rms: float
    source_rms_db: float


@dataclass
class DriftRun:
    """Check and renewal of a bench some time after its calibration.

    Attributes:
        probe: Access to the mesh, with polarization aligned.
        days: Age of the record.
        seed: Seed of the settings.
        hardware_s: Maximum hardware time of the random settings.
        progress: Called after every setting.
    """

    probe: Probe
    record: CalibrationRecord
    days: float
    seed: int = 0
    hardware_s: float = SECONDS
    drift: DriftModel = field(default_factory=DriftModel)
    progress: Progress = lambda stage, done, total: None

    def __post_init__(self) -> None:
        self.last: Posterior = RecordPosterior.of(self.record)
        self.logbook = Logbook(self.probe)
        self._model = model_of_record(self.record)
        self._sources = tuple(port for port in self._model.space.sources if port in self.probe.sources)
        if not self._sources:
            raise CalibrationError(
                "none of the sources in this calibration record works", hint="Check the modules and fibres."
            )
        self._rng = np.random.default_rng(np.random.SeedSequence([self.seed, 0xD21F]))
        self._held_out = 0
        self._max_ma = CalibratedMesh.from_record(self.record, self.probe.heater_max_ma).max_ma
        self._resistances: Real | None = None

    @property
    def max_settings(self) -> int:
        """Maximum number of settings of the check."""
        return max(SETTINGS_PER_HEATER * int((self._max_ma > 0.0).sum()), 2 * len(self._sources))

    @one_blas_thread()
    def check(self) -> Health:
        """Measure reference and bar or cross settings, and check the record; heaters are off afterwards.

        Raises:
            LumionError: A device failed; heaters and light are off.
        """
        dark = np.zeros(2 * self.probe.mesh.n_pucs)
        plan = [(source, dark) for source in self._sources]
        self._measure("health check", plan + self._pure_states())
        self._held_out = len(self.logbook)
        return self._health(self.last, 0)

    @one_blas_thread()
    def renew(self) -> RenewedFit:
        """Measure random settings, find what has changed and correct it; heaters are off afterwards.

        Raises:
            LumionError: A device failed; heaters and light are off.
        """
        change = self._resistance_change()
        plan = self._random_settings()
        first = len(self.logbook)
        self._measure("random settings", list(zip(plan.source.tolist(), plan.currents_ma, strict=True)))
        # The renewal uses the reference settings as well; the pure states are reserved for the check.
        reference = self.observations(0, min(len(self._sources), self._held_out))
        fitted = reference + self.observations(first, len(self.logbook))
        # New readings cannot fit better than those from which the record was made.
        usual_chi2 = max(self.record.quality.get("fit_chi2_per_dof", 1.0), 1.0)
        return find_changes(
            self._model, self._likelihood(fitted), self.last, self.days, self.drift, change, MAX_CHI2 * usual_chi2
        )

    def _resistance_change(self) -> Real | None:
        """Measure the resistances at the currents of the record; return their relative change, shape ``(2E,)``.

        NaN for heaters without a recorded value; ``None`` if resistances cannot be measured or are not in the record.
        """
        recorded = self.record.arrays.get(HEATER_RESISTANCES)
        if recorded is None or not len(recorded) or not self.probe.measures_resistances:
            return None
        heaters, at_ma, ohm = recorded[:, 0].astype(np.int64), recorded[:, 1], recorded[:, 2]
        currents = np.zeros(len(self._max_ma))
        currents[heaters] = at_ma
        try:
            self.logbook.light_only_port(self._sources[-1])
            resistances = measure_resistances(self.logbook, currents)
        finally:
            self.logbook.switch_everything_off()
        if resistances is None:
            return None
        self._resistances = resistances
        latest_ohm, before_ohm = np.full((2, len(currents)), np.nan)
        latest_ohm[resistances[:, 0].astype(np.int64)] = resistances[:, 2]
        before_ohm[heaters] = ohm
        change: Real = latest_ohm / before_ohm - 1.0
        return change

    def _random_settings(self) -> Observations:
        remaining_settings = self.max_settings - len(self.logbook)
        count = max(1, min(_SETTINGS_PER_VISIT, remaining_settings // len(self._sources)))
        walk = IncrementalSettings(
            self._max_ma, self._sources, self._model.space.monitors, settings_per_source=count, off_share=_OFF_SHARE
        )
        prior = prior_after_time(self._model.space, self.last, self.drift, self.days)
        free = self._model.space.mask(_DESIGNED) & self.last.free
        designer = Designer(self._model, self.last.parameters, self._noise(), prior, free)
        return designer.choose(walk, self.hardware_s, 0.0, self._rng, _TRIES, max_settings=remaining_settings).plan

    def check_renewal(self, renewal: RenewedFit) -> Health:
        """Compare the bar and cross settings, which the renewal did not use, with the renewed calibration."""
        renewed = RecordPosterior(renewal.parameters, renewal.vector, self.last.free, renewal.covariance)
        return self._health(renewed, len(self._sources))

    def observations(self, first: int, last: int) -> Observations:
        """Return the measured settings, with the monitors of the record only."""
        ports = self._model.space.monitors
        return select_monitors(self.logbook.observations(first, last), ports, dark_by_port_ma(self.record))

    def change(self, renewal: RenewedFit) -> RecordChange:
        """Return the changes of the mesh since the record was made."""
        before, after = self.last.parameters, renewal.parameters
        mesh = self.probe.mesh
        passive = wrapped(after.passive_phase_rad - before.passive_phase_rad)
        loops = gauge_fixed_difference(mesh, after.joint_phase_rad - before.joint_phase_rad)
        # A temperature change is the same phase on every joint; the component in this direction gives the temperature.
        warm = gauge_fixed_difference(mesh, np.full(len(mesh.joints), 1e-3)) / 1e-3 * self.drift.common_phase_rad_per_k
        length = float(warm @ warm)  # 0 where all paths between two ports pass equally many PUCs
        live = before.heater_law[:, 0] != 0.0
        worst = int(np.abs(passive).argmax())
        return RecordChange(
            passive_rms_rad=_rms(passive),
            passive_worst_rad=float(passive[worst]),
            worst_puc=worst,
            loops_rms_rad=float(np.sqrt((loops**2).sum() / max(self._model.space.n_illuminated_loops, 1))),
            temperature_k=float(warm @ loops) / length if length > 0.0 else 0.0,
            resistance_rms=_rms(after.heater_law[live, 0] / before.heater_law[live, 0] - 1.0),
            source_rms_db=_rms(after.source_db - before.source_db),
        )

    def result(
        self, renewal: RenewedFit, faults: tuple[str, ...] = (), conditions: Conditions | None = None
    ) -> CalibrationRecord:
        """Return the renewed record, which refers to the old one.

        ``faults`` are new faults, as sentences. ``conditions`` are the present conditions of the bench; by default the
        old ones.
        """
        from lumion_hw import __version__

        record, effort = self.record, self.logbook.effort
        moved = {kind: {change.number for change in renewal.moved if change.kind == kind} for kind in LARGEST_CHANGE}
        origin = origin_from_record(record)
        renewed = replace(
            origin,
            launched_dbm={**origin.launched_dbm} | {port: self.probe.launched_dbm(port) for port in moved["source"]},
            conditions=record.conditions if conditions is None else conditions,
            faults=(*record.faults, *faults),
            heater_resistances=self._resistances if moved["resistance"] else origin.heater_resistances,
            quality=record.quality
            | {
                "fit_chi2_per_dof": renewal.chi2_per_dof,
                "fit_certified": record.quality.get("fit_certified", 1.0)
                * float(renewal.explains_readings and not faults),
                "settings": float(effort.settings),
                "source_changes": float(effort.source_changes),
                "hardware_s": effort.hardware_s,
                "renewed_after_days": self.days,
            },
            provenance=record.provenance
            | {"software": f"lumion-hw {__version__}", "seed": str(self.seed), "renewed_from": record.record_id},
        )
        child = build_record(self._model.space, renewal.parameters, renewed, renewal.covariance)
        return replace(_with_unchanged_entries(record, child, moved), parent_sha256=record.content_sha256)

    def _pure_states(self) -> list[tuple[int, Real]]:
        blocked = {puc for puc, _ in self.record.unusable_states()}
        settings: list[tuple[int, Real]] = []
        for draw in range(_VERIFICATION * _DRAWS):
            if len(settings) == min(_VERIFICATION, self.max_settings // 6):
                break
            bar = self._rng.random(self.probe.mesh.n_pucs) < 0.5
            states: dict[int, State] = {p: ("bar" if bar[p] else "cross") for p in range(len(bar)) if p not in blocked}
            try:
                currents = heater_currents_ma(self.record, states)
            except LimitError:
                continue
            settings.append((self._sources[draw % len(self._sources)], currents))
        return settings

    def _measure(self, stage: str, plan: list[tuple[int, Real]]) -> None:
        try:
            for number, (source, currents) in enumerate(plan, start=1):
                self.logbook.light_only_port(source)
                self.logbook.measure(currents)
                self.progress(stage, number, len(plan))
        finally:
            self.logbook.switch_everything_off()

    def _health(self, posterior: Posterior, first: int) -> Health:
        likelihood = self._likelihood(self.observations(first, self._held_out))
        return check_health(self._model, likelihood, posterior, self.drift)

    def _noise(self) -> NoiseModel:
        quality: Mapping[str, float] = self.record.quality
        floor_ma = quality.get("monitor_noise_floor_ma", 0.0) or self.probe.monitor_step_ma or _MIN_FLOOR_MA
        return with_model_error(NoiseModel(quality.get("monitor_noise_relative", _RELATIVE), floor_ma))

    def _likelihood(self, observations: Observations) -> Likelihood:
        return Likelihood(observations, self._noise(), drift=_DRIFT_DURING_RUN)


def _with_unchanged_entries(
    record: CalibrationRecord, child: CalibrationRecord, moved: Mapping[Kind, set[int]]
) -> CalibrationRecord:
    heaters = moved["gain"] | moved["resistance"] | moved["heater"]
    changed = moved["offset"] | {heater // 2 for heater in heaters}
    ports = moved["source"] | moved["monitor"]
    return replace(
        child,
        pucs=tuple(child.pucs[puc] if puc in changed else old for puc, old in enumerate(record.pucs)),
        ports=tuple(child.port(old.port) if old.port in ports else old for old in record.ports),
        joints=child.joints if moved["loop"] else record.joints,
        arrays=child.arrays if any(moved.values()) else record.arrays,
        covariance=child.covariance if any(moved.values()) else record.covariance,
    )


def _rms(values: Real) -> float:
    return float(np.sqrt(np.mean(values**2))) if len(values) else 0.0
