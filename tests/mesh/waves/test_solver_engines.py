"""The fixed elimination, compiled and in numpy, against a dense solution, over batches of every kind."""

from __future__ import annotations

import importlib.util
import logging
from dataclasses import replace

import numpy as np
import pytest

from lumion_hw.errors import ConfigError, LumionError
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.waves.cell import UnitCells
from lumion_hw.mesh.waves.elimination import compile_elimination, dissect
from lumion_hw.mesh.waves.scattering import Solver
from tests.mesh.waves.test_scattering import F0, HALF_TURN, MESHES, dense_waves, fabricated

NUMBA = importlib.util.find_spec("numba") is not None
both = pytest.mark.parametrize(
    "compiled",
    [False, pytest.param(True, marks=pytest.mark.skipif(not NUMBA, reason="numba, of the extra fast, is not there"))],
)
MESH = MESHES[2, 3, 2]
HZ = F0 + np.linspace(-1.3e12, 1.3e12, 21)  # more than a group of lanes, and no multiple of it


def dense(mesh: HexMesh, cells: UnitCells, frequency_hz: float) -> np.ndarray:
    scatter, waves = dense_waves(mesh, cells, frequency_hz)
    return (scatter @ waves)[mesh.port_puc_port]


@both
@pytest.mark.parametrize("n", [1, 7, 8, 9, 21])
def test_any_number_of_wavelengths_agrees_with_dense_solutions(compiled: bool, n: int) -> None:
    cells = fabricated(MESH, 1)
    solver = Solver(MESH, compiled=compiled)
    expected = np.stack([dense(MESH, cells, hz) for hz in HZ[:n]])
    np.testing.assert_allclose(solver.solve(cells, HZ[:n]), expected, atol=1e-12)
    np.testing.assert_allclose(solver.solve(cells, HZ[:n], [4, 1]), expected[:, :, [4, 1]], atol=1e-12)


@both
def test_samples_and_wavelengths_are_the_leading_axes(compiled: bool) -> None:
    draws = [fabricated(MESH, seed) for seed in range(5)]
    stacked = replace(draws[0], phase_upper=np.stack([draw.phase_upper for draw in draws]))
    solver = Solver(MESH, compiled=compiled)
    result = solver.solve(stacked, HZ[:3], [2])
    assert result.shape == (3, 5, MESH.n_ports, 1)
    for w, hz in enumerate(HZ[:3]):
        for n, draw in enumerate(draws):
            one = replace(draws[0], phase_upper=draw.phase_upper)
            np.testing.assert_allclose(result[w, n], dense(MESH, one, hz)[:, [2]], atol=1e-12)
    assert solver.solve(stacked, F0).shape == (5, MESH.n_ports, MESH.n_ports)
    assert solver.waves(stacked, F0, [0]).shape == (5, 4 * MESH.n_pucs, 1)


@both
def test_every_parameter_may_have_samples_and_the_dispersion_a_value_per_puc(compiled: bool) -> None:
    rng, n = np.random.default_rng(3), 9
    base = fabricated(MESH, 5)
    joints, pucs = len(MESH.joints), MESH.n_pucs
    changes = {
        "loss_db": rng.uniform(0.4, 0.6, (n, pucs)),
        "eta_in": rng.uniform(0.47, 0.53, (n, pucs)),
        "joint_phase": rng.uniform(0.0, 6.0, (n, joints)),
        "delay_s": rng.uniform(10e-12, 12e-12, (n, pucs)),
        "eta_slope_per_hz": rng.normal(0.0, 1e-15, pucs),
        "differential_slope_per_hz": rng.normal(0.0, 2e-13, (n, pucs)),
    }
    result = Solver(MESH, compiled=compiled).solve(replace(base, **changes), F0 + 2e11)
    for index in (0, 8):
        one = {name: value[index] if value.ndim == 2 else value for name, value in changes.items()}
        cells = replace(base, **one)
        scatter = np.zeros((4 * pucs, 4 * pucs), dtype=complex)
        for puc, transfer in enumerate(cells.transfer(F0 + 2e11)):
            scatter[4 * puc + 2 : 4 * puc + 4, 4 * puc : 4 * puc + 2] = transfer
            scatter[4 * puc : 4 * puc + 2, 4 * puc + 2 : 4 * puc + 4] = transfer.T
        joined = np.zeros_like(scatter)
        u, v = MESH.joints.T
        joined[u, v] = joined[v, u] = np.exp(-1j * one["joint_phase"])
        injected = np.zeros((4 * pucs, MESH.n_ports))
        injected[MESH.port_puc_port, np.arange(MESH.n_ports)] = 1.0
        waves = np.linalg.solve(np.eye(4 * pucs) - joined @ scatter, injected)
        np.testing.assert_allclose(result[index], (scatter @ waves)[MESH.port_puc_port], atol=1e-12)


def test_a_lossy_joint_takes_its_share_of_every_wave_that_passes(smartlight: HexMesh) -> None:
    """The path 0x 6x 10x 16= 20= 19x passes five joints (Sánchez-Jácome 2025)."""
    theta = np.where(np.isin(np.arange(72), (16, 20)), HALF_TURN, 0.0)
    cells = replace(UnitCells.ideal(72, len(smartlight.joints), theta, 0.5), joint_loss_db=0.2)
    power = np.abs(Solver(smartlight).solve(cells, F0, [0])[5, 0]) ** 2
    assert 10 * np.log10(power) == pytest.approx(-(6 * 0.5 + 5 * 0.2), abs=1e-9)


@both
def test_a_nearly_lossless_resonance_is_solved_with_pivoting_and_said(
    compiled: bool, caplog: pytest.LogCaptureFixture, smartlight: HexMesh
) -> None:
    # All bar: 34 closed rings without loss. PUC 15 couples 1e-9 of the power into its ring, which is on resonance.
    theta = np.full(72, HALF_TURN)
    cells = UnitCells.ideal(72, len(smartlight.joints), theta)
    joint_phase = np.random.default_rng(2).uniform(0.3, 0.4, len(smartlight.joints))
    leaky = replace(cells, phase_upper=theta - 3e-5, phase_lower=-theta + 3e-5, joint_phase=joint_phase)
    solver = Solver(smartlight, compiled=compiled)
    with caplog.at_level(logging.INFO, "lumion_hw.mesh.waves.engines"):
        solver.solve(replace(leaky, loss_db=np.full(72, 0.5)), HZ, [3])
        assert not caplog.records, "with loss there is nothing to fear"
        hz = F0 + resonance_hz(solver, leaky)
        found = solver.solve(leaky, hz + np.linspace(-1e3, 1e3, 9), [3])
    if compiled:
        assert "with pivoting" in caplog.text
    np.testing.assert_allclose((np.abs(found) ** 2).sum(axis=1), 1.0, atol=1e-6)


def resonance_hz(solver: Solver, cells: UnitCells) -> float:
    """Return the detuning at which the ring behind PUC 15 turns light by a whole number of turns."""
    mesh = solver.mesh
    inner = [puc_port for puc_port in range(60, 64) if mesh.mate[puc_port] >= 0]
    phase, node = 0.0, inner[0]
    joint = {tuple(pair): value for pair, value in zip(mesh.joints.tolist(), cells.joint_phase, strict=True)}
    transfer = cells.transfer(F0)
    for _ in range(6):
        rail = node % 2
        phase -= float(np.angle(transfer[node // 4, rail, rail]))
        leaving = node ^ 2
        node = int(mesh.mate[leaving])
        phase += joint[min(leaving, node), max(leaving, node)]
    return -(phase % (2 * np.pi)) / (2 * np.pi * 6 * 11.25e-12)


@both
def test_an_undamped_closed_ring_is_an_error_that_says_so(compiled: bool) -> None:
    mesh = MESHES[1,]
    none = np.zeros(mesh.n_pucs)  # couplers that couple nothing keep light on its rail, exactly
    cells = UnitCells(none, none, none, none, none, np.zeros(len(mesh.joints)))
    with pytest.raises(LumionError, match="closed ring without loss"):
        Solver(mesh, compiled=compiled).solve(cells, F0)


def test_without_numba_the_compiled_solver_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'lumion-hw\[fast\]'"):
        Solver(MESH, compiled=True)
    cells = fabricated(MESH, 1)
    np.testing.assert_allclose(Solver(MESH).solve(cells, F0), dense(MESH, cells, F0), atol=1e-12)


def test_samples_that_do_not_agree_are_refused() -> None:
    cells = fabricated(MESH, 1)
    with pytest.raises(ConfigError, match=r"eta_in \(2, 29\), eta_out \(3, 29\)"):
        Solver(MESH).solve(replace(cells, eta_in=np.full((2, 29), 0.5), eta_out=np.full((3, 29), 0.5)), F0)


def test_a_dissection_names_every_puc_once_and_keeps_the_fill_small(smartlight: HexMesh) -> None:
    order = dissect(smartlight)
    assert sorted(order.tolist()) == list(range(72))
    place = np.argsort(order)
    joined = np.flatnonzero(smartlight.mate >= 0)
    waves = np.lexsort((np.arange(288), place[np.arange(288) // 4]))
    at = np.argsort(waves)
    mate = smartlight.mate[joined]
    rows = np.concatenate([np.arange(288), at[np.repeat(joined, 2)]])
    columns = np.concatenate([np.arange(288), at[np.stack([mate ^ 2, mate ^ 3], 1).ravel()]])
    program = compile_elimination(rows, columns, 288, 288)
    # Ordering by minimum degree alone takes 8.4 k products.
    assert len(program.target) + len(program.below) < 8400


def test_an_elimination_solves_a_small_dense_matrix() -> None:
    rng = np.random.default_rng(1)
    matrix = rng.normal(size=(4, 4)) + 8 * np.eye(4)
    rows, columns = np.indices((4, 4)).reshape(2, -1)
    program = compile_elimination(rows, columns, 4, 4)
    work = matrix.ravel()[np.argsort(program.slots(rows, columns))].copy()
    done = 0
    for k in range(4):
        below = program.below[program.below_start[k] : program.below_start[k + 1]]
        right = program.right[program.right_start[k] : program.right_start[k + 1]]
        work[below] /= work[program.pivot[k]]
        count = len(below) * len(right)
        work[program.target[done : done + count]] -= np.outer(work[below], work[right]).ravel()
        done += count
    pivots = work[program.pivot]
    assert np.prod(pivots) == pytest.approx(np.linalg.det(matrix))
