"""Square and triangular lattices: joints and ports by the corner rule of published meshes, counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from lumion_hw.errors import ConfigError
from lumion_hw.mesh import RouteRequest, route
from lumion_hw.mesh.layout.topologies import build_mesh, mesh_from_dict, mesh_from_label
from lumion_hw.mesh.layout.topology import MeshTopology, closed_rings

# Rows and cells per row; PUCs, ports and joints counted on paper.
COUNTED = [
    ("square", (1, 1), 4, 8, 4),
    ("square", (1, 2), 7, 12, 8),
    ("square", (2, 3), 17, 20, 24),
    ("triangular", (1, 1), 3, 6, 3),
    ("triangular", (1, 3), 7, 10, 9),
    ("triangular", (2, 3), 12, 12, 18),  # six triangles around one vertex
]
MESHES = [build_mesh(word, size) for word, size, *_ in COUNTED]


@pytest.mark.parametrize(("word", "size", "pucs", "ports", "joints"), COUNTED)
def test_pucs_ports_and_joints_are_those_counted_on_paper(
    word: str, size: tuple[int, int], pucs: int, ports: int, joints: int
) -> None:
    mesh = build_mesh(word, size)
    assert (mesh.n_pucs, mesh.n_ports, len(mesh.joints)) == (pucs, ports, joints)
    assert 4 * pucs == 2 * joints + ports
    assert mesh.fibre_ports == tuple(range(ports))


@pytest.mark.parametrize("mesh", MESHES, ids=lambda mesh: mesh.label)
def test_with_all_pucs_in_bar_light_circulates_in_every_cell_and_follows_the_rim_outside(mesh: MeshTopology) -> None:
    sides = {"square": 4, "triangular": 3}[mesh.topology]
    _, rows, columns = mesh.label.split()
    assert [len(face) for face in mesh.faces] == [sides] * (int(rows) * int(columns))
    assert len(closed_rings(mesh, ["bar"] * mesh.n_pucs)) == 2 * len(mesh.faces)
    bar = dict.fromkeys(range(mesh.n_pucs), "bar")
    for port in range(1, mesh.n_ports, 2):
        assert mesh.trace(port, bar).port == (port + 1) % mesh.n_ports


@pytest.mark.parametrize("mesh", MESHES, ids=lambda mesh: mesh.label)
def test_light_of_a_port_reaches_half_of_the_ports_and_passes_every_puc_in_one_direction(mesh: MeshTopology) -> None:
    reached = {port for port in range(mesh.n_ports) if mesh.reaches(0, port)}
    assert len(reached) == mesh.n_ports // 2
    assert all(mesh.reaches(port, 0) for port in reached)  # light is reversible
    waves, todo = set(), [int(mesh.port_puc_port[0])]
    while todo:
        wave = todo.pop()
        if wave >= 0 and wave not in waves:
            waves.add(wave)
            todo += mesh.successors[wave].tolist()
    ends = {(wave // 4, wave % 4 // 2) for wave in waves}
    assert len(ends) == len({puc for puc, _ in ends})


def test_joined_pucs_meet_and_squares_stand_apart_by_their_length() -> None:
    for mesh in MESHES:
        np.testing.assert_allclose(mesh.corners[mesh.joints[:, 0]], mesh.corners[mesh.joints[:, 1]])
        np.testing.assert_allclose(np.linalg.norm(np.diff(mesh.end_positions, axis=1), axis=2), 1.0)


@pytest.mark.parametrize("mesh", MESHES, ids=lambda mesh: mesh.label)
def test_a_lattice_survives_label_and_document(mesh: MeshTopology) -> None:
    assert mesh_from_label(mesh.label) == mesh
    again = mesh_from_dict(mesh.to_dict())
    assert again == mesh
    assert again.label == mesh.label


def test_circuits_can_be_routed_on_both() -> None:
    for mesh in (build_mesh("square", (2, 3)), build_mesh("triangular", (3, 4))):
        targets = [port for port in range(1, mesh.n_ports) if mesh.reaches(0, port)]
        for target in targets:
            assert mesh.trace(0, route(mesh, RouteRequest([(0, target)])).states).port == target


@pytest.mark.parametrize("size", [(0, 2), (2, 0), (65, 64)])
def test_impossible_sizes_are_refused(size: tuple[int, int]) -> None:
    with pytest.raises(ConfigError, match="cannot build a square mesh"):
        build_mesh("square", size)


def test_a_lattice_needs_two_numbers() -> None:
    with pytest.raises(ConfigError, match="Give rows and cells per row"):
        build_mesh("triangular", (3,))
