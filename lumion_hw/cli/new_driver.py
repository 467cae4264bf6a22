"""``lumion new-driver``: create a package for a new kind of device, with tests that pass."""

from __future__ import annotations

import importlib.util
import keyword
import re
from importlib import resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.common.output import echo_json, echo_text, json_option, note
from lumion_hw.errors import ConfigError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

ROLES = {
    "meter": ("meter0", 2),
    "laser": ("laser0", None),
    "attenuator": ("attenuator0", 2),
    "switch": ("switch0", None),
    "polarization": ("pol0", None),
    "amplifier": ("amplifier0", None),
    "analyzer": ("analyzer0", None),
    "temperature": ("temperature0", None),
}
"""Roles of a new driver, with device name and default number of channels (``None`` if fixed)."""
PROTOCOLS = {
    "scpi": {"identity": "the `*IDN?` reply", "discover": "--host 192.0.2.7"},
    "lines": {"identity": "the query and its reply", "discover": "--serial /dev/ttyUSB0"},
}
"""Protocols of a new driver, with the words for them in the README of the package."""
_MAX_CHANNELS = 64
_NAME = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_SUFFIX = ".template"


@click.command("new-driver")
@click.argument("name")
@click.option(
    "--role", type=click.Choice(list(ROLES)), default="meter", show_default=True, help="Role of the device on a bench."
)
@click.option(
    "--protocol",
    type=click.Choice(list(PROTOCOLS)),
    default="scpi",
    show_default=True,
    help="scpi, or lines for a meter on a serial line without *IDN?: a query has a reply of one line, a command none.",
)
@click.option(
    "--channels",
    type=click.IntRange(1, _MAX_CHANNELS),
    help="Number of channels of a meter or an attenuator.  [default: 2]",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for the package, new or empty.  [default: NAME]",
)
@json_option
def new_driver(name: str, role: str, protocol: str, channels: int | None, out: Path | None, as_json: bool) -> None:
    """Create a package that adds the kind of device NAME: maker and model, such as acme-pm8.

    The package contains a driver, an emulated device, a bench-file entry, discovery, tests and a bench file. It works
    for an imaginary instrument; replace the commands with those of your instrument.
    """
    fields = template_fields(name, role, channels, protocol)
    folder = out or Path(name)
    files = write_package(folder, role if protocol == "scpi" else f"{role}_{protocol}", fields)
    if as_json:
        echo_json({"directory": str(folder), "files": files})
        return
    echo_text(f"{folder}: {len(files)} files")
    note(f"Next: cd {folder} && python -m pip install -e '.[test]' && python -m pytest; then read README.md there.")


def template_fields(name: str, role: str, channels: int | None = None, protocol: str = "scpi") -> dict[str, str]:
    """Return the values of the placeholders in the template.

    Raises:
        ConfigError: The name is invalid or in use, ``channels`` is given for a role with a fixed number, or the
            protocol has no template for this role.
    """
    from lumion_hw.bench.file.known_kinds import kind_names

    package = name.replace("-", "_")
    if not _NAME.fullmatch(name) or keyword.iskeyword(package):
        raise ConfigError(
            f"{name!r} is not a valid name for a kind of device",
            hint="Give maker and model in lower-case letters and digits, joined by '-', such as acme-pm8.",
        )
    if name in kind_names():
        raise ConfigError(f"a kind {name!r} already exists", hint="Use it in bench files, or choose another name.")
    if importlib.util.find_spec(package) is not None:
        raise ConfigError(
            f"a package {package!r} is already installed; the new one would hide it", hint="Choose another name."
        )
    device, default_channels = ROLES[role]
    if protocol != "scpi":
        if role != "meter":
            raise ConfigError(
                f"--protocol {protocol} has a template for the role meter, not for {role}",
                hint="Leave --protocol out and replace the session as docs/cookbook/driver.md shows.",
            )
        if channels not in (None, 1):
            raise ConfigError(f"the template of --protocol {protocol} has one channel", hint="Leave --channels out.")
        default_channels = 1
    if default_channels is None and channels is not None:
        raise ConfigError(f"the role {role} has no number of channels", hint="Leave --channels out.")
    n_channels = channels or default_channels or 1
    maker, _, model = name.partition("-")
    return {
        "name": name,
        "package": package,
        "cls": "".join(part.capitalize() for part in name.split("-")),
        "maker": maker.upper(),
        "model": (model or maker).upper(),
        "title": f"{maker.upper()} {model.upper()}".strip(),
        "device": device,
        "channels": str(tuple(range(1, n_channels + 1))) if n_channels <= 8 else f"tuple(range(1, {n_channels + 1}))",
        "n_channels": str(n_channels),
        "last": str(n_channels),
        **PROTOCOLS[protocol],
    }


def write_package(folder: Path, template_name: str, fields: dict[str, str]) -> list[str]:
    """Write the files of a new package and return their names, sorted.

    Raises:
        ConfigError: The directory is not empty or not writable.
        LumionError: The disk is full or failed.
    """
    from lumion_hw.files.writing import write_file, writing

    with writing("the package", folder):
        if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
            raise ConfigError(f"{folder} is not an empty directory", hint="Choose another one with --out.")
    template = resources.files("lumion_hw.cli") / "driver_template"
    contents = _fill_template(template / "common", fields) | _fill_template(template / template_name, fields)
    for name in sorted(contents):
        write_file(folder / name, "a file of the package", contents[name], overwrite="nothing")
    return sorted(contents)


def _fill_template(directory: Traversable, fields: dict[str, str], prefix: str = "") -> dict[str, Any]:
    contents: dict[str, Any] = {}
    for entry in directory.iterdir():
        name = f"{prefix}{entry.name.removesuffix(_SUFFIX)}".replace("/package", f"/{fields['package']}")
        if entry.is_dir():
            contents |= _fill_template(entry, fields, f"{name}/")
        elif entry.name.endswith(_SUFFIX):
            contents[name] = Template(entry.read_text(encoding="utf-8")).substitute(fields)
    return contents
