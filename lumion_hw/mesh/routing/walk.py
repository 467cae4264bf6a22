"""The inner loop of the router: the cheapest walk under the present prices, by A*.

One source for two ways to run it: on lists as it stands, or on arrays compiled by numba (the extra ``fast``). Both do
the same sums in the same order and break ties alike, so they return the same walk.
"""

from __future__ import annotations

import heapq
import importlib.util
import math
from collections.abc import Callable, MutableSequence, Sequence
from functools import cache
from typing import Any

import numpy as np

_LARGE = 500
"""PUCs above which loops are compiled: loading them takes half a second, in which small meshes are long routed."""

_Walk = Callable[..., tuple[float, list[int]]]


def cheapest_walk(
    bar: Sequence[int],
    cross: Sequence[int],
    price: Sequence[float],
    use: Sequence[int],
    pressure: float,
    left: Sequence[float],
    start: int,
    goal: int,
    cost: MutableSequence[float],
    before: MutableSequence[int],
) -> tuple[float, list[int]]:
    """Return price and nodes of the cheapest walk; an infinite price if there is none.

    Args:
        bar: Node after each wave in bar.
        cross: Node after each wave in cross.
        price: Price of each state, as ``2 puc + (0 bar, 1 cross)``.
        use: How many circuits use each state.
        pressure: Price of each circuit that uses the other state of a PUC.
        left: Least price from each node to the goal, never above the truth; infinite at all other ports.
        start: First node.
        goal: Last node.
        cost: Infinity for each node; overwritten.
        before: Any number for each node; overwritten.
    """
    cost[start] = 0.0
    queue = [(left[start], 0, start)]
    order = 0  # counts down: of equally cheap nodes the one found last, mostly the farthest, goes first
    while queue:
        node = heapq.heappop(queue)[2]
        so_far = cost[node]
        if so_far < 0.0:
            continue  # was dearer when it was queued, and is done
        if node == goal:
            nodes = [goal]
            while node != start:
                node = before[node]
                nodes.append(node)
            return so_far, nodes[::-1]
        cost[node] = -1.0
        arc = node >> 1 & -2
        for state in range(2):
            following = cross[node] if state else bar[node]
            # Whoever uses this PUC in the other state is in the way: that is what pressure charges for.
            total = so_far + (price[arc + state] + pressure * use[arc + 1 - state])
            if total < cost[following] and left[following] < math.inf:
                cost[following] = total
                before[following] = node
                order -= 1
                heapq.heappush(queue, (total + left[following], order, following))
    return math.inf, [start]


class Walker:
    """Runs :func:`cheapest_walk` in one mesh.

    Args:
        bar: Node after each wave in bar.
        cross: Node after each wave in cross.
        n_nodes: Number of nodes.
        compiled: Whether to compile.

    Attributes:
        packed: Turns numbers into what the loop reads fastest: an array where it is compiled, else a list.
    """

    def __init__(self, bar: Sequence[int], cross: Sequence[int], n_nodes: int, *, compiled: bool) -> None:
        self._run: _Walk = _compiled() if compiled else cheapest_walk
        self.packed: Callable[[Any], Any] = np.array if compiled else _listed
        self._bar, self._cross = self.packed(bar), self.packed(cross)
        self._far = self.packed([math.inf] * n_nodes)
        self._before = self.packed([0] * n_nodes)

    def cheapest(
        self, price: Any, use: Any, pressure: float, left: Any, start: int, goal: int
    ) -> tuple[float, list[int]]:
        """Return price and nodes of the cheapest walk, see :func:`cheapest_walk`; what is long comes packed."""
        # Copies: another thread may be searching the same mesh.
        far, before = self._far.copy(), self._before.copy()
        return self._run(self._bar, self._cross, price, use, pressure, left, start, goal, far, before)


def worth_compiling(n_pucs: int) -> bool:
    """Return whether searches in a mesh of so many PUCs are to run compiled."""
    return n_pucs > _LARGE and importlib.util.find_spec("numba") is not None


def _listed(values: Any) -> list[Any]:
    listed: list[Any] = np.asarray(values).tolist()
    return listed


@cache
def _compiled() -> _Walk:
    """Return :func:`cheapest_walk` compiled; kept on disk for later processes."""
    from numba import njit

    walk: _Walk = njit(cache=True)(cheapest_walk)
    return walk
