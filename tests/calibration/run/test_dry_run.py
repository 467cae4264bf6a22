"""`lumion-calibrate plan`: what a calibration will cost and cannot find out, from the bench file alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from calibration.run.dry_run import DryRun, dry_run, expected_heat_mw
from calibration.run.planning import Goal
from lumion_hw.bench.bench import Bench, load
from lumion_hw.cli import calibrate_main as main
from lumion_hw.errors import ConfigError, LimitError
from tests.calibration.bench_run import Calibrated

SMALL = Path(__file__).parents[2] / "data" / "small.yaml"


TWO_TAPS = """
version: 1
name: two-taps
devices:
  mesh0: {kind: qontrol-q8, modules: [Q8iv-0001, Q8iv-0002, Q8iv-0003, Q8iv-0004], compliance_v: 5.0}
  meter0: {kind: keysight-n77xx}
  sfp-a: {kind: sfp-8472}
  sfp-b: {kind: sfp-8472}
mesh: {controller: mesh0, columns: [2]}
wiring:
  inputs:
    - {transponder: sfp-a, port: 1, loss_db: 0.5}
    - {transponder: sfp-b, port: 3, loss_db: 0.5}
  outputs:
    - {port: 9, transponder: sfp-a, tap: {meter: meter0, channel: 1, fraction: 0.1}}
    - {port: 7, transponder: sfp-b, tap: {meter: meter0, channel: 2, fraction: 0.1}}
"""


FOUR_LASERS = """
version: 1
name: four-lasers
devices:
  mesh0: {kind: lumion-mesh}
  meter: {kind: keysight-n77xx}
  sfp0: {kind: sfp-8472}
  sfp1: {kind: sfp-8472}
  sfp2: {kind: sfp-8472}
  sfp3: {kind: sfp-8472}
mesh: {controller: mesh0, topology: rectangular, ports: 4}
wiring:
  inputs:
    - {transponder: sfp0, port: 0}
    - {transponder: sfp1, port: 1}
    - {transponder: sfp2, port: 2}
    - {transponder: sfp3, port: 3}
  outputs:
    - {port: 4, tap: {meter: meter, channel: 1}}
    - {port: 5, tap: {meter: meter, channel: 2}}
    - {port: 6, tap: {meter: meter, channel: 3}}
    - {port: 7, tap: {meter: meter, channel: 4}}
"""


@pytest.fixture(scope="module")
def small() -> DryRun:
    return dry_run(load(SMALL), seed=1)


def test_every_stage_has_its_cost(small: DryRun) -> None:
    """30 heaters of 8 levels, 200 random settings; a channel takes 14.8 ms, settled and read (Sánchez-Jácome 2025)."""
    stages = {stage.name: stage for stage in small.stages}
    assert list(stages) == [
        "survey", "sweeps", "random settings", "chosen settings", "fibres", "verification", "regimes of use",
    ]  # fmt: skip
    # Each heater alone twice, seven settings for each of three sources, and two after a pause.
    assert stages["regimes of use"].settings == 2 * 30 + 7 * 3 + 2
    assert stages["sweeps"].settings >= 30 * 7
    assert stages["sweeps"].hardware_s == pytest.approx(stages["sweeps"].settings * 0.0148)
    assert (stages["random settings"].settings, stages["random settings"].source_changes) == (200, 3)
    assert small.settings == sum(stage.settings for stage in small.stages)
    assert small.hardware_s < 30.0


def test_a_tour_plugs_each_fibre_into_each_port_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(SMALL.with_name("by-hand.yaml"))]) == 0  # four ports at each side
    assert "pluggings by hand: 8\n" in capsys.readouterr().out


def test_fixed_fibres_need_no_plugging(small: DryRun) -> None:
    assert small.pluggings == 0


def test_it_predicts_what_the_run_then_does(small: DryRun, recorded: Calibrated) -> None:
    quality = recorded.record.quality
    assert small.settings == pytest.approx(quality["settings"], rel=0.3)
    assert small.hardware_s == pytest.approx(quality["hardware_s"], rel=0.3)


def test_the_wanted_standard_error_is_predicted_to_be_reached(small: DryRun) -> None:
    assert small.shortfall == ""
    assert max(small.sigma_rad["passive_phase_rad"], small.sigma_rad["loops"]) <= 1e-3


def test_what_cannot_be_told_apart_is_named(small: DryRun) -> None:
    """Losses of PUCs at the rim, sources and monitors show as products only (docs/calibration.md, 1.3)."""
    assert small.bound.rank < small.bound.n_free
    assert len(small.bound.unseen()) == small.bound.n_free - small.bound.rank
    assert any("loss_db of PUC" in words for words in small.bound.unseen())
    assert small.bound.set_by_prior().any()


@pytest.mark.long
def test_fewer_monitors_take_more_settings_and_leave_more_unseen(small: DryRun) -> None:
    fewer = dry_run(load(SMALL), 1, without_sources=(6,), without_monitors=(0, 1, 2, 4, 5))
    assert fewer.sources == (1, 11)
    assert len(fewer.monitors) == 11
    assert fewer.settings > small.settings
    with pytest.raises(ConfigError, match="0 sources and 16 monitors are left"):
        dry_run(load(SMALL), 1, without_sources=(1, 6, 11))


def test_what_two_ports_cannot_show_is_told_as_not_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Light from ports 1 and 3 reaches the taps at 9 and 7 without ever passing PUC 5: of it, nothing can be known."""
    path = tmp_path / "two-taps.yaml"
    path.write_text(TWO_TAPS)
    main(["plan", str(path), "--settings", "600", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["left_out"] == ["PUC 5 gets no light from your inputs: add an input at port 10 or 11"]
    assert not any("PUC 5 " in words for words in found["unseen"])
    assert found["predicted_sigma"]["passive_phase_rad"] < 0.1


@pytest.mark.long  # that it is told: by the command, below
def test_a_goal_that_time_is_too_short_for_is_told_beforehand_and_the_time_is_kept_to() -> None:
    short = dry_run(load(SMALL), 1, Goal(1e-6, hardware_s=16.0))
    assert "16 s of hardware time will be used up" in short.shortfall
    assert short.hardware_s <= 16.5


def test_a_goal_out_of_reach_is_told_beforehand() -> None:
    few = dry_run(load(SMALL), 1, Goal(1e-6, settings=700))
    assert "700 settings will be used up" in few.shortfall


def test_heat_beyond_the_limit_is_refused_before_anything_is_fitted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """30 heaters swept to 2.1 mA have some 30 · 2.3 = 70 mW in the mean. On a large mesh a fit takes minutes."""
    monkeypatch.setattr("calibration.run.dry_run.plan_bound", lambda *_: pytest.fail("something was fitted"))
    weak = tmp_path / "weak.yaml"
    weak.write_text(SMALL.read_text().replace("total_power_mw: 500.0", "total_power_mw: 50.0"))
    with pytest.raises(LimitError, match=r"heat of all heaters in stage .* limit 50 mW") as refused:
        dry_run(load(weak), 1)
    assert 70.0 < refused.value.requested < 145.0
    assert main(["plan", str(weak)]) == 2
    assert "limit 50 mW" in capsys.readouterr().err


def test_it_tells_how_far_it_is() -> None:
    told: list[tuple[str, int, int]] = []
    found = dry_run(load(SMALL), 1, Goal(5e-3), progress=lambda *step: told.append(step))
    assert list(dict.fromkeys(stage for stage, _, _ in told)) == ["first fit", "chosen settings", "last fit"]
    chosen = [done for stage, done, _ in told if stage == "chosen settings"]
    assert chosen == list(range(1, found.stages[3].settings + 1))


def test_the_heat_of_the_run_stays_below_the_peak_that_was_planned(small: DryRun) -> None:
    rng = np.random.default_rng(0)
    swept = np.sqrt(rng.uniform(0.0, 4.67, (2000, 30)))  # 2π · 1.05 / 1.41 rad/mA²
    assert (swept**2).sum(axis=1).max() < small.peak_mw


@pytest.mark.long
def test_nothing_is_opened(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("open", "emulate"):
        monkeypatch.setattr(Bench, name, lambda *_, **__: pytest.fail("a device was opened"))
    assert main(["plan", str(SMALL), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["settings"] == sum(stage["settings"] for stage in document["stages"])
    assert document["limit_heater_mw"] == 500.0
    assert document["predicted_sigma"]["passive_phase_rad"] < 1e-3


def test_a_goal_that_will_be_missed_is_exit_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(SMALL), "--sigma-mrad", "0.001", "--seconds", "12"]) == 3
    out, err = capsys.readouterr()
    assert "12 s of hardware time will be used up" in err
    assert "chosen settings" in out
    assert "rank " in out
    assert "the goal is 0.001 mrad, but only" in err


FOUNDRY = Path(__file__).parents[3] / "examples" / "benches" / "clements-4x4-qontrol.yaml"


def test_only_heaters_that_exist_and_change_the_light_are_swept() -> None:
    """A 4x4 Clements chip: 28 arms, 15 heaters, of which the two at inputs and the three at outputs stay off."""
    sweeps = next(stage for stage in dry_run(load(FOUNDRY), seed=1).stages if stage.name == "sweeps")
    # 1.25 sweeps of four steps for each of 10 heaters, and one setting per input.
    assert sweeps.settings == round(1.25 * 10 * 4) + 4


def test_the_heat_is_limited_by_the_bench_file_alone(tmp_path: Path) -> None:
    text = FOUNDRY.read_text().replace("compliance_v: 12", "compliance_v: 12, total_power_mw: 5000")
    (tmp_path / "bench.yaml").write_text(text)
    plan = dry_run(load(tmp_path / "bench.yaml"), seed=1)
    assert plan.limit_mw == 5000.0
    assert expected_heat_mw(load(FOUNDRY)) == pytest.approx(plan.peak_mw, rel=0.05)


def test_lasers_of_unknown_frequencies_are_named_as_what_limits_the_loops(tmp_path: Path) -> None:
    """In a feed-forward mesh a detuning and the loops of a path look alike; a single laser has no such error."""
    path = tmp_path / "bench.yaml"
    path.write_text(FOUR_LASERS)
    missed = dry_run(load(path), seed=1, goal=Goal(settings=500)).shortfall
    assert re.search(
        r"the frequencies of the lasers are only known to ±\d+\.\d+ GHz; with known ones .* \d\.\d+ mrad", missed
    )
    assert "use one laser for all inputs" in missed
    path.write_text(TWO_TAPS)
    assert "frequencies" not in dry_run(load(path), seed=1, goal=Goal(settings=500)).shortfall
