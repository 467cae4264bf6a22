"""Bytes of one connection -> program messages, cut into their units.

A message ends at LF (a CR just before it is part of the ending); for instruments that say so, at a CR alone as well.
The ending, ``;`` and quotes inside a definite-length block are data, and so is ``;`` inside a quoted string. A string
cannot run over the ending: instruments resynchronise on it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_INTEREST = re.compile(rb"[\n;\"'#]")
_INTEREST_AND_CR = re.compile(rb"[\r\n;\"'#]")
_FOREIGN = re.compile(rb"[^\x20-\x7e\t\r]")
_CR, _LF, _SEMICOLON, _HASH = b"\r\n;#"


@dataclass(frozen=True)
class ScpiMessage:
    """One program message.

    Attributes:
        units: Its units, white space and the terminator included.
        size: Bytes it took in the input buffer.
        overrun: The message was longer than the input buffer; its units are lost.
    """

    units: tuple[bytes, ...]
    size: int
    overrun: bool = False


def block_end(data: bytes | bytearray, at: int, limit: int) -> int | None:
    """Return the index after the block that starts with ``#`` at ``at``.

    A block is a parameter: it comes after white space or a comma.

    Returns:
        ``at`` itself if no definite-length block starts there (also when it announces more than ``limit`` bytes), or
        ``None`` if more bytes are needed to tell, or to complete it.
    """
    head = bytes(data[at + 1 : at + 11])
    if at == 0 or data[at - 1] not in b" \t," or head[:1] not in b"123456789":
        return at
    count = int(head[:1] or b"9")
    length = head[1 : 1 + count]
    if (length and not length.isdigit()) or (len(length) == count and int(length) > limit):
        return at
    end = at + 2 + count + int(length or b"0")
    return end if len(length) == count and end <= len(data) else None


class Framer:
    """Cuts a byte stream into messages; keeps what is incomplete.

    Args:
        limit: Longest message in bytes. A longer one is reported once, and discarded up to its terminator.
        blocks: Whether the instrument takes blocks at all. One that does not is in step again at every LF.
        cr_ends: Whether a CR alone ends a message.
    """

    def __init__(self, limit: int, *, blocks: bool = True, cr_ends: bool = False) -> None:
        self._limit = limit
        self._blocks = blocks
        self._interest = _INTEREST_AND_CR if cr_ends else _INTEREST
        self._ends = (_CR, _LF) if cr_ends else (_LF,)
        self._data = bytearray()
        self._discarding = False
        self._restart()

    def _restart(self) -> None:
        self._at = 0
        self._quote = 0
        self._cuts: list[int] = []
        self._checked = 0
        self._damaged = not self._blocks

    def feed(self, data: bytes) -> list[ScpiMessage]:
        """Take bytes and return the messages they complete, in order."""
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
        """The transport says that a message ends here (END, EOI), even if a block in it is not complete."""
        messages = self.feed(b"\n")
        if self._data:
            # END outranks the length that a block has announced.
            self._damaged = True
            messages += self.feed(b"")
        return messages

    def _drop_to_terminator(self) -> bool:
        # Even inside a block: the length of a message that is too long can no longer be believed.
        end = min((place for end in self._ends if (place := self._data.find(end)) >= 0), default=-1)
        del self._data[: len(self._data) if end < 0 else end + 1]
        self._restart()
        self._discarding = end < 0
        return end >= 0

    def _next(self) -> ScpiMessage | None:
        while match := self._interest.search(self._data, self._at):
            at, byte = match.start(), self._data[match.start()]
            if byte in self._ends:
                return self._cut(at)
            following = at + 1
            # Inside quotes only the same quote means anything.
            if self._quote:
                self._quote = 0 if byte == self._quote else self._quote
            elif byte == _HASH:
                block = self._block(at)
                if block is None:
                    self._at = at  # look at this # again when more has come
                    return None
                following = max(block, following)
            elif byte == _SEMICOLON:
                self._cuts.append(at)
            else:
                self._quote = byte
            self._at = following
        self._at = len(self._data)
        return None

    def _block(self, at: int) -> int | None:
        """Like :func:`block_end`, but line noise before it in the message makes ``#`` an ordinary character."""
        # Line noise can look like the head of a block, and would swallow the messages of the next minutes.
        self._damaged = self._damaged or _FOREIGN.search(self._data, self._checked, at) is not None
        self._checked = max(self._checked, at)
        if self._damaged:
            return at
        end = block_end(self._data, at, self._limit)
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
