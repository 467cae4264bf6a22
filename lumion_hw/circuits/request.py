"""What is asked of circuits: who sends to whom, over how many polarizations, and what may be spent on it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

from lumion_hw.errors import ConfigError

Polarizations = Literal["auto", "single", "dual"]
"""Polarizations of a circuit's signal: as the modules have it, one, or two (coherent modules)."""


@dataclass(frozen=True)
class CircuitRequest:
    """One directed circuit wanted.

    Attributes:
        source: Device name of the transmitting module.
        target: Device name of the receiving module.
        polarization: Polarizations of the signal; ``"auto"`` takes what the modules have.
        min_margin_db: Kept above the receiver's sensitivity and below its overload.
        max_loss_db: Largest predicted loss from fibre to fibre over the mesh; ``None`` if it does not matter.
        max_hops: Most PUCs on the way; ``None`` if it does not matter.
        priority: Circuits of higher priority choose their ways first.
        exclusive: No other circuit shares a PUC with it, and light of others at its end stays 30 dB below its own.
        lease_s: How long it is wanted; ``None`` until it is disconnected.
    """

    source: str
    target: str
    polarization: Polarizations = "auto"
    min_margin_db: float = 0.0
    max_loss_db: float | None = None
    max_hops: int | None = None
    priority: int = 0
    exclusive: bool = False
    lease_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse what no bench could make good.

        Raises:
            ConfigError: A value is out of range; the message names the field.
        """
        known = get_args(Polarizations)
        wrong = {
            f"one of {', '.join(known)}": ("polarization", self.polarization, self.polarization in known),
            "0 dB or more, and finite": ("min_margin_db", self.min_margin_db, 0.0 <= self.min_margin_db < 1e3),
            "0 dB or more, and finite, or none": (
                "max_loss_db",
                self.max_loss_db,
                _is_none_or_from(0.0, self.max_loss_db),
            ),
            "a whole number of 1 or more, or none": ("max_hops", self.max_hops, _is_hops(self.max_hops)),
            "more than 0 s, and finite, or none": (
                "lease_s",
                self.lease_s,
                _is_none_or_from(0.0, self.lease_s) and self.lease_s != 0.0,
            ),
        }
        for expected, (name, value, fits) in wrong.items():
            if not fits:
                raise ConfigError(f"circuit {self}: {name} is {value!r}", hint=f"Expected {expected}.")

    def __str__(self) -> str:
        return f"{self.source} to {self.target}"

    def reverse(self) -> CircuitRequest:
        """Return the same wish for the way back: both directions of a link are two circuits."""
        return replace(self, source=self.target, target=self.source)


def _is_none_or_from(lowest: float, value: float | None) -> bool:
    return value is None or lowest <= value < math.inf


def _is_hops(value: int | None) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 1)
