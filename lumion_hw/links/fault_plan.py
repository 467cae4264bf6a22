"""What a fault link is told to do, and how it tells what it did."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from lumion_hw.errors import ConfigError


class Direction(enum.Enum):
    """Which way bytes go."""

    TO_DEVICE = "to device"
    FROM_DEVICE = "from device"


class FaultKind(enum.Enum):
    """What can be done to a wire."""

    FLIP = "one bit of a byte is inverted"
    DROP = "a byte vanishes"
    DUPLICATE = "a byte comes twice"
    BURST = "neighbouring bytes are replaced by noise"
    DELAY = "a piece comes later, and what follows it waits behind it"
    SPLIT = "a piece comes in two, with a gap"
    SWAP = "a piece changes places with the next one"
    STALL = "nothing passes for a while; writes wait"
    HALF_CLOSE = "one direction ends, the other lives on"
    UNPLUG = "both directions end"


BYTE_KINDS = (FaultKind.FLIP, FaultKind.DROP, FaultKind.DUPLICATE)
"""Done to single bytes."""
LINE_KINDS = (FaultKind.STALL, FaultKind.HALF_CLOSE, FaultKind.UNPLUG)
"""Done to the line itself, between two bytes."""


@dataclass(frozen=True)
class FaultRates:
    """How often bytes and pieces of one direction are hit; probabilities 0 … 1.

    Attributes:
        flip: Per byte.
        drop: Per byte.
        duplicate: Per byte.
        burst: Per piece.
        delay: Per piece.
        split: Per piece.
        swap: Per piece.
        burst_bytes: Longest burst.
        delay_s: How much later a delayed piece comes.
        gap_s: Time between the halves of a split piece.
        patience_s: How long a piece waits for the next one to change places with.
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
    patience_s: float = 0.05

    def __post_init__(self) -> None:
        per_byte = (self.flip, self.drop, self.duplicate)
        rates = (*per_byte, sum(per_byte), self.burst, self.delay, self.split, self.swap)
        if not all(0.0 <= rate <= 1.0 for rate in rates):
            raise ConfigError(f"{self}: rates, and the sum of those per byte, are between 0 and 1")
        if self.burst_bytes < 1 or min(self.delay_s, self.gap_s, self.patience_s) < 0:
            raise ConfigError(f"{self}: bursts have at least one byte, times are not negative")


@dataclass(frozen=True)
class FaultEvent:
    """Something that happens once.

    Attributes:
        kind: What happens.
        direction: The direction whose bytes are counted, and that is hit (``UNPLUG`` hits both).
        at_byte: Number of bytes that pass before; faults of bytes and pieces hit the byte after them.
        duration_s: Length of a delay, gap, wait or stall; how long after ``UNPLUG`` the link cannot be opened.
        n_bytes: Length of a burst.
    """

    kind: FaultKind
    direction: Direction
    at_byte: int
    duration_s: float = 0.0
    n_bytes: int = 4

    def __post_init__(self) -> None:
        if self.at_byte < 0 or self.n_bytes < 1 or not self.duration_s >= 0:
            raise ConfigError(f"{self}: bytes and times are not negative, a burst has at least one byte")


@dataclass(frozen=True)
class FaultPlan:
    """What is done to a link.

    Attributes:
        to_device: Rates for what the host writes.
        from_device: Rates for what the host reads.
        events: What happens once.
    """

    to_device: FaultRates = FaultRates()
    from_device: FaultRates = FaultRates()
    events: tuple[FaultEvent, ...] = ()


@dataclass(frozen=True)
class FaultCounts:
    """What was done to one direction so far.

    At any time ``taken + duplicated == given + dropped + swallowed + waiting``.

    Attributes:
        taken: Bytes that came in.
        given: Bytes that went out.
        waiting: Bytes under way.
        swallowed: Bytes lost to a half-closed, unplugged or closed link.
        flipped: Bytes with a wrong bit.
        dropped: Bytes that vanished.
        duplicated: Bytes that came twice.
        noise: Bytes replaced in bursts.
        bursts: Bursts.
        delays: Pieces that came late.
        splits: Pieces that came in two.
        swaps: Pairs of pieces that changed places.
        stalls: Stalls.
        half_closes: Ends of this direction.
        unplugs: Unpluggings counted in this direction's bytes.
    """

    taken: int = 0
    given: int = 0
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
