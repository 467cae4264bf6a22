"""Four racks and a spine, each served by a process of its own; one server watches all, and faults strike them.

Instants are of the wall clock: a try with the same seed is not the same try to the millisecond.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from unittest import mock

from numpy.random import Generator, default_rng

from lumion_hw.circuits import state_directory
from lumion_hw.errors import LumionError
from lumion_hw.joined.journal import read_joined
from lumion_hw.remote.client import LEASE_S, PvaConnection
from lumion_hw.remote.pv_names import client_conf, parse_address
from tests.joined.served_benches import ServedBenches, with_free_ports
from tests.waiting import PATIENCE_S

EXAMPLE = Path(__file__).parents[2] / "examples" / "four_racks"
SEED = 7
WATCHER = "rack3"
"""The server that watches all benches."""
OTHER_RACKS = ("rack0", "rack1", "rack2")
CIRCUITS = ("rack0:sfp0:rack1:sfp1", "rack1:sfp0:rack2:sfp3", "rack2:sfp5:rack3:sfp5", "rack3:sfp7:rack0:sfp0")
"""Circuits that are connected before every fault."""
EXTRA = "rack1:sfp6:rack0:sfp6"
"""A circuit that the operator connects while a fault strikes."""
ALARM_S = 20.0
"""Time from a fault, or from the restart of the watching server, within which every dark circuit has its alarm."""
SETTLE_S = 30.0
"""Time within which all alarms end after a repair."""
LONGEST_WAIT_S = 4.0
"""Longest time from the start of the operator's program to the fault."""
FROZEN_S = 2.0 * LEASE_S
"""Shortest time for which a server is frozen."""
_POLL_S = 0.3
_MAJOR = 2


@dataclass
class WatchedServers(ServedBenches):
    """The five servers, and what they report."""

    @classmethod
    @contextlib.contextmanager
    def of_example(cls, folder: Path) -> Iterator[Self]:
        """Serve the benches of the example on free ports, with all their files in a folder."""
        for source in EXAMPLE.glob("*.yaml"):
            (folder / source.name).write_text(with_free_ports(source.read_text(encoding="utf-8")), encoding="utf-8")
        script = str(EXAMPLE / "emulated_records.py")
        subprocess.run([sys.executable, script], cwd=folder, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE_S)
        # The watching server reads the journal of the operator in their common default directory.
        with (
            mock.patch.dict(os.environ, {"XDG_STATE_HOME": str(folder / "state")}),
            cls(folder, SEED, lambda process: None, {WATCHER: ["--watch-joined"]}).running() as servers,
        ):
            yield servers

    def restart(self, name: str) -> None:
        """Start the server of a bench again."""
        self.start(name)
        self.await_start(name)

    def watched(self) -> dict[str, bool]:
        """Return the circuits that the watching server shows, with whether each has a MAJOR alarm.

        Empty if it does not answer, or has not queried the benches yet. A change that is not finished counts, too.
        """
        from p4p.client.thread import Context

        host, port = parse_address(self.address(WATCHER))
        conf = client_conf(host, port)
        with contextlib.suppress(TimeoutError), Context("pva", conf=conf, useenv=False, nt=False) as client:
            circuits, change = client.get([f"{WATCHER}:joined:{name}" for name in ("circuits", "change")], timeout=5.0)
            table = zip(circuits.value.name, circuits.value.severity, strict=True)
            alarms = {str(name): bool(severity == _MAJOR) for name, severity in table}
            return {**alarms, UNFINISHED: change.alarm.severity > 0} if alarms else {}
        return {}

    def lit(self, names: Iterable[str]) -> set[str]:
        """Return the circuits whose receivers report light; a bench without server, or a frozen one, reports none."""
        lit = set()
        for name in names:
            bench, module = name.split(":")[2:]
            with contextlib.suppress(LumionError), contextlib.closing(PvaConnection(self.address(bench))) as server:
                if not server.call(module, "status").rx_los:
                    lit.add(name)
        return lit

    def status(self) -> dict[str, Any]:
        """Return what ``lumion joined status`` reports."""
        report = self.lumion("status", "--json", operator=None)
        assert report.stdout, report.stderr
        return dict(json.loads(report.stdout))

    def lost(self) -> list[str]:
        """Return the circuits that ``lumion joined status`` reports as lost."""
        return [str(circuit["circuit"]) for circuit in self.status()["circuits"] if circuit["is_lost"]]


UNFINISHED = "a change that is not finished"


@dataclass
class Try:
    """One try of a fault.

    Attributes:
        operator: The operator's program, which connects a circuit; ``None`` if no operator works.
        dark: Circuits that the fault makes dark, and :data:`UNFINISHED` if it leaves a change unfinished.
        since_s: Time from which the watching server has to raise the alarm.
        repair: What a person does afterwards.
        alarm_s: Time until all these alarms were raised; ``None`` if no alarm is due.
        lost: Circuits that were dark without alarm.
        broken: Other promises that were broken.
    """

    servers: WatchedServers
    rng: Generator
    operator: subprocess.Popen[str] | None = None
    dark: set[str] = field(default_factory=set)
    since_s: float = 0.0
    repair: Callable[[], object] = lambda: None
    alarm_s: float | None = None
    lost: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def carry_out(self, strike: Callable[[Try], None]) -> None:
        """Strike while the operator works or rests, wait for the alarms, repair, and check that all is well."""
        if strike is operator_killed or self.rng.integers(2):
            self.operator = self.servers.begin(None, "connect", EXTRA)
        time.sleep(float(self.rng.uniform(0.0, LONGEST_WAIT_S)))
        self.since_s = time.monotonic()
        strike(self)
        self._await_alarms()
        self.repair()
        has_connected = False
        if self.operator is not None:
            self.operator.communicate(timeout=PATIENCE_S)
            has_connected = self.operator.returncode == 0
        self._restore({*CIRCUITS, *([EXTRA] if has_connected else [])})

    def _await_alarms(self) -> None:
        """Wait until each circuit has an alarm or light, and each that the fault makes dark has an alarm."""
        while True:
            watched = self.servers.watched()
            missing = {name for name in self.dark if not watched.get(name)}
            quiet = {name for name in CIRCUITS if not watched.get(name)}
            if not missing and watched and not quiet - self.servers.lit(quiet):
                self.alarm_s = time.monotonic() - self.since_s if self.dark else None
                return
            if time.monotonic() - self.since_s > ALARM_S:
                self.lost += sorted(missing | (quiet - self.servers.lit(quiet)))
                return
            time.sleep(_POLL_S)

    def _restore(self, wanted: set[str]) -> None:
        """Do what the documentation says, and check that afterwards all is well."""
        servers = self.servers
        if servers.status()["unfinished"] is not None:
            self._run("recover")
        end_s = time.monotonic() + SETTLE_S / 2.0
        while (lost := servers.lost()) and time.monotonic() < end_s:
            time.sleep(_POLL_S)  # a server that was frozen sets its circuits up again
        if lost:
            self._run("connect", *lost)
        whole = {str(circuit["circuit"]) for circuit in servers.status()["circuits"] if not circuit["problems"]}
        if not wanted <= whole <= wanted | {EXTRA}:
            self.broken.append(f"connected afterwards: {sorted(whole)}")
        if EXTRA in whole:
            self._run("disconnect", EXTRA)
        if dark := set(CIRCUITS) - servers.lit(CIRCUITS):
            self.broken.append(f"dark afterwards: {sorted(dark)}")
        end_s = time.monotonic() + SETTLE_S
        while servers.watched() != {**dict.fromkeys(CIRCUITS, False), UNFINISHED: False}:
            if time.monotonic() > end_s:
                self.broken.append(f"the watching server shows afterwards: {servers.watched()}")
                return
            time.sleep(_POLL_S)

    def _run(self, *arguments: str) -> None:
        done = self.servers.lumion(*arguments, operator=None)
        if done.returncode != 0:
            self.broken.append(f"lumion joined {' '.join(arguments)}: exit {done.returncode}, {done.stderr[-600:]}")


def circuits_over(bench: str) -> set[str]:
    """Return the circuits that cross a bench."""
    return {name for name in CIRCUITS if bench == "spine" or f"{bench}:" in name}


# -- strikes


def rack_killed(attempt: Try) -> None:
    """Kill the server of a rack that does not watch; its emulated bench ends with it."""
    _kill(attempt, str(attempt.rng.choice(OTHER_RACKS)))


def spine_killed(attempt: Try) -> None:
    """Kill the server of the spine."""
    _kill(attempt, "spine")


def _kill(attempt: Try, name: str) -> None:
    attempt.servers.kill(name)
    attempt.dark = circuits_over(name)
    attempt.repair = lambda: attempt.servers.restart(name)


def watcher_killed(attempt: Try) -> None:
    """Kill the server that watches; only the next one can raise the alarm."""
    attempt.servers.kill(WATCHER)
    attempt.servers.restart(WATCHER)
    attempt.since_s = time.monotonic()
    attempt.dark = circuits_over(WATCHER)


def operator_killed(attempt: Try) -> None:
    """Kill the operator's program while it makes its change, or just after."""
    assert attempt.operator is not None
    journal = state_directory("four-racks", "joined")
    while attempt.operator.poll() is None and read_joined(journal).unfinished is None:
        time.sleep(0.01)
    time.sleep(float(attempt.rng.uniform(0.0, 0.5 * LONGEST_WAIT_S)))
    attempt.operator.kill()
    attempt.operator.wait(PATIENCE_S)
    attempt.since_s = time.monotonic()
    attempt.dark = {UNFINISHED} if attempt.servers.status()["unfinished"] else set()


def server_frozen(attempt: Try) -> None:
    """Stop a server that does not watch, for longer than a lease lasts; the watchdog switches its heaters off."""
    name = str(attempt.rng.choice([*OTHER_RACKS, "spine"]))
    process, begun_s = attempt.servers.processes[name], time.monotonic()
    process.send_signal(signal.SIGSTOP)
    attempt.dark = circuits_over(name)

    def thaw() -> None:
        time.sleep(max(begun_s + FROZEN_S - time.monotonic(), 0.0))
        process.send_signal(signal.SIGCONT)

    attempt.repair = thaw


def light_cut(attempt: Try) -> None:
    """Cut the light of a transmitter."""
    circuit = str(attempt.rng.choice(CIRCUITS))
    bench, module = circuit.split(":")[:2]

    def fault(action: str) -> None:
        command = ["fault", f"{bench}.yaml", action, module, "tx_disable_pin"]
        done = attempt.servers.cli(*command, "--served", attempt.servers.address(bench))
        assert done.returncode == 0, done.stderr

    fault("inject")
    attempt.dark = {circuit}
    attempt.repair = lambda: fault("clear")


FAULTS: dict[str, Callable[[Try], None]] = {
    "server of a rack killed": rack_killed,
    "server of the spine killed": spine_killed,
    "watching server killed": watcher_killed,
    "program of the operator killed": operator_killed,
    f"server frozen for {FROZEN_S:g} s or more": server_frozen,
    "light of a transmitter cut": light_cut,
}


def campaign(folder: Path, rounds: int, seed: int) -> Iterator[tuple[str, Try]]:
    """Serve the benches, connect the circuits, and yield the name of each fault with its try, ``rounds`` of each.

    It ends after the first try that breaks a promise.
    """
    rng = default_rng(seed)
    with WatchedServers.of_example(folder) as servers:
        connected = servers.lumion("connect", *CIRCUITS, operator=None)
        assert connected.returncode == 0, connected.stderr
        for name in rng.permutation(rounds * list(FAULTS)):
            attempt = Try(servers, rng)
            attempt.carry_out(FAULTS[str(name)])
            yield str(name), attempt
            if attempt.lost or attempt.broken:
                return
