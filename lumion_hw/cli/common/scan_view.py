"""A running scan drawn as text in the terminal, updated in place."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import click
import numpy as np
from numpy.typing import NDArray

from lumion_hw.cli.common.text_plot import braille_rows, limits_of
from lumion_hw.files.escaping import one_line

if TYPE_CHECKING:
    from lumion_hw.acquisition import ScanAxis, ScanData, ScanProgress

_MAX_PANELS = 4
_MIN_PANEL_LINES = 4  # a title and three lines of dots
_FRAME_LINES = 3  # progress, the swept setting, and the line of the cursor
_LABEL = 11


class TerminalView:
    """Draws a scan on stderr: the present pass of the fastest setting, with one panel per reading.

    The drawing fits the terminal. Readings that do not fit are counted, not drawn.
    """

    def __init__(self) -> None:
        self._lines = 0
        self._left_s: float | None = None

    def on_progress(self, step: ScanProgress) -> None:
        """Note the remaining time, which the next drawing shows."""
        self._left_s = step.left_s

    def __call__(self, data: ScanData) -> None:
        """Draw the data in place of the last drawing."""
        columns, lines = shutil.get_terminal_size()
        frame = scan_frame(data, self._left_s, columns - 1, lines)
        up = f"\x1b[{self._lines}A" if self._lines else ""
        click.echo(up + "".join(f"{line}\x1b[K\n" for line in frame) + "\x1b[J", err=True, nl=False)
        self._lines = len(frame)


def scan_frame(data: ScanData, left_s: float | None, columns: int, lines: int) -> list[str]:
    """Return the drawing of a scan as lines of at most ``columns`` characters, fewer than ``lines``.

    Args:
        data: The data so far.
        left_s: Estimated remaining time in seconds, if known.
        columns: Width in characters.
        lines: Height of the terminal in lines.
    """
    names, plan = list(data.value), data.plan
    n_panels = max(1, min(len(names), _MAX_PANELS, (lines - _FRAME_LINES) // _MIN_PANEL_LINES))
    height = max(1, (lines - _FRAME_LINES) // n_panels - 1)
    fast = ([axis for axis in plan.axes if axis.n_points > 1] or list(plan.axes))[-1]
    passes = plan.n_points // fast.n_points
    present = _latest_index(data) // fast.n_points
    is_virtual = data.header.emulated  # the remaining time is that of the bench's clock
    left = "" if left_s is None or is_virtual else f", about {left_s:.0f} s left"
    hidden = f", {len(names) - n_panels} readings not drawn" if len(names) > n_panels else ""
    frame = [f"{data.n_read} of {plan.n_points} points{left}{hidden}"]
    x = _positions(fast)
    for name in names[:n_panels]:
        row = data.value[name].reshape(passes, fast.n_points)[present]
        frame += _panel(name, data.unit[name], x, row, limits_of(data.value[name]), (columns - _LABEL - 1, height))
    first, last = fast.settings[0].labels()[[0, -1]]
    unit = f" {fast.settings[0].unit}" if fast.settings[0].unit else ""
    axis = f"{fast.name}: {_short(first)} to {_short(last)}{unit}"
    frame.append(f"{axis}, pass {present + 1} of {passes}" if passes > 1 else axis)
    return [one_line(line)[:columns] for line in frame]


def _panel(
    name: str,
    unit: str,
    x: NDArray[np.float64],
    row: NDArray[np.float64],
    y_limits: tuple[float, float] | None,
    size: tuple[int, int],
) -> list[str]:
    columns, height = size
    if y_limits is None:
        return [f"{name} ({unit}): no values yet", *([" " * _LABEL + "│"] * height)]
    x_limits = limits_of(x) or (0.0, 1.0)
    rows = braille_rows(x, row, x_limits, y_limits, (columns, height))
    labels = {height - 1: f"{y_limits[0]:.5g}", 0: f"{y_limits[1]:.5g}"}
    return [f"{name} ({unit})", *(f"{labels.get(at, ''):>{_LABEL}}│{dots}" for at, dots in enumerate(rows))]


def _positions(axis: ScanAxis) -> NDArray[np.float64]:
    """Return where to draw the values of an axis: numbers at their value, choices and flags side by side."""
    first = axis.settings[0]
    is_numeric = first.kind == "number" and bool(np.all(np.isfinite(first.numbers)))
    return first.numbers if is_numeric else np.arange(axis.n_points, dtype=np.float64)


def _latest_index(data: ScanData) -> int:
    times_s = data.time_s.reshape(-1)
    return 0 if bool(np.isnan(times_s).all()) else int(np.nanargmax(times_s))


def _short(label: object) -> str:
    return f"{label:.6g}" if isinstance(label, float) else str(label)
