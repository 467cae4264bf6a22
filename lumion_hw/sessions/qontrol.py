"""Session with a chain of Qontrol modules.

Modules report problems of their outputs at any time, even in the middle of a reply; these reports are stored. A refused
or unanswered request raises an error.
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
    ERROR_LINE,
    IDENTITY_LINE,
    RENUMBERED_LINE,
    REQUEST_ERRORS,
    SERIAL_ERROR,
    QontrolRequest,
    encode_text_request,
    error_name,
)
from lumion_hw.sessions.conversation import Conversation, format_bytes

_log = logging.getLogger(__name__)

TIMEOUT_S = 0.5
"""Default time limit for a reply, in s; the longest of 1329 recorded delays was 267 ms."""
WINDOW_BYTES = 64
"""Default number of bytes sent ahead of their replies; modules lost data at 86 bytes."""
_LINE_S = 0.005  # a line of 31 bytes takes 2.7 ms at 115 200 baud
_ATTEMPTS = 3
_LIST_QUIET_S = 0.1  # long replies arrive in chunks up to 32 ms apart
_MAX_LIST_LINES = 10_000
_MAX_REPORTS = 1000
_MAX_BUFFER_BYTES = 1 << 16
# Its reply has a unique number, which cannot be confused with a value or OK.
_MARKER = encode_text_request("ID?", IDENTITY_LINE)


@dataclass(frozen=True)
class Report:
    """A problem of an output that a module reported without a request.

    Attributes:
        code: Error code.
        channel: Channel within a module; the report does not identify the module.
        during: Request in progress when the report arrived; empty without a request.
        time_s: Time of arrival, on the session's clock.
    """

    code: int
    channel: int
    during: str
    time_s: float

    def __str__(self) -> str:
        return f"E{self.code:02d}:{self.channel:02d} {error_name(self.code)}"


class QontrolSession(Conversation):
    """Session with a chain of Qontrol modules. Thread-safe; share one session per address.

    Args:
        link: Serial link with 115 200 baud, or a TCP link to such a serial port.
        clock: Clock of the link.
        timeout_s: Time limit for each reply, in addition to its transmission time.
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
        self._reports: deque[Report] = deque(maxlen=_MAX_REPORTS)

    def open(self, timeout_s: float = 5.0) -> str:
        """Open the link and return the identity of the first module.

        Raises ``ConnectError`` or ``LinkTimeout``, and the errors of :meth:`check_identity`.
        """
        with self.transaction():
            self.open_link(timeout_s)
            return self.first_reply(self.check_identity)

    def check_identity(self) -> str:
        """Query and return the identity of the first module.

        Closes the link and raises ``IdentityError`` if the module has changed since the last query.
        """
        with self.transaction():
            identity = self.query_lines(_MARKER)[0]
            if self._identity is not None and identity != self._identity:
                self.close()
                raise self.error(
                    IdentityError,
                    f"expected {self._identity!r} as the first module, found {identity!r}",
                    hint="Check the address in the bench file, and the order of the backplanes.",
                )
            self._identity = identity
            return identity

    def renumber(self) -> int:
        """Make the modules renumber themselves (``NUP=0``); return the number of modules that confirmed."""
        return len(self.request_list(encode_text_request("NUP=0", RENUMBERED_LINE)))

    def query_lines(self, request: QontrolRequest) -> tuple[str, ...]:
        """Send one request and return the lines of its reply. Raises the errors of :meth:`run`."""
        return self.run((request,))[0]

    def run(self, requests: Sequence[QontrolRequest]) -> list[tuple[str, ...]]:
        """Send requests in order and return the lines of each reply.

        All requests must be safe to repeat: after ``E15`` (serial communication error) they are sent again, up to 3
        times.

        Raises the errors of :meth:`exchange`, and ``DeviceError`` if a module refuses a request.
        """
        with self.transaction():
            for _ in range(_ATTEMPTS - 1):
                try:
                    return self._run_once(requests)
                except DeviceError as error:
                    # The bytes arrived damaged. The maker's client repeats them without limit.
                    if error.code != SERIAL_ERROR:
                        raise
                    _log.warning("the requests arrived damaged and are sent again: %s", error)
            return self._run_once(requests)

    def request_list(self, request: QontrolRequest) -> tuple[str, ...]:
        """Send one request whose number of reply lines is unknown. The reply ends with 0.1 s of silence.

        Raises the errors of :meth:`run`.
        """
        with self.exchange(request.text):
            self.send(request.data, Deadline(self._clock.now() + self._timeout_s))
            lines: list[str] = []
            while len(lines) < _MAX_LIST_LINES:
                wait_s = _LIST_QUIET_S if lines else self._timeout_s
                try:
                    lines.extend(self._collect(request, 1, Deadline(self._clock.now() + wait_s)))
                except LinkTimeout:
                    if not lines or self._buffer:
                        raise
                    return tuple(lines)
            raise self._frame_error(request.text, f"longer than {_MAX_LIST_LINES} lines")

    def listen(self) -> None:
        """Store the reports that have arrived, without sending anything. Raises ``LinkLost``."""
        with self.transaction(), self._with_device_name():
            if not self._out_of_sync:
                self._process_unrequested("listening")

    def take_reports(self) -> tuple[Report, ...]:
        """Return the reports that arrived since the last call, oldest first."""
        with self.transaction():
            reports = tuple(self._reports)
            self._reports.clear()
            return reports

    def probe(self, deadline: Deadline) -> bool:
        """Query the identity of the first module, and skip earlier lines."""
        self.send(_MARKER.data, deadline)
        try:
            while True:
                line = self.receive_line(_MARKER.text, deadline)
                text = line.decode("ascii", errors="replace")
                if text == self._identity or (self._identity is None and IDENTITY_LINE.fullmatch(text)):
                    return True
                self._count(foreign_bytes=len(line) + 1)
                if self._report(text, _MARKER.text) in REQUEST_ERRORS:
                    return False  # leftovers of an earlier request damaged this one: try again
                self._check_time(_MARKER, deadline)
        except (LinkTimeout, FrameError):
            return False

    def _run_once(self, requests: Sequence[QontrolRequest]) -> list[tuple[str, ...]]:
        pending, in_flight = deque(requests), deque[QontrolRequest]()
        in_flight_bytes = 0
        replies: list[tuple[str, ...]] = []
        with self.exchange(_describe(requests)):
            while pending or in_flight:
                # Send up to one window ahead: a module needs about
                # 11 ms per reply, and the requests for 64 channels would take 8 times as long one by one.
                burst = b""
                while pending and (not in_flight or in_flight_bytes + len(pending[0].data) <= self._window_bytes):
                    request = pending.popleft()
                    in_flight.append(request)
                    in_flight_bytes += len(request.data)
                    burst += request.data
                if burst:
                    self.send(burst, Deadline(self._clock.now() + self._timeout_s))
                request = in_flight[0]
                deadline = Deadline(self._clock.now() + self._timeout_s + request.n_lines * _LINE_S)
                replies.append(self._collect(request, request.n_lines, deadline))
                in_flight.popleft()
                in_flight_bytes -= len(request.data)
        return replies

    def _collect(self, request: QontrolRequest, n_lines: int, deadline: Deadline) -> tuple[str, ...]:
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
            # The whole line must match. The maker's client searches for a number and reads +1.2e-03 V as 1.2 V.
            if request.line_pattern.fullmatch(text):
                lines.append(text)
            elif (code := self._report(text, request.text)) is not None:
                # Reports about the outputs arrive at any time and do not end a
                # reply; they count as a refusal only if no acknowledgement follows.
                codes.append(code)
                if code in REQUEST_ERRORS:
                    raise self._refusal(request, codes)
            elif lines or text != request.text:  # old firmware echoes the request
                raise self._frame_error(request.text, f"{format_bytes(raw)}, which does not fit this request")
            if len(lines) < n_lines:
                self._check_time(request, deadline)
        return tuple(lines)

    def _check_time(self, request: QontrolRequest, deadline: Deadline) -> None:
        if self._clock.now() > deadline:
            raise self.error(
                LinkTimeout,
                f"{request.text}: lines keep arriving, but the reply is not complete",
                hint="The modules report errors continuously, or another program uses this serial line.",
            )

    def _refusal(self, request: QontrolRequest, codes: Sequence[int]) -> DeviceError:
        names = ", ".join(f"E{code:02d} {error_name(code)}" for code in codes)
        return self.error(
            DeviceError,
            f"{request.text}: refused with {names}",
            code=codes[-1],
            command=request.text,
            hint="Earlier requests of the same call may have been executed.",
        )

    def _report(self, text: str, during: str) -> int | None:
        match = ERROR_LINE.fullmatch(text.strip())
        if match is None:
            return None
        report = Report(int(match[1]), int(match[2]), during, self._clock.now())
        if report.code not in REQUEST_ERRORS:
            self._reports.append(report)
        _log.warning("%s @ %s: a module reports %s during %s", self.device, self.address, report, during or "idle time")
        return report.code

    def _process_unrequested(self, label: str) -> None:
        self._buffer += self._link.read(Deadline(self._clock.now()))
        if not self._buffer:
            return
        # A report may have arrived in part, so wait briefly for its end.
        deadline = Deadline(self._clock.now() + self._quiet_s)
        foreign = 0
        while not self._buffer.endswith(b"\n") and self._clock.now() < deadline:
            self._buffer += self._link.read(deadline)
            foreign += self._sort_replies("") if len(self._buffer) > _MAX_BUFFER_BYTES else 0
        foreign += self._sort_replies("")
        if foreign:
            self.mark_out_of_sync(f"{foreign} unexpected bytes before {label}")

    def _discard_input(self, quiet_s: float) -> int:
        end = self._clock.now() + quiet_s + self._patience_s
        dropped = len(self._buffer)
        while (now_s := self._clock.now()) < end and (data := self._link.read(Deadline(min(now_s + quiet_s, end)))):
            dropped += len(data)
            self._buffer += data
            if len(self._buffer) > _MAX_BUFFER_BYTES:
                self._sort_replies("resynchronisation")
        self._sort_replies("resynchronisation")
        return dropped

    def _sort_replies(self, during: str) -> int:
        foreign = 0
        for line in bytes(self._buffer).splitlines(keepends=True):
            if not line.endswith(b"\n") or self._report(line.decode("ascii", errors="replace"), during) is None:
                foreign += len(line)
        self._buffer.clear()
        self._count(foreign_bytes=foreign)
        return foreign


def _describe(requests: Sequence[QontrolRequest]) -> str:
    if not requests:
        return "nothing"
    return requests[0].text if len(requests) == 1 else f"{requests[0].text} … {requests[-1].text}"
