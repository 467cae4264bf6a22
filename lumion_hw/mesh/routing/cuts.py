"""Proofs that a request cannot be met: joints that are too few for the circuits that have to cross them.

Circuits whose ends are parted by a line across the mesh all have to cross it. If the largest flow from the ends on one
side to those on the other, over joints that carry one circuit each, is smaller than their number, no routing exists,
and the smallest cut is the reason (max-flow min-cut). The flow knows of joints, faults and turning, but lets a PUC
carry light in both states at once: no cut is no promise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lumion_hw.mesh.routing.request import RoutingProblem

_MOST_FLOWS = 400
"""Runs of ports tried at most; one takes 0.1 ms on 72 PUCs and 0.5 ms on 725."""


@dataclass(frozen=True)
class Cut:
    """A proof that circuits cannot be had together.

    Attributes:
        circuits: Indices of the circuits that have to cross.
        ports: Their ends on the smaller side.
        joints: ``(puc, puc)`` of the joints across which they have to go.
        pucs: PUCs through which they have to go, where the cut runs through PUCs.
        capacity: How many circuits can cross.
    """

    circuits: tuple[int, ...]
    ports: tuple[int, ...]
    joints: tuple[tuple[int, int], ...]
    pucs: tuple[int, ...]
    capacity: int

    def __str__(self) -> str:
        ports = ", ".join(map(str, self.ports))
        over = [f"joint{'s' * (len(self.joints) > 1)} " + ", ".join(f"{a}-{b}" for a, b in self.joints)] * bool(
            self.joints
        )
        over += [f"PUC{'s' * (len(self.pucs) > 1)} " + ", ".join(map(str, self.pucs))] * bool(self.pucs)
        way = f", over {' and '.join(over)}," if over else ""
        least = "no circuit" if not self.capacity else f"only {self.capacity} of {len(self.circuits)} circuits"
        return f"{least}{way} can leave port{'s' * (len(self.ports) > 1)} {ports}"


def find_cut(request: RoutingProblem) -> Cut | None:
    """Return the smallest set of circuits found for which a cut proves that they cannot be had together, if any.

    Sets of ends that follow one another round the rim are tried, the smaller ones first.

    Args:
        request: The request.
    """
    network = _Network(request)
    for sources, sinks in _sides(request):
        if network.flow(sources, sinks) < len(sources):
            return network.cut(sources)
    return None


def _sides(request: RoutingProblem) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield the ends inside and outside of every run of ports round the rim, short runs first."""
    partner = {a: b for pair in request.pairs for a, b in (pair, pair[::-1])}
    rim = sorted(partner)
    tried: set[frozenset[int]] = set()
    for length in range(1, len(rim) // 2 + 1):
        for begin in range(len(rim)):
            run = {rim[(begin + i) % len(rim)] for i in range(length)}
            inside = tuple(sorted(port for port in run if partner[port] not in run))
            if not inside or frozenset(inside) in tried:
                continue
            if len(tried) >= _MOST_FLOWS:
                return
            tried.add(frozenset(inside))
            yield inside, tuple(partner[port] for port in inside)


class _Network:
    """The mesh as a flow network: PUC-ports, and a hub for each end of a PUC.

    Args:
        request: The request.
    """

    def __init__(self, request: RoutingProblem) -> None:
        import scipy.sparse as sp

        self._request = request
        mesh = request.mesh
        self._ports = 4 * mesh.n_pucs
        self._source = self._ports + 2 * mesh.n_pucs
        edges = [edge for puc in range(mesh.n_pucs) for edge in self._puc_edges(puc)]
        # Joints that standing circuits use carry nothing more.
        taken = {wave for _, way in request.kept for wave in way.waves}
        edges += [(a, b, 1) for a, b in mesh.joints.tolist() if not {a, b} & taken]
        ends = [int(mesh.port_puc_port[port]) for port in request.ports]
        both = np.array(
            [
                *edges,
                *((b, a, capacity) for a, b, capacity in edges),
                # To be opened for the ends of one flow at a time.
                *((self._source, end, 0) for end in ends),
                *((end, self._source + 1, 0) for end in ends),
            ]
        ).reshape(-1, 3)
        order = np.lexsort((both[:, 1], both[:, 0]))
        self._edges = both[order]
        place = {(a, b): at for at, (a, b, _) in enumerate(self._edges.tolist())}
        self._into = {port: place[self._source, end] for port, end in zip(request.ports, ends, strict=True)}
        self._out = {port: place[end, self._source + 1] for port, end in zip(request.ports, ends, strict=True)}
        csr_array: Any = sp.csr_array  # its stubs know no integers
        size = self._source + 2
        starts = np.searchsorted(self._edges[:, 0], np.arange(size + 1)).astype(np.int32)
        capacity = self._edges[:, 2].astype(np.int32)
        self._graph = csr_array((capacity, self._edges[:, 1].astype(np.int32), starts), shape=(size, size))

    def _puc_edges(self, puc: int) -> list[tuple[int, int, int]]:
        """Return ``(node, node, capacity)`` inside one PUC: rails if it has one state only, else hubs between."""
        bar, cross = ((puc, "bar") in self._request.blocked), ((puc, "cross") in self._request.blocked)
        first = 4 * puc
        if bar and cross:
            return []
        if bar or cross:
            # In one state each rail has one way on: two edges that cannot trade light. Here bar is blocked, so cross.
            flip = 3 if bar else 2
            return [(first, first ^ flip, 1), (first + 1, (first + 1) ^ flip, 1)]
        # In either state two waves pass at most, and which rail goes where is left open: never too small a flow.
        hub_a, hub_b = self._ports + 2 * puc, self._ports + 2 * puc + 1
        ends = [(first + k, hub_a if k < 2 else hub_b, 1) for k in range(4)]
        return [*ends, (hub_a, hub_b, 2)]

    def flow(self, sources: Sequence[int], sinks: Sequence[int]) -> int:
        """Return the largest flow, and keep it for :meth:`cut`."""
        from scipy.sparse.csgraph import maximum_flow

        capacity = self._graph.data
        capacity[[*self._into.values(), *self._out.values()]] = 0
        capacity[[self._into[port] for port in sources] + [self._out[port] for port in sinks]] = 1
        self._flow = maximum_flow(self._graph, self._source, self._source + 1)
        return int(self._flow.flow_value)

    def cut(self, sources: Sequence[int]) -> Cut:
        """Return what crosses from the source side of a smallest cut of the last flow to the other side."""
        import scipy.sparse as sp
        from scipy.sparse.csgraph import breadth_first_order

        residual = sp.csr_array(self._graph - self._flow.flow)
        residual.eliminate_zeros()
        side = np.zeros(self._source + 2, dtype=bool)
        side[breadth_first_order(residual, self._source, return_predecessors=False)] = True
        # A node's PUC; hubs are numbered behind the PUC-ports, two per PUC.
        over = [
            tuple(node // 4 if node < self._ports else (node - self._ports) // 2 for node in edge)
            for edge in self._edges[:, :2].tolist()
            if side[edge[0]] and not side[edge[1]] and max(edge) < self._source
        ]
        index = {port: i for i, pair in enumerate(self._request.pairs) for port in pair}
        return Cut(
            circuits=tuple(sorted({index[port] for port in sources})),
            ports=tuple(sources),
            joints=tuple((a, b) for a, b in over if a != b),
            pucs=tuple(sorted({a for a, b in over if a == b})),
            capacity=int(self._flow.flow_value),
        )
