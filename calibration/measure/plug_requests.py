"""Requests to the operator, who moves fibres by hand from port to port."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Fibre = Literal["laser", "meter"]
"""A fibre that is moved by hand: that of the laser or of the power meter."""


@dataclass(frozen=True)
class PlugRequest:
    """Request to connect a fibre to a port of the mesh; heaters are at zero and lasers off.

    Attributes:
        device: Name of the laser or power meter.
        reason: Why a port is requested again, as a sentence; empty at first.
    """

    fibre: Fibre
    device: str
    port: int
    reason: str = ""

    def description(self) -> str:
        """Return the request as text, such as ``plug laser tls into port 2``."""
        return f"plug {self.fibre} {self.device} into port {self.port}"


OnPlug = Callable[[PlugRequest], None]
"""Returns when the operator has connected the fibre."""
