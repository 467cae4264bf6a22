"""How many spares: exact probabilities of how many accelerators are lost at once (docs/planning.md).

Accelerators that fail together are a risk group; groups may stand in groups: accelerators in servers, servers in racks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError

Real = NDArray[np.float64]
SpareRule = Literal["published", "sufficient"]
MAX_ACCELERATORS = 65_536


@dataclass(frozen=True)
class RiskGroup:
    """Accelerators that are lost together while the group is.

    Attributes:
        unavailable: Share of the time that the group as a whole is lost, 0 to 1.
        parts: Groups inside, lost with it or each alone.
        accelerators: Accelerators that are in no part.
    """

    unavailable: float
    parts: tuple[RiskGroup, ...] = ()
    accelerators: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.unavailable <= 1.0:
            raise ConfigError(f"a share of the time is between 0 and 1, found {self.unavailable}")
        if self.accelerators < 0 or not 1 <= self.size <= MAX_ACCELERATORS:
            raise ConfigError(f"a risk group of {self.size} accelerators", hint=f"Give 1 to {MAX_ACCELERATORS}.")

    @property
    def size(self) -> int:
        """All accelerators in it."""
        return self.accelerators + sum(part.size for part in self.parts)


def unavailable_share(failures_per_day: float, repair_days: float) -> float:
    """Return the long-run share of the time that is lost, λD / (1 + λD).

    Args:
        failures_per_day: λ, failures per day in service.
        repair_days: D, days until somebody has replaced the part.
    """
    for name, value in (("failures per day", failures_per_day), ("days to repair", repair_days)):
        if not (math.isfinite(value) and value >= 0.0):
            raise ConfigError(f"{name} are zero or more and finite, found {value}")
    lost = failures_per_day * repair_days
    return lost / (1.0 + lost)


def rack_of_servers(
    servers: int, per_server: int, accelerator_unavailable: float, server_unavailable: float = 0.0
) -> RiskGroup:
    """Return a rack of equal servers, each with accelerators that are also lost one by one.

    Args:
        servers: Servers in the rack.
        per_server: Accelerators of each.
        accelerator_unavailable: Share of the time one accelerator alone is lost.
        server_unavailable: Share of the time a server is lost with all of its accelerators.
    """
    if servers < 1 or per_server < 1 or servers * per_server > MAX_ACCELERATORS:
        raise ConfigError(f"{servers} servers of {per_server} accelerators", hint=f"Give 1 to {MAX_ACCELERATORS}.")
    alone = RiskGroup(accelerator_unavailable, accelerators=1)
    return RiskGroup(0.0, (RiskGroup(server_unavailable, (alone,) * per_server),) * servers)


@lru_cache(maxsize=256)
def lost_probability(group: RiskGroup) -> Real:
    """Return the probability that exactly k accelerators are lost, for k = 0 … size: shape ``(size + 1,)``.

    The recursion of independent units, ``dp[i][k] = dp[i-1][k-1]·p + dp[i-1][k]·(1 - p)``, over the parts of the group.
    """
    inside = np.ones(1)
    for part in group.parts:
        inside = np.convolve(inside, lost_probability(part))
    inside = np.append(inside, np.zeros(group.accelerators))
    probability: Real = (1.0 - group.unavailable) * inside
    probability[-1] += group.unavailable
    probability.setflags(write=False)
    return probability


def spares_needed(
    lost: Real, service_level: float, rule: SpareRule = "published", *, spare_unavailable: float = 0.0
) -> int:
    """Return the least number of spares that keeps every job whole with a probability of the service level.

    Args:
        lost: Shape ``(n + 1,)``; probability that exactly k are lost, of accelerators or of other units.
        service_level: Between 0 and 1.
        rule: ``published`` (Morphlux): the smallest K with P(K or more lost) ≤ 1 - level, one more than needed.
            ``sufficient``: P(more than K lost) ≤ 1 - level.
        spare_unavailable: Share of the time a spare itself is lost; those lost have to be covered as well.

    Raises:
        ConfigError: The level is not between 0 and 1, or no number of spares reaches it.
    """
    if not 0.0 < service_level < 1.0:
        raise ConfigError(f"a service level is between 0 and 1, found {service_level}")
    if not 0.0 <= spare_unavailable < 1.0:
        raise ConfigError(f"spares are lost for a share of the time below 1, found {spare_unavailable}")
    both = lost
    for spares in range(2 * len(lost) + 64):
        covered = spares if rule == "sufficient" else spares - 1
        # Sums of small numbers from the far end: the tail counts to the last digit.
        if both[covered + 1 :][::-1].sum() <= 1.0 - service_level:
            return spares
        if spare_unavailable:
            both = np.convolve(both, (1.0 - spare_unavailable, spare_unavailable))
    raise ConfigError(
        f"no number of spares reaches a service level of {service_level} when each is lost {spare_unavailable:.0%} "
        "of the time"
    )


@dataclass(frozen=True)
class SparePlan:
    """Spares for a number of equal racks at one service level.

    Attributes:
        racks: Number of racks.
        service_level: Probability wanted that no job is short of an accelerator.
        rule: Which rule counted.
        one_rack: Spares in one rack, for that rack alone to reach the level.
        every_rack: Spares in each rack, for all racks at once to reach it.
        pooled: Spares in one pool that any rack can use.
    """

    racks: int
    service_level: float
    rule: SpareRule
    one_rack: int
    every_rack: int
    pooled: int


def plan_spares(
    rack: RiskGroup,
    racks: int,
    service_level: float,
    rule: SpareRule = "published",
    *,
    spare_unavailable: float = 0.0,
) -> SparePlan:
    """Return spares per rack and in a pool.

    Args:
        rack: One rack; racks fail independently.
        racks: Number of racks.
        service_level: Probability wanted, for one rack and for all of them.
        rule: As of :func:`spares_needed`.
        spare_unavailable: As of :func:`spares_needed`.
    """
    if not 1 <= racks * rack.size <= MAX_ACCELERATORS or racks < 1:
        raise ConfigError(f"{racks} racks of {rack.size}", hint=f"Plan for 1 to {MAX_ACCELERATORS} accelerators.")
    lost = lost_probability(rack)
    fleet = lost_probability(RiskGroup(0.0, (rack,) * racks))
    one, every, pooled = (
        spares_needed(probability, level, rule, spare_unavailable=spare_unavailable)
        for probability, level in (
            (lost, service_level),
            (lost, service_level ** (1.0 / racks)),
            (fleet, service_level),
        )
    )
    return SparePlan(racks, service_level, rule, one, every, pooled)
