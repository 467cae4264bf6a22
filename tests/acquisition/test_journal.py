"""The log file: rows that were acknowledged are there, whatever happened afterwards."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from lumion_hw.acquisition.columns import FAILED, Column, State, Value
from lumion_hw.acquisition.journal import LogHeader, LogJournal, LogRow, read_journal
from lumion_hw.errors import ConfigError, LumionError
from tests.effort import examples
from tests.full_disk import room
from tests.waiting import Bound

COLUMNS = (Column("meter0.power.1", "meter0", "W"), Column("sfp-a.temperature_c", "sfp-a", "°C"))
HEADER = LogHeader("small", COLUMNS, 0.5, 100, "2026-11-20T12:00:00.000+00:00")


def row(index: int) -> LogRow:
    return LogRow(index, 0.5 * index, (Value(State.OK, 1e-6 * index), FAILED if index % 3 else Value(State.DARK)))


def written(path: Path, n: int) -> None:
    with LogJournal.create(path, HEADER) as journal:
        for index in range(n):
            journal.append(row(index))
        assert journal.sync() == n


def same(found: LogRow, expected: LogRow) -> bool:
    pairs = zip(found.values, expected.values, strict=True)
    return (found.index, found.time_s) == (expected.index, expected.time_s) and all(
        a.state is b.state and (a.number == b.number or (math.isnan(a.number) and math.isnan(b.number)))
        for a, b in pairs
    )


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    written(tmp_path / "log", 7)
    header, rows = read_journal(tmp_path / "log")
    assert header == HEADER
    assert len(rows) == 7
    assert all(same(found, row(index)) for index, found in enumerate(rows))


@examples(60)
@given(cut=st.integers(0, 200))
def test_a_file_cut_anywhere_keeps_the_rows_before_and_goes_on_behind_them(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("cut") / "log"
    written(path, 5)
    data = path.read_bytes()
    head, length = len(HEADER.line()), 4 + 8 + 2 * 8 + 2 + 4
    kept = head + min(cut, 5 * length)
    path.write_bytes(data[:kept])
    with LogJournal.resume(path) as journal:
        whole = min(cut, 5 * length) // length
        assert (journal.acknowledged, journal.last_index) == (whole, whole - 1)
        assert journal.lost_bytes == min(cut, 5 * length) - whole * length
        journal.append(row(whole))
        assert journal.sync() == whole + 1
    _, rows = read_journal(path)
    assert [found.index for found in rows] == list(range(whole + 1))


def test_a_damaged_row_ends_what_is_believed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    written(path, 5)
    data = bytearray(path.read_bytes())
    data[len(HEADER.line()) + 2 * 34 + 5] ^= 1
    path.write_bytes(bytes(data))
    assert [found.index for found in read_journal(path)[1]] == [0, 1]


def test_a_row_counts_as_acknowledged_only_after_the_sync(tmp_path: Path) -> None:
    with LogJournal.create(tmp_path / "log", HEADER) as journal:
        journal.append(row(0))
        assert journal.acknowledged == 0
        assert journal.sync() == journal.acknowledged == 1


def test_an_existing_log_is_not_overwritten(tmp_path: Path) -> None:
    written(tmp_path / "log", 1)
    with pytest.raises(ConfigError, match="--resume"):
        LogJournal.create(tmp_path / "log", HEADER)
    assert len(read_journal(tmp_path / "log")[1]) == 1


@pytest.mark.parametrize(
    "content", [b"", b"no newline", b"{}\n", b'{"format": "lumion-log 9"}\n', b"\xff\xfe\n", b"[1]\n"]
)
def test_another_file_is_no_log_and_stays_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"is not a journal of this program|is not JSON"):
        LogJournal.resume(path)
    assert path.read_bytes() == content


def test_a_log_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="missing"):
        LogJournal.resume(tmp_path / "missing")


def test_a_full_disk_is_said_and_what_was_acknowledged_stays(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with Path("/dev/full").open("wb", buffering=0) as full:
        journal = LogJournal(tmp_path / "log", HEADER, full)
        with pytest.raises(LumionError, match="Free some disk space"):
            journal.append(row(0))
        assert journal.acknowledged == 0


def test_no_room_for_the_header_leaves_no_file_behind(tmp_path: Path) -> None:
    with room(10), pytest.raises(LumionError, match="Free some disk space"):
        LogJournal.create(tmp_path / "log", HEADER)
    assert not (tmp_path / "log").exists()
    LogJournal.create(tmp_path / "log", HEADER).close()


_WRITER = """
import sys
from pathlib import Path
from lumion_hw.acquisition.columns import Column, State, Value
from lumion_hw.acquisition.journal import LogHeader, LogJournal, LogRow

header = LogHeader("small", (Column("a.b", "a", "W"),), 1.0, 10**6, "now")
journal = LogJournal.create(Path(sys.argv[1]), header)
for index in range(10**6):
    journal.append(LogRow(index, float(index), (Value(State.OK, 1.0),)))
    if index % 7 == 0:
        print(journal.sync(), flush=True)
"""


def test_killed_at_any_moment_no_acknowledged_row_is_missing(tmp_path: Path, not_for_ever: Bound) -> None:
    path = tmp_path / "log"
    process = subprocess.Popen([sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    not_for_ever(process)
    assert process.stdout is not None
    for _ in range(50):
        assert process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    said = [int(line) for line in process.stdout if line.strip().isdigit()]
    process.stdout.close()
    process.wait(10.0)
    _, rows = read_journal(path)
    assert len(rows) >= max(said, default=50)
    assert [found.index for found in rows] == list(range(len(rows)))
