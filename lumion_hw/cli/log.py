"""``lumion log``: record readings of a bench at a fixed rate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lumion_hw.cli.common.numbers import MAX_DURATION_D, Duration, Number
from lumion_hw.cli.common.opening import bench_options, channels_option, devices_with, open_bench
from lumion_hw.cli.common.output import echo_json, echo_text, json_option, note, progress, table
from lumion_hw.cli.common.outputs import out_option
from lumion_hw.errors import ConfigError, IdentityError, LumionError

if TYPE_CHECKING:
    from lumion_hw.acquisition import LogHeader, LogJournal, Reader
    from lumion_hw.acquisition.recorder import Recording
    from lumion_hw.bench.bench import Bench

_MAX_LISTED = 4
"""Largest number of channels without signal that are listed by name."""


@click.command()
@click.argument("bench_file", metavar="BENCH")
@bench_options
@channels_option("record")
@click.option(
    "--rate", default=1.0, show_default=True, type=Number("1/s", 0.0, 10_000.0, above=True), help="Rows per second."
)
@click.option(
    "--for",
    "duration_s",
    default="10s",
    show_default=True,
    type=Duration(),
    help=f"Duration, such as 30s, 2h or 7d; at most {MAX_DURATION_D}d.",
)
@out_option("HDF5 file to write.", default="readings.h5")
@click.option("--record", metavar="RECORD", help="Calibration record whose ID is written into the HDF5 file.")
@click.option("--resume", is_flag=True, help="Continue an interrupted log.")
@click.option("--list", "only_list", is_flag=True, help="List all channels and exit.")
@json_option
@click.pass_context
def log(
    context: click.Context,
    bench_file: str,
    emulate: bool,
    seed: int,
    endpoints: str | None,
    channels: tuple[str, ...],
    rate: float,
    duration_s: float,
    out: Path,
    record: str | None,
    resume: bool,
    only_list: bool,
    as_json: bool,
) -> None:
    """Record channels of BENCH to an HDF5 file.

    During the recording, the rows are in a journal (OUT.journal). The progress counts rows that are safe on disk; after
    a power failure, --resume continues after the last of them. At the end the HDF5 file is written. BENCH is the path
    of a bench file or the name of a built-in bench.
    """
    from lumion_hw.acquisition.columns import Reader
    from lumion_hw.acquisition.hdf5 import write_hdf5
    from lumion_hw.files.hdf5 import require_hdf5
    from lumion_hw.files.writing import check_target

    n_rows = _n_rows(duration_s, rate)
    journal_path = out.with_name(out.name + ".journal")
    if not only_list:
        require_hdf5()
        check_target(out, "the recording", overwrite="nothing")
    with open_bench(bench_file, emulate, seed, endpoints, devices_with(bench_file, channels)) as bench:
        reader = Reader(bench, channels or ("*",))
        if only_list:
            _print_channels(reader, as_json)
            return
        header = _header(bench, reader, bench_file, rate, n_rows, record)
        with _journal(journal_path, header, resume) as journal:
            recording = _record(bench, reader, journal)
    n_written = write_hdf5(journal_path, out)
    journal_path.unlink()
    _report(recording, reader, out, n_written, rate, as_json)
    if recording.failed:
        context.exit(LumionError.exit_code)


def _record(bench: Bench, reader: Reader, journal: LogJournal) -> Recording:
    """Record the remaining rows, with a progress bar."""
    from lumion_hw.acquisition.recorder import record as record_rows

    with progress(journal.header.n_rows, "rows") as bar:

        def advance(acknowledged: int) -> None:
            bar.update(acknowledged - bar.pos)

        advance(journal.acknowledged)
        return record_rows(reader, journal, bench.clock, progress=advance)


def _report(recording: Recording, reader: Reader, out: Path, n_written: int, rate: float, as_json: bool) -> None:
    if recording.missed:
        note(f"{recording.missed} rows were skipped, because reading took longer than {1.0 / rate:g} s")
    document = {"file": str(out), "rows": n_written, "missed": recording.missed, "failed_values": recording.failed}
    if as_json:
        without_signal = {name: state.name for name, state in recording.without_signal.items()}
        names = [column.name for column in reader.columns]
        echo_json(document | {"channels": names, "without_signal": without_signal})
    else:
        echo_text(f"{out}: {n_written} rows of {len(reader.columns)} channels")
    if recording.without_signal:
        note(_without_signal_text(recording, len(reader.columns)))
    if recording.failed:
        note(f"{recording.failed} values could not be read; the file contains NaN with state 4 (failed) for them.")


def _without_signal_text(recording: Recording, n_columns: int) -> str:
    texts = [f"{name} ({state.name})" for name, state in recording.without_signal.items()]
    listed = ", ".join(texts[:_MAX_LISTED]) + (f" and {len(texts) - _MAX_LISTED} more" if texts[_MAX_LISTED:] else "")
    return (
        f"{len(texts)} of {n_columns} channels had no signal in any row, so the file contains NaN for them: {listed}. "
        "Check that the light is on and connected."
    )


def _n_rows(duration_s: float, rate: float) -> int:
    """Return the number of rows. Raises ``ConfigError`` if it is too large for a recording."""
    from lumion_hw.acquisition.journal import MAX_ROWS

    n_rows = max(round(duration_s * rate), 1)
    if n_rows > MAX_ROWS:
        raise ConfigError(
            f"{n_rows} rows requested; a log has at most {MAX_ROWS}", hint="Choose a lower rate or a shorter time."
        )
    return n_rows


def _header(bench: Bench, reader: Reader, bench_file: str, rate: float, n_rows: int, record: str | None) -> LogHeader:
    from lumion_hw.acquisition.journal import log_header
    from lumion_hw.bench.file.loader import builtin_names, builtin_path
    from lumion_hw.storage.record_files import load_record

    path = builtin_path(bench_file) if bench_file in builtin_names() and not Path(bench_file).exists() else bench_file
    loaded = None if record is None else load_record(Path(record))
    return log_header(bench, reader, period_s=1.0 / rate, n_rows=n_rows, bench_file=path, record=loaded)


def _journal(path: Path, header: LogHeader, resume: bool) -> LogJournal:
    from lumion_hw.acquisition.journal import LogJournal

    if not resume:
        return LogJournal.create(path, header)
    journal = LogJournal.resume(path)
    for name, identity in journal.header.devices.items():
        if name in header.devices and identity.contradicts(header.devices[name]):
            journal.close()
            raise IdentityError(
                f"the log in {path} was started with another device: {identity}; this bench has {header.devices[name]}",
                device=name,
                hint="Start a new log.",
            )
    if journal.lost_bytes:
        note(f"{path}: removed an incomplete row at the end ({journal.lost_bytes} bytes)")
    return journal


def _print_channels(reader: Reader, as_json: bool) -> None:
    if as_json:
        echo_json({"channels": [{"name": column.name, "unit": column.unit} for column in reader.columns]})
    else:
        echo_text(table(("channel", "unit"), [(column.name, column.unit) for column in reader.columns]))
