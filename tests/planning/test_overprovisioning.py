"""Costs of policies: against exact expectations where they exist, and against the published factors."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lumion_hw.errors import ConfigError
from lumion_hw.planning import MIXES, Faults, Fleet, JobMix, PolicyCost, factor_map, on_cores, simulate

SHARE = 0.02


def _mean_is(cost: PolicyCost, expected: float) -> bool:
    return abs(cost.stranded - expected) <= 4.0 * cost.stranded_error


def test_a_job_that_moves_leaves_its_healthy_accelerators_behind() -> None:
    """Twelve jobs of 16 in four racks of 64, the last quarter of each rack a job as well: no spares."""
    found = simulate(Fleet(4, 64, 4, 0), Faults(None, SHARE), JobMix.from_weights({16: 1.0}), states=20_000, seed=1)
    assert found.failed == pytest.approx(256 * SHARE, rel=0.02)
    assert _mean_is(found.costs["job-migration"], 16 * (16 * (1 - (1 - SHARE) ** 16) - 16 * SHARE))
    assert _mean_is(found.costs["server-eviction"], 64 * (4 * (1 - (1 - SHARE) ** 4) - 4 * SHARE))


def test_a_server_that_is_lost_as_a_whole_leaves_nothing_healthy_behind() -> None:
    found = simulate(Fleet(4, 64, 4, 0), Faults(None, 0.0, SHARE), JobMix.from_weights({16: 1.0}), states=5000, seed=2)
    assert found.costs["server-eviction"].stranded == 0.0
    assert found.failed == pytest.approx(256 * SHARE, rel=0.05)


def test_spares_replace_what_fails_as_long_as_there_are_any() -> None:
    """One job of 14 in a rack of 16 with two spares, which can also fail: how often they are too few, by binomials."""
    found = simulate(Fleet(1, 16, 4, 2), Faults(None, SHARE), JobMix.from_weights({14: 1.0}), states=50_000, seed=3)

    def binomial(count: int, k: int) -> float:
        return math.comb(count, k) * SHARE**k * (1 - SHARE) ** (count - k)

    stranded = idle = short = 0.0
    for lost in range(15):
        for spare in range(3):
            share = binomial(14, lost) * binomial(2, spare)
            if lost > 2 - spare:
                stranded, idle, short = stranded + share * (14 - lost), idle + share * (2 - spare), short + share
            else:
                idle += share * (2 - spare - lost)
    cost = found.costs["in-rack-spares"]
    assert _mean_is(cost, stranded)
    assert cost.idle == pytest.approx(idle, abs=0.02)
    assert 1.0 - cost.whole == pytest.approx(short, abs=4.0 * math.sqrt(short / 50_000))


def test_failures_per_rack_are_as_many_as_asked_and_anywhere() -> None:
    every = simulate(Fleet(8, 16, 4, 0), Faults((3, 3)), JobMix.from_weights({4: 1.0}), states=500, seed=5)
    assert every.failed == 24.0
    all_of_them = simulate(Fleet(2, 8, 4, 0), Faults((8, 8)), JobMix.from_weights({4: 1.0}), states=10, seed=5)
    assert all_of_them.failed == 16.0
    assert all_of_them.costs["job-migration"].stranded == 0.0
    # Without spares three of sixteen hit a given server of four with probability 1 - C(12, 3)/C(16, 3).
    hit = 1.0 - math.comb(12, 3) / math.comb(16, 3)
    assert _mean_is(every.costs["server-eviction"], 8 * (4 * 4 * hit - 3))


def test_the_published_factors_lie_between_two_ways_to_count() -> None:
    """64 racks of 64, one server of 4 in reserve, 1 to 4 chips of every rack failed: 10 and 3 as published."""
    found = simulate(Fleet(), Faults((1, 4)), MIXES["tpu-v4-small"], states=500, seed=6)
    for policy, published in (("job-migration", 10.0), ("server-eviction", 3.0)):
        with_idle = found.ratio(policy, "in-rack-spares", counting="all")
        without = found.ratio(policy, "in-rack-spares", counting="needed")
        assert with_idle < published < without
        assert 0.7 * published < with_idle
    assert found.costs["in-rack-spares"].whole > 0.99


def test_jobs_of_many_racks_and_faults_of_servers_turn_the_advantage_round() -> None:
    found = factor_map(Fleet(), 4.7e-4, 7.0, (16, 256), (0.0, 0.5), states=200, seed=7)
    assert (found.factors["server-eviction"][:, 0] > 3.0).all()
    assert found.factors["server-eviction"][1, 1] < 1.0
    assert found.factors["job-migration"][1, 0] > 10.0


def test_a_job_of_several_racks_is_one_job() -> None:
    fleet = Fleet(4, 16, 4, 0)
    found = simulate(fleet, Faults((0, 1)), JobMix.from_weights({64: 1.0}), states=2000, seed=8)
    any_fails = 1.0 - 0.5**4
    assert _mean_is(found.costs["job-migration"], 64 * any_fails - 2.0)


def test_processes_change_nothing() -> None:
    asked = (Fleet(4), Faults(None, 0.001, 0.002), MIXES["even"])
    alone = simulate(*asked, states=2500, seed=9)
    assert simulate(*asked, states=2500, seed=9, mapper=on_cores(2)) == alone
    assert simulate(*asked, states=2500, seed=10) != alone


def test_what_is_held_back_is_enough_in_so_many_states() -> None:
    """In-rack spares by the simulated quantile, against binomials: no rack of 8 short in 95 % of the states."""
    found = simulate(Fleet(8, 16, 4, 0), Faults(None, SHARE), JobMix.from_weights({16: 1.0}), states=20_000, seed=11)
    within = np.cumsum([math.comb(16, k) * SHARE**k * (1 - SHARE) ** (16 - k) for k in range(17)]) ** 8
    assert found.costs["in-rack-spares"].reserved == 8 * int(np.argmax(within >= 0.95))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: Fleet(0), "fleet"),
        (lambda: Fleet(1, 10, 4), "not a multiple"),
        (lambda: Fleet(1, 8, 4, 8), "leave none for jobs"),
        (lambda: Fleet(10**6), "at most"),
        (lambda: Faults((3, 1)), "failures"),
        (lambda: Faults(None, -0.1), "fraction of time"),
        (lambda: Faults.from_rate(float("inf"), 1.0, 0.0, 4), "finite"),
        (lambda: Faults.from_rate(1e-3, 1.0, 2.0, 4), "fraction of faults"),
        (lambda: simulate(Fleet(), Faults((1, 4)), MIXES["even"], states=0), "states"),
        (lambda: simulate(Fleet(1, 8, 4, 0), Faults((1, 9)), MIXES["even"], states=1), "failures"),
        (
            lambda: simulate(Fleet(1, 8, 4, 0), Faults((1, 1)), JobMix.from_weights({64: 1.0}), states=1),
            "no job of the mix",
        ),
        (lambda: simulate(Fleet(), Faults((1, 4)), MIXES["even"], service_level=1.0), "service level"),
        (lambda: factor_map(Fleet(), 1e-4, 1.0, (4,), (0.0,), counting="half"), "unknown counting"),
    ],
)
def test_what_cannot_be_is_refused(wrong: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        wrong()  # type: ignore[operator]
