"""The newest curve of a running scan, small enough to be shown by the page of a served bench."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lumion_hw.acquisition.columns import Column, Value
from lumion_hw.acquisition.scan_plan import ScanPlan

MAX_READINGS = 4
"""Largest number of readings in a curve."""
MAX_POINTS = 240
"""Largest number of points in a curve; of a longer curve every n-th point is shown."""


class ScanCurve:
    """Readings of the pass that a scan is in, over the setting that changes fastest.

    Only readings with the unit of the first one are included, so that they share an axis.
    """

    def __init__(self, plan: ScanPlan, readings: Sequence[Column]) -> None:
        self._fastest = plan.axes[-1]
        alike = [number for number, column in enumerate(readings) if column.unit == readings[0].unit]
        self._chosen = alike[:MAX_READINGS]
        self._columns = [readings[number] for number in self._chosen]
        self._values = np.full((len(self._chosen), self._fastest.n_points), np.nan)
        self._pass: tuple[int, ...] | None = None

    def add(self, position: tuple[int, ...], values: Sequence[Value]) -> None:
        """Add the readings at a position of the plan; the first position of another pass begins a new curve."""
        if position[:-1] != self._pass:
            self._pass = position[:-1]
            self._values[:] = np.nan
        self._values[:, position[-1]] = [values[number].number for number in self._chosen]

    def document(self) -> dict[str, Any]:
        """Return the curve as JSON values; ``None`` stands for a point without a number."""
        setting = self._fastest.settings[0]
        every = slice(None, None, -(-self._fastest.n_points // MAX_POINTS))
        return {
            "setting": setting.name,
            "setting_unit": setting.unit,
            "x": setting.numbers[every].tolist(),
            "unit": self._columns[0].unit if self._columns else "",
            "readings": {
                column.name: [None if np.isnan(value) else value for value in values[every].tolist()]
                for column, values in zip(self._columns, self._values, strict=True)
            },
        }
