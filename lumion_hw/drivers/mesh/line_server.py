"""Driver for the control server of the SmartLight mesh: one line of text sets the states of all unit cells.

The server sends no acknowledgement: check the light with a power meter. It has no authentication: connect it to a
separate network.
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
# The mesh reconfigures in 15 to 90 ms (Sánchez-Jácome 2025); the whole
# step took about 1.1 s in the published time-line (arXiv 2508.03674).
EXCHANGE_S = 10.0
PROGRESS_LIMIT_BYTES = 1 << 16
_STATE_SYMBOLS: dict[PucState, str] = {"bar": "=", "cross": "x"}
_NOT_SENT_HINT = "Nothing was sent, so you can try again."
_EFFECT_UNKNOWN = "The line may or may not have taken effect. Check the light before you send it again."


def line_from_states(states: Mapping[int, PucState], n_pucs: int = N_PUCS) -> str:
    """Return a configuration as a line such as ``[(0, '='), (1, 'x')]``, with the unit cells in ascending order.

    Raises:
        LimitError: A unit cell does not exist.
        ConfigError: An index is not an integer, or a state is neither bar nor cross.
    """
    for index, state in states.items():
        if type(index) is not int:
            raise ConfigError(f"{index!r} is not the number of a unit cell", hint=f"Use integers 0 to {n_pucs - 1}.")
        if not 0 <= index < n_pucs:
            limit = 0 if index < 0 else n_pucs - 1
            raise LimitError("no such unit cell; nothing was sent", requested=index, limit=limit, unit="")
        if not isinstance(state, str) or state not in _STATE_SYMBOLS:
            raise ConfigError(f"unit cell {index}: {state!r} is not a state", hint="Use 'bar' or 'cross'.")
    return "[" + ", ".join(f"({index}, '{_STATE_SYMBOLS[states[index]]}')" for index in sorted(states)) + "]"


class LineServerMesh:
    """A mesh set by lines of text, one per configuration; implements :class:`~lumion_hw.interfaces.MeshStates`.

    Thread-safe. Nothing is repeated automatically. There is no ``open``: each configuration uses a new connection.

    Args:
        make_link: Function that returns a new link for each configuration.
        clock: Clock of the links.
        n_pucs: Number of unit cells, 1 to 72; otherwise ``ConfigError`` is raised.
    """

    def __init__(self, make_link: Callable[[], Link], clock: Clock, *, device: str, n_pucs: int = N_PUCS) -> None:
        if not 0 < n_pucs <= N_PUCS:
            raise ConfigError(f"the mesh has {n_pucs} unit cells, but 1 to {N_PUCS} are supported", device=device)
        self._make_link = make_link
        self._clock = clock
        self._device = device
        self._n_pucs = n_pucs
        self._owner = OwnerProcess()
        self._owner.claim("")  # claimed here, because there is no open()
        # One connection at a time; otherwise it would be unknown whose line took effect last.
        self._lock = fork_safe(threading.Lock())
        self._closed = False

    @property
    def info(self) -> MeshStatesInfo:
        """Capabilities of the server, known from its protocol."""
        return MeshStatesInfo(self._n_pucs)

    def program_states(self, states: Mapping[int, PucState]) -> Submission:
        """Send one complete configuration. Unit cells that it does not contain become inactive.

        Args:
            states: State of every active unit cell.

        Returns:
            The line sent, and the text that the server sent before it closed the connection.

        Raises:
            LimitError: A unit cell does not exist; nothing was sent.
            ConfigError: An index or a state is not valid; nothing was sent.
            ConnectError: The server cannot be reached within 2 s; nothing was sent.
            LinkTimeout: No greeting arrived within 2 s and nothing was sent, or the connection did not end within 10 s.
            LinkLost: The driver is closed, or the connection broke; the message says whether the line was sent.
        """
        with _with_device_name(self._device):
            line = line_from_states(states, self._n_pucs)
            with self._lock:
                link = self._make_link()
                self._owner.check(link.name)
                if self._closed:
                    raise LinkLost(
                        "the mesh was closed; nothing was sent", address=link.name, hint="Open the bench again."
                    )
                try:
                    return self._exchange(link, line)
                finally:
                    link.close()

    def close(self) -> None:
        """Refuse further configurations; the unit cells keep their states. Idempotent."""
        with self._lock:
            self._closed = True

    def _exchange(self, link: Link, line: str) -> Submission:
        started_s = self._clock.now()
        deadline = Deadline(started_s + EXCHANGE_S)
        with _hint(_NOT_SENT_HINT):
            link.open(Deadline(started_s + CONNECT_S))
            # Any greeting is accepted, because its text is not documented.
            greeting = link.read(Deadline(self._clock.now() + GREETING_S))
            if not greeting:
                raise LinkTimeout(f"no greeting within {GREETING_S:g} s.", address=link.name)
        with _hint(_EFFECT_UNKNOWN):
            link.write(line.encode("ascii") + b"\n", deadline)
            sent_s = self._clock.now()
            progress, dropped = self._progress_until_closed(link, deadline)
        _log.info("%s @ %s: sent %s; the server replied: %s", self._device, link.name, line, _printable(progress))
        return Submission(line, _printable(greeting), _printable(progress), dropped, sent_s, self._clock.now())

    def _progress_until_closed(self, link: Link, deadline: Deadline) -> tuple[bytes, int]:
        progress, dropped = b"", 0
        while self._clock.now() < deadline:
            try:
                data = link.read(deadline)
            except LinkLost as error:
                if isinstance(error.__cause__, OSError):  # a reset is not an orderly end
                    raise
                return progress, dropped
            # Stored up to a limit, but read to the end: only the closed connection means that the server is done.
            free_bytes = PROGRESS_LIMIT_BYTES - len(progress)
            progress += data[:free_bytes]
            dropped += max(len(data) - free_bytes, 0)
        _log.warning(
            "%s @ %s: the server did not close the connection; reply: %s", self._device, link.name, _printable(progress)
        )
        raise LinkTimeout(
            f"the line was sent, but the server did not close the connection within {EXCHANGE_S:g} s", address=link.name
        )


def _printable(data: bytes) -> str:
    return "".join(chr(b) if 0x20 <= b < 0x7F or b == 0x0A else f"\\x{b:02x}" for b in data)


@contextlib.contextmanager
def _hint(text: str) -> Iterator[None]:
    try:
        yield
    except LinkError as error:
        error.hint = f"{error.hint} {text}" if error.hint else text
        raise


@contextlib.contextmanager
def _with_device_name(device: str) -> Iterator[None]:
    try:
        yield
    except LumionError as error:
        error.device = error.device or device
        raise
