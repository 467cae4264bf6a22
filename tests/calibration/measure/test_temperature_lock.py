"""A calibration waits until the chip is held at its temperature, and reads again what was read while it was not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

from calibration.measure.bench_probe import BenchProbe
from calibration.report.hidden_truth import compare
from calibration.run.journal import read_journal
from calibration.run.journaled_run import calibrate, journal_path
from lumion_hw.bench.bench import Bench
from lumion_hw.errors import CalibrationError, ConfigError, DeviceError, DeviceTimeoutError
from lumion_hw.polarization import Aligner
from lumion_hw.storage import load_record
from tests.calibration.bench_run import SMALL


@pytest.fixture
def held(tmp_path: Path) -> Path:
    """Return the small bench with its chip on a temperature controller."""
    text = yaml.safe_load(SMALL.read_text(encoding="utf-8"))
    text["devices"]["tec0"] = {"kind": "arroyo-tec"}
    text["mesh"] |= {"temperature": "tec0", "temperature_wait_s": 300.0}
    path = tmp_path / "held.yaml"
    path.write_text(yaml.safe_dump(text), encoding="utf-8")
    return path


@pytest.fixture
def bench(held: Path) -> Iterator[Bench]:
    with Bench.emulate(held, seed=3) as opened:
        opened.events.write_to(held.with_name("events.jsonl"))
        yield opened


def _events(held: Path, name: str) -> list[dict]:
    lines = held.with_name("events.jsonl").read_text(encoding="utf-8").splitlines()
    return [entry for entry in map(json.loads, lines) if entry["event"] == name]


def _lit(bench: Bench) -> BenchProbe:
    """Return a probe with one source lit as it comes: the temperature is the matter, no polarization is searched."""
    probe = BenchProbe(bench)
    probe.light_only_port(probe.sources[0])
    probe.measure_heater_time_constant()
    return probe


def _settings(bench: Bench) -> np.ndarray:
    return np.zeros((2, 2 * bench.mesh.topology.n_pucs))


@pytest.mark.long
def test_it_waits_for_the_lock_first(bench: Bench, held: Path) -> None:
    bench.emulated.devices["tec0"].heat_suddenly_k(2.0)
    probe = BenchProbe(bench)
    probe.align_all()
    (locked,) = _events(held, "temperature locked")
    assert locked["waited_s"] > 5.0
    assert abs(locked["temperature_c"] - 25.0) < 0.05
    assert probe.temperature.warnings() == ()


def test_an_output_that_is_off_is_said_and_nothing_is_measured(bench: Bench) -> None:
    bench.temperature_controllers["tec0"].disable()
    with pytest.raises(DeviceError, match="the output is off"):
        BenchProbe(bench).align_all()


def test_a_temperature_that_is_never_held_is_said(bench: Bench) -> None:
    tec = bench.emulated.devices["tec0"]
    tec.heat_suddenly_k(5.0)
    tec.settings.limit_a = 0.0
    with pytest.raises(DeviceTimeoutError, match="not locked at 25 °C after 300 s"):
        BenchProbe(bench).align_all()


def test_what_was_read_while_the_lock_was_lost_is_read_again(bench: Bench, held: Path) -> None:
    probe, tec = _lit(bench), bench.emulated.devices["tec0"]
    sweep, swept = bench.mesh.sweep, []

    def disturbed(currents_ma: np.ndarray) -> np.ndarray:
        if not swept:
            tec.heat_suddenly_k(0.5)
        swept.append(len(currents_ma))
        return sweep(currents_ma)

    bench.mesh.sweep = disturbed
    assert probe.measure_batch(_settings(bench)).shape == (2, len(probe.monitors))
    assert swept == [2, 2]
    (lost,) = _events(held, "temperature lock lost")
    assert (lost["controller"], lost["setpoint_c"]) == ("tec0", 25.0)
    (sentence,) = probe.temperature.warnings()
    assert "the lock of tec0 was lost once, first with 25." in sentence


@pytest.mark.long
def test_a_lock_that_is_lost_every_time_ends_the_run(bench: Bench) -> None:
    probe, tec, sweep = _lit(bench), bench.emulated.devices["tec0"], bench.mesh.sweep

    def disturbed(currents_ma: np.ndarray) -> np.ndarray:
        tec.heat_suddenly_k(0.5)
        return sweep(currents_ma)

    bench.mesh.sweep = disturbed
    with pytest.raises(CalibrationError, match="was lost in each of 4 attempts"):
        probe.measure_batch(_settings(bench))


def test_a_cooler_that_fails_meanwhile_ends_the_run(bench: Bench) -> None:
    probe = _lit(bench)
    bench.emulated.devices["tec0"].set_interlock(True)
    with pytest.raises(DeviceError, match="cooler open, or its interlock"):
        probe.measure(np.zeros(2 * bench.mesh.topology.n_pucs))


def test_a_controller_that_was_left_out_is_said(held: Path) -> None:
    message = "the temperature controller of the mesh is not open"
    with (
        Bench.emulate(held, seed=3, only=["mesh0", "sfp-a", "pol-a"]) as bench,
        pytest.raises(ConfigError, match=message),
    ):
        BenchProbe(bench)


def test_losses_of_an_earlier_sitting_are_told_and_those_of_this_one_kept(bench: Bench) -> None:
    probe, kept = _lit(bench), []
    probe.temperature.keep_losses(["with 25.400 °C of 25 °C"], kept.append)
    sweep, tec = bench.mesh.sweep, bench.emulated.devices["tec0"]

    def disturbed(currents_ma: np.ndarray) -> np.ndarray:
        if not kept:
            tec.heat_suddenly_k(0.5)
        return sweep(currents_ma)

    bench.mesh.sweep = disturbed
    probe.measure_batch(_settings(bench))
    assert len(kept) == 1
    (sentence,) = probe.temperature.warnings()
    assert "was lost 2 times, first with 25.400 °C" in sentence


@pytest.mark.long
def test_a_run_goes_on_while_the_bench_lives_on_and_its_record_tells_of_a_lost_lock(
    bench: Bench, tmp_path: Path
) -> None:
    tec, path, stages = bench.emulated.devices["tec0"], tmp_path / "record.json", []

    def progress(stage: str, done: int, total: int) -> None:
        if stage == "alignment":
            return
        stages.append(stage)
        if len(stages) == 1:
            tec.heat_suddenly_k(0.3)
        if stage == "sweeps" and done == 11:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        calibrate(bench, Aligner(bench.clock), 3, path, progress)
    assert not bench.mesh.confirmed_currents_ma().any()
    assert not load_record(path).complete
    measured = len(read_journal(journal_path(path)).entries)
    record = calibrate(bench, Aligner(bench.clock), 3, path, resume=True)
    assert record == load_record(path)
    assert record.complete
    (fault,) = record.faults
    assert "the lock of tec0 was lost once" in fault
    assert np.sqrt((compare(bench, record).phase_error_rad ** 2).mean()) < 0.005
    assert len(read_journal(journal_path(path)).entries) > measured > 90
    assert read_journal(journal_path(path)).finished
