"""Collectives as schedules: ring, halving and doubling, broadcast and all-to-all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from lumion_hw.errors import ConfigError, UnknownNameError
from lumion_hw.mesh.routing.request import Progress, no_progress
from lumion_hw.schedules.matchings import circle, matchings, shift
from lumion_hw.schedules.schedule import (
    Circuits,
    Collective,
    Schedule,
    ScheduleRound,
    Transfer,
    both_directions,
    check_ranks,
)
from lumion_hw.schedules.straggler import stragglar


def _ring_steps(ranks: int, half: str) -> list[list[Transfer]]:
    """Return a ring's transfers: rank i sends chunk i - t in step t, or chunk i + 1 - t in the gather half."""
    adds = half == "scatter"
    return [
        [Transfer(i, (i + 1) % ranks, ((i - t + (not adds)) % ranks,), adds) for i in range(ranks)]
        for t in range(ranks - 1)
    ]


def ring_all_reduce(ranks: int) -> Schedule:
    """Return the ring all-reduce: 2 (n - 1) rounds, for simplex ports or two ports per rank."""
    check_ranks(ranks, "ring")
    steps = _ring_steps(ranks, "scatter") + _ring_steps(ranks, "gather")
    return _on_ring("ring", "all-reduce", ranks, ranks, steps)


def ring_reduce_scatter(ranks: int) -> Schedule:
    """Return the ring reduce-scatter: n - 1 rounds, then each rank has the sum of one chunk."""
    check_ranks(ranks, "ring")
    return _on_ring("ring-reduce-scatter", "reduce-scatter", ranks, ranks, _ring_steps(ranks, "scatter"))


def ring_all_gather(ranks: int) -> Schedule:
    """Return the all-gather on a ring, where rank i starts with chunk i."""
    check_ranks(ranks, "ring")
    steps = [[Transfer(i, (i + 1) % ranks, ((i - t) % ranks,)) for i in range(ranks)] for t in range(ranks - 1)]
    return _on_ring("ring-all-gather", "all-gather", ranks, ranks, steps)


def _on_ring(
    name: str, collective: Collective, ranks: int, chunks: int, steps: Sequence[Sequence[Transfer]]
) -> Schedule:
    ring = shift(ranks, 1)
    rounds = tuple(ScheduleRound(ring, tuple(step)) for step in steps)
    return Schedule(name, collective, ranks, chunks, False, rounds)


def ring_on_matchings(ranks: int) -> Schedule:
    """Return the ring all-reduce for one duplex port per rank: even and odd edges in turn, 4 (n - 1) rounds."""
    check_ranks(ranks, "a ring made of two matchings", even=True, minimum=4)
    rounds = []
    for step in _ring_steps(ranks, "scatter") + _ring_steps(ranks, "gather"):
        for parity in (0, 1):
            edges = [edge for edge in step if edge.source % 2 == parity]
            circuits = both_directions((edge.source, edge.target) for edge in edges)
            rounds.append(ScheduleRound(circuits, tuple(edges)))
    return Schedule("ring-matchings", "all-reduce", ranks, ranks, True, tuple(rounds))


def halving_doubling(ranks: int) -> Schedule:
    """Return the all-reduce by recursive halving and doubling: 2 log2 n rounds between ranks i and i XOR 2**k."""
    check_ranks(ranks, "halving-doubling", power_of_two=True)
    distances = [ranks >> k for k in range(1, ranks.bit_length())]
    halving, block = [], {i: range(ranks) for i in range(ranks)}
    for d in distances:
        half = {i: _upper_or_lower_half(block[i], bool(i & d)) for i in range(ranks)}
        # Each rank sends the half that its partner keeps.
        halving.append((d, {i: tuple(half[i ^ d]) for i in range(ranks)}, True))
        block = half
    doubling = [(d, {i: sent[i ^ d] for i in sent}, False) for d, sent, _ in reversed(halving)]
    rounds = (
        ScheduleRound(_xor_circuits(ranks, d), tuple(Transfer(i, i ^ d, chunks, adds) for i, chunks in sent.items()))
        for d, sent, adds in [*halving, *doubling]
    )
    return Schedule("halving-doubling", "all-reduce", ranks, ranks, True, tuple(rounds))


def _upper_or_lower_half(block: range, upper: bool) -> range:
    middle = len(block) // 2
    return block[middle:] if upper else block[:middle]


def _xor_circuits(ranks: int, distance: int) -> Circuits:
    return tuple((i, i ^ distance) for i in range(ranks))


def recursive_doubling(ranks: int) -> Schedule:
    """Return the all-reduce that exchanges whole buffers in log2 n rounds for n ranks."""
    check_ranks(ranks, "recursive doubling", power_of_two=True)
    rounds = (
        ScheduleRound(_xor_circuits(ranks, 1 << k), tuple(Transfer(i, i ^ (1 << k), (0,), True) for i in range(ranks)))
        for k in range(ranks.bit_length() - 1)
    )
    return Schedule("recursive-doubling", "all-reduce", ranks, 1, True, tuple(rounds))


def binomial_broadcast(ranks: int) -> Schedule:
    """Return the broadcast from rank 0 by a binomial tree: each round doubles the number of ranks with the data."""
    check_ranks(ranks, "broadcast")
    rounds = []
    have = 1
    while have < ranks:
        pairs = [(i, i + have) for i in range(min(have, ranks - have))]
        rounds.append(ScheduleRound(both_directions(pairs), tuple(Transfer(a, b, (0,)) for a, b in pairs)))
        have *= 2
    return Schedule("binomial-broadcast", "broadcast", ranks, 1, True, tuple(rounds))


def ring_broadcast(ranks: int, pieces: int = 16) -> Schedule:
    """Return the broadcast from rank 0 along a ring, with the data cut into ``pieces``."""
    check_ranks(ranks, "broadcast")
    if not 1 <= pieces <= MAX_PIECES:
        raise ConfigError(f"a broadcast cannot be split into {pieces} pieces", hint=f"Give 1 to {MAX_PIECES}.")
    steps = [
        [Transfer(i, i + 1, (t - i,)) for i in range(ranks - 1) if 0 <= t - i < pieces]
        for t in range(pieces + ranks - 2)
    ]
    return _on_ring("ring-broadcast", "broadcast", ranks, pieces, steps)


MAX_PIECES = 4096
_MAX_RANKS_FORWARDING = 256
"""Largest number of ranks for the all-to-all over a ring, which forwards 8 million blocks for 256 ranks."""


def all_to_all_direct(ranks: int, *, duplex: bool = True) -> Schedule:
    """Return the all-to-all that sends every block directly (circle method, or shifts on simplex ports)."""
    check_ranks(ranks, "all-to-all")
    circuits = circle(ranks) if duplex else tuple(shift(ranks, by) for by in range(1, ranks))
    rounds = (ScheduleRound(pairs, tuple(Transfer(a, b, (a * ranks + b,)) for a, b in pairs)) for pairs in circuits)
    name = "all-to-all" if duplex else "all-to-all-shifts"
    return Schedule(name, "all-to-all", ranks, ranks**2, duplex, tuple(rounds))


def all_to_all_bruck(ranks: int) -> Schedule:
    """Return the all-to-all of Bruck et al. (1997) on simplex ports: ceil(log2 n) rounds with forwarding."""
    check_ranks(ranks, "Bruck's all-to-all")
    rounds = []
    for k in range((ranks - 1).bit_length()):
        step = 1 << k
        moving: dict[int, list[int]] = {i: [] for i in range(ranks)}
        for origin in range(ranks):
            for far in range(ranks):
                if far & step:
                    moving[(origin + far % step) % ranks].append(origin * ranks + (origin + far) % ranks)
        transfers = tuple(Transfer(i, (i + step) % ranks, tuple(sorted(blocks))) for i, blocks in moving.items())
        rounds.append(ScheduleRound(shift(ranks, step), transfers))
    return Schedule("bruck", "all-to-all", ranks, ranks**2, False, tuple(rounds))


def all_to_all_ring(ranks: int) -> Schedule:
    """Return the all-to-all over a fixed ring of n ranks: n - 1 rounds."""
    check_ranks(ranks, "all-to-all over a ring", maximum=_MAX_RANKS_FORWARDING)
    steps = []
    for t in range(1, ranks):
        # In step t each rank forwards the blocks from t - 1 ranks behind that are not yet delivered.
        step = []
        for i in range(ranks):
            origin = (i - t + 1) % ranks
            blocks = tuple(sorted(origin * ranks + (origin + far) % ranks for far in range(t, ranks)))
            step.append(Transfer(i, (i + 1) % ranks, blocks))
        steps.append(step)
    return _on_ring("all-to-all-ring", "all-to-all", ranks, ranks**2, steps)


MAKERS: Mapping[str, Callable[[int], Schedule]] = {
    "circle": partial(matchings, "circle"),
    "xor": partial(matchings, "xor"),
    "shifts": partial(matchings, "shifts"),
    "ring": ring_all_reduce,
    "ring-matchings": ring_on_matchings,
    "halving-doubling": halving_doubling,
    "recursive-doubling": recursive_doubling,
    "stragglar": stragglar,
    "ring-reduce-scatter": ring_reduce_scatter,
    "ring-all-gather": ring_all_gather,
    "all-to-all": all_to_all_direct,
    "all-to-all-shifts": partial(all_to_all_direct, duplex=False),
    "bruck": all_to_all_bruck,
    "all-to-all-ring": all_to_all_ring,
    "binomial-broadcast": binomial_broadcast,
    "ring-broadcast": ring_broadcast,
}
"""Function that makes a schedule for a number of ranks, by name."""


def make_schedule(name: str, ranks: int, *, progress: Progress = no_progress) -> Schedule:
    """Return a schedule by its name, such as ``ring`` or ``stragglar``.

    Args:
        name: A name of :data:`MAKERS`.
        ranks: Number of ranks.
        progress: As for :func:`~lumion_hw.schedules.straggler.stragglar`; other schedules ignore it.

    Raises:
        UnknownNameError: There is no schedule of this name; the message lists all.
        ConfigError: The schedule cannot have this number of ranks.
    """
    if name not in MAKERS:
        raise UnknownNameError(f"no schedule is called {name!r}", hint=f"Schedules: {', '.join(MAKERS)}.")
    return stragglar(ranks, progress=progress) if name == "stragglar" else MAKERS[name](ranks)
