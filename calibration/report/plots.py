"""Plots of a calibration report as SVG, by matplotlib.

Colours are those of Okabe and Ito, colour maps viridis and cividis. Colour-blind readers can distinguish them, also in
grey.
"""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from calibration.model.arrays import Real
from calibration.report.numbers import Extinction
from calibration.report.readings import Fringe, Readings
from lumion_hw.files.own_files import CREATOR

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HOW_TO_GET = "pip install 'lumion-hw[plots]'"

_BLUE, _ORANGE, _GREY = "#0072b2", "#d55e00", "#66727f"
_CLASSES = (("random and reference settings", _BLUE, False), ("sweeps (not in the global fit)", _ORANGE, True))
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "lumion-calibrate",
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e3e7eb",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "figure.facecolor": "#ffffff",
    "legend.frameon": False,
}
# Page width in inches at 96 px.
_WIDTH = 9.6
# Resolution of scatter plots, which would be large as vectors.
_RASTER_DPI = 144
_MAX_PLOTTED_SIGMA = 6.0
_ARMS = ("upper", "lower")


def available() -> bool:
    """Return whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def _figure(height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(_WIDTH, height), layout="constrained")


def svg_of(draw: Callable[[], Figure]) -> str:
    """Return the figure that a function of this module draws, in the style of the report, as SVG."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        figure = draw()
        # With a layout engine, savefig draws everything twice. Run on the canvas of the file, it gives the same layout.
        FigureCanvasSVG(figure)
        figure.set_dpi(_RASTER_DPI)
        if (layout := figure.get_layout_engine()) is not None:
            layout.execute(figure)
        figure.set_layout_engine(None)
        file = io.StringIO()
        figure.savefig(file, format="svg", dpi=_RASTER_DPI, metadata={"Date": None, "Creator": CREATOR})
    return file.getvalue()


def heater_name(heater: int) -> str:
    """Return the name of a heater, such as ``PUC 3 upper``."""
    return f"PUC {heater // 2} {_ARMS[heater % 2]}"


def fringes(named: Sequence[tuple[str, Fringe]], law_reach_ma: Sequence[float]) -> Figure:
    """Return a plot of readings over squared heater current, with prediction and residuals.

    The name of a fringe is the rank of its misfit, such as ``worst``. ``law_reach_ma`` is the current up to which the
    law of each heater is valid.
    """
    columns = min(3, len(named))
    rows = -(-len(named) // columns)
    figure = _figure(2.9 * rows)
    grid = figure.add_gridspec(2 * rows, columns, height_ratios=(3, 1) * rows)
    for number, (rank, fringe) in enumerate(named):
        row, column = divmod(number, columns)
        upper = figure.add_subplot(grid[2 * row, column])
        lower = figure.add_subplot(grid[2 * row + 1, column], sharex=upper)
        _fringe(upper, fringe)
        upper.tick_params(labelbottom=False)
        upper.set_title(f"{heater_name(fringe.heater)} ({rank})\nresidual {fringe.rms_sigma:.2g} σ rms", fontsize=8.5)
        lower.axhline(0.0, color=_GREY, linewidth=0.8)
        lower.plot(fringe.current_ma**2, fringe.residual_sigma, "o", color=_ORANGE, markersize=3)
        limit = max(4.0, 1.15 * float(np.nanmax(np.abs(fringe.residual_sigma))))
        lower.set_ylim(-limit, limit)
        lower.set_ylabel("off, σ")
        lower.set_xlabel("current², mA²")
        max_square_ma2 = law_reach_ma[fringe.heater] ** 2
        for axes in (upper, lower):
            if max_square_ma2 < fringe.dense_ma[-1] ** 2:
                axes.axvspan(max_square_ma2, fringe.dense_ma[-1] ** 2, color="#f1f4f7", zorder=0)
    return figure


def _fringe(axes: Axes, fringe: Fringe) -> None:
    scale, unit = (1e3, "µA") if fringe.reading_ma.max() < 1.0 else (1.0, "mA")
    if fringe.reading_ma.max() < 1e-3:
        scale, unit = 1e6, "nA"
    axes.plot(fringe.dense_ma**2, scale * fringe.predicted_ma, color=_BLUE, linewidth=1.2)
    axes.plot(fringe.current_ma**2, scale * fringe.reading_ma, "o", color=_ORANGE, markersize=4)
    axes.set_ylabel(f"port {fringe.source} → {fringe.monitor}, {unit}")
    axes.set_ylim(0.0, 1.08 * scale * max(float(fringe.reading_ma.max()), float(fringe.predicted_ma.max())))


def residuals(readings: Readings) -> Figure:
    """Return plots of residuals in units of σ: histogram with normal density, over time, and by monitor."""
    figure = _figure(5.6)
    grid = figure.add_gridspec(2, 2, width_ratios=(1, 1.2))
    left, right = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[0, 1])
    classes = [(label, colour, swept) for label, colour, swept in _CLASSES if (readings.swept == swept).any()]
    edges = np.linspace(-_MAX_PLOTTED_SIGMA, _MAX_PLOTTED_SIGMA, 61)
    for label, colour, swept in classes:
        values = readings.residual_sigma[readings.swept == swept]
        values = values[np.isfinite(values)]
        n_clipped = int((np.abs(values) > _MAX_PLOTTED_SIGMA).sum())
        counts = np.histogram(values, edges)[0] / (len(values) * np.diff(edges))
        left.stairs(counts, edges, color=colour, linewidth=1.3, label=f"{label}\n{len(values)}, {n_clipped} beyond")
    left.plot(edges, np.exp(-0.5 * edges**2) / np.sqrt(2.0 * np.pi), color="#000000", linewidth=0.9, linestyle="--")
    left.set_yscale("log")
    left.set_ylim(3e-5, 1.5)
    left.set(xlabel="reading minus prediction, σ", ylabel="share per σ (dashed: normal)")
    left.legend(fontsize=7.5, loc="lower center")
    width = 0.8 / max(len(classes), 1)
    positions = np.arange(len(readings.observations.monitors))
    for number, (label, colour, swept) in enumerate(classes):
        offset = (number - 0.5 * (len(classes) - 1)) * width
        right.bar(positions + offset, readings.rms_by_monitor(swept=swept), width, color=colour, label=label)
    right.axhline(1.0, color="#000000", linewidth=0.9, linestyle="--")
    right.set_xticks(positions, [str(port) for port in readings.observations.monitors], fontsize=7.5, rotation=90)
    right.grid(axis="x", visible=False)
    right.set(xlabel="monitor at port", ylabel="residual, rms, σ")
    axes = figure.add_subplot(grid[1, :])
    rms = readings.rms_by_setting()
    for label, colour, swept in classes:
        chosen = np.flatnonzero(readings.swept == swept)
        axes.plot(chosen, rms[chosen], ".", color=colour, markersize=3, label=label, rasterized=True)
    axes.axhline(1.0, color="#000000", linewidth=0.9, linestyle="--")
    _log_scale(axes, float(np.nanmin(rms)), float(np.nanmax(rms)))
    axes.set(xlabel="setting, in time order", ylabel="residual, rms, σ")
    axes.margins(x=0.01)
    return figure


def _log_scale(axes: Axes, low: float, high: float) -> None:
    axes.set_yscale("log")
    axes.set_ylim(low / 1.15, high * 1.15)
    axes.set_yticks(_one_two_five(low / 1.15, high * 1.15))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()


def _one_two_five(low: float, high: float) -> list[float]:
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    ticks = [value for decade in decades for value in (10.0**decade, 2 * 10.0**decade, 5 * 10.0**decade)]
    visible_ticks = [tick for tick in ticks if low <= tick <= high]
    return visible_ticks if len(visible_ticks) > 1 else [low, high]


def extinction(extinctions: Sequence[Extinction | None]) -> Figure:
    """Return a plot of the extinction ratios of every PUC, with arrows for lower bounds."""
    figure = _figure(2.9)
    axes = figure.subplots()
    series = (
        ("bar output", _BLUE, "o", [(puc.through_db, puc.through_is_bound) if puc else None for puc in extinctions]),
        ("cross output", _ORANGE, "s", [(puc.cross_db, puc.cross_is_bound) if puc else None for puc in extinctions]),
    )
    for series_label, colour, marker, values in series:
        for bound, suffix, style, fill in ((False, "", marker, colour), (True, ", at least", "^", "none")):
            chosen = [(puc, value[0]) for puc, value in enumerate(values) if value and value[1] == bound]
            if chosen:
                label = series_label + suffix
                axes.plot(*np.transpose(chosen), style, color=colour, markerfacecolor=fill, markersize=4, label=label)
    axes.set(xlabel="PUC", ylabel="extinction ratio, dB")
    axes.margins(x=0.015)
    axes.legend(ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=8)
    return figure


def heater_power(p_pi_mw: Mapping[int, float]) -> Figure:
    """Return a plot of the power for π of every heater, by PUC number and as a histogram."""
    figure = _figure(2.8)
    left, right = figure.subplots(1, 2, width_ratios=(3, 1), sharey=True)
    low, high = min(p_pi_mw.values()), max(p_pi_mw.values())
    margin = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
    bins = np.linspace(low - margin, high + margin, 21)
    for arm, (name, colour) in enumerate(zip(_ARMS, (_BLUE, _ORANGE), strict=True)):
        chosen = {heater // 2: power for heater, power in p_pi_mw.items() if heater % 2 == arm}
        left.plot(list(chosen), list(chosen.values()), "o" if arm == 0 else "s", color=colour, markersize=4, label=name)
        right.hist(list(chosen.values()), bins, orientation="horizontal", histtype="step", color=colour, linewidth=1.3)
    left.set(xlabel="PUC", ylabel="power for π, mW")
    left.margins(x=0.015)
    left.legend(title="arm", ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=8, title_fontsize=8)
    right.set_xlabel("heaters")
    return figure


def crosstalk(rad_per_pi: Real, distance_mm: Real, kernel: str) -> Figure:
    """Return a plot of the phase on every arm by each heater at π, as a matrix and over the distance.

    ``rad_per_pi`` and ``distance_mm``, ``(heaters, heaters)``, have arms in rows and heaters in columns. ``kernel`` is
    the formula of the crosstalk over distance, or empty.
    """
    from matplotlib.colors import LogNorm

    figure = _figure(3.9)
    left, right = figure.subplots(1, 2)
    mrad = 1e3 * np.abs(rad_per_pi)
    positive = mrad[mrad > 0.0]
    low = max(float(positive.min()), 1e-4 * float(positive.max()))
    high = max(float(positive.max()), 1.01 * low)
    norm = LogNorm(low, high)
    masked = np.ma.masked_less_equal(mrad, 0.0)
    image = left.imshow(masked, cmap="viridis", norm=norm, interpolation="nearest", origin="upper")
    figure.colorbar(
        image, ax=left, label="phase per π, mrad", shrink=0.85, ticks=_one_two_five(low, high), format="%g"
    ).minorticks_off()
    left.grid(visible=False)
    left.set(xlabel="heater (heater number, 2·PUC + arm)", ylabel="arm (heater number, 2·PUC + arm)")
    is_positive = mrad > 0.0
    right.plot(distance_mm[is_positive], mrad[is_positive], ".", color=_BLUE, markersize=2.5, rasterized=True)
    _log_scale(right, low, high)
    right.set(xlabel="distance from heater to arm, mm", ylabel="phase per π, mrad")
    if kernel:
        right.set_title(kernel, fontsize=8.5)
    return figure


def correlation(names: Sequence[str], largest: Real) -> Figure:
    """Return a colour map of the largest correlation between parameters of each pair of groups."""
    figure = _figure(0.9 + 0.33 * len(names))
    axes = figure.subplots()
    image = axes.imshow(largest, cmap="cividis", vmin=0.0, vmax=1.0, aspect="auto")
    figure.colorbar(image, ax=axes, label="largest |correlation|", pad=0.01)
    axes.grid(visible=False)
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right", fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    for row, values in enumerate(largest):
        for column, value in enumerate(values):
            ink = "#000000" if value > 0.55 else "#ffffff"
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=7, color=ink)
    return figure
