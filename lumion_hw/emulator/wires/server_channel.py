"""One host on one wire of the emulator's server: TCP connections and pseudo-terminals, and their bounded buffers."""

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
"""Unread bytes a host may leave behind before it is not listened to (TCP) or its replies are lost (serial line)."""
LINGER_S = 30.0
"""A host that has shut down its sending side still gets the replies under way, for this long."""
_CHUNK = 65536
_QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)


class HostWire(Protocol):
    """Raw, non-blocking byte transport of one host."""

    def fileno(self) -> int:
        """The descriptor to wait on."""

    def recv(self, most: int) -> bytes:
        """Return what has arrived, up to ``most`` bytes; ``b""`` when the host sends no more. Raises ``OSError``."""

    def send(self, data: bytes) -> int:
        """Send what goes through now; return how much that was. Raises ``OSError``."""

    def close(self) -> None:
        """Give the descriptor back."""


class SocketWire:
    """An accepted TCP connection."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self._socket.fileno()

    def recv(self, most: int) -> bytes:
        """Return what has arrived, up to ``most`` bytes; ``b""`` when the host sends no more."""
        data = self._socket.recv(most)
        if _QUICK_ACK is not None:
            # A host with Nagle's algorithm holds its next message back until the last one is acknowledged; Linux, which
            # hopes to send that along with an answer, would let it wait 40 ms, and switches this off again by itself.
            with contextlib.suppress(OSError):  # the host is gone, but what it said counts
                self._socket.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)
        return data

    def send(self, data: bytes) -> int:
        """Send what goes through now; return how much that was."""
        return self._socket.send(data)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


class PtyWire:
    """The master of a pseudo-terminal. The slave stays open here, so that hosts may come and go."""

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
        """Point the symlink at the slave in one step, so that a host never finds it missing on a replug."""
        if self._link.exists() and not self._link.is_symlink():
            raise ConfigError(f"{self._link} exists and is no symlink; it is left alone", hint="Give another path.")
        fresh = self._link.with_name(f".{self._link.name}.{os.getpid()}")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(self._target)
        fresh.replace(self._link)

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self._master

    def recv(self, most: int) -> bytes:
        """Return what has arrived, up to ``most`` bytes; ``b""`` when the host sends no more."""
        return os.read(self._master, most)

    def send(self, data: bytes) -> int:
        """Send what goes through now; return how much that was."""
        return os.write(self._master, data)

    def close(self) -> None:
        """Close both ends and remove the symlink, unless it leads elsewhere by now."""
        with contextlib.suppress(OSError):
            if self._link.is_symlink() and os.readlink(self._link) == self._target:
                self._link.unlink()
        os.close(self._master)
        os.close(self._slave)


class HostChannel:
    """One host on one wire, talking to one peer.

    Args:
        wire: Its transport.
        device: The device it reaches.
        serial_line: No flow control and no end: input is always drained, output nobody reads is lost, and a peer that
            is refused or fails is asked for again when the next bytes come.

    Attributes:
        fd: The wire's descriptor.
        watched: What the server waits for at it.
        broken: The conversation is over; close the channel.
    """

    def __init__(self, wire: HostWire, device: EmulatedDevice, *, serial_line: bool) -> None:
        self._wire = wire
        self.fd = wire.fileno()
        self._device = device
        self._serial_line = serial_line
        self._output = bytearray()
        self._ended_s: float | None = None
        self._peer: Peer | None = None
        self.watched = 0
        self.broken = False
        with self._guarded():
            self._peer = device.connect()

    @property
    def interest(self) -> int:
        """What to wait for: input unless the host leaves too much unread, output when there is any."""
        listening = self._serial_line or (self._ended_s is None and len(self._output) < BUFFER_LIMIT)
        return selectors.EVENT_READ * listening | selectors.EVENT_WRITE * bool(self._output)

    def readable(self, now_s: float, most: int) -> None:
        """Take what the host has sent, up to ``most`` bytes."""
        try:
            data = self._wire.recv(most)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.broken = True
            return
        if not data:
            self._ended_s = now_s  # replies under way still count
            return
        with self._guarded():
            if self._peer is None:
                self._peer = self._device.connect()
            self._peer.receive(data)

    def pump(self, now_s: float) -> bool:
        """Move replies to the wire; return whether there were any."""
        fresh = b""
        with self._guarded():
            if self._peer is not None and (self._serial_line or len(self._output) < BUFFER_LIMIT):
                fresh = self._peer.transmit()
                room = BUFFER_LIMIT - len(self._output) if self._serial_line else len(fresh)
                self._output += fresh[: max(room, 0)]
        self._send()
        if self._ended_s is not None and not self._output:
            self.broken |= now_s > self._ended_s + LINGER_S or self.next_event(now_s) is None
        return bool(fresh)

    def next_event(self, now_s: float) -> float | None:
        """Return when there may be more to move, ``None`` if nothing is under way."""
        event = None
        with self._guarded():
            if self._peer is not None and len(self._output) < BUFFER_LIMIT:
                event = self._peer.next_event()
        if self.broken:
            return now_s
        if event is not None and self._ended_s is not None:
            return min(event, max(self._ended_s + LINGER_S, now_s))
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
    def _guarded(self) -> Iterator[None]:
        """Whatever the device raises ends this conversation at most, never the loop."""
        try:
            yield
        except ConnectError:
            _LOG.info("%s refused a connection", self._device.name)
            self.broken = not self._serial_line
        except LinkLost:
            _LOG.info("%s closed a connection", self._device.name)
            self._drop_peer()
            # Nothing more will come: what waits goes out, and then the wire is closed.
            self._ended_s = float("-inf")
        except Exception:  # noqa: BLE001 - one host's bytes must not end the others' service
            _LOG.exception("%s failed; its connection is dropped", self._device.name)
            self._drop_peer()
            self.broken = not self._serial_line

    def _drop_peer(self) -> None:
        peer, self._peer = self._peer, None
        if peer is not None:
            try:
                peer.close()
            except Exception:  # noqa: BLE001 - closing never raises, by contract of a peer; the loop does not bet on it
                _LOG.exception("%s failed to close a connection", self._device.name)

    def close(self) -> None:
        """Close the wire and tell the peer."""
        self._drop_peer()
        with contextlib.suppress(OSError):
            self._wire.close()
