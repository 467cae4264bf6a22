"""Wire vectors: lines and replies quoted from manuals, in tests/data/wires, one file per instrument.

Each row has a line, its reply and the page or section of the source. Neither drivers nor emulators read these files:
the emulators must reply as the manual does, and the drivers may send only documented lines. Kinds of replies:

- text: numbers must be equal and printed alike; ``*`` stands for any text, ``|`` separates lines;
- ``~text``: as text, but numbers may have other values;
- ``hex ...``: these bytes; ``block N``: a definite block of N bytes;
- nothing: the instrument sends no reply.

A line ``wait S`` lets S seconds pass. Sources marked ``(check)`` are not confirmed: only the values are compared.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from lumion_hw.clock import VirtualClock

FOLDER = Path(__file__).parent / "data" / "wires"
_NUMBER = re.compile(r"(?<![A-Za-z#\d.])[+-]?\d+(?:\.\d+)?(?:[eE][+-]\d+)?(?![\d.])")
_UNITS = re.compile(r";(?=(?:[^\"]*\"[^\"]*\")*[^\"]*$)")


class Vector(NamedTuple):
    """One row of a file."""

    sent: str
    reply: str
    source: str


def read_vectors(instrument: str) -> list[Vector]:
    """Return the rows of the file of an instrument."""
    header, *rows = (FOLDER / f"{instrument}.tsv").read_text().splitlines()
    assert header == "sent\treply\tsource"
    return [Vector(*row.split("\t")) for row in rows]


def _number_style(number: str) -> tuple[int, int]:
    """Return the number of decimals and of digits in the exponent."""
    mantissa, _, exponent = number.upper().partition("E")
    return len(mantissa.partition(".")[2]), len(exponent.lstrip("+-"))


def is_documented_reply(vector: Vector, reply: bytes) -> bool:
    """Return whether a reply without its terminator is the reply of a vector."""
    kind, _, rest = vector.reply.partition(" ")
    if kind == "hex":
        return reply == bytes.fromhex(rest)
    if kind == "block":
        header = f"#{len(rest)}{rest}".encode()
        return reply.startswith(header) and len(reply) == len(header) + int(rest)
    text, wanted = reply.decode("latin-1").replace("\r\n", "|"), vector.reply.removeprefix("~")
    pieces = re.split(rf"({_NUMBER.pattern}|\*)", wanted)
    match = re.fullmatch("".join(map(_pattern, pieces)), text, re.IGNORECASE)
    if match is None:
        return False
    pairs = list(zip(match.groups(), (piece for piece in pieces[1::2] if piece != "*"), strict=True))
    has_values = all(math.isclose(float(a), float(b), rel_tol=1e-7) for a, b in pairs)
    has_style = all(_number_style(a) == _number_style(b) for a, b in pairs)
    return (has_values or vector.reply.startswith("~")) and (has_style or "(check)" in vector.source)


def _pattern(piece: str) -> str:
    if piece == "*":
        return ".*?"
    return f"({_NUMBER.pattern})" if _NUMBER.fullmatch(piece) else re.escape(piece)


def split_units(line: str) -> list[str]:
    """Split a program message at its semicolons."""
    return _UNITS.split(line)


def line_form(unit: str) -> str:
    """Return a command with every number, in its header and in its arguments, replaced by ``#``."""
    header, _, arguments = unit.strip().lstrip(":").upper().partition(" ")
    parts = (re.sub(r"^[+-]?[\d.]+(E[+-]?\d+)?", "#", argument.strip()) for argument in arguments.split(","))
    return " ".join([re.sub(r"\d+", "#", header), ",".join(parts)]).strip()


@functools.cache
def documented_forms(instrument: str) -> frozenset[str]:
    """Return the forms of all lines in the file of an instrument."""
    return frozenset(line_form(unit) for vector in read_vectors(instrument) for unit in split_units(vector.sent))


class DocumentedPeer:
    """Connection to an emulated instrument that fails the test on a line that the manual does not have.

    Attributes:
        sent: Commands and queries of the driver, in order.
        replies: Replies that a test substitutes, by query.
        ignored: Headers of commands that do not reach the instrument.
    """

    def __init__(self, instrument: str, device: Any, clock: VirtualClock, end: bytes = b"\n") -> None:
        self.device, self._instrument, self._clock, self._end = device, instrument, clock, end
        self.sent: list[str] = []
        self.replies: dict[str, str | bytes] = {}
        self.ignored: set[str] = set()
        self._connection = device.connect()
        self._input = self._output = b""
        self._substitutes: list[dict[int, str | bytes]] = []
        self._silent_until = 0.0

    def receive(self, data: bytes) -> None:
        """Process bytes that the driver sends."""
        self._input += data
        while self._end in self._input:
            line, _, self._input = self._input.partition(self._end)
            self._process_line(line.decode("latin-1"))

    def _process_line(self, line: str) -> None:
        units = split_units(line)
        self.sent += units
        for unit in units:
            assert line_form(unit) in documented_forms(self._instrument), f"{unit} is not in {self._instrument}.tsv"
        if units[0].partition(" ")[0] in self.ignored:
            return
        queries = [unit.lstrip(":") for unit in units if "?" in unit]
        substitutes = {n: self.replies[query] for n, query in enumerate(queries) if query in self.replies}
        if len(substitutes) == len(units):
            replies = [text if isinstance(text, bytes) else text.encode() for text in substitutes.values()]
            self._output += b";".join(replies) + self._end
            return
        if substitutes:
            self._substitutes.append(substitutes)
        self._connection.receive(line.encode("latin-1") + self._end)

    def transmit(self) -> bytes:
        """Return bytes for the driver."""
        if self._clock.now() < self._silent_until:
            return b""
        data = self._connection.transmit()
        if data and self._substitutes:
            parts = data.removesuffix(self._end).split(b";")
            for n, text in self._substitutes.pop(0).items():
                parts[n] = text if isinstance(text, bytes) else text.encode()
            data = b";".join(parts) + self._end
        data, self._output = self._output + data, b""
        return data

    def next_event(self) -> float | None:
        """Return when there may be more bytes."""
        if self._clock.now() < self._silent_until:
            return self._silent_until
        return self._connection.next_event()

    def close(self) -> None:
        """Close the connection, and connect anew for the next opening of the link."""
        self._connection.close()
        self._connection = self.device.connect()

    def delay_replies(self, delay_s: float) -> None:
        """Hold all replies back for a time."""
        self._silent_until = self._clock.now() + delay_s

    def ask_elsewhere(self, line: str) -> str:
        """Send a line on a connection of its own, as another program does, and return the reply."""
        return ask(self.device.connect(), self._clock, line, self._end).decode("latin-1")


def ask(connection: Any, clock: VirtualClock, line: str, end: bytes) -> bytes:
    """Send a line, let the instrument finish, and return its reply without the terminator."""
    connection.receive(line.encode("latin-1") + end)
    data: bytes = connection.transmit()
    while not data.endswith(end) and (event := connection.next_event()) is not None:
        clock.sleep(max(event - clock.now(), 1e-6))
        data += connection.transmit()
    return data.removesuffix(end).removesuffix(b"\r")


MakeDevice = Callable[[VirtualClock], Any]
