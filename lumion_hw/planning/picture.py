"""Figures of spare and slice plans, with matplotlib (optional dependency ``plots``)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lumion_hw.files import AnyPath
from lumion_hw.files.writing import Overwrite
from lumion_hw.planning.factors import PUBLISHED, FactorMap
from lumion_hw.planning.overprovisioning import Overprovisioning
from lumion_hw.planning.slices import StreamResult
from lumion_hw.planning.spares import Real
from lumion_hw.schedules.picture import new_figure, save_figure

_MAX_PLOTTED = 100.0
_MIN_PLOTTED_SHORTAGE = 1e-6


def plot_factors(factors: FactorMap, target: AnyPath, overwrite: Overwrite = "own") -> None:
    """Draw relative costs of recovery policies in a file; values of at least the published factor are bold.

    Args:
        factors: The result to draw.
        target: File name that ends in .png, .svg or .pdf.
        overwrite: Which existing files may be overwritten.

    Raises:
        ConfigError: matplotlib is missing, or the picture cannot be written.
    """
    from matplotlib.colors import LogNorm

    figure = new_figure(12.0, 2.0 + 0.4 * len(factors.sizes))
    panels = figure.subplots(1, len(factors.factors))
    for axes, (policy, factor) in zip(panels, factors.factors.items(), strict=True):
        finite = np.clip(np.nan_to_num(factor, nan=1.0, posinf=_MAX_PLOTTED), 1.0 / _MAX_PLOTTED, _MAX_PLOTTED)
        norm = LogNorm(1.0 / _MAX_PLOTTED, _MAX_PLOTTED)
        image = axes.imshow(finite, aspect="auto", cmap="RdYlGn", norm=norm, alpha=0.8)
        for row, column in np.ndindex(*factor.shape):
            value = factor[row, column]
            weight = "bold" if value >= PUBLISHED[policy] else "normal"
            axes.text(column, row, f"{value:.3g}", ha="center", va="center", fontsize="small", fontweight=weight)
        axes.set_xticks(range(len(factors.server_shares)), [f"{100.0 * share:.0f}" for share in factors.server_shares])
        axes.set_yticks(range(len(factors.sizes)), [str(size) for size in factors.sizes])
        axes.set_xlabel("faults that affect a whole server (%)")
        axes.set_ylabel("accelerators of a job")
        title = f"{policy.replace('-', ' ')} (bold: {PUBLISHED[policy]:g} or more, as published)"
        axes.set_title(title, fontsize="medium")
    bar = figure.colorbar(image, ax=panels, ticks=[0.01, 0.1, 1.0, 10.0, 100.0], format="%g")
    bar.set_label("above 1: in-rack spares cost less")
    figure.suptitle(f"Accelerators that each policy costs, relative to in-rack spares (counted: {factors.counting})")
    save_figure(figure, target, overwrite)


def plot_costs_of_policies(result: Overprovisioning, target: AnyPath, overwrite: Overwrite = "own") -> None:
    """Draw the cost of recovery policies: healthy accelerators out of service, idle spares, failed accelerators.

    Args:
        result: The result to draw.
        target: File name that ends in .png, .svg or .pdf.
        overwrite: Which existing files may be overwritten.

    Raises:
        ConfigError: matplotlib is missing, or the picture cannot be written.
    """
    figure = new_figure(7.0, 3.0)
    axes, costs = figure.subplots(), list(result.costs.values())
    lanes, starts = np.arange(len(costs)), np.zeros(len(costs))
    for label, colour, values in (
        ("failed", "black", [result.failed] * len(costs)),
        ("healthy, out of service", "C3", [cost.stranded for cost in costs]),
        ("spares that stand by", "C7", [cost.idle for cost in costs]),
    ):
        axes.barh(lanes, values, left=starts, height=0.7, color=colour, label=label)
        starts = starts + np.array(values)
    axes.set_yticks(lanes, [f"{cost.policy}\n({cost.scope})" for cost in costs], fontsize="small")
    axes.invert_yaxis()
    axes.set_xlabel("accelerators, mean of all states")
    axes.legend(fontsize="small")
    save_figure(figure, target, overwrite)


def plot_stream(results: Mapping[str, StreamResult], target: AnyPath, overwrite: Overwrite = "own") -> None:
    """Draw the results of request streams on several racks: accepted requests, accelerators in use, usable links.

    Args:
        results: The result to draw.
        target: File name that ends in .png, .svg or .pdf.
        overwrite: Which existing files may be overwritten.

    Raises:
        ConfigError: matplotlib is missing, or the picture cannot be written.
    """
    figure = new_figure(8.0, 1.2 + 0.6 * len(results))
    left_axes, right_axes = figure.subplots(1, 2, sharey=True)
    lanes, starts = np.arange(len(results)), np.zeros(len(results))
    for label, colour, shares in (
        ("accepted", "C2", [result.accepted for result in results.values()]),
        ("too few free", "C7", [result.short for result in results.values()]),
        ("enough free, no place", "C3", [result.fragmented for result in results.values()]),
    ):
        left_axes.barh(lanes, 100.0 * np.array(shares), left=starts, height=0.6, color=colour, label=label)
        starts = starts + 100.0 * np.array(shares)
    for label, colour, shares, offset in (
        ("accelerators at work", "C0", [result.used for result in results.values()], -0.2),
        ("links used by an all-reduce", "C1", [result.bandwidth_share for result in results.values()], 0.2),
    ):
        right_axes.barh(lanes + offset, 100.0 * np.array(shares), height=0.35, color=colour, label=label)
    left_axes.set_yticks(lanes, list(results))
    left_axes.invert_yaxis()
    left_axes.set_xlabel("requests (%)")
    right_axes.set_xlabel("mean share (%)")
    for axes in (left_axes, right_axes):
        axes.set_xlim(0.0, 100.0)
        axes.legend(fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=1)
    save_figure(figure, target, overwrite)


def plot_shortage(
    loss_distributions: Mapping[str, Real], service_level: float, target: AnyPath, overwrite: Overwrite = "own"
) -> None:
    """Draw the probability that more accelerators are lost than there are spares, over the number of spares.

    Args:
        loss_distributions: By label of each curve, the probabilities that exactly k of n accelerators are lost, shape
            ``(n + 1,)``.
        service_level: Required probability, drawn as a line.
        target: File name that ends in .png, .svg or .pdf.
        overwrite: Which existing files may be overwritten.

    Raises:
        ConfigError: matplotlib is missing, or the picture cannot be written.
    """
    figure = new_figure(6.0, 3.5)
    axes = figure.subplots()
    for label, probability in loss_distributions.items():
        # Sum from the far end, so that small tail values keep their precision.
        short = np.append(np.cumsum(probability[::-1])[::-1][1:], 0.0)
        plotted = np.flatnonzero(short >= _MIN_PLOTTED_SHORTAGE)
        upper = int(plotted[-1]) + 2 if len(plotted) else 1
        axes.step(range(upper), np.maximum(short[:upper], 0.1 * _MIN_PLOTTED_SHORTAGE), where="mid", label=label)
    axes.axhline(1.0 - service_level, color="0.6", linestyle="--", linewidth=1.0, label=f"level {service_level:g}")
    axes.set_yscale("log")
    axes.set_ylim(_MIN_PLOTTED_SHORTAGE, 1.5)
    axes.set_xlabel("spares")
    axes.set_ylabel("probability that more accelerators are lost")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    save_figure(figure, target, overwrite)
