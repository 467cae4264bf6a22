"""Emulated line server of the SmartLight prototype: one line of PUC states per TCP connection.

The server (the prototype's photonic unit) greets, reads one line, reports progress as free text and closes the
connection (docs/bench-file.md, smartlight-line-server).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lumion_hw.clock import Clock
from lumion_hw.emulator.wires.mains import DeviceConnection, Switchable
from lumion_hw.errors import ConfigError, ConnectError, LinkLost, LumionError

N_PUCS = 72
"""PUCs of the prototype, numbered from 0."""
MAX_LINE = 4096
"""Longest line in bytes, with LF."""
MAX_CONNECTIONS = 32
"""Largest number of open connections."""
RECONFIGURATION_S = (0.015, 0.090)
"""Duration in s of reconfiguring no PUC and all PUCs (D. Sánchez-Jácome, PhD thesis, UPV 2025)."""

_MAX_ECHOED_CHARS = 40
_BLANK = r"[ \t]*"
_CHARACTERS = re.compile(rb"[\[\](),'\"x=0-9 \t]*")
_PAIR = rf"{_BLANK}\({_BLANK}([0-9]{{1,2}}){_BLANK},{_BLANK}(['\"])([x=])\2{_BLANK}\){_BLANK}"
_FIRST = re.compile(_PAIR, re.ASCII)
_NEXT = re.compile(f",{_PAIR}", re.ASCII)
_OPENING = re.compile(rf"{_BLANK}\[{_BLANK}", re.ASCII)
_CLOSING = re.compile(rf"{_BLANK}\]{_BLANK}", re.ASCII)


def parse_states(line: bytes, n_pucs: int = N_PUCS) -> dict[int, str]:
    """Return the state of each PUC in a line from the host, ``"x"`` cross or ``"="`` bar. The line has no LF.

    Raises ``ConfigError`` if the line is too long or malformed, or names an unknown PUC or the same PUC twice.
    """
    if len(line) >= MAX_LINE:
        raise ConfigError(f"the line is longer than {MAX_LINE} bytes")
    if _CHARACTERS.fullmatch(line) is None:
        raise ConfigError("the line contains characters that are not allowed in a list of states")
    # Parsed by anchored patterns and never evaluated: the line looks like Python, and the server is unauthenticated.
    text = line.decode("ascii")
    opening = _OPENING.match(text)
    if opening is None:
        raise ConfigError("the line does not begin with [")
    states: dict[int, str] = {}
    position = opening.end()
    pair = _FIRST.match(text, position)
    while pair is not None:
        puc = int(pair.group(1))
        if puc >= n_pucs:
            raise ConfigError(f"there is no PUC {puc}, only 0 to {n_pucs - 1}")
        if puc in states:
            raise ConfigError(f"PUC {puc} is listed twice")
        states[puc] = pair.group(3)
        position = pair.end()
        pair = _NEXT.match(text, position)
    if _CLOSING.fullmatch(text, position) is None:
        raise ConfigError(
            f"expected (PUC, state) or ] at character {position}: {text[position : position + _MAX_ECHOED_CHARS]!r}"
        )
    return states


@dataclass
class _StateJob:
    """A command that sets PUC states, from its start to its end; the states are reported one by one."""

    states: dict[int, str]
    begin_s: float
    end_s: float
    n_reported: int = 0


class LinePeer:
    """One host connection to the line server of the photonic unit."""

    def __init__(self, server: LineServer, greeting: bytes) -> None:
        self._server = server
        self._output = bytearray(greeting)
        self._line = bytearray()
        self.line_received = False
        self.is_closed = False

    def receive(self, data: bytes) -> None:
        """Process bytes from the host. Bytes after the first line are ignored."""
        self._server.advance()
        if self.line_received or self.is_closed:
            return
        part, end, _ = data.partition(b"\n")
        self._line += part[: MAX_LINE - len(self._line)]
        if end or len(self._line) >= MAX_LINE:
            self.line_received = True
            line, self._line = bytes(self._line), bytearray()
            self._server.configure(self, line)

    def transmit(self) -> bytes:
        """Return the bytes for the host. Raises ``LinkLost`` when the server has closed and all bytes are read."""
        self._server.advance()
        data, self._output = bytes(self._output), bytearray()
        if not data and self.is_closed:
            raise LinkLost("the server has closed the connection", device=self._server.name)
        return data

    def next_event(self) -> float | None:
        """Return the time at which the server next sends text or closes the connection."""
        return self._server.now() if self._output or self.is_closed else self._server.next_event(self)

    def close(self) -> None:
        """Close the connection. A reconfiguration in progress is completed."""
        self._server.disconnect(self)

    def send_text(self, text: str) -> None:
        """Queue text for the host."""
        self._output += text.encode("utf-8")


class LineServer(Switchable):
    """Emulated server of the SmartLight prototype's photonic unit.

    One reconfiguration runs at a time; requests of other connections wait.

    Args:
        apply_states: Called at the end of a reconfiguration with the state of every listed PUC (``"x"`` cross, ``"="``
            bar). The other PUCs are not heated. A ``LumionError`` of this function is reported to the host.
        greeting: First text that the server sends on a connection; empty for none.
        progress: Progress messages of a reconfiguration: the first is sent at once, the last at the end.
        reconfiguration_s: Durations of reconfiguring no PUC and all PUCs; linear in between.
    """

    description = "the photonic unit"
    closes_on_power_loss = True

    def __init__(
        self,
        name: str,
        clock: Clock,
        *,
        apply_states: Callable[[dict[int, str]], None],
        greeting: str = "photonic unit ready\n",
        progress: Sequence[str] = ("configuring\n", "configured\n"),
        n_pucs: int = N_PUCS,
        reconfiguration_s: tuple[float, float] = RECONFIGURATION_S,
    ) -> None:
        super().__init__(name, clock)
        self._apply = apply_states
        self._greeting = greeting.encode("utf-8")
        self._progress = tuple(progress)
        self._n_pucs = n_pucs
        self._reconfiguration_s = reconfiguration_s
        self._peers: list[LinePeer] = []
        self._jobs: list[tuple[_StateJob, LinePeer]] = []
        self._advancing = False

    def connect(self) -> DeviceConnection:
        """Open another connection. Raises ``ConnectError`` if the unit is unreachable or has too many connections."""
        self._require_reachable()
        # A reconfiguration whose host has gone is completed, and counts as a connection until then.
        orphans = sum(owner not in self._peers for _, owner in self._jobs)
        if len(self._peers) + orphans >= MAX_CONNECTIONS:
            raise ConnectError(
                "the photonic unit has too many connections", device=self._name, hint="Close another connection first."
            )
        peer = LinePeer(self, self._greeting)
        self._peers.append(peer)
        return DeviceConnection(self, peer)

    def disconnect(self, peer: LinePeer) -> None:
        """Remove a closed connection from the server."""
        self.advance()
        if peer in self._peers:
            self._peers.remove(peer)

    def configure(self, peer: LinePeer, line: bytes) -> None:
        """Start the reconfiguration that a line requests. An invalid line is reported, and the connection ends."""
        try:
            states = parse_states(line, self._n_pucs)
        except ConfigError as error:
            peer.send_text(f"error: {error.message}\n")
            peer.is_closed = True
            return
        shortest, longest = self._reconfiguration_s
        # One at a time: the unit has a single set of drivers.
        begin = max([self._clock.now(), *(job.end_s for job, _ in self._jobs)])
        # Choice of this emulator: proportional to the number of listed PUCs; only the end points are published.
        duration = shortest + (longest - shortest) * len(states) / self._n_pucs
        self._jobs.append((_StateJob(states, begin, begin + duration), peer))
        self.advance()

    def next_event(self, peer: LinePeer) -> float | None:
        """Return the time at which the server next sends something to a connection."""
        return next((self._next_step_s(job) for job, owner in self._jobs if owner is peer), None)

    def _next_step_s(self, job: _StateJob) -> float:
        steps = max(len(self._progress) - 1, 1)
        if job.n_reported >= len(self._progress) - 1:
            return job.end_s
        return job.begin_s + (job.end_s - job.begin_s) * job.n_reported / steps

    def next_due(self) -> float | None:
        """Return the time of the next step of the current reconfiguration."""
        return self._next_step_s(self._jobs[0][0]) if self._jobs and self.powered else None

    def advance(self) -> None:
        """Send the progress messages that are due, and apply the states of finished reconfigurations."""
        if self._advancing or not self.powered:
            return
        self._advancing = True
        try:
            now_s = self._clock.now()
            while self._jobs and self._next_step_s(self._jobs[0][0]) <= now_s:
                job, peer = self._jobs[0]
                # The last text belongs to the end, where it may be replaced by an error.
                if job.n_reported < len(self._progress) - 1:
                    peer.send_text(self._progress[job.n_reported])
                    job.n_reported += 1
                else:
                    self._jobs.pop(0)
                    self._finish(job, peer)
        finally:
            self._advancing = False

    def _finish(self, job: _StateJob, peer: LinePeer) -> None:
        try:
            self._apply(job.states)
        except LumionError as error:
            peer.send_text(f"error: {error}\n")
        else:
            peer.send_text("".join(self._progress[job.n_reported :]))
        peer.is_closed = True

    def _lose_power(self) -> None:
        self._jobs.clear()
        for peer in self._peers:
            peer.is_closed = True
