"""Session with SCPI instruments: text queries and definite-length blocks."""

from __future__ import annotations

import math
import re

from lumion_hw.clock import Clock, Deadline
from lumion_hw.errors import ConfigError, FrameError, IdentityError, LinkTimeout
from lumion_hw.links.base import Link
from lumion_hw.sessions.conversation import Conversation, format_bytes

IDENTITY_QUERY = "*IDN?"
# Keeps a damaged length digit from requesting gigabytes; a log of a million samples is 4 MB.
BLOCK_LIMIT_BYTES = 1 << 28
_CR_OR_LF = re.compile(rb"\r\n?|\n")
_TERMINATOR_WAIT_S = 0.05  # some instruments end a block with LF, some do not


class ScpiSession(Conversation):
    """Session with one SCPI instrument. Thread-safe; share one session per address.

    Args:
        link: Link to the instrument.
        clock: Clock of the link.
        timeout_s: Default time limit for a reply.
        identity: Required reply to ``*IDN?``; if omitted, the first reply sets it.
        block_limit_bytes: Longest block accepted, in bytes.
        terminator: Bytes that end a message to the instrument. Replies end with LF or CR LF, or with CR if
            ``terminator`` is CR.
        identity_query: Query whose reply identifies the instrument; also shows that host and instrument are in sync.
        gap_s: Minimum time between two messages in seconds, for instruments that lose faster messages.
    """

    def __init__(
        self,
        link: Link,
        clock: Clock,
        *,
        device: str,
        timeout_s: float = 2.0,
        identity: str | None = None,
        block_limit_bytes: int = BLOCK_LIMIT_BYTES,
        terminator: bytes = b"\n",
        identity_query: str = IDENTITY_QUERY,
        gap_s: float = 0.0,
    ) -> None:
        super().__init__(link, clock, device=device, timeout_s=timeout_s)
        self._identity = identity
        self._block_limit_bytes = block_limit_bytes
        self._terminator = terminator
        self._identity_query = identity_query
        self._gap_s = gap_s
        self._sent_s = -math.inf
        self._by_cr = terminator == b"\r"
        if self._by_cr:
            self.line_end = _CR_OR_LF

    @property
    def identity(self) -> str | None:
        """The instrument's reply to ``*IDN?``; ``None`` before the first reply."""
        return self._identity

    def open(self, timeout_s: float = 5.0) -> str:
        """Open the link and return the identity. Raises ``ConnectError`` or ``LinkTimeout``.

        Raises ``IdentityError`` if the instrument has changed since the previous opening.
        """
        with self.transaction():
            self.open_link(timeout_s)
            identity = self.first_reply(lambda: self.query(self._identity_query))
            if self._identity is not None and identity != self._identity:
                self.close()
                raise self.error(
                    IdentityError,
                    f"expected {self._identity!r}, found {identity!r}",
                    hint="Correct the address in the bench file, or connect the expected instrument there.",
                )
            self._identity = identity
            return identity

    def forget_identity(self) -> None:
        """Accept any instrument at the next :meth:`open`."""
        self._identity = None

    def query(self, command: str, timeout_s: float | None = None) -> str:
        """Send a query and return its reply, without the terminator. Raises the errors of :meth:`exchange`.

        Args:
            command: Query to send, with a ``?``.
            timeout_s: Time limit for the reply; by default that of the session.
        """
        message = _encoded(command, is_query=True) + self._terminator
        with self.exchange(command, timeout_s) as deadline:
            self.send(message, deadline)
            line = self._reply_line(command, deadline)
            reply = self._as_text(command, line)
            # A late reply to a probe of an earlier resynchronisation is certainly wrong here.
            if reply == self._identity and self._identity_query not in command.upper():
                raise self._frame_error(command, "the reply to an earlier identity query")
            return reply

    def write(self, command: str) -> None:
        """Send a command that has no reply. Raises ``LinkLost``."""
        message = _encoded(command, is_query=False) + self._terminator
        with self.exchange(command) as deadline:
            self.send(message, deadline)

    def query_block(self, command: str, timeout_s: float | None = None) -> bytearray:
        """Send a query and return the content of the definite-length block (IEEE 488.2, 8.7.9) in its reply.

        Raises the errors of :meth:`exchange`, and ``FrameError`` for a block longer than ``block_limit_bytes``.
        """
        message = _encoded(command, is_query=True) + self._terminator
        with self.exchange(command, timeout_s) as deadline:
            self.send(message, deadline)
            # The bytes are counted, because a block may contain any byte, including LF.
            payload = self.receive_block(self._block_length(command, deadline), command, deadline)
            self._end_of_block(command, deadline)
            return payload

    def send(self, data: bytes, deadline: Deadline) -> None:
        """Write all of ``data``, at least ``gap_s`` after the last message. Raises ``LinkLost``."""
        if self._gap_s > 0.0:
            self._clock.sleep(max(0.0, self._sent_s + self._gap_s - self._clock.now()))
            self._sent_s = self._clock.now()
        super().send(data, deadline)

    def probe(self, deadline: Deadline) -> bool:
        """Query the identity, and skip late replies."""
        self.send(self._identity_query.encode() + self._terminator, deadline)
        try:
            while True:
                line = self._reply_line(self._identity_query, deadline)
                if self._identity is not None and line == self._identity.encode():
                    return True
                self._count(foreign_bytes=len(line) + 1)
                if self._identity is None and line.count(b",") == 3:
                    return True  # no identity is stored yet, but these are the four fields of *IDN? (IEEE 488.2, 10.14)
        except (LinkTimeout, FrameError):
            return False

    def _reply_line(self, command: str, deadline: Deadline) -> bytes:
        line = self.receive_line(command, deadline)
        while self._by_cr and not line:  # the LF of a CR LF that arrived in two chunks
            line = self.receive_line(command, deadline)
        return line

    def _block_length(self, command: str, deadline: Deadline) -> int:
        head = self.receive_exactly(2, command, deadline)
        while head[:1] in ((b"\n", b"\0") if self._by_cr else (b"\0",)):  # left over from the previous line
            head = head[1:] + self.receive_exactly(1, command, deadline)
        if head[:1] != b"#" or not head[1:].isdigit() or head[1:] == b"0":
            raise self._frame_error(command, f"not a definite-length block: {format_bytes(head + bytes(self._buffer))}")
        digits = self.receive_exactly(int(head[1:]), command, deadline)
        # The length decides how many bytes are data, so it is not guessed from damaged digits.
        if not digits.isdigit():
            raise self._frame_error(command, f"a block with the length {format_bytes(digits)}")
        length = int(digits)
        if length > self._block_limit_bytes:
            raise self._frame_error(command, f"a block of {length} bytes, above the limit of {self._block_limit_bytes}")
        return length

    def _end_of_block(self, command: str, deadline: Deadline) -> None:
        end = self.receive_available(1, Deadline(min(deadline, self._clock.now() + _TERMINATOR_WAIT_S)))
        if end == b"\r" and not self._by_cr:
            end = self.receive_exactly(1, command, deadline)
        if end not in (b"", b"\n", self._terminator):
            raise self._frame_error(command, f"a block followed by {format_bytes(end + bytes(self._buffer))}")


def _encoded(command: str, *, is_query: bool) -> bytes:
    if not (command and command.isascii() and command.isprintable()):
        raise ConfigError(f"{command!r} is not a SCPI message", hint="Give one line of printable ASCII.")
    if ("?" in command) is not is_query:
        needed = "a query: it has no '?'" if is_query else "a command without reply: it has a '?'"
        raise ConfigError(f"{command!r} is not {needed}", hint="Use query() for queries and write() for commands.")
    return command.encode("ascii")
