"""A host for an emulated Qontrol chain: lines and bytes over an in-memory link, on a virtual clock."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.mesh.qontrol import IDEAL_READBACK, ChainProfile, HeaterLoad, ModuleSpec, QontrolChain
from lumion_hw.links.memory import MemoryLink

TWO = (ModuleSpec(number=1), ModuleSpec())
"""The chain of the recordings: one module with a serial number, one without."""


class Rig:
    """A chain whose currents are recorded, and a host. Readings are exact unless a profile says otherwise."""

    def __init__(
        self,
        modules: Sequence[ModuleSpec] = TWO,
        *,
        loads: Sequence[HeaterLoad] | HeaterLoad | None = None,
        seed: int = 1,
        profile: ChainProfile | None = None,
        **settings: object,
    ) -> None:
        self.clock = VirtualClock()
        self.driven: list[tuple[float, NDArray[np.float64]]] = []
        settings.setdefault("readback", IDEAL_READBACK)
        self.chain = QontrolChain(
            "heaters",
            self.clock,
            np.random.default_rng(seed),
            drive=lambda currents, at_s: self.driven.append((at_s, currents)),
            modules=modules,
            loads=loads,
            profile=profile or ChainProfile(**settings),
        )
        self.link = self.dial()

    def dial(self) -> MemoryLink:
        link = MemoryLink(self.chain.connect, self.clock, "memory://heaters")
        link.open(0.0)
        return link

    def raw(self, data: bytes, wait_s: float = 0.0) -> bytes:
        """Send bytes; return everything received within ``wait_s``."""
        self.link.write(data, 0.0)
        deadline, answer = self.clock.now() + wait_s, b""
        while fresh := self.link.read(deadline):
            answer += fresh
        return answer

    def ask(self, request: str, wait_s: float = 0.0) -> list[str]:
        """Send a text line; return the lines received within ``wait_s``."""
        return self.lines(request.encode("latin-1") + b"\n", wait_s)

    def lines(self, data: bytes, wait_s: float = 0.0) -> list[str]:
        """Send bytes; return the lines received within ``wait_s``. Every line ends with LF only."""
        text = self.raw(data, wait_s).decode("latin-1")
        assert not text or text.endswith("\n")
        assert "\r" not in text
        return text.split("\n")[:-1]

    def wait(self, seconds: float) -> list[str]:
        """Let time pass; return the unsolicited lines."""
        return self.lines(b"", seconds)

    @property
    def currents_ma(self) -> NDArray[np.float64]:
        return self.driven[-1][1]
