"""Faults to apply to a link, and counts of applied faults."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from lumion_hw.errors import ConfigError


class Direction(enum.Enum):
    """Direction in which bytes travel."""

    TO_DEVICE = "to device"
    FROM_DEVICE = "from device"


class FaultKind(enum.Enum):
    """Kinds of faults on a wire."""

    FLIP = "one bit of a byte is inverted"
    DROP = "a byte is lost"
    DUPLICATE = "a byte arrives twice"
    BURST = "neighbouring bytes are replaced by noise"
    DELAY = "a chunk arrives late, and later chunks wait behind it"
    SPLIT = "a chunk arrives in two parts, with a gap"
    SWAP = "a chunk changes places with the next one"
    STALL = "nothing passes for a while; writes wait"
    HALF_CLOSE = "one direction ends, the other continues"
    UNPLUG = "both directions end"


BYTE_KINDS = (FaultKind.FLIP, FaultKind.DROP, FaultKind.DUPLICATE)
"""Faults of single bytes."""
LINE_KINDS = (FaultKind.STALL, FaultKind.HALF_CLOSE, FaultKind.UNPLUG)
"""Faults of the whole link."""


@dataclass(frozen=True)
class FaultRates:
    """Random faults of one direction, with probabilities from 0 to 1. A chunk is the data of one write or read.

    Attributes:
        flip: Probability per byte that one bit is inverted.
        drop: Probability that a byte is lost.
        duplicate: Probability that a byte arrives twice.
        burst: Probability per chunk of a burst of wrong bytes.
        delay: Probability that a chunk is delayed.
        split: Probability that a chunk is split in two.
        swap: Probability that a chunk and the next chunk arrive in reverse order.
        burst_bytes: Length of the longest burst.
        delay_s: Additional delay of a delayed chunk.
        gap_s: Time between the parts of a split chunk.
        max_swap_wait_s: Longest time that a chunk waits for the next chunk, to change places with it.
    """

    flip: float = 0.0
    drop: float = 0.0
    duplicate: float = 0.0
    burst: float = 0.0
    delay: float = 0.0
    split: float = 0.0
    swap: float = 0.0
    burst_bytes: int = 4
    delay_s: float = 0.1
    gap_s: float = 0.0
    max_swap_wait_s: float = 0.05

    def __post_init__(self) -> None:
        per_byte = (self.flip, self.drop, self.duplicate)
        rates = (*per_byte, sum(per_byte), self.burst, self.delay, self.split, self.swap)
        if not all(0.0 <= rate <= 1.0 for rate in rates):
            raise ConfigError(f"{self}: every rate, and the sum of the rates per byte, must be between 0 and 1")
        if self.burst_bytes < 1 or min(self.delay_s, self.gap_s, self.max_swap_wait_s) < 0:
            raise ConfigError(f"{self}: bursts need at least one byte, and times must not be negative")


@dataclass(frozen=True)
class FaultEvent:
    """A fault that happens once.

    Attributes:
        kind: Kind of the fault.
        direction: Direction whose bytes are counted and damaged (``UNPLUG`` affects both directions).
        at_byte: Number of bytes that pass before the fault.
        duration_s: Length of a delay, gap, wait or stall in seconds; for ``UNPLUG``, time in which reconnecting fails.
        n_bytes: Length of a burst, in bytes.
    """

    kind: FaultKind
    direction: Direction
    at_byte: int
    duration_s: float = 0.0
    n_bytes: int = 4

    def __post_init__(self) -> None:
        if self.at_byte < 0 or self.n_bytes < 1 or not self.duration_s >= 0:
            raise ConfigError(f"{self}: bytes and times must not be negative, and a burst needs at least one byte")


@dataclass(frozen=True)
class FaultPlan:
    """Faults to apply to a link.

    Attributes:
        to_device: Random faults of data that the host writes.
        from_device: Random faults of data that the host reads.
        events: Faults that happen once.
    """

    to_device: FaultRates = FaultRates()
    from_device: FaultRates = FaultRates()
    events: tuple[FaultEvent, ...] = ()


@dataclass(frozen=True)
class FaultCounts:
    """Counts of the faults applied to one direction so far.

    At any time ``accepted + duplicated == delivered + dropped + swallowed + waiting``.

    Attributes:
        accepted: Bytes that entered.
        delivered: Bytes that left.
        waiting: Bytes still queued.
        swallowed: Bytes lost to a half-closed, unplugged or closed link.
        flipped: Bytes with one inverted bit.
        dropped: Bytes lost.
        duplicated: Bytes that arrived twice.
        noise: Bytes replaced in bursts.
        bursts: Number of bursts.
        delays: Number of delayed chunks.
        splits: Number of split chunks.
        swaps: Number of pairs of chunks that changed places.
        stalls: Number of stalls.
        half_closes: Number of half closes of this direction.
        unplugs: Number of unplug events triggered by the byte count of this direction.
    """

    accepted: int = 0
    delivered: int = 0
    waiting: int = 0
    swallowed: int = 0
    flipped: int = 0
    dropped: int = 0
    duplicated: int = 0
    noise: int = 0
    bursts: int = 0
    delays: int = 0
    splits: int = 0
    swaps: int = 0
    stalls: int = 0
    half_closes: int = 0
    unplugs: int = 0
