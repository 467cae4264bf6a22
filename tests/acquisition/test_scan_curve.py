"""The curve of a running scan: the newest pass, thinned, with gaps where there is no number."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lumion_hw.acquisition.columns import Column, State, Value
from lumion_hw.acquisition.scan_curve import MAX_POINTS, MAX_READINGS, ScanCurve
from lumion_hw.acquisition.scan_plan import ScanAxis, ScanPlan, SweptSetting, as_base64


def swept(name: str, numbers: np.ndarray) -> ScanAxis:
    setting = SweptSetting(name, name.partition(".")[0], "mA", "number", (), as_base64(numbers))
    return ScanAxis((setting,), len(numbers))


def column(name: str, unit: str = "W") -> Column:
    return Column(name, name.partition(".")[0], unit)


def ok(*numbers: float) -> list[Value]:
    return [Value(State.OK, number) for number in numbers]


def test_a_grid_shows_the_pass_that_it_is_in() -> None:
    plan = ScanPlan((swept("mesh0.heater_ma.0", np.array([1.0, 2.0])), swept("mesh0.heater_ma.1", np.arange(3.0))))
    curve = ScanCurve(plan, [column("meter0.power.1")])
    for position, number in (((0, 0), 5.0), ((0, 1), 6.0), ((1, 2), 7.0)):
        curve.add(position, ok(number))
    document = curve.document()
    assert (document["setting"], document["x"]) == ("mesh0.heater_ma.1", [0.0, 1.0, 2.0])
    assert document["readings"] == {"meter0.power.1": [None, None, 7.0]}


def test_only_readings_of_one_unit_share_the_axis_and_a_reading_without_a_number_is_a_gap() -> None:
    columns = [column("a.power.1"), column("a.temperature_c", "°C"), *(column(f"b.power.{n}") for n in range(9))]
    curve = ScanCurve(ScanPlan((swept("mesh0.heater_ma.0", np.arange(2.0)),)), columns)
    curve.add((0,), [Value(State.DARK), *ok(*range(10))])
    readings = curve.document()["readings"]
    assert list(readings) == ["a.power.1", "b.power.0", "b.power.1", "b.power.2"]
    assert len(readings) == MAX_READINGS
    assert readings["a.power.1"] == [None, None]
    assert readings["b.power.0"] == [1.0, None]


@pytest.mark.parametrize(("n", "kept"), [(MAX_POINTS, MAX_POINTS), (MAX_POINTS + 1, MAX_POINTS // 2 + 1), (5000, 239)])
def test_a_long_curve_is_thinned(n: int, kept: int) -> None:
    curve = ScanCurve(ScanPlan((swept("mesh0.heater_ma.0", np.arange(float(n))),)), [column("a.power.1")])
    document = json.loads(json.dumps(curve.document()))
    assert len(document["x"]) == len(document["readings"]["a.power.1"]) == kept
