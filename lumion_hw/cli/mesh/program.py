"""``lumion mesh program``: set the mesh of a bench to a matrix, measure it, refine it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.calibrate import drift as cli_drift
from lumion_hw.cli.circuits import note_uncertified_record
from lumion_hw.cli.common.output import echo_json, echo_text, json_option
from lumion_hw.cli.common.outputs import force_option, out_option
from lumion_hw.cli.common.progress import RunProgress
from lumion_hw.cli.snapshot import lock_options, locked_bench
from lumion_hw.errors import BusyError, ConfigError
from lumion_hw.files.json_text import json_text
from lumion_hw.files.writing import check_target, overwrite_policy, write_file

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from calibration.run.matrices import MatrixMeasurement
    from lumion_hw.bench.bench import Bench
    from lumion_hw.mesh.programming.matrix import MatrixSetting
    from lumion_hw.mesh.record.calibration_record import CalibrationRecord

_MAX_BYTES = 16 * 1024 * 1024
# Counting the reachable phases takes one solution of the mesh for each heater, twice.
_MANY_HEATERS = 600


@click.command()
@click.argument("bench_file", metavar="BENCH")
@click.option(
    "--matrix",
    "matrix_file",
    required=True,
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Matrix, outputs x inputs: a NumPy file (.npy), or text with one row per line, such as 0.6+0.8j 0.",
)
@click.option("--record", "record_file", required=True, metavar="RECORD", help="Calibration record of the mesh.")
@click.option("--inputs", metavar="PORTS", help="Ports of the columns, such as 0,1,2.  [default: where it fits best]")
@click.option("--outputs", metavar="PORTS", help="Ports of the rows; needed with --inputs.")
@click.option("--measure", is_flag=True, help="Measure the matrix on the chip.")
@click.option("--refine", is_flag=True, help="Measure, correct and measure again until nothing is gained.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1, 50), help="Most rounds of a refinement.")
@click.option(
    "--readings", default=200, show_default=True, type=click.IntRange(4, 100_000), help="Most readings per round."
)
@cli_drift.aged_option
@out_option("SVG file to write: target, result and difference.", "--picture")
@out_option("JSON file to write: currents, predicted and measured matrix.", "--out")
@force_option
@lock_options
@json_option
def program(
    bench_file: str,
    matrix_file: str,
    record_file: str,
    inputs: str | None,
    outputs: str | None,
    measure: bool,
    refine: bool,
    rounds: int,
    readings: int,
    aged_days: float,
    picture: Path | None,
    out: Path | None,
    force: bool,
    as_json: bool,
    **lock_arguments: Any,
) -> None:
    """Set the mesh of BENCH to a matrix, with the currents that RECORD predicts to be best.

    A matrix that the mesh cannot reach is replaced by the nearest one. On real hardware the heaters stay on after the
    command for --leave-on seconds; after an error they are off. Connected circuits are not interrupted.
    """
    from lumion_hw.storage import load_record

    overwrite = overwrite_policy(force)
    for target, description in ((picture, "picture"), (out, "matrix setting")):
        if target is not None:
            check_target(target, description, overwrite)
    wanted, record = read_matrix(Path(matrix_file)), load_record(Path(record_file))
    note_uncertified_record(record, "matrices")
    ports = _ports(inputs, "--inputs"), _ports(outputs, "--outputs")
    aged_s = cli_drift.aged_s(aged_days, lock_arguments["emulate"])
    with (
        locked_bench(bench_file, None, "lumion mesh program", as_json, lock_arguments, aged_s) as (bench, circuits),
        bench.dark(),
    ):
        if circuits:
            raise BusyError(
                f"programming a matrix would interrupt the connected circuits {', '.join(circuits)}",
                hint="Run `lumion disconnect --all` first.",
            )
        setting = _predicted(bench, record, wanted, *ports)
        history: list[MatrixMeasurement] = []
        if measure or refine:
            history = _measured(
                bench, record, setting, lock_arguments["seed"], rounds if refine else 0, readings, as_json
            )
            setting = history[-1].setting
        bench.mesh.program(setting.currents_ma)
    phases = _phases(record, setting)
    document = _document(setting, phases, history, record)
    if out is not None:
        write_file(out, "matrix setting", json_text(document, indent=1), overwrite)
    if picture is not None:
        write_file(picture, "picture", _drawing(setting, history), overwrite)
    if as_json:
        echo_json(document)
    else:
        echo_text("\n".join([*_lines(setting, phases, history), *_refinement(history, rounds if refine else 0)]))


def _predicted(
    bench: Bench,
    record: CalibrationRecord,
    wanted: NDArray[np.complex128],
    inputs: Sequence[int] | None,
    outputs: Sequence[int] | None,
) -> MatrixSetting:
    """Return the setting that the record predicts to be best; nothing is changed."""
    from calibration.run.matrices import heater_limits
    from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
    from lumion_hw.mesh.programming.matrix import program_matrix, source_detunings_hz

    bench.mesh.check_record(record)
    cli_drift.check_in_use(bench, record)
    return program_matrix(
        CalibratedMesh.from_record(record, bench.mesh.heater_max_ma),
        wanted,
        inputs=inputs,
        outputs=outputs,
        limits=heater_limits(bench),
        detunings_hz=source_detunings_hz(record),
    )


def _phases(record: CalibrationRecord, setting: MatrixSetting) -> tuple[int, int] | None:
    """Return how many phases the heaters set and how many a unitary has; ``None`` if this takes too long to count."""
    from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
    from lumion_hw.mesh.programming.matrix import reachable_phases

    calibrated = CalibratedMesh.from_record(record)
    if len(calibrated.max_ma) > _MANY_HEATERS or len(setting.inputs) != len(setting.outputs):
        return None
    return reachable_phases(calibrated, setting.inputs, setting.outputs)


def _drawing(setting: MatrixSetting, history: Sequence[MatrixMeasurement]) -> str:
    """Return the picture of the wanted matrix, and of the measured or the predicted one."""
    from lumion_hw.mesh.picture.matrices import matrices_svg
    from lumion_hw.mesh.programming.matrix import port_phases

    if history:
        rounds = [measurement.phase_true.value for measurement in history]
        return matrices_svg(setting.wanted, history[-1].matrix, "Matrix as measured", rounds)
    at_output, at_input = port_phases(setting.wanted, setting.matrix)
    return matrices_svg(setting.wanted, at_output[:, None] * setting.matrix * at_input, "Matrix as predicted")


def read_matrix(path: Path) -> NDArray[np.complex128]:
    """Read a matrix from a NumPy file or a text file.

    Raises:
        ConfigError: The file cannot be read, or contains no matrix of numbers.
    """
    import numpy as np

    hint = "Save it with numpy.save, or as text with one row per line and numbers such as 0.6+0.8j."
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigError(f"{path}: a matrix file of more than {_MAX_BYTES} bytes", hint=hint)
        if path.suffix == ".npy":
            matrix = np.load(path, allow_pickle=False)
        else:
            rows = [line.replace(",", " ").split() for line in path.read_text(encoding="utf-8").splitlines()]
            matrix = np.array([[complex(number.replace("i", "j")) for number in row] for row in rows if row])
        if matrix.ndim != 2 or matrix.dtype.kind not in "iufc":
            raise ValueError(f"it has the shape {matrix.shape} and the type {matrix.dtype}")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}", hint="Give the path of a matrix file.") from error
    except (ValueError, EOFError) as error:
        raise ConfigError(f"{path}: this is not a matrix: {error}", hint=hint) from error
    return np.asarray(matrix, dtype=np.complex128)


def _ports(text: str | None, option: str) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError as error:
        raise ConfigError(f"{option} {text!r} is no list of ports", hint="Give numbers such as 0,1,2,3.") from error


def _measured(
    bench: Bench,
    record: CalibrationRecord,
    setting: MatrixSetting,
    seed: int,
    rounds: int,
    readings: int,
    as_json: bool,
) -> list[MatrixMeasurement]:
    from calibration.run.matrices import measure_matrix, refine_matrix

    with RunProgress(None, quiet=as_json) as progress:
        options: dict[str, Any] = {"readings": readings, "seed": seed, "on_step": progress}
        if rounds:
            return refine_matrix(bench, record, setting, rounds=rounds, **options)
        return [measure_matrix(bench, record, setting, **options)]


def _lines(setting: MatrixSetting, phases: tuple[int, int] | None, history: Sequence[MatrixMeasurement]) -> list[str]:
    n_out, n_in = setting.wanted.shape
    reached = history[-1].phase_true if history else None
    verdict = f"measured fidelity {reached}" if reached else f"predicted fidelity {setting.fidelity:.5f}"
    lines = [f"{n_out} x {n_in} matrix on the mesh: {verdict}", ""]
    lines.append(f"inputs: ports {', '.join(map(str, setting.inputs))}")
    lines.append(f"outputs: ports {', '.join(map(str, setting.outputs))}")
    if phases is not None and phases[0] < phases[1]:
        lines.append(
            f"reach: heaters set {phases[0]} of {phases[1]} independent phases, so this is the nearest matrix that the "
            "mesh can make"
        )
    lines.append(
        f"predicted: fidelity {setting.fidelity:.5f}, loss {setting.loss_db:.2f} dB, heat {setting.heat_mw:.0f} mW"
    )
    if setting.ignores_port_phases:
        lines.append("phases at inputs and outputs are not set: power meters cannot see them")
    for number, measurement in enumerate(history):
        name = "measured" if not number else f"after round {number}"
        lines.append(
            f"{name}: fidelity {measurement.phase_true}, amplitude fidelity {measurement.amplitude} "
            f"({measurement.readings} readings)"
        )
    if history:
        worst = min(history[-1].columns, key=lambda fidelity: fidelity.value)
        lines.append(f"powers of the worst input: statistical fidelity {worst}")
        source = "measured by interference on the chip" if history[-1].phases_are_measured else "partly from the record"
        lines.append(f"phases: {source}, largest standard error {history[-1].phase_sigma_rad.max():.3f} rad")
    return lines


def _refinement(history: Sequence[MatrixMeasurement], rounds: int) -> list[str]:
    """Return how a refinement of at most ``rounds`` rounds ended, as a line of text; nothing without a refinement."""
    done = len(history) - 1
    if not rounds:
        return []
    if not done:
        return [
            "refinement: no round, because no correction would improve the light beyond the error of its measurement"
        ]
    end = "the limit of --rounds" if done == rounds else "another round would gain nothing"
    return [f"refinement: {done} {'round' if done == 1 else 'rounds'}; {end}"]


def _document(
    setting: MatrixSetting,
    phases: tuple[int, int] | None,
    history: Sequence[MatrixMeasurement],
    record: CalibrationRecord,
) -> dict[str, Any]:

    channels = record.heater_channels
    driven = [heater for heater, channel in enumerate(channels) if channel >= 0]
    return {
        "schema": "lumion-matrix-setting-1",
        "inputs": list(setting.inputs),
        "outputs": list(setting.outputs),
        "currents_ma": {str(channels[heater]): float(setting.currents_ma[heater]) for heater in driven},
        "heat_mw": setting.heat_mw,
        "loss_db": setting.loss_db,
        "predicted_fidelity": setting.fidelity,
        "ignores_port_phases": setting.ignores_port_phases,
        "reachable_phases": None if phases is None else list(phases),
        "wanted": _parts(setting.wanted),
        "predicted": _parts(setting.matrix),
        "measurements": [
            {
                "readings": measurement.readings,
                "fidelity": measurement.phase_true.value,
                "fidelity_sigma": measurement.phase_true.sigma,
                "amplitude_fidelity": measurement.amplitude.value,
                "amplitude_fidelity_sigma": measurement.amplitude.sigma,
                "statistical_fidelities": [column.value for column in measurement.columns],
                "powers": measurement.powers.tolist(),
                "powers_sigma": measurement.powers_sigma.tolist(),
                "matrix": _parts(measurement.matrix),
                "phase_sigma_rad": measurement.phase_sigma_rad.tolist(),
                "phases_are_measured": measurement.phases_are_measured,
            }
            for measurement in history
        ],
        "record_sha256": record.content_sha256,
    }


def _parts(matrix: NDArray[np.complex128]) -> dict[str, Any]:
    return {"real": matrix.real.tolist(), "imag": matrix.imag.tolist()}
