"""The survey says how noisy monitors are and what is dark."""

from __future__ import annotations

import numpy as np
import pytest

from calibration.measure.logbook import Logbook
from calibration.measure.port_survey import Survey, take_survey
from lumion_hw.errors import CalibrationError
from lumion_hw.mesh.layout.hexagonal import HexMesh
from tests.calibration.simulated_bench import SimulatedBench
from tests.calibration.simulated_mesh import FLOOR_MA, RELATIVE

MESH = HexMesh.columns((1, 2, 1))


def _survey(bench: SimulatedBench) -> Survey:
    return take_survey(Logbook(bench), np.random.default_rng(3))


def test_noise_is_found_though_readings_never_fall_below_zero() -> None:
    noise = _survey(SimulatedBench.draw(MESH, 1)).noise
    assert noise.relative == pytest.approx(RELATIVE, rel=0.1)
    assert noise.floor_ma == pytest.approx(FLOOR_MA, rel=0.2)


def test_dead_sources_and_monitors_are_named_and_left_out() -> None:
    bench = SimulatedBench.draw(MESH, 2)
    bench.dead_sources.add(3)
    bench.dead_monitors.add(5)
    survey = _survey(bench)
    assert set(bench.sources) - set(survey.sources) == {3}
    assert set(bench.monitors) - set(survey.monitors) == {5}
    starts = "source at port 3: its light reaches no monitor", "monitor at port 5: dark with every source"
    assert len(survey.defects) == len(starts)
    assert all(defect.evidence.startswith(start) for defect, start in zip(survey.defects, starts, strict=True))


class _DarkForAWhile(SimulatedBench):
    """A bench at one of whose monitors light meets light out of phase, on all of the first backgrounds."""

    looks = 0

    def measure(self, currents_ma: np.ndarray) -> np.ndarray:
        reading = super().measure(currents_ma)
        self.looks += 1
        if self.looks < 100:
            reading[list(self.monitors).index(5)] = 0.0
        return reading


def test_a_monitor_that_is_dark_by_interference_is_not_taken_for_a_dead_one() -> None:
    bench = _DarkForAWhile.draw(MESH, 2)
    survey = _survey(bench)
    assert bench.looks > 100
    assert survey.defects == ()
    assert survey.monitors == bench.monitors


class _OneWayOut(SimulatedBench):
    """A bench on which light from ports 5 and 7 reaches the monitors through one waveguide."""

    def measure(self, currents_ma: np.ndarray) -> np.ndarray:
        lit = self.lit
        self.lit = 5 if lit == 7 else lit
        reading, self.lit = super().measure(currents_ma), lit
        if lit in (5, 7) and not currents_ma.any():
            reading *= 3e-3 if lit == 7 else 1e-3
        return reading


def test_inputs_whose_light_takes_the_same_way_out_are_told_apart_by_their_power() -> None:
    """At the rim of a triangular mesh this was taken for a switch that does not move."""
    survey = _survey(_OneWayOut.draw(MESH, 2))
    assert {5, 7} <= set(survey.sources)


def test_a_bench_that_shows_light_everywhere_is_not_looked_at_again() -> None:
    logbook = Logbook(SimulatedBench.draw(MESH, 2))
    take_survey(logbook, np.random.default_rng(3))
    ports = len(logbook.probe.sources)
    assert logbook.effort.settings == 1 + 3 * ports


def test_noise_is_found_though_the_last_source_is_dead() -> None:
    bench = SimulatedBench.draw(MESH, 1)
    bench.dead_sources.add(max(bench.sources))
    assert _survey(bench).noise.relative == pytest.approx(RELATIVE, rel=0.1)


def test_a_saturated_monitor_is_alive() -> None:
    bench = SimulatedBench.draw(MESH, 2)
    bench.full_scale_ma[5] = 1e-9
    assert 5 in _survey(bench).monitors


def test_what_monitors_read_in_the_dark_is_found_and_is_no_light() -> None:
    bench = SimulatedBench.draw(MESH, 2)
    bench.dark_ma = {5: 40.0 * FLOOR_MA, 7: 100.0 * FLOOR_MA}
    bench.dead_sources.update(set(bench.sources) - {0})
    survey = _survey(bench)
    assert survey.sources == (0,)
    assert survey.dark_ma == pytest.approx(bench.dark_ma, abs=5.0 * FLOOR_MA / 4.0)  # 16 readings
    assert set(survey.dark_ma) == {5, 7}


def test_without_any_light_there_is_nothing_to_calibrate() -> None:
    bench = SimulatedBench.draw(MESH, 2)
    bench.dead_sources.update(bench.sources)
    with pytest.raises(CalibrationError, match=f"0 of {len(bench.sources)} sources"):
        _survey(bench)


def test_the_survey_takes_less_than_half_a_second_on_the_whole_mesh() -> None:
    logbook = Logbook(SimulatedBench.draw(HexMesh.smartlight(), 1))
    take_survey(logbook, np.random.default_rng(1))
    assert logbook.effort.hardware_s < 0.5
