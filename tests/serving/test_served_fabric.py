"""The fabric of a served bench: alarms as process variables, and calls that succeed only with proven circuits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lumion_hw.circuits.lock import lock_owner
from lumion_hw.errors import ConfigError
from lumion_hw.fabric import FabricAlarm, JobStatus, UnitStatus
from lumion_hw.fabric.requests import FabricRequest, RequestBox
from lumion_hw.serving.event_sentences import event_sentence
from lumion_hw.serving.owner import BenchOwner
from lumion_hw.serving.pva_tables import SCALARS, TABLES
from lumion_hw.serving.state import AlarmSeverity
from tests.serving.page_states import NOW_S, a_fabric, a_joined_status, a_state
from tests.serving.test_virtual_days import ADA, owned

MINOR, MAJOR = AlarmSeverity.MINOR, AlarmSeverity.MAJOR
TROUBLED = a_fabric(
    severity="major",
    alarms=(
        FabricAlarm("major", "job train", "refused", "no spare is left"),
        FabricAlarm("minor", "spare c", "cold", "no path"),
        FabricAlarm("minor", "a", "without a usable spare", "c: no path"),
        FabricAlarm("minor", "d", "cut off", "PUC 3"),
    ),
    jobs=(JobStatus("train", ("a", "b"), "refused", "no spare is left"),),
    units=(
        UnitStatus("a", "in service", job="train"),
        UnitStatus("c", "cold spare", "no path"),
        UnitStatus("d", "cut off", "PUC 3"),
    ),
)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fabric:severity", (2, MAJOR, "job train refused: no spare is left; spare c cold: no path; "
                             "a without a usable spare: c: no path; d cut off: PUC 3")),
        ("fabric:refused", (["train"], MAJOR, "job train refused: no spare is left")),
        ("fabric:cold", (["c"], MINOR, "spare c cold: no path")),
        ("fabric:cut_off", (["d"], MINOR, "d cut off: PUC 3")),
        ("fabric:warm", ([], AlarmSeverity.NONE, "")),
        ("fabric:plans_ready", (True, MINOR, "a without a usable spare: c: no path")),
        ("fabric:circuits", (["sfp-a:sfp-c", "sfp-c:sfp-a"], AlarmSeverity.NONE, "")),
        ("fabric:manager", ("lumion serve of ada@lab3:4711", AlarmSeverity.NONE, "")),
        ("recovery:failed", ("b", AlarmSeverity.NONE, "")),
        ("recovery:spare", ("c", AlarmSeverity.NONE, "")),
        ("recovery:time_s", (NOW_S, AlarmSeverity.NONE, "")),
    ],
)  # fmt: skip
def test_a_process_variable_of_the_fabric_carries_its_alarm(name: str, value: tuple[Any, ...]) -> None:
    assert SCALARS[name][1](a_state(fabric=TROUBLED)) == value


def test_the_alarms_of_the_fabric_are_among_those_of_the_bench() -> None:
    state = a_state(fabric=TROUBLED, points={}, circuits=())
    assert TABLES["alarms"][1](state)[:2] == [
        ("job train", 2, "refused: no spare is left"), ("spare c", 1, "cold: no path"),
    ]  # fmt: skip
    assert SCALARS["health:severity"][1](state) == (2, MAJOR, "MAJOR")
    assert TABLES["fabric:jobs"][1](state) == [("train", "refused", "a b", "no spare is left")]
    assert TABLES["fabric:units"][1](state)[1] == ("c", "cold spare", "", "", "", "no path")


def test_without_servers_all_process_variables_of_the_fabric_are_empty() -> None:
    state = a_state(fabric=None)
    for name, (_, value) in SCALARS.items():
        if name.startswith(("fabric:", "recovery:")):
            assert value(state)[1] is AlarmSeverity.NONE
    assert [TABLES[name][1](state) for name in ("fabric:jobs", "fabric:units", "recovery:spans")] == [[], [], []]


def test_lost_circuits_over_several_meshes_are_major_alarms() -> None:
    lost, up = "rack0:sfp-a:rack1:sfp-b", "rack1:sfp-b:rack0:sfp-a"
    why = f"joined circuit {lost} lost: bench spine has no segment"
    silent = "bench rack1 not reachable: the connection was lost"
    state = a_state(fabric=None, points={}, circuits=(), joined=a_joined_status(lost, unreachable="rack1"))
    found = {name: value(state) for name, (_, value) in SCALARS.items() if name.startswith("joined:")}
    assert found == {
        "joined:severity": (2, MAJOR, f"{why}; {silent}"),
        "joined:lost": ([lost], MAJOR, why),
        "joined:unreachable": (["rack1"], MAJOR, silent),
        "joined:min_margin_db": (7.5, AlarmSeverity.NONE, ""),
        "joined:change": ("connect 2 circuits (racks-1-abc): kept", AlarmSeverity.NONE, ""),
    }
    assert SCALARS["health:severity"][1](state) == (2, MAJOR, "MAJOR")
    rows = TABLES["joined:circuits"][1](state)
    assert [(row[0], row[2]) for row in rows] == [(lost, 2), (up, 0)]
    assert TABLES["joined:benches"][1](state)[1] == ("rack1", False, 2, "the connection was lost")
    assert [row[0] for row in TABLES["alarms"][1](state)] == [f"joined circuit {lost}", "bench rack1"]


def asked(owner: BenchOwner, directory: Path, action: str, unit: str = "") -> Any:
    """Send a request as `lumion fabric` does, and return its outcome."""
    lock = lock_owner(directory)
    assert lock is not None
    box = RequestBox(directory)
    number = box.send(FabricRequest(action, unit), lock)
    owner.step(0.5)
    return box.outcome(number)


def test_requests_to_a_served_fabric_end_with_its_status(tmp_path: Path) -> None:
    with owned(tmp_path, fabric=True) as (_, owner):
        owner.step(0.5)
        status = asked(owner, tmp_path, "status").status
        assert (status["severity"], status["jobs"][0]["condition"]) == ("none", "connected")
        assert status["manager"].startswith("a test of ")
        assert status["units"][0]["replacements"] == ["c"]
        assert asked(owner, tmp_path, "fail", "x").error.startswith("there is no server 'x'")
        drained = asked(owner, tmp_path, "drain", "b").status
        assert (drained["jobs"][0]["units"], drained["recovery"]["spare"]) == (["a", "c"], "c")
        refused = asked(owner, tmp_path, "drain", "a")
        assert (refused.exit_code, refused.error.partition(",")[0]) == (3, "a stays in service")
        assert asked(owner, tmp_path, "repaired", "b").status["units"][1]["condition"] == "warm spare"
        sentences = [event_sentence(event.event, event.data) for event in owner.state.events]
        assert (AlarmSeverity.NONE, "Fabric: draining b.") in sentences
        assert owner.state.recovery is not None
        assert owner.state.recovery.spare == "c"


def test_a_cleared_fault_ends_with_proven_circuits_also_while_no_manager_can_run(tmp_path: Path) -> None:
    with owned(tmp_path, fabric=True) as (_, owner):
        owner.step(0.5)
        owner.stop_outputs(ADA)
        owner.step(0.5)
        assert "ESTOP" in owner.state.health.trouble
        assert asked(owner, tmp_path, "status").status["manager"] == ""
        assert "ESTOP" in asked(owner, tmp_path, "recover").error
        assert "no latched fault has the name" in asked(owner, tmp_path, "clear", "WATCHDOG").error
        owner.lease.take("ada", ADA, lasts_s=86400.0, bound=False)
        with pytest.raises(ConfigError, match="no latched fault has the name or id 'WATCHDOG'"):
            owner.start_job("clear", {"fault": "WATCHDOG"}, ADA)
        owner.start_job("clear", {"fault": "ESTOP"}, ADA)
        owner.step(0.5)
        job = owner.state.job
        assert job is not None
        assert (job.error, job.result[0].partition(" ")[0]) == ("", "ESTOP")
        assert owner.state.health.trouble == ""
        assert asked(owner, tmp_path, "status").status["jobs"][0]["condition"] == "connected"
