"""Circuits of equal length: the group's common number of hops is raised until negotiation settles."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from lumion_hw.mesh.routing.negotiation import Negotiation
from lumion_hw.mesh.routing.request import RoutingProblem
from lumion_hw.mesh.routing.result import Way
from lumion_hw.mesh.routing.search import GivenUp

_MOST_LENGTHENINGS = 6
"""Common lengths tried per group: the longest of its shortest ways, and so many steps above."""

_ROUNDS_PER_LENGTH = 40


def settle_lengths(request: RoutingProblem, rounds: int) -> tuple[tuple[Way, ...] | None, tuple[int, ...]]:
    """Return the ways found if any, and the PUCs contested when it was given up.

    Args:
        request: A request with groups of equal length, of one parity each.
        rounds: Rounds of negotiation for each length.
    """
    hops = request.mesh.shortest_hops
    shortest = [max(int(hops[request.pairs[index]]) for index in group) for group in request.equal]
    # Where parity is known, all lengths of a circuit differ by twos; elsewhere by one.
    parities = [[request.mesh.port_parity(*request.pairs[index]) for index in group] for group in request.equal]
    steps = [1 if None in group else 2 for group in parities]
    contested: tuple[int, ...] = ()
    lengthenings = product(range(_MOST_LENGTHENINGS + 1), repeat=len(request.equal))
    for extra in sorted(lengthenings, key=lambda each: (sum(each), each))[: 4 * _MOST_LENGTHENINGS]:
        lengths = {
            index: least + step * more
            for group, least, step, more in zip(request.equal, shortest, steps, extra, strict=True)
            for index in group
        }
        # Equal lengths as exact ones, the shortest first: negotiation knows no ties between circuits.
        limits = tuple(
            replace(limit, exact_hops=lengths.get(index, limit.exact_hops))
            for index, limit in enumerate(request.limits)
        )
        negotiation = Negotiation(replace(request, limits=limits, equal=()))
        try:
            if None in negotiation.alone():
                continue
        except GivenUp:
            continue
        settled = negotiation.run(min(rounds, _ROUNDS_PER_LENGTH), 0.0)
        if settled.ways is not None:
            return settled.ways, ()
        contested = settled.contested
    return None, contested
