"""``lumion transponder``: show, tune, enable, watch, update and dump modules of a bench; decode a dump."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.common.lazy import NamedGroup
from lumion_hw.cli.common.modules import (
    NamedModule,
    cmis_module as _cmis,
    module_command,
    wrong_class,
)
from lumion_hw.cli.common.numbers import Number
from lumion_hw.cli.common.output import echo_json, echo_table, echo_text, json_option, note, progress
from lumion_hw.cli.common.outputs import out_option
from lumion_hw.cli.common.parameter_type import ParameterType
from lumion_hw.cli.transponder.flags import RELATCH_S, flags
from lumion_hw.cli.transponder.link_tests import loopback, prbs
from lumion_hw.cli.transponder.settings import set_
from lumion_hw.cli.transponder.user_memory import eeprom
from lumion_hw.cli.transponder.watch import watch
from lumion_hw.errors import LumionError, NotSupportedError
from lumion_hw.files.json_text import json_text, rename_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lumion_hw.clock import Clock
    from lumion_hw.drivers.transponders.cmis import CmisTransponder
    from lumion_hw.drivers.transponders.cmis.path_driver import PathDriver
    from lumion_hw.drivers.transponders.decoded import DecodedField, DecodedModule
    from lumion_hw.drivers.transponders.qsfp import QsfpTransponder
    from lumion_hw.drivers.transponders.readings import Flag
    from lumion_hw.interfaces import CoherentTransponder, LockReport, Monitors, Reading, Transponder
    from lumion_hw.standards.cmis.image import MemoryImage
    from lumion_hw.standards.sff8472.image import SfpImage

_MAX_FIRMWARE_BYTES = 64 << 20
_IDENTITY_CHECKSUM = {"CMIS": "00h:222", "SFF-8472": "CC_BASE", "SFF-8636": "CC_BASE"}
_MAX_WARNINGS = 2
_SIGNAL_FLAGS = frozenset({"rx_los", "rx_lol", "tx_los", "tx_lol", "tx_failure", "tx_fault"})
"""Flags that are set again at once while their cause persists."""
_SEVERITY_SIGNS = {"error": "!!", "warning": "!", "note": ""}


@click.group(cls=NamedGroup)
def transponder() -> None:
    """Show, tune, enable, watch, update and dump modules; decode dumps.

    BENCH is the path of a bench file or the name of a built-in bench, DEVICE the name of a module in this file.
    `decode` needs no hardware; it reads a file written by `dump`, another tool or a Linux driver.
    """


for _command in (watch, set_, loopback, prbs, flags, eeprom):
    transponder.add_command(_command)


def _coherent(module: Transponder, action: str) -> CoherentTransponder:
    from lumion_hw.interfaces import CoherentTransponder

    if not isinstance(module, CoherentTransponder):
        raise wrong_class(module, action)
    return module


# -- commands on a module


@transponder.command(short_help="Show what each lane sends and receives.")
@module_command
@click.option("--all", "everything", is_flag=True, help="Also print the capabilities, all readings and all flags.")
@json_option
def show(target: NamedModule, everything: bool, as_json: bool) -> None:
    """Show whether each lane of DEVICE transmits and receives, and how well.

    Of a lane, such as dr4-a/2, only this lane is shown; --all and --json describe the whole module. The memory is read
    without clearing flags; then the flags are read, which clears them in the module.
    """
    with target.open(whole=True) as (module, clock):
        lines = [] if as_json else list(_overview(module, target, clock))
        document = _description(module) if as_json or everything else {}
    if as_json:
        echo_json(document)
        return
    echo_text("\n".join(lines) + ("\n" if everything else ""))
    for title, part in document.items():
        rows = [(key, _format_value(value)) for key, value in part.items()] if isinstance(part, dict) else part
        headers = ("", "") if isinstance(part, dict) else tuple(part[0]) if part else ()
        echo_table(title, headers, rows if isinstance(part, dict) else [tuple(row.values()) for row in part])


@transponder.command(short_help="Tune the laser.")
@module_command
@click.argument("frequency_thz", type=Number("THz", 100.0, 500.0))
@click.option(
    "--grid",
    "grid_ghz",
    type=Number("GHz", 0.0, 1000.0, above=True),
    help="Channel grid to use, in GHz.  [default: any]",
)
@click.option("--power", "power_dbm", type=Number("dBm", -60.0, 30.0), help="Output power to set first, in dBm.")
@json_option
def tune(
    target: NamedModule,
    frequency_thz: float,
    grid_ghz: float | None,
    power_dbm: float | None,
    as_json: bool,
) -> None:
    """Tune the laser of DEVICE to FREQUENCY_THZ. A transmitter that is off stays off."""
    device = target.device
    with target.open() as (opened, _):
        module = _cmis(opened, "tuning")
        module.power_up()
        if power_dbm is not None:
            module.set_tx_power_dbm(power_dbm)
        result = module.tune(frequency_thz, grid_ghz)
    if as_json:
        echo_json({"device": device, "tuned": result})
    else:
        offset = f", fine offset {result.fine_ghz:g} GHz" if result.fine_ghz else ""
        echo_text(f"{device}: {result.frequency_thz:.6f} THz, channel {result.channel} of {result.grid}{offset}")


@transponder.command(short_help="Switch the transmitter on or off.")
@module_command
@click.option("--off", is_flag=True, help="Switch the transmitter off.")
@click.option(
    "--application",
    type=click.IntRange(1, 15),
    help="Number of the application to select before the transmitter is switched on.",
)
@click.option(
    "--first-lane", type=click.IntRange(1, 32), help="First host lane of the data path.  [default: all paths]"
)
@click.option(
    "--lock", "lock_s", type=Number("s", 0.0, 86400.0), help="Longest wait for the receiver to lock, in seconds."
)
@json_option
@click.pass_context
def enable(
    context: click.Context,
    target: NamedModule,
    off: bool,
    application: int | None,
    first_lane: int | None,
    lock_s: float | None,
    as_json: bool,
) -> None:
    """Switch the transmitter of DEVICE on and wait for its light, or switch it off with --off.

    All data paths of the module change; with --first-lane only the selected one.
    """
    device = target.device
    with target.open() as (opened, _):
        module = opened if first_lane is None else _cmis(opened, "a data path").path(first_lane)
        if application is not None:
            coherent = _coherent(module, "selecting an application")
            coherent.power_up()
            coherent.select_application(application)
        module.disable() if off else module.enable()
        report = None if lock_s is None else _coherent(module, "waiting for a lock").wait_for_lock(lock_s)
        monitors = _monitors(module)
    if as_json:
        echo_json({"device": device, "enabled": not off, "monitors": monitors, "lock": _lock_document(report)})
    else:
        echo_text(f"{device}: {'off' if off else 'on'}, {_power_text(monitors)}")
        if report is not None:
            echo_text(f"{device}: {report.stage.value}: {report.detail} ({report.elapsed_s:.1f} s)")
    if report is not None and not report.locked:
        note(f"{device} is not locked: {report.stage.value}: {report.detail}. The transmitter stays on.")
        context.exit(LumionError.exit_code)


@transponder.command(short_help="Save the memory of a module.")
@module_command
@out_option("File to write.  [default: standard output]")
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "hexdump"]),
    default="json",
    show_default=True,
    help="Form of the dump; hexdump is text as from ethtool or, with pages, as from sfputil.",
)
@click.pass_context
def dump(
    context: click.Context,
    target: NamedModule,
    out: Path | None,
    form: str,
) -> None:
    """Save the memory of DEVICE. Registers that are cleared by reading are not read but marked as unread.

    If a memory page cannot be read, the dump contains the reason, and the exit code is 1.
    """
    from lumion_hw.files.writing import check_target, write_file
    from lumion_hw.standards.module_text import text_of_image

    device = target.device
    if out is not None:
        check_target(out, "the dump", overwrite="nothing")
    with target.open() as (module, _):
        image = _image(module, "a dump")
    document = image.to_document()
    text = json_text(document, indent=2) + "\n" if form == "json" else text_of_image(image, device)
    if out is None:
        echo_text(text.removesuffix("\n"))
    else:
        write_file(out, "the dump", text, overwrite="nothing")
        note(f"{out}: {len(document['pages'])} pages" if "pages" in document else str(out))
    for page, reason in document.get("unreadable", {}).items():
        note(f"{device}: {page} could not be read: {reason}")
    if image.unreadable:
        context.exit(LumionError.exit_code)


class _Password(ParameterType[str]):
    """Parameter type for the four-byte password of a module, in hexadecimal digits."""

    name = "hex"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the digits in lower case, without prefix or suffix; fails with a usage error for anything else."""
        text = str(value).lower().removeprefix("0x").removesuffix("h")
        if not (0 < len(text) <= 8 and all(digit in "0123456789abcdef" for digit in text)):
            self.fail("not a password; give one to eight hexadecimal digits, such as 00001011.", param, ctx)
        return text


@transponder.command(short_help="Show or update the firmware.")
@module_command
@click.option(
    "--download", "file", type=click.Path(dir_okay=False), help="Firmware file to write into the inactive image bank."
)
@click.option("--run", "start", is_flag=True, help="Restart with the other image; the transmitter is off afterwards.")
@click.option("--hitless", is_flag=True, help="With --run: keep the traffic running, if the module supports it.")
@click.option("--commit", is_flag=True, help="Use the running image at every start from now on.")
@click.option(
    "--password",
    type=_Password(),
    envvar="LUMION_MODULE_PASSWORD",
    help="Host password of the module, in hexadecimal; also read from LUMION_MODULE_PASSWORD.",
)
@json_option
def firmware(
    target: NamedModule,
    file: str | None,
    start: bool,
    hitless: bool,
    commit: bool,
    password: str | None,
    as_json: bool,
) -> None:
    """Show the firmware images of DEVICE; download, run and commit another image, in this order.

    A download changes only the inactive image. Without --commit, the next reset returns to the old image. To return to
    the old image after a commit, give --run --commit again.
    """
    from dataclasses import asdict

    from lumion_hw.files.reading import read_file

    device = target.device
    if hitless and not start:
        raise click.UsageError("--hitless needs --run.")
    content = None if file is None else read_file(Path(file), "the firmware file", max_bytes=_MAX_FIRMWARE_BYTES)
    with target.open() as (opened, _):
        module = _cmis(opened, "firmware")

        def unlock() -> None:
            if password is not None:
                module.enter_password(int(password, 16))

        unlock()
        if content is not None:
            with progress(len(content), f"{device}: download") as bar:
                module.download_firmware(content, lambda done, of: bar.update(done - bar.pos))
        if start:
            note(f"{device}: restarting with the other image")
            module.run_firmware(hitless=hitless)
            unlock()
        if commit:
            module.commit_firmware()
        images = module.firmware()
    if as_json:
        named = zip("AB", images, strict=True)
        echo_json({"device": device, "images": {name: None if i is None else asdict(i) for name, i in named}})
        return
    rows = [
        (name, image.version, *("yes" if flag else "no" for flag in (image.running, image.committed, image.valid)))
        for name, image in zip("AB", images, strict=True)
        if image is not None
    ]
    echo_table(f"Firmware of {device}", ("image", "version", "running", "committed", "valid"), rows)


@transponder.command(short_help="Explain a saved memory; needs no hardware.")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--fields", is_flag=True, help="Also print every decoded register field.")
@json_option
@click.pass_context
def decode(context: click.Context, file: str, fields: bool, as_json: bool) -> None:
    """Decode FILE, the memory of a CMIS, QSFP or SFP module: JSON, raw bytes, or text.

    Text can be the output of ethtool -m (hex on), sfputil show eeprom-hexdump, i2cdump, hexdump -C, xxd, mlxlink
    --cable --dump, mlxcables or onlpdump. Bytes that are missing or shown as XX are unknown.

    Wrong checksums, impossible values and contradictions are listed as findings and not shown as values. Values from a
    page with a wrong checksum are marked. The exit code is 1 if the memory is damaged (wrong checksum, missing bytes or
    a finding of severity error), and 2 if FILE is not the memory of a module.
    """
    from lumion_hw.drivers.transponders.dump_decoder import decode_file
    from lumion_hw.files.reading import read_file

    data = read_file(Path(file), "the dump", hint="Give the file of a dump.")
    module = decode_file(data, file)
    if as_json:
        echo_json(_decoded_document(module))
    else:
        _print_decoded(module, fields)
    if module.damage:
        addresses = ", ".join(dict.fromkeys(item.address for item in module.damage))
        note(f"{file} is damaged: see the findings at {addresses}. Use only fields of quality ok.")
        context.exit(LumionError.exit_code)


# -- output


def _monitors(module: Transponder) -> Monitors | None:
    """Return the monitors of a module, or ``None`` if it has none."""
    try:
        return module.monitors()
    except NotSupportedError:
        return None


def _power_text(monitors: Monitors | None) -> str:
    if monitors is None:
        return "power not measured"
    return "dark" if monitors.tx_power_dbm is None else f"{monitors.tx_power_dbm:.2f} dBm"


def _overview(module: Transponder, target: NamedModule, clock: Clock) -> Iterator[str]:
    """Yield what a user looks at first, in at most 25 lines."""
    from lumion_hw.drivers.transponders.cmis import CmisTransponder
    from lumion_hw.drivers.transponders.dump_decoder import decode_memory
    from lumion_hw.drivers.transponders.qsfp import QsfpTransponder
    from lumion_hw.drivers.transponders.readings import module_readings

    decoded = decode_memory(_image(module, "an overview"))
    live = module if isinstance(module, CmisTransponder) and not module.is_flat else None
    latched = module if isinstance(module, QsfpTransponder) else live
    flags, past = (None, []) if latched is None else _flags_now(latched, clock)
    readings, lane = module_readings(decoded, flags, past), target.lane
    of_lane = "" if lane is None else f", lane {lane} of {len(readings.lanes)}"
    yield f"{target.device}: {_title(decoded)}{of_lane}"
    yield from (f"warning: {text}" for text in getattr(module, "warnings", ())[:_MAX_WARNINGS])
    yield from (readings if lane is None else readings.of_lane(lane)).lines()
    if live is not None:
        yield from _link_lines(live, live if lane is None else live.media_lane(lane))


def _flags_now(module: QsfpTransponder | CmisTransponder, clock: Clock) -> tuple[list[Flag], list[Flag]]:
    """Read the flags; return those that are set, and lost signals of the past.

    A module keeps a lost signal until the flag is read, for example from before its light arrived.
    """
    before = {(flag.name, flag.lane): flag.count for flag in module.flags()}
    clock.sleep(RELATCH_S)
    counts = {(flag.name, flag.lane): flag.count for flag in module.flags()}
    past = [
        key
        for key, count in counts.items()
        if count == before.get(key) and (key[0] in _SIGNAL_FLAGS or key[0].startswith("coherent_rx_"))
    ]
    return [key for key in counts if key not in past], past


def _image(module: Transponder, action: str) -> SfpImage | MemoryImage:
    """Read the memory of a module of any class."""
    from lumion_hw.drivers.transponders.qsfp import QsfpTransponder
    from lumion_hw.drivers.transponders.sfp import SfpTransponder

    return module.dump() if isinstance(module, SfpTransponder | QsfpTransponder) else _cmis(module, action).dump()


def _title(module: DecodedModule) -> str:
    identity = module.identity
    serial = f"serial {identity.serial}" if identity.serial else ""
    parts = (module.form_factor, f"{identity.vendor} {identity.part_number}".strip(), serial, identity.technology)
    return ", ".join(part for part in parts if part)


def _link_lines(module: CmisTransponder, end: CmisTransponder | PathDriver) -> Iterator[str]:
    lock = end.lock_state()
    yield f"state of the link: {lock.stage.value}" + (f", {lock.detail}" if lock.detail else "")
    if module.capabilities().tunable:
        frequency = module.laser()["current_frequency"]
        yield f"laser: {'unknown' if frequency.value is None else f'{frequency.value:.6f} THz'}"


def _description(module: Transponder) -> dict[str, Any]:
    from dataclasses import asdict

    from lumion_hw.drivers.transponders.cmis import CmisTransponder
    from lumion_hw.drivers.transponders.qsfp import QsfpTransponder

    document: dict[str, Any] = {"identity": asdict(module.identify())}
    warnings = getattr(module, "warnings", ())
    if warnings:
        document["warnings"] = [{"warning": text} for text in warnings]
    if isinstance(module, QsfpTransponder):
        return document | _qsfp_description(module)
    if not isinstance(module, CmisTransponder):
        monitors = _monitors(module)
        document["monitors"] = {} if monitors is None else asdict(monitors)
        try:
            return document | {"status": asdict(module.status())}
        except NotSupportedError:
            return document | {"status": {}}
    capabilities = module.capabilities()
    document["applications"] = [
        {
            "number": a.number,
            "host": a.host_interface,
            "media": a.media_interface,
            "lanes": f"{a.host_lanes}:{a.media_lanes}",
        }
        for a in capabilities.applications
    ]
    document["tuning"] = [asdict(item) for item in capabilities.tuning]
    if module.is_flat:
        return document
    lock = module.lock_state()
    state = module.module_state()
    document["state"] = {
        "module": getattr(state, "name", str(state)).lower(),
        "data paths": " ".join(module.data_path_states().values()),
        "link": lock.stage.value,
        "why": lock.detail,
    }
    readings = module.module_readings() | module.lane_readings()
    if capabilities.tunable:
        readings |= module.laser()
    document["readings"] = [_reading_row(name, reading) for name, reading in readings.items()]
    document["flags"] = [asdict(flag) for flag in module.flags()]
    return document


def _qsfp_description(module: QsfpTransponder) -> dict[str, Any]:
    from dataclasses import asdict

    capabilities = module.capabilities
    document: dict[str, Any] = {
        "power": {
            "class": capabilities.power_class,
            "max_w": capabilities.max_power_w,
            **asdict(module.power_control()),
        },
        "monitors": asdict(module.monitors()),
    }
    if not capabilities.copper:
        document["lanes"] = [
            asdict(monitors) | asdict(status)
            for monitors, status in zip(module.lane_monitors(), module.lane_status(), strict=True)
        ]
    return document | {"flags": [asdict(flag) for flag in module.flags()]}


def _reading_row(name: str, reading: Reading) -> dict[str, Any]:
    return {
        "name": name,
        "value": None if reading.value is None else round(reading.value, 6),
        "unit": reading.unit,
        "quality": reading.quality.value,
        "source": reading.source,
    }


def _lock_document(report: LockReport | None) -> dict[str, Any] | None:
    if report is None:
        return None
    return {
        "locked": report.locked,
        "stage": report.stage.value,
        "detail": report.detail,
        "lane": report.lane,
        "code": report.code,
        "code_name": report.code_name,
        "flag": report.flag,
        "values": dict(report.values),
        "elapsed_s": report.elapsed_s,
        "stages": [{"stage": stage.value, "seconds": seconds} for stage, seconds in report.stages],
    }


def _decoded_document(module: DecodedModule) -> dict[str, Any]:
    from dataclasses import asdict

    def as_json_value(value: object) -> object:
        return value.hex() if isinstance(value, bytes) else value

    return {
        "source": module.source,
        "form_factor": module.form_factor,
        "standard": module.standard,
        "revision": module.revision,
        "flat_memory": module.flat,
        "identity": asdict(module.identity),
        "cable": module.cable,
        "applications": [asdict(item) for item in module.applications],
        "checksums": module.checksums,
        "damaged": bool(module.damage),
        "thresholds": {name: list(limits) for name, limits in module.thresholds.items()},
        "samples": [asdict(item) for item in module.samples],
        "findings": [
            {"severity": f.severity.value, "address": f.address, "kind": f.kind, "message": f.message}
            for f in module.findings
        ],
        "fields": [
            rename_key(asdict(item), "description", "words")
            | {"value": as_json_value(item.value), "quality": item.quality.value}
            for item in module.fields
        ],
    }


def _print_decoded(module: DecodedModule, fields: bool) -> None:
    from dataclasses import asdict

    from lumion_hw.drivers.transponders.readings import module_readings

    flat = ", flat memory" if module.flat and module.standard != "SFF-8472" else ""
    echo_text(f"{module.form_factor}, {module.standard} {module.revision}".rstrip() + flat + "\n")
    echo_text("\n".join(module_readings(module).lines()) + "\n")
    title = "Identity" if module.checksums.get(_IDENTITY_CHECKSUM[module.standard], True) else "Identity (damaged)"
    echo_table(title, ("", ""), [(key, value) for key, value in asdict(module.identity).items() if value])
    rows: list[tuple[object, ...]] = [(name, *limits) for name, limits in module.thresholds.items() if len(limits) == 4]
    echo_table("Thresholds", ("monitor", "high alarm", "low alarm", "high warning", "low warning"), rows)
    rows = [
        (a.number, a.host_interface, a.media_interface, f"{a.host_lanes}:{a.media_lanes}", _lanes(a.first_host_lanes))
        for a in module.applications
    ]
    echo_table("Applications", ("number", "host", "media", "lanes", "first lanes"), rows)
    rows = [(name, "correct" if is_correct else "wrong") for name, is_correct in module.checksums.items()]
    echo_table("Checksums", ("byte", "result"), rows)
    if fields:
        rows = [(item.address, item.name, item.index, _field_text(item), item.raw[:16]) for item in module.fields]
        echo_table("Fields", ("address", "field", "element", "value", "bytes"), rows)
        rows = [(item.source, item.name, item.lane, item.value, item.unit) for item in module.samples]
        echo_table("Diagnostics", ("address", "observable", "lane", "value", "unit"), rows)
    rows = [
        (_SEVERITY_SIGNS[f.severity.value], f.severity.value, f.address, f.kind, f.message) for f in module.findings
    ]
    echo_table("Findings", ("", "severity", "address", "kind", "finding"), rows)


def _field_text(item: DecodedField) -> str:
    if item.quality.value == "ok":
        return item.description
    return f"{item.description} ({item.quality.value})" if item.description else item.quality.value


def _lanes(lanes: tuple[int, ...]) -> str:
    return ", ".join(map(str, lanes)) or "-"


def _format_value(value: object) -> object:
    return f"{value:g}" if isinstance(value, float) else value
