"""The status document of a fabric: conditions, alarms, and the last recovery of a journal."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import pytest

from lumion_hw.bench.bench import load
from lumion_hw.bench.file.model import BenchModel
from lumion_hw.fabric import FabricState, FabricStatus, Span, fabric_status, last_recovery
from lumion_hw.fabric.standby import StandbyStatus
from lumion_hw.fabric.status import FabricStatusMemo

MANAGER = "lumion serve of ada@lab3:4711"
COLD = "no path from port 35 to port 34"
JOB = ["sfp-s0n0:sfp-s1n0", "sfp-s1n0:sfp-s0n0", "sfp-s0n1:sfp-s1n1", "sfp-s1n1:sfp-s0n1"]
WARM = ["sfp-s2n0:sfp-s2n0", "sfp-s2n1:sfp-s2n1"]
SPAN = {"name": "detected", "bench_ms": 2.0, "cpu_ms": 1.0, "at_ms": 2.0, "source": "measured"}


@pytest.fixture(scope="module")
def model() -> BenchModel:
    """The prototype: server0 and server1 form the job, server2 and server3 are spares."""
    return load("lumion-prototype")


def status(
    model: BenchModel, state: FabricState, circuits: Sequence[str] = (), manager: str = MANAGER, **more: Any
) -> FabricStatus:
    found = fabric_status(model, state, circuits, manager=manager, **more)
    assert found is not None
    return found


def alarms(found: FabricStatus) -> list[tuple[str, str, str]]:
    return [(alarm.severity, alarm.subject, alarm.condition) for alarm in found.alarms]


def test_a_healthy_fabric_has_no_alarm_and_names_who_can_replace_whom(model) -> None:
    standby = StandbyStatus({"server0": ("server2",), "server1": ("server2", "server3")}, {})
    loops = [*WARM, "sfp-s3n0:sfp-s3n0", "sfp-s3n1:sfp-s3n1"]
    found = status(model, FabricState(), JOB + loops, standby=standby)
    assert (found.severity, found.alarms, found.plans_ready) == ("none", (), True)
    assert [(job.name, job.condition, list(job.circuits)) for job in found.jobs] == [
        ("server0-server1", "connected", JOB)
    ]
    assert [(unit.name, unit.condition, unit.replacements) for unit in found.units] == [
        ("server0", "in service", ("server2",)),
        ("server1", "in service", ("server2", "server3")),
        ("server2", "warm spare", ()),
        ("server3", "warm spare", ()),
    ]


def test_a_refused_job_is_a_major_alarm_and_a_cold_spare_a_minor_one(model) -> None:
    state = FabricState(failed={"server1": "no light"}, refused={"server0-server1": "no spare"}, cold={"server3": COLD})
    found = status(model, state, WARM)
    assert found.severity == "major"
    assert alarms(found) == [
        ("major", "job server0-server1", "refused"),
        ("minor", "server1", "failed"),
        ("minor", "spare server3", "cold"),
    ]
    assert [alarm.reason for alarm in found.alarms] == ["no spare", "no light", COLD]


def test_a_replaced_server_and_its_substitute_are_named(model) -> None:
    state = FabricState(places={"server0": "server2"}, failed={"server0": "no light"})
    found = status(model, state)
    assert ("minor", "server0", "failed, replaced by server2") in alarms(found)
    unit = next(unit for unit in found.units if unit.name == "server2")
    assert (unit.condition, unit.replaces, unit.job) == ("in service", "server0", "server0-server1")
    assert found.jobs[0].units == ("server2", "server1")
    assert found.jobs[0].reason.startswith("without circuits sfp-s2n0:sfp-s1n0")


def test_a_drained_server_is_no_alarm_and_no_spare(model) -> None:
    found = status(model, FabricState(failed={"server2": "new memory"}, drained=("server2",)), JOB)
    unit = found.units[2]
    assert (unit.condition, unit.reason) == ("drained", "new memory")
    assert "server2" not in [alarm.subject for alarm in found.alarms]


def test_a_server_that_no_spare_can_replace_is_a_minor_alarm_with_every_reason(model) -> None:
    standby = StandbyStatus(
        {"server0": (), "server1": ("server2",)}, {("server0", "server2"): "no path", ("server1", "server3"): "cold"}
    )
    found = status(model, FabricState(), JOB + WARM, standby=standby)
    (alarm,) = [alarm for alarm in found.alarms if alarm.condition == "without a usable spare"]
    assert (alarm.subject, alarm.reason) == ("server0", "server2: no path")


def test_without_a_manager_nothing_is_expected_to_be_connected(model) -> None:
    found = status(model, FabricState(), manager="")
    assert (found.severity, found.plans_ready) == ("none", False)
    assert [unit.condition for unit in found.units] == ["job member", "job member", "spare", "spare"]
    assert found.jobs[0].condition == "not connected"
    without_room = status(model, FabricState(cold={"server3": COLD}), manager="")
    assert [(unit.condition, unit.reason) for unit in without_room.units[2:]] == [("spare", ""), ("cold spare", COLD)]
    interrupted = status(model, FabricState(open={"words": "server1 is gone"}), manager="")
    assert alarms(interrupted) == [("minor", "recovery", "interrupted")]
    assert alarms(status(model, FabricState()))[0] == ("major", "job server0-server1", "not connected")


def test_a_bench_without_servers_has_no_fabric(model) -> None:
    assert fabric_status(model.model_copy(update={"servers": []}), FabricState(), ()) is None


def test_the_document_is_json_with_all_fields(model) -> None:
    entries = [{"outcome": "done", "utc": "2026-11-29T10:00:00+00:00", "failed": "server1", "spare": "server2",
                "words": "no light", "spans": [SPAN]}]  # fmt: skip
    found = status(model, FabricState(), JOB, recovery=last_recovery(entries))
    document = json.loads(json.dumps(found.document()))
    assert set(document) == {field.name for field in dataclasses.fields(FabricStatus)}
    assert document["recovery"]["spans"] == [SPAN]
    assert document["alarms"][0]["severity"] == "minor"


def test_the_last_recovery_comes_from_the_journal_with_its_confirmation() -> None:
    done = {"n": 3, "entry": "ended", "outcome": "done", "utc": "2026-11-29T10:00:00+00:00", "failed": "b",
            "spare": "c", "words": "no light", "spans": [SPAN]}  # fmt: skip
    confirmed = {"entry": "confirmed", "proven": True, "spans": [{**SPAN, "name": "link_up", "at_ms": 9.0}]}
    entries = [{"entry": "confirmed", "proven": True, "spans": []}, done, {"entry": "ended", "outcome": "refused"}]
    found = last_recovery(entries)
    assert found is not None
    assert (found.time_s, found.failed, found.spare, found.is_confirmed) == (1795946400.0, "b", "c", None)
    found = last_recovery([*entries, confirmed])
    assert found is not None
    assert [span.name for span in found.spans] == ["detected", "link_up"]
    assert found.is_confirmed is True
    assert found.spans[0] == Span(**SPAN)


def test_an_entry_of_another_version_does_not_hide_the_status() -> None:
    assert last_recovery([{"outcome": "done", "utc": "yesterday"}, {"outcome": "done"}]) is None


def test_a_status_is_calculated_anew_only_when_something_has_changed(model) -> None:
    memo, state = FabricStatusMemo(model), FabricState(cold={"server3": COLD})
    first = memo.status(state, tuple(JOB), MANAGER)
    assert memo.status(FabricState(cold={"server3": COLD}), tuple(JOB), MANAGER) is first
    assert memo.status(state, (), MANAGER) == status(model, state)
    assert memo.status(FabricState(), (), MANAGER) == status(model, FabricState())
