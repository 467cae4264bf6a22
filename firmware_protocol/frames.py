"""Frames on the wire: ``00 | COBS(header | payload | CRC-32) | 00`` (sections 2, 3 and 13).

The decoder is pushed with bytes and gives frames; a bad frame is a value that says what was wrong, never an exception.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from enum import StrEnum
from zlib import crc32

from firmware_protocol.codes import PROTOCOL_MAJOR
from firmware_protocol.errors import FieldError, FrameTooBigError
from firmware_protocol.stuffing import DecodeFailure, cobs_encode, decode_raw

HEADER_SIZE = 8
"""Bytes of the header."""

CRC_SIZE = 4
"""Bytes of the CRC behind the body."""

GOOD_RESIDUE = 0x2144DF1C
"""CRC-32 over the whole content of a good frame, its own CRC included (section 2.3)."""

_HEADER = struct.Struct("<BBBBHH")
_LEAST_CONTENT = HEADER_SIZE + CRC_SIZE
# The code byte of a COBS group counts 1 to 255, itself included (Cheshire and Baker, IEEE/ACM Trans. Netw. 7, 1999).
_GROUP = 254
_new = object.__new__
_unpack_header = _HEADER.unpack_from
_pack_crc = struct.Struct("<I").pack
_ZERO_RUN = re.compile(rb"\0{2,}")


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
        # -1 makes the packing below fail, so that a wrong kind is the same error as any other field that does not fit.
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
    """

    cause: BadCause
    length: int


def wire_bound(payload_len: int) -> int:
    """Return the largest wire size in bytes of a frame with ``payload_len`` bytes, delimiters included (2.4)."""
    # One code byte per started group and two delimiters: the bound and never the
    # encoded size decides what fits, so that it does not depend on the data.
    content = payload_len + HEADER_SIZE + CRC_SIZE
    return content + -(-content // _GROUP) + 2


def max_payload(mtu: int) -> int:
    """Return the largest payload in bytes whose :func:`wire_bound` fits ``mtu``; negative if not even a header does."""
    room = mtu - 2
    # The inverse of the bound: of every 255 bytes of a block one is a code byte.
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
    return encode_body(frame.header_bytes() + frame.payload)


def encode_body(body: bytes) -> bytes:
    """Return the wire bytes of a body (header and payload), both delimiters included: the fast path of a sender.

    Nothing is checked: the caller knows the header and the MTU.
    """
    # A delimiter before the frame as well: with one behind it alone, a
    # hit delimiter joins two frames and both are lost (section 2.1).
    return b"\0%b\0" % cobs_encode(body + _pack_crc(crc32(body)))


def decode_wire(wire: bytes) -> bytes | BadFrame:
    """Return the body of one whole frame, delimiters around it or not: the fast path of a receiver.

    The caller has split the stream; for one that arrives in any pieces use :class:`Decoder`.
    """
    # Checked in the order of section 13, so that board and host count the same damage under the same name.
    block = wire.strip(b"\0")
    try:
        content = decode_raw(block)
    except DecodeFailure:
        return _bad(BadCause.COBS, block)
    if len(content) < _LEAST_CONTENT:
        return _bad(BadCause.SHORT, block)
    # Over the whole content, its CRC included, the CRC is a constant:
    # nothing has to be cut off before it is known to be good.
    if crc32(content) != GOOD_RESIDUE:
        return _bad(BadCause.CRC, block)
    return content[:-CRC_SIZE]


def decode_block(block: bytes) -> Frame | BadFrame:
    """Decode what stood between two delimiters (section 13, steps 3 to 5)."""
    body = decode_wire(block)
    if isinstance(body, BadFrame):
        return body
    kind_version, flags, command, status, seq, session = _unpack_header(body)
    # Filled as the frozen class's own __init__ would, at a fifth of its cost: this runs once per frame.
    frame: Frame = _new(Frame)
    fields = frame.__dict__
    fields["kind"] = kind_version & 0x0F
    fields["command"] = command
    fields["seq"] = seq
    fields["session"] = session
    fields["flags"] = flags
    fields["status"] = status
    fields["version"] = kind_version >> 4
    fields["payload"] = body[HEADER_SIZE:]
    return frame


def _bad(cause: BadCause, block: bytes) -> BadFrame:
    bad: BadFrame = _new(BadFrame)  # filled likewise: on a noisy line this runs more often than anything else
    fields = bad.__dict__
    fields["cause"] = cause
    fields["length"] = len(block)
    return bad


class Decoder:
    """Push decoder: bytes in, frames and bad frames out, in the order of the wire.

    Holds at most ``mtu − 2`` bytes. Nothing raises and nothing resets it: after any damage it finds the next frame at
    the next delimiter.

    Args:
        mtu: Largest frame accepted, in bytes on the wire, both delimiters included.
    """

    def __init__(self, mtu: int) -> None:
        self.mtu = mtu
        self._room = mtu - 2
        self._partial = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> list[Frame | BadFrame]:
        """Take bytes as they came and return what they complete."""
        found: list[Frame | BadFrame] = []
        # A stream of zeros (a broken cable, a UART at the wrong speed) costs no list entry per byte:
        # one delimiter of a run says as much.
        if data.count(0) * 8 > len(data):
            data = _ZERO_RUN.sub(b"\0", data)
        # No timer: a partial frame waits until the next delimiter,
        # since silence means nothing on USB, pty or TCP (section 2.1).
        ended = data.split(b"\0")
        rest = ended.pop()
        if ended and (self._partial or self._skipping):
            self._end_first(ended.pop(0), found)
        for piece in ended:
            # Two frames back to back have two delimiters between them; an
            # empty piece is not even counted (section 13, row 1).
            if piece:
                found.append(decode_block(piece) if len(piece) <= self._room else self._oversize())
        if rest:
            self._append(rest, found)
        return found

    def _end_first(self, piece: bytes, found: list[Frame | BadFrame]) -> None:
        """Complete the block that was kept from earlier calls."""
        self._append(piece, found)
        if self._partial:
            found.append(decode_block(bytes(self._partial)))
            self._partial.clear()
        self._skipping = False

    def _append(self, piece: bytes, found: list[Frame | BadFrame]) -> None:
        """Keep the piece, or give the present block up once when it outgrows the MTU."""
        if self._skipping:
            return
        # Given up and counted once, however long the noise goes on:
        # memory stays bounded by the MTU (section 13, row 2).
        if len(self._partial) + len(piece) > self._room:
            found.append(self._oversize())
            self._partial.clear()
            self._skipping = True
            return
        self._partial += piece

    def _oversize(self) -> BadFrame:
        return BadFrame(BadCause.OVERSIZE, self._room + 1)
