"""Choosing how to look at a PUC: the cheapest way in from a source and out to a monitor, through known PUCs if any.

Known PUCs are set for the path and cost their loss; an unknown one splits the light and lets strays in, which costs
more. The cheapest PUC not yet known is measured next: so the calibration grows as a wavefront from the rim.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from lumion_hw.mesh.topology import LEAVES, HexMesh, State

_KNOWN_COST_DB = 0.5
_UNKNOWN_COST_DB = 4.0
_STATES: tuple[State, State] = ("bar", "cross")


@dataclass(frozen=True)
class View:
    """One way to look at a PUC.

    Attributes:
        puc: The PUC under test.
        source: Port where light enters.
        monitor: Port where it is looked at.
        output: Output of the PUC that leads there: ``bar`` or ``cross``.
        states: State of every other PUC on the way.
        cost_db: Loss and strays to expect, in dB.
    """

    puc: int
    source: int
    monitor: int
    output: State
    states: dict[int, State]
    cost_db: float


class Planner:
    """Finds views.

    Args:
        mesh: The mesh.
        sources: Ports where light can be injected.
        monitors: Ports with a monitor.
    """

    def __init__(self, mesh: HexMesh, sources: Collection[int], monitors: Collection[int]) -> None:
        self._mesh = mesh
        self._mate: list[int] = mesh.mate.tolist()
        self._port_at: list[int] = mesh.port_at.tolist()
        self._entry = {port: int(mesh.port_puc_port[port]) for port in (*sources, *monitors)}
        self.sources = tuple(sources)
        self.monitors = tuple(monitors)

    def views(self, targets: Collection[int], known: Collection[int]) -> Iterator[View]:
        """Yield the views of the target PUCs, the cheapest first.

        A view passes its PUC once and needs no other PUC in two states.
        """
        found: list[tuple[float, int, int, State, dict[int, tuple[int, State]], dict[int, tuple[int, State, int]]]] = []
        for source in self.sources:
            cost_in, came = self._inward(source, known)
            cost_out, onward = self._outward(source, known)
            for node, cost in cost_in.items():
                if node // 4 not in targets:
                    continue
                for state in _STATES:
                    leaving = node ^ LEAVES[state]
                    if leaving in cost_out:
                        found.append((cost + cost_out[leaving], source, node, state, came, onward))
        found.sort(key=lambda item: item[:4])
        yield from self._consistent(found)

    def _consistent(
        self,
        found: list[tuple[float, int, int, State, dict[int, tuple[int, State]], dict[int, tuple[int, State, int]]]],
    ) -> Iterator[View]:
        """Yield the views whose path asks for no PUC in two states."""
        for cost, source, node, state, came, onward in found:
            target = node // 4
            steps = [*_steps_in(came, node, self._entry[source])]
            leaving = node ^ LEAVES[state]
            while leaving in onward:
                entering, next_state, leaving = onward[leaving]
                steps.append((entering // 4, next_state))
            states: dict[int, State] = {}
            agree = all(puc != target and states.setdefault(puc, wanted) == wanted for puc, wanted in steps)
            if agree:
                yield View(target, source, self._port_at[leaving], state, states, cost)

    def _inward(self, source: int, known: Collection[int]) -> tuple[dict[int, float], dict[int, tuple[int, State]]]:
        """Return the cost of every directed wave from a source, and where each came from."""
        best = {self._entry[source]: 0.0}
        came: dict[int, tuple[int, State]] = {}
        queue = [(0.0, self._entry[source])]
        while queue:
            cost, node = heapq.heappop(queue)
            if cost > best[node]:
                continue
            further = cost + (_KNOWN_COST_DB if node // 4 in known else _UNKNOWN_COST_DB)
            for state in _STATES:
                following = self._mate[node ^ LEAVES[state]]
                if following >= 0 and further < best.get(following, float("inf")):
                    best[following] = further
                    came[following] = (node, state)
                    heapq.heappush(queue, (further, following))
        return best, came

    def _outward(
        self, source: int, known: Collection[int]
    ) -> tuple[dict[int, float], dict[int, tuple[int, State, int]]]:
        """Return the cost from every leaving wave to the nearest monitor, and the way on from each."""
        best = {self._entry[port]: 0.0 for port in self.monitors if port != source}
        onward: dict[int, tuple[int, State, int]] = {}
        queue = [(0.0, leaving) for leaving in sorted(best)]
        while queue:
            cost, leaving = heapq.heappop(queue)
            if cost > best[leaving]:
                continue
            further = cost + (_KNOWN_COST_DB if leaving // 4 in known else _UNKNOWN_COST_DB)
            for state in _STATES:
                entering = leaving ^ LEAVES[state]
                before = self._mate[entering]
                if before >= 0 and further < best.get(before, float("inf")):
                    best[before] = further
                    onward[before] = (entering, state, leaving)
                    heapq.heappush(queue, (further, before))
        return best, onward


def _steps_in(came: Mapping[int, tuple[int, State]], node: int, start: int) -> list[tuple[int, State]]:
    """Return the (PUC, state) steps from a start wave to a wave."""
    steps: list[tuple[int, State]] = []
    while node != start:
        node, state = came[node]
        steps.append((node // 4, state))
    steps.reverse()
    return steps
