"""Frames of the Thorlabs APT protocol (as public drivers implement it): a header of six bytes, with or without data.

Little-endian: ``id16, p1, p2, dest, source``; with data ``id16, length16, dest | 0x80, source`` and the data.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

HOST, DEVICE = 0x01, 0x50
"""Addresses of the host and of a device on its own USB port."""
HEADER_SIZE = 6
LONGEST_DATA = 255
"""No message of these devices is longer; a header that announces more is noise."""
_WITH_DATA = 0x80


@dataclass(frozen=True)
class AptMessage:
    """One message from the host.

    Attributes:
        number: Message id.
        first: First parameter of a message without data; of one with data the low byte of its length.
        second: Second parameter.
        data: Data; ``None`` for a message that is a header only.
    """

    number: int
    first: int
    second: int
    data: bytes | None


class AptFrameReader:
    """Bytes to messages; what cannot be the beginning of a message to the device is skipped byte by byte."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[AptMessage]:
        """Take bytes; return the messages that are complete."""
        self._buffer += data
        messages = []
        while len(self._buffer) >= HEADER_SIZE:
            number, first, second, destination, source = struct.unpack_from("<HBBBB", self._buffer)
            length = first | second << 8 if destination & _WITH_DATA else 0
            # There is no start mark: both addresses have to be right, or this is not the beginning of a message.
            if destination & ~_WITH_DATA != DEVICE or source != HOST or length > LONGEST_DATA:
                del self._buffer[0]
                continue
            if len(self._buffer) < HEADER_SIZE + length:
                break
            body = bytes(self._buffer[HEADER_SIZE : HEADER_SIZE + length]) if destination & _WITH_DATA else None
            del self._buffer[: HEADER_SIZE + length]
            messages.append(AptMessage(number, first, second, body))
        return messages

    def forget(self) -> None:
        """Forget the beginning of a message that did not go on."""
        self._buffer.clear()


def short(number: int, first: int = 0, second: int = 0) -> bytes:
    """Return a message to the host that is a header only."""
    return struct.pack("<HBBBB", number, first, second, HOST, DEVICE)


def with_data(number: int, data: bytes) -> bytes:
    """Return a message to the host with data."""
    return struct.pack("<HHBB", number, len(data), HOST | _WITH_DATA, DEVICE) + data
