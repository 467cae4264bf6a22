"""Concentric rings, faces, shortest hops and documents: numbers from docs/sources.md#figures-of-the-mesh."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lumion_hw.errors import ConfigError
from lumion_hw.mesh import HexMesh, mesh_from_dict
from lumion_hw.mesh.layout.topology import EXIT_XOR


@pytest.mark.parametrize("k", [1, 2, 3, 5, 9])
def test_concentric_rings_follow_the_formulas(k: int) -> None:
    mesh = HexMesh.rings(k)
    assert mesh.n_cells == 3 * k * k - 3 * k + 1
    assert mesh.n_pucs == 9 * k * k - 3 * k
    assert mesh.n_ports == 12 * k
    assert len(mesh.joints) == 18 * k * k - 12 * k
    assert len(mesh.vertices) - mesh.n_pucs + mesh.n_cells == 1
    assert 1 not in Counter(mesh.ends.reshape(-1).tolist()).values()  # no stubs


def test_two_rings_are_the_seven_cell_chip() -> None:
    mesh = HexMesh.rings(2)
    assert (mesh.n_cells, mesh.n_pucs, mesh.n_ports, len(mesh.joints)) == (7, 30, 24, 48)


def test_three_rings_have_72_pucs_but_are_not_the_smartlight_layout(smartlight: HexMesh) -> None:
    mesh = HexMesh.rings(3)
    assert mesh.n_pucs == smartlight.n_pucs == 72
    assert mesh.sha256 != smartlight.sha256


def test_one_ring_is_the_single_column_of_one_cell_without_its_stubs() -> None:
    mesh = HexMesh.rings(1)
    np.testing.assert_array_equal(np.bincount(mesh.ends.reshape(-1)), [2] * 6)
    assert mesh.faces == ((0, 2, 4, 5, 3, 1),)  # by hand: slanted 0 1, top 2, bottom 3, slanted 4 5


@pytest.mark.parametrize("k", [0, -1])
def test_no_ring_is_no_mesh(k: int) -> None:
    with pytest.raises(ConfigError, match="cannot build a mesh of"):
        HexMesh.rings(k)


def test_ring_vertices_lie_one_puc_length_apart_and_within_the_hexagon() -> None:
    mesh = HexMesh.rings(4)
    tail, head = mesh.vertices[mesh.ends[:, 0]], mesh.vertices[mesh.ends[:, 1]]
    np.testing.assert_allclose(np.linalg.norm(head - tail, axis=1), 1.0, rtol=1e-12)
    centre = mesh.vertices.mean(axis=0)
    assert np.linalg.norm(mesh.vertices - centre, axis=1).max() < np.sqrt(3) * 4  # circumradius of 4 rings


@pytest.mark.parametrize("mesh", [HexMesh.smartlight(), HexMesh.rings(3), HexMesh.columns([3, 2, 3])])
def test_every_face_is_a_hexagon_gone_round_clockwise(mesh: HexMesh) -> None:
    assert len(mesh.faces) == mesh.n_cells
    seen = Counter(puc for face in mesh.faces for puc in face)
    assert max(seen.values()) == 2  # a PUC has two sides
    for face in mesh.faces:
        assert len(set(face)) == 6
        x, y = mesh.puc_centres[list(face)].T
        assert np.sum(x * np.roll(y, -1) - np.roll(x, -1) * y) < 0  # y is up: negative is clockwise


def test_shortest_hops_of_the_smartlight_mesh_run_from_1_to_15(smartlight: HexMesh) -> None:
    hops = smartlight.shortest_hops
    np.testing.assert_array_equal(hops, hops.T)
    others = hops[~np.eye(40, dtype=bool)]
    assert (others.min(), others.max()) == (1, 15)
    assert hops[3, 4] == 1
    assert hops[0, 5] == 6
    assert hops[0, 6] == 7
    assert {int(hops[i, o]) for i in (0, 35, 36, 37, 38, 39) for o in range(15, 21)} == {15}  # the 6x6 switch


@pytest.mark.parametrize("mesh", [HexMesh.smartlight(), HexMesh.rings(3), HexMesh.columns([2, 3, 2, 3])])
def test_shortest_hops_have_the_parity_of_their_ports(mesh: HexMesh) -> None:
    for source in range(mesh.n_ports):
        for target in range(mesh.n_ports):
            assert mesh.shortest_hops[source, target] % 2 == mesh.port_parity(source, target)


def test_hops_to_a_port_fall_by_one_along_the_best_way(smartlight: HexMesh) -> None:
    for port in (0, 17, 33):
        left = int(smartlight.port_puc_port[port])
        for node in range(4 * smartlight.n_pucs):
            ways = []
            for flip in EXIT_XOR.values():
                following = int(smartlight.mate[node ^ flip])
                if following >= 0:
                    ways.append(1 + int(smartlight.hops_to_port[port, following]))
                elif node ^ flip == left:
                    ways.append(1)
            if ways:
                assert smartlight.hops_to_port[port, node] == min(ways)


@pytest.mark.parametrize("mesh", [HexMesh.smartlight(), HexMesh.rings(2)])
def test_a_mesh_comes_back_from_json_as_it_was(mesh: HexMesh) -> None:
    again = mesh_from_dict(json.loads(json.dumps(mesh.to_dict())))
    assert again == mesh
    assert (again.label, again.n_cells) == (mesh.label, mesh.n_cells)
    np.testing.assert_array_equal(again.vertices, mesh.vertices)


def _swap_ports(document: dict[str, Any]) -> None:
    document["port_puc_port"][3] = document["port_puc_port"][4]


def _one_sided(document: dict[str, Any]) -> None:
    joined = next(p for p, other in enumerate(document["mate"]) if other >= 0)
    document["mate"][joined] = -1


def _two_versions(document: dict[str, Any]) -> None:
    document["version"] = 2


def _lost(document: dict[str, Any]) -> None:
    del document["ends"]


def _far_fibre(document: dict[str, Any]) -> None:
    document["fibre_ports"].append(24)


def _other_hash(document: dict[str, Any]) -> None:
    document["sha256"] = "0" * 64


def _one_colour(document: dict[str, Any]) -> None:
    document["colour"] = [0] * len(document["colour"])


def _half_vertex(document: dict[str, Any]) -> None:
    document["ends"][0][0] = 0.5


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_swap_ports, "must list every open PUC-port"),
        (_one_sided, "not the other way round"),
        (_two_versions, "version 2; it is not a mesh"),
        (_lost, "entry 'ends' of the mesh document is missing or does not contain numbers"),
        (_far_fibre, r"fibre ports \[24\] do not exist"),
        (_other_hash, "differs from 'sha256' in its document"),
        (_one_colour, "no fixed parity"),
        (_half_vertex, "not whole"),
    ],
)
def test_a_damaged_document_is_refused_by_name(damage: Callable[[dict[str, Any]], None], message: str) -> None:
    document = HexMesh.rings(2).to_dict()
    damage(document)
    with pytest.raises(ConfigError, match=message):
        mesh_from_dict(document)
