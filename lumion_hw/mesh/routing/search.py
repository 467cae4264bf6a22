"""The cheapest way of one circuit under the present prices: A* over the directed waves.

Nodes are the waves that enter PUC-ports, and behind them one node per port for light that leaves. The estimate of what
is left is the unpriced cost from each wave to the target, so with few prices the search goes nearly straight.
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
from lumion_hw.mesh.routing.walk import Walker, worth_compiling

HARD = 1e9
"""Pressure at which a conflict is as good as forbidden."""

_MOST_SEARCHES = 400
"""Searches for one circuit before it is given up as undecided; seldom more than 10 are needed, none takes over 1 ms."""

Nodes = tuple[int, ...]
"""The nodes of one circuit, from the wave that enters to the port that light leaves."""


class SearchBudgetExceeded(Exception):  # noqa: N818 - no error of anyone's: the search has decided nothing
    """A search was given up; whether there is a path is not known."""


@dataclass(frozen=True)
class WaveGraph:
    """One mesh as plain lists, which Python reads faster than arrays.

    Attributes:
        bar: Node after each wave in bar.
        cross: Node after each wave in cross.
        entry: Wave that enters at each port.
        n_waves: Number of waves; the node of a port that light leaves is ``n_waves + port``.
    """

    bar: list[int]
    cross: list[int]
    entry: list[int]
    n_waves: int


@lru_cache(maxsize=16)
def wave_graph(mesh: MeshTopology) -> WaveGraph:
    """Return the lists of a mesh, made once."""
    waves = 4 * mesh.n_pucs
    nodes = np.where(mesh.successors >= 0, mesh.successors, waves - 1 - mesh.successors)
    return WaveGraph(nodes[:, 0].tolist(), nodes[:, 1].tolist(), mesh.port_puc_port.tolist(), waves)


@lru_cache(maxsize=1024)
def _hops_left(mesh: MeshTopology, port: int) -> NDArray[np.float64]:
    """Return the fewest PUCs from each node to leaving at a port; not to be changed."""
    ports = np.full(mesh.n_ports, math.inf)
    ports[port] = 0.0
    waves = mesh.hops_to_port[port].astype(np.float64)
    waves[waves >= 8 * mesh.n_pucs] = math.inf
    return np.concatenate([waves, ports])


@lru_cache(maxsize=16)
def walker(mesh: MeshTopology, *, compiled: bool) -> Walker:
    """Return what searches a mesh, made once."""
    graph = wave_graph(mesh)
    return Walker(graph.bar, graph.cross, graph.n_waves + mesh.n_ports, compiled=compiled)


def estimates(request: RoutingProblem, weight: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Return, for each circuit, the least total weight from each node to leaving at its target.

    Args:
        request: The request; its blocked states are gone round.
        weight: Shape ``(n_pucs, 2)``; weight of passing each PUC in bar and in cross.
    """
    mesh = request.mesh
    targets = [target for _, target in request.pairs]
    uniform = float(weight.flat[0]) if np.ptp(weight) == 0.0 else 0.0
    if uniform > 0.0 and not request.blocked:
        return [uniform * _hops_left(mesh, target) for target in targets]
    return _estimates_round_obstacles(request, weight, targets)


def _estimates_round_obstacles(
    request: RoutingProblem, weight: NDArray[np.float64], targets: list[int]
) -> list[NDArray[np.float64]]:
    """Return the estimates of a mesh with obstacles or uneven weights."""
    graph = wave_graph(request.mesh)
    size = graph.n_waves + request.mesh.n_ports
    heads = np.array([graph.bar, graph.cross]).T
    live = np.ones((request.mesh.n_pucs, 2), dtype=bool)
    for puc, state in request.blocked:
        live[puc, STATES.index(state)] = False
    usable = np.repeat(live, 4, axis=0)
    tails, column = np.nonzero(usable)
    weights = np.repeat(weight, 4, axis=0)[tails, column]
    # From the target backwards: one run serves every node.
    left = least_costs(weights, heads[tails, column], tails, size, [graph.n_waves + target for target in targets])
    # A hair below the truth: an estimate that rounding lifts above it would no longer prove the cheapest way.
    return list(np.maximum(left * (1.0 - 1e-12) - 1e-9, 0.0))


def least_costs(
    weights: NDArray[np.float64],
    tails: NDArray[np.intp],
    heads: NDArray[np.intp],
    n_nodes: int,
    starts: Sequence[int] | NDArray[np.intp],
) -> NDArray[np.float64]:
    """Return the cost of the cheapest path from each start to every node, shape ``(n_starts, n_nodes)``.

    Args:
        weights: Cost of each arc, shape ``(n,)``, 0 or more.
        tails: Node at which each arc begins, shape ``(n,)``.
        heads: Node at which each arc ends, shape ``(n,)``.
        n_nodes: Number of nodes.
        starts: Nodes at which the paths begin.
    """
    import scipy.sparse as sp
    from scipy.sparse.csgraph import dijkstra

    # scipy below 1.15 takes 32-bit node numbers only. A weight of exactly zero would be no arc to the sparse matrix.
    ends = (tails.astype(np.int32), heads.astype(np.int32))
    costs: NDArray[np.float64] = dijkstra(
        sp.csr_array((np.maximum(weights, 1e-12), ends), shape=(n_nodes, n_nodes)), indices=starts
    )
    return costs


def floor(request: RoutingProblem) -> float:
    """Return a cost that no routing is below: the cheapest walks of all circuits, each alone.

    Of circuits that are to have equal lengths, none is shorter than the shortest walk of any other.
    """

    def alone(weight: NDArray[np.float64]) -> NDArray[np.float64]:
        entry = wave_graph(request.mesh).entry
        starts = [entry[source] for source, _ in request.pairs]
        return np.array([left[start] for left, start in zip(estimates(request, weight), starts, strict=True)])

    least = alone(request.pass_cost)
    if request.equal:
        hops = alone(np.ones_like(request.pass_cost))
        for group in map(list, request.equal):
            least[group] = np.maximum(least[group], hops[group].max() * request.pass_cost.min())
    # A circuit without any way makes no bound: the search names it.
    return float(least.sum()) if np.isfinite(least).all() else 0.0


class Prices:
    """What passing the mesh costs at present, and who uses it.

    Args:
        request: The request.
    """

    def __init__(self, request: RoutingProblem) -> None:
        graph = wave_graph(request.mesh)
        self.graph = graph
        self.walker = walker(request.mesh, compiled=worth_compiling(request.mesh.n_pucs))
        base = request.pass_cost + request.state_cost
        for puc, state in request.blocked:
            base[puc, STATES.index(state)] = math.inf
        self._fresh = self.walker.packed(base.reshape(-1))
        self._held: list[float] = request.state_cost.reshape(-1).tolist()
        self._any_held = bool(request.state_cost.any())
        self.pressure = 0.0
        self.reset()

    def reset(self) -> None:
        """Forget all use and all history."""
        self.state_price = self._fresh.copy()
        self.use = self.walker.packed([0] * len(self._fresh))

    def arcs(self, nodes: Nodes) -> list[int]:
        """Return the states passed, as ``2 puc + (0 bar, 1 cross)``."""
        bar = self.graph.bar
        # Wave a enters PUC a // 4, whose states have the numbers 2·(a // 4), bar, and the next, cross.
        return [(a >> 1 & -2) + (bar[a] != b) for a, b in pairwise(nodes)]

    def add(self, nodes: Nodes) -> None:
        """Enter a circuit into the use."""
        use = self.use
        for arc in self.arcs(nodes):
            use[arc] += 1
            # A state is paid for once, by the first circuit that needs it; others share it.
            if self._any_held and use[arc] == 1:
                self.state_price[arc] -= self._held[arc]

    def remove(self, nodes: Nodes) -> None:
        """Take a circuit out of the use."""
        use = self.use
        for arc in self.arcs(nodes):
            use[arc] -= 1
            if self._any_held and use[arc] == 0:
                self.state_price[arc] += self._held[arc]

    def conflicts(self, nodes: Nodes) -> bool:
        """Return whether a circuit in use is at odds with another one, or with itself."""
        use = self.use
        return any(use[arc ^ 1] for arc in self.arcs(nodes))

    def paid(self, nodes: Nodes) -> float:
        """Return the price of a circuit's states, without what conflicts cost."""
        return float(sum(self.state_price[arc] for arc in self.arcs(nodes)))

    def way(self, nodes: Nodes) -> WavePath:
        """Return nodes as a way."""
        states = tuple(STATES[arc & 1] for arc in self.arcs(nodes))
        return WavePath(tuple(nodes[:-1]), states)


class Search:
    """Searches for the circuits of one request.

    Args:
        request: The request.
        prices: Prices, read anew by every search.
    """

    def __init__(self, request: RoutingProblem, prices: Prices) -> None:
        self._request = request
        self._prices = prices
        self._graph = prices.graph
        self._left = self._packed_estimates(request.pass_cost)
        self._hops_left: list[Any] = []
        self._loss_left: list[Any] = []
        if any(limit.any for limit in request.limits):
            self._hops_left = self._packed_estimates(np.ones_like(request.pass_cost))
            if any(limit.max_loss_db is not None for limit in request.limits):
                self._loss_left = self._packed_estimates(np.repeat(request.loss_db[:, None], 2, axis=1))

    def _packed_estimates(self, weight: NDArray[np.float64]) -> list[Any]:
        return [self._prices.walker.packed(left) for left in estimates(self._request, weight)]

    def goal(self, index: int) -> int:
        """Return the node at which the light of a circuit leaves."""
        return self._graph.n_waves + self._request.pairs[index][1]

    def cheapest(self, index: int, most_searches: int = _MOST_SEARCHES) -> tuple[float, Nodes] | None:
        """Return price and nodes of the cheapest path of one circuit, ``None`` if that proves that there is none.

        A walk that needs one PUC in both states is no path. Every path does without one of the two, so the search goes
        on with either state banned, cheapest walk first: what it finds is optimal, and running dry is a proof.

        Raises:
            GivenUp: The search has decided nothing.
        """
        branches: list[tuple[float, int, tuple[int, ...], Nodes]] = []
        todo: list[tuple[int, ...]] = [()]
        searches = 0
        while True:
            for banned in todo:
                searches += 1
                if found := self._walk(index, banned):
                    heapq.heappush(branches, (found[0], searches, banned, found[1]))
            if not branches:
                if self._request.limits[index].exact_hops is not None:
                    raise SearchBudgetExceeded  # the search for exact lengths prunes by its own way: it proves nothing
                return None
            if searches > most_searches:
                raise SearchBudgetExceeded
            cost, _, banned, nodes = heapq.heappop(branches)
            arcs = self._prices.arcs(nodes)
            passed = set(arcs)
            clash = next((arc for arc in arcs if arc ^ 1 in passed), None)
            if clash is None:
                return cost, nodes
            todo = [(*banned, clash), (*banned, clash ^ 1)]

    def _walk(self, index: int, banned: Sequence[int]) -> tuple[float, Nodes] | None:
        """Return the cheapest walk without the banned states."""
        price = self._prices.state_price
        spared = [(arc, price[arc]) for arc in banned]
        for arc in banned:
            price[arc] = math.inf
        try:
            return (
                self._cheapest_within_limits(index)
                if self._request.limits[index].any
                else self._cheapest_unlimited(index)
            )
        finally:
            for arc, value in reversed(spared):
                price[arc] = value

    def _cheapest_unlimited(self, index: int) -> tuple[float, Nodes] | None:
        """Return the cheapest walk without limits."""
        prices, source = self._prices, self._request.pairs[index][0]
        price, nodes = prices.walker.cheapest(
            prices.state_price,
            prices.use,
            prices.pressure,
            self._left[index],
            self._graph.entry[source],
            self.goal(index),
        )
        return None if price == math.inf else (price, tuple(nodes))

    def _cheapest_within_limits(self, index: int) -> tuple[float, Nodes] | None:
        """Return the cheapest walk within limits.

        A dearer way to a wave is followed too if it has fewer hops or less loss than all cheaper ones: it may be the
        only one that keeps within the limits. For an exact length every number of hops is followed, and ways that ask
        for a PUC in both states are dropped at once.
        """
        limit = self._request.limits[index]
        exact = limit.exact_hops is not None
        most = math.inf if limit.hop_ceiling is None else limit.hop_ceiling
        # Losses are added up in another order elsewhere: a way exactly at the limit keeps it.
        most_loss = math.inf if limit.max_loss_db is None else limit.max_loss_db + 1e-9
        hops_left = self._hops_left[index]
        loss_left = self._loss_left[index] if self._loss_left else None
        graph, prices, loss_db = self._graph, self._prices, self._request.loss_db
        source, target = self._request.pairs[index]
        left, start, goal = self._left[index], graph.entry[source], graph.n_waves + target
        seen: dict[int, list[tuple[int, float]]] = {}
        # In the queue labels count downwards, so that of equally cheap ones the last found goes first, as in _free.
        labels: list[tuple[int, int]] = [(-1, start)]  # label before, node
        queue: list[tuple[float, int, int, float, float, int]] = [(left[start], 0, 0, 0.0, 0.0, start)]
        while queue:
            _, label, hops, loss, so_far, node = heapq.heappop(queue)
            if node == goal:
                if not exact or hops == limit.exact_hops:
                    return so_far, _label_nodes(labels, -label)
                continue
            if any((h == hops) if exact else (h <= hops and q <= loss) for h, q in seen.get(node, ())):
                continue
            seen.setdefault(node, []).append((hops, loss))
            arc = node >> 1 & -2
            taken = prices.arcs(_label_nodes(labels, -label)) if exact else ()
            for following, passed in ((graph.bar[node], arc), (graph.cross[node], arc + 1)):
                total = so_far + prices.state_price[passed] + prices.pressure * prices.use[passed ^ 1]
                dissipated = loss + float(loss_db[node >> 2])
                if (
                    total + left[following] == math.inf
                    or hops + 1 + hops_left[following] > most
                    or (loss_left is not None and dissipated + loss_left[following] > most_loss)
                    or passed ^ 1 in taken
                ):
                    continue
                labels.append((-label, following))
                heapq.heappush(
                    queue, (total + left[following], 1 - len(labels), hops + 1, dissipated, total, following)
                )
        return None


def _label_nodes(labels: Sequence[tuple[int, int]], label: int) -> Nodes:
    """Return the nodes that lead to a label."""
    nodes: list[int] = []
    while label >= 0:
        label, node = labels[label]
        nodes.append(node)
    return tuple(reversed(nodes))
