"""Simulated polarization controllers: squeezers and paddles between random states, independent of the search."""

import math

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import LimitError
from lumion_hw.interfaces import ActuatorInfo

AXES = (np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0]))
"""Squeezers at 0° and 45°."""
SPHERE_S3 = np.array([0.0, 0.0, 1.0])


def turned(stokes: NDArray[np.float64], axis: NDArray[np.float64], angle: float) -> NDArray[np.float64]:
    """Rodrigues' rotation of a Stokes vector, which is the effect of a retarder."""
    # Written out, because this is called most often and np.cross took half of a tracking test.
    (x, y, z), (u, v, w), c, s = stokes.tolist(), axis.tolist(), math.cos(angle), math.sin(angle)
    along = (u * x + v * y + w * z) * (1.0 - c)
    return np.array(
        [
            x * c + (v * z - w * y) * s + u * along,
            y * c + (w * x - u * z) * s + v * along,
            z * c + (u * y - v * x) * s + w * along,
        ]
    )


def random_state(rng: np.random.Generator) -> NDArray[np.float64]:
    state = rng.standard_normal(3)
    return np.asarray(state / np.linalg.norm(state))


class Light:
    """Light in a state, a device that accepts another state, and readings of its light with noise and crosstalk."""

    source: NDArray[np.float64]
    taken: NDArray[np.float64]
    rng: np.random.Generator
    noise_db: float
    crosstalk: float
    power_w: float
    reads: int

    def behind(self) -> NDArray[np.float64]:
        raise NotImplementedError

    @property
    def pure(self) -> float:
        """Share of the light in the accepted state, (1 + s·t)/2."""
        return float((1.0 + self.behind() @ self.taken) / 2.0)

    @property
    def loss_db(self) -> float:
        return -10.0 * np.log10(max(self.pure, 1e-12))

    @property
    def power(self) -> float:
        return float(self.power_w * ((1.0 - 2.0 * self.crosstalk) * self.pure + self.crosstalk))

    def reading_w(self) -> float:
        self.reads += 1
        return self.power * float(10.0 ** (self.noise_db * self.rng.standard_normal() / 10.0))


class LightPath(Light):
    """Base of all controllers: actuators with limits, noisy readings in watts, and the share of accepted light."""

    settle_s = 1e-3
    kind = "drive voltage"

    def __init__(self, seed: int, limits: list[tuple[float, float]], period: float | None, noise_db: float) -> None:
        self.rng = np.random.default_rng(seed)
        unit = "°" if self.kind == "angle" else "mV"
        step = 0.12 if self.kind == "angle" else 1.0
        self.actuators = tuple(
            ActuatorInfo(self.kind, unit, low, high, step, period, endless=False)  # type: ignore[arg-type]
            for low, high in limits
        )
        self.source, self.taken = random_state(self.rng), random_state(self.rng)
        self.settings = np.array([0.5 * (low + high) for low, high in limits])
        self.noise_db = noise_db
        self.crosstalk = 0.0
        self.power_w = 1e-4
        self.reads = 0

    def set(self, settings: NDArray[np.float64]) -> None:
        for value, actuator in zip(settings, self.actuators, strict=True):
            if not actuator.minimum <= value <= actuator.maximum:
                raise LimitError("drive", requested=float(value), limit=actuator.maximum, unit=actuator.unit)
        steps = np.array([actuator.step for actuator in self.actuators])
        self.settings = np.rint(settings / steps) * steps

    def read(self) -> NDArray[np.float64]:
        return self.settings.copy()

    def close(self) -> None:
        pass


class Squeezers(LightPath):
    """Squeezers at 0°, 45°, 0° … with unknown rest retardances."""

    def __init__(
        self, seed: int, n: int = 3, *, noise_db: float = 0.01, told: bool = True, reach_mv: float = 5000.0
    ) -> None:
        period = 3700.0
        super().__init__(seed, [(-reach_mv, reach_mv)] * n, period if told else None, noise_db)
        self.period_mv = np.full(n, period)
        self.rest_rad = self.rng.uniform(0.0, 2.0 * np.pi, n)
        self.settings = np.zeros(n)

    def behind(self) -> NDArray[np.float64]:
        state = self.source
        for index, drive in enumerate(self.settings):
            angle = self.rest_rad[index] + 2.0 * np.pi * drive / self.period_mv[index]
            state = turned(state, AXES[index % 2], float(angle))
        return state


class Paddles(LightPath):
    """A quarter-, a half- and a quarter-wave paddle, 0 to 170° (Thorlabs MPC320), with what real fibre adds.

    Fibre twisted on both sides of a paddle turns the light as if the paddle stood at ``twist`` times its angle; paddles
    may count from different directions; fibre between paddles may turn the light by ``between_rad`` about any axis.
    """

    kind = "angle"

    def __init__(
        self,
        seed: int,
        *,
        noise_db: float = 0.01,
        retardances_rad: tuple[float, ...] = (np.pi / 2, np.pi, np.pi / 2),
        twist: float = 1.0,
        offset: bool = False,
        between_rad: float = 0.0,
    ) -> None:
        super().__init__(seed, [(0.0, 170.0)] * len(retardances_rad), None, noise_db)
        self.retardances_rad, self.twist, self.between_rad = retardances_rad, twist, between_rad
        self.offsets_deg = (180.0 if offset else 0.0) * self.rng.random(len(retardances_rad))
        self.between_axes = [random_state(self.rng) for _ in retardances_rad]

    def behind(self) -> NDArray[np.float64]:
        state = self.source
        angles = self.settings + self.offsets_deg
        for angle, retardance, axis in zip(angles, self.retardances_rad, self.between_axes, strict=True):
            plate = turned(AXES[0], SPHERE_S3, 2.0 * np.deg2rad(self.twist * float(angle)))
            state = turned(turned(state, plate, retardance), axis, self.between_rad)
        return state
