"""HiSLIP 1.0 server (IVI-6.1) for an emulated SCPI instrument.

Any server of byte streams can serve a :class:`HislipFront`; the connections are the two channels of HiSLIP sessions. In
synchronised mode a message discards the last reply if the host has not read it (error -410, IEEE 488.2).
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
"""Results of a lock request or release."""


@dataclass(frozen=True)
class LockRequest:
    """A waiting lock request, with deadline."""

    key: bytes
    deadline_s: float


class HislipLocks:
    """Locks of one instrument, by session number."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._exclusive: int | None = None
        self._key = b""
        self._shared: set[int] = set()
        self._requests: dict[int, LockRequest] = {}

    def may_talk(self, session: int) -> bool:
        """Return whether a session may use the instrument."""
        if self._exclusive is not None:
            return self._exclusive == session
        return not self._shared or session in self._shared

    def request(self, session: int, key: bytes, timeout_s: float) -> int | None:
        """Request a lock, shared if ``key`` is not empty. Return the result, or ``None`` while the request waits."""
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
        """Release the session's exclusive lock; if there is none, the shared lock."""
        if self._exclusive == session:
            self._exclusive = None
            return SUCCESS
        if session in self._shared:
            self._shared.remove(session)
            return SUCCESS_SHARED
        return ERROR

    def take_result(self, session: int) -> int | None:
        """Return the result of a waiting lock request; ``None`` while it waits."""
        request = self._requests.get(session)
        if request is None:
            return None
        granted = self._grant(session, request.key)
        if not granted and self._clock.now() < request.deadline_s:
            return None
        del self._requests[session]
        return SUCCESS if granted else FAILURE

    def next_event(self) -> float | None:
        """Return the time at which the next waiting lock request expires."""
        return min((request.deadline_s for request in self._requests.values()), default=None)

    def info(self) -> tuple[int, int]:
        """Return the number of exclusive locks (0 or 1) and of sessions with a lock."""
        holders = self._shared | ({self._exclusive} if self._exclusive is not None else set())
        return int(self._exclusive is not None), len(holders)

    def release_all(self, session: int) -> None:
        """Release all locks and drop all lock requests of a session."""
        self._requests.pop(session, None)
        self._shared.discard(session)
        if self._exclusive == session:
            self._exclusive = None


_VERSION = 0x0100  # 1.0: major and minor byte
_VENDOR = struct.unpack("!H", b"LU")[0]
_UNRECOGNISED_TYPE, _TOO_LARGE = 1, 4  # codes of an Error message; the session continues
_POORLY_FORMED, _NOT_ESTABLISHED, _BAD_SEQUENCE, _TOO_MANY_CLIENTS = 1, 2, 3, 4  # codes of a FatalError
_MAX_SESSIONS = 32
CHANNELS_PER_SESSION = 2
"""Channels of a session: one synchronous, one asynchronous."""
_WAITING_LIMIT = 64
"""Largest number of messages stored for a session that waits for a lock."""


class HislipFront:
    """Serves one instrument by HiSLIP.

    Args:
        device: The instrument, which must have :class:`MessagePeer` connections, else ``ConfigError``. Must accept a
            connection, else ``ConnectError``.
    """

    def __init__(self, device: EmulatedDevice, clock: Clock) -> None:
        self._device = device
        self.clock = clock
        self.locks = HislipLocks(clock)
        self.sessions: dict[int, HislipSession] = {}
        self._next_session = 1
        # An unsuitable device is rejected here, not when the first host connects.
        self._message_peer().close()

    @property
    def name(self) -> str:
        """Device name in the bench file."""
        return self._device.name

    def connect(self) -> Peer:
        """Open another channel. The host's first message makes it synchronous or asynchronous."""
        return _Channel(self)

    def advance(self) -> None:
        """Advance the instrument to the clock's present time."""
        self._device.advance()

    def next_due(self) -> float | None:
        """Return the next time at which the instrument changes without a host."""
        return self._device.next_due()

    def _message_peer(self) -> MessagePeer:
        peer = self._device.connect()
        if not isinstance(peer, MessagePeer):
            peer.close()
            raise ConfigError(
                f"{self.name} sends a byte stream, not IEEE 488.2 messages, so HiSLIP cannot serve it", device=self.name
            )
        return peer

    def open_session(self) -> HislipSession | None:
        """Open a session; ``None`` if there are too many."""
        if len(self.sessions) >= _MAX_SESSIONS:
            return None
        number = self._next_session
        self._next_session = number % 0xFFFF + 1  # 16 bits on the wire, starting at 1
        self.sessions[number] = HislipSession(self, number, self._message_peer())
        return self.sessions[number]

    def close_session(self, session: HislipSession) -> None:
        """Close a session and release its locks."""
        if self.sessions.get(session.number) is session:
            del self.sessions[session.number]
            self.locks.release_all(session.number)
            session.peer.close()


class HislipSession:
    """One HiSLIP session: the synchronous and the asynchronous channel of one host.

    Attributes:
        established: Whether both channels are connected.
        alarms: Messages to send on the asynchronous channel.
    """

    def __init__(self, front: HislipFront, number: int, peer: MessagePeer) -> None:
        self._front = front
        self.number = number
        self.peer = peer
        self.established = False
        self.alarms = bytearray()
        self._replies = bytearray()
        self._waiting: deque[HislipMessage] = deque()
        self._max_message = MAX_PAYLOAD
        self._clearing = self._in_message = False
        self._message_id = 0
        self._reply_is_unread = False
        self._reported_reasons = 0
        self._service_requested = False

    # -- synchronous channel

    def handle_synchronous(self, message: HislipMessage) -> None:
        """Carry out a message of the synchronous channel, or store it while another session holds a lock."""
        if message.kind == Kind.DEVICE_CLEAR_COMPLETE:
            self._clearing = False
            self._replies += HislipMessage(Kind.DEVICE_CLEAR_ACKNOWLEDGE, 0).encode()
        # Messages between the two messages of a device clear were sent before it, and are dropped.
        elif not self._clearing and len(self._waiting) < _WAITING_LIMIT:
            self._waiting.append(message)
            self.run_waiting()

    def run_waiting(self) -> None:
        """Carry out the stored messages unless another session's lock prevents it."""
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
        if message.control & 1:
            self._reply_is_unread = False
        if self._reply_is_unread or self.peer.response_pending:
            self._reply_is_unread = False
            self.peer.interrupt()
            self._replies.clear()
            # Both channels are informed, because the host may be waiting on either.
            self._replies += HislipMessage(Kind.INTERRUPTED, 0, message.parameter).encode()
            self.alarms += HislipMessage(Kind.ASYNC_INTERRUPTED, 0, message.parameter).encode()

    def take_replies(self) -> bytes:
        """Return the bytes to send on the synchronous channel."""
        self.run_waiting()
        reply = self.peer.transmit()
        max_payload = max(self._max_message - 16, 1)  # 16 bytes of each message are its header
        for start in range(0, len(reply), max_payload):
            is_last = start + max_payload >= len(reply)
            kind = Kind.DATA_END if is_last else Kind.DATA
            self._replies += HislipMessage(kind, 0, self._message_id, reply[start : start + max_payload]).encode()
            self._reply_is_unread = True
        output, self._replies = bytes(self._replies), bytearray()
        return output

    @property
    def next_event(self) -> float | None:
        """Return the time at which the synchronous channel may have more to send."""
        return self._front.clock.now() if self._replies else self.peer.next_event()

    # -- asynchronous channel

    def handle_asynchronous(self, message: HislipMessage) -> HislipMessage | None:
        """Return the reply to a message of the asynchronous channel; ``None`` if the reply comes later or never."""
        action = _ASYNCHRONOUS.get(message.kind)
        if action is None:
            return _error(_UNRECOGNISED_TYPE)
        return action(self, message)

    def negotiate_size(self, message: HislipMessage) -> HislipMessage:
        """Negotiate the maximum message size."""
        if len(message.payload) == 8:
            self._max_message = max(17, min(struct.unpack("!Q", message.payload)[0], MAX_PAYLOAD))
        return HislipMessage(Kind.ASYNC_MAX_MSG_SIZE_RESPONSE, payload=struct.pack("!Q", MAX_PAYLOAD))

    def serial_poll_reply(self, message: HislipMessage) -> HislipMessage:
        """Return the reply to a serial poll, which clears the service request (bit 6)."""
        if message.control & 1:
            self._reply_is_unread = False
        byte = self._status_byte() & ~64 | 64 * self._service_requested
        self._service_requested = False
        return HislipMessage(Kind.ASYNC_STATUS_RESPONSE, byte)

    def _status_byte(self) -> int:
        byte, _ = self.peer.serial_poll()
        return byte | 16 * (self._reply_is_unread or bool(self._replies))

    def check_service_request(self) -> None:
        """Send a service request for a new reason, and the result of a waiting lock request."""
        _, mask = self.peer.serial_poll()
        reasons = self._status_byte() & mask & ~64
        # A persistent reason requests service only once, as on GPIB.
        if reasons & ~self._reported_reasons:
            self._service_requested = True
            self.alarms += HislipMessage(Kind.ASYNC_SERVICE_REQUEST, self._status_byte() | 64).encode()
        self._reported_reasons = reasons
        granted = self._front.locks.take_result(self.number)
        if granted is not None:
            self.alarms += HislipMessage(Kind.ASYNC_LOCK_RESPONSE, granted).encode()

    def start_device_clear(self, message: HislipMessage) -> HislipMessage:
        """Discard everything in progress and all messages until the host confirms the clear."""
        del message
        self._clearing, self._in_message, self._reply_is_unread = True, False, False
        self._waiting.clear()
        self._replies.clear()
        self.peer.device_clear()
        return HislipMessage(Kind.ASYNC_DEVICE_CLEAR_ACKNOWLEDGE, 0)

    def lock(self, message: HislipMessage) -> HislipMessage | None:
        """Acquire or release a lock."""
        locks = self._front.locks
        if message.control & 1:
            answer = locks.request(self.number, message.payload, message.parameter * 1e-3)
        else:
            answer = locks.release(self.number)
        return None if answer is None else HislipMessage(Kind.ASYNC_LOCK_RESPONSE, answer)

    def lock_info(self, message: HislipMessage) -> HislipMessage:
        """Return the reply to a lock info message: number of exclusive locks and of sessions with a lock."""
        del message
        exclusive, holders = self._front.locks.info()
        return HislipMessage(Kind.ASYNC_LOCK_INFO_RESPONSE, exclusive, holders)

    def remote_local(self, message: HislipMessage) -> HislipMessage:
        """Accept remote and local control, without effect."""
        del message
        return HislipMessage(Kind.ASYNC_REMOTE_LOCAL_RESPONSE)

    def close(self) -> None:
        """Close the session because one of its channels has closed."""
        self._front.close_session(self)


_ASYNCHRONOUS: Mapping[int, Callable[[HislipSession, HislipMessage], HislipMessage | None]] = {
    Kind.ASYNC_MAX_MSG_SIZE: HislipSession.negotiate_size,
    Kind.ASYNC_STATUS_QUERY: HislipSession.serial_poll_reply,
    Kind.ASYNC_DEVICE_CLEAR: HislipSession.start_device_clear,
    Kind.ASYNC_LOCK: HislipSession.lock,
    Kind.ASYNC_LOCK_INFO: HislipSession.lock_info,
    Kind.ASYNC_REMOTE_LOCAL_CONTROL: HislipSession.remote_local,
    Kind.ERROR: lambda _session, _message: None,
}
_SYNCHRONOUS = (Kind.DATA, Kind.DATA_END, Kind.TRIGGER, Kind.DEVICE_CLEAR_COMPLETE)


def _error(code: int) -> HislipMessage:
    return HislipMessage(Kind.ERROR, code)


class _Channel:
    """One TCP connection of a HiSLIP session: its synchronous or asynchronous channel."""

    def __init__(self, front: HislipFront) -> None:
        self._front = front
        self._decoder = HislipDecoder()
        self._session: HislipSession | None = None
        self._is_asynchronous = False
        self._output = bytearray()
        self._ended = False

    def receive(self, data: bytes) -> None:
        """Process the messages that the received bytes complete; an invalid header ends the session."""
        if self._ended:
            return
        self._decoder.feed(data)
        try:
            while not self._ended and (message := self._decoder.next()) is not None:
                self._process(message)
        except BadHeader:
            self._fail(_POORLY_FORMED)

    def _process(self, message: HislipMessage) -> None:
        session = self._session
        if message.oversized:
            self._output += _error(_TOO_LARGE).encode()  # its payload was skipped, so the stream is still synchronized
        elif session is None:
            self._initialize(message)
        elif message.kind == Kind.FATAL_ERROR:
            self._ended = True
        elif self._is_asynchronous:
            answer = session.handle_asynchronous(message)
            self._output += answer.encode() if answer is not None else b""
        elif not session.established:
            self._fail(_NOT_ESTABLISHED)
        elif message.kind in _SYNCHRONOUS:
            session.handle_synchronous(message)
        elif message.kind != Kind.ERROR:
            self._output += _error(_UNRECOGNISED_TYPE).encode()

    def _initialize(self, message: HislipMessage) -> None:
        if message.kind == Kind.INITIALIZE:
            session = self._front.open_session()
            if session is None:
                self._fail(_TOO_MANY_CLIENTS)
                return
            self._session = session
            parameter = _VERSION << 16 | session.number
            self._output += HislipMessage(Kind.INITIALIZE_RESPONSE, 0, parameter).encode()
            return
        session_to_join = self._front.sessions.get(message.parameter) if message.kind == Kind.ASYNC_INITIALIZE else None
        # The second connection names the session of the first; a third one is an error.
        if session_to_join is None or session_to_join.established:
            self._fail(_BAD_SEQUENCE)
            return
        session_to_join.established = self._is_asynchronous = True
        self._session = session_to_join
        self._output += HislipMessage(Kind.ASYNC_INITIALIZE_RESPONSE, 0, _VENDOR).encode()

    def _fail(self, code: int) -> None:
        self._output += HislipMessage(Kind.FATAL_ERROR, code).encode()
        self._ended = True

    def transmit(self) -> bytes:
        """Return the bytes to send. Raises ``LinkLost`` after the last byte of an ended session."""
        session = self._session
        if session is not None and not self._ended:
            # The other channel has ended the session, or its number has been assigned to a new session.
            if session.number not in self._front.sessions or self._front.sessions[session.number] is not session:
                self._ended = True
            elif self._is_asynchronous:
                session.check_service_request()
                self._output += session.alarms
                session.alarms.clear()
            else:
                self._output += session.take_replies()
        if self._ended and not self._output:
            raise LinkLost("the HiSLIP session has ended", device=self._front.name)
        output, self._output = bytes(self._output), bytearray()
        return output

    def next_event(self) -> float | None:
        """Return the time at which the channel next has bytes to send; ``None`` before the session starts."""
        if self._output or self._ended:
            return self._front.clock.now()
        if self._session is None:
            return None
        if self._is_asynchronous:
            return self._front.clock.now() if self._session.alarms else self._front.locks.next_event()
        return self._session.next_event

    def close(self) -> None:
        """End the session that uses this channel."""
        self._ended = True
        if self._session is not None:
            self._session.close()
