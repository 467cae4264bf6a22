"""What every byte-stream session shares: one lock per address, and no trust in replies after a missed one.

The most dangerous fault of instrument control is a wrong number without an error: after a time-out the late reply is
still under way and answers the *next* query. So a session that did not see an exchange through to its end, for
whatever reason, is *tainted*, and believes nothing until it is resynchronised or lost.
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

# A device that has lost its line ends would else fill the memory.
_LINE_LIMIT_BYTES = 1 << 20
_SHOWN_BYTES = 60
# A measurement of a minute must not make every resynchronisation wait two.
_LONGEST_QUIET_S = 1.0
# Blocks from here on are received in place: the log of a million samples is 4 MB.
_BULK_BYTES = 1 << 16
# Weak, so that the lock of an address goes with its last session.
_locks: weakref.WeakValueDictionary[str, threading.RLock] = weakref.WeakValueDictionary()
_locks_guard = fork_safe(threading.Lock())


@dataclass(frozen=True)
class Counters:
    """What happened in a session since it was made.

    Attributes:
        exchanges: Commands and queries completed.
        timeouts: Replies that did not come in time.
        taints: Exchanges not seen through to their end.
        resyncs: Successful resynchronisations.
        foreign_bytes: Bytes thrown away because they belonged to no query.
        longest_s: Longest completed exchange.
    """

    exchanges: int = 0
    timeouts: int = 0
    taints: int = 0
    resyncs: int = 0
    foreign_bytes: int = 0
    longest_s: float = 0.0


class Conversation(DeviceErrors, abc.ABC):
    """A request-and-reply conversation over a byte stream; base class of the sessions.

    A subclass says in :meth:`probe` how it recognises that device and host are in step again.

    Args:
        link: The link; opened by :meth:`open`.
        clock: The link's clock.
        device: Device name, for messages.
        timeout_s: Default time for a reply.
        quiet_s: Silence after which nothing late is expected, at the least.
    """

    resync_rounds = 3
    pause_s = 0.0
    """Extra wait before every round after the first."""
    harmless = b"\r\n\0"
    """Bytes that may be left over from a reply without harm. Some firmware sends a NUL behind every LF."""
    line_end = re.compile(rb"\n")
    """What ends a line of the device."""

    def __init__(self, link: Link, clock: Clock, *, device: str, timeout_s: float, quiet_s: float = 0.05) -> None:
        self._link = link
        self._clock = clock
        self._device = device
        self._timeout_s = timeout_s
        self._quiet_s = quiet_s
        self._owner = OwnerProcess()
        self._lock = _lock_of(link.name)
        self._buffer = bytearray()
        self._tainted = False
        self._patience_s = timeout_s
        self._tally = dict.fromkeys(("exchanges", "timeouts", "taints", "resyncs", "foreign_bytes"), 0)
        self._longest_s = 0.0

    @property
    def device(self) -> str:
        """Device name, for messages."""
        return self._device

    @property
    def address(self) -> str:
        """The link's name."""
        return self._link.name

    @property
    def belongs_to_other_process(self) -> bool:
        """Whether another process opened it: then nothing is sent from here."""
        return self._owner.belongs_to_other_process

    @property
    def counters(self) -> Counters:
        """A snapshot of the counters."""
        return Counters(**self._tally, longest_s=self._longest_s)

    @property
    def tainted(self) -> bool:
        """Whether the next exchange begins with a resynchronisation."""
        return self._tainted

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the session for several exchanges; other threads wait."""
        with self._lock:
            yield

    def open_link(self, timeout_s: float) -> None:
        """Open the link and throw away what an earlier user left in it. Raises ``ConnectError``."""
        self._owner.claim(self.address, self._device)
        with self._lock, self._named():
            # Opening a port does not empty it everywhere: pyserial flushes its input on POSIX and
            # not on Windows (pyserial issue 249), and USB bridges deliver old bytes after a reset.
            deadline = Deadline(self._clock.now() + timeout_s)
            self._link.open(deadline)
            self._buffer.clear()
            self._tainted = False
            self._count(foreign_bytes=self._link.drain(self._quiet_s, deadline))

    def first_answer(self, ask: Callable[[], _Answer]) -> _Answer:
        """Ask the first question after :meth:`open_link`, and once more if it fails.

        On a serial line bytes without a line end stay in the input of a device, such as those of a driver of another
        kind that was opened there by mistake. They spoil the next line.
        """
        with self.transaction():
            try:
                return ask()
            except (LinkTimeout, FrameError, DeviceError) as error:
                _log.info("%s @ %s: the first question failed, asked once more: %s", self._device, self.address, error)
            self._discard_input(self._quiet_s)
            for _ in range(self.resync_rounds):
                self._tainted = False  # an answer that still comes is one to the same question
                answer = ask()
                if not self._discard_input(self._quiet_s):
                    break
            return answer

    def close(self) -> None:
        """Close the link; idempotent, never raises."""
        self._link.close()

    def exchange(self, what: str, timeout_s: float | None = None) -> AbstractContextManager[Deadline]:
        """Run one exchange under the lock, in step with the device, and taint the session unless it completes.

        Args:
            what: The command, for messages.
            timeout_s: Time for the whole exchange; the session's default if omitted.

        Returns:
            A context that gives the deadline of the exchange.

        Raises:
            LinkLost: The session was tainted and could not be brought back in step.
        """
        return _Exchange(self, what, self._timeout_s if timeout_s is None else timeout_s)

    def begin(self, what: str) -> float:
        """Take the lock and get in step; return the time. For :meth:`exchange`."""
        self._owner.check(self.address, self._device)
        self._lock.acquire()
        try:
            self._get_in_step(what)
        except BaseException as error:
            self._lock.release()
            if isinstance(error, LumionError):
                error.device = error.device or self._device
            raise
        return self._clock.now()

    def complete(self, what: str, started: float, patience_s: float, error: BaseException | None) -> None:
        """Count an exchange, or taint the session if it failed; give the lock back. For :meth:`exchange`."""
        try:
            if error is None:
                self._tally["exchanges"] += 1
                self._longest_s = max(self._longest_s, self._clock.now() - started)
                return
            # Also KeyboardInterrupt and thread exits: the reply may still come.
            self._patience_s = max(patience_s, self._timeout_s)
            self.mark_out_of_sync(f"{what}: {type(error).__name__}")
            self._count(timeouts=isinstance(error, LinkTimeout))
            if isinstance(error, LumionError):
                error.device = error.device or self._device
        finally:
            self._lock.release()

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Put the device's name into errors of the link, which knows its address only."""
        try:
            yield
        except LumionError as error:
            error.device = error.device or self._device
            raise

    def mark_out_of_sync(self, why: str) -> None:
        """Trust no reply before the next resynchronisation."""
        if not self._tainted:
            _log.warning("%s @ %s: out of step after %s", self._device, self.address, why)
            self._count(taints=1)
        self._tainted = True

    @abc.abstractmethod
    def probe(self, deadline: Deadline) -> bool:
        """Ask the device something whose answer cannot be mistaken; tell whether that answer came.

        Raises:
            LinkLost: The link is gone.
        """

    def _get_in_step(self, what: str) -> None:
        if not self._tainted:
            # A deadline of now: what is there already, without waiting. Nobody
            # has asked for it, so it is the late reply of somebody's query.
            stray = self._link.read(Deadline(self._clock.now()))
            if self._buffer:
                stray = bytes(self._buffer) + stray
                self._buffer.clear()
            if stray and stray.strip(self.harmless):
                self._count(foreign_bytes=len(stray))
                self.mark_out_of_sync(f"{len(stray)} bytes that nobody asked for, before {what}")
        if self._tainted:
            self._resynchronise()

    def _resynchronise(self) -> None:
        # Late replies come about as late as the longest reply so far
        # took; twice that of silence, and nothing is under way any more.
        quiet_s = max(self._quiet_s, min(2.0 * self._longest_s, _LONGEST_QUIET_S))
        for attempt in range(self.resync_rounds):
            if attempt and self.pause_s:
                self._clock.sleep(self.pause_s)
            self._discard_input(quiet_s)
            # An empty line proves nothing yet: the reply may still be on
            # its way. Only an answer that cannot be mistaken does.
            if not self.probe(Deadline(self._clock.now() + self._patience_s)):
                continue
            # Answers to the probes of earlier rounds may still be under way.
            if self._discard_input(self._quiet_s) and attempt + 1 < self.resync_rounds:
                continue
            self._tainted = False
            self._count(resyncs=1)
            return
        self._link.close()
        # Closed, so that what still arrives cannot reach the next user of this session.
        raise self.error(
            LinkLost,
            f"no longer in step with the device after {self.resync_rounds} attempts to resynchronise",
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

    def receive_line(self, what: str, deadline: Deadline) -> bytes:
        r"""Return the bytes up to the next end of a line, without CR and LF, and without NULs in front.

        Raises:
            LinkTimeout: No complete line before the deadline.
            FrameError: The line is longer than 1 MiB.
            LinkLost: The peer is gone.
        """
        # One byte at a time would cost a pair of system calls each, 1.3 ms for 301 bytes
        # with pyserial's read_until: whatever is there is taken, and searched here.
        started = self._clock.now()
        searched = 0
        if not self._buffer:
            data = self._received(what, started, deadline)
            found = self.line_end.search(data)
            if found is not None and found.end() == len(data):  # one whole line, which is how most replies come
                return data[: found.start()].rstrip(b"\r").lstrip(b"\0")
            self._buffer += data
        while (found := self.line_end.search(self._buffer, searched)) is None:
            # A line end was not in what has been searched; the search
            # goes on behind it, or long lines would take quadratic time.
            searched = len(self._buffer)
            if searched > _LINE_LIMIT_BYTES:
                raise self._frame_error(what, "a line without an end")
            self._receive_more(what, started, deadline)
        line = bytes(self._buffer[: found.start()]).rstrip(b"\r").lstrip(b"\0")
        del self._buffer[: found.end()]
        return line

    def receive_exactly(self, n_bytes: int, what: str, deadline: Deadline) -> bytes:
        """Return exactly ``n_bytes``. Raises ``LinkTimeout`` when they do not come in time, or ``LinkLost``."""
        started = self._clock.now()
        while len(self._buffer) < n_bytes:
            self._receive_more(what, started, deadline)
        data = bytes(self._buffer[:n_bytes])
        del self._buffer[:n_bytes]
        return data

    def receive_block(self, n_bytes: int, what: str, deadline: Deadline) -> bytearray:
        """Return exactly ``n_bytes`` in a buffer of their own, never copied on their way from a link that can do so.

        Raises:
            LinkTimeout: They do not come in time.
            LinkLost: The peer is gone.
        """
        link = self._link
        if n_bytes < _BULK_BYTES or not isinstance(link, BulkLink):
            return bytearray(self.receive_exactly(n_bytes, what, deadline))
        started = self._clock.now()
        block = bytearray(n_bytes)
        arrived = min(len(self._buffer), n_bytes)
        block[:arrived] = self._buffer[:arrived]
        del self._buffer[:arrived]
        with memoryview(block) as view:
            while arrived < n_bytes:
                n_new = link.read_into(view[arrived:], deadline)
                if not n_new:
                    self._buffer += view[: min(arrived, 2 * _SHOWN_BYTES)]
                    raise self._incomplete(f"{what}, {arrived} of {n_bytes} bytes", started)
                arrived += n_new
        return block

    def receive_available(self, n_bytes: int, deadline: Deadline) -> bytes:
        """Return ``n_bytes``, or fewer when the deadline comes first. Raises ``LinkLost``."""
        while len(self._buffer) < n_bytes:
            data = self._link.read(deadline)
            if not data:
                break
            self._buffer += data
        data = bytes(self._buffer[:n_bytes])
        del self._buffer[:n_bytes]
        return data

    def _receive_more(self, what: str, started: float, deadline: Deadline) -> None:
        self._buffer += self._received(what, started, deadline)

    def _received(self, what: str, started: float, deadline: Deadline) -> bytes:
        data = self._link.read(deadline)
        if not data:
            raise self._incomplete(what, started)
        return data

    def _incomplete(self, what: str, started: float) -> LinkTimeout:
        return self.error(
            LinkTimeout,
            f"{what}: no complete reply within {self._clock.now() - started:.3g} s, so far {shown(self._buffer)}",
            hint="The device may be busy, or does not know this command.",
        )

    def _frame_error(self, what: str, seen: str) -> FrameError:
        return self.error(
            FrameError,
            f"{what}: the reply is {seen}",
            hint="Check that the device is of the configured kind and that nobody else talks to it.",
        )

    def _count(self, **steps: int) -> None:
        for name, step in steps.items():
            self._tally[name] += step


class _Exchange:
    """The context of one exchange; a class of its own, since a generator costs every query a microsecond."""

    __slots__ = ("_conversation", "_patience_s", "_started", "_what")

    def __init__(self, conversation: Conversation, what: str, patience_s: float) -> None:
        self._conversation = conversation
        self._what = what
        self._patience_s = patience_s
        self._started = 0.0

    def __enter__(self) -> Deadline:
        self._started = self._conversation.begin(self._what)
        return Deadline(self._started + self._patience_s)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._conversation.complete(self._what, self._started, self._patience_s, error)


def _lock_of(address: str) -> threading.RLock:
    """Return the lock of an address: everything in this process that talks to one instrument takes turns."""
    with _locks_guard:
        lock = _locks.get(address)
        if lock is None:
            lock = _locks[address] = fork_safe(threading.RLock())
        return lock


def shown(data: bytes | bytearray) -> str:
    """Return bytes in a form fit for a message: text where it is text, shortened."""
    if not data:
        return "nothing"
    head = bytes(data[:_SHOWN_BYTES])
    return f"{head!r}" + (f" and {len(data) - _SHOWN_BYTES} bytes more" if len(data) > _SHOWN_BYTES else "")
