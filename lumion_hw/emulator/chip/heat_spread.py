"""Thermal crosstalk: the phase that a heater adds to other arms and to joints (waveguides between PUCs).

Source: Teofilovic 2024, resonance shift of a ring of six PUCs while a PUC at distance d is heated for a phase of π. The
curve fits 0.906·exp(-d/1.18 mm) + 0.12 in pm. Both arms of that PUC were heated, so a heater needs half of the power.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.emulator.chip.effects import EffectSizes
from lumion_hw.mesh.layout.topology import MeshTopology

Real = NDArray[np.float64]

PUC_MM = 0.81141
"""Length of a PUC in mm (basic unit length, Sánchez-Jácome 2025), and of each side of a mesh cell (assumed)."""
_ARM_OFFSET_MM = 0.025  # half the distance between the two arms (assumed)
_FREE_SPECTRAL_RANGE_PM = 119.0  # of the ring of six
_DECAY_MM = 1.18


@dataclass(frozen=True, eq=False)
class HeatSpread:
    """Thermal crosstalk of E PUCs and J joints. Heater 2·PUC is on the upper arm of a PUC, 2·PUC + 1 on the lower arm.

    Attributes:
        arm_rad_per_mw: Shape ``(2E, 2E)``; phase of an arm (row) per heat of another arm's heater (column).
        joint_rad_per_mw: Shape ``(J, 2E)``; phase of a joint (row) per heat of a heater (column).
    """

    arm_rad_per_mw: Real
    joint_rad_per_mw: Real

    @classmethod
    def none(cls, mesh: MeshTopology) -> HeatSpread:
        """Return the heat spread of a chip without crosstalk."""
        n = 2 * mesh.n_pucs
        return cls(np.zeros((n, n)), np.zeros((len(mesh.joints), n)))

    @classmethod
    def draw(
        cls,
        mesh: MeshTopology,
        heat_per_pi_mw: float,
        sizes: EffectSizes,
        rng: np.random.Generator | None = None,
        *,
        scale: float = 1.0,
        other_arm: float = 0.0,
        oxide_decay_mm: float = 0.03,
    ) -> HeatSpread:
        """Draw the thermal crosstalk of one chip.

        Args:
            mesh: Layout of the mesh, with positions.
            heat_per_pi_mw: Typical heat of a heater for π on its own arm.
            sizes: Sizes of the imperfections.
            rng: Random numbers for the scatter; not needed without scatter.
            scale: Crosstalk through the substrate, relative to that of the published chip.
            other_arm: Crosstalk through the oxide: phase on the other arm of the PUC for a phase of 1 on the own arm.
            oxide_decay_mm: Distance over which the crosstalk through the oxide falls to 1/e, in mm.
        """
        heaters, joints = arm_centres_mm(mesh), mesh.joint_positions * PUC_MM

        def spread(mm: Real) -> Real:
            through_oxide = other_arm * np.pi / heat_per_pi_mw * np.exp((2.0 * _ARM_OFFSET_MM - mm) / oxide_decay_mm)
            total: Real = scale * _curve(mm, heat_per_pi_mw) + through_oxide
            return total

        arms = spread(_distances(heaters, heaters))
        arms[np.diag_indices_from(arms)] = 0.0  # the effect of a heater on its own arm is its Pπ
        onto_joints = spread(_distances(joints, heaters))
        on_edge = 1.0 + sizes.crosstalk_edge * _edge_share(heaters, mesh)
        spreads = []
        for centres, phase in ((heaters, arms), (joints, onto_joints)):
            scaled = phase * on_edge * _metal_factor(centres, heaters, sizes.crosstalk_routing)
            if rng is not None and sizes.crosstalk_scatter:
                sigma = sizes.crosstalk_scatter
                scaled = scaled * np.exp(sigma * rng.standard_normal(scaled.shape) - 0.5 * sigma**2)
            spreads.append(scaled)
        return cls(*spreads)


def arm_centres_mm(mesh: MeshTopology) -> Real:
    """Return the centres of the arms in mm, upper and lower arm alternately; shape ``(2E, 2)`` for E PUCs."""
    ends = mesh.end_positions * PUC_MM
    middle, direction = 0.5 * (ends[:, 0] + ends[:, 1]), ends[:, 1] - ends[:, 0]
    direction = direction / np.hypot(direction[:, 0], direction[:, 1])[:, None]
    # The upper arm lies on the left when looking from A to B.
    offset = _ARM_OFFSET_MM * np.column_stack([-direction[:, 1], direction[:, 0]])
    centres: Real = np.stack([middle + offset, middle - offset], axis=1).reshape(-1, 2)
    return centres


def _distances(to: Real, heaters: Real) -> Real:
    distances: Real = np.linalg.norm(to[:, None, :] - heaters[None, :, :], axis=2)
    return distances


def _curve(distance_mm: Real, heat_per_pi_mw: float) -> Real:
    shift_pm = 0.906 * np.exp(-distance_mm / _DECAY_MM) + 0.12
    ring_rad = 2.0 * np.pi * shift_pm / _FREE_SPECTRAL_RANGE_PM
    # The shift is that of six PUCs, for the heat of two heaters at π.
    per_puc: Real = ring_rad / 6.0 / (2.0 * heat_per_pi_mw)
    return per_puc


def _edge_share(heaters: Real, mesh: MeshTopology) -> Real:
    corners = mesh.end_positions.reshape(-1, 2) * PUC_MM
    low, high = corners.min(axis=0) - 0.5 * PUC_MM, corners.max(axis=0) + 0.5 * PUC_MM
    to_edge = np.minimum(heaters - low, high - heaters).min(axis=1)
    share: Real = np.exp(-to_edge / _DECAY_MM)
    return share


def _metal_factor(to: Real, heaters: Real, size: float) -> Real:
    """Return 1 + size·cos 2β; β is the angle between the metal lines and the line from heater to arm."""
    direction = to[:, None, :] - heaters[None, :, :]
    squared = (direction**2).sum(axis=2)
    cosine = np.divide(
        direction[..., 0] ** 2 - direction[..., 1] ** 2, squared, out=np.zeros_like(squared), where=squared > 0.0
    )
    factor: Real = 1.0 + size * cosine
    return factor
