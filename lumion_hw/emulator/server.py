"""Emulated devices on real wires: TCP on loopback, and pseudo-terminals behind stable symlinks.

One thread, one selector for all devices and hosts. A host that floods, stalls or vanishes is its own problem: output is
bounded, nothing it sends ends the loop, and the other hosts are served on.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

from lumion_hw.clock import Clock
from lumion_hw.emulator.device import EmulatedDevice
from lumion_hw.emulator.hislip import HislipFront
from lumion_hw.emulator.server_channel import Channel, PtyWire, SocketWire
from lumion_hw.errors import ConnectError, LumionError

_LOG = logging.getLogger(__name__)

TICK_S = 0.004
"""Longest time between two looks at the devices."""
SHORTEST_WAIT_S = 0.0002
"""A peer whose next event is due but brings nothing must not make the loop spin."""


class EmulatorServer:
    """Serves any number of emulated devices, each on any number of TCP ports, HiSLIP ports and serial lines.

    Args:
        clock: The clock of the devices; it has to move by itself, as :class:`~lumion_hw.clock.SystemClock` does.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._devices: dict[int, EmulatedDevice] = {}
        self._listeners: dict[int, tuple[socket.socket, EmulatedDevice]] = {}
        self._channels: dict[int, tuple[Channel, int]] = {}
        self._arrivals: deque[Callable[[], None]] = deque()
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
            ConnectError: The port is taken.
        """
        self._require_open()
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            listener.listen(64)
            listener.setblocking(False)
        except OSError as error:
            listener.close()
            raise ConnectError(
                f"cannot listen on 127.0.0.1:{port}: {error.strerror}",
                device=device.name,
                hint="Port 0 takes any free port.",
            ) from error
        self._arrivals.append(lambda: self._listen(listener, device))
        return f"tcp://127.0.0.1:{listener.getsockname()[1]}"

    def add_hislip(self, device: EmulatedDevice, port: int = 0) -> str:
        """Serve ``device`` by HiSLIP on a loopback port; may be called while the server runs.

        Args:
            device: A SCPI instrument.
            port: Port number; 0 takes any free one (the registered one is 4880).

        Returns:
            Its address, ``visa://TCPIP::127.0.0.1::hislip0,PORT::INSTR``.

        Raises:
            ConnectError: The port is taken.
            ConfigError: The device exchanges no messages.
        """
        address = self.add_tcp(HislipFront(device, self._clock), port)
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
            channel = Channel(PtyWire(link), device, serial_line=True)
        except (OSError, ImportError) as error:
            raise ConnectError(
                f"cannot make a pseudo-terminal: {error}", device=device.name, address=str(link), hint="Use TCP."
            ) from error
        self._arrivals.append(lambda: self._attach(channel, device))
        return f"serial://{link}"

    def _require_open(self) -> None:
        if self._closed:
            raise LumionError("the emulator server is closed", hint="Make a new one.")

    def _listen(self, listener: socket.socket, device: EmulatedDevice) -> None:
        self._devices[id(device)] = device
        self._listeners[listener.fileno()] = (listener, device)
        self._selector.register(listener, selectors.EVENT_READ)

    def _attach(self, channel: Channel, device: EmulatedDevice) -> None:
        self._devices[id(device)] = device
        self._channels[channel.fd] = (channel, 0)

    # -- the loop

    def run(self, stop: threading.Event | Callable[[], bool]) -> None:
        """Serve until ``stop`` is set (or says so); it is looked at every few milliseconds."""
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
            thread.join()
        if failures:
            raise failures[0]

    def _cycle(self) -> None:
        while self._arrivals:
            self._arrivals.popleft()()
        for device in self._devices.values():
            try:
                device.advance()
            except Exception:  # noqa: BLE001 - one device's fault must not end the others' service
                _LOG.exception("%s failed to advance", device.name)
        events = [event for event in map(self._serve, tuple(self._channels)) if event is not None]
        wait_s = min(events, default=float("inf")) - self._clock.now()
        for key, mask in self._selector.select(min(max(wait_s, SHORTEST_WAIT_S), TICK_S)):
            if key.fd in self._listeners:
                self._accept(*self._listeners[key.fd])
            elif mask & selectors.EVENT_READ:
                self._channels[key.fd][0].readable(self._clock.now())

    def _serve(self, fd: int) -> float | None:
        """Move one host's replies and renew what is waited for; let it go when it is gone."""
        channel, registered = self._channels[fd]
        event = channel.pump(self._clock.now())
        if channel.broken:
            self._watch(fd, registered, 0)
            del self._channels[fd]
            channel.close()
            return None
        self._watch(fd, registered, channel.interest)
        self._channels[fd] = (channel, channel.interest)
        return event

    def _watch(self, fd: int, before: int, after: int) -> None:
        if before and not after:
            self._selector.unregister(fd)
        elif after and not before:
            self._selector.register(fd, after)
        elif after != before:
            self._selector.modify(fd, after)

    def _accept(self, listener: socket.socket, device: EmulatedDevice) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        try:
            wire = SocketWire(connection)
        except OSError:  # the host is gone already
            connection.close()
            return
        channel = Channel(wire, device, serial_line=False)
        self._channels[channel.fd] = (channel, 0)

    def close(self) -> None:
        """Close every connection, listener and pseudo-terminal and remove the symlinks; idempotent.

        The loop has to be over (:meth:`in_thread` has ended, or :meth:`run` has returned).
        """
        self._closed = True
        while self._arrivals:
            self._arrivals.popleft()()
        for channel, _ in self._channels.values():
            channel.close()
        for listener, _ in self._listeners.values():
            listener.close()
        self._channels.clear()
        self._listeners.clear()
        self._devices.clear()
        self._selector.close()
