"""What changes about an emulated bench while it is used: temperature, light, resistances. Nothing does unless told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

COMMON_PHASE_RAD_PER_K = 0.6
"""Phase that a common temperature adds to both arms of every PUC: 2π·L·(dn/dT)/λ with silicon's dn/dT = 1.86e-4 /K over
L = 811 µm, the length of a PUC (D. Sánchez-Jácome, PhD thesis, UPV 2025), at 1.55 µm."""

Trajectory = Callable[[float], float]
"""A quantity against the time of the bench's clock in s."""


@dataclass
class Disturbances:
    """Drift trajectories.

    Attributes:
        temperature_k: Temperature of the chip over that of its lock; ``None`` if it is held.
        power_db: By port, power of the light that arrives there over what it was.
        resistance_per_root_s: Relative random walk of the resistance of every heater.
    """

    temperature_k: Trajectory | None = None
    power_db: dict[int, Trajectory] = field(default_factory=dict)
    resistance_per_root_s: float = 0.0

    def common_phase_rad(self, now_s: float) -> float:
        """Return the phase on both arms of every PUC at a time."""
        return 0.0 if self.temperature_k is None else COMMON_PHASE_RAD_PER_K * self.temperature_k(now_s)

    def power(self, port: int, now_s: float) -> float:
        """Return the power of the light that arrives at a port over what it was."""
        trajectory = self.power_db.get(port)
        return 1.0 if trajectory is None else float(10.0 ** (trajectory(now_s) / 10.0))
