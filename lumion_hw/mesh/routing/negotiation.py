"""Negotiated congestion (McMurchie 1995): route each circuit alone, then raise prices until no two circuits conflict.

A routing without conflicts is then improved. Failure to find a routing proves nothing. Circuits conflict only if they
need a PUC in different states; otherwise they never share a waveguide.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from lumion_hw.mesh.routing.request import Progress, RoutingProblem, no_progress
from lumion_hw.mesh.routing.result import WavePath
from lumion_hw.mesh.routing.search import FORBIDDEN, Nodes, Prices, Search, SearchBudgetExceeded

# With 24 random circuits on 725 PUCs, 10 rounds route 6 of 16 requests, 40 or 200 rounds route 11. A short attempt that
# fails sooner leaves time for another order.
_ROUNDS_PER_ATTEMPT = 40
"""Rounds before a negotiation restarts in another order."""

# On the same requests, a constant pressure (growth 1.0) routes 5 of 16 instead of 11. A growth of 1.5 needs a third of
# the rounds, but its paths cost 0.4 % more; so do those without the surcharge (1 %) or with a pressure of 2 (0.9 %).
_PRESSURE, _GROWTH, _HISTORY = 0.5, 1.12, 0.35
"""Price of a conflict, its growth factor per round, and the permanent surcharge per round for a PUC state in conflict.

Prices are multiples of the mean PUC cost.
"""

# Without it, one of the 11 requests stays unsolved: every attempt begins with the same shortest paths.
_JITTER = 0.1
"""Random part of the prices from the second attempt on, as a multiple of the mean PUC cost."""

_SEARCHES_IN_CONTEST = 30
"""Most searches for one circuit while prices still change; after that the circuit keeps its path."""

# Without improvement, paths cost 0.3 % more, with one round 0.06 %; 20 rounds change nothing.
_IMPROVEMENTS = 4
"""Most rounds of improvement."""


_ACROSS, _MAX_ACROSS = 0.7, 3
"""Probability that an improvement step removes only circuits in the way, and the most circuits removed.

With three, 100 ms reach the proven optimum of 6 to 10 circuits on 72 PUCs (``benchmarks/routing.py random``).
"""

_SEARCHES_IN_IMPROVEMENT = 6
"""Most searches for one circuit in an improvement step."""


@dataclass(frozen=True)
class NegotiationResult:
    """Result of a negotiation.

    Attributes:
        wave_paths: One path per circuit, without conflicts; ``None`` if conflicts remain.
        contested: PUCs that circuits still need in different states.
        in_conflict: Indices of the circuits that still conflict.
    """

    wave_paths: tuple[WavePath, ...] | None
    contested: tuple[int, ...] = ()
    in_conflict: tuple[int, ...] = ()


def _reported(turns: Iterable[int], first_round: int, rounds: int, progress: Progress) -> Iterator[int]:
    for turn in turns:
        progress("routes", first_round + turn, rounds)
        yield turn


class Negotiation:
    """Routes the circuits of a request without groups of equal length."""

    def __init__(self, request: RoutingProblem) -> None:
        self._request = request
        self._prices = Prices(request)
        self._search = Search(request, self._prices)
        self._unit = float(request.pass_cost.mean() + request.state_cost.mean()) or 1.0
        self._single_paths: list[tuple[float, Nodes]] = []

    def route_separately(self) -> list[float | None]:
        """Return the lowest cost of each circuit without the others; ``None`` if the circuit has no path (proven).

        Raises:
            SearchBudgetExceeded: A search ended without a result.
        """
        self._prices.reset()
        self._prices.pressure = 0.0
        results = [self._search.cheapest_path(index) for index in range(len(self._request.pairs))]
        self._single_paths = [result for result in results if result is not None]
        return [None if result is None else result[0] for result in results]

    def run(
        self,
        rounds: int,
        bound: float,
        on_failure: Callable[[Collection[int]], None] = lambda contested: None,
        progress: Progress = no_progress,
    ) -> NegotiationResult:
        """Negotiate until no circuits conflict; call :meth:`route_separately` first.

        Args:
            rounds: Largest number of rounds.
            bound: Lower bound of the cost; a routing that reaches it is not improved further.
            on_failure: Called after two failed attempts, with the PUCs still contested; may raise an error.
            progress: Called every round after the first attempt has failed.
        """
        paths: list[Nodes] = []
        contested: set[int] = set()
        for attempt, first_round in enumerate(range(0, max(rounds, 1), _ROUNDS_PER_ATTEMPT)):
            jitter = _JITTER if attempt else 0.0
            # Seed by attempt number, so that the same request gives the same routing.
            turns: Iterable[int] = range(min(_ROUNDS_PER_ATTEMPT, rounds - first_round))
            if attempt:
                turns = _reported(turns, first_round, rounds, progress)
            paths, contested = self._negotiate(random.Random(attempt), turns, jitter)
            if not contested:
                return NegotiationResult(self._improved(paths, bound))
            if attempt == 1:
                on_failure(contested)
        in_conflict = tuple(index for index, nodes in enumerate(paths) if self._prices.conflicts(nodes))
        return NegotiationResult(None, tuple(sorted(contested)), in_conflict)

    def _negotiate(self, order: random.Random, turns: Iterable[int], jitter: float) -> tuple[list[Nodes], set[int]]:
        """Negotiate from initial prices; return the paths, and the PUCs over which circuits still conflict."""
        prices = self._prices
        prices.reset()
        paths = [nodes for _, nodes in self._single_paths]
        if jitter:
            # Random prices select another one of many equally short paths.
            prices.pressure = 0.0
            for arc in range(len(prices.state_price)):
                prices.state_price[arc] += self._unit * jitter * order.random()
            paths = [self._cheapest_or_single_path(index) for index in range(len(paths))]
        for nodes in paths:
            prices.add(nodes)
        for turn in turns:
            in_conflict = [index for index, nodes in enumerate(paths) if prices.conflicts(nodes)]
            if not in_conflict:
                return paths, set()
            self._charge([paths[index] for index in in_conflict])
            # At first circuits may overlap at little cost, which shows the states in demand; later, conflicts cost more
            # than most detours.
            prices.pressure = self._unit * _PRESSURE * _GROWTH**turn
            order.shuffle(in_conflict)
            for index in in_conflict:
                # Check again: a circuit re-routed earlier in this round may have resolved the conflict.
                if prices.conflicts(paths[index]):
                    self._reroute(index, paths)
        return paths, self._contested(paths)

    def _cheapest_or_single_path(self, index: int) -> Nodes:
        """Return a circuit's cheapest path at current prices; if that search fails, its path without other circuits."""
        try:
            path = self._search.cheapest_path(index, _SEARCHES_IN_CONTEST)
        except SearchBudgetExceeded:
            path = None
        return self._single_paths[index][1] if path is None else path[1]

    def _reroute(self, index: int, paths: list[Nodes]) -> None:
        # Remove it first, or its own states would count as conflicts.
        self._prices.remove(paths[index])
        try:
            path = self._search.cheapest_path(index, _SEARCHES_IN_CONTEST)
        except SearchBudgetExceeded:
            path = None
        if path is not None:
            paths[index] = path[1]
        self._prices.add(paths[index])

    def _charge(self, paths: Sequence[Nodes]) -> None:
        prices, increase = self._prices, self._unit * _HISTORY
        states = {arc for nodes in paths for arc in prices.arcs(nodes) if prices.is_contested(arc)}
        for arc in states:
            prices.state_price[arc] += increase

    def _contested(self, paths: Sequence[Nodes]) -> set[int]:
        prices = self._prices
        return {arc // 2 for nodes in paths for arc in prices.arcs(nodes) if prices.is_contested(arc)}

    def _improved(self, paths: list[Nodes], bound: float) -> tuple[WavePath, ...]:
        prices, request = self._prices, self._request
        wave_paths = tuple(prices.to_wave_path(nodes) for nodes in paths)
        cost = request.cost(wave_paths)
        # Drop the surcharges, which are no real cost, and forbid states that others use, so that no new conflict
        # arises.
        prices.reset()
        for nodes in paths:
            prices.add(nodes)
        prices.pressure = FORBIDDEN
        for _ in range(_IMPROVEMENTS):
            if cost <= bound * (1.0 + 1e-9):
                break
            for index in range(len(paths)):
                self._reroute(index, paths)
            improved = tuple(prices.to_wave_path(nodes) for nodes in paths)
            if request.cost(improved) >= cost - 1e-9:
                break
            wave_paths, cost = improved, request.cost(improved)
        return wave_paths

    def improve(
        self, wave_paths: Sequence[WavePath], bound: float, is_over: Callable[[], bool]
    ) -> tuple[WavePath, ...]:
        """Improve a routing: remove a few circuits at a time, route them again, and keep results that cost no more.

        Args:
            wave_paths: A routing of all circuits; call :meth:`route_separately` first.
            bound: Lower bound of the cost; a routing that reaches it is not improved further.
            is_over: Called before every step; returns whether to stop.
        """
        prices, request, rng = self._prices, self._request, random.Random(0)
        goals = [self._search.goal(index) for index in range(len(wave_paths))]
        paths: list[Nodes] = [(*wave_path.waves, goal) for wave_path, goal in zip(wave_paths, goals, strict=True)]
        prices.reset()
        for nodes in paths:
            prices.add(nodes)
        prices.pressure = FORBIDDEN
        best, best_cost = tuple(wave_paths), request.cost(wave_paths)
        cost = best_cost
        while best_cost > bound * (1.0 + 1e-9) and not is_over():
            removed = self._choose_circuits_to_reroute(paths, rng)
            before = {index: paths[index] for index in removed}
            is_rerouted = self._reroute_together(removed, paths)
            new_cost = request.cost([prices.to_wave_path(nodes) for nodes in paths]) if is_rerouted else math.inf
            if new_cost <= cost + 1e-9:
                cost = new_cost
                if cost < best_cost - 1e-9:
                    best, best_cost = tuple(prices.to_wave_path(nodes) for nodes in paths), cost
                continue
            for index, nodes in before.items():
                if is_rerouted:
                    prices.remove(paths[index])
                paths[index] = nodes
                prices.add(nodes)
        return best

    def _choose_circuits_to_reroute(self, paths: Sequence[Nodes], rng: random.Random) -> list[int]:
        prices, single_paths = self._prices, self._single_paths
        # Only a circuit that pays more than alone can become cheaper.
        on_detour = [
            index for index, nodes in enumerate(paths) if prices.states_price(nodes) > single_paths[index][0] + 1e-9
        ]
        first = rng.choice(on_detour or range(len(paths)))
        blocked_states = {arc ^ 1 for arc in prices.arcs(single_paths[first][1])}
        across = [index for index, nodes in enumerate(paths) if blocked_states.intersection(prices.arcs(nodes))]
        # Sometimes choose any others, because a third circuit may block those that cross.
        candidates = across if across and rng.random() < _ACROSS else list(range(len(paths)))
        candidates = [index for index in candidates if index != first]
        together = [first, *rng.sample(candidates, min(rng.randint(1, _MAX_ACROSS), len(candidates)))]
        if rng.random() < 0.5:
            rng.shuffle(together)
        return together

    def _reroute_together(self, removed: Sequence[int], paths: list[Nodes]) -> bool:
        """Route removed circuits again; if one fails, remove all and return ``False``."""
        for index in removed:
            self._prices.remove(paths[index])
        for number, index in enumerate(removed):
            try:
                path = self._search.cheapest_path(index, _SEARCHES_IN_IMPROVEMENT)
            except SearchBudgetExceeded:
                path = None
            if path is None or path[0] >= FORBIDDEN:
                for placed in removed[:number]:
                    self._prices.remove(paths[placed])
                return False
            paths[index] = path[1]
            self._prices.add(path[1])
        return True
