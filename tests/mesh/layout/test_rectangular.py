"""The rectangular mesh, and that everything generic works on it through the interface of all topologies."""

from __future__ import annotations

import itertools
import json
import math
import re
from typing import Any, cast
from xml.etree import ElementTree

import numpy as np
import pytest
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError, NoPathError
from lumion_hw.mesh import HexMesh, MeshTopology, RectangularMesh, mesh_from_dict
from lumion_hw.mesh.layout.topologies import LAYOUTS, build_mesh, mesh_from_label
from lumion_hw.mesh.layout.topology import State, closed_rings
from lumion_hw.mesh.picture.drawing import PicturePath, mesh_svg
from lumion_hw.mesh.programming.hexagonal_block import find_block
from lumion_hw.mesh.routing import RouteRequest, route
from lumion_hw.mesh.routing.matchings import all_to_all
from lumion_hw.mesh.routing.parking import park_unused_pucs
from lumion_hw.mesh.waves.cell import UnitCells
from lumion_hw.mesh.waves.crosstalk import BUL_MM, HeaterDistances
from lumion_hw.mesh.waves.elimination import dissect
from lumion_hw.mesh.waves.scattering import Solver
from tests.mesh.waves.test_scattering import F0, binary, fabricated

SIZES = (3, 4, 5, 8, 9)

# -------------------------------------------------------------------------------------------------------------- graph


@pytest.mark.parametrize("ports", SIZES)
def test_counts_are_those_of_clements(ports: int) -> None:
    """N (N - 1) / 2 PUCs, N ports on each side, and every PUC-port that is no port is joined."""
    mesh = RectangularMesh.from_ports(ports)
    assert mesh.n_pucs == ports * (ports - 1) // 2
    assert mesh.n_ports == 2 * ports
    assert 4 * mesh.n_pucs == 2 * len(mesh.joints) + mesh.n_ports
    assert mesh.fibre_ports == tuple(range(2 * ports))


def test_four_ports_are_joined_as_drawn_by_hand() -> None:
    """Columns of PUCs 0 1 | 2 | 3 4 | 5; waveguides 0 and 3 pass columns 1 and 3 by."""
    mesh = RectangularMesh.from_ports(4)
    ends = ("AL", "AR", "BL", "BR")
    joined = {frozenset(f"{p // 4}.{ends[p % 4]}" for p in joint) for joint in mesh.joints.tolist()}
    drawn = "0.BL-3.AL 0.BR-2.AL 1.BL-2.AR 1.BR-4.AR 2.BL-3.AR 2.BR-4.AL 3.BR-5.AL 4.BL-5.AR"
    assert joined == {frozenset(joint.split("-")) for joint in drawn.split()}
    named = [mesh.port_name(port) for port in range(8)]
    assert named == ["0.AL", "0.AR", "1.AL", "1.AR", "3.BL", "5.BL", "5.BR", "4.BR"]


@pytest.mark.parametrize("ports", SIZES)
def test_bar_leads_straight_through_and_cross_turns_the_order_round(ports: int) -> None:
    """N columns of exchanges of neighbours are odd-even transposition: exchanging always reverses the order."""
    mesh = RectangularMesh.from_ports(ports)
    for port in range(ports):
        assert mesh.trace(port, dict.fromkeys(range(mesh.n_pucs), "bar")).port == ports + port
        assert mesh.trace(port, dict.fromkeys(range(mesh.n_pucs), "cross")).port == 2 * ports - 1 - port


def test_light_never_comes_back() -> None:
    mesh, rng = RectangularMesh.from_ports(7), np.random.default_rng(0)
    for _ in range(20):
        states = [cast(State, "cross" if bit else "bar") for bit in rng.integers(0, 2, mesh.n_pucs)]
        assert closed_rings(mesh, states) == ()
    assert mesh.faces == ()
    for source, target in itertools.product(range(14), repeat=2):
        assert mesh.reaches(source, target) == ((source < 7) != (target < 7))


def test_paths_of_both_parities_join_two_ports_where_waveguides_pass_pucs_by() -> None:
    """From port 0 to port 4 of four: along the rim over PUCs 0 and 3, or down and up again over 0, 2 and 3."""
    mesh = RectangularMesh.from_ports(4)
    assert mesh.port_parity(0, 4) is None
    assert mesh.trace(0, {0: "bar", 3: "bar"}).pucs == (0, 3)
    assert mesh.trace(0, {0: "cross", 2: "bar", 3: "cross"}) == mesh.trace(0, {0: "cross", 2: "bar", 3: "cross"})
    assert mesh.trace(0, {0: "cross", 2: "bar", 3: "cross"}).pucs == (0, 2, 3)


@pytest.mark.parametrize("ports", [2, 1, 0, -3, 129])
def test_sizes_that_make_no_mesh_are_refused(ports: int) -> None:
    with pytest.raises(ConfigError, match="cannot build a mesh with"):
        RectangularMesh.from_ports(ports)


# -------------------------------------------------------------------------------------------------------------- table


@pytest.mark.parametrize(
    "mesh", [HexMesh.smartlight(), HexMesh.rings(2), HexMesh.columns([2, 3, 2]), RectangularMesh.from_ports(5)], ids=str
)
def test_every_mesh_comes_back_from_its_label_and_from_json(mesh: MeshTopology) -> None:
    assert mesh_from_label(mesh.label) == mesh
    again = mesh_from_dict(json.loads(json.dumps(mesh.to_dict())))
    assert again == mesh
    assert type(again) is type(mesh)
    np.testing.assert_array_equal(again.corners, mesh.corners)


def test_documents_of_before_there_were_topologies_are_hexagonal() -> None:
    document = HexMesh.rings(2).to_dict()
    del document["topology"]
    assert mesh_from_dict(document) == HexMesh.rings(2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"topology": "cubic"}, "unknown mesh topology 'cubic'"),
        ({"ports": 5}, "'mate' in the document differs from that of mesh 'rectangular 5'"),
        ({"ports": 4.5}, "not whole"),
        ({"ports": None}, "needs numbers under 'ports'|not whole|'ports' of a mesh"),
        ({"version": 2}, "version 2; it is not a mesh"),
        ({"fibre_ports": [0, 1]}, "'fibre_ports' in the document differs"),
        ({"sha256": "0" * 64}, "differs from 'sha256' in its document"),
    ],
)
def test_documents_that_contradict_themselves_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        mesh_from_dict(RectangularMesh.from_ports(4).to_dict() | changes)


@pytest.mark.parametrize("label", ["", "square 4", "rectangular", "rectangular 4 4", "rectangular x", "smartlight 3"])
def test_labels_of_no_layout_are_refused(label: str) -> None:
    with pytest.raises(ConfigError):
        mesh_from_label(label)


def test_a_mesh_is_laid_out_once() -> None:
    assert build_mesh("rectangular", [6]) is build_mesh("rectangular", (6,))
    words = {"smartlight", "columns", "rings", "rectangular", "clements", "reck", "bell", "benes", "crossbar"}
    assert set(LAYOUTS) == words | {"square", "triangular", "dilated-benes", "spanke"}


# -------------------------------------------------------------------------------------------------------------- light


def column_product(mesh: RectangularMesh, cells: UnitCells) -> NDArray[np.complex128]:
    """Return the field from left to right as the product of the columns, joints being factors on single waveguides."""
    n, transfer = mesh.n_waveguides, cells.transfer(F0)
    joint_phase = {int(p): cells.joint_phase[j] for j, joint in enumerate(mesh.joints) for p in joint}
    field = np.eye(n, dtype=np.complex128)
    for puc in range(mesh.n_pucs):
        rows = [int(mesh.rows[puc]), int(mesh.rows[puc]) + 1]
        field[rows] = transfer[puc] @ field[rows]
        for rail, row in enumerate(rows):
            field[row] *= np.exp(-1j * joint_phase.get(4 * puc + 2 + rail, 0.0))
    return field


@pytest.mark.parametrize("ports", SIZES)
def test_fields_are_the_product_of_the_columns(ports: int) -> None:
    mesh = RectangularMesh.from_ports(ports)
    cells = fabricated(mesh, ports)
    matrix = Solver(mesh).solve(cells, F0)
    np.testing.assert_allclose(matrix[ports:, :ports], column_product(mesh, cells), atol=1e-12)
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-13)  # reciprocal
    assert np.abs(matrix[:ports, :ports]).max() == np.abs(matrix[ports:, ports:]).max() == 0.0  # nothing turns back


def test_without_loss_the_matrix_from_side_to_side_is_unitary() -> None:
    mesh = RectangularMesh.from_ports(6)
    through = Solver(mesh).solve(fabricated(mesh, 1, lossless=True), F0)[6:, :6]
    np.testing.assert_allclose(through.conj().T @ through, np.eye(6), atol=1e-12)


def test_light_in_binary_states_leaves_where_the_trace_says() -> None:
    mesh = RectangularMesh.from_ports(8)
    cells, states = binary(mesh, 3, np.full(mesh.n_pucs, 0.5))
    power = np.abs(Solver(mesh).solve(cells, F0)) ** 2
    for port in range(16):
        trace = mesh.trace(port, states)
        assert power[trace.port, port] == pytest.approx(10 ** (-0.05 * len(trace.pucs)), rel=1e-12)


def test_every_puc_is_eliminated_once() -> None:
    mesh = RectangularMesh.from_ports(9)
    assert sorted(dissect(mesh).tolist()) == list(range(36))


def test_crosstalk_distances_are_those_of_the_layout() -> None:
    """PUCs 0 and 1 lie above each other, two waveguides apart; waveguide 0 passes PUC 2 by at its own height."""
    mesh = RectangularMesh.from_ports(4)
    distances = HeaterDistances.from_mesh(mesh)
    assert distances.arm_mm[0, 2] == pytest.approx(BUL_MM)
    passing = mesh.joints.tolist().index([2, 12])
    np.testing.assert_allclose(mesh.joint_positions[passing], [1.5, 0.0])


# ------------------------------------------------------------------------------------------------------------ routing


def test_every_permutation_of_four_is_routed() -> None:
    mesh = RectangularMesh.from_ports(4)
    for outputs in itertools.permutations(range(4, 8)):
        routing = route(mesh, RouteRequest(list(enumerate(outputs)), exact_search="never"))
        for source, target in enumerate(outputs):
            assert mesh.trace(source, routing.states).port == target


def test_permutations_of_eight_are_routed_and_the_rest_is_parked() -> None:
    mesh, rng = RectangularMesh.from_ports(8), np.random.default_rng(5)
    for _ in range(10):
        pairs = list(enumerate((8 + rng.permutation(8)).tolist()))[: int(rng.integers(1, 9))]
        routing = route(mesh, RouteRequest(pairs, exact_search="never"))
        states = park_unused_pucs(mesh, routing.states).states
        assert set(states) == set(range(28))
        assert [mesh.trace(source, states).port for source, _ in pairs] == [target for _, target in pairs]


def test_two_ports_of_one_side_are_proven_to_have_no_path() -> None:
    with pytest.raises(NoPathError, match="proven"):
        route(RectangularMesh.from_ports(6), RouteRequest([(0, 5)]))


def test_exact_and_equal_lengths_are_found_without_parity() -> None:
    mesh = RectangularMesh.from_ports(4)
    for hops in (2, 3):
        assert route(mesh, RouteRequest([(0, 4)], exact_hops={0: hops})).paths[0].hops == hops
    with pytest.raises(NoPathError, match="every path has 2 or more"):
        route(mesh, RouteRequest([(0, 4)], exact_hops={0: 1}))
    equal = route(mesh, RouteRequest([(0, 4), (2, 6)], equal_hops=[[0, 1]], exact_search="never"))
    assert equal.paths[0].hops == equal.paths[1].hops


@pytest.mark.parametrize("ports", [3, 4, 6])
def test_all_on_the_left_meet_all_on_the_right_in_as_many_settings_as_there_are_ports(ports: int) -> None:
    mesh = RectangularMesh.from_ports(ports)
    found = all_to_all(mesh, range(2 * ports))
    assert len(found.configurations) == found.lower_bound == ports
    joined = sorted(pair for each in found.configurations for pair in each.pairs)
    assert joined == list(itertools.product(range(ports), range(ports, 2 * ports)))


def test_ports_of_one_side_alone_have_no_matching() -> None:
    with pytest.raises(NoPathError, match="none of the ports"):
        all_to_all(RectangularMesh.from_ports(4), [0, 1, 2])


def test_it_has_no_feed_forward_block_of_the_hexagonal_kind() -> None:
    """PUCs of two modes alone cannot set the phase of one: a block needs PUCs that carry a single mode."""
    with pytest.raises(ConfigError, match="mesh 'rectangular 8' has no feed-forward block"):
        find_block(RectangularMesh.from_ports(8), 4)


# ------------------------------------------------------------------------------------------------------------ picture


def places(svg: str, kind: str) -> NDArray[np.float64]:
    """Return where PUCs or ports are drawn, in px."""
    if kind == "puc":
        found = re.findall(r'id="puc-\d+" transform="translate\(([\d.]+) ([\d.]+)\)', svg)
    else:
        found = re.findall(r'id="port-\d+">.*?<circle cx="([\d.]+)" cy="([\d.]+)"', svg, re.DOTALL)
    return np.array(found, dtype=np.float64)


@pytest.mark.parametrize("ports", [3, 5, 8, 16])
def test_the_picture_shows_columns_between_two_rows_of_ports(ports: int) -> None:
    mesh = RectangularMesh.from_ports(ports)
    svg = mesh_svg(mesh)
    assert f"Rectangular mesh of {mesh.n_pucs} PUCs" in "".join(ElementTree.fromstring(svg).itertext())
    pucs, shown = places(svg, "puc"), places(svg, "port")
    assert (len(pucs), len(shown)) == (mesh.n_pucs, 2 * ports)
    left, right = shown[:ports], shown[ports:]
    assert np.ptp(left[:, 0]) == np.ptp(right[:, 0]) == 0.0
    assert left[0, 0] < pucs[:, 0].min() < pucs[:, 0].max() < right[0, 0]
    assert np.diff(left[:, 1]).min() > 19.0  # discs of 9.5 px beside each other
    np.testing.assert_allclose(left[:, 1], right[:, 1], atol=0.11)
    apart = np.abs(pucs[:, None] - pucs[None])
    scale = 62.0
    covering = (apart[..., 0] < 0.54 * scale) & (apart[..., 1] < 0.3 * scale)  # body of a PUC: 0.54 by 0.30 lengths
    np.testing.assert_array_equal(covering, np.eye(mesh.n_pucs, dtype=bool))


def test_a_circuit_is_drawn_along_the_waveguides_with_its_ends_named() -> None:
    mesh = RectangularMesh.from_ports(8)
    routing = route(mesh, RouteRequest([(3, 8)]))
    path = routing.paths[0]
    shown = PicturePath("a → b", path.source, path.pucs, source_name="srv1/nic0", target_name="srv2/nic1")
    svg = mesh_svg(mesh, states=routing.states, paths=[shown])
    assert f'data-pucs="{" ".join(map(str, path.pucs))}"' in svg
    assert "srv1/nic0" in svg
    assert "srv2/nic1" in svg


# -------------------------------------------------------------------------------------------------- a further topology


class TriangleMesh(MeshTopology):
    """Three PUCs round one triangle, rails L inside: what a file for a further topology has to say, and no more."""

    topology = "triangle"

    @property
    def corners(self) -> NDArray[np.float64]:
        angle = math.pi * (0.5 + 2.0 * np.arange(4) / 3.0)
        vertices = np.stack([np.cos(angle), np.sin(angle)], axis=1) / math.sqrt(3.0)
        return np.repeat(vertices[[0, 1, 1, 2, 2, 0]], 2, axis=0)

    def to_dict(self) -> dict[str, Any]:
        return {}


@pytest.fixture
def triangle() -> TriangleMesh:
    mate = np.full(12, -1)
    for puc in range(3):  # the inner rails follow one another
        following = 4 * ((puc + 1) % 3)
        mate[4 * puc + 2], mate[following] = following, 4 * puc + 2
    return TriangleMesh("triangle", mate, np.array([1, 3, 5, 7, 9, 11]), tuple(range(6)))


def test_a_topology_that_only_says_what_is_joined_and_where_works_everywhere(triangle: TriangleMesh) -> None:
    assert triangle.faces == ((0, 2, 1),)  # as light goes that has the cell at its right hand
    assert triangle.port_parity(0, 1) is None  # one PUC, or once round and out again: odd cycles have no parity
    routing = route(triangle, RouteRequest([(0, 3)]))
    assert routing.paths[0].pucs == (0, 1)
    cells = fabricated(triangle, 2)
    matrix = Solver(triangle).solve(cells, F0)
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-13)
    assert mesh_svg(triangle, states=routing.states).count('id="puc-') == 3
    assert np.linalg.norm(triangle.puc_centres[0] - triangle.puc_centres[1]) == pytest.approx(0.5)
