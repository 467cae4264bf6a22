"""Jobs of torchrun that go on with a spare when a server fails: ``python -m lumion_hw.integrations.torchrun``.

Each server, also a spare, has an agent of torchrun, whose processes call :func:`run_member`. A coordinator forms their
group, and a new one when the hook of ``lumion fabric run`` says that a server was replaced; torchrun restarts nothing.
The extra ``lumion-hw[rehearsal]`` has torch. Groups use gloo.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import selectors
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lumion_hw.errors import ConfigError, DeviceError, LumionError
from lumion_hw.training.member import Member
from lumion_hw.training.ranks import Rank, Ranks

if TYPE_CHECKING:
    from lumion_hw.training.torch_job import Build, TrainStep

COORDINATOR, SERVER = "LUMION_COORDINATOR", "LUMION_SERVER"
"""Environment of the processes: address of the coordinator (``HOST:PORT``), name of the server in the bench file."""
JOIN_TIMEOUT_S = 30.0
"""Time in which all ranks must join a new group, in s."""
_HEARTBEAT_PERIOD_S = 0.05
_MAX_LINE = 65536
_MILESTONE = {"rebuild": "group_up", "restore": "state_restored", "go": "first_step"}
"""What all ranks must have reached before a call of the hook succeeds."""


def run_member(build: Build, train_step: TrainStep) -> None:
    """Train as one rank of a job, through all its groups, until the job is done.

    The process must have the environment variables ``LUMION_COORDINATOR`` and ``LUMION_SERVER``, and ``LOCAL_RANK``,
    which torchrun sets. It ends at once if the coordinator ends, or gives its rank to a spare.

    Args:
        build: Returns the model and the optimizer; called in every new group with the number of servers and of ranks
            per server. It must return the same initial state every time. The model may be sharded over the ranks of
            each server, so that every server has a complete copy.
        train_step: Trains one step; called with the model, the optimizer and the number of finished steps. It must
            depend on this number and the rank only: learning rates, data and random numbers derive from them.

    Raises:
        ConfigError: torch or an environment variable is missing.
        DeviceError: The coordinator does not answer.
    """
    try:
        from lumion_hw.training.torch_job import TorchJob

        job = TorchJob(build, train_step)
    except ImportError as error:
        raise ConfigError("a job of torchrun needs torch", hint="pip install 'lumion-hw[rehearsal]'") from error
    missing = [name for name in (COORDINATOR, SERVER, "LOCAL_RANK") if name not in os.environ]
    if missing:
        raise ConfigError(
            f"the environment has no {' and no '.join(missing)}",
            hint=f"Start this program by torchrun, with {COORDINATOR}=HOST:PORT and {SERVER}=NAME.",
        )
    control = _connect(os.environ[COORDINATOR])
    hello = {"is": "hello", "server": os.environ[SERVER], "index": int(os.environ["LOCAL_RANK"])}
    control.sendall((json.dumps(hello) + "\n").encode())
    Member(control, job).run()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"{text!r} is no address", hint="Give HOST:PORT.")
    return host, int(port)


def _connect(address: str) -> socket.socket:
    try:
        connection = socket.create_connection(_address(address), JOIN_TIMEOUT_S)
    except OSError as error:
        raise DeviceError(f"the coordinator at {address} does not answer: {error.strerror or error}") from error
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


@dataclass
class _Call:
    """A call of the hook that waits for the ranks."""

    connection: socket.socket
    event: str
    deadline_s: float


@dataclass
class _Greeting:
    """A connection before its first line is complete."""

    connection: socket.socket
    received: bytes = b""


@dataclass
class _Progress:
    """What the ranks of a group have reached.

    Attributes:
        reached: Names of the ranks that have reached a milestone, by milestone.
        failures: Reasons why ranks have left the group by themselves, by rank.
        hashes: Hashes of the final states, by rank.
    """

    reached: dict[str, set[str]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)


class Coordinator:
    """Forms the groups of one job. Serves ranks and the hook on one address.

    Ranks are not authenticated, as in torch.distributed: use an address of a trusted control network.

    Args:
        address: Address to listen on; port 0 for any.
        members: Servers of the job in rank order.
        per_server: Ranks per server.
        steps: Number of training steps of the job.
        heartbeat_port: UDP port of the detector ``heartbeat`` on this host; ``None`` without this detector.

    Attributes:
        address: Host and port that ranks and hook connect to.
    """

    def __init__(
        self,
        address: tuple[str, int],
        members: Sequence[str],
        per_server: int,
        steps: int,
        heartbeat_port: int | None = None,
    ) -> None:
        self._members, self._per_server, self._steps = tuple(members), per_server, steps
        self._heartbeat_port, self._beat_s = heartbeat_port, 0.0
        self._ranks, self._progress = Ranks(), _Progress()
        self._generation = 0
        self._without_state: set[str] = set()
        self._is_forming = True
        self._calls: list[_Call] = []
        self._listener = socket.create_server(address)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._beats = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._ranks.selector.register(self._listener, selectors.EVENT_READ)
        dist: Any = importlib.import_module("torch.distributed")
        self._store_socket = socket.create_server((address[0], 0))
        # On the same address as the coordinator; without a socket, the store listens on all.
        self._store = dist.TCPStore(
            address[0],
            self._store_socket.getsockname()[1],
            is_master=True,
            wait_for_workers=False,
            master_listen_fd=self._store_socket.fileno(),
        )
        self._store_socket.detach()  # the store closes it

    def run(self) -> dict[str, str]:
        """Coordinate the job until it is done; return the hashes of the final states by rank."""
        _tell("waiting", words=f"waiting for {self._per_server} ranks on each of {', '.join(self._members)}")
        while len(self._progress.hashes) < len(self._members) * self._per_server:
            self._serve(0.005)
            if self._is_forming and not self._missing():
                self._form()
            self._answer_calls()
            self._send_heartbeats()
        _tell("done", words=f"the job is done after {self._steps} steps", sha256=self._progress.hashes)
        return dict(self._progress.hashes)

    def close(self) -> None:
        """Close all connections; ranks of an unfinished job end. Idempotent."""
        self._ranks.close()
        for call in self._calls:
            call.connection.close()
        self._listener.close()
        self._beats.close()

    def _missing(self) -> list[str]:
        """Return the ranks of the members that are not ready to form a group."""
        ready = {rank.name for rank in self._ranks.of(*self._members) if rank.is_warm and not rank.has_ended}
        names = [f"rank {index} of {server}" for server in self._members for index in range(self._per_server)]
        return [name for name in names if name not in ready]

    def _form(self) -> None:
        self._is_forming = False
        self._generation += 1
        self._progress = _Progress()
        host = self.address[0]
        stores = {server: [host, self._store.port] for server in self._members}
        self._ranks.form(self._members, self._without_state, self._generation, stores, steps=self._steps)
        is_new = self._generation > 1 and self._without_state >= set(self._members)
        words = "no rank has a state: the job starts again" if is_new else f"members {' '.join(self._members)}"
        _tell("forming", generation=self._generation, members=list(self._members), words=words)

    # -- ranks and hook -----------------------------------------------------------------------------------------------

    def _serve(self, timeout_s: float) -> None:
        for key, _ in self._ranks.selector.select(timeout_s):
            if isinstance(key.data, Rank):
                for report in self._ranks.read(key.data):
                    self._note(key.data, report)
            elif isinstance(key.data, _Greeting):
                self._greet(key.data)
            else:
                connection = self._listener.accept()[0]
                connection.settimeout(1.0)
                self._ranks.selector.register(connection, selectors.EVENT_READ, _Greeting(connection))

    def _greet(self, greeting: _Greeting) -> None:
        """Read the first line of a connection, which says whether this is a rank or the hook."""
        connection = greeting.connection
        try:
            data = connection.recv(65536)
        except OSError:
            data = b""
        greeting.received += data
        line, is_complete, rest = greeting.received.partition(b"\n")
        if data and not is_complete and len(line) < _MAX_LINE:
            return
        self._ranks.selector.unregister(connection)
        try:
            self._welcome(connection, json.loads(line), rest)
        except (ValueError, KeyError, TypeError):
            connection.close()
            _tell("refused", words="a connection that is neither a rank nor the hook was closed")

    def _welcome(self, connection: socket.socket, document: dict[str, Any], rest: bytes) -> None:
        if "event" in document:
            failed, members = str(document["failed"]), tuple(map(str, document["members"]))
            self._call(connection, str(document["event"]), members, failed)
            return
        server, index = str(document["server"]), int(document["index"])
        if not 0 <= index < self._per_server:
            connection.close()
            _tell("refused", words=f"{server} has a rank {index}, but the job has {self._per_server} per server")
            return
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        rank = Rank(server, index, connection)
        self._ranks.add(rank)
        self._without_state.add(server)  # also when a process of a member was restarted
        _tell("joined", words=f"{rank.name} has connected")
        for report in self._ranks.take(rank, rest):
            self._note(rank, report)

    def _note(self, rank: Rank, report: dict[str, Any]) -> None:
        kind = report["is"]
        if kind == "gone" and rank.server not in self._members:
            _tell("gone", words=f"{rank.name} (spare): {report['words']}")
        elif kind == "gone":
            self._progress.failures[rank.name] = report["words"]
            _tell("gone", words=f"{rank.name}: {report['words']}")
        elif report.get("generation") == self._generation:
            if kind == "done":
                self._progress.hashes[rank.name] = report["sha256"]
            elif kind == "left":
                self._progress.failures[rank.name] = report["words"]
                _tell("left", generation=self._generation, words=f"{rank.name} left its group: {report['words']}")
            elif kind != "step":
                reached = self._progress.reached.setdefault(kind, set())
                reached.add(rank.name)
                if kind == "first_step":
                    self._without_state.discard(rank.server)
                if len(reached) == len(self._members) * self._per_server:
                    _tell(kind, generation=self._generation, step=report.get("step"))

    def _call(self, connection: socket.socket, event: str, members: tuple[str, ...], failed: str) -> None:
        _tell("hook", words=f"hook: {event} {' '.join(members)}")
        self._calls.append(_Call(connection, event, time.monotonic() + JOIN_TIMEOUT_S))
        if event == "stop":
            self._stop(failed)
        elif event == "rebuild":
            self._members, self._is_forming = members, True
            for rank in self._ranks.of(*members):
                if self._generation:
                    rank.order("leave")

    def _stop(self, failed: str) -> None:
        """Make the other ranks leave their group; those of the failed server end, and do not come back."""
        self._is_forming = False
        for rank in self._ranks.of(*(server for server in self._members if server != failed)):
            rank.order("leave")
        self._ranks.remove(failed)

    def _answer_calls(self) -> None:
        now_s = time.monotonic()
        for call in list(self._calls):
            error = self._error_of(call, now_s)
            if error is None and not self._is_fulfilled(call):
                continue
            self._calls.remove(call)
            with contextlib.suppress(OSError), call.connection:
                call.connection.sendall((json.dumps({"error": error or ""}) + "\n").encode())

    def _is_fulfilled(self, call: _Call) -> bool:
        if call.event == "stop":
            return True
        reached = self._progress.reached.get(_MILESTONE[call.event], ())
        return not self._is_forming and len(reached) == len(self._members) * self._per_server

    def _error_of(self, call: _Call, now_s: float) -> str | None:
        if call.event != "stop" and call.event not in _MILESTONE:
            return f"there is no event {call.event!r}"
        if call.event != "stop" and not self._is_forming and not self._is_fulfilled(call) and self._progress.failures:
            return "; ".join(f"{name}: {reason}" for name, reason in sorted(self._progress.failures.items()))
        if now_s < call.deadline_s:
            return None
        if self._is_forming:
            return f"{', '.join(self._missing())} did not join within {JOIN_TIMEOUT_S:.0f} s"
        return f"the ranks did not reach {_MILESTONE[call.event]} within {JOIN_TIMEOUT_S:.0f} s"

    def _send_heartbeats(self) -> None:
        """Send a heartbeat for every server whose ranks are all well."""
        now_s = time.monotonic()
        if self._heartbeat_port is None or now_s < self._beat_s:
            return
        self._beat_s = now_s + _HEARTBEAT_PERIOD_S
        for server in self._ranks.servers:
            ranks = self._ranks.of(server)
            if len(ranks) == self._per_server and not any(rank.problem(now_s) for rank in ranks):
                with contextlib.suppress(OSError):
                    self._beats.sendto(server.encode(), ("127.0.0.1", self._heartbeat_port))


def _tell(event: str, **details: Any) -> None:
    sys.stdout.write(json.dumps({"s": round(time.time(), 4), "event": event, **details}) + "\n")
    sys.stdout.flush()


def call_hook(address: str, event: str, members: Sequence[str]) -> None:
    """Pass a call of the hook of ``lumion fabric run`` to the coordinator, and wait for its end.

    Args:
        address: Address of the coordinator, as ``HOST:PORT``.
        event: ``stop``, ``rebuild``, ``restore`` or ``go``.
        members: Members of the job in rank order; for ``stop``, the last one is the failed server.

    Raises:
        DeviceError: The coordinator does not answer, or the ranks did not do it.
    """
    failed = members[-1] if event == "stop" else ""
    named = list(members[:-1] if event == "stop" else members)
    with _connect(address) as connection, connection.makefile("rw", encoding="utf-8") as lines:
        lines.write(json.dumps({"event": event, "members": named, "failed": failed}) + "\n")
        lines.flush()
        answer = lines.readline()
    if not answer:
        raise DeviceError(f"the coordinator at {address} ended before it had answered")
    error = json.loads(answer)["error"]
    if error:
        raise DeviceError(f"{event}: {error}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the coordinator of a job, or pass one call of the hook to it; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m lumion_hw.integrations.torchrun", description=main.__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    coordinate = commands.add_parser("coordinate", help="run the coordinator until the job is done")
    coordinate.add_argument("address", help="HOST:PORT to listen on, in a trusted control network")
    coordinate.add_argument("members", nargs="+", help="servers of the job in rank order, spares not included")
    coordinate.add_argument("--per-server", type=int, default=1, help="processes per server [default: 1]")
    coordinate.add_argument("--steps", type=int, required=True, help="number of training steps")
    coordinate.add_argument("--heartbeat-port", type=int, help="UDP port of the detector 'heartbeat' on this host")
    hook = commands.add_parser("hook", help="program for `lumion fabric run --hook`")
    hook.add_argument("address", help="HOST:PORT of the coordinator")
    hook.add_argument("event", help="stop, rebuild, restore or go")
    hook.add_argument("job", help="name of the job")
    hook.add_argument("members", nargs="+", help="members in rank order; after them the failed one, with stop")
    given = parser.parse_args(arguments)
    try:
        if given.command == "hook":
            call_hook(given.address, given.event, given.members)
            return 0
        with contextlib.closing(
            Coordinator(_address(given.address), given.members, given.per_server, given.steps, given.heartbeat_port)
        ) as coordinator:
            coordinator.run()
    except (LumionError, KeyboardInterrupt) as error:
        sys.stderr.write(f"{error or 'ended by the user'}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
