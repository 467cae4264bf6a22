"""``lumion transponder watch``: link and powers of a module of any class, line by line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.common.modules import NamedModule, module_command
from lumion_hw.cli.common.numbers import MAX_COUNT, PERIOD
from lumion_hw.cli.common.output import echo_text, json_option
from lumion_hw.errors import DeviceError, LinkError, LinkLost, NotSupportedError
from lumion_hw.files.json_text import json_text

if TYPE_CHECKING:
    from lumion_hw.drivers.transponders.cmis.path_driver import PathDriver
    from lumion_hw.interfaces import Monitors, SignalStatus, Transponder

_NO_FAULT = ("no_fault", "the module reports no fault, but not whether the link is up")
_NOT_REPORTED = ("not_reported", "the module does not report loss of signal or faults")


@click.command(short_help="Print link state and powers, line by line.")
@module_command
@click.option(
    "--period", "period_s", default=1.0, show_default=True, type=PERIOD, help="Time between lines, in seconds."
)
@click.option("--count", type=click.IntRange(1, MAX_COUNT), help="Number of lines to print.  [default: until Ctrl-C]")
@json_option
def watch(
    target: NamedModule,
    period_s: float,
    count: int | None,
    as_json: bool,
) -> None:
    """Print the link state, the powers and the reason for a lost link; with --json one document per line.

    SFP and QSFP modules report faults and loss of signal instead of the link state. The powers of a QSFP module are
    totals of its lanes, those of a CMIS module are of its first lane in use. If a module has several lanes, the powers
    of each follow.
    """
    from lumion_hw.drivers.transponders.cmis.path_driver import PathDriver

    with target.open() as (module, clock):
        started, n_rows = clock.now(), 0
        while count is None or n_rows < count:
            if n_rows:
                clock.sleep(period_s)
            elapsed_s = round(clock.now() - started, 3)
            # Cables with flat memory have no link state.
            readings = _cmis_line(module) if isinstance(module, PathDriver) and module.can_switch() else _line(module)
            line = {"time_s": elapsed_s} | readings
            echo_text(json_text(line) if as_json else "  ".join(f"{k} {_text(v)}" for k, v in line.items()))
            n_rows += 1


def _cmis_line(module: PathDriver) -> dict[str, Any]:
    from lumion_hw.interfaces import Quality

    lock = module.lock_state()
    lanes = module.lane_readings() if lock.stage.value not in ("absent", "not_responding") else {}
    powers = {
        f"{name}_dbm": _rounded(lanes[name].value)
        if name in lanes and lanes[name].quality is not Quality.BELOW_RANGE
        else None
        for name in ("tx_power", "rx_power")
    }
    return {**powers, **(_lane_powers(module) if lanes else {}), "link": lock.stage.value, "why": lock.detail}


def _lane_powers(module: object) -> dict[str, list[float | None]]:
    """Return the powers of each lane in dBm, by quantity; empty for a module with one lane or without lane monitors."""
    from lumion_hw.interfaces import LaneMonitoring

    if not isinstance(module, LaneMonitoring):
        return {}
    try:
        lanes = module.lane_monitors()
    except (NotSupportedError, DeviceError):  # the total says why
        return {}
    if len(lanes) < 2:
        return {}
    return {
        f"lane_{name}": [_rounded(getattr(lane, name)) for lane in lanes] for name in ("tx_power_dbm", "rx_power_dbm")
    }


def _line(module: Transponder) -> dict[str, Any]:
    """Return what a module without a link state reports. A module that does not respond has a line as well."""
    from lumion_hw.sessions.module.registers import ModuleAbsentError

    try:
        link, why = _signal(_status(module))
        monitors, problem = _monitors(module)
        lanes = {} if monitors is None else _lane_powers(module)
        if monitors is None and (link, why) == _NOT_REPORTED:
            module.identify()  # raises if the module was removed or replaced
    except LinkLost:
        raise  # the adapter itself is gone, and does not return
    except LinkError as error:
        monitors, problem, lanes = None, "", {}
        link, why = "absent" if isinstance(error, ModuleAbsentError) else "not_responding", error.message
    readings: dict[str, Any] = {}
    if monitors is not None and monitors.temperature_c is not None:
        readings["temperature_c"] = _rounded(monitors.temperature_c)
    for name in ("tx_power_dbm", "rx_power_dbm"):
        readings[name] = None if monitors is None else _rounded(getattr(monitors, name))
    return {**readings, **lanes, "link": link, "why": problem or why}


def _status(module: Transponder) -> SignalStatus | None:
    try:
        return module.status()
    except NotSupportedError:
        return None


def _monitors(module: Transponder) -> tuple[Monitors | None, str]:
    """Return the monitors, or the reason why they cannot be shown now; ``None`` and no reason without monitors."""
    try:
        return module.monitors(), ""
    except NotSupportedError:
        return None, ""
    except DeviceError as error:  # out of range, or not valid yet
        return None, error.message


def _signal(status: SignalStatus | None) -> tuple[str, str]:
    """Return the first stage that a signal status does not pass, named as in a ``LockReport``, and why."""
    if status is None:
        return _NOT_REPORTED
    stages = (
        (status.tx_disabled, "tx_disabled", "the transmitter is switched off"),
        (status.tx_fault, "tx_failure", "the transmitter reports a fault"),
        (status.rx_los, "rx_los", "the receiver has lost its optical signal"),
    )
    return next(((stage, why) for is_set, stage, why in stages if is_set), _NO_FAULT)


def _text(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(_text, value))
    return "-" if value is None else str(value)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
