"""The CMIS driver keeps the promises of the interface on emulated modules, straight on the bus and behind a bridge."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.transponders.cmis import CmisTransponder, ModulePath
from lumion_hw.emulator.transponders.cmis import CmisModule, ModuleOnBus, ReceivedLight
from lumion_hw.emulator.transponders.cmis.optics import LaunchedLight
from lumion_hw.emulator.transponders.i2c_bridge import I2cBridge
from lumion_hw.links.memory import MemoryLink
from lumion_hw.quantities import w_from_dbm
from lumion_hw.sessions.module.paged_i2c import BridgedI2c
from lumion_hw.sessions.module.sc18im700 import Sc18im700
from lumion_hw.testing.contracts import BreakoutTransponderContract, CoherentTransponderContract

BAUD = 115_200


class Fibre:
    """What arrives at the module and what it launches."""

    def __init__(self) -> None:
        self.light = ReceivedLight()
        self.launched: LaunchedLight | None = None

    def receive(self, power_dbm: float | None) -> None:
        dark = power_dbm is None
        self.light = ReceivedLight() if dark else ReceivedLight(power_dbm, power_dbm, osnr_db=36.0)

    def optics(self, lane: int, at_s: float) -> ReceivedLight:
        del lane, at_s
        return self.light

    def emit(self, light: LaunchedLight) -> None:
        self.launched = light


class TestEmulatedModule(CoherentTransponderContract):
    profile = "400zr"
    accuracy_db = 1.0
    lock_s = 5.0

    @pytest.fixture
    def clock(self) -> VirtualClock:
        return VirtualClock()

    @pytest.fixture
    def fibre(self) -> Fibre:
        return Fibre()

    @pytest.fixture
    def module(self, clock: VirtualClock, fibre: Fibre) -> CmisModule:
        return CmisModule.from_profile(
            self.profile, clock=clock, seed=1, optics=fibre.optics, emit=fibre.emit, warm=True
        )

    @pytest.fixture
    def driver(self, module: CmisModule, clock: VirtualClock) -> Iterator[CmisTransponder]:
        driver = CmisTransponder(module, clock, device="zr1")
        driver.open()
        driver.power_up()
        driver.enable()  # a receiver reports only while its data path is up
        yield driver
        driver.close()

    @pytest.fixture
    def unplug(self, module: CmisModule) -> Callable[[], None]:
        return module.unplug

    @pytest.fixture
    def receive_dbm(self, fibre: Fibre) -> Callable[[float | None], None]:
        return fibre.receive

    @pytest.fixture
    def launched_w(self, module: CmisModule, fibre: Fibre) -> Callable[[], float]:
        def launched() -> float:
            module.advance()
            return w_from_dbm(fibre.launched.power_dbm) if fibre.launched and fibre.launched.enabled else 0.0

        return launched


class TestOnePathOfAModule(TestEmulatedModule):
    """What holds for a module holds for its only data path. Low power and closing are those of the module."""

    @pytest.fixture
    def driver(self, module: CmisModule, clock: VirtualClock) -> Iterator[ModulePath]:
        opened = CmisTransponder(module, clock, device="zr1")
        opened.open()
        path = opened.path(1)
        path.power_up()
        path.enable()
        path.close = opened.close  # type: ignore[method-assign]
        path.power_down = opened.power_down  # type: ignore[method-assign]
        yield path
        opened.close()


class TestBrokenOutModule(BreakoutTransponderContract):
    """4x100G from one 400G-DR4: path k begins on host lane 2k - 1, and has media lane k."""

    @pytest.fixture
    def clock(self) -> VirtualClock:
        return VirtualClock()

    @pytest.fixture
    def module(self, clock: VirtualClock) -> CmisModule:
        return CmisModule.from_profile("400g-dr4", clock=clock, seed=1, warm=True)

    @pytest.fixture
    def driver(self, module: CmisModule, clock: VirtualClock) -> Iterator[CmisTransponder]:
        driver = CmisTransponder(module, clock, device="dr4")
        driver.open()
        driver.power_up()
        driver.disable()
        yield driver
        driver.close()

    @pytest.fixture
    def unplug(self, module: CmisModule) -> Callable[[], None]:
        return module.unplug

    @pytest.fixture
    def launched_w(self, module: CmisModule) -> Callable[[int], float]:
        return lambda first_lane: w_from_dbm(module.light((first_lane + 1) // 2).power_dbm)


@pytest.mark.long
class TestHighPowerModule(TestEmulatedModule):
    profile = "zr-plus-high-power"
    lock_s = 10.0


@pytest.mark.long
class TestModuleBehindABridge(TestEmulatedModule):
    @pytest.fixture
    def driver(self, module: CmisModule, clock: VirtualClock) -> Iterator[CmisTransponder]:
        bridge = I2cBridge("zr1", clock, [ModuleOnBus(module)], baud=BAUD)
        link = MemoryLink(bridge.connect, clock, "emulated zr1")
        registers = Sc18im700(link, clock, device="zr1", baud=BAUD, retry_s=0.1)
        driver = CmisTransponder(BridgedI2c(registers), clock, device="zr1")
        driver.open()
        driver.power_up()
        driver.enable()  # a receiver reports only while its data path is up
        yield driver
        driver.close()
