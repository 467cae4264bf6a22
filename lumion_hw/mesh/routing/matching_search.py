"""The search behind all-to-all: which pairs of ports go into which configuration.

Three stages, each only if the one before left pairs over: round robins under several orders of the ports, or random
factors where not every port can meet every other; factors that cannot be routed are taken together with others and
split anew; and pairs that are still left push their way into configurations, whose pairs in the way then look for
another place.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from lumion_hw.mesh.routing.negotiation import Negotiation, NegotiationResult
from lumion_hw.mesh.routing.reasons import only
from lumion_hw.mesh.routing.request import RoutingProblem
from lumion_hw.mesh.routing.result import WavePath
from lumion_hw.mesh.routing.search import HARD, Nodes, Prices, Search, SearchBudgetExceeded

Pair = tuple[int, int]
Matching = tuple[Pair, ...]
Routed = dict[Pair, WavePath]
"""One configuration: the way of each pair it joins."""

_ROUNDS = 60
"""Rounds of negotiation for one matching; what settles mostly does in the first ten."""

_ORDERS = 12
"""Orders of the ports under which the round robin is tried."""

_SPLITS = 300
"""Times factors are split anew."""

_FILLINGS = 30
"""Ways of filling one configuration that are tried; the fullest is taken."""

_SEARCHES = 10
"""Searches for one pair among circuits that stay."""


def round_robin(ports: Sequence[int]) -> list[Matching]:
    """Return the matchings of the circle method, each pair once; with an odd number one port is idle in each."""
    seats: list[int | None] = [*ports, *([None] * (len(ports) % 2))]
    rounds: list[Matching] = []
    for _ in range(len(seats) - 1):
        facing = zip(seats[: len(seats) // 2], reversed(seats), strict=False)
        rounds.append(tuple(sorted((min(a, b), max(a, b)) for a, b in facing if a is not None and b is not None)))
        # The first stays seated, all others move up one place.
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return rounds


class Router:
    """Answers which pairs go together.

    Args:
        request: The request for all pairs at once.
    """

    def __init__(self, request: RoutingProblem) -> None:
        self._request = request
        self._index = {pair: index for index, pair in enumerate(request.pairs)}
        self._known: dict[Matching, NegotiationResult] = {}
        self._prices = Prices(request)
        self._search = Search(request, self._prices)

    def settled(self, matching: Iterable[Pair]) -> tuple[Routed | None, Matching]:
        """Negotiate a matching, or remember how that ended; return its ways, or ``None`` and the pairs at odds."""
        pairs = tuple(sorted(matching))
        # Factors come again and again while they are split anew.
        if pairs not in self._known:
            negotiation = Negotiation(only(self._request, [self._index[pair] for pair in pairs]))
            try:
                negotiation.alone()
                self._known[pairs] = negotiation.run(_ROUNDS, np.inf)
            except SearchBudgetExceeded:
                self._known[pairs] = NegotiationResult(None, at_odds=tuple(range(len(pairs))))
        end = self._known[pairs]
        if end.ways is None:
            return None, tuple(pairs[index] for index in end.at_odds)
        return dict(zip(pairs, end.ways, strict=True)), ()

    def routable(self, matching: Iterable[Pair]) -> bool:
        """Return whether negotiation routes a matching."""
        return self.settled(matching)[0] is not None

    def filled(self, active: Routed, order: Sequence[Pair]) -> Routed:
        """Return a configuration with every pair added that finds its ports and a way free, in this order."""
        prices = self._prices
        prices.reset()
        prices.pressure = HARD
        for pair, way in active.items():
            prices.add(self._nodes(pair, way))
        wider = dict(active)
        busy = {port for pair in active for port in pair}
        for pair in order:
            if busy.isdisjoint(pair) and (nodes := self._fit(pair)) is not None:
                prices.add(nodes)
                wider[pair] = prices.way(nodes)
                busy |= set(pair)
        return wider

    def _nodes(self, pair: Pair, way: WavePath) -> Nodes:
        return (*way.waves, self._prices.graph.n_waves + pair[1])

    def _fit(self, pair: Pair) -> Nodes | None:
        """Return the way of a pair that leaves all others alone, if there is one."""
        try:
            found = self._search.cheapest(self._index[pair], _SEARCHES)
        except SearchBudgetExceeded:
            return None
        return found[1] if found is not None and found[0] < HARD else None


class Matcher:
    """Searches for the configurations of one set of ports.

    Args:
        request: The request for all pairs at once.
        ports: The ports.
        order: Source of all randomness.
        steps: How often, in all, a pair left over may push its way into a configuration.
    """

    def __init__(self, request: RoutingProblem, ports: Sequence[int], order: random.Random, steps: int) -> None:
        self._pairs = request.pairs
        self._ports = sorted(ports)
        self._complete = 2 * len(self._pairs) == len(ports) * (len(ports) - 1)
        self._random = order
        self._steps = steps
        self._router = Router(request)

    def solve(self) -> list[Routed]:
        """Return configurations in which every pair stands exactly once."""
        factors = self._split_anew(self._best_round_robin() if self._complete else self._random_factors())
        routed = [ways for factor in factors if (ways := self._router.settled(factor)[0]) is not None]
        if len(routed) < 0.5 * len(factors):
            routed = []
        left = set(self._pairs) - {pair for each in routed for pair in each}
        while left and len(routed) < len(factors):
            routed.append(self._fullest(left))
            left -= set(routed[-1])
        left = self._pushed(routed, left)
        while left:
            routed.append(self._fullest(left))
            left = self._pushed(routed, left - set(routed[-1]))
        return routed

    def _unrouted(self, factors: Sequence[Matching]) -> int:
        return sum(not self._router.routable(factor) for factor in factors)

    def _best_round_robin(self) -> list[Matching]:
        """Return the round robin with the fewest factors that cannot be routed."""
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
        """Return matchings of all pairs, each pair once, as long as they are of equal size; the rest stays over."""
        partners = Counter(port for pair in self._pairs for port in pair)
        return self._split(set(self._pairs), max(partners.values())) or []

    def _split_anew(self, factors: list[Matching]) -> list[Matching]:
        """Take an unrouted factor together with two others and split the three anew, as long as that helps."""
        factors = list(factors)
        if len(factors) < 3 or self._unrouted(factors) > 0.5 * len(factors):
            return factors
        for _ in range(_SPLITS):
            bad = [factor for factor in factors if not self._router.routable(factor)]
            if not bad:
                break
            first = self._random.choice(bad)
            chosen = [first, *self._random.sample([factor for factor in factors if factor != first], 2)]
            anew = self._split({pair for factor in chosen for pair in factor}, len(chosen))
            if anew is not None and self._unrouted(anew) <= self._unrouted(chosen):
                factors = [factor for factor in factors if factor not in chosen] + anew
        return factors

    def _split(self, pairs: set[Pair], parts: int) -> list[Matching] | None:
        """Split a regular set of pairs into matchings of equal size, at random; ``None`` if that got stuck."""
        size = len(pairs) // parts
        anew: list[Matching] = []
        for _ in range(parts):
            matching = random_matching(pairs, size, self._random)
            if matching is None:
                return None
            anew.append(matching)
            pairs = pairs - set(matching)
        return anew

    def _fullest(self, left: Collection[Pair]) -> Routed:
        """Return a configuration of pairs left over, the fullest of several, fewest hops first among equals."""
        degree: dict[int, int] = {}
        for port in (port for pair in left for port in pair):
            degree[port] = degree.get(port, 0) + 1
        best: Routed = {}
        for _ in range(_FILLINGS):
            # Ports with many pairs left make for many configurations: theirs go first.
            rank = {pair: degree[pair[0]] + degree[pair[1]] + 4.0 * self._random.random() for pair in sorted(left)}
            filled = self._router.filled({}, sorted(rank, key=lambda pair: -rank[pair]))
            if len(filled) > len(best):
                best = filled
        return best

    def _pushed(self, routed: list[Routed], left: Collection[Pair]) -> set[Pair]:
        """Let pairs left over push their way into configurations; change those in place, and return what is left.

        The pairs pushed out are left over instead. That is accepted if they are no more than before, or now and then
        one more; the best state seen is what counts.
        """
        pool = sorted(left)
        best, kept = list(pool), [dict(each) for each in routed]
        while pool and self._steps > 0 and len(routed) > 1:
            self._steps -= 1
            pair = self._random.choice(pool)
            place = self._random.randrange(len(routed))
            ways = self._with(routed[place], pair)
            if ways is None:
                continue
            out = [each for each in routed[place] if each not in ways]
            if len(out) <= 1 or (len(out) == 2 and self._random.random() < 0.05):
                routed[place] = ways
                pool = sorted({*pool, *out} - {pair})
                pool = self._settled_elsewhere(routed, pool)
            if len(pool) < len(best):
                best, kept = list(pool), [dict(each) for each in routed]
        routed[:] = kept
        return set(best)

    def _with(self, ways: Routed, pair: Pair) -> Routed | None:
        """Return a configuration with one pair added and as few as possible taken out; ``None`` if it cannot be."""
        staying = {each: way for each, way in ways.items() if set(each).isdisjoint(pair)}
        if len(wider := self._router.filled(staying, [pair])) > len(staying):
            return wider
        for _ in range(3):
            anew, at_odds = self._router.settled([*staying, pair])
            if anew is not None:
                return anew
            others = [each for each in at_odds if each != pair]
            if not others:
                return None
            staying.pop(self._random.choice(others))
        return None

    def _settled_elsewhere(self, routed: list[Routed], pool: list[Pair]) -> list[Pair]:
        """Put pairs left over wherever they fit without moving anything; return the rest."""
        places = list(range(len(routed)))
        self._random.shuffle(places)
        for place in places:
            busy = {port for each in routed[place] for port in each}
            fitting = [pair for pair in pool if busy.isdisjoint(pair)]
            if fitting:
                routed[place] = self._router.filled(routed[place], fitting)
                pool = [pair for pair in pool if pair not in routed[place]]
        return pool


def random_matching(pairs: Collection[Pair], size: int, order: random.Random) -> Matching | None:
    """Return a random matching of exactly so many pairs, by backtracking from the port with the fewest choices.

    Args:
        pairs: Pairs to choose from.
        size: How many.
        order: Source of randomness.

    Returns:
        The matching, or ``None`` if none was found within a number of steps.
    """
    neighbours: dict[int, set[int]] = {}
    for a, b in pairs:
        neighbours.setdefault(a, set()).add(b)
        neighbours.setdefault(b, set()).add(a)
    chosen: list[Pair] = []
    steps = 0

    def extend(free: set[int]) -> bool:
        nonlocal steps
        steps += 1
        if len(chosen) == size:
            return True
        if steps > 50 * size or len(free) < 2 * (size - len(chosen)):
            return False
        # The one with the fewest partners left first: it is the first to be left without.
        port = min(sorted(free), key=lambda each: len(neighbours[each] & free))
        options = sorted(neighbours[port] & free)
        order.shuffle(options)
        for option in options:
            chosen.append((min(port, option), max(port, option)))
            if extend(free - {port, option}):
                return True
            chosen.pop()
        return len(free) > 2 * (size - len(chosen)) and extend(free - {port})

    return tuple(sorted(chosen)) if extend(set(neighbours)) else None
