"""Light of a bench as a calibration uses it: a laser in place of a module, and modules that can be tuned."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

from calibration.measure.bench_probe import BenchProbe
from lumion_hw import Bench
from lumion_hw.errors import ConfigError, LimitError
from tests.calibration.bench_run import SMALL

ZR_PAIR = SMALL.with_name("zr_pair.yaml")
NM_1540_HZ = 299792458.0 / 1540e-9


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Bench.emulate("laser-bench", seed=4) as bench:
        yield bench


def bench_with(tmp_path: Path, device: dict[str, object], source: str) -> Path:
    """The small bench whose first input is fed by another device, without polarization controller."""
    document = yaml.safe_load(SMALL.read_text())
    document["devices"]["new"] = device
    document["wiring"]["inputs"] = [{source: "new", "port": 1, "loss_db": 0.5}]
    document["wiring"]["outputs"] = []
    for section in ("servers", "fabric"):
        del document[section]
    path = tmp_path / "bench.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def seen_ma(bench: Bench) -> float:
    return float(bench.mesh.monitors_ma().sum())


def test_a_laser_lights_its_port_and_no_other(bench: Bench) -> None:
    probe = BenchProbe(bench)
    assert probe.sources == (1, 11)
    probe.light_only_port(1)
    assert [bench.lasers[name].state().emitting for name in ("tls-a", "tls-b")] == [True, False]
    lit_ma = seen_ma(bench)
    probe.light_only_port(None)
    assert not any(laser.state().emitting for laser in bench.lasers.values())
    assert lit_ma > 100.0 * seen_ma(bench)


def test_what_a_laser_launches_is_its_setting_less_the_fixed_loss(bench: Bench) -> None:
    bench.lasers["tls-a"].set_power_dbm(3.0)
    probe = BenchProbe(bench)
    probe.light_only_port(1)
    assert probe.launched_dbm(1) == pytest.approx(2.5)  # laser-bench.yaml: 0.5 dB


def test_a_tuned_laser_stays_lit_and_the_mesh_shows_the_other_wavelength(bench: Bench) -> None:
    probe = BenchProbe(bench)
    probe.light_only_port(1)
    before_ma = bench.mesh.monitors_ma()
    assert probe.tune(1, NM_1540_HZ) == pytest.approx(NM_1540_HZ, abs=2e7)  # steps of 0.1 pm, 12 MHz
    assert bench.lasers["tls-a"].state().ready
    after_ma = bench.mesh.monitors_ma()
    assert np.abs(after_ma - before_ma).sum() > 0.1 * before_ma.sum()
    truth_hz = bench.emulated.world.chains[0].frequency_hz
    assert truth_hz == pytest.approx(NM_1540_HZ, abs=2e9)  # 3 pm or 0.4 GHz of error, one sigma


def test_both_lasers_state_their_range(bench: Bench) -> None:
    device = BenchProbe(bench).device_under_test()
    assert device.wavelength_nm == pytest.approx(1550.0)
    assert sorted(device.tunable_hz) == [1, 11]
    low_hz, high_hz = device.tunable_hz[1]
    assert (low_hz, high_hz) == pytest.approx((299792458.0 / 1640e-9, 299792458.0 / 1480e-9))  # a TSL-570's


def test_a_wavelength_out_of_range_is_refused(bench: Bench) -> None:
    with pytest.raises(LimitError):
        BenchProbe(bench).tune(1, 299792458.0 / 1300e-9)


def test_a_laser_that_tunes_dark_is_tuned_all_the_same(tmp_path: Path) -> None:
    with Bench.emulate(bench_with(tmp_path, {"kind": "itla-laser"}, "laser"), seed=4) as bench:
        probe = BenchProbe(bench)
        probe.light_only_port(1)
        assert probe.tune(1, 194e12) == pytest.approx(194e12, abs=1e6)
        assert bench.lasers["new"].state().ready


def test_a_coherent_module_is_tuned(tmp_path: Path) -> None:
    module = {"kind": "cmis", "profile": "zr-plus-high-power"}
    with Bench.emulate(bench_with(tmp_path, module, "transponder"), seed=4) as bench:
        probe = BenchProbe(bench)
        low_hz, high_hz = probe.tunable_hz(1) or (0.0, 0.0)
        assert low_hz < 193.7e12 < high_hz
        assert probe.tune(1, 193.7e12) == pytest.approx(193.7e12, abs=1e6)
        assert probe.device_under_test().wavelength_nm == pytest.approx(299792458.0 / 193.7e12 * 1e9)


def test_a_grey_module_cannot_be_tuned() -> None:
    with Bench.emulate(SMALL, seed=4) as bench:
        probe = BenchProbe(bench)
        assert probe.tunable_hz(1) is None
        assert probe.device_under_test().tunable_hz == {}
        with pytest.raises(ConfigError, match="cannot be tuned"):
            probe.tune(1, 193.5e12)


def test_meters_on_the_outputs_follow_the_wavelength_of_the_light(tmp_path: Path) -> None:
    document = yaml.safe_load(SMALL.read_text())
    document["devices"] |= {"tls": {"kind": "santec-tsl"}, "pm0": {"kind": "thorlabs-pm", "model": "PM100D"}}
    document["wiring"]["inputs"] = [{"laser": "tls", "port": 1}]
    tap = {"meter": "pm0", "channel": 1, "fraction": 0.5}
    document["wiring"]["outputs"] = [{"port": 3, "transponder": "sfp-a", "tap": tap}]
    del document["servers"], document["fabric"]
    path = tmp_path / "bench.yaml"
    path.write_text(yaml.safe_dump(document))
    with Bench.emulate(path, seed=4) as bench:
        probe = BenchProbe(bench)
        probe.light_only_port(1)
        for nm in (1550.0, 1490.0):
            probe.tune(1, 299792458.0 / (nm * 1e-9))
            light = bench.emulated.world.meter_light("pm0", 1)
            assert light.wavelength_nm == pytest.approx(nm, abs=0.02)
            pm0 = bench.emulated.devices["pm0"]
            assert pm0.sensor().settings.wavelength_nm == pytest.approx(nm, abs=0.01)  # type: ignore[attr-defined]
            assert bench.meters["pm0"].read(1).power_w == pytest.approx(light.power_w, rel=0.06)  # 5 % of its head


def test_two_tributaries_are_one_source_that_lights_two_ports() -> None:
    with Bench.emulate(ZR_PAIR) as bench:
        probe = BenchProbe(bench)
        assert probe.sources == (5, 12)
        assert probe.device_under_test().seconds == {5: 7, 12: 14}


def test_one_tributary_alone_is_light_as_any_other(tmp_path: Path) -> None:
    path = bench_with(tmp_path, {"kind": "cmis"}, "transponder")
    document = yaml.safe_load(path.read_text())
    document["wiring"]["inputs"][0]["tributary"] = "x"
    path.write_text(yaml.safe_dump(document))
    with Bench.emulate(path) as bench:
        probe = BenchProbe(bench)
        probe.light_only_port(1)
        lit_ma = seen_ma(bench)
        probe.light_only_port(None)
        assert lit_ma > 100.0 * seen_ma(bench)
