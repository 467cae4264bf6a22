"""Matchings (sets of disjoint pairs) of ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lumion_hw.schedules.schedule import Circuits, Schedule, ScheduleRound, both_directions, check_ranks

_Pairs = list[tuple[int, int]]


def circle(ranks: int) -> tuple[Circuits, ...]:
    """Return the matchings of the circle method, which together connect all pairs of ranks.

    There are ``ranks - 1``, or ``ranks`` with one idle rank each if ``ranks`` is odd. Matching t connects rank m with t
    and (t + i) with (t - i) modulo m, where m is the largest odd number below ``ranks`` (``ranks`` itself if odd).
    """
    check_ranks(ranks, "circle method")
    n_slots = ranks + ranks % 2
    m = n_slots - 1
    rounds = [[(m, t), *(((t + i) % m, (t - i) % m) for i in range(1, n_slots // 2))] for t in range(m)]
    return tuple(both_directions(pair for pair in pairs if max(pair) < ranks) for pairs in rounds)


def xor(ranks: int) -> tuple[Circuits, ...]:
    """Return one matching of each rank i with i XOR s, for every s from 1 to ranks - 1; ``ranks`` is a power of two."""
    check_ranks(ranks, "XOR matchings", power_of_two=True)
    return tuple(tuple((i, i ^ s) for i in range(ranks)) for s in range(1, ranks))


def shift(ranks: int, by: int) -> Circuits:
    """Return the permutation that connects rank i to rank i + ``by``, modulo the number of ranks; for simplex ports."""
    return tuple((i, (i + by) % ranks) for i in range(ranks))


def matchings(kind: Literal["circle", "xor", "shifts"], ranks: int) -> Schedule:
    """Return a schedule of circuits without data.

    Args:
        kind: ``circle`` or ``xor`` (matchings), or ``shifts`` (permutations).
        ranks: Number of ranks.

    Raises:
        ConfigError: ``xor`` was requested for a number of ranks that is not a power of two.
    """
    check_ranks(ranks, kind)
    if kind == "shifts":
        rounds = tuple(shift(ranks, by) for by in range(1, ranks))
    else:
        rounds = xor(ranks) if kind == "xor" else circle(ranks)
    return Schedule(
        kind, "matchings", ranks, 0, kind != "shifts", tuple(ScheduleRound(circuits) for circuits in rounds)
    )


def heavy_matching(weight: NDArray[np.float64]) -> _Pairs:
    """Return a matching of approximately the largest total weight.

    Args:
        weight: Symmetric, shape ``(n, n)``; the diagonal must be far below the rest.
    """
    from scipy.optimize import linear_sum_assignment

    after = linear_sum_assignment(weight, maximize=True)[1].tolist()
    pairs: _Pairs = []
    unpaired = []
    is_visited = [False] * len(after)
    for start in range(len(after)):
        cycle = []
        while not is_visited[start]:
            is_visited[start] = True
            cycle.append(start)
            start = after[start]  # noqa: PLW2901 - follow the cycle
        chosen = _best_pairs_of_cycle(cycle, lambda pair: float(weight[pair]))
        pairs += chosen
        unpaired += sorted(set(cycle) - {rank for pair in chosen for rank in pair})
    while len(unpaired) > 1:
        a, b = divmod(int(weight[np.ix_(unpaired, unpaired)].argmax()), len(unpaired))
        pairs.append((unpaired[a], unpaired[b]))
        unpaired = [rank for i, rank in enumerate(unpaired) if i not in (a, b)]
    return _improve_by_swaps(weight, pairs)


def _best_pairs_of_cycle(cycle: Sequence[int], weight: Callable[[tuple[int, int]], float]) -> _Pairs:
    size = len(cycle)
    starts = range(size if size % 2 else min(size, 2))
    factors = [[(cycle[(s + 2 * i) % size], cycle[(s + 2 * i + 1) % size]) for i in range(size // 2)] for s in starts]
    return max(factors, key=lambda pairs: sum(map(weight, pairs)), default=[])


def _improve_by_swaps(weight: NDArray[np.float64], pairs: _Pairs) -> _Pairs:
    pairs = list(pairs)
    while len(pairs) > 1:
        a, b = np.array(pairs).T
        present = weight[a, b][:, None] + weight[a, b][None, :]
        straight = weight[np.ix_(a, a)] + weight[np.ix_(b, b)] - present
        crossed = weight[np.ix_(a, b)] + weight[np.ix_(b, a)] - present
        gain = np.maximum(straight, crossed)
        np.fill_diagonal(gain, -np.inf)
        i, j = divmod(int(gain.argmax()), len(pairs))
        if gain[i, j] < 1e-9:
            break
        (p, q), (r, s) = pairs[i], pairs[j]
        pairs[i], pairs[j] = ((p, r), (q, s)) if straight[i, j] >= crossed[i, j] else ((p, s), (q, r))
    return pairs
