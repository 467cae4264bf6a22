"""Live views of a running scan: its data so far, passed to a function a few times per second."""

from __future__ import annotations

import importlib
import io
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from lumion_hw.acquisition.journal import LogHeader, LogRow, LogTable
from lumion_hw.acquisition.plotting import require_plots
from lumion_hw.acquisition.scan_data import ScanData
from lumion_hw.errors import ConfigError

_log = logging.getLogger(__name__)

PERIOD_S = 0.25
"""Shortest time between two views, by the wall clock."""
_WAIT_PER_DRAWING = 4.0
"""Shortest time until the next view, in durations of the last one: views take at most a fifth of the time."""
_FIGURE_DPI = 80

View = Callable[[ScanData], None]
"""Function that shows the data of a scan; points that are not read yet are NaN. The arrays change with each point."""


class LiveScan:
    """Collects the points of a running scan and passes them to a view.

    The view is called once without points, so that its errors reach the caller before the scan changes anything. If the
    view fails later, a warning is logged and the scan continues without it.

    Args:
        header: Header of the scan.
        view: The function to call.
        clock: Wall clock, in seconds.
    """

    def __init__(self, header: LogHeader, view: View, clock: Callable[[], float] = time.monotonic) -> None:
        self._header, self._clock = header, clock
        self._view: View | None = view
        n = len(header.columns)
        empty = LogTable(np.empty(0, np.uint32), np.empty(0), np.empty((0, n)), np.empty((0, n), np.uint8))
        self._data = ScanData.of(header, empty)
        view(self._data)
        self._due_s = clock() + PERIOD_S

    def load(self, table: LogTable) -> None:
        """Take over the points of an earlier run."""
        self._data = replace(ScanData.of(self._header, table), setting_was={})

    def add(self, row: LogRow) -> bool:
        """Add a point; return whether it is time for the next :meth:`show`."""
        data, n_settings = self._data, len(row.values) - len(self._data.value)
        for name, value in zip(data.value, row.values[n_settings:], strict=True):
            data.value[name].reshape(-1)[row.index] = value.number
            data.state[name].reshape(-1)[row.index] = value.state
        data.time_s.reshape(-1)[row.index] = row.time_s
        data.by_instrument.reshape(-1)[row.index] = row.values[n_settings - 1].number == 1.0
        return self._clock() >= self._due_s

    def show(self) -> None:
        """Call the view with the data so far."""
        if self._view is None:
            return
        began_s = self._clock()
        try:
            self._view(self._data)
        except Exception as error:  # noqa: BLE001 - a picture must not end the scan
            _log.warning("the live view of the scan failed; the scan continues without it: %s", error)
            self._view = None
        ended_s = self._clock()
        self._due_s = ended_s + max(PERIOD_S, _WAIT_PER_DRAWING * (ended_s - began_s))


class NotebookView:
    """Shows a scan as a figure in the output of a notebook cell, which is updated in place.

    Raises:
        ConfigError: This program is not a notebook, or matplotlib is not installed.
    """

    def __init__(self) -> None:
        ipython = sys.modules.get("IPython")  # a notebook has imported it, so it need not be installed
        shell = None if ipython is None else ipython.get_ipython()
        if getattr(shell, "kernel", None) is None:
            raise ConfigError(
                "live=True draws in a notebook, but this program does not run in one",
                hint="Leave live out, or use `lumion scan --watch` in a terminal. Nothing was changed.",
            )
        require_plots()
        self._display = importlib.import_module("IPython.display")
        self._handle: Any = None

    def __call__(self, data: ScanData) -> None:
        """Draw the data, at first as a new output, then in its place."""
        png = io.BytesIO()
        data.plot().savefig(png, format="png", dpi=_FIGURE_DPI)
        image = self._display.Image(data=png.getvalue(), format="png")
        if self._handle is None:
            self._handle = self._display.display(image, display_id=True)
        else:
            self._handle.update(image)
