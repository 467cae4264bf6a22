"""Crosstalk from the solved field, and routing that keeps it small."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from lumion_hw.errors import ConfigError, NoPathError
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.layout.topology import State
from lumion_hw.mesh.routing import RouteRequest, route
from lumion_hw.mesh.routing.leakage import SolvedField, crosstalk, crosstalk_contributions, route_low_crosstalk
from lumion_hw.mesh.routing.parking import park_unused_pucs
from lumion_hw.mesh.waves.cell import UnitCells
from lumion_hw.mesh.waves.scattering import Solver

FREQUENCY_HZ = 193.4145e12
THETA = {"cross": 0.0, "bar": np.pi / 2}


def field_of(solver: Solver, imbalance: float | Mapping[int, float]) -> SolvedField:
    """Return cells whose couplers miss one half by an imbalance: sin²(a1 - a2) is left in bar."""
    mesh = solver.mesh
    off = np.full(mesh.n_pucs, imbalance if isinstance(imbalance, float) else 0.0)
    for puc, value in imbalance.items() if isinstance(imbalance, Mapping) else ():
        off[puc] = value

    def cells_of(states: Mapping[int, State]) -> UnitCells:
        theta = np.array([THETA[states[puc]] for puc in range(mesh.n_pucs)])
        half, joints = np.full(mesh.n_pucs, 0.5), np.random.default_rng(3).uniform(0, 6, len(mesh.joints))
        return UnitCells(np.full(mesh.n_pucs, 0.5), half + off, half + 0.3 * off, theta, -theta, joints)

    return SolvedField(solver, cells_of, FREQUENCY_HZ)


def full_states(mesh: HexMesh, pairs: list[tuple[int, int]]) -> dict[int, State]:
    return park_unused_pucs(mesh, route(mesh, RouteRequest(pairs)).states).states


def test_perfect_couplers_make_no_crosstalk(solver: Solver) -> None:
    routing = route(solver.mesh, RouteRequest([(0, 20), (39, 15)]))
    states = park_unused_pucs(solver.mesh, routing.states).states
    found = crosstalk(field_of(solver, 0.0), states, routing.paths)
    assert [each.worst_db for each in found] == [-200.0, -200.0]


def test_one_circuit_has_nobody_to_disturb_it(solver: Solver) -> None:
    routing = route(solver.mesh, RouteRequest([(0, 20)]))
    (alone,) = crosstalk(field_of(solver, 0.02), park_unused_pucs(solver.mesh, routing.states).states, routing.paths)
    assert alone.aggressor is None


def test_one_bad_puc_shared_by_two_circuits_leaks_its_coupler_floor(solver: Solver) -> None:
    """Only one PUC is imperfect, and both circuits pass it in cross: each gets cos²(a1 + a2) of the other.

    Both have 15 PUCs of the same loss in all, so what differs along the way is the loss before and after that PUC.
    """
    mesh = solver.mesh
    routing = route(mesh, RouteRequest([(0, 20), (39, 15)]))
    shared = set(routing.paths[0].pucs) & set(routing.paths[1].pucs)
    assert shared
    puc = min(shared)
    assert routing.states[puc] == "cross"
    field = field_of(solver, {puc: 0.05})
    found = crosstalk(field, park_unused_pucs(mesh, routing.states).states, routing.paths)
    a_in, a_out = np.arcsin(np.sqrt(0.55)), np.arcsin(np.sqrt(0.515))
    leaked, passed = np.cos(a_in + a_out) ** 2, np.sin(a_in + a_out) ** 2
    first, second = routing.paths
    before = [path.pucs.index(puc) for path in (first, second)]
    after = [14 - each for each in before]
    expected = 10 * np.log10(leaked / passed) - 0.5 * (before[1] + after[0]) + 0.5 * (before[0] + after[0])
    assert found[0].worst_db == pytest.approx(expected, abs=1e-9)
    assert found[0].aggressor == 1
    assert found[0].summed_db == found[0].worst_db  # there is only one other


def test_the_part_of_a_bad_puc_is_what_arrives_through_it(solver: Solver) -> None:
    """With one imperfect PUC the first order is everything: its part is the stray power at both ends."""
    mesh = solver.mesh
    routing = route(mesh, RouteRequest([(0, 20), (39, 15)]))
    puc = min(set(routing.paths[0].pucs) & set(routing.paths[1].pucs))
    field = field_of(solver, {puc: 0.05})
    states = park_unused_pucs(mesh, routing.states).states
    parts = crosstalk_contributions(mesh, field, states, routing.paths)
    arriving = np.abs(field.fields_at_ports(states, [0, 39])) ** 2
    assert np.flatnonzero(parts > 1e-12 * parts.max()).tolist() == [puc]
    # The waves are taken as they are, imperfect couplers passed once included: a few per cent of first order.
    assert parts[puc] == pytest.approx(arriving[20, 1] + arriving[15, 0], rel=0.05)


def test_circuits_go_round_a_puc_that_leaks(solver: Solver) -> None:
    mesh = solver.mesh
    pairs = [(0, 20), (39, 15)]
    plain = route(mesh, RouteRequest(pairs))
    bad = dict.fromkeys(set(plain.paths[0].pucs) & set(plain.paths[1].pucs), 0.15)
    dark = route_low_crosstalk(mesh, RouteRequest(pairs), field_of(solver, bad))
    assert max(each.summed_db for each in dark.crosstalk) == pytest.approx(min(dark.tried))
    assert min(dark.tried) < dark.tried[0] - 20.0
    assert set(dark.states) == set(range(72))
    for source, target in pairs:
        assert mesh.trace(source, dark.states).port == target


def test_everywhere_a_little_leaky_the_best_of_the_rounds_is_kept(solver: Solver) -> None:
    pairs = [(0, 20), (39, 15), (38, 9), (5, 17)]
    dark = route_low_crosstalk(solver.mesh, RouteRequest(pairs), field_of(solver, 0.03), rounds=5)
    assert len(dark.tried) <= 5
    assert max(each.summed_db for each in dark.crosstalk) == pytest.approx(min(dark.tried))
    for each in dark.crosstalk:
        assert each.worst_db <= each.summed_db < 0.0


def test_the_constraints_of_routing_hold_here_too(solver: Solver) -> None:
    with pytest.raises(NoPathError, match="within 14 hops"):
        route_low_crosstalk(solver.mesh, RouteRequest([(0, 20)], max_hops=14), field_of(solver, 0.01))
    with pytest.raises(ConfigError, match="0 rounds"):
        route_low_crosstalk(solver.mesh, RouteRequest([(0, 20)]), field_of(solver, 0.01), rounds=0)
    with pytest.raises(ConfigError, match="surcharges of shape"):
        route(solver.mesh, RouteRequest([(0, 20)], surcharge=np.ones(72)))
