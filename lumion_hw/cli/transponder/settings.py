"""``lumion transponder set``: settings of a module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.common.modules import cmis_module, device_arguments, open_module
from lumion_hw.cli.common.numbers import Number
from lumion_hw.cli.common.output import echo_json, echo_text, json_option
from lumion_hw.errors import NotSupportedError

if TYPE_CHECKING:
    from lumion_hw.drivers.transponders.cmis import CmisTransponder


@click.command("set")
@device_arguments
@click.option("--application", type=click.IntRange(1, 15), help="Number of the application to select.")
@click.option("--first-lane", type=click.IntRange(1, 8), help="First host lane.  [default: the first possible one]")
@click.option("--frequency-thz", type=Number("THz", 100.0, 500.0), help="Laser frequency, in THz.")
@click.option("--power-dbm", type=Number("dBm", -60.0, 30.0), help="Output power, in dBm.")
@json_option
def set_(
    bench_file: str,
    device: str,
    emulate: bool,
    seed: int,
    endpoints: str | None,
    application: int | None,
    first_lane: int | None,
    frequency_thz: float | None,
    power_dbm: float | None,
    as_json: bool,
) -> None:
    """Set application, frequency and power of DEVICE, in this order, and print the values read back.

    A transmitter that is off stays off. After a new application its data path is off.
    """
    if application is frequency_thz is power_dbm is None:
        raise click.UsageError("Give --application, --frequency-thz or --power-dbm.")
    if first_lane is not None and application is None:
        raise click.UsageError("--first-lane needs --application.")
    read_back: dict[str, Any] = {}
    with open_module(bench_file, device, emulate, seed, endpoints) as (opened, _):
        module = cmis_module(opened, "setting a module")
        _check_settings(module, frequency_thz, power_dbm)
        module.power_up()
        if application is not None:
            module.select_application(application, first_lane)
            read_back["application"] = _report(device, "applications", _applications(module), as_json)
        if frequency_thz is not None:
            module.tune(frequency_thz)
            read_back["frequency_thz"] = _report(device, "frequency", module.settings().frequency_thz, as_json, "THz")
        if power_dbm is not None:
            module.set_tx_power_dbm(power_dbm)
            read_back["power_dbm"] = _report(device, "output power", module.settings().tx_power_dbm, as_json, "dBm")
    if as_json:
        echo_json({"device": device, "read_back": read_back})


def _check_settings(module: CmisTransponder, frequency_thz: float | None, power_dbm: float | None) -> None:
    """Raise ``NotSupportedError`` before the first change if the module lacks the second or third setting."""
    capabilities = module.capabilities()
    for name, value, is_offered in (
        ("tuning", frequency_thz, capabilities.tunable),
        ("setting the output power", power_dbm, capabilities.tx_power_dbm is not None),
    ):
        if value is not None and not is_offered:
            raise NotSupportedError(f"{name} is not supported", hint="The module does not advertise it.")


def _applications(module: CmisTransponder) -> dict[int, int]:
    return dict(module.settings().applications)


def _report(device: str, name: str, value: Any, as_json: bool, unit: str = "") -> Any:
    if not as_json:
        text = f"{value:g}" if isinstance(value, float) and unit != "THz" else value
        if isinstance(value, dict):
            text = ", ".join(f"{number} on host lane {lane}" for lane, number in value.items()) or "none"
        echo_text(f"{device}: {name} {text} {unit}".rstrip())
    return value
