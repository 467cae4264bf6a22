"""Emulated Keysight meters behind connections that know their programming guides."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.meters.keysight_816x import EmulatedKeysight816x
from lumion_hw.emulator.meters.keysight_n77xx import EmulatedKeysightN77xx
from lumion_hw.emulator.optics.light import Light
from tests.wire_vectors import DocumentedPeer

FLT_MAX = 3.4028234663852886e38
LIGHT_W = 1e-5


def block(payload: bytes) -> bytes:
    length = str(len(payload)).encode()
    return b"#%d%s%s" % (len(length), length, payload)


class Meter(DocumentedPeer):
    """Meter with light on all heads; tests substitute identities and samples."""

    def __init__(self, instrument: str, device: Any, clock: VirtualClock, identity: str) -> None:
        super().__init__(instrument, device, clock)
        self.replies["*IDN?"] = identity

    def complete_run(self, sense: str, samples_w: list[float]) -> None:
        """Let the run of a channel be complete at once, with these samples."""
        self.replies[f"{sense}:FUNC:RES?"] = block(struct.pack(f"<{len(samples_w)}f", *samples_w))
        self.replies[f"{sense}:FUNC:STAT?"] = "LOGGING_STABILITY,COMPLETE"


def multiport_meter(clock: VirtualClock) -> Meter:
    """Return an N7744C with four ports."""
    device = EmulatedKeysightN77xx("pm1", clock, np.random.default_rng(1), lambda _: LIGHT_W, model="N7744C", n_ports=4)
    return Meter("keysight_n77xx", device, clock, "Keysight Technologies,N7744C,MY1,1.0")


def mainframe(clock: VirtualClock, identity: str) -> Meter:
    """Return an 8164B with a dual sensor in slot 2 and a single one in slot 4."""
    modules = {2: "81635A", 4: "81634B"}
    device = EmulatedKeysight816x("pm1", clock, np.random.default_rng(1), lambda *_: Light(LIGHT_W), modules=modules)
    return Meter("keysight_816x", device, clock, identity)
