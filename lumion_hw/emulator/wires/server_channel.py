"""Connection of one host to the emulator's server: TCP or pseudo-terminal."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from lumion_hw.emulator.wires.device import EmulatedDevice
from lumion_hw.errors import ConfigError, ConnectError, LinkLost
from lumion_hw.links.base import Peer

_LOG = logging.getLogger(__name__)

BUFFER_LIMIT = 65536
"""Number of unread bytes at which reading pauses (TCP) or replies are lost (serial line)."""
LINGER_S = 30.0
"""Time in s for which a host that has stopped sending still receives replies."""
_CHUNK = 65536
_QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)


class HostWire(Protocol):
    """Raw, non-blocking byte transport to one host."""

    def fileno(self) -> int:
        """Return the file descriptor to wait on."""

    def recv(self, size: int) -> bytes:
        """Return received bytes, at most ``size``; ``b""`` when the host sends no more. Raises ``OSError``."""

    def send(self, data: bytes) -> int:
        """Send as many bytes as possible now; return their number. Raises ``OSError``."""

    def close(self) -> None:
        """Close the file descriptor."""


class SocketWire:
    """An accepted TCP connection."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection

    def fileno(self) -> int:
        """Return the file descriptor to wait on."""
        return self._socket.fileno()

    def recv(self, size: int) -> bytes:
        """Return received bytes, at most ``size``; ``b""`` when the host sends no more."""
        data = self._socket.recv(size)
        if _QUICK_ACK is not None:
            # A host with Nagle's algorithm holds its next message back until the last one is acknowledged. Linux delays
            # the acknowledgement by 40 ms to send it with a reply, and resets this option by itself.
            with contextlib.suppress(OSError):  # the host has gone, but its bytes count
                self._socket.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)
        return data

    def send(self, data: bytes) -> int:
        """Send as many bytes as possible now; return their number."""
        return self._socket.send(data)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


class PtyWire:
    """The master side of a pseudo-terminal. The slave side stays open, so that hosts may open and close it."""

    def __init__(self, link: Path) -> None:
        import tty

        self._link = link
        self._master, self._slave = os.openpty()
        try:
            tty.setraw(self._master)
            tty.setraw(self._slave)
            os.set_blocking(self._master, False)
            self._target = os.ttyname(self._slave)
            self._publish()
        except BaseException:
            os.close(self._master)
            os.close(self._slave)
            raise

    def _publish(self) -> None:
        if self._link.exists() and not self._link.is_symlink():
            raise ConfigError(
                f"{self._link} exists and is not a symlink; it was not changed", hint="Choose another path."
            )
        new_link = self._link.with_name(f".{self._link.name}.{os.getpid()}")
        new_link.unlink(missing_ok=True)
        new_link.symlink_to(self._target)
        new_link.replace(self._link)

    def fileno(self) -> int:
        """Return the file descriptor to wait on."""
        return self._master

    def recv(self, size: int) -> bytes:
        """Return received bytes, at most ``size``; ``b""`` when the host sends no more."""
        return os.read(self._master, size)

    def send(self, data: bytes) -> int:
        """Send as many bytes as possible now; return their number."""
        return os.write(self._master, data)

    def close(self) -> None:
        """Close both ends and remove the symlink, unless it points elsewhere."""
        with contextlib.suppress(OSError):
            if self._link.is_symlink() and os.readlink(self._link) == self._target:
                self._link.unlink()
        os.close(self._master)
        os.close(self._slave)


class HostChannel:
    """Connects one host's byte transport with one emulated device.

    Args:
        serial_line: Whether the host is on a serial line, which has no flow control: unread output is lost.

    Attributes:
        broken: Whether the connection is over and the channel must be closed.
    """

    def __init__(self, wire: HostWire, device: EmulatedDevice, *, serial_line: bool) -> None:
        self._wire = wire
        self.fd = wire.fileno()
        self._device = device
        self._serial_line = serial_line
        self._output = bytearray()
        self._input_ended_s: float | None = None
        self._peer: Peer | None = None
        self.watched = 0
        self.broken = False
        with self._contain_errors():
            self._peer = device.connect()

    @property
    def interest(self) -> int:
        """Socket events to wait for."""
        listening = self._serial_line or (self._input_ended_s is None and len(self._output) < BUFFER_LIMIT)
        return selectors.EVENT_READ * listening | selectors.EVENT_WRITE * bool(self._output)

    def read_input(self, now_s: float, size: int) -> None:
        """Process up to ``size`` bytes from the host."""
        try:
            data = self._wire.recv(size)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.broken = True
            return
        if not data:
            self._input_ended_s = now_s  # pending replies are still sent
            return
        with self._contain_errors():
            if self._peer is None:
                self._peer = self._device.connect()
            self._peer.receive(data)

    def pump(self, now_s: float) -> bool:
        """Move the device's replies to the transport. Return whether there were any."""
        replies = b""
        with self._contain_errors():
            if self._peer is not None and (self._serial_line or len(self._output) < BUFFER_LIMIT):
                replies = self._peer.transmit()
                free_bytes = BUFFER_LIMIT - len(self._output) if self._serial_line else len(replies)
                self._output += replies[: max(free_bytes, 0)]
        self._send()
        if self._input_ended_s is not None and not self._output:
            self.broken |= now_s > self._input_ended_s + LINGER_S or self.next_event(now_s) is None
        return bool(replies)

    def next_event(self, now_s: float) -> float | None:
        """Return the time of the next possible reply; ``None`` if no reply is pending."""
        event = None
        with self._contain_errors():
            if self._peer is not None and len(self._output) < BUFFER_LIMIT:
                event = self._peer.next_event()
        if self.broken:
            return now_s
        if event is not None and self._input_ended_s is not None:
            return min(event, max(self._input_ended_s + LINGER_S, now_s))
        return event

    def _send(self) -> None:
        try:
            while self._output:
                sent = self._wire.send(bytes(self._output[:_CHUNK]))
                del self._output[:sent]
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.broken = not self._serial_line
            self._output.clear()

    @contextlib.contextmanager
    def _contain_errors(self) -> Iterator[None]:
        """Close only this connection if the device raises an exception."""
        try:
            yield
        except ConnectError:
            _LOG.info("%s refused a host's connection", self._device.name)
            self.broken = not self._serial_line
        except LinkLost:
            _LOG.info("%s closed a host's connection", self._device.name)
            self._drop_peer()
            # No more replies will come: pending ones are sent, and then the transport is closed.
            self._input_ended_s = float("-inf")
        except Exception:  # noqa: BLE001 - one host's bytes must not end the service of others
            _LOG.exception("%s: internal error of the emulator; the host's connection is closed", self._device.name)
            self._drop_peer()
            self.broken = not self._serial_line

    def _drop_peer(self) -> None:
        peer, self._peer = self._peer, None
        if peer is not None:
            try:
                peer.close()
            except Exception:  # noqa: BLE001 - a peer should not raise here, but the loop must survive it
                _LOG.exception("%s could not close its end of a host's connection", self._device.name)

    def close(self) -> None:
        """Close the transport and the peer."""
        self._drop_peer()
        with contextlib.suppress(OSError):
            self._wire.close()
