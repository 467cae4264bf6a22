"""Derivatives by the adjoint method against central differences, parameter by parameter."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.waves.adjoint import CellGradient, gradient
from lumion_hw.mesh.waves.cell import UnitCells
from tests.mesh.waves.test_scattering import F0, MESHES, SOLVERS, fabricated

LAYOUT = (2, 3, 2)
MESH, SOLVER = MESHES[LAYOUT], SOLVERS[LAYOUT]
HZ = F0 + np.array([-2e11, 3e11])
INPUTS = [0, 5]
STEP = {"delay_s": 1e-16, "eta_slope_per_hz": 1e-17, "differential_slope_per_hz": 1e-16}


def dispersive(seed: int) -> UnitCells:
    n = MESH.n_pucs
    return replace(
        fabricated(MESH, seed),
        delay_s=np.full(n, 11.25e-12),
        eta_slope_per_hz=np.full(n, 1e-15),
        differential_slope_per_hz=np.full(n, 2e-13),
        joint_loss_db=np.full(len(MESH.joints), 0.02),
    )


@pytest.mark.parametrize("name", [field.name for field in fields(CellGradient)])
def test_the_gradient_of_detected_power_is_that_of_central_differences(name: str) -> None:
    cells = dispersive(1)
    weight = np.random.default_rng(7).normal(size=(2, MESH.n_ports, 2))

    def power(of: UnitCells) -> float:
        return float((weight * np.abs(SOLVER.solve(of, HZ, INPUTS)) ** 2).sum())

    cotangent = 2 * weight * SOLVER.solve(cells, HZ, INPUTS).conj()
    found = getattr(gradient(SOLVER, cells, HZ, cotangent, INPUTS), name)
    parameter, step = np.asarray(getattr(cells, name)), STEP.get(name, 1e-5)
    assert found.shape == (2, len(parameter))
    scale = np.abs(found.sum(axis=0)).max()
    for index in np.random.default_rng(8).choice(len(parameter), 6, replace=False):
        ahead, behind = parameter.copy(), parameter.copy()
        ahead[index] += step
        behind[index] -= step
        difference = (power(replace(cells, **{name: ahead})) - power(replace(cells, **{name: behind}))) / (2 * step)
        assert found[:, index].sum() == pytest.approx(difference, rel=1e-6, abs=1e-8 * scale)


def test_samples_have_a_gradient_each() -> None:
    cells = dispersive(2)
    phase = cells.phase_upper + np.array([[0.0], [0.4], [1.0]])
    cotangent = np.ones((3, MESH.n_ports, MESH.n_ports), dtype=complex)
    together = gradient(SOLVER, replace(cells, phase_upper=phase), F0, cotangent)
    for index in range(3):
        alone = gradient(SOLVER, replace(cells, phase_upper=phase[index]), F0, cotangent[index])
        np.testing.assert_allclose(together.eta_in[index], alone.eta_in, atol=1e-10)
        np.testing.assert_allclose(together.joint_phase[index], alone.joint_phase, atol=1e-10)


def test_a_cotangent_of_another_shape_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"the wrong shape, \(2, 2\)"):
        gradient(SOLVER, dispersive(1), F0, np.zeros((2, 2), dtype=complex))
