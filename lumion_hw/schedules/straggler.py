"""StragglAR: an all-reduce for the case that one rank is late (arXiv 2505.23523; own constructions).

While one rank is late, the others reduce-scatter. In round t, rank t and the late rank exchange and add chunk t (a part
of the data); all other ranks spread finished chunks in pairs. The minimum is n - 2 + ceil(log2 n) rounds. Powers of two
follow a rule that reaches it. Other even numbers follow a *rotation*: a stored list of pairs, relative to the rank that
meets the late rank, with the age in rounds of the chunk that each sends. Rotations were found with CP-SAT
(benchmarks/schedules.py rotations).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lumion_hw.mesh.routing.request import Progress, no_progress
from lumion_hw.schedules.matchings import heavy_matching
from lumion_hw.schedules.schedule import Schedule, ScheduleRound, Transfer, both_directions, check_ranks

_ROTATED_TRIES, _TRIES = 60, 4
"""Number of random searches for numbers of ranks that are no power of two, with and without a stored rotation."""
_LARGE_RANKS = 200
"""Number of ranks above which only one random search is made."""
_NOISE = 0.3
"""Random part of a transfer's value in the search; the other part is 1 or more."""
_LATE = 2.0
"""Growth of a chunk's value in the search with each round that it still needs to reach all ranks."""
_NO_CHUNK = -1

Rotation = tuple[tuple[int, int, int, int], ...]
"""Rows ``(x, y, age of the chunk that x sends, age of the chunk that y sends)``; ages in rounds.

Positions x and y are relative to the rank that meets the late rank.
"""
_Pairs = list[tuple[int, int]]
_Transfers = dict[tuple[int, int], int]
"""Chunk sent by each ``(sender, receiver)``."""


def min_straggler_rounds(ranks: int) -> int:
    """Return the smallest possible number of rounds of StragglAR, ``n - 2 + ceil(log2 n)`` for n ranks."""
    return ranks - 2 + (ranks - 1).bit_length()


def stragglar(ranks: int, *, seed: int = 0, progress: Progress = no_progress) -> Schedule:
    """Return the rounds of StragglAR after the reduce-scatter; the late rank is the last one.

    Args:
        ranks: Even, 4 or more. Powers of two and all numbers up to 64 reach :func:`min_straggler_rounds`; others may
            need more rounds.
        seed: Random seed of the search.
        progress: Called during the search with ``"rounds"``, the rounds found and their minimum.

    Raises:
        ConfigError: The number of ranks is odd or too small.
    """
    check_ranks(ranks, "StragglAR", even=True, minimum=4)
    if ranks & (ranks - 1) == 0:
        rounds = _rounds_for_power_of_two(ranks)
    else:
        rotation = rotations().get(ranks, ())
        rounds = _search_rounds(ranks, rotation, np.random.default_rng(seed), progress)
        for attempt in range(1, _ROTATED_TRIES if rotation else _TRIES if ranks <= _LARGE_RANKS else 1):
            if len(rounds) == min_straggler_rounds(ranks):
                break
            other = _search_rounds(ranks, rotation, np.random.default_rng((seed, attempt)), progress)
            rounds = min(rounds, other, key=len)
    return Schedule("stragglar", "straggler all-reduce", ranks, ranks - 1, True, tuple(rounds))


@cache
def rotations() -> dict[int, Rotation]:
    """Return the stored rotations (exchange patterns for one round of StragglAR) by number of ranks."""
    stored = json.loads(Path(__file__).with_name("rotations.json").read_text(encoding="utf-8"))
    return {int(ranks): tuple(tuple(row) for row in rows) for ranks, rows in stored["rotations"].items()}


def _round(ranks: int, turn: int, pairs: Iterable[tuple[int, int]], sent: _Transfers) -> ScheduleRound:
    late, transfers = ranks - 1, [Transfer(a, b, (chunk,)) for (a, b), chunk in sorted(sent.items())]
    joined = list(pairs)
    if turn < late:
        joined.append((turn, late))
        transfers += [Transfer(turn, late, (turn,), True), Transfer(late, turn, (turn,), True)]
    return ScheduleRound(both_directions(joined), tuple(transfers))


# -- powers of two ----------------------------------------------------------------------------------------------------


def _rounds_for_power_of_two(ranks: int) -> list[ScheduleRound]:
    log, late = ranks.bit_length() - 1, ranks - 1
    label = [_NO_CHUNK] * ranks
    rounds = []
    for t in range(min_straggler_rounds(ranks)):
        oldest = max(t - log, _NO_CHUNK)
        receivers, donors = _receivers_and_donors(ranks, label, t, oldest)
        pairs: _Pairs = []
        for m in range(1, log):
            # The rank that meets the late one m rounds from now must then have the oldest label.
            if t + m in receivers and t + m < late:
                receivers.remove(t + m)
                donor = (
                    next((rank for rank in donors if label[rank] == t - log + m), None) if t - log + m >= 0 else None
                )
                if donor is not None:
                    donors.remove(donor)
                    pairs.append((donor, t + m))
        pairs += zip(donors, receivers, strict=False)
        sent: _Transfers = {}
        for donor, receiver in pairs:
            sent[donor, receiver] = label[donor]
            if oldest != _NO_CHUNK and donor != late:
                sent[receiver, donor] = oldest
        rounds.append(_round(ranks, t, pairs, sent))
        for donor, receiver in pairs:
            label[receiver] = label[donor]
        if t < late:
            label[t] = label[late] = t
    return rounds


def _receivers_and_donors(ranks: int, label: Sequence[int], t: int, oldest: int) -> tuple[list[int], list[int]]:
    log, late = ranks.bit_length() - 1, ranks - 1
    other_ranks = [rank for rank in range(ranks) if t >= late or rank not in (t, late)]
    receivers = [rank for rank in other_ranks if label[rank] == oldest and rank != late]
    if oldest == _NO_CHUNK:
        # At the start the first ranks wait for their meeting without a chunk.
        receivers = [rank for rank in receivers if rank >= log or rank < t]
    return receivers, [rank for rank in other_ranks if label[rank] > oldest]


# -- other even numbers -----------------------------------------------------------------------------------------------


def _search_rounds(
    ranks: int, rotation: Rotation, random: np.random.Generator, progress: Progress = no_progress
) -> list[ScheduleRound]:
    late = ranks - 1
    is_held = np.zeros((ranks, late), dtype=np.bool_)
    rounds: list[ScheduleRound] = []
    while not is_held.all():
        t = len(rounds)
        progress("rounds", t, max(t, min_straggler_rounds(ranks)))
        if rotation and t < late:
            sent = _transfers_by_rotation(rotation, t, is_held, random)
            pairs = sorted({(min(pair), max(pair)) for pair in sent})
        else:
            pairs, sent = _best_matching(
                is_held, [rank for rank in range(ranks) if t >= late or rank not in (t, late)], random
            )
        rounds.append(_round(ranks, t, pairs, sent))
        for (_, to), chunk in sent.items():
            is_held[to, chunk] = True
        if t < late:
            is_held[[t, late], t] = True
    return rounds


def _transfers_by_rotation(
    rotation: Rotation, t: int, is_held: NDArray[np.bool_], random: np.random.Generator
) -> _Transfers:
    late = is_held.shape[1]
    sent: _Transfers = {}
    for x, y, x_age, y_age in rotation:
        a, b = (x + t) % late, (y + t) % late
        for source, target, age in ((a, b, x_age), (b, a, y_age)):
            useful = np.flatnonzero(is_held[source] & ~is_held[target])
            if t >= age and is_held[source, t - age] and not is_held[target, t - age]:
                sent[source, target] = t - age
            # In the first rounds, and after deviations from the pattern, send the oldest or newest useful chunk.
            elif len(useful):
                sent[source, target] = int(useful[0] if random.random() < 0.5 else useful[-1])
    return sent


def _best_matching(
    is_held: NDArray[np.bool_], free: Sequence[int], random: np.random.Generator
) -> tuple[_Pairs, _Transfers]:
    ranks = len(is_held)
    # The copies of a chunk can at most double in a round, so log2(ranks / copies) rounds are still needed.
    copies = np.maximum(is_held.sum(axis=0), 1)
    weight = 1.0 + _LATE ** np.ceil(np.log2(ranks / copies)) + _NOISE * random.random(is_held.shape[1])
    # Chunks that no rank or every rank has are of no use.
    active = np.flatnonzero(is_held.any(axis=0) & ~is_held.all(axis=0))
    if not len(active):
        return [], {}
    own, weight = is_held[list(free)][:, active], weight[active]
    value = np.where(own[:, None, :] & ~own[None, :, :], weight, 0.0)
    chunk, one_way = value.argmax(axis=2), value.max(axis=2)
    pair_value = one_way + one_way.T
    chance = random.random(pair_value.shape)
    pair_value = np.where(pair_value > 0.0, pair_value + _NOISE * (chance + chance.T), 0.0)
    np.fill_diagonal(pair_value, -1e9)
    pairs, sent = [], {}
    for a, b in heavy_matching(pair_value):
        if pair_value[a, b] > 0.0:
            pairs.append((free[a], free[b]))
            for x, y in ((a, b), (b, a)):
                if one_way[x, y] > 0.0:
                    sent[free[x], free[y]] = int(active[chunk[x, y]])
    return pairs, sent
