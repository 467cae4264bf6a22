"""HiSLIP messages on the wire: a 16-byte header and a payload (IVI-6.1, section 3 and table 4).

The big-endian header is prologue ``HS``, message type, control code, 32-bit parameter and 64-bit payload length.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass

_HEADER = struct.Struct("!2sBBIQ")
_PROLOGUE = b"HS"

MAX_PAYLOAD = 1 << 20
"""Longest payload accepted in one message."""


class MessageType(enum.IntEnum):
    """HiSLIP message types (IVI-6.1 table 4)."""

    INITIALIZE = 0
    INITIALIZE_RESPONSE = 1
    FATAL_ERROR = 2
    ERROR = 3
    ASYNC_LOCK = 4
    ASYNC_LOCK_RESPONSE = 5
    DATA = 6
    DATA_END = 7
    DEVICE_CLEAR_COMPLETE = 8
    DEVICE_CLEAR_ACKNOWLEDGE = 9
    ASYNC_REMOTE_LOCAL_CONTROL = 10
    ASYNC_REMOTE_LOCAL_RESPONSE = 11
    TRIGGER = 12
    INTERRUPTED = 13
    ASYNC_INTERRUPTED = 14
    ASYNC_MAX_MSG_SIZE = 15
    ASYNC_MAX_MSG_SIZE_RESPONSE = 16
    ASYNC_INITIALIZE = 17
    ASYNC_INITIALIZE_RESPONSE = 18
    ASYNC_DEVICE_CLEAR = 19
    ASYNC_SERVICE_REQUEST = 20
    ASYNC_STATUS_QUERY = 21
    ASYNC_STATUS_RESPONSE = 22
    ASYNC_DEVICE_CLEAR_ACKNOWLEDGE = 23
    ASYNC_LOCK_INFO = 24
    ASYNC_LOCK_INFO_RESPONSE = 25


@dataclass(frozen=True)
class HislipMessage:
    """One HiSLIP message.

    Attributes:
        kind: Message type as a number, which may be unknown.
        control: Control code; in data messages, bit 0 means that the host has read the last reply completely.
        parameter: Message id, session id or version, depending on the type.
        oversized: Whether the payload was longer than :data:`MAX_PAYLOAD` and was skipped.
    """

    kind: int
    control: int = 0
    parameter: int = 0
    payload: bytes = b""
    oversized: bool = False

    def encode(self) -> bytes:
        """Return the message as bytes."""
        return _HEADER.pack(_PROLOGUE, self.kind, self.control, self.parameter, len(self.payload)) + self.payload


class BadHeader(Exception):  # noqa: N818 - an event of the decoder; it never leaves the emulator
    """The bytes are not a HiSLIP header."""


class HislipDecoder:
    """Decoder from the bytes of one connection to messages."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._skip = 0

    def feed(self, data: bytes) -> None:
        """Append received bytes."""
        dropped = min(self._skip, len(data))
        self._skip -= dropped
        self._data += data[dropped:]

    def next(self) -> HislipMessage | None:
        """Return the next complete HiSLIP message; ``None`` if there is none. Raises ``BadHeader`` for other data."""
        # Checked from the first byte, because a host of another protocol may never send sixteen bytes.
        if not _PROLOGUE.startswith(bytes(self._data[:2])):
            raise BadHeader
        if len(self._data) < _HEADER.size:
            return None
        _, kind, control, parameter, length = _HEADER.unpack_from(self._data)
        end = _HEADER.size + length
        if length > MAX_PAYLOAD:
            # Skipped as it arrives, so that no host can make this buffer grow.
            self._skip = max(end - len(self._data), 0)
            del self._data[:end]
            return HislipMessage(kind, control, parameter, oversized=True)
        if len(self._data) < end:
            return None
        payload = bytes(self._data[_HEADER.size : end])
        del self._data[:end]
        return HislipMessage(kind, control, parameter, payload)
