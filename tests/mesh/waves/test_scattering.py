from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.layout.topology import State
from lumion_hw.mesh.waves.cell import UnitCells
from lumion_hw.mesh.waves.scattering import Solver
from tests.effort import examples

F0 = 193.4145e12
HALF_TURN = math.pi / 2  # θ of the bar state

MESHES = {cells: HexMesh.columns(cells) for cells in [(1,), (2, 1), (2, 3, 2), (3, 2, 3), (2, 3, 2, 3, 2, 3, 2)]}
SOLVERS = {cells: Solver(mesh) for cells, mesh in MESHES.items()}
layouts = pytest.mark.parametrize("cells", MESHES, ids=lambda cells: "-".join(map(str, cells)))


def fabricated(mesh: HexMesh, seed: int, *, lossless: bool = False) -> UnitCells:
    """A mesh as it leaves the fab: random phases everywhere, uneven couplers and losses, dispersive."""
    rng = np.random.default_rng(seed)
    n, joints = mesh.n_pucs, len(mesh.joints)
    return UnitCells(
        loss_db=np.zeros(n) if lossless else rng.uniform(0.46, 0.55, n),
        eta_in=rng.uniform(0.47, 0.53, n),
        eta_out=rng.uniform(0.47, 0.53, n),
        phase_upper=rng.uniform(0, 2 * math.pi, n),
        phase_lower=rng.uniform(0, 2 * math.pi, n),
        joint_phase=rng.uniform(0, 2 * math.pi, joints),
        eta_slope_per_hz=1e-15,
        differential_slope_per_hz=2e-13,
    )


def binary(mesh: HexMesh, seed: int, loss_db: NDArray[np.float64]) -> tuple[UnitCells, dict[int, State]]:
    """Ideal couplers in random bar and cross states with random joint phases, and those states."""
    rng = np.random.default_rng(seed)
    bar = rng.integers(0, 2, mesh.n_pucs).astype(bool)
    theta, half = np.where(bar, HALF_TURN, 0.0), np.full(mesh.n_pucs, 0.5)
    cells = UnitCells(loss_db, half, half, theta, -theta, rng.uniform(0, 2 * math.pi, len(mesh.joints)))
    return cells, {puc: cast(State, "bar" if bit else "cross") for puc, bit in enumerate(bar.tolist())}


# ------------------------------------------------------------------------------------------------------- the oracle


def dense_waves(mesh: HexMesh, cells: UnitCells, frequency_hz: float) -> tuple[NDArray, NDArray]:
    """Return S (4E x 4E, block-diagonal) and the waves entering every PUC-port, from the definition alone.

    a = C·S·a + x with S = [[0, Tᵀ], [T, 0]] per PUC in the order AL, AR, BL, BR (docs/calibration.md, 2).
    """
    n = 4 * mesh.n_pucs
    scatter, joined = np.zeros((n, n), dtype=complex), np.zeros((n, n), dtype=complex)
    detuning_hz = frequency_hz - cells.reference_hz
    for e in range(mesh.n_pucs):
        half = cells.differential_slope_per_hz * detuning_hz / 2
        arms = np.diag(np.exp([-1j * (cells.phase_upper[e] + half), -1j * (cells.phase_lower[e] - half)]))
        gain = 10 ** (-cells.loss_db[e] / 20) * np.exp(-2j * math.pi * detuning_hz * cells.delay_s)
        slope = cells.eta_slope_per_hz * detuning_hz
        transfer = gain * coupler(cells.eta_out[e] + slope) @ arms @ coupler(cells.eta_in[e] + slope)
        scatter[4 * e + 2 : 4 * e + 4, 4 * e : 4 * e + 2] = transfer
        scatter[4 * e : 4 * e + 2, 4 * e + 2 : 4 * e + 4] = transfer.T
    for (one, other), phase in zip(mesh.joints.tolist(), cells.joint_phase, strict=True):
        joined[one, other] = joined[other, one] = np.exp(-1j * phase)
    if cells.joint_reflection is not None:  # to the middle of the joint and back
        sent = np.split(cells.joint_reflection, 2)
        for end, amplitude in zip(mesh.joints.T, sent, strict=True):
            joined[end, end] = amplitude * np.exp(-1j * cells.joint_phase)
    if cells.facet_reflection is not None:
        joined[mesh.port_puc_port, mesh.port_puc_port] = cells.facet_reflection
    injected = np.zeros((n, mesh.n_ports), dtype=complex)
    injected[mesh.port_puc_port, np.arange(mesh.n_ports)] = 1.0
    return scatter, np.linalg.solve(np.eye(n) - joined @ scatter, injected)


def coupler(eta: float) -> NDArray:
    through, cross = math.sqrt(1 - eta), math.sqrt(eta)
    return np.array([[through, -1j * cross], [-1j * cross, through]])


@layouts
@pytest.mark.parametrize("detuning_hz", [0.0, -1.3e12])
def test_the_solver_agrees_with_a_dense_solution_of_the_definition(cells: tuple[int, ...], detuning_hz: float) -> None:
    mesh, solver = MESHES[cells], SOLVERS[cells]
    unit_cells = fabricated(mesh, seed=len(cells))
    scatter, waves = dense_waves(mesh, unit_cells, F0 + detuning_hz)
    np.testing.assert_allclose(
        solver.solve(unit_cells, F0 + detuning_hz), (scatter @ waves)[mesh.port_puc_port], atol=1e-12
    )
    np.testing.assert_allclose(solver.waves(unit_cells, F0 + detuning_hz, range(mesh.n_ports)), waves, atol=1e-12)


@layouts
@pytest.mark.parametrize("compiled", [None, False])
@pytest.mark.parametrize(("joints", "facets"), [(True, True), (True, False), (False, True)])
def test_so_it_does_where_joints_and_facets_send_light_back(
    cells: tuple[int, ...], compiled: bool | None, joints: bool, facets: bool
) -> None:
    mesh, rng = MESHES[cells], np.random.default_rng(9)
    amplitude = 0.2 * rng.standard_normal((2, 2 * len(mesh.joints) + mesh.n_ports)).T @ [1.0, 1.0j]
    unit_cells = replace(
        fabricated(mesh, seed=len(cells)),
        joint_reflection=amplitude[mesh.n_ports :] if joints else None,
        facet_reflection=amplitude[: mesh.n_ports] if facets else None,
    )
    solver = Solver(mesh, compiled=compiled)
    scatter, waves = dense_waves(mesh, unit_cells, F0)
    leaving = (scatter @ waves)[mesh.port_puc_port]
    np.testing.assert_allclose(solver.solve(unit_cells, F0), leaving, atol=1e-11)
    np.testing.assert_allclose(solver.solve(unit_cells, F0, [0]), leaving[:, :1], atol=1e-11)
    np.testing.assert_allclose(solver.waves(unit_cells, F0), waves, atol=1e-11)


# ------------------------------------------------------------------------------------------------------------ physics


@examples(25)
@given(cells=st.sampled_from(list(MESHES)), seed=st.integers(0, 2**32 - 1))
def test_light_goes_both_ways_alike(cells: tuple[int, ...], seed: int) -> None:
    matrix = SOLVERS[cells].solve(fabricated(MESHES[cells], seed), F0)
    assert np.max(np.abs(matrix - matrix.T)) < 1e-12


@examples(25)
@given(cells=st.sampled_from(list(MESHES)), seed=st.integers(0, 2**32 - 1))
def test_a_lossless_mesh_keeps_all_the_energy(cells: tuple[int, ...], seed: int) -> None:
    matrix = SOLVERS[cells].solve(fabricated(MESHES[cells], seed, lossless=True), F0)
    np.testing.assert_allclose(matrix.conj().T @ matrix, np.eye(len(matrix)), atol=1e-12)


@examples(25)
@given(cells=st.sampled_from(list(MESHES)), seed=st.integers(0, 2**32 - 1))
def test_a_lossy_mesh_never_gives_out_more_than_it_takes(cells: tuple[int, ...], seed: int) -> None:
    """Every path passes at least one PUC, so each input loses at least the smallest PUC loss."""
    matrix = SOLVERS[cells].solve(fabricated(MESHES[cells], seed), F0)
    largest_gain = np.linalg.norm(matrix, ord=2) ** 2
    assert largest_gain <= 10 ** (-0.46 / 10) + 1e-12


def test_each_port_of_a_lossy_mesh_loses_power(smartlight: HexMesh, solver: Solver) -> None:
    powers = np.abs(solver.solve(fabricated(smartlight, 3), F0)) ** 2
    assert np.all(powers.sum(axis=0) < 1.0)


# ------------------------------------------------------------------------------------------- the solver as path tracer


@examples(60)
@given(cells=st.sampled_from(list(MESHES)), seed=st.integers(0, 2**32 - 1))
def test_light_in_a_lossless_mesh_of_bars_and_crosses_leaves_where_the_path_ends(
    cells: tuple[int, ...], seed: int
) -> None:
    mesh = MESHES[cells]
    unit_cells, states = binary(mesh, seed, np.zeros(mesh.n_pucs))
    powers = np.abs(SOLVERS[cells].solve(unit_cells, F0)) ** 2
    expected = np.zeros((mesh.n_ports, mesh.n_ports))
    for port in range(mesh.n_ports):
        expected[mesh.trace(port, states).port, port] = 1.0
    np.testing.assert_allclose(powers, expected, atol=1e-12)


@examples(60)
@given(cells=st.sampled_from(list(MESHES)), seed=st.integers(0, 2**32 - 1))
def test_a_path_loses_what_its_pucs_lose(cells: tuple[int, ...], seed: int) -> None:
    mesh = MESHES[cells]
    loss_db = np.random.default_rng(seed).uniform(0.3, 2.0, mesh.n_pucs)
    unit_cells, states = binary(mesh, seed, loss_db)
    powers = np.abs(SOLVERS[cells].solve(unit_cells, F0)) ** 2
    for port in range(mesh.n_ports):
        trace = mesh.trace(port, states)
        assert powers[trace.port, port] == pytest.approx(10 ** (-loss_db[list(trace.pucs)].sum() / 10), abs=1e-12)


@examples(40)
@given(seed=st.integers(0, 2**32 - 1))
def test_group_delay_is_11_25_ps_per_hop_and_positive(seed: int) -> None:
    mesh, solver = MESHES[2, 3, 2, 3, 2, 3, 2], SOLVERS[2, 3, 2, 3, 2, 3, 2]
    unit_cells, states = binary(mesh, seed, np.full(mesh.n_pucs, 0.5))
    step_hz = 0.25e9  # even the longest possible path, 144 passes, turns by 5.1 rad only
    behind, ahead = solver.solve(unit_cells, [F0 - step_hz, F0 + step_hz])
    for port in range(mesh.n_ports):
        trace = mesh.trace(port, states)
        delay_s = (
            -np.angle(ahead[trace.port, port] / behind[trace.port, port]) % (2 * math.pi) / (4 * math.pi * step_hz)
        )
        assert delay_s == pytest.approx(len(trace.pucs) * 11.25e-12, rel=1e-6)


def test_joint_phases_add_up_along_a_path(smartlight: HexMesh, solver: Solver) -> None:
    """Port 3 to port 4 through PUC 15 passes no joint; 0x 6x 10x 16= 20= 19x passes five (Sánchez-Jácome 2025)."""
    theta = np.where(np.isin(np.arange(72), (15, 16, 20)), HALF_TURN, 0.0)
    half, n_joints = np.full(72, 0.5), len(smartlight.joints)
    plain = solver.solve(UnitCells.ideal(72, n_joints, theta, 0.5), F0)
    delayed = solver.solve(UnitCells(np.full(72, 0.5), half, half, theta, -theta, np.full(n_joints, 0.1)), F0)
    assert np.angle(delayed[4, 3] / plain[4, 3]) == pytest.approx(0.0, abs=1e-12)
    assert np.angle(delayed[5, 0] / plain[5, 0]) == pytest.approx(-0.5, abs=1e-12)


# ------------------------------------------------------------------------------------------------- shapes and selection


def test_chosen_inputs_are_columns_of_the_whole_matrix(smartlight: HexMesh, solver: Solver) -> None:
    unit_cells = fabricated(smartlight, 11)
    whole = solver.solve(unit_cells, F0)
    chosen = [38, 0, 22]
    np.testing.assert_allclose(solver.solve(unit_cells, F0, chosen), whole[:, chosen], atol=1e-13)


def test_one_frequency_gives_a_matrix_and_several_give_a_stack(smartlight: HexMesh, solver: Solver) -> None:
    unit_cells = fabricated(smartlight, 12)
    frequencies = F0 + np.array([-1e12, 0.0, 2e11])
    stack = solver.solve(unit_cells, frequencies, [4, 7])
    assert stack.shape == (3, 40, 2)
    assert solver.solve(unit_cells, F0).shape == (40, 40)
    assert solver.solve(unit_cells, [F0], [4]).shape == (1, 40, 1)
    for frequency, matrix in zip(frequencies, stack, strict=True):
        np.testing.assert_allclose(solver.solve(unit_cells, float(frequency), [4, 7]), matrix, atol=1e-13)
    assert np.max(np.abs(stack[0] - stack[1])) > 1e-3  # it does depend on frequency


def test_waves_are_one_column_per_input(smartlight: HexMesh, solver: Solver) -> None:
    waves = solver.waves(fabricated(smartlight, 13), F0, [5])
    assert waves.shape == (288, 1)


def test_one_solver_serves_many_cells(smartlight: HexMesh) -> None:
    """Nothing of an earlier solution may linger in a later one."""
    shared = Solver(smartlight)
    for seed in (1, 2, 1):
        unit_cells = fabricated(smartlight, seed)
        np.testing.assert_array_equal(shared.solve(unit_cells, F0), Solver(smartlight).solve(unit_cells, F0))
