"""The serial link: a UART, a USB bridge or a pty, through pyserial and past its traps.

Never ``flush()`` (blocks on some systems), never ``readline`` (one system call per byte), time-outs set once at open.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lumion_hw.clock import Clock, Deadline
from lumion_hw.errors import ConnectError, InUseError, LinkLost
from lumion_hw.files import AnyPath
from lumion_hw.links.draining import drain_by_reading
from lumion_hw.links.owner import OwnerProcess

if TYPE_CHECKING:
    import serial

_log = logging.getLogger(__name__)

_SLICE_S = 0.02  # the port's own read time-out, set once: assigning it later reconfigures the port
_WRITE_TIMEOUT_S = 0.5  # at least four times the wire time of one piece
_LARGEST_PIECE = 1024
# TypeError and ValueError: another thread closed the port during the call, and its handle became None or -1.
_PORT_ERRORS: tuple[type[Exception], ...] = (OSError, TypeError, ValueError)
try:
    import termios
except ImportError:  # Windows
    pass
else:
    _PORT_ERRORS += (termios.error,)  # not an OSError


class SerialLink:
    """A serial port, opened exclusively, 8N1, without flow control.

    Args:
        path: Device path, such as ``/dev/ttyUSB0`` or ``COM3``; prefer a stable ``/dev/serial/by-id`` path.
        baud: Baud rate.
        clock: A wall clock; deadlines are its times.
    """

    def __init__(self, path: AnyPath, baud: int, clock: Clock) -> None:
        self._path = str(path)
        self._baud = baud
        self._clock = clock
        self._owner = OwnerProcess()
        self._port: serial.Serial | None = None
        # About 0.1 s of wire time, so that a stalled writer is noticed within the write time-out.
        self._piece_bytes = min(max(baud // 100, 64), _LARGEST_PIECE)

    @property
    def name(self) -> str:
        """The address as ``serial://path?baud=...``."""
        return f"serial://{self._path}?baud={self._baud}"

    def open(self, deadline: Deadline) -> None:
        """Open the port. Raises ``ConnectError`` when it is missing, ``InUseError`` when it is in use."""
        del deadline  # opening a port does not wait
        self._owner.claim(self.name)
        if self._port is not None:
            return
        import serial

        try:
            # exclusive is an advisory lock: it keeps out whoever asks for it
            # as well, which the sessions' own lock does not across processes.
            port = serial.Serial(
                self._path, self._baud, timeout=_SLICE_S, write_timeout=_WRITE_TIMEOUT_S, exclusive=True
            )
        except _PORT_ERRORS as error:  # SerialException is an OSError
            busy = "exclusively lock" in str(error)
            if busy:
                raise InUseError("the port is in use", address=self.name, hint="Close the other program.") from error
            hint = "Check the cable, the path and the permissions."
            raise ConnectError(f"cannot open the port: {error}", address=self.name, hint=hint) from error
        self._ask_for_low_latency(port)
        self._port = port

    def _ask_for_low_latency(self, port: serial.Serial) -> None:
        """Ask the driver not to hold short replies back for 16 ms; ptys and many drivers cannot."""
        try:
            port.set_low_latency_mode(True)
        except (OSError, ValueError, AttributeError, NotImplementedError) as error:
            _log.debug("%s: no low-latency mode: %s", self.name, error)

    def write(self, data: bytes, deadline: Deadline) -> None:
        """Write all of ``data`` in pieces; raises ``LinkLost`` when that fails or is not done in time.

        A write that timed out may have reached the wire in part, so the link is closed and nothing is sent again.
        """
        port = self._opened()
        for start in range(0, len(data), self._piece_bytes):
            if start and self._clock.now() >= deadline:
                raise self._lost(f"only {start} of {len(data)} bytes could be written in time")
            try:
                port.write(data[start : start + self._piece_bytes])
            except _PORT_ERRORS as error:
                raise self._lost(f"writing failed: {error}") from error

    def read(self, deadline: Deadline) -> bytes:
        """Return what has arrived, at least one byte, or ``b""`` at the deadline; ``LinkLost`` when unplugged."""
        port = self._opened()
        while True:
            try:
                # Whatever is there, in one call: read(n) would wait for all n bytes or the time-out.
                waiting = port.in_waiting
                if not waiting and self._clock.now() >= deadline:
                    return b""
                data: bytes = port.read(waiting or 1)
            except _PORT_ERRORS as error:
                raise self._lost(f"reading failed: {error}") from error
            if data:
                return data

    def set_rts(self, on: bool) -> None:
        """Assert or release RTS; a pty has none. Raises ``LinkLost`` when the link is closed."""
        port = self._opened()
        try:
            port.rts = on
        except _PORT_ERRORS as error:
            _log.debug("%s: no RTS: %s", self.name, error)

    def drain(self, quiet_s: float, deadline: Deadline) -> int:
        """Throw away input until nothing arrived for ``quiet_s``; return the number of bytes thrown away."""
        return drain_by_reading(self, self._clock, quiet_s, deadline)

    def close(self) -> None:
        """Close the port; idempotent, never raises. In a child the parent's stays open."""
        port, self._port = self._port, None
        if port is not None:
            try:
                port.close()
            except _PORT_ERRORS as error:
                _log.debug("%s: closing a dead port: %s", self.name, error)

    def _opened(self) -> serial.Serial:
        self._owner.check(self.name)
        if self._port is None:
            raise LinkLost("the link is closed", address=self.name, hint="Open it first.")
        return self._port

    def _lost(self, what: str) -> LinkLost:
        self.close()
        return LinkLost(what, address=self.name, hint="The device was unplugged, switched off or does not listen.")
