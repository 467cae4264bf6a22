"""The far end of a text conversation, as small as a driver's tests need it: settings, readings, one error queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from lumion_hw.clock import VirtualClock

Answer = str | bytes | None


class Fault(Exception):  # noqa: N818
    """An entry for the error queue."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.entry = f'{code},"{text}"'


UNDEFINED = Fault(-113, "Undefined header")
OUT_OF_RANGE = Fault(-222, "Data out of range")


class ScpiPeer:
    """Answers commands spelled exactly as a driver sends them; everything else is an undefined header.

    ``numbers`` are settings that take a number (a unit behind it is cut off by ``units``) between two limits; ``words``
    are settings that take one of some words; ``queries`` and ``actions`` are functions.
    """

    error_query = "SYST:ERR?"
    no_error = '+0,"No error"'
    units: tuple[tuple[str, float], ...] = (("NM/S", 1e-9), ("NM", 1e-9), ("DBM", 1.0), ("S", 1.0), ("DB", 1.0))
    end = b"\n"

    def __init__(self, clock: VirtualClock, identity: str) -> None:
        self.clock, self.identity = clock, identity
        self.numbers: dict[str, list[float]] = {}  # value, lowest, highest
        self.words: dict[str, list[str]] = {}  # value, then all that are taken
        self.queries: dict[str, Callable[[str], Answer]] = {}
        self.actions: dict[str, Callable[[str], None]] = {}
        self.queue: deque[str] = deque()
        self.sent: list[str] = []
        self.esr, self.opc_armed, self.busy_until = 0, False, 0.0
        self.reply_delay_s = 0.0
        self._input = b""
        self._replies: deque[tuple[float, bytes]] = deque()

    # -- the far end of a link

    def receive(self, data: bytes) -> None:
        self._input += data
        last = self.end[-1:]
        while last in self._input:
            line, _, self._input = self._input.partition(last)
            parts = [part for part in map(self.unit, line.decode().strip().split(";")) if part is not None]
            if parts:
                due = self.clock.now() + self.reply_delay_s
                self.reply_delay_s = 0.0
                joined = b";".join(part if isinstance(part, bytes) else part.encode() for part in parts)
                self._replies.append((due, joined + self.end))

    def transmit(self) -> bytes:
        data = b""
        while self._replies and self._replies[0][0] <= self.clock.now():
            data += self._replies.popleft()[1]
        return data

    def next_event(self) -> float | None:
        return self._replies[0][0] if self._replies else None

    def close(self) -> None: ...

    # -- what it does

    def unit(self, text: str) -> Answer:
        self.sent.append(text)
        header, _, argument = text.strip().lstrip(":").partition(" ")
        try:
            return self.query(header, argument) if header.endswith("?") else self.command(header, argument)
        except Fault as fault:
            self.queue.append(fault.entry)
            return None

    def done(self) -> bool:
        return self.clock.now() >= self.busy_until

    def query(self, header: str, argument: str) -> Answer:
        name = header[:-1]
        if header == self.error_query:
            return self.queue.popleft() if self.queue else self.no_error
        if header == "*IDN?":
            return self.identity
        if header == "*ESR?":
            found, self.esr = self.esr | (self.opc_armed and self.done()), 0
            self.opc_armed = self.opc_armed and not self.done()
            return f"+{int(found)}"
        if header == "*OPC?":
            return "1"
        if header in self.queries:
            return self.queries[header](argument)
        if name in self.numbers:
            value, low, high = self.numbers[name]
            return f"{ {'': value, 'MIN': low, 'MAX': high}[argument]:+.8E}"
        if name in self.words:
            return self.words[name][0]
        raise UNDEFINED

    def command(self, header: str, argument: str) -> None:
        if header == "*OPC":
            self.opc_armed = True
        elif header in self.actions:
            self.actions[header](argument)
        elif header in self.numbers:
            entry = self.numbers[header]
            value = self.number(argument)
            if not entry[1] * (1 - 1e-9) <= value <= entry[2] * (1 + 1e-9) and not entry[1] <= value <= entry[2]:
                raise OUT_OF_RANGE
            entry[0] = value
        elif header in self.words:
            if argument not in self.words[header][1:]:
                raise Fault(-224, "Illegal parameter value")
            self.words[header][0] = argument
        else:
            raise UNDEFINED

    def number(self, argument: str) -> float:
        for unit, factor in self.units:
            if argument.endswith(unit):
                return float(argument.removesuffix(unit)) * factor
        return float(argument)
