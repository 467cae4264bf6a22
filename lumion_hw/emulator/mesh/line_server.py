"""An emulated photonic unit of the SmartLight prototype: a TCP server that takes one line of PUC states per connection.

The server greets, takes one line, tells its progress and closes the connection; greeting and progress are free text
(docs/bench-file.md, smartlight-line-server). What the line says is read by regular expressions alone.
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
"""Longest line in bytes, LF included."""
MAX_CONNECTIONS = 32
"""Open connections above which more are refused."""
RECONFIGURATION_S = (0.015, 0.090)
"""Time to reconfigure no PUC and all of them: 15 to 90 ms (D. Sánchez-Jácome, PhD thesis, UPV 2025)."""

_SHOWN = 40
_BLANK = r"[ \t]*"
_CHARACTERS = re.compile(rb"[\[\](),'\"x=0-9 \t]*")
_PAIR = rf"{_BLANK}\({_BLANK}([0-9]{{1,2}}){_BLANK},{_BLANK}(['\"])([x=])\2{_BLANK}\){_BLANK}"
_FIRST = re.compile(_PAIR, re.ASCII)
_NEXT = re.compile(f",{_PAIR}", re.ASCII)
_OPENING = re.compile(rf"{_BLANK}\[{_BLANK}", re.ASCII)
_CLOSING = re.compile(rf"{_BLANK}\]{_BLANK}", re.ASCII)


def parse_states(line: bytes, n_pucs: int = N_PUCS) -> dict[int, str]:
    """Read a line of PUC states.

    Args:
        line: The line, without its LF.
        n_pucs: Number of PUCs.

    Returns:
        State by PUC, ``"x"`` cross or ``"="`` bar.

    Raises:
        ConfigError: It is too long, is not the grammar, names a PUC that is not there, or one twice.
    """
    if len(line) >= MAX_LINE:
        raise ConfigError(f"the line is longer than {MAX_LINE} bytes")
    if _CHARACTERS.fullmatch(line) is None:
        raise ConfigError("the line has characters that no list of states has")
    # Read by anchored patterns and never evaluated: the server is unauthenticated, the line looks like Python.
    text = line.decode("ascii")
    opening = _OPENING.match(text)
    if opening is None:
        raise ConfigError("the line does not begin with [")
    states: dict[int, str] = {}
    place = opening.end()
    pair = _FIRST.match(text, place)
    while pair is not None:
        puc = int(pair.group(1))
        if puc >= n_pucs:
            raise ConfigError(f"there is no PUC {puc}, only 0 to {n_pucs - 1}")
        if puc in states:
            raise ConfigError(f"PUC {puc} is given twice")
        states[puc] = pair.group(3)
        place = pair.end()
        pair = _NEXT.match(text, place)
    if _CLOSING.fullmatch(text, place) is None:
        raise ConfigError(f"no pair and no end at character {place}: {text[place : place + _SHOWN]!r}")
    return states


@dataclass
class _StateJob:
    """One configuration on its way: begun, told about in steps, applied at its end."""

    states: dict[int, str]
    begin_s: float
    end_s: float
    told: int = 0


class LinePeer:
    """One connection: greeting, one line, progress, end."""

    def __init__(self, server: LineServer, greeting: bytes) -> None:
        self._server = server
        self._output = bytearray(greeting)
        self._line = bytearray()
        self.asked = False
        self.ended = False

    def receive(self, data: bytes) -> None:
        """Take bytes from the host, now; what follows the line is ignored."""
        self._server.advance()
        if self.asked or self.ended:
            return
        head, end, _ = data.partition(b"\n")
        self._line += head[: MAX_LINE - len(self._line)]
        if end or len(self._line) >= MAX_LINE:
            self.asked = True
            line, self._line = bytes(self._line), bytearray()
            self._server.configure(self, line)

    def transmit(self) -> bytes:
        """Give the text for the host. Raises ``LinkLost`` when all is said and the connection closed."""
        self._server.advance()
        data, self._output = bytes(self._output), bytearray()
        if not data and self.ended:
            raise LinkLost("the server has closed the connection", device=self._server.name)
        return data

    def next_event(self) -> float | None:
        """Return when there is more text or the end."""
        return self._server.now() if self._output or self.ended else self._server.next_event(self)

    def close(self) -> None:
        """The host went away; a configuration begun is carried through."""
        self._server.disconnect(self)

    def tell(self, text: str) -> None:
        """Say something to the host."""
        self._output += text.encode("utf-8")


class LineServer(Switchable):
    """The control server of the prototype's photonic unit.

    One reconfiguration runs at a time, those of other connections wait for it.

    Args:
        name: Device name of the bench file.
        clock: The clock of the bench.
        apply_states: Called with the state of every PUC listed (``"x"`` cross, ``"="`` bar) when a reconfiguration is
            done; PUCs not listed are inactive. A ``LumionError`` it raises is told to the host.
        greeting: What a connection begins with; empty for a server that does not greet.
        progress: Texts of a reconfiguration: spread over its time, the first at once and the last at its end.
        n_pucs: Number of PUCs.
        reconfiguration_s: Time to reconfigure no PUC and all of them; between, by the number of PUCs listed.
    """

    what = "the photonic unit"
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
        """Open one more connection. Raises ``ConnectError`` when the unit cannot be reached or has too many."""
        self._require_reachable()
        # A reconfiguration whose host has gone is carried through, and holds its place until then.
        orphans = sum(owner not in self._peers for _, owner in self._jobs)
        if len(self._peers) + orphans >= MAX_CONNECTIONS:
            raise ConnectError("the photonic unit has too many connections", device=self._name, hint="Close some.")
        peer = LinePeer(self, self._greeting)
        self._peers.append(peer)
        return DeviceConnection(self, peer)

    def disconnect(self, peer: LinePeer) -> None:
        """Forget a connection."""
        self.advance()
        if peer in self._peers:
            self._peers.remove(peer)

    def configure(self, peer: LinePeer, line: bytes) -> None:
        """Begin what a line asks for, or tell what is wrong with it and end the connection."""
        try:
            states = parse_states(line, self._n_pucs)
        except ConfigError as error:
            peer.tell(f"error: {error.message}\n")
            peer.ended = True
            return
        shortest, longest = self._reconfiguration_s
        # One at a time: the unit has one set of drivers.
        begin = max([self._clock.now(), *(job.end_s for job, _ in self._jobs)])
        # Model: in proportion to the PUCs listed; published are the ends only.
        duration = shortest + (longest - shortest) * len(states) / self._n_pucs
        self._jobs.append((_StateJob(states, begin, begin + duration), peer))
        self.advance()

    def next_event(self, peer: LinePeer) -> float | None:
        """Return when the server has more to say to a connection."""
        return next((self._next_step_s(job) for job, owner in self._jobs if owner is peer), None)

    def _next_step_s(self, job: _StateJob) -> float:
        steps = max(len(self._progress) - 1, 1)
        if job.told >= len(self._progress) - 1:
            return job.end_s
        return job.begin_s + (job.end_s - job.begin_s) * job.told / steps

    def next_due(self) -> float | None:
        """Return when the reconfiguration under way has its next step, whether or not its host is still there."""
        return self._next_step_s(self._jobs[0][0]) if self._jobs and self.powered else None

    def advance(self) -> None:
        """Tell the progress that is due, and apply the states whose time is over."""
        if self._advancing or not self.powered:
            return
        self._advancing = True
        try:
            now = self._clock.now()
            while self._jobs and self._next_step_s(self._jobs[0][0]) <= now:
                job, peer = self._jobs[0]
                # The last text belongs to the end, where it may turn out to be an error.
                if job.told < len(self._progress) - 1:
                    peer.tell(self._progress[job.told])
                    job.told += 1
                else:
                    self._jobs.pop(0)
                    self._finish(job, peer)
        finally:
            self._advancing = False

    def _finish(self, job: _StateJob, peer: LinePeer) -> None:
        try:
            self._apply(job.states)
        except LumionError as error:
            peer.tell(f"error: {error}\n")
        else:
            peer.tell("".join(self._progress[job.told :]))
        peer.ended = True

    def _lose_power(self) -> None:
        """Every connection ends where it is, reconfigurations under way are lost."""
        self._jobs.clear()
        for peer in self._peers:
            peer.ended = True
