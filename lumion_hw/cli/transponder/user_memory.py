"""``lumion transponder eeprom``: user memory of a module."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lumion_hw.cli.common.modules import NamedModule, module_command, wrong_class
from lumion_hw.cli.common.output import echo_json, echo_table, json_option, note
from lumion_hw.cli.common.outputs import NamedFile
from lumion_hw.errors import ConfigError

if TYPE_CHECKING:
    from lumion_hw.drivers.transponders.cmis import CmisTransponder
    from lumion_hw.drivers.transponders.qsfp import QsfpTransponder
    from lumion_hw.interfaces import Transponder

_MAX_PASSWORD_FILE_BYTES = 64
_MAX_PASSWORD_DIGITS = 8
_USER_BYTES = 128
_ROW_BYTES = 16


@click.command(short_help="Print, save or write the user memory.")
@module_command
@click.option("--read", "to_read", type=NamedFile(), help="Save the user memory in this file.")
@click.option("--write", "to_write", type=click.Path(dir_okay=False), help="Write this file, at most 128 bytes.")
@click.option("--offset", default=0, show_default=True, type=click.IntRange(0, 127), help="First byte to write.")
@click.option("--password", "ask_password", is_flag=True, help="Ask for the host password at the terminal.")
@click.option("--password-file", type=click.Path(dir_okay=False), help="File with the host password, in hexadecimal.")
@json_option
def eeprom(
    target: NamedModule,
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

    device = target.device
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
    with target.open() as (opened, _):
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
        raise wrong_class(module, "user memory", "a CMIS or QSFP module")
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
