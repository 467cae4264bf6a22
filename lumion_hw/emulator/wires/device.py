"""Interface of every emulated device: it accepts connections and follows the clock."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from lumion_hw.links.base import Peer


class EmulatedDevice(Protocol):
    """Interface of an emulated device, which must not fail whatever bytes a host sends.

    The device owns its state and queues; each connection owns its buffers.
    """

    @property
    def name(self) -> str:
        """Device name in the bench file."""

    def connect(self) -> Peer:
        """Open another connection. Raises ``ConnectError`` when the device refuses (unplugged, powered off)."""

    def advance(self) -> None:
        """Advance the device's state to the clock's present time (watchdogs, timers, settling)."""

    def next_due(self) -> float | None:
        """Return the time of the next :meth:`advance` that has an effect, ``None`` if the device only waits for a host.

        A change that shows only when a host reads the device needs no time of its own.
        """


@runtime_checkable
class MessagePeer(Peer, Protocol):
    """A connection with message boundaries and a status byte."""

    @property
    def response_pending(self) -> bool:
        """Whether a reply is in preparation or has not been transmitted."""

    def end_message(self) -> None:
        """Mark the end of the message received so far, with or without a terminator (END)."""

    def device_clear(self) -> None:
        """Discard received data and pending replies (device clear)."""

    def interrupt(self) -> None:
        """Discard the reply, because the host has sent more without reading it (error -410)."""

    def serial_poll(self) -> tuple[int, int]:
        """Return the status byte and the mask of ``*SRE``."""
