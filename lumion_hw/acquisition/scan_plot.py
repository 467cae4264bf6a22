"""Figures of scans. Needs matplotlib (optional dependency ``plots``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.acquisition.columns import select_names
from lumion_hw.acquisition.journal import LogHeader
from lumion_hw.acquisition.plotting import add_legend, new_figure, plain_text, require_plots, save_figure
from lumion_hw.acquisition.scan_plan import ScanAxis, ScanPlan
from lumion_hw.errors import ConfigError
from lumion_hw.files import AnyPath

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MAX_PANELS, _MAX_LINES = 24, 200

_Values = Mapping[str, NDArray[np.float64]]


def draw_scan(
    header: LogHeader,
    plan: ScanPlan,
    values: _Values,
    units: Mapping[str, str],
    readings: Sequence[str],
    target: AnyPath | None,
) -> Figure:
    """Draw readings of a scan; see :meth:`ScanData.plot`."""
    require_plots()
    names = select_names(readings, {column.name: column.device for column in header.columns if column.name in values})
    moving = tuple(axis for axis in plan.axes if axis.n_points > 1)
    is_map = len(moving) == 2
    panels = [[name] for name in names] if is_map else _group_by_unit(names, units)
    if len(panels) > _MAX_PANELS:
        raise ConfigError(
            f"the figure would have {len(panels)} panels, but at most {_MAX_PANELS} can be drawn",
            hint="Choose fewer readings.",
        )
    figure, axes = new_figure(len(panels), 0 if is_map else max(map(len, panels)))
    for panel, panel_names in zip(axes, panels, strict=True):
        if is_map:
            _draw_map(panel, moving[0], moving[1], panel_names[0], values, units)
        else:
            _draw_lines(panel, (moving or plan.axes)[-1], panel_names, values, units)
    figure.suptitle(plain_text(f"{header.bench}, {header.started[:19]}"))
    if target is not None:
        save_figure(figure, Path(target), "own")
    return figure


def _group_by_unit(names: Sequence[str], units: Mapping[str, str]) -> list[list[str]]:
    return [[name for name in names if units[name] == unit] for unit in dict.fromkeys(units[name] for name in names)]


def axis_text(axis: ScanAxis) -> str:
    """Return the label of an axis: name and unit of its first setting."""
    first = axis.settings[0]
    return plain_text(f"{first.name} ({first.unit})" if first.unit else first.name)


def _positions(axis: ScanAxis) -> Any:
    first = axis.settings[0]
    labels = first.labels()
    return labels if first.kind == "number" and np.all(np.isfinite(first.numbers)) else labels.astype(str)


def _draw_lines(panel: Axes, axis: ScanAxis, names: Sequence[str], values: _Values, units: Mapping[str, str]) -> None:
    for name in names:
        rows = values[name].reshape(-1, axis.n_points)
        for number, row in enumerate(rows[:_MAX_LINES]):
            label = plain_text(name) if number == 0 else None
            panel.plot(_positions(axis), row, label=label, linewidth=1.0, marker=".", markersize=2.5)
    panel.set_xlabel(axis_text(axis))
    panel.set_ylabel(plain_text(units[names[0]]))
    panel.grid(alpha=0.3)
    add_legend(panel)


def _draw_map(
    panel: Axes, slow: ScanAxis, fast: ScanAxis, name: str, values: _Values, units: Mapping[str, str]
) -> None:
    x, y = (
        np.arange(axis.n_points) if isinstance(_positions(axis)[0], str) else _positions(axis) for axis in (fast, slow)
    )
    mesh = panel.pcolormesh(x, y, values[name].reshape(slow.n_points, fast.n_points), shading="nearest")
    panel.set_xlabel(axis_text(fast))
    panel.set_ylabel(axis_text(slow))
    panel.figure.colorbar(mesh, ax=panel, label=plain_text(f"{name} ({units[name]})"))


def draw_fit(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    residual: NDArray[np.float64],
    labels: tuple[str, str],
    title: str,
    target: AnyPath | None,
) -> Figure:
    """Draw points, fitted curve and residual; ``labels`` are the labels of the x and y axis."""
    require_plots()
    figure, (above, below) = new_figure(2)
    order = np.argsort(x)
    x, y, residual = x[order], y[order], residual[order]
    above.plot(x, y, ".", markersize=4.0, label="measured")
    above.plot(x, y - residual, linewidth=1.0, label="fitted")
    above.set_ylabel(plain_text(labels[1]))
    figure.suptitle(plain_text(title), fontsize="small")
    above.legend(loc="best", fontsize="small", frameon=False)
    below.plot(x, residual, ".", markersize=4.0)
    below.set_ylabel("measured - fitted")
    below.set_xlabel(plain_text(labels[0]))
    for panel in (above, below):
        panel.grid(alpha=0.3)
    if target is not None:
        save_figure(figure, Path(target), "own")
    return figure
