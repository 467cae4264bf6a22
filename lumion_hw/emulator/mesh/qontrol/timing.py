"""Delays of Qontrol replies, recorded in the branch virtual-module of takeqontrol/api."""

from __future__ import annotations

import math

import numpy as np

from lumion_hw.emulator.mesh.qontrol.profile import ReplyMode

LATENCY_S = 0.016
"""Default latency timer of the USB bridge."""

_BURST_BYTES = 184
"""Number of bytes sent at 115 200 baud within one period of the latency timer."""

_CLUSTERS_S = ((0.003, 0.004), (0.004, 0.018), (0.0155, 0.0165), (0.019, 0.021))
_PROBABILITIES = (0.40, 0.20, 0.15, 0.25)
"""Probabilities of the recorded delays: 5 to 95 % within 3 to 21 ms, median 11 ms, clusters at 3-4, 16 and 19-20 ms.

The rare delays of up to 267 ms are not included.
"""


class ReplyTiming:
    """Random delays of Qontrol replies in a given mode."""

    def __init__(self, mode: ReplyMode, rng: np.random.Generator) -> None:
        self._mode = mode
        self._rng = rng

    def delay_s(self) -> float:
        """Return the delay from a request to its reply in seconds."""
        if self._mode is ReplyMode.USB1:
            return 0.001
        if self._mode is ReplyMode.RECORDED:
            low, high = _CLUSTERS_S[int(self._rng.choice(len(_CLUSTERS_S), p=_PROBABILITIES))]
            return float(self._rng.uniform(low, high))
        return 0.0

    def split_reply(self, reply: bytes) -> list[tuple[float, bytes]]:
        """Split a reply into pieces, each with a delay in seconds relative to the first piece."""
        if self._mode is not ReplyMode.RECORDED:
            return [(0.0, reply)]
        starts = range(0, len(reply), _BURST_BYTES)
        return [(index * LATENCY_S, reply[start : start + _BURST_BYTES]) for index, start in enumerate(starts)]

    def visible_s(self, now_s: float) -> float:
        """Return the time before which bytes must have left a module to have reached the host by now."""
        return LATENCY_S * math.floor(now_s / LATENCY_S + 1e-9) if self._mode is ReplyMode.FTDI16 else now_s

    def delivered_s(self, sent_s: float) -> float:
        """Return the time at which a byte reaches the host, given the time at which it leaves a module."""
        # The bridge delivers on the grid of its timer, whenever the byte left the module.
        return LATENCY_S * math.ceil(sent_s / LATENCY_S - 1e-9) if self._mode is ReplyMode.FTDI16 else sent_s
