"""Serial link: a UART, USB bridge or pty, through pyserial."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lumion_hw.clock import Clock, Deadline
from lumion_hw.errors import ConnectError, InUseError, LinkLost
from lumion_hw.files import AnyPath
from lumion_hw.links.draining import DrainedByReading
from lumion_hw.links.owner import OwnerProcess

if TYPE_CHECKING:
    import serial

_log = logging.getLogger(__name__)

_SLICE_S = 0.02  # read time-out of the port, set once: assigning it later reconfigures the port
_WRITE_TIMEOUT_S = 0.5  # at least four times the time of one chunk on the wire
_MAX_CHUNK_BYTES = 1024
# TypeError and ValueError: another thread closed the port during the call, and its handle became None or -1.
_PORT_ERRORS: tuple[type[Exception], ...] = (OSError, TypeError, ValueError)
try:
    import termios
except ImportError:  # Windows
    pass
else:
    _PORT_ERRORS += (termios.error,)  # not an OSError


class SerialLink(DrainedByReading):
    """A serial port, opened exclusively, 8N1, without flow control.

    Args:
        path: Device path, such as ``/dev/ttyUSB0`` or ``COM3``; a stable ``/dev/serial/by-id`` path is better.
        baud: Baud rate.
        clock: Wall clock (not a virtual clock) for the deadlines.
    """

    def __init__(self, path: AnyPath, baud: int, clock: Clock) -> None:
        self._path = str(path)
        self._baud = baud
        self._clock = clock
        self._owner = OwnerProcess()
        self._port: serial.Serial | None = None
        # About 0.1 s on the wire, so that a stalled write is noticed within the write time-out.
        self._chunk_bytes = min(max(baud // 100, 64), _MAX_CHUNK_BYTES)

    @property
    def name(self) -> str:
        """Address, as ``serial://path?baud=...``."""
        return f"serial://{self._path}?baud={self._baud}"

    def open(self, deadline: Deadline) -> None:
        """Open the port.

        Raises ``ConnectError`` if it does not exist, and ``InUseError`` if another program uses it.
        """
        del deadline  # opening a port does not wait
        self._owner.claim(self.name)
        if self._port is not None:
            return
        import serial

        try:
            # "exclusive" is an advisory lock. It keeps out other processes that request it; the lock of the session
            # works only within this process.
            port = serial.Serial(
                self._path, self._baud, timeout=_SLICE_S, write_timeout=_WRITE_TIMEOUT_S, exclusive=True
            )
        except _PORT_ERRORS as error:  # SerialException is an OSError
            if "exclusively lock" in str(error):
                raise InUseError("the port is in use", address=self.name, hint="Close the other program.") from error
            hint = "Check the cable, the path and the permissions."
            raise ConnectError(f"cannot open the port: {error}", address=self.name, hint=hint) from error
        self._request_low_latency(port)
        self._port = port

    def _request_low_latency(self, port: serial.Serial) -> None:
        """Ask the operating system not to delay short replies."""
        try:
            port.set_low_latency_mode(True)
        except (OSError, ValueError, AttributeError, NotImplementedError) as error:
            _log.debug("%s: the port has no low-latency mode: %s", self.name, error)

    def write(self, data: bytes, deadline: Deadline) -> None:
        """Write all of ``data``. Raises ``LinkLost`` and closes the port if this fails or takes too long."""
        port = self._opened()
        for start in range(0, len(data), self._chunk_bytes):
            if start and self._clock.now() >= deadline:
                raise self._close_lost_link(f"only {start} of {len(data)} bytes could be written in time")
            try:
                port.write(data[start : start + self._chunk_bytes])
            except _PORT_ERRORS as error:
                raise self._close_lost_link(f"writing failed: {error}") from error

    def read(self, deadline: Deadline) -> bytes:
        """Return received bytes, at least one, or ``b""`` at the deadline. Raises ``LinkLost`` if the port is lost."""
        port = self._opened()
        while True:
            try:
                # Read all waiting bytes in one call: read(n) would wait for n bytes or the time-out.
                waiting = port.in_waiting
                if not waiting and self._clock.now() >= deadline:
                    return b""
                data: bytes = port.read(waiting or 1)
            except _PORT_ERRORS as error:
                raise self._close_lost_link(f"reading failed: {error}") from error
            if data:
                return data

    def set_rts(self, on: bool) -> None:
        """Assert or release RTS. A port without RTS ignores it. Raises ``LinkLost`` if the link is closed."""
        port = self._opened()
        try:
            port.rts = on
        except _PORT_ERRORS as error:
            _log.debug("%s: the RTS line could not be set: %s", self.name, error)

    def close(self) -> None:
        """Close the port; idempotent, never raises. A forked child process leaves it open."""
        port, self._port = self._port, None
        if port is not None:
            try:
                port.close()
            except _PORT_ERRORS as error:
                _log.debug("%s: the lost port could not be closed cleanly: %s", self.name, error)

    def _opened(self) -> serial.Serial:
        self._owner.check(self.name)
        if self._port is None:
            raise LinkLost(
                "the link is closed",
                address=self.name,
                hint="Open the device: close(), then open().",
            )
        return self._port

    def _close_lost_link(self, label: str) -> LinkLost:
        self.close()
        return LinkLost(label, address=self.name, hint="The device was unplugged or switched off, or does not receive.")
