"""Options of commands that open a bench, and functions that open it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lumion_hw.cli.common.numbers import SEED
from lumion_hw.errors import ConfigError, ConnectError, name_hint
from lumion_hw.interfaces.wiring import NO_ENDS, FibreEnds

if TYPE_CHECKING:
    from lumion_hw.bench.bench import Bench
    from lumion_hw.bench.file.model import BenchModel
    from lumion_hw.remote.client import PvaConnection

RECORD_HELP = "Calibration record.  [default: the record of the connected circuits]"
STATE_HELP = "Directory that holds the bench state (which circuits are connected).  [default: one per user]"
TAKE_OVER_HELP = "Replace the program of this user, which is using the bench."
LEAVE_ON_HELP = "Longest time that the heaters stay on after this command, in seconds."
ENDPOINTS_HELP = "File with the addresses of the devices, written by `lumion emulate`."

_Command = TypeVar("_Command", bound=Callable[..., Any])


def bench_options(function: Any) -> Any:
    """Add ``--emulate``, ``--seed`` and ``--endpoints`` to a command."""
    for option in (
        click.option("--emulate", is_flag=True, help="Emulate the bench in this process, on virtual time."),
        click.option("--seed", default=0, show_default=True, type=SEED, help="Random seed."),
        click.option(
            "--endpoints",
            type=click.Path(dir_okay=False),
            help=ENDPOINTS_HELP,
        ),
    ):
        function = option(function)
    return function


served_option = click.option(
    "--served", metavar="ADDRESS", help="Address of the bench if it is served, printed by `lumion serve --pva`."
)
"""The option ``--served`` of commands that use a served bench."""


@contextlib.contextmanager
def served_connection(address: str, model: BenchModel, take_over: str | None = None) -> Iterator[PvaConnection]:
    """Connect to a served bench, without its devices (which may be silent). Raises ``ConfigError`` for another bench.

    Args:
        address: Address that `lumion serve --pva` has printed.
        model: The bench file that the user gave.
        take_over: Name of the lease holder from which the lease may be taken.
    """
    from lumion_hw.remote.client import PvaConnection

    with contextlib.closing(PvaConnection(address, take_over=take_over)) as connection:
        if connection.bench != model.name:
            raise ConfigError(
                f"{address} serves bench {connection.bench}, not {model.name}", hint="Give its bench file."
            )
        yield connection


def channels_option(verb: str) -> Callable[[_Command], _Command]:
    """Return the option ``--channels``, which can be repeated or take names separated by commas."""

    def separate(_: click.Context, __: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name.strip() for text in value for name in text.split(",") if name.strip())

    text = f"Channels to {verb}: names separated by commas, wildcards allowed.  [default: *]"
    return click.option("--channels", "-c", multiple=True, metavar="NAME", callback=separate, help=text)


def open_bench(
    file: str,
    emulate: bool,
    seed: int,
    endpoints: str | None,
    only: Sequence[str] | None = None,
    aged_s: float = 0.0,
    leave_on_s: float | None = None,
    ends: FibreEnds = NO_ENDS,
    allow_absent_modules: bool = False,
) -> Bench:
    """Open a bench with the options of a command.

    Args:
        file: Path of a bench file, or the name of a built-in bench.
        emulate: Whether to emulate the bench in this process.
        seed: Random seed of the emulation.
        endpoints: File with the addresses of the devices, written by ``lumion emulate``.
        only: Names of the devices to open; by default all. Other programs may use the others.
        aged_s: Age of the emulated chip in seconds; its slow drift starts at age 0.
        leave_on_s: Longest time that heaters stay on after the bench is closed; ignored with ``emulate``.
        ends: Ports with fibres to other meshes.
        allow_absent_modules: Whether to open the bench although pluggable modules do not answer.

    Raises:
        ConfigError: Both an emulation and endpoints were requested, or the endpoints file is invalid.
        ConnectError: The emulator that wrote the endpoints file is not running.
    """
    from lumion_hw.bench.bench import Bench

    if emulate and endpoints:
        raise ConfigError("--emulate and --endpoints cannot be combined", hint="Leave one of them out.")
    if emulate:
        return Bench.emulate(file, seed=seed, only=only, aged_s=aged_s, ends=ends)
    addresses = addresses_of_emulator(endpoints) if endpoints else None
    return Bench.open(
        file,
        addresses=addresses,
        only=only,
        leave_on_s=leave_on_s,
        ends=ends,
        allow_absent_modules=allow_absent_modules,
    )


def devices_with(file: str, channels: Sequence[str]) -> list[str] | None:
    """Return the names of the devices that may have the given channels, or ``None`` (all devices) without channels.

    Raises:
        ConfigError: A channel belongs to no device; the message suggests similar names.
    """
    from lumion_hw.acquisition.columns import concerns
    from lumion_hw.bench.bench import load

    if not channels:
        return None
    devices = list(load(file).devices)
    for pattern in channels:
        if not any(concerns(pattern, name) for name in devices):
            raise ConfigError(
                f"{file}: no device of this bench has a channel {pattern!r}",
                hint=name_hint(pattern.partition(".")[0], devices),
            )
    return [name for name in devices if any(concerns(pattern, name) for pattern in channels)]


def read_endpoints(path: str) -> dict[str, str]:
    """Read an endpoints file and return its addresses by device name. Raises ``ConfigError`` if it is invalid."""
    from lumion_hw.files.reading import MEGABYTE, read_json

    hint = "`lumion emulate` writes one, and removes it when it ends."
    document = read_json(Path(path), "endpoints file", max_bytes=MEGABYTE, hint=hint)
    if not isinstance(document, dict) or not all(isinstance(address, str) for address in document.values()):
        raise ConfigError(
            f"{path} is not an endpoints file: expected a JSON object that maps device names to addresses",
            hint=hint,
        )
    return document


def addresses_of_emulator(path: str) -> dict[str, str]:
    """Read the endpoints file of a running emulator and return its addresses, with that of its fault control if any.

    Raises:
        ConfigError: The endpoints file is invalid.
        ConnectError: The emulator is not running; it was killed before it could remove the file.
    """
    from lumion_hw.remote.emulated_faults import CONTROL, FaultPortClient

    addresses = read_endpoints(path)
    if CONTROL in addresses and not FaultPortClient(addresses[CONTROL]).is_reachable():
        raise ConnectError(
            f"the emulator that wrote {path} is not running",
            hint=f"Start it again: lumion emulate BENCH --endpoints {path}",
        )
    return addresses
