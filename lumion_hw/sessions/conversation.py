"""Base of the sessions with a byte stream.

After a time-out, a late reply could be taken for the reply to the next query. So a session whose exchange failed is
marked *out of sync*, and accepts no reply until it has been synchronized again.
"""

from __future__ import annotations

import abc
import logging
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

from lumion_hw.clock import Clock, Deadline
from lumion_hw.errors import DeviceError, DeviceErrors, FrameError, LinkLost, LinkTimeout, LumionError
from lumion_hw.links.base import BulkLink, Link
from lumion_hw.links.owner import OwnerProcess, fork_safe

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")

# Keeps a device that has lost its line ends from filling the memory.
_LINE_LIMIT_BYTES = 1 << 20
_MAX_PRINTED_BYTES = 60
# Limits the wait of a resynchronisation after a long measurement.
_LONGEST_QUIET_S = 1.0
# Larger blocks are received directly into their buffer: the log of a million samples is 4 MB.
_BULK_BYTES = 1 << 16
# Weak references, so that the lock of an address is deleted with its last session.
_locks: weakref.WeakValueDictionary[str, threading.RLock] = weakref.WeakValueDictionary()
_locks_guard = fork_safe(threading.Lock())


@dataclass(frozen=True)
class Counters:
    """Counts of events in a session since it was created.

    Attributes:
        exchanges: Commands and queries completed.
        timeouts: Replies that did not arrive in time.
        incomplete: Exchanges that did not complete.
        resyncs: Successful resynchronisations.
        foreign_bytes: Bytes discarded because they belonged to no reply.
        longest_s: Duration of the longest completed exchange, in seconds.
    """

    exchanges: int = 0
    timeouts: int = 0
    incomplete: int = 0
    resyncs: int = 0
    foreign_bytes: int = 0
    longest_s: float = 0.0


class Conversation(DeviceErrors, abc.ABC):
    """Base class of request-and-reply sessions with a byte stream.

    A subclass implements :meth:`probe`, which checks that host and device are in sync.

    Args:
        link: Link to the device.
        clock: Clock of the link.
        timeout_s: Default time limit for a reply.
        quiet_s: Minimum silence after which no late reply is expected.
    """

    resync_rounds = 3
    pause_s = 0.0
    """Pause in s before each further attempt to resynchronise."""
    harmless = b"\r\n\0"
    """Bytes that are ignored after a reply."""
    line_end = re.compile(rb"\n")
    """Pattern of the end of a line from the device."""

    def __init__(self, link: Link, clock: Clock, *, device: str, timeout_s: float, quiet_s: float = 0.05) -> None:
        self._link = link
        self._clock = clock
        self._device = device
        self._timeout_s = timeout_s
        self._quiet_s = quiet_s
        self._owner = OwnerProcess()
        self._lock = _shared_lock(link.name)
        self._buffer = bytearray()
        self._out_of_sync = False
        self._patience_s = timeout_s
        self._tally = dict.fromkeys(("exchanges", "timeouts", "incomplete", "resyncs", "foreign_bytes"), 0)
        self._longest_s = 0.0

    @property
    def device(self) -> str:
        """Device name, for messages."""
        return self._device

    @property
    def address(self) -> str:
        """Address of the link."""
        return self._link.name

    @property
    def belongs_to_other_process(self) -> bool:
        """Whether a different process opened the session. This process then sends nothing."""
        return self._owner.belongs_to_other_process

    @property
    def counters(self) -> Counters:
        """Event counts of this session."""
        return Counters(**self._tally, longest_s=self._longest_s)

    @property
    def is_out_of_sync(self) -> bool:
        """Whether the next exchange first synchronizes host and device again."""
        return self._out_of_sync

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Lock the session for several exchanges; other threads wait."""
        with self._lock:
            yield

    def open_link(self, timeout_s: float) -> None:
        """Open the link and discard input left over from an earlier user. Raises ``ConnectError``."""
        self._owner.claim(self.address, self._device)
        with self._lock, self._with_device_name():
            # Opening does not empty the port on all systems: pyserial flushes the input on POSIX but
            # not on Windows (pyserial issue 249), and USB bridges deliver old bytes after a reset.
            deadline = Deadline(self._clock.now() + timeout_s)
            self._link.open(deadline)
            self._buffer.clear()
            self._out_of_sync = False
            self._count(foreign_bytes=self._link.drain(self._quiet_s, deadline))

    def first_reply(self, query: Callable[[], _Answer]) -> _Answer:
        """Send the first query after :meth:`open_link`, and repeat it once if it fails."""
        with self.transaction():
            try:
                return query()
            except (LinkTimeout, FrameError, DeviceError) as error:
                _log.info("%s @ %s: the first query failed and is repeated: %s", self._device, self.address, error)
            self._discard_input(self._quiet_s)
            for _ in range(self.resync_rounds):
                self._out_of_sync = False  # a late reply belongs to the same query
                answer = query()
                if not self._discard_input(self._quiet_s):
                    break
            return answer

    def close(self) -> None:
        """Close the link; idempotent, never raises."""
        self._link.close()

    def exchange(self, label: str, timeout_s: float | None = None) -> AbstractContextManager[Deadline]:
        """Run one exchange in a ``with`` block, which locks the session. After an error the session is out of sync.

        Args:
            label: Description of the command, for messages.
            timeout_s: Time limit for the whole exchange; by default that of the session.

        Returns:
            A context manager whose value is the deadline of the exchange.

        Raises:
            LinkTimeout: No complete reply arrived in time.
            FrameError: The reply is not valid, or belongs to a different request.
            LinkLost: The link is lost, or host and device could not be synchronized again.
        """
        return _Exchange(self, label, self._timeout_s if timeout_s is None else timeout_s)

    def begin(self, label: str) -> float:
        """Lock the session, synchronize it if necessary, and return the start time."""
        self._owner.check(self.address, self._device)
        self._lock.acquire()
        try:
            self._ensure_in_sync(label)
        except BaseException as error:
            self._lock.release()
            if isinstance(error, LumionError):
                error.device = error.device or self._device
            raise
        return self._clock.now()

    def complete(self, label: str, started: float, patience_s: float, error: BaseException | None) -> None:
        """Count an exchange, or mark the session out of sync after an error, and unlock the session."""
        try:
            if error is None:
                self._tally["exchanges"] += 1
                self._longest_s = max(self._longest_s, self._clock.now() - started)
                return
            # Also after KeyboardInterrupt or a thread exit: the reply may still arrive.
            self._patience_s = max(patience_s, self._timeout_s)
            self.mark_out_of_sync(f"{label}: {type(error).__name__}")
            self._count(timeouts=isinstance(error, LinkTimeout))
            if isinstance(error, LumionError):
                error.device = error.device or self._device
        finally:
            self._lock.release()

    @contextmanager
    def _with_device_name(self) -> Iterator[None]:
        try:
            yield
        except LumionError as error:
            error.device = error.device or self._device
            raise

    def mark_out_of_sync(self, reason: str) -> None:
        """Mark the session out of sync: it accepts no reply until it is synchronized again."""
        if not self._out_of_sync:
            _log.warning("%s @ %s: the session is out of sync after %s", self._device, self.address, reason)
            self._count(incomplete=1)
        self._out_of_sync = True

    @abc.abstractmethod
    def probe(self, deadline: Deadline) -> bool:
        """Send a query with an unmistakable reply; return whether this reply arrived."""

    def _ensure_in_sync(self, label: str) -> None:
        if not self._out_of_sync:
            self._process_unrequested(label)
        if self._out_of_sync:
            self._resynchronise()

    def _process_unrequested(self, label: str) -> None:
        # A deadline of now returns the data that has already arrived. It was not
        # requested, so it is a late reply to an earlier query.
        stray = self._link.read(Deadline(self._clock.now()))
        if self._buffer:
            stray = bytes(self._buffer) + stray
            self._buffer.clear()
        if stray and stray.strip(self.harmless):
            self._count(foreign_bytes=len(stray))
            self.mark_out_of_sync(f"{len(stray)} unexpected bytes before {label}")

    def _resynchronise(self) -> None:
        # Late replies arrive about as late as the longest reply so far
        # took. After twice that time of silence, none is expected.
        quiet_s = max(self._quiet_s, min(2.0 * self._longest_s, _LONGEST_QUIET_S))
        for attempt in range(self.resync_rounds):
            if attempt and self.pause_s:
                self._clock.sleep(self.pause_s)
            self._discard_input(quiet_s)
            # Silence proves nothing: the reply may still be on
            # its way. Only an unmistakable reply does.
            if not self.probe(Deadline(self._clock.now() + self._patience_s)):
                continue
            # Replies to the probes of earlier rounds may still arrive.
            if self._discard_input(self._quiet_s) and attempt + 1 < self.resync_rounds:
                continue
            self._out_of_sync = False
            self._count(resyncs=1)
            return
        self._link.close()
        # Closed, so that late data cannot reach the next user of this session.
        raise self.error(
            LinkLost,
            f"could not resynchronise with the device in {self.resync_rounds} attempts",
            hint="Open it again; if that fails, switch the device off and on.",
        )

    def _discard_input(self, quiet_s: float) -> int:
        dropped = len(self._buffer)
        self._buffer.clear()
        dropped += self._link.drain(quiet_s, Deadline(self._clock.now() + quiet_s + self._patience_s))
        self._count(foreign_bytes=dropped)
        return dropped

    def send(self, data: bytes, deadline: Deadline) -> None:
        """Write all of ``data``. Raises ``LinkLost``."""
        self._link.write(data, deadline)

    def receive_line(self, label: str, deadline: Deadline) -> bytes:
        """Return the bytes up to the next line end, without CR and LF, and without leading NULs.

        Raises the errors of :meth:`receive_exactly`, and ``FrameError`` if the line is longer than 1 MiB.
        """
        # Reading byte by byte costs two system calls each, 1.3 ms for 301 bytes
        # with pyserial's read_until. Therefore all available data is read and searched here.
        started = self._clock.now()
        searched = 0
        if not self._buffer:
            data = self._received(label, started, deadline)
            match = self.line_end.search(data)
            if match is not None and match.end() == len(data):  # one whole line: the usual case
                return data[: match.start()].rstrip(b"\r").lstrip(b"\0")
            self._buffer += data
        while (match := self.line_end.search(self._buffer, searched)) is None:
            # Data that was searched has no line end, so the search
            # continues behind it; otherwise long lines would take quadratic time.
            searched = len(self._buffer)
            if searched > _LINE_LIMIT_BYTES:
                raise self._frame_error(label, "a line without an end")
            self._buffer += self._received(label, started, deadline)
        line = bytes(self._buffer[: match.start()]).rstrip(b"\r").lstrip(b"\0")
        del self._buffer[: match.end()]
        return line

    def receive_exactly(self, n_bytes: int, label: str, deadline: Deadline) -> bytes:
        """Return exactly ``n_bytes``. Raises ``LinkTimeout`` if they do not arrive in time, and ``LinkLost``."""
        started = self._clock.now()
        while len(self._buffer) < n_bytes:
            self._buffer += self._received(label, started, deadline)
        data = bytes(self._buffer[:n_bytes])
        del self._buffer[:n_bytes]
        return data

    def receive_block(self, n_bytes: int, label: str, deadline: Deadline) -> bytearray:
        """Return exactly ``n_bytes`` as a bytearray. Raises the errors of :meth:`receive_exactly`."""
        link = self._link
        if n_bytes < _BULK_BYTES or not isinstance(link, BulkLink):
            return bytearray(self.receive_exactly(n_bytes, label, deadline))
        started = self._clock.now()
        block = bytearray(n_bytes)
        arrived = min(len(self._buffer), n_bytes)
        block[:arrived] = self._buffer[:arrived]
        del self._buffer[:arrived]
        with memoryview(block) as view:
            while arrived < n_bytes:
                n_new = link.read_into(view[arrived:], deadline)
                if not n_new:
                    self._buffer += view[: min(arrived, 2 * _MAX_PRINTED_BYTES)]
                    raise self._incomplete(f"{label}, {arrived} of {n_bytes} bytes", started)
                arrived += n_new
        return block

    def receive_available(self, n_bytes: int, deadline: Deadline) -> bytes:
        """Return ``n_bytes``, or fewer at the deadline. Raises ``LinkLost``."""
        while len(self._buffer) < n_bytes:
            data = self._link.read(deadline)
            if not data:
                break
            self._buffer += data
        data = bytes(self._buffer[:n_bytes])
        del self._buffer[:n_bytes]
        return data

    def _received(self, label: str, started: float, deadline: Deadline) -> bytes:
        data = self._link.read(deadline)
        if not data:
            raise self._incomplete(label, started)
        return data

    def _as_text(self, command: str, line: bytes) -> str:
        try:
            return line.decode("ascii").strip()
        except UnicodeDecodeError:
            raise self._frame_error(command, f"not text: {format_bytes(line)}") from None

    def _incomplete(self, label: str, started: float) -> LinkTimeout:
        return self.error(
            LinkTimeout,
            f"{label}: incomplete reply after {self._clock.now() - started:.3g} s: {format_bytes(self._buffer)}",
            hint="The device may be busy, or may not support this command.",
        )

    def _frame_error(self, label: str, received: str) -> FrameError:
        return self.error(
            FrameError,
            f"{label}: the reply is {received}",
            hint="Check that the device is of the configured kind and that no other program uses it.",
        )

    def _count(self, **steps: int) -> None:
        for name, step in steps.items():
            self._tally[name] += step


class _Exchange:
    """Context manager of one exchange."""

    __slots__ = ("_conversation", "_label", "_patience_s", "_started")

    def __init__(self, conversation: Conversation, label: str, patience_s: float) -> None:
        self._conversation = conversation
        self._label = label
        self._patience_s = patience_s
        self._started = 0.0

    def __enter__(self) -> Deadline:
        self._started = self._conversation.begin(self._label)
        return Deadline(self._started + self._patience_s)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._conversation.complete(self._label, self._started, self._patience_s, error)


def _shared_lock(address: str) -> threading.RLock:
    """Return the lock that all sessions with this address share."""
    with _locks_guard:
        lock = _locks.get(address)
        if lock is None:
            lock = _locks[address] = fork_safe(threading.RLock())
        return lock


def format_bytes(data: bytes | bytearray) -> str:
    """Return bytes as shortened text for a message."""
    if not data:
        return "nothing"
    head = bytes(data[:_MAX_PRINTED_BYTES])
    return f"{head!r}" + (f" and {len(data) - _MAX_PRINTED_BYTES} bytes more" if len(data) > _MAX_PRINTED_BYTES else "")
