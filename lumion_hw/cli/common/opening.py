"""The options that say which bench a command opens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lumion_hw.cli.common.numbers import SEED
from lumion_hw.errors import ConfigError, name_hint

if TYPE_CHECKING:
    from lumion_hw.bench.bench import Bench

_Command = TypeVar("_Command", bound=Callable[..., Any])


def bench_options(function: Any) -> Any:
    """Add the options that say which bench to open."""
    for option in (
        click.option("--emulate", is_flag=True, help="Emulate the bench in this process, on virtual time."),
        click.option("--seed", default=0, show_default=True, type=SEED, help="Random seed."),
        click.option(
            "--endpoints", type=click.Path(dir_okay=False), help="Addresses of the devices, from `lumion emulate`."
        ),
    ):
        function = option(function)
    return function


def channels_option(verb: str) -> Callable[[_Command], _Command]:
    """Return the option that says which channels: given again and again, or with commas between them."""

    def separate(_: click.Context, __: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name.strip() for text in value for name in text.split(",") if name.strip())

    words = f"What to {verb}; wildcards allowed, commas between.  [default: *]"
    return click.option("--channels", "-c", multiple=True, metavar="NAME", callback=separate, help=words)


def open_bench(
    file: str,
    emulate: bool,
    seed: int,
    endpoints: str | None,
    only: Sequence[str] | None = None,
    aged_s: float = 0.0,
    leave_on_s: float | None = None,
) -> Bench:
    """Open a bench by what the command line says.

    Args:
        file: The bench file, or the name of a built-in bench.
        emulate: Emulate it.
        seed: Seed of the emulation.
        endpoints: File with addresses, from ``lumion emulate``.
        only: Names of the devices to open, all if not given; the others are left to other programs.
        aged_s: Time that has passed on the emulated bench since its chip was as the seed draws it.
        leave_on_s: Longest time that heaters stay on after the bench is closed; one emulated here ends then.

    Raises:
        ConfigError: Both an emulation and endpoints were asked for, or the endpoints file is wrong.
    """
    from lumion_hw.bench.bench import Bench

    if emulate and endpoints:
        raise ConfigError("--emulate and --endpoints exclude each other")
    if emulate:
        return Bench.emulate(file, seed=seed, only=only, aged_s=aged_s)
    addresses = read_endpoints(endpoints) if endpoints else None
    return Bench.open(file, addresses=addresses, only=only, leave_on_s=leave_on_s)


def devices_with(file: str, channels: Sequence[str]) -> list[str] | None:
    """Return the devices of a bench file that may have channels of these names; ``None``, for all, without a name.

    Raises:
        ConfigError: A channel is of no device; the message names what is near it.
    """
    from lumion_hw.acquisition.columns import concerns
    from lumion_hw.bench.bench import load

    if not channels:
        return None
    devices = list(load(file).devices)
    for pattern in channels:
        if not any(concerns(pattern, name) for name in devices):
            raise ConfigError(
                f"{file}: channel {pattern!r} is of no device of this bench",
                hint=name_hint(pattern.partition(".")[0], devices),
            )
    return [name for name in devices if any(concerns(pattern, name) for pattern in channels)]


def read_endpoints(path: str) -> dict[str, str]:
    """Return the addresses by device name in an endpoints file. Raises ``ConfigError`` if it is none."""
    from lumion_hw.files.reading import MEGABYTE, read_json

    document = read_json(Path(path), "endpoints file", max_bytes=MEGABYTE, hint="`lumion emulate` writes one.")
    if not isinstance(document, dict) or not all(isinstance(address, str) for address in document.values()):
        raise ConfigError(f"{path}: is no endpoints file: expected a JSON object of device name to address")
    return document
