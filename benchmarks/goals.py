"""How good a calibration of an emulated bench is: figures with goals, and their bounds.

Judged by the hidden truth and by readings of the bench that took no part in the fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibration.measure.probe import Probe
from calibration.model.mesh_model import MeshModel
from calibration.model.observations import Observations
from calibration.model.response import DETECTOR_ROWS
from calibration.model.space import space_from_record
from calibration.record.conversion import parameters_from_record
from calibration.report.hidden_truth import HEATER_REST_S, reference_offset_hz, true_parameters
from calibration.report.truth_errors import extinctions, phase_bounds_mrad, phase_errors, settings_bound
from lumion_hw.bench.bench import Bench
from lumion_hw.bench.file.loader import builtin_path
from lumion_hw.errors import ConfigError, LimitError
from lumion_hw.mesh.layout.topology import State
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.mesh.programming.inverse import heater_currents_ma
from lumion_hw.mesh.programming.matrix import fidelity_up_to_port_phases, program_matrix
from lumion_hw.mesh.record.calibration_record import CalibrationRecord

Real = NDArray[np.float64]

HELD_OUT_DBM = -40.0
"""Held-out light counts above this power at a port."""

_PER_NEPER_DB = 10.0 / np.log(10.0)

_SETTINGS = 40

_UNITARIES = 2


@dataclass(frozen=True)
class FigureGoal:
    """One goal of the calibration.

    Attributes:
        figure: Name of the figure, a key of :attr:`GoalJudgement.figures`.
        text: Description of the figure, with its unit.
        median: Largest allowed median over seeds; a negative number -x means that the median must be at least x.
        worst: Largest allowed figure of any seed, with the same sign convention.
        bound: Name of the figure that is its theoretical bound, if there is one.
        ratio: Largest allowed median ratio to that bound.
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
    """Figures of one calibration, measured against the hidden truth.

    Attributes:
        figures: Figures by name; without ``fidelity`` if the mesh has no room for unitaries.
        normalised: By parameter group, errors divided by the stated standard errors.
    """

    figures: Mapping[str, float]
    normalised: Mapping[str, Real]


def goal_bench(directory: Path) -> Path:
    """Write the bench for which the goals are set, and return its path.

    It is lumion-prototype with the ideal physics of the formulas, 10 mK of temperature noise and a random walk of the
    heater resistances (assumed).
    """
    text = builtin_path("lumion-prototype").read_text().replace("physics: realistic", "physics: ideal")
    path = directory / "prototype-with-drift.yaml"
    path.write_text(f"{text.rstrip()}\n  temperature_sigma_k: 0.01\n  resistance_drift_per_root_day: 0.0003\n")
    return path


def judge(bench: Bench, probe: Probe, record: CalibrationRecord, fitted: Observations, seed: int) -> GoalJudgement:
    """Judge a complete calibration of an emulated bench; everything is switched off afterwards.

    Args:
        bench: The bench.
        probe: Access to its mesh, as it was calibrated.
        record: The calibration record.
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
        with suppress(ConfigError):  # a mesh without room for four modes is no fault of the calibration
            figures["fidelity"] = min(unitary_fidelity(bench, record, rng) for _ in range(_UNITARIES))
    finally:
        probe.switch_everything_off()
    for name in ("settings", "hardware_s", "bench_s", "cpu_s", "fit_chi2_per_dof", "fit_certified"):
        figures[name] = record.quality[name]
    figures["chosen_settings"] = record.quality.get("chosen_settings", 0.0)
    # Held-out readings of the run itself, for comparison with the held-out settings measured here.
    figures["read_excess_db"] = record.quality.get("held_out_excess_db", np.nan)
    figures["read_chi2"] = record.quality.get("held_out_chi2", np.nan)
    figures["faults"] = float(len(record.faults))
    return GoalJudgement(figures, normalised)


def held_out_db(
    bench: Bench, probe: Probe, record: CalibrationRecord, least: Real, rng: np.random.Generator
) -> dict[str, float]:
    """Return rms errors of predicted light above -40 dBm in dB, at random currents and in random bar and cross states.

    ``_read`` compares with the readings instead of the light itself, ``_noise`` is the error of the readings alone, and
    ``_bound`` the error that the Cramér-Rao bound of the parameters allows.
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
        compared[kind] = _compare_light(bench, probe, record, least, rows)
    figures = {
        f"held_out_{kind}{what}_db": _rms(off) for kind, all_off in compared.items() for what, off in all_off.items()
    }
    for what in compared["random"]:
        figures[f"held_out{what}_db"] = _rms(np.concatenate([all_off[what] for all_off in compared.values()]))
    return figures


def _compare_light(
    bench: Bench, probe: Probe, record: CalibrationRecord, least: Real, rows: Sequence[Real]
) -> dict[str, Real]:
    """Drive settings and compare every monitor with the prediction of the record, in dB."""
    space, parameters, world = space_from_record(record), parameters_from_record(record), bench.emulated.world
    source = np.resize(np.array(space.sources), len(rows))
    columns = [probe.monitors.index(port) for port in space.monitors]
    ports = np.array(space.monitors)
    read, exact = np.empty((2, len(rows), len(ports)))
    for index in np.argsort(source, kind="stable"):
        probe.light_only_port(int(source[index]))
        probe.measure(rows[index])
        bench.clock.sleep(HEATER_REST_S)
        read[index] = probe.measure(rows[index])[columns]
        exact[index] = world.mesh_output_w()[ports] * world.truth.monitor_scale[ports]
    per_w = 1e3 * bench.mesh.responsivity_a_per_w
    exact *= per_w
    plan = Observations(np.array(rows), source, space.monitors, read, np.isnan(read))
    model = MeshModel(
        space.mesh, space.sources, space.monitors, record.heater_ohm, seconds=space.seconds,
        channels=record.heater_channels, physics=space.physics,
    )  # fmt: skip
    parts = list(model.linearise(parameters, plan))
    read_ma = np.concatenate([part.reading_ma for part in parts])
    # Compare light, without the response of the photodiodes.
    lit = {name: value for name, value in parameters.extra_physics.items() if name not in DETECTOR_ROWS}
    predicted = model.predict(replace(parameters, extra_physics=lit), plan)
    plain = len(least)
    by_parameter = [part.jacobian[..., :plain] for part in parts]
    variance = np.concatenate([((each @ least) * each).sum(axis=-1) for each in by_parameter])
    # Darker light is leakage, in which a milliradian can change a decibel (docs/performance.md).
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


def unitary_fidelity(bench: Bench, record: CalibrationRecord, rng: np.random.Generator, modes: int = 4) -> float:
    """Return the fidelity of a random unitary programmed with a record, measured on the hidden mesh.

    The fidelity is 0 if the heaters cannot reach its phases.

    Raises:
        ConfigError: No block with this many modes fits on the mesh.
    """
    parts = rng.standard_normal((2, modes, modes))
    q, r = np.linalg.qr(np.asarray(parts[0] + 1j * parts[1], dtype=np.complex128))
    # QR alone is not uniform over unitaries; the phases of the diagonal of R make it uniform (Haar measure).
    wanted = np.asarray(q * (np.diag(r) / np.abs(np.diag(r))), dtype=np.complex128)
    known = CalibratedMesh.from_record(record, bench.mesh.heater_max_ma)
    try:
        setting = program_matrix(known, wanted)
    except LimitError:
        return 0.0
    bench.mesh.program(setting.currents_ma)
    world = bench.emulated.world
    light_hz = world.slopes.reference_hz + reference_offset_hz(bench, record)
    field = np.stack([world.true_fields(port, light_hz) for port in setting.inputs], axis=1)
    return fidelity_up_to_port_phases(wanted, field[list(setting.outputs)])


def _rms(values: Real) -> float:
    return float(np.sqrt(np.mean(np.square(values))))
