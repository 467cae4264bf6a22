"""Simulated boxes that optimise a polarization themselves, each with its own search, written independently."""

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import DeviceError, LimitError
from tests.polarization.simulated_squeezers import AXES, SPHERE_S3, Light, random_state, turned

N_PLATES = 6


class Box(Light):
    """Six quarter-wave plates between a random state and a random device; subclasses define the step."""

    settle_s = 0.05

    def __init__(self, seed: int, *, noise_db: float = 0.01, crosstalk: float = 0.0) -> None:
        self.rng = np.random.default_rng(seed)
        self.source, self.taken = random_state(self.rng), random_state(self.rng)
        self.base_rad = self.rng.uniform(0.0, np.pi, N_PLATES)
        self.angles_rad = self.base_rad.copy()
        self.noise_db, self.crosstalk = noise_db, crosstalk
        self.power_w, self.reads = 1e-4, 0
        self.running = False
        self.factors: list[float] = []
        self.calls: list[str] = []

    # -- the interface

    def start(self) -> None:
        self.calls.append("start")
        self.base_rad, self.running = self.angles_rad.copy(), True

    def improve(self, factor: float) -> None:
        if not self.running:
            raise DeviceError("not started")
        if not 0.0 < factor <= 100.0:
            raise LimitError("factor", requested=factor, limit=100.0, unit="")
        self.factors.append(factor)
        self.step(factor)

    def stop(self) -> None:
        self.calls.append("stop")
        self.running = False

    def close(self) -> None: ...

    def step(self, factor: float) -> None:
        raise NotImplementedError

    # -- the light

    def behind(self) -> NDArray[np.float64]:
        state = self.source
        for angle in self.angles_rad:
            state = turned(state, turned(AXES[0], SPHERE_S3, 2.0 * float(angle)), np.pi / 2)
        return state


class GradientBox(Box):
    """Turns one plate after the other slightly back and forth, and follows the slope."""

    dither_rad, gain, largest_rad = 0.02, 4e-3, 0.3

    def start(self) -> None:
        super().start()
        self.plate, self.forth = 0, None
        self.waits = True

    def step(self, factor: float) -> None:
        if self.waits:
            self.waits = False
        elif self.forth is None:
            self.forth = factor
        else:
            slope = (self.forth - factor) / (2.0 * self.dither_rad)
            self.base_rad[self.plate] -= np.clip(self.gain * slope, -self.largest_rad, self.largest_rad)
            self.plate, self.forth = (self.plate + 1) % N_PLATES, None
        self.angles_rad = self.base_rad.copy()
        self.angles_rad[self.plate] += self.dither_rad if self.forth is None else -self.dither_rad


class TryingBox(Box):
    """Tries a random turn of all plates and keeps it if the factor is smaller; uses larger turns after a success."""

    def start(self) -> None:
        super().start()
        self.best, self.size_rad = np.inf, 0.3

    def step(self, factor: float) -> None:
        if factor < self.best:
            self.best, self.base_rad = factor, self.angles_rad.copy()
            self.size_rad = min(1.6 * self.size_rad, 0.5)
        else:
            self.size_rad = max(0.85 * self.size_rad, 0.005)
        self.angles_rad = self.base_rad + self.size_rad * self.rng.standard_normal(N_PLATES) / np.sqrt(N_PLATES)
