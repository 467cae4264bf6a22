"""The history of readings: bounded memory, extremes of every interval, gaps."""

import dataclasses
import math

import numpy as np

from lumion_hw.serving import history
from lumion_hw.serving.history import MAX_INTERVALS, PERIOD_S, ReadingHistory
from lumion_hw.serving.state import AlarmSeverity, Point


def points(value: float | None, **changes: object) -> dict[str, Point]:
    point = Point("a.power_dbm", value, "dBm", time_s=1.0)
    text = Point("a.mode", "fast", kind="choice", choices=("fast",))
    array = Point("a.currents_ma", np.zeros(3), "mA", kind="array")
    return {each.name: each for each in (dataclasses.replace(point, **changes), text, array)}  # type: ignore[arg-type]


def test_only_numbers_are_kept_and_at_most_one_sample_per_period() -> None:
    record = ReadingHistory()
    for step in range(5):
        record.add(100.0 + step * PERIOD_S / 2, points(float(step)))
    curves = record.curves(["a.power_dbm", "a.mode", "a.currents_ma"])
    assert curves == {
        "time_s": [100.0, 100.0 + PERIOD_S, 100.0 + 2 * PERIOD_S],
        "low": {"a.power_dbm": [0.0, 2.0, 4.0]},
        "high": {"a.power_dbm": [0.0, 2.0, 4.0]},
    }


def test_every_interval_shows_its_extremes_and_a_missing_value_is_a_gap() -> None:
    record = ReadingHistory()
    for step in range(3000):
        value = {1500: -30.0, 1501: 7.0, 2500: None}.get(step, 1.0)
        record.add(PERIOD_S * step, points(value))
    curves = record.curves(["a.power_dbm"])
    assert len(curves["time_s"]) <= MAX_INTERVALS
    low, high = curves["low"]["a.power_dbm"], curves["high"]["a.power_dbm"]
    assert min(value for value in low if value is not None) == -30.0
    assert max(value for value in high if value is not None) == 7.0
    assert low.count(None) == high.count(None) == 1
    zoomed = record.curves(["a.power_dbm"], PERIOD_S * 1499, PERIOD_S * 1502)
    assert zoomed["low"]["a.power_dbm"] == [1.0, -30.0, 7.0, 1.0]


def test_a_pause_of_the_host_is_no_interval_of_its_own() -> None:
    record = ReadingHistory()
    times_s = [PERIOD_S * step for step in range(400)] + [1e5 + PERIOD_S * step for step in range(400)]
    for time_s in times_s:
        record.add(time_s, points(1.0))
    shown_s = np.array(record.curves(["a.power_dbm"])["time_s"])
    assert np.diff(shown_s).max() > 9e4
    assert shown_s[-1] == times_s[-1]


def test_a_silent_device_leaves_a_gap() -> None:
    record = ReadingHistory()
    record.add(0.0, points(1.0, severity=AlarmSeverity.INVALID, alarm="no answer"))
    assert record.curves(["a.power_dbm"])["low"]["a.power_dbm"] == [None]


def test_the_oldest_samples_make_room_and_the_memory_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr(history, "MAX_SAMPLES", 100)
    record = ReadingHistory()
    for step in range(250):
        record.add(PERIOD_S * step, points(float(step)))
    assert record.curves(["a.power_dbm"])["low"]["a.power_dbm"] == [float(step) for step in range(150, 250)]
    monkeypatch.setattr(history, "MAX_SAMPLES", 3600)
    many = ReadingHistory()
    many.add(0.0, {str(index): Point(str(index), 1.0) for index in range(20_000)})
    assert many._samples.nbytes <= history.MAX_BYTES


def test_without_samples_there_are_no_curves() -> None:
    assert ReadingHistory().curves(["a"]) == {"time_s": [], "low": {}, "high": {}}
    assert math.isinf(ReadingHistory()._last_s)
