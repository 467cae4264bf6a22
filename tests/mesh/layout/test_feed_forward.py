"""Feed-forward meshes of cells: their graphs, what their heaters can reach, and how light passes simple cells."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from lumion_hw.errors import ConfigError
from lumion_hw.mesh import Solver, State, UnitCells, mesh_from_dict
from lumion_hw.mesh.layout.cells import CELL_KINDS
from lumion_hw.mesh.layout.topologies import build_mesh
from lumion_hw.mesh.layout.topology import MeshTopology

MESHES = [
    ("clements", 4), ("clements", 5), ("reck", 4), ("bell", 5), ("benes", 8), ("crossbar", 3),
    ("dilated-benes", 4), ("dilated-benes", 8), ("spanke", 4), ("spanke", 8),
]  # fmt: skip


def field_matrix(mesh: MeshTopology, size: int, arms_rad: np.ndarray) -> np.ndarray:
    """The matrix from the inputs to the outputs for given phases of all arms, without loss."""
    eta_in, eta_out = mesh.nominal_eta
    joints = np.zeros(len(mesh.joints))
    cells = UnitCells(np.zeros(mesh.n_pucs), eta_in, eta_out, arms_rad[0::2], arms_rad[1::2], joints)
    return Solver(mesh).solve(cells, cells.reference_hz, range(size))[size : 2 * size]


@pytest.mark.parametrize(("name", "size"), MESHES)
def test_every_input_reaches_every_output_and_the_document_gives_the_mesh_again(name: str, size: int) -> None:
    mesh = build_mesh(name, (size,))
    assert mesh.fibre_ports == tuple(range(2 * size))
    assert all(mesh.reaches(one, size + other) for one in range(size) for other in range(size))
    assert not any(mesh.reaches(one, other) for one, other in itertools.permutations(range(size), 2))
    assert mesh_from_dict(mesh.to_dict()) == mesh
    assert mesh.sha256 != build_mesh("rectangular", (size,)).sha256


@pytest.mark.parametrize(
    ("name", "size"), [("clements", 3), ("clements", 4), ("clements", 6), ("reck", 3), ("reck", 5)]
)
def test_the_heaters_reach_every_unitary_but_its_global_phase(name: str, size: int) -> None:
    """The number of independent directions is that of SU(N), N² - 1: Clements 2016, Reck 1994."""
    mesh, rng = build_mesh(name, (size,)), np.random.default_rng(1)
    arms = np.where(mesh.has_heater, rng.uniform(0.0, 6.0, 2 * mesh.n_pucs), 0.0)
    matrix, step = field_matrix(mesh, size, arms), 1e-5
    np.testing.assert_allclose(matrix @ matrix.conj().T, np.eye(size), atol=1e-12)
    columns = []
    for heater in np.flatnonzero(mesh.has_heater):
        unit = step * (np.arange(len(arms)) == heater)
        moved = field_matrix(mesh, size, arms + unit) - field_matrix(mesh, size, arms - unit)
        change = matrix.conj().T @ moved / (2.0 * step)
        change = change - np.trace(change) / size * np.eye(size)
        columns.append(np.concatenate([change.real.ravel(), change.imag.ravel()]))
    assert np.linalg.matrix_rank(np.array(columns), tol=1e-7) == size**2 - 1
    assert int(mesh.has_heater.sum()) == size**2 - 1


def test_a_benes_network_routes_every_permutation_of_four() -> None:
    mesh = build_mesh("benes", (4,))
    found = set()
    choices: list[State] = ["bar", "cross"]
    for states in itertools.product(choices, repeat=mesh.n_pucs):
        found.add(tuple(mesh.trace(port, dict(enumerate(states))).port for port in range(4)))
    assert len(found) == 24


@pytest.mark.parametrize(
    ("name", "size", "switches", "columns"),
    [("dilated-benes", 4, 16, 4), ("dilated-benes", 8, 48, 6), ("spanke", 4, 24, 4), ("spanke", 8, 112, 6)],
)
def test_dilated_fabrics_have_the_published_number_of_switches(
    name: str, size: int, switches: int, columns: int
) -> None:
    """2 N log2 N in 2 log2 N columns (Padmanabhan 1987); 2 N (N - 1) in as many columns (Spanke 1986)."""
    mesh = build_mesh(name, (size,))
    assert mesh.n_pucs == switches
    # Every path passes one switch of each column.
    assert (mesh.shortest_hops[:size, size : 2 * size] == columns).all()


@pytest.mark.parametrize(("name", "ways"), [("dilated-benes", 2), ("spanke", 1)])
def test_paths_between_two_ports_of_a_dilated_fabric(name: str, ways: int) -> None:
    """A dilated Benes network of four ports has an upper and a lower half; a Spanke network has no choice."""
    mesh = build_mesh(name, (4,))
    for source, target in itertools.product(range(4), range(4, 8)):
        nodes = [int(mesh.port_puc_port[source])]
        for _ in range(4):
            nodes = [int(following) for node in nodes if node >= 0 for following in mesh.successors[node]]
        assert nodes.count(-1 - target) == ways


def test_a_crossbar_leads_any_input_to_any_output_through_one_cell_in_cross() -> None:
    mesh = build_mesh("crossbar", (3,))
    for row, column in itertools.product(range(3), repeat=2):
        states: dict[int, State] = dict.fromkeys(range(9), "bar")
        states[3 * row + column] = "cross"
        assert mesh.trace(row, states).port == 3 + column


@pytest.mark.parametrize("kind", CELL_KINDS.values(), ids=lambda kind: kind.name)
def test_the_state_of_a_cell_is_where_its_light_goes(kind) -> None:
    eta = np.array([kind.eta_in]), np.array([kind.eta_out])
    power = np.abs(UnitCells(np.zeros(1), *eta, np.zeros(1), np.zeros(1), np.zeros(0)).transfer(193.4145e12)[0]) ** 2
    np.testing.assert_allclose(power.sum(axis=0), 1.0)
    if kind.passes == "bar":
        np.testing.assert_allclose(power, np.eye(2), atol=1e-12)
    if kind.passes == "cross":
        np.testing.assert_allclose(power, 1.0 - np.eye(2), atol=1e-12)


@pytest.mark.parametrize(
    ("name", "size"),
    [("clements", 1), ("clements", 65), ("benes", 6), ("benes", 2), ("reck", 0), ("dilated-benes", 6), ("spanke", 3)],
)
def test_impossible_sizes_are_refused(name: str, size: int) -> None:
    with pytest.raises(ConfigError, match=r"cannot (build|have)"):
        build_mesh(name, (size,))
