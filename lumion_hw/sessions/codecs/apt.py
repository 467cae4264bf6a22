"""Codec of Thorlabs APT frames: a header of six bytes, and data (Thorlabs' APT protocol). Pure functions."""

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
    """Ids of the APT messages that the driver uses."""

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
    # Sent as a header with the channel in p1, or with position and status as data.
    DecodedAptMessage.MOVE_COMPLETED: (0, _MOVE.size, _STATUS.size),
    DecodedAptMessage.MOVE_STOPPED: (0, _MOVE.size, _STATUS.size),
    DecodedAptMessage.STATUS: (_STATUS.size,),
    DecodedAptMessage.PARAMETERS: (_PARAMETERS.size,),
}
"""Possible data lengths of each message from a device, in bytes."""


class StatusBit(enum.IntFlag):
    """Bits of an APT status message."""

    MOVING_FORWARD = 1 << 4
    MOVING_BACK = 1 << 5
    HOMING = 1 << 9
    HOMED = 1 << 10
    SETTLED = 1 << 13
    ERROR = 1 << 14
    ENABLED = 1 << 31


@dataclass(frozen=True)
class AptFrame:
    """One APT frame from a device.

    Attributes:
        message: Message id, which may be unknown.
        p1: First parameter of a frame without data; 0 otherwise.
        p2: Second parameter of a frame without data; 0 otherwise.
        data: Data; empty in a frame without data.
    """

    message: int
    p1: int
    p2: int
    data: bytes

    @property
    def channel(self) -> int:
        """Channel id of the frame: ``p1``, or the first 16-bit word of the data."""
        return int.from_bytes(self.data[:2], "little") if self.data else self.p1


@dataclass(frozen=True)
class AptStatus:
    """Status of one paddle of a controller.

    Attributes:
        channel: Channel id: 1, 2 or 4.
        counts: Position of the paddle, in encoder counts.
        bits: See :class:`StatusBit`.
    """

    channel: int
    counts: int
    bits: StatusBit

    @property
    def moving(self) -> bool:
        """Whether the paddle is moving or homing."""
        return bool(self.bits & (StatusBit.MOVING_FORWARD | StatusBit.MOVING_BACK | StatusBit.HOMING))


@dataclass(frozen=True)
class Parameters:
    """Settings common to all paddles of a controller.

    Attributes:
        velocity_percent: Speed in percent of 400°/s, 10 to 100.
        home_counts: Position at which homing ends, in encoder counts.
        jog_counts: Step of each paddle at a press of its button, in encoder counts.
    """

    velocity_percent: int
    home_counts: int
    jog_counts: tuple[int, int, int]


def command(message: int, p1: int = 0, p2: int = 0) -> bytes:
    """Return an APT frame without data."""
    return struct.pack("<HBBBB", message, p1, p2, DEVICE, HOST)


def command_with_data(message: int, data: bytes) -> bytes:
    """Return an APT frame with data."""
    return struct.pack("<HHBB", message, len(data), DEVICE | _WITH_DATA, HOST) + data


def move_absolute(channel: int, counts: int) -> bytes:
    """Return the frame that moves a paddle to a position."""
    return command_with_data(DecodedAptMessage.MOVE_ABSOLUTE, _MOVE.pack(channel, counts))


def set_parameters(parameters: Parameters) -> bytes:
    """Return the frame that sets the common settings of all paddles."""
    words = (0, parameters.velocity_percent, parameters.home_counts, *parameters.jog_counts)
    return command_with_data(DecodedAptMessage.SET_PARAMETERS, _PARAMETERS.pack(*words))


def decode_status(frame: AptFrame) -> AptStatus:
    """Return the paddle status in a status frame."""
    channel, counts, _velocity, _current_ma, bits = _STATUS.unpack(frame.data)
    return AptStatus(channel, counts, StatusBit(bits))


def decode_parameters(frame: AptFrame) -> Parameters:
    """Return the settings in a parameter frame."""
    _, velocity, home, *jogs = _PARAMETERS.unpack(frame.data)
    return Parameters(velocity, home, (jogs[0], jogs[1], jogs[2]))


class AptDecoder:
    """Finds APT frames in a byte stream and skips all other bytes.

    Attributes:
        foreign_bytes: Number of bytes skipped so far.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.foreign_bytes = 0

    @property
    def pending(self) -> int:
        """Number of received bytes of an incomplete frame."""
        return len(self._buffer)

    def reset(self) -> None:
        """Discard an incomplete frame."""
        self.foreign_bytes += len(self._buffer)
        self._buffer.clear()

    def feed(self, data: bytes) -> list[AptFrame]:
        """Add received bytes and return the frames that are now complete, in order."""
        self._buffer += data
        frames = []
        while len(self._buffer) >= HEADER_BYTES:
            length = _data_bytes(self._buffer)
            # No frame begins here: advance by one byte, to find the next header at any position.
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
    message, length, destination, source = struct.unpack_from("<HHBB", header)
    if source != DEVICE or destination not in (HOST, HOST | _WITH_DATA):
        return None
    n_bytes = length if destination & _WITH_DATA else 0
    # Without a checksum, a known id with a valid length is the best evidence that these bytes are a header.
    allowed = _DATA_BYTES.get(message)
    if allowed is not None:
        return n_bytes if n_bytes in allowed else None
    return n_bytes if n_bytes <= LONGEST_DATA_BYTES else None
