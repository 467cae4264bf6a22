"""Inner loop of the router: A* search at current prices, as plain Python or compiled by numba (extra ``fast``).

A walk is a sequence of nodes (PUC-ports that light enters) that may need one PUC in both states.
"""

from __future__ import annotations

import heapq
import importlib.util
import math
from collections.abc import Callable, MutableSequence, Sequence
from functools import cache
from typing import Any

import numpy as np

_MIN_COMPILED_PUCS = 500
"""Smallest number of PUCs for compiled loops, which take 0.5 s to load."""

_Walk = Callable[..., tuple[float, list[int]]]


def cheapest_walk(
    bar: Sequence[int],
    cross: Sequence[int],
    price: Sequence[float],
    use: Sequence[int],
    pressure: float,
    estimate: Sequence[float],
    start: int,
    goal: int,
    cost: MutableSequence[float],
    before: MutableSequence[int],
) -> tuple[float, list[int]]:
    """Return the total price and the nodes of the cheapest walk; an infinite price if no walk exists.

    Args:
        bar: Node that follows each PUC-port in bar.
        cross: Node that follows each PUC-port in cross.
        price: Price of each PUC state, numbered ``2 puc + (0 bar, 1 cross)``.
        use: Number of circuits that use each PUC state.
        pressure: Price per circuit that uses the opposite state of a PUC.
        estimate: Lower bound of the price from each node to the goal; infinite at all other ports.
        start: First node.
        goal: Last node.
        cost: Work space, infinity for each node; overwritten.
        before: Work space, one number per node; overwritten.
    """
    cost[start] = 0.0
    queue = [(estimate[start], 0, start)]
    order = 0  # counts down: ties go to the node found last, usually the farthest
    while queue:
        node = heapq.heappop(queue)[2]
        so_far = cost[node]
        if so_far < 0.0:
            continue  # already done at a lower price
        if node == goal:
            nodes = [goal]
            while node != start:
                node = before[node]
                nodes.append(node)
            return so_far, nodes[::-1]
        # Prices are not negative, so a negative cost marks a node that is done.
        cost[node] = -1.0
        arc = node >> 1 & -2
        for state in range(2):
            following = cross[node] if state else bar[node]
            # Circuits that use this PUC in the opposite state conflict; pressure is the price of each.
            total = so_far + (price[arc + state] + pressure * use[arc + 1 - state])
            if total < cost[following] and estimate[following] < math.inf:
                cost[following] = total
                before[following] = node
                order -= 1
                heapq.heappush(queue, (total + estimate[following], order, following))
    return math.inf, [start]


class Walker:
    """Runs :func:`cheapest_walk` on one mesh.

    Attributes:
        packed: Converts numbers to the form that the search needs: a numpy array if compiled, else a list.
    """

    def __init__(self, bar: Sequence[int], cross: Sequence[int], n_nodes: int, *, compiled: bool) -> None:
        self._run: _Walk = _compiled() if compiled else cheapest_walk
        self.packed: Callable[[Any], Any] = np.array if compiled else _listed
        self._bar, self._cross = self.packed(bar), self.packed(cross)
        self._far = self.packed([math.inf] * n_nodes)
        self._before = self.packed([0] * n_nodes)

    def cheapest(
        self, price: Any, use: Any, pressure: float, estimate: Any, start: int, goal: int
    ) -> tuple[float, list[int]]:
        """Return the total price and the nodes of the cheapest walk.

        ``price``, ``use`` and ``estimate`` must have the form that :attr:`packed` returns.
        """
        # Copy, because another thread may be searching the same mesh.
        far, before = self._far.copy(), self._before.copy()
        return self._run(self._bar, self._cross, price, use, pressure, estimate, start, goal, far, before)


def should_compile(n_pucs: int) -> bool:
    """Return whether searches in a mesh with this many PUCs should run compiled."""
    return n_pucs > _MIN_COMPILED_PUCS and importlib.util.find_spec("numba") is not None


def _listed(values: Any) -> list[Any]:
    listed: list[Any] = np.asarray(values).tolist()
    return listed


@cache
def _compiled() -> _Walk:
    from numba import njit

    walk: _Walk = njit(cache=True)(cheapest_walk)
    return walk
