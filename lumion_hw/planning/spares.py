"""Required numbers of spares, from exact probabilities of simultaneous losses of accelerators (docs/planning.md)."""

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
    """Accelerators that may be out of service together, such as those of a server.

    Attributes:
        unavailable: Fraction of time that the group as a whole is lost, 0 to 1.
        parts: Smaller groups inside this group; each may also be lost alone.
        accelerators: Number of accelerators that belong to no part.
    """

    unavailable: float
    parts: tuple[RiskGroup, ...] = ()
    accelerators: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.unavailable <= 1.0:
            raise ConfigError(f"a fraction of time must be between 0 and 1, found {self.unavailable}")
        if self.accelerators < 0 or not 1 <= self.size <= MAX_ACCELERATORS:
            raise ConfigError(
                f"a risk group cannot have {self.size} accelerators", hint=f"Give 1 to {MAX_ACCELERATORS}."
            )

    @property
    def size(self) -> int:
        """Number of all accelerators in the risk group."""
        return self.accelerators + sum(part.size for part in self.parts)


def unavailable_share(failures_per_day: float, repair_days: float) -> float:
    """Return the fraction of time λD / (1 + λD) that a part is lost, from fault rate λ and repair time D."""
    for name, value in (("failures per day", failures_per_day), ("days to repair", repair_days)):
        if not (math.isfinite(value) and value >= 0.0):
            raise ConfigError(f"{name} must be finite and at least 0, found {value}")
    mean_failures = failures_per_day * repair_days
    return mean_failures / (1.0 + mean_failures)


def rack_of_servers(
    servers: int, per_server: int, accelerator_unavailable: float, server_unavailable: float = 0.0
) -> RiskGroup:
    """Return a rack of equal servers.

    Args:
        servers: Number of servers.
        per_server: Accelerators per server.
        accelerator_unavailable: Fraction of time that an accelerator alone is lost.
        server_unavailable: Fraction of time that a server with all of its accelerators is lost.
    """
    if servers < 1 or per_server < 1 or servers * per_server > MAX_ACCELERATORS:
        raise ConfigError(
            f"a rack cannot have {servers} servers of {per_server} accelerators",
            hint=f"Give 1 to {MAX_ACCELERATORS} accelerators.",
        )
    single_accelerator = RiskGroup(accelerator_unavailable, accelerators=1)
    return RiskGroup(0.0, (RiskGroup(server_unavailable, (single_accelerator,) * per_server),) * servers)


@lru_cache(maxsize=256)
def lost_probability(group: RiskGroup) -> Real:
    """Return the probability that exactly k accelerators are out of service, for k = 0 … size: shape ``(size + 1,)``.

    Parts of a group fail independently.
    """
    of_parts = np.ones(1)
    for part in group.parts:
        of_parts = np.convolve(of_parts, lost_probability(part))
    of_parts = np.append(of_parts, np.zeros(group.accelerators))
    probability: Real = (1.0 - group.unavailable) * of_parts
    probability[-1] += group.unavailable
    probability.setflags(write=False)
    return probability


def spares_needed(
    loss_distribution: Real, service_level: float, rule: SpareRule = "published", *, spare_unavailable: float = 0.0
) -> int:
    """Return the smallest number of spares that suffices at the service level.

    Args:
        loss_distribution: Probability that exactly k accelerators are lost, shape ``(n + 1,)``.
        service_level: Required probability, between 0 and 1.
        rule: ``published`` (Morphlux): smallest K with P(K or more lost) ≤ 1 - service level, one more than needed.
            ``sufficient``: smallest K with P(more than K lost) ≤ 1 - service level.
        spare_unavailable: Fraction of time that a spare itself is lost.

    Raises:
        ConfigError: The service level is not between 0 and 1, or no number of spares reaches this level.
    """
    if not 0.0 < service_level < 1.0:
        raise ConfigError(f"a service level must be between 0 and 1, found {service_level}")
    if not 0.0 <= spare_unavailable < 1.0:
        raise ConfigError(f"the unavailability of spares must be at least 0 and below 1, found {spare_unavailable}")
    losses = loss_distribution
    for spares in range(2 * len(loss_distribution) + 64):
        covered = spares if rule == "sufficient" else spares - 1
        # Sum from the far end, so that small tail values keep their precision.
        if losses[covered + 1 :][::-1].sum() <= 1.0 - service_level:
            return spares
        if spare_unavailable:
            losses = np.convolve(losses, (1.0 - spare_unavailable, spare_unavailable))
    raise ConfigError(
        f"no number of spares reaches a service level of {service_level} when each is lost {spare_unavailable:.0%} "
        "of the time"
    )


@dataclass(frozen=True)
class SparePlan:
    """Spares for a number of equal racks at one service level.

    Attributes:
        service_level: Required probability that no job lacks an accelerator.
        rule: Rule of :func:`spares_needed`.
        one_rack: Spares that one rack needs to reach the level for itself.
        every_rack: Spares that each rack needs so that all racks together reach the level.
        pooled: Spares that all racks need if they can be used in any rack.
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
    """Return the number of spares needed per rack, and in one pool that all racks share.

    Args:
        rack: One rack; racks fail independently.
        racks: Number of racks.
        service_level: Required probability that the spares suffice.
        rule: As for :func:`spares_needed`.
        spare_unavailable: As for :func:`spares_needed`.
    """
    if not 1 <= racks * rack.size <= MAX_ACCELERATORS or racks < 1:
        raise ConfigError(
            f"cannot plan for {racks} racks of {rack.size} accelerators",
            hint=f"Plan for 1 to {MAX_ACCELERATORS} accelerators.",
        )
    loss_probability = lost_probability(rack)
    fleet = lost_probability(RiskGroup(0.0, (rack,) * racks))
    per_rack, per_rack_in_fleet, pooled = (
        spares_needed(probability, level, rule, spare_unavailable=spare_unavailable)
        for probability, level in (
            (loss_probability, service_level),
            (loss_probability, service_level ** (1.0 / racks)),
            (fleet, service_level),
        )
    )
    return SparePlan(racks, service_level, rule, per_rack, per_rack_in_fleet, pooled)
