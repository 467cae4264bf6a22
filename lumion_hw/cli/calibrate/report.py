"""``lumion-calibrate report``: write a readable report of a calibration record, with figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.common.numbers import SEED
from lumion_hw.cli.common.output import echo_json, echo_text, json_option, note
from lumion_hw.cli.common.outputs import force_option, out_option

if TYPE_CHECKING:
    from calibration.report.numbers import Metric


def report_option(function: Any) -> Any:
    """Add ``--report FILE`` to a command that writes a calibration record."""
    text = "Report to write as well: FILE.html, or FILE.md with a folder of figures."
    return out_option(text, "--report", "report_file")(function)


@click.command()
@click.argument("record", type=click.Path(dir_okay=False))
@out_option("Report to write: FILE.html or FILE.md.  [default: RECORD.html]")
@force_option
@click.option(
    "--bench",
    "bench_file",
    help="Emulated bench that the record was measured on: also compare with its true parameters.",
)
@click.option("--seed", default=0, show_default=True, type=SEED, help="Random seed of the emulated bench.")
@json_option
def report(record: str, out: Path | None, force: bool, bench_file: str | None, seed: int, as_json: bool) -> None:
    """Write a report of a calibration record: key figures, goals, faults, range of validity, plots, all elements.

    The report is made from the record and the files beside it. An HTML report is one self-contained file; a Markdown
    report has its figures in a folder. Plots need matplotlib (the extra "plots"); maps of the mesh do not.
    """
    from calibration.report.summary import check_report_path, write_report
    from lumion_hw.files.writing import overwrite_policy

    path = Path(record)
    target = out or path.with_suffix(".html")
    check_report_path(target, overwrite_policy(force))
    truth = against_truth(path, bench_file, seed) if bench_file else []
    written = write_report(path, target, truth=truth, overwrite=overwrite_policy(force))
    if as_json:
        pictures = [str(path) for path in written.pictures]
        echo_json({"report": str(written.path), "pictures": pictures, "missing": list(written.missing)})
        return
    echo_text(f"Report: {written.path}")
    for part in written.missing:
        note(f"Not in the report: {part}.")


def against_truth(record_path: Path, bench_file: str, seed: int) -> list[Metric]:
    """Compare a calibration record with the true parameters of the emulated bench.

    Raises:
        CalibrationError: The file is not a calibration record, or belongs to another mesh.
    """
    from calibration.report.summary import load_readings
    from calibration.report.truth_errors import truth_metrics
    from lumion_hw.bench.bench import Bench
    from lumion_hw.storage import load_record

    loaded = load_record(record_path)
    readings, _ = load_readings(loaded, record_path)
    fitted = None if readings is None else readings.observations[~readings.swept]
    with Bench.emulate(bench_file, seed=seed) as bench, bench.dark():
        bench.mesh.check_record(loaded)
        return truth_metrics(bench, loaded, fitted)
