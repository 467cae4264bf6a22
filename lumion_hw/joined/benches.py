"""The benches of joined meshes: opened by this program, or served by another process."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from lumion_hw.bench.bench import Bench, load
from lumion_hw.bench.file.model import BenchModel
from lumion_hw.circuits import CircuitRequest, CircuitService, state_directory
from lumion_hw.circuits.segments import BenchSegments
from lumion_hw.errors import LumionError
from lumion_hw.joined.file import BenchEntry, JoinedFile

if TYPE_CHECKING:
    from lumion_hw.remote.client import PvaConnection

T = TypeVar("T")


@dataclass(frozen=True)
class BenchCircuits:
    """Circuits of one bench.

    Attributes:
        circuits: The active circuits and segments as JSON documents: ``circuit``, ``margin_db``, ``received_dbm``,
            ``marks`` (warnings) and ``broken`` (whether its light is lost).
        prepared: Name of the change that is prepared and not finished; ``None`` if there is none.
    """

    circuits: tuple[Mapping[str, Any], ...] = ()
    prepared: str | None = None

    def without(self, names: Collection[str]) -> BenchCircuits:
        """Return the circuits that remain if some are disconnected."""
        return dataclasses.replace(
            self, circuits=tuple(circuit for circuit in self.circuits if circuit["circuit"] not in names)
        )

    @property
    def names(self) -> frozenset[str]:
        """Names of the circuits."""
        return frozenset(str(circuit["circuit"]) for circuit in self.circuits)

    @property
    def ends(self) -> frozenset[str]:
        """Names of the modules and ports at the ends of the circuits."""
        return frozenset(end for name in self.names for end in name.split(":"))


class JoinedBench(Protocol):
    """One bench of joined meshes. The steps are those of :class:`~lumion_hw.circuits.segments.BenchSegments`."""

    @property
    def model(self) -> BenchModel:
        """The bench file."""

    @property
    def is_remote(self) -> bool:
        """Whether another process serves the bench, so that several benches can work at the same time."""

    def reserve(self) -> None:
        """Make sure that nobody else changes the bench. Raises ``BusyError`` if another program may."""

    def circuits(self) -> BenchCircuits:
        """Return the active circuits."""

    def plan(self, requests: Sequence[CircuitRequest], removed: Collection[str]) -> Sequence[Mapping[str, Any]]:
        """Plan segments that replace some active circuits, given by name, beside the others; nothing is changed."""

    def prepare(self, change: str, requests: Sequence[CircuitRequest], removed: Collection[str]) -> None:
        """Program the mesh for segments without light, instead of the removed circuits."""

    def light(self, change: str, arriving_dbm: Mapping[str, float | None]) -> Sequence[Mapping[str, Any]]:
        """Light some prepared segments and measure them."""

    def blink(self, change: str, dark: Collection[str]) -> None:
        """Switch some of the lit modules off, and the others on."""

    def are_dark(self, modules: Sequence[str]) -> dict[str, bool]:
        """Return whether each receiver reports loss of signal."""

    def keep(self, change: str) -> None:
        """Make the prepared segments active."""

    def undo(self, change: str, reason: str) -> None:
        """Restore the bench as before the change."""

    def disconnect(self, names: Collection[str]) -> None:
        """Disconnect those of the named circuits that are active."""


class LocalBench:
    """A bench that this program has open.

    Args:
        service: The circuits of the bench.
    """

    is_remote = False

    def __init__(self, service: CircuitService) -> None:
        self._service, self._segments = service, BenchSegments(service)
        self.model = service.setup.bench.model
        self.plan, self.prepare = self._segments.plan, self._segments.prepare
        self.light, self.blink, self.keep = self._segments.light, self._segments.blink, self._segments.keep

    def reserve(self) -> None:
        """Raise ``BusyError`` if a change is prepared; this program holds the lock of the bench."""
        self._segments.check_idle()

    def circuits(self) -> BenchCircuits:
        """Return the active circuits."""
        return bench_circuits(self._service, self._segments)

    def are_dark(self, modules: Sequence[str]) -> dict[str, bool]:
        """Return whether each receiver reports loss of signal."""
        return {name: self._service.setup.bench.transponders[name].status().rx_los for name in modules}

    def undo(self, change: str, reason: str) -> None:
        """Restore the bench as before the change."""
        self._segments.undo(change, reason)

    def disconnect(self, names: Collection[str]) -> None:
        """Disconnect those of the named circuits that are active."""
        active = [circuit.name for circuit in self._service.state.circuits if circuit.name in names]
        if active:
            self._service.disconnect(active)


def bench_circuits(service: CircuitService, segments: BenchSegments) -> BenchCircuits:
    """Return the active circuits of a bench with their last measurements."""
    documents = tuple(
        {
            "circuit": circuit.name,
            "margin_db": circuit.proof.get("margin_db"),
            "received_dbm": circuit.proof.get("received_dbm"),
            "marks": list(circuit.marks),
            "broken": False,
        }
        for circuit in service.state.circuits
    )
    return BenchCircuits(documents, segments.prepared)


class RemoteBench:
    """A bench that ``lumion serve`` owns.

    Args:
        connection: Connection to the server.
    """

    is_remote = True

    def __init__(self, connection: PvaConnection) -> None:
        self._connection = connection
        self.model = BenchModel.model_validate_json(connection.describe()["model"])

    def reserve(self) -> None:
        """Take the lease of the bench. Raises ``BusyError`` if another program holds it, or a change is prepared."""
        self._job("reserve")

    def circuits(self) -> BenchCircuits:
        """Return the active circuits."""
        document = self._connection.call("", "joined_circuits")
        return BenchCircuits(tuple(document["circuits"]), document["prepared"])

    def plan(self, requests: Sequence[CircuitRequest], removed: Collection[str]) -> Sequence[Mapping[str, Any]]:
        """Plan segments that replace some active circuits, given by name, beside the others; nothing is changed."""
        arguments = [_documents(requests), sorted(removed)]
        documents: Sequence[Mapping[str, Any]] = self._connection.call("", "plan_joined", arguments)
        return documents

    def prepare(self, change: str, requests: Sequence[CircuitRequest], removed: Collection[str]) -> None:
        """Program the mesh for segments without light, instead of the removed circuits."""
        self._job("prepare", change=change, circuits=_documents(requests), removed=sorted(removed))

    def light(self, change: str, arriving_dbm: Mapping[str, float | None]) -> Sequence[Mapping[str, Any]]:
        """Light some prepared segments and measure them."""
        documents: Sequence[Mapping[str, Any]] = self._job("light", change=change, arriving_dbm=dict(arriving_dbm))
        return documents

    def blink(self, change: str, dark: Collection[str]) -> None:
        """Switch some of the lit modules off, and the others on."""
        self._job("blink", change=change, dark=sorted(dark))

    def are_dark(self, modules: Sequence[str]) -> dict[str, bool]:
        """Return whether each receiver reports loss of signal."""
        return {name: bool(self._connection.call(name, "status").rx_los) for name in modules}

    def keep(self, change: str) -> None:
        """Make the prepared segments active."""
        self._job("keep", change=change)

    def undo(self, change: str, reason: str) -> None:
        """Restore the bench as before the change."""
        self._job("undo", change=change, reason=reason)

    def disconnect(self, names: Collection[str]) -> None:
        """Disconnect those of the named circuits that are active."""
        self._job("disconnect", circuits=sorted(names))

    def _job(self, step: str, **values: Any) -> Any:
        return self._connection.run_job("joined", {"step": step, **values})


def _documents(requests: Sequence[CircuitRequest]) -> list[dict[str, Any]]:
    return [dataclasses.asdict(request) for request in requests]


def on_benches(benches: Mapping[str, JoinedBench], work: Mapping[str, Callable[[], T]]) -> dict[str, T | LumionError]:
    """Run one function for each bench, at the same time on served benches, and return results or errors by bench."""

    def outcome(name: str) -> T | LumionError:
        try:
            return work[name]()
        except LumionError as error:
            return error

    if not all(benches[name].is_remote for name in work):
        return {name: outcome(name) for name in work}
    with ThreadPoolExecutor(max(len(work), 1)) as pool:
        return dict(zip(work, pool.map(outcome, work), strict=True))


def results_on_benches(benches: Mapping[str, JoinedBench], work: Mapping[str, Callable[[], T]]) -> dict[str, T]:
    """Return the results of :func:`on_benches`.

    Raises:
        LumionError: The first error, after all functions were run; the bench is in its notes.
    """
    results: dict[str, T] = {}
    for name, result in on_benches(benches, work).items():
        if isinstance(result, LumionError):
            result.add_note(f"The bench is {name}.")
            raise result
        results[name] = result
    return results


@contextlib.contextmanager
def open_benches(file: JoinedFile, take_over: str | None = None) -> Iterator[dict[str, JoinedBench]]:
    """Connect to the served benches of a file, and open the others, during a ``with`` block.

    Args:
        file: The joined meshes.
        take_over: Name of the user from whom leases and benches are taken.

    Raises:
        LumionError: A bench does not answer, is in use, or does not fit the file; the message names the bench.
    """
    with contextlib.ExitStack() as stack:
        benches: dict[str, JoinedBench] = {}
        for name, entry in file.benches.items():
            try:
                benches[name] = _opened(stack, file, name, entry, take_over)
                file.check_bench(name, benches[name].model)
            except LumionError as error:
                error.add_note(f"The bench is {name}.")
                raise
        yield benches


def _opened(
    stack: contextlib.ExitStack, file: JoinedFile, name: str, entry: BenchEntry, take_over: str | None
) -> JoinedBench:
    if entry.address is not None:
        from lumion_hw.remote.client import PvaConnection

        return RemoteBench(stack.enter_context(contextlib.closing(PvaConnection(entry.address, take_over=take_over))))
    path = file.folder / (entry.bench or "")
    model, ends = load(path), file.ends_of(name)
    file.check_bench(name, model)
    address = "+".join(model.devices[driver].address or "controller" for driver in model.mesh_section.drivers)
    opened = CircuitService.open(
        lambda: Bench.open(path, leave_on_s=3600.0, ends=ends, allow_absent_modules=True),
        file.folder / (entry.record or ""),
        state_directory(model.name, address),
        program="lumion joined",
        take_over=take_over,
    )
    return LocalBench(stack.enter_context(opened))
