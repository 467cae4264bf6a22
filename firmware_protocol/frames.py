"""Frames on the wire: ``00 | COBS(header | payload | CRC-32) | 00`` (sections 2, 3 and 13).

The decoder is pushed with bytes and gives frames; a bad frame is a value that says what was wrong, never an exception.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import StrEnum

from firmware_protocol.codes import PROTOCOL_MAJOR
from firmware_protocol.errors import FieldError, FrameTooBigError
from firmware_protocol.stuffing import StuffingError, cobs_decode, cobs_encode

HEADER_SIZE = 8
"""Bytes of the header."""

CRC_SIZE = 4
"""Bytes of the CRC behind the body."""

_HEADER = struct.Struct("<BBBBHH")
_CRC = struct.Struct("<I")
_GROUP = 254


@dataclass(frozen=True)
class Header:
    """The eight bytes in front of every payload (section 3).

    Attributes:
        kind: REQ 0, RSP 1, EVT 2; other values are kept as they came.
        command: Command code, in an event the event code.
        seq: REQ: host counter; RSP: echo; EVT: low 16 bits of the stream's event number.
        session: Session id, 0 for none.
        flags: Bits of ``HeaderFlag``.
        status: REQ 0; RSP status code; EVT stream id.
        version: Protocol major, 0…15.
    """

    kind: int
    command: int
    seq: int = 0
    session: int = 0
    flags: int = 0
    status: int = 0
    version: int = PROTOCOL_MAJOR

    def header_bytes(self) -> bytes:
        """Return the eight bytes. Raises ``FieldError`` for a value that does not fit its field."""
        kind_version = (self.version << 4 | self.kind) if 0 <= self.kind <= 15 else -1
        try:
            return _HEADER.pack(kind_version, self.flags, self.command, self.status, self.seq, self.session)
        except struct.error as error:
            raise FieldError("header", "kind_version", offset=0, value=kind_version, reason=str(error)) from error


@dataclass(frozen=True)
class Frame(Header):
    """One whole frame: header fields and payload.

    Attributes:
        payload: Bytes between header and CRC.
    """

    payload: bytes = b""


class BadCause(StrEnum):
    """Why a piece between two delimiters is no frame (section 13, rows 2 to 5)."""

    OVERSIZE = "oversize"
    COBS = "cobs"
    SHORT = "short"
    CRC = "crc"


@dataclass(frozen=True)
class BadFrame:
    """A piece between two delimiters that is no frame.

    Attributes:
        cause: What is wrong with it.
        length: Bytes between the delimiters; for an oversize piece the count at which it was given up, MTU − 1.
        excerpt: The first bytes of the piece as they came, at most 32, for the log.
    """

    cause: BadCause
    length: int
    excerpt: bytes


def wire_bound(payload_len: int) -> int:
    """Return the largest wire size in bytes of a frame with ``payload_len`` bytes, delimiters included (2.4)."""
    content = payload_len + HEADER_SIZE + CRC_SIZE
    return content + -(-content // _GROUP) + 2


def max_payload(mtu: int) -> int:
    """Return the largest payload in bytes whose :func:`wire_bound` fits ``mtu``; negative if not even a header does."""
    room = mtu - 2
    content = room - -(-room // (_GROUP + 1))
    return content - HEADER_SIZE - CRC_SIZE


def encode_frame(frame: Frame, mtu: int | None = None) -> bytes:
    """Return the wire bytes of a frame, both delimiters included.

    Args:
        frame: The frame.
        mtu: Largest frame the receiver accepts, in bytes on the wire; ``None`` for no check.

    Raises:
        FrameTooBigError: The bound of the frame exceeds ``mtu``, whatever its bytes are.
        FieldError: A header value does not fit its field.
    """
    bound = wire_bound(len(frame.payload))
    if mtu is not None and bound > mtu:
        raise FrameTooBigError(bound, mtu)
    body = frame.header_bytes() + frame.payload
    return b"\0" + cobs_encode(body + _CRC.pack(zlib.crc32(body))) + b"\0"


def decode_block(block: bytes) -> Frame | BadFrame:
    """Decode what stood between two delimiters (section 13, steps 3 to 5)."""
    try:
        content = cobs_decode(block)
    except StuffingError:
        return _bad(BadCause.COBS, block)
    if len(content) < HEADER_SIZE + CRC_SIZE:
        return _bad(BadCause.SHORT, block)
    body = content[:-CRC_SIZE]
    if zlib.crc32(body) != _CRC.unpack_from(content, len(body))[0]:
        return _bad(BadCause.CRC, block)
    kind_version, flags, command, status, seq, session = _HEADER.unpack_from(body)
    return Frame(
        kind_version & 0x0F, command, seq, session, flags, status, kind_version >> 4, payload=body[HEADER_SIZE:]
    )


def _bad(cause: BadCause, block: bytes) -> BadFrame:
    return BadFrame(cause, len(block), bytes(block[:32]))


class Decoder:
    """Push decoder: bytes in, frames and bad frames out, in the order of the wire.

    Holds at most ``mtu − 2`` bytes. Nothing raises and nothing resets it: after any damage it finds the next frame at
    the next delimiter.

    Args:
        mtu: Largest frame accepted, in bytes on the wire, both delimiters included.
    """

    def __init__(self, mtu: int) -> None:
        self.mtu = mtu
        self._partial = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> list[Frame | BadFrame]:
        """Take bytes as they came and return what they complete."""
        found: list[Frame | BadFrame] = []
        *ended, rest = data.split(b"\0")
        for piece in ended:
            self._append(piece, found)
            if self._partial and not self._skipping:
                found.append(decode_block(bytes(self._partial)))
            self._partial.clear()
            self._skipping = False
        self._append(rest, found)
        return found

    def _append(self, piece: bytes, found: list[Frame | BadFrame]) -> None:
        """Keep the piece, or give the present block up once when it outgrows the MTU."""
        if self._skipping or not piece:
            return
        if len(self._partial) + len(piece) > self.mtu - 2:
            head = bytes(self._partial[:32]) + piece[:32]
            found.append(BadFrame(BadCause.OVERSIZE, self.mtu - 1, head[:32]))
            self._partial.clear()
            self._skipping = True
            return
        self._partial += piece
