"""Two LUMION mesh controllers keep together the promises of the interface that each of them keeps."""

from collections.abc import Iterator

import numpy as np
import pytest

from firmware_protocol import FaultSource
from lumion_hw.drivers.mesh.combined import CombinedController
from lumion_hw.drivers.mesh.lumion.controller import LumionMeshController
from lumion_hw.emulator.mesh.lumion import BoardProfile, MeshBoard
from lumion_hw.interfaces import ControllerLimits
from lumion_hw.links.memory import MemoryLink
from lumion_hw.testing.contracts import MeshControllerContract, WireFixtures

HEATERS, MONITORS = (24, 10), (6, 4)
FULL_SCALE_MA, MONITOR_FULL_SCALE_MA = 10.0, 1.0
LIT = 3


class Chip:
    """What two boards drive and what their photodiodes give."""

    def __init__(self) -> None:
        self.driven_ma = [np.zeros(n) for n in HEATERS]
        self.photocurrent_ma = [np.linspace(0.0, 0.5, n) for n in MONITORS]

    def board(self, number: int, clock) -> MeshBoard:
        def drive(currents_ma: np.ndarray, at_s: float) -> None:
            self.driven_ma[number] = currents_ma.copy()

        return MeshBoard(
            f"mesh{number}",
            clock,
            np.random.default_rng(number),
            drive=drive,
            sense_ma=lambda n_avg, at_s: self.photocurrent_ma[number],
            profile=BoardProfile(
                n_dac=HEATERS[number],
                n_adc=MONITORS[number],
                dac_full_scale=round(FULL_SCALE_MA * 1e3),
                adc_full_scale=round(MONITOR_FULL_SCALE_MA * 1e6),
                serial=f"EMU-MESH-000{number}",
            ),
        )


class TestCombinedController(WireFixtures, MeshControllerContract):
    deadline_s = 4.0
    # The second controller is in memory, on virtual time.
    wires = ()

    @pytest.fixture
    def chip(self) -> Chip:
        return Chip()

    @pytest.fixture
    def device(self, clock, chip) -> MeshBoard:
        return chip.board(0, clock)

    @pytest.fixture
    def driver(self, wire, clock, chip) -> Iterator[CombinedController]:
        links = wire.link(), MemoryLink(chip.board(1, clock).connect, clock, "the second controller")
        parts = {f"mesh{i}": LumionMeshController(link, clock, device=f"mesh{i}") for i, link in enumerate(links)}
        for part in parts.values():
            part.open()
        whole = [ControllerLimits(np.full(n, FULL_SCALE_MA), np.full(n, 1000.0), 1e6) for n in HEATERS]
        controller = CombinedController(parts, whole, clock, device="mesh0+mesh1")
        yield controller
        controller.close()

    @pytest.fixture
    def limits(self) -> ControllerLimits:
        heater_max_ma = np.full(sum(HEATERS), 5.0)
        heater_max_ma[0] = 0.0  # not fitted
        return ControllerLimits(heater_max_ma, np.full(sum(HEATERS), 1000.0), total_power_mw=600.0, watchdog_s=2.0)

    @pytest.fixture
    def driven_ma(self, chip):
        return lambda: np.concatenate(chip.driven_ma)

    @pytest.fixture
    def saturate(self, chip):
        def brighten() -> int:
            chip.photocurrent_ma[1] = chip.photocurrent_ma[1].copy()
            chip.photocurrent_ma[1][LIT] = 1.5 * MONITOR_FULL_SCALE_MA
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
