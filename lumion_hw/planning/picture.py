"""Pictures of plans, with matplotlib (extra ``plots``)."""

from __future__ import annotations

import numpy as np

from lumion_hw.files import AnyPath
from lumion_hw.files.writing import Over
from lumion_hw.planning.factors import PUBLISHED, FactorMap
from lumion_hw.planning.overprovisioning import Overprovisioning
from lumion_hw.schedules.picture import new_figure, save_figure

_SHOWN_MOST = 100.0


def plot_factors(found: FactorMap, target: AnyPath, over: Over = "own") -> None:
    """Draw a map: how many times more each policy costs; bold where it is the published factor or more.

    Args:
        found: The factors.
        target: The picture: .png, .svg or .pdf.
        over: What may be written over.

    Raises:
        ConfigError: matplotlib is missing, or the picture cannot be written.
    """
    from matplotlib.colors import LogNorm

    figure = new_figure(11.0, 1.8 + 0.4 * len(found.sizes))
    for axes, (policy, factor) in zip(figure.subplots(1, len(found.factors)), found.factors.items(), strict=True):
        finite = np.clip(np.nan_to_num(factor, nan=1.0, posinf=_SHOWN_MOST), 1.0 / _SHOWN_MOST, _SHOWN_MOST)
        axes.imshow(finite, aspect="auto", cmap="RdYlGn", norm=LogNorm(1.0 / _SHOWN_MOST, _SHOWN_MOST), alpha=0.8)
        for row, column in np.ndindex(*factor.shape):
            value = factor[row, column]
            holds = "bold" if value >= PUBLISHED[policy] else "normal"
            axes.text(column, row, f"{value:.3g}", ha="center", va="center", fontsize="small", fontweight=holds)
        axes.set_xticks(range(len(found.server_shares)), [f"{share:.0%}" for share in found.server_shares])
        axes.set_yticks(range(len(found.sizes)), [str(size) for size in found.sizes])
        axes.set_xlabel("faults that take the whole server")
        axes.set_ylabel("accelerators of a job")
        axes.set_title(f"{policy} over in-rack spares; bold: {PUBLISHED[policy]:g} or more", fontsize="small")
    figure.suptitle(f"counted: {found.counting}", fontsize="small")
    save_figure(figure, target, over)


def plot_costs_of_policies(found: Overprovisioning, target: AnyPath, over: Over = "own") -> None:
    """Draw what the policies cost: healthy accelerators out of service, spares that stand idle, those that failed.

    Args:
        found: The policies.
        target: The picture: .png, .svg or .pdf.
        over: What may be written over.

    Raises:
        ConfigError: matplotlib is missing, or the picture cannot be written.
    """
    figure = new_figure(7.0, 3.0)
    axes, costs = figure.subplots(), list(found.costs.values())
    lanes, left = np.arange(len(costs)), np.zeros(len(costs))
    for label, colour, values in (
        ("failed", "black", [found.failed] * len(costs)),
        ("healthy, out of service", "C3", [cost.stranded for cost in costs]),
        ("spares that stand by", "C7", [cost.idle for cost in costs]),
    ):
        axes.barh(lanes, values, left=left, height=0.7, color=colour, label=label)
        left = left + np.array(values)
    axes.set_yticks(lanes, [f"{cost.policy}\n({cost.scope})" for cost in costs], fontsize="small")
    axes.invert_yaxis()
    axes.set_xlabel("accelerators, mean of all states")
    axes.legend(fontsize="small")
    save_figure(figure, target, over)
