"""Verification: comparison of predicted and measured light in settings that no fit used.

The settings are those in which a record is used, in several regimes (:mod:`calibration.record.regimes`). Each regime is
judged by itself, and withholds the certificate only for the uses that it stands for.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration.diagnose.heater_ageing import PhaseChange
from calibration.measure.logbook import Logbook
from calibration.measure.probe import TUNING_ERROR_HZ, Probe, tune_sources
from calibration.model.arrays import Real
from calibration.model.ideal_mesh import MeanLight
from calibration.model.observations import NoiseModel, Observations
from calibration.model.space import LAW_TERMS, space_from_record
from calibration.record.conversion import dark_by_port_ma, model_of_record, parameters_from_record
from calibration.record.regimes import REGIMES, Kind
from calibration.run.blas_threads import one_blas_thread
from lumion_hw.errors import CalibrationError, ConfigError, LimitError
from lumion_hw.mesh.layout.topology import MeshTopology, State, Trace
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.mesh.programming.inverse import heater_currents_ma
from lumion_hw.mesh.programming.prediction import COVARIANCE_FACTOR
from lumion_hw.mesh.record.calibration_record import CalibrationRecord, JointsEntry
from lumion_hw.mesh.record.validity import UseConditions, check_validity
from lumion_hw.mesh.waves.scattering import Solver
from lumion_hw.quantities import frequency_hz_from_wavelength_m


@dataclass(frozen=True)
class HeldOut:
    """Comparison at one monitor in one setting.

    Powers are those that leave the mesh: photocurrent over responsivity.

    Attributes:
        kind: Regime of the setting.
        source: Port of the light.
        error_db: Measured minus predicted power, where very small powers are replaced by the smallest one compared.
        noise_db: Standard deviation of ``error_db`` from reading noise.
        error_sigma: ``error_db`` over the standard error of reading and prediction.
        heater: The heater that is driven alone, if there is one.
        by_phase_db: Change of ``predicted_dbm`` by a relative change of this heater's phase, in dB.
    """

    setting: int
    kind: Kind
    source: int
    port: int
    predicted_dbm: float
    error_db: float
    noise_db: float
    error_sigma: float
    heater: int | None = None
    by_phase_db: float = 0.0


@dataclass(frozen=True)
class Verification:
    """Results of a verification.

    Attributes:
        results: One comparison per setting and monitor.
        suspects: PUCs whose phase error would explain most of the deviations, the worst first.
    """

    results: tuple[HeldOut, ...]
    suspects: tuple[int, ...] = ()

    def of(self, kind: Kind) -> Verification:
        """Return the comparisons of one regime."""
        return Verification(tuple(result for result in self.results if result.kind == kind))

    @property
    def errors_db(self) -> Real:
        """Errors of all comparisons in dB."""
        return np.array([result.error_db for result in self.results])

    @property
    def rms_db(self) -> float:
        """Root mean square error in dB. Raises ``ValueError`` without results."""
        if not self.results:
            raise ValueError("no reading was bright enough to be compared")
        return float(np.sqrt(np.mean(self.errors_db**2)))

    @property
    def noise_db(self) -> float:
        """Expected rms error in dB from reading noise alone."""
        return float(np.sqrt(np.mean(np.square([result.noise_db for result in self.results]))))

    @property
    def excess_db(self) -> float:
        """Rms error in dB after subtraction of the reading noise."""
        return float(np.sqrt(max(self.rms_db**2 - self.noise_db**2, 0.0)))

    @property
    def chi2(self) -> float:
        """Mean squared error over squared standard error: 1 if the standard errors are correct."""
        return float(np.mean(np.square([result.error_sigma for result in self.results])))

    @property
    def is_wrong(self) -> bool:
        """Whether the light deviates by more than the tolerance and the standard errors."""
        if not self.results or self.excess_db <= TOLERANCE_DB:
            return False
        return self.chi2 > max(_EXPLAINED_CHI2, _largest_chi2(len(self.results)))

    @property
    def settings(self) -> int:
        """Number of settings with at least one comparison."""
        return len({result.setting for result in self.results})

    def deviating_settings(self, min_chi2: float) -> list[int]:
        """Return the settings with a mean squared error above ``min_chi2``, in standard errors."""
        squares: dict[int, list[float]] = {}
        for result in self.results:
            squares.setdefault(result.setting, []).append(result.error_sigma**2)
        return [setting for setting, values in squares.items() if float(np.mean(values)) > min_chi2]

    def heater_changes(self, common: float) -> dict[int, PhaseChange]:
        """Return for each heater that is driven alone how its phase differs from the record, at equal power.

        ``common`` is a relative change of all heaters that is known already. Errors of the record in the readings of
        a heater are taken as fully correlated, which can only make the standard error too large.
        """
        by_heater: dict[int, list[HeldOut]] = {}
        for result in self.results:
            if result.heater is not None and result.by_phase_db and result.error_db:
                by_heater.setdefault(result.heater, []).append(result)
        changes = {}
        for heater, results in by_heater.items():
            error_db, slope_db, noise_db, error_sigma = np.array(
                [(result.error_db, result.by_phase_db, result.noise_db, result.error_sigma) for result in results]
            ).T
            variance_db2 = (error_db / error_sigma) ** 2
            weight = slope_db / variance_db2 / (slope_db**2 / variance_db2).sum()
            changed_db = error_db - common * slope_db
            relative = float(weight @ changed_db)
            by_noise = np.sqrt(weight**2 @ noise_db**2)
            by_record = float(np.abs(weight) @ np.sqrt(np.maximum(variance_db2 - noise_db**2, 0.0)))
            # Something else has changed if the readings of a heater disagree.
            left = ((changed_db - relative * slope_db) ** 2 / variance_db2).sum() / max(len(results) - 1, 1)
            changes[heater] = PhaseChange(relative, float(np.hypot(by_noise, by_record)) * max(float(left), 1.0) ** 0.5)
        return changes

    def description(self, where: str = "in held-out settings") -> str:
        """Return a sentence about the deviation of measured from predicted light; ``where`` says in which settings."""
        return (
            f"{where} the light deviates by {self.rms_db:.2f} dB rms ({self.excess_db:.2f} dB above "
            f"noise, χ² {self.chi2:.1f} with the record's errors); suspected PUCs: "
            f"{', '.join(map(str, self.suspects)) or 'none'}"
        )

    def figures(self) -> dict[str, float]:
        """Return the figures for ``quality`` of a record."""
        figures = {"held_out_readings": float(len(self.results)), "held_out_settings": float(self.settings)}
        if not self.results:
            return figures
        errors = np.abs(self.errors_db)
        return figures | {
            "held_out_rms_db": self.rms_db,
            "held_out_noise_db": self.noise_db,
            "held_out_excess_db": self.excess_db,
            "held_out_median_db": float(np.median(errors)),
            "held_out_worst_db": float(np.max(errors)),
            "held_out_chi2": self.chi2,
            **self.figures_by_regime(),
        }

    def figures_by_regime(self) -> dict[str, float]:
        """Return the rms error of each regime with results, for ``quality`` of a record."""
        parts = {kind: part for kind in REGIMES if (part := self.of(kind)).results}
        return {f"held_out_{kind}_rms_db": part.rms_db for kind, part in parts.items()}


def _largest_chi2(readings: int) -> float:
    """Return the largest χ² per reading that correct standard errors leave by chance (Wilson, Hilferty 1931)."""
    spread = 2.0 / (9.0 * readings)
    return float((1.0 - spread + _SCATTER_SIGMA * np.sqrt(spread)) ** 3)


SETTINGS = 40
"""Number of settings: half random currents, half bar and cross states."""
TOLERANCE_DB = 0.1
"""Largest acceptable rms error above reading noise."""
# Largest mean squared error, in standard errors of reading and record, that counts as explained; with few readings it
# may exceed this by so many standard deviations of its scatter.
_EXPLAINED_CHI2, _SCATTER_SIGMA = 1.5, 4.0
MIN_DBM = -40.0
"""Smallest predicted or measured power in dBm that is compared."""
# Ports less than 10 dB above the noise floor are not compared either (docs/calibration.md, step 8).
_FLOOR_SIGMA = 10.0
_OFF_SHARE = 0.25
_DARK_MA = 1e-12
# Variation of the light from setting to setting: polarization in the fibres, laser power (assumption).
_LIGHT_DB = 0.02
_RELATIVE_NOISE = 0.005
# Number of sources with which regimes other than single heaters are measured, and of settings of random phases each.
_SOURCES_PER_REGIME, _TURNS_PER_SOURCE = 6, 2
# Ranges of the power of each heater alone, as a share of its largest. Changes of a heater show best when it is hot. The
# sweeps of a feed-forward mesh have driven each heater alone already: there the first range is enough.
_SINGLE_RANGES = ((0.0, 1.0), (0.6, 1.0))
# Duration of a long pause: five times the longest time constant of slow heat; number of sources with one.
_REST_S, _RESTED_SOURCES = 1.0, 2
# Readings that change by less per phase of the heater that is driven alone are not compared.
_MIN_DB_PER_RAD = 0.5
# Number of candidate states. Most random paths leave the mesh near their input; 40 unselected ones miss up to half of
# 72 PUCs.
_CANDIDATES = 8
_VERSIONS = 4
# If predictions with different values for unknown parameters differ by more, the reading is not compared.
_CERTAIN_DB = 0.1
_SUSPECTS = 5
_SUSPECT_CHI2 = 2.0
_DB_PER_SHARE = 10.0 / np.log(10.0)


@one_blas_thread()
def verify(
    probe: Probe,
    record: CalibrationRecord,
    seed: int,
    on_step: Callable[[int, int], None] = lambda step, total: None,
    settings: int = SETTINGS,
    detuning_hz: float = 0.0,
) -> Verification:
    """Measure settings that no fit used, and compare the light with the prediction of a record.

    A reading is compared if the predicted or measured power that leaves the mesh is above :data:`MIN_DBM` and 10 dB
    above the floor of the monitor. Readings that depend on unknown phases are left out.

    Args:
        probe: Access to the mesh.
        record: The record to verify.
        seed: Random seed, different from that of the calibration.
        on_step: Called after each group of settings with light from one source.
        settings: Number of settings.
        detuning_hz: Frequency of the light minus that of the record.

    Raises:
        LimitError: The record is not valid at this frequency.
    """
    record = _with_levels(record, probe)
    sources = [port for port in _light_ports(record) if port in probe.sources]
    if not sources:
        return Verification(())
    plan = _plan(probe, record, sources, settings, np.random.default_rng(np.random.SeedSequence([seed, 0x7E57])))
    # The logbook stores the times of the settings, because slow heat of earlier settings matters.
    logbook = probe if isinstance(probe, Logbook) else Logbook(probe)
    first = len(logbook)
    for source in sources:
        own = [index for index, step in enumerate(plan) if step.source == source]
        if own:
            logbook.light_only_port(source)
            logbook.measure_batch(np.stack([plan[index].currents_ma for index in own]))
            on_step(own[-1] + 1, len(plan))
    return _compare(probe, record, plan, logbook.observations(first), detuning_hz)


def verify_readings(probe: Probe, record: CalibrationRecord, observations: Observations) -> Verification:
    """Compare readings of all monitors that no fit used with the prediction of a record."""
    record = _with_levels(record, probe)
    observations = observations[np.isin(observations.source, _light_ports(record))]
    if not len(observations):
        return Verification(())
    plan = [
        _VerificationStep("random", int(source), currents)
        for source, currents in zip(observations.source, observations.currents_ma, strict=True)
    ]
    return _compare(probe, record, plan, observations)


@one_blas_thread()
def verify_regimes(
    probe: Probe, record: CalibrationRecord, seed: int, on_step: Callable[[int, int], None] = lambda step, total: None
) -> tuple[Verification, NDArray[np.int64]]:
    """Measure each heater alone, and settings at the ends of the range of heat, as :func:`verify`.

    The second result is the number of each setting in the logbook. ``on_step`` is called after each group of settings
    with light from one source.
    """
    logbook = probe if isinstance(probe, Logbook) else Logbook(probe)
    record = _with_levels(record, logbook)
    sources = [port for port in _light_ports(record) if port in logbook.sources]
    if not sources or record.joints is None:
        return Verification(()), np.zeros(0, np.int64)
    rng, first = np.random.default_rng(np.random.SeedSequence([seed, 0x5E6])), len(logbook)
    before = logbook.observations()
    plan = _regime_plan(logbook, record, sources, _first_random(before, sources), rng)
    plan = [replace(step, currents_ma=_no_hotter(step.currents_ma, before)) for step in plan]
    # A source may occur in several groups. A setting right after a pause is a group of its own.
    places = itertools.groupby(plan, key=lambda step: (step.source, step.kind == "rested"))
    groups = [(*place, list(steps)) for place, steps in places]
    for number, (source, is_rested, steps) in enumerate(groups, start=1):
        logbook.light_only_port(source)
        if is_rested:
            logbook.rest(_REST_S)
        logbook.measure_batch(np.stack([step.currents_ma for step in steps]))
        on_step(number, len(groups))
    return _compare(logbook, record, plan, logbook.observations(first)), np.arange(first, len(logbook))


def _no_hotter(currents_ma: Real, before: Observations) -> Real:
    """Return currents whose total heat is at most that of the hottest setting so far, which the controller accepted."""
    hottest_ma2 = float((before.currents_ma**2).sum(axis=1).max(initial=0.0))
    total_ma2 = float((currents_ma**2).sum())
    return currents_ma * np.sqrt(min(hottest_ma2 / total_ma2, 1.0)) if total_ma2 and hottest_ma2 else currents_ma


def regime_settings(mesh: MeshTopology, sources: int, heaters: int) -> int:
    """Return how many settings :func:`verify_regimes` measures at the end of a calibration."""
    per_source = 2 * _TURNS_PER_SOURCE + 3
    rested = min(sources, _RESTED_SOURCES)
    return len(_single_ranges(mesh)) * heaters + min(sources, _SOURCES_PER_REGIME) * per_source + rested


def regime_rest_s(sources: int) -> float:
    """Return how long :func:`verify_regimes` waits between its settings."""
    return _REST_S * min(sources, _RESTED_SOURCES)


def _single_ranges(mesh: MeshTopology) -> tuple[tuple[float, float], ...]:
    return _SINGLE_RANGES if mesh.faces else _SINGLE_RANGES[:1]


def _first_random(observations: Observations, sources: Sequence[int]) -> dict[int, Real]:
    """Return, for each source, the currents of the first settings in which most heaters were on."""
    on = (observations.currents_ma > 0.0).sum(axis=1)
    most_on = on > 0.5 * np.count_nonzero(observations.currents_ma.any(axis=0))
    return {
        source: observations.currents_ma[most_on & (observations.source == source)][:_TURNS_PER_SOURCE]
        for source in sources
    }


@dataclass(frozen=True, eq=False)
class _VerificationStep:
    """One setting of the verification."""

    kind: Kind
    source: int
    currents_ma: Real
    heater: int | None = None  # driven alone


def _with_levels(record: CalibrationRecord, probe: Probe) -> CalibrationRecord:
    ports = [
        replace(entry, source_dbm=probe.launched_dbm(entry.port) - entry.input_loss_db)
        if entry.source_dbm is None and entry.input_loss_db is not None and entry.port in probe.sources
        else entry
        for entry in record.ports
    ]
    return replace(record, ports=tuple(ports))


def _light_ports(record: CalibrationRecord) -> list[int]:
    return [entry.port for entry in record.ports if entry.source_dbm is not None]


# Choice of settings --------------------------------------------------------------------------------------------------


def _plan(
    probe: Probe, record: CalibrationRecord, sources: list[int], settings: int, rng: np.random.Generator
) -> list[_VerificationStep]:
    kinds: tuple[Kind, ...] = ("states",) if record.joints is None else ("random", "states")
    max_ma = np.minimum(CalibratedMesh.from_record(record).max_ma, probe.heater_max_ma)
    counts: Counter[int] = Counter()
    plan = []
    for index in range(settings):
        source, kind = sources[index * len(sources) // settings], kinds[index % len(kinds)]
        if kind == "random":
            on = rng.random(len(max_ma)) >= _OFF_SHARE
            currents = np.where(on, np.sqrt(rng.random(len(max_ma))) * max_ma, 0.0)
            plan.append(_VerificationStep(kind, source, currents))
        elif (path := _least_used_states(probe, record, source, counts, rng)) is not None:
            counts.update(set(path[0].pucs))
            plan.append(_VerificationStep(kind, source, path[1]))
    return plan


def _regime_plan(
    probe: Probe, record: CalibrationRecord, sources: list[int], first: Mapping[int, Real], rng: np.random.Generator
) -> list[_VerificationStep]:
    calibrated = CalibratedMesh.from_record(record)
    max_ma = np.minimum(calibrated.max_ma, probe.heater_max_ma)
    heaters = np.flatnonzero(max_ma > 0.0)
    # Every heater alone, together over the whole range; with the source that gives its PUC the most light.
    order = (rng.permutation(len(heaters)) + 0.5) / max(len(heaters), 1)
    light = MeanLight.of(probe.mesh).entering[heaters // 2][:, sources].argmax(axis=1)
    chosen = {sources[int(n)] for n in np.linspace(0, len(sources) - 1, min(_SOURCES_PER_REGIME, len(sources)))}
    # As hot as random settings can be by chance.
    hot_ma = np.sqrt(min(0.5 + 1.15 / np.sqrt(max(len(heaters), 1)), 1.0)) * max_ma
    plan, repeated, alone = list[_VerificationStep](), list[_VerificationStep](), list[_VerificationStep]()
    for number, source in enumerate(sources):
        for index in np.flatnonzero(light == number):
            for lowest, highest in _single_ranges(probe.mesh):
                currents = np.zeros(len(max_ma))
                share = lowest + (highest - lowest) * order[index]
                currents[heaters[index]] = np.sqrt(share) * max_ma[heaters[index]]
                alone.append(_VerificationStep("single", source, currents, heater=int(heaters[index])))
        if source not in chosen:
            continue
        turns = [_random_turns(calibrated, max_ma, rng) for _ in range(_TURNS_PER_SOURCE)]
        plan += [_VerificationStep("turns", source, currents) for currents in turns]
        plan.append(_VerificationStep("hot", source, hot_ma))
        plan.append(_VerificationStep("changed", source, _random_turns(calibrated, max_ma, rng)))
        plan.append(_VerificationStep("cold", source, np.zeros(len(max_ma))))
        if sum(step.kind == "rested" for step in plan) < _RESTED_SOURCES:
            plan.append(_VerificationStep("rested", source, _random_turns(calibrated, max_ma, rng)))
        # As early as possible, so that heaters which age during the run have changed.
        again = first[source] if len(first[source]) else turns
        repeated += [_VerificationStep("repeated", source, currents) for currents in again]
    # Single heaters at the very end: they show which heaters have changed since the fit.
    return [*plan, *repeated, *alone]


def _random_turns(calibrated: CalibratedMesh, max_ma: Real, rng: np.random.Generator) -> Real:
    """Return currents for random phases of up to a turn, with one heater per PUC where it has two."""
    phase_rad = rng.uniform(0.0, 2.0 * np.pi, len(max_ma))
    live = (max_ma > 0.0).reshape(-1, 2)
    other = rng.integers(2, size=len(live))
    phase_rad[2 * np.flatnonzero(live.all(axis=1)) + other[live.all(axis=1)]] = 0.0
    phase_rad = np.where(max_ma > 0.0, np.minimum(phase_rad, 0.999 * calibrated.reach_rad), 0.0)
    return np.minimum(calibrated.currents_ma(phase_rad), max_ma)


def _least_used_states(
    probe: Probe, record: CalibrationRecord, source: int, counts: Mapping[int, int], rng: np.random.Generator
) -> tuple[Trace, Real] | None:
    """Return random states that lead light to a monitor through rarely used PUCs, and their currents.

    ``None`` if this is impossible.
    """
    mesh = probe.mesh
    # Light passes cells without couplers in their only state; couplers without a heater split it.
    blocked = {puc for puc, _ in record.unusable_states() if mesh.has_coupler[:, puc].any()}
    blocked |= set(np.flatnonzero(mesh.has_coupler.any(axis=0) & ~mesh.interferes).tolist())
    paths: list[tuple[Trace, dict[int, State]]] = []
    for bar in rng.random((_CANDIDATES, mesh.n_pucs)) < 0.5:
        states: dict[int, State] = {puc: ("bar" if bar[puc] else "cross") for puc in range(mesh.n_pucs)}
        trace = mesh.trace(source, states)
        if not blocked & set(trace.pucs) and trace.port in probe.monitors:
            set_states = {puc: state for puc, state in states.items() if puc not in blocked and mesh.interferes[puc]}
            paths.append((trace, set_states))
    if not paths:
        return None
    # Rarely used PUCs count most, so that forty settings pass all 72 PUCs.
    best = max(paths, key=lambda path: sum(1.0 / (1 + counts[puc]) for puc in set(path[0].pucs)))
    try:
        return best[0], heater_currents_ma(record, best[1])
    except LimitError:
        return None


# Prediction ----------------------------------------------------------------------------------------------------------


def _predicted_dbm(record: CalibrationRecord, settings: Observations, detuning_hz: float) -> Real:
    if record.physics:
        return _full_model_dbm(record, settings)
    calibrated, solver = CalibratedMesh.from_record(record), Solver(record.mesh)
    power = np.empty((len(settings), record.mesh.n_ports))
    for source in np.unique(settings.source).tolist():
        chosen = settings.source == source
        entry = record.port(source)
        light_hz = record.reference_hz + detuning_hz if detuning_hz else None
        cells = calibrated.cells(settings.currents_ma[chosen], light_hz)
        own_hz = entry.source_detuning_hz or 0.0
        entries = [entry, *(port for port in record.ports if port.lit_with == source and port.source_dbm is not None)]
        field = solver.solve(cells, cells.reference_hz + detuning_hz + own_hz, [port.port for port in entries])
        share = 10.0 ** (np.array([(port.source_dbm or 0.0) - (entry.source_dbm or 0.0) for port in entries]) / 10.0)
        through = (np.abs(field) ** 2 * share).sum(axis=-1)
        power[chosen] = (entry.source_dbm or 0.0) + 10.0 * np.log10(np.maximum(through, 1e-30))
    return power


def _full_model_dbm(record: CalibrationRecord, settings: Observations) -> Real:
    space, parameters = space_from_record(record), parameters_from_record(record)
    reading = model_of_record(record).predict(parameters, replace(settings, monitors=space.monitors))
    power = np.full((len(settings), record.mesh.n_ports), -300.0)
    share = reading / parameters.monitor_ma_per_mw
    power[:, list(space.monitors)] = 10.0 * np.log10(np.maximum(share, 1e-30))
    return power


def _versions(record: CalibrationRecord) -> list[CalibrationRecord]:
    unknown = [puc for puc, entry in enumerate(record.pucs) if entry.passive_phase_rad is None]
    if not unknown and record.joints is not None:
        return [record]
    rng, versions = np.random.default_rng(0), []
    for _ in range(_VERSIONS):
        pucs = list(record.pucs)
        for puc in unknown:
            pucs[puc] = replace(pucs[puc], passive_phase_rad=float(rng.uniform(0.0, 2.0 * np.pi)))
        joints = JointsEntry(tuple(rng.uniform(0.0, 2.0 * np.pi, len(record.mesh.joints)).tolist()))
        versions.append(replace(record, pucs=tuple(pucs), joints=record.joints or joints))
    return versions


# Comparison ----------------------------------------------------------------------------------------------------------


def _compare(
    probe: Probe,
    record: CalibrationRecord,
    plan: list[_VerificationStep],
    measured: Observations,
    detuning_hz: float = 0.0,
) -> Verification:
    # The currents as planned, and the slow heat of the settings before.
    planned_ma = np.array([step.currents_ma for step in plan]).reshape(measured.currents_ma.shape)
    settings = replace(measured, currents_ma=planned_ma, detuning_hz=detuning_hz)
    by_port = {entry.port: entry.monitor_ma_per_mw for entry in record.ports}
    responsivity = np.array([by_port.get(port) for port in probe.monitors], dtype=np.float64)
    dark_ma = dark_by_port_ma(record)
    readings = measured.reading_ma - [dark_ma.get(port, 0.0) for port in probe.monitors]
    floor_ma = max(probe.monitor_step_ma / np.sqrt(12.0), record.quality.get("monitor_noise_floor_ma", 0.0), _DARK_MA)
    noise = NoiseModel(record.quality.get("monitor_noise_relative", _RELATIVE_NOISE), floor_ma)
    min_dbm = 10.0 * np.log10(_FLOOR_SIGMA * floor_ma / responsivity)
    columns = list(probe.monitors)
    # Readings that depend on unknown phases are not compared; several versions of the record show which.
    versions = np.stack([_predicted_dbm(version, settings, detuning_hz)[:, columns] for version in _versions(record)])
    versions = np.maximum(versions, min_dbm)
    predicted = versions.mean(axis=0)
    # Misdirected light is the worst error, so a dark monitor is compared at its largest possible power.
    measured_dbm = np.maximum(10.0 * np.log10(np.maximum(readings, _DARK_MA) / responsivity), min_dbm)
    is_bright = np.maximum(measured_dbm, predicted) > np.maximum(min_dbm, MIN_DBM)
    with np.errstate(invalid="ignore"):
        is_compared = is_bright & np.isfinite(readings) & (np.ptp(versions, axis=0) < _CERTAIN_DB)
    error_db, brighter = measured_dbm - predicted, np.maximum(measured_dbm, predicted)
    bright_ma = responsivity * 10.0 ** (brighter / 10.0)
    noise_db = np.hypot(_DB_PER_SHARE * noise.sigma_ma(bright_ma) / bright_ma, _LIGHT_DB)
    # Errors are in dB of the brighter value, so that a slightly wrong null is not an infinite error.
    sensitivity, sigma_db = _sensitivity(record, plan, settings, columns, brighter, is_compared), noise_db
    if sensitivity is not None:
        is_compared &= sensitivity.shows_heater
        # Reading noise and the record's covariance are combined: χ² = 1 means that the standard errors are correct.
        sigma_db = np.sqrt(noise_db**2 + sensitivity.variance_db2)
    results = [
        HeldOut(
            int(index), plan[index].kind, plan[index].source, columns[column], float(predicted[index, column]),
            float(error_db[index, column]), float(noise_db[index, column]),
            float(error_db[index, column] / sigma_db[index, column]), plan[index].heater,
            float(sensitivity.by_heater_db[index, column]) if sensitivity else 0.0,
        )
        for index, column in np.argwhere(is_compared)
    ]  # fmt: skip
    deviation_sigma = np.where(is_compared, error_db / noise_db, 0.0)
    suspects = _suspects(record, deviation_sigma, sensitivity.by_phase / noise_db[..., None]) if sensitivity else ()
    return Verification(tuple(results), suspects)


@dataclass(frozen=True, eq=False)
class _Sensitivity:
    """How predicted powers depend on the parameters of a record.

    Attributes:
        variance_db2: Shape ``(settings, monitors)``; variance of compared readings due to the record's errors; 0
            without a covariance.
        shows_heater: Shape ``(settings, monitors)``; whether a reading changes with the phase of the heater that is
            driven alone. All readings of other settings do.
        by_heater_db: Shape ``(settings, monitors)``; change by a relative change of this heater's phase, in dB.
        by_phase: Shape ``(settings, monitors, n_pucs)``; derivatives by passive phases in dB/rad.
    """

    variance_db2: Real
    shows_heater: NDArray[np.bool_]
    by_heater_db: Real
    by_phase: Real


def _sensitivity(
    record: CalibrationRecord,
    plan: list[_VerificationStep],
    settings: Observations,
    ports: list[int],
    brighter_dbm: Real,
    is_compared: NDArray[np.bool_],
) -> _Sensitivity | None:
    """Return how all powers in dB depend on the parameters; ``None`` for a record whose crosstalk is a matrix.

    Powers at ports of unknown responsivity depend on nothing.
    """
    calibrated_ports = {entry.port for entry in record.ports if entry.monitor_ma_per_mw is not None}
    measured_ports = tuple(port for port in ports if port in calibrated_ports)
    record = replace(record, monitor_ports=measured_ports)
    try:
        parameters, space = parameters_from_record(record), space_from_record(record)
    except CalibrationError:
        return None
    heaters = [step.heater for step in plan]
    variance, by_phase = np.zeros(brighter_dbm.shape), np.zeros((*brighter_dbm.shape, record.mesh.n_pucs))
    by_heater_db = np.zeros(brighter_dbm.shape)
    shows = np.tile(np.array([heater is None for heater in heaters])[:, None], brighter_dbm.shape[1])
    columns = [ports.index(port) for port in measured_ports]
    per_ma = _DB_PER_SHARE / parameters.monitor_ma_per_mw / 10.0 ** (brighter_dbm[:, columns] / 10.0)
    factor = record.arrays.get(COVARIANCE_FACTOR)
    # Derivatives by all parameters of all settings at once would need gigabytes on a large mesh.
    for part in model_of_record(record).linearise(parameters, replace(settings, monitors=measured_ports)):
        slopes = part.jacobian * per_ma[part.settings, :, None]
        by_phase[part.settings, columns] = slopes[..., space.group("passive_phase_rad")]
        if factor is not None and len(factor) == space.size:
            compared = is_compared[part.settings][:, columns]
            variance_db2 = np.zeros(compared.shape)
            variance_db2[compared] = ((slopes[compared] @ np.asarray(factor, dtype=np.float64)) ** 2).sum(axis=-1)
            variance[part.settings, columns] = variance_db2
        for number, own in zip(range(part.settings.start, part.settings.stop), slopes, strict=True):
            if (heater := heaters[number]) is not None and parameters.heater_law[heater, 0] > 0.0:
                by_term = own[:, [space.group(term).start + heater for term in LAW_TERMS]]
                shows[number, columns] = np.abs(by_term[:, 0]) / plan[number].currents_ma[heater] ** 2 > _MIN_DB_PER_RAD
                by_heater_db[number, columns] = by_term @ parameters.heater_law[heater]
    return _Sensitivity(variance, shows, by_heater_db, by_phase)


def _suspects(record: CalibrationRecord, deviation_sigma: Real, by_phase: Real) -> tuple[int, ...]:
    if (deviation_sigma**2).sum() <= _SUSPECT_CHI2 * np.count_nonzero(deviation_sigma):  # noise
        return ()
    by_phase = by_phase * (deviation_sigma != 0.0)[..., None]
    sensitivity = (by_phase**2).sum(axis=(0, 1))
    # For each phase alone: the decrease of χ² at its best value.
    explained = np.einsum("nmp,nm->p", by_phase, deviation_sigma) ** 2 / np.where(
        sensitivity > 0.0, sensitivity, np.inf
    )
    explained[~record.mesh.interferes] = 0.0  # a phase shifter without an MZI changes no power
    order = np.argsort(-explained, kind="stable")[:_SUSPECTS]
    return tuple(order[explained[order] > 0.0].tolist())


def out_of_tolerance(record: CalibrationRecord, tolerance_db: float | None) -> tuple[str, ...]:
    """Return a sentence (in a tuple) if the verification error exceeds the tolerance, otherwise an empty tuple.

    This is the rms error in dB above noise; without a tolerance any error is accepted.
    """
    excess_db = record.quality.get("held_out_excess_db")
    if tolerance_db is None or (excess_db is not None and excess_db <= tolerance_db):
        return ()
    reason = (
        "no setting could be verified" if excess_db is None else f"the held-out error is {excess_db:.3f} dB above noise"
    )
    return (f"out of tolerance: {reason}, the tolerance is {tolerance_db:g} dB",)


def verify_at(
    probe: Probe,
    record: CalibrationRecord,
    wavelength_nm: float,
    seed: int,
    on_step: Callable[[int, int], None] = lambda step, total: None,
    settings: int = SETTINGS,
) -> Verification:
    """Verify a record at another wavelength; afterwards tune the light back.

    Sources that are not tunable are used only at the wavelength of the record. After an error the light is not tuned
    back. All arguments except ``wavelength_nm`` are those of :func:`verify`.

    Raises:
        LimitError: The record is not valid at this wavelength, or a source cannot reach it.
        ConfigError: No source is tunable.
    """
    check_validity(record, UseConditions(wavelength_nm=wavelength_nm))
    requested_hz = frequency_hz_from_wavelength_m(wavelength_nm * 1e-9)
    ports = [port for port in probe.sources if probe.tunable_hz(port) is not None]
    reached_hz = tune_sources(probe, requested_hz, ports)
    if abs(requested_hz - record.reference_hz) <= TUNING_ERROR_HZ:
        return verify(probe, record, seed, on_step, settings)
    if not ports:
        raise ConfigError("no source of this bench is tunable", hint="Verify the record at its own wavelength instead.")
    detuning_hz = float(np.median(list(reached_hz.values()))) - record.reference_hz
    verification = verify(probe, _with_sources(record, ports), seed, on_step, settings, detuning_hz)
    tune_sources(probe, record.reference_hz, ports)
    return verification


def _with_sources(record: CalibrationRecord, ports: Sequence[int]) -> CalibrationRecord:
    entries = [
        entry
        if (entry.port if entry.lit_with is None else entry.lit_with) in ports
        else replace(entry, source_dbm=None, input_loss_db=None, lit_with=None)
        for entry in record.ports
    ]
    return replace(record, ports=tuple(entries))
