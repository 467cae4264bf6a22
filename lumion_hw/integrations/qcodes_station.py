"""A bench as a station of QCoDeS: one instrument per device."""

from __future__ import annotations

import re
from typing import Any

from lumion_hw.acquisition.columns import Column, Reader, State
from lumion_hw.acquisition.settings import Setting, SettingKind, Settings
from lumion_hw.bench.bench import Bench
from lumion_hw.errors import ConfigError, LumionError

try:
    from qcodes import validators
    from qcodes.instrument import Instrument
    from qcodes.station import Station
except ImportError as error:
    raise ConfigError("the QCoDeS instruments need qcodes", hint="pip install 'lumion-hw[qcodes]'") from error

MEASURED = "_measured"
"""Ending of the name of a reading if a setting has the same name."""


class _Limits(validators.Numbers):
    """Numbers within the limits of a setting, which are read from the device at every check.

    Args:
        setting: A number.
        low: Present lower limit, for display.
        high: Present upper limit, for display.
    """

    def __init__(self, setting: Setting, low: float, high: float) -> None:
        super().__init__(low, high)
        self._setting = setting

    def validate(self, value: Any, context: str = "") -> None:
        """Check a value. Raises ``LimitError`` or ``ConfigError``, which name the device, the limit and the unit."""
        self._setting.check(value)


class _Checked(validators.Validator[Any]):
    """Values that a setting allows."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting

    def validate(self, value: Any, context: str = "") -> None:
        """Check a value. Raises ``LimitError`` or ``ConfigError``."""
        self._setting.check(value)

    def __repr__(self) -> str:
        expected = ", ".join(self._setting.choices) or f"{self._setting.kind.value} {self._setting.shape or ''}".strip()
        return f"<{expected}>"


class BenchInstrument(Instrument):
    """One device of a bench. Closing it does not close the bench.

    Settings are parameters with unit and limits; a value beyond a limit raises ``LimitError`` and changes nothing.
    After a change of a setting the parameter waits until the light has settled. Readings are parameters that can only
    be read; without a number, such as in the dark, they are NaN.

    Args:
        bench: The open bench.
        device: Name of the device in the bench file.
        columns: Readings of the device.
        settings: Settings of the device by full name.
    """

    def __init__(self, bench: Bench, device: str, columns: list[Column], settings: dict[str, Setting]) -> None:
        super().__init__(_identifier(device), label=device)
        self._bench, self._device, self._settings = bench, device, settings
        self._readers: dict[str, Reader] = {}
        self._names = {name: _identifier(name.removeprefix(f"{device}.")) for name in settings}
        for name, setting in settings.items():
            self._add_setting(self._names[name], setting)
        for column in columns:
            name = _identifier(column.name.removeprefix(f"{device}."))
            self.add_parameter(
                name + MEASURED * (name in self.parameters),
                label=column.name,
                unit=column.unit,
                get_cmd=lambda column=column.name: self._read(column),
                set_cmd=False,
                snapshot_get=False,
            )

    def _add_setting(self, name: str, setting: Setting) -> None:
        self.add_parameter(
            name,
            label=setting.name,
            unit=setting.unit,
            vals=_validator(setting),
            get_cmd=setting.read,
            set_cmd=lambda value: self._write(setting, value),
        )

    def _write(self, setting: Setting, value: Any) -> None:
        setting.write(value)
        setting.wait_settled()

    def _read(self, column: str) -> float:
        if column not in self._readers:
            self._readers[column] = Reader(self._bench, [column])
        reader = self._readers[column]
        (value,) = reader.read()
        if value.state is State.FAILED and self._device in reader.failures:
            raise reader.failures[self._device]
        return value.number

    def snapshot_base(self, update: bool | None = False, params_to_skip_update: Any = None) -> dict[Any, Any]:
        """Return the snapshot; with ``update`` each part of the device is read once, not each parameter."""
        if update:
            settings = Settings(self._bench, (self._device,)) if self._settings else None
            values = {} if settings is None else settings.read(parts=True)
            for name, value in values.items():
                self.parameters[self._names[name]].cache.set(value)
            if settings is not None and (failure := settings.failures.get(self._device)) is not None:
                raise failure
        snapshot = super().snapshot_base(False, params_to_skip_update)
        # Not by `snapshot_exclude`, which makes QCoDeS warn when a parameter is swept.
        for name, setting in self._settings.items():
            if setting.part_of:  # the array that it is part of is in the snapshot
                del snapshot["parameters"][self._names[name]]
        return snapshot

    def get_idn(self) -> dict[str, str | None]:
        """Return kind and serial number from the bench file."""
        device = self._bench.model.devices[self._device]
        return {"vendor": None, "model": device.kind, "serial": getattr(device, "serial", None), "firmware": None}


def to_qcodes(bench: Bench) -> Station:
    """Return a station of QCoDeS with one instrument per device of an open bench.

    Names become identifiers: the setting ``mesh0.heater_ma.3`` is ``station.mesh0.heater_ma_3``, the device ``sfp-a``
    is ``station.sfp_a``. The bench must stay open.

    Args:
        bench: A bench that was opened, emulated or attached.

    Raises:
        ConfigError: qcodes is not installed.
        LumionError: A device does not answer.
    """
    station = Station(default=False)
    columns = _columns(bench)
    settings = Settings(bench)
    for device in bench.devices:
        own = {name: setting for name, setting in settings.items() if setting.device == device}
        readings = [column for column in columns if column.device == device]
        if own or readings:
            station.add_component(BenchInstrument(bench, device, readings, own))
    return station


def _columns(bench: Bench) -> tuple[Column, ...]:
    try:
        return Reader(bench).columns
    except ConfigError:  # a bench without readings
        return ()


def _validator(setting: Setting) -> validators.Validator[Any]:
    if setting.kind is SettingKind.FLAG:
        return validators.Bool()
    if setting.kind is not SettingKind.NUMBER:
        return _Checked(setting)
    try:
        low, high = setting.limits() or (-float("inf"), float("inf"))
    except LumionError:  # the limits are not known now; they are read again at every check
        low, high = -float("inf"), float("inf")
    return _Limits(setting, float(low), float(high))


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)
