"""Schedules on a mesh: every step traced by its states, kept circuits over the same PUCs, few extra settings."""

from __future__ import annotations

import pytest

from lumion_hw.errors import ConfigError, NoPathError
from lumion_hw.mesh import HexMesh
from lumion_hw.schedules.collectives import make_schedule
from lumion_hw.schedules.mesh_steps import (
    MeshRouter,
    MeshSchedule,
    _minimal_cover,
    min_rounds,
    regroup_schedule,
    relabel_ranks,
    route_schedule,
    split,
)
from lumion_hw.schedules.schedule import Schedule
from lumion_hw.schedules.verification import verify

SMALL = HexMesh.columns([2])
LARGE = HexMesh.smartlight()


def assert_right(router: MeshRouter, schedule: Schedule, found: MeshSchedule) -> None:
    """Follow light through every step by its states, and compare with the rounds."""
    served: dict[int, set[tuple[int, int]]] = {}
    ways: dict[tuple[int, int], tuple[int, ...]] = {}
    for step in found.steps:
        served.setdefault(step.number, set()).update(step.circuits)
        for (a, b), path in zip(step.circuits, step.routing.paths, strict=True):
            assert (a, b) not in step.kept or ways[a, b] == path.pucs
            trace = router.mesh.trace(router.inputs[a], step.routing.states)
            assert trace.port == router.outputs[b]
            assert trace.pucs == path.pucs
        ways = {pair: path.pucs for pair, path in zip(step.circuits, step.routing.paths, strict=True)}
    assert [served[number] for number in range(found.rounds)] == [set(each.circuits) for each in schedule.rounds]
    assert 0 <= found.min_extra <= found.extra


@pytest.mark.parametrize("name", ["ring", "all-to-all-shifts", "halving-doubling", "stragglar", "binomial-broadcast"])
def test_schedules_of_four_ranks_on_the_small_mesh(name: str) -> None:
    router = MeshRouter(SMALL, [1, 6, 11, 15], [3, 8, 13, 0])
    schedule = make_schedule(name, 4)
    assert_right(router, schedule, route_schedule(router, schedule))


def test_a_ring_is_routed_once_and_kept() -> None:
    router = MeshRouter(SMALL, [1, 6, 11], [3, 8, 13])
    found = route_schedule(router, make_schedule("ring", 3))
    assert found.extra == found.rerouted == 0
    assert all(step.kept == set(step.circuits) for step in found.steps[1:])


def test_both_directions_of_a_pair_share_one_fibre_where_there_is_but_one() -> None:
    router = MeshRouter(LARGE, [0, 9, 18, 37], [0, 9, 18, 37])
    schedule = make_schedule("circle", 4)
    found = route_schedule(router, schedule)
    assert_right(router, schedule, found)
    for step in found.steps:
        ways = dict(zip(step.circuits, (path.pucs for path in step.routing.paths), strict=True))
        assert all(ways[a, b] == ways[b, a][::-1] for a, b in step.circuits)


def test_rounds_without_routes_are_split_into_as_few_parts_as_there_can_be() -> None:
    ports = [LARGE.fibre_ports[k * len(LARGE.fibre_ports) // 16] for k in range(16)]
    router = MeshRouter(LARGE, ports[0::2], ports[1::2])
    schedule = make_schedule("ring", 8)
    found = route_schedule(router, schedule)
    assert_right(router, schedule, found)
    assert (
        found.extra == found.min_extra == len(schedule.rounds)
    )  # two parts each, because one part is proven impossible
    assert router.is_routable(schedule.rounds[0].circuits) is False


def test_the_minimal_cover_are_those_of_trying_everything() -> None:
    import random

    def partitions(mask: int):
        if not mask:
            yield []
            return
        lowest, rest = mask & -mask, mask & (mask - 1)
        part = rest
        while True:
            for others in partitions(mask ^ (part | lowest)):
                yield [part | lowest, *others]
            if not part:
                break
            part = (part - 1) & rest

    for seed in range(30):
        chance = random.Random(seed)
        bad = [chance.randrange(1, 32) for _ in range(5)]
        bad = [mask for mask in bad if mask & (mask - 1)]  # single circuits can always be routed

        def fits(mask: int, bad: list[int] = bad) -> bool:
            return not any(each & mask == each for each in bad)

        found = _minimal_cover(31, fits)
        assert sum(found) == 31
        assert all(map(fits, found))
        assert len(found) == min(len(parts) for parts in partitions(31) if all(map(fits, parts)))


def test_many_circuits_are_put_where_they_fit() -> None:
    ports = [LARGE.fibre_ports[k * len(LARGE.fibre_ports) // 20] for k in range(20)]
    router = MeshRouter(LARGE, ports[0::2], ports[1::2])
    circuits = make_schedule("circle", 10).rounds[0].circuits
    assert router.is_routable(circuits) is False
    parts, least = split(router, circuits, duplex=False, impossible=True)
    assert sorted(pair for part in parts for pair in part) == sorted(circuits)
    assert all(router.is_routable(part) for part in parts)
    assert 2 <= least <= len(parts)


def test_more_ranks_than_ports_and_ports_that_clash_are_refused() -> None:
    router = MeshRouter(SMALL, [1, 6, 11], [3, 8, 13])
    with pytest.raises(ConfigError, match="4 ranks, but only 3 ports"):
        route_schedule(router, make_schedule("ring", 4))
    with pytest.raises(ConfigError, match="two ranks share port 1"):
        MeshRouter(SMALL, [1, 1], [3, 8])
    with pytest.raises(ConfigError, match="port 3 is an input of one rank"):
        MeshRouter(SMALL, [1, 3], [3, 8])


def test_a_circuit_without_any_way_is_refused_with_the_reason() -> None:
    router = MeshRouter(SMALL, [1, 6, 11], [3, 8, 13], max_hops=1)
    with pytest.raises(NoPathError, match=r"1.*3|proven"):
        route_schedule(router, make_schedule("ring", 3))


# -- other rounds, other ranks


def in_turn(ranks: int) -> MeshRouter:
    """Return the router of the large mesh, with alternating inputs and outputs around the edge."""
    ports = [LARGE.fibre_ports[k * len(LARGE.fibre_ports) // (2 * ranks)] for k in range(2 * ranks)]
    return MeshRouter(LARGE, ports[0::2], ports[1::2])


@pytest.mark.long
def test_another_factorisation_needs_no_more_settings_than_a_sound_switch() -> None:
    router, schedule = in_turn(6), make_schedule("all-to-all", 6)
    assert route_schedule(router, schedule).extra > 0  # the circle method has a round without routes
    other = regroup_schedule(router, schedule)
    verify(other)  # every block still arrives
    found = route_schedule(router, other)
    assert_right(router, other, found)
    # Five partners of each rank, one at a time: at least five settings are needed.
    assert (found.extra, len(found.steps)) == (0, 5)
    assert min_rounds(schedule) == 5


def test_rounds_that_are_not_full_save_settings_where_no_factorisation_is_found() -> None:
    router, schedule = MeshRouter(SMALL, [1, 6, 11, 15], [3, 8, 13, 0]), make_schedule("all-to-all-shifts", 4)
    as_given, other = route_schedule(router, schedule), regroup_schedule(router, schedule)
    verify(other)
    found = route_schedule(router, other)
    assert_right(router, other, found)
    assert found.extra == 0
    assert min_rounds(schedule) == 3 <= len(found.steps) < len(as_given.steps)
    assert regroup_schedule(router, schedule) == other  # the same seed, the same rounds


def test_a_schedule_with_routes_for_every_round_stays_as_it_is() -> None:
    router, schedule = MeshRouter(SMALL, [1, 6, 11], [3, 8, 13]), make_schedule("shifts", 3)
    assert regroup_schedule(router, schedule) is schedule


@pytest.mark.parametrize("name", ["ring", "stragglar", "bruck", "all-to-all-ring"])
def test_rounds_that_build_on_each_other_are_not_regrouped(name: str) -> None:
    with pytest.raises(ConfigError, match="the rounds depend on each other"):
        regroup_schedule(in_turn(4), make_schedule(name, 4))


def test_ranks_in_another_order_make_a_ring_routable() -> None:
    router, schedule = in_turn(8), make_schedule("ring", 8)
    assert router.is_routable(schedule.rounds[0].circuits) is False
    places = relabel_ranks(router, schedule)
    assert sorted(places) == list(range(8))
    with_ports_of = router.with_ports_of(places)
    found = route_schedule(with_ports_of, schedule)
    assert_right(with_ports_of, schedule, found)
    assert found.extra == 0
    with pytest.raises(ConfigError, match="10 ranks, but only 8 ports"):
        relabel_ranks(router, make_schedule("ring", 10))
