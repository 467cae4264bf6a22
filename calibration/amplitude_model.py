"""Amplitudes at the monitors and how they follow passive and joint phases, in single precision: made for searching.

The model of an ideal mesh: balanced couplers, typical loss, no crosstalk. Derivatives come from the light of all ports
in one solution (mesh.md c.1).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibration.mean_light import TYPICAL_LOSS_DB
from lumion_hw.mesh.cell import UnitCells
from lumion_hw.mesh.scattering import Solver
from lumion_hw.mesh.topology import HexMesh

Real = NDArray[np.float64]
Single = NDArray[np.float32]
Complex = NDArray[np.complex64]

_DARK = 1e-9


class AmplitudeModel:
    """Predicts |S| between ports.

    Args:
        mesh: The mesh.
        sources: Ports where light may enter.
        monitors: Port of every monitor.
    """

    def __init__(self, mesh: HexMesh, sources: tuple[int, ...], monitors: tuple[int, ...]) -> None:
        self.mesh = mesh
        self._solver = Solver(mesh)
        self._ports, place = np.unique(np.array([*sources, *monitors]), return_inverse=True)
        self._source, self._monitor = place[: len(sources)], place[len(sources) :]
        self._out = np.array(monitors)
        self._loss_db = np.full(mesh.n_pucs, TYPICAL_LOSS_DB)
        self._gain = 10.0 ** (-TYPICAL_LOSS_DB / 20.0)

    def predict(
        self, upper_rad: Real, lower_rad: Real, joint_rad: Real, source: int, monitor: NDArray[np.int64]
    ) -> Real:
        """Return |S| of n settings with one source lit, for k monitors each, shape ``(n, k)``; args as below."""
        half = np.full(self.mesh.n_pucs, 0.5)
        cells = UnitCells(self._loss_db, half, half, upper_rad, lower_rad, joint_rad)
        field = self._solver.solve(cells, cells.reference_hz, [int(self._ports[self._source[source]])])[..., 0]
        amplitude: Real = np.abs(field[np.arange(len(field))[:, None], self._out[monitor]])
        return amplitude

    def linearise(
        self, upper_rad: Real, lower_rad: Real, joint_rad: Real, source: NDArray[np.int64], monitor: NDArray[np.int64]
    ) -> tuple[Real, Single]:
        """Return amplitudes and their derivatives for n settings and k monitors each.

        Args:
            upper_rad: Shape ``(n, E)``; phases of the upper arms, passive part included.
            lower_rad: Shape ``(n, E)``.
            joint_rad: Shape ``(n, J)`` or ``(J,)``.
            source: Shape ``(n,)``; which of the sources is lit.
            monitor: Shape ``(n, k)``; which of the monitors are wanted.

        Returns:
            |S|, shape ``(n, k)``, and its derivatives by upper arms and joints, shape ``(n, k, E + J)``.
        """
        half = np.full(self.mesh.n_pucs, 0.5)
        cells = UnitCells(self._loss_db, half, half, upper_rad, lower_rad, joint_rad)
        elements, factors, _ = self._solver.coefficients(cells, cells.reference_hz)
        every = np.arange(4 * self.mesh.n_pucs)
        waves = self._solver.entering(elements, factors, self.mesh.port_puc_port[self._ports], every)
        row = np.arange(len(source))
        light = waves[row, :, self._source[source]]
        field = self._solver.leaving(elements, light[:, self._solver.port_feeds, None])
        field = field[row[:, None], self._out[monitor], 0]
        amplitude = np.abs(field)
        towards = (field.conj() / np.maximum(amplitude, _DARK)).astype(np.complex64)
        adjoint = waves.astype(np.complex64)[row[:, None], :, self._monitor[monitor]] * towards[..., None]
        return amplitude, self._derivatives(light.astype(np.complex64), adjoint, upper_rad, factors.T)

    def _derivatives(
        self,
        light: Complex,
        adjoint: Complex,
        upper_rad: Real,
        factors: NDArray[np.complex128],
    ) -> Single:
        """Return the derivatives by upper arms and joints, shape ``(n, k, E + J)``."""
        n, k, n_pucs = len(light), adjoint.shape[1], self.mesh.n_pucs
        # Through a balanced coupler the upper arm takes (L - j·R)/√2 from either end.
        arm, arm_back = light.reshape(n, n_pucs, 2, 2), adjoint.reshape(n, k, n_pucs, 2, 2)
        arm = arm[..., 0] - 1j * arm[..., 1]
        arm_back = arm_back[..., 0] - 1j * arm_back[..., 1]
        turned = (-0.5j * self._gain * np.exp(-1j * upper_rad)).astype(np.complex64)
        arm = (turned[..., None] * arm)[:, None]
        u, v = self.mesh.joints.T
        back = (-1j / factors).astype(np.complex64)
        joint = (back * light[:, u])[:, None] * adjoint[..., v] + (back * light[:, v])[:, None] * adjoint[..., u]
        result = np.empty((n, k, n_pucs + len(u)), dtype=np.float32)
        result[..., :n_pucs] = (arm[..., 0] * arm_back[..., 1] + arm[..., 1] * arm_back[..., 0]).real
        result[..., n_pucs:] = joint.real
        return result
