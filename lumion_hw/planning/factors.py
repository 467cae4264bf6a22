"""Cost of recovery policies by job size and fraction of whole-server faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError
from lumion_hw.planning.faults import Faults
from lumion_hw.planning.jobs import JobMix
from lumion_hw.planning.overprovisioning import COUNTINGS, Fleet, Mapper, simulate

Real = NDArray[np.float64]
PUBLISHED = {"job-migration": 10.0, "server-eviction": 3.0}
"""Published cost relative to in-rack spares, for slices of at most 32 accelerators and faults of single chips."""


@dataclass(frozen=True, eq=False)
class FactorMap:
    """Cost of each recovery policy relative to in-rack spares.

    Attributes:
        sizes: Accelerators of every job.
        server_shares: Fractions of the faults that affect a whole server.
        factors: Cost relative to in-rack spares, by policy, shape ``(sizes, server_shares)``.
        counting: Which accelerators count as cost, from :data:`lumion_hw.planning.COUNTINGS`.
    """

    sizes: tuple[int, ...]
    server_shares: tuple[float, ...]
    factors: dict[str, Real]
    counting: str


def factor_map(
    fleet: Fleet,
    per_accelerator_day: float,
    repair_days: float,
    sizes: Sequence[int],
    server_shares: Sequence[float],
    *,
    counting: str = "needed",
    states: int = 1000,
    seed: int = 0,
    mapper: Mapper = map,
) -> FactorMap:
    """Return the cost of recovery policies relative to in-rack spares, for fleets whose jobs all have one size.

    Args:
        fleet: Racks and spares.
        per_accelerator_day: Faults of all kinds per accelerator and day.
        repair_days: Days until a part is replaced.
        sizes: Job sizes.
        server_shares: Fractions of the faults that affect a whole server.
        counting: One of :data:`lumion_hw.planning.COUNTINGS`.
        states: Number of random states of each fleet.
        seed: As for :func:`lumion_hw.planning.simulate`.
        mapper: As for :func:`lumion_hw.planning.simulate`.
    """
    if counting not in COUNTINGS:
        raise ConfigError(f"unknown counting {counting!r}", hint=f"Give {', '.join(COUNTINGS)}.")
    factors = {policy: np.empty((len(sizes), len(server_shares))) for policy in PUBLISHED}
    for row, size in enumerate(sizes):
        for column, share in enumerate(server_shares):
            faults = Faults.from_rate(per_accelerator_day, repair_days, share, fleet.per_server)
            mix = JobMix.from_weights({size: 1.0})
            result = simulate(fleet, faults, mix, states=states, seed=seed, mapper=mapper)
            for policy, table in factors.items():
                table[row, column] = result.ratio(policy, "in-rack-spares", counting=counting)
    return FactorMap(tuple(sizes), tuple(server_shares), factors, counting)
