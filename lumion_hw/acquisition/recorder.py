"""Reading at a steady rate into a journal: rows that cannot be kept up with are left out and counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lumion_hw.acquisition.columns import Reader
from lumion_hw.acquisition.journal import LogJournal, LogRow, columns_of
from lumion_hw.clock import Clock
from lumion_hw.errors import ConfigError

_SYNC_S = 0.2
"""Longest time a row waits to be acknowledged."""


@dataclass(frozen=True)
class Recording:
    """What became of a recording.

    Attributes:
        rows: Rows acknowledged, of this and earlier sittings.
        missed: Rows of this sitting that were due while the one before was still being read.
        failed: Values of this sitting that could not be read.
    """

    rows: int
    missed: int
    failed: int


def record(
    reader: Reader,
    journal: LogJournal,
    clock: Clock,
    *,
    progress: Callable[[int], None] = lambda acknowledged: None,
    stop: Callable[[], bool] = lambda: False,
) -> Recording:
    """Record the rows that are left of a journal's plan.

    Rows are due at whole periods after the first one. An interruption (``stop``, or an exception such as
    ``KeyboardInterrupt``) leaves everything read so far acknowledged.

    Args:
        reader: Reads the columns.
        journal: Where they go; its last row says where to go on.
        clock: The bench's clock.
        progress: Told the number of acknowledged rows whenever it grows.
        stop: Asked before every row.

    Raises:
        ConfigError: The journal has other columns.
        LumionError: The disk is full or failed; what was acknowledged is safe.
    """
    if reader.columns != journal.header.columns:
        raise ConfigError(
            f"the log has the channels {columns_of(journal.header.columns)}, not {columns_of(reader.columns)}",
            hint="Go on with the same bench and channels, or begin another log.",
        )
    first, period_s = journal.last_index + 1, journal.header.period_s
    origin_s = clock.now() - first * period_s
    synced_s, missed, failed, index = clock.now(), 0, 0, first
    try:
        while index < journal.header.n_rows and not stop():
            clock.sleep(max(origin_s + index * period_s - clock.now(), 0.0))
            time_s = clock.now() - origin_s
            values = reader.read()
            failed += sum(value.state.name == "FAILED" for value in values)
            journal.append(LogRow(index, time_s, tuple(values)))
            if clock.now() - synced_s >= _SYNC_S:
                synced_s = clock.now()
                progress(journal.sync())
            due = max(index + 1, int((clock.now() - origin_s) / period_s + 1e-9))
            missed += min(due, journal.header.n_rows) - index - 1
            index = due
    finally:
        progress(journal.sync())
    return Recording(journal.acknowledged, missed, failed)
