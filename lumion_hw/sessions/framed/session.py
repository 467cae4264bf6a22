"""Session with a mesh controller (protocol sections 4, 6, 16).

Late or unknown replies are counted and dropped, never raised. After a time-out the session stays open.
"""

from __future__ import annotations

import math
import secrets
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from types import TracebackType
from typing import TypeVar, cast

from firmware_protocol import (
    ESTOP_WIRE,
    HELLO_PATIENCE_S,
    HELLO_RTO_S,
    Command,
    EstopReply,
    EstopRequest,
    FaultRecord,
    Frame,
    HeaderFlag,
    HelloFlag,
    HelloReply,
    HelloRequest,
    Kind,
    Message,
    Refusal,
    Request,
    Status,
    encode_frame,
    exchange_bytes,
    retry_timeout_s,
)
from firmware_protocol.timing import MARGIN_S
from lumion_hw.clock import Clock, ClockEvent, Deadline
from lumion_hw.errors import BusyError, DeviceAddress, DeviceErrors, LinkLost
from lumion_hw.links.base import Link
from lumion_hw.links.owner import OwnerProcess, fork_safe
from lumion_hw.sessions.framed.errors import check_hello, encoding, error_from_refusal
from lumion_hw.sessions.framed.exchange import MIN_BUSY_WAIT_S, FramedExchange
from lumion_hw.sessions.framed.inbox import ExpectedReply, Sink
from lumion_hw.sessions.framed.line import HOST_MTU, Line, Loss, SessionState


class TurnLock:
    """A re-entrant lock that threads acquire in the order of their requests.

    Args:
        event: Creates an event of the session's clock.

    Attributes:
        shared: Whether more than one thread has held the lock so far.
    """

    def __init__(self, event: Callable[[], ClockEvent] = threading.Event) -> None:
        self._event = event
        self._state_lock = threading.Lock()  # never held while time passes
        self._waiting: deque[tuple[int, ClockEvent]] = deque()
        self._owner = 0
        self._depth = 0
        self._first_owner = 0
        self.shared = False

    def _is_owned(self) -> bool:
        """Return whether this thread holds the lock."""
        return self._owner == threading.get_ident()

    def _at_fork_reinit(self) -> None:
        """Free the lock in a forked child process."""
        self._state_lock = threading.Lock()
        self._waiting.clear()
        self._owner = self._depth = 0

    def acquire(self, *, blocking: bool = True) -> bool:
        """Acquire the lock. Without ``blocking``, return ``False`` if the lock is not free."""
        thread_id = threading.get_ident()
        with self._state_lock:
            if self._owner == thread_id:
                self._depth += 1
                return True
            if not self._owner and not self._waiting:
                self._assign_to(thread_id)
                return True
            if not blocking:
                return False
            waiting = thread_id, self._event()
            self._waiting.append(waiting)
        try:
            waiting[1].wait()
        except BaseException:  # such as Ctrl-C: others must not wait for this thread
            with self._state_lock:
                if waiting in self._waiting:
                    self._waiting.remove(waiting)
            if self._owner == thread_id:
                self.release()
            raise
        return True

    def release(self) -> None:
        """Release the lock for the thread that has waited longest."""
        self._depth -= 1
        if self._depth:
            return
        with self._state_lock:
            self._owner = 0
            following = self._waiting.popleft() if self._waiting else None
            if following is not None:
                self._assign_to(following[0])
        if following is not None:
            following[1].set()

    def _assign_to(self, thread: int) -> None:
        self._owner, self._depth = thread, 1
        self._first_owner = self._first_owner or thread
        self.shared = self.shared or self._first_owner != thread

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


__all__ = ["HOST_MTU", "FramedSession", "Loss", "SessionState"]

ReplyT = TypeVar("ReplyT", bound=Message)

_TURN_S = 0.005  # longest time for which a wait for events blocks other threads
_SEQ_LEAP = 0x4000  # beyond all numbers whose replies may still arrive
# Opening may reset the board; an emergency stop waits as long as HELLO.
_STOP_OPEN_S = 3.0


class FramedSession(DeviceErrors):
    """One session with a mesh controller. Thread-safe.

    Args:
        link: Link to the controller, opened by :meth:`open`.
        clock: Clock of the link.
        name: Name of the program, which the controller reports to other hosts; at most 16 bytes of UTF-8. Names of
            computers and users do not belong here.
        baud: UART speed between host and controller in bit/s; ``None`` for USB, pty and TCP.
        session_ids: Source of session ids 1…65535; random by default.
        first_seq: Sequence number of the first request; numbers wrap at 65536.
    """

    def __init__(
        self,
        link: Link,
        clock: Clock,
        *,
        device: str,
        name: str = "lumion",
        baud: int | None = None,
        session_ids: Callable[[], int] | None = None,
        first_seq: int = 0,
    ) -> None:
        self._clock = clock
        self._target = DeviceAddress(device, link.name)
        self._line = Line(link, clock, self._target)
        self._name = name
        self._baud = baud
        self._session_ids = session_ids or (lambda: secrets.randbelow(0xFFFF) + 1)
        self._first_seq = first_seq
        self._lock = fork_safe(TurnLock(clock.thread_event))
        self._owner = OwnerProcess()
        self._exchanging = False
        self._hello: HelloReply | None = None
        self._exchange: FramedExchange | None = None
        self._epoch = 0

    @property
    def device(self) -> str:
        """Device name, for messages."""
        return self._target.device

    @property
    def address(self) -> str:
        """Address of the link."""
        return self._target.address

    @property
    def belongs_to_other_process(self) -> bool:
        """Whether a different process opened the session. This process then sends nothing."""
        return self._owner.belongs_to_other_process

    def check_process(self) -> None:
        """Raise ``ForkError`` if a different process opened the session."""
        self._owner.check(self.address, self.device)

    @property
    def state(self) -> SessionState:
        """State of the session, such as open or lost."""
        return self._line.state

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._line.state in (SessionState.OPEN, SessionState.DEGRADED)

    @property
    def loss(self) -> Loss | None:
        """Cause of the loss of the session; ``None`` if it was not lost."""
        return self._line.loss

    @property
    def epoch(self) -> int:
        """Number of sessions opened so far. When it changes, subscriptions and unfinished settings are lost."""
        return self._epoch

    @property
    def hello(self) -> HelloReply:
        """HELLO reply of the controller. Raises ``LinkLost`` before the first session."""
        if self._hello is None:
            raise self.error(LinkLost, "the session has not been opened", hint="Call open() first.")
        return self._hello

    @property
    def fault_pending(self) -> bool:
        """Whether the controller last reported a latched fault."""
        return self._line.inbox.fault_pending

    @property
    def last_sent_s(self) -> float:
        """Time at which bytes were last sent, on the session's clock."""
        return self._line.last_sent_s

    @property
    def counters(self) -> Mapping[str, int]:
        """Counts of frames sent, received, dropped and repeated."""
        return Counter(self._line.inbox.counts)

    def take_fault_events(self) -> tuple[FaultRecord, ...]:
        """Return the fault events since the last call, oldest first. Events can be lost on the link."""
        if not self._line.inbox.faults:
            return ()
        with self._lock:
            events = tuple(self._line.inbox.faults)
            self._line.inbox.faults.clear()
            return events

    def transaction(self) -> AbstractContextManager[None]:
        """Lock the session for several requests; other threads wait."""
        return self._lock

    def require_open(self, label: str) -> None:
        """Raise ``LinkLost`` unless the session is open, and ``ForkError`` if a different process opened it."""
        self.check_process()
        if not self.is_open:
            raise self.error(LinkLost, f"{label}: the session is {self.state}.", hint="Open the device again.")

    def open(self, *, take_over: bool = False, is_reconnect: bool = False) -> HelloReply:
        """Open the link and a new session; an open session is replaced.

        Waits up to 3 s for a controller that restarts, and for the session of another host to end.

        Args:
            take_over: Whether to replace the session of another host immediately.
            is_reconnect: Whether to continue as the same host after a loss of the link (protocol section 4.1).

        Raises:
            ConnectError: The link cannot be opened.
            LinkTimeout: The controller did not answer.
            BusyError: Another host controls the device.
            DeviceError: The controller supports no protocol version that this host supports.
            FrameError: The reply describes an impossible controller.
        """
        self._owner.claim(self.address, self.device)
        with self._lock, self._exclusive_exchange("HELLO"):
            until = Deadline(self._clock.now() + HELLO_PATIENCE_S)
            if self.state is SessionState.LOST:
                self._line.link.close()
            self._line.link.open(until)
            self._line.state = SessionState.CLOSED
            session, seq = self._line.inbox.session, self._first_seq
            if is_reconnect and session and self._exchange is not None:
                # With the same id, the sequence numbers must differ from those of
                # the lost session, whose replies may still arrive.
                seq = (self._exchange.last_seq + _SEQ_LEAP) & 0xFFFF
            else:
                session = self._new_session_id()
            self._line.inbox.start(session)
            # Ends a partial frame of an earlier host (section 16).
            self._line.write(b"\0", "HELLO")
            hello, seq = self._exchange_hello(session, seq, take_over=take_over, until=until)
            self._hello = hello
            self._exchange = FramedExchange(self._line, self._clock, self._target, hello, self._baud, seq)
            self._epoch += 1
            self._line.state = SessionState.OPEN
            self._line.loss = None
            return hello

    def shorten_retries(self) -> None:
        """Do not repeat read requests longer than other requests until the next session; used when closing."""
        if self._exchange is not None:
            self._exchange.read_retry_s = 0.0

    def close(self) -> None:
        """Close the link; idempotent, never raises."""
        with self._lock:
            self._line.link.close()
            self._line.state = SessionState.CLOSED

    def request(self, message: Request[ReplyT]) -> ReplyT:
        """Send one request and return its reply.

        Raises:
            ForkError: A different process opened the session; nothing was sent.
            LinkLost: The link or the session is lost; call :meth:`open` again.
            LinkTimeout: No reply arrived; the link stays open. ``took_effect`` is ``False`` for a request that changes
                nothing, otherwise ``None`` for unknown.
            ConfigError: A value does not fit its field, or the request is too long.
            LumionError: The controller refused; see :func:`~lumion_hw.sessions.framed.errors.error_from_refusal`.
        """
        (reply,) = self.request_all([message])
        return cast(ReplyT, reply)

    def request_all(self, messages: Sequence[Request[Message]]) -> list[Message]:
        """Send requests that belong together and return their replies.

        If the controller misses a part of them or finds a wrong checksum, all are sent once more; a second failure
        raises ``VerifyError``. Raises the errors of :meth:`request`.
        """
        if not messages:
            return []
        name = messages[0].command.name
        with self._lock:
            self.require_open(name)
            self._refuse_nesting(name)
            try:
                self._exchanging = True
                return self._current_exchange().request_all(messages)
            finally:
                self._exchanging = False

    def request_if_idle(self, message: Request[ReplyT]) -> ReplyT | None:
        """Send a request and return its reply, or return ``None`` without sending if the session is busy or closed.

        Never waits for another thread. Raises the errors of :meth:`request`.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return self.request(message) if not self._exchanging and self.is_open else None
        finally:
            self._lock.release()

    def listen(self, stream: int, sink: Sink) -> None:
        """Pass the events of a stream to ``sink`` until :meth:`unlisten` or the next session."""
        with self._lock:
            self._line.inbox.listen(stream, sink)

    def unlisten(self, stream: int) -> None:
        """Stop passing the events of a stream to their receiver."""
        with self._lock:
            self._line.inbox.unlisten(stream)

    def wait_events(self, deadline: Deadline) -> None:
        """Read until data arrives, the deadline is reached, or another thread needs the session.

        Raises ``LinkLost``.
        """
        with self._lock:
            self.require_open("waiting for events")
            with self._exclusive_exchange("waiting for events"):
                turn_s = _TURN_S if self._lock.shared else math.inf
                self._line.read(Deadline(min(deadline, self._clock.now() + turn_s)), "waiting for events")

    def emergency_stop(self, timeout_s: float | None = None) -> EstopReply:
        """Send the emergency stop repeatedly until the board answers. Works in any state, even without a session.

        Args:
            timeout_s: Longest wait for the answer; ``None`` repeats without limit (protocol section 11.4).

        Raises:
            LinkTimeout: No answer within ``timeout_s``; the state of the outputs is unknown.
            LinkLost: The link is lost.
            ConnectError: The link cannot be opened.
        """
        self.check_process()
        if not self._lock.acquire(blocking=False):
            with suppress(LinkLost):  # the other thread is still opening the link; the frame is sent below
                self._line.write(ESTOP_WIRE, "ESTOP")
            self._lock.acquire()
        try:
            return self._stop(math.inf if timeout_s is None else timeout_s)
        finally:
            if not self.is_open:  # the link was opened only for the stop
                self._line.link.close()
            self._lock.release()

    def _stop(self, timeout_s: float) -> EstopReply:
        until = self._clock.now() + timeout_s
        self._line.link.open(Deadline(min(until, self._clock.now() + _STOP_OPEN_S)))
        expected = ExpectedReply(0, 0, Command.ESTOP, EstopReply)
        message = EstopRequest()
        rto_s = HELLO_RTO_S if self._exchange is None else self._exchange.rto_s(message)
        while True:
            answer = self._line.request(ESTOP_WIRE, expected, "ESTOP", Deadline(min(self._clock.now() + rto_s, until)))
            if isinstance(answer, EstopReply):
                return answer
            if isinstance(answer, Refusal):
                raise error_from_refusal(answer, message, self._target)
            if self._clock.now() >= until:
                raise self._line.timeout(
                    "ESTOP", timeout_s, "If the light must be switched off, disconnect the heater supply."
                )

    def _new_session_id(self) -> int:
        while True:
            session = self._session_ids()
            if session != self._line.inbox.session:
                return session

    def _exchange_hello(self, session: int, seq: int, *, take_over: bool, until: float) -> tuple[HelloReply, int]:
        # Only on request: two hosts that take over automatically would do so forever.
        flags = HelloFlag.TAKEOVER if take_over else 0
        message = HelloRequest(hello_flags=flags, host_rx_max=HOST_MTU, name=self._name)
        with encoding(message, self._target):
            payload = message.encode()
        retry = 0
        while True:
            wire = encode_frame(Frame(Kind.REQ, Command.HELLO, seq, session, retry, payload=payload))
            expected = ExpectedReply(session, seq, Command.HELLO, HelloReply)
            sent_s = self._clock.now()
            answer = self._line.request(wire, expected, "HELLO", Deadline(min(self._clock.now() + HELLO_RTO_S, until)))
            now_s = self._clock.now()
            if isinstance(answer, HelloReply):
                check_hello(answer, message, self._target)
                late_s = now_s - sent_s - retry_timeout_s(message, answer, self._baud) + MARGIN_S
                if not retry and late_s > MARGIN_S:  # a slow link; a shorter delay may be a single pause of the board
                    self._line.quality.record_answer(exchange_bytes(message, answer), 0, late_s)
                return answer, seq
            if isinstance(answer, Refusal):
                wait_s = max(answer.value * 1e-3, MIN_BUSY_WAIT_S)
                if answer.status != Status.BUSY or now_s + wait_s >= until:
                    raise error_from_refusal(answer, message, self._target)
                self._clock.sleep(wait_s)
                # A refusal is the final answer to its number (section 4.2), so a repeat needs a new one.
                seq, retry = (seq + 1) & 0xFFFF, 0
                continue
            if now_s >= until:
                raise self._line.timeout("HELLO", HELLO_PATIENCE_S, "Check the power of the controller and the port.")
            retry = HeaderFlag.RETRY
            self._line.inbox.counts["retries"] += 1

    def _refuse_nesting(self, label: str) -> None:
        if self._exchanging:
            raise self.error(
                BusyError,
                f"{label} was requested while this thread waits for another reply.",
                command=label,
                hint="In a function called by the clock, use request_if_idle().",
            )

    @contextmanager
    def _exclusive_exchange(self, label: str) -> Iterator[None]:
        self._refuse_nesting(label)
        try:
            self._exchanging = True
            yield
        finally:
            self._exchanging = False

    def _current_exchange(self) -> FramedExchange:
        if self._exchange is None:
            raise self.error(LinkLost, "the session was never opened", hint="Open it.")
        return self._exchange
