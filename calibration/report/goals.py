"""How good a calibration of an emulated bench is: figures that have goals, their bounds, and whether errors are true.

Judged by the hidden truth and by readings of the bench that took no part in the fit. For tests, benchmarks and
``verify --against-truth`` only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibration.fit.bound import Bound, plan_bound
from calibration.measure.probe import Probe
from calibration.model.gauge import common_phase_rad, gauge_fixed_difference, wrapped
from calibration.model.mesh_model import MeshModel
from calibration.model.observations import NoiseModel, Observations
from calibration.model.parameters import MeshParameters
from calibration.model.priors import FREE_WITH_MODULES, default_prior
from calibration.model.response import DETECTOR_ROWS
from calibration.model.space import LAW_TERMS, ParameterSpace, space_from_record
from calibration.record.conversion import covariance_from_record, parameters_from_record
from calibration.report.hidden_truth import REST_S, compare, own_phase_rad, reference_offset_hz, true_parameters
from calibration.report.numbers import Metric
from lumion_hw.bench.bench import Bench
from lumion_hw.bench.file.loader import builtin_path
from lumion_hw.errors import ConfigError, LimitError
from lumion_hw.mesh.layout.topology import State
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.mesh.programming.inverse import heater_currents_ma
from lumion_hw.mesh.programming.unitary import fidelity_up_to_port_phases, program_unitary
from lumion_hw.mesh.record.calibration_record import CalibrationRecord

Real = NDArray[np.float64]
Complex = NDArray[np.complex128]

HELD_OUT_DBM = -40.0
"""Held-out light is judged above this at a port."""
PUBLISHED_EXTINCTION_DB = 44.0
"""Best extinction published of such a PUC (Sánchez-Jácome 2025); couplers that happen to be equal would allow any."""
_PER_NEPER_DB = 10.0 / np.log(10.0)
_SETTINGS = 40
_UNITARIES = 2


@dataclass(frozen=True)
class FigureGoal:
    """One goal.

    Attributes:
        figure: Name of the figure, a key of :attr:`GoalJudgement.figures`.
        text: What it is, with its unit.
        median: Largest median over seeds; negative numbers say that it must not be less than their amount.
        worst: Largest figure of any seed, likewise.
        bound: Name of the figure that bounds it, if one does.
        ratio: Largest median ratio to that bound.
    """

    figure: str
    text: str
    median: float
    worst: float
    bound: str = ""
    ratio: float = np.inf


GOALS = (
    FigureGoal("passive_mrad", "differential phases, mrad rms", 3.0, 10.0, "passive_bound_mrad", 3.0),
    FigureGoal("loops_mrad", "loop phases, mrad rms", 3.0, 10.0, "loops_bound_mrad", 3.0),
    FigureGoal("held_out_db", "held-out light above -40 dBm, dB rms", 0.1, 0.1, "held_out_bound_db", 3.0),
    FigureGoal("settings", "settings", 5000, 5000),
    FigureGoal("hardware_s", "hardware time, s", 90.0, 90.0),
    FigureGoal("cpu_s", "CPU time, s", 60.0, 60.0),
    FigureGoal("extinction_short_db", "extinction below what couplers allow, up to 44 dB, worst state, dB", 1.0, 1.0),
    FigureGoal("fidelity", "fidelity of 4x4 unitaries, least", -0.995, -0.995),
)


@dataclass(frozen=True, eq=False)
class GoalJudgement:
    """What a calibration is worth.

    Attributes:
        figures: Figures by name; without ``fidelity`` where the mesh has no room for unitaries.
        normalised: By group, errors over the standard errors stated.
    """

    figures: Mapping[str, float]
    normalised: Mapping[str, Real]


def goal_bench(directory: Path) -> Path:
    """Write the bench that goals are set for and return its path: lumion-prototype, whose chip drifts as well.

    Its temperature control leaves 10 mK, its resistances walk (assumed). It obeys the formulas.
    """
    text = builtin_path("lumion-prototype").read_text().replace("physics: realistic", "physics: ideal")
    path = directory / "prototype-with-drift.yaml"
    path.write_text(f"{text.rstrip()}\n  temperature_sigma_k: 0.01\n  resistance_drift_per_root_day: 0.0003\n")
    return path


def judge(bench: Bench, probe: Probe, record: CalibrationRecord, fitted: Observations, seed: int) -> GoalJudgement:
    """Judge a complete calibration of an emulated bench; the bench is driven, and safe afterwards.

    Args:
        bench: The bench.
        probe: Access to its mesh, as it was calibrated.
        record: The calibration.
        fitted: The readings that were fitted.
        seed: Seed of held-out settings and unitaries.
    """
    rng = np.random.default_rng(np.random.SeedSequence([seed, 0x0E]))
    truth = true_parameters(bench, record)
    normalised, figures = phase_errors(bench, record, truth)
    least = settings_bound(bench, record, truth, fitted).covariance()
    figures |= phase_bounds_mrad(space_from_record(record), least)
    try:
        figures |= held_out_db(bench, probe, record, least, rng) | extinctions(bench, record)
        with suppress(ConfigError):  # no room for four modes: that says nothing about the calibration
            figures["fidelity"] = min(unitary_fidelity(bench, record, rng) for _ in range(_UNITARIES))
    finally:
        probe.switch_everything_off()
    for name in ("settings", "hardware_s", "bench_s", "cpu_s", "fit_chi2_per_dof", "fit_certified"):
        figures[name] = record.quality[name]
    figures["chosen_settings"] = record.quality.get("chosen_settings", 0.0)
    # What the run itself has read on settings that no fit has seen, beside what is read here.
    figures["read_excess_db"] = record.quality.get("held_out_excess_db", np.nan)
    figures["read_chi2"] = record.quality.get("held_out_chi2", np.nan)
    figures["faults"] = float(len(record.faults))
    return GoalJudgement(figures, normalised)


def without_common(space: ParameterSpace) -> Real:
    """Return the projector that takes a phase common to all PUCs out of loop coordinates, shape ``(L, L)``.

    Neither the mean frequency of modules nor the temperature of a run is known: both turn all loops together.
    """
    common = space.directions.T @ np.ones(len(space.mesh.joints))
    common /= np.linalg.norm(common)
    projector: Real = np.eye(len(common)) - np.outer(common, common)
    return projector


def phase_errors(
    bench: Bench, record: CalibrationRecord, truth: MeshParameters
) -> tuple[dict[str, Real], dict[str, float]]:
    """Return normalised errors by group, and the phase errors in mrad."""
    space, found, covariance = space_from_record(record), parameters_from_record(record), covariance_from_record(record)
    error = space.pack(found) - space.pack(truth)
    passive, loops = space.groups["passive_phase_rad"], space.groups["loops"]
    error[passive] = wrapped(error[passive])
    # Mean frequency and temperature turn all loops alike and are no error of the mesh.
    joints = found.joint_phase_rad - truth.joint_phase_rad
    common_rad = common_phase_rad(space.mesh, joints)
    alike = space.directions.T @ np.ones(len(joints))
    error[loops] = space.directions.T @ gauge_fixed_difference(space.mesh, joints - common_rad)
    fixed = without_common(space)
    common = error[loops] - fixed @ error[loops] + common_rad * alike
    error[loops] = fixed @ error[loops]
    covariance[loops, loops] = fixed @ covariance[loops, loops] @ fixed
    difference = space.groups["coupler_difference_rad"]
    variance = np.diag(covariance)
    # A path of one PUC shows the square of the difference of its couplers: its sign stays open.
    # Both ends at fibre ports: a path of one PUC.
    lit = np.asarray(np.isin(space.mesh.port_at, space.mesh.fibre_ports).reshape(-1, 2, 2).max(axis=2))
    unsigned = np.abs(found.coupler_difference_rad) - np.abs(truth.coupler_difference_rad)
    error[difference] = np.where(lit.min(axis=1), unsigned, error[difference])
    normalised = {}
    for name in ("passive_phase_rad", "loops", "loss_db", "coupler_common_rad", "coupler_difference_rad"):
        group = space.groups[name]
        normalised[name] = error[group] / np.sqrt(np.where(variance[group] > 0.0, variance[group], np.nan))
    normalised["law_turn"] = _turn_errors(bench, record, covariance)
    figures = {
        "passive_mrad": 1e3 * _rms(error[passive]),
        "passive_worst_mrad": 1e3 * float(np.abs(error[passive]).max()),
        "loops_mrad": 1e3 * _rms(error[loops]),
        "common_mrad": 1e3 * _rms(common),
    }
    return {name: values[np.isfinite(values)] for name, values in normalised.items()}, figures


def _turn_errors(bench: Bench, record: CalibrationRecord, covariance: Real) -> Real:
    """Return the normalised error of the phase of every heater where its law says a turn, shape ``(2E,)``."""
    known, space = CalibratedMesh.from_record(record), space_from_record(record)
    turn = np.where(known.reach_rad > 2.0 * np.pi, 2.0 * np.pi, 0.0)
    currents_ma = known.currents_ma(turn)
    off = known.own_rad(currents_ma) - own_phase_rad(bench, currents_ma)
    starts = [space.groups[name].start for name in LAW_TERMS]
    result = np.full(len(off), np.nan)
    for heater in np.flatnonzero(turn):
        places = [start + int(heater) for start in starts]
        slope = currents_ma[heater] ** np.array([2.0, 4.0, 6.0])
        result[heater] = off[heater] / np.sqrt(slope @ covariance[np.ix_(places, places)] @ slope)
    return result


def settings_bound(bench: Bench, record: CalibrationRecord, truth: MeshParameters, fitted: Observations) -> Bound:
    """Return the Cramér-Rao bound of the settings that were fitted: all else unknown, noise as emulated, no drift."""
    space = space_from_record(record)
    model = MeshModel(space.mesh, space.sources, space.monitors, record.heater_ohm, seconds=space.seconds)
    floor_ma = 1e-6 * bench.mesh.responsivity_a_per_w  # -60 dBm
    noise = NoiseModel(0.005, float(np.hypot(floor_ma, bench.mesh.monitor_step_ma / np.sqrt(12.0))))
    prior = default_prior(model.space, truth).anchored("source_detuning_hz", model.space, 1e5)
    return plan_bound(model, truth, fitted, noise, prior, FREE_WITH_MODULES)


def phase_bounds_mrad(space: ParameterSpace, least: Real) -> dict[str, float]:
    """Return the rms bounds of phases from the least covariance of all parameters."""
    fixed = without_common(space)
    loops = fixed @ least[space.groups["loops"], space.groups["loops"]] @ fixed
    passive = np.diag(least)[space.groups["passive_phase_rad"]]
    return {
        "passive_bound_mrad": 1e3 * float(np.sqrt(passive.mean())),
        "loops_bound_mrad": 1e3 * float(np.sqrt(np.diag(loops).mean())),
    }


def held_out_db(
    bench: Bench, probe: Probe, record: CalibrationRecord, least: Real, rng: np.random.Generator
) -> dict[str, float]:
    """Return rms errors of predicted light above -40 dBm in dB, at random currents and at random bar and cross states.

    Of the light itself; of what was read (``_read``); what noise and converters alone do to that (``_noise``); and
    what the least covariance of the parameters leaves of the first (``_bound``).
    """
    compared: dict[str, dict[str, Real]] = {}
    reach = np.minimum(CalibratedMesh.from_record(record).max_ma, bench.mesh.heater_max_ma)
    for kind in ("random", "states"):
        rows: list[Real] = []
        while len(rows) < _SETTINGS:
            if kind == "random":
                rows.append(reach * np.sqrt(rng.random(len(reach))))
            else:
                bar = rng.random(probe.mesh.n_pucs) < 0.5
                states: dict[int, State] = {puc: "bar" if bar[puc] else "cross" for puc in range(len(bar))}
                rows.append(heater_currents_ma(record, states))
        compared[kind] = _compared(bench, probe, record, least, rows)
    figures = {
        f"held_out_{kind}{what}_db": _rms(off) for kind, all_off in compared.items() for what, off in all_off.items()
    }
    for what in compared["random"]:
        figures[f"held_out{what}_db"] = _rms(np.concatenate([all_off[what] for all_off in compared.values()]))
    return figures


def _compared(
    bench: Bench, probe: Probe, record: CalibrationRecord, least: Real, rows: Sequence[Real]
) -> dict[str, Real]:
    """Drive settings and compare every monitor with what the record predicts by the model of the whole mesh, in dB."""
    space, found, world = space_from_record(record), parameters_from_record(record), bench.emulated.world
    source = np.resize(np.array(space.sources), len(rows))
    columns = [probe.monitors.index(port) for port in space.monitors]
    ports = np.array(space.monitors)
    read, exact = np.empty((2, len(rows), len(ports)))
    for index in np.argsort(source, kind="stable"):
        probe.light_only_port(int(source[index]))
        probe.measure(rows[index])
        bench.clock.sleep(REST_S)
        read[index] = probe.measure(rows[index])[columns]
        exact[index] = world.mesh_output_w()[ports] * world.truth.monitor_scale[ports]
    per_w = 1e3 * bench.mesh.responsivity_a_per_w
    exact *= per_w
    plan = Observations(np.array(rows), source, space.monitors, read, np.isnan(read))
    model = MeshModel(
        space.mesh, space.sources, space.monitors, record.heater_ohm, seconds=space.seconds,
        channels=record.heater_channels, physics=space.physics,
    )  # fmt: skip
    parts = list(model.linearise(found, plan))
    read_ma = np.concatenate([part.reading_ma for part in parts])
    # What photodiodes make of it is no light.
    lit = {name: value for name, value in found.extra_physics.items() if name not in DETECTOR_ROWS}
    predicted = model.predict(replace(found, extra_physics=lit), plan)
    plain = len(least)
    by_parameter = [part.jacobian[..., :plain] for part in parts]
    variance = np.concatenate([((each @ least) * each).sum(axis=-1) for each in by_parameter])
    # Darker light is leakage, where a milliradian can be a decibel (docs/performance.md).
    seen = exact > per_w * 10.0 ** (HELD_OUT_DBM / 10.0 - 3.0)
    bright = seen & np.isfinite(read)
    predicted, exact, read, read_ma = (
        np.maximum(one, max(bench.mesh.monitor_step_ma, 1e-12)) for one in (predicted, exact, read, read_ma)
    )
    return {
        "": _PER_NEPER_DB * np.log(predicted[seen] / exact[seen]),
        "_read": _PER_NEPER_DB * np.log(read_ma[bright] / read[bright]),
        "_noise": _PER_NEPER_DB * np.log(exact[bright] / read[bright]),
        "_bound": _PER_NEPER_DB * np.sqrt(variance[seen]) / exact[seen],
    }


def extinctions(bench: Bench, record: CalibrationRecord) -> dict[str, float]:
    """Return how far below what the couplers allow the extinctions of all bar and cross states are.

    Up to the best one published; and, for the others, the share of all states that are within 1 dB of any allowed.
    """
    report = compare(bench, record)
    allowed = np.concatenate([report.bar_allowed_db, report.cross_allowed_db])
    reached = np.concatenate([report.bar_extinction_db, report.cross_extinction_db])
    return {
        "extinction_short_db": float((np.minimum(allowed, PUBLISHED_EXTINCTION_DB) - reached).max()),
        "extinction_within_1_db": float((allowed - reached <= 1.0).mean()),
        "extinction_least_db": float(reached.min()),
    }


def unitary_fidelity(bench: Bench, record: CalibrationRecord, rng: np.random.Generator, modes: int = 4) -> float:
    """Return the fidelity that a random unitary, programmed with a record, has on the hidden mesh.

    0 if heaters do not reach its phases.

    Raises:
        ConfigError: No block of so many modes fits on the mesh.
    """
    parts = rng.standard_normal((2, modes, modes))
    q, r = np.linalg.qr(np.asarray(parts[0] + 1j * parts[1], dtype=np.complex128))
    # QR alone is not uniform over unitaries: the phases of the diagonal of R make it so (Haar).
    wanted = np.asarray(q * (np.diag(r) / np.abs(np.diag(r))), dtype=np.complex128)
    known = CalibratedMesh.from_record(record, bench.mesh.heater_max_ma)
    try:
        setting = program_unitary(known, wanted)
    except LimitError:
        return 0.0
    bench.mesh.program(setting.currents_ma)
    world = bench.emulated.world
    light_hz = world.slopes.reference_hz + reference_offset_hz(bench, record)
    field = np.stack([world.true_fields(port, light_hz) for port in setting.block.inputs], axis=1)
    return fidelity_up_to_port_phases(wanted, field[list(setting.block.outputs)])


def _rms(values: Real) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


_NORMALISED = {
    "passive_phase_rad": "passive phases",
    "loops": "loop phases",
    "loss_db": "losses",
    "coupler_common_rad": "couplers, mean angle",
    "coupler_difference_rad": "couplers, difference of angles",
    "law_turn": "heater laws at one turn",
}


def truth_metrics(bench: Bench, record: CalibrationRecord, fitted: Observations | None = None) -> list[Metric]:
    """Return errors against the truth, programming all PUCs to bar and to cross.

    Args:
        bench: The emulated bench.
        record: The record.
        fitted: Settings that were fitted, if their bound is wanted as well.

    Raises:
        ConfigError: The bench is not emulated.
        CalibrationError: The record holds no covariance, or crosstalk of another kind than the global fit's.
    """
    truth = true_parameters(bench, record)
    normalised, phases = phase_errors(bench, record, truth)
    bounds: dict[str, float] = {}
    if fitted is not None:
        least = settings_bound(bench, record, truth, fitted).covariance()
        bounds = phase_bounds_mrad(space_from_record(record), least)
    short = extinctions(bench, record)
    loss_db = float(np.sqrt(np.mean(compare(bench, record).loss_error_db ** 2)))
    gauge = "gauge-fixed: modulo a turn, a phase common to all PUCs taken out of the loops"
    return [
        Metric("passive phases, error, rms", phases["passive_mrad"], "mrad", 3.0, note=gauge),
        Metric("passive phases, error, worst", phases["passive_worst_mrad"], "mrad"),
        Metric("loop phases, error, rms per loop", phases["loops_mrad"], "mrad", 3.0, note=gauge),
        *(
            Metric(
                f"{words}: error over the Cramér-Rao bound",
                phases[f"{name}_mrad"] / bounds[f"{name}_bound_mrad"],
                "",
                3.0,
                note=f"bound of the settings taken: {bounds[f'{name}_bound_mrad']:.3g} mrad",
            )
            for name, words in (("passive", "passive phases"), ("loops", "loop phases"))
            if bounds
        ),
        Metric("losses, error, rms", loss_db, "dB"),
        Metric(
            "programmed extinction below what the couplers allow, up to 44 dB, worst",
            short["extinction_short_db"],
            "dB",
            1.0,
        ),
        *(
            Metric(f"{words}: error over standard error, rms", float(np.sqrt(np.mean(values**2))), note=_TRUE)
            for name, words in _NORMALISED.items()
            if len(values := normalised.get(name, np.zeros(0)))
        ),
    ]


_TRUE = "1 if the stated standard errors are true; over many seeds 0.8 … 1.3"
