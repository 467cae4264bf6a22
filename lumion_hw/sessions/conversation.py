"""What every byte-stream session shares: one lock per transaction, and no trust in replies after a missed one.

The most dangerous fault of instrument control is a wrong number without an error: after a time-out the late reply is
still under way and answers the *next* query. So a session that did not see an exchange through to its end, for
whatever reason, is *tainted*, and believes nothing until it is resynchronised or lost.
"""

from __future__ import annotations

import abc
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from lumion_hw.clock import Clock
from lumion_hw.errors import FrameError, LinkLost, LinkTimeout, LumionError
from lumion_hw.links.base import Link

_log = logging.getLogger(__name__)

_LINE_LIMIT_BYTES = 1 << 20
_SHOWN_BYTES = 60
_LONGEST_QUIET_S = 1.0


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


class Conversation(abc.ABC):
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
    harmless = b"\r\n"
    """Bytes that may be left over from a reply without harm."""

    def __init__(self, link: Link, clock: Clock, *, device: str, timeout_s: float, quiet_s: float = 0.05) -> None:
        self._link = link
        self._clock = clock
        self._device = device
        self._timeout_s = timeout_s
        self._quiet_s = quiet_s
        self._lock = threading.RLock()
        self._buffer = bytearray()
        self._tainted = False
        self._patience_s = timeout_s
        self._counters = Counters()

    @property
    def device(self) -> str:
        """Device name, for messages."""
        return self._device

    @property
    def address(self) -> str:
        """The link's name."""
        return self._link.name

    @property
    def counters(self) -> Counters:
        """A snapshot of the counters."""
        return self._counters

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
        with self._lock, self._named():
            deadline = self._clock.now() + timeout_s
            self._link.open(deadline)
            self._buffer.clear()
            self._tainted = False
            self._count(foreign_bytes=self._link.drain(self._quiet_s, deadline))

    def close(self) -> None:
        """Close the link; idempotent, never raises."""
        self._link.close()

    @contextmanager
    def exchange(self, what: str, timeout_s: float | None = None) -> Iterator[float]:
        """Run one exchange under the lock, in step with the device, and taint the session unless it completes.

        Args:
            what: The command, for messages.
            timeout_s: Time for the whole exchange; the session's default if omitted.

        Yields:
            The deadline of the exchange.

        Raises:
            LinkLost: The session was tainted and could not be brought back in step.
        """
        patience_s = self._timeout_s if timeout_s is None else timeout_s
        with self._lock, self._named():
            self._get_in_step(what)
            started = self._clock.now()
            try:
                yield started + patience_s
            except BaseException as error:
                # Also KeyboardInterrupt and thread exits: the reply may still come.
                self._patience_s = max(patience_s, self._timeout_s)
                self.taint(f"{what}: {type(error).__name__}")
                self._count(timeouts=isinstance(error, LinkTimeout))
                raise
            self._count(exchanges=1, longest_s=self._clock.now() - started)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Put the device's name into errors of the link, which knows its address only."""
        try:
            yield
        except LumionError as error:
            error.device = error.device or self._device
            raise

    def taint(self, why: str) -> None:
        """Trust no reply before the next resynchronisation."""
        if not self._tainted:
            _log.warning("%s @ %s: out of step after %s", self._device, self.address, why)
            self._count(taints=1)
        self._tainted = True

    @abc.abstractmethod
    def probe(self, deadline: float) -> bool:
        """Ask the device something whose answer cannot be mistaken; tell whether that answer came.

        Raises:
            LinkLost: The link is gone.
        """

    def _get_in_step(self, what: str) -> None:
        if not self._tainted:
            stray = bytes(self._buffer) + self._link.read(self._clock.now())
            self._buffer.clear()
            if stray.strip(self.harmless):
                self._count(foreign_bytes=len(stray))
                self.taint(f"{len(stray)} bytes that nobody asked for, before {what}")
        if self._tainted:
            self._resynchronise()

    def _resynchronise(self) -> None:
        quiet_s = max(self._quiet_s, min(2.0 * self._counters.longest_s, _LONGEST_QUIET_S))
        for attempt in range(self.resync_rounds):
            if attempt and self.pause_s:
                self._clock.sleep(self.pause_s)
            self._discard_input(quiet_s)
            if not self.probe(self._clock.now() + self._patience_s):
                continue
            # Answers to the probes of earlier rounds may still be under way.
            if self._discard_input(self._quiet_s) and attempt + 1 < self.resync_rounds:
                continue
            self._tainted = False
            self._count(resyncs=1)
            return
        self._link.close()
        raise LinkLost(
            f"no longer in step with the device after {self.resync_rounds} attempts to resynchronise",
            device=self._device,
            address=self.address,
            hint="Open it again; if that fails, switch the device off and on.",
        )

    def _discard_input(self, quiet_s: float) -> int:
        dropped = len(self._buffer)
        self._buffer.clear()
        dropped += self._link.drain(quiet_s, self._clock.now() + quiet_s + self._patience_s)
        self._count(foreign_bytes=dropped)
        return dropped

    def send(self, data: bytes, deadline: float) -> None:
        """Write all of ``data``. Raises ``LinkLost``."""
        self._link.write(data, deadline)

    def receive_line(self, what: str, deadline: float) -> bytes:
        r"""Return the bytes up to the next LF, without CR and LF.

        Raises:
            LinkTimeout: No complete line before the deadline.
            FrameError: The line is longer than 1 MiB.
            LinkLost: The peer is gone.
        """
        started = self._clock.now()
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > _LINE_LIMIT_BYTES:
                raise self._frame_error(what, "a line without an end")
            self._receive_more(what, started, deadline)
        line = bytes(self._buffer[:end]).rstrip(b"\r")
        del self._buffer[: end + 1]
        return line

    def receive_exactly(self, n_bytes: int, what: str, deadline: float) -> bytes:
        """Return exactly ``n_bytes``. Raises ``LinkTimeout`` when they do not come in time, or ``LinkLost``."""
        started = self._clock.now()
        while len(self._buffer) < n_bytes:
            self._receive_more(what, started, deadline)
        data = bytes(self._buffer[:n_bytes])
        del self._buffer[:n_bytes]
        return data

    def receive_available(self, n_bytes: int, deadline: float) -> bytes:
        """Return ``n_bytes``, or fewer when the deadline comes first. Raises ``LinkLost``."""
        while len(self._buffer) < n_bytes:
            data = self._link.read(deadline)
            if not data:
                break
            self._buffer += data
        data = bytes(self._buffer[:n_bytes])
        del self._buffer[:n_bytes]
        return data

    def _receive_more(self, what: str, started: float, deadline: float) -> None:
        data = self._link.read(deadline)
        if data:
            self._buffer += data
            return
        raise LinkTimeout(
            f"{what}: no complete reply within {self._clock.now() - started:.3g} s, so far {shown(self._buffer)}",
            device=self._device,
            address=self.address,
            hint="The device may be busy, or does not know this command.",
        )

    def _frame_error(self, what: str, seen: str) -> FrameError:
        return FrameError(
            f"{what}: the reply is {seen}",
            device=self._device,
            address=self.address,
            hint="Check that the device is of the configured kind and that nobody else talks to it.",
        )

    def _count(self, *, longest_s: float = 0.0, **steps: int) -> None:
        old = self._counters
        changes = {name: getattr(old, name) + step for name, step in steps.items()}
        self._counters = replace(old, longest_s=max(old.longest_s, longest_s), **changes)


def shown(data: bytes | bytearray) -> str:
    """Return bytes in a form fit for a message: text where it is text, shortened."""
    if not data:
        return "nothing"
    head = bytes(data[:_SHOWN_BYTES])
    return f"{head!r}" + (f" and {len(data) - _SHOWN_BYTES} bytes more" if len(data) > _SHOWN_BYTES else "")
