"""Prove that a request is impossible: too few waveguides for the circuits that must cross a line (cut).

The largest flow between two groups of ports, with one circuit per waveguide, limits the number of circuits between them
(max-flow min-cut). A request without such a cut can still be impossible.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lumion_hw.mesh.routing.request import RoutingProblem

_MAX_FLOWS = 400
"""Largest number of flows calculated; one takes 0.1 ms on 72 PUCs and 0.5 ms on 725 PUCs."""


@dataclass(frozen=True)
class Cut:
    """A line across the mesh that too few circuits can cross.

    Attributes:
        circuits: Indices of the circuits that must cross the line.
        ports: Ports of these circuits on the side of the line with fewer ports.
        joints: Waveguides that the line crosses, each as its two PUCs.
        pucs: PUCs that the line divides: one end lies on each side.
        capacity: Number of circuits that can cross the line.
    """

    circuits: tuple[int, ...]
    ports: tuple[int, ...]
    joints: tuple[tuple[int, int], ...]
    pucs: tuple[int, ...]
    capacity: int

    def __str__(self) -> str:
        ports = ", ".join(map(str, self.ports))
        crossed = [f"joint{'s' * (len(self.joints) > 1)} " + ", ".join(f"{a}-{b}" for a, b in self.joints)] * bool(
            self.joints
        )
        crossed += [f"PUC{'s' * (len(self.pucs) > 1)} " + ", ".join(map(str, self.pucs))] * bool(self.pucs)
        crossing = f", over {' and '.join(crossed)}," if crossed else ""
        circuits = "no circuit" if not self.capacity else f"only {self.capacity} of {len(self.circuits)} circuits"
        return f"{circuits}{crossing} can leave port{'s' * (len(self.ports) > 1)} {ports}"


def find_cut(request: RoutingProblem) -> Cut | None:
    """Return a cut that proves the request impossible, or ``None`` if none was found."""
    network = _Network(request)
    for sources, sinks in _sides(request):
        if network.flow(sources, sinks) < len(sources):
            return network.cut(sources)
    return None


def _sides(request: RoutingProblem) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    # A cut works in both directions, so it does not matter which end of a circuit sends.
    partner = {a: b for pair in request.pairs for a, b in (pair, pair[::-1])}
    rim = sorted(partner)
    tried: set[frozenset[int]] = set()
    for length in range(1, len(rim) // 2 + 1):
        for begin in range(len(rim)):
            run = {rim[(begin + i) % len(rim)] for i in range(length)}
            leaving_ports = tuple(sorted(port for port in run if partner[port] not in run))
            # Circuits with both ends in the run need not cross, and the same set of others needs no second flow.
            if not leaving_ports or frozenset(leaving_ports) in tried:
                continue
            if len(tried) >= _MAX_FLOWS:
                return
            tried.add(frozenset(leaving_ports))
            yield leaving_ports, tuple(partner[port] for port in leaving_ports)


class _Network:
    """The mesh as a flow network. Nodes: the PUC-ports, and one per PUC end where its two rails meet."""

    def __init__(self, request: RoutingProblem) -> None:
        import scipy.sparse as sp

        self._request = request
        mesh = request.mesh
        self._ports = 4 * mesh.n_pucs
        self._source = self._ports + 2 * mesh.n_pucs
        edges = [edge for puc in range(mesh.n_pucs) for edge in self._puc_edges(puc)]
        # Joints used by active circuits carry no further circuit.
        used_waves = {wave for _, wave_path in request.staying for wave in wave_path.waves}
        edges += [(a, b, 1) for a, b in mesh.joints.tolist() if not {a, b} & used_waves]
        ends = [int(mesh.port_puc_port[port]) for port in request.ports]
        directed_edges = np.array(
            [
                *edges,
                *((b, a, capacity) for a, b, capacity in edges),
                # Capacity 0 until ``flow`` opens the ends of one flow.
                *((self._source, end, 0) for end in ends),
                *((end, self._source + 1, 0) for end in ends),
            ]
        ).reshape(-1, 3)
        order = np.lexsort((directed_edges[:, 1], directed_edges[:, 0]))
        self._edges = directed_edges[order]
        edge_index = {(a, b): at for at, (a, b, _) in enumerate(self._edges.tolist())}
        self._into = {port: edge_index[self._source, end] for port, end in zip(request.ports, ends, strict=True)}
        self._out = {port: edge_index[end, self._source + 1] for port, end in zip(request.ports, ends, strict=True)}
        csr_array: Any = sp.csr_array  # the type stubs lack the integer overloads
        size = self._source + 2
        starts = np.searchsorted(self._edges[:, 0], np.arange(size + 1)).astype(np.int32)
        capacity = self._edges[:, 2].astype(np.int32)
        self._graph = csr_array((capacity, self._edges[:, 1].astype(np.int32), starts), shape=(size, size))

    def _puc_edges(self, puc: int) -> list[tuple[int, int, int]]:
        bar, cross = ((puc, "bar") in self._request.blocked), ((puc, "cross") in self._request.blocked)
        first = 4 * puc
        if bar and cross:
            return []
        if bar or cross:
            # With one usable state each rail has one exit, so two edges suffice. If bar is blocked the state is cross.
            flip = 3 if bar else 2
            return [(first, first ^ flip, 1), (first + 1, (first + 1) ^ flip, 1)]
        # At most two waves pass in either state. Leaving the exits open never underestimates the flow.
        hub_a, hub_b = self._ports + 2 * puc, self._ports + 2 * puc + 1
        ends = [(first + k, hub_a if k < 2 else hub_b, 1) for k in range(4)]
        return [*ends, (hub_a, hub_b, 2)]

    def flow(self, sources: Sequence[int], sinks: Sequence[int]) -> int:
        """Return how many circuits can run from sources to sinks at once, whichever source leads to whichever sink."""
        from scipy.sparse.csgraph import maximum_flow

        capacity = self._graph.data
        capacity[[*self._into.values(), *self._out.values()]] = 0
        capacity[[self._into[port] for port in sources] + [self._out[port] for port in sinks]] = 1
        self._flow = maximum_flow(self._graph, self._source, self._source + 1)
        return int(self._flow.flow_value)

    def cut(self, sources: Sequence[int]) -> Cut:
        """Return the waveguides that limit the last :meth:`flow`."""
        import scipy.sparse as sp
        from scipy.sparse.csgraph import breadth_first_order

        residual = sp.csr_array(self._graph - self._flow.flow)
        residual.eliminate_zeros()
        side = np.zeros(self._source + 2, dtype=bool)
        side[breadth_first_order(residual, self._source, return_predecessors=False)] = True
        # PUC of each node; hubs are numbered after the PUC-ports, two per PUC.
        cut_pucs = [
            tuple(node // 4 if node < self._ports else (node - self._ports) // 2 for node in edge)
            for edge in self._edges[:, :2].tolist()
            # Edges of the smallest cut lead from the reached side to the other; those of source and sink are no part of
            # the mesh.
            if side[edge[0]] and not side[edge[1]] and max(edge) < self._source
        ]
        index = {port: i for i, pair in enumerate(self._request.pairs) for port in pair}
        return Cut(
            circuits=tuple(sorted({index[port] for port in sources})),
            ports=tuple(sources),
            joints=tuple((a, b) for a, b in cut_pucs if a != b),
            pucs=tuple(sorted({a for a, b in cut_pucs if a == b})),
            capacity=int(self._flow.flow_value),
        )
