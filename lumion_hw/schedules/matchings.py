"""Configurations that together join every rank with every other once: circle method, XOR and shifts."""

from __future__ import annotations

from typing import Literal

from lumion_hw.schedules.schedule import Circuits, Schedule, ScheduleRound, both_ways, check_ranks


def circle(ranks: int) -> tuple[Circuits, ...]:
    """Return the matchings of the circle method: ``ranks - 1``, or ``ranks`` with one rank idle in each if it is odd.

    Round t joins rank m with t and (t + i) with (t - i) modulo m, where m is the largest odd number below the ranks.
    """
    check_ranks(ranks, "circle method")
    seats = ranks + ranks % 2
    m = seats - 1
    rounds = [[(m, t), *(((t + i) % m, (t - i) % m) for i in range(1, seats // 2))] for t in range(m)]
    return tuple(both_ways(pair for pair in pairs if max(pair) < ranks) for pairs in rounds)


def xor(ranks: int) -> tuple[Circuits, ...]:
    """Return the matchings i with i XOR s, s = 1 ... ranks - 1, of a power of two."""
    check_ranks(ranks, "XOR matchings", power_of_two=True)
    return tuple(tuple((i, i ^ s) for i in range(ranks)) for s in range(1, ranks))


def shift(ranks: int, by: int) -> Circuits:
    """Return the permutation i to i + by modulo the ranks; for simplex ports."""
    return tuple((i, (i + by) % ranks) for i in range(ranks))


def matchings(kind: Literal["circle", "xor", "shifts"], ranks: int) -> Schedule:
    """Return circuits without data: ``circle``, ``xor`` or ``shifts``.

    Raises:
        ConfigError: XOR without a power of two.
    """
    check_ranks(ranks, kind)
    if kind == "shifts":
        rounds = tuple(shift(ranks, by) for by in range(1, ranks))
    else:
        rounds = xor(ranks) if kind == "xor" else circle(ranks)
    return Schedule(kind, "matchings", ranks, 0, kind != "shifts", tuple(ScheduleRound(each) for each in rounds))
