"""What a server that watches joined meshes shows: circuits, benches, the last change, and alarms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lumion_hw.errors import ConfigError, ConnectError
from lumion_hw.joined import JoinedStatus, JoinedWatch, joined_status, load_joined
from lumion_hw.joined.benches import BenchCircuits
from lumion_hw.joined.journal import JoinedChange, JoinedHistory, JoinedJournal, read_joined
from tests.joined.two_racks import FILE, JOINED

NAME = "rack0:sfp-a:rack1:sfp-b"
CHANGE = JoinedChange("racks-1-abc", "connect", (NAME,), {}, "2026-11-29T23:00:00Z")
KEPT = JoinedHistory((NAME,), CHANGE, "kept", "2026-11-29T23:00:05Z", number=1)
# A fibre from rack0 to the spine and one from the spine to rack1, from the file that the tests share.
UP = next(fibre for fibre in FILE.fibres if (fibre.start.bench, fibre.end.bench) == ("rack0", "spine"))
DOWN = next(fibre for fibre in FILE.fibres if (fibre.start.bench, fibre.end.bench) == ("spine", "rack1"))


def circuit(name: str, margin_db: float | None = None, *marks: str, broken: bool = False) -> dict[str, Any]:
    return {"circuit": name, "margin_db": margin_db, "received_dbm": None, "marks": list(marks), "broken": broken}


def benches(**changes: Any) -> dict[str, BenchCircuits | str]:
    """Return two racks and a spine with one circuit over all of them."""
    segments = {
        "rack0": circuit(f"sfp-a:port{UP.start.port}", 9.0),
        "spine": circuit(f"port{UP.end.port}:port{DOWN.start.port}", 8.0),
        "rack1": circuit(f"port{DOWN.end.port}:sfp-b", 7.5),
    }
    complete: dict[str, BenchCircuits | str] = {name: BenchCircuits((each,)) for name, each in segments.items()}
    return complete | changes


def alarms(status: JoinedStatus) -> list[tuple[str, str, str]]:
    return [(alarm.severity, alarm.subject, alarm.condition) for alarm in status.alarms]


def test_a_complete_circuit_has_its_margin_and_no_alarm() -> None:
    status = joined_status(FILE, benches(), KEPT)
    (link,) = status.circuits
    assert (link.name, link.margin_db, link.severity) == (NAME, 7.5, "none")
    assert (status.alarms, status.severity, status.min_margin_db) == ((), "none", 7.5)
    assert [(bench.name, bench.problem, bench.circuits) for bench in status.benches] == [
        ("rack0", "", 1), ("spine", "", 1), ("rack1", "", 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"spine": BenchCircuits()}, "bench spine has no segment"),
        ({"rack0": BenchCircuits()}, "bench rack0 has no segment"),
        ({"rack1": BenchCircuits((circuit(f"port{DOWN.end.port}:sfp-b", None, "broken: no light", broken=True),))},
         "rack1: broken: no light"),
        ({name: BenchCircuits() for name in FILE.benches}, "no bench has a segment of it"),
    ],
    ids=["gap", "no start", "dark", "all gone"],
)  # fmt: skip
def test_a_lost_circuit_is_one_major_alarm_with_its_name_and_the_reason(changes: Any, problem: str) -> None:
    status = joined_status(FILE, benches(**changes), KEPT)
    assert alarms(status) == [("major", f"joined circuit {NAME}", "lost")]
    assert problem in status.alarms[0].reason
    assert [(link.name, link.margin_db) for link in status.circuits] == [(NAME, None)]


def test_a_bench_that_does_not_answer_is_a_major_alarm_and_so_are_its_circuits() -> None:
    status = joined_status(FILE, benches(spine="the connection was lost"), KEPT)
    assert alarms(status) == [
        ("major", f"joined circuit {NAME}", "lost"), ("major", "bench spine", "not reachable"),
    ]  # fmt: skip
    assert status.severity == "major"
    assert [bench.name for bench in status.benches if bench.problem] == ["spine"]


def test_a_warning_of_one_bench_is_minor() -> None:
    marked = BenchCircuits((circuit(f"port{DOWN.end.port}:sfp-b", 2.0, "degraded: 3 dB"),))
    assert alarms(joined_status(FILE, benches(rack1=marked), KEPT)) == [("minor", f"joined circuit {NAME}", "degraded")]


def test_a_running_change_is_no_alarm_and_an_abandoned_one_is() -> None:
    history = JoinedHistory(unfinished=CHANGE, number=1)
    half = benches(rack1=BenchCircuits(prepared=CHANGE.name))
    assert alarms(joined_status(FILE, half, history, is_changing=True)) == []
    none = {name: BenchCircuits() for name in FILE.benches}
    assert alarms(joined_status(FILE, none, history)) == [("minor", f"change {CHANGE.name}", "not finished")]


def test_a_change_elsewhere_does_not_hide_a_lost_circuit() -> None:
    other = benches(spine=BenchCircuits(prepared="racks-9-def"))
    assert alarms(joined_status(FILE, other, KEPT)) == [("major", f"joined circuit {NAME}", "lost")]


def test_a_circuit_inside_one_bench_is_not_shown() -> None:
    inside = BenchCircuits((circuit("sfp-a:sfp-b", 5.0, "degraded: 3 dB"),))
    assert joined_status(FILE, {"rack0": inside}, JoinedHistory()).circuits == ()


def test_the_journal_tells_which_circuits_should_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_joined(tmp_path) == JoinedHistory()
    second = JoinedChange("racks-2-abc", "connect", ("rack1:sfp-a:rack0:sfp-b",), {}, "2026-11-29T23:01:00Z")
    removal = JoinedChange("racks-3-abc", "disconnect", (NAME,), {}, "2026-11-29T23:02:00Z")
    with JoinedJournal(tmp_path, "racks") as journal:
        journal.begin(CHANGE)
        assert read_joined(tmp_path).unfinished == CHANGE
        journal.decide()
        journal.end("kept")
        journal.begin(second)
        journal.end("undone: no light")
        assert read_joined(tmp_path).circuits == (NAME,)
        assert read_joined(tmp_path).summary() == "connect 1 circuit (racks-2-abc): undone: no light"
        # A journal that has become too large begins again and knows the same.
        monkeypatch.setattr("lumion_hw.storage.line_journal.RESTART_BYTES", 0)
        journal.begin(second)
        journal.end("kept")
    with JoinedJournal(tmp_path, "racks") as journal:
        assert journal.history == read_joined(tmp_path)
        assert (journal.history.circuits, journal.next_number) == ((NAME, *second.circuits), 4)
        journal.begin(removal)
        journal.end("disconnected")
    assert read_joined(tmp_path).circuits == second.circuits


def test_every_bench_is_asked_and_a_dead_one_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = tmp_path / "joined.yaml"
    text = JOINED.read_text(encoding="utf-8")
    for number, name in enumerate(FILE.benches):
        entry = FILE.benches[name]
        assert entry.bench is not None
        text = text.replace(f"{{bench: {entry.bench}, record: {entry.record}", f'{{address: "pva://127.0.0.1:{number}"')
    served.write_text(text, encoding="utf-8")
    closed: list[str] = []

    class Connection:
        def __init__(self, address: str) -> None:
            if address.endswith(":0"):
                raise ConnectError("no bench is served at this address", address=address)
            self.address = address

        def call(self, device: str, method: str) -> dict[str, Any]:
            assert (device, method) == ("", "joined_circuits")
            return {"circuits": [], "prepared": None}

        def close(self) -> None:
            closed.append(self.address)

    monkeypatch.setattr("lumion_hw.remote.client.PvaConnection", Connection)
    status = JoinedWatch(load_joined(served), tmp_path).look()
    problems = [bench.problem for bench in status.benches]
    assert "no bench is served at this address" in problems[0]
    assert problems[1:] == ["", ""]
    (tmp_path / "joined.jsonl").write_text("no journal\n", encoding="utf-8")
    status = JoinedWatch(load_joined(served), tmp_path).look()
    assert ("minor", "journal of joined circuits", "not readable") in alarms(status)


def test_a_file_with_a_bench_that_is_not_served_is_refused() -> None:
    with pytest.raises(ConfigError, match="bench rack0 has no address, so it cannot be watched"):
        JoinedWatch(FILE)
