"""Encodes and decodes frames: ``00 | COBS(header | payload | CRC-32) | 00`` (sections 2, 3 and 13)."""

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
"""Size of the header in bytes."""

CRC_SIZE = 4
"""Size of the CRC-32 in bytes."""

GOOD_RESIDUE = 0x2144DF1C
"""CRC-32 of a good frame's content together with its CRC (section 2.3)."""

_HEADER = struct.Struct("<BBBBHH")
_MIN_CONTENT = HEADER_SIZE + CRC_SIZE
# The code byte of a COBS group counts 1 to 255, itself included (Cheshire and Baker, IEEE/ACM Trans. Netw. 7, 1999).
_GROUP = 254
_new = object.__new__
_unpack_header = _HEADER.unpack_from
_pack_crc = struct.Struct("<I").pack
_ZERO_RUN = re.compile(rb"\0{2,}")


@dataclass(frozen=True)
class Header:
    """Header of a frame (protocol section 3).

    Attributes:
        kind: Request 0, reply 1, event 2; other received values are kept.
        command: Command code; in an event the event code.
        seq: Sequence number of the request, also in its reply; in an event the low 16 bits of the event number.
        session: Session id, 0 for none.
        flags: Bits of ``HeaderFlag``.
        status: Request: 0; reply: status code; event: stream number.
        version: Major version of the protocol, 0…15.
    """

    kind: int
    command: int
    seq: int = 0
    session: int = 0
    flags: int = 0
    status: int = 0
    version: int = PROTOCOL_MAJOR

    def header_bytes(self) -> bytes:
        """Return the eight bytes of the header. Raises ``FieldError`` for a value that does not fit its field."""
        # -1 makes the packing below fail, so a wrong kind raises the same error as any other wrong field.
        kind_version = (self.version << 4 | self.kind) if 0 <= self.kind <= 15 else -1
        try:
            return _HEADER.pack(kind_version, self.flags, self.command, self.status, self.seq, self.session)
        except struct.error as error:
            raise FieldError("header", "kind_version", offset=0, value=kind_version, reason=str(error)) from error


@dataclass(frozen=True)
class Frame(Header):
    """One frame: header and payload."""

    payload: bytes = b""


class BadCause(StrEnum):
    """Reason why received bytes are not a valid frame (section 13, rows 2 to 5)."""

    OVERSIZE = "oversize"
    COBS = "cobs"
    SHORT = "short"
    CRC = "crc"


@dataclass(frozen=True)
class BadFrame:
    """Received bytes that are not a valid frame.

    Attributes:
        cause: Reason.
        length: Number of bytes between the delimiters (zero bytes); MTU − 1 for a frame that is too long.
    """

    cause: BadCause
    length: int


def wire_bound(payload_len: int) -> int:
    """Return the largest encoded size in bytes of a frame with ``payload_len`` bytes of payload (section 2.4)."""
    # One code byte per started group, and two delimiters. The bound decides what fits, not
    # the encoded size, so the result does not depend on the data.
    content = payload_len + HEADER_SIZE + CRC_SIZE
    return content + -(-content // _GROUP) + 2


def max_payload(mtu: int) -> int:
    """Return the largest payload in bytes that always fits ``mtu``; negative if no header fits."""
    room = mtu - 2
    # The inverse of the bound: one of every 255 bytes of a block is a code byte.
    content = room - -(-room // (_GROUP + 1))
    return content - HEADER_SIZE - CRC_SIZE


def encode_frame(frame: Frame, mtu: int | None = None) -> bytes:
    """Encode a frame for transmission.

    Args:
        frame: Frame to encode.
        mtu: Largest frame that the receiver accepts, in bytes; ``None`` for no check.

    Raises:
        FrameTooBigError: The frame may exceed ``mtu``.
        FieldError: A header value does not fit its field.
    """
    bound = wire_bound(len(frame.payload))
    if mtu is not None and bound > mtu:
        raise FrameTooBigError(bound, mtu)
    return encode_body(frame.header_bytes() + frame.payload)


def encode_body(body: bytes) -> bytes:
    """Encode header and payload for transmission, without any checks."""
    # Also send a delimiter before the frame. With only one delimiter between two
    # frames, a damaged delimiter would join them and both would be lost (section 2.1).
    return b"\0%b\0" % cobs_encode(body + _pack_crc(crc32(body)))


def decode_wire(wire: bytes) -> bytes | BadFrame:
    """Decode one whole frame to header and payload. Use :class:`Decoder` for a stream."""
    # Check in the order of section 13, so board and host count the same damage under the same name.
    block = wire.strip(b"\0")
    try:
        content = decode_raw(block)
    except DecodeFailure:
        return _bad(BadCause.COBS, block)
    if len(content) < _MIN_CONTENT:
        return _bad(BadCause.SHORT, block)
    # The CRC over the whole content including its own CRC is a constant,
    # so the content need not be cut before it is checked.
    if crc32(content) != GOOD_RESIDUE:
        return _bad(BadCause.CRC, block)
    return content[:-CRC_SIZE]


def decode_block(block: bytes) -> Frame | BadFrame:
    """Decode the bytes between two delimiters (zero bytes)."""
    body = decode_wire(block)
    if isinstance(body, BadFrame):
        return body
    kind_version, flags, command, status, seq, session = _unpack_header(body)
    # Sets the same attributes as __init__ of the frozen class, at a fifth of its cost: this runs once per frame.
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
    bad_frame: BadFrame = _new(BadFrame)  # filled in the same way, because this runs very often on a noisy line
    fields = bad_frame.__dict__
    fields["cause"] = cause
    fields["length"] = len(block)
    return bad_frame


class Decoder:
    """Decodes a byte stream to frames and bad frames, in order. Never raises.

    Args:
        mtu: Largest accepted frame in bytes, including delimiters.
    """

    def __init__(self, mtu: int) -> None:
        self.mtu = mtu
        self._room = mtu - 2
        self._partial = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> list[Frame | BadFrame]:
        """Add received bytes and return the frames that are now complete."""
        frames: list[Frame | BadFrame] = []
        # A stream of zeros (a broken cable, a UART at the wrong speed) must not cost a list entry
        # per byte, so a run of delimiters is reduced to one.
        if data.count(0) * 8 > len(data):
            data = _ZERO_RUN.sub(b"\0", data)
        # There is no timer: a partial frame waits for the next delimiter,
        # because silence has no meaning on USB, pty or TCP (section 2.1).
        ended = data.split(b"\0")
        remainder = ended.pop()
        if ended and (self._partial or self._skipping):
            self._end_first(ended.pop(0), frames)
        for chunk in ended:
            # Two consecutive frames have two delimiters between them, so
            # empty pieces are not counted (section 13, row 1).
            if chunk:
                frames.append(decode_block(chunk) if len(chunk) <= self._room else self._oversize())
        if remainder:
            self._append(remainder, frames)
        return frames

    def _end_first(self, chunk: bytes, frames: list[Frame | BadFrame]) -> None:
        self._append(chunk, frames)
        if self._partial:
            frames.append(decode_block(bytes(self._partial)))
            self._partial.clear()
        self._skipping = False

    def _append(self, chunk: bytes, frames: list[Frame | BadFrame]) -> None:
        if self._skipping:
            return
        # Dropped and counted once, even if the noise continues, so
        # the MTU limits the memory (section 13, row 2).
        if len(self._partial) + len(chunk) > self._room:
            frames.append(self._oversize())
            self._partial.clear()
            self._skipping = True
            return
        self._partial += chunk

    def _oversize(self) -> BadFrame:
        return BadFrame(BadCause.OVERSIZE, self._room + 1)
