"""``lumion new-driver``: a package of a lab's own that adds a kind of device, and passes its tests as it is made."""

from __future__ import annotations

import importlib.util
import keyword
import re
from importlib import resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.common.output import echo_json, json_option, note, say
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
"""What a package can be made for: the device of its bench, and how many channels it has; one folder each."""
_MOST_CHANNELS = 64
_NAME = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_SUFFIX = ".template"


@click.command("new-driver")
@click.argument("name")
@click.option(
    "--role", type=click.Choice(list(ROLES)), default="meter", show_default=True, help="What the device is for."
)
@click.option(
    "--channels", type=click.IntRange(1, _MOST_CHANNELS), help="Channels of a meter or an attenuator.  [default: 2]"
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of the package, new or empty.  [default: NAME]",
)
@json_option
def new_driver(name: str, role: str, channels: int | None, out: Path | None, as_json: bool) -> None:
    """Make a package that adds the kind of device NAME, such as acme-pm8: maker and model.

    It holds a driver, an emulated device, the kind of bench files with its discovery, tests and a bench file, and works
    as it is, for an instrument that nobody makes: replace its commands by those of your instrument's manual.
    """
    words = words_of(name, role, channels)
    folder = out or Path(name)
    written = write_package(folder, role, words)
    if as_json:
        echo_json({"directory": str(folder), "files": written})
        return
    say(f"{folder}: {len(written)} files")
    note(f"Next: cd {folder} && python -m pip install -e '.[test]' && python -m pytest; then read README.md there.")


def words_of(name: str, role: str, channels: int | None = None) -> dict[str, str]:
    """Return what stands in the template for a kind of this name.

    Raises:
        ConfigError: It is no name of a kind, or there is one already; or the role has no channels.
    """
    from lumion_hw.bench.file.known_kinds import kind_names

    package = name.replace("-", "_")
    if not _NAME.fullmatch(name) or keyword.iskeyword(package):
        raise ConfigError(
            f"{name!r} cannot be the name of a kind",
            hint="Give maker and model in small letters and digits, joined by '-', such as acme-pm8.",
        )
    if name in kind_names():
        raise ConfigError(f"there is a kind {name!r} already", hint="Bench files can use it; or choose another name.")
    if importlib.util.find_spec(package) is not None:
        raise ConfigError(f"there is a package {package!r} already, which would be hidden", hint="Choose another name.")
    device, usual = ROLES[role]
    if usual is None and channels is not None:
        raise ConfigError(f"a {role} has no channels to number", hint="Leave --channels out.")
    n_channels = channels or usual or 1
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
    }


def write_package(folder: Path, role: str, words: dict[str, str]) -> list[str]:
    """Write the files of a package; return their names, in order.

    Raises:
        ConfigError: The directory has something in it, or nothing can be written there.
        LumionError: There is no room, or the disk failed.
    """
    from lumion_hw.files.writing import write_file, writing

    with writing("the package", folder):
        if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
            raise ConfigError(f"{folder} exists and is no empty directory", hint="Choose another one with --out.")
    template = resources.files("lumion_hw.cli") / "driver_template"
    contents = _filled(template / "common", words) | _filled(template / role, words)
    for name in sorted(contents):
        write_file(folder / name, "a file of the package", contents[name], over="nothing")
    return sorted(contents)


def _filled(directory: Traversable, words: dict[str, str], below: str = "") -> dict[str, Any]:
    """Return the texts of a part of the template, by the names of their files."""
    found: dict[str, Any] = {}
    for entry in directory.iterdir():
        name = f"{below}{entry.name.removesuffix(_SUFFIX)}".replace("/package", f"/{words['package']}")
        if entry.is_dir():
            found |= _filled(entry, words, f"{name}/")
        elif entry.name.endswith(_SUFFIX):
            found[name] = Template(entry.read_text(encoding="utf-8")).substitute(words)
    return found
