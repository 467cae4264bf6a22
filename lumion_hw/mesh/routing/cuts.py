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
from numpy.typing import NDArray

from lumion_hw.mesh.routing.request import RoutingProblem

_MOST_FLOWS = 400
"""Runs of ports tried at most; one takes 0.3 ms on 72 PUCs and 2 ms on 725."""


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
        flow, side = network.flow(sources, sinks)
        if flow < len(sources):
            return network.cut(sources, flow, side)
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
        self._request = request
        mesh = request.mesh
        self._ports = 4 * mesh.n_pucs
        self._source = self._ports + 2 * mesh.n_pucs
        edges = [edge for puc in range(mesh.n_pucs) for edge in self._puc_edges(puc)]
        # Joints that standing circuits use carry nothing more.
        taken = {wave for _, way in request.kept for wave in way.waves}
        edges += [(a, b, 1) for a, b in mesh.joints.tolist() if not {a, b} & taken]
        both = edges + [(b, a, capacity) for a, b, capacity in edges]
        self._rows = [a for a, _, _ in both]
        self._columns = [b for _, b, _ in both]
        self._capacity = [capacity for _, _, capacity in both]

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

    def flow(self, sources: Sequence[int], sinks: Sequence[int]) -> tuple[int, NDArray[np.bool_]]:
        """Return the largest flow, and which nodes lie on the source side of a smallest cut."""
        import scipy.sparse as sp
        from scipy.sparse.csgraph import breadth_first_order, maximum_flow

        entry = self._request.mesh.port_puc_port
        source, sink = self._source, self._source + 1
        rows = self._rows + [source] * len(sources) + [int(entry[port]) for port in sinks]
        columns = self._columns + [int(entry[port]) for port in sources] + [sink] * len(sinks)
        capacity = np.array(self._capacity + [1] * (len(sources) + len(sinks)), dtype=np.int32)
        size = sink + 1
        csr_array: Any = sp.csr_array  # its stubs know no integers
        graph = csr_array((capacity, (rows, columns)), shape=(size, size))
        result = maximum_flow(graph, source, sink)
        residual = csr_array(graph - result.flow)
        residual.eliminate_zeros()
        side = np.zeros(size, dtype=bool)
        side[breadth_first_order(residual, source, return_predecessors=False)] = True
        return int(result.flow_value), side

    def cut(self, sources: Sequence[int], flow: int, side: NDArray[np.bool_]) -> Cut:
        """Return what crosses from one side to the other."""
        # A node's PUC; hubs are numbered behind the PUC-ports, two per PUC.
        over = [
            tuple(node // 4 if node < self._ports else (node - self._ports) // 2 for node in edge)
            for edge in zip(self._rows, self._columns, strict=True)
            if side[edge[0]] and not side[edge[1]]
        ]
        index = {port: i for i, pair in enumerate(self._request.pairs) for port in pair}
        return Cut(
            circuits=tuple(sorted({index[port] for port in sources})),
            ports=tuple(sources),
            joints=tuple((a, b) for a, b in over if a != b),
            pucs=tuple(sorted({a for a, b in over if a == b})),
            capacity=flow,
        )
