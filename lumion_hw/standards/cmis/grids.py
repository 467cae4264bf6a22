"""Frequency grids of lasers.

Frequencies are exact fractions in MHz, because the 33.3 GHz grid contains thirds; modules report whole MHz.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType

from lumion_hw.errors import LimitError
from lumion_hw.standards.cmis.administrative_pages import GRID_NAMES, PAGE_04H
from lumion_hw.standards.cmis.codec import decode_from
from lumion_hw.standards.cmis.codes import Grid

ANCHOR_MHZ = 193_100_000
"""Frequency of channel 0 in MHz, for every grid except the 150 GHz grid."""


@dataclass(frozen=True)
class GridRule:
    """Numbering of a grid's channels. Channel n has the frequency ``ANCHOR_MHZ`` + (n + ``offset``) * ``unit_mhz``.

    Attributes:
        unit_mhz: Frequency difference between consecutive channel numbers.
        step: Allowed channel numbers are multiples of this step.
        offset: Offset added to the channel number.
    """

    unit_mhz: Fraction
    step: int = 1
    offset: int = 0

    @property
    def spacing_mhz(self) -> Fraction:
        """Frequency difference between neighbouring allowed channels, in MHz."""
        return self.unit_mhz * self.step


GRIDS: Mapping[Grid, GridRule] = MappingProxyType(
    {
        Grid.GHZ_3_125: GridRule(Fraction(3125)),
        Grid.GHZ_6_25: GridRule(Fraction(6250)),
        Grid.GHZ_12_5: GridRule(Fraction(12_500)),
        Grid.GHZ_25: GridRule(Fraction(25_000)),
        Grid.GHZ_50: GridRule(Fraction(50_000)),
        Grid.GHZ_100: GridRule(Fraction(100_000)),
        Grid.GHZ_33: GridRule(Fraction(100_000, 3)),
        Grid.GHZ_75: GridRule(Fraction(25_000), step=3),
        Grid.GHZ_150: GridRule(Fraction(25_000), step=6, offset=3),
    }
)
"""All grids of page 12h, bytes 128 to 135."""


def frequency_mhz(grid: Grid, channel: int) -> Fraction:
    """Return the exact frequency of a channel number."""
    rule = GRIDS[grid]
    return ANCHOR_MHZ + (channel + rule.offset) * rule.unit_mhz


def reported_mhz(grid: Grid, channel: int, fine_mhz: int = 0) -> int:
    """Return the frequency in whole MHz, as a module reports it."""
    return round(frequency_mhz(grid, channel)) + fine_mhz


def is_legal(grid: Grid, channel: int) -> bool:
    """Return whether the grid has this channel number. The range of a module may be smaller."""
    return channel % GRIDS[grid].step == 0


@dataclass(frozen=True)
class FineRange:
    """Fine tuning of a laser: offsets ``low_mhz`` to ``high_mhz`` in multiples of ``resolution_mhz``."""

    resolution_mhz: int
    low_mhz: int
    high_mhz: int

    def allows(self, offset_mhz: int) -> bool:
        """Return whether a fine-tuning offset can be set."""
        if offset_mhz == 0:
            return True
        in_range = self.low_mhz <= offset_mhz <= self.high_mhz
        return in_range and self.resolution_mhz > 0 and offset_mhz % self.resolution_mhz == 0


@dataclass(frozen=True)
class Tuning:
    """Settings that tune a laser, and the frequency in MHz that it then reports."""

    grid: Grid
    channel: int
    fine_mhz: int
    frequency_mhz: int


@dataclass(frozen=True)
class LaserGrids:
    """The grids that a laser advertises on page 04h.

    Attributes:
        channels: Lowest and highest channel number of each grid that the module supports.
        fine: Range of fine tuning; ``None`` without fine tuning.
    """

    channels: Mapping[Grid, tuple[int, int]] = field(default_factory=dict)
    fine: FineRange | None = None

    def allows(self, grid: Grid, channel: int) -> bool:
        """Return whether the module accepts a channel."""
        low, high = self.channels.get(grid, (1, 0))
        return low <= channel <= high and is_legal(grid, channel)

    def select(self, mhz: int, grid: Grid | None = None) -> Tuning:
        """Return the settings for ``mhz``, preferably without fine tuning, and then on the coarsest grid.

        Args:
            mhz: Frequency in MHz.
            grid: Grid to use; default any.

        Raises:
            LimitError: The frequency cannot be reached; the message names the nearest possible frequencies.
        """
        reachable = [item for item in self._candidates(mhz, grid) if self._reaches(item, mhz)]
        if reachable:
            # Prefer the least fine tuning, because it moves a laser off its grid. Then prefer
            # the coarsest grid, because channel plans usually use it.
            return min(reachable, key=lambda item: (abs(item.fine_mhz), -GRIDS[item.grid].spacing_mhz))
        raise self._refusal(mhz, grid)

    def _reaches(self, item: Tuning, mhz: int) -> bool:
        allowed = item.fine_mhz == 0 or (self.fine is not None and self.fine.allows(item.fine_mhz))
        return item.frequency_mhz == mhz and allowed

    def _candidates(self, mhz: int, grid: Grid | None) -> Iterator[Tuning]:
        for code in self.channels if grid is None else (grid,):
            for channel in self._neighbours(code, mhz):
                yield Tuning(code, channel, mhz - reported_mhz(code, channel), mhz)

    def _neighbours(self, grid: Grid, mhz: int) -> set[int]:
        rule = GRIDS[grid]
        low, high = self.channels.get(grid, (1, 0))
        first, last = -(-low // rule.step), high // rule.step
        if first > last:
            return set()
        # In exact fractions, because a float cannot hold a third of 100 GHz.
        below = ((mhz - ANCHOR_MHZ) / rule.unit_mhz - rule.offset) // rule.step
        return {rule.step * min(max(int(below) + side, first), last) for side in (0, 1)}

    def _refusal(self, mhz: int, grid: Grid | None) -> LimitError:
        reachable = sorted({self._nearest(item, mhz, side) for item in self._candidates(mhz, grid) for side in (-1, 1)})
        below = max((value for value in reachable if value < mhz), default=None)
        above = min((value for value in reachable if value > mhz), default=None)
        nearest = [value for value in (below, above) if value is not None]
        if not nearest:
            grid_text = "the module's grids" if grid is None else f"the {GRID_NAMES[grid].replace('_', '.')} grid"
            return LimitError(f"the module can emit no frequency on {grid_text}", requested=mhz, limit=0, unit="MHz")
        names = " and ".join(f"{value} MHz" for value in nearest)
        return LimitError(
            f"{mhz} MHz cannot be reached; nearest {names}",
            requested=mhz,
            limit=min(nearest, key=lambda value: abs(value - mhz)),
            unit="MHz",
        )

    def _nearest(self, item: Tuning, mhz: int, side: int) -> int:
        centre = reported_mhz(item.grid, item.channel)
        if self.fine is None or self.fine.resolution_mhz <= 0:
            return centre
        step = self.fine.resolution_mhz
        offset_mhz = mhz - centre
        offset = offset_mhz // step * step if side < 0 else -(-offset_mhz // step) * step
        low, high = -(-self.fine.low_mhz // step) * step, self.fine.high_mhz // step * step
        return centre + min(max(offset, min(low, 0)), max(high, 0))


_FIELDS = {item.name: item for item in PAGE_04H}


def laser_grids(page_04h: bytes) -> LaserGrids:
    """Return the grids in the 128 bytes of page 04h.

    Raises:
        ValueError: ``page_04h`` does not have 128 bytes.
    """

    def value(name: str) -> int:
        return int(decode_from(_FIELDS[name], page_04h))

    ranges = {
        grid: (value(f"grid_{name}_low_channel"), value(f"grid_{name}_high_channel"))
        for grid, name in zip(Grid, GRID_NAMES, strict=True)
        if value(f"grid_{name}_supported")
    }
    fine = FineRange(value("fine_tuning_resolution"), value("fine_tuning_low"), value("fine_tuning_high"))
    return LaserGrids(
        {grid: (low, high) for grid, (low, high) in ranges.items() if low <= high},
        fine if value("fine_tuning_supported") else None,
    )
