"""Watch joined meshes: which benches answer, which circuits are complete, and what the last change was."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lumion_hw.circuits import state_directory
from lumion_hw.circuits.lock import lock_owner
from lumion_hw.errors import ConfigError, LumionError
from lumion_hw.fabric import FabricAlarm
from lumion_hw.fabric.status import Severity
from lumion_hw.files import AnyPath
from lumion_hw.joined.benches import BenchCircuits
from lumion_hw.joined.file import JoinedFile
from lumion_hw.joined.journal import JoinedHistory, read_joined
from lumion_hw.joined.status import LinkStatus, link_statuses

if TYPE_CHECKING:
    from lumion_hw.remote.client import PvaConnection

PERIOD_S = 2.0
"""Time between two queries of all benches."""
_STOP_TIMEOUT_S = 0.5


@dataclass(frozen=True)
class BenchReach:
    """A bench of joined meshes.

    Attributes:
        problem: Reason why the bench does not answer; empty if it answers.
        circuits: Number of its circuits that cross a fibre to another bench.
    """

    name: str
    problem: str
    circuits: int


@dataclass(frozen=True)
class JoinedStatus:
    """Status of joined meshes.

    Attributes:
        name: Name of the joined meshes.
        time_s: Time of the query, in seconds since 1970.
        circuits: Circuits over several meshes, the worst first, including lost ones that the journal knows.
        history: The changes of the operator whose journal is read.
        alarms: Conditions that need attention, the worst first.
    """

    name: str
    time_s: float
    benches: tuple[BenchReach, ...]
    circuits: tuple[LinkStatus, ...]
    history: JoinedHistory
    alarms: tuple[FabricAlarm, ...]

    @property
    def severity(self) -> Severity:
        """Highest severity of the alarms."""
        return self.alarms[0].severity if self.alarms else "none"

    @property
    def min_margin_db(self) -> float | None:
        """Smallest margin of the circuits that carry light; ``None`` if no margin is known."""
        return min((link.margin_db for link in self.circuits if link.margin_db is not None), default=None)


def joined_status(
    file: JoinedFile,
    benches: Mapping[str, BenchCircuits | str],
    history: JoinedHistory,
    *,
    is_changing: bool = False,
    time_s: float = 0.0,
) -> JoinedStatus:
    """Return the status of joined meshes.

    Args:
        file: The joined meshes.
        benches: The circuits of each bench, or the reason why it does not answer.
        history: The changes that the operator's journal records.
        is_changing: Whether the program of the unfinished change is still running.
        time_s: Time of the query, in seconds since 1970.
    """
    running = history.unfinished if is_changing else None
    ending = () if running is None else running.ending
    links = link_statuses(file.fibres, benches, [name for name in history.circuits if name not in ending])
    if running or any(isinstance(state, BenchCircuits) and state.prepared for state in benches.values()):
        # Benches keep their segments one after the other.
        links = [link for link in links if not link.is_lost or link.name in history.circuits]
    links.sort(key=lambda link: (not link.is_lost, not link.problems, _margin(link)))
    counts = {name: sum(name in dict(link.segments) for link in links) for name in benches}
    return JoinedStatus(
        file.name,
        time_s,
        tuple(
            BenchReach(name, state if isinstance(state, str) else "", counts[name]) for name, state in benches.items()
        ),
        tuple(links),
        history,
        tuple(_alarms(benches, links, history, is_changing)),
    )


def _margin(link: LinkStatus) -> float:
    return float("inf") if link.margin_db is None else link.margin_db


def _alarms(
    benches: Mapping[str, BenchCircuits | str], links: Sequence[LinkStatus], history: JoinedHistory, is_changing: bool
) -> Iterator[FabricAlarm]:
    for link in links:
        if link.is_lost:
            yield FabricAlarm("major", f"joined circuit {link.name}", "lost", link.problems[0])
    for name, state in benches.items():
        if isinstance(state, str):
            yield FabricAlarm("major", f"bench {name}", "not reachable", state)
    for link in links:
        if link.problems and not link.is_lost:
            yield FabricAlarm("minor", f"joined circuit {link.name}", "degraded", link.problems[0])
    if history.unfinished is not None and not is_changing:
        reason = f"begun {history.unfinished.since_utc}; run `lumion joined recover`"
        yield FabricAlarm("minor", f"change {history.unfinished.name}", "not finished", reason)


class JoinedWatch:
    """Queries all benches of joined meshes.

    Args:
        file: The joined meshes; every bench must be served.
        directory: Directory of the operator's journal; by default that of ``lumion joined``.

    Raises:
        ConfigError: A bench of the file has no address.
    """

    def __init__(self, file: JoinedFile, directory: AnyPath | None = None) -> None:
        opened = [name for name, entry in file.benches.items() if entry.address is None]
        if opened:
            raise ConfigError(
                f"bench {opened[0]} has no address, so it cannot be watched",
                hint="Serve it with `lumion serve --pva`, and give its address in the file of joined meshes.",
            )
        self._file = file
        self._directory = directory or state_directory(file.name, "joined")
        self._connections: dict[str, PvaConnection] = {}

    @contextlib.contextmanager
    def running(self, publish: Callable[[JoinedStatus], None]) -> Iterator[None]:
        """Query all benches every ``PERIOD_S`` during a ``with`` block, in another thread, and publish the status."""
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                publish(self.look())
                stop.wait(PERIOD_S)
            for connection in self._connections.values():
                connection.close()

        thread = threading.Thread(target=work, name="lumion-joined", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(_STOP_TIMEOUT_S)

    def look(self) -> JoinedStatus:
        """Query all benches once and return the status."""
        with ThreadPoolExecutor(len(self._file.benches)) as pool:
            states = dict(zip(self._file.benches, pool.map(self._circuits, self._file.benches), strict=True))
        history, problem = JoinedHistory(), None
        try:
            history = read_joined(self._directory)
        except LumionError as error:
            problem = FabricAlarm("minor", "journal of joined circuits", "not readable", str(error))
        is_changing = lock_owner(self._directory) is not None
        status = joined_status(self._file, states, history, is_changing=is_changing, time_s=time.time())
        return status if problem is None else dataclasses.replace(status, alarms=(*status.alarms, problem))

    def _circuits(self, name: str) -> BenchCircuits | str:
        from lumion_hw.remote.client import PvaConnection

        try:
            if name not in self._connections:
                self._connections[name] = PvaConnection(str(self._file.benches[name].address))
            document = self._connections[name].call("", "joined_circuits")
            return BenchCircuits(tuple(document["circuits"]), document["prepared"])
        except LumionError as error:
            with contextlib.suppress(KeyError):
                self._connections.pop(name).close()
            return str(error)
