"""Parameter types for numbers on the command line, with range and unit."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from lumion_hw.cli.common.parameter_type import ParameterType

CommandT = TypeVar("CommandT", bound=Callable[..., Any])
_MAX_ECHOED_CHARS = 40
MAX_DURATION_D = 3660
"""Longest accepted duration, in days."""
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_MAX_DURATION_S = MAX_DURATION_D * _SECONDS["d"]


class Number(click.FloatRange):
    """A finite number with a unit, between two limits.

    Args:
        unit: Unit, such as ``dB``; empty for a number without unit.
        lowest: Smallest number.
        highest: Largest number.
        above: Whether ``lowest`` itself is excluded.
    """

    def __init__(self, unit: str, lowest: float, highest: float, *, above: bool = False) -> None:
        super().__init__(lowest, highest, min_open=above)
        self.unit = unit
        self.lowest, self.highest, self.above = lowest, highest, above
        self.name = unit or "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Convert a command-line argument to a number and check its range."""
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            self.fail(f"{str(value)[:_MAX_ECHOED_CHARS]!r} is not a finite number; give {self.range_text}.", param, ctx)
        if not self.lowest <= number <= self.highest or (self.above and number == self.lowest):
            unit = f" {self.unit}" if self.unit else ""
            self.fail(f"{number:g}{unit} is out of range; give {self.range_text}.", param, ctx)
        return number

    @property
    def range_text(self) -> str:
        """The allowed range as text, such as ``more than 0 to 10 dB``."""
        unit = f" {self.unit}" if self.unit else ""
        return f"{'more than ' if self.above else ''}{self.lowest:g} to {self.highest:g}{unit}"


class Duration(ParameterType[float]):
    """A duration such as ``30s``, ``1.5min``, ``2h`` or ``7d``; a number without unit is in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Convert a command-line argument to a duration in seconds."""
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|h|d)?", str(value).strip(), re.ASCII)
        seconds = float(match[1]) * _SECONDS[match[2] or "s"] if match else 0.0
        if not 0.0 < seconds <= _MAX_DURATION_S:
            text = f"{str(value)[:_MAX_ECHOED_CHARS]!r} is not a duration"
            self.fail(f"{text}; give for example 30s, 1.5min, 2h or 7d, at most {MAX_DURATION_D} d.", param, ctx)
        return seconds


SEED = click.IntRange(0, 2**32 - 1)
"""Parameter type: a random seed."""
PORT = click.IntRange(0, 10**6)
"""Parameter type: a port number of a mesh."""
MAX_COUNT = 10**6
"""Largest accepted value of options that count something."""
PERIOD = Number("s", 0.05, 86_400.0)
"""Parameter type: time between two readings of a device, in seconds."""
DURATION = Number("s", 0.0, 86_400.0)
"""Parameter type: a duration of at most a day, in seconds."""
TOLERANCE_DB = Number("dB", 0.0, 100.0)
"""Parameter type: largest accepted error, in dB."""


def count_option(*names: str, default: int, meaning: str, lowest: int = 1) -> Callable[[CommandT], CommandT]:
    """Return an option that counts something, from ``lowest`` to ``MAX_COUNT``."""
    limits = click.IntRange(lowest, MAX_COUNT)
    return click.option(*names, type=limits, default=default, show_default=True, help=meaning)
