"""Power of packet and circuit networks, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from lumion_hw.errors import ConfigError
from lumion_hw.planning import compare_power, load_power_file
from lumion_hw.planning.network_power import tiers_needed
from tests.edited_files import edited

RAILS = Path(__file__).parents[2] / "examples" / "rail_power.yaml"


def test_one_tier_and_two_tiers_are_what_a_calculation_by_hand_gives() -> None:
    small, middle, _ = compare_power(load_power_file(RAILS))
    port_w, circuit_w, host_w = 747 / 64 + 8.5, 108 / 136, 8.5
    assert (small.packet_tiers, small.circuit_tiers, small.packet_w) == (1, 1, pytest.approx(port_w))
    assert small.ratio == pytest.approx(port_w / circuit_w)
    assert small.ratio_with_hosts == pytest.approx((port_w + host_w) / (circuit_w + host_w))
    # A leaf has a port down and a port up for each endpoint, the spine one.
    assert (middle.packet_tiers, middle.packet_w, middle.circuit_w) == (
        2,
        pytest.approx(3 * port_w),
        pytest.approx(3 * circuit_w),
    )
    assert middle.free_switch_ratio == pytest.approx((3 * port_w + host_w) / host_w)
    assert middle.ratio_with_hosts < middle.free_switch_ratio < 23.0 < middle.ratio


def test_tiers_connect_what_a_folded_clos_network_connects() -> None:
    """k ports: k endpoints at one tier, k^2/2 at two, k^3/4 at three (Al-Fares, SIGCOMM 2008, for fat trees)."""
    k = 64
    for tiers, endpoints in ((1, k), (2, k**2 // 2), (3, k**3 // 4)):
        assert tiers_needed(endpoints, k) == tiers
        assert tiers_needed(endpoints + 1, k) == tiers + 1
    assert tiers_needed(100, 2) is None


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("[512, 2048, 8192]", "[512, 2047]", "expected a multiple of 8 rails, found 2047"),
        ("ports: 64", "ports: 2", "more than 4 tiers"),
        ("{value: 8.5", "{value: 0", "found the number 0"),
        ("rails: 8", "rails: eight", "eight"),
        ("published:", "claimed:", "claimed"),
    ],
)
def test_a_mistake_in_a_file_is_named_with_its_line(tmp_path: Path, old: str, new: str, says: str) -> None:
    with pytest.raises(ConfigError, match=r"rail_power\.yaml:") as caught:
        load_power_file(edited(RAILS, tmp_path, (old, new)))
    assert says in str(caught.value)
