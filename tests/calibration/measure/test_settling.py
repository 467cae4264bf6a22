"""How long heaters take is measured from light, and no reading is taken before they have settled."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from calibration.measure.bench_probe import BenchProbe
from calibration.measure.settling import heater_time_constant_s
from calibration.model.arrays import Real
from calibration.report.hidden_truth import true_parameters
from calibration.report.truth_errors import phase_errors
from lumion_hw import Bench
from lumion_hw.errors import ConfigError
from tests.calibration.bench_run import SMALL, calibrated_bench, within_tolerance

SMALL_QONTROL = SMALL.with_name("small_qontrol.yaml")


def slow(directory: Path, tau_s: float, settle_s: float | None = None, bench: Path = SMALL) -> Path:
    """Return a bench file whose heaters have this time constant, and that asks for this wait."""
    text = bench.read_text()
    if settle_s is not None:
        text = text.replace("  controller: mesh0\n", f"  controller: mesh0\n  settle_s: {settle_s!r}\n")
    path = directory / "slow.yaml"
    path.write_text(f"{text}emulation: {{thermal_tau_s: {tau_s!r}}}\n")
    return path


def timed(bench: Bench) -> None:
    """Measure the time constant by the light of one source as it comes: no polarization is searched before."""
    probe = BenchProbe(bench)
    probe.light_only_port(probe.sources[0])
    probe.measure_heater_time_constant()


@pytest.mark.campaign  # those of 5 µs to 50 ms are calibrated
def test_heaters_of_50_ms_are_waited_for_and_the_calibration_comes_out_right(tmp_path: Path) -> None:
    """With the millisecond that is enough for undercut heaters, every reading of this bench shows the one before."""
    with Bench.emulate(slow(tmp_path, 0.05), seed=1) as bench:
        found = calibrated_bench(bench, seed=1)
        assert within_tolerance(found)
        assert found.record.conditions.heater_tau_s == pytest.approx(0.05, rel=0.1)
        assert bench.mesh.settle_s == pytest.approx(0.5, rel=0.1)


def test_a_wait_below_five_time_constants_is_refused(tmp_path: Path) -> None:
    with Bench.emulate(slow(tmp_path, 0.05, settle_s=0.15), seed=1) as bench:
        with pytest.raises(ConfigError, match=r"mesh.settle_s is 0\.15 s, which is too short") as refused:
            timed(bench)
        assert "Set mesh.settle_s to 0.2" in str(refused.value.hint)


@pytest.mark.parametrize("settle_s", [0.25, pytest.param(0.8, marks=pytest.mark.long)])
def test_a_wait_of_the_bench_file_that_is_long_enough_is_kept(tmp_path: Path, settle_s: float) -> None:
    with Bench.emulate(slow(tmp_path, 0.05, settle_s), seed=1) as bench:
        timed(bench)
        assert bench.mesh.settle_s == settle_s


@pytest.mark.parametrize(
    ("tau_s", "seed"),
    [
        (20e-6, 1),
        pytest.param(180e-6, 2, marks=pytest.mark.long),
        (10e-3, 1),
        pytest.param(0.2, 2, marks=pytest.mark.long),
    ],
)
def test_the_time_constant_is_found_from_light(tmp_path: Path, tau_s: float, seed: int) -> None:
    with Bench.emulate(slow(tmp_path, tau_s), seed=seed) as bench:
        timed(bench)
        assert bench.mesh.heater_tau_s == pytest.approx(tau_s, rel=0.1)
        assert bench.mesh.settle_s >= 8.5 * tau_s


@pytest.mark.long
def test_on_the_usual_bench_it_costs_little_and_the_wait_stays(tmp_path: Path) -> None:
    with Bench.emulate(SMALL, seed=3) as bench:
        probe = BenchProbe(bench)
        probe.align_all()
        aligned_s = bench.clock.now()
        bench.mesh.heater_tau_s = None
        probe.measure_heater_time_constant()
        assert bench.clock.now() - aligned_s < 1.0
        assert bench.mesh.settle_s == 1e-3
        assert not bench.mesh.confirmed_currents_ma().any()


@pytest.mark.parametrize(("tau_s", "seen"), [pytest.param(100e-6, False, marks=pytest.mark.long), (0.05, True)])
def test_a_controller_without_sweeps_sees_what_is_slower_than_its_readings(
    tmp_path: Path, tau_s: float, seen: bool
) -> None:
    with Bench.emulate(slow(tmp_path, tau_s, bench=SMALL_QONTROL), seed=1) as bench:
        BenchProbe(bench).align_all()
        assert (bench.mesh.heater_tau_s is not None) is seen
        assert bench.mesh.heater_tau_s is None or bench.mesh.heater_tau_s == pytest.approx(tau_s, rel=0.2)
        assert bench.mesh.settle_s >= 5.0 * tau_s


class RoundedLight:
    """Light at three meters that show thousandths of a decibel: most readings repeat, some differ by one digit."""

    def __init__(self, tau_s: float, seed: int) -> None:
        self._tau_s, self._rng = tau_s, np.random.default_rng(seed)
        self._target = self._heat = np.zeros(6)
        self._optics = self._rng.uniform(-0.3, 0.3, (3, 6))

    def read(self, currents_ma: Real, wait_s: float) -> Real:
        self._target = currents_ma**2
        return self.repeat_read(wait_s)

    def repeat_read(self, wait_s: float) -> Real:
        self._heat = self._target + (self._heat - self._target) * math.exp(-wait_s / self._tau_s)
        power_dbm = 10.0 * np.log10(1.0 + 0.5 * np.sin(0.7 + 2.0 * self._optics @ self._heat)) + self._rng.normal(
            0.0, 1e-4, 3
        )
        return np.asarray(10.0 ** (np.round(power_dbm, 3) / 10.0))


@pytest.mark.parametrize("seed", range(6))
def test_a_meter_that_rounds_does_not_make_light_seem_to_move(seed: int) -> None:
    steps_ma = np.sqrt(np.random.default_rng(100 + seed).uniform(0.0, 0.3, (4, 6)))
    assert heater_time_constant_s(RoundedLight(0.03, seed), steps_ma) == pytest.approx(0.03, rel=0.2)


def test_without_an_alignment_the_first_reading_in_light_waits_for_it(tmp_path: Path) -> None:
    with Bench.emulate(slow(tmp_path, 0.05), seed=1) as bench:
        probe = BenchProbe(bench)
        probe.light_only_port(probe.sources[0])
        probe.measure(bench.mesh.confirmed_currents_ma())
        assert bench.mesh.settle_s == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize(("fastest_s", "seed"), [(5e-6, 4), (100e-6, 2), (1e-3, 1)])
def test_the_slowest_of_different_heaters_are_waited_for(tmp_path: Path, fastest_s: float, seed: int) -> None:
    path = tmp_path / "mixed.yaml"
    path.write_text(
        f"{SMALL.read_text()}emulation: {{thermal_tau_s: {fastest_s!r}, thermal_tau_max_s: {20.0 * fastest_s!r}}}\n"
    )
    with Bench.emulate(path, seed=seed) as bench:
        timed(bench)
        # A thousandth of a turn is below the noise of these monitors.
        slowest_s = float(bench.emulated.world.truth.thermal_tau_s.max())
        assert bench.mesh.settle_s > math.log(1000.0) * slowest_s


@pytest.mark.campaign
def test_heaters_from_5_us_to_50_ms_on_one_chip_are_calibrated(tmp_path: Path) -> None:
    path = tmp_path / "mixed.yaml"
    path.write_text(f"{SMALL.read_text()}emulation: {{thermal_tau_s: 5.0e-6, thermal_tau_max_s: 0.05}}\n")
    with Bench.emulate(path, seed=1) as bench:
        found = calibrated_bench(bench, seed=1)
        assert found.record.quality["fit_certified"] == 1.0
        normalised, figures = phase_errors(bench, found.record, true_parameters(bench, found.record))
    assert figures["passive_mrad"] < 1.0
    assert np.sqrt(np.mean(normalised["loops"] ** 2)) < 1.5


def test_a_record_tells_the_next_program_how_long_to_wait(tmp_path: Path) -> None:
    with Bench.emulate(slow(tmp_path, 0.05), seed=1) as bench:
        bench.mesh.set_heater_time_constant(0.05, "the record")
        assert bench.mesh.settle_s == pytest.approx(0.5)
    short = slow(tmp_path, 0.05, settle_s=0.1)
    with Bench.emulate(short, seed=1) as bench, pytest.raises(ConfigError, match="the record"):
        bench.mesh.set_heater_time_constant(0.05, "the record")
