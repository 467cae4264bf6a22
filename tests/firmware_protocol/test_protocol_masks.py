"""Channel masks: bit i of byte j is channel 8 j + i, and an empty mask means every channel (sections 9.1 and 10.1)."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

import firmware_protocol as fp


@pytest.mark.parametrize(
    ("channels", "mask"),
    [([0], "01"), ([7], "80"), ([8], "0001"), ([0, 1, 3], "0b"), ([3, 1, 0, 1], "0b"), ([0, 15], "0180")],
)
def test_a_mask_counts_bits_from_the_lowest_of_the_first_byte(channels: list[int], mask: str) -> None:
    assert fp.mask_from_channels(channels, 16).hex() == mask
    assert fp.channels_from_mask(bytes.fromhex(mask), 16).tolist() == sorted(set(channels))


def test_no_mask_is_every_channel_and_so_no_channel_cannot_be_asked_for() -> None:
    assert fp.channels_from_mask(b"", 3).tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="at least one"):
        fp.mask_from_channels([], 3)


@pytest.mark.parametrize("channel", [-1, 4, 65535])
def test_a_channel_that_does_not_exist_has_no_mask(channel: int) -> None:
    with pytest.raises(fp.ChannelError, match=f"channel {channel} does not exist; there are 4"):
        fp.mask_from_channels([0, channel], 4)


def test_a_mask_may_be_longer_than_needed_but_not_name_a_channel_beyond() -> None:
    assert fp.channels_from_mask(bytes.fromhex("0f000000"), 4).tolist() == [0, 1, 2, 3]
    with pytest.raises(fp.ChannelError) as caught:
        fp.channels_from_mask(bytes.fromhex("1f80"), 4)
    assert (caught.value.channel, caught.value.channels) == (4, 4)


def test_a_mask_shorter_than_needed_leaves_the_rest_out() -> None:
    assert fp.channels_from_mask(b"\xff", 64).tolist() == list(range(8))


@given(st.sets(st.integers(0, 299), min_size=1))
def test_every_choice_of_channels_survives(channels: set[int]) -> None:
    mask = fp.mask_from_channels(channels, 300)
    assert fp.channels_from_mask(mask, 300).tolist() == sorted(channels)
    assert len(mask) == max(channels) // 8 + 1
