"""Numbers of spares: the recursion by hand and by enumeration, both rules, racks and pools."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from lumion_hw.errors import ConfigError
from lumion_hw.planning import (
    RiskGroup,
    lost_probability,
    plan_spares,
    rack_of_servers,
    spares_needed,
    unavailable_share,
)


def _units(*shares: float) -> RiskGroup:
    return RiskGroup(0.0, tuple(RiskGroup(share, accelerators=1) for share in shares))


def test_three_units_by_hand() -> None:
    lost = lost_probability(_units(0.1, 0.2, 0.05))
    np.testing.assert_allclose(lost, (0.684, 0.283, 0.032, 0.001), atol=1e-12)
    assert spares_needed(lost, 0.95, "published") == 2
    assert spares_needed(lost, 0.95, "sufficient") == 1


def test_a_rack_of_equal_units_is_binomial() -> None:
    lost = lost_probability(rack_of_servers(16, 4, 0.01))
    binomial = [math.comb(64, k) * 0.01**k * 0.99 ** (64 - k) for k in range(65)]
    np.testing.assert_allclose(lost, binomial, rtol=1e-9, atol=1e-300)
    assert [round(lost[k:].sum(), 4) for k in (1, 2, 3, 4)] == [0.4744, 0.1346, 0.0265, 0.0039]
    assert [spares_needed(lost, 0.95, rule) for rule in ("published", "sufficient")] == [3, 2]


def test_groups_in_groups_are_those_of_enumeration() -> None:
    """Two servers of two in a rack that can fail completely, and one accelerator outside the servers."""
    one, server, rack = 0.2, 0.1, 0.05
    group = RiskGroup(rack, (RiskGroup(server, (RiskGroup(one, accelerators=1),) * 2),) * 2, accelerators=1)
    expected = np.zeros(6)
    for states in itertools.product((False, True), repeat=7):
        whole, servers, alone = states[0], states[1:3], states[3:]
        shares = np.where(states, (rack, server, server, one, one, one, one), 1.0)
        shares = np.where(states, shares, 1.0 - np.array((rack, server, server, one, one, one, one)))
        lost = sum(alone[2 * s + a] or servers[s] for s in (0, 1) for a in (0, 1))
        expected[5 if whole else lost] += shares.prod()
    np.testing.assert_allclose(lost_probability(group), expected, atol=1e-14)


def test_failures_and_repairs_make_a_share_of_the_time() -> None:
    assert unavailable_share(1e-3, 10.0) == pytest.approx(0.01 / 1.01)
    assert unavailable_share(0.0, 10.0) == 0.0


@pytest.mark.parametrize("share", [0.0, 0.005, 0.05])
def test_spares_that_fail_are_covered_as_well(share: float) -> None:
    """By the definition: K spares hold when lost accelerators and lost spares are K at most."""
    lost = lost_probability(rack_of_servers(4, 4, 0.02))
    spares = spares_needed(lost, 0.99, "sufficient", spare_unavailable=share)

    def short(count: int) -> float:
        own = [math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(count + 1)]
        return float(np.convolve(lost, own)[count + 1 :].sum())

    assert short(spares) <= 0.01 < short(spares - 1)


def test_a_pool_needs_less_than_its_racks_and_more_than_one_of_them() -> None:
    plan = plan_spares(rack_of_servers(16, 4, 0.003), 64, 0.95, "sufficient")
    assert plan.one_rack <= plan.every_rack
    assert plan.one_rack < plan.pooled < 64 * plan.every_rack
    alone = plan_spares(rack_of_servers(16, 4, 0.003), 1, 0.95, "sufficient")
    assert alone.one_rack == alone.every_rack == alone.pooled


def test_faults_of_servers_ask_for_more_than_as_many_faults_of_accelerators() -> None:
    alone = plan_spares(rack_of_servers(16, 4, 0.004), 64, 0.95)
    together = plan_spares(rack_of_servers(16, 4, 0.0, 0.004), 64, 0.95)
    assert together.every_rack > alone.every_rack
    assert together.pooled > alone.pooled


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: RiskGroup(1.5, accelerators=1),
        lambda: RiskGroup(0.1),
        lambda: RiskGroup(0.1, accelerators=-1),
        lambda: rack_of_servers(0, 4, 0.1),
        lambda: rack_of_servers(10**6, 4, 0.1),
        lambda: unavailable_share(float("nan"), 1.0),
        lambda: unavailable_share(1e-3, -1.0),
        lambda: spares_needed(lost_probability(_units(0.1)), 1.0),
        lambda: spares_needed(lost_probability(_units(0.1)), 0.9, spare_unavailable=1.0),
        lambda: plan_spares(_units(0.1), 0, 0.9),
    ],
)
def test_what_cannot_be_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigError):
        wrong()  # type: ignore[operator]


def test_spares_that_are_always_lost_never_suffice() -> None:
    with pytest.raises(ConfigError, match="no number of spares"):
        spares_needed(lost_probability(_units(*[1.0] * 40)), 0.99, spare_unavailable=0.9)
