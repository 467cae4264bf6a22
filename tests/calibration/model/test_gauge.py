"""Loops and gauges of joint phases, against the counts and the invariances of docs/calibration.md, 1.2."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibration.model.gauge import (
    gauge_fixed_difference,
    has_visible_phase,
    illuminated_joint_directions,
    illuminated_loop_basis,
    loop_basis,
    loop_rms_rad,
    signed_incidence,
    visible_combinations,
    visible_joint_directions,
)
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.layout.topologies import build_mesh
from lumion_hw.mesh.waves.cell import UnitCells
from lumion_hw.mesh.waves.scattering import Solver

SMARTLIGHT = HexMesh.smartlight()
RINGS = HexMesh.rings(2)


@pytest.mark.parametrize(
    ("mesh", "loops"), [(SMARTLIGHT, 52), (RINGS, 18), (HexMesh.rings(1), 1), (HexMesh.rings(3), 54)]
)
def test_there_are_as_many_loops_as_the_rank_says(mesh: HexMesh, loops: int) -> None:
    """N_loop = J - rank G = E - ports/2; one hexagon alone has rank 5 of 6 and so one loop, not none."""
    basis = loop_basis(mesh)
    assert basis.shape == (loops, len(mesh.joints))
    assert not (basis @ signed_incidence(mesh)).any()


@pytest.mark.parametrize("mesh", [SMARTLIGHT, RINGS])
def test_the_loops_are_a_basis_of_the_lattice_and_not_of_a_sublattice(mesh: HexMesh) -> None:
    """A primitive lattice keeps its rank modulo every prime; a sublattice loses it modulo a divisor of its index."""
    for prime in (2, 3, 5, 7):
        assert _rank_modulo(loop_basis(mesh), prime) == len(loop_basis(mesh))


@pytest.mark.parametrize("mesh", [SMARTLIGHT, RINGS])
def test_loops_are_short_and_small(mesh: HexMesh) -> None:
    basis = loop_basis(mesh)
    assert np.abs(basis).max() <= 2
    assert np.median(np.abs(basis).sum(axis=1)) <= 8


def test_a_gauge_changes_no_power_and_a_loop_does() -> None:
    rng = np.random.default_rng(5)
    cells = _cells(rng)
    solver = Solver(SMARTLIGHT)
    before = np.abs(solver.solve(cells, cells.reference_hz, [0])) ** 2
    gauge = signed_incidence(SMARTLIGHT) @ rng.uniform(0, 6, 72)
    loop = 0.1 * visible_joint_directions(SMARTLIGHT)[:, 0]
    for shift, seen in ((gauge, False), (loop, True)):
        moved = replace(cells, joint_phase=cells.joint_phase + shift)
        after = np.abs(solver.solve(moved, cells.reference_hz, [0])) ** 2
        assert (np.abs(after - before).max() > 1e-6) == seen


def test_whole_turns_and_gauges_are_no_difference() -> None:
    rng = np.random.default_rng(1)
    turns = 2 * np.pi * rng.integers(-3, 4, len(SMARTLIGHT.joints))
    gauge = signed_incidence(SMARTLIGHT) @ rng.normal(0.0, 3.0, 72)
    assert np.abs(gauge_fixed_difference(SMARTLIGHT, turns + gauge)).max() < 1e-10


def test_what_is_left_of_a_small_difference_is_its_part_across_all_gauges() -> None:
    rng = np.random.default_rng(2)
    small = rng.normal(0.0, 0.1, len(SMARTLIGHT.joints))
    gauge = signed_incidence(SMARTLIGHT) @ rng.normal(0.0, 3.0, 72)
    directions = visible_joint_directions(SMARTLIGHT)
    expected = directions @ (directions.T @ small)
    np.testing.assert_allclose(gauge_fixed_difference(SMARTLIGHT, small + gauge), expected, atol=1e-9)
    assert loop_rms_rad(SMARTLIGHT, small + gauge) == pytest.approx(np.sqrt((expected**2).sum() / 52))


def _rank_modulo(matrix: np.ndarray, prime: int) -> int:
    work, rank = matrix % prime, 0
    for column in range(work.shape[1]):
        rows = rank + np.flatnonzero(work[rank:, column])
        if not len(rows):
            continue
        work[[rank, rows[0]]] = work[[rows[0], rank]]
        work[rank] = work[rank] * pow(int(work[rank, column]), -1, prime) % prime
        for row in np.flatnonzero(work[:, column]):
            if row != rank:
                work[row] = (work[row] - work[row, column] * work[rank]) % prime
        rank += 1
    return rank


def _cells(rng: np.random.Generator) -> UnitCells:
    upper, lower = rng.uniform(0, 6, (2, 72))
    half = np.full(72, 0.5)
    return UnitCells(np.full(72, 0.5), half, half, upper, lower, rng.uniform(0, 6, len(SMARTLIGHT.joints)))


@pytest.mark.parametrize(
    ("name", "size", "visible"),
    [("clements", 4, 10), ("clements", 12, 126), ("reck", 4, 11), ("benes", 4, 12), ("rectangular", 4, 12)],
)
def test_phases_that_powers_show_are_found(name: str, size: int, visible: int) -> None:
    """A public 12-mode Clements chip has 126 heaters: those at inputs and outputs would change no power."""
    mesh = build_mesh(name, (size,))
    assert int((has_visible_phase(mesh) & mesh.has_heater).sum()) == visible


@pytest.mark.parametrize(("name", "size"), [("clements", 4), ("reck", 4), ("benes", 4), ("crossbar", 3)])
def test_loops_of_cells_are_what_powers_show_of_the_joints(name: str, size: int) -> None:
    """The rank of the powers in the joint phases is the number of loops, and directions of G change no power."""
    mesh, rng = build_mesh(name, (size,)), np.random.default_rng(3)
    arms = np.where(np.repeat(mesh.interferes, 2), rng.uniform(0.0, 6.0, (12, 2 * mesh.n_pucs)), 0.0)
    joints = rng.uniform(0.0, 6.0, len(mesh.joints))

    def powers(joint_rad: np.ndarray) -> np.ndarray:
        loss, (eta_in, eta_out) = np.zeros(mesh.n_pucs), mesh.nominal_eta
        cells = UnitCells(loss, eta_in, eta_out, arms[:, 0::2], arms[:, 1::2], joint_rad)
        return np.abs(Solver(mesh).solve(cells, cells.reference_hz, range(size))).ravel() ** 2

    step, before = 1e-6, powers(joints)
    columns = [(powers(joints + step * unit) - before) / step for unit in np.eye(len(joints))]
    assert np.linalg.matrix_rank(np.array(columns), tol=1e-4) == len(loop_basis(mesh))
    gauge = signed_incidence(mesh) @ rng.uniform(0.0, 6.0, signed_incidence(mesh).shape[1])
    np.testing.assert_allclose(powers(joints + gauge), before, atol=1e-12)


@pytest.mark.parametrize(("name", "size"), [("clements", 4), ("reck", 4), ("benes", 4), ("rectangular", 4)])
def test_combinations_of_phases_change_only_with_the_light(name: str, size: int) -> None:
    """Each combination is zero for all changes of phases that leave all powers as they are."""
    mesh, rng = build_mesh(name, (size,)), np.random.default_rng(3)
    n_arms = 2 * mesh.n_pucs
    phases = rng.uniform(0.0, 6.0, (8, n_arms + len(mesh.joints)))

    def powers(change_rad: np.ndarray) -> np.ndarray:
        changed = phases + change_rad
        loss, (eta_in, eta_out) = np.zeros(mesh.n_pucs), mesh.nominal_eta
        solver, found = Solver(mesh), []
        for setting in changed:
            cells = UnitCells(loss, eta_in, eta_out, setting[:n_arms:2], setting[1:n_arms:2], setting[n_arms:])
            found.append(np.abs(solver.solve(cells, cells.reference_hz, range(size))).ravel() ** 2)
        return np.concatenate(found)

    step = 1e-5
    slopes = np.array([(powers(step * unit) - powers(-step * unit)) / (2 * step) for unit in np.eye(phases.shape[1])])
    strength, unseen = np.linalg.eigh(slopes @ slopes.T)
    unseen = unseen[:, strength < 1e-9 * strength[-1]]
    ports = tuple(mesh.fibre_ports)
    weights = visible_combinations(mesh, ports[:size], ports[size:])
    seen = weights.any(axis=1)
    np.testing.assert_allclose(np.diag(weights)[seen], 1.0, atol=1e-9)
    assert seen[has_visible_phase(mesh, ports[:size], ports[size:])].all()
    np.testing.assert_allclose(weights @ unseen, 0.0, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "size", "loops"),
    [
        ("benes", 4, 3),
        ("clements", 4, 3),
        ("dilated-benes", 4, 8),
        ("dilated-benes", 8, 32),
        ("spanke", 2, 0),
        ("spanke", 4, 0),
    ],
)
def test_loops_between_fibres_are_what_powers_there_show_of_the_joints(name: str, size: int, loops: int) -> None:
    """The rank of the powers from inputs to outputs, with light at one input at a time, is the number of loops.

    A dilated Benes network of four ports has nine loops. The loop around the four switches of its upper half gets light
    only from two inputs at once. Paths of a Spanke network never meet again.
    """
    mesh, rng = build_mesh(name, (size,)), np.random.default_rng(3)
    inputs, outputs = tuple(range(size)), tuple(range(size, 2 * size))
    directions, count = illuminated_joint_directions(mesh, inputs, outputs)
    basis = illuminated_loop_basis(mesh, inputs, outputs)
    arms = np.where(np.repeat(mesh.interferes, 2), rng.uniform(0.0, 6.0, (12, 2 * mesh.n_pucs)), 0.0)
    joints = rng.uniform(0.0, 6.0, len(mesh.joints))

    def powers(joint_rad: np.ndarray) -> np.ndarray:
        loss, (eta_in, eta_out) = np.zeros(mesh.n_pucs), mesh.nominal_eta
        cells = UnitCells(loss, eta_in, eta_out, arms[:, 0::2], arms[:, 1::2], joint_rad)
        fields = Solver(mesh).solve(cells, cells.reference_hz, inputs)
        return np.abs(fields[:, list(outputs)]).ravel() ** 2

    step, before = 1e-6, powers(joints)
    columns = np.array([(powers(joints + step * unit) - before) / step for unit in np.eye(len(joints))])
    assert np.linalg.matrix_rank(columns, tol=1e-4) == count == len(basis) == loops
    # All that the powers show is along the first directions; the rest are loops without light.
    np.testing.assert_allclose(columns - directions[:, :count] @ (directions[:, :count].T @ columns), 0.0, atol=1e-4)
    assert directions.shape[1] == len(loop_basis(mesh))
    np.testing.assert_allclose(directions.T @ directions, np.eye(directions.shape[1]), atol=1e-12)
    assert not (basis @ signed_incidence(mesh)).any()
    for prime in (2, 3, 5, 7):
        assert _rank_modulo(basis.copy(), prime) == loops
