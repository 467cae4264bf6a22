"""The options that say which bench a command opens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.errors import ConfigError

if TYPE_CHECKING:
    from lumion_hw.bench.bench import Bench


def bench_options(function: Any) -> Any:
    """Add the options that say which bench to open."""
    for option in (
        click.option("--emulate", is_flag=True, help="Emulate the bench in this process, on virtual time."),
        click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Seed of all random."),
        click.option(
            "--endpoints", type=click.Path(dir_okay=False), help="Addresses of the devices, from `lumion emulate`."
        ),
    ):
        function = option(function)
    return function


def open_bench(
    file: str, emulate: bool, seed: int, endpoints: str | None, channels: Sequence[str] | None = None
) -> Bench:
    """Open a bench by what the command line says.

    Args:
        file: The bench file, or the name of a built-in bench.
        emulate: Emulate it.
        seed: Seed of the emulation.
        endpoints: File with addresses, from ``lumion emulate``.
        channels: If given, only devices with channels of these names are opened, the others left to other programs.

    Raises:
        ConfigError: Both an emulation and endpoints were asked for, or the endpoints file is wrong.
    """
    from lumion_hw.bench.bench import Bench, load

    if emulate and endpoints:
        raise ConfigError("--emulate and --endpoints exclude each other")
    only = None
    if channels:
        patterns = [pattern.partition(".")[0] for pattern in channels]
        only = [name for name in load(file).devices if any(fnmatchcase(name, pattern) for pattern in patterns)]
    if emulate:
        return Bench.emulate(file, seed=seed, only=only)
    return Bench.open(file, addresses=read_endpoints(endpoints) if endpoints else None, only=only)


def read_endpoints(path: str) -> dict[str, str]:
    """Return the addresses by device name in an endpoints file. Raises ``ConfigError`` if it is none."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: is no endpoints file: {error}") from error
    if not isinstance(document, dict) or not all(isinstance(address, str) for address in document.values()):
        raise ConfigError(f"{path}: is no endpoints file: expected a JSON object of device name to address")
    return document
