"""What a scan sweeps, as it stands in its file: axes of settings, and the values of each."""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

SET = ".set"
"""What the name of a column ends with that holds what was set."""
BY_INSTRUMENT = "scan.by_instrument"
"""Column that says which way a point was taken: 1 if a device swept by itself, 0 if it was set and read from here."""


@dataclass(frozen=True)
class SweptSetting:
    """One setting and its values along an axis.

    Attributes:
        name: ``device.setting``, with ``.channel`` where a device has several.
        device: Device name of the bench file.
        unit: Unit of the values; empty for flags and choices.
        kind: ``number``, ``flag`` or ``choice``.
        choices: Values of a choice.
        values_base64: The values as little-endian float64, in base64: a million of them stay small. A flag is 0 or 1, a
            choice its place among ``choices``, no value NaN.
    """

    name: str
    device: str
    unit: str
    kind: str
    choices: tuple[str, ...]
    values_base64: str

    @property
    def numbers(self) -> NDArray[np.float64]:
        """The values as numbers, shape ``(n,)``. Raises ``ValueError`` for what is no such text."""
        return np.frombuffer(base64.b64decode(self.values_base64, validate=True), "<f8").astype(np.float64)

    def labels(self) -> NDArray[Any]:
        """Return the values as a user gave them: numbers, flags or choices, shape ``(n,)``."""
        numbers = self.numbers
        if self.kind == "flag":
            return np.array(numbers != 0.0)
        if self.kind == "choice":
            return np.array([self.choices[int(number)] for number in numbers])
        return numbers


def as_base64(numbers: NDArray[np.float64]) -> str:
    """Return numbers as :attr:`SweptSetting.values_base64` has them."""
    return base64.b64encode(numbers.astype("<f8").tobytes()).decode()


@dataclass(frozen=True)
class ScanAxis:
    """One dimension of a scan: settings that move together.

    Attributes:
        settings: The settings; the first one names the dimension.
        n_points: How many values each has.
    """

    settings: tuple[SweptSetting, ...]
    n_points: int

    @property
    def name(self) -> str:
        """Name of the dimension."""
        return self.settings[0].name


@dataclass(frozen=True)
class ScanPlan:
    """What a scan sweeps.

    Attributes:
        axes: Its dimensions, the slowest first.
        snake: Whether every other pass of an axis goes back.
        followers: Wavelength settings of meters that are set along with the light; none in files of earlier versions.
    """

    axes: tuple[ScanAxis, ...]
    snake: bool = False
    followers: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Points along every axis."""
        return tuple(axis.n_points for axis in self.axes)

    @property
    def n_points(self) -> int:
        """All points."""
        return math.prod(self.shape)

    @property
    def settings(self) -> tuple[SweptSetting, ...]:
        """The settings of all axes, axis by axis."""
        return tuple(setting for axis in self.axes for setting in axis.settings)

    def place(self, step: int) -> tuple[int, ...]:
        """Return where a step of the scan is, along every axis.

        Args:
            step: Which step, from 0, in the order in which points are visited.
        """
        places: list[int] = []
        passed = step
        for size in reversed(self.shape):
            passed, place = divmod(passed, size)
            # The whole part left over counts the passes of this axis so far.
            places.append(size - 1 - place if self.snake and passed % 2 else place)
        return tuple(reversed(places))

    def index(self, place: tuple[int, ...]) -> int:
        """Return the number of a point: the last axis counts fastest, whatever the order of the visits."""
        number = 0
        for size, at in zip(self.shape, place, strict=True):
            number = number * size + at
        return number
