"""A bench as a station of the real QCoDeS."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from lumion_hw import Bench
from lumion_hw.errors import ConfigError, LimitError, LinkError
from tests.recorded_calibration import SMALL

pytest.importorskip("qcodes", reason="QCoDeS is not installed: pip install 'lumion-hw[qcodes]'")
from lumion_hw.integrations import to_qcodes


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with Bench.emulate(SMALL, seed=3) as opened:
        yield opened


@pytest.fixture(scope="module")
def station(bench: Bench) -> Iterator[Any]:
    made = to_qcodes(bench)
    yield made
    made.close_all_registered_instruments()


def test_every_device_is_an_instrument_with_its_serial_number(bench: Bench, station: Any) -> None:
    assert set(station.components) == {name.replace("-", "_") for name in bench.devices}
    assert station.mesh0.get_idn()["serial"] == "SMALL-0001"
    assert station.mesh0.get_idn()["model"] == "lumion-mesh"


def test_a_setting_is_a_parameter_with_unit_and_limits(bench: Bench, station: Any) -> None:
    heater = station.mesh0.heater_ma_3
    assert (heater.unit, heater.label) == ("mA", "mesh0.heater_ma.3")
    assert repr(heater.vals) == "<Numbers 0.0<=v<=2.5>"
    heater(1.25)
    assert bench.mesh.confirmed_currents_ma()[3] == pytest.approx(1.25, abs=1e-3)
    assert heater() == pytest.approx(1.25, abs=1e-3)
    station.mesh0.heaters_ma(np.zeros(30))
    assert not bench.mesh.confirmed_currents_ma().any()


def test_a_value_beyond_a_limit_says_what_happened_and_leaves_the_bench_as_it_was(bench: Bench, station: Any) -> None:
    heater = station.mesh0.heater_ma_3
    heater(0.5)
    before_ma = bench.mesh.confirmed_currents_ma()
    with pytest.raises(LimitError) as caught:
        heater(9.0)
    assert "mesh0" in str(caught.value)
    assert "requested 9 mA, limit 2.5 mA" in str(caught.value)
    for wrong in (math.nan, "much", None, True):
        with pytest.raises((ConfigError, LimitError), match="heater_ma"):
            heater(wrong)
    with pytest.raises(ConfigError, match="shape"):
        station.mesh0.heaters_ma(np.zeros(4))
    assert np.array_equal(bench.mesh.confirmed_currents_ma(), before_ma)
    assert heater.cache() == pytest.approx(0.5, abs=1e-3), "the refused value is in the cache"
    heater(0.0)


def test_a_reading_cannot_be_set_and_has_a_unit(station: Any) -> None:
    power = station.meter0.power_1
    assert power.unit == "W"
    assert 0.0 < power() < 1e-3
    with pytest.raises(NotImplementedError):
        power(1.0)


def test_a_reading_without_light_is_nan_and_a_lost_device_an_error(bench: Bench, station: Any) -> None:
    for module in bench.transponders.values():
        module.disable()
    bench.clock.sleep(1.0)
    assert math.isnan(station.sfp_a.rx_power_dbm())
    bench.emulated.faults.inject("sfp-a", "bus_stuck")
    with pytest.raises(LinkError, match="sfp-a"):
        station.sfp_a.rx_power_dbm()
    bench.emulated.faults.end("sfp-a", "bus_stuck")
    for module in bench.transponders.values():
        module.enable()


def test_the_snapshot_has_all_settings_with_units_and_reads_each_device_once(
    bench: Bench, station: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    station.mesh0.heater_ma_3(0.75)
    reads: list[int] = []
    read_back = bench.mesh.controller.read_back
    monkeypatch.setattr(bench.mesh.controller, "read_back", lambda: reads.append(1) or read_back())
    snapshot = station.snapshot(update=True)["instruments"]
    assert len(reads) == 1
    heaters = snapshot["mesh0"]["parameters"]["heaters_ma"]
    assert heaters["value"][3] == pytest.approx(0.75, abs=1e-3)
    assert heaters["unit"] == "mA"
    wavelength = snapshot["meter0"]["parameters"]["wavelength_nm_1"]
    assert (wavelength["value"], wavelength["unit"]) == (1550.0, "nm")
    station.mesh0.heater_ma_3(0.0)


def test_a_sweep_of_qcodes_runs_over_a_heater(station: Any) -> None:
    powers_w = []
    for current_ma in np.linspace(0.0, 1.0, 3):
        station.mesh0.heater_ma_3(current_ma)
        powers_w.append(station.meter0.power_1())
    assert all(power_w > 0.0 for power_w in powers_w)
    station.mesh0.heater_ma_3(0.0)
