"""``lumion-calibrate many``: calibrate several benches in parallel, on this computer or on a cluster."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.common.numbers import SEED, TOLERANCE_DB
from lumion_hw.cli.common.output import echo_json, echo_table, json_option, note

if TYPE_CHECKING:
    from calibration.run.bench_jobs import BenchOutcome

_HEADERS = ("bench", "state", "held out dB", "settings", "hardware s", "wall s", "record or reason")
_INTERRUPTED, _TERMINATED, _OUT_OF_TOLERANCE = 130, 143, 3


@click.command()
@click.argument("bench_files", metavar="BENCH...", nargs=-1, required=True)
@click.option(
    "--out", required=True, type=click.Path(file_okay=False), help="Directory for the records, one per bench."
)
@click.option(
    "--workers", type=click.IntRange(1, 1024), help="Number of benches to calibrate in parallel.  [default: all cores]"
)
@click.option("--scheduler", metavar="HOST:PORT", help="Scheduler of a trusted dask cluster to use.")
@click.option("--emulate", is_flag=True, help="Emulate the benches, on virtual time.")
@click.option(
    "--seed",
    default=0,
    show_default=True,
    type=SEED,
    help="Random seed of the first bench; each further bench uses the next integer.",
)
@click.option(
    "--tolerance-db", type=TOLERANCE_DB, help="Largest rms error on new settings (reading noise subtracted), in dB."
)
@json_option
def many(
    bench_files: tuple[str, ...],
    out: str,
    workers: int | None,
    scheduler: str | None,
    emulate: bool,
    seed: int,
    tolerance_db: float | None,
    as_json: bool,
) -> int:
    """Calibrate several benches in parallel, each like `run`, and write their records to the directory --out.

    If one bench fails, the others continue. Ctrl-C stops all benches, switches heaters and light off, and saves the
    results so far. The exit code is 3 if a bench is out of tolerance, the code of the failure if a bench failed, or 1
    for different failures.
    """
    import os

    from calibration.run.bench_jobs import calibrate_benches, jobs_for
    from calibration.run.cluster import calibrate_on_cluster
    from lumion_hw.files.writing import writing

    directory = Path(out).absolute()
    jobs = jobs_for(bench_files, directory, emulate, seed, tolerance_db)
    with writing("to", directory):
        directory.mkdir(parents=True, exist_ok=True)
    if scheduler is None:
        ended = calibrate_benches(jobs, min(workers or os.cpu_count() or 1, len(jobs)), note)
    else:
        ended = calibrate_on_cluster(jobs, scheduler, workers, note)
    code = exit_code_of(ended.outcomes)
    if ended.interruption is not None:
        code = _TERMINATED if isinstance(ended.interruption, SystemExit) else _INTERRUPTED
    if as_json:
        echo_json({"benches": [dataclasses.asdict(outcome) for outcome in ended.outcomes], "exit_code": code})
    else:
        echo_table("Benches", _HEADERS, [_row(outcome) for outcome in ended.outcomes])
    return code


def exit_code_of(outcomes: tuple[BenchOutcome, ...]) -> int:
    """Return the exit code for failed benches: their common code, 1 if codes differ, 3 if only out of tolerance."""
    codes = {outcome.exit_code for outcome in outcomes} - {0}
    failures = codes - {_OUT_OF_TOLERANCE}
    if not failures:
        return max(codes, default=0)
    return failures.pop() if len(failures) == 1 else 1


def _row(outcome: BenchOutcome) -> list[Any]:
    def figure(name: str, digits: str) -> str | None:
        value = outcome.figures.get(name)
        return None if value is None else f"{value:{digits}}"

    return [
        outcome.name,
        outcome.state,
        figure("held_out_rms_db", ".3f"),
        figure("settings", ".0f"),
        figure("hardware_s", ".1f"),
        f"{outcome.wall_s:.1f}",
        outcome.error or "; ".join(outcome.faults) or outcome.record,
    ]
