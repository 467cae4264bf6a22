"""The session with a chain of Qontrol modules: requests in flight up to a window, and errors that come unasked.

A module reports trouble of its outputs at any time, also in the middle of another reply. Such lines never end a reply
and are kept as :class:`Report`; a request that is refused, or never acknowledged, is an error of that request.
Nothing protects the wire (no checksum, no sequence number), so after anything unexpected the session waits for silence
and asks ``ID?`` before it believes a reply again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from lumion_hw.clock import Clock, Deadline
from lumion_hw.errors import DeviceError, FrameError, IdentityError, LinkTimeout
from lumion_hw.links.base import Link
from lumion_hw.sessions.codecs.qontrol import (
    ERROR,
    IDENTITY,
    RENUMBERED,
    REQUEST_ERRORS,
    SERIAL_ERROR,
    QontrolRequest,
    error_name,
    text_request,
)
from lumion_hw.sessions.conversation import Conversation, shown

_log = logging.getLogger(__name__)

TIMEOUT_S = 0.5
"""Time for a reply: about twice the longest of 1329 recorded delays (267 ms)."""
WINDOW_BYTES = 64
"""Bytes sent ahead of their replies: less than the 86 that overflowed a recorded instruction buffer."""
_LINE_S = 0.005  # a line of 31 bytes takes 2.7 ms at 115 200 baud
_ATTEMPTS = 3
_LIST_QUIET_S = 0.1  # long replies come in pieces up to 32 ms apart
_LONGEST_LIST = 10_000
_MOST_REPORTS = 1000
_LARGEST_BUFFER = 1 << 16
# Its answer carries a number of its own, which no value or OK can be taken for.
_MARKER = text_request("ID?", IDENTITY)


@dataclass(frozen=True)
class Report:
    """An error line that belongs to no request under way, as far as anybody can tell.

    Attributes:
        code: Error code.
        channel: Channel within a module; the line does not say of which module.
        during: The request under way when it came; empty if none was.
        time_s: When it came, on the session's clock.
    """

    code: int
    channel: int
    during: str
    time_s: float

    def __str__(self) -> str:
        return f"E{self.code:02d}:{self.channel:02d} {error_name(self.code)}"


class QontrolSession(Conversation):
    """A conversation with a chain of Qontrol modules. Thread-safe; share one session per address.

    Args:
        link: The serial link, 115 200 baud, or a TCP link to one.
        clock: The link's clock.
        device: Device name, for messages.
        timeout_s: Time for each reply, on top of its time on the wire.
        window_bytes: Bytes sent ahead of their replies; 0 waits for every reply.
    """

    def __init__(
        self,
        link: Link,
        clock: Clock,
        *,
        device: str,
        timeout_s: float = TIMEOUT_S,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        super().__init__(link, clock, device=device, timeout_s=timeout_s)
        self._window_bytes = window_bytes
        self._identity: str | None = None
        self._reports: deque[Report] = deque(maxlen=_MOST_REPORTS)

    def open(self, timeout_s: float = 5.0) -> str:
        """Open the link and return the identity of the first module.

        Raises:
            ConnectError: The link cannot be opened.
            LinkTimeout: Nothing answers.
            IdentityError: Another module than before answers.
        """
        with self.transaction():
            self.open_link(timeout_s)
            return self.first_answer(self.check_identity)

    def check_identity(self) -> str:
        """Ask the first module who it is, and return it.

        Raises:
            IdentityError: Another module than before answers; the link is closed.
        """
        with self.transaction():
            found = self.ask(_MARKER)[0]
            if self._identity is not None and found != self._identity:
                self.close()
                raise self.error(
                    IdentityError,
                    f"expected {self._identity!r} as the first module, found {found!r}.",
                    hint="Check the address in the bench file, and the order of the backplanes.",
                )
            self._identity = found
            return found

    def renumber(self) -> int:
        """Let the modules number themselves anew (``NUP=0``); return how many said so."""
        return len(self.ask_list(text_request("NUP=0", RENUMBERED)))

    def ask(self, request: QontrolRequest) -> tuple[str, ...]:
        """Send one request and return the lines of its reply. Raises as :meth:`run`."""
        return self.run((request,))[0]

    def run(self, requests: Sequence[QontrolRequest]) -> list[tuple[str, ...]]:
        """Send requests in order, some ahead of their replies, and return the lines of each reply.

        All of them have to be such that saying them twice does no harm: after ``E15`` (serial communication error)
        they are sent again, three times at the most.

        Raises:
            DeviceError: A request was refused, or answered by nothing but an error line.
            LinkTimeout: A reply did not come in time; the next exchange resynchronises first.
            FrameError: A line is not of the shape this reply has.
            LinkLost: The link is gone, or could not be resynchronised.
        """
        with self.transaction():
            for _ in range(_ATTEMPTS - 1):
                try:
                    return self._run_once(requests)
                except DeviceError as error:
                    # The bytes did not arrive as they were sent; the maker's client sends them again, without end.
                    if error.code != SERIAL_ERROR:
                        raise
                    _log.warning("%s; sending again", error)
            return self._run_once(requests)

    def ask_list(self, request: QontrolRequest) -> tuple[str, ...]:
        """Send one request whose number of lines is not known; its reply ends with 0.1 s of silence.

        Raises:
            DeviceError: The request was refused.
            LinkTimeout: No line came.
            FrameError: A line has another shape.
        """
        with self.exchange(request.text):
            self.send(request.data, Deadline(self._clock.now() + self._timeout_s))
            lines: list[str] = []
            while len(lines) < _LONGEST_LIST:
                wait_s = _LIST_QUIET_S if lines else self._timeout_s
                try:
                    lines.extend(self._collect(request, 1, Deadline(self._clock.now() + wait_s)))
                except LinkTimeout:
                    if not lines or self._buffer:
                        raise
                    return tuple(lines)
            raise self._frame_error(request.text, f"{_LONGEST_LIST} lines and no end")

    def listen(self) -> None:
        """Take what came unasked, without sending anything. Raises ``LinkLost``."""
        with self.transaction(), self._named():
            if not self._tainted:
                self._take_unasked("listening")

    def take_reports(self) -> tuple[Report, ...]:
        """Return the reports that came since the last call, oldest first."""
        with self.transaction():
            reports = tuple(self._reports)
            self._reports.clear()
            return reports

    def probe(self, deadline: Deadline) -> bool:
        """Ask for the identity of the first module, and pass over what comes before it."""
        self.send(_MARKER.data, deadline)
        try:
            while True:
                line = self.receive_line(_MARKER.text, deadline)
                text = line.decode("ascii", errors="replace")
                if text == self._identity or (self._identity is None and IDENTITY.fullmatch(text)):
                    return True
                self._count(foreign_bytes=len(line) + 1)
                if self._report(text, _MARKER.text) in REQUEST_ERRORS:
                    return False  # the remains of an earlier request spoilt the question: ask again
                self._check_time(_MARKER, deadline)
        except (LinkTimeout, FrameError):
            return False

    def _run_once(self, requests: Sequence[QontrolRequest]) -> list[tuple[str, ...]]:
        ahead, flying = deque(requests), deque[QontrolRequest]()
        flying_bytes = 0
        replies: list[tuple[str, ...]] = []
        with self.exchange(_named(requests)):
            while ahead or flying:
                # Up to a window ahead of the replies: a module is silent for about
                # 11 ms before each, and one at a time 64 channels take 8 of those.
                burst = b""
                while ahead and (not flying or flying_bytes + len(ahead[0].data) <= self._window_bytes):
                    request = ahead.popleft()
                    flying.append(request)
                    flying_bytes += len(request.data)
                    burst += request.data
                if burst:
                    self.send(burst, Deadline(self._clock.now() + self._timeout_s))
                request = flying[0]
                deadline = Deadline(self._clock.now() + self._timeout_s + request.n_lines * _LINE_S)
                replies.append(self._collect(request, request.n_lines, deadline))
                flying.popleft()
                flying_bytes -= len(request.data)
        return replies

    def _collect(self, request: QontrolRequest, n_lines: int, deadline: Deadline) -> tuple[str, ...]:
        """Return the lines of one reply; error lines in between are kept as reports."""
        lines: list[str] = []
        codes: list[int] = []
        while len(lines) < n_lines:
            try:
                raw = self.receive_line(request.text, deadline)
            except LinkTimeout as error:
                if codes:
                    raise self._refusal(request, codes) from error
                raise
            text = raw.decode("ascii", errors="backslashreplace")
            # The whole line has to fit: the maker's client searches for a number in it, and takes +1.2e-03 V for 1.2 V.
            if request.line.fullmatch(text):
                lines.append(text)
            elif (code := self._report(text, request.text)) is not None:
                # Reports of the outputs' supervision come at any time and end no
                # reply; they count as a refusal only if no acknowledgement follows.
                codes.append(code)
                if code in REQUEST_ERRORS:
                    raise self._refusal(request, codes)
            elif lines or text != request.text:  # old firmware echoes the request
                raise self._frame_error(request.text, f"{shown(raw)}, which is no line of such a reply")
            if len(lines) < n_lines:
                self._check_time(request, deadline)
        return tuple(lines)

    def _check_time(self, request: QontrolRequest, deadline: Deadline) -> None:
        """Raise ``LinkTimeout`` after the deadline, however much is still arriving."""
        if self._clock.now() > deadline:
            raise self.error(
                LinkTimeout,
                f"{request.text}: lines keep coming, and no complete reply among them.",
                hint="The modules report errors without end, or somebody else uses this serial line.",
            )

    def _refusal(self, request: QontrolRequest, codes: Sequence[int]) -> DeviceError:
        names = ", ".join(f"E{code:02d} {error_name(code)}" for code in codes)
        return self.error(
            DeviceError,
            f"{request.text}: answered with {names} and no acknowledgement.",
            code=codes[-1],
            command=request.text,
            hint="This request was refused; of those sent with it, the earlier ones may have been carried out.",
        )

    def _report(self, text: str, during: str) -> int | None:
        """Return the code of an error line, and keep it if it is not the answer to a request."""
        match = ERROR.fullmatch(text.strip())
        if match is None:
            return None
        report = Report(int(match[1]), int(match[2]), during, self._clock.now())
        if report.code not in REQUEST_ERRORS:
            self._reports.append(report)
        _log.warning("%s @ %s: %s, during %s", self.device, self.address, report, during or "silence")
        return report.code

    def _get_in_step(self, what: str) -> None:
        if not self._tainted:
            self._take_unasked(what)
        if self._tainted:
            self._resynchronise()

    def _take_unasked(self, what: str) -> None:
        """Read what came since the last exchange: reports are welcome, anything else taints."""
        self._buffer += self._link.read(Deadline(self._clock.now()))
        if not self._buffer:
            return
        # A report may be half arrived; its end is waited for a moment before it is taken for noise.
        deadline = Deadline(self._clock.now() + self._quiet_s)
        foreign = 0
        while not self._buffer.endswith(b"\n") and self._clock.now() < deadline:
            self._buffer += self._link.read(deadline)
            foreign += self._sift("") if len(self._buffer) > _LARGEST_BUFFER else 0
        foreign += self._sift("")
        if foreign:
            self.mark_out_of_sync(f"{foreign} bytes that nobody asked for, before {what}")

    def _discard_input(self, quiet_s: float) -> int:
        end = self._clock.now() + quiet_s + self._patience_s
        dropped = len(self._buffer)
        while (now := self._clock.now()) < end and (data := self._link.read(Deadline(min(now + quiet_s, end)))):
            dropped += len(data)
            self._buffer += data
            if len(self._buffer) > _LARGEST_BUFFER:
                self._sift("resynchronisation")
        self._sift("resynchronisation")
        return dropped

    def _sift(self, during: str) -> int:
        """Empty the buffer, keep the reports in it, and return how many bytes were none."""
        foreign = 0
        for line in bytes(self._buffer).splitlines(keepends=True):
            if not line.endswith(b"\n") or self._report(line.decode("ascii", errors="replace"), during) is None:
                foreign += len(line)
        self._buffer.clear()
        self._count(foreign_bytes=foreign)
        return foreign


def _named(requests: Sequence[QontrolRequest]) -> str:
    if not requests:
        return "nothing"
    return requests[0].text if len(requests) == 1 else f"{requests[0].text} … {requests[-1].text}"
