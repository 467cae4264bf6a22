"""Channel masks: bit i of byte j selects channel 8 j + i, an empty mask selects all (sections 9.1 and 10.1)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firmware_protocol.errors import ChannelError


def mask_from_channels(channels: Iterable[int] | NDArray[Any], n_channels: int) -> bytes:
    """Return the shortest mask that selects ``channels``: it has no bytes after the highest channel.

    Order and repetition do not matter: values are always sent in ascending channel order. The board has ``n_channels``.

    Raises:
        ChannelError: A channel is not in 0 … n_channels − 1.
        ValueError: No channel is given: an empty mask would select all channels.
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
    """Return the selected channels in ascending order; all channels for an empty mask.

    Args:
        mask: The received mask. It can be shorter than the board needs (missing bits are not selected) or longer, as
            long as no bit after the last channel is set.
        n_channels: Number of channels the board has.

    Raises:
        ChannelError: A bit of a channel that does not exist is set (BAD_CHANNEL); names the first such channel.
    """
    if not mask:
        return np.arange(n_channels, dtype=np.intp)
    chosen = np.flatnonzero(np.unpackbits(np.frombuffer(mask, dtype=np.uint8), bitorder="little"))
    # A longer mask is allowed if it selects only existing channels.
    beyond = chosen[chosen >= n_channels]
    if beyond.size:
        raise ChannelError(int(beyond[0]), n_channels)
    return chosen
