"""Faults of the goal on emulated benches, through drivers and bytes: found, named once, and the rest within goal."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.calibration.bench_run import SMALL
from tests.calibration.fault_cases import CASES
from tests.calibration.fault_judge import judged
from tests.ideal_bench import ideal_bench

LONG = (
    "all of the goal",
    "heater dies in the run",
    "monitor dies in the run",
    "mode hop of 3 GHz",
    "one channel heats two heaters",
    "weak heater",
)
LARGE = ("all of the goal", "dead heater", "chip warms by 0.15 K")
"""Tried on 72 PUCs; the others by benchmarks/calibration_faults.py, at a minute or more of CPU time a case."""


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=pytest.mark.long if case in LONG else pytest.mark.campaign) for case in CASES],
)
def test_each_fault_of_the_small_bench_is_named_once(case: str) -> None:
    assert judged(case, 3, SMALL).complaints == []


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(20, marks=pytest.mark.long),
        *(pytest.param(seed, marks=pytest.mark.campaign) for seed in range(21, 30)),
    ],
)
def test_nothing_is_named_where_nothing_is_wrong(seed: int) -> None:
    verdict = judged("none", seed, SMALL)
    assert verdict.false_alarms == []
    assert verdict.record.defects == ()


@pytest.mark.campaign
@pytest.mark.parametrize("case", LARGE)
def test_each_fault_of_the_72_puc_bench_is_named_once(case: str, tmp_path: Path) -> None:
    assert judged(case, 3, ideal_bench("lumion-prototype", tmp_path)).complaints == []
