"""Pictures of schedules and timelines, with matplotlib (optional dependency ``plots``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lumion_hw.acquisition.plotting import FORMATS, require_plots
from lumion_hw.errors import ConfigError
from lumion_hw.files import AnyPath
from lumion_hw.files.escaping import one_line
from lumion_hw.files.own_files import CREATOR
from lumion_hw.files.writing import Overwrite, check_target, write_file
from lumion_hw.schedules.cost import CostModel, best_static, cost_of, size_text
from lumion_hw.schedules.decomposition import Decomposition
from lumion_hw.schedules.phases import IterationTimes, PhasePlan
from lumion_hw.schedules.schedule import Schedule

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_ROUNDS = 512
_MAX_ARROWS = 20_000
"""Largest number of arrows in a picture; this many take 15 s to draw."""
_MAX_INCHES = 24.0


def new_figure(width_in: float, height_in: float) -> Figure:
    """Return an empty figure.

    Raises:
        ConfigError: matplotlib is missing.
    """
    require_plots()
    from matplotlib.figure import Figure

    return Figure(figsize=(min(width_in, _MAX_INCHES), min(height_in, _MAX_INCHES)), layout="constrained")


def save_figure(figure: Figure, target: AnyPath, overwrite: Overwrite = "own") -> None:
    """Write a figure.

    Raises:
        ConfigError: The file name fits no format, or the file cannot be written.
    """
    path = Path(target)
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise ConfigError(f"{path}: unknown picture format", hint=f"Use a file name ending in {', '.join(FORMATS)}.")
    check_target(path, "the picture", overwrite)
    metadata = {("Software" if suffix == ".png" else "Creator"): CREATOR}
    write_file(path, "the picture", lambda file: figure.savefig(file, format=suffix[1:], metadata=metadata), overwrite)


def plot_schedule(schedule: Schedule, target: AnyPath, overwrite: Overwrite = "own") -> None:
    """Draw a schedule: rounds from left to right, ranks from top to bottom, an arrow per transfer.

    Circuits without data are grey, transfers that the receiver adds to its data red, others blue.

    Args:
        schedule: The schedule.
        target: File name that ends in .png, .svg or .pdf.
        overwrite: Which existing files may be overwritten.

    Raises:
        ConfigError: matplotlib is missing, the schedule has too many rounds, or the picture cannot be written.
    """
    arrows = sum(len(round_.circuits) for round_ in schedule.rounds)
    for count, quantity, maximum in ((len(schedule.rounds), "rounds", _MAX_ROUNDS), (arrows, "circuits", _MAX_ARROWS)):
        if count > maximum:
            raise ConfigError(f"a picture can show {maximum} {quantity}, not {count}", hint="Use fewer ranks.")
    figure = new_figure(2.0 + 0.35 * max(len(schedule.rounds), 6), 1.5 + 0.16 * max(schedule.ranks, 8))
    axes = figure.subplots()
    for number, round_ in enumerate(schedule.rounds):
        sent = {(transfer.source, transfer.target): transfer.adds for transfer in round_.transfers}
        # Spread arrows within the round, so that they do not hide each other.
        for i, (a, b) in enumerate(round_.circuits):
            x = number + 0.8 * (i + 0.5) / len(round_.circuits) - 0.4
            colour = {None: "0.8", True: "tab:red", False: "tab:blue"}[sent.get((a, b))]
            axes.annotate("", (x, b), (x, a), arrowprops={"arrowstyle": "->", "color": colour, "shrinkA": 0, "lw": 0.8})
    axes.set_xlim(-0.6, len(schedule.rounds) - 0.4)
    axes.set_ylim(schedule.ranks - 0.5, -0.5)
    axes.set_xlabel("round")
    axes.set_ylabel("rank")
    title = f"{one_line(schedule.name)}, {schedule.ranks} ranks: {len(schedule.rounds)} rounds"
    axes.set_title(title.replace("$", r"\$"), fontsize="small")
    for number in range(1, len(schedule.rounds)):
        axes.axvline(number - 0.5, color="0.9", linewidth=0.5)
    save_figure(figure, target, overwrite)


def plot_costs(
    schedules: Sequence[Schedule], model: CostModel, buffer_bytes: float, target: AnyPath, overwrite: Overwrite = "own"
) -> None:
    """Draw the duration of schedules over the dark time of a circuit change; that of fixed circuits in grey.

    Args:
        schedules: The schedules.
        model: The fabric; its dark time is marked.
        buffer_bytes: Size of one rank's buffer.
        target: File name that ends in .png, .svg or .pdf.
        overwrite: Which existing files may be overwritten.

    Raises:
        ConfigError: matplotlib is missing, or the picture cannot be written.
    """
    figure = new_figure(7.0, 4.5)
    axes = figure.subplots()
    deltas_s = np.logspace(-7.0, 0.0, 141)
    own = [(cost_of(schedule), schedule.ranks) for schedule in schedules]
    fixed = [(best_static(schedule, model, buffer_bytes), schedule.ranks) for schedule in schedules]
    names = {cost.name for cost, _ in own}
    references = {cost.name: (cost, ranks) for cost, ranks in fixed if cost is not None and cost.name not in names}
    for (cost, ranks), colour in [*((item, None) for item in own), *((item, "0.6") for item in references.values())]:
        times_s = [cost.time_s(model.with_delta_s(float(delta_s)), buffer_bytes) for delta_s in deltas_s]
        label = f"{one_line(cost.name)}, {ranks} ranks".replace("$", r"\$")
        axes.loglog(deltas_s, times_s, label=label, color=colour, linestyle="--" if colour else "-")
    if model.delta_s > 0.0:
        axes.axvline(model.delta_s, color="0.8", linewidth=1.0)
    axes.set_xlabel("dark time of a change (s)")
    axes.set_ylabel(f"time for {size_text(buffer_bytes)} per rank (s)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    save_figure(figure, target, overwrite)


def plot_served(decomposition: Decomposition, target: AnyPath, overwrite: Overwrite = "own") -> None:
    """Draw the served fraction of a demand over the number of configurations, as a .png, .svg or .pdf file.

    Raises:
        ConfigError: matplotlib is missing, or the picture cannot be written.
    """
    figure = new_figure(6.0, 3.5)
    axes = figure.subplots()
    total = max(decomposition.demand.total_bytes, 1)
    axes.plot([100.0 * served / total for served in decomposition.served_after_bytes], marker=".", markersize=3.0)
    axes.set_xlabel("configurations")
    axes.set_ylabel("served (%)")
    axes.set_ylim(0.0, 102.0)
    axes.grid(alpha=0.3)
    save_figure(figure, target, overwrite)


def plot_iteration(plan: PhasePlan, times: IterationTimes, target: AnyPath, overwrite: Overwrite = "own") -> None:
    """Draw one iteration: a bar per phase on each port it uses, and black bars where a port is dark.

    Args:
        plan: The plan.
        times: Modelled or measured times.
        target: File name that ends in .png, .svg or .pdf.
        overwrite: Which existing files may be overwritten.

    Raises:
        ConfigError: matplotlib is missing, or the picture cannot be written.
    """
    require_plots()
    lanes = ["phase", *(port for name in plan.modules for port in (f"{name}>", f">{name}"))]
    row = {lane: number for number, lane in enumerate(lanes)}
    from matplotlib.patches import Patch

    figure = new_figure(9.0, 1.6 + 0.28 * len(lanes))
    axes = figure.subplots()
    unit, scale = ("s", 1.0) if times.total_s >= 1.0 else ("ms", 1e3)
    for number, (phase, start_s) in enumerate(zip(plan.phases, times.starts_s, strict=True)):
        ports = [port for a, b in phase.circuits for port in (f"{a}>", f">{b}")]
        for lane in ("phase", *ports):
            width = scale * phase.duration_s
            axes.barh(row[lane], width, left=scale * start_s, height=0.8, color=f"C{number % 10}", alpha=0.7)
        axes.text(scale * (start_s + 0.5 * phase.duration_s), 0, phase.tag, ha="center", va="center", fontsize="small")
    for span in times.dark:
        # A span that begins in the previous iteration is drawn at the end, where the next one begins.
        for shift_s in (0.0, times.total_s):
            start_s = max(span.starts_s + shift_s, 0.0)
            end_s = min(span.ends_s + shift_s, times.total_s)
            if start_s < end_s:
                axes.barh(row[span.port], scale * (end_s - start_s), left=scale * start_s, height=0.8, color="black")
    labels = ["phase", *(text for name in plan.modules for text in (f"{name} sends", f"{name} receives"))]
    axes.set_yticks(range(len(lanes)), [one_line(label).replace("$", r"\$") for label in labels])
    axes.set_ylim(len(lanes) - 0.5, -0.5)
    axes.set_xlim(0.0, scale * times.total_s)
    used = Patch(facecolor="0.6", label="port in use (colour of its phase)")
    axes.legend(
        handles=[used, Patch(facecolor="black", label="dark: the port changes its partner")],
        fontsize="small",
        loc="upper left",
        bbox_to_anchor=(0.0, -0.18),
        ncols=2,
        frameon=False,
    )
    axes.set_xlabel(f"time ({unit})")
    share = 100.0 * times.waiting_share
    axes.set_title(f"{one_line(plan.job)}: one iteration, {share:.2f} % of it waiting for circuits", fontsize="small")
    save_figure(figure, target, overwrite)
