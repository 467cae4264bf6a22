"""A mesh on paper that a calibration can look at: chosen laws, phases and losses, light by the coherent solver.

No wire, no quantisation and, unless asked for, no noise: what a stage of the calibration gets wrong here is its own.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.waves.cell import UnitCells
from lumion_hw.mesh.waves.heater import HeaterLaw
from lumion_hw.mesh.waves.scattering import Solver

RHO2, RHO4 = 2.0, 0.05
MAX_MA = 2.5
LAW = HeaterLaw(RHO2, RHO4, MAX_MA)
HZ = 193.4145e12
LAUNCHED_DBM = 0.0


class SolverProbe:
    """A probe for the tests. Its attributes are the truth and may be changed at any time."""

    def __init__(
        self,
        mesh: HexMesh,
        sources: Iterable[int],
        monitors: Iterable[int] | None = None,
        *,
        seed: int = 0,
        noise_relative: float = 0.0,
        noise_floor_ma: float = 0.0,
    ) -> None:
        rng = np.random.default_rng(seed)
        n = mesh.n_pucs
        self.mesh = mesh
        self.sources = tuple(sources)
        self.second_ports: dict[int, int] = {}
        self.monitors = tuple(mesh.fibre_ports if monitors is None else monitors)
        self.heater_max_ma = MAX_MA
        self.monitor_step_ma = 1e-5
        self.current_step_ma = 0.0
        self.passive_rad = rng.uniform(-np.pi, np.pi, n)
        self.joint_rad = rng.uniform(0.0, 2 * np.pi, len(mesh.joints))
        self.loss_db = np.full(n, 0.5)
        self.input_db = np.zeros(mesh.n_ports)
        self.output_db: dict[int, float] = {}
        self.ma_per_mw = np.ones(mesh.n_ports)
        self.alive = np.ones(2 * n)
        self.noise = (noise_relative, noise_floor_ma)
        self.settings: list[NDArray[np.float64]] = []
        self.rests: list[tuple[int, float]] = []  # settings before each, and duration in s
        self.lit: int | None = None
        self.is_safe = False
        self._rng = np.random.default_rng(seed + 1)
        self._solver = Solver(mesh)

    def light_only_port(self, port: int | None) -> None:
        self.lit, self.is_safe = port, False

    def launched_dbm(self, port: int) -> float:
        return LAUNCHED_DBM

    def transmission(self, currents_ma: NDArray[np.float64], source: int) -> NDArray[np.float64]:
        """Return the on-chip power transmission from a source to every port at a setting."""
        square = (currents_ma * self.alive) ** 2
        phase = RHO2 * square + RHO4 * square**2
        half = np.full(self.mesh.n_pucs, 0.5)
        cells = UnitCells(self.loss_db, half, half, self.passive_rad + phase[0::2], phase[1::2], self.joint_rad)
        return np.abs(self._solver.solve(cells, HZ, [source])[:, 0]) ** 2

    def measure(self, currents_ma: NDArray[np.float64]) -> NDArray[np.float64]:
        self.settings.append(currents_ma.copy())
        ports = list(self.monitors)
        if self.lit is None:
            current = np.zeros(len(ports))
        else:
            entering = 10.0 ** ((LAUNCHED_DBM - self.input_db[self.lit]) / 10.0)
            current = entering * self.transmission(currents_ma, self.lit)[ports] * self.ma_per_mw[ports]
        relative, floor = self.noise
        return current + np.hypot(relative * current, floor) * self._rng.standard_normal(len(ports))

    def measure_batch(self, currents_ma: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.array([self.measure(setting) for setting in currents_ma]).reshape(-1, len(self.monitors))

    def fibre_dbm(self) -> dict[int, float]:
        if self.lit is None:
            return {}
        power = self.transmission(self.settings[-1], self.lit)
        level_dbm = LAUNCHED_DBM - self.input_db[self.lit]
        return {
            port: level_dbm + 10 * np.log10(max(power[port], 1e-30)) - loss for port, loss in self.output_db.items()
        }

    measures_resistances = False

    def heater_resistances_ohm(self) -> NDArray[np.float64]:
        return np.full(2 * self.mesh.n_pucs, np.nan)

    def elapsed_s(self) -> float:
        return float(len(self.settings))

    def rest(self, duration_s: float) -> None:
        self.rests.append((len(self.settings), duration_s))

    def switch_everything_off(self) -> None:
        self.lit, self.is_safe = None, True


def wrapped(angle_rad: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """Return angles in -π … π."""
    return (np.asarray(angle_rad) + np.pi) % (2 * np.pi) - np.pi


def every_port(mesh: HexMesh) -> tuple[int, ...]:
    """Return all ports of a mesh."""
    return tuple(range(mesh.n_ports))
