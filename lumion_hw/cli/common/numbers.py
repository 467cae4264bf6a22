"""Numbers on the command line: finite, in a range that is part of the type, with the unit in help and errors."""

from __future__ import annotations

import math
import re
from typing import Any

import click

from lumion_hw.cli.common.parameter_type import ParameterType

_SHOWN = 40
LONGEST_D = 3660
"""Days in the longest time that can be asked for."""
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST_S = LONGEST_D * _SECONDS["d"]


class Number(click.FloatRange):
    """A finite number of some unit between two limits.

    Args:
        unit: What it counts, such as ``dB``; empty for a bare number.
        least: Smallest number.
        most: Largest number.
        above: Whether ``least`` itself is too small.
    """

    def __init__(self, unit: str, least: float, most: float, *, above: bool = False) -> None:
        super().__init__(least, most, min_open=above)
        self.unit = unit
        self.least, self.most, self.above = least, most, above
        self.name = unit or "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        of_unit = f" of {self.unit}" if self.unit else ""
        if not math.isfinite(number):
            self.fail(f"{str(value)[:_SHOWN]!r} is no finite number{of_unit}; give {self.words}.", param, ctx)
        if not self.least <= number <= self.most or (self.above and number == self.least):
            self.fail(
                f"{number:g}{f' {self.unit}' if self.unit else ''} is out of range; give {self.words}.", param, ctx
            )
        return number

    @property
    def words(self) -> str:
        """The range in words."""
        unit = f" {self.unit}" if self.unit else ""
        return f"{'more than ' if self.above else ''}{self.least:g} to {self.most:g}{unit}"


class Duration(ParameterType[float]):
    """A time such as ``30s``, ``1.5min``, ``2h`` or ``7d``; a bare number is in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the time in seconds."""
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|h|d)?", str(value).strip(), re.ASCII)
        seconds = float(match[1]) * _SECONDS[match[2] or "s"] if match else 0.0
        if not 0.0 < seconds <= _LONGEST_S:
            self.fail(f"{str(value)[:40]!r} is no time; write 30s, 1.5min, 2h or 7d, up to {LONGEST_D} d.", param, ctx)
        return seconds


SEED = click.IntRange(0, 2**32 - 1)
"""A seed of everything random."""
PORT = click.IntRange(0, 10**6)
"""The number of a port of a mesh."""
MANY = 10**6
"""The largest number of things of any kind that can be asked for."""
PERIOD = Number("s", 0.05, 86_400.0)
"""Time between two looks at a device."""
TOLERANCE_DB = Number("dB", 0.0, 100.0)
"""Largest error that passes."""
