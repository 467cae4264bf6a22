"""An 800ZR module, whose channels are 150 GHz apart (CMIS 5.3: 04h:129.6, 04h:162-165, grid code 8)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lumion_hw import Bench, VirtualClock
from lumion_hw.drivers import CmisTransponder
from lumion_hw.emulator import CmisModule, Fibre, join
from lumion_hw.errors import LimitError


@pytest.fixture
def ends(clock: VirtualClock) -> tuple[CmisModule, CmisModule]:
    one, other = (CmisModule.from_profile("800zr", clock=clock, seed=seed, warm=True) for seed in (1, 2))
    join(one, other, Fibre(loss_db=5.0))
    return one, other


@pytest.fixture
def driver(ends: tuple[CmisModule, CmisModule], clock: VirtualClock) -> Iterator[CmisTransponder]:
    with CmisTransponder(ends[0], clock) as driver:
        driver.power_up()
        driver.enable()
        yield driver


@pytest.mark.parametrize(("frequency_thz", "channel"), [(191.375, -72), (193.025, -6), (196.025, 114)])
def test_channels_of_the_150_ghz_grid(
    driver: CmisTransponder, ends: tuple[CmisModule, CmisModule], frequency_thz: float, channel: int
) -> None:
    """Channel n has the frequency 193.1 THz + (n + 3) 25 GHz; n is a multiple of 6."""
    result = driver.tune(frequency_thz, grid_ghz=150.0)
    assert (result.grid, result.channel, result.fine_ghz) == ("150 GHz", channel, 0.0)
    assert driver.dump().halves[0, 0x12][0] == 0x80
    light = ends[0].light(1)
    assert light.enabled
    assert light.frequency_mhz == pytest.approx(frequency_thz * 1e6, abs=300)


def test_a_frequency_between_the_channels(driver: CmisTransponder) -> None:
    with pytest.raises(LimitError, match="nearest 193031000 MHz and 193169000 MHz"):  # 6 GHz of fine tuning
        driver.tune(193.1, grid_ghz=150.0)


def test_two_modules_lock_at_800g(
    driver: CmisTransponder, ends: tuple[CmisModule, CmisModule], clock: VirtualClock
) -> None:
    with CmisTransponder(ends[1], clock) as other:
        other.power_up()
        other.enable()
        for module in (driver, other):
            module.tune(194.375)
        assert driver.capabilities().coherent
        assert driver.wait_for_lock(30.0).locked


def test_in_a_bench_file(tmp_path) -> None:
    path = tmp_path / "bench.yaml"
    path.write_text(
        "version: 1\nname: pair\ndevices:\n  mesh0: {kind: lumion-mesh}\n"
        "  a: {kind: cmis, profile: 800zr, serial: A, frequency_thz: 193.325}\nmesh: {controller: mesh0}\n"
    )
    with Bench.emulate(str(path), only=["a"]) as bench:
        assert bench.transponders["a"].identify().part_number == "EMU-800ZR"
