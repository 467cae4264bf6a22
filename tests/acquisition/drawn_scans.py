"""Scans of known truth, made without a bench."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from lumion_hw.acquisition import ScanAxis, ScanData, ScanPlan, State, SweptSetting
from lumion_hw.acquisition.columns import Column
from lumion_hw.acquisition.journal import LogHeader, LogTable
from lumion_hw.acquisition.scan_plan import as_base64


def axis(name: str, unit: str, values: NDArray[np.float64]) -> ScanAxis:
    return ScanAxis((SweptSetting(name, name.partition(".")[0], unit, "number", (), as_base64(values)),), len(values))


def drawn(
    name: str, unit: str, x: NDArray[np.float64], readings: Mapping[tuple[str, str], NDArray[np.float64]]
) -> ScanData:
    """Return a scan of one setting with readings by name and unit; NaN is a reading that failed."""
    plan = ScanPlan((axis(name, unit, np.asarray(x, dtype=np.float64)),))
    columns = [Column(f"{name}.set", "d", unit), Column("scan.by_instrument", "scan", "1")]
    columns += [Column(each, each.partition(".")[0], of) for each, of in readings]
    value = np.stack([np.asarray(x), np.zeros(len(x)), *readings.values()], axis=1)
    state = np.where(np.isnan(value), State.FAILED, State.OK).astype(np.uint8)
    header = LogHeader("drawn", tuple(columns), 0.0, len(x), "2026-11-20T12:00:00.000+00:00", scan=plan)
    return ScanData.of(header, LogTable(np.arange(len(x), dtype=np.uint32), np.arange(len(x)) * 0.1, value, state))


def coverage(draw, truth: dict[str, float], errors: dict[str, str], n: int = 60) -> dict[str, float]:
    """Return the share of draws in which the truth lies within one standard error, by name."""
    hits = dict.fromkeys(truth, 0)
    for seed in range(n):
        found = draw(np.random.default_rng(seed))
        for name, true in truth.items():
            hits[name] += abs(getattr(found, name) - true) <= getattr(found, errors[name])
    return {name: count / n for name, count in hits.items()}


# 68 % of 60 draws are 41 ± 3.6; three sigma either way, which errors half or twice as large miss (38 % and 95 %).
LEAST, MAX_RUN_WORK = 0.68 - 0.18, 0.68 + 0.18
