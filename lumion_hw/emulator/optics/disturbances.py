"""Disturbances of an emulated bench: drifts of temperature, power and resistance. All are off by default."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

COMMON_PHASE_RAD_PER_K = 0.6
"""Phase that the chip's temperature adds to both arms of every PUC, in rad/K.

It is 2π·L·(dn/dT)/λ, with dn/dT = 1.86e-4 /K of silicon, the length of a PUC L = 811 µm (D. Sánchez-Jácome, PhD thesis,
UPV 2025) and λ = 1.55 µm.
"""

Trajectory = Callable[[float], float]
"""A quantity as a function of the clock's time in s."""


@dataclass
class Disturbances:
    """Disturbances of a bench as functions of time.

    Attributes:
        temperature_k: Temperature of the chip above its set point, in K; ``None`` if it is constant.
        power_db: Change in dB of the power that arrives at each port.
        resistance_per_root_s: Random walk of every heater's resistance: relative change per root second.
    """

    temperature_k: Trajectory | None = None
    power_db: dict[int, Trajectory] = field(default_factory=dict)
    resistance_per_root_s: float = 0.0

    def common_phase_rad(self, now_s: float) -> float:
        """Return the phase in rad that the chip's temperature adds to both arms of every PUC."""
        return 0.0 if self.temperature_k is None else COMMON_PHASE_RAD_PER_K * self.temperature_k(now_s)

    def power(self, port: int, now_s: float) -> float:
        """Return the power that arrives at a port divided by the undisturbed power."""
        trajectory = self.power_db.get(port)
        return 1.0 if trajectory is None else float(10.0 ** (trajectory(now_s) / 10.0))
