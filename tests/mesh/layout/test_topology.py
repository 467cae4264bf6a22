from __future__ import annotations

import math
from collections import Counter, deque

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.layout.topology import EXIT_XOR, State
from tests.effort import examples

# Recovered from the published drawing of the chip (Sánchez-Jácome 2025).
PORT_TABLE = """
 0: 0.AR   1: 0.AL   2: 9.AR   3:15.AL   4:15.BL   5:19.AL   6:28.AR   7:34.AL   8:34.BL   9:38.AL
10:47.AR  11:53.AL  12:53.BL  13:57.AL  14:66.AR  15:66.AL  16:67.BL  17:68.AL  18:69.BL  19:70.AL
20:71.BL  21:71.BR  22:62.BL  23:56.BR  24:56.AR  25:52.BR  26:43.BL  27:37.BR  28:37.AR  29:33.BR
30:24.BL  31:18.BR  32:18.AR  33:14.BR  34: 5.BL  35: 5.BR  36: 4.AR  37: 3.BR  38: 2.AR  39: 1.BR
"""

# Published circuits from port 0 (Sánchez-Jácome 2025), x = cross, = is bar, in the order travelled.
GOLDEN_PATHS = [
    ("0x 6x 10x 16= 20= 19x", 5),
    ("0x 6x 10x 16= 20x 25x 28=", 6),
    ("0x 6= 9x 15= 19x 25= 28=", 6),
    ("0x 6x 10x 16x 21x 26= 30= 29x 28x", 6),
]

LAYOUTS = [
    (1,),
    (3,),
    (1, 2),
    (2, 1),
    (2, 3, 2),
    (3, 2, 3),
    (2, 3, 2, 3),
    (3, 2, 3, 2),
    (2, 3, 2, 3, 2, 3, 2),
    (3, 4, 3, 4, 3, 4, 3, 4, 3),
    (5, 4, 5, 4, 5),
]

layouts = pytest.mark.parametrize("cells", LAYOUTS, ids=lambda cells: "-".join(map(str, cells)))


def alternating(columns: int, low: int) -> list[int]:
    return [low + c % 2 for c in range(columns)]


def parsed(text: str) -> tuple[dict[int, State], tuple[int, ...]]:
    """Read ``0x 6= ...`` into states and the PUCs in order."""
    words = text.split()
    states: dict[int, State] = {int(word[:-1]): "cross" if word[-1] == "x" else "bar" for word in words}
    return states, tuple(int(word[:-1]) for word in words)


def shortest_hops(mesh: HexMesh, source: int) -> dict[int, int]:
    """Return the fewest PUCs to every port, by breadth-first search over the directed waves."""
    start = int(mesh.port_puc_port[source])
    hops, reached, queue = {start: 0}, {}, deque([start])
    while queue:
        node = queue.popleft()
        for flip in EXIT_XOR.values():
            leaving = node ^ flip
            following = int(mesh.mate[leaving])
            if following < 0:
                reached.setdefault(int(mesh.port_at[leaving]), hops[node] + 1)
            elif following not in hops:
                hops[following] = hops[node] + 1
                queue.append(following)
    return reached


def random_states(mesh: HexMesh, seed: int) -> dict[int, State]:
    draw = np.random.default_rng(seed).integers(0, 2, mesh.n_pucs)
    return {puc: "cross" if bit else "bar" for puc, bit in enumerate(draw.tolist())}


# ------------------------------------------------------------------------------------------------------------- counts


def test_the_smartlight_mesh_has_the_published_counts(smartlight: HexMesh) -> None:
    assert smartlight.n_pucs == 72
    assert smartlight.n_ports == 40
    assert smartlight.n_cells == 17
    assert len(smartlight.joints) == 124
    degrees = Counter(Counter(smartlight.ends.reshape(-1).tolist()).values())
    assert degrees == {1: 4, 2: 16, 3: 36}


@pytest.mark.parametrize(
    ("columns", "low", "pucs", "ports"), [(7, 2, 72, 40), (9, 3, 120, 52), (13, 4, 211, 72), (21, 10, 725, 128)]
)
def test_published_column_layouts_have_their_counts(columns: int, low: int, pucs: int, ports: int) -> None:
    mesh = HexMesh.columns(alternating(columns, low))
    assert (mesh.n_pucs, mesh.n_ports) == (pucs, ports)


@pytest.mark.parametrize("low", [1, 2, 3])
@pytest.mark.parametrize("columns", [1, 3, 5])
def test_an_odd_number_of_columns_follows_the_formulas(columns: int, low: int) -> None:
    mesh = HexMesh.columns(alternating(columns, low))
    assert mesh.n_cells == columns * low + (columns - 1) // 2
    assert mesh.n_pucs == (3 * columns + 2) * low + (7 * columns + 3) // 2
    assert mesh.n_ports == 4 * (columns + low + 1)
    assert stub_count(mesh) == 4


@pytest.mark.parametrize("low", [1, 2, 3])
@pytest.mark.parametrize("columns", [2, 4, 6])
def test_an_even_number_of_columns_follows_the_formulas(columns: int, low: int) -> None:
    mesh = HexMesh.columns(alternating(columns, low))
    assert mesh.n_cells == columns * low + columns // 2
    assert mesh.n_pucs == (3 * columns + 2) * low + (7 * columns + 4) // 2
    assert mesh.n_ports == 4 * (columns + low + 1) + 2
    assert stub_count(mesh) == 2


def test_columns_that_begin_and_end_with_the_longer_one_have_no_stubs() -> None:
    # By hand for 3-2-3: 4 zig-zags of 6 slanted PUCs, 4 + 3 + 4 horizontal ones; 28 vertices, 14 of degree 2.
    mesh = HexMesh.columns([3, 2, 3])
    assert (mesh.n_pucs, mesh.n_cells, mesh.n_ports, stub_count(mesh)) == (35, 8, 28, 0)


def stub_count(mesh: HexMesh) -> int:
    return Counter(Counter(mesh.ends.reshape(-1).tolist()).values())[1]


# --------------------------------------------------------------------------------------------------------- invariants


@layouts
def test_every_puc_port_is_either_joined_or_a_port(cells: tuple[int, ...]) -> None:
    mesh = HexMesh.columns(cells)
    assert 4 * mesh.n_pucs == 2 * len(mesh.joints) + mesh.n_ports
    assert np.count_nonzero(mesh.mate < 0) == mesh.n_ports
    assert sorted(mesh.port_puc_port.tolist()) == np.flatnonzero(mesh.mate < 0).tolist()


@layouts
def test_vertices_minus_edges_plus_cells_is_one(cells: tuple[int, ...]) -> None:
    mesh = HexMesh.columns(cells)
    assert len(mesh.vertices) - mesh.n_pucs + mesh.n_cells == 1
    assert mesh.n_cells == sum(cells)


@layouts
def test_joining_is_mutual_and_no_puc_port_is_joined_to_itself(cells: tuple[int, ...]) -> None:
    mesh = HexMesh.columns(cells)
    joined = np.flatnonzero(mesh.mate >= 0)
    np.testing.assert_array_equal(mesh.mate[mesh.mate[joined]], joined)
    assert np.all(mesh.mate[joined] != joined)


@layouts
def test_a_joint_connects_two_pucs_at_one_vertex(cells: tuple[int, ...]) -> None:
    mesh = HexMesh.columns(cells)
    for one, other in mesh.joints.tolist():
        assert one < other
        assert one // 4 != other // 4
        assert mesh.ends[one // 4, one % 4 // 2] == mesh.ends[other // 4, other % 4 // 2]


@layouts
def test_all_bar_light_that_never_leaves_goes_round_each_cell_both_ways(cells: tuple[int, ...]) -> None:
    mesh = HexMesh.columns(cells)
    lengths = closed_orbit_lengths(mesh)
    assert lengths == [6] * (2 * mesh.n_cells)


def test_the_smartlight_mesh_has_34_all_bar_orbits_of_length_six(smartlight: HexMesh) -> None:
    assert closed_orbit_lengths(smartlight) == [6] * 34


def closed_orbit_lengths(mesh: HexMesh) -> list[int]:
    following = mesh.mate[np.arange(4 * mesh.n_pucs) ^ EXIT_XOR["bar"]].tolist()
    unseen = set(range(4 * mesh.n_pucs))
    lengths = []
    for start in mesh.port_puc_port.tolist():  # what came in at a port leaves at a port: not closed
        node = start
        while node >= 0:
            unseen.discard(node)
            node = following[node]
    while unseen:
        node, length = unseen.pop(), 1
        while (node := following[node]) in unseen:
            unseen.discard(node)
            length += 1
        lengths.append(length)
    return lengths


@layouts
def test_every_puc_has_unit_length_and_flips_the_colour(cells: tuple[int, ...]) -> None:
    mesh = HexMesh.columns(cells)
    tail, head = mesh.ends.T
    np.testing.assert_allclose(np.linalg.norm(mesh.vertices[head] - mesh.vertices[tail], axis=1), 1.0, rtol=1e-12)
    assert np.all(mesh.colour[head] ^ mesh.colour[tail] == 1)
    np.testing.assert_allclose(mesh.puc_centres, (mesh.vertices[head] + mesh.vertices[tail]) / 2)


# ---------------------------------------------------------------------------------------------------------- numbering


def test_pucs_are_numbered_column_pair_by_column_pair(smartlight: HexMesh) -> None:
    """Period 19 per column pair g: slanted 0-5, horizontal 6-8, slanted 9-14, horizontal 15-18."""

    def place(column: int, j: int) -> tuple[float, float]:
        sign = 1 if (column + j) % 2 else -1
        return 1.5 * column + 0.25 * sign, -math.sqrt(3) / 2 * j

    expected: dict[int, tuple[tuple[float, float], tuple[float, float]]] = {}
    for g in range(4):
        for r in range(6):
            expected[19 * g + r] = place(2 * g, r), place(2 * g, r + 1)
            expected[19 * g + 9 + r] = place(2 * g + 1, r), place(2 * g + 1, r + 1)
        for i, j in enumerate((1, 3, 5)):
            expected[19 * g + 6 + i] = place(2 * g, j), place(2 * g + 1, j)
        for i, j in enumerate((0, 2, 4, 6) if g < 3 else ()):
            expected[19 * g + 15 + i] = place(2 * g + 1, j), place(2 * g + 2, j)
    assert sorted(expected) == list(range(72))
    for puc, (end_a, end_b) in expected.items():
        np.testing.assert_allclose(smartlight.vertices[smartlight.ends[puc]], [end_a, end_b], atol=1e-12)


def test_the_stubs_are_pucs_0_5_66_and_71(smartlight: HexMesh) -> None:
    degree = Counter(smartlight.ends.reshape(-1).tolist())
    stubs = [puc for puc, ends in enumerate(smartlight.ends.tolist()) if 1 in (degree[ends[0]], degree[ends[1]])]
    assert stubs == [0, 5, 66, 71]


def test_ports_are_the_published_puc_ports(smartlight: HexMesh) -> None:
    named = {int(a): b.strip() for a, _, b in (entry.partition(":") for entry in spaced(PORT_TABLE))}
    assert sorted(named) == list(range(40))
    assert {port: smartlight.port_name(port) for port in range(40)} == named


def spaced(table: str) -> list[str]:
    """Split the table into ``port:PUC.endrail`` entries; a space may follow the colon."""
    return table.replace(": ", ":").split()


def test_the_bottom_rim_has_no_fibres(smartlight: HexMesh) -> None:
    assert smartlight.fibre_ports == (*range(22), 34, 35, 36, 37, 38, 39)
    assert len(smartlight.fibre_ports) == 28


@layouts
def test_all_bar_light_along_the_rim_leads_from_each_corner_to_the_next(cells: tuple[int, ...]) -> None:
    mesh = HexMesh.columns(cells)
    all_bar: dict[int, State] = dict.fromkeys(range(mesh.n_pucs), "bar")
    for corner in range(mesh.n_ports // 2):
        assert mesh.port_vertex(2 * corner) == mesh.port_vertex(2 * corner + 1)
        assert mesh.trace(2 * corner + 1, all_bar).port == (2 * corner + 2) % mesh.n_ports


@layouts
def test_ports_are_counted_clockwise(cells: tuple[int, ...]) -> None:
    mesh = HexMesh.columns(cells)
    x, y = mesh.vertices[[mesh.port_vertex(port) for port in range(mesh.n_ports)]].T
    twice_the_area = np.sum(x * np.roll(y, -1) - np.roll(x, -1) * y)
    assert twice_the_area < 0  # y is up: negative is clockwise
    assert mesh.port_name(0).startswith("0.A")


@layouts
def test_port_tables_are_inverse_to_each_other(cells: tuple[int, ...]) -> None:
    mesh = HexMesh.columns(cells)
    np.testing.assert_array_equal(mesh.port_at[mesh.port_puc_port], np.arange(mesh.n_ports))
    assert np.count_nonzero(mesh.port_at >= 0) == mesh.n_ports


# -------------------------------------------------------------------------------------------------------------- traces


@pytest.mark.parametrize(("text", "port"), GOLDEN_PATHS)
def test_published_circuits_from_port_0_end_where_published(smartlight: HexMesh, text: str, port: int) -> None:
    states, pucs = parsed(text)
    trace = smartlight.trace(0, states)
    assert trace.port == port
    assert trace.pucs == pucs


def test_ports_3_and_4_are_one_puc_apart(smartlight: HexMesh) -> None:
    trace = smartlight.trace(3, {15: "bar"})
    assert (trace.port, trace.pucs) == (4, (15,))


def test_shortest_paths_pass_1_to_15_pucs_and_every_port_reaches_every_port(smartlight: HexMesh) -> None:
    lengths: set[int] = set()
    for source in range(40):
        reached = shortest_hops(smartlight, source)
        assert sorted(reached) == list(range(40))
        lengths |= {hops for target, hops in reached.items() if target != source}
        for target, hops in reached.items():
            assert hops % 2 == smartlight.port_parity(source, target)
    assert lengths == set(range(1, 16))


@examples(60)
@given(cells=st.sampled_from(LAYOUTS), seed=st.integers(0, 2**32 - 1))
def test_light_in_random_states_takes_hops_of_the_parity_of_its_ports(cells: tuple[int, ...], seed: int) -> None:
    mesh = HexMesh.columns(cells)
    states = random_states(mesh, seed)
    for port in range(mesh.n_ports):
        trace = mesh.trace(port, states)
        assert len(trace.pucs) % 2 == mesh.port_parity(port, trace.port)


@examples(60)
@given(cells=st.sampled_from(LAYOUTS), seed=st.integers(0, 2**32 - 1))
def test_light_comes_back_the_way_it_went_and_never_to_its_own_port(cells: tuple[int, ...], seed: int) -> None:
    """One state holds for both directions of travel, so binary states pair the ports off."""
    mesh = HexMesh.columns(cells)
    states = random_states(mesh, seed)
    for port in range(mesh.n_ports):
        there = mesh.trace(port, states)
        back = mesh.trace(there.port, states)
        assert there.port != port
        assert back.port == port
        assert back.pucs == there.pucs[::-1]


@layouts
def test_light_never_makes_a_u_turn(cells: tuple[int, ...]) -> None:
    """Light leaves at the other end, and the next PUC is another one that meets this one there."""
    mesh = HexMesh.columns(cells)
    for node in range(4 * mesh.n_pucs):
        for flip in EXIT_XOR.values():
            leaving = node ^ flip
            assert leaving // 4 == node // 4
            assert leaving % 4 // 2 != node % 4 // 2
            following = int(mesh.mate[leaving])
            if following >= 0:
                assert following // 4 != node // 4
    assert EXIT_XOR == {"bar": 2, "cross": 3}


def test_unused_pucs_need_no_state(smartlight: HexMesh) -> None:
    states, pucs = parsed(GOLDEN_PATHS[0][0])
    assert set(states) == set(pucs)
    assert smartlight.trace(0, states).port == 5


def test_a_missing_state_on_the_way_is_named(smartlight: HexMesh) -> None:
    with pytest.raises(ConfigError, match=r"port 0 reaches PUC 6, whose state is None"):
        smartlight.trace(0, {0: "cross"})


def test_a_state_that_is_neither_bar_nor_cross_is_refused(smartlight: HexMesh) -> None:
    with pytest.raises(ConfigError, match=r"PUC 0, whose state is 'half'"):
        smartlight.trace(0, {0: "half"})  # type: ignore[dict-item]


@pytest.mark.parametrize("port", [-1, 40])
def test_a_port_that_does_not_exist_is_refused(smartlight: HexMesh, port: int) -> None:
    with pytest.raises(ConfigError, match=rf"port {port} does not exist.*0 to 39"):
        smartlight.trace(port, {})


# ------------------------------------------------------------------------------------------------------------ identity


@pytest.mark.parametrize("cells", [(2, 2), (2, 4), (2, 3, 4), (2, 3, 3), (3, 2, 1), (2, 3, 2, 1)])
def test_columns_that_do_not_alternate_are_refused(cells: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="do not alternate"):
        HexMesh.columns(cells)


@pytest.mark.parametrize("cells", [(), (0,), (1, 0, 1), (-1,)])
def test_an_empty_column_is_refused(cells: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="empty column"):
        HexMesh.columns(cells)


def test_the_same_layout_has_the_same_hash_and_another_one_has_not(smartlight: HexMesh) -> None:
    again, plain = HexMesh.smartlight(), HexMesh.columns([2, 3, 2, 3, 2, 3, 2])
    assert again.sha256 == smartlight.sha256
    assert len(smartlight.sha256) == 64
    np.testing.assert_array_equal(plain.mate, smartlight.mate)
    assert plain.sha256 != smartlight.sha256  # it differs in its fibres
    assert HexMesh.columns([3, 2, 3]).sha256 != HexMesh.columns([2, 3, 2]).sha256


def test_the_canonical_text_holds_joints_ports_and_fibres(smartlight: HexMesh) -> None:
    head, mate, ports, fibres = smartlight.canonical_text().splitlines()
    assert head == "lumion-mesh 1"
    assert len(mate.split(" ")[1].split(",")) == 4 * 72
    assert ports.startswith("ports 1,0,37,")  # 0.AR, 0.AL, 9.AR as 4e + k
    assert fibres.startswith("fibres 0,1,2,")
