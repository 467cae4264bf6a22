"""The settings of a bench that can be set and read back, named ``device.setting`` or ``device.setting.channel``.

Values outside the limits of a device are refused, not clipped. Quantities that cannot be read back are not settings.
"""

from __future__ import annotations

import contextlib
import enum
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from lumion_hw.acquisition.columns import concerns, raise_silent, select_names
from lumion_hw.bench.bench import Bench
from lumion_hw.bench.mesh_access import MeshAccess
from lumion_hw.errors import (
    ConfigError,
    DeviceError,
    LimitError,
    LumionError,
    NotSupportedError,
    UnknownNameError,
    name_hint,
)
from lumion_hw.interfaces import (
    CoherentTransponder,
    OpticalAmplifier,
    OpticalSwitch,
    Polarimeter,
    PolarizationController,
    PowerMeter,
    SpectrumAnalyzer,
    SpectrumSettings,
    TemperatureController,
    Transponder,
    TransponderSettings,
    TunableLaser,
    VariableAttenuator,
)
from lumion_hw.links.owner import fork_safe
from lumion_hw.quantities import frequency_hz_from_wavelength_m

_SLACK = 1e-9  # relative rounding error of a limit in THz converted to nm and back
_READY_S = 120.0
"""Longest time until a laser has reached a new setting; the slowest, an ITLA, may take almost a minute."""


class SettingKind(enum.Enum):
    """Type of the value of a setting."""

    NUMBER = "number"
    FLAG = "flag"
    CHOICE = "choice"
    ARRAY = "array"


SettingValue = float | bool | str | NDArray[np.float64] | None
"""A number, a flag, a choice, or numbers of shape ``(n,)``. ``None`` is allowed if :attr:`Setting.text_for_none` is not
empty.
"""
_Limits = tuple[float, float] | tuple[NDArray[np.float64], NDArray[np.float64]]


def _no_limits() -> None: ...


def _no_wait() -> None: ...


def _no_step() -> float:
    return 0.0


@dataclass(frozen=True, eq=False)
class Setting:
    """One setting of a device, which can be read back.

    Attributes:
        name: ``device.setting``, or ``device.setting.channel`` for devices with several channels.
        device: Name of the device in the bench file.
        unit: Unit of the value; empty for flags and choices.
        shape: Shape of an array; empty otherwise.
        choices: Valid values of a choice.
        numbers: Valid values of a number that has only a few, such as the outputs of a switch; empty for all others.
        text_for_none: Meaning of the value ``None``, such as ``automatic``; empty if ``None`` is not allowed.
        text_if_unused: Meaning of the value ``None`` if a device can have it, but nobody can set it; empty if it only
            means that the value is not known.
        part_of: Name of the setting that contains the same value: an array with this setting as an element, or the same
            quantity in another unit. Otherwise empty.
        element: Index in the array ``part_of``, from 0; ``None`` without such an array.
        switches: ``light`` if this setting switches a source on and off; ``supply`` if the device accepts other
            settings only while this one is on.
    """

    name: str
    device: str
    unit: str
    kind: SettingKind
    _read: Callable[[], Any] = field(repr=False)
    _pick: Callable[[Any], SettingValue] = field(repr=False)
    _write: Callable[[Any], object] = field(repr=False)
    _limits: Callable[[], _Limits | None] = field(default=_no_limits, repr=False)
    _settle: Callable[[], object] = field(default=_no_wait, repr=False)
    _step: Callable[[], float | NDArray[np.float64]] = field(default=_no_step, repr=False)
    shape: tuple[int, ...] = ()
    choices: tuple[str, ...] = ()
    numbers: tuple[float, ...] = ()
    text_for_none: str = ""
    text_if_unused: str = ""
    part_of: str = ""
    element: int | None = None
    switches: Literal["", "light", "supply"] = ""

    def read(self) -> SettingValue:
        """Read the present value; ``None`` if it was never set. Raises the errors of the device."""
        return self._pick(self._read())

    def limits(self) -> _Limits | None:
        """Read the lowest and highest allowed value; ``None`` if there are no limits.

        The limits of an array are arrays if they differ between elements.
        """
        return self._limits()

    def write(self, value: SettingValue) -> None:
        """Set a value and verify that the device has accepted it.

        Raises:
            ConfigError: The value has the wrong type or shape, or is not one of the choices; nothing was sent.
            LimitError: The value is outside the limits; nothing was changed.
            LumionError: Another error of the device.
        """
        self._write(self._checked(value))

    def check(self, value: SettingValue) -> None:
        """Check a value without setting it.

        Raises:
            ConfigError: The value has the wrong type or shape, or is not one of the choices.
            LimitError: The value is outside the limits or not finite.
        """
        checked: Any = self._checked(value)
        if checked is None or self.kind in (SettingKind.FLAG, SettingKind.CHOICE):
            return
        low, high = self.limits() or (-np.inf, np.inf)
        slack = _SLACK * np.abs(checked)
        is_valid = np.isfinite(checked) & (checked >= low - slack) & (checked <= high + slack)
        if not np.all(is_valid):
            first = np.unravel_index(np.argmin(is_valid), np.shape(checked))
            number, lowest, highest = (
                float(np.broadcast_to(values, np.shape(checked))[first]) for values in (checked, low, high)
            )
            raise LimitError(
                f"{self.name}, value {first[0]} (counted from 0)" if first else self.name,
                requested=number,
                limit=lowest if number < lowest else highest,
                unit=self.unit,
                device=self.device,
            )

    def is_equivalent(self, first: SettingValue, second: SettingValue) -> bool:
        """Return whether two values are equal within rounding errors and half a step of the resolution."""
        if first is None or second is None or isinstance(first, str | bool) or isinstance(second, str | bool):
            return type(first) is type(second) and first == second
        if np.shape(first) != np.shape(second):
            return False
        tolerance = np.maximum(0.51 * np.asarray(self._step()), _SLACK * np.maximum(np.abs(first), np.abs(second)))
        return bool(np.all(np.abs(np.subtract(first, second)) <= tolerance))

    def wait_settled(self) -> None:
        """Wait until the light has settled after the last write."""
        self._settle()

    def _checked(self, value: SettingValue) -> SettingValue:
        if value is None:
            return None if self.text_for_none else self._refuse(value, f"a {self.kind.value}")
        if self.kind is SettingKind.FLAG:
            return bool(value) if isinstance(value, bool | np.bool_) else self._refuse(value, "true or false")
        if self.kind is SettingKind.CHOICE:
            is_valid = isinstance(value, str) and value in self.choices
            return value if is_valid else self._refuse(value, f"one of {', '.join(self.choices)}")
        if self.kind is SettingKind.ARRAY:
            return self._checked_array(value)
        if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
            self._refuse(value, "a number")
        if self.numbers and value not in self.numbers:
            self._refuse(value, f"one of {', '.join(f'{number:g}' for number in self.numbers)}")
        return float(value)

    def _checked_array(self, value: Any) -> NDArray[np.float64]:
        try:
            array = np.asarray(value)
        except ValueError:  # ragged
            self._refuse(value, f"numbers of shape {self.shape}")
        if array.dtype.kind not in "iuf" or array.shape != self.shape:
            self._refuse(f"{array.dtype.name} of shape {array.shape}", f"numbers of shape {self.shape}")
        return array.astype(np.float64)

    def _refuse(self, value: object, expected: str) -> NoReturn:
        also = f", or None for {self.text_for_none}" if self.text_for_none else ""
        text = str(value)
        raise ConfigError(
            f"{self.name}: expected {expected}{also}, found {text if len(text) <= 80 else text[:77] + '...'}",
            device=self.device,
            hint="Nothing was changed.",
        )


class Settings(Mapping[str, Setting]):
    """The settings of a bench by name, in the order of the bench.

    Args:
        patterns: Setting names with shell wildcards; a device name selects all of its settings.
        skip_silent: Whether to omit devices that do not answer. If a pattern matches only such devices, their error is
            raised.

    Raises:
        ConfigError: A pattern matches no setting; the message suggests similar names.
        LumionError: A device does not answer.

    Attributes:
        failures: Errors of devices that do not answer, by device name; updated by :meth:`read`.
    """

    def __init__(self, bench: Bench, patterns: Sequence[str] = ("*",), *, skip_silent: bool = False) -> None:
        devices = _devices(bench)
        # Devices that no pattern can match are not queried, because one of them may not answer.
        queried = [name for name in devices if any(concerns(pattern, name) for pattern in patterns)] or list(devices)
        settings: dict[str, Setting] = {}
        self._silent: dict[str, LumionError] = {}
        for name in queried:
            try:
                settings |= {setting.name: setting for setting in devices[name]()}
            except LumionError as error:
                if not skip_silent:
                    raise
                self._silent[name] = error
        is_empty = not settings and tuple(patterns) == ("*",)
        names = {name: setting.device for name, setting in settings.items()}
        raise_silent(patterns, names, self._silent)
        self._settings = {} if is_empty else {name: settings[name] for name in select_names(patterns, names, "setting")}
        self.failures = dict(self._silent)

    def __getitem__(self, name: str) -> Setting:
        """Return a setting. Raises ``UnknownNameError`` (a ``KeyError``) that suggests similar names."""
        if name not in self._settings:
            raise UnknownNameError(f"there is no setting {name!r}", hint=name_hint(name, self._settings))
        return self._settings[name]

    def __contains__(self, name: object) -> bool:
        # Called often by a served bench; Mapping's own version would search for similar names each time.
        return name in self._settings

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def read(self, *, parts: bool = False) -> dict[str, SettingValue]:
        """Read all settings.

        Settings of a device that fails are missing, and :attr:`failures` contains the error. ``parts`` adds settings
        that are an element or another unit of another setting.
        """
        selected = [setting for setting in self._settings.values() if parts or not setting.part_of]
        answers: dict[Callable[[], Any], Any] = {}
        self.failures = dict(self._silent)
        for setting in selected:
            if setting._read in answers or setting.device in self.failures:
                continue
            try:
                answers[setting._read] = setting._read()
            except LumionError as error:
                self.failures[setting.device] = error
        return {
            setting.name: setting._pick(answers[setting._read])
            for setting in selected
            if setting.device not in self.failures
        }


def _devices(bench: Bench) -> dict[str, Callable[[], Iterator[Setting]]]:
    """Return for each device a function that yields its settings, in the order in which a bench is restored."""
    devices: dict[str, Callable[[], Iterator[Setting]]] = {}
    devices |= {
        name: partial(_temperature, name, controller) for name, controller in bench.temperature_controllers.items()
    }
    devices |= {name: partial(_attenuator, name, attenuator) for name, attenuator in bench.attenuators.items()}
    devices |= {name: partial(_switch, name, switch) for name, switch in bench.switches.items()}
    devices |= {name: partial(_analyzer, name, analyzer) for name, analyzer in bench.spectrum_analyzers.items()}
    devices |= {name: partial(_meter, name, meter) for name, meter in bench.meters.items()}
    devices |= {name: partial(_polarimeter, name, polarimeter) for name, polarimeter in bench.polarimeters.items()}
    devices |= {
        name: partial(_polarization, bench, name, controller) for name, controller in bench.polarization.items()
    }
    section = bench.model.mesh
    if section is not None:
        with contextlib.suppress(ConfigError):  # not open, or a mesh that is controlled by cell states
            devices[section.controller] = partial(_mesh, section.controller, bench.mesh)
    devices |= {name: partial(_laser, name, laser) for name, laser in bench.lasers.items()}
    devices |= {name: partial(_module, name, module) for name, module in bench.transponders.items()}
    # After the sources, because some amplifiers cannot control power or gain without light.
    devices |= {name: partial(_amplifier, name, amplifier) for name, amplifier in bench.amplifiers.items()}
    return devices


def _meter(name: str, meter: PowerMeter) -> Iterator[Setting]:
    try:
        ranges_dbm = meter.limits(meter.channels[0]).range_dbm
    except NotSupportedError:  # a meter without settings
        return
    rows = [("wavelength_nm", "nm", meter.set_wavelength_nm, ""), ("averaging_s", "s", meter.set_averaging_s, "")]
    if ranges_dbm is not None:  # otherwise the range is always automatic
        rows.append(("range_dbm", "dBm", meter.set_range_dbm, "automatic"))
    for channel in meter.channels:
        read, read_limits = partial(meter.settings, channel), partial(meter.limits, channel)
        for quantity, unit, write, text_for_none in rows:
            setting = _number(
                name, quantity, unit, read, partial(write, channel), read_limits, text_for_none=text_for_none
            )
            yield replace(setting, name=f"{setting.name}.{channel}")


def _number(
    device: str,
    quantity: str,
    unit: str,
    read: Callable[[], object],
    write: Callable[[Any], object],
    read_limits: Callable[[], object],
    *,
    text_for_none: str = "",
) -> Setting:
    return Setting(
        name=f"{device}.{quantity}",
        device=device,
        unit=unit,
        kind=SettingKind.NUMBER,
        _read=read,
        _pick=attrgetter(quantity),
        _write=write,
        _limits=partial(_read_attribute, read_limits, quantity),
        text_for_none=text_for_none,
    )


def _read_attribute(query: Callable[[], object], attribute: str) -> Any:
    return getattr(query(), attribute)


def _polarimeter(name: str, polarimeter: Polarimeter) -> Iterator[Setting]:
    read, read_limits = polarimeter.settings, polarimeter.limits
    yield _number(name, "frequency_thz", "THz", read, polarimeter.set_frequency_thz, read_limits)
    yield _number(name, "averaging_s", "s", read, polarimeter.set_averaging_s, read_limits)


def _polarization(bench: Bench, name: str, controller: PolarizationController) -> Iterator[Setting]:
    actuators = controller.actuators
    units = {actuator.unit for actuator in actuators}
    low = np.array([-np.inf if actuator.endless else actuator.minimum for actuator in actuators])
    high = np.array([np.inf if actuator.endless else actuator.maximum for actuator in actuators])
    vector_setting = Setting(
        name=f"{name}.settings",
        device=name,
        unit=units.pop() if len(units) == 1 else "",
        kind=SettingKind.ARRAY,
        _read=controller.read,
        _pick=_unchanged,
        _write=controller.set,
        _limits=lambda: (low, high),
        _settle=lambda: bench.clock.sleep(controller.settle_s),
        _step=lambda: np.array([actuator.step for actuator in actuators]),
        shape=(len(actuators),),
    )
    yield vector_setting
    # Numbered from 1, with the same names as the readings of these actuators.
    yield from _elements_of(vector_setting, range(1, len(actuators) + 1), f"{name}.setting")


def _temperature(name: str, controller: TemperatureController) -> Iterator[Setting]:
    rows: tuple[tuple[str, str, Callable[[float], None]], ...] = (
        ("setpoint_c", "°C", controller.set_temperature_c),
        ("tolerance_c", "K", lambda value: controller.set_tolerance(value, controller.settings().window_s)),
        ("window_s", "s", lambda value: controller.set_tolerance(controller.settings().tolerance_c, value)),
    )
    for quantity, unit, write in rows:
        yield _number(name, quantity, unit, controller.settings, write, controller.limits)
    yield Setting(
        name=f"{name}.enabled",
        device=name,
        unit="",
        kind=SettingKind.FLAG,
        _read=controller.settings,
        _pick=attrgetter("enabled"),
        _write=lambda on: controller.enable() if on else controller.disable(),
    )


def _attenuator(name: str, attenuator: VariableAttenuator) -> Iterator[Setting]:
    for channel in attenuator.channels:
        limits = attenuator.limits(channel)
        part = partial(Setting, device=name, _read=partial(attenuator.settings, channel))
        read_limits = partial(attenuator.limits, channel)
        # The wavelength comes first, because the attenuation depends on it.
        if limits.wavelength_nm is not None:
            yield part(
                name=f"{name}.wavelength_nm.{channel}",
                unit="nm",
                kind=SettingKind.NUMBER,
                _pick=attrgetter("wavelength_nm"),
                _write=partial(attenuator.set_wavelength_nm, channel),
                _limits=partial(_read_attribute, read_limits, "wavelength_nm"),
            )
        yield part(
            name=f"{name}.attenuation_db.{channel}",
            unit="dB",
            kind=SettingKind.NUMBER,
            _pick=attrgetter("attenuation_db"),
            _write=partial(attenuator.set_attenuation_db, channel),
            _limits=partial(_read_attribute, read_limits, "attenuation_db"),
            _step=partial(_read_attribute, read_limits, "attenuation_step_db"),
        )
        if limits.shutter:
            yield part(
                name=f"{name}.passing.{channel}",
                unit="",
                kind=SettingKind.FLAG,
                _pick=attrgetter("passing"),
                _write=partial(_set_shutter, attenuator, channel),
            )


def _set_shutter(attenuator: VariableAttenuator, channel: int, passing: bool) -> None:
    if passing:
        attenuator.enable(channel)
    else:
        attenuator.disable(channel)


def _switch(name: str, switch: OpticalSwitch) -> Iterator[Setting]:
    """Yield all connections of a switch as one array, and the output of each input with the name of its reading."""
    inputs = switch.ports.inputs

    def read() -> NDArray[np.float64]:
        connections = switch.connections()
        return np.array([float(connections.get(port, 0)) for port in inputs])

    def write(outputs: NDArray[np.float64]) -> None:
        if not np.all(outputs == np.round(outputs)):
            raise ConfigError(f"{name}.outputs: expected integers", device=name, hint="Nothing was changed.")
        switch.set_connections(
            {port: int(output) for port, output in zip(inputs, outputs, strict=True) if output != 0.0}
        )

    vector_setting = Setting(
        name=f"{name}.outputs",
        device=name,
        unit="",
        kind=SettingKind.ARRAY,
        _read=read,
        _pick=_unchanged,
        _write=write,
        _limits=lambda: (0.0, float(max(switch.ports.outputs))),
        shape=(len(inputs),),
    )
    yield vector_setting
    outputs = (0.0, *map(float, switch.ports.outputs))  # 0 disconnects the input
    for setting in _elements_of(vector_setting, inputs, f"{name}.output"):
        yield replace(setting, numbers=outputs)


def _analyzer(name: str, analyzer: SpectrumAnalyzer) -> Iterator[Setting]:
    limits = analyzer.limits()
    part = partial(Setting, device=name, _read=analyzer.settings)
    resolutions_nm = {f"{resolution_nm:g}": resolution_nm for resolution_nm in limits.resolutions_nm}

    def resolution(settings: SpectrumSettings) -> str:
        # The analyser may report the measured bandwidth, which is close to the nominal one.
        return min(resolutions_nm, key=lambda choice: abs(np.log(resolutions_nm[choice] / settings.resolution_nm)))

    yield part(
        name=f"{name}.span_nm",
        unit="nm",
        kind=SettingKind.ARRAY,
        _pick=lambda settings: np.array([settings.start_nm, settings.stop_nm]),
        _write=lambda span_nm: analyzer.set_span_nm(float(span_nm[0]), float(span_nm[1])),
        _limits=lambda: limits.wavelength_nm,
        shape=(2,),
    )
    yield part(
        name=f"{name}.resolution_nm",
        unit="nm",
        kind=SettingKind.CHOICE,
        _pick=resolution,
        _write=lambda chosen: analyzer.set_resolution_nm(resolutions_nm[chosen]),
        choices=tuple(resolutions_nm),
    )
    yield part(
        name=f"{name}.sensitivity",
        unit="",
        kind=SettingKind.CHOICE,
        _pick=attrgetter("sensitivity"),
        _write=analyzer.set_sensitivity,
        choices=limits.sensitivities,
    )
    yield part(
        name=f"{name}.n_points",
        unit="",
        kind=SettingKind.NUMBER,
        _pick=lambda settings: None if settings.n_points is None else float(settings.n_points),
        _write=lambda value: analyzer.set_n_points(round(value) if value is not None and np.isfinite(value) else value),
        _limits=lambda: (float(limits.n_points[0]), float(limits.n_points[1])),
        _step=lambda: 1.0,
        text_for_none="automatic",
    )


def _amplifier(name: str, amplifier: OpticalAmplifier) -> Iterator[Setting]:
    """Yield the settings of an amplifier: on or off, and the target of each control mode (``None`` if not active)."""
    limits = amplifier.limits()
    rows = (
        ("current_ma", "mA", amplifier.hold_current_ma),
        ("power_dbm", "dBm", amplifier.hold_power_dbm),
        ("gain_db", "dB", amplifier.hold_gain_db),
    )
    for quantity, unit, hold in rows:
        if getattr(limits, quantity) is not None:
            yield _number(
                name,
                quantity,
                unit,
                amplifier.settings,
                partial(_hold, hold),
                amplifier.limits,
                text_for_none="another quantity is held",
            )
    yield _light_switch(name, amplifier, amplifier.settings, attrgetter("enabled"))


def _hold(hold: Callable[[float], None], value: float | None) -> None:
    """Activate a control mode of an amplifier with a target value; do nothing if the value is ``None``."""
    if value is not None:
        hold(value)


def _mesh(name: str, mesh: MeshAccess) -> Iterator[Setting]:
    """Yield the setting of all heater currents in mA; index 2·PUC + arm. Channels without a heater stay off."""
    if not mesh.controller.info.readback:
        return
    vector_setting = Setting(
        name=f"{name}.heaters_ma",
        device=name,
        unit="mA",
        kind=SettingKind.ARRAY,
        _read=mesh.confirmed_currents_ma,
        _pick=_unchanged,
        _write=partial(mesh.program, settle_s=0.0),
        _limits=lambda: (0.0, min(mesh.heater_max_ma, mesh.controller.info.current_full_scale_ma)),
        _settle=lambda: mesh.clock.sleep(mesh.settle_s),
        _step=lambda: max(2.0 * mesh.controller.info.readback_tolerance_ma, mesh.controller.info.current_step_ma),
        shape=(len(mesh.heater_channels),),
    )
    yield vector_setting
    yield from _elements_of(vector_setting, range(len(mesh.heater_channels)), f"{name}.heater_ma")


def _unchanged(answer: SettingValue) -> SettingValue:
    return answer


def _elements_of(vector_setting: Setting, numbers: Sequence[int], stem: str) -> Iterator[Setting]:
    lock = fork_safe(threading.Lock())  # so that two writers of different elements do not undo each other

    def write(index: int, value: float) -> None:
        with lock:
            values: Any = np.array(vector_setting.read())
            values[index] = value
            vector_setting.write(values)

    def limits(index: int) -> _Limits | None:
        bounds = vector_setting.limits()
        if bounds is None:
            return None
        low, high = (np.broadcast_to(bound, vector_setting.shape)[index] for bound in bounds)
        return float(low), float(high)

    def step(index: int) -> float:
        return float(np.broadcast_to(vector_setting._step(), vector_setting.shape)[index])

    for index, number in enumerate(numbers):
        yield Setting(
            name=f"{stem}.{number}",
            device=vector_setting.device,
            unit=vector_setting.unit,
            kind=SettingKind.NUMBER,
            _read=vector_setting._read,
            _pick=partial(_element, index),
            _write=partial(write, index),
            _limits=partial(limits, index),
            _settle=vector_setting.wait_settled,
            _step=partial(step, index),
            part_of=vector_setting.name,
            element=index,
        )


def _element(index: int, values: NDArray[np.float64]) -> float:
    return float(values[index])


def _laser(name: str, laser: TunableLaser) -> Iterator[Setting]:
    def settle() -> None:
        try:
            laser.wait_ready(_READY_S)
        except DeviceError:  # a laser that is off never becomes ready, and needs no wait
            if laser.state().emitting:
                raise

    def wavelengths_nm() -> tuple[float, float]:
        lowest_thz, highest_thz = laser.ranges.frequency_thz
        return _thz_or_nm(highest_thz), _thz_or_nm(lowest_thz)

    def write_wavelength(wavelength_nm: float) -> None:
        low, high = wavelengths_nm()
        if not low * (1.0 - _SLACK) <= wavelength_nm <= high * (1.0 + _SLACK):
            limit = low if wavelength_nm < low else high
            hint = f"The range is {low:.9g} to {high:.9g} nm. Nothing was changed."
            raise LimitError(
                f"{name}.wavelength_nm", requested=wavelength_nm, limit=limit, unit="nm", device=name, hint=hint
            )
        laser.set_frequency_thz(_thz_or_nm(wavelength_nm))

    number = partial(Setting, device=name, kind=SettingKind.NUMBER, _read=laser.state, _settle=settle)
    yield number(
        name=f"{name}.frequency_thz",
        unit="THz",
        _pick=attrgetter("frequency_thz"),
        _write=laser.set_frequency_thz,
        _limits=lambda: laser.ranges.frequency_thz,
        _step=lambda: laser.ranges.frequency_step_thz,
    )
    yield number(
        name=f"{name}.wavelength_nm",
        unit="nm",
        _pick=lambda state: _thz_or_nm(state.frequency_thz),
        _write=write_wavelength,
        _limits=wavelengths_nm,
        _step=lambda: (
            _thz_or_nm(laser.ranges.frequency_thz[0])
            - _thz_or_nm(laser.ranges.frequency_thz[0] + laser.ranges.frequency_step_thz)
        ),
        part_of=f"{name}.frequency_thz",
    )
    yield number(
        name=f"{name}.power_dbm",
        unit="dBm",
        _pick=attrgetter("power_dbm"),
        _write=laser.set_power_dbm,
        _limits=lambda: laser.ranges.power_dbm,
        _step=lambda: laser.ranges.power_step_db,
    )
    yield _light_switch(name, laser, laser.state, attrgetter("emitting"), settle)


def _thz_or_nm(value: float) -> float:
    return 1e-12 * frequency_hz_from_wavelength_m(1e-9 * value)


def _light_switch(
    name: str,
    source: TunableLaser | Transponder | OpticalAmplifier,
    read: Callable[[], Any],
    is_on: Callable[[Any], bool],
    settle: Callable[[], object] = _no_wait,
) -> Setting:
    return Setting(
        name=f"{name}.enabled",
        device=name,
        unit="",
        kind=SettingKind.FLAG,
        _read=read,
        _pick=is_on,
        _write=lambda on: source.enable() if on else source.disable(),
        _settle=settle,
        switches="light",
    )


def _module(name: str, module: Transponder) -> Iterator[Setting]:
    if not module.can_switch():
        return
    if isinstance(module, CoherentTransponder):
        yield from _coherent(name, module)
        yield _light_switch(name, module, module.settings, attrgetter("enabled"))
    else:
        yield _light_switch(name, module, module.status, lambda status: not status.tx_disabled)


def _coherent(name: str, module: CoherentTransponder) -> Iterator[Setting]:
    """Yield the settings of a coherent module in the order in which they must be set; without light on and off."""
    capabilities = module.capabilities()
    number = partial(Setting, device=name, kind=SettingKind.NUMBER, _read=module.settings)
    yield Setting(
        name=f"{name}.powered",
        device=name,
        unit="",
        kind=SettingKind.FLAG,
        _read=module.settings,
        _pick=attrgetter("powered"),
        _write=lambda on: module.power_up() if on else module.power_down(),
        switches="supply",
    )
    offered: dict[int, list[str]] = {}
    for application in capabilities.applications:
        for lane in application.first_host_lanes:
            offered.setdefault(lane, []).append(str(application.number))
    for lane, numbers in sorted(offered.items()):
        yield Setting(
            name=f"{name}.application.{lane}",
            device=name,
            unit="",
            kind=SettingKind.CHOICE,
            _read=module.settings,
            _pick=partial(_application_on, lane),
            _write=partial(_select, module, lane),
            choices=tuple(numbers),
            text_if_unused="no data path begins here",
        )
    if capabilities.tuning:
        low_thz = min(span.min_thz for span in capabilities.tuning)
        high_thz = max(span.max_thz for span in capabilities.tuning)
        yield number(
            name=f"{name}.frequency_thz",
            unit="THz",
            _pick=attrgetter("frequency_thz"),
            _write=module.tune,
            _limits=lambda: (low_thz, high_thz),
        )
    if capabilities.tx_power_dbm is not None:
        yield number(
            name=f"{name}.tx_power_dbm",
            unit="dBm",
            _pick=attrgetter("tx_power_dbm"),
            _write=module.set_tx_power_dbm,
            _limits=lambda: capabilities.tx_power_dbm,
        )


def _application_on(lane: int, settings: TransponderSettings) -> str | None:
    number = settings.applications.get(lane)
    return None if number is None else str(number)


def _select(module: CoherentTransponder, lane: int, number: str) -> None:
    module.select_application(int(number), lane)
