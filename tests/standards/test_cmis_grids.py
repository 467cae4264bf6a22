"""Frequency grids against worked examples."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from lumion_hw.errors import LimitError
from lumion_hw.standards.cmis import FIELDS, encode
from lumion_hw.standards.cmis.codes import Grid
from lumion_hw.standards.cmis.grids import (
    ANCHOR_MHZ,
    GRIDS,
    FineRange,
    LaserGrids,
    Tuning,
    is_legal,
    laser_grids,
    reported_mhz,
)

VECTORS = [
    (Grid.GHZ_3_125, 193_103_125, 1),
    (Grid.GHZ_6_25, 193_775_000, 108),
    (Grid.GHZ_6_25, 193_925_000, 132),
    (Grid.GHZ_6_25, 191_375_000, -276),
    (Grid.GHZ_6_25, 186_125_000, -1116),
    (Grid.GHZ_12_5, 193_112_500, 1),
    (Grid.GHZ_25, 193_125_000, 1),
    (Grid.GHZ_50, 193_150_000, 1),
    (Grid.GHZ_100, 193_200_000, 1),
    (Grid.GHZ_100, 191_400_000, -17),
    (Grid.GHZ_100, 196_100_000, 30),
    (Grid.GHZ_33, 193_200_000, 3),
    (Grid.GHZ_33, 191_100_000, -60),
    (Grid.GHZ_75, 193_175_000, 3),
    (Grid.GHZ_75, 191_375_000, -69),
    (Grid.GHZ_75, 196_100_000, 120),
    (Grid.GHZ_150, 193_175_000, 0),
    (Grid.GHZ_150, 193_325_000, 6),
    (Grid.GHZ_150, 193_025_000, -6),
]
ARITHMETIC_ONLY = [(Grid.GHZ_75, 193_125_000, 1), (Grid.GHZ_150, 193_200_000, 1)]

ZR = LaserGrids(
    {Grid.GHZ_75: (-69, 120), Grid.GHZ_100: (-17, 30), Grid.GHZ_6_25: (-276, 480)}, FineRange(100, -6000, 6000)
)
"""A 400ZR laser: 100 GHz 191.4 to 196.1 THz, 75 GHz 191.375 to 196.1 THz, fine tuning."""
COARSE = LaserGrids({Grid.GHZ_75: (-69, 120), Grid.GHZ_100: (-17, 30)})
"""The same without the fine grid and without fine tuning."""


def channel_of(grid: Grid, mhz: int) -> int | None:
    """Return the channel number whose frequency is ``mhz``, legal or not; ``None`` if there is none."""
    rule = GRIDS[grid]
    number = round((mhz - ANCHOR_MHZ) / rule.unit_mhz) - rule.offset
    return number if reported_mhz(grid, number) == mhz else None


@pytest.mark.parametrize(("grid", "mhz", "channel"), VECTORS + ARITHMETIC_ONLY)
def test_channel_and_frequency(grid: Grid, mhz: int, channel: int) -> None:
    assert reported_mhz(grid, channel) == mhz


@pytest.mark.parametrize(("grid", "mhz", "channel"), VECTORS)
def test_channels_of_the_table_are_legal(grid: Grid, mhz: int, channel: int) -> None:
    assert is_legal(grid, channel)


@pytest.mark.parametrize(("grid", "mhz", "channel"), ARITHMETIC_ONLY)
def test_arithmetic_test_points_are_not_legal_channels(grid: Grid, mhz: int, channel: int) -> None:
    assert not is_legal(grid, channel)


def test_400zr_plans() -> None:
    """100 GHz: 48 channels, n = -17 to 30; 75 GHz: 64 channels, n = -69 to 120 in steps of 3."""
    assert sum(COARSE.allows(Grid.GHZ_100, n) for n in range(-200, 200)) == 48
    assert sum(COARSE.allows(Grid.GHZ_75, n) for n in range(-200, 200)) == 64
    assert not COARSE.allows(Grid.GHZ_50, 0)


def test_the_33_ghz_grid_has_thirds() -> None:
    assert reported_mhz(Grid.GHZ_33, 1) == 193_133_333
    assert reported_mhz(Grid.GHZ_33, 2) == 193_166_667


def test_the_coarsest_grid_is_preferred() -> None:
    """193.1 THz lies on 100, 75 and 6.25 GHz; 193.175 THz on 75 and 6.25 GHz."""
    assert ZR.select(193_100_000) == Tuning(Grid.GHZ_100, 0, 0, 193_100_000)
    assert ZR.select(193_175_000) == Tuning(Grid.GHZ_75, 3, 0, 193_175_000)
    assert ZR.select(193_106_250) == Tuning(Grid.GHZ_6_25, 1, 0, 193_106_250)


def test_a_grid_point_is_preferred_to_fine_tuning() -> None:
    """193.1125 THz is 6.25 GHz, n = 2, and no less than 12.5 GHz away from the coarser grids."""
    assert ZR.select(193_112_500) == Tuning(Grid.GHZ_6_25, 2, 0, 193_112_500)


def test_fine_tuning_takes_the_smallest_offset() -> None:
    assert ZR.select(193_101_000) == Tuning(Grid.GHZ_100, 0, 1000, 193_101_000)
    assert ZR.select(193_105_250) == Tuning(Grid.GHZ_6_25, 1, -1000, 193_105_250)


def test_a_named_grid_is_kept() -> None:
    assert ZR.select(193_100_000, Grid.GHZ_75) == Tuning(Grid.GHZ_75, 0, 0, 193_100_000)
    with pytest.raises(LimitError, match="nearest 193106000 MHz and 193194000 MHz"):
        ZR.select(193_150_000, Grid.GHZ_100)


def test_a_frequency_between_channels_names_its_neighbours() -> None:
    """Between 193.175 (75 GHz, n = 3) and 193.2 THz (100 GHz, n = 1)."""
    with pytest.raises(LimitError, match="nearest 193175000 MHz and 193200000 MHz"):
        COARSE.select(193_180_000)


def test_a_frequency_off_the_fine_raster_names_its_neighbours() -> None:
    """Resolution 100 MHz about 193.1 THz."""
    with pytest.raises(LimitError, match="nearest 193101000 MHz and 193101100 MHz"):
        LaserGrids({Grid.GHZ_100: (-17, 30)}, FineRange(100, -6000, 6000)).select(193_101_030)


@pytest.mark.parametrize(("mhz", "nearest"), [(191_000_000, 191_375_000), (197_000_000, 196_100_000)])
def test_a_frequency_outside_the_band_names_the_edge(mhz: int, nearest: int) -> None:
    with pytest.raises(LimitError, match=f"nearest {nearest} MHz"):
        COARSE.select(mhz)


def test_a_laser_without_grids_reaches_nothing() -> None:
    with pytest.raises(LimitError, match="no frequency"):
        LaserGrids().select(193_100_000)
    with pytest.raises(LimitError, match="50ghz grid"):
        ZR.select(193_100_000, Grid.GHZ_50)


def test_a_one_sided_fine_range_is_used_from_the_other_channel() -> None:
    """Offsets 0 to 60 GHz only: 193.160 THz is 60 GHz above channel 0 of 100 GHz, though channel 1 is nearer."""
    laser = LaserGrids({Grid.GHZ_100: (-17, 30)}, FineRange(1, 0, 60_000))
    assert laser.select(193_160_000) == Tuning(Grid.GHZ_100, 0, 60_000, 193_160_000)


def test_the_laser_page_becomes_grids() -> None:
    page = bytearray(128)

    def put(name: str, value: int) -> None:
        field = FIELDS[name]
        span = slice(field.span().start - 128, field.span().stop - 128)
        page[span] = encode(field, value, current=bytes(page[span]) if field.bits else None)

    for name, low, high in (("75ghz", -69, 120), ("100ghz", -17, 30), ("6_25ghz", -276, 480)):
        put(f"grid_{name}_supported", 1)
        put(f"grid_{name}_low_channel", low)
        put(f"grid_{name}_high_channel", high)
    put("fine_tuning_supported", 1)
    put("fine_tuning_resolution", 100)
    put("fine_tuning_low", -6000)
    put("fine_tuning_high", 6000)
    assert page[0] == 0b1010_0010
    assert laser_grids(bytes(page)) == ZR


@given(st.sampled_from(list(Grid)), st.integers(-300, 600))
def test_every_legal_channel_is_found_again(grid: Grid, number: int) -> None:
    channel = number * GRIDS[grid].step
    laser = LaserGrids({grid: (channel - 50, channel + 50)})
    assert laser.select(reported_mhz(grid, channel)) == Tuning(grid, channel, 0, reported_mhz(grid, channel))


@given(st.integers(190_000_000, 198_000_000))
def test_a_selection_reports_what_was_asked_or_is_refused(mhz: int) -> None:
    try:
        tuning = ZR.select(mhz)
    except LimitError:
        assert not any(ZR.allows(grid, channel_of(grid, mhz) or -9999) for grid in ZR.channels)
        return
    assert reported_mhz(tuning.grid, tuning.channel, tuning.fine_mhz) == mhz == tuning.frequency_mhz
    assert ZR.allows(tuning.grid, tuning.channel)
    assert ZR.fine is not None
    assert ZR.fine.allows(tuning.fine_mhz)
