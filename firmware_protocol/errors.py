"""Exceptions for wrong payloads."""

from __future__ import annotations


class ProtocolError(Exception):
    """Base of all errors of this package."""


class PayloadError(ProtocolError, ValueError):
    """A payload is too short. A board replies BAD_LENGTH (protocol section 5).

    ``field`` is the first field that does not fit, and ``offset`` is its position in the payload. The received payload
    has ``length`` bytes, but needs ``minimum`` bytes.
    """

    def __init__(self, layout: str, field: str, *, offset: int, length: int, minimum: int) -> None:
        super().__init__(
            f"{layout}: {length} bytes end before `{field}` at offset {offset}; at least {minimum} are needed"
        )
        self.layout = layout
        self.field = field
        self.offset = offset
        self.length = length
        self.minimum = minimum


class FieldError(ProtocolError, ValueError):
    """A field has a value that the protocol does not allow. A board replies BAD_VALUE (section 5).

    ``offset`` is the position of the field in the payload in bytes. ``value`` is its value if it is a number.
    """

    def __init__(self, layout: str, field: str, *, offset: int, value: int, reason: str) -> None:
        super().__init__(f"{layout}: `{field}` at offset {offset} is {value}: {reason}")
        self.layout = layout
        self.field = field
        self.offset = offset
        self.value = value


class UnknownCommandError(ProtocolError, ValueError):
    """A command or event code is unknown. A board replies UNKNOWN_COMMAND (protocol section 12)."""

    def __init__(self, command: int) -> None:
        super().__init__(f"no message for command 0x{command:02X}")
        self.command = command


class ChannelError(ProtocolError, ValueError):
    """A channel does not exist on the board. A board replies BAD_CHANNEL (protocol section 12).

    The board has ``channels`` channels. ``point`` is the number of the sweep point that names the channel, if any.
    """

    def __init__(self, channel: int, channels: int, point: int | None = None) -> None:
        where = "" if point is None else f"point {point} of the sweep image: "
        super().__init__(f"{where}channel {channel} does not exist; there are {channels}, numbered from 0")
        self.channel = channel
        self.channels = channels
        self.point = point


class ImageError(ProtocolError, ValueError):
    """An encoded sweep has a structure that the protocol does not allow. A board replies BAD_VALUE (section 10.2).

    ``offset`` is the position of the wrong field in bytes. ``point`` is the number of its sweep point; ``None`` before
    the first point.
    """

    def __init__(self, offset: int, reason: str, point: int | None = None) -> None:
        where = "" if point is None else f" (point {point})"
        super().__init__(f"sweep image, offset {offset}{where}: {reason}")
        self.offset = offset
        self.point = point


class FrameTooBigError(ProtocolError, ValueError):
    """A frame may exceed the largest size that the receiver accepts (protocol section 2.4); nothing was encoded.

    ``bound`` is the largest encoded size of the frame, ``mtu`` the largest allowed size, both in bytes.
    """

    def __init__(self, bound: int, mtu: int) -> None:
        super().__init__(f"frame of up to {bound} bytes on the wire does not fit an MTU of {mtu}")
        self.bound = bound
        self.mtu = mtu
