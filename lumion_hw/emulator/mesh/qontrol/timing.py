"""When replies leave the modules and when they reach the host.

Delays are those recorded in the branch virtual-module of takeqontrol/api.
"""

from __future__ import annotations

import math

import numpy as np

from lumion_hw.emulator.mesh.qontrol.profile import ReplyMode

LATENCY_S = 0.016
"""Default latency timer of the USB bridge."""

_PIECE_BYTES = 184
"""What passes at 115 200 baud within one latency timer."""

_CLUSTERS_S = ((0.003, 0.004), (0.004, 0.018), (0.0155, 0.0165), (0.019, 0.021))
_SHARES = (0.40, 0.20, 0.15, 0.25)
"""Recorded delays: 5 to 95 % within 3 to 21 ms, median 11 ms, clusters at 3-4, 16 and 19-20 ms. The rare delays of up
to 267 ms are left out: they are a fault to script (:meth:`QontrolChain.delay_next_reply`)."""


class ReplyTiming:
    """Delays of the replies.

    Args:
        mode: Which.
        rng: Draws the delays of the recorded mode.
    """

    def __init__(self, mode: ReplyMode, rng: np.random.Generator) -> None:
        self._mode = mode
        self._rng = rng

    def delay_s(self) -> float:
        """Return the time from a request to its reply."""
        if self._mode is ReplyMode.USB1:
            return 0.001
        if self._mode is ReplyMode.RECORDED:
            low, high = _CLUSTERS_S[int(self._rng.choice(len(_CLUSTERS_S), p=_SHARES))]
            return float(self._rng.uniform(low, high))
        return 0.0

    def pieces(self, reply: bytes) -> list[tuple[float, bytes]]:
        """Cut a reply into pieces, each with its delay behind the first."""
        if self._mode is not ReplyMode.RECORDED:
            return [(0.0, reply)]
        starts = range(0, len(reply), _PIECE_BYTES)
        return [(index * LATENCY_S, reply[start : start + _PIECE_BYTES]) for index, start in enumerate(starts)]

    def visible_s(self, now_s: float) -> float:
        """Return up to when bytes must have left the module for the host to have them now."""
        return LATENCY_S * math.floor(now_s / LATENCY_S + 1e-9) if self._mode is ReplyMode.FTDI16 else now_s

    def delivered_s(self, left_s: float) -> float:
        """Return when the host has a byte that left the module at a time."""
        # The bridge delivers on the grid of its timer, whenever the byte left the module.
        return LATENCY_S * math.ceil(left_s / LATENCY_S - 1e-9) if self._mode is ReplyMode.FTDI16 else left_s
