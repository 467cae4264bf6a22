"""The OZ Optics EPC04 keeps the promises of the interface, on the emulated controller, over its serial line."""

from collections.abc import Iterator

import numpy as np
import pytest

from lumion_hw.drivers.polarization.oz_epc04 import OzEpc04
from lumion_hw.emulator.polarization.oz_epc04 import Epc04
from lumion_hw.testing.contracts import PolarizationControllerContract, WireFixtures


class TestOzEpc04(WireFixtures, PolarizationControllerContract):
    wires = ("pty",)

    @pytest.fixture
    def squeezers_mv(self) -> dict[int, float]:
        return {}

    @pytest.fixture
    def device(self, clock, squeezers_mv) -> Epc04:
        return Epc04("pol0", clock, np.random.default_rng(1), drive_mv=squeezers_mv.__setitem__)

    @pytest.fixture
    def driver(self, wire, clock) -> Iterator[OzEpc04]:
        controller = OzEpc04(wire.link(), clock, device="pol0")
        controller.open()
        yield controller
        controller.close()

    @pytest.fixture
    def actual_settings(self, squeezers_mv):
        return lambda: np.array([squeezers_mv[channel] for channel in (1, 2, 3, 4)])
