"""The line-oriented control server of the SmartLight prototype: states of unit cells, one connection per configuration.

The server says nothing that means "done": no acknowledgement, no read-back, no checksum, no watchdog. A line that went
out and a connection that the server closed afterwards mean *sent*; whether the light follows is for a power meter or a
transponder to say. It sets states, not currents, so it is no ``MeshController``. It is also unauthenticated: keep it on
a network of its own.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping

from lumion_hw.clock import Clock, Deadline
from lumion_hw.errors import ConfigError, LimitError, LinkError, LinkLost, LinkTimeout, LumionError
from lumion_hw.interfaces import MeshStatesInfo, PucState, Submission
from lumion_hw.links.base import Link
from lumion_hw.links.owner import OwnerProcess, fork_safe

_log = logging.getLogger(__name__)

N_PUCS = 72
CONNECT_S = 2.0
GREETING_S = 2.0
# The mesh itself reconfigures in 15 to 90 ms (Sánchez-Jácome 2025), the whole
# step took about 1.1 s in the published time-line (arXiv 2508.03674).
EXCHANGE_S = 10.0
PROGRESS_LIMIT_BYTES = 1 << 16
_WORDS: dict[PucState, str] = {"bar": "=", "cross": "x"}
_NOTHING_SENT = "Nothing was sent; it may be tried again."
_EFFECT_UNKNOWN = "Whether the line took effect is not known: look at the light, then decide to send it again."


def line_from_states(states: Mapping[int, PucState], n_pucs: int = N_PUCS) -> str:
    """Return the line for a configuration, such as ``[(0, '='), (1, 'x')]``: ascending, one blank after each comma.

    Raises:
        LimitError: There is no such unit cell.
        ConfigError: An index is no integer, or a state neither bar nor cross.
    """
    for index, state in states.items():
        if type(index) is not int:
            raise ConfigError(f"{index!r} is not the number of a unit cell", hint=f"Use integers 0 to {n_pucs - 1}.")
        if not 0 <= index < n_pucs:
            limit = 0 if index < 0 else n_pucs - 1
            raise LimitError("number of a unit cell, nothing was sent", requested=index, limit=limit, unit="")
        if not isinstance(state, str) or state not in _WORDS:
            raise ConfigError(f"unit cell {index}: {state!r} is not a state", hint="Use 'bar' or 'cross'.")
    return "[" + ", ".join(f"({index}, '{_WORDS[states[index]]}')" for index in sorted(states)) + "]"


class LineServerMesh:
    """A mesh behind a line server; implements :class:`~lumion_hw.interfaces.MeshStates`.

    Thread-safe: one exchange at a time. Nothing is ever repeated by itself. There is nothing to open: the server has no
    query, and a connection without a line is nothing it is known to survive.

    Args:
        make_link: Gives the link for a configuration, not open; it is closed after each.
        clock: The links' clock.
        device: Device name, for messages.
        n_pucs: Unit cells of this mesh, at most 72.

    Raises:
        ConfigError: The dialect cannot name so many unit cells.
    """

    def __init__(self, make_link: Callable[[], Link], clock: Clock, *, device: str, n_pucs: int = N_PUCS) -> None:
        if not 0 < n_pucs <= N_PUCS:
            raise ConfigError(f"{n_pucs} unit cells, expected 1 to {N_PUCS}.", device=device)
        self._make_link = make_link
        self._clock = clock
        self._device = device
        self._n_pucs = n_pucs
        self._owner = OwnerProcess()
        self._owner.claim("")  # there is no open(): a bench opens it by making it
        # One connection for each configuration, and one at a time: nothing would tell whose line took effect last.
        self._lock = fork_safe(threading.Lock())
        self._closed = False

    @property
    def info(self) -> MeshStatesInfo:
        """What the server can and cannot do; known from its protocol, it cannot be asked."""
        return MeshStatesInfo(self._n_pucs)

    def program_states(self, states: Mapping[int, PucState]) -> Submission:
        """Send one whole configuration; unit cells that are not named become inactive.

        Args:
            states: State of every unit cell that is to be active.

        Returns:
            What was sent and what the server said, once it has closed the connection.

        Raises:
            LimitError: There is no such unit cell; nothing was sent.
            ConfigError: An index or a state is none; nothing was sent.
            ConnectError: The server cannot be reached within 2 s; nothing was sent.
            LinkTimeout: No greeting within 2 s, so that nothing was sent; or no end of the connection within 10 s.
            LinkLost: The connection broke; the message says whether the line may have been taken. Or it was closed.
        """
        with _in_the_name_of(self._device):
            line = line_from_states(states, self._n_pucs)
            with self._lock:
                link = self._make_link()
                self._owner.check(link.name)
                if self._closed:
                    raise LinkLost("closed; nothing was sent.", address=link.name, hint="Open the bench again.")
                try:
                    return self._exchange(link, line)
                finally:
                    link.close()

    def close(self) -> None:
        """Take no more configurations; the cells stay as they are. Idempotent; waits for an exchange under way."""
        with self._lock:
            self._closed = True

    def _exchange(self, link: Link, line: str) -> Submission:
        began = self._clock.now()
        end = Deadline(began + EXCHANGE_S)
        with _hint(_NOTHING_SENT):
            link.open(Deadline(began + CONNECT_S))
            # Whatever it says: no text of the greeting is documented, only that one comes.
            greeting = link.read(Deadline(self._clock.now() + GREETING_S))
            if not greeting:
                raise LinkTimeout(f"no greeting within {GREETING_S:g} s.", address=link.name)
        with _hint(_EFFECT_UNKNOWN):
            link.write(line.encode("ascii") + b"\n", end)
            sent_s = self._clock.now()
            progress, dropped = self._progress_until_closed(link, end)
        _log.info("%s @ %s: %s; progress: %s", self._device, link.name, line, _printable(progress))
        return Submission(line, _printable(greeting), _printable(progress), dropped, sent_s, self._clock.now())

    def _progress_until_closed(self, link: Link, end: Deadline) -> tuple[bytes, int]:
        """Return what the server says until it closes the connection, and how many bytes more."""
        progress, dropped = b"", 0
        while self._clock.now() < end:
            try:
                data = link.read(end)
            except LinkLost as error:
                if isinstance(error.__cause__, OSError):  # a reset is no orderly end
                    raise
                return progress, dropped
            # Kept up to a limit, but read to the end: only the closed connection says that the server is done.
            room = PROGRESS_LIMIT_BYTES - len(progress)
            progress += data[:room]
            dropped += max(len(data) - room, 0)
        _log.warning("%s @ %s: no end; progress: %s", self._device, link.name, _printable(progress))
        raise LinkTimeout(
            f"the line was sent, and the connection not closed within {EXCHANGE_S:g} s.", address=link.name
        )


def _printable(data: bytes) -> str:
    """Return text in which nothing but printable ASCII and line ends stands for itself."""
    return "".join(chr(b) if 0x20 <= b < 0x7F or b == 0x0A else f"\\x{b:02x}" for b in data)


@contextlib.contextmanager
def _hint(text: str) -> Iterator[None]:
    """Let errors of the link say what is known about the line."""
    try:
        yield
    except LinkError as error:
        error.hint = f"{error.hint} {text}" if error.hint else text
        raise


@contextlib.contextmanager
def _in_the_name_of(device: str) -> Iterator[None]:
    """Put the device's name into errors that do not have it."""
    try:
        yield
    except LumionError as error:
        error.device = error.device or device
        raise
