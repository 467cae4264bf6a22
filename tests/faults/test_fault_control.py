"""Faults from outside: every fault of the table by texts, as another process sends them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from lumion_hw import Bench
from lumion_hw.emulator.faults.fault_control import FaultControl, FaultPort
from lumion_hw.emulator.faults.fault_table import BENCH, ScriptedFault
from lumion_hw.errors import ConfigError, LimitError, LinkLost
from lumion_hw.remote.codec import encode_error
from tests.faults.test_fault_table import BY_HAND, FAULTS, FILE, NAMES, ON_BENCH, SINGLE, opened

Perform = Callable[..., object]
BREAKOUT = Path(__file__).parents[2] / "examples" / "dr4_breakout.yaml"


def text(value: object) -> str:
    """Return an argument of the fault table as a command line gives it."""
    if callable(value):
        return f"0:{value(0.0)},10:{value(10.0)}"
    return ",".join(value) if isinstance(value, list) else str(value)


def arguments_of(kind: str, fault: ScriptedFault) -> dict[str, str]:
    table = ON_BENCH | BY_HAND if kind == BENCH else {}
    arguments = table.get(fault.name) or SINGLE.get((kind, fault.name)) or ({}, None)
    return {name: text(value) for name, value in arguments[0].items()}


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with opened("pol-a") as found:
        yield found


@pytest.fixture(scope="module")
def perform(bench: Bench) -> Perform:
    return FaultControl(bench.emulated.faults).perform


@pytest.mark.parametrize(("kind", "fault"), [pytest.param(*each, id=f"{each[0]}-{each[1].name}") for each in FAULTS])
def test_every_fault_starts_and_ends_by_name_and_only_once(kind: str, fault: ScriptedFault, perform: Perform) -> None:
    if fault.name == "plug":
        pytest.skip("this bench has no fibre that is moved by hand")
    target, arguments = BENCH if kind == BENCH else NAMES[kind], arguments_of(kind, fault)
    if fault.end is None:
        perform("inject", target, fault.name, arguments)
        lasting = {"target": target, "fault": fault.name, "arguments": arguments, "can_clear": False}
        assert (lasting in perform("active")) == (
            fault.name not in ("revive_modules", "kill_modules") and not fault.is_momentary
        )
        with pytest.raises(ConfigError, match="cannot be cleared"):
            perform("clear", target, fault.name, arguments)
        return
    if not fault.may_precede:
        with pytest.raises(ConfigError, match=f"{target}: the fault {fault.name}.* is not active.*Active faults: "):
            perform("clear", target, fault.name, arguments)
    perform("inject", target, fault.name, arguments)
    present = {"target": target, "fault": fault.name, "arguments": arguments, "can_clear": True}
    assert present in perform("active")
    with pytest.raises(ConfigError, match=f"{fault.name}.* is active already.*Clear it first"):
        perform("inject", target, fault.name, arguments)
    assert perform("active").count(present) == 1
    perform("clear", target, fault.name)
    assert present not in perform("active")


def test_a_fault_that_adds_to_itself_is_listed_as_often_as_it_was_injected(perform: Perform) -> None:
    for factor in ("1.3", "1.1"):
        perform("inject", BENCH, "weaken_heater", {"puc": "9", "arm": "0", "factor": factor})
    listed = [each["arguments"] for each in perform("active") if each["fault"] == "weaken_heater"]
    assert [each["factor"] for each in listed if each["puc"] == "9"] == ["1.3", "1.1"]


def test_the_fibre_of_a_port_breaks_once(perform: Perform) -> None:
    perform("inject", BENCH, "kill_port", {"port": "7"})
    with pytest.raises(ConfigError, match=r"kill_port \(port=7\) is active already. It lasts as long as the emulation"):
        perform("inject", BENCH, "kill_port", {"port": 7})
    perform("inject", BENCH, "kill_port", {"port": "9"})


def test_the_temperature_of_the_chip_follows_the_pairs_of_a_text(bench: Bench, perform: Perform) -> None:
    start_s = bench.clock.now()
    perform("inject", BENCH, "drift_temperature", {"trajectory_k": "60:3, 0:0"})
    trajectory_k = bench.emulated.world.disturbances.temperature_k
    assert [trajectory_k(start_s + s) for s in (0.0, 20.0, 60.0, 99.0)] == pytest.approx([0.0, 1.0, 3.0, 3.0])


def test_modules_that_are_killed_together_are_revived_one_by_one(bench: Bench, perform: Perform) -> None:
    perform("inject", BENCH, "kill_modules", {"modules": "sfp-a, zr-a"})
    assert not bench.emulated.transponders["sfp-a"].powered
    with pytest.raises(ConfigError, match="lr4-a: not dead"):
        perform("inject", BENCH, "revive_modules", {"modules": "sfp-a,lr4-a"})
    assert not bench.emulated.transponders["sfp-a"].powered
    with pytest.raises(ConfigError, match="zr-a: dead already"):
        perform("inject", BENCH, "kill_modules", {"modules": "lr4-a,zr-a"})
    perform("clear", "sfp-a", "module_dead")
    assert bench.emulated.transponders["sfp-a"].powered
    perform("inject", BENCH, "revive_modules", {"modules": ["zr-a"]})
    assert not [each for each in perform("active") if each["fault"] == "module_dead"]


def test_a_fault_with_several_places_ends_at_the_place_that_is_named(perform: Perform) -> None:
    for source in ("5", "6"):
        perform("inject", "mesh0", "trip", {"source": source})
    with pytest.raises(ConfigError, match=r"active several times.*source=5.*source=6"):
        perform("clear", "mesh0", "trip")
    perform("clear", "mesh0", "trip", {"source": 6})
    with pytest.raises(ConfigError, match=r"trip \(source=6\) is not active.*mesh0 trip \(source=5\)"):
        perform("clear", "mesh0", "trip", {"source": 6})
    perform("clear", "mesh0", "trip")


def test_a_fault_that_ends_by_itself_may_be_injected_again(bench: Bench, perform: Perform) -> None:
    perform("inject", "zr-a", "nack", {"strength": "1"})
    bench.emulated.transponders["zr-a"].faults.clear("nack")  # as when the access has been refused
    with pytest.raises(ConfigError, match="not active"):
        perform("clear", "zr-a", "nack")
    perform("inject", "zr-a", "nack")
    perform("clear", "zr-a", "nack")


def test_a_lane_has_the_faults_of_its_module() -> None:
    with Bench.emulate(BREAKOUT, only=()) as bench:
        bench.emulated_faults.inject("dr4-a/2", "los")
        assert bench.emulated.transponders["dr4-a"].faults.active == ("los",)
        with pytest.raises(ConfigError, match="dr4-a: the fault los is active already"):
            bench.emulated_faults.inject("dr4-a", "los")


@pytest.mark.parametrize(
    ("request_", "error", "says"),
    [
        (("inject", "sfp-b", "no_power"), ConfigError, "no device sfp-b.*Do you mean sfp-a"),
        (("inject", "tls-a", "no_powr"), ConfigError, "no fault no_powr.*Do you mean no_power"),
        (("clear", "tls-a", "no_powr"), ConfigError, "no fault no_powr.*Do you mean no_power"),
        (("list", "tls-z"), ConfigError, "no device tls-z.*Do you mean tls-"),
        (("inject", BENCH, "kill_port", {"port": "99"}), LimitError, "kill_port: port is out of range.*0 to 15"),
        (("inject", BENCH, "kill_port", {"port": "left"}), ConfigError, "port is 'left'. Give a number"),
        (("inject", BENCH, "kill_port", {"port": [1]}), ConfigError, r"port is \[1\]"),
        (("inject", "mesh0", "trip", {"source": {"a": []}}), ConfigError, "source is"),
        (("clear", "mesh0", "trip", {"source": [5]}), ConfigError, "not active"),
        (("inject", BENCH, "kill_modules", {"modules": [[1]]}), ConfigError, "no module"),
        (("clear", BENCH, "kill_modules", {"modules": "sfp-a"}), ConfigError, "Inject revive_modules with the same"),
        (("inject", BENCH, "kill_port", {"prt": "1"}), ConfigError, "kill_port has no argument prt"),
        (("inject", BENCH, "kill_modules", {"modules": "sfp-x"}), ConfigError, "no module sfp-x.*Do you mean sfp-a"),
        (("inject", BENCH, "drift_power", {"port": "5", "trajectory_db": "0:1,2"}), ConfigError, "0:0,60:2.5"),
        (("inject", BENCH, "drift_temperature", {"trajectory_k": "0:nan"}), ConfigError, "0:0,60:2.5"),
        (("inject", BENCH, "plug", {"device": "tls-a", "port": "1"}), ConfigError, "moved by hand"),
        (("explode", "tls-a", "no_power"), ConfigError, "no action 'explode'.*inject, clear, list, active"),
    ],
)
def test_a_wrong_request_changes_nothing_and_says_what_there_is(
    request_: tuple, error: type[Exception], says: str, bench: Bench, perform: Perform
) -> None:
    active, light_w = perform("active"), bench.emulated.world.mesh_output_w()
    with pytest.raises(error, match=f"(?s){says}"):
        perform(*request_)
    assert perform("active") == active
    assert np.array_equal(bench.emulated.world.mesh_output_w(), light_w)


# -- the port


def asked(port: FaultPort, **fields: object) -> dict:
    document: dict = json.loads(port.answer(json.dumps(fields).encode()))
    return document


def test_the_port_answers_only_with_its_secret(bench: Bench) -> None:
    port = FaultPort(FaultControl(bench.emulated.faults), "s3cret", encode_error)
    assert len(asked(port, secret="s3cret", action="list", target="bench")["result"]) == len(ON_BENCH | BY_HAND)
    for secret in ("", "s3cre", "s3crét"):
        assert (
            "secret"
            in asked(port, secret=secret, action="inject", target="sfp-a", fault="bus_stuck")["error"]["arguments"][0]
        )
    assert "secret" in asked(port, action="active")["error"]["arguments"][0]
    assert asked(port, secret="s3cret", action="active")["result"] == []


@pytest.mark.parametrize(
    "line",
    [b"", b"{", b"[]", b'{"action": 1}', b"[" * 5000, b'{"action": "list", "code": "x"}', b"\xff", b'{"action": NaN}',
     b'{"action": "list", "arguments": [1]}'],
)  # fmt: skip
def test_what_is_no_request_gets_an_error(bench: Bench, line: bytes) -> None:
    port = FaultPort(FaultControl(bench.emulated.faults), "s", encode_error)
    assert json.loads(port.answer(line))["error"]["classes"][0] == "ConfigError"


def test_requests_arrive_in_any_pieces(bench: Bench) -> None:
    connection = FaultPort(FaultControl(bench.emulated.faults), "s", encode_error).connect()
    request = b'{"secret": "s", "action": "active"}\n'
    for byte in request:
        assert connection.next_event() is None
        connection.receive(bytes([byte]))
    connection.receive(2 * request)
    assert connection.transmit() == 3 * b'{"result":[]}\n'
    with pytest.raises(LinkLost, match="too long"):
        connection.receive(b"x" * 70_000)


def test_a_script_injects_into_a_bench_of_its_own_process_by_the_same_names() -> None:
    with Bench.emulate(FILE, only=()) as bench:
        assert {each["fault"] for each in bench.emulated_faults.list_faults()} == set(ON_BENCH | BY_HAND)
        bench.emulated_faults.inject(BENCH, "kill_port", port=5)
        kill_port = {"target": BENCH, "fault": "kill_port", "arguments": {"port": 5}, "can_clear": False}
        assert bench.emulated_faults.active() == [kill_port]
