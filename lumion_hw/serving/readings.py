"""Periodic reading of all devices of a bench, with one thread per device."""

from __future__ import annotations

import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from lumion_hw.acquisition.columns import FAILED, Column, Reader, State, Value, select_names
from lumion_hw.acquisition.settings import Setting, Settings, SettingValue
from lumion_hw.bench.bench import Bench
from lumion_hw.bench.controller_faults import latched_faults
from lumion_hw.clock import Clock, SystemClock
from lumion_hw.errors import ConfigError, ConnectError, LinkError, LinkLost, LumionError, UnknownNameError
from lumion_hw.interfaces import Fault, MeshController
from lumion_hw.remote.roles import find_interface
from lumion_hw.serving.state import AlarmSeverity, Point

_READ_PERIOD_S = 0.4
"""Reading period of a device; slow devices are read less often."""
_REFRESH_PAUSE_S = 0.25
"""Time after a reading that a client waited for in which the device is not read for other purposes."""
_LONGEST_PAUSE_S = 2.0
"""Longest time in which the other readings of such a device are not read."""
_SETTINGS_PERIOD_S = 5.0
"""Period of reading all settings, which may be changed at the front panel."""
_STOP_TIMEOUT_S = 1.0
STALE_S = 0.7
"""Silence after which the values of a device are stale."""
_SLOW_DEVICE_FACTOR = 2.5
"""Values of a slow device are stale after this multiple of its reading time, if longer than ``STALE_S``."""

_ALARMS: Mapping[State, tuple[AlarmSeverity, str]] = {
    State.OK: (AlarmSeverity.NONE, ""),
    State.OVER_RANGE: (AlarmSeverity.MAJOR, "over range"),
    State.UNDER_RANGE: (AlarmSeverity.MINOR, "under range"),
    State.DARK: (AlarmSeverity.MINOR, "dark"),
    State.NO_SIGNAL: (AlarmSeverity.MINOR, "no signal"),
    State.INCONSISTENT: (AlarmSeverity.MAJOR, "inconsistent"),
    State.FAILED: (AlarmSeverity.INVALID, "could not be read"),
}


MEASURED = ".measured"
"""Ending of the name of a module's reading if a setting has the same name."""


class DeviceReadings:
    """Readings and settings of one device.

    Args:
        device: Name of the device in the bench file.
        columns: Whether the device has readings.
        settings: Whether the device has settings.
        clock: Clock for the silence of the device.
        wall_s: Returns the time of day, in seconds since 1970.
    """

    def __init__(
        self, bench: Bench, device: str, columns: bool, settings: bool, clock: Clock, wall_s: Callable[[], float]
    ) -> None:
        self._bench, self._device = bench, device
        self._clock, self._wall_s = clock, wall_s
        self._reader = Reader(bench, (device,)) if columns else None
        self._part_readers: dict[tuple[str, ...], Reader] = {}
        self._refreshed_s = self._updated_s = -np.inf
        self.settings: Mapping[str, Setting] = Settings(bench, (device,)) if settings else {}
        self._limits = {name: _limits_or_none(setting) for name, setting in self.settings.items()}
        self._guard, self._settings_guard = threading.Lock(), threading.Lock()
        columns_read = () if self._reader is None else self._reader.columns
        # The launched power of a module has the name of its setting in recordings; here it is a point of its own.
        both = {column.name for column in columns_read} & set(self.settings) if device in bench.transponders else set()
        self._names = {column.name: column.name + MEASURED * (column.name in both) for column in columns_read}
        self._points = {
            self._names[column.name]: _unread_point(self._names[column.name], column.unit) for column in columns_read
        }
        self._points |= {name: self._setting(setting, None, 0.0) for name, setting in self.settings.items()}
        self._settings_read_s = -np.inf
        self._last_reply_s = self._clock.now()
        self._settings_read: tuple[Mapping[str, SettingValue], float] | None = None
        self._active_settings: Mapping[str, SettingValue] = {}
        self._failure = ""
        self._error: Exception | None = None
        self._open_error = ""
        self._read_time_s = 0.0
        self._silence_reported = False

    def update(self) -> float:
        """Read the device once and return the duration in seconds. After a failure the old values remain."""
        began_s = self._clock.now()
        failure = self._check_restored() if self._failure else None
        if failure is not None:
            self.failed(failure)
            return self._clock.now() - began_s
        if self._reader is not None:
            failure = self._read_points(self._reader)
        is_due = self._reader is None or began_s - self._settings_read_s > _SETTINGS_PERIOD_S
        if self.settings and is_due and not isinstance(failure, LinkError):
            failure = self.read_settings()
        self._updated_s = self._clock.now()
        duration_s = self._updated_s - began_s
        self._record_outcome(failure if isinstance(failure, LinkError) else None, duration_s)
        return duration_s

    @property
    def readings(self) -> tuple[str, ...]:
        """Names of all readings of the device."""
        return tuple(self._names.values())

    def refresh(self, names: Collection[str]) -> None:
        """Read only these readings of the device."""
        columns = tuple(column for column, name in self._names.items() if name in names)
        if columns not in self._part_readers:
            self._part_readers[columns] = Reader(self._bench, columns)
        failure = self._read_points(self._part_readers[columns])
        self._refreshed_s = self._clock.now()
        self._record_outcome(failure if isinstance(failure, LinkError) else None, self._read_time_s)

    @property
    def is_being_refreshed(self) -> bool:
        """Whether a client reads some readings again and again, so that reading all others can wait."""
        now_s = self._clock.now()
        return now_s - self._refreshed_s < _REFRESH_PAUSE_S and now_s - self._updated_s < _LONGEST_PAUSE_S

    def _read_points(self, reader: Reader) -> LumionError | None:
        points: dict[str, Point] = {}
        values = reader.read()
        failure = reader.failures.get(self._device)
        now_s = self._wall_s()
        for column, value in zip(reader.columns, values, strict=True):
            name = self._names[column.name]
            if value is not FAILED or failure is None:
                points[name] = dataclasses.replace(_reading(column, value, now_s), name=name)
            elif not isinstance(failure, LinkError):  # the device answers and gives the reason for no value
                alarm = str(failure)
                points[name] = Point(name, None, column.unit, None, False, now_s, AlarmSeverity.INVALID, alarm)
        with self._guard:
            self._points |= {name: point for name, point in points.items() if name not in self.settings}
        return failure

    def read_settings(self) -> LumionError | None:
        """Read the settings of the device; return the error if this failed."""
        settings = self.settings
        if not isinstance(settings, Settings):
            return None
        with self._settings_guard:  # otherwise a reply from before a change could overwrite a later reply
            self._settings_read_s = self._clock.now()
            values = settings.read(parts=True)
            failure = settings.failures.get(self._device)
            with self._guard:
                self._settings_read = values, self._wall_s()
                if failure is None:
                    self._active_settings = values
        return failure

    def _check_restored(self) -> LumionError | None:
        """Set up a device again that has lost power; return the error if it does not answer.

        The settings of the bench file are applied, which switch nothing on.
        """
        before, failure = self._active_settings, self.read_settings()
        if failure is not None or not before:
            return failure if isinstance(failure, LinkError) else None
        own = {name: setting for name, setting in self.settings.items() if not setting.part_of}
        try:
            other_values = [
                name
                for name, setting in own.items()
                if not setting.is_equivalent(before[name], self._active_settings[name])
            ]
            if other_values:
                self._bench.events.add("came back with other settings", device=self._device, settings=other_values)
                self._bench.model.devices[self._device].set_up(self._bench.devices[self._device])
                self.read_settings()
        except LumionError as error:
            self._active_settings = before  # the device still needs to be set up
            return error
        return None

    def _setting(self, setting: Setting, value: SettingValue, now_s: float) -> Point:
        text_for_none = setting.text_for_none or (setting.text_if_unused if now_s else "")
        unknown = value is None and not text_for_none
        return Point(
            setting.name,
            value,
            setting.unit,
            self._limits[setting.name],
            True,
            now_s,
            AlarmSeverity.INVALID if unknown else AlarmSeverity.NONE,
            "not set yet" if unknown else text_for_none if value is None else "",
            setting.choices,
            setting.kind.value,
        )

    def reopen(self) -> None:
        """Open the device again if its link was lost, and check its identity."""
        if not isinstance(self._error, LinkLost | ConnectError):
            return
        device: Any = self._bench.devices[self._device]
        try:
            if find_interface(device) != MeshController.__name__:  # it restores its session on its own
                device.close()
            device.open()
            self._open_error = ""
        except LumionError as error:
            self._open_error = str(error)  # the next read only reports that the device is not open

    def _record_outcome(self, failure: LumionError | None, duration_s: float) -> None:
        if failure is not None:
            self.failed(failure)
            return
        if self._silence_reported:
            self._bench.events.add("answers again", device=self._device)
        self._silence_reported = False
        self._last_reply_s, self._read_time_s, self._failure, self._error = self._clock.now(), duration_s, "", None

    def failed(self, error: Exception) -> None:
        """Record a read error; the device counts as silent when its last values are stale."""
        reason = self._open_error if isinstance(error, ConnectError) else ""
        self._error, self._failure = error, reason or str(error) or type(error).__name__
        if self.silent is not None and not self._silence_reported:
            self._silence_reported = True
            self._bench.events.add("silent", device=self._device, reason=self._failure)

    def points(self) -> dict[str, Point]:
        """Return all points (readings and settings) of the device, marked invalid if the device is silent."""
        with self._guard:
            if self._settings_read is not None:  # points are made here, so that a write of many heaters is not delayed
                values, read_s = self._settings_read
                self._points |= {
                    name: self._setting(self.settings[name], value, read_s) for name, value in values.items()
                }
                self._settings_read = None
            points = dict(self._points)
        return points if self.silent is None else {name: self._stale(point) for name, point in points.items()}

    def point(self, name: str) -> Point:
        """Return one point (reading or setting) of the device."""
        with self._guard:
            values, read_s = self._settings_read or ({}, 0.0)
            is_setting = name in values
            point = self._setting(self.settings[name], values[name], read_s) if is_setting else self._points[name]
        return point if self.silent is None else self._stale(point)

    def value(self, name: str) -> SettingValue:
        """Return the last value of a setting; ``None`` if it was never read."""
        with self._guard:
            values = {} if self._settings_read is None else self._settings_read[0]
            return values.get(name, self._active_settings.get(name))

    def _stale(self, point: Point) -> Point:
        silent_s = self._clock.now() - self._last_reply_s
        reason = f"no answer for {silent_s:.0f} s{f': {self._failure}' if self._failure else ''}"
        return dataclasses.replace(point, severity=AlarmSeverity.INVALID, alarm=reason)

    @property
    def silent(self) -> tuple[float, str] | None:
        """Start of the silence in seconds since 1970, and the reason; ``None`` while the device answers."""
        silent_s = self._clock.now() - self._last_reply_s
        if silent_s <= max(STALE_S, _SLOW_DEVICE_FACTOR * self._read_time_s):
            return None
        return self._wall_s() - silent_s, self._failure or "no answer"


class BenchReadings:
    """Readings and settings of all devices of a bench, each device read in its own thread.

    Args:
        clock: Clock for the silence of devices; by default the wall clock.
        wall_s: Returns the time of day, in seconds since 1970.
    """

    def __init__(self, bench: Bench, clock: Clock | None = None, wall_s: Callable[[], float] = time.time) -> None:
        self._bench, clock = bench, clock or SystemClock()
        columns = [column.device for column in Reader(bench).columns] if _has_columns(bench) else []
        settings = [setting.device for setting in Settings(bench).values()]
        names = [name for name in bench.model.devices if name in columns or name in settings]
        self._devices = {
            name: DeviceReadings(bench, name, name in columns, name in settings, clock, wall_s) for name in names
        }
        self._settings = {
            name: setting for device in self._devices.values() for name, setting in device.settings.items()
        }
        self._device_of = {name: device for device in self._devices.values() for name in device.points()}
        self._readings_by_name = {point: name for name, device in self._devices.items() for point in device.readings}
        section = bench.model.mesh
        self._controller = "" if section is None else section.controller
        self._faults: tuple[Fault, ...] = ()
        self._faults_guard = threading.Lock()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Latched faults of the mesh controller, as last read."""
        return self._faults

    def read_faults(self) -> None:
        """Read the latched faults of the mesh controller, and log new ones.

        Raises:
            LumionError: The controller does not answer.
        """
        faults = latched_faults(self._bench)
        with self._faults_guard:
            old_fault_ids = {fault.fault_id for fault in self._faults}
            new_faults = [fault for fault in faults if fault.fault_id not in old_fault_ids]
            changed, self._faults = faults != self._faults, faults
        for fault in new_faults:
            self._bench.events.add("fault latched", controller=self._controller, fault=str(fault))
        if changed:
            self.read_settings(self._controller)

    def start(self) -> None:
        """Start one reading thread per device."""
        for name, device in self._devices.items():
            thread = threading.Thread(
                target=self._read_until_stopped, args=(device,), name=f"lumion-read-{name}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def _read_until_stopped(self, device: DeviceReadings) -> None:
        while not self._stop.is_set():
            duration_s = self._read(device)
            self._stop.wait(max(_READ_PERIOD_S - duration_s, min(duration_s, _READ_PERIOD_S)))
            while device.is_being_refreshed and not self._stop.wait(_REFRESH_PAUSE_S / 5.0):
                pass  # a client waits for this device

    def _read(self, device: DeviceReadings) -> float:
        try:
            duration_s = device.update()
            if device is self._devices.get(self._controller):
                self.read_faults()
        except Exception as error:  # noqa: BLE001 - an error of one driver must not stop the others
            duration_s = _READ_PERIOD_S
            device.failed(error)
        device.reopen()
        return duration_s

    def update(self) -> None:
        """Read all devices once in this thread."""
        for device in self._devices.values():
            self._read(device)

    def stop(self) -> None:
        """Stop reading within a second. A second call has no effect."""
        self._stop.set()
        end_s = time.monotonic() + _STOP_TIMEOUT_S
        for thread in self._threads:
            thread.join(max(end_s - time.monotonic(), 0.0))
        self._threads.clear()

    def points(self) -> dict[str, Point]:
        """Return all points (readings and settings) by name, in the order of the bench file."""
        return {name: point for device in self._devices.values() for name, point in device.points().items()}

    def point(self, name: str) -> Point | None:
        """Return one point (reading or setting); ``None`` if the name is unknown."""
        device = self._device_of.get(name)
        return None if device is None else device.point(name)

    def silent(self) -> dict[str, tuple[float, str]]:
        """Return the silent devices by name: start of the silence in seconds since 1970, and the reason."""
        return {name: silence for name, device in self._devices.items() if (silence := device.silent) is not None}

    def refresh_light(self) -> Collection[str]:
        """Read all devices that measure light again, and return the names of all points."""
        bench = self._bench
        light_devices = [*bench.meters, *bench.polarimeters, *bench.transponders, *bench.mesh_states]
        light_devices += [bench.model.mesh.controller] if bench.model.mesh is not None else []
        devices = [device for name, device in self._devices.items() if name in light_devices and device.silent is None]
        bench.clock.run_parallel([device.update for device in devices])
        return self._device_of.keys()

    def select(self, patterns: Sequence[str]) -> tuple[str, ...]:
        """Return the names of readings that match the patterns; raises ``ConfigError`` with similar names."""
        return tuple(select_names(patterns, self._readings_by_name, "reading"))

    def refresh(self, names: Collection[str]) -> Collection[str]:
        """Read these readings again, each device in parallel, and return their names; skips silent devices."""
        devices = {self._device_of[name] for name in names}
        self._bench.clock.run_parallel(
            [functools.partial(device.refresh, names) for device in devices if device.silent is None]
        )
        return names

    def setting(self, name: str) -> Setting:
        """Return the setting with this name.

        Raises:
            ConfigError: The point is a reading and cannot be set.
            UnknownNameError: No point has this name.
        """
        if name in self._settings:
            return self._settings[name]
        if self.point(name) is not None:
            raise ConfigError(f"{name} is a reading and cannot be set", hint="Nothing was changed.")
        raise UnknownNameError(f"there is no reading or setting {name!r}", hint="See the list of served points.")

    def read_settings(self, device: str) -> LumionError | None:
        """Read the settings of a device, or of the controllers to which it belongs; return the error if this failed."""
        section = self._bench.model.mesh
        name = self._controller if section is not None and section.is_driven_by(device) else device
        return self._devices[name].read_settings() if name in self._devices else None

    def value(self, name: str) -> SettingValue:
        """Return the last value of a setting."""
        return self._device_of[name].value(name)


def _has_columns(bench: Bench) -> bool:
    try:
        Reader(bench)
    except ConfigError:
        return False
    return True


def _unread_point(name: str, unit: str) -> Point:
    return Point(name, None, unit, severity=AlarmSeverity.INVALID, alarm="not read yet")


def _reading(column: Column, value: Value, now_s: float) -> Point:
    severity, alarm = _ALARMS[value.state]
    number = value.number if value.state is State.OK else None
    return Point(column.name, number, column.unit, None, False, now_s, severity, alarm)


def _limits_or_none(setting: Setting) -> tuple[float, float] | None:
    try:
        limits: Any = setting.limits()
    except LumionError:
        return None
    if limits is None:
        return None
    low, high = (np.unique(np.asarray(limit, dtype=np.float64)) for limit in limits)
    if low.size != 1 or high.size != 1 or not np.isfinite([low[0], high[0]]).all():
        return None
    return float(low[0]), float(high[0])
