"""The latest value of every readable quantity of a bench."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lumion_hw.acquisition.columns import FAILED, Column, Reader, State, Value
from lumion_hw.clock import Clock
from lumion_hw.errors import LumionError


@dataclass(frozen=True)
class LatestValue:
    """The latest value of one column.

    Attributes:
        value: The last value that was read; ``FAILED`` if there is none.
        stale_s: Age of the value in seconds if the last reading failed, otherwise ``None``.
    """

    column: Column
    value: Value
    stale_s: float | None


class Latest:
    """Stores the latest value of every column."""

    def __init__(self, reader: Reader, clock: Clock) -> None:
        self._reader = reader
        self._clock = clock
        self._start_s = clock.now()
        self._read_s: dict[str, float] = {}
        self._values: dict[str, Value] = {}
        self._stale: set[str] = set()

    @property
    def failures(self) -> Mapping[str, LumionError]:
        """Errors of the last update, by device name."""
        return self._reader.failures

    def update(self) -> None:
        """Read all columns once and store the values."""
        for column, value in zip(self._reader.columns, self._reader.read(), strict=True):
            if value.state is State.FAILED:
                self._stale.add(column.name)
                continue
            self._values[column.name] = value
            self._read_s[column.name] = self._clock.now()
            self._stale.discard(column.name)

    def entries(self) -> list[LatestValue]:
        """Return every column with the latest value."""
        now_s = self._clock.now()
        return [
            LatestValue(
                column,
                self._values.get(column.name, FAILED),
                now_s - self._read_s.get(column.name, self._start_s) if column.name in self._stale else None,
            )
            for column in self._reader.columns
        ]
