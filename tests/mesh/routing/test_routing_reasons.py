"""Requests of many circuits: why they cannot be met is found in bounded time, and so are their alternatives."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import pytest

from lumion_hw.errors import NoPathError, RoutingError
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.routing import RouteRequest, cpsat, reasons, route, router
from lumion_hw.mesh.routing.lengths import first_choices, with_fixed_lengths
from lumion_hw.mesh.routing.request import RoutingProblem, problem_for

Pair = tuple[int, int]

THREE_RINGS = HexMesh.rings(3)
JAMMED = RouteRequest([(15, 22), (26, 31), (30, 0), (28, 4), (17, 14), (35, 7), (2, 29), (20, 11)])
"""No cut and no scarcity tells why these cannot be had together: CP-SAT does."""


def random_pairs(mesh: HexMesh, count: int, seed: int) -> list[Pair]:
    ports = list(range(mesh.n_ports))
    random.Random(seed).shuffle(ports)
    return list(zip(ports[:count], ports[count : 2 * count], strict=True))


# ----------------------------------------------------------------------------------------------- circuits that conflict


@pytest.mark.parametrize("lengths", ["any", "exact", "equal"])
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))])
def test_circuits_said_to_conflict_are_impossible_by_themselves(smartlight: HexMesh, seed: int, lengths: str) -> None:
    pairs = random_pairs(smartlight, 16, seed)
    request = RouteRequest(pairs)
    if lengths == "exact":
        request = RouteRequest(pairs, exact_hops={0: int(smartlight.shortest_hops[pairs[0]]) + 2})
    if lengths == "equal":
        odd = [index for index, pair in enumerate(pairs) if smartlight.port_parity(*pair)]
        request = RouteRequest(pairs, equal_hops=[odd[:2], odd[2:4]])
    problem = problem_for(smartlight, request)
    assert cpsat.decide(problem, time_limit_s=60.0, feasibility_only=True).status == "infeasible"
    core = cpsat.conflicting_circuits(problem, time_limit_s=60.0)
    assert 1 <= len(core) < 16
    assert core == tuple(sorted(set(core)))
    assert (
        cpsat.decide(reasons.for_circuits(problem, core), time_limit_s=60.0, feasibility_only=True).status
        == "infeasible"
    )


APART = [(0, 20), (5, 16), (18, 1)]


def with_lengths(problem: RoutingProblem, *hops: int | None) -> RoutingProblem:
    limits = (replace(limit, exact_hops=each) for limit, each in zip(problem.limits, hops, strict=True))
    return replace(problem, limits=tuple(limits))


def test_a_length_that_is_too_short_is_the_reason_by_itself(smartlight: HexMesh) -> None:
    problem = problem_for(smartlight, RouteRequest(APART))
    assert cpsat.conflicting_circuits(with_lengths(problem, None, 1, None), time_limit_s=60.0) == (1,)


def test_both_circuits_of_unequal_lengths_are_named(smartlight: HexMesh) -> None:
    problem = replace(problem_for(smartlight, RouteRequest(APART)), equal=((0, 1),))
    shortest = [int(smartlight.shortest_hops[pair]) for pair in APART]
    assert shortest[0] != shortest[1]
    assert {0, 1} <= set(cpsat.conflicting_circuits(with_lengths(problem, *shortest[:2], None), time_limit_s=60.0))


def test_without_time_all_circuits_are_said_to_conflict(smartlight: HexMesh) -> None:
    problem = problem_for(smartlight, RouteRequest(random_pairs(smartlight, 16, 1)))
    assert cpsat.conflicting_circuits(problem, time_limit_s=0.0) == tuple(range(16))
    assert cpsat.conflicting_circuits(problem, time_limit_s=1e-9) == tuple(range(16))


class Conflict:
    """Circuits of which some conflict, with a count of the questions asked.

    Args:
        circuits: How many there are.
        conflicting: Those that conflict, as indices.
    """

    def __init__(self, circuits: int, *conflicting: int) -> None:
        mesh = HexMesh.rings(8)
        self.problem = problem_for(mesh, RouteRequest([(i, i + circuits) for i in range(circuits)]))
        self._core = {self.problem.pairs[index] for index in conflicting}
        self.asked = 0

    def settles(self, problem: RoutingProblem) -> bool:
        self.asked += 1
        return not self._core <= set(problem.pairs)

    def refusal(self, said: tuple[int, ...], steps: int = 1000) -> NoPathError:
        """Return the refusal if these circuits are said to conflict, and time is over after so many steps."""
        left = iter([False] * steps + [True] * 1000)
        return reasons.conflict_error(self.problem, self.settles, lambda _: None, lambda _: said, lambda: next(left))


def test_only_circuits_said_to_conflict_are_left_out_one_by_one() -> None:
    conflict = Conflict(40, 3, 7)
    refusal = conflict.refusal((1, 3, 7, 20))
    assert "circuits 3→43, 7→47 cannot all be routed at the same time (proven by CP-SAT)" in str(refusal)
    assert refusal.ports == (3, 43, 7, 47)
    assert conflict.asked == 4


def test_when_time_is_over_all_that_are_left_are_named() -> None:
    conflict = Conflict(40, 3, 7)
    assert conflict.refusal((1, 3, 7, 20), steps=2).ports == (3, 43, 7, 47, 20, 60)
    assert conflict.asked == 2


def test_of_many_circuits_the_first_are_named_and_the_others_counted() -> None:
    refusal = Conflict(40, 3, 7).refusal(tuple(range(17)), steps=0)
    assert "14→54, 15→55, 1 others cannot all be routed" in str(refusal)
    assert len(refusal.ports) == 34
    assert "others" not in str(Conflict(40, 3, 7).refusal(tuple(range(16)), steps=0))


def test_a_jam_is_told_by_few_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    decide = cpsat.decide

    def counting(problem: RoutingProblem, **options: Any) -> cpsat.ProofResult:
        asked.append(len(problem.pairs))
        return decide(problem, **options)

    monkeypatch.setattr(cpsat, "decide", counting)
    with pytest.raises(NoPathError, match="proven by CP-SAT") as refusal:
        route(THREE_RINGS, replace(JAMMED, explain_s=60.0))
    core = len(refusal.value.ports) // 2
    assert core < len(JAMMED.pairs)
    assert len(asked) <= 1 + core


def test_a_jam_need_not_be_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoPathError, match="proven by CP-SAT") as refusal:
        route(THREE_RINGS, replace(JAMMED, explain_s=0.0))
    assert refusal.value.ports == tuple(port for pair in JAMMED.pairs for port in pair)
    assert refusal.value.hint == "Request fewer circuits."


def test_a_long_search_says_how_far_it_is() -> None:
    said: list[tuple[str, int, int]] = []
    with pytest.raises(RoutingError):
        route(THREE_RINGS, replace(JAMMED, explain_s=0.0, progress=lambda *step: said.append(step)))
    assert [stage for stage, _, _ in said] == ["routes"] * 160 + ["proof"]  # the first 40 rounds are soon over
    assert [done for stage, done, _ in said if stage == "routes"] == list(range(40, 200))
    assert {total for stage, _, total in said if stage == "routes"} == {200}


def test_a_short_search_says_nothing(smartlight: HexMesh) -> None:
    said: list[str] = []
    route(smartlight, RouteRequest([(0, 20)], progress=lambda stage, done, total: said.append(stage)))
    assert not said


# --------------------------------------------------------------------------------------------------------- alternatives


@pytest.mark.parametrize("places", range(5))
def test_first_choices_are_those_of_all_choices_in_order(places: int) -> None:
    def key(choice: tuple[int, ...]) -> tuple[object, ...]:
        return sum(choice), choice

    expected = sorted(product(range(7), repeat=places), key=key)[:24]
    assert first_choices([7] * places, key, 24) == expected


def test_choices_for_many_places_end() -> None:
    """There are 7⁶² of them."""
    chosen = first_choices([7] * 62, lambda choice: (sum(choice), choice), 24)
    assert chosen[0] == (0,) * 62
    assert [sum(each) for each in chosen] == [0] + [1] * 23


def test_common_lengths_of_many_groups_end() -> None:
    """Thirty groups of two circuits: the choices of their lengths are 7³⁰."""
    mesh = HexMesh.rings(10)
    pairs = random_pairs(mesh, 60, 0)
    groups = [[i, i + 1] for i in range(0, 60, 2) if mesh.port_parity(*pairs[i]) == mesh.port_parity(*pairs[i + 1])]
    assert len(groups) > 10
    assert len(with_fixed_lengths(problem_for(mesh, RouteRequest(pairs, equal_hops=groups)))) == 24


def test_sets_of_standing_circuits_are_not_all_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of twelve standing circuits there are 4,096 sets; 64 are tried, and all together."""
    mesh = HexMesh.rings(4)
    made: list[tuple[int, ...]] = []

    def counting(numbers: range, size: int) -> Any:
        for subset in combinations(numbers, size):
            made.append(subset)
            yield subset

    monkeypatch.setattr(router, "combinations", counting)
    active = route(mesh, RouteRequest([(4 * i, 4 * i + 1) for i in range(12)])).paths
    found = route(mesh, RouteRequest([(2, 3)], active=active, move_price=1.0))
    assert len(found.paths) == 1
    assert len(made) == 64
