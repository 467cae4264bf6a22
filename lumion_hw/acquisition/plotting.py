"""Plots of recordings over time, with one panel per unit. Needs matplotlib (optional dependency ``plots``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lumion_hw.acquisition.columns import State
from lumion_hw.acquisition.recording import RecordedColumn, read_recording
from lumion_hw.errors import ConfigError
from lumion_hw.files import AnyPath
from lumion_hw.files.escaping import one_line
from lumion_hw.files.own_files import CREATOR
from lumion_hw.files.writing import Overwrite, check_target, write_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CREATOR_KEYS = {".png": "Software", ".svg": "Creator", ".pdf": "Creator"}
FORMATS = tuple(_CREATOR_KEYS)
_MAX_PANELS = 24
_PANEL_IN = (8.0, 3.2)
_NAMES_PER_COLUMN, _MAX_NAMES = 15, 45
"""Names in one column of a legend, as many as a panel is high, and in the whole legend."""
_COLUMN_IN = 1.7
_LINE_STYLES = ("-", "--", ":", "-.")


def require_plots() -> None:
    """Raise ``ConfigError`` with an install command if matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ConfigError("pictures of recordings need matplotlib", hint="pip install 'lumion-hw[plots]'") from error


def plot(source: AnyPath, target: AnyPath, patterns: Sequence[str] = ("*",), overwrite: Overwrite = "own") -> int:
    """Draw a recording and return the number of columns in the picture.

    A mark at the bottom of the panel shows a missing value, in red if reading failed.

    Args:
        source: The HDF5 file or journal.
        target: The picture file.
        patterns: Names of columns, with shell wildcards.
        overwrite: Which existing files to overwrite.

    Raises:
        ConfigError: An optional dependency is missing, the file is not a recording, or the picture cannot be written.
    """
    source, target = Path(source), Path(target)
    require_plots()
    check_format(target)
    check_target(target, "the picture", overwrite)
    recording = read_recording(source, patterns)
    time_s, columns = recording.time_s, recording.columns
    units = list(dict.fromkeys(column.unit for column in columns))
    if len(units) > _MAX_PANELS:
        raise ConfigError(
            f"{source} has columns in {len(units)} physical units; a picture has a panel per physical unit and at most "
            f"{_MAX_PANELS} panels",
            hint="Select fewer channels.",
        )
    by_unit = [[column for column in columns if column.unit == unit] for unit in units]
    figure, panels = new_figure(len(units), max(map(len, by_unit)), share_x=True)
    for panel, unit, lines in zip(panels, units, by_unit, strict=True):
        for column in lines:
            _draw(panel, time_s, column)
        panel.set_ylabel(plain_text(unit))
        panel.grid(alpha=0.3)
        add_legend(panel)
    panels[-1].set_xlabel("time (s)")
    figure.suptitle(plain_text(f"{recording.header.bench}: {source.name}"))
    save_figure(figure, target, overwrite)
    return len(columns)


def new_figure(n_panels: int = 1, n_names: int = 0, *, share_x: bool = False) -> tuple[Figure, list[Axes]]:
    """Return a new figure and its panels, stacked vertically, with room for a legend of ``n_names`` names each.

    Lines of a panel that have the same colour have different styles.
    """
    from cycler import cycler
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    width_in = _PANEL_IN[0] + _COLUMN_IN * _legend_columns(n_names)
    figure = Figure(figsize=(width_in, _PANEL_IN[1] * n_panels + 0.4), layout="constrained")
    panels = list(figure.subplots(n_panels, 1, sharex=share_x, squeeze=False)[:, 0])
    for panel in panels:
        panel.set_prop_cycle(cycler(linestyle=_LINE_STYLES) * rcParams["axes.prop_cycle"])
    return figure, panels


def add_legend(panel: Axes) -> None:
    """Add a legend to the right of a panel, where it covers no data; it counts the names for which it has no room."""
    lines, names = panel.get_legend_handles_labels()
    if len(names) > _MAX_NAMES:
        n_named = _MAX_NAMES - 1
        lines, names = lines[:n_named], [*names[:n_named], f"and {len(names) - n_named} more"]
        lines.append(panel.plot([], [], linestyle="none")[0])
    panel.legend(
        lines,
        names,
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        ncols=_legend_columns(len(names)),
        fontsize="small",
        frameon=False,
    )


def _legend_columns(n_names: int) -> int:
    return -(-min(n_names, _MAX_NAMES) // _NAMES_PER_COLUMN)


def save_figure(figure: Figure, target: Path, overwrite: Overwrite) -> None:
    """Write a figure to a file. Raises ``ConfigError`` for a format that is not in :data:`FORMATS`."""
    check_format(target)
    suffix = target.suffix.lower()
    metadata = {_CREATOR_KEYS[suffix]: CREATOR}
    write_file(
        target, "the picture", lambda path: figure.savefig(path, format=suffix[1:], metadata=metadata), overwrite
    )


def check_format(target: Path) -> None:
    """Raise ``ConfigError`` for a format that is not in :data:`FORMATS`."""
    if target.suffix.lower() not in FORMATS:
        raise ConfigError(f"{target}: unknown picture format", hint=f"Use a file name ending in {', '.join(FORMATS)}.")


def plain_text(text: str) -> str:
    """Return text that matplotlib shows literally: no formulas, and no leading ``_`` (would hide a legend entry)."""
    return one_line(text).replace("$", r"\$").removeprefix("_")


def _draw(panel: Axes, time_s: NDArray[np.float64], column: RecordedColumn) -> None:
    (line,) = panel.plot(time_s, column.value, label=plain_text(column.name), linewidth=1.0, marker=".", markersize=2.0)
    failed = column.state == State.FAILED
    for where, colour in ((failed, "red"), ((column.state != State.OK) & ~failed, line.get_color())):
        if not where.any():
            continue
        transform = panel.get_xaxis_transform()
        panel.plot(time_s[where], np.zeros(int(where.sum())), "|", color=colour, transform=transform, clip_on=False)
