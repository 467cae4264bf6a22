"""Sources lit together are told apart by their patterns on the monitors, and aligned side by side."""

from __future__ import annotations

import numpy as np
import pytest

from calibration.measure.bench_probe import BenchProbe
from calibration.measure.separated_light import read_separately, separable
from calibration.model.arrays import Real
from lumion_hw import Bench
from lumion_hw.errors import DeviceError
from tests.calibration.bench_run import SMALL

RNG = np.random.default_rng(4)
PATTERNS = {5: RNG.uniform(0.1, 1.0, 12), 7: RNG.uniform(0.1, 1.0, 12), 9: RNG.uniform(0.1, 1.0, 12)}
DARK = np.full(12, 1e-3)


def seen(shares: dict[int, float]) -> Real:
    lit: Real = sum((share * PATTERNS[port] for port, share in shares.items()), DARK.copy())
    return lit


def test_each_source_is_read_as_if_it_were_alone() -> None:
    read = read_separately(PATTERNS, DARK, lambda: seen({5: 0.3, 7: 1.2, 9: 0.0}))
    assert [read[port] / PATTERNS[port].sum() for port in PATTERNS] == pytest.approx([0.3, 1.2, 0.0], abs=1e-9)


def test_saturated_monitors_do_not_count_and_too_many_are_said() -> None:
    half = seen({5: 0.3, 7: 1.2, 9: 0.5})
    half[:6] = np.nan
    assert read_separately(PATTERNS, DARK, lambda: half)[9] == pytest.approx(0.5 * PATTERNS[9].sum())
    few = half.copy()
    few[:10] = np.nan
    with pytest.raises(DeviceError, match="2 unsaturated monitors cannot separate"):
        read_separately(PATTERNS, DARK, lambda: few)


def test_a_scan_in_which_a_polarization_turned_is_taken_again() -> None:
    torn = np.where(np.arange(12) < 6, seen({5: 1.0, 7: 1.0}), seen({5: 0.2, 7: 1.0}))
    scans = [torn, torn, seen({5: 0.2, 7: 1.0})]
    read = read_separately(PATTERNS, DARK, lambda: scans.pop(0))
    assert read[5] == pytest.approx(0.2 * PATTERNS[5].sum())


def test_light_of_another_source_is_no_sum_of_these() -> None:
    foreign = seen({5: 1.0, 7: 1.0}) + RNG.uniform(0.0, 0.5, 12)
    with pytest.raises(DeviceError, match="not the sum"):
        read_separately(PATTERNS, DARK, lambda: foreign)


@pytest.mark.parametrize(
    ("patterns", "told_apart"),
    [
        (PATTERNS, [5, 7, 9]),
        (PATTERNS | {7: 0.05 * PATTERNS[7]}, [5, 9]),
        (PATTERNS | {7: 1.001 * PATTERNS[5]}, []),
        (PATTERNS | {7: np.where(np.arange(12) < 10, np.nan, PATTERNS[7])}, []),
        ({5: PATTERNS[5]}, []),
        ({}, []),
    ],
    ids=["different", "one dim", "alike", "saturated", "one alone", "none"],
)
def test_what_can_be_told_apart(patterns: dict[int, Real], told_apart: list[int]) -> None:
    assert separable(patterns) == told_apart


@pytest.mark.long
def test_polarizations_are_searched_side_by_side_and_end_as_bright_as_one_by_one() -> None:
    ended = []
    for aside in ((), (1, 6)):  # with one source left there is nothing to separate
        with Bench.emulate(SMALL, seed=2) as bench:
            probe = BenchProbe(bench)
            probe.align_all(dict.fromkeys(aside, "left out"))
            probe.light_only_port(11)
            ended.append((bench.clock.now(), float(bench.mesh.monitors_ma(16).sum())))
    (together_s, together_ma), (alone_s, alone_ma) = ended
    assert together_s < 1.5 * alone_s  # three searches in the time of one
    assert together_ma == pytest.approx(alone_ma, rel=0.02)
