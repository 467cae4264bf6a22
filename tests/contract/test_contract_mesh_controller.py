"""The LUMION mesh controller keeps the promises of the interface, on the emulated board, over its wires."""

from collections.abc import Iterator

import numpy as np
import pytest

from firmware_protocol import FaultSource
from lumion_hw.drivers.mesh.lumion.controller import LumionMeshController
from lumion_hw.emulator.mesh.lumion import BoardProfile, MeshBoard
from lumion_hw.interfaces import ControllerLimits
from lumion_hw.testing.contracts import MeshControllerContract, WireFixtures

N_HEATERS, N_MONITORS = 24, 6
FULL_SCALE_MA, MONITOR_FULL_SCALE_MA = 10.0, 1.0
LIT = 3
LEVER = 7, 5


class Chip:
    """What the board drives and what its photodiodes give."""

    def __init__(self) -> None:
        self.driven_ma = np.zeros(N_HEATERS)
        self.output_history_ma: list[np.ndarray] = []
        self.photocurrent_ma = np.linspace(0.0, 0.5, N_MONITORS)

    def drive(self, currents_ma: np.ndarray, at_s: float) -> None:
        self.driven_ma = currents_ma.copy()
        self.output_history_ma.append(self.driven_ma)

    def sense_ma(self, n_avg: int, at_s: float) -> np.ndarray:
        heater, monitor = LEVER
        seen_ma = self.photocurrent_ma.copy()
        seen_ma[monitor] = 0.1 * self.driven_ma[heater]
        return seen_ma


class TestLumionMeshController(WireFixtures, MeshControllerContract):
    # An emergency stop is repeated for 3 s until it is answered, and the link may still have to time out.
    deadline_s = 4.0
    wires = ("tcp", "pty")

    @pytest.fixture
    def chip(self) -> Chip:
        return Chip()

    @pytest.fixture
    def device(self, clock, chip) -> MeshBoard:
        profile = BoardProfile(
            n_dac=N_HEATERS,
            n_adc=N_MONITORS,
            dac_full_scale=round(FULL_SCALE_MA * 1e3),
            adc_full_scale=round(MONITOR_FULL_SCALE_MA * 1e6),
        )
        return MeshBoard(
            "mesh0", clock, np.random.default_rng(1), drive=chip.drive, sense_ma=chip.sense_ma, profile=profile
        )

    @pytest.fixture
    def driver(self, wire, clock) -> Iterator[LumionMeshController]:
        controller = LumionMeshController(wire.link(), clock, device="mesh0", expected_serial="EMU-MESH-0001")
        controller.open()
        yield controller
        controller.close()

    @pytest.fixture
    def limits(self) -> ControllerLimits:
        heater_max_ma = np.full(N_HEATERS, 5.0)
        heater_max_ma[0] = 0.0  # not fitted
        return ControllerLimits(heater_max_ma, np.full(N_HEATERS, 1000.0), total_power_mw=300.0, watchdog_s=2.0)

    @pytest.fixture
    def driven_ma(self, chip):
        return lambda: chip.driven_ma

    @pytest.fixture
    def output_history_ma(self, chip):
        def since_the_last_time() -> list[np.ndarray]:
            tables, chip.output_history_ma = chip.output_history_ma, []
            return tables

        return since_the_last_time

    @pytest.fixture
    def heater_and_monitor(self) -> tuple[int, int]:
        return LEVER

    @pytest.fixture
    def saturate(self, chip):
        def brighten() -> int:
            chip.photocurrent_ma = chip.photocurrent_ma.copy()
            chip.photocurrent_ma[LIT] = 1.5 * MONITOR_FULL_SCALE_MA
            return LIT

        return brighten

    @pytest.fixture
    def hold_fault(self, wire, device):
        def hold(present: bool) -> None:
            if present:
                wire.run_action(lambda: device.trip(FaultSource.EXTERNAL_LOOP, value=1, present=True))
            else:
                wire.run_action(lambda: device.remove_condition(FaultSource.EXTERNAL_LOOP))

        return hold
