"""Each detector alone: what it detects, what it does not detect, and its entry in a bench file."""

import socket
import struct
import subprocess
import sys
from collections.abc import Iterator

import pytest

from lumion_hw import Bench
from lumion_hw.bench.file.model import DetectorModel, FabricModel
from lumion_hw.errors import ConfigError
from lumion_hw.fabric.detectors import WatchTargets, create_detectors
from lumion_hw.fabric.detectors.hold_off import HoldOff
from lumion_hw.fabric.detectors.host import (
    HealthCommand,
    HealthCommandOptions,
    Heartbeat,
    HeartbeatOptions,
    Process,
    ProcessOptions,
    parse_link_changes,
)
from lumion_hw.interfaces import LightThreshold
from tests.fabric.managed_fabric import SMALL


@pytest.fixture(scope="module")
def watched() -> Iterator[WatchTargets]:
    with Bench.emulate(SMALL, seed=5) as bench:
        yield WatchTargets(bench, (), ("a", "b", "c"))


def test_a_bench_file_names_detectors_and_their_options() -> None:
    named = [DetectorModel(detector="heartbeat", port=0, limit_s=0.5), DetectorModel(detector="photodiodes")]  # type: ignore[call-arg]
    found = create_detectors(FabricModel(detectors=tuple(named)))
    assert [each.name for each in found] == ["heartbeat", "photodiodes"]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"detector": "x"}, r"fabric.detectors\[0\]: there is no detector 'x'"),
        ({"detector": "heartbeat"}, r"fabric.detectors\[0\] \(heartbeat\): port: Field required"),
        ({"detector": "modules", "typo": 1}, r"typo: Extra inputs are not permitted"),
    ],
)
def test_a_detector_that_is_not_there_or_named_wrongly_is_told(entry: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        create_detectors(FabricModel(detectors=(DetectorModel.model_validate(entry),)))


def test_the_hosts_own_hold_off_follows_the_rule_of_the_controller() -> None:
    rule = HoldOff([LightThreshold(0, 0.2, 0.3, 0.002)])
    told = [
        rule.update({0: level}, 1e-3 * tick) for tick, level in enumerate([0.5, 0.1, 0.1, 0.25, 0.1, 0.1, 0.1, 0.1])
    ]
    assert told[:6] == [None] * 6, "between the thresholds a run ends"
    assert told[6] == pytest.approx(0.002)
    assert rule.dark == {0}
    assert rule.update({0: float("nan")}, 0.020) is None
    assert rule.update({0: float("nan")}, 0.022) == pytest.approx(0.002), "a saturated reading is light"
    assert rule.dark == frozenset()


def test_the_end_of_a_process_is_told_once(watched: WatchTargets) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    detector = Process(ProcessOptions(detector="process", unit="b", pid=child.pid))
    detector.start(watched)
    assert detector.poll(0.0) == ()
    child.kill()
    child.wait()
    (evidence,) = detector.poll(0.0)
    assert (evidence.observation, evidence.subject) == ("gone", "b")
    assert detector.poll(0.0) == ()
    detector.close()
    if child.stdin is not None:
        child.stdin.close()


def test_silence_after_the_first_beat_counts_and_a_beat_ends_it(watched: WatchTargets) -> None:
    detector = Heartbeat(HeartbeatOptions(detector="heartbeat", port=0, limit_s=0.3))
    detector.start(watched)
    clock = watched.bench.clock
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        assert detector.poll(0.0) == [], "nobody has begun"
        sender.sendto(b"b", detector.address)
        sender.sendto(b"nobody", detector.address)
        assert detector.poll(0.0) == []
        clock.sleep(0.29)
        assert detector.poll(0.0) == []
        clock.sleep(0.02)
        (evidence,) = detector.poll(0.0)
        assert (evidence.observation, evidence.subject) == ("gone", "b")
        assert detector.poll(0.0) == []
        sender.sendto(b"b", detector.address)
        assert [each.observation for each in detector.poll(0.0)] == ["back"]
    detector.close()


def test_a_command_has_to_fail_some_times_in_a_row(watched: WatchTargets) -> None:
    options = HealthCommandOptions(detector="command", unit="a", argv=("false",), every_s=0.05, timeout_s=5.0, times=2)
    detector = HealthCommand(options)
    detector.start(watched)
    found = []
    for _ in range(2):
        assert not found
        watched.bench.clock.sleep(0.1)
        detector.poll(0.0)
        assert detector._process is not None
        detector._process.wait()
        found += detector.poll(0.0)
    assert [(each.observation, each.subject) for each in found] == [("gone", "a")]
    assert "ended with exit code 1" in found[0].reason
    detector.close()


def test_link_changes_are_read_from_rtnetlink() -> None:
    def attribute(kind: int, value: bytes) -> bytes:
        return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)

    body = bytes(16) + attribute(3, b"data0\0") + attribute(33, b"\0")
    message = struct.pack("=IHHII", 16 + len(body), 16, 0, 0, 0) + body
    other = struct.pack("=IHHII", 16, 3, 0, 0, 0)
    assert parse_link_changes(message + other) == [("data0", False)]
    assert parse_link_changes(b"\1\2\3") == []
    assert parse_link_changes(struct.pack("=IHHII", 4, 16, 0, 0, 0)) == []
