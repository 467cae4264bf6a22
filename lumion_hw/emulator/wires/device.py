"""Interface of every emulated device."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from lumion_hw.links.base import Peer


class EmulatedDevice(Protocol):
    """An emulated device, which must not fail whatever bytes a host sends."""

    @property
    def name(self) -> str:
        """Device name in the bench file."""

    def connect(self) -> Peer:
        """Open another connection. Raises ``ConnectError`` without power or cable."""

    def advance(self) -> None:
        """Advance the device to the clock's present time."""

    def next_due(self) -> float | None:
        """Return the time of the next :meth:`advance` that has an effect; ``None`` if there is none without a host."""


@runtime_checkable
class MessagePeer(Peer, Protocol):
    """A connection with message boundaries and a status byte."""

    @property
    def response_pending(self) -> bool:
        """Whether a reply is in preparation or not yet transmitted."""

    def end_message(self) -> None:
        """End the present message, with or without a terminator (END)."""

    def device_clear(self) -> None:
        """Discard received data and pending replies (device clear)."""

    def interrupt(self) -> None:
        """Discard a reply that the host did not read before it sent more (error -410)."""

    def serial_poll(self) -> tuple[int, int]:
        """Return the status byte and the mask of ``*SRE``."""
