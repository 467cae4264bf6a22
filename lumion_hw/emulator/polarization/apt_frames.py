"""Frames of the Thorlabs APT protocol, as in public drivers: a header of six bytes, with or without data.

Little-endian: ``id16, p1, p2, dest, source``; with data ``id16, length16, dest | 0x80, source`` and the data.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

HOST, DEVICE = 0x01, 0x50
"""Addresses of the host and of a device on its own USB port."""
HEADER_SIZE = 6
MAX_DATA_BYTES = 255
"""Largest data length of these devices; a header with a larger length is noise."""
_HAS_DATA = 0x80


@dataclass(frozen=True)
class AptMessage:
    """One APT message from the host.

    Attributes:
        first: First parameter of a message without data; with data, the low byte of its length.
        data: Data; ``None`` for a header alone.
    """

    number: int
    first: int
    second: int
    data: bytes | None


class AptFrameReader:
    """Decoder from bytes to APT messages, which skips bytes that cannot start a message to the device."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[AptMessage]:
        """Return the APT messages that the received bytes complete."""
        self._buffer += data
        messages = []
        while len(self._buffer) >= HEADER_SIZE:
            number, first, second, destination, source = struct.unpack_from("<HBBBB", self._buffer)
            length = first | second << 8 if destination & _HAS_DATA else 0
            # There is no start mark: unless both addresses are right, a message does not start here.
            if destination & ~_HAS_DATA != DEVICE or source != HOST or length > MAX_DATA_BYTES:
                del self._buffer[0]
                continue
            if len(self._buffer) < HEADER_SIZE + length:
                break
            body = bytes(self._buffer[HEADER_SIZE : HEADER_SIZE + length]) if destination & _HAS_DATA else None
            del self._buffer[: HEADER_SIZE + length]
            messages.append(AptMessage(number, first, second, body))
        return messages

    def discard_incomplete(self) -> None:
        """Discard an incomplete APT message."""
        self._buffer.clear()


def header_only(number: int, first: int = 0, second: int = 0) -> bytes:
    """Return the bytes of an APT message to the host without data."""
    return struct.pack("<HBBBB", number, first, second, HOST, DEVICE)


def with_data(number: int, data: bytes) -> bytes:
    """Return the bytes of an APT message to the host with data."""
    return struct.pack("<HHBB", number, len(data), HOST | _HAS_DATA, DEVICE) + data
