"""A recorded HDF5 file as a picture: one panel per unit, time along it. Needs matplotlib, the extra ``plots``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lumion_hw.acquisition.columns import State, choose
from lumion_hw.acquisition.hdf5 import require_hdf5
from lumion_hw.bench.files import writing
from lumion_hw.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".png", ".svg", ".pdf")
_PANEL_IN = (9.0, 2.6)


@dataclass(frozen=True, eq=False)
class Recorded:
    """One column of a file.

    Attributes:
        name: ``device.quantity``.
        unit: Its unit.
        value: Shape ``(rows,)``, NaN where there is no number.
        state: Shape ``(rows,)``, numbers of :class:`State`.
    """

    name: str
    unit: str
    value: NDArray[np.float64]
    state: NDArray[np.uint8]


def require_plots() -> None:
    """Raise ``ConfigError`` with the command that helps, if matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ConfigError("pictures of recordings need matplotlib", hint="pip install 'lumion-hw[plots]'") from error


def read_recording(source: Path, patterns: Sequence[str] = ("*",)) -> tuple[str, NDArray[np.float64], list[Recorded]]:
    """Return the bench's name, the times in s and the chosen columns of an HDF5 file that ``lumion log`` has written.

    Raises:
        ConfigError: The file is none of these, or a pattern fits none of its columns.
    """
    require_hdf5()
    import h5py

    try:
        with h5py.File(source) as file:
            groups = {name: item for name, item in file.items() if isinstance(item, h5py.Group)}
            chosen = choose(patterns, {name: name.partition(".")[0] for name in groups})
            columns = [
                Recorded(name, str(groups[name].attrs["unit"]), groups[name]["value"][:], groups[name]["state"][:])
                for name in chosen
            ]
            return str(file.attrs["bench"]), np.asarray(file["time_s"], dtype=np.float64), columns
    except (OSError, KeyError) as error:
        raise ConfigError(
            f"{source} is no recording: {error}", hint="Name an HDF5 file that `lumion log` has written."
        ) from error


def plot(source: Path, target: Path, patterns: Sequence[str] = ("*",)) -> int:
    """Draw a recording, all or nothing, and return how many columns are in the picture.

    Values that are no number leave a gap; a mark at the foot of the panel says so, red where reading failed.

    Raises:
        ConfigError: An extra is missing, the file is no recording, or the picture cannot be written.
    """
    require_plots()
    if target.suffix.lower() not in FORMATS:
        raise ConfigError(f"{target}: no such kind of picture", hint=f"Name it with {', '.join(FORMATS)}.")
    bench, time_s, columns = read_recording(source, patterns)
    from matplotlib.figure import Figure

    units = list(dict.fromkeys(column.unit for column in columns))
    figure = Figure(figsize=(_PANEL_IN[0], _PANEL_IN[1] * len(units) + 0.6), layout="constrained")
    panels = figure.subplots(len(units), 1, sharex=True, squeeze=False)[:, 0]
    for panel, unit in zip(panels, units, strict=True):
        for column in columns:
            if column.unit == unit:
                _draw(panel, time_s, column)
        panel.set_ylabel(unit)
        panel.grid(alpha=0.3)
        panel.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="small", frameon=False)
    panels[-1].set_xlabel("time (s)")
    figure.suptitle(f"{bench}: {source.name}")
    with writing("the picture", target):
        figure.savefig(target)
    return len(columns)


def _draw(panel: Axes, time_s: NDArray[np.float64], column: Recorded) -> None:
    """Draw one column: a line with gaps, and marks at the foot of the panel where there is no number."""
    (line,) = panel.plot(time_s, column.value, label=column.name, linewidth=1.0, marker=".", markersize=2.0)
    failed = column.state == State.FAILED
    for where, colour in ((failed, "red"), ((column.state != State.OK) & ~failed, line.get_color())):
        if not where.any():
            continue
        foot = panel.get_xaxis_transform()
        panel.plot(time_s[where], np.zeros(int(where.sum())), "|", color=colour, transform=foot, clip_on=False)
