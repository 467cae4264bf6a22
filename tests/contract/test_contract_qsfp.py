"""The QSFP driver keeps the promises of the interface, on an emulated module behind a bridge, over its serial line."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from lumion_hw.drivers.transponders.qsfp import QsfpTransponder
from lumion_hw.emulator.transponders.i2c_bridge import I2cBridge
from lumion_hw.emulator.transponders.qsfp import QsfpModule, find_profile
from lumion_hw.quantities import ratio_from_db, w_from_dbm
from lumion_hw.sessions.module.paged_i2c import BridgedI2c
from lumion_hw.sessions.module.sc18im700 import Sc18im700
from lumion_hw.testing.contracts import TransponderContract, WireFixtures

BAUD = 115_200
LANES = (1, 2, 3, 4)


class Fibre:
    """The light of four wavelengths that a module launches, and that arrives at it."""

    def __init__(self) -> None:
        self.launched_w = dict.fromkeys(LANES, 0.0)
        self.arriving_w = 0.0

    def emit(self, lane: int, power_w: float) -> None:
        self.launched_w[lane] = power_w

    def received_w(self, lane: int) -> float:
        return self.arriving_w


class TestQsfp28(WireFixtures, TransponderContract):
    wires = ()

    @pytest.fixture
    def fibre(self) -> Fibre:
        return Fibre()

    @pytest.fixture
    def module(self, clock, fibre) -> QsfpModule:
        rng, profile = np.random.default_rng(1), find_profile("100g-lr4")
        return QsfpModule("q0", clock, rng, profile=profile, serial="LR000001", light=fibre, warm=True)

    @pytest.fixture
    def device(self, clock, module) -> I2cBridge:
        return I2cBridge("q0", clock, [module], baud=BAUD)

    @pytest.fixture
    def driver(self, wire, clock, request) -> Iterator[QsfpTransponder]:
        timeout_s = 3.0 if request.function.__name__ == "test_two_threads_share_the_driver" else 0.1
        bridge = Sc18im700(wire.link(), clock, device="q0", baud=BAUD, timeout_s=timeout_s)
        transponder = QsfpTransponder(BridgedI2c(bridge), clock, device="q0", expected_serial="LR000001")
        transponder.open()
        yield transponder
        transponder.close()

    @pytest.fixture
    def receive_dbm(self, fibre) -> Callable[[float | None], None]:
        def receive(power_dbm: float | None) -> None:
            # The contract speaks of the light in the fibre, which four lanes share.
            fibre.arriving_w = 0.0 if power_dbm is None else w_from_dbm(power_dbm) / ratio_from_db(6.0206)

        return receive

    @pytest.fixture
    def launched_w(self, wire, module, fibre) -> Callable[[], float]:
        def launched() -> float:
            wire.run_action(module.advance)
            return sum(fibre.launched_w.values())

        return launched
