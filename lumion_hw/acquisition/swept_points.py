"""The result of one point of a sweep that an instrument runs by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lumion_hw.acquisition.columns import Value


@dataclass(frozen=True)
class SweptPoint:
    """One point of a sweep that an instrument has run.

    Attributes:
        numbers: Value of every swept setting: as requested, or the wavelength that the laser logged.
    """

    numbers: Sequence[float]
    values: list[Value]
