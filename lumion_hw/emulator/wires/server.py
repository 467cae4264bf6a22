"""Emulated devices on real wires: TCP on loopback, and pseudo-terminals behind stable symlinks.

One thread, one selector for all devices and hosts, asleep until bytes come or something is due. Only the device that is
spoken to, or whose hour has come, does anything. A host that floods, stalls or vanishes is its own problem: output is
bounded, nothing it sends ends the loop, and each device gets its share of the time.
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

GLANCE_S = 0.05
"""Longest time until a change from outside is noticed: a scripted fault, the trigger pulse of another instrument, or
that there are descriptors again."""
SHORTEST_WAIT_S = 0.0002
"""A peer whose next event is due but brings nothing must not make the loop spin."""
MOST_CONNECTIONS = 32
"""Hosts at a time on one port; further ones are accepted and closed."""
SLICE_S = 0.002
"""CPU time that the bytes of one device's hosts may take before the other devices have their turn."""

_LEAST_CHUNK, _FIRST_CHUNK, _MOST_CHUNK = 16, 4096, 65536
_ACCEPTED_AT_ONCE = 32
_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass(eq=False)
class _Served:
    """One device with its hosts.

    Attributes:
        device: The device.
        channels: Its hosts by descriptor.
        due_s: When it has to be attended to next.
        chunk: Bytes read at once: as many as are worked off in about a slice, which each device finds by itself.
    """

    device: EmulatedDevice
    channels: dict[int, HostChannel] = field(default_factory=dict)
    due_s: float = math.inf
    chunk: int = _FIRST_CHUNK


@dataclass(eq=False)
class _Port:
    """A port that listens.

    Attributes:
        front: What hands out connections: the device, or HiSLIP in front of it.
        served: The device.
        most: Connections at a time.
        hosts: Descriptors of those there are.
        full: Hosts were refused since there was room last.
    """

    front: EmulatedDevice
    served: _Served
    most: int
    hosts: set[int] = field(default_factory=set)
    full: bool = False


class EmulatorServer:
    """Serves any number of emulated devices, each on any number of TCP ports, HiSLIP ports and serial lines.

    Args:
        clock: The clock of the devices; it has to move by itself, as :class:`~lumion_hw.clock.SystemClock` does.
        work_s: Says how much CPU time the loop has used, for the shares of the devices.
    """

    def __init__(self, clock: Clock, work_s: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock
        self._work_s = work_s
        self._selector = selectors.DefaultSelector()
        self._devices: dict[int, _Served] = {}
        self._listeners: dict[int, tuple[socket.socket, _Port]] = {}
        self._channels: dict[int, tuple[HostChannel, _Served]] = {}
        self._arrivals: deque[Callable[[], None]] = deque()
        self._glance_s = -math.inf
        self._resting: set[int] = set()
        self._starved = False
        # A byte through this pair ends the sleep in select(); nothing else can from another thread.
        self._alarm, self._bell = socket.socketpair()
        self._alarm.setblocking(False)
        self._bell.setblocking(False)
        self._selector.register(self._alarm, selectors.EVENT_READ)
        self._closed = False

    def __enter__(self) -> EmulatorServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- what is served

    def add_tcp(self, device: EmulatedDevice, port: int = 0) -> str:
        """Serve ``device`` on a loopback port; may be called while the server runs.

        Args:
            device: The device.
            port: Port number; 0 takes any free one.

        Returns:
            Its address, ``tcp://127.0.0.1:PORT``.

        Raises:
            InUseError: Another program has the port.
        """
        return self._add_port(device, device, port, MOST_CONNECTIONS)

    def _add_port(self, front: EmulatedDevice, device: EmulatedDevice, port: int, most: int) -> str:
        self._require_open()
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            # An emulator that is started again finds its port in TIME_WAIT.
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
                hint="End the program that has it, or name another port; port 0 takes any free one.",
            ) from error
        self._arrive(lambda: self._listen(listener, front, device, most))
        return f"tcp://127.0.0.1:{listener.getsockname()[1]}"

    def add_hislip(self, device: EmulatedDevice, port: int = 0) -> str:
        """Serve ``device`` by HiSLIP on a loopback port; may be called while the server runs.

        Args:
            device: A SCPI instrument.
            port: Port number; 0 takes any free one (the registered one is 4880).

        Returns:
            Its address, ``visa://TCPIP::127.0.0.1::hislip0,PORT::INSTR``.

        Raises:
            InUseError: Another program has the port.
            ConfigError: The device exchanges no messages.
        """
        most = CHANNELS_PER_SESSION * MOST_CONNECTIONS
        address = self._add_port(HislipFront(device, self._clock), device, port, most)
        return f"visa://TCPIP::127.0.0.1::hislip0,{address.rpartition(':')[2]}::INSTR"

    def add_pty(self, device: EmulatedDevice, link_path: Path | str) -> str:
        """Serve ``device`` on a pseudo-terminal in raw mode; may be called while the server runs.

        Args:
            device: The device.
            link_path: Symlink to create or replace; it goes away with the server.

        Returns:
            Its address, ``serial:///path``.

        Raises:
            ConnectError: There is no pseudo-terminal to be had, or the link cannot be made.
            ConfigError: ``link_path`` is a file of somebody else.
        """
        self._require_open()
        link = Path(link_path).absolute()
        try:
            channel = HostChannel(PtyWire(link), device, serial_line=True)
        except (OSError, ImportError) as error:
            raise ConnectError(
                f"cannot make a pseudo-terminal: {error}", device=device.name, address=str(link), hint="Use TCP."
            ) from error
        self._arrive(lambda: self._attach(channel, self._served(device)))
        return f"serial://{link}"

    def _require_open(self) -> None:
        if self._closed:
            raise LumionError("the emulator server is closed", hint="Make a new one.")

    def _arrive(self, action: Callable[[], None]) -> None:
        """Let the loop do something, from whatever thread."""
        self._arrivals.append(action)
        self.wake()

    def wake(self) -> None:
        """Let the loop look at every device now: something was done to one from outside; from whatever thread."""
        with contextlib.suppress(OSError):  # full: it is being woken already
            self._bell.send(b"!")

    def _served(self, device: EmulatedDevice) -> _Served:
        return self._devices.setdefault(id(device), _Served(device, due_s=-math.inf))

    def _listen(self, listener: socket.socket, front: EmulatedDevice, device: EmulatedDevice, most: int) -> None:
        self._listeners[listener.fileno()] = (listener, _Port(front, self._served(device), most))
        self._selector.register(listener, selectors.EVENT_READ)

    def _attach(self, channel: HostChannel, served: _Served) -> None:
        self._channels[channel.fd] = (channel, served)
        served.channels[channel.fd] = channel
        served.due_s = -math.inf

    # -- the loop

    def run(self, stop: threading.Event | Callable[[], bool]) -> None:
        """Serve until ``stop`` is set (or says so); it is looked at whenever something happens, 20 times a second."""
        stopped = stop.is_set if isinstance(stop, threading.Event) else stop
        while not stopped():
            self._cycle()

    @contextlib.contextmanager
    def in_thread(self) -> Iterator[EmulatorServer]:
        """Serve from a background thread while the block runs. Raises what ended the thread, if anything did."""
        stop, failures = threading.Event(), list[BaseException]()

        def serve() -> None:
            try:
                self.run(stop)
            except BaseException as failure:  # noqa: BLE001 - handed over to the caller below
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
        """Sleep until something is to be done, and do it."""
        while self._arrivals:
            self._arrivals.popleft()()
        now = self._clock.now()
        if now >= self._glance_s:
            self._glance(now)
        next_s = min((served.due_s for served in self._devices.values()), default=math.inf)
        ready: dict[_Served, set[HostChannel]] = {}
        # Never longer than to the next glance: scripted faults tell nobody.
        for key, mask in self._selector.select(max(min(next_s, self._glance_s) - now, 0.0)):
            if key.fd in self._channels:
                channel, served = self._channels[key.fd]
                speaking = ready.setdefault(served, set())
                if mask & selectors.EVENT_READ:
                    speaking.add(channel)
            elif key.fd in self._listeners:
                self._accept(*self._listeners[key.fd])
            else:
                self._alarm.recv(4096)
                self._glance(now)
        now = self._clock.now()
        for served in self._devices.values():
            if served in ready or served.due_s <= now:
                self._attend(served, ready.get(served, set()))

    def _glance(self, now_s: float) -> None:
        """Ask every device when it is due, in case something changed that the loop was not told of."""
        self._glance_s = now_s + GLANCE_S
        for served in self._devices.values():
            served.due_s = min(served.due_s, self._due_s(served, now_s))
        for fd in tuple(self._resting):
            self._selector.register(self._listeners[fd][0], selectors.EVENT_READ)
        self._resting.clear()

    def _attend(self, served: _Served, speaking: set[HostChannel]) -> None:
        """Let a device answer what its hosts have sent, and do what is due."""
        spoken = self._hear(served, speaking) if speaking else False
        now = self._clock.now()
        try:
            due_s = served.device.next_due()
            if due_s is not None and due_s <= now:
                served.device.advance()
        except Exception:  # noqa: BLE001 - one device's fault must not end the others' service
            _LOG.exception("%s failed to advance", served.device.name)
        for channel in tuple(served.channels.values()):
            spoken |= channel.pump(now)
        # Taking an answer may be what another of its hosts waited for.
        again = spoken and len(served.channels) > 1
        served.due_s = now if again else max(self._due_s(served, now), now + SHORTEST_WAIT_S)
        for channel in tuple(served.channels.values()):
            self._settle(channel, served)

    def _hear(self, served: _Served, speaking: set[HostChannel]) -> bool:
        """Take what the hosts of a device have sent, for about a slice of time; return whether there were answers."""
        began_s = self._work_s()
        spoken = False
        for channel in [each for each in served.channels.values() if each in speaking]:
            now = self._clock.now()
            channel.readable(now, served.chunk)
            spoken |= channel.pump(now)  # what is answered at once goes out before anything else is done
            served.channels[channel.fd] = served.channels.pop(channel.fd)  # behind the others: all have their turn
            if self._work_s() - began_s > SLICE_S:
                break
        took_s = self._work_s() - began_s
        if took_s > SLICE_S:
            served.chunk = max(served.chunk // 2, _LEAST_CHUNK)
        elif took_s < SLICE_S / 4:
            served.chunk = min(served.chunk * 2, _MOST_CHUNK)
        return spoken

    def _due_s(self, served: _Served, now_s: float) -> float:
        """Return when a device has something to do or to say."""
        due_s = None
        try:
            due_s = served.device.next_due()
        except Exception:  # noqa: BLE001 - one device's fault must not end the others' service
            _LOG.exception("%s failed to say when it is due", served.device.name)
        times = [channel.next_event(now_s) for channel in served.channels.values()]
        return min((at_s for at_s in (due_s, *times) if at_s is not None), default=math.inf)

    def _settle(self, channel: HostChannel, served: _Served) -> None:
        """Renew what is waited for at one host; let it go when it is gone."""
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

    # -- hosts that come

    def _accept(self, listener: socket.socket, port: _Port) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connection, _address = listener.accept()
            except OSError as failure:
                if failure.errno in _OUT_OF_DESCRIPTORS:
                    self._rest(listener, failure)
                return
            self._starved = False
            self._welcome(connection, port)

    def _welcome(self, connection: socket.socket, port: _Port) -> None:
        """Begin to serve a host, or hang up: it may be gone already, or there are too many."""
        if len(port.hosts) >= port.most:
            connection.close()
            if not port.full:
                port.full = True
                _LOG.warning("%s has %d connections; further ones are refused", port.front.name, port.most)
            return
        try:
            wire = SocketWire(connection)
        except OSError:
            connection.close()
            return
        port.hosts.add(wire.fileno())
        self._attach(HostChannel(wire, port.front, serial_line=False), port.served)

    def _rest(self, listener: socket.socket, failure: OSError) -> None:
        """Wait with further hosts until there may be descriptors; those in service are served on."""
        self._selector.unregister(listener)
        self._resting.add(listener.fileno())
        if not self._starved:
            self._starved = True
            _LOG.warning("no further hosts for now: %s", failure.strerror)

    def close(self) -> None:
        """Close every connection, listener and pseudo-terminal and remove the symlinks; idempotent.

        The loop has to be over (:meth:`in_thread` has ended, or :meth:`run` has returned).
        """
        self._closed = True
        while self._arrivals:
            self._arrivals.popleft()()
        if self._bell.fileno() >= 0:
            self._alarm.close()
            self._bell.close()
        for channel, _ in self._channels.values():
            channel.close()
        for listener, _ in self._listeners.values():
            listener.close()
        self._channels.clear()
        self._listeners.clear()
        self._devices.clear()
        self._selector.close()
