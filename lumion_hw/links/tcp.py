"""The TCP link: a plain socket without Nagle's delay, with keepalive, by absolute deadlines on a wall clock."""

from __future__ import annotations

import math
import select
import socket

from lumion_hw.clock import Clock
from lumion_hw.errors import ConnectError, LinkLost
from lumion_hw.links.draining import drain_by_reading

_SLICE_S = 0.05  # longest single wait in the kernel: a close from another thread is noticed within it
_SHORT_BYTES = 65536
_LONG_BYTES = 1 << 20
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}  # a dead peer is found within a minute


class TcpLink:
    """A TCP connection.

    Args:
        host: Host name or address.
        port: TCP port.
        clock: A wall clock; deadlines are its times.
    """

    def __init__(self, host: str, port: int, clock: Clock) -> None:
        self._host = host
        self._port = port
        self._clock = clock
        self._socket: socket.socket | None = None
        self._receive_bytes = _SHORT_BYTES

    @property
    def name(self) -> str:
        """The address as ``tcp://host:port``."""
        return f"tcp://[{self._host}]:{self._port}" if ":" in self._host else f"tcp://{self._host}:{self._port}"

    def open(self, deadline: float) -> None:
        """Connect. Raises ``ConnectError`` when refused, unreachable, unknown or not answered by ``deadline``."""
        if self._socket is not None:
            return
        patience_s = max(deadline - self._clock.now(), 1e-3)
        try:
            connection = socket.create_connection((self._host, self._port), timeout=patience_s)
        except TimeoutError as error:
            raise ConnectError(
                f"no answer to a connection request within {patience_s:.3g} s",
                address=self.name,
                hint="Check the address, the power and the network in between.",
            ) from error
        except OSError as error:
            raise ConnectError(
                f"cannot connect: {error}", address=self.name, hint="Check that the device listens on this port."
            ) from error
        try:
            _configure(connection)
        except OSError as error:
            connection.close()
            raise ConnectError(f"the connection ended while it was set up: {error}", address=self.name) from error
        self._socket = connection

    def write(self, data: bytes, deadline: float) -> None:
        """Write all of ``data``; raises ``LinkLost`` when that fails or is not done by ``deadline``."""
        connection = self._connected()
        view = memoryview(data)
        while view:
            try:
                view = view[connection.send(view) :]
            except BlockingIOError as error:
                if self._clock.now() >= deadline:
                    raise self._lost(f"{len(view)} of {len(data)} bytes could not be written in time") from error
                self._wait(connection, deadline, for_writing=True)
            except OSError as error:
                raise self._lost(f"writing failed: {error}") from error

    def read(self, deadline: float) -> bytes:
        """Return at least one byte, or ``b""`` at the deadline; raises ``LinkLost`` when the peer is gone."""
        connection = self._connected()
        while True:
            try:
                data = connection.recv(self._receive_bytes)
            except BlockingIOError:
                if self._clock.now() >= deadline:
                    return b""
                self._wait(connection, deadline, for_writing=False)
                continue
            except OSError as error:
                raise self._lost(f"reading failed: {error}") from error
            if not data:
                raise self._lost("closed by the other side")
            # A long block comes fastest in long pieces; short replies need no long buffers.
            self._receive_bytes = _LONG_BYTES if len(data) == self._receive_bytes else _SHORT_BYTES
            return data

    def drain(self, quiet_s: float, deadline: float) -> int:
        """Throw away input until nothing arrived for ``quiet_s``; return the number of bytes thrown away."""
        return drain_by_reading(self, self._clock, quiet_s, deadline)

    def close(self) -> None:
        """Close the connection; idempotent, never raises."""
        connection, self._socket = self._socket, None
        if connection is not None:
            connection.close()

    def _connected(self) -> socket.socket:
        if self._socket is None:
            raise LinkLost("the link is closed", address=self.name, hint="Open it first.")
        return self._socket

    def _wait(self, connection: socket.socket, deadline: float, *, for_writing: bool) -> None:
        """Wait until the socket is ready, a slice is over or the deadline is there."""
        patience_s = min(max(deadline - self._clock.now(), 0.0), _SLICE_S)
        try:
            _wait_ready(connection.fileno(), patience_s, for_writing)
        except (OSError, ValueError) as error:  # closed by another thread meanwhile
            raise self._lost(f"waiting failed: {error}") from error

    def _lost(self, what: str) -> LinkLost:
        self.close()
        return LinkLost(what, address=self.name, hint="The device is off, unplugged, or serves another client.")


def _wait_with_poll(number: int, patience_s: float, for_writing: bool) -> None:
    waiter = select.poll()
    waiter.register(number, select.POLLOUT if for_writing else select.POLLIN)
    waiter.poll(math.ceil(1e3 * patience_s))


def _wait_with_select(number: int, patience_s: float, for_writing: bool) -> None:
    numbers = [number]
    select.select([] if for_writing else numbers, numbers if for_writing else [], numbers, patience_s)


# poll takes file numbers above 1023, which select does not; Windows has select only.
_wait_ready = _wait_with_poll if hasattr(select, "poll") else _wait_with_select


def _configure(connection: socket.socket) -> None:
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        number = getattr(socket, option, None)
        if number is not None:  # not every operating system names them
            connection.setsockopt(socket.IPPROTO_TCP, number, value)
