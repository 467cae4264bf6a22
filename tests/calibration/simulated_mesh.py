"""A hidden mesh with all that docs/calibration.md, 2, says of a chip, and readings of it, without a bench."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration.model.nominal_heaters import PUBLISHED_KERNEL
from calibration.model.observations import Observations
from calibration.model.parameters import MeshParameters
from lumion_hw.emulator.optics.physics_parameters import PhysicsParameters
from lumion_hw.emulator.optics.truth import MeshTruth, draw_mesh
from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.mesh.waves.cell import UnitCells
from lumion_hw.mesh.waves.crosstalk import ThermalCrosstalk
from lumion_hw.mesh.waves.scattering import Solver

Real = NDArray[np.float64]

REFERENCE_HZ = 299792458.0 / 1550e-9
RELATIVE = 0.005
RESPONSIVITY_MA_PER_MW = 0.8
FLOOR_MA = 1e-6 * RESPONSIVITY_MA_PER_MW
"""-60 dBm at a monitor."""
FULL_TURN_MA = 1.85
"""About one turn and a half of a heater of 1.34 mW per π and 1 kΩ; 1.3 turns of the most reluctant one."""


@dataclass
class SimulatedMesh:
    """A mesh whose truth is known to the test alone.

    Attributes:
        mesh: The mesh.
        truth: What is hidden; drawn by the emulator's own rules.
        source_db: Shape ``(n_ports,)``; power entering the mesh at each port, dBm.
        rng: Noise.
        eta_slope_per_hz: Change of every splitting per Hz.
        differential_slope_per_hz: Change of every φu - φl per Hz.
        delay_s: Group delay of a PUC.
    """

    mesh: MeshTopology
    truth: MeshTruth
    source_db: Real
    rng: np.random.Generator
    eta_slope_per_hz: float = 0.0
    differential_slope_per_hz: float = 0.0
    delay_s: float = 11.25e-12

    @classmethod
    def draw(cls, mesh: MeshTopology, seed: int, physics: PhysicsParameters | None = None) -> SimulatedMesh:
        """Draw a mesh; light of 0 dBm ± 1 dB enters at every port."""
        rng = np.random.default_rng(seed)
        truth = draw_mesh(mesh, physics or PhysicsParameters(), rng)
        return cls(mesh, truth, rng.normal(0.0, 1.0, mesh.n_ports), rng)

    @property
    def ports(self) -> tuple[int, ...]:
        """Ports with a fibre and a monitor."""
        return self.mesh.fibre_ports

    def heat_mw(self, currents_ma: Real) -> Real:
        """Heat of every heater, shape ``(N, 2E)``."""
        return np.stack([self.truth.heater_power_mw(row) for row in currents_ma])

    def cells(self, currents_ma: Real, detuning_hz: Real | float = 0.0) -> UnitCells:
        """The unit cells at N settings; what heat adds to the optical path is a length, its phase goes with frequency.

        The delay of the light and the slopes are not in it.
        """
        turns = 1.0 + detuning_hz / REFERENCE_HZ
        truth = self.truth
        cold = UnitCells(
            truth.loss_db,
            truth.eta_in,
            truth.eta_out,
            truth.passive_phase,
            np.zeros(self.mesh.n_pucs),
            truth.joint_phase,
        )
        crosstalk = ThermalCrosstalk(truth.crosstalk.arm_rad_per_mw, truth.crosstalk.joint_rad_per_mw)
        return crosstalk.heated_cells(cold, self.heat_mw(currents_ma) * turns, truth.p_pi_mw)

    def detuned_cells(self, currents_ma: Real, detuning_hz: Real | float) -> UnitCells:
        """The same for light of another frequency: delay and slopes count (docs/sources.md)."""
        cells = self.cells(currents_ma, detuning_hz)
        common = 2 * np.pi * self.delay_s * np.asarray(detuning_hz)
        half = 0.5 * self.differential_slope_per_hz * np.asarray(detuning_hz)
        return replace(
            cells,
            phase_upper=cells.phase_upper + common + half,
            phase_lower=cells.phase_lower + common - half,
            eta_in=cells.eta_in + self.eta_slope_per_hz * np.asarray(detuning_hz),
            eta_out=cells.eta_out + self.eta_slope_per_hz * np.asarray(detuning_hz),
        )

    def exact_ma(
        self,
        currents_ma: Real,
        source: NDArray[np.int64],
        common_rad: Real | float = 0.0,
        detuning_hz: Real | float = 0.0,
    ) -> Real:
        """Readings without noise, shape ``(N, M)``, each setting with a phase that all PUCs have in common.

        With ``detuning_hz`` the light has another frequency: every PUC delays it by 11.25 ps, and the slopes count.
        """
        solver, ports = Solver(self.mesh), np.array(self.ports)
        cells = self.detuned_cells(currents_ma, np.broadcast_to(detuning_hz, len(source))[:, None])
        common = np.broadcast_to(common_rad, len(source))[:, None]
        cells = replace(cells, phase_upper=cells.phase_upper + common, phase_lower=cells.phase_lower + common)
        reading = np.empty((len(source), len(ports)))
        field = solver.solve(cells, cells.reference_hz, sorted(set(source.tolist())))
        column = np.searchsorted(np.unique(source), source)
        power = np.abs(field[np.arange(len(source))[:, None], ports, column[:, None]]) ** 2
        scale = RESPONSIVITY_MA_PER_MW * self.truth.monitor_scale[ports]
        reading[:] = power * 10.0 ** (self.source_db[source] / 10.0)[:, None] * scale
        return reading

    def measure(
        self,
        currents_ma: Real,
        source: NDArray[np.int64],
        power_db: Real | float = 0.0,
        common_rad: Real | float = 0.0,
        detuning_hz: Real | float = 0.0,
    ) -> Observations:
        """Readings with noise, each setting with that much more power, that common phase and that frequency."""
        power = np.broadcast_to(10.0 ** (np.asarray(power_db) / 10.0), len(source))
        exact = self.exact_ma(currents_ma, source, common_rad, detuning_hz) * power[:, None]
        noisy = exact + np.hypot(RELATIVE * exact, FLOOR_MA) * self.rng.standard_normal(exact.shape)
        return Observations(currents_ma, source, self.ports, noisy, np.zeros(exact.shape, dtype=np.bool_))

    def random_settings(self, count: int, max_ma: float = FULL_TURN_MA) -> tuple[Real, NDArray[np.int64]]:
        """Currents uniform in their square, and light at every fibre port in turn."""
        currents = np.sqrt(self.rng.uniform(0.0, max_ma**2, (count, 2 * self.mesh.n_pucs)))
        return currents, np.resize(np.array(self.ports), count)

    def parameters(self) -> MeshParameters:
        """The truth in the fit's terms; laws are those of least squares over the range in use."""
        truth, ports = self.truth, np.array(self.ports)
        first, second = np.arcsin(np.sqrt(truth.eta_in)), np.arcsin(np.sqrt(truth.eta_out))
        return MeshParameters(
            passive_phase_rad=truth.passive_phase,
            heater_law=self.laws(FULL_TURN_MA),
            loss_db=truth.loss_db,
            coupler_common_rad=0.5 * (first + second) - np.pi / 4,
            coupler_difference_rad=first - second,
            joint_phase_rad=truth.joint_phase,
            source_db=self.source_db[ports],
            monitor_ma_per_mw=RESPONSIVITY_MA_PER_MW * truth.monitor_scale[ports],
            crosstalk_rad_per_mw=np.array([0.906, 0.0, 0.12]) / 59.5 / 6 * np.pi / 2.68 + np.array([0.0, 1.18, 0.0]),
            heat_factor=truth.heater_ohm / 1000.0,
        )

    def laws(self, max_ma: float) -> Real:
        """Three terms fitted to the true phase of each heater, shape ``(2E, 3)``."""
        square = np.linspace(0.0, max_ma**2, 60)[1:]
        phase = np.pi * self.heat_mw(np.sqrt(square)[:, None].repeat(2 * self.mesh.n_pucs, axis=1)) / self.truth.p_pi_mw
        return np.linalg.lstsq(square[:, None] ** [1, 2, 3], phase, rcond=None)[0].T


def start_near(simulated: SimulatedMesh, phase_rad: float, law: float, seed: int = 7) -> MeshParameters:
    """What sweeps and a search leave: phases and laws off by so much, and nominal values for all the rest."""
    rng, truth, n_pucs = np.random.default_rng(seed), simulated.parameters(), simulated.mesh.n_pucs
    laws = truth.heater_law * (1.0 + law * rng.standard_normal((2 * n_pucs, 1)))
    laws[:, 2] = 0.0
    return MeshParameters(
        passive_phase_rad=truth.passive_phase_rad + phase_rad * rng.standard_normal(n_pucs),
        heater_law=laws,
        loss_db=np.full(n_pucs, 0.5),
        coupler_common_rad=np.zeros(n_pucs),
        coupler_difference_rad=np.zeros(n_pucs),
        joint_phase_rad=truth.joint_phase_rad + phase_rad * rng.standard_normal(len(truth.joint_phase_rad)),
        source_db=truth.source_db + 0.3 * rng.standard_normal(len(truth.source_db)),
        monitor_ma_per_mw=np.full(len(truth.monitor_ma_per_mw), RESPONSIVITY_MA_PER_MW),
        crosstalk_rad_per_mw=np.array(PUBLISHED_KERNEL),
    )


def currents_for(simulated: SimulatedMesh, phase_rad: Real) -> Real:
    """Currents at which the heaters have these phases of their own, shape ``(N, 2E)``."""
    square = np.linspace(0.0, 2.6**2, 2000)
    laws = simulated.laws(2.6)
    phases = square[:, None] * (laws[:, 0] + square[:, None] * (laws[:, 1] + square[:, None] * laws[:, 2]))
    columns = [np.interp(phase_rad[:, heater], phases[:, heater], square) for heater in range(phase_rad.shape[1])]
    return np.sqrt(np.stack(columns, axis=1))


def unread(simulated: SimulatedMesh, currents_ma: Real, source: NDArray[np.int64]) -> Observations:
    """Settings whose readings nobody has taken yet."""
    nothing = np.zeros((len(source), len(simulated.ports)))
    return Observations(currents_ma, source, simulated.ports, nothing, nothing > 0)
