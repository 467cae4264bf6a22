"""Error lines of Qontrol modules (error table of the Qontrol API)."""

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
"""Channel number in ``E00:01``, the reply to ``VERR?``, ``IERR?`` and ``ROCOM?``."""


def error_line(code: int, channel: int = 0) -> str:
    """Return an error line such as ``E01:00``, without LF."""
    return f"E{code:02d}:{channel:02d}"


class Refused(Exception):  # noqa: N818 - a reply in progress; it never leaves the emulated module
    """Error reply to a request, with error code and channel."""

    def __init__(self, code: int, channel: int = 0) -> None:
        super().__init__(error_line(code, channel))
        self.code = code
        self.channel = channel


class ErrorLimiter:
    """Limits the number of error lines in a time window. ``E30:00`` replaces the first line beyond the limit."""

    def __init__(self, max_lines: int, window_s: float) -> None:
        self._sent_s: deque[float] = deque(maxlen=max_lines)
        self._max_lines = max_lines
        self._window_s = window_s
        self._suppression_reported = False

    def admit(self, line: str, at_s: float) -> str | None:
        """Return the line to send for an error: the error's line, ``E30:00``, or ``None`` for no line."""
        while self._sent_s and at_s - self._sent_s[0] >= self._window_s:
            self._sent_s.popleft()
        if len(self._sent_s) < self._max_lines:
            self._sent_s.append(at_s)
            self._suppression_reported = False
            return line
        if self._suppression_reported:
            return None
        self._suppression_reported = True
        return error_line(SUPPRESSED)
