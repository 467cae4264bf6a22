"""Arguments of commands that use one module of a bench, and functions that open it."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lumion_hw.cli.common.opening import bench_options, open_bench
from lumion_hw.cli.common.parameter_type import ParameterType
from lumion_hw.errors import ConfigError, NotSupportedError, name_hint

if TYPE_CHECKING:
    from lumion_hw.clock import Clock
    from lumion_hw.drivers.transponders.cmis import CmisTransponder
    from lumion_hw.interfaces import Transponder

MODULE_KINDS = ("cmis", "qsfp-8636", "sfp-8472")
"""Kinds of device in a bench file that are modules."""
NOT_CMIS = "This module follows SFF-8472 or SFF-8636."
"""Hint of a command that needs a CMIS module."""
_MAX_LANE = 32
_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class Target:
    """Module that the command line names.

    Attributes:
        bench_file: Path of the bench file, or name of a built-in bench.
        device: Name of the module.
        emulate: Whether to emulate the bench in this process.
        seed: Random seed of the emulation.
        endpoints: File with the addresses of the devices; ``None`` to use those of the bench file.
    """

    bench_file: str
    device: str
    emulate: bool
    seed: int
    endpoints: str | None

    @contextmanager
    def open(self) -> Iterator[tuple[Transponder, Clock]]:
        """Open the module. Raises ``ConfigError`` if the bench does not have it."""
        with open_bench(self.bench_file, self.emulate, self.seed, self.endpoints, [self.device]) as bench:
            if self.device not in bench.transponders:
                devices = bench.model.devices.items()
                modules = [name for name, model in devices if getattr(model, "kind", "") in MODULE_KINDS]
                hint = name_hint(self.device, modules, "Its modules are")
                raise ConfigError(f"{self.bench_file} has no module {self.device!r}", hint=hint)
            yield bench.transponders[self.device], bench.clock


def module_command(function: Callable[..., None]) -> Any:
    """Add the arguments BENCH and DEVICE and the options of commands that open a bench, as one argument ``Target``."""

    @functools.wraps(function)
    def command(bench_file: str, device: str, emulate: bool, seed: int, endpoints: str | None, **options: Any) -> None:
        function(Target(bench_file, device, emulate, seed, endpoints), **options)

    return click.argument("bench_file", metavar="BENCH")(click.argument("device")(bench_options(command)))


def cmis_module(module: Transponder, action: str) -> CmisTransponder:
    """Return the driver of a CMIS module. Raises ``NotSupportedError`` for other modules; ``action`` is in the text."""
    from lumion_hw.drivers.transponders.cmis import CmisTransponder

    if not isinstance(module, CmisTransponder):
        raise NotSupportedError(f"{action} needs a CMIS module", hint=NOT_CMIS)
    return module


class Lanes(ParameterType[tuple[int, ...]]):
    """Lane numbers from 1 to 32, such as ``1,3`` or ``5-8``."""

    name = "lanes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Convert a command-line argument to lane numbers in ascending order."""
        if isinstance(value, tuple):
            return value
        lanes: set[int] = set()
        for part in str(value).split(","):
            match = re.fullmatch(r"\s*([1-9]\d?)(?:-([1-9]\d?))?\s*", part, re.ASCII)
            first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
            if not first <= last <= _MAX_LANE:
                example = "give for example 1,3 or 5-8"
                self.fail(f"{str(value)[:40]!r} are not lanes; {example} (lanes 1 to {_MAX_LANE}).", param, ctx)
            lanes |= set(range(first, last + 1))
        return tuple(sorted(lanes))


def lanes_option(help_text: str) -> Callable[[_Command], _Command]:
    """Return the option ``--lanes``."""
    return click.option("--lanes", type=Lanes(), help=help_text)


def lane_text(lanes: tuple[int, ...]) -> str:
    """Return lane numbers as text, such as ``1, 3``; ``-`` if there are none."""
    return ", ".join(map(str, lanes)) or "-"
