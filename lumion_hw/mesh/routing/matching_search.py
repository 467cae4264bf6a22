"""Search for all-to-all configurations: which pairs of ports are connected in which configuration of the mesh.

Three stages: round robins (as in a tournament) or random pairings; pairings that cannot be routed are merged and split
again; remaining pairs displace others, which move to another configuration.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from lumion_hw.mesh.routing.negotiation import Negotiation, NegotiationResult
from lumion_hw.mesh.routing.reasons import for_circuits
from lumion_hw.mesh.routing.request import RoutingProblem
from lumion_hw.mesh.routing.result import WavePath
from lumion_hw.mesh.routing.search import FORBIDDEN, Nodes, Prices, Search, SearchBudgetExceeded

Pair = tuple[int, int]
Matching = tuple[Pair, ...]
Routed = dict[Pair, WavePath]
"""One configuration: the path of each pair of ports that it connects."""

_ROUNDS = 60
"""Rounds of negotiated routing for one set of port pairs; most sets that can be routed need fewer than ten."""

_ORDERS = 12
"""Number of port orders tried for round robins."""

_SPLITS = 300
"""Number of attempts to merge and split sets of port pairs that cannot be routed together."""

_FILLINGS = 30
"""Attempts to fill one configuration with port pairs; the fullest is used."""

_SEARCHES = 10
"""Searches for the path of one pair while other circuits keep theirs."""


def round_robin(ports: Sequence[int]) -> list[Matching]:
    """Return a round robin: sets of port pairs that together contain each pair once.

    One port is idle in each set if the number of ports is odd.
    """
    slots: list[int | None] = [*ports, *([None] * (len(ports) % 2))]
    rounds: list[Matching] = []
    for _ in range(len(slots) - 1):
        opposite_pairs = zip(slots[: len(slots) // 2], reversed(slots), strict=False)
        rounds.append(
            tuple(sorted((min(a, b), max(a, b)) for a, b in opposite_pairs if a is not None and b is not None))
        )
        # The first port stays, all others move up by one slot.
        slots = [slots[0], slots[-1], *slots[1:-1]]
    return rounds


class Router:
    """Finds out which pairs of ports can be connected at the same time."""

    def __init__(self, request: RoutingProblem) -> None:
        self._request = request
        self._index = {pair: index for index, pair in enumerate(request.pairs)}
        self._cache: dict[Matching, NegotiationResult] = {}
        self._prices = Prices(request)
        self._search = Search(request, self._prices)

    def route_matching(self, matching: Iterable[Pair]) -> tuple[Routed | None, Matching]:
        """Route a set of port pairs; return the paths (``None`` if they conflict) and the conflicting pairs."""
        pairs = tuple(sorted(matching))
        # The same factors occur repeatedly while others are split.
        if pairs not in self._cache:
            negotiation = Negotiation(for_circuits(self._request, [self._index[pair] for pair in pairs]))
            try:
                negotiation.route_separately()
                self._cache[pairs] = negotiation.run(_ROUNDS, np.inf)
            except SearchBudgetExceeded:
                self._cache[pairs] = NegotiationResult(None, in_conflict=tuple(range(len(pairs))))
        result = self._cache[pairs]
        if result.wave_paths is None:
            return None, tuple(pairs[index] for index in result.in_conflict)
        return dict(zip(pairs, result.wave_paths, strict=True)), ()

    def routable(self, matching: Iterable[Pair]) -> bool:
        """Return whether all of a set of port pairs could be routed together."""
        return self.route_matching(matching)[0] is not None

    def filled(self, current: Routed, order: Sequence[Pair]) -> Routed:
        """Return a configuration extended by the pairs, in the given order, that find free ports and a path."""
        prices = self._prices
        prices.reset()
        # The circuits of the configuration stay, so a new pair must not need any PUC in another state.
        prices.pressure = FORBIDDEN
        for pair, wave_path in current.items():
            prices.add(self._nodes(pair, wave_path))
        extended = dict(current)
        busy = {port for pair in current for port in pair}
        for pair in order:
            if busy.isdisjoint(pair) and (nodes := self._fit(pair)) is not None:
                prices.add(nodes)
                extended[pair] = prices.to_wave_path(nodes)
                busy |= set(pair)
        return extended

    def _nodes(self, pair: Pair, wave_path: WavePath) -> Nodes:
        return (*wave_path.waves, self._prices.graph.n_waves + pair[1])

    def _fit(self, pair: Pair) -> Nodes | None:
        try:
            path = self._search.cheapest_path(self._index[pair], _SEARCHES)
        except SearchBudgetExceeded:
            return None
        return path[1] if path is not None and path[0] < FORBIDDEN else None


class Matcher:
    """Searches for the configurations of one set of ports.

    Args:
        steps: Largest number of attempts to add a remaining pair by displacing others.
    """

    def __init__(self, request: RoutingProblem, ports: Sequence[int], order: random.Random, steps: int) -> None:
        self._pairs = request.pairs
        self._ports = sorted(ports)
        self._complete = 2 * len(self._pairs) == len(ports) * (len(ports) - 1)
        self._random = order
        self._steps = steps
        self._router = Router(request)

    def solve(self) -> list[Routed]:
        """Return configurations that together contain every pair of ports exactly once."""
        factors = self._redistribute(self._best_round_robin() if self._complete else self._random_factors())
        routed = [
            wave_paths for factor in factors if (wave_paths := self._router.route_matching(factor)[0]) is not None
        ]
        if len(routed) < 0.5 * len(factors):
            routed = []
        remaining = set(self._pairs) - {pair for configuration in routed for pair in configuration}
        while remaining and len(routed) < len(factors):
            routed.append(self._fullest(remaining))
            remaining -= set(routed[-1])
        remaining = self._force_remaining(routed, remaining)
        while remaining:
            routed.append(self._fullest(remaining))
            remaining = self._force_remaining(routed, remaining - set(routed[-1]))
        return routed

    def _unrouted(self, factors: Sequence[Matching]) -> int:
        return sum(not self._router.routable(factor) for factor in factors)

    def _best_round_robin(self) -> list[Matching]:
        best: list[Matching] = []
        fewest = len(self._ports) + 1
        for attempt in range(_ORDERS):
            order = list(self._ports)
            if attempt:
                self._random.shuffle(order)
            factors = round_robin(order)
            unrouted = self._unrouted(factors)
            if unrouted < fewest:
                best, fewest = factors, unrouted
            if not fewest or unrouted > 0.8 * len(factors):
                break
        return best

    def _random_factors(self) -> list[Matching]:
        partners = Counter(port for pair in self._pairs for port in pair)
        return self._split(set(self._pairs), max(partners.values())) or []

    def _redistribute(self, factors: list[Matching]) -> list[Matching]:
        factors = list(factors)
        if len(factors) < 3 or self._unrouted(factors) > 0.5 * len(factors):
            return factors
        for _ in range(_SPLITS):
            unrouted = [factor for factor in factors if not self._router.routable(factor)]
            if not unrouted:
                break
            first = self._random.choice(unrouted)
            merged = [first, *self._random.sample([factor for factor in factors if factor != first], 2)]
            new_factors = self._split({pair for factor in merged for pair in factor}, len(merged))
            if new_factors is not None and self._unrouted(new_factors) <= self._unrouted(merged):
                factors = [factor for factor in factors if factor not in merged] + new_factors
        return factors

    def _split(self, pairs: set[Pair], parts: int) -> list[Matching] | None:
        size = len(pairs) // parts
        new_factors: list[Matching] = []
        for _ in range(parts):
            matching = random_matching(pairs, size, self._random)
            if matching is None:
                return None
            new_factors.append(matching)
            pairs = pairs - set(matching)
        return new_factors

    def _fullest(self, remaining: Collection[Pair]) -> Routed:
        degree: dict[int, int] = {}
        for port in (port for pair in remaining for port in pair):
            degree[port] = degree.get(port, 0) + 1
        best: Routed = {}
        for _ in range(_FILLINGS):
            # Ports with many remaining pairs need many configurations, so their pairs go first.
            # The random part makes the attempts differ.
            rank = {pair: degree[pair[0]] + degree[pair[1]] + 4.0 * self._random.random() for pair in sorted(remaining)}
            filled = self._router.filled({}, sorted(rank, key=lambda pair: -rank[pair]))
            if len(filled) > len(best):
                best = filled
        return best

    def _force_remaining(self, routed: list[Routed], remaining: Collection[Pair]) -> set[Pair]:
        """Add remaining pairs to configurations, in place, by displacing others; return the pairs that remain."""
        pool = sorted(remaining)
        best, best_routed = list(pool), [dict(configuration) for configuration in routed]
        while pool and self._steps > 0 and len(routed) > 1:
            self._steps -= 1
            pair = self._random.choice(pool)
            number = self._random.randrange(len(routed))
            wave_paths = self._with_pair_added(routed[number], pair)
            if wave_paths is None:
                continue
            displaced = [other for other in routed[number] if other not in wave_paths]
            # A step that leaves one more pair is rarely accepted, to get out of dead ends.
            if len(displaced) <= 1 or (len(displaced) == 2 and self._random.random() < 0.05):
                routed[number] = wave_paths
                pool = sorted({*pool, *displaced} - {pair})
                pool = self._place_remaining(routed, pool)
            if len(pool) < len(best):
                best, best_routed = list(pool), [dict(configuration) for configuration in routed]
        routed[:] = best_routed
        return set(best)

    def _with_pair_added(self, wave_paths: Routed, pair: Pair) -> Routed | None:
        kept_paths = {other: wave_path for other, wave_path in wave_paths.items() if set(other).isdisjoint(pair)}
        if len(extended := self._router.filled(kept_paths, [pair])) > len(kept_paths):
            return extended
        for _ in range(3):
            new_factors, in_conflict = self._router.route_matching([*kept_paths, pair])
            if new_factors is not None:
                return new_factors
            # One of the circuits in conflict has to leave.
            other_conflicts = [other for other in in_conflict if other != pair]
            if not other_conflicts:
                return None
            kept_paths.pop(self._random.choice(other_conflicts))
        return None

    def _place_remaining(self, routed: list[Routed], pool: list[Pair]) -> list[Pair]:
        positions = list(range(len(routed)))
        self._random.shuffle(positions)
        for number in positions:
            busy = {port for other in routed[number] for port in other}
            fitting = [pair for pair in pool if busy.isdisjoint(pair)]
            if fitting:
                routed[number] = self._router.filled(routed[number], fitting)
                pool = [pair for pair in pool if pair not in routed[number]]
        return pool


def random_matching(pairs: Collection[Pair], size: int, order: random.Random) -> Matching | None:
    """Return a random set of port pairs without a common port, or ``None`` if none was found within the step limit."""
    neighbours: dict[int, set[int]] = {}
    for a, b in pairs:
        neighbours.setdefault(a, set()).add(b)
        neighbours.setdefault(b, set()).add(a)
    merged: list[Pair] = []
    steps = 0

    def extend(free: set[int]) -> bool:
        """Complete the matching with pairs of free ports, by depth-first search; return whether this succeeded."""
        nonlocal steps
        steps += 1
        if len(merged) == size:
            return True
        if steps > 50 * size or len(free) < 2 * (size - len(merged)):
            return False
        # Start with the port that has the fewest partners left, because it runs out of partners first.
        port = min(sorted(free), key=lambda port: len(neighbours[port] & free))
        options = sorted(neighbours[port] & free)
        order.shuffle(options)
        for option in options:
            merged.append((min(port, option), max(port, option)))
            if extend(free - {port, option}):
                return True
            merged.pop()
        # No partner works, so this port stays idle if enough ports remain.
        return len(free) > 2 * (size - len(merged)) and extend(free - {port})

    return tuple(sorted(merged)) if extend(set(neighbours)) else None
