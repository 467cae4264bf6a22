"""Register accesses of Novoptel instruments: 12-bit addresses, 16-bit words, in the two forms that links carry. Pure.

Over LAN they are binary, over USB 2 lines of hexadecimal digits that end with CR. Neither names
in a reply what was asked for, and a write has no reply at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

LARGEST_ADDRESS = 0xFFF
LARGEST_WORD = 0xFFFF
_FOUR_DIGITS = re.compile(rb"[0-9A-Fa-f]{4}\r")


@dataclass(frozen=True)
class WireForm:
    """How register accesses look on a link.

    Attributes:
        name: For messages.
        reply_bytes: Length of the reply to a read.
        wake: Sent once at opening: ends what an earlier host has begun.
        read_request: Returns the request that reads an address.
        write_request: Returns the request that writes a word to an address.
        word: Returns the word in a reply, ``None`` if it is no reply.
    """

    name: str
    reply_bytes: int
    wake: bytes
    read_request: Callable[[int], bytes]
    write_request: Callable[[int, int], bytes]
    word: Callable[[bytes], int | None]


def _word_of_text(reply: bytes) -> int | None:
    return int(reply[:4], 16) if _FOUR_DIGITS.fullmatch(reply) else None


def _word_of_bytes(reply: bytes) -> int | None:
    return int.from_bytes(reply, "big") if len(reply) == 2 else None


LAN = WireForm(
    name="LAN",
    reply_bytes=2,
    wake=b"",
    read_request=lambda address: b"R" + address.to_bytes(2, "big"),
    write_request=lambda address, word: b"W" + address.to_bytes(2, "big") + word.to_bytes(2, "big"),
    word=_word_of_bytes,
)
"""TCP, port 5025."""
USB2 = WireForm(
    name="USB 2",
    reply_bytes=5,
    wake=b"\r",
    read_request=lambda address: b"R%03X0000\r" % address,
    write_request=lambda address, word: b"W%03X%04X\r" % (address, word),
    word=_word_of_text,
)
"""Serial, 230 400 baud, 8N1."""
