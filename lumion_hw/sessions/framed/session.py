"""The conversation with a mesh controller: sessions, sequence numbers, retry, deadlines (protocol sections 4, 6, 16).

A late, foreign or mismatched reply is counted and dropped, never raised, and a time-out leaves the port open: session,
sequence number and command tell every reply apart, so nothing has to be resynchronised.
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
from lumion_hw.sessions.framed.exchange import LEAST_BUSY_WAIT_S, FramedExchange
from lumion_hw.sessions.framed.inbox import Sink, Wanted
from lumion_hw.sessions.framed.line import HOST_MTU, Line, Loss, SessionState


class TurnLock:
    """A re-entrant lock that is handed on in the order in which it was asked for.

    A plain ``RLock`` is often won again by the thread that has just released it: whoever waits for events in short
    turns would make the others wait for several of them. Waiting is for an event of the clock, so that jobs side by
    side on a virtual clock, of which one at a time runs, can share a session as well.

    Args:
        event: Makes an event; that of the clock the session lives by.

    Attributes:
        shared: More than one thread has held it so far.
    """

    def __init__(self, event: Callable[[], ClockEvent] = threading.Event) -> None:
        self._event = event
        self._guard = threading.Lock()  # never held while time passes
        self._waiting: deque[tuple[int, ClockEvent]] = deque()
        self._owner = 0
        self._depth = 0
        self._first_owner = 0
        self.shared = False

    def _is_owned(self) -> bool:
        """Whether this thread holds it; named as in ``threading``, for :mod:`lumion_hw.links.owner`."""
        return self._owner == threading.get_ident()

    def _at_fork_reinit(self) -> None:
        """Be free: the thread that held it was left behind in another process."""
        self._guard = threading.Lock()
        self._waiting.clear()
        self._owner = self._depth = 0

    def acquire(self, *, blocking: bool = True) -> bool:
        """Take the lock; with ``blocking`` false return ``False`` at once when another thread has or awaits it."""
        me = threading.get_ident()
        with self._guard:
            if self._owner == me:
                self._depth += 1
                return True
            if not self._owner and not self._waiting:
                self._give_to(me)
                return True
            if not blocking:
                return False
            waiting = me, self._event()
            self._waiting.append(waiting)
        try:
            waiting[1].wait()
        except BaseException:  # Ctrl-C: others must not wait for a thread that has given up
            with self._guard:
                if waiting in self._waiting:
                    self._waiting.remove(waiting)
            if self._owner == me:
                self.release()
            raise
        return True

    def release(self) -> None:
        """Let the lock go; the thread that has waited longest has it then."""
        self._depth -= 1
        if self._depth:
            return
        with self._guard:
            self._owner = 0
            following = self._waiting.popleft() if self._waiting else None
            if following is not None:
                self._give_to(following[0])
        if following is not None:
            following[1].set()

    def _give_to(self, thread: int) -> None:
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

_TURN_S = 0.005  # longest time an idle wait for events keeps other threads waiting
_SEQ_LEAP = 0x4000  # far beyond every number whose reply could still be under way
# Opening may reset the board; an emergency stop waits no longer than HELLO does.
_STOP_OPEN_S = 3.0


class FramedSession(DeviceErrors):
    """One session with a mesh controller. Thread-safe; no threads of its own.

    Args:
        link: The link; opened by :meth:`open`.
        clock: The link's clock.
        device: Device name of the bench file, for messages.
        name: Host name the controller shows to a second host; at most 16 bytes of UTF-8.
        baud: Speed of the UART between host and controller in bit/s, for the time-outs; ``None`` for USB, pty and TCP.
        session_ids: Source of session ids 1…65535; random when not given.
        first_seq: Sequence number of the first HELLO; numbers wrap at 65536.
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
        self._lock = fork_safe(TurnLock(clock.own_event))
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
        """The link's name."""
        return self._target.address

    @property
    def belongs_to_other_process(self) -> bool:
        """Whether another process opened it: then nothing is sent from here."""
        return self._owner.belongs_to_other_process

    def check_process(self) -> None:
        """Raise ``ForkError`` if another process opened it."""
        self._owner.check(self.address, self.device)

    @property
    def state(self) -> SessionState:
        """Where the session stands."""
        return self._line.state

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._line.state in (SessionState.OPEN, SessionState.DEGRADED)

    @property
    def loss(self) -> Loss | None:
        """Why the session was lost; ``None`` if it was not."""
        return self._line.loss

    @property
    def epoch(self) -> int:
        """Number of sessions opened so far: a change means that subscriptions and staged tables are gone."""
        return self._epoch

    @property
    def hello(self) -> HelloReply:
        """What the controller said when the session was opened. Raises ``LinkLost`` before that."""
        if self._hello is None:
            raise self.error(LinkLost, "the session was never opened", hint="Open it.")
        return self._hello

    @property
    def fault_pending(self) -> bool:
        """Whether the newest frame of the session said that a fault is latched."""
        return self._line.inbox.fault_pending

    @property
    def last_sent_s(self) -> float:
        """When bytes were last sent, on the session's clock."""
        return self._line.last_sent_s

    @property
    def counters(self) -> Mapping[str, int]:
        """A snapshot of what was sent, received, dropped and retried since the session object was made.

        What never happened counts 0.
        """
        return Counter(self._line.inbox.counts)

    def take_fault_events(self) -> tuple[FaultRecord, ...]:
        """Return and forget the FAULT events seen so far, oldest first; events can be lost, FAULT_LIST is complete."""
        if not self._line.inbox.faults:
            return ()
        with self._lock:
            events = tuple(self._line.inbox.faults)
            self._line.inbox.faults.clear()
            return events

    def transaction(self) -> AbstractContextManager[None]:
        """Hold the session for several requests; other threads wait."""
        return self._lock

    def require_open(self, label: str) -> None:
        """Raise ``LinkLost`` unless the session is open, ``ForkError`` if another process opened it."""
        self.check_process()
        if not self.is_open:
            raise self.error(LinkLost, f"{label}: the session is {self.state}.", hint="Open the device again.")

    def open(self, *, take_over: bool = False, again: bool = False) -> HelloReply:
        """Open the link and a new session; an open session is replaced.

        HELLO is repeated for up to 3 s, because opening a port may reset the board. A live session of another host is
        waited for within that time, unless ``take_over``.

        Args:
            take_over: Replace a live session of another host.
            again: Use the id of the last session once more. The controller takes that for the same host coming back
                (section 4.1), and still refuses it if another host has come in between.

        Raises:
            ConnectError: The link cannot be opened.
            LinkTimeout: Nothing answered HELLO.
            BusyError: Another host holds the controller.
            DeviceError: The controller speaks no protocol this host knows.
            FrameError: The reply describes an impossible controller.
        """
        self._owner.claim(self.address, self.device)
        with self._lock, self._one_exchange("HELLO"):
            until = Deadline(self._clock.now() + HELLO_PATIENCE_S)
            if self.state is SessionState.LOST:
                self._line.link.close()
            self._line.link.open(until)
            self._line.state = SessionState.CLOSED
            session, seq = self._line.inbox.session, self._first_seq
            if again and session and self._exchange is not None:
                # Under the same id the numbers have to differ from those of
                # what was lost, whose replies may still arrive.
                seq = (self._exchange.last_seq + _SEQ_LEAP) & 0xFFFF
            else:
                session = self._new_session_id()
            self._line.inbox.start(session)
            # Ends what a host before us may have left half sent (section 16).
            self._line.write(b"\0", "HELLO")
            hello, seq = self._say_hello(session, seq, take_over=take_over, until=until)
            self._hello = hello
            self._exchange = FramedExchange(self._line, self._clock, self._target, hello, self._baud, seq)
            self._epoch += 1
            self._line.state = SessionState.OPEN
            self._line.loss = None
            return hello

    def shorten_retries(self) -> None:
        """Repeat questions no longer than other requests, until the next session: whoever closes does not wait."""
        if self._exchange is not None:
            self._exchange.question_patience_s = 0.0

    def close(self) -> None:
        """Close the link; idempotent, never raises."""
        with self._lock:
            self._line.link.close()
            self._line.state = SessionState.CLOSED

    def request(self, message: Request[ReplyT]) -> ReplyT:
        """Send one request and return its reply.

        Raises:
            ForkError: Another process opened the session; nothing was sent.
            LinkLost: The link or the session is gone; :meth:`open` attaches again.
            LinkTimeout: No answer to three sends or more, as the losses of the link ask for; the link stays open.
                ``took_effect`` is ``False`` for a question, which changes nothing, else ``None``: not known.
            ConfigError: The request cannot be put on the wire: a value does not fit its field, or it exceeds the MTU.
            LumionError: The controller refused; see :func:`~lumion_hw.sessions.framed.errors.error_from_refusal`.
        """
        (reply,) = self.request_all([message])
        return cast(ReplyT, reply)

    def request_all(self, messages: Sequence[Request[Message]]) -> list[Message]:
        """Send requests that belong together and return their replies; those marked P overlap within the window.

        What is answered INCOMPLETE because a piece before it was lost is sent again. If that does not help, or a
        checksum is wrong, all of them are sent once more; then it is a ``VerifyError``. Raises as :meth:`request`.
        """
        if not messages:
            return []
        name = messages[0].command.name
        with self._lock:
            self.require_open(name)
            self._refuse_nesting(name)
            try:
                self._exchanging = True
                return self._exchange_now().ask(messages)
            finally:
                self._exchanging = False

    def request_if_idle(self, message: Request[ReplyT]) -> ReplyT | None:
        """Send a request unless the session is busy or not open; never blocks on another transaction.

        For periodic actions: on a virtual clock they fire inside the waits of this very session.

        Returns:
            The reply, or ``None`` when nothing was sent. Raises as :meth:`request`.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return self.request(message) if not self._exchanging and self.is_open else None
        finally:
            self._lock.release()

    def listen(self, stream: int, sink: Sink) -> None:
        """Hand the events of a stream to ``sink`` until :meth:`unlisten` or the next session."""
        with self._lock:
            self._line.inbox.listen(stream, sink)

    def unlisten(self, stream: int) -> None:
        """Drop the events of a stream from now on."""
        with self._lock:
            self._line.inbox.unlisten(stream)

    def wait_events(self, deadline: Deadline) -> None:
        """Read until something arrives, the deadline is reached, or it is another thread's turn.

        Raises:
            LinkLost: The link or the session is gone.
        """
        with self._lock:
            self.require_open("waiting for events")
            with self._one_exchange("waiting for events"):
                turn_s = _TURN_S if self._lock.shared else math.inf
                self._line.read(Deadline(min(deadline, self._clock.now() + turn_s)), "waiting for events")

    def emergency_stop(self, patience_s: float | None = None) -> EstopReply:
        """Send the constant ESTOP frame every RTO until it is answered: outside of sessions, in any state.

        While another thread waits for a reply, the frame goes out at once and then again when it is done.

        Args:
            patience_s: Time after which no answer is an error; ``None`` repeats without limit (section 11.4).

        Raises:
            LinkTimeout: No answer within ``patience_s``; the state of the outputs is unknown to this host.
            LinkLost: The link is gone.
            ConnectError: The link cannot be opened.
        """
        self.check_process()
        if not self._lock.acquire(blocking=False):
            with suppress(LinkLost):  # while that thread is opening the link; then it is sent below
                self._line.write(ESTOP_WIRE, "ESTOP")
            self._lock.acquire()
        try:
            return self._stop(math.inf if patience_s is None else patience_s)
        finally:
            if not self.is_open:  # a link opened for this alone
                self._line.link.close()
            self._lock.release()

    def _stop(self, patience_s: float) -> EstopReply:
        until = self._clock.now() + patience_s
        self._line.link.open(Deadline(min(until, self._clock.now() + _STOP_OPEN_S)))
        wanted = Wanted(0, 0, Command.ESTOP, EstopReply)
        message = EstopRequest()
        rto_s = HELLO_RTO_S if self._exchange is None else self._exchange.rto_s(message)
        while True:
            answer = self._line.ask(ESTOP_WIRE, wanted, "ESTOP", Deadline(min(self._clock.now() + rto_s, until)))
            if isinstance(answer, EstopReply):
                return answer
            if isinstance(answer, Refusal):
                raise error_from_refusal(answer, message, self._target)
            if self._clock.now() >= until:
                raise self._line.timeout("ESTOP", patience_s, "Cut the heater supply by hand if light must go.")

    def _new_session_id(self) -> int:
        """Draw an id that differs from the present one, so that no old reply can be taken for a new one."""
        while True:
            session = self._session_ids()
            if session != self._line.inbox.session:
                return session

    def _say_hello(self, session: int, seq: int, *, take_over: bool, until: float) -> tuple[HelloReply, int]:
        # Only when asked: two hosts that take over from each other by themselves would do so for ever.
        flags = HelloFlag.TAKEOVER if take_over else 0
        message = HelloRequest(hello_flags=flags, host_rx_max=HOST_MTU, name=self._name)
        with encoding(message, self._target):
            payload = message.encode()
        retry = 0
        while True:
            wire = encode_frame(Frame(Kind.REQ, Command.HELLO, seq, session, retry, payload=payload))
            wanted = Wanted(session, seq, Command.HELLO, HelloReply)
            sent_s = self._clock.now()
            answer = self._line.ask(wire, wanted, "HELLO", Deadline(min(self._clock.now() + HELLO_RTO_S, until)))
            now = self._clock.now()
            if isinstance(answer, HelloReply):
                check_hello(answer, message, self._target)
                late_s = now - sent_s - retry_timeout_s(message, answer, self._baud) + MARGIN_S
                if not retry and late_s > MARGIN_S:  # a slow link; a short delay may be the board's own, once
                    self._line.quality.answered(exchange_bytes(message, answer), 0, late_s)
                return answer, seq
            if isinstance(answer, Refusal):
                wait_s = max(answer.value * 1e-3, LEAST_BUSY_WAIT_S)
                if answer.status != Status.BUSY or now + wait_s >= until:
                    raise error_from_refusal(answer, message, self._target)
                self._clock.sleep(wait_s)
                # A refusal is the final answer to its number (section 4.2): asking again takes a new one.
                seq, retry = (seq + 1) & 0xFFFF, 0
                continue
            if now >= until:
                raise self._line.timeout("HELLO", HELLO_PATIENCE_S, "Check its power, and that this is its port.")
            retry = HeaderFlag.RETRY
            self._line.inbox.counts["retries"] += 1

    def _refuse_nesting(self, label: str) -> None:
        """Raise ``BusyError`` while the session waits: a request from inside its own wait would mix conversations."""
        if self._exchanging:
            raise self.error(
                BusyError,
                f"{label} was asked for while this thread waits for another reply.",
                command=label,
                hint="Use request_if_idle() in actions of the clock.",
            )

    @contextmanager
    def _one_exchange(self, label: str) -> Iterator[None]:
        self._refuse_nesting(label)
        try:
            self._exchanging = True
            yield
        finally:
            self._exchanging = False

    def _exchange_now(self) -> FramedExchange:
        if self._exchange is None:
            raise self.error(LinkLost, "the session was never opened", hint="Open it.")
        return self._exchange
