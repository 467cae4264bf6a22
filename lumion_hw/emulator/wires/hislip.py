"""HiSLIP 1.0 in front of an emulated SCPI instrument: status byte, device clear, service requests, locks.

Sans I/O: a :class:`HislipFront` is an emulated device whose connections are the two channels of HiSLIP sessions, so any
server of byte streams serves it (IVI-6.1). Sessions run in synchronised mode; a message that arrives before the reply
to the last one was taken interrupts it (-410), as IEEE 488.2 asks.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lumion_hw.clock import Clock
from lumion_hw.emulator.wires.device import EmulatedDevice, MessagePeer
from lumion_hw.emulator.wires.hislip_frames import (
    MAX_PAYLOAD,
    BadHeader,
    HislipDecoder,
    HislipMessage,
    MessageType as Kind,
)
from lumion_hw.errors import ConfigError, LinkLost
from lumion_hw.links.base import Peer

FAILURE, SUCCESS, SUCCESS_SHARED, ERROR = range(4)
"""Answers to a request or a release."""


@dataclass(frozen=True)
class LockRequest:
    """A lock that another session asks for, and until when it waits."""

    key: bytes
    deadline_s: float


class HislipLocks:
    """Who may talk to the instrument. Sessions are known by their number.

    Args:
        clock: The injected clock.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._exclusive: int | None = None
        self._key = b""
        self._shared: set[int] = set()
        self._requests: dict[int, LockRequest] = {}

    def may_talk(self, session: int) -> bool:
        """Return whether no other session's lock is in the way."""
        if self._exclusive is not None:
            return self._exclusive == session
        return not self._shared or session in self._shared

    def request(self, session: int, key: bytes, timeout_s: float) -> int | None:
        """Ask for a lock: shared if ``key`` is not empty. ``None`` means that the answer comes by :meth:`decided`."""
        if session == self._exclusive or (key and session in self._shared) or session in self._requests:
            return ERROR
        if self._grant(session, key):
            return SUCCESS
        if timeout_s <= 0:
            return FAILURE
        self._requests[session] = LockRequest(key, self._clock.now() + timeout_s)
        return None

    def _grant(self, session: int, key: bytes) -> bool:
        if self._exclusive is not None:
            return False
        if key:
            if self._shared and key != self._key:
                return False
            self._key = key
            self._shared.add(session)
            return True
        if self._shared and session not in self._shared:
            return False
        self._exclusive = session
        return True

    def release(self, session: int) -> int:
        """Give up the exclusive lock, else the shared one."""
        if self._exclusive == session:
            self._exclusive = None
            return SUCCESS
        if session in self._shared:
            self._shared.remove(session)
            return SUCCESS_SHARED
        return ERROR

    def decided(self, session: int) -> int | None:
        """Return the answer to a request that had to wait, once."""
        request = self._requests.get(session)
        if request is None:
            return None
        granted = self._grant(session, request.key)
        if not granted and self._clock.now() < request.deadline_s:
            return None
        del self._requests[session]
        return SUCCESS if granted else FAILURE

    def next_event(self) -> float | None:
        """Return when a waiting request ends at the latest."""
        return min((request.deadline_s for request in self._requests.values()), default=None)

    def info(self) -> tuple[int, int]:
        """Return whether there is an exclusive lock (0 or 1), and how many sessions hold one."""
        holders = self._shared | ({self._exclusive} if self._exclusive is not None else set())
        return int(self._exclusive is not None), len(holders)

    def forget(self, session: int) -> None:
        """The session is gone, and with it its locks."""
        self._requests.pop(session, None)
        self._shared.discard(session)
        if self._exclusive == session:
            self._exclusive = None


_VERSION = 0x0100  # 1.0: major and minor byte
_VENDOR = struct.unpack("!H", b"LU")[0]
_UNRECOGNISED_TYPE, _TOO_LARGE = 1, 4  # codes of an Error: the conversation goes on
_POORLY_FORMED, _NOT_ESTABLISHED, _BAD_SEQUENCE, _TOO_MANY = 1, 2, 3, 4  # codes of a FatalError
_MOST_SESSIONS = 32
CHANNELS_PER_SESSION = 2
"""A synchronous and an asynchronous one, each a connection of its own."""
_WAITING_LIMIT = 64
"""Messages kept for a session that another one's lock holds back."""


class HislipFront:
    """Serves one instrument by HiSLIP (:class:`~lumion_hw.emulator.wires.device.EmulatedDevice`).

    Args:
        device: The instrument; its connections are :class:`MessagePeer`.
        clock: The injected clock.

    Raises:
        ConfigError: The device exchanges no messages.
        ConnectError: The device refuses connections.
    """

    def __init__(self, device: EmulatedDevice, clock: Clock) -> None:
        self._device = device
        self.clock = clock
        self.locks = HislipLocks(clock)
        self.sessions: dict[int, HislipSession] = {}
        self._next_session = 1
        # Refuse now, not with the first host.
        self._message_peer().close()

    @property
    def name(self) -> str:
        """Device name of the bench file."""
        return self._device.name

    def connect(self) -> Peer:
        """Open one more channel; the host says which with its first message."""
        return _Channel(self)

    def advance(self) -> None:
        """Bring the instrument to the clock's present time."""
        self._device.advance()

    def next_due(self) -> float | None:
        """Return when the instrument has something to do by itself."""
        return self._device.next_due()

    def _message_peer(self) -> MessagePeer:
        peer = self._device.connect()
        if not isinstance(peer, MessagePeer):
            peer.close()
            raise ConfigError(f"{self.name} exchanges no messages, so HiSLIP cannot serve it", device=self.name)
        return peer

    def open_session(self) -> HislipSession | None:
        """Open a session, or return ``None`` when there are too many."""
        if len(self.sessions) >= _MOST_SESSIONS:
            return None
        number = self._next_session
        self._next_session = number % 0xFFFF + 1  # 16 bits on the wire, from 1
        self.sessions[number] = HislipSession(self, number, self._message_peer())
        return self.sessions[number]

    def close_session(self, session: HislipSession) -> None:
        """Close a session; its locks are released."""
        if self.sessions.get(session.number) is session:
            del self.sessions[session.number]
            self.locks.forget(session.number)
            session.peer.close()


class HislipSession:
    """Both channels of one host.

    Attributes:
        number: Session id.
        peer: The host's connection to the instrument.
        established: Both channels are there.
        alarms: Messages for the asynchronous channel.
    """

    def __init__(self, front: HislipFront, number: int, peer: MessagePeer) -> None:
        self._front = front
        self.number = number
        self.peer = peer
        self.established = False
        self.alarms = bytearray()
        self._replies = bytearray()
        self._waiting: deque[HislipMessage] = deque()
        self._largest = MAX_PAYLOAD
        self._clearing = self._in_message = False
        self._message_id = 0
        self._untaken = False
        self._served = 0
        self._requesting = False

    # -- synchronous channel

    def synchronous(self, message: HislipMessage) -> None:
        """Take a message of the synchronous channel, or keep it while another session's lock is in force."""
        if message.kind == Kind.DEVICE_CLEAR_COMPLETE:
            self._clearing = False
            self._replies += HislipMessage(Kind.DEVICE_CLEAR_ACKNOWLEDGE, 0).encode()
        # What arrives between the two messages of a device clear was under way before it, and is dropped.
        elif not self._clearing and len(self._waiting) < _WAITING_LIMIT:
            self._waiting.append(message)
            self.proceed()

    def proceed(self) -> None:
        """Carry out what is kept, if the locks let it."""
        while self._waiting and self._front.locks.may_talk(self.number):
            message = self._waiting.popleft()
            if not self._in_message:
                self._begin(message)
            self._message_id = message.parameter
            self.peer.receive(b"*TRG\n" if message.kind == Kind.TRIGGER else message.payload)
            self._in_message = message.kind == Kind.DATA
            if not self._in_message:
                self.peer.end_message()

    def _begin(self, message: HislipMessage) -> None:
        """A new message: was the reply to the last one taken?"""
        if message.control & 1:
            self._untaken = False
        if self._untaken or self.peer.response_pending:
            self._untaken = False
            self.peer.interrupt()
            self._replies.clear()
            # Both channels are told: the host may be waiting on either.
            self._replies += HislipMessage(Kind.INTERRUPTED, 0, message.parameter).encode()
            self.alarms += HislipMessage(Kind.ASYNC_INTERRUPTED, 0, message.parameter).encode()

    def replies(self) -> bytes:
        """Return what the synchronous channel has to send."""
        self.proceed()
        reply = self.peer.transmit()
        room = max(self._largest - 16, 1)  # the header of 16 bytes counts
        for start in range(0, len(reply), room):
            last = start + room >= len(reply)
            kind = Kind.DATA_END if last else Kind.DATA
            self._replies += HislipMessage(kind, 0, self._message_id, reply[start : start + room]).encode()
            self._untaken = True
        taken, self._replies = bytes(self._replies), bytearray()
        return taken

    @property
    def next_event(self) -> float | None:
        """When the synchronous channel may have more to send."""
        return self._front.clock.now() if self._replies else self.peer.next_event()

    # -- asynchronous channel

    def asynchronous(self, message: HislipMessage) -> HislipMessage | None:
        """Answer a message of the asynchronous channel; ``None`` if the answer comes later or there is none."""
        action = _ASYNCHRONOUS.get(message.kind)
        if action is None:
            return _error(_UNRECOGNISED_TYPE)
        return action(self, message)

    def set_largest(self, message: HislipMessage) -> HislipMessage:
        """Agree on the longest message."""
        if len(message.payload) == 8:
            self._largest = max(17, min(struct.unpack("!Q", message.payload)[0], MAX_PAYLOAD))
        return HislipMessage(Kind.ASYNC_MAX_MSG_SIZE_RESPONSE, payload=struct.pack("!Q", MAX_PAYLOAD))

    def status(self, message: HislipMessage) -> HislipMessage:
        """Answer a serial poll; bit 6 is the request for service, which the poll ends."""
        if message.control & 1:
            self._untaken = False
        byte = self._status_byte() & ~64 | 64 * self._requesting
        self._requesting = False
        return HislipMessage(Kind.ASYNC_STATUS_RESPONSE, byte)

    def _status_byte(self) -> int:
        byte, _ = self.peer.serial_poll()
        return byte | 16 * (self._untaken or bool(self._replies))

    def watch(self) -> None:
        """Request service when a new reason for it has come up."""
        _, mask = self.peer.serial_poll()
        reasons = self._status_byte() & mask & ~64
        # A reason that lasts asks once, as on GPIB.
        if reasons & ~self._served:
            self._requesting = True
            self.alarms += HislipMessage(Kind.ASYNC_SERVICE_REQUEST, self._status_byte() | 64).encode()
        self._served = reasons
        granted = self._front.locks.decided(self.number)
        if granted is not None:
            self.alarms += HislipMessage(Kind.ASYNC_LOCK_RESPONSE, granted).encode()

    def clear(self, message: HislipMessage) -> HislipMessage:
        """Forget everything under way, up to the host's word that the synchronous channel is clear."""
        del message
        self._clearing, self._in_message, self._untaken = True, False, False
        self._waiting.clear()
        self._replies.clear()
        self.peer.device_clear()
        return HislipMessage(Kind.ASYNC_DEVICE_CLEAR_ACKNOWLEDGE, 0)

    def lock(self, message: HislipMessage) -> HislipMessage | None:
        """Take or release a lock."""
        locks = self._front.locks
        if message.control & 1:
            answer = locks.request(self.number, message.payload, message.parameter * 1e-3)
        else:
            answer = locks.release(self.number)
        return None if answer is None else HislipMessage(Kind.ASYNC_LOCK_RESPONSE, answer)

    def lock_info(self, message: HislipMessage) -> HislipMessage:
        """Tell whether there is an exclusive lock, and how many sessions hold one."""
        del message
        exclusive, holders = self._front.locks.info()
        return HislipMessage(Kind.ASYNC_LOCK_INFO_RESPONSE, exclusive, holders)

    def remote_local(self, message: HislipMessage) -> HislipMessage:
        """Accept remote and local: there is no front panel."""
        del message
        return HislipMessage(Kind.ASYNC_REMOTE_LOCAL_RESPONSE)

    def hang_up(self) -> None:
        """One of the channels is gone."""
        self._front.close_session(self)


_ASYNCHRONOUS: Mapping[int, Callable[[HislipSession, HislipMessage], HislipMessage | None]] = {
    Kind.ASYNC_MAX_MSG_SIZE: HislipSession.set_largest,
    Kind.ASYNC_STATUS_QUERY: HislipSession.status,
    Kind.ASYNC_DEVICE_CLEAR: HislipSession.clear,
    Kind.ASYNC_LOCK: HislipSession.lock,
    Kind.ASYNC_LOCK_INFO: HislipSession.lock_info,
    Kind.ASYNC_REMOTE_LOCAL_CONTROL: HislipSession.remote_local,
    Kind.ERROR: lambda _session, _message: None,
}
_SYNCHRONOUS = (Kind.DATA, Kind.DATA_END, Kind.TRIGGER, Kind.DEVICE_CLEAR_COMPLETE)


def _error(code: int) -> HislipMessage:
    return HislipMessage(Kind.ERROR, code)


class _Channel:
    """One TCP connection: the synchronous or the asynchronous channel, or neither yet."""

    def __init__(self, front: HislipFront) -> None:
        self._front = front
        self._decoder = HislipDecoder()
        self._session: HislipSession | None = None
        self._is_asynchronous = False
        self._output = bytearray()
        self._over = False

    def receive(self, data: bytes) -> None:
        """Take bytes from the host."""
        if self._over:
            return
        self._decoder.feed(data)
        try:
            while not self._over and (message := self._decoder.next()) is not None:
                self._take(message)
        except BadHeader:
            self._fail(_POORLY_FORMED)

    def _take(self, message: HislipMessage) -> None:
        session = self._session
        if message.oversized:
            self._output += _error(_TOO_LARGE).encode()  # its payload was skipped, so the stream is still in step
        elif session is None:
            self._initialize(message)
        elif message.kind == Kind.FATAL_ERROR:
            self._over = True
        elif self._is_asynchronous:
            answer = session.asynchronous(message)
            self._output += answer.encode() if answer is not None else b""
        elif not session.established:
            self._fail(_NOT_ESTABLISHED)
        elif message.kind in _SYNCHRONOUS:
            session.synchronous(message)
        elif message.kind != Kind.ERROR:
            self._output += _error(_UNRECOGNISED_TYPE).encode()

    def _initialize(self, message: HislipMessage) -> None:
        if message.kind == Kind.INITIALIZE:
            session = self._front.open_session()
            if session is None:
                self._fail(_TOO_MANY)
                return
            self._session = session
            parameter = _VERSION << 16 | session.number
            self._output += HislipMessage(Kind.INITIALIZE_RESPONSE, 0, parameter).encode()
            return
        found = self._front.sessions.get(message.parameter) if message.kind == Kind.ASYNC_INITIALIZE else None
        # The second connection names the session of the first; a third one would be an intruder.
        if found is None or found.established:
            self._fail(_BAD_SEQUENCE)
            return
        found.established = self._is_asynchronous = True
        self._session = found
        self._output += HislipMessage(Kind.ASYNC_INITIALIZE_RESPONSE, 0, _VENDOR).encode()

    def _fail(self, code: int) -> None:
        self._output += HislipMessage(Kind.FATAL_ERROR, code).encode()
        self._over = True

    def transmit(self) -> bytes:
        """Return what is for the host by now. Raises ``LinkLost`` once the conversation is over."""
        session = self._session
        if session is not None and not self._over:
            # The other channel has ended the session, or its number has been given out again.
            if session.number not in self._front.sessions or self._front.sessions[session.number] is not session:
                self._over = True
            elif self._is_asynchronous:
                session.watch()
                self._output += session.alarms
                session.alarms.clear()
            else:
                self._output += session.replies()
        if self._over and not self._output:
            raise LinkLost("the HiSLIP conversation is over", device=self._front.name)
        taken, self._output = bytes(self._output), bytearray()
        return taken

    def next_event(self) -> float | None:
        """Return when there may be more to transmit."""
        if self._output or self._over:
            return self._front.clock.now()
        if self._session is None:
            return None
        if self._is_asynchronous:
            return self._front.clock.now() if self._session.alarms else self._front.locks.next_event()
        return self._session.next_event

    def close(self) -> None:
        """The host went away: a session needs both its channels."""
        self._over = True
        if self._session is not None:
            self._session.hang_up()
