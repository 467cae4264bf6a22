"""``lumion-calibrate run``: calibrate a bench, or resume an interrupted calibration."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lumion_hw.cli.calibrate.goal import goal_of, goal_options, goal_words
from lumion_hw.cli.calibrate.output import conclude
from lumion_hw.cli.calibrate.report import report_option
from lumion_hw.cli.calibrate.wavelengths import wavelengths_option
from lumion_hw.cli.common.numbers import TOLERANCE_DB
from lumion_hw.cli.common.opening import bench_options, open_bench
from lumion_hw.cli.common.output import json_option, note
from lumion_hw.cli.common.outputs import force_option, out_option
from lumion_hw.errors import CalibrationError

if TYPE_CHECKING:
    from lumion_hw.cli.common.progress import RunProgress
    from lumion_hw.files.writing import Over
    from lumion_hw.mesh.record.calibration_record import CalibrationRecord


@click.command("run")
@click.argument("bench_file", metavar="BENCH")
@bench_options
@out_option("Path of the record; default: calibration-<serial>.json.")
@force_option
@click.option("--resume", is_flag=True, help="Resume an interrupted run from its journal.")
@click.option(
    "--tolerance-db",
    type=TOLERANCE_DB,
    help="Largest acceptable held-out rms error above noise, in dB; exit code 3 above.",
)
@goal_options
@wavelengths_option
@report_option
@json_option
def run_command(
    bench_file: str,
    emulate: bool,
    seed: int,
    endpoints: str | None,
    out: Path | None,
    force: bool,
    resume: bool,
    tolerance_db: float | None,
    sigma_mrad: float | None,
    seconds: float | None,
    settings: int | None,
    wavelengths: tuple[float, ...],
    report_file: Path | None,
    as_json: bool,
) -> int:
    """Measure heater laws, phases, losses and crosstalk, and write the calibration record.

    Raw readings and the journal of the run are stored next to the record. After an interruption (Ctrl-C, SIGTERM, lost
    connection, full disk) heaters and light are off and the record is marked as incomplete; --resume continues the run.
    Exit code 3 if the record is out of tolerance, misses the required standard error, or contains faults; the record is
    written in any case.
    """
    from calibration.report.summary import check_report_path
    from calibration.run.journaled_run import calibrate
    from calibration.run.verification import out_of_tolerance
    from lumion_hw.cli.common.progress import RunProgress
    from lumion_hw.files.writing import check_target, over
    from lumion_hw.polarization import Aligner

    if report_file:
        check_report_path(report_file, over(force))
    if out:
        check_target(out, "the calibration record", over(force))
    with open_bench(bench_file, emulate, seed, endpoints) as bench, bench.dark():
        serial = re.sub(r"[^A-Za-z0-9._-]+", "_", bench.mesh.controller.info.serial)
        path = out or Path(f"calibration-{serial}.json")
        bench.events.write_to(path.with_suffix(".events.jsonl"))
        wanted = goal_words(sigma_mrad, seconds, settings)
        command = _command(bench_file, emulate, seed, endpoints, path, wavelengths, wanted)
        progress = RunProgress(emulate, quiet=as_json)
        try:
            with progress:
                record = calibrate(
                    bench,
                    Aligner(bench.clock),
                    seed,
                    path,
                    progress,
                    resume=resume,
                    command=f"{command} --resume" if resume else command,
                    wavelengths_nm=wavelengths,
                    goal=goal_of(sigma_mrad, seconds, settings),
                    judge=lambda record: out_of_tolerance(record, tolerance_db),
                    over=over(force),
                )
        except BaseException:
            _print_resume_command(path, progress, command, resumed=resume)
            raise
    return _report_result(record, path, report_file, over(force), as_json)


def _report_result(record: CalibrationRecord, path: Path, report_file: Path | None, over: Over, as_json: bool) -> int:
    """Print the result, write the report if requested, and return the exit code."""
    from calibration.report.summary import calibration_summary, calibration_text, write_report

    summary = calibration_summary(record)
    document, text = {"record": str(path), **summary}, f"{calibration_text(record)}\n\nRecord: {path}"
    if report_file:
        written = write_report(path, report_file, over=over).path
        document, text = document | {"report": str(written)}, f"{text}\nReport: {written}"
    return conclude(document, text, _failure(record, path), as_json)


def _failure(record: CalibrationRecord, path: Path) -> CalibrationError | None:
    """Return the failure message for a record with faults."""
    if not record.faults:
        return None
    return CalibrationError(
        f"{len(record.faults)} faults were found: {'; '.join(record.faults)}.",
        hint=f"All other elements are calibrated; the record is in {path}.",
    )


def _command(
    bench_file: str,
    emulate: bool,
    seed: int,
    endpoints: str | None,
    path: Path,
    wavelengths_nm: Sequence[float],
    wanted: Sequence[str],
) -> str:
    """Return the command line of this run."""
    words = ["lumion-calibrate", "run", bench_file]
    words += ["--emulate"] if emulate else []
    words += ["--endpoints", endpoints] if endpoints else []
    words += ["--wavelengths", ",".join(f"{nm:.10g}" for nm in wavelengths_nm)] if wavelengths_nm else []
    return shlex.join([*words, *wanted, "--seed", str(seed), "--out", str(path)])


def _print_resume_command(path: Path, progress: RunProgress, command: str, *, resumed: bool) -> None:
    """Print how far the run came, and the command to resume or restart it."""
    from calibration.run.journaled_run import journal_path

    if not progress.stage:
        return
    if progress.stage == "alignment" and not resumed:
        note(
            f"lumion-calibrate: stopped at: {progress.where()}. Heaters and light are off; nothing was measured yet. "
            f"Start again with:\n  {command}"
        )
        return
    note(
        f"lumion-calibrate: stopped at: {progress.where()}. Heaters and light are off; the measured data are in "
        f"{journal_path(path)}. Resume with:\n  {command} --resume"
    )
