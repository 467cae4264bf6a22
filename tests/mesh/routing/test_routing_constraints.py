"""Objectives, ceilings, equal lengths and standing circuits."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lumion_hw.errors import ConfigError, NoPathError, VerifyError
from lumion_hw.mesh.layout.faults import MeshFaults
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.layout.topology import EXIT_XOR, State
from lumion_hw.mesh.routing import Path, RouteRequest, route, states_for_paths
from lumion_hw.mesh.routing.result import traced_paths
from tests.effort import examples

# ---------------------------------------------------------------------------------------------------------- objectives


def test_hops_and_loss_want_different_ways_when_losses_are_uneven(smartlight: HexMesh) -> None:
    """0-6-10-16-20-19 leads from port 0 to 5 in 6 hops; with PUC 10 at 6 dB another way loses less."""
    loss_db = np.full(72, 0.5)
    loss_db[10] = 6.0
    short = route(smartlight, RouteRequest([(0, 5)], puc_loss_db=loss_db, objective="hops", max_hops=6))
    clear = route(smartlight, RouteRequest([(0, 5)], puc_loss_db=loss_db))
    assert (short.total_hops, short.cost) == (6, 6.0)
    assert clear.total_hops > 6
    assert clear.paths[0].loss_db < short.paths[0].loss_db


def test_heater_power_counts_a_shared_puc_once_and_nothing_for_the_cooler_state(smartlight: HexMesh) -> None:
    """All cross cold, bar 2 mW: the cost is 2 mW for each PUC in bar, and a thousandth of the loss."""
    power_mw = np.zeros((72, 2))
    power_mw[:, 0] = 2.0
    routing = route(smartlight, RouteRequest([(0, 20), (39, 15)], objective="power", heater_power_mw=power_mw))
    in_bar = sum(state == "bar" for state in routing.states.values())
    loss_db = sum(path.loss_db for path in routing.paths)
    assert routing.cost == pytest.approx(2.0 * in_bar + 1e-3 * loss_db)
    by_loss = route(smartlight, RouteRequest([(0, 20), (39, 15)]))
    assert in_bar <= sum(state == "bar" for state in by_loss.states.values())


def test_cp_sat_charges_heater_power_as_the_router_does(smartlight: HexMesh) -> None:
    power_mw = np.random.default_rng(0).uniform(0.0, 3.0, (72, 2))
    found = route(smartlight, RouteRequest([(0, 20), (39, 15)], objective="power", heater_power_mw=power_mw))
    best = route(
        smartlight,
        RouteRequest(
            [(0, 20), (39, 15)], objective="power", heater_power_mw=power_mw, exact_search="always", time_limit_s=60.0
        ),
    )
    assert best.outcome == "optimal"
    assert best.cost <= found.cost + 1e-4


@pytest.mark.parametrize("objective", ["speed", {"speed": 1.0}, {"hops": -1.0}, {}])
def test_an_unknown_objective_is_refused(smartlight: HexMesh, objective: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="unknown objective"):
        route(smartlight, RouteRequest([(0, 5)], objective=objective))


def test_heater_power_needs_the_power_of_both_states(smartlight: HexMesh) -> None:
    with pytest.raises(ConfigError, match="the power objective needs valid heater powers"):
        route(smartlight, RouteRequest([(0, 5)], objective="power"))
    with pytest.raises(ConfigError, match="the power objective needs valid heater powers"):
        route(smartlight, RouteRequest([(0, 5)], objective="power", heater_power_mw=np.ones(72)))


# ------------------------------------------------------------------------------------------------------------ ceilings


def test_a_loss_ceiling_is_met_or_proven_unreachable(smartlight: HexMesh) -> None:
    """15 PUCs of 0.5 dB are 7.5 dB, and no path from 0 to 20 is shorter."""
    assert route(smartlight, RouteRequest([(0, 20)], max_loss_db=7.5)).paths[0].loss_db == pytest.approx(7.5)
    with pytest.raises(NoPathError, match=r"within 7.4 dB \(proven\)"):
        route(smartlight, RouteRequest([(0, 20)], max_loss_db=7.4))


def test_a_loss_ceiling_holds_under_another_objective(smartlight: HexMesh) -> None:
    """Fewest hops would pass the lossy PUC 10; the ceiling forbids it."""
    loss_db = np.full(72, 0.5)
    loss_db[10] = 3.0
    routing = route(smartlight, RouteRequest([(0, 5)], puc_loss_db=loss_db, objective="hops", max_loss_db=4.5))
    assert routing.paths[0].loss_db <= 4.5
    assert 10 not in routing.paths[0].pucs


def test_each_circuit_may_have_its_own_hop_ceiling(smartlight: HexMesh) -> None:
    routing = route(smartlight, RouteRequest([(0, 5), (39, 15)], max_hops=[6, None]))
    assert routing.paths[0].hops == 6
    with pytest.raises(NoPathError, match="within 5 hops"):
        route(smartlight, RouteRequest([(0, 5), (39, 15)], max_hops=[5, None]))
    with pytest.raises(ConfigError, match="do not match 2 circuits"):
        route(smartlight, RouteRequest([(0, 5), (39, 15)], max_hops=[6]))


def test_each_circuit_may_have_its_own_loss_ceiling_in_both_directions(smartlight: HexMesh) -> None:
    loss_db = np.full(72, 0.5)
    loss_db[10] = 3.0
    pairs = [(0, 5), (39, 15), (5, 0)]
    request = RouteRequest(
        pairs, puc_loss_db=loss_db, objective="hops", counter_propagation=True, max_loss_db=[None, None, 4.5]
    )
    assert route(smartlight, request).paths[0].loss_db <= 4.5
    assert route(smartlight, replace(request, max_loss_db=[None, 9.0, None])).paths[0].loss_db > 4.5
    with pytest.raises(ConfigError, match="2 loss limits do not match 3 circuits"):
        route(smartlight, replace(request, max_loss_db=[None, 4.5]))


@pytest.mark.parametrize("ceiling", [-0.1, math.nan])
def test_a_ceiling_that_is_none_is_refused(smartlight: HexMesh, ceiling: float) -> None:
    with pytest.raises(ConfigError, match="the loss limit of a circuit cannot be"):
        route(smartlight, RouteRequest([(0, 20)], max_loss_db=ceiling))


@pytest.mark.parametrize("asked", [{"max_hops": 14}, {"max_loss_db": 7.4}])
def test_a_ceiling_that_forbids_a_circuit_is_told_with_the_lowest_that_does_not(
    smartlight: HexMesh, asked: dict[str, Any]
) -> None:
    """15 PUCs of 0.5 dB lead from 0 to 20, and none of them can be left out."""
    nearest: dict[str, Any] = {"max_hops": 15, "max_loss_db": 7.5}
    (name,) = asked
    with pytest.raises(NoPathError, match=rf"possible with {name}={nearest[name]}\."):
        route(smartlight, RouteRequest([(0, 20)], **asked))
    assert route(smartlight, RouteRequest([(0, 20)], **{name: nearest[name]})).total_hops == 15


def test_ceilings_that_only_together_forbid_circuits_are_told_with_what_the_circuits_take(smartlight: HexMesh) -> None:
    """Either circuit has a way of six PUCs, but both need PUC 0, one in bar and the other in cross."""
    pairs = [(0, 5), (1, 2)]
    with pytest.raises(NoPathError, match=r"within their limits \(proven by CP-SAT\)\. Without limits, .* needs"):
        route(smartlight, RouteRequest(pairs, max_hops=6))
    assert len(route(smartlight, RouteRequest(pairs)).paths) == 2


# -------------------------------------------------------------------------------------------------------------- faults


def test_faults_are_gone_round(smartlight: HexMesh) -> None:
    faults = MeshFaults(stuck={10: "bar", 7: 0.5}, excess_loss_db={16: 10.0}, dead_ports=frozenset({7}))
    routing = route(smartlight, RouteRequest([(0, 5), (37, 15)], faults=faults))
    assert routing.states.get(10, "bar") == "bar"
    assert not {7, 16} & set(routing.states)


def test_a_dead_port_is_named(smartlight: HexMesh) -> None:
    with pytest.raises(NoPathError, match="port 5 is dead") as refusal:
        route(smartlight, RouteRequest([(0, 5)], faults=MeshFaults(dead_ports=frozenset({5}))))
    assert refusal.value.ports == (5,)


def test_faults_of_another_mesh_are_refused(smartlight: HexMesh) -> None:
    with pytest.raises(ConfigError, match=r"faulty PUCs \[72\]"):
        route(smartlight, RouteRequest([(0, 5)], faults=MeshFaults(stuck={72: "bar"})))


# -------------------------------------------------------------------------------------------------------- equal lengths


@pytest.mark.parametrize("hops", [6, 8, 10, 12, 14, 16, 18])
def test_a_path_has_exactly_the_hops_asked_for(smartlight: HexMesh, hops: int) -> None:
    routing = route(smartlight, RouteRequest([(0, 5)], exact_hops={0: hops}))
    assert routing.total_hops == hops
    assert len(smartlight.trace(0, routing.states).pucs) == hops


def test_the_published_delay_path_of_nine_pucs_is_a_length_that_exists(smartlight: HexMesh) -> None:
    """Sánchez-Jácome 2025: port 0 reaches 6 in 7 and in 9 hops."""
    assert route(smartlight, RouteRequest([(0, 6)], exact_hops={0: 9})).total_hops == 9


@pytest.mark.parametrize(("hops", "why"), [(7, "an even number more"), (4, "has 6 or")])
def test_a_length_of_the_wrong_parity_or_too_short_is_refused_before_any_search(
    smartlight: HexMesh, hops: int, why: str
) -> None:
    with pytest.raises(NoPathError, match=why):
        route(smartlight, RouteRequest([(0, 5)], exact_hops={0: hops}, rounds=0, exact_search="never"))


def test_a_pair_and_a_set_are_matched_in_length(smartlight: HexMesh) -> None:
    """0 to 6 alone takes 7 hops, 39 to 15 takes 15, 9 to 16 takes 9 or so: all odd."""
    pairs = [(0, 6), (39, 15), (9, 16)]
    for chosen in (pairs[:2], pairs):
        plain = [path.hops for path in route(smartlight, RouteRequest(chosen)).paths]
        assert len(set(plain)) > 1
        matched = route(smartlight, RouteRequest(chosen, equal_hops=[list(range(len(chosen)))]))
        (common,) = {path.hops for path in matched.paths}
        assert common >= max(plain)


def test_cp_sat_counts_light_and_not_rings_when_lengths_are_prescribed(smartlight: HexMesh) -> None:
    """The detached-ring pitfall: without a circuit constraint a ring of 6 would make up for a shorter path."""
    for hops in (12, 14):
        routing = route(
            smartlight, RouteRequest([(0, 5)], exact_hops={0: hops}, exact_search="always", time_limit_s=60.0)
        )
        assert len(smartlight.trace(0, routing.states).pucs) == hops


def test_rescue_by_cp_sat_matches_lengths_too(smartlight: HexMesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lumion_hw.mesh.routing.router.route_equal_lengths", lambda *_: (None, ()))
    routing = route(smartlight, RouteRequest([(0, 6), (39, 15)], equal_hops=[[0, 1]], time_limit_s=60.0))
    assert routing.method == "cp-sat"
    assert routing.paths[0].hops == routing.paths[1].hops


def test_ports_of_different_colour_cannot_be_matched(smartlight: HexMesh) -> None:
    with pytest.raises(NoPathError, match="proven by parity"):
        route(smartlight, RouteRequest([(0, 5), (6, 13)], equal_hops=[[0, 1]]))


@pytest.mark.parametrize("groups", [[[0, 2]], [[0, 1], [1, 0]], [[-1, 0]]])
def test_length_groups_name_circuits_that_exist_once(smartlight: HexMesh, groups: list[list[int]]) -> None:
    with pytest.raises(ConfigError, match="length groups"):
        route(smartlight, RouteRequest([(0, 5), (39, 15)], equal_hops=groups))


# --------------------------------------------------------------------------------------------------- standing circuits


def test_new_circuits_leave_standing_ones_untouched(smartlight: HexMesh) -> None:
    active = route(smartlight, RouteRequest([(0, 5), (39, 10)]))
    added = route(smartlight, RouteRequest([(38, 15), (37, 17)], active=active.paths))
    assert added.active == active.paths
    assert added.moved == ()
    assert all(added.states[puc] == state for puc, state in active.states.items())
    for source, target in [(0, 5), (39, 10), (38, 15), (37, 17)]:
        assert smartlight.trace(source, added.states).port == target


def test_a_port_of_a_standing_circuit_is_taken(smartlight: HexMesh) -> None:
    active = route(smartlight, RouteRequest([(0, 5)]))
    with pytest.raises(NoPathError, match="port 5 is used by an active circuit"):
        route(smartlight, RouteRequest([(5, 9)], active=active.paths))


def test_a_standing_circuit_in_the_way_is_moved_only_at_a_price(smartlight: HexMesh) -> None:
    """Circuit 39→10 stands right across the way from 4 to 7; hitless it stays, at a price it goes round."""
    active = route(smartlight, RouteRequest([(0, 5), (39, 10)]))
    pairs = [(38, 15), (37, 6), (4, 7)]
    with pytest.raises(NoPathError, match="and 2 active circuits"):
        route(smartlight, RouteRequest(pairs, active=active.paths))
    moved = route(smartlight, RouteRequest(pairs, active=active.paths, move_price=0.1))
    assert moved.moved != ()
    for path in (*moved.paths, *moved.active):
        trace = smartlight.trace(path.source, moved.states)
        assert (trace.port, trace.pucs) == (path.target, path.pucs)
    everything = sum(path.loss_db for path in (*moved.paths, *moved.active))
    assert moved.cost == pytest.approx(everything + 0.1 * len(moved.moved))


def test_the_price_of_moving_is_certified_too(smartlight: HexMesh) -> None:
    active = route(smartlight, RouteRequest([(0, 5), (39, 10)]))
    cheap, dear = (
        route(
            smartlight,
            RouteRequest(
                [(38, 15), (37, 6), (4, 7)],
                active=active.paths,
                move_price=price,
                exact_search="always",
                time_limit_s=60.0,
            ),
        )
        for price in (0.1, 5.0)
    )
    assert cheap.outcome == dear.outcome == "optimal"
    assert len(dear.moved) <= len(cheap.moved)
    assert dear.cost - cheap.cost <= 4.9 * len(cheap.moved) + 1e-6


def test_free_to_stay_a_standing_circuit_stays(smartlight: HexMesh) -> None:
    active = route(smartlight, RouteRequest([(0, 5)]))
    added = route(smartlight, RouteRequest([(35, 20)], active=active.paths, move_price=1.0))
    assert added.moved == ()
    assert added.active == active.paths


def test_a_standing_path_that_light_cannot_take_is_refused(smartlight: HexMesh) -> None:
    with pytest.raises(ConfigError, match="the path breaks at PUC 6"):
        route(smartlight, RouteRequest([(35, 20)], active=[Path(0, 5, (0, 6, 7), 1.5)]))
    with pytest.raises(ConfigError, match="in bar and in cross"):
        states_for_paths(
            smartlight,
            [route(smartlight, RouteRequest([(0, 5)])).paths[0], route(smartlight, RouteRequest([(0, 1)])).paths[0]],
        )


def test_a_price_below_zero_is_refused(smartlight: HexMesh) -> None:
    with pytest.raises(ConfigError, match="move_price cannot be -1"):
        route(smartlight, RouteRequest([(0, 5)], move_price=-1.0))


# -------------------------------------------------------------------------------------------------- counter-propagation


def followed(mesh: HexMesh, port: int, states: dict[int, State]) -> list[int]:
    """Return the waves of light from a port."""
    node, waves = int(mesh.port_puc_port[port]), []
    while node >= 0:
        waves.append(node)
        node = int(mesh.mate[node ^ EXIT_XOR[states[node // 4]]])
    return waves


@examples(60)
@given(seed=st.integers(0, 2**32 - 1))
def test_in_any_setting_only_the_reverse_of_a_circuit_runs_against_it(seed: int) -> None:
    """Why states are all that circuits contest: the opposite wave in a joint belongs to the way from the other end."""
    mesh = HexMesh.rings(2)
    bits = np.random.default_rng(seed).integers(0, 2, 30).tolist()
    states: dict[int, State] = {puc: "bar" if bit else "cross" for puc, bit in enumerate(bits)}
    ways = {port: followed(mesh, port, states) for port in range(mesh.n_ports)}
    for port, way in ways.items():
        back = ways[mesh.trace(port, states).port]
        assert [int(mesh.mate[wave]) for wave in way[1:]] == back[:0:-1]


def test_light_against_other_light_is_caught_by_the_trace(smartlight: HexMesh) -> None:
    states = route(smartlight, RouteRequest([(0, 20)])).states
    with pytest.raises(VerifyError, match="meets head-on"):
        traced_paths(smartlight, [(0, 20), (20, 0)], states, np.zeros(72))


def test_both_directions_of_a_pair_share_one_path_if_that_is_allowed(smartlight: HexMesh) -> None:
    pairs = [(0, 20), (39, 15), (20, 0)]
    with pytest.raises(NoPathError, match="port 20 is requested twice"):
        route(smartlight, RouteRequest(pairs))
    routing = route(
        smartlight, RouteRequest(pairs, counter_propagation=True, max_hops=[None, None, 15], exact_hops={1: 17})
    )
    assert [(path.source, path.target, path.hops) for path in routing.paths] == [(0, 20, 15), (39, 15, 17), (20, 0, 15)]
    for path in routing.paths:
        trace = smartlight.trace(path.source, routing.states)
        assert (trace.port, trace.pucs) == (path.target, path.pucs)


def test_one_length_serves_both_directions(smartlight: HexMesh) -> None:
    pairs = [(0, 20), (20, 0), (39, 15)]
    routing = route(smartlight, RouteRequest(pairs, counter_propagation=True, equal_hops=[[0, 1], [2]]))
    assert [path.hops for path in routing.paths] == [15, 15, 15]
    with pytest.raises(ConfigError, match="exact lengths"):
        route(smartlight, RouteRequest(pairs, counter_propagation=True, exact_hops={0: 15, 1: 17}))


def test_a_pair_asked_for_twice_is_refused_with_and_without_its_reverse(smartlight: HexMesh) -> None:
    for pairs in ([(0, 20), (0, 20)], [(0, 20), (20, 0), (20, 0)], [(0, 20), (20, 5)]):
        with pytest.raises(NoPathError, match="is requested twice"):
            route(smartlight, RouteRequest(pairs, counter_propagation=True))
