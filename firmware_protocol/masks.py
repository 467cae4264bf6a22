"""Channel masks: bit i of byte j selects channel 8 j + i.

An empty mask selects all channels (sections 9.1 and 10.1).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firmware_protocol.errors import ChannelError


def mask_from_channels(channels: Iterable[int] | NDArray[Any], n_channels: int) -> bytes:
    """Return the shortest mask that selects ``channels``.

    Raises:
        ChannelError: A channel is not in 0 … n_channels − 1.
        ValueError: No channel is given.
    """
    chosen = sorted({int(channel) for channel in channels})
    if not chosen:
        raise ValueError("a mask must select at least one channel; an empty mask would select all channels")
    # The channels are sorted: if the first and the last exist, all exist.
    for channel in (chosen[0], chosen[-1]):
        if not 0 <= channel < n_channels:
            raise ChannelError(channel, n_channels)
    bits = np.zeros(chosen[-1] + 1, dtype=np.uint8)
    bits[chosen] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def channels_from_mask(mask: bytes, n_channels: int) -> NDArray[np.intp]:
    """Return the selected channels in ascending order. An empty mask selects all.

    Args:
        mask: Received mask. Missing bits are not selected.
        n_channels: Number of channels of the board.

    Raises:
        ChannelError: The mask selects a channel that does not exist; the message names the first one.
    """
    if not mask:
        return np.arange(n_channels, dtype=np.intp)
    chosen = np.flatnonzero(np.unpackbits(np.frombuffer(mask, dtype=np.uint8), bitorder="little"))
    # A longer mask is allowed if it selects only existing channels.
    out_of_range = chosen[chosen >= n_channels]
    if out_of_range.size:
        raise ChannelError(int(out_of_range[0]), n_channels)
    return chosen
