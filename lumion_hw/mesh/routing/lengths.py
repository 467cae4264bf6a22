"""Circuits of equal length: the group's common number of hops is raised until negotiation settles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from lumion_hw.mesh.routing.negotiation import Negotiation
from lumion_hw.mesh.routing.request import Progress, RoutingProblem, no_progress
from lumion_hw.mesh.routing.result import WavePath
from lumion_hw.mesh.routing.search import SearchBudgetExceeded

_MOST_LENGTHENINGS = 6
"""Common lengths tried per group: the longest of its shortest ways, and so many steps above."""

_ROUNDS_PER_LENGTH = 40


def at_lengths(request: RoutingProblem) -> list[RoutingProblem]:
    """Return the request with common lengths as exact ones, the shortest first: negotiation knows no ties.

    Args:
        request: A request with groups of equal length, of one parity each.
    """
    hops = request.mesh.shortest_hops
    shortest = [max(int(hops[request.pairs[index]]) for index in group) for group in request.equal]
    # Where parity is known, all lengths of a circuit differ by twos; elsewhere by one.
    parities = [[request.mesh.port_parity(*request.pairs[index]) for index in group] for group in request.equal]
    steps = [1 if None in group else 2 for group in parities]
    found = []
    counts = [_MOST_LENGTHENINGS + 1] * len(request.equal)
    for extra in first_choices(counts, lambda each: (sum(each), each), 4 * _MOST_LENGTHENINGS):
        lengths = {
            index: least + step * more
            for group, least, step, more in zip(request.equal, shortest, steps, extra, strict=True)
            for index in group
        }
        limits = tuple(
            replace(limit, exact_hops=lengths.get(index, limit.exact_hops))
            for index, limit in enumerate(request.limits)
        )
        found.append(replace(request, limits=limits, equal=()))
    return found


def first_choices(
    counts: Sequence[int], key: Callable[[tuple[int, ...]], tuple[object, ...]], most: int
) -> list[tuple[int, ...]]:
    """Return the first of all choices of one option for each place, without making all of them.

    Args:
        counts: Number of options of each place.
        key: What choices are ordered by; it takes the first few places of a choice as well, and what comes first by
            these has to come first with the same options in all other places.
        most: Number of choices wanted.
    """
    first: list[tuple[int, ...]] = [()]
    for count in counts:
        first = sorted(((*each, option) for each in first for option in range(count)), key=key)[:most]
    return first


def settle_lengths(
    request: RoutingProblem, rounds: int, progress: Progress = no_progress
) -> tuple[tuple[WavePath, ...] | None, tuple[int, ...]]:
    """Return the ways found if any, and the PUCs contested when it was given up.

    Args:
        request: A request with groups of equal length, of one parity each.
        rounds: Rounds of negotiation for each length.
        progress: Told of every choice of lengths but the first.
    """
    contested: tuple[int, ...] = ()
    choices = at_lengths(request)
    for number, fixed in enumerate(choices):
        if number:
            progress("routes", number, len(choices))
        negotiation = Negotiation(fixed)
        try:
            if None in negotiation.alone():
                continue
        except SearchBudgetExceeded:
            continue
        settled = negotiation.run(min(rounds, _ROUNDS_PER_LENGTH), 0.0)
        if settled.ways is not None:
            return settled.ways, ()
        contested = settled.contested
    return None, contested


def improve_lengths(
    request: RoutingProblem, ways: tuple[WavePath, ...], rounds: int, until_s: float, now_s: Callable[[], float]
) -> tuple[WavePath, ...]:
    """Improve circuits of equal length: each common length is negotiated and improved for half of the time left.

    Args:
        request: A request with groups of equal length, of one parity each.
        ways: A routing of it.
        rounds: Rounds of negotiation for each length.
        until_s: When to end.
        now_s: Tells the time.
    """
    best, least = ways, request.cost(ways)
    for fixed in at_lengths(request):
        begun_s = now_s()
        if begun_s >= until_s:
            break
        negotiation = Negotiation(fixed)
        try:
            alone = negotiation.alone()
        except SearchBudgetExceeded:
            continue
        # Cheapest at these lengths, each circuit by itself: if that is no cheaper, nothing is.
        if None in alone or sum(cost or 0.0 for cost in alone) >= least - 1e-9:
            continue
        kept = all(limit.exact_hops in (None, len(way.pucs)) for limit, way in zip(fixed.limits, best, strict=True))
        found = best if kept else negotiation.run(rounds, 0.0).ways
        if found is not None:
            share_s = (now_s() + until_s) / 2.0
            found = negotiation.improve(found, 0.0, lambda share_s=share_s: now_s() >= share_s)  # type: ignore[misc]
            if (cost := request.cost(found)) < least - 1e-9:
                best, least = found, cost
    return best
