"""Verification of schedules by executing them with integers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError, LimitError
from lumion_hw.schedules.schedule import Schedule

_LARGEST = 2**48
"""Largest random integer; sums over 1,024 ranks stay below 2**63."""
_MAX_NUMBERS = 2**24
"""Largest number of ranks times chunks; three arrays of this size fit into half a gigabyte."""
_Array = NDArray[np.int64]
_Mask = NDArray[np.bool_]


def verify(schedule: Schedule, *, seed: int = 0) -> None:
    """Execute a schedule with random integers and check the final content of every rank.

    Args:
        schedule: The schedule; a schedule of ``matchings`` must connect every pair of ranks exactly once.
        seed: Random seed of the integers.

    Raises:
        ConfigError: The schedule does not do what its collective requires; the message names round, rank and chunk.
        LimitError: The schedule has too many ranks and chunks to be executed.
    """
    if schedule.collective == "matchings":
        _check_pairs(schedule)
        return
    if (numbers := schedule.ranks * schedule.chunks) > _MAX_NUMBERS:
        raise LimitError(
            f"{schedule.name} cannot be executed, because all ranks together have too many chunks",
            requested=numbers,
            limit=_MAX_NUMBERS,
            unit="chunks",
        )
    # With large random numbers, a missing or repeated summand almost certainly changes the sum.
    own = np.random.default_rng(seed).integers(1, _LARGEST, (schedule.ranks, schedule.chunks), dtype=np.int64)
    is_held, value = _initial_state(schedule, own)
    for number, round_ in enumerate(schedule.rounds):
        if round_.transfers:
            _execute(schedule, number, is_held, value)
    _check_end(schedule, own, is_held, value)


def _initial_state(schedule: Schedule, own: _Array) -> tuple[_Mask, _Array]:
    ranks, chunks = own.shape
    is_held = np.ones(own.shape, dtype=np.bool_)
    value = own.copy()
    rank = np.arange(ranks)
    if schedule.collective == "straggler all-reduce":
        # The other ranks have finished their reduce-scatter while the last one was late.
        is_held[:-1] = np.eye(ranks - 1, chunks, dtype=np.bool_)
        value[:-1] = own[:-1].sum(axis=0)
    elif schedule.collective == "all-gather":
        is_held = rank[:, None] == np.arange(chunks)[None, :]
    elif schedule.collective == "broadcast":
        is_held[1:] = False
    elif schedule.collective == "all-to-all":
        # Chunk source · ranks + target goes from source to target.
        is_held = rank[:, None] == (np.arange(chunks) // ranks)[None, :]
    return is_held, np.where(is_held, value, 0)


def _execute(schedule: Schedule, number: int, is_held: _Mask, value: _Array) -> None:
    transfers = schedule.rounds[number].transfers
    sizes = [len(transfer.chunks) for transfer in transfers]
    source, target, adds = (
        np.repeat(np.array(column), sizes)
        for column in zip(*((transfer.source, transfer.target, transfer.adds) for transfer in transfers), strict=True)
    )
    chunk = np.fromiter((chunk for transfer in transfers for chunk in transfer.chunks), np.int64, sum(sizes))
    where = f"{schedule.name}, round {number}"
    if len(missing := np.flatnonzero(~is_held[source, chunk])):
        rank, which = source[missing[0]], chunk[missing[0]]
        raise ConfigError(f"{where}: rank {rank} sends chunk {which}, which it does not hold")
    if len(missing := np.flatnonzero(adds & ~is_held[target, chunk])):
        rank, which = target[missing[0]], chunk[missing[0]]
        raise ConfigError(f"{where}: rank {rank} adds to chunk {which}, which it does not hold")
    # One assignment for all transfers: every rank sends the values that it held before the round.
    value[target, chunk] = value[source, chunk] + np.where(adds, value[target, chunk], 0)
    is_held[target, chunk] = True


def _check_end(schedule: Schedule, own: _Array, is_held: _Mask, value: _Array) -> None:
    ranks, chunks = own.shape
    if schedule.collective in ("all-reduce", "straggler all-reduce"):
        expected, needed = np.broadcast_to(own.sum(axis=0), own.shape), np.ones(own.shape, dtype=np.bool_)
    elif schedule.collective == "reduce-scatter":
        _check_reduce_scatter(schedule, is_held & (value == own.sum(axis=0)))
        return
    elif schedule.collective == "all-to-all":
        block = np.arange(chunks)
        expected = np.broadcast_to(own[block // ranks, block], own.shape)
        needed = np.arange(ranks)[:, None] == (block % ranks)[None, :]
    else:
        origin = np.zeros(chunks, dtype=np.int64) if schedule.collective == "broadcast" else np.arange(chunks)
        expected = np.broadcast_to(own[origin, np.arange(chunks)], own.shape)
        needed = np.ones(own.shape, dtype=np.bool_)
    errors = np.argwhere(needed & ~(is_held & (value == expected)))
    if len(errors):
        rank, chunk = errors[0].tolist()
        problem = "a wrong value of" if is_held[rank, chunk] else "no"
        raise ConfigError(
            f"{schedule.name}: rank {rank} ends with {problem} chunk {chunk} ({len(errors)} such errors in total)"
        )


def _check_reduce_scatter(schedule: Schedule, summed: _Mask) -> None:
    for axis, text in ((0, "chunk {} is not summed on any rank"), (1, "rank {} has no summed chunk")):
        missing = np.flatnonzero(~summed.any(axis=axis))
        if len(missing):
            raise ConfigError(f"{schedule.name}: {text.format(missing[0])} at the end")


def _check_pairs(schedule: Schedule) -> None:
    connected: set[tuple[int, int]] = set()
    for number, round_ in enumerate(schedule.rounds):
        if repeated := connected.intersection(round_.circuits):
            a, b = min(repeated)
            raise ConfigError(f"{schedule.name}, round {number}: ranks {a} and {b} are connected a second time")
        connected |= set(round_.circuits)
    missing = schedule.ranks * (schedule.ranks - 1) - len(connected)
    if missing:
        raise ConfigError(f"{schedule.name}: {missing} directed pairs of ranks are never connected")
