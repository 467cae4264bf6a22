"""Requests for circuits: sender, receiver, number of polarizations, and limits."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

from lumion_hw.bench.file.module_optics import ModuleOptics
from lumion_hw.errors import ConfigError

Polarizations = Literal["auto", "single", "dual"]
"""Number of polarizations of a circuit's signal; ``"auto"`` uses that of the modules."""


@dataclass(frozen=True)
class CircuitRequest:
    """Request for one directed circuit.

    Attributes:
        source: Device name of the transmitting module.
        target: Device name of the receiving module.
        polarization: Number of polarizations of the signal; ``"auto"`` uses that of the modules.
        min_margin_db: Margin kept above the receiver's sensitivity and below its overload level.
        max_loss_db: Largest predicted loss of the mesh from fibre to fibre; ``None`` without a limit.
        max_hops: Largest number of PUCs on the path; ``None`` without a limit.
        priority: Circuits of higher priority choose their paths first.
        exclusive: If true, no other circuit may share a PUC with this circuit, and other light at its end must stay 30
            dB below its own.
        lease_s: Duration after which the circuit is disconnected; ``None`` without a limit.
        signal: Optical data of the module on another bench whose light enters at ``source``, a port with a fibre to
            that bench, with the power there as ``launch_dbm``; ``None`` if ``source`` is a module.
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
    signal: ModuleOptics | None = None

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ConfigError: A value is out of range; the message names the field.
        """
        allowed = get_args(Polarizations)
        checks = {
            f"one of {', '.join(allowed)}": ("polarization", self.polarization, self.polarization in allowed),
            "0 dB or more, and finite": ("min_margin_db", self.min_margin_db, 0.0 <= self.min_margin_db < 1e3),
            "0 dB or more, and finite, or none": (
                "max_loss_db",
                self.max_loss_db,
                _is_none_or_finite(0.0, self.max_loss_db),
            ),
            "a whole number of 1 or more, or none": ("max_hops", self.max_hops, _is_hops(self.max_hops)),
            "more than 0 s, and finite, or none": (
                "lease_s",
                self.lease_s,
                _is_none_or_finite(0.0, self.lease_s) and self.lease_s != 0.0,
            ),
        }
        for expected, (name, value, fits) in checks.items():
            if not fits:
                raise ConfigError(f"circuit {self}: {name} is {value!r}", hint=f"Expected {expected}.")

    @property
    def name(self) -> str:
        """Name of the circuit, such as ``sfp-a:sfp-b``."""
        return f"{self.source}:{self.target}"

    def __str__(self) -> str:
        return f"{self.source} to {self.target}"

    def reverse(self) -> CircuitRequest:
        """Return the request for the opposite direction of the link."""
        return replace(self, source=self.target, target=self.source, signal=None)


def _is_none_or_finite(minimum: float, value: float | None) -> bool:
    return value is None or minimum <= value < math.inf


def _is_hops(value: int | None) -> bool:
    # In Python a Boolean is an integer too.
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 1)
