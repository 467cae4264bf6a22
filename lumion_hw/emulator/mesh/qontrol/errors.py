"""Error lines of the modules: codes, their form, and how bursts are cut short (error table of the Qontrol API)."""

from __future__ import annotations

from collections import deque

UNKNOWN = 0
OVER_VOLTAGE = 1
OVER_CURRENT = 2
BAD_COMMAND = 10
BAD_PARAMETER = 11
BAD_CHANNEL = 12
FORBIDDEN = 13
BUFFER_OVERFLOW = 14
SERIAL = 15
SUPPRESSED = 30
POWERED_UP = 90

NOT_READABLE_CHANNEL = 1
"""``E00:01`` answers ``VERR?``, ``IERR?`` and ``ROCOM?``, whatever the channel."""


def error_line(code: int, channel: int = 0) -> str:
    """Return an error line without its LF."""
    return f"E{code:02d}:{channel:02d}"


class Refused(Exception):  # noqa: N818 - an answer on its way out; it never leaves the emulated module
    """A request is answered by an error instead of ``OK`` or values.

    Args:
        code: Error code.
        channel: Channel of the error line.
    """

    def __init__(self, code: int, channel: int = 0) -> None:
        super().__init__(error_line(code, channel))
        self.code = code
        self.channel = channel


class ErrorLimiter:
    """Lets a number of error lines through per window, says once that more were suppressed, then keeps silent.

    Args:
        most: Lines per window.
        window_s: The window.
    """

    def __init__(self, most: int, window_s: float) -> None:
        self._passed: deque[float] = deque(maxlen=most)
        self._most = most
        self._window_s = window_s
        self._said = False

    def admit(self, line: str, at_s: float) -> str | None:
        """Return what goes on the wire for an error at a time: its line, ``E30:00``, or nothing."""
        while self._passed and at_s - self._passed[0] >= self._window_s:
            self._passed.popleft()
        if len(self._passed) < self._most:
            self._passed.append(at_s)
            self._said = False
            return line
        if self._said:
            return None
        self._said = True
        return error_line(SUPPRESSED)
