"""The conversation with a mesh controller: sessions, sequence numbers, retry, deadlines (protocol sections 4, 6, 16).

One request is under way at a time. A late, foreign or mismatched reply is counted and dropped, never raised, and a
time-out leaves the port open: session, sequence number and command tell every reply apart, so nothing has to be
resynchronised.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import TypeVar, cast

from firmware_protocol import (
    DEADLINE_RTOS,
    ESTOP_WIRE,
    HELLO_PATIENCE_S,
    HELLO_RTO_S,
    SENDS,
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
    SendWindow,
    Status,
    encode_frame,
    retry_timeout_s,
)
from lumion_hw.clock import Clock
from lumion_hw.errors import BusyError, LinkLost, LinkTimeout
from lumion_hw.links.base import Link
from lumion_hw.sessions.framed_errors import Where, check_hello, encoding, error_from_refusal
from lumion_hw.sessions.framed_inbox import Inbox, Wanted

_log = logging.getLogger(__name__)

ReplyT = TypeVar("ReplyT", bound=Message)

HOST_MTU = 4096
"""Largest frame this host accepts, in bytes on the wire: the reference value for USB and TCP (section 2.4)."""

_LEAST_BUSY_WAIT_S = 0.01
_WRITE_PATIENCE_S = 1.0  # a write that hangs loses count of its bytes and with it the link, so it gets ample time
_RESENT = (Status.INCOMPLETE, Status.CRC_MISMATCH)


class SessionState(StrEnum):
    """Where a session stands: DEGRADED is open after a time-out until the next good reply, LOST needs ``open()``."""

    CLOSED = "closed"
    OPEN = "open"
    DEGRADED = "degraded"
    LOST = "lost"


class FramedSession:
    """One session with a mesh controller. Thread-safe; no threads of its own.

    Args:
        link: The link; opened by :meth:`open`.
        clock: The link's clock.
        device: Device name of the bench file, for messages.
        name: Host name the controller shows to a second host; at most 16 bytes of UTF-8.
        baud: Speed of the UART between host and controller in bit/s, for the time-outs; ``None`` for USB, pty and TCP.
        session_ids: Source of session ids 1…65535; random when not given.
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
    ) -> None:
        self._link = link
        self._clock = clock
        self._where = Where(device, link.name)
        self._name = name
        self._baud = baud
        self._session_ids = session_ids or (lambda: secrets.randbelow(0xFFFF) + 1)
        self._lock = threading.RLock()
        self._exchanging = False
        self._state = SessionState.CLOSED
        self._inbox = Inbox(HOST_MTU)
        self._hello: HelloReply | None = None
        self._window = SendWindow(1, 0)

    @property
    def device(self) -> str:
        """Device name, for messages."""
        return self._where.device

    @property
    def address(self) -> str:
        """The link's name."""
        return self._where.address

    @property
    def state(self) -> SessionState:
        """Where the session stands."""
        return self._state

    @property
    def hello(self) -> HelloReply:
        """What the controller said when the session was opened. Raises ``LinkLost`` before that."""
        if self._hello is None:
            raise LinkLost("the session was never opened", device=self.device, address=self.address, hint="Open it.")
        return self._hello

    @property
    def fault_pending(self) -> bool:
        """Whether the newest frame of the session said that a fault is latched."""
        return self._inbox.fault_pending

    @property
    def counters(self) -> Mapping[str, int]:
        """A snapshot of what was sent, received, dropped and retried since the session object was made."""
        return dict(self._inbox.counts)

    def take_fault_events(self) -> tuple[FaultRecord, ...]:
        """Return and forget the FAULT events seen so far, oldest first; events can be lost, FAULT_LIST is complete."""
        with self._lock:
            events = tuple(self._inbox.faults)
            self._inbox.faults.clear()
            return events

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the session for several requests; other threads wait."""
        with self._lock:
            yield

    def require_open(self, what: str) -> None:
        """Raise ``LinkLost`` unless the session is open."""
        if self._state not in (SessionState.OPEN, SessionState.DEGRADED):
            raise LinkLost(
                f"{what}: the session is {self._state}.",
                device=self.device,
                address=self.address,
                hint="Open the device again.",
            )

    def open(self, *, take_over: bool = False) -> HelloReply:
        """Open the link and a new session; an open session is replaced.

        HELLO is repeated for up to 3 s, because opening a port may reset the board. A live session of another host is
        waited for within that time, unless ``take_over``.

        Raises:
            ConnectError: The link cannot be opened.
            LinkTimeout: Nothing answered HELLO.
            BusyError: Another host holds the controller.
            DeviceError: The controller speaks no protocol this host knows.
            FrameError: The reply describes an impossible controller.
        """
        with self._lock, self._one_exchange("HELLO"):
            until = self._clock.now() + HELLO_PATIENCE_S
            if self._state is SessionState.LOST:
                self._link.close()
            self._link.open(until)
            self._state = SessionState.CLOSED
            session = self._new_session_id()
            self._inbox.start(session)
            self._write(b"\0", "HELLO")
            hello, seq = self._say_hello(session, take_over=take_over, until=until)
            self._hello = hello
            self._window = SendWindow(hello.window, seq)
            self._state = SessionState.OPEN
            return hello

    def close(self) -> None:
        """Close the link; idempotent, never raises."""
        with self._lock:
            self._link.close()
            self._state = SessionState.CLOSED

    def request(self, message: Request[ReplyT]) -> ReplyT:
        """Send one request and return its reply.

        Raises:
            LinkLost: The link or the session is gone; :meth:`open` attaches again.
            LinkTimeout: No answer to three sends within the deadline; the link stays open.
            ConfigError: The request cannot be put on the wire: a value does not fit its field, or it exceeds the MTU.
            LumionError: The controller refused; see :func:`~lumion_hw.sessions.framed_errors.error_from_refusal`.
        """
        (reply,) = self.request_all([message])
        return cast(ReplyT, reply)

    def request_all(self, messages: Sequence[Request[Message]]) -> list[Message]:
        """Send requests that belong together, one after the other, and return their replies.

        If one is answered INCOMPLETE or CRC_MISMATCH, all of them are sent once more; a second such answer is a
        ``VerifyError``. Raises as :meth:`request`.
        """
        with self._lock:
            for last_try in (False, True):
                replies: list[Message] = []
                for message in messages:
                    answer = self._ask(message)
                    if isinstance(answer, Refusal):
                        if answer.status in _RESENT and not last_try:
                            self._inbox.counts["resent"] += 1
                            break
                        if answer.status == Status.SESSION:
                            self._state = SessionState.LOST
                        raise error_from_refusal(answer, message, self._where)
                    replies.append(answer)
                else:
                    break
            return replies

    def request_if_idle(self, message: Request[ReplyT]) -> ReplyT | None:
        """Send a request unless the session is busy or not open; never blocks on another transaction.

        For periodic actions: on a virtual clock they fire inside the waits of this very session.

        Returns:
            The reply, or ``None`` when nothing was sent. Raises as :meth:`request`.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if self._exchanging or self._state not in (SessionState.OPEN, SessionState.DEGRADED):
                return None
            return self.request(message)
        finally:
            self._lock.release()

    def emergency_stop(self, patience_s: float) -> EstopReply:
        """Send the constant ESTOP frame every RTO until it is answered: outside of sessions, in any state.

        Args:
            patience_s: Time after which no answer is an error. The protocol repeats without limit; a call that never
                returns helps nobody, so choose a time after which the watchdog has acted.

        Raises:
            LinkTimeout: No answer; the state of the outputs is unknown to this host.
            LinkLost: The link is gone.
            ConnectError: The link cannot be opened.
        """
        with self._lock:
            until = self._clock.now() + patience_s
            self._link.open(until)
            wanted = Wanted(0, 0, Command.ESTOP, EstopReply)
            message = EstopRequest()
            rto_s = HELLO_RTO_S if self._hello is None else retry_timeout_s(message, self._hello, self._baud)
            while True:
                answer = self._send_and_wait(ESTOP_WIRE, wanted, min(self._clock.now() + rto_s, until))
                if isinstance(answer, EstopReply):
                    return answer
                if isinstance(answer, Refusal):
                    raise error_from_refusal(answer, message, self._where)
                if self._clock.now() >= until:
                    raise self._timeout("ESTOP", patience_s, "Cut the heater supply by hand if light must go.")

    def _new_session_id(self) -> int:
        """Draw an id that differs from the present one, so that no old reply can be taken for a new one."""
        while True:
            session = self._session_ids()
            if session != self._inbox.session:
                return session

    def _say_hello(self, session: int, *, take_over: bool, until: float) -> tuple[HelloReply, int]:
        flags = HelloFlag.TAKEOVER if take_over else 0
        message = HelloRequest(hello_flags=flags, host_rx_max=HOST_MTU, name=self._name)
        seq, retry = 0, False
        while True:
            wire = self._wire(message, seq, session, mtu=None, retry=retry)
            wanted = Wanted(session, seq, Command.HELLO, HelloReply)
            answer = self._send_and_wait(wire, wanted, min(self._clock.now() + HELLO_RTO_S, until))
            now = self._clock.now()
            if isinstance(answer, HelloReply):
                check_hello(answer, self._where)
                return answer, seq
            if isinstance(answer, Refusal):
                wait_s = max(answer.value * 1e-3, _LEAST_BUSY_WAIT_S)
                if answer.status != Status.BUSY or now + wait_s >= until:
                    raise error_from_refusal(answer, message, self._where)
                self._clock.sleep(wait_s)
                seq, retry = seq + 1, False
                continue
            if now >= until:
                raise self._timeout("HELLO", HELLO_PATIENCE_S, "Check its power, and that this is its port.")
            retry = True
            self._inbox.counts["retries"] += 1

    @contextmanager
    def _one_exchange(self, what: str) -> Iterator[None]:
        """Mark the session as waiting; a request from inside its own wait would mix two conversations."""
        if self._exchanging:
            raise BusyError(
                f"{what} was asked for while this thread waits for another reply.",
                command=what,
                device=self.device,
                address=self.address,
                hint="Use request_if_idle() in actions of the clock.",
            )
        self._exchanging = True
        try:
            yield
        finally:
            self._exchanging = False

    def _ask(self, message: Request[Message]) -> Message | Refusal:
        """Send one request; BUSY is asked again with a new number within the deadline of section 4.5."""
        self.require_open(message.command.name)
        with self._one_exchange(message.command.name):
            with encoding(message, self._where):
                rto_s = retry_timeout_s(message, self.hello, self._baud)
            until = self._clock.now() + DEADLINE_RTOS * rto_s
            while True:
                answer = self._exchange(message, rto_s)
                if not (isinstance(answer, Refusal) and answer.status == Status.BUSY):
                    return answer
                wait_s = max(answer.value * 1e-3, _LEAST_BUSY_WAIT_S)
                if self._clock.now() + wait_s >= until:
                    return answer
                self._inbox.counts["busy_waits"] += 1
                self._clock.sleep(wait_s)

    def _exchange(self, message: Request[Message], rto_s: float) -> Message | Refusal:
        """Send a request under one sequence number up to three times; the RTO doubles."""
        seq = self._window.take()
        session = self._inbox.session
        wanted = Wanted(session, seq, message.command, message.reply)
        start = self._clock.now()
        self._inbox.counts["requests"] += 1
        try:
            for attempt in range(SENDS):
                self._inbox.counts["retries"] += attempt > 0
                wire = self._wire(message, seq, session, mtu=self.hello.fw_rx_max, retry=attempt > 0)
                answer = self._send_and_wait(wire, wanted, self._clock.now() + rto_s * 2**attempt)
                if answer is not None:
                    self._state = SessionState.OPEN
                    return answer
        finally:
            self._window.settle(seq)
        self._state = SessionState.DEGRADED
        raise self._timeout(message.command.name, self._clock.now() - start, "The port stays open; try again.")

    def _wire(self, message: Request[Message], seq: int, session: int, *, mtu: int | None, retry: bool) -> bytes:
        flags = HeaderFlag.RETRY if retry else 0
        with encoding(message, self._where):
            return encode_frame(Frame(Kind.REQ, message.command, seq, session, flags, payload=message.encode()), mtu)

    def _send_and_wait(self, wire: bytes, wanted: Wanted, deadline: float) -> Message | Refusal | None:
        """Write and read until the wanted answer or the deadline; everything else is counted and dropped."""
        what = Command(wanted.command).name
        self._write(wire, what)
        while True:
            try:
                data = self._link.read(deadline)
            except LinkLost as error:
                raise self._lost(what, error) from error
            answer = self._inbox.take(data, wanted)
            if answer is not None or not data or self._clock.now() >= deadline:
                return answer

    def _write(self, wire: bytes, what: str) -> None:
        try:
            self._link.write(wire, self._clock.now() + _WRITE_PATIENCE_S)
        except LinkLost as error:
            raise self._lost(what, error) from error
        self._inbox.counts["tx_bytes"] += len(wire)

    def _lost(self, what: str, error: LinkLost) -> LinkLost:
        self._state = SessionState.LOST
        _log.warning("%s @ %s: link lost during %s: %s", self.device, self.address, what, error.message)
        return LinkLost(
            f"{what}: {error.message}.",
            device=self.device,
            address=self.address,
            hint="Check cable and power, then open the device again; its watchdog switches the outputs off.",
        )

    def _timeout(self, what: str, elapsed_s: float, hint: str) -> LinkTimeout:
        counts = self._inbox.counts
        counts["timeouts"] += 1
        seen = ", ".join(f"{name} {counts[name]}" for name in sorted(counts) if name not in ("requests", "tx_bytes"))
        if counts["echoes"]:
            hint = f"Own requests came back: an echo or a loop-back cable? {hint}"
        text = f"{what}: no answer within {elapsed_s * 1e3:.0f} ms; counters: {seen}."
        _log.warning("%s @ %s: %s", self.device, self.address, text)
        return LinkTimeout(text, device=self.device, address=self.address, hint=hint)
