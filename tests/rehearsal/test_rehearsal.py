"""The rehearsal: a lost server is noticed and replaced, the result is as without a fault, and nothing is left."""

import importlib
import importlib.util
import os
import re
import socket
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from lumion_hw.errors import ConfigError, DeviceError
from lumion_hw.rehearsal import SPAN_NAMES, Fault, Milestones, Rehearsal, RehearsalSetting, SwitchedLight, rehearse
from lumion_hw.rehearsal.light import ring_light
from lumion_hw.rehearsal.network import NamespaceNetwork, PairNetwork, _routes, reason_without_namespaces
from lumion_hw.rehearsal.timing import Milestone, table
from lumion_hw.rehearsal.training import NumpyModel, RingGroup, Trainer
from lumion_hw.training.ranks import Rank, Ranks
from tests.waiting import PATIENCE_S, until

WHY_NOT = reason_without_namespaces()
namespaces = pytest.mark.skipif(WHY_NOT is not None, reason=f"no namespaces: {WHY_NOT}")
torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
FAULTS: tuple[Fault, ...] = ("light", "kill", "freeze")
EVERY_FAULT: tuple[Fault, ...] = (*FAULTS, "server", "spare", "two")


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def rehearsed(faults: Sequence[Fault] = FAULTS, servers: int = 2, **setting: object) -> list[Rehearsal]:
    names = [f"server{number}" for number in range(servers + 2)]
    light = SwitchedLight(names[:servers], names[servers:])
    before = children()
    found = rehearse(light, faults, RehearsalSetting(**setting))  # type: ignore[arg-type]
    assert children() == before, "nothing is left behind"
    assert [each.fault for each in found] == list(faults)
    return found


def check(found: list[Rehearsal]) -> None:
    for each in found:
        assert all(each.identical)
        for trial in each.trials:
            names = [milestone.name for milestone in trial]
            assert set(SPAN_NAMES) - set(names) <= {"signal_lost"}, "no span is missing"
            at_ms = [milestone.at_ms for milestone in trial]
            assert at_ms == sorted(at_ms)
            assert all(milestone.source.startswith(("measured", "emulated: ")) for milestone in trial)
    detected = {each.fault: next(m for m in each.trials[0] if m.name == "detected").source for each in found}
    # On a busy machine the kernel may take longer to close the connections of a killed process than a beat is missed.
    sources = {"light": "light", "kill": "control connection|no beat", "freeze": "no beat"}
    for fault, source in detected.items():
        assert re.search(sources.get(fault, ""), source), f"{fault} was detected by {source}"


def test_a_job_over_pairs_of_sockets_survives_every_fault_bit_for_bit() -> None:
    check(rehearsed(EVERY_FAULT, servers=3, network="pairs", job="numpy"))


def test_a_fault_that_leaves_no_state_or_no_spare_is_refused() -> None:
    with pytest.raises(ConfigError, match="'two' needs a job on three servers"):
        rehearsed(["two"], network="pairs", job="numpy")
    with pytest.raises(ConfigError, match="'spare' needs 2 spare servers, but there are 1"):
        rehearse(SwitchedLight(["a", "b"], ["c"]), ["spare"], RehearsalSetting(network="pairs", job="numpy"))


def test_frames_take_several_circuits_of_a_ring_and_none_that_is_dark() -> None:
    ports = {name: number for number, name in enumerate("abcde")}
    ring = ring_light(["a", "b", "c", "d"], dark=[])
    assert ring["a"] == ["d", "b"], "the predecessor comes first"
    assert _routes(ring, ports)[ports["a"]] == {2: 1, 3: 2, 4: 3}, "c is reached over b or d, and e is a spare"
    lit = ring_light(["a", "b", "c", "d"], dark=["b"])
    assert _routes(lit, ports)[ports["b"]] == {}
    assert _routes(lit, ports)[ports["a"]] == {2: 1, 3: 2, 4: 3}, "light still arrives at b"
    assert lit["c"] == ["", "d"], "the light of its predecessor b does not arrive"


@pytest.mark.long
@namespaces
def test_frames_of_a_job_pass_between_namespaces_while_light_arrives() -> None:
    found = rehearsed(servers=3, network="tap", job="numpy")
    check(found)
    assert found[-1].frames["moved"] > 1000
    assert found[-1].frames["dropped"] > 0
    assert f"lm{os.getpid()}" not in subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout


@pytest.mark.long
@namespaces
@torch
@pytest.mark.parametrize("job", ["torch", "sharded"])
def test_a_torch_job_survives_every_fault_bit_for_bit(job: str) -> None:
    check(rehearsed([*FAULTS, "server", "spare"], network="tap", job=job))


@pytest.mark.long
@namespaces
@torch
def test_a_torch_job_on_three_servers_survives_two_faults_at_once() -> None:
    check(rehearsed(["two", "light"], servers=3, network="tap", job="sharded"))


@pytest.mark.long
@namespaces
def test_the_network_itself_follows_the_light() -> None:
    network = NamespaceNetwork(["a", "b", "c"])
    try:
        spaces = list(network._names.values())
        assert network.forwarder is not None

        def carrier(number: int) -> bool:
            words = ["ip", "netns", "exec", spaces[number], "ip", "-br", "link", "show", "data0"]
            return "LOWER_UP" in subprocess.run(words, capture_output=True, text=True, check=True).stdout

        def reaches(one: int, other: str) -> bool:
            code = (
                "import socket,sys;s=socket.socket(socket.AF_INET,socket.SOCK_STREAM);s.settimeout(0.5)\n"
                f"try: s.connect(('{network.data_addresses[other]}',9))\n"
                "except ConnectionRefusedError: sys.exit(0)\n"
                "except OSError: sys.exit(1)"
            )
            words = ["ip", "netns", "exec", spaces[one], "python3", "-c", code]
            return subprocess.run(words, check=False).returncode == 0  # refused by the other side: it was reached

        assert (carrier(0), reaches(0, "b")) == (False, False)
        until(lambda: network.dark_ports(["a", "b", "c"]) == ["a", "b", "c"], PATIENCE_S)
        network.forwarder.set_light(ring_light(["a", "b"], dark=[]))
        until(lambda: network.dark_ports(["a", "b", "c"]) == ["c"], PATIENCE_S)
        assert (carrier(0), carrier(2)) == (True, False)
        assert (reaches(0, "b"), reaches(0, "c")) == (True, False)
        network.forwarder.set_light(ring_light(["a", "c"], dark=[]))
        until(lambda: not network.dark_ports(["a", "c"]), PATIENCE_S)
        assert (reaches(0, "c"), reaches(0, "b")) == (True, False)
        network.forwarder.set_light({})
        assert not reaches(0, "c")
        assert network.forwarder.counts()["moved"] > 0
    finally:
        network.close()
    left = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    assert not [space for space in spaces if space in left]


@pytest.mark.parametrize("has_failed", [True, False])
def test_ports_that_never_send_end_the_rehearsal_with_their_names_unless_a_server_has_failed(
    monkeypatch: pytest.MonkeyPatch, has_failed: bool
) -> None:
    module = importlib.import_module("lumion_hw.rehearsal.rehearse")  # the package exports a function of this name
    monkeypatch.setattr(PairNetwork, "dark_ports", lambda _self, servers: list(servers)[1:])
    monkeypatch.setattr(module, "_PORTS_S", 0.0)
    with module._Stage(SwitchedLight(["a", "b"], ["c"]), "pairs", "numpy", RehearsalSetting()) as stage:
        if has_failed:
            stage._light_failed("b", "photodiode")
            assert stage._wait_for_ports(["a", "b"]) == ("b", "light (photodiode)")
        else:
            with pytest.raises(DeviceError, match="the data ports of b could not send 0 s after"):
                stage._wait_for_ports(["a", "b"])


class SlowRanks:
    """Ranks a and b on a slow computer: every look at them takes a minute."""

    def __init__(self, *looks: list[tuple[str, str]]) -> None:
        self.looks, self.now_s = list(looks), 0.0

    def of(self, *_servers: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(name=name) for name in "ab"]

    def listen(self, _timeout_s: float) -> list[tuple[SimpleNamespace, dict[str, str]]]:
        self.now_s += 60.0
        reports = self.looks.pop(0) if self.looks else []
        return [(SimpleNamespace(name=name), {"is": kind}) for name, kind in reports]


@pytest.mark.parametrize("is_stuck", [False, True])
def test_a_rank_may_be_as_slow_as_it_likes_while_it_or_another_one_reports(
    monkeypatch: pytest.MonkeyPatch, is_stuck: bool
) -> None:
    module = importlib.import_module("lumion_hw.rehearsal.rehearse")
    ranks = SlowRanks([], [("b", "step")], [], [("a", "reset")], [], [] if is_stuck else [("b", "reset")])
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: ranks.now_s))
    stage = object.__new__(module._Stage)
    stage._ranks = ranks
    if is_stuck:
        with pytest.raises(DeviceError, match="b did not report 'reset', and no rank reported anything for 120 s"):
            stage._wait_for_report("reset", ["server"])
    else:
        stage._wait_for_report("reset", ["server"])
        assert ranks.now_s == 360.0


@pytest.mark.skipif(WHY_NOT is None, reason="namespaces are possible here")
def test_without_privileges_it_says_why_and_falls_back() -> None:
    found = rehearsed(job="numpy")
    assert any(WHY_NOT in words for words in found[0].fell_back)  # type: ignore[operator]


def test_what_is_asked_for_and_cannot_be_is_refused_before_anything_is_started() -> None:
    with pytest.raises(ConfigError, match=r"gloo needs network interfaces|torch is not installed"):
        rehearse(SwitchedLight(["a", "b"], ["c"]), ["kill"], RehearsalSetting(network="pairs", job="torch"))


class _BusyLink(socket.socket):
    """A link whose other end takes no message at first."""

    is_busy = True

    def send(self, data: bytes, flags: int = 0) -> int:  # type: ignore[override]
        if self.is_busy:
            self.is_busy = False
            raise TimeoutError("timed out")
        return super().send(data, flags)


def test_a_ring_waits_for_a_link_that_takes_no_message_yet() -> None:
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    values = np.arange(50_000, dtype=np.float32)
    with _BusyLink(fileno=ends[0].detach()) as busy, ends[1] as other, ThreadPoolExecutor() as pool:
        rings = [RingGroup(rank, 2, 1, link) for rank, link in enumerate((busy, other))]
        sums = list(pool.map(lambda ring: ring.sum(values), rings))
    assert all(np.array_equal(found, 2.0 * values) for found in sums)


def test_a_rank_goes_back_one_step_and_no_more() -> None:
    class Alone:
        rank, world = 0, 1

        def sum(self, values: np.ndarray) -> np.ndarray:
            return values

    trainer = Trainer(NumpyModel(3))
    states = []
    for _ in range(3):
        states.append(trainer.state.copy())
        trainer.train_step(Alone())  # type: ignore[arg-type]
    trainer.roll_back(2)
    assert np.array_equal(trainer.state, states[2])
    with pytest.raises(DeviceError, match="one step old"):
        trainer.roll_back(0)


def test_spans_are_told_over_trials_and_never_as_one_number() -> None:
    trials = [
        [Milestone("detected", at, "measured"), Milestone("first_step", 2 * at, "measured", "a")]
        for at in (1.0, 3.0, 2.0)
    ]
    rows = table(trials)
    assert [(row["name"], row["at_ms"], row["least_ms"], row["most_ms"], row["trials"]) for row in rows] == [
        ("detected", 2.0, 1.0, 3.0, 3), ("first_step", 4.0, 2.0, 6.0, 3),
    ]  # fmt: skip
    assert rows[1]["since_before_ms"] == 2.0
    milestones = Milestones()
    milestones.mark("detected")
    assert milestones.in_order() == [], "before the fault there is nothing to time"
    milestones.fault()
    milestones.mark("group_up", last="a")
    milestones.mark("group_up", last="b")
    assert [each.last for each in milestones.in_order()] == ["b"], "the last participant counts"


def test_a_rank_whose_reports_wait_unread_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr("lumion_hw.training.ranks.time.monotonic", lambda: now_s[0])
    beat = b'{"is": "beat"}\n'
    ranks, (own, other) = Ranks(), socket.socketpair()
    ranks.add(Rank("server0", 0, own))
    other.sendall(beat)
    assert ranks.listen(1.0) == []
    now_s[0] += 10.0  # the supervisor waits for the light of a spare
    other.sendall(beat)
    assert ranks.failed(["server0"]) is None
    assert ranks.listen(1.0) == []
    now_s[0] += 10.0
    assert ranks.failed(["server0"]) == ("server0", "no beat for 10000 ms")
    ranks.close()
    other.close()
