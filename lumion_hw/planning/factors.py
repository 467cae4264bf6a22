"""Where published factors hold: policies compared over sizes of jobs and over how many faults take a whole server."""

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
"""How many times more these cost than in-rack spares, as published for slices of at most 32 and faults of chips."""


@dataclass(frozen=True, eq=False)
class FactorMap:
    """Factors over in-rack spares with jobs that move when there are none left.

    Attributes:
        sizes: Accelerators of every job.
        server_shares: Share of the faults that take the whole server.
        factors: By policy: shape ``(sizes, shares)``, its cost over that of in-rack spares.
        counting: What is counted.
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
    """Return the factors for fleets of jobs of one size each.

    Args:
        fleet: Racks and spares.
        per_accelerator_day: Faults per accelerator and day, of all kinds.
        repair_days: Days until a part is replaced.
        sizes: Sizes of jobs.
        server_shares: Shares of the faults that take the whole server.
        counting: One of :data:`lumion_hw.planning.COUNTINGS`.
        states: States of each fleet.
        seed: As of :func:`lumion_hw.planning.simulate`.
        mapper: As of :func:`lumion_hw.planning.simulate`.
    """
    if counting not in COUNTINGS:
        raise ConfigError(f"nothing is counted as {counting!r}", hint=f"Give {', '.join(COUNTINGS)}.")
    factors = {policy: np.empty((len(sizes), len(server_shares))) for policy in PUBLISHED}
    for row, size in enumerate(sizes):
        for column, share in enumerate(server_shares):
            faults = Faults.from_rate(per_accelerator_day, repair_days, share, fleet.per_server)
            mix = JobMix.of({size: 1.0})
            found = simulate(fleet, faults, mix, states=states, seed=seed, mapper=mapper)
            for policy, table in factors.items():
                table[row, column] = found.ratio(policy, "in-rack-spares", counting=counting)
    return FactorMap(tuple(sizes), tuple(server_shares), factors, counting)
