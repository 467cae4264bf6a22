"""Modules that stop responding, are slow or ignore the page select: a clear error, and no light that was off before."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

import pytest

from lumion_hw.emulator.transponders.qsfp import find_profile
from lumion_hw.errors import LimitError, LinkError, LumionError
from tests.drivers.transponders.faulty_buses import Bench, cmis, qsfp, sfp

Make = Callable[[], Bench]
MODULES = pytest.mark.parametrize("make", [sfp, qsfp, cmis])
READINGS = ("identify", "monitors", "status", "flags")


def dark(make: Make) -> Bench:
    bench = make()
    bench.driver.open()
    bench.driver.disable()
    bench.wait(2.0)
    assert bench.lit() == []
    return bench


def accesses_of(bench: Bench, name: str) -> range:
    """Return the numbers of the accesses of a call: all of the first 20, and one in five of the others."""
    bench.bus.n_accesses = 0
    getattr(bench.driver, name)()
    n = bench.bus.n_accesses
    return range(0, n, max(1, n // 20))


@MODULES
def test_a_missing_acknowledgement_at_any_access_leaves_no_light(make: Make) -> None:
    bench = dark(make)
    accesses = accesses_of(bench, "enable")
    bench.driver.disable()
    n_errors = 0
    for access in accesses:
        bench.wait(2.0)
        with bench.failing(access, 0.8):
            try:
                bench.driver.enable()
            except LinkError:
                n_errors += 1
                bench.wait(5.0)
                assert bench.lit() == [], access
        bench.driver.disable()
    assert n_errors > len(accesses) / 2


@MODULES
def test_a_short_interruption_at_any_access_is_bridged(make: Make) -> None:
    bench = dark(make)
    for name in ("enable", *READINGS, "disable"):
        for access in accesses_of(bench, name):
            with bench.failing(access, 0.05):
                getattr(bench.driver, name)()
    bench.wait(2.0)
    assert bench.lit() == []


@MODULES
def test_a_module_that_is_gone_for_good_is_an_error_that_warns_of_its_light(make: Make) -> None:
    bench = dark(make)
    accesses = accesses_of(bench, "enable")
    bench.driver.disable()
    bench.wait(2.0)
    with (
        bench.failing(accesses[len(accesses) * 2 // 3], 1e9),
        pytest.raises(LinkError, match="not acknowledged") as caught,
    ):
        bench.driver.enable()
    assert any("The transmitter may be on" in note for note in caught.value.__notes__)


@MODULES
def test_readings_of_a_module_that_stretches_the_clock_are_as_ever(make: Make) -> None:
    bench = dark(make)
    bench.driver.enable()
    bench.wait(2.0)
    before = bench.driver.monitors()
    bench.bus.stretch_s = 0.02  # for each access, as of a module that holds SCL low
    after = bench.driver.monitors()
    assert after.tx_power_dbm == pytest.approx(before.tx_power_dbm, abs=0.5)
    assert after.temperature_c == pytest.approx(before.temperature_c, abs=1.0)
    bench.driver.disable()


@pytest.mark.parametrize(("make", "page"), [(qsfp, 0x00), (qsfp, 0x03), (cmis, 0x00), (cmis, 0x11)])
def test_a_page_select_that_is_ignored_is_an_error(make: Make, page: int) -> None:
    """The module always shows the same page: nothing is switched on, and nothing of it is taken for another page."""
    bench = dark(make)
    bench.driver.close()
    bench.bus.write(127, bytes([page]))
    bench.bus.ignores_pages = True
    with contextlib.suppress(LumionError):
        bench.driver.open()
        assert page == 0x00
        if make is qsfp:
            assert bench.driver.thresholds() == {}
            bench.driver.enable()  # needs no other page
            bench.driver.disable()
        else:
            with pytest.raises(LumionError):
                bench.driver.enable()
    bench.wait(5.0)
    assert bench.lit() == []


@pytest.mark.parametrize("max_power_class", [1, 2, 3])
def test_a_cage_of_low_class_gets_no_high_power(max_power_class: int) -> None:
    profile = replace(find_profile("100g-lr4"), power_class=6)
    bench = qsfp(profile, max_power_class=max_power_class)
    bench.driver.open()
    for call in (bench.driver.enable, bench.driver.power_up, lambda: bench.driver.enable_lane(1)):
        with pytest.raises(LimitError, match="max_power_class"):
            call()
    assert bench.lit() == []
    assert not bench.driver.power_control().class_5_to_7


def test_one_lane_of_a_sleeping_qsfp_module_wakes_no_other() -> None:
    bench = qsfp("100g-psm4")
    bench.driver.open()
    bench.driver.power_down()
    bench.wait(2.0)
    assert bench.lit() == []
    bench.driver.enable_lane(2)
    bench.wait(2.0)
    assert bench.lit() == [2]
