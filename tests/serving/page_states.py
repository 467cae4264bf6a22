"""Example states of a served bench, and an owner that publishes states on request of a test."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from lumion_hw.bench.bench import load
from lumion_hw.errors import ConfigError
from lumion_hw.fabric import FabricAlarm, FabricStatus, JobStatus, RecoveryStatus, Span, UnitStatus
from lumion_hw.joined import BenchReach, JoinedStatus, LinkStatus
from lumion_hw.joined.journal import JoinedChange, JoinedHistory
from lumion_hw.serving.history import ReadingHistory
from lumion_hw.serving.lease import BenchLease, Caller
from lumion_hw.serving.owner import Subscription
from lumion_hw.serving.state import (
    AlarmSeverity,
    MarginSample,
    Point,
    ServedCircuit,
    ServedEvent,
    ServedHealth,
    ServedJob,
    ServedLease,
    ServedMesh,
    ServedPath,
    ServedState,
)

NOW_S = 1_800_000_000.0
RACKS = ("rack0", "rack1", "spine")
HOSTILE = "<img src=x onerror=alert(1)>"


def a_fabric(**changes: Any) -> FabricStatus:
    """Return a managed fabric without alarms, whose spare c serves in the place of b."""
    jobs = (JobStatus("train", ("a", "c"), "connected", "", ("sfp-a:sfp-c", "sfp-c:sfp-a")),)
    fabric = FabricStatus(
        bench="small",
        manager="lumion serve of ada@lab3:4711",
        severity="none",
        alarms=(),
        jobs=jobs,
        units=(UnitStatus("a", "in service", job="train", modules=("sfp-a",), replacements=("b",)),),
        circuits=("sfp-a:sfp-c", "sfp-c:sfp-a"),
        plans_ready=True,
        interrupted="",
        recovery=RecoveryStatus(
            NOW_S, "b", "c", "", (Span("detected", 5.0, 0.5, 5.0), Span("programmed", 20.0, 1.0, 25.0))
        ),
        avoided_pucs=(),
        fades=2,
        false_alarms=1,
    )
    return dataclasses.replace(fabric, **changes)


def a_joined_status(*lost: str, unreachable: str = "") -> JoinedStatus:
    """Return joined meshes with circuits of rack0 and rack1 over a spine."""
    names = ("rack0:sfp-a:rack1:sfp-b", "rack1:sfp-b:rack0:sfp-a")
    links = [LinkStatus(name, (), 7.5, ()) for name in names if name not in lost]
    links = [LinkStatus(name, (), None, ("bench spine has no segment from port0",), True) for name in lost] + links
    alarms = [FabricAlarm("major", f"joined circuit {name}", "lost", "bench spine has no segment") for name in lost]
    if unreachable:
        alarms.append(FabricAlarm("major", f"bench {unreachable}", "not reachable", "the connection was lost"))
    change = JoinedChange("racks-1-abc", "connect", names, {}, "2027-01-15T07:59:00Z")
    benches = (BenchReach(name, "the connection was lost" if name == unreachable else "", 2) for name in RACKS)
    history = JoinedHistory(names, change, "kept", "2027-01-15T07:59:05Z", number=1)
    return JoinedStatus("racks", NOW_S, tuple(benches), tuple(links), history, tuple(alarms))


def a_state(number: int = 1, **changes: Any) -> ServedState:
    """Return a state with all kinds of content; sfp-c is silent, PUC 5 is dead, and one circuit is broken."""
    points = [
        Point("meter0.power.1", 2.5e-5, "W", time_s=NOW_S),
        Point("sfp-a.rx_power_dbm", -6.5, "dBm", time_s=NOW_S),
        Point("sfp-a.temperature_c", 45.25, "°C", time_s=NOW_S),
        Point("sfp-a.enabled", True, writable=True, kind="flag", time_s=NOW_S),
        Point("sfp-b.rx_power_dbm", None, "dBm", time_s=NOW_S, severity=AlarmSeverity.MINOR, alarm="dark"),
        Point("sfp-c.rx_power_dbm", -7.0, "dBm", time_s=NOW_S - 9, severity=AlarmSeverity.INVALID, alarm="no answer"),
        Point("mesh0.heater_ma.0", 1.5, "mA", (0.0, 2.5), True, NOW_S),
        Point("mesh0.heaters_ma", np.array([1.5, np.nan]), "mA", (0.0, 2.5), True, NOW_S, kind="array"),
    ]
    path = ServedPath("sfp-a:sfp-b", 1, 8, (0, 2), (3.0, 2.5, None))
    mesh = ServedMesh(
        {0: "bar", 2: "cross", 3: "bar"}, (2.25, 0.0, 1.5) + (0.0,) * 12, frozenset({3}), frozenset({5}), (path,)
    )
    circuits = (
        ServedCircuit(
            "sfp-a:sfp-b",
            "sfp-a",
            "sfp-b",
            NOW_S - 60,
            60.0,
            30.0,
            NOW_S,
            {"margin_db": 9.5, "received_dbm": -6.25},
            0.25,
            (),
            "",
            AlarmSeverity.NONE,
        ),
        ServedCircuit(
            "sfp-b:sfp-a",
            "sfp-b",
            "sfp-a",
            NOW_S - 60,
            60.0,
            None,
            NOW_S,
            {"margin_db": 4.0},
            None,
            (),
            "no light",
            AlarmSeverity.MAJOR,
        ),
    )
    state = ServedState(
        number=number,
        time_s=NOW_S + number,
        bench="small",
        points={each.name: each for each in points},
        mesh=mesh,
        circuits=circuits,
        events=(ServedEvent(1, NOW_S, "asked", {"what": HOSTILE, "by": "Ada"}),),
        job=ServedJob(2, "calibrate", "ada", NOW_S, "sweeps", 3, 12, {"held_out_db": 0.14}),
        lease=ServedLease("ada", 3, NOW_S, 1.0, 9.0),
        health=ServedHealth(NOW_S - 100, {"sfp-c": (NOW_S - 9, "no answer")}, "circuits"),
        record_sha256="88aa559d3984beef",
        is_emulated=True,
        fabric=a_fabric(),
    )
    return dataclasses.replace(state, **changes)


class StagedOwner:
    """Publishes states on request of a test; its lease is a real one."""

    def __init__(self, directory: Any, bench: str = "tests/data/small.yaml", *, numbered: bool = True) -> None:
        model = load(bench)
        self.bench = SimpleNamespace(
            model=model, wiring=model.to_wiring(), mesh=SimpleNamespace(topology=model.topology())
        )
        self.lease = BenchLease(directory, time.time)
        self.state = a_state()
        self.history: tuple[MarginSample, ...] = ()
        self.readings_history = ReadingHistory()
        self.done: list[tuple[Any, ...]] = []
        self._subscriptions: list[Subscription] = []
        self._numbers = itertools.count(2)

    def subscribe(self) -> Subscription:
        subscription = Subscription(self.state, self._forget)
        self._subscriptions.append(subscription)
        return subscription

    def _forget(self, subscription: Subscription) -> None:
        with contextlib.suppress(ValueError):
            self._subscriptions.remove(subscription)

    def publish(self, **changes: Any) -> ServedState:
        """Publish another state, as the owner's thread does."""
        self.state = dataclasses.replace(self.state, number=next(self._numbers), **changes)
        for each in list(self._subscriptions):
            each.publish(self.state)
        return self.state

    def write(self, name: str, value: object, caller: Caller) -> None:
        self.lease.check(caller)
        self.done.append(("set", name, value))

    def start_job(self, what: str, arguments: Any, caller: Caller) -> ServedJob:
        self.lease.check(caller)
        if what != "connect":
            raise ConfigError(f"there is no job {what!r}")
        self.done.append((what, arguments))
        return ServedJob(7, what, caller.name, NOW_S)

    def stop_outputs(self, caller: Caller) -> None:
        self.done.append(("stop", caller.name))


class Reader:
    """A client that reads the event stream of the page over its own socket."""

    def __init__(self, address: str, path: str = "/events") -> None:
        host, _, port = address.removeprefix("http://").strip("/").rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 20.0)
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        self._file = self.socket.makefile("rb")
        self.status = int(self._file.readline().split()[1])
        while self._file.readline().strip():
            pass

    def events(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield kind and content of every event until the server ends the stream."""
        kind = "message"
        for line in self._file:  # lengths of chunks are neither events nor data
            text = line.decode().strip()
            if text.startswith("event: "):
                kind = text[7:]
            elif text.startswith("data: "):
                yield kind, json.loads(text[6:])
                kind = "message"

    def next_state(self) -> dict[str, Any]:
        """Return the next state, skipping heartbeats."""
        return next(content for kind, content in self.events() if kind == "message")

    def close(self) -> None:
        self._file.close()
        self.socket.close()
