"""All-to-all by matchings (PipSwitch 2025): every pair once, every configuration traced."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st

from lumion_hw.errors import ConfigError, NoPathError
from lumion_hw.mesh.layout.faults import MeshFaults
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.layout.topology import EXIT_XOR
from lumion_hw.mesh.routing.matching_search import random_matching, round_robin
from lumion_hw.mesh.routing.matchings import AllToAll, all_to_all, min_configurations
from tests.effort import examples


def spread(mesh: HexMesh, count: int) -> list[int]:
    """Return fibre ports evenly round the rim."""
    ports = mesh.fibre_ports
    return [ports[index * len(ports) // count] for index in range(count)]


def assert_all_to_all(mesh: HexMesh, ports: Sequence[int], result: AllToAll) -> None:
    """Follow light through every configuration by its states alone, and count which ports it joins."""
    joined: list[tuple[int, int]] = []
    for configuration in result.configurations:
        joints: set[int] = set()
        busy: set[int] = set()
        for source, target in configuration.pairs:
            assert not {source, target} & busy
            busy |= {source, target}
            joined.append((source, target))
            node = int(mesh.port_puc_port[source])
            while True:
                leaving = node ^ EXIT_XOR[configuration.states[node // 4]]
                node = int(mesh.mate[leaving])
                if node < 0:
                    break
                assert min(node, leaving) not in joints, "two circuits share a joint"
                joints.add(min(node, leaving))
            assert leaving == mesh.port_puc_port[target]
    assert sorted(joined) == list(itertools.combinations(sorted(ports), 2))


# ------------------------------------------------------------------------------------------------------ combinatorics


@pytest.mark.parametrize(
    ("ports", "configurations"), [(0, 0), (1, 0), (2, 1), (3, 3), (4, 3), (7, 7), (8, 7), (32, 31)]
)
def test_n_ports_need_n_minus_1_configurations_or_n_if_odd(ports: int, configurations: int) -> None:
    assert min_configurations(list(itertools.combinations(range(ports), 2))) == configurations


def test_pairs_of_two_sides_need_as_many_configurations_as_the_larger_side_has_ports() -> None:
    """König: a bipartite graph falls into as many matchings as its busiest vertex has edges."""
    assert min_configurations(list(itertools.product(range(3), range(10, 15)))) == 5


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 13, 16])
def test_a_round_robin_joins_every_pair_once(count: int) -> None:
    """The circle method: each is a matching, n/2 pairs each, the union has n(n-1)/2 different pairs."""
    rounds = round_robin(range(count))
    assert len(rounds) == min_configurations(list(itertools.combinations(range(count), 2)))
    assert {len(matching) for matching in rounds} == {count // 2}
    for matching in rounds:
        assert len({port for pair in matching for port in pair}) == 2 * len(matching)
    assert sorted(pair for matching in rounds for pair in matching) == list(itertools.combinations(range(count), 2))


@examples(50)
@given(order=st.randoms(use_true_random=False), half=st.integers(2, 8))
def test_a_random_matching_of_a_complete_graph_is_perfect(order: object, half: int) -> None:
    pairs = set(itertools.combinations(range(2 * half), 2))
    matching = random_matching(pairs, half, order if isinstance(order, random.Random) else random.Random(0))
    assert matching is not None
    assert sorted(port for pair in matching for port in pair) == list(range(2 * half))


def test_a_star_has_no_matching_of_two() -> None:
    assert random_matching({(0, 1), (0, 2), (0, 3)}, 2, random.Random(0)) is None


# ------------------------------------------------------------------------------------------------------------- meshes


@pytest.mark.parametrize("count", [2, 3, 4, 6, 7, 8, 10])
def test_up_to_ten_ports_round_the_smartlight_mesh_meet_the_lower_bound(smartlight: HexMesh, count: int) -> None:
    ports = spread(smartlight, count)
    result = all_to_all(smartlight, ports)
    assert_all_to_all(smartlight, ports, result)
    assert len(result.configurations) == result.lower_bound == count - 1 + count % 2


def test_sixteen_ports_of_a_nine_by_nine_mesh_meet_the_lower_bound() -> None:
    mesh = HexMesh.columns([8, 9, 8, 9, 8, 9, 8, 9, 8])
    ports = spread(mesh, 16)
    result = all_to_all(mesh, ports)
    assert_all_to_all(mesh, ports, result)
    assert len(result.configurations) == 15


@pytest.mark.campaign
def test_thirty_two_ports_of_a_nine_by_nine_mesh_meet_the_lower_bound() -> None:
    """The size of PipSwitch (PipSwitch 2025)."""
    mesh = HexMesh.columns([8, 9, 8, 9, 8, 9, 8, 9, 8])
    ports = spread(mesh, 32)
    result = all_to_all(mesh, ports)
    assert_all_to_all(mesh, ports, result)
    assert len(result.configurations) == 31


def test_ports_too_many_for_perfect_matchings_are_still_all_joined(smartlight: HexMesh) -> None:
    """Twelve neighbours on one side get in each other's way; whatever it takes, every pair is joined once."""
    ports = list(range(12))
    result = all_to_all(smartlight, ports, steps=20)
    assert_all_to_all(smartlight, ports, result)
    assert len(result.configurations) >= result.lower_bound == 11


def test_the_hop_ceiling_holds_for_every_path(smartlight: HexMesh) -> None:
    ports = spread(smartlight, 6)
    ceiling = int(max(smartlight.shortest_hops[a, b] for a in ports for b in ports)) + 2
    result = all_to_all(smartlight, ports, max_hops=ceiling)
    assert_all_to_all(smartlight, ports, result)
    assert result.longest_hops <= ceiling


def test_ports_farther_apart_than_the_ceiling_are_named(smartlight: HexMesh) -> None:
    """PipSwitch's 14 hops do not join ports 0 and 20, which are 15 apart."""
    with pytest.raises(NoPathError, match=r"from port 0 to port 20 within 14 hops \(proven\)"):
        all_to_all(smartlight, [0, 5, 20], max_hops=14)


def test_faults_are_gone_round_in_every_configuration(smartlight: HexMesh) -> None:
    faults = MeshFaults(stuck={10: "bar", 30: "cross", 45: 0.5})
    ports = spread(smartlight, 5)
    result = all_to_all(smartlight, ports, faults=faults)
    assert_all_to_all(smartlight, ports, result)
    for configuration in result.configurations:
        assert configuration.states.get(10, "bar") == "bar"
        assert configuration.states.get(30, "cross") == "cross"
        assert 45 not in configuration.states


def test_the_same_seed_gives_the_same_configurations_and_json_holds_them(smartlight: HexMesh) -> None:
    ports = spread(smartlight, 8)
    first, second = (all_to_all(smartlight, ports, seed=3).to_dict() for _ in range(2))
    assert first == second
    document = json.loads(json.dumps(first))
    assert (document["lower_bound"], len(document["configurations"])) == (7, 7)


@pytest.mark.parametrize(
    ("ports", "error", "message"),
    [
        ([3], ConfigError, "at least two ports, not 1"),
        ([3, 3], NoPathError, "port 3 is requested twice"),
        ([3, 25], NoPathError, "port 25 has no fibre"),
    ],
)
def test_ports_that_cannot_be_joined_are_refused(
    smartlight: HexMesh, ports: list[int], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        all_to_all(smartlight, ports)
