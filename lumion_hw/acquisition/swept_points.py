"""What a device that runs a sweep by itself gives back of every point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lumion_hw.acquisition.columns import Value


@dataclass(frozen=True)
class SweptPoint:
    """One point of a sweep that a device has run by itself.

    Attributes:
        numbers: Value of every setting there: what was asked, but of a laser that swept the wavelength of its log.
        values: The readings.
    """

    numbers: Sequence[float]
    values: list[Value]
