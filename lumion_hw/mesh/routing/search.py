"""Find the cheapest path of one circuit at current prices, by A*.

Nodes are the PUC-ports where light can enter, followed by one node per port where light can leave.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.mesh.routing.request import STATES, RoutingProblem
from lumion_hw.mesh.routing.result import WavePath
from lumion_hw.mesh.routing.walk import Walker, should_compile

FORBIDDEN = 1e9
"""Price of a conflict at which conflicts are practically forbidden."""

_MAX_SEARCHES = 400
"""Most searches for one circuit; seldom more than 10 are needed, each below 1 ms."""

Nodes = tuple[int, ...]
"""Nodes on the path of one circuit: the PUC-ports that light enters, then the port where it leaves."""


class SearchBudgetExceeded(Exception):  # noqa: N818 - not an error: the search has no result
    """A search reached its limit of steps; whether a path exists is unknown."""


@dataclass(frozen=True)
class WaveGraph:
    """Connections of one mesh as plain lists, which Python reads faster than arrays.

    Attributes:
        bar: Node that light reaches from each PUC-port if the PUC is in bar.
        cross: Node that light reaches from each PUC-port if the PUC is in cross.
        entry: PUC-port that light enters from each port.
        n_waves: Number of PUC-ports; the node of a port is ``n_waves + port``.
    """

    bar: list[int]
    cross: list[int]
    entry: list[int]
    n_waves: int


@lru_cache(maxsize=16)
def wave_graph(mesh: MeshTopology) -> WaveGraph:
    """Return the connections of a mesh; cached."""
    waves = 4 * mesh.n_pucs
    nodes = np.where(mesh.successors >= 0, mesh.successors, waves - 1 - mesh.successors)
    return WaveGraph(nodes[:, 0].tolist(), nodes[:, 1].tolist(), mesh.port_puc_port.tolist(), waves)


# 1024 tables take 25 MB for a mesh of 725 PUCs.
@lru_cache(maxsize=1024)
def _hops_left(mesh: MeshTopology, port: int) -> NDArray[np.float64]:
    """Return the smallest number of PUCs from each node to a port; cached, do not modify."""
    ports = np.full(mesh.n_ports, math.inf)
    ports[port] = 0.0
    waves = mesh.hops_to_port[port].astype(np.float64)
    waves[waves >= 8 * mesh.n_pucs] = math.inf
    return np.concatenate([waves, ports])


@lru_cache(maxsize=16)
def walker(mesh: MeshTopology, *, compiled: bool) -> Walker:
    """Return the path searcher of a mesh; cached."""
    graph = wave_graph(mesh)
    return Walker(graph.bar, graph.cross, graph.n_waves + mesh.n_ports, compiled=compiled)


def estimates(request: RoutingProblem, weight: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Return, for each circuit, the smallest total weight of a path from each node to its target port.

    Args:
        request: The routing problem.
        weight: Shape ``(n_pucs, 2)``; weight of passing a PUC in bar and in cross.
    """
    mesh = request.mesh
    targets = [target for _, target in request.pairs]
    uniform = float(weight.flat[0]) if np.ptp(weight) == 0.0 else 0.0
    # Without obstacles and with equal weights, the cached hops of the mesh serve every request.
    if uniform > 0.0 and not request.blocked:
        return [uniform * _hops_left(mesh, target) for target in targets]
    return _estimates_with_obstacles(request, weight, targets)


def _estimates_with_obstacles(
    request: RoutingProblem, weight: NDArray[np.float64], targets: list[int]
) -> list[NDArray[np.float64]]:
    graph = wave_graph(request.mesh)
    size = graph.n_waves + request.mesh.n_ports
    heads = np.array([graph.bar, graph.cross]).T
    live = np.ones((request.mesh.n_pucs, 2), dtype=bool)
    for puc, state in request.blocked:
        live[puc, STATES.index(state)] = False
    usable = np.repeat(live, 4, axis=0)
    tails, column = np.nonzero(usable)
    weights = np.repeat(weight, 4, axis=0)[tails, column]
    # Search backwards from the target: one run serves every node.
    estimate = cheapest_costs(
        weights, heads[tails, column], tails, size, [graph.n_waves + target for target in targets]
    )
    # Reduce slightly: an estimate above the true cost, by rounding, would no longer prove the cheapest path.
    return list(np.maximum(estimate * (1.0 - 1e-12) - 1e-9, 0.0))


def cheapest_costs(
    weights: NDArray[np.float64],
    tails: NDArray[np.intp],
    heads: NDArray[np.intp],
    n_nodes: int,
    starts: Sequence[int] | NDArray[np.intp],
) -> NDArray[np.float64]:
    """Return the cost of the cheapest path from each start to every node, shape ``(n_starts, n_nodes)``.

    Arcs have a weight of 0 or more and lead from ``tails`` to ``heads`` (nodes).
    """
    import scipy.sparse as sp
    from scipy.sparse.csgraph import dijkstra

    # scipy below 1.15 needs 32-bit node numbers. The sparse matrix would drop arcs of weight exactly zero.
    ends = (tails.astype(np.int32), heads.astype(np.int32))
    costs: NDArray[np.float64] = dijkstra(
        sp.csr_array((np.maximum(weights, 1e-12), ends), shape=(n_nodes, n_nodes)), indices=starts
    )
    return costs


def cost_lower_bound(request: RoutingProblem) -> float:
    """Return a lower bound of the cost of any routing: the cheapest paths of all circuits, each alone."""

    def separate_costs(weight: NDArray[np.float64]) -> NDArray[np.float64]:
        entry = wave_graph(request.mesh).entry
        starts = [entry[source] for source, _ in request.pairs]
        return np.array([estimate[start] for estimate, start in zip(estimates(request, weight), starts, strict=True)])

    costs = separate_costs(request.pass_cost)
    if request.equal:
        hops = separate_costs(np.ones_like(request.pass_cost))
        for group in map(list, request.equal):
            # A longer path costs at least its number of PUCs times the cheapest PUC.
            costs[group] = np.maximum(costs[group], hops[group].max() * request.pass_cost.min())
    # A circuit without any path gives no bound; the search reports it.
    return float(costs.sum()) if np.isfinite(costs).all() else 0.0


class Prices:
    """Prices of all PUC states, and the number of circuits that use each state."""

    def __init__(self, request: RoutingProblem) -> None:
        graph = wave_graph(request.mesh)
        self.graph = graph
        self.walker = walker(request.mesh, compiled=should_compile(request.mesh.n_pucs))
        base = request.pass_cost + request.state_cost
        for puc, state in request.blocked:
            base[puc, STATES.index(state)] = math.inf
        self._fresh = self.walker.packed(base.reshape(-1))
        self._state_costs: list[float] = request.state_cost.reshape(-1).tolist()
        self._has_state_costs = bool(request.state_cost.any())
        self._disjoint = request.disjoint
        self.pressure = 0.0
        self.reset()

    def reset(self) -> None:
        """Remove all recorded circuits and all surcharges."""
        self.state_price = self._fresh.copy()
        self.use = self.walker.packed([0] * len(self._fresh))

    def arcs(self, nodes: Nodes) -> list[int]:
        """Return the PUC states on a path, as ``2 puc + (0 bar, 1 cross)``."""
        bar = self.graph.bar
        # Wave a enters PUC a // 4, whose bar state has number 2·(a // 4) and whose cross state the next one.
        return [(a >> 1 & -2) + (bar[a] != b) for a, b in pairwise(nodes)]

    def add(self, nodes: Nodes) -> None:
        """Record the PUC states that a circuit uses; where circuits may not share PUCs, also the opposite states."""
        use = self.use
        if self._disjoint:
            for puc in {node >> 2 for node in nodes[:-1]}:
                use[2 * puc] += 1
                use[2 * puc + 1] += 1
            return
        for arc in self.arcs(nodes):
            use[arc] += 1
            # Only the first circuit that needs a state pays for holding it; others share it.
            if self._has_state_costs and use[arc] == 1:
                self.state_price[arc] -= self._state_costs[arc]

    def remove(self, nodes: Nodes) -> None:
        """Delete the record of :meth:`add`."""
        use = self.use
        if self._disjoint:
            for puc in {node >> 2 for node in nodes[:-1]}:
                use[2 * puc] -= 1
                use[2 * puc + 1] -= 1
            return
        for arc in self.arcs(nodes):
            use[arc] -= 1
            if self._has_state_costs and use[arc] == 0:
                self.state_price[arc] += self._state_costs[arc]

    def is_contested(self, arc: int) -> bool:
        """Return whether a recorded circuit with this PUC state conflicts with another circuit there."""
        # A circuit that does not share PUCs has recorded the opposite state itself.
        return bool(self.use[arc ^ 1] > self._disjoint)

    def conflicts(self, nodes: Nodes) -> bool:
        """Return whether a recorded circuit needs a PUC in both states, or conflicts with other circuits."""
        use, own = self.use, int(self._disjoint)
        return any(use[arc ^ 1] > own for arc in self.arcs(nodes))

    def states_price(self, nodes: Nodes) -> float:
        """Return the price of the PUC states on a circuit's path, without surcharges for conflicts."""
        return float(sum(self.state_price[arc] for arc in self.arcs(nodes)))

    def to_wave_path(self, nodes: Nodes) -> WavePath:
        """Return the nodes of a search result as a path."""
        states = tuple(STATES[arc & 1] for arc in self.arcs(nodes))
        return WavePath(tuple(nodes[:-1]), states)


class Search:
    """Searches for paths of the circuits of one routing problem."""

    def __init__(self, request: RoutingProblem, prices: Prices) -> None:
        self._request = request
        self._prices = prices
        self._graph = prices.graph
        self._estimates = self._packed_estimates(request.pass_cost)
        self._hops_left: list[Any] = []
        self._loss_left: list[Any] = []
        if any(limit.any for limit in request.limits):
            self._hops_left = self._packed_estimates(np.ones_like(request.pass_cost))
            if any(limit.max_loss_db is not None for limit in request.limits):
                self._loss_left = self._packed_estimates(np.repeat(request.loss_db[:, None], 2, axis=1))

    def _packed_estimates(self, weight: NDArray[np.float64]) -> list[Any]:
        return [self._prices.walker.packed(estimate) for estimate in estimates(self._request, weight)]

    def goal(self, index: int) -> int:
        """Return the node where the light of a circuit leaves."""
        return self._graph.n_waves + self._request.pairs[index][1]

    def cheapest_path(self, index: int, max_searches: int = _MAX_SEARCHES) -> tuple[float, Nodes] | None:
        """Return the total price and the nodes of one circuit's cheapest path; ``None`` if no path exists (proven).

        Raises:
            SearchBudgetExceeded: The search ended without a result.
        """
        walks: list[tuple[float, int, tuple[int, ...], Nodes]] = []
        pending: list[tuple[int, ...]] = [()]
        searches = 0
        while True:
            for banned in pending:
                searches += 1
                if path := self._walk(index, banned):
                    # The running number decides ties, so that the result does not depend on the nodes.
                    heapq.heappush(walks, (path[0], searches, banned, path[1]))
            if not walks:
                if self._request.limits[index].exact_hops is not None:
                    raise SearchBudgetExceeded  # the exact-length search prunes too much to prove anything
                return None
            if searches > max_searches:
                raise SearchBudgetExceeded
            cost, _, banned, nodes = heapq.heappop(walks)
            arcs = self._prices.arcs(nodes)
            passed = set(arcs)
            clash = next((arc for arc in arcs if arc ^ 1 in passed), None)
            if clash is None:
                return cost, nodes
            # Every valid path avoids at least one of these two states, so no path is lost.
            pending = [(*banned, clash), (*banned, clash ^ 1)]

    def _walk(self, index: int, banned: Sequence[int]) -> tuple[float, Nodes] | None:
        """Return the cheapest walk that avoids the banned PUC states; it may need one PUC in both states."""
        price = self._prices.state_price
        saved_prices = [(arc, price[arc]) for arc in banned]
        for arc in banned:
            price[arc] = math.inf
        try:
            return (
                self._cheapest_within_limits(index)
                if self._request.limits[index].any
                else self._cheapest_unlimited(index)
            )
        finally:
            for arc, value in reversed(saved_prices):
                price[arc] = value

    def _cheapest_unlimited(self, index: int) -> tuple[float, Nodes] | None:
        prices, source = self._prices, self._request.pairs[index][0]
        price, nodes = prices.walker.cheapest(
            prices.state_price,
            prices.use,
            prices.pressure,
            self._estimates[index],
            self._graph.entry[source],
            self.goal(index),
        )
        return None if price == math.inf else (price, tuple(nodes))

    def _cheapest_within_limits(self, index: int) -> tuple[float, Nodes] | None:
        limit = self._request.limits[index]
        has_exact_hops = limit.exact_hops is not None
        max_hops = math.inf if limit.hop_ceiling is None else limit.hop_ceiling
        # Losses are summed in another order elsewhere, so allow for rounding at the limit.
        max_loss = math.inf if limit.max_loss_db is None else limit.max_loss_db + 1e-9
        hops_left = self._hops_left[index]
        loss_left = self._loss_left[index] if self._loss_left else None
        graph, prices, loss_db = self._graph, self._prices, self._request.loss_db
        source, target = self._request.pairs[index]
        estimate, start, goal = self._estimates[index], graph.entry[source], graph.n_waves + target
        labels_at: dict[int, list[tuple[int, float]]] = {}
        # Labels count downwards in the queue, so that ties go to the last label found, as in _cheapest_unlimited.
        labels: list[tuple[int, int]] = [(-1, start)]  # label before, node
        queue: list[tuple[float, int, int, float, float, int]] = [(estimate[start], 0, 0, 0.0, 0.0, start)]
        while queue:
            _, label, hops, loss, so_far, node = heapq.heappop(queue)
            if node == goal:
                if not has_exact_hops or hops == limit.exact_hops:
                    return so_far, _label_nodes(labels, -label)
                continue
            if any((h == hops) if has_exact_hops else (h <= hops and q <= loss) for h, q in labels_at.get(node, ())):
                continue
            labels_at.setdefault(node, []).append((hops, loss))
            arc = node >> 1 & -2
            used_arcs = prices.arcs(_label_nodes(labels, -label)) if has_exact_hops else ()
            for following, passed in ((graph.bar[node], arc), (graph.cross[node], arc + 1)):
                total = so_far + prices.state_price[passed] + prices.pressure * prices.use[passed ^ 1]
                total_loss = loss + float(loss_db[node >> 2])
                if (
                    total + estimate[following] == math.inf
                    or hops + 1 + hops_left[following] > max_hops
                    or (loss_left is not None and total_loss + loss_left[following] > max_loss)
                    or passed ^ 1 in used_arcs
                ):
                    continue
                labels.append((-label, following))
                heapq.heappush(
                    queue, (total + estimate[following], 1 - len(labels), hops + 1, total_loss, total, following)
                )
        return None


def _label_nodes(labels: Sequence[tuple[int, int]], label: int) -> Nodes:
    nodes: list[int] = []
    while label >= 0:
        label, node = labels[label]
        nodes.append(node)
    return tuple(reversed(nodes))
