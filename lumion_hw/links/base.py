"""Interfaces of links, which are byte streams with deadlines."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from lumion_hw.clock import Deadline


class Link(Protocol):
    """A byte stream to one device. Deadlines are absolute times of the link's clock."""

    @property
    def name(self) -> str:
        """Address of the link, for messages."""

    def open(self, deadline: Deadline) -> None:
        """Open the byte stream. Raises ``ConnectError``. Does nothing if the stream is open."""

    def write(self, data: bytes, deadline: Deadline) -> None:
        """Write all of ``data``. Raises ``LinkLost`` if this fails."""

    def read(self, deadline: Deadline) -> bytes:
        """Return received bytes, at least one, or ``b""`` at the deadline. Raises ``LinkLost``."""

    def drain(self, quiet_s: float, deadline: Deadline) -> int:
        """Discard input until none has arrived for ``quiet_s`` seconds; return the number of discarded bytes."""

    def close(self) -> None:
        """Close the stream; idempotent, never raises."""


@runtime_checkable
class BulkLink(Link, Protocol):
    """A link that can receive directly into a buffer."""

    def read_into(self, view: memoryview, deadline: Deadline) -> int:
        """Receive at least one byte into ``view``; return the number, or 0 at the deadline. Raises ``LinkLost``."""


@runtime_checkable
class ModemLink(Link, Protocol):
    """A link with an RTS line."""

    def set_rts(self, on: bool) -> None:
        """Assert or release RTS. A port without RTS ignores it. Raises ``LinkLost`` if the port is lost."""


class Peer(Protocol):
    """One connection to an emulated device in this process. Host and device share one clock."""

    def receive(self, data: bytes) -> None:
        """Receive bytes from the host now."""

    def transmit(self) -> bytes:
        """Return the bytes that the device has sent by now. Raises ``LinkLost`` if the device has disconnected."""

    def next_event(self) -> float | None:
        """Return the time of the next data to transmit, or ``None`` if no data is pending."""

    def close(self) -> None:
        """End the connection, because the host has disconnected."""
