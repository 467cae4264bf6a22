"""A scan as a picture. Needs matplotlib, the extra ``plots``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lumion_hw.acquisition.columns import choose
from lumion_hw.acquisition.plotting import plain_text, require_plots, save_figure
from lumion_hw.acquisition.scan_plan import ScanAxis
from lumion_hw.errors import ConfigError
from lumion_hw.files import AnyPath

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from lumion_hw.acquisition.fitted import FittedCurve
    from lumion_hw.acquisition.scan_data import ScanData

_PANEL_IN = (8.0, 3.2)
_MOST_PANELS, _MOST_LINES = 24, 200


def draw_scan(data: ScanData, readings: Sequence[str], target: AnyPath | None) -> Figure:
    """Draw readings of a scan; see :meth:`ScanData.plot`."""
    require_plots()
    device_of = {column.name: column.device for column in data.header.columns if column.name in data.value}
    names = choose(readings, device_of)
    grid = len(_moving(data)) == 2
    panels = [[name] for name in names] if grid else _by_unit(data, names)
    if len(panels) > _MOST_PANELS:
        raise ConfigError(f"{len(panels)} panels are more than {_MOST_PANELS} of a picture", hint="Choose readings.")
    figure, axes = new_figure(len(panels))
    for panel, shown in zip(axes, panels, strict=True):
        (_map if grid else _lines)(panel, data, shown)
    figure.suptitle(plain_text(f"{data.header.bench}, {data.header.started[:19]}"))
    if target is not None:
        save_figure(figure, Path(target), "own")
    return figure


def new_figure(n_panels: int = 1) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels below each other."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_PANEL_IN[0], _PANEL_IN[1] * n_panels + 0.4), layout="constrained")
    return figure, list(figure.subplots(n_panels, 1, squeeze=False)[:, 0])


def _by_unit(data: ScanData, names: Sequence[str]) -> list[list[str]]:
    units = dict.fromkeys(data.unit[name] for name in names)
    return [[name for name in names if data.unit[name] == unit] for unit in units]


def axis_text(axis: ScanAxis) -> str:
    """Return what an axis is called, with its unit."""
    first = axis.settings[0]
    return plain_text(f"{first.name} ({first.unit})" if first.unit else first.name)


def _moving(data: ScanData) -> tuple[ScanAxis, ...]:
    """Return the axes of more than one point."""
    return tuple(axis for axis in data.plan.axes if axis.n_points > 1)


def _ticks(axis: ScanAxis) -> Any:
    """Return where the points of an axis are drawn: at their values, or one after the other."""
    first = axis.settings[0]
    labels = first.labels()
    return labels if first.kind == "number" and np.all(np.isfinite(first.numbers)) else labels.astype(str)


def _lines(panel: Axes, data: ScanData, names: Sequence[str]) -> None:
    """Draw every reading over the fastest axis; slower axes give a line each."""
    axis = (_moving(data) or data.plan.axes)[-1]
    for name in names:
        rows = data.value[name].reshape(-1, axis.n_points)
        for number, row in enumerate(rows[:_MOST_LINES]):
            label = plain_text(name) if number == 0 else None
            panel.plot(_ticks(axis), row, label=label, linewidth=1.0, marker=".", markersize=2.5)
    panel.set_xlabel(axis_text(axis))
    panel.set_ylabel(plain_text(data.unit[names[0]]))
    panel.grid(alpha=0.3)
    panel.legend(loc="best", fontsize="small", frameon=False)


def _map(panel: Axes, data: ScanData, names: Sequence[str]) -> None:
    slow, fast = _moving(data)
    (name,) = names
    mesh = panel.pcolormesh(
        np.arange(fast.n_points) if isinstance(_ticks(fast)[0], str) else _ticks(fast),
        np.arange(slow.n_points) if isinstance(_ticks(slow)[0], str) else _ticks(slow),
        data.value[name].reshape(slow.n_points, fast.n_points),
        shading="nearest",
    )
    panel.set_xlabel(axis_text(fast))
    panel.set_ylabel(axis_text(slow))
    panel.figure.colorbar(mesh, ax=panel, label=plain_text(f"{name} ({data.unit[name]})"))


def draw_fit(fit: FittedCurve, words: str, target: AnyPath | None) -> Figure:
    """Draw points, curve and residual; see :meth:`FittedCurve.plot`."""
    require_plots()
    figure, (above, below) = new_figure(2)
    order = np.argsort(fit.x)
    x, y, residual = fit.x[order], fit.y[order], fit.residual[order]
    above.plot(x, y, ".", markersize=4.0, label="measured")
    above.plot(x, y - residual, linewidth=1.0, label="fitted")
    above.set_ylabel(plain_text(fit.y_label))
    above.set_title(plain_text(words), fontsize="small")
    above.legend(loc="best", fontsize="small", frameon=False)
    below.plot(x, residual, ".", markersize=4.0)
    below.set_ylabel("measured - fitted")
    below.set_xlabel(plain_text(fit.x_label))
    for panel in (above, below):
        panel.grid(alpha=0.3)
    if target is not None:
        save_figure(figure, Path(target), "own")
    return figure
