"""Thermal crosstalk between heaters and waveguides, against the published samples (Teofilovic 2024)."""

from __future__ import annotations

import numpy as np
import pytest
from test_scattering import MESHES, fabricated

from lumion_hw.mesh.crosstalk import BUL_MM, ThermalCrosstalk
from lumion_hw.mesh.facets import entering_fraction
from lumion_hw.mesh.hexagonal import HexMesh

MESH = MESHES[2, 3, 2]


@pytest.mark.parametrize(("distance_mm", "pm_per_pi"), [(0.9, 0.56), (1.5, 0.38), (2.0, 0.275), (2.5, 0.21)])
def test_heat_at_a_distance_turns_as_much_as_was_measured(
    smartlight: HexMesh, distance_mm: float, pm_per_pi: float
) -> None:
    """Shift of a six-PUC ring (FSR 119 pm) per π of an aggressor driven on both arms of 1.34 mW per π."""
    crosstalk = ThermalCrosstalk.by_distance(smartlight, 1.34)
    centres = smartlight.puc_centres * BUL_MM
    distance = np.linalg.norm(centres[:, None] - centres[None], axis=2)
    common = crosstalk.arm_rad_per_mw.reshape(72, 2, 72, 2).sum(axis=(1, 3)) / 4 * 2 * 1.34
    apart = ~np.eye(72, dtype=bool)
    order = np.argsort(distance[apart])
    share = np.interp(distance_mm, distance[apart][order], common[apart][order])
    assert 6 * share / (2 * np.pi) * 119 == pytest.approx(pm_per_pi, abs=0.04)


def test_with_all_others_at_pi_a_puc_is_turned_by_a_tenth_to_a_third_of_a_radian(smartlight: HexMesh) -> None:
    crosstalk = ThermalCrosstalk.by_distance(smartlight, 1.34)
    shift = crosstalk.arm_rad_per_mw @ np.full(144, 1.34)
    assert 0.1 < np.median(shift) < 0.6


def test_warmed_cells_have_the_phase_of_their_own_heat_and_a_little_of_their_neighbours() -> None:
    cells = fabricated(MESH, 1)
    crosstalk = ThermalCrosstalk.by_distance(MESH, 1.34)
    heat = np.zeros((2, 2 * MESH.n_pucs))
    heat[1, 8] = 1.34  # arm u of PUC 4
    warm = crosstalk.warmed(cells, heat, np.full(2 * MESH.n_pucs, 1.34))
    np.testing.assert_array_equal(warm.phase_upper[0], cells.phase_upper)
    assert warm.phase_upper[1, 4] - cells.phase_upper[4] == pytest.approx(np.pi)
    turned = np.delete(warm.phase_upper[1] - cells.phase_upper, 4)
    assert 0 < turned.min() < turned.max() < 0.02
    assert (warm.joint_phase[1] > cells.joint_phase).all()


def test_no_crosstalk_leaves_the_neighbours_alone() -> None:
    cells = fabricated(MESH, 1)
    heat = np.ones(2 * MESH.n_pucs)
    warm = ThermalCrosstalk.none(MESH).warmed(cells, heat, np.full(2 * MESH.n_pucs, 2.0))
    np.testing.assert_allclose(warm.phase_lower - cells.phase_lower, np.pi / 2)
    np.testing.assert_array_equal(warm.joint_phase, cells.joint_phase)


def test_the_mesh_takes_te_and_lets_through_a_thousandth_of_tm() -> None:
    te, tm, half = np.array([1, 0]), np.array([0, 1j]), np.array([1, 1j]) / np.sqrt(2)
    fraction = entering_fraction(np.array([te, tm, half]), 3.0, 30.0)
    np.testing.assert_allclose(10 * np.log10(fraction), [-3.0, -33.0, -3.0 + 10 * np.log10(0.5 * 1.001)], atol=1e-9)
