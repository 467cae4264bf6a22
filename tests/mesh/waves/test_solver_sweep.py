"""Sweeps of a few PUCs against full solutions of every step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.waves.cell import UnitCells
from lumion_hw.mesh.waves.sweep import SweepSolver
from tests.effort import examples
from tests.mesh.waves.test_scattering import F0, MESHES, SOLVERS, fabricated


def heated(cells: UnitCells, pucs: list[int], upper: np.ndarray) -> UnitCells:
    phase = np.repeat(cells.phase_upper[None], len(upper), axis=0)
    phase[:, pucs] += upper[:, None]
    return replace(cells, phase_upper=phase)


@examples(40)
@given(layout=st.sampled_from(list(MESHES)), seed=st.integers(0, 1000), n_pucs=st.integers(1, 3))
def test_every_step_is_what_a_full_solution_says(layout: tuple[int, ...], seed: int, n_pucs: int) -> None:
    mesh, solver, rng = MESHES[layout], SOLVERS[layout], np.random.default_rng(seed)
    pucs = rng.choice(mesh.n_pucs, n_pucs, replace=False).tolist()
    inputs = rng.choice(mesh.n_ports, 2, replace=False).tolist()
    cells = fabricated(mesh, seed)
    steps = heated(cells, pucs, np.linspace(0.0, 6.0, 5))
    sweep = SweepSolver(solver, cells, F0, pucs, inputs)
    result = sweep.solve(steps.transfer(F0)[:, pucs])
    np.testing.assert_allclose(result, solver.solve(steps, F0, inputs), atol=1e-12)


def test_a_sweep_of_all_inputs_is_the_whole_matrix() -> None:
    mesh, solver = MESHES[2, 3, 2], SOLVERS[2, 3, 2]
    cells = fabricated(mesh, 9)
    steps = heated(cells, [4], np.array([0.0, 1.0]))
    result = SweepSolver(solver, cells, F0, [4]).solve(steps.transfer(F0)[:, [4]])
    np.testing.assert_allclose(result, solver.solve(steps, F0), atol=1e-12)


@pytest.mark.parametrize(
    ("pucs", "frequency_hz", "found"),
    [([99], F0, r"PUCs \[99\]"), ([3, 3], F0, "one base setting"), ([3], np.array([F0]), "one base setting")],
)
def test_what_is_no_base_of_a_sweep_is_refused(pucs: list[int], frequency_hz: float, found: str) -> None:
    mesh, solver = MESHES[2, 3, 2], SOLVERS[2, 3, 2]
    with pytest.raises(ConfigError, match=found):
        SweepSolver(solver, fabricated(mesh, 1), frequency_hz, pucs)


def test_settings_of_another_number_of_pucs_are_refused() -> None:
    mesh, solver = MESHES[2, 3, 2], SOLVERS[2, 3, 2]
    sweep = SweepSolver(solver, fabricated(mesh, 1), F0, [1, 2])
    with pytest.raises(ConfigError, match=r"\(4, 1, 2, 2\)"):
        sweep.solve(np.zeros((4, 1, 2, 2), dtype=complex))
