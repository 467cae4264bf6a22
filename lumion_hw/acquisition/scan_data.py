"""The data of a scan: readings over the swept settings, with metadata."""

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
"""Suffix of the name of a reading in tables if a swept setting has the same name."""
_MAX_LISTED = 12


@dataclass(frozen=True, eq=False)
class ScanData:
    """Data of a complete or interrupted scan, in arrays with one dimension per swept axis.

    Attributes:
        header: Metadata, such as devices, calibration record and settings before the scan.
        value: Readings by name, in the shape of the plan; NaN if there is no number.
        state: State of each reading by name, as numbers of :class:`State`, in the shape of the plan.
        time_s: Time of each point in s since the start; NaN for missing points.
        by_instrument: Whether an instrument swept the point. ``time_s`` is then the end of the sweep.
        setting_was: Actual values of settings that differ from the plan, by name, such as the wavelengths that a laser
            logged during a sweep. NaN for missing points.
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
        """Arrange the rows of a table on the grid of the scan.

        Raises ``ConfigError`` if the rows are not from a scan.
        """
        plan = header.scan
        hint = "Give a file of `lumion scan`; `lumion plot` and read_recording() read files of `lumion log`."
        if plan is None:
            raise ConfigError("this is a recording at a fixed rate, not a scan", hint=hint)
        try:
            is_consistent = all(
                len(setting.numbers) == axis.n_points for axis in plan.axes for setting in axis.settings
            )
        except ValueError:
            is_consistent = False
        if not is_consistent or (len(table.index) and int(table.index.max()) >= plan.n_points):
            raise ConfigError("the rows of this scan do not match its plan", hint=hint)

        def on_grid(rows: NDArray[Any], fill_value: Any) -> NDArray[Any]:
            grid = np.full(plan.n_points, fill_value, dtype=rows.dtype)
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
            _deviating_settings(plan, [on_grid(table.value[:, at], np.nan) for at in range(len(plan.settings))]),
        )

    def __repr__(self) -> str:
        axes = " x ".join(f"{axis.name} ({axis.n_points})" for axis in self.plan.axes)
        short = "" if self.complete else f", {self.n_read} of {self.plan.n_points} points"
        return f"<ScanData of {self.header.bench}: {len(self.value)} readings over {axes}{short}>"

    def _repr_html_(self) -> str:
        from lumion_hw.files.html import html_table

        rows = [
            (setting.name, axis.n_points, *_ends(setting.labels()), setting.unit)
            for axis in self.plan.axes
            for setting in axis.settings
        ]
        axes = html_table(repr(self)[1:-1], ("swept", "points", "from", "to", "unit"), rows)
        readings = []
        for name in list(self.value)[:_MAX_LISTED]:
            valid = self.value[name][self.state[name] == State.OK]
            lowest, highest = (f"{valid.min():.6g}", f"{valid.max():.6g}") if valid.size else ("", "")
            readings.append((name, valid.size, lowest, highest, self.unit[name]))
        return axes + html_table("Readings", ("channel", "numbers", "min", "max", "unit"), readings)

    @property
    def n_read(self) -> int:
        """Number of points that were read."""
        return int(np.count_nonzero(~np.isnan(self.time_s)))

    @property
    def complete(self) -> bool:
        """Whether all points were read."""
        return self.n_read == self.plan.n_points

    @property
    def n_failed(self) -> int:
        """Number of readings that failed."""
        return sum(int(np.count_nonzero(state == State.FAILED)) for state in self.state.values())

    def setting(self, name: str = "") -> NDArray[Any]:
        """Return the values of a swept setting along its axis, shape ``(values,)``.

        The name is needed only if several settings were swept.

        Raises:
            ConfigError: The setting was not swept, or no name is given although several settings were swept.
        """
        return self.swept(name)[1].labels()

    def swept(self, name: str = "") -> tuple[int, SweptSetting]:
        """Return the axis number and the swept setting; arguments and errors as for :meth:`setting`."""
        swept = {item.name: (number, item) for number, axis in enumerate(self.plan.axes) for item in axis.settings}
        moving = [item.name for axis in self.plan.axes if axis.n_points > 1 for item in axis.settings]
        if not name and len(moving) == 1:
            (name,) = moving
        if name not in swept:
            problem = f"{name!r} was not swept" if name else "several settings were swept, so a name is needed"
            raise UnknownNameError(problem, hint=f"Give one of {', '.join(swept)}.")
        return swept[name]

    def to_xarray(self) -> xr.Dataset:
        """Return the data as an xarray data set with one dimension per axis; states are separate variables.

        A reading with the same name as a swept setting has the suffix ``.read``. A coordinate with the suffix ``.set``
        contains the wavelengths that a laser logged during the sweep.

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
        for name, values in self.setting_was.items():
            units = {"units": self.swept(name)[1].unit}
            coordinates[name + SET] = (dims, values, units)
        data: xr.Dataset = xarray.Dataset(variables, coords=coordinates, attrs=self._about())
        return data

    def to_pandas(self) -> pd.DataFrame:
        """Return the data as a table with one row per point and one column per setting and reading; NaN if missing.

        Units are in ``attrs["units"]``, by column. A reading with the same name as a swept setting has the suffix
        ``.read``.

        Raises:
            ConfigError: pandas is not installed.
        """
        pandas = require_pandas()
        positions = np.indices(self.plan.shape).reshape(len(self.plan.shape), -1)
        columns: dict[str, NDArray[Any]] = {
            setting.name: setting.labels()[at]
            for axis, at in zip(self.plan.axes, positions, strict=True)
            for setting in axis.settings
        }
        names = self._names()
        columns |= {plain: self.value[name].ravel() for name, plain in names.items()}
        columns |= {name + SET: values.ravel() for name, values in self.setting_was.items()}
        columns |= {"time_s": self.time_s.ravel(), "by_instrument": self.by_instrument.ravel()}
        table: pd.DataFrame = pandas.DataFrame(columns)
        units = {setting.name: setting.unit for setting in self.plan.settings}
        units |= {plain: self.unit[name] for name, plain in names.items()}
        units |= {name + SET: units[name] for name in self.setting_was}
        table.attrs.update(self._about(), units=units)
        return table

    def plot(self, readings: Sequence[str] = ("*",), target: AnyPath | None = None) -> Figure:
        """Draw readings: as lines for one axis, as maps for two; for more axes one line per point of the slower axes.

        Args:
            readings: Channel names with wildcards.
            target: File of the figure to write: .png, .svg or .pdf.

        Raises:
            ConfigError: matplotlib is not installed, a name matches nothing, or the figure cannot be written.
        """
        from lumion_hw.acquisition.scan_plot import draw_scan

        names = (readings,) if isinstance(readings, str) else readings
        return draw_scan(self.header, self.plan, self.value, self.unit, names, target)

    def _names(self) -> dict[str, str]:
        setting_names = {setting.name for setting in self.plan.settings}
        return {name: name + READ if name in setting_names else name for name in self.value}

    def _about(self) -> dict[str, Any]:
        header = self.header
        about = {"bench": header.bench, "started": header.started, "software": header.software}
        about |= {f"device.{name}": str(identity) for name, identity in header.devices.items()}
        if header.record is not None:
            about |= {
                "calibration_record": header.record.record_id,
                "calibration_record_sha256": header.record.content_sha256,
            }
        if header.bench_file is not None:
            about |= {"bench_file": header.bench_file.name, "bench_file_sha256": header.bench_file.sha256}
        return {key: text for key, text in about.items() if text}


def _deviating_settings(plan: ScanPlan, actual: Sequence[NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    planned = [(number, item) for number, axis in enumerate(plan.axes) for item in axis.settings]
    was = {}
    for (number, setting), numbers in zip(planned, actual, strict=True):
        expected = np.expand_dims(setting.numbers, [axis for axis in range(len(plan.shape)) if axis != number])
        if np.any((numbers != expected) & ~np.isnan(numbers)):
            was[setting.name] = numbers
    return was


def _ends(labels: NDArray[Any]) -> tuple[object, object]:
    first, last = labels[0], labels[-1]
    return (f"{first:.9g}", f"{last:.9g}") if labels.dtype.kind == "f" else (first, last)


def load_scan(source: AnyPath) -> ScanData:
    """Read the data of a scan from its HDF5 file, or from the journal of an incomplete scan.

    Raises:
        ConfigError: The file does not exist, or it is not a scan.
    """
    recorded = read_recording(source)
    value = np.stack([column.value for column in recorded.columns], axis=1)
    state = np.stack([column.state for column in recorded.columns], axis=1)
    return ScanData.of(recorded.header, LogTable(recorded.index, recorded.time_s, value, state))
