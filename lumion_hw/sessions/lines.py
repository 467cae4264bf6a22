"""Sessions for devices with lines of text: replies with an end word, or replies of one line without it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from lumion_hw.clock import Clock, Deadline
from lumion_hw.errors import ConfigError, DeviceError, FrameError, LinkTimeout
from lumion_hw.links.base import Link
from lumion_hw.sessions.conversation import Conversation

# Keeps a device that never sends its end word from blocking the session.
_MAX_LINES = 1000


class LineSession(Conversation):
    """Session with a device that replies in lines of text. Thread-safe; share one session per address.

    Args:
        link: Link to the device.
        clock: Clock of the link.
        done: End word after a command that succeeded.
        failed: Regular expression for the end of the reply to a refused command.
        marker: Harmless query, sent to check that host and device are in sync.
        is_marker_reply: Returns whether these lines are the reply to ``marker``.
        timeout_s: Default time limit for a reply.
        quiet_s: Silence after which no late reply is expected.
    """

    def __init__(
        self,
        link: Link,
        clock: Clock,
        *,
        device: str,
        done: str,
        failed: str,
        marker: str,
        is_marker_reply: Callable[[Sequence[str]], bool],
        timeout_s: float = 1.0,
        quiet_s: float = 0.2,
    ) -> None:
        super().__init__(link, clock, device=device, timeout_s=timeout_s, quiet_s=quiet_s)
        self._end_marker = done
        self._failed = re.compile(f"(?:{failed})$")
        self._marker = marker
        self._is_marker_reply = is_marker_reply

    def open(self, timeout_s: float = 5.0) -> tuple[str, ...]:
        """Open the link and return the reply to the marker query. Raises ``ConnectError`` or ``LinkTimeout``."""
        with self.transaction():
            self.open_link(timeout_s)
            return self.first_reply(lambda: self.command(self._marker))

    def command(self, text: str, timeout_s: float | None = None) -> tuple[str, ...]:
        """Send a command and return the lines of its reply, without echo, empty lines and end word.

        Raises the errors of :meth:`exchange`, and ``DeviceError`` if the device refused the command.
        """
        _check_command(text)
        with self.exchange(text, timeout_s) as deadline:
            refusal, lines = self._exchange(text, deadline)
        if refusal is not None:
            raise self.error(
                DeviceError,
                f"{text}: refused with {refusal!r}" + (f" after {' / '.join(lines)}" if lines else ""),
                command=text,
                hint="The device does not accept this command or its value.",
            )
        return lines

    def probe(self, deadline: Deadline) -> bool:
        """Send the marker query and check its reply."""
        try:
            refusal, lines = self._exchange(self._marker, deadline)
        except (LinkTimeout, FrameError):
            return False
        return refusal is None and self._is_marker_reply(lines)

    def _exchange(self, text: str, deadline: Deadline) -> tuple[str | None, tuple[str, ...]]:
        self.send(text.encode("ascii") + b"\r\n", deadline)
        lines: list[str] = []
        while len(lines) < _MAX_LINES:
            line = self._as_text(text, self.receive_line(text, deadline))
            failed = self._failed.search(line)
            reason = line[: failed.start()].strip() if failed else line
            if reason and line != self._end_marker:
                lines.append(reason)
            if failed or line == self._end_marker:
                # Some firmware echoes the command and some does not, so the first
                # line is dropped only if it is the command itself.
                return failed and failed[0], tuple(lines[1:] if lines[:1] == [text] else lines)
        raise self._frame_error(text, f"longer than {_MAX_LINES} lines and has no end word")


class OneLineSession(Conversation):
    """Session with a device that answers a query with one line and a command with nothing. Thread-safe.

    Replies have no end word, so nothing in a reply shows which query it belongs to. After a time-out or a wrong reply
    the session sends ``marker`` until its unmistakable reply arrives.

    Args:
        link: Link to the device.
        clock: Clock of the link.
        marker: Harmless query, sent to check that host and device are in sync.
        marker_reply: Regular expression for the whole reply to ``marker``; no other query may have such a reply.
        line_end: End of a line from the host; LF, CR or both may end a line from the device.
        timeout_s: Default time limit for a reply.
        quiet_s: Silence after which no late reply is expected.
    """

    line_end = re.compile(rb"\r\n|\r|\n")

    def __init__(
        self,
        link: Link,
        clock: Clock,
        *,
        device: str,
        marker: str,
        marker_reply: str,
        line_end: str = "\n",
        timeout_s: float = 1.0,
        quiet_s: float = 0.2,
    ) -> None:
        super().__init__(link, clock, device=device, timeout_s=timeout_s, quiet_s=quiet_s)
        self._marker = marker
        self._marker_reply = re.compile(marker_reply)
        self._sent_end = line_end.encode("ascii")

    def open(self, timeout_s: float = 5.0) -> str:
        """Open the link and return the reply to the marker query. Raises ``ConnectError`` or ``LinkTimeout``."""
        with self.transaction():
            self.open_link(timeout_s)
            return self.first_reply(lambda: self.query(self._marker))

    def query(self, text: str, timeout_s: float | None = None, *, expected: str = ".+") -> str:
        """Send a query and return its reply, without line end.

        Args:
            text: The query.
            timeout_s: Time limit for the reply; by default that of the session.
            expected: Regular expression for the whole reply.

        Raises the errors of :meth:`exchange`, and ``FrameError`` if the reply differs from ``expected``.
        """
        _check_command(text)
        with self.exchange(text, timeout_s) as deadline:
            reply = self._exchange(text, deadline)
            if not re.fullmatch(expected, reply):
                raise self._frame_error(text, repr(reply))
        return reply

    def write(self, text: str) -> None:
        """Send a command that has no reply. Raises the errors of :meth:`exchange`."""
        _check_command(text)
        with self.exchange(text) as deadline:
            self.send(text.encode("ascii") + self._sent_end, deadline)

    def probe(self, deadline: Deadline) -> bool:
        """Send the marker query and check its reply."""
        try:
            return self._marker_reply.fullmatch(self._exchange(self._marker, deadline)) is not None
        except (LinkTimeout, FrameError):
            return False

    def _exchange(self, text: str, deadline: Deadline) -> str:
        self.send(text.encode("ascii") + self._sent_end, deadline)
        while True:
            line = self._as_text(text, self.receive_line(text, deadline))
            if line and line != text:  # empty lines, and the echo of the query
                return line


def _check_command(text: str) -> None:
    if not (text and text.isascii() and text.isprintable()):
        raise ConfigError(f"{text!r} is not a command", hint="Give one line of printable ASCII.")
