"""Two LUMION mesh controllers keep together the promises of the interface that each of them keeps."""

from collections.abc import Iterator

import numpy as np
import pytest

from firmware_protocol import FaultSource
from lumion_hw.drivers.mesh.combined import CombinedController
from lumion_hw.emulator.mesh.lumion import MeshBoard
from lumion_hw.interfaces import ControllerLimits
from lumion_hw.testing.contracts import MeshControllerContract, WireFixtures
from tests.drivers.mesh.combined_boards import MONITOR_FULL_SCALE_MA, Boards

HEATERS, MONITORS = (24, 10), (6, 4)
LIT = 3


class TestCombinedController(WireFixtures, MeshControllerContract):
    deadline_s = 4.0
    # The second controller is in memory, on virtual time.
    wires = ()

    @pytest.fixture
    def boards(self, clock) -> Boards:
        return Boards(HEATERS, MONITORS, clock)

    @pytest.fixture
    def device(self, boards) -> MeshBoard:
        return boards.boards[0]

    @pytest.fixture
    def driver(self, wire, boards) -> Iterator[CombinedController]:
        controller = boards.controller([wire.link(), *boards.links()[1:]])
        yield controller
        controller.close()

    @pytest.fixture
    def limits(self) -> ControllerLimits:
        heater_max_ma = np.full(sum(HEATERS), 5.0)
        heater_max_ma[0] = 0.0  # not fitted
        return ControllerLimits(heater_max_ma, np.full(sum(HEATERS), 1000.0), total_power_mw=600.0, watchdog_s=2.0)

    @pytest.fixture
    def driven_ma(self, boards):
        return lambda: boards.whole_ma

    @pytest.fixture
    def saturate(self, boards):
        def brighten() -> int:
            boards.photocurrent_ma[1] = boards.photocurrent_ma[1].copy()
            boards.photocurrent_ma[1][LIT] = 1.5 * MONITOR_FULL_SCALE_MA
            return MONITORS[0] + LIT

        return brighten

    @pytest.fixture
    def hold_fault(self, device):
        def hold(present: bool) -> None:
            if present:
                device.trip(FaultSource.EXTERNAL_LOOP, value=1, present=True)
            else:
                device.remove_condition(FaultSource.EXTERNAL_LOOP)

        return hold
