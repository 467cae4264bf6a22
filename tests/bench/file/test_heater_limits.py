"""Current, resistance, voltage limit, Pπ and total power of the heaters in a bench file fit each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from lumion_hw.bench.bench import load
from lumion_hw.bench.file.heater_checks import heat_note, reach_note
from lumion_hw.bench.file.loader import check_bench
from lumion_hw.cli.common.bench_notes import bench_notes

FOUNDRY = Path(__file__).parents[3] / "examples" / "benches" / "clements-4x4-qontrol.yaml"


def bench_with(folder: Path, **limits: float) -> str:
    """Write the bench of a foundry chip (10 mA, 800 ohm, 12 V, 15 to 35 mW) with other limits of its driver."""
    document: dict[str, Any] = yaml.safe_load(FOUNDRY.read_text())
    document["devices"]["driver"] |= limits
    path = folder / "bench.yaml"
    path.write_text(yaml.safe_dump(document))
    return str(path)


def test_a_voltage_limit_below_the_voltage_of_the_largest_current_is_a_mistake(tmp_path: Path) -> None:
    (problem,) = check_bench(bench_with(tmp_path, heater_ohm=2000, compliance_v=10))
    assert "10 mA needs 20 V in these heaters (2000 Ω); compliance_v is 10" in str(problem)
    assert "devices.driver.compliance_v" in str(problem)


@pytest.mark.parametrize("compliance_v", [8.0, 12.0, None])
def test_a_sufficient_voltage_limit_is_accepted(tmp_path: Path, compliance_v: float) -> None:
    assert not check_bench(bench_with(tmp_path, compliance_v=compliance_v))  # 10 mA x 800 ohm = 8 V


def test_a_current_that_cannot_reach_a_turn_is_noted_with_the_current_needed(tmp_path: Path) -> None:
    note = reach_note(load(bench_with(tmp_path, heater_max_ma=5)))
    assert note is not None
    # 25 x 800 / 1000 = 20 mW; 2 x 35 = 70 mW; the root of 70,000 / 800 is 9.354.
    assert "heater_max_ma of driver is 5: this gives 20 mW in 800 Ω" in note
    assert "needs up to 70 mW" in note
    assert "Set heater_max_ma to 9.36" in note
    assert reach_note(load(bench_with(tmp_path, heater_max_ma=9.36))) is None


def test_a_current_that_was_rounded_is_sufficient(tmp_path: Path) -> None:
    # 9.35 x 9.35 x 800 / 1000 = 69.94 mW of 70 mW; 9.3 mA give 69.19 mW, 1.2 % too few.
    assert reach_note(load(bench_with(tmp_path, heater_max_ma=9.35))) is None
    assert "gives 69.2 mW in 800 Ω, but a phase of 2π needs up to 70 mW" in str(
        reach_note(load(bench_with(tmp_path, heater_max_ma=9.3)))
    )
    assert not check_bench(bench_with(tmp_path, heater_max_ma=10.01, compliance_v=8))  # 8.008 V


def test_a_current_for_many_turns_shows_that_the_power_per_pi_is_missing(tmp_path: Path) -> None:
    # 30 mA in 800 ohm are 720 mW; a turn of the weakest heater takes 70 mW.
    note = reach_note(load(bench_with(tmp_path, heater_max_ma=30, compliance_v=25)))
    assert note is not None
    assert "this gives 720 mW in 800 Ω, and a phase of 10 turns in heaters with 35 mW per π" in note
    assert "Set p_pi_min_mw and p_pi_max_mw in mesh.typical" in note


def test_a_total_power_too_small_for_a_calibration_is_noted(tmp_path: Path) -> None:
    model = load(bench_with(tmp_path, total_power_mw=300))
    (note,) = bench_notes(model)
    assert note.startswith("a calibration heats the chip with up to ")
    assert "total_power_mw of driver is 300" in note
    assert heat_note(model, 300.0) is None
    assert "up to 301 mW, but total_power_mw of driver is 300. Set total_power_mw to 310" in (
        heat_note(model, 300.2) or ""
    )


@pytest.mark.parametrize("name", ["lumion-prototype", "small-bench", "laser-bench", str(FOUNDRY)])
def test_the_benches_of_the_package_have_sufficient_limits(name: str) -> None:
    assert bench_notes(load(name)) == []
