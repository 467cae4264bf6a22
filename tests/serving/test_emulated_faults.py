"""Faults of a served emulated bench: any client may cause an accident, and the log says who did."""

import json

import pytest

from lumion_hw import Bench
from lumion_hw.cli import main
from lumion_hw.errors import ConfigError
from lumion_hw.serving.state import AlarmSeverity
from tests.serving.serving_bench import SMALL, refused
from tests.waiting import until


def test_a_client_injects_a_fault_while_another_one_holds_the_lease(served, client, lease) -> None:
    lease(client, "ada")
    with Bench.attach(served.address) as bench:
        bench.emulated_faults.inject("sfp-a", "bus_stuck")
        assert served.emulated.faults.device("sfp-a").bus_stuck
        with pytest.raises(ConfigError, match="sfp-a: the fault bus_stuck is active already"):
            bench.emulated_faults.inject("sfp-a", "bus_stuck")
        assert bench.emulated_faults.active() == [
            {"target": "sfp-a", "fault": "bus_stuck", "arguments": {}, "can_clear": True}
        ]
        bench.emulated_faults.clear("sfp-a", "bus_stuck")
    assert not served.emulated.faults.device("sfp-a").bus_stuck
    assert served.owner.lease.served().owner == "ada"
    logged = [event for event in served.owner._events if event.event == "emulated fault inject"]
    assert [(event.data["target"], event.data["fault"]) for event in logged] == [("sfp-a", "bus_stuck")]


def test_epics_programs_call_by_name(served, client) -> None:
    served.rpc(client, "fault:inject", target="bench", fault="kill_monitor", port="3")
    active = json.loads(served.rpc(client, "fault:active").result)
    assert active == [{"target": "bench", "fault": "kill_monitor", "arguments": {"port": "3"}, "can_clear": False}]
    listed = json.loads(served.rpc(client, "fault:list", target="mesh0").result)
    assert "hang" in [row["fault"] for row in listed]
    with refused("mesh0 has no fault hangs. Do you mean hang"):
        served.rpc(client, "fault:inject", target="mesh0", fault="hangs")
    with refused("the fault hang is not active"):
        served.rpc(client, "fault:clear", target="mesh0", fault="hang")


def test_the_command_finds_a_served_bench_by_its_address(served, capsys) -> None:
    assert main(["fault", str(SMALL), "inject", "meter0", "no_cable", "--served", served.address]) == 0
    assert "meter0 no_cable" in capsys.readouterr().out
    until(lambda: served.owner.state.points["meter0.power.1"].severity == AlarmSeverity.INVALID)
    assert main(["fault", str(SMALL), "clear", "meter0", "no_cable", "--served", served.address]) == 0
    until(lambda: served.owner.state.points["meter0.power.1"].severity != AlarmSeverity.INVALID)
    assert main(["fault", "lumion-prototype", "list", "--served", served.address]) == 2
    assert "serves bench small, not lumion-prototype" in capsys.readouterr().err


def test_a_served_real_bench_refuses(served, client, monkeypatch) -> None:
    monkeypatch.setattr(served.owner.bench, "_faults", None)
    monkeypatch.setattr(served.owner.bench, "_emulated", None)
    with refused("bench small is not emulated, so no fault can be injected"):
        served.rpc(client, "fault:inject", target="mesh0", fault="hang")
