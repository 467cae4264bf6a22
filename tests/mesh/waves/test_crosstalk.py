"""Thermal crosstalk between heaters and waveguides, against the published samples (Teofilovic 2024)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.mesh.record.calibration_record import CrosstalkEntry, CrosstalkKernel, ExtraPhysics
from lumion_hw.mesh.waves.crosstalk import BUL_MM, HeaterDistances, ThermalCrosstalk
from lumion_hw.mesh.waves.facets import entering_fraction
from tests.mesh.sample_record import CELL, sample_record
from tests.mesh.waves.test_scattering import MESHES, fabricated

MESH = MESHES[2, 3, 2]


@pytest.mark.parametrize(("distance_mm", "pm_per_pi"), [(0.9, 0.56), (1.5, 0.38), (2.0, 0.275), (2.5, 0.21)])
def test_heat_at_a_distance_turns_as_much_as_was_measured(
    smartlight: HexMesh, distance_mm: float, pm_per_pi: float
) -> None:
    """Shift of a six-PUC ring (FSR 119 pm) per π of an aggressor driven on both arms of 1.34 mW per π."""
    crosstalk = ThermalCrosstalk.from_published_curve(smartlight, 1.34)
    centres = smartlight.puc_centres * BUL_MM
    distance = np.linalg.norm(centres[:, None] - centres[None], axis=2)
    common = crosstalk.arm_rad_per_mw.reshape(72, 2, 72, 2).sum(axis=(1, 3)) / 4 * 2 * 1.34
    apart = ~np.eye(72, dtype=bool)
    order = np.argsort(distance[apart])
    share = np.interp(distance_mm, distance[apart][order], common[apart][order])
    assert 6 * share / (2 * np.pi) * 119 == pytest.approx(pm_per_pi, abs=0.04)


def test_with_all_others_at_pi_a_puc_is_turned_by_a_tenth_to_a_third_of_a_radian(smartlight: HexMesh) -> None:
    crosstalk = ThermalCrosstalk.from_published_curve(smartlight, 1.34)
    shift = crosstalk.arm_rad_per_mw @ np.full(144, 1.34)
    assert 0.1 < np.median(shift) < 0.6


def test_warmed_cells_have_the_phase_of_their_own_heat_and_a_little_of_their_neighbours() -> None:
    cells = fabricated(MESH, 1)
    crosstalk = ThermalCrosstalk.from_published_curve(MESH, 1.34)
    heat = np.zeros((2, 2 * MESH.n_pucs))
    heat[1, 8] = 1.34  # arm u of PUC 4
    warm = crosstalk.heated_cells(cells, heat, np.full(2 * MESH.n_pucs, 1.34))
    np.testing.assert_array_equal(warm.phase_upper[0], cells.phase_upper)
    assert warm.phase_upper[1, 4] - cells.phase_upper[4] == pytest.approx(np.pi)
    turned = np.delete(warm.phase_upper[1] - cells.phase_upper, 4)
    assert 0 < turned.min() < turned.max() < 0.02
    assert (warm.joint_phase[1] > cells.joint_phase).all()


def _off(rise: tuple[float, float], way: tuple[float, float]) -> float:
    """Return what the first arm of the PUC that lies that way gets more than alike in all directions, as a share."""
    distances = HeaterDistances.from_mesh(MESH)
    arms = np.repeat(MESH.puc_centres, 2, axis=0)
    alike = distances.crosstalk(np.ones_like)
    found = distances.directed(alike, np.array(rise)).arm_rad_per_mw
    here = int(np.argmin(np.linalg.norm(MESH.puc_centres - MESH.puc_centres.mean(axis=0), axis=1)))
    angle = np.arctan2(*(arms - arms[2 * here]).T[::-1])
    # The way there and the way back are one direction.
    turned = np.exp(2j * (angle - np.arctan2(way[1], way[0])))
    distance = np.linalg.norm(arms - arms[2 * here], axis=1)
    there = int(np.argmin(np.where(distance > 0.5, np.abs(turned - 1.0) - 1e-6 * distance, np.inf)))
    return float(found[there, 2 * here] - 1.0)


def test_crosstalk_rises_along_one_direction_and_falls_across_it() -> None:
    assert _off((0.1, 0.0), (1.0, 0.0)) == pytest.approx(0.1, abs=0.01)
    assert _off((0.1, 0.0), (0.0, 1.0)) == pytest.approx(-0.1, abs=0.01)
    # 30° off the axis, where PUCs of a hexagonal mesh lie: cos 60° and sin 60°.
    assert _off((0.1, 0.0), (np.sqrt(3.0), 1.0)) == pytest.approx(0.05, abs=0.01)
    assert _off((0.0, 0.1), (np.sqrt(3.0), 1.0)) == pytest.approx(0.1 * np.sqrt(0.75), abs=0.01)


def test_crosstalk_rises_towards_one_side_and_falls_towards_the_other() -> None:
    distances = HeaterDistances.from_mesh(MESH)
    found = distances.directed(distances.crosstalk(np.ones_like), None, np.array([0.1, 0.0])).arm_rad_per_mw - 1.0
    x = np.repeat(MESH.puc_centres[:, 0], 2)
    np.testing.assert_array_equal(
        np.sign(np.round(found, 3))[np.abs(x[:, None] - x) > 0.5], np.sign(x[:, None] - x)[np.abs(x[:, None] - x) > 0.5]
    )
    off_diagonal = ~np.eye(len(x), dtype=bool)
    np.testing.assert_allclose((found + found.T)[off_diagonal], 0.0, atol=1e-12)
    assert np.abs(found[off_diagonal]).max() <= 0.1 + 1e-12


@pytest.mark.parametrize("name", ["crosstalk_directions", "crosstalk_sides"])
def test_a_record_that_knows_of_a_direction_is_programmed_with_it(name: str) -> None:
    kernel = CrosstalkEntry(kernel=CrosstalkKernel(3e-3, 1.18, 4e-4, BUL_MM))
    plain = sample_record(crosstalk=kernel)
    guided = replace(plain, physics=(ExtraPhysics(name, "", 2, 0.1, 50.0, (0.2, 0.0)),))
    currents = np.zeros((2, 2 * CELL.n_pucs))
    currents[1, 6] = 2.0
    phases = [
        np.diff(CalibratedMesh.from_record(record).cells(currents).joint_phase, axis=0)[0] for record in (plain, guided)
    ]
    distances = HeaterDistances.from_mesh(CELL)
    angles = distances.joint_turns if name == "crosstalk_directions" else distances.joint_sides
    np.testing.assert_allclose(phases[1] / phases[0], 1.0 + 0.2 * angles[0][:, 6])


def test_a_record_is_programmed_with_the_heat_that_reaches_the_other_arm() -> None:
    plain = sample_record()
    warm = replace(plain, physics=(ExtraPhysics("both_arms_share", "", 1, 0.1, 50.0, (0.05,)),))
    currents = np.zeros((2, 2 * CELL.n_pucs))
    currents[1, 6] = 2.0  # the upper heater of PUC 3
    upper, lower = (
        [
            np.diff(getattr(CalibratedMesh.from_record(record).cells(currents), arm), axis=0)[0]
            for record in (plain, warm)
        ]
        for arm in ("phase_upper", "phase_lower")
    )
    # The law is the phase difference of the arms.
    for added in (upper[1] - upper[0], lower[1] - lower[0]):
        assert added[3] == pytest.approx(0.05 * upper[0][3])
        assert np.count_nonzero(added) == 1


def test_no_crosstalk_leaves_the_neighbours_alone() -> None:
    cells = fabricated(MESH, 1)
    heat = np.ones(2 * MESH.n_pucs)
    warm = ThermalCrosstalk.none(MESH).heated_cells(cells, heat, np.full(2 * MESH.n_pucs, 2.0))
    np.testing.assert_allclose(warm.phase_lower - cells.phase_lower, np.pi / 2)
    np.testing.assert_array_equal(warm.joint_phase, cells.joint_phase)


def test_the_mesh_takes_te_and_lets_through_a_thousandth_of_tm() -> None:
    te, tm, half = np.array([1, 0]), np.array([0, 1j]), np.array([1, 1j]) / np.sqrt(2)
    fraction = entering_fraction(np.array([te, tm, half]), 3.0, 30.0)
    np.testing.assert_allclose(10 * np.log10(fraction), [-3.0, -33.0, -3.0 + 10 * np.log10(0.5 * 1.001)], atol=1e-9)
