"""Parser of Qontrol requests, text and binary.

Grammar: Qontrol API documentation, and the package ``qontrol`` 1.1.20 for the binary form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lumion_hw.emulator.mesh.qontrol.errors import BAD_COMMAND, FORBIDDEN, SERIAL, Refused
from lumion_hw.emulator.mesh.qontrol.table import CODES, COMMANDS, HEADER_MODES, POWER, Mode, QontrolCommand

_HEADER_BYTES = 7
_BIN, _ADDM, _DEXT, _PARITY = 0x80, 0x10, 0x02, 0x01
_TEXT = re.compile(r"([A-Za-z]+)([0-9]{0,5})(?:(\?)|=(.*))?", re.ASCII)


@dataclass(frozen=True)
class TextLine:
    """A text request without its LF. If ``too_long``, the text is truncated."""

    text: bytes
    too_long: bool = False


@dataclass(frozen=True)
class BinaryRequest:
    """An undecoded binary request.

    Attributes:
        head: Header, command, three address bytes and the data or count word.
        words: Data words, as many as the reader stores.
        count: Number of words announced.
    """

    head: bytes
    words: tuple[int, ...]
    count: int


@dataclass(frozen=True)
class ReceivedRequest:
    """A decoded request.

    Attributes:
        mode: Mode of the command: read or write, one channel or all.
        channel: Channel number in the chain, or in the module if ``module_number`` is given; ``None`` if omitted.
        fields: Values of a text request.
        words: Values of a binary request; ``None`` for text.
        module_number: Number of the module if it is addressed by its id.
    """

    command: QontrolCommand
    mode: Mode
    channel: int | None
    fields: tuple[str, ...] = ()
    words: tuple[int, ...] | None = None
    count: int = 0
    module_number: int | None = None


class RequestReader:
    """Splits a byte stream into text and binary requests.

    Args:
        line_limit: Longest text line in bytes, with LF.
        word_limit: Largest number of data words to store of a binary request.
        gap_s: Silence after which an incomplete binary request is discarded.
    """

    def __init__(self, line_limit: int, word_limit: int, gap_s: float) -> None:
        self._line_limit = line_limit
        self._max_stored_bytes = _HEADER_BYTES + 2 * word_limit
        self._gap_s = gap_s
        self._text = bytearray()
        self._binary = bytearray()
        self._missing = 0
        self._extended = False
        self._last_s = float("-inf")

    def feed(self, data: bytes, end_s: float, byte_s: float) -> Iterator[tuple[float, TextLine | BinaryRequest]]:
        """Yield the requests that the bytes complete, with arrival times; the last byte arrives at ``end_s``."""
        # A binary request has no end mark: a lost byte would shift all later ones until the line is idle.
        if end_s - byte_s * len(data) - self._last_s >= self._gap_s:
            self._binary.clear()
        self._last_s = end_s
        position = 0
        while position < len(data):
            # The first byte identifies the dialect: no text starts with bit 7 set.
            binary = self._binary or (not self._text and data[position] >= _BIN)
            position, item = self._read_binary(data, position) if binary else self._read_text(data, position)
            if item is not None:
                yield end_s - byte_s * (len(data) - position), item

    def reset(self) -> None:
        """Discard an incomplete request."""
        self._text.clear()
        self._binary.clear()

    def _read_text(self, data: bytes, position: int) -> tuple[int, TextLine | None]:
        end = data.find(b"\n", position)
        stop = len(data) if end < 0 else end
        self._text += data[position : min(stop, position + self._line_limit - len(self._text))]
        if end < 0:
            return stop, None
        line, self._text = bytes(self._text), bytearray()
        return end + 1, TextLine(line, too_long=len(line) >= self._line_limit)

    def _read_binary(self, data: bytes, position: int) -> tuple[int, BinaryRequest | None]:
        if not self._binary:
            self._missing, self._extended = _HEADER_BYTES, False
        accepted = data[position : position + self._missing]
        self._missing -= len(accepted)
        self._binary += accepted[: self._max_stored_bytes - len(self._binary)]
        # With data extension the first word is a count, which is only known now.
        if self._missing == 0 and self._binary[0] & _DEXT and not self._extended:
            self._missing, self._extended = 2 * _word(self._binary, 5), True
        return position + len(accepted), self._finish() if self._missing == 0 else None

    def _finish(self) -> BinaryRequest:
        data, self._binary = bytes(self._binary), bytearray()
        if not self._extended:
            return BinaryRequest(data, (_word(data, 5),), 1)
        words = tuple(_word(data, position) for position in range(_HEADER_BYTES, len(data) - 1, 2))
        return BinaryRequest(data[:_HEADER_BYTES], words, _word(data, 5))


def _word(data: bytes | bytearray, position: int) -> int:
    return int.from_bytes(data[position : position + 2], "big")


def read_text(line: bytes, *, echo: bool = False) -> ReceivedRequest:
    """Decode a text request without LF, with ``echo`` for older firmware. Raises ``Refused``."""
    match = _TEXT.fullmatch(line.decode("latin-1"))
    if match is None:
        raise Refused(BAD_COMMAND)
    name, digits, query, values = match.groups()
    fields = () if values is None else tuple(values.split(","))
    command, scope = _find_command(name.upper(), echo)
    if query:
        mode = {"": Mode.READ, "ALL": Mode.READ_ALL}.get(scope)
    elif values is None:
        mode = Mode.ACTION if scope == "" else None
    else:
        mode = {"": Mode.WRITE, "ALL": Mode.WRITE_ALL, "VEC": Mode.VECTOR}[scope]
    if mode is None or (scope == "ALL" and digits) or (scope == "VEC" and not digits):
        raise Refused(BAD_COMMAND)
    if mode not in command.text:
        raise Refused(BAD_COMMAND if mode is Mode.ACTION else FORBIDDEN)
    return ReceivedRequest(command, mode, int(digits) if digits else None, fields, None, len(fields))


def _find_command(name: str, echo: bool) -> tuple[QontrolCommand, str]:
    # The plain name first: a command may itself end in ALL or VEC.
    for scope in ("", "ALL", "VEC"):
        command = COMMANDS.get(name.removesuffix(scope)) if name.endswith(scope) else None
        if command is not None:
            return command, scope
    if echo and name == POWER.name:
        return POWER, ""
    raise Refused(BAD_COMMAND)


def read_binary(item: BinaryRequest, *, check_parity: bool = True) -> ReceivedRequest:
    """Decode a binary request. Raises ``Refused`` for wrong parity, an unknown command or an unknown mode."""
    header, code = item.head[0], item.head[1]
    # The parity bit makes the number of ones in the header even; nothing else in a request is checked.
    if check_parity and header.bit_count() % 2:
        raise Refused(SERIAL)
    command = CODES.get(code)
    if command is None:
        raise Refused(BAD_COMMAND)
    mode = HEADER_MODES.get(header & ~(_BIN | _ADDM | _PARITY))
    if mode is None or mode not in command.binary:
        raise Refused(FORBIDDEN)
    if header & _ADDM:
        return ReceivedRequest(command, mode, item.head[4], (), item.words, item.count, _word(item.head, 2))
    return ReceivedRequest(command, mode, int.from_bytes(item.head[2:5], "big"), (), item.words, item.count)
