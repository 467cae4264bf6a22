"""Frames of Thorlabs' APT protocol as polarization controllers use it: a header of six bytes, and data. Pure.

A header is ``id16, p1, p2, destination, source``; with data it is ``id16, length16, destination | 0x80, source``,
little-endian (Thorlabs' APT protocol). There is no checksum: which bytes of a stream are frames is told by the two
addresses, by the ids whose lengths are known, and by nothing else.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass

HOST = 0x01
DEVICE = 0x50
HEADER_BYTES = 6
LONGEST_DATA_BYTES = 255
_WITH_DATA = 0x80
_STATUS = struct.Struct("<HihhI")
_PARAMETERS = struct.Struct("<6H")
_MOVE = struct.Struct("<Hi")


class DecodedAptMessage(enum.IntEnum):
    """Ids of the messages that a driver uses."""

    SET_CHANNEL_ENABLE = 0x0210
    MOVE_HOME = 0x0443
    MOVE_HOMED = 0x0444
    MOVE_ABSOLUTE = 0x0453
    MOVE_COMPLETED = 0x0464
    MOVE_STOPPED = 0x0466
    REQUEST_STATUS = 0x0490
    STATUS = 0x0491
    SET_PARAMETERS = 0x0530
    REQUEST_PARAMETERS = 0x0531
    PARAMETERS = 0x0532


_DATA_BYTES = {
    DecodedAptMessage.MOVE_HOMED: (0,),
    # Told by the header alone, with the channel in p1, or with position and status behind it.
    DecodedAptMessage.MOVE_COMPLETED: (0, _MOVE.size, _STATUS.size),
    DecodedAptMessage.MOVE_STOPPED: (0, _MOVE.size, _STATUS.size),
    DecodedAptMessage.STATUS: (_STATUS.size,),
    DecodedAptMessage.PARAMETERS: (_PARAMETERS.size,),
}
"""Lengths of data that a message of a device may have."""


class StatusBit(enum.IntFlag):
    """Bits of a status message."""

    MOVING_FORWARD = 1 << 4
    MOVING_BACK = 1 << 5
    HOMING = 1 << 9
    HOMED = 1 << 10
    SETTLED = 1 << 13
    ERROR = 1 << 14
    ENABLED = 1 << 31


@dataclass(frozen=True)
class AptFrame:
    """One frame from a device.

    Attributes:
        message: Its id, known or not.
        p1: First parameter of a frame without data, 0 otherwise.
        p2: Second parameter, likewise.
        data: The data, empty in a frame without.
    """

    message: int
    p1: int
    p2: int
    data: bytes

    @property
    def channel(self) -> int:
        """The channel id it speaks of: the parameter, or the first word of the data."""
        return int.from_bytes(self.data[:2], "little") if self.data else self.p1


@dataclass(frozen=True)
class AptStatus:
    """What a paddle says of itself.

    Attributes:
        channel: Channel id: 1, 2 or 4.
        counts: Position.
        bits: See :class:`StatusBit`.
    """

    channel: int
    counts: int
    bits: StatusBit

    @property
    def moving(self) -> bool:
        """Whether the paddle turns or looks for its home."""
        return bool(self.bits & (StatusBit.MOVING_FORWARD | StatusBit.MOVING_BACK | StatusBit.HOMING))


@dataclass(frozen=True)
class Parameters:
    """Settings common to all paddles.

    Attributes:
        velocity_percent: Part of 400°/s, 10 to 100.
        home_counts: Position that homing ends at.
        jog_counts: Steps of the buttons, paddle by paddle.
    """

    velocity_percent: int
    home_counts: int
    jog_counts: tuple[int, int, int]


def command(message: int, p1: int = 0, p2: int = 0) -> bytes:
    """Return a frame without data."""
    return struct.pack("<HBBBB", message, p1, p2, DEVICE, HOST)


def command_with(message: int, data: bytes) -> bytes:
    """Return a frame with data."""
    return struct.pack("<HHBB", message, len(data), DEVICE | _WITH_DATA, HOST) + data


def move_absolute(channel: int, counts: int) -> bytes:
    """Return the frame that moves a paddle."""
    return command_with(DecodedAptMessage.MOVE_ABSOLUTE, _MOVE.pack(channel, counts))


def set_parameters(parameters: Parameters) -> bytes:
    """Return the frame that sets what is common to all paddles."""
    words = (0, parameters.velocity_percent, parameters.home_counts, *parameters.jog_counts)
    return command_with(DecodedAptMessage.SET_PARAMETERS, _PARAMETERS.pack(*words))


def status_of(frame: AptFrame) -> AptStatus:
    """Return what a status frame says."""
    channel, counts, _velocity, _current_ma, bits = _STATUS.unpack(frame.data)
    return AptStatus(channel, counts, StatusBit(bits))


def parameters_of(frame: AptFrame) -> Parameters:
    """Return what a parameter frame says."""
    _, velocity, home, *jogs = _PARAMETERS.unpack(frame.data)
    return Parameters(velocity, home, (jogs[0], jogs[1], jogs[2]))


class AptDecoder:
    """Finds frames of a device in a stream of bytes, wherever it is cut, and passes over what is none.

    Attributes:
        foreign_bytes: Bytes passed over so far.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.foreign_bytes = 0

    @property
    def pending(self) -> int:
        """Bytes of a frame that is not yet complete."""
        return len(self._buffer)

    def reset(self) -> None:
        """Forget an incomplete frame."""
        self.foreign_bytes += len(self._buffer)
        self._buffer.clear()

    def feed(self, data: bytes) -> list[AptFrame]:
        """Take bytes and return the frames that they complete, in their order."""
        self._buffer += data
        frames = []
        while len(self._buffer) >= HEADER_BYTES:
            length = _data_bytes(self._buffer)
            # Not a frame that begins here: one byte further, so that the next header is found wherever it stands.
            if length is None:
                del self._buffer[0]
                self.foreign_bytes += 1
                continue
            end = HEADER_BYTES + length
            if len(self._buffer) < end:
                break
            message, p1, p2 = struct.unpack_from("<HBB", self._buffer)
            content = bytes(self._buffer[HEADER_BYTES:end])
            frames.append(AptFrame(message, 0, 0, content) if content else AptFrame(message, p1, p2, b""))
            del self._buffer[:end]
        return frames


def _data_bytes(header: bytearray) -> int | None:
    """Return how many bytes of data follow a header; ``None`` if no device would send it to a host."""
    message, length, destination, source = struct.unpack_from("<HHBB", header)
    if source != DEVICE or destination not in (HOST, HOST | _WITH_DATA):
        return None
    n_bytes = length if destination & _WITH_DATA else 0
    # A known id has known lengths; without a checksum that is the best evidence that these bytes are a header.
    allowed = _DATA_BYTES.get(message)
    if allowed is not None:
        return n_bytes if n_bytes in allowed else None
    return n_bytes if n_bytes <= LONGEST_DATA_BYTES else None
