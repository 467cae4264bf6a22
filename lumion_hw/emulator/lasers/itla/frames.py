"""Frames of the ITLA interface: four bytes each way, with four bits of parity (OIF-ITLA-MSA-01.3 chapter 8)."""

from __future__ import annotations

import enum
from dataclasses import dataclass

FRAME_SIZE = 4


class ResponseStatus(enum.IntEnum):
    """Status of an ITLA reply, its bits 25-24."""

    OK = 0
    EXECUTION_ERROR = 1
    EXTENDED = 2
    PENDING = 3


class ItlaError(enum.IntEnum):
    """Reason why the last command failed, bits 3-0 of the NOP register."""

    OK = 0x0
    NOT_IMPLEMENTED = 0x1
    NOT_WRITABLE = 0x2
    VALUE_RANGE = 0x3
    PENDING = 0x4
    INITIALIZING = 0x5
    EXTENDED_RANGE = 0x6
    EXTENDED_READ_ONLY = 0x7
    EXECUTION_FAILURE = 0x8
    OUTPUT_ENABLED = 0x9
    INVALID_CONFIGURATION = 0xA
    VENDOR = 0xF


class ItlaRefusal(Exception):  # noqa: N818 - an event of the register interface; it never leaves the emulator
    """Execution error that the ITLA replies to a command."""

    def __init__(self, code: ItlaError) -> None:
        super().__init__(code.name)
        self.code = code


@dataclass(frozen=True)
class ItlaRequest:
    """A decoded request of the host.

    Attributes:
        data: 16 bits to write.
        repeat: Whether the host requests the last reply again.
    """

    register: int
    data: int
    write: bool
    repeat: bool


def bip4(frame: bytes) -> int:
    """Return the four-bit parity (BIP-4) of a frame without its parity bits."""
    # BIP-4 is the parity of each of four bit positions over all nibbles.
    folded = (frame[0] & 0x0F) ^ frame[1] ^ frame[2] ^ frame[3]
    return (folded >> 4) ^ (folded & 0x0F)


def _sealed(low_nibble: int, register: int, data: int) -> bytes:
    body = bytes((low_nibble, register, data >> 8, data & 0xFF))
    return bytes((body[0] | bip4(body) << 4,)) + body[1:]


def reply(status: ResponseStatus, register: int, data: int) -> bytes:
    """Return the four bytes of a reply frame."""
    return _sealed(0x04 | status, register, data & 0xFFFF)


DAMAGED = _sealed(0x0C, 0, 0)
"""Reply to a damaged request (CE)."""


def decode(frame: bytes) -> ItlaRequest | None:
    """Decode a request frame. Return ``None`` if the parity is wrong."""
    if bip4(frame) != frame[0] >> 4:
        return None
    return ItlaRequest(frame[1], frame[2] << 8 | frame[3], write=bool(frame[0] & 0x01), repeat=bool(frame[0] & 0x08))
