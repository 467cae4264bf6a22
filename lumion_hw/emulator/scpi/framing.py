"""Framing: splits received bytes into SCPI messages, and each message into units (single commands).

A message ends at LF (a CR just before it is part of the ending); on some instruments, also at a CR alone. Inside a
definite-length block, line ends, ``;`` and quotes are data. Inside a quoted string only ``;`` is data: a line end
always ends the message.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SPECIAL_BYTES = re.compile(rb"[\n;\"'#]")
_SPECIAL_BYTES_AND_CR = re.compile(rb"[\r\n;\"'#]")
_NON_PRINTABLE = re.compile(rb"[^\x20-\x7e\t\r]")
_CR, _LF, _SEMICOLON, _HASH = b"\r\n;#"


@dataclass(frozen=True)
class ScpiMessage:
    """One SCPI program message, split into units (single commands).

    Attributes:
        units: Units with white space, without the terminator.
        size: Number of bytes that the message used in the input buffer.
        overrun: Whether the message was longer than the input buffer; its units are lost.
    """

    units: tuple[bytes, ...]
    size: int
    overrun: bool = False


def block_end(data: bytes | bytearray, position: int, limit: int) -> int | None:
    """Return the index after the definite-length block that starts with ``#`` at ``position``.

    A block comes after white space or a comma. The result is ``position`` if there is no block, or if the block is
    longer than ``limit`` bytes. The result is ``None`` if more bytes are needed.
    """
    head = bytes(data[position + 1 : position + 11])
    if position == 0 or data[position - 1] not in b" \t," or head[:1] not in b"123456789":
        return position
    count = int(head[:1] or b"9")
    length = head[1 : 1 + count]
    if (length and not length.isdigit()) or (len(length) == count and int(length) > limit):
        return position
    end = position + 2 + count + int(length or b"0")
    return end if len(length) == count and end <= len(data) else None


class Framer:
    """Splits a byte stream into SCPI messages.

    Args:
        limit: Longest message in bytes. A longer message is reported once, and discarded up to its terminator.
        blocks: Whether the instrument accepts data blocks. Without blocks, every LF ends a message.
        cr_ends: Whether a CR alone ends a message.
    """

    def __init__(self, limit: int, *, blocks: bool = True, cr_ends: bool = False) -> None:
        self._limit = limit
        self._blocks = blocks
        self._special_bytes = _SPECIAL_BYTES_AND_CR if cr_ends else _SPECIAL_BYTES
        self._terminators = (_CR, _LF) if cr_ends else (_LF,)
        self._data = bytearray()
        self._discarding = False
        self._restart()

    def _restart(self) -> None:
        self._position = 0
        self._quote = 0
        self._cuts: list[int] = []
        self._checked = 0
        self._ignore_blocks = not self._blocks

    def feed(self, data: bytes) -> list[ScpiMessage]:
        """Return the messages that the received bytes complete, in order."""
        self._data += data
        messages: list[ScpiMessage] = []
        while not self._discarding or self._drop_to_terminator():
            message = self._next()
            if message is not None:
                messages.append(message)
            elif len(self._data) > self._limit:
                messages.append(ScpiMessage((), len(self._data), overrun=True))
                self._discarding = True
            else:
                break
        return messages

    def end(self) -> list[ScpiMessage]:
        """End the present message, even within a block (END, EOI)."""
        messages = self.feed(b"\n")
        if self._data:
            # END overrides the announced length of a block.
            self._ignore_blocks = True
            messages += self.feed(b"")
        return messages

    def _drop_to_terminator(self) -> bool:
        # Even inside a block: the announced lengths in a message that is too long cannot be trusted.
        end = min((index for end in self._terminators if (index := self._data.find(end)) >= 0), default=-1)
        del self._data[: len(self._data) if end < 0 else end + 1]
        self._restart()
        self._discarding = end < 0
        return end >= 0

    def _next(self) -> ScpiMessage | None:
        while match := self._special_bytes.search(self._data, self._position):
            position, byte = match.start(), self._data[match.start()]
            if byte in self._terminators:
                return self._cut(position)
            next_position = position + 1
            # Inside quotes only the same quote has a meaning.
            if self._quote:
                self._quote = 0 if byte == self._quote else self._quote
            elif byte == _HASH:
                block = self._block(position)
                if block is None:
                    self._position = position  # check this # again when more bytes have arrived
                    return None
                next_position = max(block, next_position)
            elif byte == _SEMICOLON:
                self._cuts.append(position)
            else:
                self._quote = byte
            self._position = next_position
        self._position = len(self._data)
        return None

    def _block(self, position: int) -> int | None:
        # Line noise can look like the start of a block, and would then swallow all messages of the next minutes.
        self._ignore_blocks = (
            self._ignore_blocks or _NON_PRINTABLE.search(self._data, self._checked, position) is not None
        )
        self._checked = max(self._checked, position)
        if self._ignore_blocks:
            return position
        end = block_end(self._data, position, self._limit)
        if end is not None:
            self._checked = max(end, self._checked)
        return end

    def _cut(self, end: int) -> ScpiMessage:
        starts = [0, *(cut + 1 for cut in self._cuts)]
        units = tuple(bytes(self._data[start:stop]) for start, stop in zip(starts, [*self._cuts, end], strict=True))
        if self._data[end - 1 : end] == b"\r" and end - 1 >= self._checked:  # not the last byte of a block
            units = (*units[:-1], units[-1][:-1])
        del self._data[: end + 1]
        self._restart()
        size = end + 1
        return ScpiMessage((), size, overrun=True) if size > self._limit else ScpiMessage(units, size)
