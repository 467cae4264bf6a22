"""``lumion transponder set``, ``flags`` and ``eeprom``: settings, flags with their masks, user memory."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.common.modules import cmis_module, device_arguments, open_module
from lumion_hw.cli.common.numbers import Number
from lumion_hw.cli.common.output import echo_json, echo_table, echo_text, json_option, note
from lumion_hw.cli.common.outputs import NamedFile
from lumion_hw.errors import ConfigError, NotSupportedError, name_hint

if TYPE_CHECKING:
    from lumion_hw.drivers.transponders.cmis import CmisTransponder
    from lumion_hw.drivers.transponders.qsfp import QsfpTransponder
    from lumion_hw.interfaces import Transponder

_MAX_PASSWORD_FILE_BYTES = 64
_MAX_PASSWORD_DIGITS = 8
_USER_BYTES = 128
_ROW_BYTES = 16
_RELATCH_S = 0.2  # time until a flag whose cause persists is set again (SFF-8679, ton_flag)


# -- set


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


# -- flags


@click.command()
@device_arguments
@click.option("--clear", is_flag=True, help="Clear the flags; print those whose cause persists.")
@click.option("--mask", "to_mask", multiple=True, metavar="NAME[:LANE]", help="Mask a flag: it does not assert IntL.")
@click.option("--unmask", "to_unmask", multiple=True, metavar="NAME[:LANE]", help="Let a flag assert IntL.")
@json_option
def flags(
    bench_file: str,
    device: str,
    emulate: bool,
    seed: int,
    endpoints: str | None,
    clear: bool,
    to_mask: tuple[str, ...],
    to_unmask: tuple[str, ...],
    as_json: bool,
) -> None:
    """Print the flags of DEVICE and change their masks. Without a lane, all lanes of the flag change.

    Reading a flag of CMIS and QSFP modules clears it in the module.
    """
    both = sorted(set(to_mask) & set(to_unmask))
    if both:
        raise click.UsageError(f"{both[0]} is in both --mask and --unmask.")
    with open_module(bench_file, device, emulate, seed, endpoints) as (opened, clock):
        module: Any = opened
        if not hasattr(module, "flags"):
            raise NotSupportedError(f"{device} has no flags", hint="Only drivers of CMIS, QSFP and SFP modules do.")
        masks = _change_masks(module, device, to_mask, to_unmask)
        if clear:
            module.flags()
            module.clear_flags()
            clock.sleep(_RELATCH_S)
        listed = [asdict(flag) for flag in module.flags()]
    rows = [row | ({} if masks is None else {"masked": masks.get((row["name"], row.get("lane")))}) for row in listed]
    if as_json:
        masked = sorted(_flag_text(*key) for key, on in (masks or {}).items() if on)
        echo_json({"device": device, "flags": rows, "masked": masked})
    elif rows:
        echo_table(f"Flags of {device}", tuple(rows[0]), [tuple(map(_cell, row.values())) for row in rows])
    else:
        echo_text(f"{device}: no flags")
    for option, names in (("masked", to_mask), ("not masked", to_unmask)):
        if names and not as_json:
            echo_text(f"{device}: {option}: {', '.join(names)}")


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return round(value, 3) if isinstance(value, float) else value


def _change_masks(
    module: Any, device: str, to_mask: Collection[str], to_unmask: Collection[str]
) -> dict[tuple[str, int | None], bool] | None:
    """Change masks; return all masks, or ``None`` if the module has none.

    Raises:
        NotSupportedError: The module has no masks.
        ConfigError: The module does not have one of the flags; nothing was changed.
    """
    if not hasattr(module, "masks"):
        if to_mask or to_unmask:
            raise NotSupportedError(f"masks of {device} are not supported", hint="SFP modules have none.")
        return None
    masks: dict[tuple[str, int | None], bool] = module.masks()
    changes = [(key, True) for text in to_mask for key in _flag_keys(device, text, masks)]
    changes += [(key, False) for text in to_unmask for key in _flag_keys(device, text, masks)]
    for (name, lane), masked in changes:
        module.set_mask(name, lane, masked)
    return module.masks() if changes else masks


def _flag_keys(device: str, text: str, masks: Collection[tuple[str, int | None]]) -> list[tuple[str, int | None]]:
    """Return the flags that ``NAME`` or ``NAME:LANE`` selects. Raises ``ConfigError`` if there is none."""
    name, separator, lane = text.partition(":")
    keys = [key for key in masks if key[0] == name and (not separator or str(key[1]) == lane)]
    if not keys:
        lanes = [str(key[1]) for key in masks if key[0] == name and key[1] is not None]
        names = sorted({key[0] for key in masks})
        hint = (
            f"Its lanes are {', '.join(lanes) or 'none'}." if name in names else name_hint(name, names, "Its flags are")
        )
        raise ConfigError(f"{device} has no flag {text!r} that can be masked", hint=hint)
    return keys


def _flag_text(name: str, lane: int | None) -> str:
    return name if lane is None else f"{name}:{lane}"


# -- user memory


@click.command()
@device_arguments
@click.option("--read", "to_read", type=NamedFile(), help="Save the user memory in this file.")
@click.option("--write", "to_write", type=click.Path(dir_okay=False), help="Write this file, at most 128 bytes.")
@click.option("--offset", default=0, show_default=True, type=click.IntRange(0, 127), help="First byte to write.")
@click.option("--password", "ask_password", is_flag=True, help="Ask for the host password at the terminal.")
@click.option("--password-file", type=click.Path(dir_okay=False), help="File with the host password, in hexadecimal.")
@json_option
def eeprom(
    bench_file: str,
    device: str,
    emulate: bool,
    seed: int,
    endpoints: str | None,
    to_read: Path | None,
    to_write: str | None,
    offset: int,
    ask_password: bool,
    password_file: str | None,
    as_json: bool,
) -> None:
    """Print, save or write the 128 bytes of user memory of DEVICE (page 03h of CMIS, page 02h of QSFP modules).

    A write changes only the bytes of the file, and reads them back.
    """
    from lumion_hw.files.reading import read_file
    from lumion_hw.files.writing import check_target, write_file

    if to_read is not None and to_write is not None:
        raise click.UsageError("--read and --write cannot be combined.")
    if to_read is not None:
        check_target(to_read, "the user memory", overwrite="nothing")
    content = None
    if to_write is not None:
        content = read_file(Path(to_write), "the user memory", max_bytes=_USER_BYTES)
        if offset + len(content) > _USER_BYTES:
            text = f"{to_write}: {len(content)} bytes from byte {offset} exceed the {_USER_BYTES} bytes of user memory"
            raise ConfigError(text, hint="Give a shorter file or a smaller offset.")
    password = _read_password(ask_password, password_file)
    with open_module(bench_file, device, emulate, seed, endpoints) as (opened, _):
        module = _with_user_memory(opened)
        module.user_memory()  # a module without user memory is refused before the password is sent
        if password is not None:
            module.enter_password(password)
        if content is not None:
            module.write_user_memory(offset, content)
        memory = module.user_memory()
    if to_read is not None:
        write_file(to_read, "the user memory", memory, overwrite="nothing")
        note(f"{to_read}: {len(memory)} bytes")
    if as_json:
        echo_json({"device": device, "user_memory": memory.hex(), "written": None if content is None else len(content)})
    elif to_read is None:
        _print_memory(device, memory)


def _with_user_memory(module: Transponder) -> CmisTransponder | QsfpTransponder:
    from lumion_hw.drivers.transponders.cmis import CmisTransponder
    from lumion_hw.drivers.transponders.qsfp import QsfpTransponder

    if not isinstance(module, CmisTransponder | QsfpTransponder):
        raise NotSupportedError("user memory needs a CMIS or QSFP module", hint="This module follows SFF-8472.")
    return module


def _read_password(ask: bool, file: str | None) -> int | None:
    """Return the host password from the terminal or a file; ``None`` if neither is requested."""
    from lumion_hw.files.reading import read_file

    if ask and file is not None:
        raise click.UsageError("--password and --password-file cannot be combined.")
    if not ask and file is None:
        return None
    if file is None:
        text = click.prompt("Host password (hexadecimal)", hide_input=True, err=True)
    else:
        text = read_file(Path(file), "the password file", max_bytes=_MAX_PASSWORD_FILE_BYTES).decode("ascii", "replace")
    digits = str(text).strip().lower().removeprefix("0x").removesuffix("h")
    if not 0 < len(digits) <= _MAX_PASSWORD_DIGITS or not set(digits) <= set("0123456789abcdef"):
        # The text itself stays out of the message, which may be logged.
        hint = "Give one to eight hexadecimal digits, such as 00001011."
        raise ConfigError(f"{'the entered text' if file is None else file} is not a password", hint=hint)
    return int(digits, 16)


def _print_memory(device: str, memory: bytes) -> None:
    rows = [
        (start, block.hex(" "), "".join(chr(byte) if 32 <= byte < 127 else "." for byte in block))
        for start in range(0, len(memory), _ROW_BYTES)
        for block in (memory[start : start + _ROW_BYTES],)
    ]
    echo_table(f"User memory of {device}", ("byte", "content", "text"), rows)
