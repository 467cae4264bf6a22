"""Codec of Novoptel register accesses: 12-bit addresses and 16-bit words. Pure functions.

The format is binary over LAN, and lines of hexadecimal digits over USB 2.
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
    """Format of register accesses on one kind of link.

    Attributes:
        name: Name, for messages.
        reply_bytes: Length of the reply to a read.
        wake: Bytes sent once at opening, to end an incomplete command.
        read_request: Returns the request that reads an address.
        write_request: Returns the request that writes a word to an address.
        word: Returns the word in a reply; ``None`` if the reply is not valid.
    """

    name: str
    reply_bytes: int
    wake: bytes
    read_request: Callable[[int], bytes]
    write_request: Callable[[int, int], bytes]
    word: Callable[[bytes], int | None]


def _decode_text_word(reply: bytes) -> int | None:
    return int(reply[:4], 16) if _FOUR_DIGITS.fullmatch(reply) else None


def _decode_binary_word(reply: bytes) -> int | None:
    return int.from_bytes(reply, "big") if len(reply) == 2 else None


LAN = WireForm(
    name="LAN",
    reply_bytes=2,
    wake=b"",
    read_request=lambda address: b"R" + address.to_bytes(2, "big"),
    write_request=lambda address, word: b"W" + address.to_bytes(2, "big") + word.to_bytes(2, "big"),
    word=_decode_binary_word,
)
"""TCP, port 5025."""
USB2 = WireForm(
    name="USB 2",
    reply_bytes=5,
    wake=b"\r",
    read_request=lambda address: b"R%03X0000\r" % address,
    write_request=lambda address, word: b"W%03X%04X\r" % (address, word),
    word=_decode_text_word,
)
"""Serial, 230 400 baud, 8N1."""
