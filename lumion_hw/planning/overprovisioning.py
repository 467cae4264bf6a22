"""Simulated cost of recovery policies in a fleet of racks: accelerators that are idle or out of service.

A state is the fleet at one random moment: jobs in their racks, and failed accelerators and servers. The result does not
depend on the number of processes.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.cluster import connect_cluster
from lumion_hw.errors import ConfigError
from lumion_hw.planning.faults import Faults
from lumion_hw.planning.jobs import JobMix

WholeNumber = NDArray[np.int64]
Real = NDArray[np.float64]
Mapper = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]

POLICIES = ("job-migration", "server-eviction", "in-rack-spares", "spares-and-racks")
"""Recovery policies.

Job migration moves the whole job. Server eviction replaces the server. With in-rack spares, a spare replaces the
accelerator; if the rack has none, the job moves. Spares-and-racks does the same, but jobs move to reserved racks.
"""

# States at a time, and numbers in a table of states by jobs.
_CHUNK, _MAX_IN_TABLE = 1000, 4_000_000
_LAYOUTS = 16
_SIZES_PER_DRAW = 1024
_MISFITS = 50
_IDLE = -1
MAX_STATES, MAX_FLEET = 1_000_000, 65_536
_MAX_EVENTS = 2e8


@dataclass(frozen=True)
class Fleet:
    """Racks of equal servers, with spares that jobs do not use.

    Attributes:
        racks: Number of racks that run jobs.
        per_rack: Accelerators in a rack, spares included.
        spares_per_rack: Accelerators reserved in each rack.
        spare_racks: Number of reserved racks besides ``racks``.
    """

    racks: int = 64
    per_rack: int = 64
    per_server: int = 4
    spares_per_rack: int = 4
    spare_racks: int = 0

    def __post_init__(self) -> None:
        if min(self.racks, self.per_rack, self.per_server) < 1 or min(self.spares_per_rack, self.spare_racks) < 0:
            raise ConfigError(
                "a fleet needs at least one rack, server and accelerator, and no negative number of spares"
            )
        if self.per_rack % self.per_server:
            raise ConfigError(
                f"{self.per_rack} accelerators per rack are not a multiple of {self.per_server} per server"
            )
        if self.spares_per_rack >= self.per_rack:
            raise ConfigError(f"{self.spares_per_rack} spares of {self.per_rack} accelerators leave none for jobs")
        if self.size > MAX_FLEET:
            raise ConfigError(f"the fleet has {self.size} accelerators", hint=f"Simulate at most {MAX_FLEET}.")

    @property
    def size(self) -> int:
        """Number of accelerators in the racks that run jobs."""
        return self.racks * self.per_rack


@dataclass(frozen=True)
class PolicyCost:
    """Cost of one recovery policy, in accelerators per random state of the fleet.

    Attributes:
        policy: One of :data:`POLICIES`.
        scope: Where reserved accelerators may be used: ``rack`` or ``fleet``.
        stranded: Mean number of healthy accelerators out of service because of faults.
        idle: Mean number of unused spares.
        reserved: Number of accelerators to reserve so that no job lacks any in the required fraction of states.
        whole: Fraction of the states in which the reserved accelerators were sufficient; 1 if none are reserved.
    """

    policy: str
    scope: str
    stranded: float
    stranded_error: float
    idle: float
    reserved: int
    whole: float


@dataclass(frozen=True)
class Overprovisioning:
    """Costs of all recovery policies over the same random states of a fleet.

    Attributes:
        failed: Mean number of failed accelerators that were in use by jobs.
    """

    states: int
    failed: float
    costs: dict[str, PolicyCost] = field(default_factory=dict)

    def ratio(self, policy: str, reference_policy: str, *, counting: str) -> float:
        """Return the cost of one recovery policy relative to another.

        Args:
            policy: Policy in the numerator.
            reference_policy: Policy in the denominator.
            counting: Accelerators that count as cost. ``stranded``: healthy accelerators out of service. ``idle``:
                stranded and unused spares. ``needed``: stranded and failed. ``all``: stranded, unused spares and
                failed.
        """
        cost, reference = (self._count(name, counting) for name in (policy, reference_policy))
        return cost / reference if reference > 0.0 else float("inf") if cost > 0.0 else float("nan")

    def _count(self, policy: str, counting: str) -> float:
        cost = self.costs[policy]
        return cost.stranded + _COUNTINGS[counting][0] * cost.idle + _COUNTINGS[counting][1] * self.failed


_COUNTINGS = {"stranded": (0, 0), "idle": (1, 0), "needed": (0, 1), "all": (1, 1)}
COUNTINGS = tuple(_COUNTINGS)
"""Ways to count a cost, see :meth:`Overprovisioning.ratio`. The published factors do not say which was used."""


def simulate(
    fleet: Fleet,
    faults: Faults,
    mix: JobMix,
    *,
    states: int = 1000,
    seed: int = 0,
    service_level: float = 0.95,
    mapper: Mapper = map,
) -> Overprovisioning:
    """Return the costs of all recovery policies over random states of a fleet.

    Args:
        fleet: Racks and spares.
        faults: Distribution of failures.
        mix: Job sizes; jobs larger than a rack use whole racks.
        states: Number of states.
        seed: Random seed of job layouts and faults; the result does not depend on ``mapper``.
        service_level: Required fraction of states in which the reserve is sufficient, 0 to 1.
        mapper: Function that runs the chunks: ``map``, or the result of :func:`on_cores` or :func:`on_cluster`.

    Raises:
        ConfigError: No job fits the fleet, or numbers are out of range.
    """
    if not 1 <= states <= MAX_STATES:
        raise ConfigError(f"cannot simulate {states} states", hint=f"Give 1 to {MAX_STATES}.")
    if not 0.0 < service_level < 1.0:
        raise ConfigError(f"a service level must be between 0 and 1, found {service_level}")
    if faults.per_rack is not None and faults.per_rack[1] > fleet.per_rack:
        raise ConfigError(f"a rack of {fleet.per_rack} accelerators cannot have {faults.per_rack[1]} failures")
    expected = states * fleet.size * max(faults.accelerator_unavailable, faults.server_unavailable)
    if expected > _MAX_EVENTS:
        raise ConfigError(f"{expected:.1g} faults are too many to draw", hint="Simulate fewer states.")
    layouts = _layouts(fleet, mix, np.random.default_rng((seed, 0)))
    chunk = min(_CHUNK, max(_MAX_IN_TABLE // layouts.size.shape[1], 1))
    counts = [min(chunk, states - first) for first in range(0, states, chunk)]
    work = functools.partial(_chunk, fleet, faults, layouts)
    parts = list(mapper(work, [(seed, i + 1, count) for i, count in enumerate(counts)]))
    values = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return _summarise(fleet, values, states, service_level)


def on_cores(workers: int | None = None) -> Mapper:
    """Return a ``map`` function that runs a simulation in several processes, by default on all cores."""

    def run_map(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        listed = list(items)
        count = min(workers or os.cpu_count() or 1, len(listed))
        if count <= 1:
            yield from map(function, listed)
            return
        with ProcessPoolExecutor(count) as pool:
            yield from pool.map(function, listed)

    return run_map


def on_cluster(scheduler: str) -> Mapper:
    """Return a ``map`` function that uses a dask cluster at ``HOST:PORT`` (optional dependency ``cluster``).

    Raises:
        ConfigError: dask.distributed is not installed.
        ConnectError: No dask scheduler answers at the address.
    """
    client = connect_cluster(scheduler)

    def run_map(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterable[Any]:
        try:
            gathered: list[Any] = client.gather(client.map(function, list(items), pure=False))
        finally:
            client.close()
        return gathered

    return run_map


@dataclass(frozen=True, eq=False)
class _Layouts:
    """Random layouts of jobs in racks.

    Attributes:
        job: Shape ``(layouts, accelerators)``; job of each accelerator.
        size: Shape ``(layouts, jobs)``; accelerators of each job, 0 for none.
    """

    job: WholeNumber
    size: WholeNumber


def _layouts(fleet: Fleet, mix: JobMix, rng: np.random.Generator) -> _Layouts:
    filled = [_fill_racks(fleet, mix, rng) for _ in range(_LAYOUTS)]
    max_size = max(len(sizes) for _, sizes in filled)
    size = np.zeros((_LAYOUTS, max_size), dtype=np.int64)
    for i, (_, sizes) in enumerate(filled):
        size[i, : len(sizes)] = sizes
    if not max_size:
        raise ConfigError(f"no job of the mix fits into {fleet.racks} racks; sizes: {', '.join(map(str, mix.sizes))}")
    return _Layouts(np.array([job for job, _ in filled]), size)


def _fill_racks(fleet: Fleet, mix: JobMix, rng: np.random.Generator) -> tuple[WholeNumber, list[int]]:
    job = np.full((fleet.racks, fleet.per_rack), _IDLE, dtype=np.int64)
    room = np.full(fleet.racks, fleet.per_rack - fleet.spares_per_rack)
    max_size, sizes, misfits = int(room[0]), list[int](), 0
    next_sizes: Iterator[int] = iter(())
    while misfits < _MISFITS and room.any():
        size = next(next_sizes, None)
        if size is None:
            next_sizes = iter(mix.draw(rng, _SIZES_PER_DRAW).tolist())
            continue
        racks, remainder = divmod(size, max_size)
        empty_racks = np.flatnonzero(room == max_size)
        free = room.copy()
        free[empty_racks[len(empty_racks) - racks :] if racks else []] = 0
        # The last part of a job over several racks shares a rack.
        fullest = int(np.argmin(np.where(free >= remainder, free, max_size + 1)))
        if racks > len(empty_racks) or free[fullest] < remainder:
            misfits += 1
            continue
        misfits = 0
        for rack in empty_racks[len(empty_racks) - racks :] if racks else ():
            job[rack, fleet.spares_per_rack :] = len(sizes)
        if remainder:
            first = fleet.per_rack - free[fullest]
            job[fullest, first : first + remainder] = len(sizes)
            free[fullest] -= remainder
        room = free
        sizes.append(size)
    return job.ravel(), sizes


def _chunk(fleet: Fleet, faults: Faults, layouts: _Layouts, order: tuple[int, int, int]) -> dict[str, Real]:
    seed, number, count = order
    rng = np.random.default_rng((seed, number))
    layout = rng.integers(len(layouts.job), size=count)
    if faults.per_rack is None:
        single_failures = _draw_failures(rng, faults.accelerator_unavailable, count * fleet.size)
    else:
        single_failures = _draw_failures_per_rack(rng, fleet, faults.per_rack, count)
    servers = _draw_failures(rng, faults.server_unavailable, count * fleet.size // fleet.per_server)
    of_servers = (servers[:, None] * fleet.per_server + np.arange(fleet.per_server)).ravel()
    failed = np.union1d(single_failures, of_servers) if len(of_servers) else single_failures
    state, accelerator = np.divmod(failed, fleet.size)
    job = layouts.job[layout[state], accelerator]
    racks = count * fleet.racks
    spare = accelerator % fleet.per_rack < fleet.spares_per_rack
    free_spares = fleet.spares_per_rack - np.bincount(failed[spare] // fleet.per_rack, minlength=racks)
    # A failure of an accelerator without a job costs nothing.
    hit = job != _IDLE
    state, job = state[hit], job[hit]
    rack, server = failed[hit] // fleet.per_rack, failed[hit] // fleet.per_server
    # Counts use tables of states by jobs, because sorting failures would take most of the time.
    sizes = layouts.size[layout]
    max_size = sizes.shape[1]
    failed_in_job = np.bincount(state * max_size + job, minlength=count * max_size).reshape(count, max_size)
    uncovered = _uncovered(rack, sizes[state, job], job, free_spares)
    moving = np.zeros((count, max_size), dtype=np.bool_)
    moving[state[uncovered], job[uncovered]] = True
    lost_in_job = failed_in_job.sum(axis=1)
    # A job that moves away leaves all its failures behind, and its spares are free again.
    behind = (failed_in_job * moving).sum(axis=1)
    in_rack = np.bincount(rack, minlength=racks).reshape(count, -1)
    first_of_server = server[np.flatnonzero(np.diff(server, prepend=-1))]
    evicted = np.bincount(first_of_server * fleet.per_server // fleet.size, minlength=count)
    samples = {
        "failed": lost_in_job,
        "moved": (sizes * (failed_in_job > 0)).sum(axis=1),
        "evicted": fleet.per_server * evicted,
        "moving": (sizes * moving).sum(axis=1),
        "behind": behind,
        "idle": np.clip(free_spares, 0, None).reshape(count, -1).sum(axis=1) - (lost_in_job - behind),
        "worst_rack": in_rack.max(axis=1),
    }
    return {name: values.astype(np.float64) for name, values in samples.items()}


def _uncovered(rack: WholeNumber, size: WholeNumber, job: WholeNumber, free_spares: WholeNumber) -> WholeNumber:
    short = np.flatnonzero((np.bincount(rack, minlength=len(free_spares)) > free_spares)[rack])
    order = short[np.lexsort((job[short], -size[short], rack[short]))]
    first = np.searchsorted(rack[order], rack[order])
    late: WholeNumber = order[np.arange(len(order)) - first >= free_spares[rack[order]]]
    return late


def _draw_failures(rng: np.random.Generator, share: float, count: int) -> WholeNumber:
    if share <= 0.0:
        return np.empty(0, dtype=np.int64)
    if share >= 1.0:
        return np.arange(count)
    # Draw distances between failures, a thousandth of the work of one number per accelerator.
    draws: list[WholeNumber] = []
    last = -1
    while last < count:
        draw = last + np.cumsum(rng.geometric(share, size=int(count * share * 1.1) + 64))
        draws.append(draw)
        last = int(draw[-1])
    every = np.concatenate(draws)
    return every[every < count]


def _draw_failures_per_rack(
    rng: np.random.Generator, fleet: Fleet, between: tuple[int, int], count: int
) -> WholeNumber:
    """Draw a uniform random number of failed accelerators in each rack (Floyd's algorithm)."""
    racks, maximum = count * fleet.racks, between[1]
    counts = rng.integers(between[0], maximum, size=racks, endpoint=True)
    chosen = np.full((racks, maximum), -1, dtype=np.int64)
    for pick in range(maximum):
        last = fleet.per_rack - counts + pick  # the place that this pick adds to the choice
        pick_of_rack = (rng.random(racks) * (last + 1)).astype(np.int64)
        is_repeated = (chosen[:, :pick] == pick_of_rack[:, None]).any(axis=1)
        chosen[:, pick] = np.where(pick < counts, np.where(is_repeated, last, pick_of_rack), -1)
    chosen.sort(axis=1)
    rack, column = np.nonzero(chosen >= 0)
    failed: WholeNumber = rack * fleet.per_rack + chosen[rack, column]
    return failed


def _summarise(fleet: Fleet, samples: dict[str, Real], states: int, service_level: float) -> Overprovisioning:
    failed, moving = samples["failed"], samples["moving"]
    spares, spare_racks = fleet.racks * fleet.spares_per_rack, fleet.spare_racks * fleet.per_rack

    def at_level(needed: Real) -> int:
        return int(np.quantile(needed, service_level, method="higher"))

    def cost(
        policy: str, scope: str, stranded: Real, idle: Real, reserved: int, is_whole_rack: NDArray[np.bool_] | None
    ) -> PolicyCost:
        error = float(stranded.std(ddof=1) / np.sqrt(states)) if states > 1 else 0.0
        share = 1.0 if is_whole_rack is None else float(is_whole_rack.mean())
        return PolicyCost(policy, scope, float(stranded.mean()), error, float(idle.mean()), reserved, share)

    zeros = np.zeros(states)
    pool = fleet.per_rack * -(-moving // fleet.per_rack)
    waiting = np.clip(spare_racks - moving, 0.0, None)
    remaining = moving - samples["behind"]
    costs = (
        cost("job-migration", "fleet", samples["moved"] - failed, zeros, at_level(samples["moved"]), None),
        cost("server-eviction", "fleet", samples["evicted"] - failed, zeros, at_level(samples["evicted"]), None),
        cost(
            "in-rack-spares",
            "rack",
            remaining,
            samples["idle"],
            fleet.racks * at_level(samples["worst_rack"]),
            moving == 0.0,
        ),
        cost(
            "spares-and-racks",
            "rack, then fleet",
            remaining,
            samples["idle"] + waiting,
            spares + at_level(pool),
            moving <= spare_racks,
        ),
    )
    return Overprovisioning(states, float(failed.mean()), {cost.policy: cost for cost in costs})
