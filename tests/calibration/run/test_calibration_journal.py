"""The journal keeps every answer whatever ends the run, and is believed only where it is whole."""

from __future__ import annotations

import json
import multiprocessing
import os
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibration.measure.logbook import LogbookEntry
from calibration.run.journal import JournalHeader, RunJournal, read_journal
from lumion_hw.errors import BusyError, CalibrationError, ConfigError, LumionError
from tests.full_disk import room
from tests.waiting import PATIENCE_S

HEADER = JournalHeader("S-1", "board", "1.0", "aa", "bb", "cc", 7, "lumion-hw 0", 1550.0, (1, 6), {11: "dark"})


def entry(number: int) -> LogbookEntry:
    rng = np.random.default_rng(number)
    answer = rng.standard_normal((2, 3))
    answer[0, 1] = np.nan
    return LogbookEntry("settings", 6, rng.uniform(0.0, 2.0, (2, 4)), answer, 0.1 * number)


def begun(path: Path, header: JournalHeader = HEADER) -> RunJournal:
    journal = RunJournal.begin(path)
    journal.write_header(header)
    return journal


def written(path: Path, entries: int = 3) -> Path:
    journal = begun(path)
    for number in range(entries):
        journal.add(entry(number))
    journal.close()
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record.journal"


def test_every_bit_comes_back_and_whose_run_it_was(path: Path) -> None:
    contents = read_journal(written(path))
    assert contents.header == HEADER
    for number, there in enumerate(contents.entries):
        wanted = entry(number)
        assert (there.kind, there.source, there.at_s) == (wanted.kind, wanted.source, wanted.at_s)
        assert there.currents_ma.tobytes() == wanted.currents_ma.tobytes()
        np.testing.assert_array_equal(there.answer, wanted.answer)
    assert not contents.finished


def test_an_entry_is_in_the_file_as_soon_as_it_is_added(path: Path) -> None:
    journal = begun(path)
    journal.add(entry(0))
    assert len(read_journal(path).entries) == 1
    journal.close()


def test_a_torn_last_line_is_dropped_wherever_it_tore(path: Path) -> None:
    whole = written(path).read_bytes()
    start = whole[:-1].rindex(b"\n") + 1
    for end in range(start, len(whole), 7):
        path.write_bytes(whole[:end])
        contents = read_journal(path)
        assert len(contents.entries) == 2
        assert contents.size == start


def test_what_a_power_failure_leaves_behind_the_last_line_is_dropped(path: Path) -> None:
    whole = written(path).read_bytes()
    path.write_bytes(whole + bytes(4096))
    assert len(read_journal(path).entries) == 3


def test_a_run_goes_on_behind_what_was_torn(path: Path) -> None:
    whole = written(path).read_bytes()
    path.write_bytes(whole[:-20])
    journal = RunJournal.resume(path)
    assert len(journal.entries) == 2
    journal.add(entry(2))
    journal.close()
    assert path.read_bytes() == whole


@pytest.mark.parametrize("line", [0, 1, 2])
def test_a_line_damaged_in_the_middle_is_named(path: Path, line: int) -> None:
    lines = written(path).read_bytes().split(b"\n")
    offset = sum(len(each) + 1 for each in lines[:line])
    lines[line] = lines[line][:30] + b"x" + lines[line][31:]
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(CalibrationError, match=rf"line {line + 1} \(byte {offset}\) is damaged"):
        read_journal(path)


def test_a_line_that_is_missing_is_damage(path: Path) -> None:
    lines = written(path, 4).read_bytes().split(b"\n")
    path.write_bytes(b"\n".join(lines[:2] + lines[3:]))
    with pytest.raises(CalibrationError, match="line 3"):
        read_journal(path)


@pytest.mark.parametrize("content", [b"", b"\n", b"hello\n", b"{}"])
def test_what_is_no_journal_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(CalibrationError, match="is empty"):
        read_journal(path)


def test_without_a_journal_there_is_nothing_to_go_on_from(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no journal to resume.*without --resume"):
        RunJournal.resume(path)


def test_a_finished_run_is_not_gone_on_with(path: Path) -> None:
    journal = RunJournal.resume(written(path))
    journal.note("finished")
    journal.close()
    with pytest.raises(CalibrationError, match="is already finished"):
        RunJournal.resume(path)


def test_a_journal_in_use_is_refused_in_this_process_and_in_others(path: Path) -> None:
    journal = RunJournal.resume(written(path))
    for opened in (lambda: RunJournal.resume(path), lambda: RunJournal.begin(path)):
        with pytest.raises(BusyError, match="in use by another process"):
            opened()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply_async(_refused, (path,)).get(timeout=PATIENCE_S)
    assert len(read_journal(path).entries) == 3
    journal.close()
    RunJournal.resume(path).close()


def _refused(path: Path) -> bool:
    try:
        RunJournal.resume(path)
    except BusyError:
        return True
    return False


def test_a_new_run_keeps_the_readings_of_one_that_was_cut_short_aside(path: Path) -> None:
    before = written(path).read_bytes()
    begun(path, replace(HEADER, seed=8)).close()
    assert path.with_name("record.old.journal").read_bytes() == before
    assert read_journal(path).header.seed == 8
    assert read_journal(path).entries == ()


def test_a_run_cut_short_before_it_has_a_header_leaves_what_was_there_and_else_nothing(path: Path) -> None:
    RunJournal.begin(path).close()
    assert not path.exists()
    before = written(path).read_bytes()
    RunJournal.begin(path).close()
    assert path.read_bytes() == before
    assert not path.with_name("record.old.journal").exists()


def test_a_new_run_replaces_the_journal_of_one_that_was_finished(path: Path) -> None:
    journal = RunJournal.resume(written(path))
    journal.note("finished")
    journal.close()
    begun(path).close()
    assert not path.with_name("record.old.journal").exists()


def test_a_full_disk_is_said_and_what_was_written_stays_whole(path: Path) -> None:
    journal = begun(path)
    journal.add(entry(0))
    with (
        room(path.stat().st_size + 50),
        pytest.raises(LumionError, match=r"cannot write the journal.*Free some disk space"),
    ):
        journal.add(entry(1))
    assert len(read_journal(path).entries) == 1
    journal.add(entry(1))  # once there is room again
    journal.close()
    assert [each.at_s for each in read_journal(path).entries] == [0.0, 0.1]


def test_its_hash_is_that_of_the_file(path: Path) -> None:
    import hashlib

    journal = RunJournal.resume(written(path))
    assert journal.sha256() == hashlib.sha256(path.read_bytes()).hexdigest()
    journal.close()


@pytest.mark.parametrize("name", ["at_s", "asked_hz"])
def test_nan_in_an_entry_with_the_right_checksum_is_refused_by_name(path: Path, name: str) -> None:
    lines = written(path).read_bytes().splitlines(keepends=True)
    document = json.loads(lines[2].partition(b" ")[2]) | {name: float("nan")}
    text = json.dumps(document, separators=(",", ":")).encode()
    path.write_bytes(b"".join([*lines[:2], b"%08x %s\n" % (zlib.crc32(text), text)]))
    with pytest.raises(CalibrationError, match=rf"record\.journal: line 3: {name} is NaN"):
        read_journal(path)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (replace(entry(1), currents_ma=np.full((2, 4), np.nan)), "currents_ma holds NaN"),
        (replace(entry(1), answer=np.full((2, 3), np.inf)), "answer is infinite"),
        (replace(entry(1), answer=np.zeros((5, 3))), "5 answers for 2 settings"),
        (replace(entry(1), answer=np.zeros(3)), "shape"),
    ],
)
def test_an_answer_that_no_bench_gives_is_refused_by_name(path: Path, bad: LogbookEntry, words: str) -> None:
    journal = begun(path)
    journal.add(bad)
    journal.close()
    with pytest.raises(CalibrationError, match=words):
        read_journal(path)


@pytest.mark.parametrize(("name", "value"), [("sources", 7), ("dead", {"x": 1}), ("stated_hz", {"1": "fast"})])
def test_a_header_of_other_types_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(CalibrationError, match=f"not a valid header of a lumion-calibration-journal: {name}"):
        JournalHeader.of(json.loads(json.dumps(HEADER.document())) | {name: value})


def test_what_is_no_file_is_no_journal(path: Path) -> None:
    os.mkfifo(path)
    for opened in (RunJournal.begin, RunJournal.resume, read_journal):
        with pytest.raises(ConfigError, match="not a file"):
            opened(path)
