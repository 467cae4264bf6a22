"""The ``lumion-calibrate`` command: run, show and verify calibrations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.opening import bench_options, open_bench
from lumion_hw.cli.output import echo_json, echo_table, error_document, json_option, note, paragraph
from lumion_hw.errors import CalibrationError, ConfigError, LumionError

if TYPE_CHECKING:
    from lumion_hw.bench.bench import Bench


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code, as for ``lumion``; 3 means out of tolerance."""
    from lumion_hw.cli import run

    return run(calibrate, "lumion-calibrate", args)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def calibrate() -> None:
    """Calibrate the mesh of a bench from light at its ports, and judge the result.

    BENCH is the path of a bench file, or the name of a built-in bench such as lumion-prototype.
    """


def conclude(document: dict[str, Any], text: str, failure: LumionError | None, as_json: bool) -> int:
    """Print a result that is there even if it does not pass, and return the exit code.

    With ``--json`` result and failure are one document: stdout holds exactly one.
    """
    if as_json:
        echo_json(document if failure is None else document | error_document(failure, failure.exit_code))
    else:
        click.echo(text)
    if failure is None:
        return 0
    note(f"lumion-calibrate: {paragraph(failure)}")
    return failure.exit_code


@calibrate.command("run")
@click.argument("bench_file", metavar="BENCH")
@bench_options
@click.option("--out", type=click.Path(dir_okay=False), help="The record; calibration-<serial>.json if not given.")
@json_option
def run_command(
    bench_file: str, emulate: bool, seed: int, endpoints: str | None, out: str | None, as_json: bool
) -> int:
    """Measure heater laws, passive phases and losses, and write the calibration record.

    An interrupted run switches the heaters off and leaves a record marked incomplete with all that was found.
    """
    from calibration.demo import StageBars
    from calibration.report import calibration_summary, calibration_text
    from calibration.story import calibrate as calibrate_bench
    from lumion_hw.circuits import Aligner

    with open_bench(bench_file, emulate, seed, endpoints) as bench, bench.dark():
        serial = re.sub(r"[^A-Za-z0-9._-]+", "_", bench.mesh.controller.info.serial)
        path = Path(out or f"calibration-{serial}.json")
        bench.events.write_to(path.with_suffix(".events.jsonl"))
        with StageBars() as bars:
            record = calibrate_bench(bench, Aligner(bench.clock), seed, path, bars)
    summary = calibration_summary(record)
    failure = None
    if record.faults:
        failure = CalibrationError(
            f"{len(record.faults)} faults were found: {'; '.join(record.faults)}.",
            hint=f"The rest is calibrated; the record is in {path}.",
        )
    text = f"{calibration_text(summary)}\n\nRecord: {path}"
    return conclude({"record": str(path), **summary}, text, failure, as_json)


@calibrate.command()
@click.argument("record", type=click.Path(dir_okay=False))
@json_option
def show(record: str, as_json: bool) -> None:
    """Print what a calibration record says."""
    from calibration.report import calibration_summary, calibration_text
    from lumion_hw.mesh.record import CalibrationRecord

    loaded = CalibrationRecord.load(Path(record))
    if as_json:
        echo_json({"record": record, **calibration_summary(loaded)})
        return
    click.echo(f"{calibration_text(calibration_summary(loaded))}\n")
    rows: list[list[object]] = []
    for puc, entry in enumerate(loaded.pucs):
        laws = [heater.law for heater in (entry.upper, entry.lower)]
        phases = [None if law is None else f"{law.max_phase_rad:.2f}" for law in laws]
        passive, sigma = entry.passive_phase_rad, entry.passive_phase_sigma_rad
        rows.append(
            [
                puc,
                None if passive is None else f"{passive:+.3f}",
                None if sigma is None else f"{sigma * 1e3:.0f}",
                f"{entry.loss_db:.3f}",
                *phases,
                entry.note,
            ]
        )
    echo_table("PUCs", ("PUC", "passive rad", "± mrad", "loss dB", "upper reach rad", "lower reach rad", "note"), rows)


@calibrate.command()
@click.argument("bench_file", metavar="BENCH")
@click.argument("record", type=click.Path(dir_okay=False))
@bench_options
@click.option("--tolerance-db", default=0.5, show_default=True, type=float, help="Largest rms error that passes.")
@click.option("--against-truth", is_flag=True, help="Compare with an emulated bench's hidden truth as well.")
@json_option
def verify(
    bench_file: str,
    record: str,
    emulate: bool,
    seed: int,
    endpoints: str | None,
    tolerance_db: float,
    against_truth: bool,
    as_json: bool,
) -> int:
    """Predict light on settings that were never measured, and compare. Exit code 3 when out of tolerance."""
    from calibration.bench_probe import BenchProbe
    from calibration.verification import rms_db
    from calibration.verification import verify as verify_record
    from lumion_hw.mesh.record import CalibrationRecord

    loaded = CalibrationRecord.load(Path(record))
    if against_truth and not emulate:
        raise ConfigError("--against-truth needs --emulate: only an emulated bench knows its truth")
    with open_bench(bench_file, emulate, seed, endpoints) as bench, bench.dark():
        bench.mesh.check_record(loaded)
        probe = BenchProbe(bench)
        probe.align_all()
        results = verify_record(probe, loaded, seed + 1)
        document: dict[str, Any] = {"record": record, "paths": len(results), "tolerance_db": tolerance_db}
        if not results:
            raise CalibrationError("no path could be judged", hint="Check light and monitors.")
        document |= {
            "held_out_rms_db": rms_db(results),
            "held_out_worst_db": max(abs(result.error_db) for result in results),
        }
        if against_truth:
            document |= _truth_document(bench, loaded)
    failure = None
    if document["held_out_rms_db"] > tolerance_db:
        failure = CalibrationError(
            f"held-out error {document['held_out_rms_db']:.2f} dB rms, tolerance {tolerance_db:.2f} dB.",
            hint="Calibrate again.",
        )
    lines = (
        f"{name.replace('_', ' ')}: {f'{value:.4g}' if isinstance(value, float) else value}"
        for name, value in document.items()
    )
    return conclude(document, "\n".join(lines), failure, as_json)


def _truth_document(bench: Bench, record: Any) -> dict[str, Any]:
    """Return the comparison with the hidden truth."""
    import numpy as np

    from calibration.against_truth import compare

    report = compare(bench, record)
    return {
        "phase_error_rms_rad": float(np.sqrt((report.phase_error_rad**2).mean())),
        "phase_error_worst_rad": float(np.abs(report.phase_error_rad).max()),
        "loss_error_rms_db": float(np.sqrt((report.loss_error_db**2).mean())),
        "states_short_of_30_db": report.shortfalls(),
    }
