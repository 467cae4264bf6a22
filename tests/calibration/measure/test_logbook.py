"""The logbook counts what a calibration costs and answers again what an interrupted one has read."""

from __future__ import annotations

import numpy as np
import pytest

from calibration.measure.logbook import Logbook
from lumion_hw.errors import CalibrationError
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.layout.topologies import build_mesh
from tests.calibration.simulated_bench import SimulatedBench

MESH = HexMesh.columns((1, 2, 1))


def _one_more(logbook: Logbook, currents: np.ndarray, heater: int) -> None:
    currents[heater] += 0.5
    logbook.measure(currents)


def test_a_setting_costs_by_the_channels_that_change() -> None:
    logbook = Logbook(SimulatedBench.draw(MESH, 1))
    currents = np.zeros(2 * MESH.n_pucs)
    logbook.light_only_port(0)
    _one_more(logbook, currents, 3)
    logbook.measure(currents)
    currents[:11] = 1.0
    logbook.measure(currents)
    effort = logbook.effort
    assert (effort.settings, effort.source_changes) == (2, 1)
    # Sánchez-Jácome 2025: 14 ms, and 62.5 ms for 160 channels; 0.3 ms to read, three times; 0.5 ms to settle, twice.
    assert effort.hardware_s == pytest.approx(0.014 + (0.014 + 10 * 0.0485 / 159) + 3 * 0.0003 + 2 * 0.0005)


def test_readings_are_kept_with_their_settings() -> None:
    logbook = Logbook(SimulatedBench.draw(MESH, 1))
    currents = np.zeros(2 * MESH.n_pucs)
    logbook.measure(currents)
    logbook.light_only_port(4)
    _one_more(logbook, currents, 5)
    kept = logbook.observations()
    assert kept.source.tolist() == [-1, 4]
    assert kept.currents_ma[:, 5].tolist() == [0.0, 0.5]
    assert len(logbook.observations(1)) == 1


def test_stray_light_where_no_light_of_the_source_can_arrive_is_left_out() -> None:
    """A model of the mesh expects exact darkness there, so that no fit would explain it."""
    mesh = build_mesh("square", (2, 2))
    logbook = Logbook(SimulatedBench.draw(mesh, 1))
    for port in (0, 5):
        logbook.light_only_port(port)
        logbook.measure(np.full(2 * mesh.n_pucs, 0.5))
    reached = [[mesh.reaches(port, monitor) for monitor in mesh.fibre_ports] for port in (0, 5)]
    assert np.mean(reached) == 0.5
    kept = logbook.observations()
    assert np.isfinite(kept.reading_ma).tolist() == reached
    assert not kept.saturated.any()
    assert np.isfinite(logbook.observations(unreached=True).reading_ma).all()


def test_a_resumed_run_reads_again_only_what_is_missing() -> None:
    first, bench = Logbook(SimulatedBench.draw(MESH, 1)), SimulatedBench.draw(MESH, 1)
    first.light_only_port(2)
    currents = np.zeros(2 * MESH.n_pucs)
    _one_more(first, currents, 0)
    _one_more(first, currents, 1)
    resumed = Logbook(bench, before=first.entries)
    resumed.light_only_port(2)
    currents = np.zeros(2 * MESH.n_pucs)
    _one_more(resumed, currents, 0)
    _one_more(resumed, currents, 1)
    assert bench.lit is None
    np.testing.assert_array_equal(resumed.observations().reading_ma, first.observations().reading_ma)
    _one_more(resumed, currents, 2)
    assert bench.lit == 2
    assert resumed.effort.settings == 3


def test_readings_of_another_run_are_refused() -> None:
    first = Logbook(SimulatedBench.draw(MESH, 1))
    first.light_only_port(2)
    first.measure(np.ones(2 * MESH.n_pucs))
    resumed = Logbook(SimulatedBench.draw(MESH, 1), before=first.entries)
    resumed.light_only_port(3)
    with pytest.raises(CalibrationError, match="entry 0 of the interrupted run"):
        resumed.measure(np.ones(2 * MESH.n_pucs))


def test_a_batch_is_measured_where_the_light_is_and_kept_as_one_entry() -> None:
    bench = SimulatedBench.draw(MESH, 1)
    logbook = Logbook(bench)
    logbook.light_only_port(2)
    batch = np.random.default_rng(1).uniform(0.0, 2.0, (5, 2 * MESH.n_pucs))
    answers = logbook.measure_batch(batch)
    assert bench.lit == 2
    assert len(logbook) == 5
    assert len(logbook.entries) == 1
    np.testing.assert_array_equal(logbook.observations().reading_ma, answers)
    np.testing.assert_array_equal(logbook.observations().currents_ma, batch)
    assert logbook.effort.settings == 5


def test_a_batch_of_an_interrupted_run_cut_otherwise_is_refused() -> None:
    batch = np.ones((5, 2 * MESH.n_pucs))
    first = Logbook(SimulatedBench.draw(MESH, 1))
    first.measure_batch(batch)
    with pytest.raises(CalibrationError, match="answers a different request"):
        Logbook(SimulatedBench.draw(MESH, 1), before=first.entries).measure_batch(batch[:4])


class Meters(SimulatedBench):
    """A bench with a meter at port 3 that shows the current of heater 0, and modules that tell more every time."""

    driven_ma = 0.0
    told = 0

    def measure(self, currents_ma: np.ndarray) -> np.ndarray:
        self.driven_ma = float(currents_ma[0])
        return super().measure(currents_ma)

    measures_resistances = False

    def heater_resistances_ohm(self) -> np.ndarray:
        return np.full(2 * self.mesh.n_pucs, np.nan)

    def fibre_dbm(self) -> dict[int, float]:
        return {3: -self.driven_ma}

    def launched_dbm(self, port: int) -> float:
        assert self.lit == port
        self.told += 1
        return float(self.told)


def test_what_modules_and_meters_say_is_kept_and_answered_again() -> None:
    first = Logbook(Meters.draw(MESH, 1))
    first.light_only_port(2)
    first.measure(np.full(2 * MESH.n_pucs, 0.25))
    assert first.launched_dbm(2) == 1.0
    assert first.launched_dbm(2) == 1.0  # what was said first counts
    assert first.fibre_dbm() == {3: -0.25}
    idle = Meters.draw(MESH, 1)
    again = Logbook(idle, before=first.entries)
    again.light_only_port(2)
    again.measure(np.full(2 * MESH.n_pucs, 0.25))
    assert (again.launched_dbm(2), again.fibre_dbm()) == (1.0, {3: -0.25})
    assert (idle.lit, idle.told, idle.driven_ma) == (None, 0, 0.0)


def test_a_meter_is_asked_at_the_setting_where_the_interrupted_run_stood() -> None:
    first = Logbook(Meters.draw(MESH, 1))
    first.light_only_port(2)
    first.measure(np.full(2 * MESH.n_pucs, 0.25))
    bench = Meters.draw(MESH, 1)
    again = Logbook(bench, before=first.entries)
    again.light_only_port(2)
    again.measure(np.full(2 * MESH.n_pucs, 0.25))
    assert again.fibre_dbm() == {3: -0.25}
    assert bench.lit == 2
    assert again.launched_dbm(2) == 1.0


def test_every_new_answer_is_told_and_no_old_one() -> None:
    told: list[object] = []
    first = Logbook(SimulatedBench.draw(MESH, 1), keep=told.append)
    first.measure(np.zeros(2 * MESH.n_pucs))
    assert told == first.entries
    again = Logbook(SimulatedBench.draw(MESH, 1), before=first.entries, keep=told.append)
    again.measure(np.zeros(2 * MESH.n_pucs))
    assert len(told) == 1
    again.measure(np.ones(2 * MESH.n_pucs))
    assert told == again.entries


def test_what_is_kept_is_what_the_drive_makes_of_the_currents() -> None:
    bench = SimulatedBench.draw(MESH, 1)
    bench.current_step_ma, bench.heater_max_ma = 0.1, 2.05
    logbook = Logbook(bench)
    logbook.light_only_port(bench.sources[0])
    asked = np.full(2 * bench.mesh.n_pucs, 0.26)
    asked[0] = 2.04
    logbook.measure(asked)
    logbook.measure_batch(np.stack([asked, asked]))
    kept = logbook.observations().currents_ma
    assert kept[:, 0] == pytest.approx(2.0)  # not 2.1, beyond the range
    assert kept[:, 1:] == pytest.approx(0.3)
