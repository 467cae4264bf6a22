"""Command-line options for the bench that a command opens."""

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
    """Add the options for the bench to open."""
    for option in (
        click.option("--emulate", is_flag=True, help="Emulate the bench in this process, in virtual time."),
        click.option("--seed", default=0, show_default=True, type=SEED, help="Random seed."),
        click.option(
            "--endpoints", type=click.Path(dir_okay=False), help="Addresses of the devices, from `lumion emulate`."
        ),
    ):
        function = option(function)
    return function


def channels_option(verb: str) -> Callable[[_Command], _Command]:
    """Return the option for channels, which may be repeated or separated by commas."""

    def separate(_: click.Context, __: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name.strip() for text in value for name in text.split(",") if name.strip())

    text = f"Channels to {verb}; wildcards and commas allowed.  [default: *]"
    return click.option("--channels", "-c", multiple=True, metavar="NAME", callback=separate, help=text)


def open_bench(
    file: str,
    emulate: bool,
    seed: int,
    endpoints: str | None,
    only: Sequence[str] | None = None,
    aged_s: float = 0.0,
    leave_on_s: float | None = None,
) -> Bench:
    """Open a bench as given on the command line.

    Args:
        file: The bench file, or the name of a built-in bench.
        emulate: Emulate it.
        seed: Seed of the emulation.
        endpoints: File with addresses, from ``lumion emulate``.
        only: Names of the devices to open; all if not given. Other devices stay free for other programs.
        aged_s: Age of the emulated chip, in s, since the state drawn from the seed.
        leave_on_s: Longest time that heaters stay on after the bench is closed, in s. A bench emulated here ends then.

    Raises:
        ConfigError: Both an emulation and endpoints were given, or the endpoints file is invalid.
    """
    from lumion_hw.bench.bench import Bench

    if emulate and endpoints:
        raise ConfigError("--emulate and --endpoints cannot be combined")
    if emulate:
        return Bench.emulate(file, seed=seed, only=only, aged_s=aged_s)
    addresses = read_endpoints(endpoints) if endpoints else None
    return Bench.open(file, addresses=addresses, only=only, leave_on_s=leave_on_s)


def devices_with(file: str, channels: Sequence[str]) -> list[str] | None:
    """Return the devices of a bench file that may have channels of these names; ``None`` for all if no name is given.

    Raises:
        ConfigError: A channel belongs to no device; the message names the closest devices.
    """
    from lumion_hw.acquisition.columns import concerns
    from lumion_hw.bench.bench import load

    if not channels:
        return None
    devices = list(load(file).devices)
    for pattern in channels:
        if not any(concerns(pattern, name) for name in devices):
            raise ConfigError(
                f"{file}: channel {pattern!r} belongs to no device of this bench",
                hint=name_hint(pattern.partition(".")[0], devices),
            )
    return [name for name in devices if any(concerns(pattern, name) for pattern in channels)]


def read_endpoints(path: str) -> dict[str, str]:
    """Return the addresses in an endpoints file, by device name. Raises ``ConfigError`` if it is invalid."""
    from lumion_hw.files.reading import MEGABYTE, read_json

    document = read_json(Path(path), "endpoints file", max_bytes=MEGABYTE, hint="`lumion emulate` writes one.")
    if not isinstance(document, dict) or not all(isinstance(address, str) for address in document.values()):
        raise ConfigError(f"{path} is not an endpoints file: expected a JSON object of device names and addresses")
    return document
