"""Server for emulated devices: TCP on loopback, and pseudo-terminals with stable symlinks.

One thread serves all devices and hosts. A host that floods, stalls or disappears affects no other host.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from lumion_hw.clock import Clock
from lumion_hw.emulator.wires.device import EmulatedDevice
from lumion_hw.emulator.wires.hislip import CHANNELS_PER_SESSION, HislipFront
from lumion_hw.emulator.wires.server_channel import HostChannel, PtyWire, SocketWire
from lumion_hw.errors import ConnectError, InUseError, LumionError

_LOG = logging.getLogger(__name__)

POLL_PERIOD_S = 0.05
"""Longest time in s between two checks of all devices."""
SHORTEST_WAIT_S = 0.0002
"""Shortest wait in s, so that an event that produces no bytes does not keep the loop busy."""
MAX_CONNECTIONS = 32
"""Largest number of hosts on one port; further hosts are disconnected."""
SLICE_S = 0.002
"""CPU time in s for one device before other devices have their turn."""

_MIN_CHUNK, _FIRST_CHUNK, _MAX_CHUNK = 16, 4096, 65536
_MAX_ACCEPTS = 32
_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass(eq=False)
class _Served:
    """One served device with connected hosts.

    Attributes:
        due_s: Time at which the device must be served next.
        chunk: Number of bytes read at once.
    """

    device: EmulatedDevice
    channels: dict[int, HostChannel] = field(default_factory=dict)
    due_s: float = math.inf
    chunk: int = _FIRST_CHUNK


@dataclass(eq=False)
class _Port:
    """A listening TCP port.

    Attributes:
        front: Object that opens connections: the device, or its HiSLIP server.
        full: Whether hosts have been refused since the port last had a free connection.
    """

    front: EmulatedDevice
    served: _Served
    max_hosts: int
    hosts: set[int] = field(default_factory=set)
    full: bool = False


class EmulatorServer:
    """Serves emulated devices on TCP ports, HiSLIP ports and serial lines.

    Args:
        clock: The clock of the devices; it must run by itself, like :class:`~lumion_hw.clock.SystemClock`.
        work_s: Returns the CPU time that the loop has used.
    """

    def __init__(self, clock: Clock, work_s: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock
        self._work_s = work_s
        self._selector = selectors.DefaultSelector()
        self._devices: dict[int, _Served] = {}
        self._listeners: dict[int, tuple[socket.socket, _Port]] = {}
        self._channels: dict[int, tuple[HostChannel, _Served]] = {}
        self._pending_actions: deque[Callable[[], None]] = deque()
        self._next_poll_s = -math.inf
        self._paused_listeners: set[int] = set()
        self._descriptors_exhausted = False
        # A byte through this socket pair ends the sleep in select(); another thread has no other way.
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self._wake_sender.setblocking(False)
        self._selector.register(self._wake_receiver, selectors.EVENT_READ)
        self._closed = False

    def __enter__(self) -> EmulatorServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- devices that are served

    def add_tcp(self, device: EmulatedDevice, port: int = 0) -> str:
        """Serve ``device`` on a loopback port, 0 for any free port, and return the address ``tcp://127.0.0.1:PORT``.

        May be called while the server runs. Raises ``InUseError`` if another program uses the port.
        """
        return self._add_port(device, device, port, MAX_CONNECTIONS)

    def _add_port(self, front: EmulatedDevice, device: EmulatedDevice, port: int, max_hosts: int) -> str:
        self._require_open()
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            # After a restart, the port of an emulator is in TIME_WAIT.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            listener.listen(256)
            listener.setblocking(False)
        except OSError as error:
            listener.close()
            kind = InUseError if error.errno == errno.EADDRINUSE else ConnectError
            raise kind(
                f"cannot listen on 127.0.0.1:{port}: {error.strerror}",
                device=device.name,
                hint="End the program that uses it, or choose another port; port 0 selects a free one.",
            ) from error
        self._call_in_loop(lambda: self._listen(listener, front, device, max_hosts))
        return f"tcp://127.0.0.1:{listener.getsockname()[1]}"

    def add_hislip(self, device: EmulatedDevice, port: int = 0) -> str:
        """Serve the SCPI instrument ``device`` by HiSLIP on a loopback port, 0 for any free port; return the address.

        The address is ``visa://TCPIP::127.0.0.1::hislip0,PORT::INSTR``; the registered port is 4880. May be called
        while the server runs. Raises ``InUseError`` if another program uses the port, ``ConfigError`` for a device that
        is not a SCPI instrument.
        """
        max_hosts = CHANNELS_PER_SESSION * MAX_CONNECTIONS
        address = self._add_port(HislipFront(device, self._clock), device, port, max_hosts)
        return f"visa://TCPIP::127.0.0.1::hislip0,{address.rpartition(':')[2]}::INSTR"

    def add_pty(self, device: EmulatedDevice, link_path: Path | str) -> str:
        """Serve ``device`` on a pseudo-terminal in raw mode; return its address, ``serial:///path``.

        The symlink ``link_path`` is created or replaced, and removed when the server closes. May be called while the
        server runs. Raises ``ConnectError`` if no pseudo-terminal is available or the symlink cannot be created,
        ``ConfigError`` if ``link_path`` is an existing file.
        """
        self._require_open()
        link = Path(link_path).absolute()
        try:
            channel = HostChannel(PtyWire(link), device, serial_line=True)
        except (OSError, ImportError) as error:
            raise ConnectError(
                f"cannot make a pseudo-terminal: {error}", device=device.name, address=str(link), hint="Use TCP."
            ) from error
        self._call_in_loop(lambda: self._attach(channel, self._served(device)))
        return f"serial://{link}"

    def add_unconnected(self, device: EmulatedDevice) -> None:
        """Advance ``device`` whenever it is due, without a port or line for hosts."""
        self._call_in_loop(lambda: self._serve_unconnected(device))

    def _serve_unconnected(self, device: EmulatedDevice) -> None:
        self._served(device)

    def _require_open(self) -> None:
        if self._closed:
            raise LumionError("the emulator server is closed", hint="Create a new EmulatorServer.")

    def _call_in_loop(self, action: Callable[[], None]) -> None:
        self._pending_actions.append(action)
        self.wake()

    def wake(self) -> None:
        """Serve every device now, because something has changed. May be called from any thread."""
        with contextlib.suppress(OSError):  # full: the loop is being woken already
            self._wake_sender.send(b"!")

    def _served(self, device: EmulatedDevice) -> _Served:
        return self._devices.setdefault(id(device), _Served(device, due_s=-math.inf))

    def _listen(self, listener: socket.socket, front: EmulatedDevice, device: EmulatedDevice, max_hosts: int) -> None:
        self._listeners[listener.fileno()] = (listener, _Port(front, self._served(device), max_hosts))
        self._selector.register(listener, selectors.EVENT_READ)

    def _attach(self, channel: HostChannel, served: _Served) -> None:
        self._channels[channel.fd] = (channel, served)
        served.channels[channel.fd] = channel
        served.due_s = -math.inf

    # -- the loop

    def run(self, stop: threading.Event | Callable[[], bool]) -> None:
        """Serve until ``stop`` is set (or returns true). ``stop`` is checked at least 20 times a second."""
        stopped = stop.is_set if isinstance(stop, threading.Event) else stop
        while not stopped():
            self._cycle()

    @contextlib.contextmanager
    def in_thread(self) -> Iterator[EmulatorServer]:
        """Serve from a background thread while the block runs. Re-raises an exception that ended the thread."""
        stop, failures = threading.Event(), list[BaseException]()

        def serve() -> None:
            try:
                self.run(stop)
            except BaseException as failure:  # noqa: BLE001 - raised again in the caller's thread below
                failures.append(failure)

        thread = threading.Thread(target=serve, name="lumion-emulator", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            stop.set()
            self.wake()
            thread.join()
        if failures:
            raise failures[0]

    def _cycle(self) -> None:
        while self._pending_actions:
            self._pending_actions.popleft()()
        now_s = self._clock.now()
        if now_s >= self._next_poll_s:
            self._poll_devices(now_s)
        next_s = min((served.due_s for served in self._devices.values()), default=math.inf)
        ready: dict[_Served, set[HostChannel]] = {}
        # At most until the next poll, because scripted faults do not wake the loop.
        for key, mask in self._selector.select(max(min(next_s, self._next_poll_s) - now_s, 0.0)):
            if key.fd in self._channels:
                channel, served = self._channels[key.fd]
                senders = ready.setdefault(served, set())
                if mask & selectors.EVENT_READ:
                    senders.add(channel)
            elif key.fd in self._listeners:
                self._accept(*self._listeners[key.fd])
            else:
                self._wake_receiver.recv(4096)
                self._poll_devices(now_s)
        now_s = self._clock.now()
        for served in self._devices.values():
            if served in ready or served.due_s <= now_s:
                self._serve_device(served, ready.get(served, set()))

    def _poll_devices(self, now_s: float) -> None:
        self._next_poll_s = now_s + POLL_PERIOD_S
        for served in self._devices.values():
            served.due_s = min(served.due_s, self._due_s(served, now_s))
        for fd in tuple(self._paused_listeners):
            self._selector.register(self._listeners[fd][0], selectors.EVENT_READ)
        self._paused_listeners.clear()

    def _serve_device(self, served: _Served, senders: set[HostChannel]) -> None:
        replied = self._process_input(served, senders) if senders else False
        now_s = self._clock.now()
        try:
            due_s = served.device.next_due()
            if due_s is not None and due_s <= now_s:
                served.device.advance()
        except Exception:  # noqa: BLE001 - one device's error must not end the service of others
            _LOG.exception("%s: internal error of the emulator while time advanced", served.device.name)
        for channel in tuple(served.channels.values()):
            replied |= channel.pump(now_s)
        # A reply that one host has read may have blocked another host of the device.
        must_poll = replied and len(served.channels) > 1
        served.due_s = now_s if must_poll else max(self._due_s(served, now_s), now_s + SHORTEST_WAIT_S)
        for channel in tuple(served.channels.values()):
            self._update_channel(channel, served)

    def _process_input(self, served: _Served, senders: set[HostChannel]) -> bool:
        started_s = self._work_s()
        replied = False
        for channel in [channel for channel in served.channels.values() if channel in senders]:
            now_s = self._clock.now()
            channel.read_input(now_s, served.chunk)
            replied |= channel.pump(now_s)  # immediate replies are sent before anything else
            served.channels[channel.fd] = served.channels.pop(channel.fd)  # to the end: all get their turn
            if self._work_s() - started_s > SLICE_S:
                break
        used_s = self._work_s() - started_s
        if used_s > SLICE_S:
            served.chunk = max(served.chunk // 2, _MIN_CHUNK)
        elif used_s < SLICE_S / 4:
            served.chunk = min(served.chunk * 2, _MAX_CHUNK)
        return replied

    def _due_s(self, served: _Served, now_s: float) -> float:
        due_s = None
        try:
            due_s = served.device.next_due()
        except Exception:  # noqa: BLE001 - one device's error must not end the service of others
            _LOG.exception("%s: internal error of the emulator while it computed the next event", served.device.name)
        times = [channel.next_event(now_s) for channel in served.channels.values()]
        return min((at_s for at_s in (due_s, *times) if at_s is not None), default=math.inf)

    def _update_channel(self, channel: HostChannel, served: _Served) -> None:
        fd, before = channel.fd, channel.watched
        channel.watched = 0 if channel.broken else channel.interest
        if before and not channel.watched:
            self._selector.unregister(fd)
        elif channel.watched and not before:
            self._selector.register(fd, channel.watched)
        elif channel.watched != before:
            self._selector.modify(fd, channel.watched)
        if channel.broken:
            del self._channels[fd], served.channels[fd]
            for _, port in self._listeners.values():
                if fd in port.hosts:
                    port.hosts.discard(fd)
                    port.full = False
            channel.close()

    # -- new hosts

    def _accept(self, listener: socket.socket, port: _Port) -> None:
        for _ in range(_MAX_ACCEPTS):
            try:
                connection, _address = listener.accept()
            except OSError as failure:
                if failure.errno in _OUT_OF_DESCRIPTORS:
                    self._pause_accepting(listener, failure)
                return
            self._descriptors_exhausted = False
            self._add_host(connection, port)

    def _add_host(self, connection: socket.socket, port: _Port) -> None:
        if len(port.hosts) >= port.max_hosts:
            connection.close()
            if not port.full:
                port.full = True
                _LOG.warning("%s has %d connections; further hosts are refused", port.front.name, port.max_hosts)
            return
        try:
            wire = SocketWire(connection)
        except OSError:
            connection.close()
            return
        port.hosts.add(wire.fileno())
        self._attach(HostChannel(wire, port.front, serial_line=False), port.served)

    def _pause_accepting(self, listener: socket.socket, failure: OSError) -> None:
        self._selector.unregister(listener)
        self._paused_listeners.add(listener.fileno())
        if not self._descriptors_exhausted:
            self._descriptors_exhausted = True
            _LOG.warning("accepting no new connections for now, file descriptors are exhausted: %s", failure.strerror)

    def close(self) -> None:
        """Close every connection, listener and pseudo-terminal and remove the symlinks; a second call does nothing.

        The loop must have ended (the ``with`` block of :meth:`in_thread`, or :meth:`run`).
        """
        self._closed = True
        while self._pending_actions:
            self._pending_actions.popleft()()
        if self._wake_sender.fileno() >= 0:
            self._wake_receiver.close()
            self._wake_sender.close()
        for channel, _ in self._channels.values():
            channel.close()
        for listener, _ in self._listeners.values():
            listener.close()
        self._channels.clear()
        self._listeners.clear()
        self._devices.clear()
        self._selector.close()
