"""The served readings of modules of each class, on an emulated bench in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from lumion_hw.bench.bench import Bench
from lumion_hw.serving.readings import BenchReadings
from lumion_hw.serving.state import AlarmSeverity

BENCH = """
version: 1
name: every-class
devices:
  mesh0: {kind: lumion-mesh, serial: EC-0001, heater_max_ma: 2.5, heater_ohm: 1000.0, total_power_mw: 500.0}
  sfp: {kind: sfp-8472}
  lr4: {kind: qsfp-8636, profile: 100g-lr4}
  zr: {kind: cmis, profile: 400zr}
  cr4: {kind: qsfp-8636, profile: 100g-cr4}
  aoc: {kind: qsfp-8636, profile: 100g-aoc}
  aec: {kind: cmis, profile: aec}
  dr4: {kind: cmis, profile: 400g-dr4}
mesh: {controller: mesh0, topology: benes, ports: 4}
wiring:
  inputs: [{transponder: sfp, port: 0}, {transponder: lr4, port: 1}, {transponder: zr, port: 2}]
"""

MONITORS = ("temperature_c", "supply_v", "tx_bias_ma", "tx_power_dbm", "rx_power_dbm")


@pytest.fixture
def readings(tmp_path: Path) -> BenchReadings:
    path = tmp_path / "bench.yaml"
    path.write_text(BENCH)
    with Bench.emulate(path, seed=1) as bench:
        readings = BenchReadings(bench, bench.clock)
        readings.update()
        return readings


def test_every_class_of_module_has_temperature_and_powers(readings: BenchReadings) -> None:
    points = readings.points()
    for module in ("sfp", "lr4", "zr"):
        assert 20.0 < points[f"{module}.temperature_c"].value < 70.0  # type: ignore[operator]
        assert f"{module}.rx_power_dbm" in points
    for module in ("lr4", "dr4"):
        assert [f"{module}.tx_power_dbm.{lane}" in points for lane in (1, 2, 3, 4)] == [True] * 4
    assert "zr.tx_power_dbm.1" not in points  # the only lane is the module
    assert "dr4.tx_power_dbm.5" not in points


def test_a_dark_module_does_not_show_the_power_that_was_set(readings: BenchReadings) -> None:
    points = readings.points()
    assert (points["zr.tx_power_dbm"].writable, points["zr.tx_power_dbm"].value) == (True, -10.0)
    measured = points["zr.tx_power_dbm.measured"]
    assert (measured.writable, measured.value, measured.alarm) == (False, None, "dark")


def test_a_lane_without_a_data_path_is_no_alarm(readings: BenchReadings) -> None:
    points = readings.points()
    assert points["zr.application.1"].value == "1"
    unused = points["zr.application.3"]
    assert (unused.value, unused.severity, unused.alarm) == (None, AlarmSeverity.NONE, "no data path begins here")


def test_a_monitor_that_a_module_does_not_have_is_no_reading_and_no_alarm(readings: BenchReadings) -> None:
    """A missing monitor is neither a dark lane nor a failed reading."""
    points = readings.points()

    def of(module: str) -> set[str]:
        names = {name.removeprefix(f"{module}.") for name in points if name.startswith(f"{module}.")}
        return {name for name in names if name.partition(".")[0] in MONITORS}

    assert of("cr4") == set()
    assert of("aec") == {"temperature_c", "supply_v"}
    per_lane = {f"{quantity}.{lane}" for quantity in ("tx_bias_ma", "rx_power_dbm") for lane in (1, 2, 3, 4)}
    assert of("aoc") == {"temperature_c", "supply_v", "tx_bias_ma", "rx_power_dbm", *per_lane}
    assert {name: point.alarm for name, point in points.items() if name.startswith("aec.") and point.severity} == {}
