"""``lumion-calibrate run``: calibrate a bench, or resume an interrupted calibration."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.calibrate.goal import goal_arguments, goal_of, goal_options
from lumion_hw.cli.calibrate.operator import operator_of
from lumion_hw.cli.calibrate.output import report_result
from lumion_hw.cli.calibrate.part import part_arguments, part_of, part_options, record_to_join
from lumion_hw.cli.calibrate.report import report_option
from lumion_hw.cli.calibrate.wavelengths import wavelengths_option
from lumion_hw.cli.common.bench_notes import print_bench_notes
from lumion_hw.cli.common.numbers import TOLERANCE_DB
from lumion_hw.cli.common.opening import bench_options, open_bench
from lumion_hw.cli.common.output import echo_text, json_option, note
from lumion_hw.cli.common.outputs import force_option, out_option
from lumion_hw.errors import CalibrationError

if TYPE_CHECKING:
    from lumion_hw.bench.bench import Bench
    from lumion_hw.cli.common.progress import RunProgress
    from lumion_hw.files.writing import Overwrite
    from lumion_hw.mesh.record.calibration_record import CalibrationRecord


@click.command("run")
@click.argument("bench_file", metavar="BENCH")
@bench_options
@out_option("Calibration record to write.  [default: calibration-<serial>.json]")
@force_option
@click.option("--resume", is_flag=True, help="Continue an interrupted run from its journal.")
@click.option(
    "--tolerance-db",
    type=TOLERANCE_DB,
    help="Largest accepted rms error on new settings (reading noise subtracted), in dB; above it the exit code is 3.",
)
@part_options
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
    pucs: str | None,
    circuit: str | None,
    join: str | None,
    wavelengths: tuple[float, ...],
    report_file: Path | None,
    as_json: bool,
    **limits: Any,
) -> int:
    """Measure heater laws, phases, losses and crosstalk of BENCH, and write the calibration record.

    The raw readings and the journal of the run are written beside the record. If a run is interrupted (Ctrl-C, SIGTERM,
    lost link, full disk), heaters and light are switched off and the record is marked incomplete; --resume continues
    the run. If fibres are moved by hand, a terminal waits for each plugging; without one, the run stops there and
    continues with --resume. If the record is out of tolerance, misses the target standard error or contains faults, it
    is still written and the exit code is 3.

    A part of the mesh (--pucs, --circuit) can be calibrated alone if its light passes no other PUC. With --join, the
    record keeps the values of another record for all other PUCs.
    """
    from calibration.run.journaled_run import calibrate
    from calibration.run.verification import out_of_tolerance
    from lumion_hw.cli.common.progress import RunProgress
    from lumion_hw.files.writing import overwrite_policy
    from lumion_hw.polarization import Aligner

    _check_targets(out, report_file, overwrite_policy(force))
    with open_bench(bench_file, emulate, seed, endpoints) as bench, bench.dark():
        path = out or _default_path(bench)
        bench.events.write_to(path.with_suffix(".events.jsonl"))
        print_bench_notes(bench.model)
        part, base_record = part_of(bench, pucs, circuit, join), record_to_join(bench, join)
        goal = [*part_arguments(pucs, circuit, join), *goal_arguments(**limits)]
        command = _command(bench_file, emulate, seed, endpoints, path, wavelengths, goal)
        with _progress_until_stopped(RunProgress(emulate, quiet=as_json), path, command, resumed=resume) as progress:
            record = calibrate(
                bench,
                Aligner(bench.clock),
                seed,
                path,
                progress,
                resume=resume,
                command=f"{command} --resume" if resume else command,
                wavelengths_nm=wavelengths,
                goal=goal_of(**limits),
                find_faults=lambda record: out_of_tolerance(record, tolerance_db),
                overwrite=overwrite_policy(force),
                on_plug=operator_of(bench, emulate),
                part=part,
                join=base_record,
            )
    return _report(record, path, report_file, overwrite_policy(force), as_json)


def _check_targets(out: Path | None, report_file: Path | None, overwrite: Overwrite) -> None:
    from calibration.report.summary import check_report_path
    from lumion_hw.files.writing import check_target

    if report_file:
        check_report_path(report_file, overwrite)
    if out:
        check_target(out, "the calibration record", overwrite)


def _default_path(bench: Bench) -> Path:
    serial = re.sub(r"[^A-Za-z0-9._-]+", "_", bench.mesh.controller.info.serial)
    return Path(f"calibration-{serial}.json")


@contextlib.contextmanager
def _progress_until_stopped(progress: RunProgress, path: Path, command: str, *, resumed: bool) -> Iterator[RunProgress]:
    """Show the progress of a run; if the run is interrupted, print how to resume it."""
    try:
        with progress:
            yield progress
    except BaseException:
        _note_how_to_resume(path, progress, command, resumed=resumed)
        raise


def _report(
    record: CalibrationRecord, path: Path, report_file: Path | None, overwrite: Overwrite, as_json: bool
) -> int:
    from calibration.report.headline import headline
    from calibration.report.summary import calibration_summary, write_report

    document = {"record": str(path), **calibration_summary(record)}
    if report_file and as_json:
        document["report"] = str(write_report(path, report_file, overwrite=overwrite).path)
    text = f"{headline(record).text()}\n\nRecord: {path}"
    code = report_result(document, text, _failure(record, path), as_json)
    if report_file and not as_json:  # its plots take seconds, so the result is printed first
        echo_text(f"Report: {write_report(path, report_file, overwrite=overwrite).path}")
    return code


def _failure(record: CalibrationRecord, path: Path) -> CalibrationError | None:
    from calibration.report.headline import headline

    if not record.faults:
        return None
    count = len(headline(record).faults)
    found = f"found {count} {'fault' if count == 1 else 'faults'}" if count else "is not certified for every use"
    return CalibrationError(
        f"the calibration {found}; see the summary above.",
        hint=f"Everything else is calibrated; the record is {path}.",
    )


def _command(
    bench_file: str,
    emulate: bool,
    seed: int,
    endpoints: str | None,
    path: Path,
    wavelengths_nm: Sequence[float],
    goal: Sequence[str],
) -> str:
    parts = ["lumion-calibrate", "run", bench_file]
    parts += ["--emulate"] if emulate else []
    parts += ["--endpoints", endpoints] if endpoints else []
    parts += ["--wavelengths", ",".join(f"{nm:.10g}" for nm in wavelengths_nm)] if wavelengths_nm else []
    return shlex.join([*parts, *goal, "--seed", str(seed), "--out", str(path)])


def _note_how_to_resume(path: Path, progress: RunProgress, command: str, *, resumed: bool) -> None:
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
        f"lumion-calibrate: stopped at: {progress.where()}. Heaters and light are off; all readings are in "
        f"{journal_path(path)}. Continue with:\n  {command} --resume"
    )
