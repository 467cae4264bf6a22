"""A line journal: acknowledged entries survive a crash, a full disk and a damaged last line."""

import gc
import json
import tracemalloc
from pathlib import Path

import pytest

from lumion_hw.errors import ConfigError, LumionError
from lumion_hw.storage import line_journal
from lumion_hw.storage.line_journal import LineJournal, read_lines
from tests.full_disk import room

HEADER = {"entry": "header", "bench": "small"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "circuits.jsonl"


def journal(path: Path, **header: str) -> LineJournal:
    return LineJournal(path, "the journal", HEADER | header)


def entries(path: Path) -> list[object]:
    return [entry.get("x") for entry in read_lines(path, "the journal").entries]


def test_what_was_appended_is_read_in_order(path: Path) -> None:
    with journal(path) as first:
        first.append({"x": 1})
    with journal(path) as second:
        assert [entry.get("x") for entry in second.take_existing_entries()] == [None, 1]
        second.append({"x": (2, "ä")})
    assert entries(path) == [None, 1, [2, "ä"]]


def test_each_line_is_a_checksum_and_a_document_of_json(path: Path) -> None:
    with journal(path) as opened:
        opened.append({"x": 1})
    assert path.read_bytes().splitlines()[1] == b'5dc4e6a5 {"n":1,"x":1}'  # as the trailer of `gzip` has it


@pytest.mark.parametrize("left", [1, 5, 9, 20])
def test_a_line_that_was_never_finished_is_kept_aside_and_cut_off(path: Path, left: int) -> None:
    with journal(path) as opened:
        opened.append({"x": 1})
    whole = path.read_bytes()
    path.write_bytes(whole + b'12345678 {"n":2,"x":2}'[:left])
    assert entries(path) == [None, 1]  # reading changes nothing
    assert path.stat().st_size == len(whole) + left
    with journal(path) as again:
        again.append({"x": 3})
    assert entries(path) == [None, 1, 3]
    assert path.with_name(path.name + ".torn").read_bytes() == b'12345678 {"n":2,"x":2}'[:left] + b"\n"


def test_every_damaged_byte_of_a_whole_line_is_an_error_that_names_the_line_and_changes_nothing(path: Path) -> None:
    with journal(path) as opened:
        opened.append({"x": 1})
        opened.append({"x": 2})
    whole = path.read_bytes()
    first, second = len(whole.splitlines(True)[0]), len(b"".join(whole.splitlines(True)[:2]))
    for place in range(first, second - 1):
        damaged = whole[:place] + bytes([whole[place] ^ 0x01]) + whole[place + 1 :]
        path.write_bytes(damaged)
        with pytest.raises(ConfigError, match=r"damaged: line 2 of .*Restore it from a backup"):
            journal(path)
        assert path.read_bytes() == damaged


def test_a_line_that_is_missing_in_the_middle_is_damage(path: Path) -> None:
    with journal(path) as opened:
        opened.append({"x": 1})
        opened.append({"x": 2})
    lines = path.read_bytes().splitlines(True)
    path.write_bytes(lines[0] + lines[2])
    with pytest.raises(ConfigError, match="damaged: line 2 of 2"):
        journal(path)


def test_a_full_disk_costs_nothing_that_was_there_and_room_made_is_used(path: Path) -> None:
    with journal(path) as opened:
        opened.append({"x": 1})
        before = path.read_bytes()
        with room(len(before) + 10), pytest.raises(LumionError, match="cannot write the journal"):
            opened.append({"x": "y" * 1000})
        assert path.read_bytes() == before
        opened.append({"x": 2})
    assert entries(path) == [None, 1, 2]


def test_a_journal_of_another_bench_is_refused(path: Path) -> None:
    journal(path).close()
    with pytest.raises(ConfigError, match="belongs to bench 'small', not to 'large'"):
        journal(path, bench="large")


def test_one_that_has_grown_begins_anew_and_the_old_one_stays(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_journal, "RESTART_BYTES", 200)
    with journal(path) as opened:
        for number in range(20):
            opened.append({"x": number})
            opened.restart_if_large({"x": number})
        opened.append({"x": "last"})
    assert entries(path)[-1] == "last"
    assert entries(path)[0] is None
    assert path.stat().st_size < 400
    assert len(read_lines(path.with_name(path.name + ".old"), "the journal").entries) > 3


def test_who_writes_for_days_holds_nothing_of_it_in_memory(path: Path) -> None:
    with journal(path) as opened:
        opened.append({"x": 0})
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        for number in range(50):
            opened.append({"x": "y" * 10_000, "number": number})
        held = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
    assert held < 100_000, "entries that were written are kept"


def test_a_closed_journal_says_so(path: Path) -> None:
    opened = journal(path)
    opened.close()
    with pytest.raises(ConfigError, match="closed"):
        opened.append({"x": 1})


def test_not_a_number_is_never_written(path: Path) -> None:
    with journal(path) as opened:
        with pytest.raises(ConfigError, match=r"proof.readings\[1\] is nan"):
            opened.append({"proof": {"readings": [1.0, float("nan")]}})
        opened.append({"x": 1})
    assert json.dumps(entries(path)) == "[null, 1]"


def complete(path: Path) -> list[object]:
    """Return what a journal says in which each entry with an x contains all that earlier ones say."""
    return [entry.get("x") for entry in read_lines(path, "the journal", lambda entry: "x" in entry).entries]


@pytest.mark.parametrize(("number", "place", "left"), [(2, 20, [None, 1, 3]), (1, -1, [None, 3])])
def test_damage_before_the_last_entry_that_says_everything_is_left_out(
    path: Path, number: int, place: int, left: list[object]
) -> None:
    """In the middle of a line, or at its end, which makes two lines one."""
    with journal(path) as opened:
        for x in (1, 2, 3):
            opened.append({"x": x})
    lines = path.read_bytes().splitlines(True)
    damaged = bytearray(lines[number])
    damaged[place] = ord("?")
    lines[number] = bytes(damaged)
    path.write_bytes(b"".join(lines))
    assert complete(path) == left


def test_a_journal_with_a_damaged_line_is_continued_with_the_next_number(path: Path) -> None:
    with journal(path) as opened:
        for number in (1, 2, 3):
            opened.append({"x": number})
    damaged = path.read_bytes().replace(b'"x":1', b'"x":7')
    path.write_bytes(damaged)
    with LineJournal(path, "the journal", HEADER, lambda entry: "x" in entry) as again:
        again.append({"x": 4})
    assert path.read_bytes().startswith(damaged)
    assert complete(path) == [None, 2, 3, 4]


@pytest.mark.parametrize("line", [0, 3])
def test_a_damaged_header_or_last_entry_is_an_error(path: Path, line: int) -> None:
    with journal(path) as opened:
        for number in (1, 2, 3):
            opened.append({"x": number})
    lines = path.read_bytes().splitlines(True)
    lines[line] = lines[line].replace(b'"n"', b'"m"')
    path.write_bytes(b"".join(lines))
    with pytest.raises(ConfigError, match=rf"damaged: line {line + 1} of 4"):
        complete(path)


def test_a_damaged_end_of_the_last_line_is_damage_and_no_line_that_was_never_finished(path: Path) -> None:
    with journal(path) as opened:
        opened.append({"x": 1})
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(ConfigError, match="damaged: line 2 of 2"):
        journal(path)
