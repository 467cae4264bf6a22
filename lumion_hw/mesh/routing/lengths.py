"""Circuits of equal length: try longer common lengths until a routing is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from lumion_hw.mesh.routing.negotiation import Negotiation
from lumion_hw.mesh.routing.request import Progress, RoutingProblem, no_progress
from lumion_hw.mesh.routing.result import WavePath
from lumion_hw.mesh.routing.search import SearchBudgetExceeded

_MAX_LENGTHENINGS = 6
"""Number of longer common lengths tried per group, after its shortest possible length."""

_ROUNDS_PER_LENGTH = 40


def with_fixed_lengths(request: RoutingProblem) -> list[RoutingProblem]:
    """Return versions of the request in which every group of equal length has a fixed length, short lengths first."""
    hops = request.mesh.shortest_hops
    shortest = [max(int(hops[request.pairs[index]]) for index in group) for group in request.equal]
    # If the parity is fixed, the possible lengths of a circuit differ by 2, otherwise by 1.
    parities = [[request.mesh.port_parity(*request.pairs[index]) for index in group] for group in request.equal]
    steps = [1 if None in group else 2 for group in parities]
    requests = []
    counts = [_MAX_LENGTHENINGS + 1] * len(request.equal)
    for extra in first_choices(counts, lambda choice: (sum(choice), choice), 4 * _MAX_LENGTHENINGS):
        lengths = {
            index: best_cost + step * added_hops
            for group, best_cost, step, added_hops in zip(request.equal, shortest, steps, extra, strict=True)
            for index in group
        }
        limits = tuple(
            replace(limit, exact_hops=lengths.get(index, limit.exact_hops))
            for index, limit in enumerate(request.limits)
        )
        requests.append(replace(request, limits=limits, equal=()))
    return requests


def first_choices(
    counts: Sequence[int], key: Callable[[tuple[int, ...]], tuple[object, ...]], max_count: int
) -> list[tuple[int, ...]]:
    """Return combinations of one option per position, smallest ``key`` first.

    Args:
        counts: Number of options of each position.
        key: Sort key of a combination, or of its first few positions. Appending the same options to two beginnings must
            not change their order.
        max_count: Largest number of combinations.
    """
    first: list[tuple[int, ...]] = [()]
    for count in counts:
        first = sorted(((*choice, option) for choice in first for option in range(count)), key=key)[:max_count]
    return first


def route_equal_lengths(
    request: RoutingProblem, rounds: int, progress: Progress = no_progress
) -> tuple[tuple[WavePath, ...] | None, tuple[int, ...]]:
    """Route circuits of equal length; return the paths and the PUCs over which circuits still conflict.

    Paths are ``None`` if no routing was found. ``progress`` is called at every combination of lengths except the first.
    """
    contested: tuple[int, ...] = ()
    choices = with_fixed_lengths(request)
    for number, fixed in enumerate(choices):
        if number:
            progress("routes", number, len(choices))
        # Negotiation knows no groups of equal length, so each common length is a problem of its own.
        negotiation = Negotiation(fixed)
        try:
            if None in negotiation.route_separately():
                continue
        except SearchBudgetExceeded:
            continue
        negotiated = negotiation.run(min(rounds, _ROUNDS_PER_LENGTH), 0.0)
        if negotiated.wave_paths is not None:
            return negotiated.wave_paths, ()
        contested = negotiated.contested
    return None, contested


def improve_lengths(
    request: RoutingProblem, wave_paths: tuple[WavePath, ...], rounds: int, until_s: float, now_s: Callable[[], float]
) -> tuple[WavePath, ...]:
    """Improve ``wave_paths``, a routing of circuits of equal length, by trying other common lengths."""
    best, best_cost = wave_paths, request.cost(wave_paths)
    for fixed in with_fixed_lengths(request):
        start_s = now_s()
        if start_s >= until_s:
            break
        negotiation = Negotiation(fixed)
        try:
            separate_costs = negotiation.route_separately()
        except SearchBudgetExceeded:
            continue
        # Lower bound at these lengths: each circuit routed alone. If it is no cheaper, no routing is.
        if None in separate_costs or sum(cost or 0.0 for cost in separate_costs) >= best_cost - 1e-9:
            continue
        has_lengths = all(
            limit.exact_hops in (None, len(wave_path.pucs)) for limit, wave_path in zip(fixed.limits, best, strict=True)
        )
        requests = best if has_lengths else negotiation.run(rounds, 0.0).wave_paths
        if requests is not None:
            deadline_s = (now_s() + until_s) / 2.0
            requests = negotiation.improve(requests, 0.0, lambda deadline_s=deadline_s: now_s() >= deadline_s)  # type: ignore[misc]
            if (cost := request.cost(requests)) < best_cost - 1e-9:
                best, best_cost = requests, cost
    return best
