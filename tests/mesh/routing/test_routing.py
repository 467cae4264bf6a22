from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence

import numpy as np
import pytest

from lumion_hw.errors import ConfigError, NoPathError, UndecidedError
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.layout.topology import EXIT_XOR, State
from lumion_hw.mesh.routing import RouteRequest, Routing, route

# The published 6x6 switch (Sánchez-Jácome 2025): every permutation is possible and takes 15 PUCs per path.
SWITCH_INPUTS = (0, 39, 38, 37, 36, 35)
SWITCH_OUTPUTS = (15, 16, 17, 18, 19, 20)
SWITCH_PERMUTATIONS = list(itertools.permutations(SWITCH_OUTPUTS))


def assert_routed(mesh: HexMesh, pairs: Sequence[tuple[int, int]], routing: Routing) -> None:
    """Follow every circuit joint by joint, without the library's tracer, and check the rules (docs/mesh.md#routes)."""
    carried: dict[int, int] = {}  # directed wave -> circuit
    passed: set[int] = set()
    for circuit, ((source, target), path) in enumerate(zip(pairs, routing.paths, strict=True)):
        node, pucs = int(mesh.port_puc_port[source]), []
        while True:
            assert node not in carried, "two circuits merge"
            carried[node] = circuit
            pucs.append(node // 4)
            leaving = node ^ EXIT_XOR[routing.states[node // 4]]
            node = int(mesh.mate[leaving])
            if node < 0:
                break
            assert leaving not in carried, "light runs against other light in one joint"
        assert leaving == mesh.port_puc_port[target]
        assert (path.source, path.target, path.pucs) == (source, target, tuple(pucs))
        assert path.hops == len(pucs)
        passed.update(pucs)
    assert set(routing.states) == passed
    assert set(routing.states.values()) <= {"bar", "cross"}
    assert routing.total_hops == sum(path.hops for path in routing.paths)


def fewest_hops(mesh: HexMesh, source: int, target: int, dead: frozenset[tuple[int, State]] = frozenset()) -> int:
    """Return the fewest PUCs between two ports over directed waves, or 0 when there is no way at all."""
    goal, reached = int(mesh.port_puc_port[target]), {int(mesh.port_puc_port[source])}
    frontier, hops = set(reached), 0
    states: tuple[State, State] = ("bar", "cross")
    while frontier:
        hops += 1
        leaving = {node ^ EXIT_XOR[state] for node in frontier for state in states if (node // 4, state) not in dead}
        if goal in leaving:
            return hops
        frontier = {int(mesh.mate[port]) for port in leaving} - reached - {-1}
        reached |= frontier
    return 0


def shortest_by_exhaustion(
    mesh: HexMesh, source: int, target: int, unusable: Collection[tuple[int, State]], longest: int
) -> int:
    """Try every way of at most ``longest`` PUCs that needs each PUC in one state only; 0 when there is none."""
    goal, shortest = int(mesh.port_puc_port[target]), 0
    states: tuple[State, State] = ("bar", "cross")
    ways: list[tuple[int, dict[int, State]]] = [(int(mesh.port_puc_port[source]), {})]
    for hops in range(1, longest + 1):
        following: list[tuple[int, dict[int, State]]] = []
        for node, used in ways:
            for state in states:
                if (node // 4, state) in unusable or used.get(node // 4, state) != state:
                    continue
                leaving = node ^ EXIT_XOR[state]
                if leaving == goal:
                    shortest = shortest or hops
                elif mesh.mate[leaving] >= 0:
                    following.append((int(mesh.mate[leaving]), {**used, node // 4: state}))
        ways = following
    return shortest


# -------------------------------------------------------------------------------------------------------- one circuit


def test_ports_3_and_4_are_joined_through_puc_15_in_bar(smartlight: HexMesh) -> None:
    routing = route(smartlight, RouteRequest([(3, 4)]))
    assert routing.states == {15: "bar"}
    assert routing.paths[0].pucs == (15,)


@pytest.mark.parametrize(("target", "hops"), [(5, 6), (6, 7), (1, 8), (15, 15), (20, 15)])
def test_port_0_reaches_known_ports_in_the_fewest_hops(smartlight: HexMesh, target: int, hops: int) -> None:
    """5, 6 and the 15 of the switch: Sánchez-Jácome 2025; 1 is PUC 0, six PUCs round a cell, PUC 0 again."""
    routing = route(smartlight, RouteRequest([(0, target)]))
    assert routing.total_hops == hops
    assert_routed(smartlight, [(0, target)], routing)


def test_every_fibre_port_reaches_every_other_by_a_shortest_path(smartlight: HexMesh) -> None:
    for source, target in itertools.permutations(smartlight.fibre_ports[::3], 2):
        routing = route(smartlight, RouteRequest([(source, target)]))
        assert_routed(smartlight, [(source, target)], routing)
        assert routing.total_hops == fewest_hops(smartlight, source, target)


def test_a_path_is_as_lossy_as_its_pucs(smartlight: HexMesh) -> None:
    loss_db = np.random.default_rng(2).uniform(0.4, 0.6, 72)
    path = route(smartlight, RouteRequest([(0, 20)], puc_loss_db=loss_db)).paths[0]
    assert path.loss_db == pytest.approx(loss_db[list(path.pucs)].sum())
    assert route(smartlight, RouteRequest([(0, 20)], puc_loss_db=0.46)).paths[0].loss_db == pytest.approx(15 * 0.46)


def test_a_detour_is_taken_round_a_lossy_puc(smartlight: HexMesh) -> None:
    """0-6-10-16-20-19 leads from port 0 to 5 in 6 hops; with PUC 10 at 6 dB another way costs less."""
    loss_db = np.full(72, 0.5)
    loss_db[10] = 6.0
    routing = route(smartlight, RouteRequest([(0, 5)], puc_loss_db=loss_db))
    assert_routed(smartlight, [(0, 5)], routing)
    assert 10 not in routing.paths[0].pucs
    assert routing.total_hops % 2 == 0  # the parity of the two ports holds for every path


# ------------------------------------------------------------------------------------------------------ faults, limits


def test_unusable_states_are_avoided(smartlight: HexMesh) -> None:
    unusable: list[tuple[int, State]] = [(0, "cross"), (6, "bar")]
    routing = route(smartlight, RouteRequest([(0, 5)], unusable=unusable))
    assert_routed(smartlight, [(0, 5)], routing)
    assert routing.states[0] == "bar"
    assert all(routing.states.get(puc) != state for puc, state in unusable)


@pytest.mark.parametrize("seed", range(1, 6))
def test_single_circuits_go_round_random_faults_or_find_that_nothing_is_left(smartlight: HexMesh, seed: int) -> None:
    rng = np.random.default_rng(seed)
    states: tuple[State, State] = ("bar", "cross")
    refused = 0
    for _ in range(40):
        source, target = rng.choice(smartlight.fibre_ports, 2, replace=False).tolist()
        faults = zip(rng.integers(0, 72, 14).tolist(), rng.integers(0, 2, 14).tolist(), strict=True)
        unusable = frozenset((puc, states[bit]) for puc, bit in faults)
        shortest = fewest_hops(smartlight, source, target, unusable)
        if not shortest:
            refused += 1
            with pytest.raises(NoPathError, match="proven"):
                route(smartlight, RouteRequest([(source, target)], unusable=unusable))
            continue
        routing = route(smartlight, RouteRequest([(source, target)], unusable=unusable))
        assert_routed(smartlight, [(source, target)], routing)
        assert not set(routing.states.items()) & unusable
        assert routing.total_hops >= shortest
    assert 0 < refused < 20  # both outcomes were seen


@pytest.mark.parametrize(("pair", "fault"), [((0, 1), (2, "bar")), ((0, 1), (10, "bar")), ((3, 5), (21, "bar"))])
def test_a_walk_that_needs_one_puc_in_both_states_is_no_path(
    smartlight: HexMesh, pair: tuple[int, int], fault: tuple[int, State]
) -> None:
    """With one PUC stuck, the shortest walk between neighbouring ports passes another PUC in cross and in bar."""
    routing = route(smartlight, RouteRequest([pair], unusable=[fault]))
    assert_routed(smartlight, [pair], routing)
    shortest = shortest_by_exhaustion(smartlight, *pair, [fault], 13)
    assert routing.total_hops == shortest
    assert fewest_hops(smartlight, *pair, frozenset([fault])) == shortest - 2


@pytest.mark.parametrize(("pair", "fault"), [((2, 4), (2, "bar")), ((3, 5), (25, "cross")), ((7, 9), (48, "bar"))])
def test_banning_one_state_of_a_conflict_does_not_lose_the_path_through_the_other(
    smartlight: HexMesh, pair: tuple[int, int], fault: tuple[int, State]
) -> None:
    routing = route(smartlight, RouteRequest([pair], unusable=[fault]))
    assert_routed(smartlight, [pair], routing)
    assert routing.total_hops == shortest_by_exhaustion(smartlight, *pair, [fault], 13) == 13


def test_a_walk_of_ten_that_is_no_path_is_told_from_a_path(smartlight: HexMesh) -> None:
    """With PUC 1 stuck in bar, port 0 reaches port 1 by a walk of 10 that needs a PUC in both states, and no other."""
    assert fewest_hops(smartlight, 0, 1, frozenset([(1, "cross")])) == 10
    with pytest.raises(NoPathError, match=r"with 1 blocked PUC states \(proven\)"):
        route(smartlight, RouteRequest([(0, 1)], unusable=[(1, "cross")]))


def test_a_tight_hop_limit_is_met_however_uneven_the_losses(smartlight: HexMesh) -> None:
    """The cheapest way may be too long; the shortest one still has to be found."""
    rng = np.random.default_rng(1)
    for _ in range(60):
        pair = tuple(rng.choice(smartlight.fibre_ports, 2, replace=False).tolist())
        limit = fewest_hops(smartlight, *pair)
        routing = route(smartlight, RouteRequest([pair], puc_loss_db=rng.uniform(0.1, 1.5, 72), max_hops=limit))
        assert_routed(smartlight, [pair], routing)
        assert routing.total_hops == limit


@pytest.mark.parametrize("loss_db", [-0.1, float("nan"), float("inf"), np.full(71, 0.5)])
def test_weights_that_are_no_losses_are_refused(smartlight: HexMesh, loss_db: float) -> None:
    with pytest.raises(ConfigError, match="are not valid"):
        route(smartlight, RouteRequest([(0, 5)], puc_loss_db=loss_db))


def test_pucs_and_states_that_do_not_exist_are_refused(smartlight: HexMesh) -> None:
    with pytest.raises(ConfigError, match="PUC 72 cannot be in state 'bar'"):
        route(smartlight, RouteRequest([(0, 5)], unusable=[(72, "bar")]))
    with pytest.raises(ConfigError, match="PUC 6 cannot be in state 'stuck'"):
        route(smartlight, RouteRequest([(0, 5)], fixed={6: "stuck"}))  # type: ignore[dict-item]


def test_fixed_states_are_kept_and_may_be_shared(smartlight: HexMesh) -> None:
    """A standing circuit 0-6-10-16-20-19 leaves the way for another one that shares PUCs in the same state."""
    active = route(smartlight, RouteRequest([(0, 5)]))
    added = route(smartlight, RouteRequest([(39, 15)], fixed=active.states))
    assert_routed(smartlight, [(39, 15)], added)
    for puc, state in added.states.items():
        assert active.states.get(puc, state) == state
    both = active.states | added.states
    assert smartlight.trace(0, both).port == 5
    assert smartlight.trace(39, both).port == 15


def test_a_fixed_state_can_leave_only_one_way(smartlight: HexMesh) -> None:
    """Port 3 enters PUC 15 on its left rail: in cross it can't leave at port 4 at once."""
    routing = route(smartlight, RouteRequest([(3, 4)], fixed={15: "cross"}))
    assert_routed(smartlight, [(3, 4)], routing)
    assert routing.states[15] == "cross"
    assert routing.total_hops > 1


@pytest.mark.parametrize("limit", [15, 16, 40])
def test_a_hop_limit_that_suffices_changes_nothing(smartlight: HexMesh, limit: int) -> None:
    assert route(smartlight, RouteRequest([(0, 20)], max_hops=limit)).total_hops == 15


def test_a_hop_limit_below_the_shortest_path_is_a_proven_no(smartlight: HexMesh) -> None:
    with pytest.raises(NoPathError, match=r"no path from port 0 to port 20 within 14 hops .*\(proven\)"):
        route(smartlight, RouteRequest([(0, 20)], max_hops=14))


def test_a_circuit_shut_in_by_faults_is_a_proven_no(smartlight: HexMesh) -> None:
    with pytest.raises(NoPathError, match=r"port 0 to port 20 with 2 blocked PUC states \(proven\)"):
        route(smartlight, RouteRequest([(0, 20)], unusable=[(0, "bar"), (0, "cross")]))


def test_the_drain_can_be_shut_in_as_well(smartlight: HexMesh) -> None:
    with pytest.raises(NoPathError, match="proven"):
        route(smartlight, RouteRequest([(0, 20)], unusable=[(71, "bar")], fixed={71: "bar"}))


# --------------------------------------------------------------------------------------------------------------- ports


@pytest.mark.parametrize("port", [22, 33])
def test_the_bottom_rim_is_neither_source_nor_drain(smartlight: HexMesh, port: int) -> None:
    for pair in [(port, 0), (0, port)]:
        with pytest.raises(NoPathError, match=f"port {port} has no fibre"):
            route(smartlight, RouteRequest([pair]))


@pytest.mark.parametrize("port", [-1, 40])
def test_a_port_that_does_not_exist_has_no_fibre(smartlight: HexMesh, port: int) -> None:
    with pytest.raises(NoPathError, match=f"port {port} has no fibre"):
        route(smartlight, RouteRequest([(0, port)]))


@pytest.mark.parametrize("pairs", [[(0, 5), (0, 6)], [(0, 5), (6, 5)], [(0, 5), (5, 0)], [(7, 7)]])
def test_a_port_carries_one_circuit(smartlight: HexMesh, pairs: list[tuple[int, int]]) -> None:
    with pytest.raises(NoPathError, match="is requested twice"):
        route(smartlight, RouteRequest(pairs))


def test_no_circuits_need_no_states(smartlight: HexMesh) -> None:
    routing = route(smartlight, RouteRequest([]))
    assert routing.states == {}
    assert routing.paths == ()
    assert routing.total_hops == 0


# ---------------------------------------------------------------------------------------------------- several circuits


def assert_switched(mesh: HexMesh, outputs: Sequence[int], max_hops: int | None = None) -> None:
    pairs = list(zip(SWITCH_INPUTS, outputs, strict=True))
    routing = route(mesh, RouteRequest(pairs, max_hops=max_hops))
    assert_routed(mesh, pairs, routing)
    assert [path.hops for path in routing.paths] == [15] * 6


@pytest.mark.parametrize("outputs", SWITCH_PERMUTATIONS[::18])
def test_the_6_by_6_switch_takes_15_hops_per_circuit(smartlight: HexMesh, outputs: tuple[int, ...]) -> None:
    assert_switched(smartlight, outputs)


@pytest.mark.parametrize("outputs", SWITCH_PERMUTATIONS[7::180])
def test_the_6_by_6_switch_works_at_its_tightest_hop_limit(smartlight: HexMesh, outputs: tuple[int, ...]) -> None:
    assert_switched(smartlight, outputs, max_hops=15)


@pytest.mark.long
def test_the_6_by_6_switch_sets_all_720_permutations(smartlight: HexMesh) -> None:
    for outputs in SWITCH_PERMUTATIONS:
        assert_switched(smartlight, outputs)


@pytest.mark.parametrize("seed", range(30))
def test_random_requests_are_free_of_conflict_or_refused_in_so_many_words(smartlight: HexMesh, seed: int) -> None:
    ports = np.random.default_rng(seed).permutation(smartlight.fibre_ports)[:8].tolist()
    pairs = list(zip(ports[::2], ports[1::2], strict=True))
    told = ""
    try:
        assert_routed(smartlight, pairs, route(smartlight, RouteRequest(pairs, rounds=48, exact_search="never")))
    except UndecidedError as error:
        told = "undecided" if "(not proven impossible)" in str(error) else "wrong"
    except NoPathError as error:
        told = "proven" if "(proven)" in str(error) or "Proof:" in str(error) else "wrong"
    assert told in ("", "undecided", "proven")


def test_most_random_requests_for_three_circuits_are_met(smartlight: HexMesh) -> None:
    rng = np.random.default_rng(5)
    met = 0
    for _ in range(30):
        ports = rng.permutation(smartlight.fibre_ports)[:6].tolist()
        pairs = list(zip(ports[::2], ports[1::2], strict=True))
        met += len(route(smartlight, RouteRequest(pairs)).paths) == 3
    assert met == 30


def test_a_request_that_cannot_be_met_names_what_is_contested_and_claims_no_proof(smartlight: HexMesh) -> None:
    """Within 6 hops, port 0 reaches 5 only with PUC 0 in cross, and port 1 reaches 2 only with PUC 0 in bar.

    Any other way starts downwards through PUCs 1, 2, 7 and has to come back up: 8 hops to port 5, 7 to port 2.
    """
    assert route(smartlight, RouteRequest([(0, 5)], max_hops=6)).states[0] == "cross"
    assert route(smartlight, RouteRequest([(1, 2)], max_hops=6)).states[0] == "bar"
    with pytest.raises(UndecidedError, match="not proven impossible") as refusal:
        route(smartlight, RouteRequest([(0, 5), (1, 2)], max_hops=6, rounds=30, exact_search="never"))
    assert "2 circuits after 30 rounds" in str(refusal.value)
    assert "PUCs still contested: [0" in str(refusal.value)
    assert_routed(
        smartlight, [(0, 5), (1, 2)], route(smartlight, RouteRequest([(0, 5), (1, 2)]))
    )  # longer, but possible


def test_the_same_request_gives_the_same_routes(smartlight: HexMesh) -> None:
    pairs = list(zip(SWITCH_INPUTS, SWITCH_PERMUTATIONS[123], strict=True))
    assert route(smartlight, RouteRequest(pairs)) == route(smartlight, RouteRequest(pairs))


def test_circuits_on_a_larger_mesh_are_routed_too() -> None:
    mesh = HexMesh.columns([3, 4, 3, 4, 3, 4, 3, 4, 3])
    ports = np.random.default_rng(1).permutation(mesh.n_ports)[:8].tolist()
    pairs = list(zip(ports[::2], ports[1::2], strict=True))
    assert_routed(mesh, pairs, route(mesh, RouteRequest(pairs)))
