"""Sends requests and repeats them if their replies do not arrive (protocol sections 4.3 and 4.5)."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from typing import cast

from firmware_protocol import (
    DEADLINE_RTOS,
    LONGEST_DEADLINE_S,
    PROTOCOL_MAJOR,
    QUESTION_PATIENCE_S,
    Command,
    FrameTooBigError,
    HeaderFlag,
    HelloReply,
    Kind,
    Message,
    ProtocolError,
    Refusal,
    Request,
    SendWindow,
    Status,
    encode_body,
    exchange_bytes,
    is_read,
    retry_timeout_s,
    wire_bound,
)
from firmware_protocol.timing import MARGIN_S
from lumion_hw.clock import Clock, Deadline
from lumion_hw.errors import DeviceAddress
from lumion_hw.sessions.framed.errors import cannot_be_sent, check_echo, encoding, error_from_refusal
from lumion_hw.sessions.framed.inbox import Answer, ExpectedReply
from lumion_hw.sessions.framed.line import Line, Loss, SessionState, step_rtos

MIN_BUSY_WAIT_S = 0.01
"""Shortest wait before a request is sent again to a busy board, in s."""

# A lost frame (INCOMPLETE) or a damaged table (CRC_MISMATCH): the board has changed
# nothing, and sending everything once more usually succeeds (section 4.3).
_RESENDABLE = (Status.INCOMPLETE, Status.CRC_MISMATCH)
_REPEAT_RANK: dict[int, int] = {Status.CRC_MISMATCH: 1, Status.INCOMPLETE: 2, Status.BUSY: 2}


_HEADER = struct.Struct("<BBBBHH")
_REQ = PROTOCOL_MAJOR << 4 | Kind.REQ
_RETRY = int(HeaderFlag.RETRY)
_SIZED_BY_LENGTH = frozenset((Command.PING, Command.STAGE, Command.COMMIT, Command.SET, Command.SWEEP_LOAD))
"""Commands whose reply time depends only on their length."""


class _PendingRequest(ExpectedReply):
    """One request of an exchange, with its sequence number and send times."""

    __slots__ = (
        "attempt",
        "computed_s",
        "due_s",
        "end_s",
        "index",
        "max_sends",
        "message",
        "n_bytes",
        "payload",
        "rto_s",
        "single_s",
        "start_s",
    )

    def __init__(
        self, session: int, index: int, message: Request[Message], payload: bytes, single_s: float, n_bytes: int
    ) -> None:
        super().__init__(session, 0, message.command, message.reply)
        self.index = index
        self.message = message
        self.payload = payload
        self.single_s = single_s
        self.n_bytes = n_bytes
        self.attempt = self.max_sends = 0
        self.computed_s = self.start_s = self.rto_s = self.due_s = self.end_s = 0.0

    @property
    def name(self) -> str:
        """Name of the command."""
        return self.message.command.name

    def wire(self) -> bytes:
        """Bytes of the request for the present attempt."""
        # The sequence number does not change: the board recognizes the repeat and
        # sends its stored reply instead of executing the command twice (section 4.2).
        flags = _RETRY if self.attempt else 0
        return encode_body(_HEADER.pack(_REQ, flags, self.command, 0, self.seq, self.session) + self.payload)


class FramedExchange:
    """Sends the requests of one session and collects the replies.

    Args:
        line: Line on which the session was opened.
        clock: Clock of the line.
        hello: HELLO reply of the board, with its frame sizes and execution times.
        baud: Speed of a UART in bit/s; ``None`` if transmission time is negligible.
        seq: Sequence number of the HELLO.

    Attributes:
        read_retry_s: Time in seconds for which requests that change nothing are repeated; 0 for no extra time.
    """

    def __init__(
        self, line: Line, clock: Clock, target: DeviceAddress, hello: HelloReply, baud: int | None, seq: int
    ) -> None:
        self._line = line
        self._clock = clock
        self._target = target
        self._hello = hello
        self._baud = baud
        self._session = line.inbox.session
        self._window = SendWindow(hello.window, seq)
        self._sizes: dict[tuple[int, int], tuple[float, int]] = {}
        self._late_counted = line.inbox.counts["late"]
        self.last_seq = seq
        self.read_retry_s = QUESTION_PATIENCE_S

    def rto_s(self, message: Request[Message]) -> float:
        """Return the time after which a single request is repeated. Raises ``ConfigError``."""
        with encoding(message, self._target):
            return retry_timeout_s(message, self._hello, self._baud)

    def request_all(self, messages: Sequence[Request[Message]]) -> list[Message]:
        """Send requests and return their replies.

        Requests that the board could not execute yet (status BUSY or INCOMPLETE) are repeated until the deadline.

        Raises:
            LumionError: The board refused a request; see :func:`~lumion_hw.sessions.framed.errors.error_from_refusal`.
                Also raises the errors of :meth:`run`.
            FrameError: A reply does not match its request.
        """
        start, may_resend_all = self._clock.now(), True
        answers: list[Answer | None] = [None] * len(messages)
        pending = list(range(len(messages)))
        while True:
            for index, answer in zip(pending, self.run([messages[index] for index in pending]), strict=True):
                answers[index] = answer
            unanswered = [index for index in pending if not isinstance(answers[index], Message)]
            if not unanswered:
                replies = cast("list[Message]", answers)
                for message, reply in zip(messages, replies, strict=True):
                    check_echo(message, reply, self._target)
                return replies
            index, refusal = _decisive_refusal(unanswered, answers)
            if refusal.status == Status.BUSY:
                must_resend = self._wait_while_busy(refusal, start + DEADLINE_RTOS * self.rto_s(messages[index]))
            # A COMMIT is sent in one burst with its STAGE frames. If a STAGE frame
            # was lost and repeated, only the COMMIT must be sent again.
            elif refusal.status == Status.INCOMPLETE and len(unanswered) < len(pending):
                must_resend = True  # the earlier frames have arrived by now
            else:
                must_resend, may_resend_all = may_resend_all and refusal.status in _RESENDABLE, False
                unanswered = list(range(len(messages)))
            if not must_resend:
                # The refusal names the board's session: 0 after a restart, else
                # that of the host that took over (section 4.1).
                if refusal.status == Status.SESSION:
                    self._line.lose(Loss.TAKEN_OVER if refusal.value_u32 else Loss.RESTARTED)
                raise error_from_refusal(refusal, messages[index], self._target)
            self._line.inbox.counts["resent"] += refusal.status != Status.BUSY
            pending = unanswered

    def run(self, messages: Sequence[Request[Message]]) -> list[Answer | None]:
        """Send requests in order and return their replies.

        After the first error reply no further request is sent; the reply to an unsent request is ``None``.

        Raises:
            LinkLost: The link is lost.
            LinkTimeout: A request was not answered; it may or may not have been executed.
            ConfigError: A request cannot be encoded; nothing was sent.
        """
        pending = deque(self._job(index, message) for index, message in enumerate(messages))
        answers: list[Answer | None] = [None] * len(messages)
        waiting: list[_PendingRequest] = []
        try:
            while pending or waiting:
                if pending:
                    self._send(pending, waiting)
                # After a refusal, the requests that depend on it are not sent.
                if self._collect(waiting, answers):
                    pending.clear()
                if waiting:
                    self._repeat(waiting)
        finally:
            self._window.abandon()  # including a request whose processing was interrupted
            for job in waiting:
                self._line.inbox.forget(job)
        return answers

    def _job(self, index: int, message: Request[Message]) -> _PendingRequest:
        try:
            payload = message.encode()
            bound = wire_bound(len(payload))
            if bound > self._hello.fw_rx_max:
                raise FrameTooBigError(bound, self._hello.fw_rx_max)
        except ProtocolError as error:
            raise cannot_be_sent(error, message, self._target) from error
        return _PendingRequest(self._session, index, message, payload, *self._size(message, len(payload)))

    def _size(self, message: Request[Message], length: int) -> tuple[float, int]:
        key = message.command, length
        if key not in self._sizes or message.command not in _SIZED_BY_LENGTH:
            computed_s = retry_timeout_s(message, self._hello, self._baud) - MARGIN_S
            self._sizes[key] = computed_s, exchange_bytes(message, self._hello)
        return self._sizes[key]

    def _send(self, pending: deque[_PendingRequest], waiting: list[_PendingRequest]) -> None:
        burst = []
        now_s = self._clock.now()
        quality = self._line.quality
        # A late reply means that the repeat was too early; nothing was lost.
        while self._late_counted < self._line.inbox.counts["late"]:
            self._late_counted += 1
            quality.record_late_answer()
        while pending and self._may_follow(pending[0], waiting):
            job = pending.popleft()
            job.start_s = now_s
            job.computed_s = job.single_s
            if waiting:
                # On a UART, it waits for the bytes of the earlier requests.
                job.computed_s += sum(before.single_s for before in waiting)
            job.rto_s = quality.rto_s(job.computed_s)
            job.max_sends = quality.max_sends(job.n_bytes)
            job.end_s = now_s + max(DEADLINE_RTOS * (job.computed_s + MARGIN_S), LONGEST_DEADLINE_S)
            job.due_s = min(now_s + job.rto_s, job.end_s)
            job.seq = self.last_seq = self._window.next_seq()
            waiting.append(job)
            self._line.inbox.expect(job)
            # One write for the whole burst, so that there are no gaps between its frames.
            burst.append(job.wire())
        if burst:
            self._line.inbox.counts["requests"] += len(burst)
            self._line.write(b"".join(burst), waiting[0].name)

    def _may_follow(self, job: _PendingRequest, waiting: list[_PendingRequest]) -> bool:
        if not waiting:
            return True
        overlaps = job.message.command.pipelined and waiting[-1].message.command.pipelined
        return overlaps and self._window.can_send()

    def _collect(self, waiting: list[_PendingRequest], answers: list[Answer | None]) -> bool:
        self._line.read(Deadline(min(job.due_s for job in waiting)), waiting[0].name)
        refused = False
        now_s = self._clock.now()
        for job in list(waiting):
            if job.answer is not None:
                waiting.remove(job)
                self._window.mark_answered(job.seq)
                self._line.quality.record_answer(job.n_bytes, job.attempt, now_s - job.start_s - job.computed_s)
                self._line.state = SessionState.OPEN
                answers[job.index] = job.answer
                refused = refused or isinstance(job.answer, Refusal)
        return refused

    def _repeat(self, waiting: list[_PendingRequest]) -> None:
        now_s = self._clock.now()
        are_reads = all(is_read(job.message) for job in waiting)
        for job in waiting:
            if job.due_s > now_s:
                continue
            is_extended = are_reads and now_s < job.start_s + self.read_retry_s
            is_over = not is_extended and (job.attempt + 1 >= job.max_sends or now_s >= job.end_s)
            # The port stays open: closing it would turn a lost byte into a lost
            # device, and opening it again may reset the board by DTR (section 4.5).
            if is_over:
                self._line.state = SessionState.DEGRADED
                took_effect = False if are_reads else None
                hint = "The port stays open; try again."
                raise self._line.timeout(job.name, now_s - job.start_s, hint, took_effect=took_effect)
            job.attempt += 1
            end_s = job.start_s + self.read_retry_s if is_extended else job.end_s
            job.due_s = min(now_s + job.rto_s * step_rtos(job.attempt), end_s)
            self._line.inbox.counts["retries"] += 1
            self._line.write(job.wire(), job.name)

    def _wait_while_busy(self, refusal: Refusal, until: float) -> bool:
        wait_s = max(refusal.value * 1e-3, MIN_BUSY_WAIT_S)
        if self._clock.now() + wait_s >= until:
            return False
        self._line.inbox.counts["busy_waits"] += 1
        self._clock.sleep(wait_s)
        return True


def _decisive_refusal(unanswered: Sequence[int], answers: Sequence[Answer | None]) -> tuple[int, Refusal]:
    refusals = [(index, answer) for index in unanswered if isinstance(answer := answers[index], Refusal)]
    return min(refusals, key=lambda refusal: _REPEAT_RANK.get(refusal[1].status, 0))
