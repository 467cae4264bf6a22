"""Requests on their way: the window, the retries and the deadlines of protocol sections 4.3 and 4.5."""

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
from lumion_hw.sessions.framed.inbox import Answer, Wanted
from lumion_hw.sessions.framed.line import Line, Loss, SessionState, step_rtos

LEAST_BUSY_WAIT_S = 0.01
"""Shortest wait before a busy board is asked again."""

# A piece lost on its way (INCOMPLETE) or another table than meant (CRC_MISMATCH): the
# board has changed nothing, and the whole sent once more usually mends it (section 4.3).
_SENT_AGAIN = (Status.INCOMPLETE, Status.CRC_MISMATCH)
_PATIENCE: dict[int, int] = {Status.CRC_MISMATCH: 1, Status.INCOMPLETE: 2, Status.BUSY: 2}


_HEADER = struct.Struct("<BBBBHH")
_REQ = PROTOCOL_MAJOR << 4 | Kind.REQ
_RETRY = int(HeaderFlag.RETRY)
_BY_LENGTH = frozenset((Command.PING, Command.STAGE, Command.COMMIT, Command.SET, Command.SWEEP_LOAD))
"""Commands whose retry time depends on nothing but their length."""


class _PendingRequest(Wanted):
    """One request: what it says, and once it is under way, its number and times."""

    __slots__ = (
        "alone_s",
        "attempt",
        "computed_s",
        "due_s",
        "end_s",
        "index",
        "message",
        "n_bytes",
        "payload",
        "rto_s",
        "sends",
        "start_s",
    )

    def __init__(
        self, session: int, index: int, message: Request[Message], payload: bytes, alone_s: float, n_bytes: int
    ) -> None:
        super().__init__(session, 0, message.command, message.reply)
        self.index = index
        self.message = message
        self.payload = payload
        self.alone_s = alone_s
        self.n_bytes = n_bytes
        self.attempt = self.sends = 0
        self.computed_s = self.start_s = self.rto_s = self.due_s = self.end_s = 0.0

    @property
    def name(self) -> str:
        """Name of the command."""
        return self.message.command.name

    def wire(self) -> bytes:
        """Return the bytes of this attempt."""
        # The number stays: by it the board knows a repeat and sends
        # its stored reply instead of executing twice (section 4.2).
        flags = _RETRY if self.attempt else 0
        return encode_body(_HEADER.pack(_REQ, flags, self.command, 0, self.seq, self.session) + self.payload)


class FramedExchange:
    """Sends the requests of one session, as many at once as window and kind allow, and collects their answers.

    Args:
        line: The line, on which the session was opened.
        clock: Its clock.
        target: Device name and address, for messages.
        hello: What the board said of its sizes and times.
        baud: Speed of a UART in bit/s, ``None`` where bytes take no time.
        seq: Sequence number of the HELLO.

    Attributes:
        question_patience_s: How long requests that change nothing are repeated; 0 repeats them like all others.
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
        self._late = line.inbox.counts["late"]
        self.last_seq = seq
        self.question_patience_s = QUESTION_PATIENCE_S

    def rto_s(self, message: Request[Message]) -> float:
        """Return the time after which a request sent alone is sent again. Raises ``ConfigError``."""
        with encoding(message, self._target):
            return retry_timeout_s(message, self._hello, self._baud)

    def ask(self, messages: Sequence[Request[Message]]) -> list[Message]:
        """Ask until every request is answered, or one of them is refused for good.

        BUSY is asked again, with a new number, within the deadline of section 4.5; INCOMPLETE as long as that helps;
        then, and after a wrong checksum, everything is sent once more.

        Raises:
            LumionError: The refusal that stays; see :func:`~lumion_hw.sessions.framed.errors.error_from_refusal`.
                Also as :meth:`run`.
            FrameError: A reply does not answer what was asked.
        """
        start, whole_again = self._clock.now(), True
        answers: list[Answer | None] = [None] * len(messages)
        todo = list(range(len(messages)))
        while True:
            for index, answer in zip(todo, self.run([messages[index] for index in todo]), strict=True):
                answers[index] = answer
            left = [index for index in todo if not isinstance(answers[index], Message)]
            if not left:
                replies = cast("list[Message]", answers)
                for message, reply in zip(messages, replies, strict=True):
                    check_echo(message, reply, self._target)
                return replies
            index, refusal = _worst(left, answers)
            if refusal.status == Status.BUSY:
                again = self._wait_while_busy(refusal, start + DEADLINE_RTOS * self.rto_s(messages[index]))
            # A COMMIT travels in one burst with its STAGE frames; if one of
            # these was lost and repeated, only the COMMIT has to be said again.
            elif refusal.status == Status.INCOMPLETE and len(left) < len(todo):
                again = True  # what came before it has arrived by now
            else:
                again, whole_again = whole_again and refusal.status in _SENT_AGAIN, False
                left = list(range(len(messages)))
            if not again:
                # The board names its present session: 0 after a restart, else
                # that of the host that took over (section 4.1).
                if refusal.status == Status.SESSION:
                    self._line.lose(Loss.TAKEN_OVER if refusal.value_u32 else Loss.RESTARTED)
                raise error_from_refusal(refusal, messages[index], self._target)
            self._line.inbox.counts["resent"] += refusal.status != Status.BUSY
            todo = left

    def run(self, messages: Sequence[Request[Message]]) -> list[Answer | None]:
        """Send requests in order and return their answers.

        After the first refusal nothing more is sent; the answer to what was not sent is ``None``. Requests without
        the mark P (section 5) travel alone.

        Raises:
            LinkLost: The link is gone.
            LinkTimeout: One of them was not answered; what became of it is unknown.
            ConfigError: One of them cannot be put on the wire; nothing was sent.
        """
        todo = deque(self._job(index, message) for index, message in enumerate(messages))
        answers: list[Answer | None] = [None] * len(messages)
        waiting: list[_PendingRequest] = []
        try:
            while todo or waiting:
                if todo:
                    self._send(todo, waiting)
                # Refused: what is behind it was meant to follow it, and is not sent.
                if self._collect(waiting, answers):
                    todo.clear()
                if waiting:
                    self._repeat(waiting)
        finally:
            self._window.abandon()  # also one that an interrupt has cut off from its job
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
        """Return computed time of an answer and bytes that have to arrive; remembered where only the length counts."""
        key = message.command, length
        if key not in self._sizes or message.command not in _BY_LENGTH:
            computed_s = retry_timeout_s(message, self._hello, self._baud) - MARGIN_S
            self._sizes[key] = computed_s, exchange_bytes(message, self._hello)
        return self._sizes[key]

    def _send(self, todo: deque[_PendingRequest], waiting: list[_PendingRequest]) -> None:
        """Send what the window has room for, in one write."""
        burst = []
        now = self._clock.now()
        quality = self._line.quality
        # A late reply means that a repeat came too early, not that anything was lost.
        while self._late < self._line.inbox.counts["late"]:
            self._late += 1
            quality.came_too_late()
        while todo and self._may_follow(todo[0], waiting):
            job = todo.popleft()
            job.start_s = now
            job.computed_s = job.alone_s
            if waiting:
                # On a UART it waits for the bytes of those before it.
                job.computed_s += sum(before.alone_s for before in waiting)
            job.rto_s = quality.rto_s(job.computed_s)
            job.sends = quality.sends(job.n_bytes)
            job.end_s = now + max(DEADLINE_RTOS * (job.computed_s + MARGIN_S), LONGEST_DEADLINE_S)
            job.due_s = min(now + job.rto_s, job.end_s)
            job.seq = self.last_seq = self._window.take()
            waiting.append(job)
            self._line.inbox.expect(job)
            # One write for the burst, so that its frames follow each other on the wire without a gap.
            burst.append(job.wire())
        if burst:
            self._line.inbox.counts["requests"] += len(burst)
            self._line.write(b"".join(burst), waiting[0].name)

    def _may_follow(self, job: _PendingRequest, waiting: list[_PendingRequest]) -> bool:
        """Section 4.3: the span of the window, and only commands marked P overlap."""
        if not waiting:
            return True
        overlaps = job.message.command.pipelined and waiting[-1].message.command.pipelined
        return overlaps and self._window.may_send()

    def _collect(self, waiting: list[_PendingRequest], answers: list[Answer | None]) -> bool:
        """Read until something comes or the next repeat is due; return whether a request was refused."""
        self._line.read(Deadline(min(job.due_s for job in waiting)), waiting[0].name)
        refused = False
        now = self._clock.now()
        for job in list(waiting):
            if job.answer is not None:
                waiting.remove(job)
                self._window.settle(job.seq)
                self._line.quality.answered(job.n_bytes, job.attempt, now - job.start_s - job.computed_s)
                self._line.state = SessionState.OPEN
                answers[job.index] = job.answer
                refused = refused or isinstance(job.answer, Refusal)
        return refused

    def _repeat(self, waiting: list[_PendingRequest]) -> None:
        """Send again what is overdue, under its old number, as often as the losses of this link ask for.

        Requests that change nothing are repeated for longer: a board or a host that pauses for a second loses nothing.
        """
        now = self._clock.now()
        are_questions = all(is_read(each.message) for each in waiting)
        for job in waiting:
            if job.due_s > now:
                continue
            patient = are_questions and now < job.start_s + self.question_patience_s
            is_over = not patient and (job.attempt + 1 >= job.sends or now >= job.end_s)
            # The port stays open: closing it would turn a lost byte into a lost
            # device, and opening it again may reset the board by DTR (section 4.5).
            if is_over:
                self._line.state = SessionState.DEGRADED
                took_effect = False if are_questions else None
                hint = "The port stays open; try again."
                raise self._line.timeout(job.name, now - job.start_s, hint, took_effect=took_effect)
            job.attempt += 1
            end_s = job.start_s + self.question_patience_s if patient else job.end_s
            job.due_s = min(now + job.rto_s * step_rtos(job.attempt), end_s)
            self._line.inbox.counts["retries"] += 1
            self._line.write(job.wire(), job.name)

    def _wait_while_busy(self, refusal: Refusal, until: float) -> bool:
        """Wait as long as the board asked for, and tell whether it is worth asking again."""
        wait_s = max(refusal.value * 1e-3, LEAST_BUSY_WAIT_S)
        if self._clock.now() + wait_s >= until:
            return False
        self._line.inbox.counts["busy_waits"] += 1
        self._clock.sleep(wait_s)
        return True


def _worst(left: Sequence[int], answers: Sequence[Answer | None]) -> tuple[int, Refusal]:
    """Return the refusal that decides: one that asking again cannot change, a wrong checksum, or the first one."""
    refusals = [(index, answer) for index in left if isinstance(answer := answers[index], Refusal)]
    return min(refusals, key=lambda refusal: _PATIENCE.get(refusal[1].status, 0))
