"""What a scan found: readings and their states on the grid of what was swept, and all that belongs to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.acquisition.columns import State
from lumion_hw.acquisition.hdf5 import STATE
from lumion_hw.acquisition.journal import LogHeader, LogTable
from lumion_hw.acquisition.recording import read_recording
from lumion_hw.acquisition.scan_plan import SET, ScanPlan, SweptSetting
from lumion_hw.errors import ConfigError, UnknownNameError
from lumion_hw.files import AnyPath
from lumion_hw.files.frames import require_pandas, require_xarray

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.figure import Figure

READ = ".read"
"""What the name of a reading ends with in tables where a setting has the same name."""
_MOST_SHOWN = 12


@dataclass(frozen=True, eq=False)
class ScanData:
    """Data of a scan, complete or not; its dimensions are what was swept.

    Attributes:
        header: What it is about: bench, devices, settings before, calibration record, bench file, software, start.
        plan: What was swept.
        value: Readings by name, in the shape of the plan; NaN where there is no number.
        state: What each is, in the shape of the plan: numbers of :class:`State`, ``NOT_READ`` where no point is.
        unit: Units of the readings, by name.
        time_s: When each point was read, in s since the start; NaN where no point is.
        by_instrument: Which points a device has swept by itself; of these the time is that of the end of its sweep.
        setting_was: What settings were at every point, by name, where that says more than what was asked: the
            wavelengths that a laser logged while it swept; NaN where no point is.
    """

    header: LogHeader
    plan: ScanPlan
    value: Mapping[str, NDArray[np.float64]]
    state: Mapping[str, NDArray[np.uint8]]
    unit: Mapping[str, str]
    time_s: NDArray[np.float64]
    by_instrument: NDArray[np.bool_]
    setting_was: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)

    @classmethod
    def of(cls, header: LogHeader, table: LogTable) -> ScanData:
        """Put rows on their grid. Raises ``ConfigError`` for rows of something else than a scan."""
        plan = header.scan
        hint = "Name a file of `lumion scan`; `lumion plot` and read_recording() read those of `lumion log`."
        if plan is None:
            raise ConfigError("these are readings at a steady rate, and no scan", hint=hint)
        try:
            fits = all(len(setting.numbers) == axis.n_points for axis in plan.axes for setting in axis.settings)
        except ValueError:
            fits = False
        if not fits or (len(table.index) and int(table.index.max()) >= plan.n_points):
            raise ConfigError("the rows of this scan are not those of its plan", hint=hint)

        def on_grid(rows: NDArray[Any], empty: Any) -> NDArray[Any]:
            grid = np.full(plan.n_points, empty, dtype=rows.dtype)
            grid[table.index] = rows
            return grid.reshape(plan.shape)

        first = len(plan.settings) + 1
        readings = list(enumerate(header.columns))[first:]
        return cls(
            header,
            plan,
            {column.name: on_grid(table.value[:, at], np.nan) for at, column in readings},
            {column.name: on_grid(table.state[:, at], State.NOT_READ) for at, column in readings},
            {column.name: column.unit for _, column in readings},
            on_grid(table.time_s, np.nan),
            on_grid(table.value[:, first - 1] == 1.0, False),
            _not_as_asked(plan, [on_grid(table.value[:, at], np.nan) for at in range(len(plan.settings))]),
        )

    def __repr__(self) -> str:
        """Return one line."""
        axes = " x ".join(f"{axis.name} ({axis.n_points})" for axis in self.plan.axes)
        short = "" if self.complete else f", {self.n_read} of {self.plan.n_points} points"
        return f"<ScanData of {self.header.bench}: {len(self.value)} readings over {axes}{short}>"

    def _repr_html_(self) -> str:
        """Return axes and readings as tables for a notebook."""
        from lumion_hw.files.html import html_table

        rows = [
            (setting.name, axis.n_points, *_ends(setting.labels()), setting.unit)
            for axis in self.plan.axes
            for setting in axis.settings
        ]
        axes = html_table(repr(self)[1:-1], ("swept", "points", "from", "to", "unit"), rows)
        found = []
        for name in list(self.value)[:_MOST_SHOWN]:
            good = self.value[name][self.state[name] == State.OK]
            least, most = (f"{good.min():.6g}", f"{good.max():.6g}") if good.size else ("", "")
            found.append((name, good.size, least, most, self.unit[name]))
        return axes + html_table("Readings", ("channel", "numbers", "least", "most", "unit"), found)

    @property
    def n_read(self) -> int:
        """Points that are there."""
        return int(np.count_nonzero(~np.isnan(self.time_s)))

    @property
    def complete(self) -> bool:
        """Whether all points are there."""
        return self.n_read == self.plan.n_points

    @property
    def n_failed(self) -> int:
        """Readings that failed."""
        return sum(int(np.count_nonzero(state == State.FAILED)) for state in self.state.values())

    def setting(self, name: str = "") -> NDArray[Any]:
        """Return what a setting was at, shape ``(n,)`` of its axis.

        Args:
            name: Its name; may be left out if one alone had several values.

        Raises:
            ConfigError: It was not swept, or several were and none is named.
        """
        return self.swept(name)[1].labels()

    def swept(self, name: str = "") -> tuple[int, SweptSetting]:
        """Return the number of the axis of a setting, and the setting; arguments and errors as of :meth:`setting`."""
        known = {each.name: (at, each) for at, axis in enumerate(self.plan.axes) for each in axis.settings}
        moving = [each.name for axis in self.plan.axes if axis.n_points > 1 for each in axis.settings]
        if not name and len(moving) == 1:
            (name,) = moving
        if name not in known:
            said = f"{name!r} was not swept" if name else "several settings were swept, and none is named"
            raise UnknownNameError(said, hint=f"Name one of {', '.join(known)}.")
        return known[name]

    def to_xarray(self) -> xr.Dataset:
        """Return a labelled data set: dimensions are what was swept, states stand beside their readings.

        A reading of the same name as a swept setting ends with ``.read``; a coordinate that ends with ``.set`` is the
        wavelength that a laser logged while it swept.

        Raises:
            ConfigError: xarray is not installed.
        """
        xarray = require_xarray()
        dims = [axis.name for axis in self.plan.axes]
        coordinates: dict[str, Any] = {
            setting.name: (axis.name, setting.labels(), {"units": setting.unit} if setting.unit else {})
            for axis in self.plan.axes
            for setting in axis.settings
        }
        flags = {
            "flag_values": np.array(list(State), dtype=np.uint8),
            "flag_meanings": " ".join(state.name for state in State),
        }
        variables: dict[str, Any] = {}
        for name, plain in self._names().items():
            attributes = {"units": self.unit[name], "ancillary_variables": plain + STATE}
            variables[plain] = (dims, self.value[name], attributes)
            variables[plain + STATE] = (dims, self.state[name], flags)
        variables["time_s"] = (dims, self.time_s, {"units": "s", "start": self.header.started})
        variables["by_instrument"] = (dims, self.by_instrument)
        for name, found in self.setting_was.items():
            units = {"units": self.swept(name)[1].unit}
            coordinates[name + SET] = (dims, found, units)
        data: xr.Dataset = xarray.Dataset(variables, coords=coordinates, attrs=self._about())
        return data

    def to_pandas(self) -> pd.DataFrame:
        """Return a table: one row per point, one column per setting and reading, NaN where there is no number.

        Units are in ``attrs["units"]``, by column. A reading of the same name as a swept setting ends with ``.read``.

        Raises:
            ConfigError: pandas is not installed.
        """
        pandas = require_pandas()
        places = np.indices(self.plan.shape).reshape(len(self.plan.shape), -1)
        columns: dict[str, NDArray[Any]] = {
            setting.name: setting.labels()[at]
            for axis, at in zip(self.plan.axes, places, strict=True)
            for setting in axis.settings
        }
        names = self._names()
        columns |= {plain: self.value[name].ravel() for name, plain in names.items()}
        columns |= {name + SET: found.ravel() for name, found in self.setting_was.items()}
        columns |= {"time_s": self.time_s.ravel(), "by_instrument": self.by_instrument.ravel()}
        table: pd.DataFrame = pandas.DataFrame(columns)
        units = {setting.name: setting.unit for setting in self.plan.settings}
        units |= {plain: self.unit[name] for name, plain in names.items()}
        units |= {name + SET: units[name] for name in self.setting_was}
        table.attrs.update(self._about(), units=units)
        return table

    def plot(self, readings: Sequence[str] = ("*",), target: AnyPath | None = None) -> Figure:
        """Draw readings: lines over one setting, maps over two; of more, every combination of the slower is a line.

        Args:
            readings: Names of channels, wildcards allowed.
            target: The picture to write: .png, .svg or .pdf.

        Returns:
            The figure of matplotlib.

        Raises:
            ConfigError: matplotlib is not installed, a name fits nothing, or the picture cannot be written.
        """
        from lumion_hw.acquisition.scan_plot import draw_scan

        names = (readings,) if isinstance(readings, str) else readings
        return draw_scan(self.header, self.plan, self.value, self.unit, names, target)

    def _names(self) -> dict[str, str]:
        """Return what the readings are called beside the settings."""
        taken = {setting.name for setting in self.plan.settings}
        return {name: name + READ if name in taken else name for name in self.value}

    def _about(self) -> dict[str, Any]:
        header = self.header
        about = {"bench": header.bench, "started": header.started, "software": header.software}
        about |= {f"device.{name}": str(who) for name, who in header.devices.items()}
        if header.record is not None:
            about |= {
                "calibration_record": header.record.record_id,
                "calibration_record_sha256": header.record.content_sha256,
            }
        if header.bench_file is not None:
            about |= {"bench_file": header.bench_file.name, "bench_file_sha256": header.bench_file.sha256}
        return {key: text for key, text in about.items() if text}


def _not_as_asked(plan: ScanPlan, found: Sequence[NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    """Return what settings were, by name and in the shape of the plan, of those that were not what was asked."""
    asked = [(at, each) for at, axis in enumerate(plan.axes) for each in axis.settings]
    was = {}
    for (at, setting), numbers in zip(asked, found, strict=True):
        wanted = np.expand_dims(setting.numbers, [axis for axis in range(len(plan.shape)) if axis != at])
        if np.any((numbers != wanted) & ~np.isnan(numbers)):
            was[setting.name] = numbers
    return was


def _ends(labels: NDArray[Any]) -> tuple[object, object]:
    first, last = labels[0], labels[-1]
    return (f"{first:.9g}", f"{last:.9g}") if labels.dtype.kind == "f" else (first, last)


def load_scan(source: AnyPath) -> ScanData:
    """Read a scan: its HDF5 file, or the journal of one that is not complete.

    Args:
        source: The file, or its journal, as of :func:`~lumion_hw.acquisition.read_recording`.

    Raises:
        ConfigError: There is no such file, or it is no scan.
    """
    recorded = read_recording(source)
    value = np.stack([column.value for column in recorded.columns], axis=1)
    state = np.stack([column.state for column in recorded.columns], axis=1)
    return ScanData.of(recorded.header, LogTable(recorded.index, recorded.time_s, value, state))
