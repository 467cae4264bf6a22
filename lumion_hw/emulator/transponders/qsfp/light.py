"""Light that the lanes of one emulated module send and receive."""

from __future__ import annotations

from typing import Protocol


class ModuleLight(Protocol):
    """Connects the lanes 1 to 4 of a module to the optical model of a bench."""

    def emit(self, lane: int, power_w: float) -> None:
        """Receive the mean launched power of a lane in W, at every change and once from the module's constructor."""

    def received_w(self, lane: int) -> float:
        """Return the mean optical power at the receiver of a lane in W."""
