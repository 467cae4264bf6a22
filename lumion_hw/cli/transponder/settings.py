"""``lumion transponder set``: settings of a module, all checked before the first change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.common.modules import NamedModule, lanes_option, module_command, wrong_class
from lumion_hw.cli.common.numbers import Number
from lumion_hw.cli.common.output import echo_json, echo_text, json_option, note
from lumion_hw.errors import ConfigError, LumionError, NotSupportedError

if TYPE_CHECKING:
    from lumion_hw.drivers.transponders.cmis.path_driver import PathDriver
    from lumion_hw.drivers.transponders.cmis.signal_integrity import SignalIntegrity
    from lumion_hw.drivers.transponders.qsfp import QsfpTransponder
    from lumion_hw.drivers.transponders.squelch import Side, SquelchMode
    from lumion_hw.interfaces import Transponder

_ON_OFF = click.Choice(["on", "off"])
_CODE = click.IntRange(0, 15)
_SQUELCH = click.Choice(["on", "off", "forced"])
_MODES: dict[str, SquelchMode] = {"on": "automatic", "off": "off", "forced": "forced"}
_WORDS = {mode: word for word, mode in _MODES.items()}
_SIDES: tuple[Side, Side] = ("tx", "rx")
_OF_PATH = ("application", "frequency_thz", "power_dbm")
_CODES = ("tx_fixed_eq", "rx_amplitude", "rx_pre_cursor", "rx_post_cursor")
_SWITCHES = ("tx_adaptive_eq", "tx_cdr", "rx_cdr")
_CMIS_ONLY = (*_OF_PATH, *_CODES, "tx_adaptive_eq", "default_si")
_QSFP_ONLY = ("tx_rate", "rx_rate")
_QSFP_LANES = (1, 2, 3, 4)


@dataclass(frozen=True)
class _Setting:
    """One setting of a module.

    Attributes:
        name: Name in the JSON document.
        label: Name in the text.
        apply: Function that sets the value.
        read: Function that reads the value back.
        needs_power: Whether the module must have left low power.
    """

    name: str
    label: str
    apply: Callable[[], object]
    read: Callable[[], Any]
    unit: str = ""
    needs_power: bool = False


@click.command("set", short_help="Change settings, and read them back.")
@module_command
@click.option("--application", type=click.IntRange(1, 15), help="Number of the application to select.")
@click.option("--first-lane", type=click.IntRange(1, 32), help="First host lane.  [default: the first possible one]")
@click.option("--frequency-thz", type=Number("THz", 100.0, 500.0), help="Laser frequency, in THz.")
@click.option("--power-dbm", type=Number("dBm", -60.0, 30.0), help="Output power, in dBm.")
@click.option("--tx-squelch", type=_SQUELCH, help="Squelch of the light: on without a host signal, off, or forced.")
@click.option("--rx-squelch", type=_SQUELCH, help="Squelch of the host output: on without light, off, or forced.")
@click.option("--tx-eq", "tx_fixed_eq", type=_CODE, help="Code of the equalizer at the host input.")
@click.option("--tx-adaptive-eq", type=_ON_OFF, help="Adaptation of the equalizer at the host input.")
@click.option("--rx-amplitude", type=_CODE, help="Code of the amplitude at the host output.")
@click.option("--rx-pre-cursor", type=_CODE, help="Code of the pre-cursor at the host output.")
@click.option("--rx-post-cursor", type=_CODE, help="Code of the post-cursor at the host output.")
@click.option("--default-si", is_flag=True, default=None, help="Use the signal integrity of the application again.")
@click.option("--tx-cdr", type=_ON_OFF, help="Clock recovery of the transmitters.")
@click.option("--rx-cdr", type=_ON_OFF, help="Clock recovery of the receivers.")
@click.option("--tx-rate", type=click.IntRange(0, 3), help="Rate code of the transmitters (QSFP modules).")
@click.option("--rx-rate", type=click.IntRange(0, 3), help="Rate code of the receivers (QSFP modules).")
@lanes_option(
    "Lanes for squelch, signal integrity, clock recovery and rate, 1 to 32, such as 1,3 or 5-8.  [default: all]"
)
@json_option
def set_(
    target: NamedModule,
    lanes: tuple[int, ...] | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Change settings of DEVICE and print the values read back. The settings change in the order of these options.

    All values are compared with what the module advertises before the first change. A transmitter that is off stays
    off. After a new application its data path is off.
    """
    device = target.device
    first_lane = options.pop("first_lane")
    values = {name: value for name, value in options.items() if value is not None}
    if not values:
        names = ", ".join(map(_option, options))
        raise click.UsageError(f"Give at least one of {names}.")
    if first_lane is not None and "application" not in values:
        raise click.UsageError("--first-lane needs --application.")
    if "default_si" in values and values.keys() & {*_CODES, *_SWITCHES}:
        raise click.UsageError("--default-si cannot be combined with signal-integrity settings.")
    if lanes is not None and values.keys() <= set(_OF_PATH):
        raise click.UsageError("--lanes needs a setting of lanes, such as --tx-squelch.")
    with target.open() as (module, _):
        settings = _settings(module, values, first_lane, lanes)
        read_back = _apply(module, device, settings, as_json)
    if as_json:
        echo_json({"device": device, "read_back": read_back})


def _settings(
    module: Transponder, values: dict[str, Any], first_lane: int | None, lanes: tuple[int, ...] | None
) -> list[_Setting]:
    """Return the checked settings. Raises the error of the first value that the module does not accept."""
    from lumion_hw.drivers.transponders.cmis.path_driver import PathDriver
    from lumion_hw.drivers.transponders.qsfp import QsfpTransponder
    from lumion_hw.drivers.transponders.qsfp_lane import QsfpLane

    if isinstance(module, PathDriver):
        _refuse(values, _QSFP_ONLY, "a QSFP module (SFF-8636)", "This module follows CMIS.")
        return _cmis_settings(module, values, first_lane, lanes)
    if isinstance(module, QsfpTransponder):
        _refuse(values, _CMIS_ONLY, "a CMIS module", "This module follows SFF-8636.")
        return _qsfp_settings(module, values, lanes)
    if isinstance(module, QsfpLane):
        raise NotSupportedError("setting one lane needs the name of its QSFP module", hint="Give the lane in --lanes.")
    raise wrong_class(module, "setting a module", "a CMIS or QSFP module")


def _refuse(values: Iterable[str], names: Iterable[str], needed: str, hint: str) -> None:
    for name in names:
        if name in values:
            raise NotSupportedError(f"{_option(name)} needs {needed}", hint=hint)


def _option(name: str) -> str:
    return "--tx-eq" if name == "tx_fixed_eq" else f"--{name.replace('_', '-')}"


def _apply(module: Any, device: str, settings: list[_Setting], as_json: bool) -> dict[str, Any]:
    if any(setting.needs_power for setting in settings):
        module.power_up()
    read_back: dict[str, Any] = {}
    for setting in settings:
        try:
            setting.apply()
        except LumionError:
            if read_back:
                note(f"{device}: already changed: {', '.join(read_back)}")
            raise
        read_back[setting.name] = value = setting.read()
        if not as_json:
            echo_text(f"{device}: {setting.label} {_text(setting, value)}".rstrip())
    return read_back


def _text(setting: _Setting, value: Any) -> str:
    if setting.name == "signal_integrity":
        return "; ".join(_integrity_lines(value)) or "none"
    if isinstance(value, dict):
        kind = "host lane" if setting.name == "application" else "lane"
        return ", ".join(f"{item} on {kind} {lane}" for lane, item in value.items()) or "none"
    text = f"{value:g}" if isinstance(value, float) and setting.unit != "THz" else str(value)
    return f"{text} {setting.unit}".rstrip()


def _integrity_lines(lanes: dict[int, dict[str, Any]]) -> Iterator[str]:
    """Yield one text for all lanes with the same settings."""
    groups: dict[tuple[tuple[str, Any], ...], list[int]] = {}
    for lane, values in lanes.items():
        groups.setdefault(tuple(values.items()), []).append(lane)
    for items, members in groups.items():
        texts = [
            f"{name.replace('_', ' ')} {('on' if value else 'off') if isinstance(value, bool) else value}"
            for name, value in items
            if name != "custom"
        ]
        source = "set" if dict(items)["custom"] else "application"
        yield f"host lane {', '.join(map(str, members))}: {', '.join(texts)} ({source})"


# -- CMIS modules


def _cmis_settings(
    module: PathDriver, values: dict[str, Any], first_lane: int | None, lanes: tuple[int, ...] | None
) -> list[_Setting]:
    integrity = _integrity(values)
    modes = {side: _MODES[values[f"{side}_squelch"]] for side in _SIDES if f"{side}_squelch" in values}
    module.check_settings(
        application=values.get("application"),
        first_lane=first_lane,
        frequency_thz=values.get("frequency_thz"),
        power_dbm=values.get("power_dbm"),
        squelch_modes=modes,
        integrity=integrity,
        lanes=lanes,
    )
    settings = [_path_setting(module, name, values[name], first_lane) for name in _OF_PATH if name in values]
    settings += [_squelch(module, side, mode, lanes) for side, mode in modes.items()]
    if integrity is not None or "default_si" in values:
        settings.append(_integrity_setting(module, integrity, lanes))
    return settings


def _path_setting(module: PathDriver, name: str, value: Any, first_lane: int | None) -> _Setting:
    apply: Callable[[], object]
    read: Callable[[], Any]
    if name == "application":
        label, unit = "applications", ""
        apply, read = lambda: module.select_application(value, first_lane), lambda: dict(module.settings().applications)
    elif name == "frequency_thz":
        label, unit = "frequency", "THz"
        apply, read = lambda: module.tune(value), lambda: module.settings().frequency_thz
    else:
        label, unit = "output power", "dBm"
        apply, read = lambda: module.set_tx_power_dbm(value), lambda: module.settings().tx_power_dbm
    return _Setting(name, label, apply, read, unit, needs_power=True)


def _integrity(values: dict[str, Any]) -> SignalIntegrity | None:
    from lumion_hw.drivers.transponders.cmis.signal_integrity import SignalIntegrity

    chosen = {name: values[name] for name in _CODES if name in values}
    chosen |= {name: values[name] == "on" for name in _SWITCHES if name in values}
    return SignalIntegrity(**chosen) if chosen else None


def _integrity_setting(
    module: PathDriver, integrity: SignalIntegrity | None, lanes: tuple[int, ...] | None
) -> _Setting:
    def apply() -> None:
        if integrity is None:
            module.use_default_signal_integrity(lanes)
        else:
            module.set_signal_integrity(integrity, lanes)

    def read() -> dict[int, dict[str, Any]]:
        return {
            lane: {"custom": item.is_custom} | item.named()
            for lane, item in module.signal_integrity().items()
            if lanes is None or lane in lanes
        }

    return _Setting("signal_integrity", "signal integrity", apply, read, needs_power=True)


def _squelch(
    module: PathDriver | QsfpTransponder, side: Side, mode: SquelchMode, lanes: tuple[int, ...] | None
) -> _Setting:
    def apply() -> None:
        module.set_squelch(side, mode) if lanes is None else module.set_squelch(side, mode, lanes)

    def read() -> dict[int, str]:
        return {lane: _WORDS[item] for lane, item in module.squelch(side).items() if lanes is None or lane in lanes}

    return _Setting(f"{side}_squelch", f"{side.capitalize()} squelch", apply, read)


# -- QSFP modules


def _qsfp_settings(module: QsfpTransponder, values: dict[str, Any], lanes: tuple[int, ...] | None) -> list[_Setting]:
    chosen = lanes or _QSFP_LANES
    if not set(chosen) <= set(_QSFP_LANES):
        raise ConfigError(f"there is no lane {max(chosen)}", hint="The lanes are 1 to 4.")
    settings = []
    for side in _SIDES:
        if f"{side}_squelch" in values:
            mode = _MODES[values[f"{side}_squelch"]]
            module.check_squelch(side, mode)
            settings.append(_squelch(module, side, mode, lanes))
    for side in _SIDES:
        if f"{side}_cdr" in values:
            module.cdr(side)  # refuses a module without this control
            settings.append(_cdr(module, side, values[f"{side}_cdr"] == "on", chosen))
    for side in _SIDES:
        if f"{side}_rate" in values:
            module.rate_select(side)  # refuses a module without this control
            settings.append(_rate(module, side, values[f"{side}_rate"], chosen))
    return settings


def _cdr(module: QsfpTransponder, side: Side, on: bool, lanes: tuple[int, ...]) -> _Setting:
    def read() -> dict[int, str]:
        return {lane: "on" if module.cdr(side)[lane - 1] else "off" for lane in lanes}

    name = f"{side.capitalize()} clock recovery"
    return _Setting(f"{side}_cdr", name, lambda: module.set_cdr(side, on, lanes), read)


def _rate(module: QsfpTransponder, side: Side, code: int, lanes: tuple[int, ...]) -> _Setting:
    def read() -> dict[int, int]:
        return {lane: module.rate_select(side)[lane - 1] for lane in lanes}

    name = f"{side.capitalize()} rate code"
    return _Setting(f"{side}_rate", name, lambda: module.set_rate_select(side, code, lanes), read)
