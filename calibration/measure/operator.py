"""Requests to the operator, who moves fibres by hand from port to port."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Fibre = Literal["laser", "meter"]
"""A fibre that is moved by hand: that of the laser or that of the power meter."""


@dataclass(frozen=True)
class PlugRequest:
    """Request to plug a fibre into a port of the mesh. Heaters are at zero and lasers are off.

    Attributes:
        fibre: Fibre to move.
        device: Name of the laser or power meter in the bench file.
        port: Port of the mesh.
        reason: Why a port is requested again, as a sentence; empty at the first request.
    """

    fibre: Fibre
    device: str
    port: int
    reason: str = ""

    def words(self) -> str:
        """Return the request as a phrase, such as ``plug laser tls into port 2``."""
        return f"plug {self.fibre} {self.device} into port {self.port}"


OnPlug = Callable[[PlugRequest], None]
"""Function that returns when the operator has plugged in the fibre."""
