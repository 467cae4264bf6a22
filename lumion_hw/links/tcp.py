"""TCP link."""

from __future__ import annotations

import math
import select
import socket
from collections.abc import Callable
from typing import TypeVar

from lumion_hw.clock import Clock, Deadline
from lumion_hw.errors import ConnectError, LinkLost
from lumion_hw.links.draining import DrainedByReading
from lumion_hw.links.owner import OwnerProcess

ReceivedT = TypeVar("ReceivedT", bytes, int)

_SLICE_S = 0.05  # longest single wait in the kernel, after which a close from another thread is noticed
_RECEIVE_BYTES = 65536
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}  # detects a dead peer within a minute


class TcpLink(DrainedByReading):
    """A TCP connection to a device.

    Args:
        host: Host name or address.
        port: TCP port.
        clock: Wall clock (not a virtual clock) for the deadlines.
    """

    def __init__(self, host: str, port: int, clock: Clock) -> None:
        self._host = host
        self._port = port
        self._clock = clock
        self._owner = OwnerProcess()
        self._socket: socket.socket | None = None
        self._readable: Callable[[float], bool] = _always_ready
        self._writable: Callable[[float], bool] = _always_ready

    @property
    def name(self) -> str:
        """Address, as ``tcp://host:port``."""
        return f"tcp://[{self._host}]:{self._port}" if ":" in self._host else f"tcp://{self._host}:{self._port}"

    def open(self, deadline: Deadline) -> None:
        """Connect to the device. Raises ``ConnectError`` if this fails or takes until ``deadline``."""
        self._owner.claim(self.name)
        if self._socket is not None:
            return
        timeout_s = max(deadline - self._clock.now(), 1e-3)
        try:
            connection = socket.create_connection((self._host, self._port), timeout=timeout_s)
        except TimeoutError as error:
            raise ConnectError(
                f"no connection within {timeout_s:.3g} s",
                address=self.name,
                hint="Check the address, the power and the network.",
            ) from error
        except OSError as error:
            raise ConnectError(
                f"cannot connect: {error}", address=self.name, hint="Check that the device listens on this port."
            ) from error
        try:
            _configure(connection)
        except OSError as error:
            connection.close()
            raise ConnectError(f"the connection ended during set-up: {error}", address=self.name) from error
        self._readable = _waiter(connection, for_writing=False)
        self._writable = _waiter(connection, for_writing=True)
        self._socket = connection

    def write(self, data: bytes, deadline: Deadline) -> None:
        """Write all of ``data``. Raises ``LinkLost`` if this fails or takes until ``deadline``."""
        connection = self._connected()
        view = memoryview(data)
        while view:
            try:
                # Bytes that were sent are cut off immediately: after an error they must not be sent again.
                view = view[connection.send(view) :]
            except BlockingIOError as error:
                if not self._ready(deadline, for_writing=True) and self._clock.now() >= deadline:
                    raise self._close_lost_link(
                        f"{len(view)} of {len(data)} bytes could not be written in time"
                    ) from error
            except OSError as error:
                raise self._close_lost_link(f"writing failed: {error}") from error

    def read(self, deadline: Deadline) -> bytes:
        """Return at least one byte, or ``b""`` at the deadline. Raises ``LinkLost`` if the connection is lost."""
        return self._receive(deadline, lambda connection: connection.recv(_RECEIVE_BYTES)) or b""

    def read_into(self, view: memoryview, deadline: Deadline) -> int:
        """Receive at least one byte into ``view``; return the number, or 0 at the deadline. Raises ``LinkLost``."""
        return self._receive(deadline, lambda connection: connection.recv_into(view)) or 0

    def _receive(self, deadline: Deadline, receive: Callable[[socket.socket], ReceivedT]) -> ReceivedT | None:
        connection = self._connected()
        while True:
            try:
                # Waiting first is cheaper than a refused read, and most replies have not arrived yet.
                if self._ready(deadline, for_writing=False):
                    received = receive(connection)
                    break
                if self._clock.now() >= deadline:
                    return None
            except BlockingIOError:  # the kernel may report a socket as ready when it is not
                continue
            except OSError as error:
                raise self._close_lost_link(f"reading failed: {error}") from error
        if not received:
            raise self._close_lost_link("closed by the other side")
        return received

    def close(self) -> None:
        """Close the connection; idempotent, never raises. A forked child process leaves it open."""
        connection, self._socket = self._socket, None
        if connection is not None:
            connection.close()

    def _connected(self) -> socket.socket:
        self._owner.check(self.name)
        if self._socket is None:
            raise LinkLost(
                "the link is closed",
                address=self.name,
                hint="Open the device: close(), then open().",
            )
        return self._socket

    def _ready(self, deadline: Deadline, *, for_writing: bool) -> bool:
        timeout_s = min(max(deadline - self._clock.now(), 0.0), _SLICE_S)
        return (self._writable if for_writing else self._readable)(timeout_s)

    def _close_lost_link(self, label: str) -> LinkLost:
        self.close()
        return LinkLost(label, address=self.name, hint="The device is off, unplugged, or serves another client.")


def _always_ready(timeout_s: float) -> bool:
    del timeout_s
    return True  # the closed socket then raises the error


def _waiter(connection: socket.socket, *, for_writing: bool) -> Callable[[float], bool]:
    number = connection.fileno()
    if hasattr(select, "poll"):  # unlike select, poll accepts file numbers above 1023; missing on Windows
        poller = select.poll()
        poller.register(number, select.POLLOUT if for_writing else select.POLLIN)
        return lambda timeout_s: bool(poller.poll(math.ceil(1e3 * timeout_s)))
    numbers = [number]
    reading, writing = ([], numbers) if for_writing else (numbers, [])
    return lambda timeout_s: any(select.select(reading, writing, numbers, timeout_s))


def _configure(connection: socket.socket) -> None:
    connection.setblocking(False)
    # Nagle's delay and delayed acknowledgements stall a short request and its short reply for up to 40 ms each.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        number = getattr(socket, option, None)
        if number is not None:  # not every operating system has these options
            connection.setsockopt(socket.IPPROTO_TCP, number, value)
