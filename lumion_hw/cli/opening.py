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
    file: str,
    emulate: bool,
    seed: int,
    endpoints: str | None,
    channels: Sequence[str] | None = None,
    aged_s: float = 0.0,
) -> Bench:
    """Open a bench by what the command line says.

    Args:
        file: The bench file, or the name of a built-in bench.
        emulate: Emulate it.
        seed: Seed of the emulation.
        endpoints: File with addresses, from ``lumion emulate``.
        channels: If given, only devices with channels of these names are opened, the others left to other programs.
        aged_s: Time that has passed on the emulated bench since its chip was as the seed draws it.

    Raises:
        ConfigError: Both an emulation and endpoints were asked for, or the endpoints file is wrong.
    """
    from lumion_hw.bench.bench import Bench, load

    if emulate and endpoints:
        raise ConfigError("--emulate and --endpoints exclude each other")
    only = None
    if channels:
        only = [name for name in load(file).devices if any(_concerns(pattern, name) for pattern in channels)]
    if emulate:
        return Bench.emulate(file, seed=seed, only=only, aged_s=aged_s)
    return Bench.open(file, addresses=read_endpoints(endpoints) if endpoints else None, only=only)


def _concerns(pattern: str, device: str) -> bool:
    """Return whether a pattern of channels may fit one of a device: a wildcard reaches beyond the dot."""
    before, dot, _ = pattern.partition(".")
    return fnmatchcase(device, before) or (not dot and any(wildcard in before for wildcard in "*?["))


def read_endpoints(path: str) -> dict[str, str]:
    """Return the addresses by device name in an endpoints file. Raises ``ConfigError`` if it is none."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: is no endpoints file: {error}") from error
    if not isinstance(document, dict) or not all(isinstance(address, str) for address in document.values()):
        raise ConfigError(f"{path}: is no endpoints file: expected a JSON object of device name to address")
    return document
