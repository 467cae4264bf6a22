"""Negotiated congestion (McMurchie 1995): each circuit alone at first, then prices until no two are at odds.

Contested states grow dearer from round to round, and circuits at odds are ripped up and routed again in varying order.
What settles is improved: one circuit after the other is ripped up and may take any cheaper way that is free. A
heuristic that finds nothing has proven nothing.

States are all there is to contest. With every PUC in bar or cross the ways pair the ports off, and the reverse of a way
is the way from its other end: circuits of different ports that agree on the states can neither merge nor run against
each other in a joint.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from lumion_hw.mesh.routing.request import Progress, RoutingProblem, no_progress
from lumion_hw.mesh.routing.result import WavePath
from lumion_hw.mesh.routing.search import HARD, Nodes, Prices, Search, SearchBudgetExceeded

_ROUNDS_PER_ATTEMPT = 40
"""Rounds before a negotiation starts afresh in another order: one that has not settled by then rarely does."""

_PRESSURE, _GROWTH, _HISTORY = 0.5, 1.12, 0.35
"""Price of a conflict in mean PUCs, its growth per round, and what each round of contest adds for good."""

_JITTER = 0.1
"""Random part of the prices, in mean PUCs, from the second attempt on."""

_SEARCHES_IN_CONTEST = 30
"""Searches for one circuit while prices still change; it stays where it is if they do not suffice."""

_IMPROVEMENTS = 4
"""Rounds of improvement at most; the second seldom finds anything."""


_ACROSS, _MOST_ACROSS = 0.7, 3
"""Improvement: how often only circuits across the cheapest way of the first are ripped up with it, and how many. With
three, 100 ms lead to the proven optimum of 6 to 10 circuits on 72 PUCs (``benchmarks/routing.py random``)."""

_SEARCHES_IN_IMPROVEMENT = 6
"""Searches for one circuit in a step of improvement: the next step is worth more than a long search in this one."""


@dataclass(frozen=True)
class NegotiationResult:
    """How a negotiation ended.

    Attributes:
        ways: One way per circuit, free of conflict; ``None`` if it did not settle.
        contested: PUCs still contested when it was given up.
        at_odds: Circuits, as indices, that were then in conflict.
    """

    ways: tuple[WavePath, ...] | None
    contested: tuple[int, ...] = ()
    at_odds: tuple[int, ...] = ()


def _reported(turns: Iterable[int], begun: int, rounds: int, progress: Progress) -> Iterator[int]:
    """Yield turns of an attempt, and tell of each which round of all it is."""
    for turn in turns:
        progress("routes", begun + turn, rounds)
        yield turn


class Negotiation:
    """Routes the circuits of one request.

    Args:
        request: The request; groups of equal length are for the caller to resolve into exact ones.
    """

    def __init__(self, request: RoutingProblem) -> None:
        self._request = request
        self._prices = Prices(request)
        self._search = Search(request, self._prices)
        self._unit = float(request.pass_cost.mean() + request.state_cost.mean()) or 1.0
        self._alone: list[tuple[float, Nodes]] = []

    def alone(self) -> list[float | None]:
        """Return what each circuit costs alone: a lower bound. ``None`` where there is proven to be no path.

        Raises:
            GivenUp: A search has decided nothing.
        """
        self._prices.reset()
        self._prices.pressure = 0.0
        found = [self._search.cheapest(index) for index in range(len(self._request.pairs))]
        self._alone = [each for each in found if each is not None]
        return [None if each is None else each[0] for each in found]

    def run(
        self,
        rounds: int,
        bound: float,
        in_vain: Callable[[Collection[int]], None] = lambda contested: None,
        progress: Progress = no_progress,
    ) -> NegotiationResult:
        """Negotiate, after :meth:`alone` has found a path for every circuit.

        Args:
            rounds: Rounds before giving up.
            bound: Cost that no routing can be below; one that meets it is not improved any further.
            in_vain: Called when two attempts have failed, with the PUCs still contested. It may raise, if it can prove
                that there is no routing.
            progress: Told of every round, once the first attempt has failed.
        """
        paths: list[Nodes] = []
        contested: set[int] = set()
        for attempt, begun in enumerate(range(0, max(rounds, 1), _ROUNDS_PER_ATTEMPT)):
            jitter = _JITTER if attempt else 0.0
            # Seeded by its number, so that the same request has the same routing.
            turns: Iterable[int] = range(min(_ROUNDS_PER_ATTEMPT, rounds - begun))
            if attempt:
                turns = _reported(turns, begun, rounds, progress)
            paths, contested = self._negotiate(random.Random(attempt), turns, jitter)
            if not contested:
                return NegotiationResult(self._improved(paths, bound))
            if attempt == 1:
                in_vain(contested)
        at_odds = tuple(index for index, nodes in enumerate(paths) if self._prices.conflicts(nodes))
        return NegotiationResult(None, tuple(sorted(contested)), at_odds)

    def _negotiate(self, order: random.Random, turns: Iterable[int], jitter: float) -> tuple[list[Nodes], set[int]]:
        """Negotiate from fresh prices, and return the paths with the PUCs still contested (none: settled)."""
        prices = self._prices
        prices.reset()
        paths = [nodes for _, nodes in self._alone]
        if jitter:
            # Of many equally short ways another one comes first now.
            prices.pressure = 0.0
            for arc in range(len(prices.state_price)):
                prices.state_price[arc] += self._unit * jitter * order.random()
            paths = [self._alone_now(index) for index in range(len(paths))]
        for nodes in paths:
            prices.add(nodes)
        for turn in turns:
            at_odds = [index for index, nodes in enumerate(paths) if prices.conflicts(nodes)]
            if not at_odds:
                return paths, set()
            self._charge([paths[index] for index in at_odds])
            prices.pressure = self._unit * _PRESSURE * _GROWTH**turn
            order.shuffle(at_odds)
            for index in at_odds:
                # Asked anew: one that was re-routed before in this round may have made way.
                if prices.conflicts(paths[index]):
                    self._reroute(index, paths)
        return paths, self._contested(paths)

    def _alone_now(self, index: int) -> Nodes:
        """Return the path of one circuit alone at the prices as they are; the plain one if the search is given up."""
        try:
            found = self._search.cheapest(index, _SEARCHES_IN_CONTEST)
        except SearchBudgetExceeded:
            found = None
        return self._alone[index][1] if found is None else found[1]

    def _reroute(self, index: int, paths: list[Nodes]) -> None:
        """Rip up one circuit and route it again; it stays where it is if the search is given up."""
        # First out of the use, or its own states would be in its way.
        self._prices.remove(paths[index])
        try:
            found = self._search.cheapest(index, _SEARCHES_IN_CONTEST)
        except SearchBudgetExceeded:
            found = None
        if found is not None:
            paths[index] = found[1]
        self._prices.add(paths[index])

    def _charge(self, paths: Sequence[Nodes]) -> None:
        """Raise the history price of everything contested."""
        prices, more = self._prices, self._unit * _HISTORY
        states = {arc for nodes in paths for arc in prices.arcs(nodes) if prices.use[arc ^ 1]}
        for arc in states:
            prices.state_price[arc] += more

    def _contested(self, paths: Sequence[Nodes]) -> set[int]:
        """Return the PUCs at which circuits are at odds."""
        prices = self._prices
        return {arc // 2 for nodes in paths for arc in prices.arcs(nodes) if prices.use[arc ^ 1]}

    def _improved(self, paths: list[Nodes], bound: float) -> tuple[WavePath, ...]:
        """Let every circuit take a cheaper way that is free, until none finds any."""
        prices, request = self._prices, self._request
        ways = tuple(prices.way(nodes) for nodes in paths)
        cost = request.cost(ways)
        # History is nobody's cost: away with it. And what others use is closed now, so that no new conflict arises.
        prices.reset()
        for nodes in paths:
            prices.add(nodes)
        prices.pressure = HARD
        for _ in range(_IMPROVEMENTS):
            if cost <= bound * (1.0 + 1e-9):
                break
            for index in range(len(paths)):
                self._reroute(index, paths)
            better = tuple(prices.way(nodes) for nodes in paths)
            if request.cost(better) >= cost - 1e-9:
                break
            ways, cost = better, request.cost(better)
        return ways

    def improve(self, ways: Sequence[WavePath], bound: float, is_over: Callable[[], bool]) -> tuple[WavePath, ...]:
        """Rip up a few circuits at a time, route them again in another order, and keep what is no dearer.

        One circuit alone finds no cheaper way once :meth:`run` has ended: another one stands in it, and has to move
        first. So a circuit that pays for a detour is taken out together with some of those across its cheapest way.
        Routings of equal cost are taken as well: most ways to a cheaper one lead over them.

        Args:
            ways: A routing of all circuits, after :meth:`alone`.
            bound: Cost that no routing can be below; one that meets it is not improved any further.
            is_over: Asked before every step.
        """
        prices, request, draw = self._prices, self._request, random.Random(0)
        goals = [self._search.goal(index) for index in range(len(ways))]
        paths: list[Nodes] = [(*way.waves, goal) for way, goal in zip(ways, goals, strict=True)]
        prices.reset()
        for nodes in paths:
            prices.add(nodes)
        prices.pressure = HARD
        best, least = tuple(ways), request.cost(ways)
        cost = least
        while least > bound * (1.0 + 1e-9) and not is_over():
            ripped = self._detour_and_those_across(paths, draw)
            before = {index: paths[index] for index in ripped}
            found = self._routed_anew(ripped, paths)
            now = request.cost([prices.way(nodes) for nodes in paths]) if found else math.inf
            if now <= cost + 1e-9:
                cost = now
                if cost < least - 1e-9:
                    best, least = tuple(prices.way(nodes) for nodes in paths), cost
                continue
            for index, nodes in before.items():
                if found:
                    prices.remove(paths[index])
                paths[index] = nodes
                prices.add(nodes)
        return best

    def _detour_and_those_across(self, paths: Sequence[Nodes], draw: random.Random) -> list[int]:
        """Return circuits to rip up together, in the order in which to route them again."""
        prices, alone = self._prices, self._alone
        dearer = [index for index, nodes in enumerate(paths) if prices.paid(nodes) > alone[index][0] + 1e-9]
        first = draw.choice(dearer or range(len(paths)))
        wanted = {arc ^ 1 for arc in prices.arcs(alone[first][1])}
        across = [index for index, nodes in enumerate(paths) if wanted.intersection(prices.arcs(nodes))]
        # Now and then any others: those across may themselves be kept where they are by a third.
        others = across if across and draw.random() < _ACROSS else list(range(len(paths)))
        others = [index for index in others if index != first]
        together = [first, *draw.sample(others, min(draw.randint(1, _MOST_ACROSS), len(others)))]
        if draw.random() < 0.5:
            draw.shuffle(together)
        return together

    def _routed_anew(self, ripped: Sequence[int], paths: list[Nodes]) -> bool:
        """Rip up circuits and route them one after the other; if one finds no way, all of them are out of the use."""
        for index in ripped:
            self._prices.remove(paths[index])
        for number, index in enumerate(ripped):
            try:
                found = self._search.cheapest(index, _SEARCHES_IN_IMPROVEMENT)
            except SearchBudgetExceeded:
                found = None
            if found is None or found[0] >= HARD:
                for placed in ripped[:number]:
                    self._prices.remove(paths[placed])
                return False
            paths[index] = found[1]
            self._prices.add(found[1])
        return True
