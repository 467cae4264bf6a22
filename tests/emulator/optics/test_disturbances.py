"""Faults in time: trajectories follow the clock, and a scheduled fault starts once, at its time."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lumion_hw.bench.bench import Bench
from lumion_hw.emulator.optics.bench_time import BenchTime
from lumion_hw.emulator.optics.disturbances import Disturbances


def test_nothing_is_disturbed_unless_told() -> None:
    still = Disturbances()
    assert still.common_phase_rad(5.0) == 0.0
    assert still.power(3, 5.0) == 1.0


def test_a_kelvin_is_six_tenths_of_a_radian_on_every_puc() -> None:
    assert Disturbances(temperature_k=lambda s: 0.1 * s).common_phase_rad(2.0) == pytest.approx(0.12)


def test_power_follows_its_course_at_its_port_only() -> None:
    fading = Disturbances(power_db={4: lambda s: -0.5 * s})
    assert fading.power(4, 6.0) == pytest.approx(10.0**-0.3)
    assert fading.power(5, 6.0) == 1.0


def test_what_is_scheduled_happens_when_it_is_due_and_once() -> None:
    now, seen = [0.0], []
    schedule = BenchTime(lambda: now[0])
    schedule.add(2.0, lambda: seen.append("second"))
    schedule.add(1.0, lambda: seen.append("first"))
    schedule.advance()
    assert seen == []
    now[0] = 3.0
    schedule.advance()
    schedule.advance()
    assert seen == ["first", "second"]


def test_faults_of_an_emulated_bench_change_the_light_as_they_say() -> None:
    with Bench.emulate("lumion-prototype", seed=1) as bench, bench.dark():
        faults, world = bench.emulated.faults, bench.emulated.world
        name, port = bench.wiring.inputs[0].transponder, bench.wiring.inputs[0].port
        for other in bench.transponders:
            if other != name:
                bench.transponders[other].disable()
        bench.transponders[name].enable()
        bench.clock.sleep(2.0)
        before_w = world.mesh_output_w()
        faults.drift_power(port, lambda _: -3.0)
        assert world.mesh_output_w() == pytest.approx(before_w * 10.0**-0.3, rel=1e-3)
        faults.drift_power(port, lambda _: 0.0)
        faults.after(1.0, lambda: faults.kill_monitor(2))
        assert world.truth.monitor_scale[2] > 0.0
        bench.clock.sleep(1.5)
        world.mesh_output_w()
        assert world.truth.monitor_scale[2] == 0.0
        faults.drift_temperature(lambda _: 1.0)
        cells = world.cells()
        assert np.allclose(cells.phase_upper - world.truth.passive_phase, 0.6)
        assert np.allclose(cells.phase_lower, 0.6)


def test_an_unbalanced_puc_has_both_couplers_off_by_the_angle() -> None:
    with Bench.emulate("lumion-prototype", seed=1) as bench:
        truth = bench.emulated.world.truth
        before = math.asin(math.sqrt(truth.eta_in[7]))
        bench.emulated.faults.unbalance(7, 0.1)
        assert math.asin(math.sqrt(truth.eta_in[7])) == pytest.approx(before + 0.1)
