"""The event log: one JSON object per line, on disk as it happens, and never lost silently."""

import errno
import json
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lumion_hw.bench.events
from lumion_hw.bench.events import EventLog
from lumion_hw.clock import VirtualClock
from lumion_hw.errors import ConfigError, LinkLost, LumionError
from lumion_hw.files.writing import writing


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(start_s=1000.0)


@pytest.fixture
def log(clock: VirtualClock) -> Iterator[EventLog]:
    opened = EventLog(clock)
    yield opened
    opened.close()


@pytest.fixture
def full_disk() -> Iterator[None]:
    """No file may grow beyond 100 bytes: a full disk, as far as this process can tell."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_events_carry_the_time_since_the_log_began(log: EventLog, clock: VirtualClock, tmp_path: Path) -> None:
    log.write_to(tmp_path / "events.jsonl")
    log.add("opened")
    clock.sleep(1.25)
    log.add("closed", devices=8)
    assert lines(tmp_path / "events.jsonl") == [
        {"bench_s": 0.0, "event": "opened"},
        {"bench_s": 1.25, "event": "closed", "devices": 8},
    ]


def test_events_before_there_is_a_file_are_written_first(log: EventLog, clock: VirtualClock, tmp_path: Path) -> None:
    log.add("opened")
    clock.sleep(2.0)
    log.write_to(tmp_path / "new" / "directory" / "events.jsonl")
    log.add("calibrated")
    assert [line["event"] for line in lines(tmp_path / "new" / "directory" / "events.jsonl")] == [
        "opened",
        "calibrated",
    ]


def test_every_line_is_on_disk_as_soon_as_it_happened(log: EventLog, tmp_path: Path) -> None:
    log.write_to(tmp_path / "events.jsonl")
    for count in range(1, 4):
        log.add("measured", puc=count)
        assert len(lines(tmp_path / "events.jsonl")) == count  # the file is not closed yet


def test_data_cannot_change_the_time_or_the_name_of_an_event(log: EventLog, tmp_path: Path) -> None:
    log.write_to(tmp_path / "events.jsonl")
    log.add("calibrated", **{"bench_s": 99.0, "settings": 7.0})
    assert lines(tmp_path / "events.jsonl") == [{"bench_s": 0.0, "event": "calibrated", "settings": 7.0}]


def test_numbers_and_arrays_of_numpy_stay_numbers(log: EventLog, tmp_path: Path) -> None:
    log.write_to(tmp_path / "events.jsonl")
    log.add("measured", puc=np.int64(3), dark=np.bool_(True), power=np.float32(0.5), trace=np.arange(3), at=Path("x"))
    (line,) = lines(tmp_path / "events.jsonl")
    assert line["puc"] == 3
    assert line["dark"] is True
    assert line["power"] == 0.5
    assert line["trace"] == [0, 1, 2]
    assert line["at"] == "x"


def test_a_later_run_writes_behind_an_earlier_one(clock: VirtualClock, tmp_path: Path) -> None:
    for run in (1, 2):
        log = EventLog(clock)
        log.write_to(tmp_path / "events.jsonl")
        log.add("run", number=run)
        log.close()
    assert [line["number"] for line in lines(tmp_path / "events.jsonl")] == [1, 2]


def test_a_line_torn_by_a_crash_does_not_tear_the_next_one(log: EventLog, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"bench_s": 0.0, "event": "opened"}\n{"bench_s": 1.0, "ev')
    log.write_to(path)
    log.add("opened")
    first, torn, last = path.read_text().splitlines()
    assert (json.loads(first)["event"], json.loads(last)["event"]) == ("opened", "opened")
    assert torn == '{"bench_s": 1.0, "ev'


def test_a_log_may_move_to_another_file(log: EventLog, tmp_path: Path) -> None:
    log.write_to(tmp_path / "first.jsonl")
    log.add("one")
    log.write_to(tmp_path / "second.jsonl")
    log.add("two")
    assert [line["event"] for line in lines(tmp_path / "first.jsonl")] == ["one"]
    assert [line["event"] for line in lines(tmp_path / "second.jsonl")] == ["two"]


def test_events_after_closing_are_kept_for_the_next_file(log: EventLog, tmp_path: Path) -> None:
    log.write_to(tmp_path / "first.jsonl")
    log.close()
    log.close()
    log.add("late")
    log.write_to(tmp_path / "second.jsonl")
    assert [line["event"] for line in lines(tmp_path / "second.jsonl")] == ["late"]


def test_words_of_any_language_survive(log: EventLog, tmp_path: Path) -> None:
    log.write_to(tmp_path / "events.jsonl")
    log.add("proof", circuit="sfp-a → sfp-b", note="ångström\nnewline")
    assert lines(tmp_path / "events.jsonl")[0]["note"] == "ångström\nnewline"


def test_a_path_where_no_file_can_be_is_named(log: EventLog) -> None:
    with pytest.raises(ConfigError, match=r"cannot write the event log /dev/null/events\.jsonl: .* another path"):
        log.write_to(Path("/dev/null/events.jsonl"))
    log.add("still alive")


@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_is_told_once_and_nothing_is_lost(log: EventLog, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log.write_to(path)
    log.add("first", text="x" * 40)
    with pytest.raises(
        LumionError, match=r"cannot write the event log .*events\.jsonl: File too large\. Free some disk space"
    ):
        log.add("second", text="y" * 40)
    log.add("third")  # kept in memory: whoever is cleaning up is not hit a second time
    log.close()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit[1], limit[1]))
    log.write_to(tmp_path / "elsewhere.jsonl")
    assert [line["event"] for line in lines(tmp_path / "elsewhere.jsonl")] == ["second", "third"]
    assert json.loads(path.read_text().splitlines()[0])["event"] == "first"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO])
def test_a_disk_without_room_is_a_failure_not_a_mistake(number: int) -> None:
    with (
        pytest.raises(LumionError, match=r"cannot write the report there: .*Free some disk space") as caught,
        writing("the report", Path("there")),
    ):
        raise OSError(number, os.strerror(number))
    assert caught.value.exit_code == 1


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG])
def test_a_path_that_cannot_be_written_is_the_callers_mistake(number: int) -> None:
    with pytest.raises(ConfigError, match="Choose another path") as caught, writing("the report", Path("there")):
        raise OSError(number, os.strerror(number))
    assert caught.value.exit_code == 2


def test_a_link_that_fails_while_a_file_is_open_stays_a_link_error() -> None:
    lost = LinkLost("unplugged")  # an OSError as well, by its family
    with pytest.raises(LinkLost) as caught, writing("the report", Path("there")):
        raise lost
    assert caught.value is lost


def test_a_file_that_has_grown_is_set_aside_and_no_event_is_lost_between(tmp_path: Path) -> None:
    events, path = EventLog(VirtualClock()), tmp_path / "events.jsonl"
    events.write_to(path, max_bytes=1000)
    for number in range(30):
        events.add("set", number=number)
    events.close()
    old, new = (each.read_text().splitlines() for each in (path.with_name("events.jsonl.old"), path))
    numbers = [json.loads(line)["number"] for line in old + new]
    assert numbers == list(range(numbers[0], 30))
    assert max(map(len, ("\n".join(old), "\n".join(new)))) < 1200


def test_who_gives_no_file_has_the_newest_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lumion_hw.bench.events, "_MAX_IN_MEMORY", 5)
    events, path = EventLog(VirtualClock()), tmp_path / "events.jsonl"
    for number in range(8):
        events.add("set", number=number)
    events.write_to(path)
    events.close()
    assert [json.loads(line)["number"] for line in path.read_text().splitlines()] == [3, 4, 5, 6, 7]
