"""The plan of a scan, as stored in the data file: axes with settings and their values."""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

SET = ".set"
"""Suffix of the names of columns that contain the values of swept settings."""
BY_INSTRUMENT = "scan.by_instrument"
"""Name of the column that is 1 for points swept by an instrument, otherwise 0."""


@dataclass(frozen=True)
class SweptSetting:
    """One setting and its values along an axis.

    Attributes:
        name: ``device.setting``, with ``.channel`` where a device has several.
        kind: ``number``, ``flag`` or ``choice``.
        values_base64: The values as little-endian float64 in base64. A flag is 0 or 1, a choice is its index in
            ``choices``, and ``None`` is NaN.
    """

    name: str
    device: str
    unit: str
    kind: str
    choices: tuple[str, ...]
    values_base64: str

    @property
    def numbers(self) -> NDArray[np.float64]:
        """The values of the setting as numbers, shape ``(values,)``. Raises ``ValueError`` for invalid text."""
        return np.frombuffer(base64.b64decode(self.values_base64, validate=True), "<f8").astype(np.float64)

    def labels(self) -> NDArray[Any]:
        """Return the values of the setting as numbers, flags or choices, shape ``(values,)``."""
        numbers = self.numbers
        if self.kind == "flag":
            return np.array(numbers != 0.0)
        if self.kind == "choice":
            return np.array([self.choices[int(number)] for number in numbers])
        return numbers


def as_base64(numbers: NDArray[np.float64]) -> str:
    """Return numbers in the form of :attr:`SweptSetting.values_base64`."""
    return base64.b64encode(numbers.astype("<f8").tobytes()).decode()


@dataclass(frozen=True)
class ScanAxis:
    """One dimension of a scan: settings that change together.

    Attributes:
        settings: The settings; the first one names the dimension.
        n_points: Number of values of each setting.
    """

    settings: tuple[SweptSetting, ...]
    n_points: int

    @property
    def name(self) -> str:
        """Name of the axis."""
        return self.settings[0].name


@dataclass(frozen=True)
class ScanPlan:
    """The plan of a scan.

    Attributes:
        axes: The dimensions of the scan, the slowest first.
        snake: Whether every other pass of an axis is reversed.
        followers: Names of the wavelength settings of meters that follow the light.
    """

    axes: tuple[ScanAxis, ...]
    snake: bool = False
    followers: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of scan points along each axis."""
        return tuple(axis.n_points for axis in self.axes)

    @property
    def n_points(self) -> int:
        """Number of all points of the scan."""
        return math.prod(self.shape)

    @property
    def settings(self) -> tuple[SweptSetting, ...]:
        """The swept settings of all axes, axis by axis."""
        return tuple(setting for axis in self.axes for setting in axis.settings)

    def position(self, step: int) -> tuple[int, ...]:
        """Return the index on every axis for scan step ``step``. Indices and steps count from 0."""
        positions: list[int] = []
        passed = step
        for size in reversed(self.shape):
            passed, position = divmod(passed, size)
            # The quotient is the number of completed passes of this axis.
            positions.append(size - 1 - position if self.snake and passed % 2 else position)
        return tuple(reversed(positions))

    def index(self, position: tuple[int, ...]) -> int:
        """Return the index of a scan point in the data arrays, where the last axis is the fastest."""
        number = 0
        for size, at in zip(self.shape, position, strict=True):
            number = number * size + at
        return number
