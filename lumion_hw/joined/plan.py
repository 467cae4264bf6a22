"""Plans circuits between modules on different benches: one segment in each mesh, feasible together."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.bench.file.model import BenchModel
from lumion_hw.bench.file.module_optics import ModuleOptics
from lumion_hw.circuits import CircuitRequest
from lumion_hw.errors import CircuitError, ConfigError, LumionError, NoPathError, RoutingError, name_hint
from lumion_hw.interfaces.wiring import end_name
from lumion_hw.joined.file import MeshFibre

_ROUNDS = 12
"""Largest number of choices of fibres that are tried."""
_NEGOTIATIONS = 60
"""Largest number of rounds in which circuits negotiate about fibres."""
_PRICE = 1.0
"""Rise of the price of a fibre that several circuits want, in PUCs per round."""
_REFUSED_COST = 4.0
"""Cost, in PUCs, that a segment gets each time a bench refuses a set with it."""
_LIGHT_NS_PER_M = 4.9

PlanOnBench = Callable[[str, Sequence[CircuitRequest]], Sequence[Mapping[str, Any]]]
"""Plans segments on a bench beside its active circuits; see :meth:`lumion_hw.joined.JoinedBench.plan`."""


@dataclass(frozen=True)
class JoinedRequest:
    """Request for one directed circuit between modules of joined benches.

    Attributes:
        source: Bench and module that sends.
        target: Bench and module that receives.
        min_margin_db: Margin kept above the receiver's sensitivity and below its overload level.
    """

    source: tuple[str, str]
    target: tuple[str, str]
    min_margin_db: float = 0.0

    @classmethod
    def parse(cls, text: str, min_margin_db: float = 0.0) -> JoinedRequest:
        """Return the request of a name such as ``rack0:sfp-a:rack1:sfp-b``. Raises ``ConfigError`` for another text."""
        parts = text.split(":")
        if len(parts) != 4 or not all(parts):
            raise ConfigError(
                f"{text[:80]!r} is not a circuit of joined meshes",
                hint="Write bench and module of both ends, such as rack0:sfp-a:rack1:sfp-b.",
            )
        return cls((parts[0], parts[1]), (parts[2], parts[3]), min_margin_db)

    @property
    def name(self) -> str:
        """Name of the circuit, such as ``rack0:sfp-a:rack1:sfp-b``."""
        return ":".join((*self.source, *self.target))

    def reverse(self) -> JoinedRequest:
        """Return the request for the opposite direction."""
        return replace(self, source=self.target, target=self.source)

    def __str__(self) -> str:
        return f"{':'.join(self.source)} to {':'.join(self.target)}"


@dataclass(frozen=True)
class PlannedLink:
    """A planned circuit over one or several meshes.

    Attributes:
        segments: Bench and request of each segment, in the order of the light.
        fibres: The fibres between them.
        losses_db: Predicted loss of each mesh.
        received_dbm: Predicted power at the end of each segment; the last one is that of the receiver.
        margin_db: Predicted margin over the receiver's sensitivity.
    """

    request: JoinedRequest
    segments: tuple[tuple[str, CircuitRequest], ...]
    fibres: tuple[MeshFibre, ...]
    losses_db: tuple[float, ...] = ()
    received_dbm: tuple[float, ...] = ()
    margin_db: float = math.nan

    @property
    def delay_ns(self) -> float:
        """Time that light needs in the fibres between the meshes, in ns."""
        return _LIGHT_NS_PER_M * sum(fibre.length_m for fibre in self.fibres)

    def document(self) -> dict[str, Any]:
        """Return the planned circuit as a JSON document."""
        return {
            "circuit": self.request.name,
            "segments": [f"{bench}: {request.name}" for bench, request in self.segments],
            "fibres": [str(fibre) for fibre in self.fibres],
            "mesh_loss_db": [round(loss_db, 3) for loss_db in self.losses_db],
            "fibre_loss_db": round(sum(fibre.loss_db for fibre in self.fibres), 3),
            "received_dbm": round(self.received_dbm[-1], 3) if self.received_dbm else None,
            "margin_db": round(self.margin_db, 3),
            "delay_ns": round(self.delay_ns, 1),
        }


@dataclass(frozen=True)
class JoinedPlan:
    """Circuits that are feasible together on all benches."""

    links: tuple[PlannedLink, ...]

    def segments_of(self, bench: str) -> list[CircuitRequest]:
        """Return the segments on a bench."""
        return [request for link in self.links for name, request in link.segments if name == bench]

    @property
    def benches(self) -> tuple[str, ...]:
        """Names of all benches that a circuit crosses."""
        return tuple(dict.fromkeys(name for link in self.links for name, _ in link.segments))

    @property
    def stages(self) -> int:
        """Largest number of segments of a circuit."""
        return max((len(link.segments) for link in self.links), default=0)


@dataclass
class LinkPlanner:
    """Chooses fibres for circuits, and asks the benches whether the segments are feasible.

    Attributes:
        models: Bench file of each bench.
        fibres: The fibres that no circuit uses.
        plan_on: Plans segments on a bench.
    """

    models: Mapping[str, BenchModel]
    fibres: Sequence[MeshFibre]
    plan_on: PlanOnBench
    _refused: dict[tuple[str, str], float] = field(default_factory=dict)
    _sites: dict[str, _Site] = field(default_factory=dict)

    def plan(self, requests: Sequence[JoinedRequest]) -> JoinedPlan:
        """Return a plan in which all circuits are feasible together.

        Raises:
            ConfigError: A bench or a module does not exist, or is used twice.
            CircuitError: No choice of fibres was feasible; the message gives the reason of the last bench.
            LumionError: A bench does not answer.
        """
        for request in requests:
            self._check(request)
        _check_used_once(requests)
        reason, error = "", None
        for _ in range(_ROUNDS):
            try:
                return self._with_budgets(self._choose_fibres(requests))
            except _RefusedOnBench as refusal:
                reason, error = f"bench {refusal.bench}: {refusal.error}", refusal.error
                before = dict(self._refused)
                self._penalize(refusal)
                if before == self._refused:
                    break
        raise CircuitError(
            f"the circuits are not possible together: {reason}", hint="Connect fewer circuits, or use other modules."
        ) from error

    # -- requests -----------------------------------------------------------------------------------------------------

    def _check(self, request: JoinedRequest) -> None:
        for bench, module in (request.source, request.target):
            if bench not in self.models:
                raise ConfigError(
                    f"circuit {request}: there is no bench {bench!r}", hint=name_hint(bench, self.models, "There are")
                )
            devices = self.models[bench].devices
            modules = [name for name, device in devices.items() if device.optics is not None]
            if module not in modules:
                raise ConfigError(
                    f"circuit {request}: bench {bench} has no module {module!r}", hint=name_hint(module, modules)
                )
        if request.source[0] != request.target[0] and self._optics(request).polarizations != 1:
            raise ConfigError(
                f"circuit {request}: its signal has two polarizations, and a fibre between meshes carries one",
                hint="Connect modules with one polarization, such as SFP+.",
            )

    def _optics(self, request: JoinedRequest) -> ModuleOptics:
        optics = self.models[request.source[0]].devices[request.source[1]].optics
        if optics is None:
            raise ConfigError(f"circuit {request}: {request.source[1]} is not a module")
        return optics

    # -- choice of fibres ---------------------------------------------------------------------------------------------

    def _choose_fibres(self, requests: Sequence[JoinedRequest]) -> list[PlannedLink]:
        """Choose fibres for all circuits by negotiation: a fibre that several circuits want gets more expensive.

        Raises:
            NoPathError: There are not enough free fibres.
        """
        prices: dict[MeshFibre, float] = {}
        chains: dict[JoinedRequest, tuple[MeshFibre, ...]] = {}
        users: Counter[MeshFibre] = Counter()
        for number in range(_NEGOTIATIONS):
            for request in requests:
                users -= Counter(chains.get(request, ()))
                costs = {fibre: prices.get(fibre, 0.0) + number * count for fibre, count in users.items()}
                chains[request] = self._shortest_chain(request, {**prices, **costs})
                users += Counter(chains[request])
            wanted = {fibre for fibre, count in users.items() if count > 1}
            if not wanted:
                return [self._link(request, chains[request]) for request in requests]
            prices |= {fibre: prices.get(fibre, 0.0) + _PRICE for fibre in wanted}
        short = [request for request in requests if set(chains[request]) & wanted]
        raise NoPathError(
            f"circuits {', '.join(map(str, short))}: there are not enough free fibres between the meshes",
            hint="Disconnect a circuit between these benches, or add fibres.",
        )

    def _shortest_chain(self, request: JoinedRequest, prices: Mapping[MeshFibre, float]) -> tuple[MeshFibre, ...]:
        """Return the free fibres with the fewest PUCs between them, and the lowest prices (Dijkstra's algorithm).

        Raises:
            NoPathError: No free fibres lead to the target.
        """
        count = itertools.count()
        (source, module), (target, receiver) = request.source, request.target
        start = self._site(source).inputs.get(module)
        queue: list[tuple[float, int, str, int | None, tuple[MeshFibre, ...]]] = [(0.0, next(count), source, start, ())]
        done: set[tuple[str, int | None]] = set()
        while queue:
            cost, _, bench, port, chain = heapq.heappop(queue)
            if bench == "":
                return chain
            if (bench, port) in done:
                continue
            done.add((bench, port))
            name = end_name(chain[-1].end.port) if chain else module
            if bench == target:
                last = cost + self._cost(bench, port, self._site(target).outputs.get(receiver), f"{name}:{receiver}")
                heapq.heappush(queue, (last, next(count), "", None, chain))
                continue
            for fibre in self._site(bench).leaving:
                segment = f"{name}:{end_name(fibre.start.port)}"
                step = self._cost(bench, port, fibre.start.port, segment) + fibre.loss_db + prices.get(fibre, 0.0)
                if math.isfinite(step) and fibre.end.bench != source:
                    entry = (cost + step, next(count), fibre.end.bench, fibre.end.port, (*chain, fibre))
                    heapq.heappush(queue, entry)
        raise NoPathError(
            f"circuit {request}: no free fibres lead from {source} to {target}",
            hint="Disconnect a circuit between these benches, or add fibres.",
        )

    def _site(self, bench: str) -> _Site:
        if bench not in self._sites:
            model = self.models[bench]
            wiring, leaving = model.to_wiring(), tuple(fibre for fibre in self.fibres if fibre.start.bench == bench)
            self._sites[bench] = _Site(
                model.topology().shortest_hops,
                {path.transponder: path.port for path in reversed(wiring.inputs) if path.transponder},
                {output.transponder: output.port for output in reversed(wiring.outputs) if output.transponder},
                leaving,
            )
        return self._sites[bench]

    def _cost(self, bench: str, entry: int | None, leaving: int | None, segment: str) -> float:
        """Return the cost of a segment, in PUCs."""
        if entry is None or leaving is None:  # the bench will name the module that is not wired
            return 0.0
        hops = float(self._site(bench).shortest_hops[entry, leaving])
        return (hops if hops >= 0 else math.inf) + self._refused.get((bench, segment), 0.0)

    def _link(self, request: JoinedRequest, chain: tuple[MeshFibre, ...]) -> PlannedLink:
        benches = [request.source[0], *(fibre.end.bench for fibre in chain)]
        sources = [request.source[1], *(end_name(fibre.end.port) for fibre in chain)]
        targets = [*(end_name(fibre.start.port) for fibre in chain), request.target[1]]
        segments = [CircuitRequest(source, target) for source, target in zip(sources, targets, strict=True)]
        segments[-1] = replace(segments[-1], min_margin_db=request.min_margin_db)
        return PlannedLink(request, tuple(zip(benches, segments, strict=True)), chain)

    # -- budgets ------------------------------------------------------------------------------------------------------

    def _with_budgets(self, links: Sequence[PlannedLink]) -> JoinedPlan:
        planned = JoinedPlan(tuple(links))
        for stage in range(planned.stages):
            planned = self._plan_stage(planned, stage)
        return planned

    def _plan_stage(self, planned: JoinedPlan, stage: int) -> JoinedPlan:
        """Plan the segments number ``stage`` of all circuits, with all earlier segments on the same benches."""
        links = [self._with_signal(link, stage) for link in planned.links]
        documents: dict[tuple[str, str], Mapping[str, Any]] = {}
        for bench in dict.fromkeys(link.segments[stage][0] for link in links if len(link.segments) > stage):
            requests = [request for link in links for name, request in link.segments[: stage + 1] if name == bench]
            try:
                documents |= {(bench, str(doc["circuit"])): doc for doc in self.plan_on(bench, requests)}
            except (RoutingError, CircuitError) as error:
                raise _RefusedOnBench(bench, requests, links, error) from error
        return JoinedPlan(tuple(_measured(link, stage, documents) for link in links))

    def _with_signal(self, link: PlannedLink, stage: int) -> PlannedLink:
        if stage == 0 or len(link.segments) <= stage:
            return link
        arriving_dbm = link.received_dbm[stage - 1] - link.fibres[stage - 1].loss_db
        signal = replace(self._optics(link.request), launch_dbm=round(arriving_dbm, 3))
        bench, request = link.segments[stage]
        changed = (bench, replace(request, signal=signal))
        return replace(link, segments=(*link.segments[:stage], changed, *link.segments[stage + 1 :]))

    def _penalize(self, refusal: _RefusedOnBench) -> None:
        ports = refusal.error.ports if isinstance(refusal.error, NoPathError) else None
        for request in refusal.requests:
            named = request.name in refusal.error.message or str(request) in refusal.error.message
            if named or ports is None or ports == self._ports_of(refusal.bench, request):
                key = refusal.bench, request.name
                self._refused[key] = self._refused.get(key, 0.0) + _REFUSED_COST

    def _ports_of(self, bench: str, request: CircuitRequest) -> tuple[int | None, int | None]:
        def port(name: str, wired: Mapping[str, int]) -> int | None:
            return wired.get(name, int(name[4:]) if name[4:].isdecimal() else None)

        site = self._site(bench)
        return port(request.source, site.inputs), port(request.target, site.outputs)


@dataclass(frozen=True)
class _Site:
    """The parts of a bench that the choice of fibres needs.

    Attributes:
        shortest_hops: Number of PUCs between two ports of the mesh; negative if there is no path.
        inputs: Port of each module's transmitter.
        outputs: Port of each module's receiver.
        leaving: Free fibres that lead away.
    """

    shortest_hops: NDArray[np.int64]
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    leaving: tuple[MeshFibre, ...]


class _RefusedOnBench(Exception):  # noqa: N818 - caught inside this module
    """A bench cannot set up a set of segments."""

    def __init__(
        self, bench: str, requests: Sequence[CircuitRequest], links: Sequence[PlannedLink], error: LumionError
    ) -> None:
        super().__init__(str(error))
        self.bench, self.requests, self.links = bench, requests, links
        self.error = error


def _measured(link: PlannedLink, stage: int, documents: Mapping[tuple[str, str], Mapping[str, Any]]) -> PlannedLink:
    if len(link.segments) <= stage:
        return link
    bench, request = link.segments[stage]
    document = documents[bench, request.name]
    return replace(
        link,
        losses_db=(*link.losses_db, float(document["loss_db"])),
        received_dbm=(*link.received_dbm, float(document["received_dbm"])),
        margin_db=float(document["margin_db"]),
    )


def _check_used_once(requests: Sequence[JoinedRequest]) -> None:
    for ends, role in ((("source"), "sends"), (("target"), "receives")):
        used: set[tuple[str, str]] = set()
        for request in requests:
            end = getattr(request, ends)
            if end in used:
                raise ConfigError(
                    f"module {':'.join(end)} {role} in two of the circuits", hint="Leave one of them out."
                )
            used.add(end)


def free_fibres(fibres: Sequence[MeshFibre], names_in_use: Mapping[str, Collection[str]]) -> Iterator[MeshFibre]:
    """Yield the fibres of which no circuit uses an end.

    Args:
        fibres: All fibres.
        names_in_use: Names of the ends of all circuits of each bench, such as ``sfp-a`` and ``port12``.
    """
    for fibre in fibres:
        ends = ((fibre.start.bench, fibre.start.port), (fibre.end.bench, fibre.end.port))
        if not any(end_name(port) in names_in_use[bench] for bench, port in ends):
            yield fibre
