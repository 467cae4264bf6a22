"""The optical world of an emulated bench: light computed from the modules through fibres and mesh to the detectors.

Devices read the world when asked, at the clock's time. Light of different modules adds in power. The mesh takes TE.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lumion_hw.clock import Clock
from lumion_hw.emulator.truth import ChainTruth, MeshTruth, PhysicsParameters
from lumion_hw.interfaces.wiring import OutputPath, Wiring
from lumion_hw.mesh.cell import UnitCells
from lumion_hw.mesh.facets import entering_fraction
from lumion_hw.mesh.scattering import Solver
from lumion_hw.mesh.topology import HexMesh
from lumion_hw.quantities import frequency_hz_from_wavelength_m, w_from_dbm

_SETTLED_TAU = 25.0
"""After this many time constants the heat is taken as settled: the rest is below 1e-10."""

_LARGEST_DRIFT_RAD2 = 0.25
_MOST_DRIFT_STEPS = 16
"""Enough to forget everything, however long the pause."""

_PAULI = np.array([[[1, 0], [0, -1]], [[0, 1], [1, 0]], [[0, -1j], [1j, 0]]], dtype=np.complex128)
_SQUEEZER_AXIS = (0, 1, 0, 1)
"""Fibre squeezers at 0°, 45°, 0°, 45°: rotations about S1, S2, S1, S2."""


class OpticalWorld:
    """Everything light does on the bench.

    Args:
        mesh: The mesh.
        wiring: Which module goes where.
        mesh_truth: Hidden parameters of the mesh.
        chains: Hidden parameters of each input, in the order of the wiring.
        physics: Constants shared by all of it.
        nominal_nm: Wavelength at which the mesh parameters hold.
        clock: The bench's clock.
        rng: Noise and drift.
    """

    def __init__(
        self,
        mesh: HexMesh,
        wiring: Wiring,
        mesh_truth: MeshTruth,
        chains: list[ChainTruth],
        physics: PhysicsParameters,
        nominal_nm: float,
        clock: Clock,
        rng: np.random.Generator,
    ) -> None:
        self.mesh = mesh
        self.wiring = wiring
        self.truth = mesh_truth
        self.chains = chains
        self._physics = physics
        self._clock = clock
        self._rng = rng
        self._solver = Solver(mesh)
        self._reference_hz = frequency_hz_from_wavelength_m(nominal_nm * 1e-9)
        self._slope_per_hz = -nominal_nm / self._reference_hz  # dλ/df in nm per Hz
        self._input_of = {path.transponder: index for index, path in enumerate(wiring.inputs)}
        self._controller_of = {path.polarization: i for i, path in enumerate(wiring.inputs) if path.polarization}
        self._launched_w = np.zeros(len(wiring.inputs))
        self._retardance = np.stack([chain.squeezer_offset_rad for chain in chains]) if chains else np.zeros((0, 4))
        heaters = 2 * mesh.n_pucs
        self._heat_mw = np.zeros(heaters)
        self._target_mw = np.zeros(heaters)
        self._driven_ma = np.zeros(heaters)
        self._heat_at_s = clock.now()
        self._driven_at_s = -np.inf
        self._drifted_at_s = clock.now()
        self._columns: dict[int, NDArray[np.float64]] = {}
        self._coupled: dict[int, float] = {}
        self.before_reading: list[Callable[[], None]] = []

    # What devices do to the world ------------------------------------------------------------------------------------

    def set_transmitter(self, transponder: str, power_w: float) -> None:
        """A module launches this power from now on."""
        if transponder in self._input_of:
            self._launched_w[self._input_of[transponder]] = power_w

    def set_squeezer(self, controller: str, channel: int, drive_mv: float) -> None:
        """A polarization controller drives one squeezer (channel from 1)."""
        index = self._controller_of.get(controller)
        if index is not None:
            chain = self.chains[index]
            turn = 2 * np.pi * drive_mv / chain.squeezer_period_mv[channel - 1]
            self._retardance[index, channel - 1] = chain.squeezer_offset_rad[channel - 1] + turn
            self._coupled.pop(index, None)

    def drive_heaters(self, currents_ma: NDArray[np.float64], at_s: float) -> None:
        """The board latches a table of heater currents at an instant; shape ``(2E,)``, by PUC and arm."""
        self._relax(at_s)
        self._driven_ma = currents_ma.copy()
        self._target_mw = self.truth.heater_power_mw(self._driven_ma)
        self._driven_at_s = at_s
        self._columns.clear()

    def disturb(self) -> None:
        """The truth was changed (a fault): forget what was computed from it. Heat follows as after any change."""
        self._relax(self._clock.now())
        self._target_mw = self.truth.heater_power_mw(self._driven_ma)
        self._driven_at_s = self._clock.now()
        self._columns.clear()
        self._coupled.clear()

    def turn_fibre(self, transponder: str) -> None:
        """A fibre was moved: light reaches the chip in the polarization orthogonal to that of before."""
        index = self._input_of[transponder]
        chain = self.chains[index]
        state = _stokes(self._arriving(index))
        axis = self._rng.standard_normal(3)
        axis -= (axis @ state) * state  # half a turn about any axis at right angles leads to the opposite pole
        chain.fibre_out = _rotation(np.pi * axis / np.linalg.norm(axis)) @ chain.fibre_out
        self._coupled.clear()

    # What devices read -----------------------------------------------------------------------------------------------

    def leaving_w(self) -> NDArray[np.float64]:
        """Return the power leaving the mesh at every port on the chip, shape ``(n_ports,)``, at the present time."""
        for action in self.before_reading:
            action()
        self._drift()
        total = np.zeros(self.mesh.n_ports)
        for index, launched_w in enumerate(self._launched_w):
            if launched_w > 0.0:
                if index not in self._coupled:
                    self._coupled[index] = self._entering_fraction(index)
                total += launched_w * self._coupled[index] * self._column(index)
        return total

    def monitor_ma(self, ports: NDArray[np.int64], responsivity_a_per_w: float, n_avg: int) -> NDArray[np.float64]:
        """Return the photocurrents of the on-chip monitors at ``ports``, with noise, averaged over ``n_avg`` scans."""
        power_w = self.leaving_w()[ports] * self.truth.monitor_scale[ports]
        floor_w = w_from_dbm(self._physics.monitor_noise_floor_dbm)
        sigma_w = np.hypot(self._physics.monitor_noise_relative * power_w, floor_w) / np.sqrt(n_avg)
        noisy_w = power_w + sigma_w * self._rng.standard_normal(len(ports))
        current_ma: NDArray[np.float64] = np.maximum(noisy_w, 0.0) * responsivity_a_per_w * 1e3
        return current_ma

    def received_w(self, transponder: str) -> float:
        """Return the power at a module's receiver."""
        return sum(
            self._fibre_w(path) * (1.0 - path.tap_fraction)
            for path in self.wiring.outputs
            if path.transponder == transponder
        )

    def tapped_w(self, meter: str, channel: int) -> float:
        """Return the power at one channel of a power meter."""
        return sum(
            self._fibre_w(path) * path.tap_fraction
            for path in self.wiring.outputs
            if path.meter == meter and path.meter_channel == channel
        )

    def _fibre_w(self, path: OutputPath) -> float:
        loss_db = self.truth.access_loss_db[path.port] + path.loss_db
        return float(self.leaving_w()[path.port] * 10.0 ** (-loss_db / 10.0))

    # Light -----------------------------------------------------------------------------------------------------------

    def _arriving(self, index: int) -> NDArray[np.complex128]:
        """Return the Jones vector (TE, TM) of one input at the chip, of length 1."""
        chain = self.chains[index]
        field = chain.fibre_in @ chain.launch
        if self.wiring.inputs[index].polarization is not None:
            for axis, retardance in zip(_SQUEEZER_AXIS, self._retardance[index], strict=True):
                field = _rotation(retardance * np.eye(3)[axis]) @ field
        arriving: NDArray[np.complex128] = chain.fibre_out @ field
        return arriving

    def _entering_fraction(self, index: int) -> float:
        """Return TE power in the mesh over launched power, for one input."""
        path = self.wiring.inputs[index]
        loss_db = path.loss_db + self.truth.access_loss_db[path.port] - path.gain_db
        return float(entering_fraction(self._arriving(index), loss_db, self._physics.tm_rejection_db))

    def _column(self, index: int) -> NDArray[np.float64]:
        """Return |S_qp|² from one input to all ports; kept while the heat has settled."""
        settled = self._relax(self._clock.now())
        if not settled or index not in self._columns:
            port, frequency_hz = self.wiring.inputs[index].port, self.chains[index].frequency_hz
            column = np.abs(self._solver.solve(self.cells(), frequency_hz, [port])[:, 0]) ** 2
            if not settled:
                return column
            self._columns[index] = column
        return self._columns[index]

    def cells(self) -> UnitCells:
        """Return the unit cells at the present heat."""
        self._relax(self._clock.now())
        truth = self.truth
        cold = UnitCells(
            loss_db=truth.loss_db,
            eta_in=truth.eta_in,
            eta_out=truth.eta_out,
            phase_upper=truth.passive_phase,
            phase_lower=np.zeros(self.mesh.n_pucs),
            joint_phase=truth.joint_phase,
            reference_hz=self._reference_hz,
            eta_slope_per_hz=self._physics.eta_slope_per_nm * self._slope_per_hz,
            differential_slope_per_hz=self._physics.differential_slope_per_nm * self._slope_per_hz,
        )
        return truth.crosstalk.warmed(cold, self._heat_mw, truth.p_pi_mw)

    def _relax(self, now: float) -> bool:
        """Let the heat follow the heaters up to ``now``; return whether it has settled."""
        tau_s = self._physics.thermal_tau_s
        elapsed, self._heat_at_s = max(now - self._heat_at_s, 0.0), max(now, self._heat_at_s)
        if now - self._driven_at_s > _SETTLED_TAU * tau_s:
            if self._heat_mw is not self._target_mw:
                self._heat_mw = self._target_mw
                self._columns.clear()
            return True
        self._heat_mw = self._target_mw + (self._heat_mw - self._target_mw) * np.exp(-elapsed / tau_s)
        return False

    def _drift(self) -> None:
        """Turn every fibre a little: a random walk of the polarization (mesh facts: arXiv 1507.00953)."""
        elapsed = self._clock.now() - self._drifted_at_s
        rate = self._physics.fibre_drift_rad2_per_s
        if elapsed < 0.1 or rate <= 0.0:
            return
        self._drifted_at_s = self._clock.now()
        self._coupled.clear()
        # One large step is no random walk: its angle wraps, and the correlation would stop at a ninth.
        steps = min(math.ceil(rate * elapsed / _LARGEST_DRIFT_RAD2), _MOST_DRIFT_STEPS)
        for chain in self.chains:
            for _ in range(steps):
                # Half of the motion before the controller, half behind it.
                step = np.sqrt(0.5 * rate * elapsed / steps) * self._rng.standard_normal((2, 3))
                chain.fibre_in = _rotation(step[0]) @ chain.fibre_in
                chain.fibre_out = _rotation(step[1]) @ chain.fibre_out


def _stokes(field: NDArray[np.complex128]) -> NDArray[np.float64]:
    """Return the unit Stokes vector (S1, S2, S3) of a Jones vector of length 1."""
    stokes: NDArray[np.float64] = np.real(np.einsum("i,kij,j->k", field.conj(), _PAULI, field))
    return stokes


def _rotation(vector: NDArray[np.float64]) -> NDArray[np.complex128]:
    """Return the Jones matrix exp(-i v·σ/2) that turns the Poincaré sphere by |v| about v."""
    angle = float(np.linalg.norm(vector))
    if angle == 0.0:
        return np.eye(2, dtype=np.complex128)
    axis = np.tensordot(vector / angle, _PAULI, axes=1)
    matrix: NDArray[np.complex128] = np.cos(angle / 2) * np.eye(2) - 1j * np.sin(angle / 2) * axis
    return matrix
