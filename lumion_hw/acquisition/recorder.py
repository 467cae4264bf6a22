"""Recording at a fixed rate into a journal. Rows that would be late are skipped and counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lumion_hw.acquisition.columns import Reader, State
from lumion_hw.acquisition.journal import LogJournal, LogRow, columns_of
from lumion_hw.clock import Clock
from lumion_hw.errors import ConfigError

_SYNC_S = 0.2
"""Longest time until a row is on disk and acknowledged."""


@dataclass(frozen=True)
class Recording:
    """Result of a recording.

    Attributes:
        rows: Number of rows safe on the disk, of this and earlier runs.
        missed: Number of rows of this run that were skipped because reading took too long.
        failed: Number of values of this run that could not be read.
        without_signal: Channels that were read but had no number in any row of this run, with their last state.
    """

    rows: int
    missed: int
    failed: int
    without_signal: Mapping[str, State] = field(default_factory=dict)


def record(
    reader: Reader,
    journal: LogJournal,
    clock: Clock,
    *,
    progress: Callable[[int], None] = lambda acknowledged: None,
    stop: Callable[[], bool] = lambda: False,
) -> Recording:
    """Record rows at a fixed rate until the journal is complete.

    If ``stop`` or an exception ends the recording, the rows read so far are safe on the disk.

    Args:
        reader: Reader of the columns.
        journal: The journal; recording continues after its last row.
        clock: Clock of the bench.
        progress: Called with the number of rows on the disk whenever it increases.
        stop: Called before every row; the recording ends when it returns true.

    Raises:
        ConfigError: The journal has other columns than the reader.
        LumionError: The disk is full or failed; rows already on the disk are safe.
    """
    if reader.columns != journal.header.columns:
        raise ConfigError(
            f"the log has the channels {columns_of(journal.header.columns)}, not {columns_of(reader.columns)}",
            hint="Continue with the same bench and channels, or start a new log.",
        )
    first, period_s = journal.last_index + 1, journal.header.period_s
    origin_s = clock.now() - first * period_s
    synced_s, missed, failed, index = clock.now(), 0, 0, first
    dark = dict.fromkeys((column.name for column in reader.columns), State.NOT_READ)
    try:
        while index < journal.header.n_rows and not stop():
            clock.sleep(max(origin_s + index * period_s - clock.now(), 0.0))
            time_s = clock.now() - origin_s
            values = reader.read()
            failed += sum(value.state is State.FAILED for value in values)
            dark = {
                column.name: value.state
                for column, value in zip(reader.columns, values, strict=True)
                if column.name in dark and value.state not in (State.OK, State.FAILED)
            }
            journal.append(LogRow(index, time_s, tuple(values)))
            if clock.now() - synced_s >= _SYNC_S:
                synced_s = clock.now()
                progress(journal.sync())
            due = max(index + 1, int((clock.now() - origin_s) / period_s + 1e-9))
            missed += min(due, journal.header.n_rows) - index - 1
            index = due
    finally:
        progress(journal.sync())
    return Recording(journal.acknowledged, missed, failed, dark)
