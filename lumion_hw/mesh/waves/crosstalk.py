"""Thermal crosstalk: the effect of a heater's heat on the phases of other arms and waveguides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.mesh.waves.cell import UnitCells

BUL_MM = 0.81141
"""Length of a PUC (Sánchez-Jácome 2025), also used as the length of a lattice edge (assumed)."""

_ARM_OFFSET_MM = 0.025
# λ²/(c · 6 · 11.25 ps) at 1550 nm; the group delay is BASIC_UNIT_DELAY_S of cell.py.
_RING_PM_PER_PI = 119.0 / 2.0
"""Half the free spectral range of a six-PUC ring, in pm: the resonance shift for a phase of π in the ring."""


@dataclass(frozen=True, eq=False)
class HeaterDistances:
    """Distances between every heater and every waveguide. The two arms of a PUC are 50 µm apart (assumed).

    Attributes:
        arm_mm: Shape ``(2 n_pucs, 2 n_pucs)``; distance from a heater (column) to the middle of an arm (row).
        joint_mm: Shape ``(n_joints, 2 n_pucs)``; distance from a heater to the middle of a joint (waveguide between
            PUCs).
        arm_turns: Shape ``(2, 2 n_pucs, 2 n_pucs)``; cos 2β and sin 2β of the angle β between the x axis and the line
            from heater to arm; 0 at zero distance.
        joint_turns: Shape ``(2, n_joints, 2 n_pucs)``; the same for the line from heater to joint.
        arm_sides: Shape ``(2, 2 n_pucs, 2 n_pucs)``; cos β and sin β; 0 at zero distance.
        joint_sides: Shape ``(2, n_joints, 2 n_pucs)``; the same for the line from heater to joint.
    """

    arm_mm: NDArray[np.float64]
    joint_mm: NDArray[np.float64]
    arm_turns: NDArray[np.float64]
    joint_turns: NDArray[np.float64]
    arm_sides: NDArray[np.float64]
    joint_sides: NDArray[np.float64]

    @classmethod
    def from_mesh(cls, mesh: MeshTopology) -> HeaterDistances:
        """Return the distances in a mesh whose PUCs are ``BUL_MM`` long."""
        ends = mesh.end_positions * BUL_MM
        directions = (ends[:, 1] - ends[:, 0]) / np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1, keepdims=True)
        # Rail L lies on the left when looking from A to B.
        left = np.stack([-directions[:, 1], directions[:, 0]], axis=1) * _ARM_OFFSET_MM
        centre = ends.mean(axis=1)
        arms = np.stack([centre + left, centre - left], axis=1).reshape(-1, 2)
        joints = mesh.joint_positions * BUL_MM
        vectors = [(points[:, None] - arms[None]) @ (1.0, 1.0j) for points in (arms, joints)]
        lengths = [np.abs(vector) for vector in vectors]
        # e^{jβ}, and its square e^{2jβ}, which is the same for opposite directions.
        sides = [
            np.divide(vector, length, out=np.zeros_like(vector), where=length > 0.0)
            for vector, length in zip(vectors, lengths, strict=True)
        ]
        angles = (*(side**2 for side in sides), *sides)
        return cls(*lengths, *(np.stack([angle.real, angle.imag]) for angle in angles))

    def crosstalk(self, kernel: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> ThermalCrosstalk:
        """Return the crosstalk for a function of distance (mm to rad/mW); 0 on the heater's own arm."""
        on_arms = kernel(self.arm_mm)
        # The heater's law describes its own arm; the kernel would count this effect twice.
        np.fill_diagonal(on_arms, 0.0)
        return ThermalCrosstalk(on_arms, kernel(self.joint_mm))

    def directed(
        self,
        crosstalk: ThermalCrosstalk,
        rise: NDArray[np.float64] | None,
        sides: NDArray[np.float64] | None = None,
    ) -> ThermalCrosstalk:
        """Return crosstalk that depends on the direction from the heater.

        Args:
            crosstalk: Crosstalk of the same mesh, equal in all directions.
            rise: Shape ``(2,)``; relative increase along x (decrease along y), and along x = y (decrease along x = -y).
            sides: Shape ``(2,)``; relative increase towards +x (decrease towards -x), and towards +y.
        """
        arm, joint = np.ones_like(crosstalk.arm_rad_per_mw), np.ones_like(crosstalk.joint_rad_per_mw)
        for amounts, on_arms, on_joints in (
            (rise, self.arm_turns, self.joint_turns),
            (sides, self.arm_sides, self.joint_sides),
        ):
            if amounts is not None:
                arm += np.tensordot(amounts, on_arms, axes=1)
                joint += np.tensordot(amounts, on_joints, axes=1)
        return ThermalCrosstalk(crosstalk.arm_rad_per_mw * arm, crosstalk.joint_rad_per_mw * joint)


@dataclass(frozen=True, eq=False)
class ThermalCrosstalk:
    """Crosstalk phase per heat between all heaters and waveguides.

    Heater ``2·PUC`` is on arm u, ``2·PUC + 1`` on arm l.

    Attributes:
        arm_rad_per_mw: Shape ``(2 n_pucs, 2 n_pucs)``; phase of an arm (row) per heat of another heater (column).
        joint_rad_per_mw: Shape ``(n_joints, 2 n_pucs)``; phase of a joint (waveguide between PUCs) per heat of a
            heater.
    """

    arm_rad_per_mw: NDArray[np.float64]
    joint_rad_per_mw: NDArray[np.float64]

    @classmethod
    def none(cls, mesh: MeshTopology) -> ThermalCrosstalk:
        """Return crosstalk that is zero everywhere."""
        heaters = 2 * mesh.n_pucs
        return cls(np.zeros((heaters, heaters)), np.zeros((len(mesh.joints), heaters)))

    @classmethod
    def from_published_curve(cls, mesh: MeshTopology, p_pi_mw: float) -> ThermalCrosstalk:
        """Return the published curve of crosstalk against distance, applied to every heater and waveguide.

        The curve is the resonance shift of a six-PUC ring for π at another heater, 0.906·exp(-d/1.18 mm) + 0.12 pm (fit
        of the published samples, Teofilovic 2024). The other PUC was driven on both arms, so its heat per π is twice
        that of a single heater.

        Args:
            mesh: The mesh.
            p_pi_mw: Typical heat of one heater for π on its own arm.
        """

        def kernel(distance_mm: NDArray[np.float64]) -> NDArray[np.float64]:
            # The published shift is that of the whole ring, and each of its six PUCs contributes a sixth of it.
            rad_per_pi = (0.906 * np.exp(-distance_mm / 1.18) + 0.12) / _RING_PM_PER_PI / 6.0
            rad_per_mw: NDArray[np.float64] = rad_per_pi * np.pi / (2.0 * p_pi_mw)
            return rad_per_mw

        return HeaterDistances.from_mesh(mesh).crosstalk(kernel)

    def heated_cells(self, cells: UnitCells, heat_mw: NDArray[np.float64], p_pi_mw: NDArray[np.float64]) -> UnitCells:
        """Return cells with the phases of heated arms added, including crosstalk.

        Args:
            cells: Cells with all heaters off.
            heat_mw: Shape ``(2 n_pucs,)``, or ``(N, 2 n_pucs)`` for N samples; heat of every heater.
            p_pi_mw: Shape ``(2 n_pucs,)``; heat for π on the heater's own arm.
        """
        # The heater's own arm by its Pπ, all other arms by the crosstalk.
        arms = np.pi * heat_mw / p_pi_mw + heat_mw @ self.arm_rad_per_mw.T
        return replace(
            cells,
            phase_upper=cells.phase_upper + arms[..., 0::2],
            phase_lower=cells.phase_lower + arms[..., 1::2],
            joint_phase=cells.joint_phase + heat_mw @ self.joint_rad_per_mw.T,
        )
