"""A chain of Qontrol modules keeps the promises of a mesh controller, in text and binary mode, over its serial line.

What the modules cannot do (monitors, sweeps, telemetry) has to be refused by name; see the contract.
"""

from collections.abc import Iterator

import numpy as np
import pytest

from lumion_hw.drivers.mesh.qontrol.controller import QontrolController
from lumion_hw.emulator.mesh.qontrol import OPEN, ChainProfile, HeaterLoad, ModuleSpec, QontrolChain, Readback
from lumion_hw.interfaces import ControllerLimits
from lumion_hw.testing.contracts import MeshControllerContract, WireFixtures

N_HEATERS = 16
HEATER = HeaterLoad(1000.0)
BROKEN = 9
TOLERANCE_MA = 0.02
"""Idle outputs were recorded to read within 0.012 mA."""


class TestQontrolChain(WireFixtures, MeshControllerContract):
    # Switching off is tried three times, each time with all the patience a silent line needs.
    deadline_s = 6.0
    wires = ("pty",)

    @pytest.fixture(params=["binary", "ascii"])
    def mode(self, request) -> str:
        return request.param

    @pytest.fixture
    def carried(self) -> list[np.ndarray]:
        return []

    @pytest.fixture
    def device(self, clock, carried) -> QontrolChain:
        return QontrolChain(
            "mesh0",
            clock,
            np.random.default_rng(1),
            drive=lambda currents_ma, at_s: carried.append(currents_ma),
            modules=(ModuleSpec(number=1), ModuleSpec(number=0x2A)),
            loads=HEATER,
            profile=ChainProfile(readback=Readback(offset_ma=0.012)),
        )

    @pytest.fixture
    def driver(self, wire, clock, mode) -> Iterator[QontrolController]:
        controller = QontrolController(
            wire.link(),
            clock,
            device="mesh0",
            expected_serial="Q8iv-0001,Q8iv-002A",
            mode=mode,
            tolerance_ma=TOLERANCE_MA,
        )
        controller.open()
        yield controller
        controller.close()

    @pytest.fixture
    def limits(self) -> ControllerLimits:
        heater_max_ma = np.full(N_HEATERS, 5.0)
        heater_max_ma[0] = 0.0  # not fitted
        return ControllerLimits(heater_max_ma, np.full(N_HEATERS, 1000.0), total_power_mw=200.0)

    @pytest.fixture
    def driven_ma(self, device):
        return lambda: device.currents_ma

    @pytest.fixture
    def output_history_ma(self, carried):
        def since_the_last_time() -> list[np.ndarray]:
            tables = carried.copy()
            carried.clear()
            return tables

        return since_the_last_time

    @pytest.fixture
    def hold_fault(self, wire, device, clock):
        def hold(present: bool) -> None:
            wire.run_action(lambda: device.set_load(BROKEN, OPEN if present else HEATER))
            clock.sleep(0.1)  # the supervision speaks 3 to 40 ms later

        return hold
