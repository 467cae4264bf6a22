"""Circuits whose answer is known in closed form: a ring, a Mach-Zehnder, both on the SmartLight-class mesh."""

from __future__ import annotations

import numpy as np
import pytest

from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.waves.cell import UnitCells
from lumion_hw.mesh.waves.scattering import Solver
from tests.mesh.waves.test_scattering import F0, HALF_TURN

DELAY_S, LOSS_DB = 11.25e-12, 0.5


def ring(mesh: HexMesh, through: float) -> UnitCells:
    """All bar but PUC 15, which keeps ``through`` of the field on the rail from port 3 to 4, beside a ring of 6."""
    theta = np.full(72, HALF_TURN)
    theta[15] = np.arcsin(through)
    return UnitCells.ideal(72, len(mesh.joints), theta, LOSS_DB)


def test_a_ring_of_six_repeats_every_14_8_ghz(smartlight: HexMesh, solver: Solver) -> None:
    hz = F0 + np.linspace(0.0, 40e9, 8001)
    power = np.abs(solver.solve(ring(smartlight, 0.8), hz, [3])[:, 4, 0]) ** 2
    dips = np.flatnonzero((power[1:-1] < power[:-2]) & (power[1:-1] < power[2:])) + 1
    spacing_hz = np.diff(hz[dips])
    assert len(spacing_hz) >= 1
    assert spacing_hz == pytest.approx(1.0 / (6 * DELAY_S), abs=2 * (hz[1] - hz[0]))


@pytest.mark.parametrize("through", [0.3, 0.6, 0.9])
def test_a_ring_dips_as_deep_as_its_coupling_and_loss_say(smartlight: HexMesh, solver: Solver, through: float) -> None:
    """All-pass ring with round-trip amplitude a: |t - a·e^{-jφ}|² / |1 - t·a·e^{-jφ}|², times the loss of the PUC."""
    hz = F0 + np.linspace(0.0, 1.0 / (6 * DELAY_S), 20001)
    power = np.abs(solver.solve(ring(smartlight, through), hz, [3])[:, 4, 0]) ** 2
    once, around = 10 ** (-LOSS_DB / 10), 10 ** (-6 * LOSS_DB / 20)
    assert power.min() == pytest.approx(once * ((through - around) / (1 - through * around)) ** 2, rel=1e-5, abs=1e-9)
    assert power.max() == pytest.approx(once * ((through + around) / (1 + through * around)) ** 2, rel=1e-5)


def test_two_equal_ways_interfere_as_a_mach_zehnder(smartlight: HexMesh, solver: Solver) -> None:
    """Ways 0 6 10 16 20 25 28 and 0 6 9 15 19 25 28 part in PUC 6 and meet in PUC 25, both at k = ½."""
    theta = np.zeros(72)
    theta[[15, 16, 28]] = HALF_TURN
    theta[[6, 25]] = np.pi / 4
    delta = np.linspace(0.0, 2 * np.pi, 33)
    common = np.zeros((33, 72))
    common[:, 9] = delta
    joints, half = len(smartlight.joints), np.full(72, 0.5)
    cells = UnitCells(np.full(72, LOSS_DB), half, half, theta + common, common - theta, np.zeros(joints))
    power = np.abs(solver.solve(cells, F0, [0])[:, 6, 0]) ** 2
    arrives = 10 ** (-7 * LOSS_DB / 10)
    start = power[0] / arrives
    assert start == pytest.approx(round(start), abs=1e-9), "the ways are equal: all the light or none"
    sign = 2 * start - 1
    np.testing.assert_allclose(power, arrives * (1 + sign * np.cos(delta)) / 2, atol=1e-12)


def test_light_that_leaves_where_it_came_in_is_not_forgotten(smartlight: HexMesh, solver: Solver) -> None:
    """Clockwise and anticlockwise light do not decouple on hexagons: a port can reach itself."""
    rng = np.random.default_rng(1)
    theta = rng.uniform(0.0, np.pi, 72)
    cells = UnitCells.ideal(72, len(smartlight.joints), theta, LOSS_DB)
    matrix = solver.solve(cells, F0)
    assert np.abs(np.diag(matrix)).max() > 1e-3
