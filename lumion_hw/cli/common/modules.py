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
_MAX_LANE = 32
_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class NamedModule:
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

    @property
    def module(self) -> str:
        """Name of the module; of a lane, such as ``dr4-a/2``, that of its module."""
        return self.device.partition("/")[0]

    @property
    def lane(self) -> int | None:
        """Number of the media lane; ``None`` for a module."""
        number = self.device.partition("/")[2]
        return int(number) if number.isdecimal() else None

    @contextmanager
    def open(self, *, whole: bool = False) -> Iterator[tuple[Transponder, Clock]]:
        """Open the device.

        Args:
            whole: Whether to open the whole module if the device is a lane.

        Raises:
            ConfigError: The bench does not have this module or lane.
        """
        name = self.module if whole else self.device
        with open_bench(self.bench_file, self.emulate, self.seed, self.endpoints, [name]) as bench:
            devices = bench.model.devices
            if name not in bench.transponders or (name != self.device and self.device not in devices):
                modules = [item for item, model in devices.items() if getattr(model, "kind", "") in MODULE_KINDS]
                hint = name_hint(self.device, modules, "Its modules are")
                raise ConfigError(f"{self.bench_file} has no module {self.device!r}", hint=hint)
            yield bench.transponders[name], bench.clock


def module_command(function: Callable[..., None]) -> Any:
    """Pass BENCH, DEVICE and the options of commands that open a bench as one ``NamedModule``."""

    @functools.wraps(function)
    def command(bench_file: str, device: str, emulate: bool, seed: int, endpoints: str | None, **options: Any) -> None:
        function(NamedModule(bench_file, device, emulate, seed, endpoints), **options)

    return click.argument("bench_file", metavar="BENCH")(click.argument("device")(bench_options(command)))


def cmis_module(module: Transponder, action: str) -> CmisTransponder:
    """Return the driver of a CMIS module. Raises ``NotSupportedError`` for other modules; ``action`` is in the text."""
    from lumion_hw.drivers.transponders.cmis import CmisTransponder

    if not isinstance(module, CmisTransponder):
        raise wrong_class(module, action)
    return module


def wrong_class(module: Transponder, action: str, needed: str = "a CMIS module") -> NotSupportedError:
    """Return the error for a module of a class that a command does not support, or for a lane.

    Args:
        module: Open module or lane.
        action: What the command does, for the message.
        needed: Supported classes, for the message.
    """
    from lumion_hw.drivers.transponders.cmis.path_driver import PathDriver
    from lumion_hw.drivers.transponders.qsfp import QsfpTransponder
    from lumion_hw.drivers.transponders.qsfp_lane import QsfpLane

    if isinstance(module, PathDriver | QsfpLane):
        text = f"{action} needs a whole module, not one of its lanes"
        return NotSupportedError(text, hint="Give the name of the module, without the lane.")
    standard = "SFF-8636" if isinstance(module, QsfpTransponder) else "SFF-8472"
    return NotSupportedError(f"{action} needs {needed}", hint=f"This module follows {standard}.")


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
    """Return the option ``--lanes``; its value is a sorted tuple of lane numbers."""
    return click.option("--lanes", type=Lanes(), help=help_text)


def lane_text(lanes: tuple[int, ...]) -> str:
    """Return lane numbers as text, such as ``1, 3``; ``-`` if there are none."""
    return ", ".join(map(str, lanes)) or "-"
