"""Proof and honesty: optimal, feasible, infeasible and undecided stay four things; CP-SAT rescues and certifies."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lumion_hw.errors import ConfigError, NoPathError, RoutingError, UndecidedError
from lumion_hw.mesh.layout.faults import MeshFaults
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.layout.topology import EXIT_XOR, State
from lumion_hw.mesh.routing import Path, RouteRequest, cpsat, route, states_for_paths
from lumion_hw.mesh.routing.request import opposite_state
from lumion_hw.mesh.routing.result import Routing
from tests.effort import examples

Pair = tuple[int, int]

SMALL = HexMesh.rings(2)
STUCK: list[State] = ["bar", "cross"]


def assert_lit(mesh: HexMesh, pairs: list[tuple[int, int]], routing: Routing) -> None:
    """Send light into every source and follow it by the states alone: it arrives, and never meets other light."""
    waves: set[int] = set()
    for source, target in pairs:
        node = int(mesh.port_puc_port[source])
        while node >= 0:
            assert node not in waves
            waves.add(node)
            leaving = node ^ EXIT_XOR[routing.states[node // 4]]
            node = int(mesh.mate[leaving])
        assert leaving == mesh.port_puc_port[target]
    assert not {int(mesh.mate[wave]) for wave in waves} & waves


# ---------------------------------------------------------------------------------------------------- the four outcomes


def test_a_routing_that_meets_the_sum_of_its_shortest_ways_is_optimal(smartlight: HexMesh) -> None:
    routing = route(smartlight, RouteRequest([(0, 20)], objective="hops"))
    assert (routing.outcome, routing.cost, routing.bound, routing.method) == ("optimal", 15.0, 15.0, "negotiation")


def test_a_routing_above_its_bound_is_feasible_until_it_is_certified(smartlight: HexMesh) -> None:
    """9→3 alone takes 7 hops, but beside the other two circuits somebody has to go round."""
    pairs = [(9, 3), (5, 16), (18, 1)]
    found = route(smartlight, RouteRequest(pairs, objective="hops"))
    shortest = sum(int(smartlight.shortest_hops[pair]) for pair in pairs)
    assert found.bound == shortest < found.cost
    assert found.outcome == "feasible"
    certified = route(smartlight, RouteRequest(pairs, objective="hops", exact_search="always", time_limit_s=60.0))
    assert certified.outcome == "optimal"
    assert shortest <= certified.cost <= found.cost


def test_two_circuits_that_need_one_joint_are_proven_impossible_and_named(smartlight: HexMesh) -> None:
    """From port 2 to 4 light has to turn round the left cells through the joint 1-6, which 34 to 39 needs too."""
    assert (
        len(route(smartlight, RouteRequest([(34, 39)])).paths)
        == len(route(smartlight, RouteRequest([(2, 4)])).paths)
        == 1
    )
    with pytest.raises(
        NoPathError,
        match=r"34→39, 2→4 cannot all be .* Proof: they need more room than PUCs 1, 9",
    ) as refusal:
        route(smartlight, RouteRequest([(18, 5), (34, 39), (15, 37), (2, 4)]))
    assert set(refusal.value.ports) == {34, 39, 2, 4}


CROSSED = RouteRequest([(0, 5), (1, 2)], max_hops=6)
"""Within 6 hops one needs PUC 0 in cross and the other in bar; proofs without CP-SAT know of no ceilings."""


def test_without_a_proof_the_answer_is_undecided_and_not_no(smartlight: HexMesh) -> None:
    with pytest.raises(UndecidedError, match="not proven impossible"):
        route(smartlight, replace(CROSSED, exact_search="never"))
    assert not issubclass(UndecidedError, NoPathError)


def test_without_or_tools_the_answer_says_what_to_install(smartlight: HexMesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpsat, "is_available", lambda: False)
    with pytest.raises(UndecidedError, match=r"pip install 'lumion-hw\[cpsat\]'"):
        route(smartlight, CROSSED)
    assert route(smartlight, RouteRequest([(0, 20)])).total_hops == 15  # all else works


def test_time_that_does_not_suffice_leaves_the_question_open(smartlight: HexMesh) -> None:
    with pytest.raises(UndecidedError, match="s of CP-SAT"):
        route(smartlight, replace(CROSSED, time_limit_s=1e-6))


def test_the_rescue_finds_what_a_single_round_of_negotiation_does_not(smartlight: HexMesh) -> None:
    pairs = list(zip((0, 39, 38, 37, 36, 35), (20, 15, 18, 16, 19, 17), strict=True))
    with pytest.raises(UndecidedError):
        route(smartlight, RouteRequest(pairs, rounds=1, exact_search="never"))
    rescued = route(smartlight, RouteRequest(pairs, rounds=1, time_limit_s=60.0))
    assert rescued.method == "cp-sat"
    assert_lit(smartlight, pairs, rescued)


@pytest.mark.parametrize("word", ["sometimes", ""])
def test_an_unknown_way_to_prove_is_refused(smartlight: HexMesh, word: str) -> None:
    with pytest.raises(ConfigError, match="exact_search="):
        route(smartlight, RouteRequest([(0, 20)], exact_search=word))  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------- reasons


def test_a_cut_is_named_with_its_ports_and_joints(smartlight: HexMesh) -> None:
    """Behind PUC 0 lie ports 0 and 1; what enters there leaves at its end B, and goes on through PUC 1 or 6 only."""
    dead: list[tuple[int, State]] = [(puc, state) for puc in (1, 6) for state in STUCK]
    with pytest.raises(NoPathError, match="no circuit can leave port 0") as refusal:
        route(smartlight, RouteRequest([(0, 20)], unusable=dead))
    assert refusal.value.ports == (0, 20)


def test_more_circuits_than_joints_are_refused_by_the_cut_alone(smartlight: HexMesh) -> None:
    """Left and right of the mesh are joined by PUCs 15 to 18 only; 17 and 18 are dead.

    PUC 16 lets two circuits pass, one per rail. PUC 15 has ports 3 and 4 on its outer rail, so one joint leads to it
    from the left. That makes three.
    """
    dead: list[tuple[int, State]] = [(puc, state) for puc in (17, 18) for state in STUCK]
    pairs = [(0, 15), (39, 16), (38, 17), (37, 18)]
    with pytest.raises(NoPathError, match=r"same time. Proof: only 3 of 4 circuits, over .* can leave") as refusal:
        route(smartlight, RouteRequest(pairs, unusable=dead, exact_search="never"))
    assert sorted(refusal.value.ports) == sorted(port for pair in pairs for port in pair)
    assert route(smartlight, RouteRequest(pairs[:3], unusable=dead)).total_hops > 0


@pytest.mark.parametrize(
    "circuits",
    [pytest.param([(103, 116), (105, 120), (108, 26)], marks=pytest.mark.long), [(52, 41), (33, 44), (39, 69)]],
)
def test_three_circuits_for_which_a_corner_is_too_small_are_refused_without_cp_sat(circuits: list[Pair]) -> None:
    """Any two of them find their ways. CP-SAT 9.15 takes seconds to deny the three, and no cut keeps them apart."""
    mesh = HexMesh.columns([10, 11] * 10 + [10])
    for two in combinations(circuits, 2):
        assert_lit(mesh, list(two), route(mesh, RouteRequest(two, exact_search="never")))
    with pytest.raises(NoPathError, match=r"same time. Proof: they need more room than PUCs .* offer") as refusal:
        route(mesh, RouteRequest([*circuits, (0, 15)], exact_search="never"))
    assert set(refusal.value.ports) == {port for pair in circuits for port in pair}


# ------------------------------------------------------------------------------------------------- random small meshes


@examples(25)
@given(seed=st.integers(0, 2**32 - 1))
def test_too_little_room_beside_standing_circuits_means_that_cp_sat_agrees(seed: int) -> None:
    ports = np.random.default_rng(seed).permutation(SMALL.n_ports)[:12].tolist()
    pairs = list(zip(ports[::2], ports[1::2], strict=True))
    stands: tuple[Path, ...] = ()
    try:
        stands = route(SMALL, RouteRequest(pairs[:2], exact_search="never")).paths
        route(SMALL, RouteRequest(pairs[2:], active=stands, exact_search="never"))
    except NoPathError:
        states = states_for_paths(SMALL, stands)
        shut = {(puc, opposite_state(state)) for puc, state in states.items()}
        assert decided(pairs if stands else pairs[:2], shut).status == "infeasible"
    except UndecidedError:
        pass


@examples(40)
@given(seed=st.integers(0, 2**32 - 1), circuits=st.integers(1, 5))
def test_light_follows_every_routing_and_no_means_that_cp_sat_agrees(seed: int, circuits: int) -> None:
    rng = np.random.default_rng(seed)
    ports = rng.permutation(SMALL.n_ports)[: 2 * circuits].tolist()
    pairs = list(zip(ports[::2], ports[1::2], strict=True))
    stuck = {int(puc): STUCK[int(bit)] for puc, bit in zip(rng.permutation(30)[:4], rng.integers(0, 2, 4), strict=True)}
    faults = MeshFaults(stuck=stuck)
    routing, refused = None, False
    try:
        routing = route(SMALL, RouteRequest(pairs, faults=faults))
    except NoPathError:
        refused = True
    exact = decided(pairs, faults.unusable_states())
    assert exact.status == ("infeasible" if refused else "optimal")
    if routing is not None:
        assert_lit(SMALL, pairs, routing)
        assert all(routing.states.get(puc, state) == state for puc, state in stuck.items())
        assert routing.bound <= exact.bound + 1e-6
        assert routing.cost >= exact.bound - 1e-6


def decided(pairs: list[Pair], blocked: Collection[tuple[int, State]] = ()) -> cpsat.ProofResult:
    """Ask CP-SAT alone."""
    from lumion_hw.mesh.routing.request import RoutingLimits, RoutingProblem

    request = RoutingProblem(
        mesh=SMALL,
        pairs=tuple(pairs),
        pass_cost=np.full((30, 2), 0.5),
        state_cost=np.zeros((30, 2)),
        staying_cost=0.0,
        loss_db=np.full(30, 0.5),
        blocked=frozenset(blocked),
        limits=(RoutingLimits(),) * len(pairs),
        equal=(),
        current_paths={},
        move_price=0.0,
        staying=(),
    )
    return cpsat.decide(request, time_limit_s=60.0)


@pytest.mark.long
@examples(250)
@given(seed=st.integers(0, 2**32 - 1), circuits=st.integers(2, 6))
def test_whatever_cp_sat_can_route_is_routed(seed: int, circuits: int) -> None:
    ports = np.random.default_rng(seed).permutation(SMALL.n_ports)[: 2 * circuits].tolist()
    pairs = list(zip(ports[::2], ports[1::2], strict=True))
    feasible = decided(pairs).status != "infeasible"
    routed = True
    try:
        assert_lit(SMALL, pairs, route(SMALL, RouteRequest(pairs)))
    except RoutingError:
        routed = False
    assert routed == feasible
