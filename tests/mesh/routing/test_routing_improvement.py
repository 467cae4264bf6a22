"""What was found quickly is improved while time is given, down to what constraint programming has proven best."""

from __future__ import annotations

import math
from itertools import count

import numpy as np
import pytest

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.routing import RouteRequest, route
from lumion_hw.mesh.routing.lengths import improve_lengths, route_equal_lengths
from lumion_hw.mesh.routing.negotiation import Negotiation
from lumion_hw.mesh.routing.request import problem_for

SETS = {
    "eight": ([(14, 13), (35, 38), (20, 3), (21, 17), (37, 19), (15, 9), (7, 4), (12, 16)], 69),
    "eight others": ([(20, 3), (38, 10), (6, 36), (17, 11), (18, 5), (1, 16), (8, 2), (35, 37)], 85),
    "six": ([(19, 39), (1, 5), (20, 34), (3, 10), (38, 9), (13, 8)], 74),
    "ten": ([(34, 0), (21, 5), (11, 4), (3, 8), (12, 18), (35, 38), (16, 15), (17, 7), (2, 10), (36, 9)], 90),
}
"""Circuits on 72 PUCs and the fewest PUCs that they pass: proven by OR-Tools CP-SAT 9.15."""


@pytest.mark.parametrize("name", SETS)
def test_a_few_hundred_steps_lead_to_the_proven_optimum(smartlight: HexMesh, name: str) -> None:
    pairs, optimum = SETS[name]
    problem = problem_for(smartlight, RouteRequest(pairs, objective="hops"))
    negotiation = Negotiation(problem)
    bound = sum(cost or 0.0 for cost in negotiation.route_separately())
    found = negotiation.run(200, bound).wave_paths
    assert found is not None
    assert problem.cost(found) >= optimum
    steps = count()
    better = negotiation.improve(found, bound, lambda: next(steps) >= 400)
    assert problem.cost(better) == optimum


def test_no_time_changes_nothing_and_some_makes_nothing_dearer(smartlight: HexMesh) -> None:
    pairs = SETS["six"][0]
    quick = route(smartlight, RouteRequest(pairs, objective="hops", exact_search="never"))
    assert quick == route(smartlight, RouteRequest(pairs, objective="hops", exact_search="never"))
    better = route(smartlight, RouteRequest(pairs, objective="hops", exact_search="never", improve_s=0.02))
    assert better.cost <= quick.cost
    assert better.bound == quick.bound
    assert better.gap == better.cost / better.bound - 1.0 <= quick.gap


def test_one_circuit_alone_has_nothing_to_improve(smartlight: HexMesh) -> None:
    routing = route(smartlight, RouteRequest([(0, 20)], objective="hops", improve_s=100.0))
    assert (routing.outcome, routing.gap) == ("optimal", 0.0)


def test_standing_circuits_are_not_touched_by_an_improvement(smartlight: HexMesh) -> None:
    pairs = SETS["six"][0]
    active = route(smartlight, RouteRequest(pairs, objective="hops", exact_search="never")).paths[:2]
    routing = route(smartlight, RouteRequest(pairs[2:], objective="hops", active=active, improve_s=0.02))
    assert routing.active == active
    assert routing.moved == ()


def test_circuits_of_equal_length_are_improved_at_their_length_and_at_others(smartlight: HexMesh) -> None:
    """A first answer has 18 PUCs for either of two; with 16 each all is cheaper: CP-SAT 9.15 proves 43.26 dB best."""
    tied = [0, 1]
    loss_db = np.random.default_rng(5).uniform(0.2, 1.5, 72)
    request = RouteRequest(
        [(7, 20), (16, 2), (9, 6), (11, 3)], puc_loss_db=loss_db, equal_hops=[tied], exact_search="never"
    )
    problem = problem_for(smartlight, request)
    quick = route_equal_lengths(problem, 200)[0]
    assert quick is not None
    clock = count()
    better = improve_lengths(problem, quick, 200, 600.0, lambda: float(next(clock)))
    assert len({len(better[index].pucs) for index in tied}) == 1
    assert 43.255 < problem.cost(better) < problem.cost(quick)


def test_the_bound_of_a_pair_of_equal_length_knows_the_longer_one(smartlight: HexMesh) -> None:
    """0→6 alone takes fewer PUCs than 39→15 alone, 15; together they take 15 each, and that is proven to be least."""
    pairs = [(0, 6), (39, 15)]
    assert smartlight.shortest_hops[0, 6] < smartlight.shortest_hops[39, 15] == 15
    routing = route(smartlight, RouteRequest(pairs, objective="hops", equal_hops=[[0, 1]]))
    assert (routing.total_hops, routing.bound, routing.outcome) == (30, 30.0, "optimal")


@pytest.mark.parametrize("improve_s", [-1.0, math.nan, math.inf])
def test_a_time_that_is_none_is_refused(improve_s: float) -> None:
    with pytest.raises(ConfigError, match="improve_s"):
        RouteRequest([(0, 20)], improve_s=improve_s)
