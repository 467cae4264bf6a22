"""Bring-up of a 400ZR module with each fault of the emulated module: the right named reason, before the deadline."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.transponders.cmis import CmisTransponder
from lumion_hw.emulator.transponders.cmis import FAULTS, CmisModule, ReceivedLight
from lumion_hw.errors import DeviceError, DeviceTimeoutError, LumionError
from lumion_hw.interfaces.transponder import LockReport, LockStage
from lumion_hw.sessions.module.registers import ModuleAbsentError

SIGNAL = ReceivedLight(-8.0, -8.0, osnr_db=36.0)
WAIT_S = 20.0
STEPS = ("power_up", "select_application", "tune", "set_tx_power", "enable", "performance")
SLOWEST_S = 400.0
"""No step may take longer: the longest advertised time of this profile is tuning, 180 s."""


class Ends(NamedTuple):
    """How a bring-up with one fault ends.

    Attributes:
        stage: The stage that the lock report names.
        within_s: The time the steps may take altogether.
        step: The step that cannot be taken, if there is one.
        error: What it raises.
        named: What the error has to name.
    """

    stage: LockStage
    within_s: float
    step: str = ""
    error: type[LumionError] = LumionError
    named: str = ""


UP = Ends(LockStage.LOCKED, 90.0)
ENDS: dict[str, Ends] = {
    "bad_checksum": UP,
    "counter_truncated": UP,
    "drops_to_lowpwr_on_reset": UP,
    "freeze_never_done": UP,
    "nack": UP,
    "no_init_pending": UP,
    "reject_appsel0": UP,
    "reserved_bits_set": UP,
    "temp_high": UP,
    "torn_read": UP,
    "lof": Ends(LockStage.RX_LOL, 90.0),
    "lol": Ends(LockStage.RX_LOL, 90.0),
    "los": Ends(LockStage.RX_LOS, 90.0),
    "module_fault": Ends(LockStage.FAULT, 5.0, "power_up", DeviceError, "data_memory"),
    "tec_runaway": Ends(LockStage.FAULT, 5.0, "power_up", DeviceError, "tec_runaway"),
    "unplug": Ends(LockStage.ABSENT, 5.0, "power_up", ModuleAbsentError, "no module"),
    "stuck_power_up": Ends(LockStage.POWERING_UP, 120.0, "power_up", DeviceTimeoutError, "pwr_up"),
    "stuck_config": Ends(LockStage.CONFIG_IN_PROGRESS, 90.0, "select_application", DeviceTimeoutError, "in_progress"),
    "stuck_init": Ends(LockStage.DP_INIT, 150.0, "select_application", DeviceTimeoutError, "state init"),
    "slow_init": Ends(LockStage.DP_INIT, 150.0, "select_application", DeviceTimeoutError, "state init"),
    "stuck_tuning": Ends(LockStage.TUNING, 260.0, "tune", DeviceTimeoutError, "tuning_in_progress"),
    "wavelength_unlocked": Ends(
        LockStage.WAVELENGTH_UNLOCKED, 260.0, "tune", DeviceTimeoutError, "wavelength_unlocked"
    ),
    "tx_failure": Ends(LockStage.TX_FAILURE, 100.0, "enable", DeviceTimeoutError, "tx_failure"),
}

LATER = {
    "los": LockStage.RX_LOS,
    "lol": LockStage.RX_LOL,
    "lof": LockStage.RX_LOL,
    "tx_failure": LockStage.TX_FAILURE,
    "tec_runaway": LockStage.FAULT,
    "module_fault": LockStage.FAULT,
    "wavelength_unlocked": LockStage.WAVELENGTH_UNLOCKED,
    "unplug": LockStage.ABSENT,
}
"""What is reported when the fault comes while the link is up; others change nothing then."""


class ModuleInLight:
    """A module under test that gets a good signal, and its driver."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.module = CmisModule.from_profile("400zr", clock=self.clock, seed=1, optics=lambda lane, at_s: SIGNAL)
        self.driver = CmisTransponder(self.module, clock=self.clock, device="zr1")
        self.driver.open()

    @staticmethod
    def steps(driver: CmisTransponder) -> dict[str, Callable[[], object]]:
        """Return the steps of a bring-up, in order."""
        return {
            "power_up": driver.power_up,
            "select_application": lambda: driver.select_application(1),
            "tune": lambda: driver.tune(193.7),
            "set_tx_power": lambda: driver.set_tx_power_dbm(-9.0),
            "enable": driver.enable,
            "performance": driver.performance,
        }

    def take(self, *names: str) -> None:
        """Take steps, none of which may hang."""
        steps = self.steps(self.driver)
        for name in names:
            began_s = self.clock.now()
            try:
                steps[name]()
            finally:
                assert self.clock.now() - began_s < SLOWEST_S, name

    def report(self) -> LockReport:
        """Wait for lock no longer than agreed."""
        began_s = self.clock.now()
        report = self.driver.wait_for_lock(WAIT_S)
        assert self.clock.now() - began_s < WAIT_S + 2.0
        return report


def test_every_fault_of_the_module_is_among_these() -> None:
    assert set(FAULTS) == set(ENDS)


@pytest.mark.parametrize("fault", ENDS)
def test_a_bring_up_ends_in_the_right_named_reason_in_time_and_comes_up_after_the_fault(fault: str) -> None:
    bench = ModuleInLight()
    bench.clock.sleep(1.0)
    bench.module.faults.inject(fault)
    began_s, ends = bench.clock.now(), ENDS[fault]
    bench.take(*STEPS[: STEPS.index(ends.step)] if ends.step else STEPS)
    if ends.step:
        with pytest.raises(ends.error, match=ends.named) as told:
            bench.take(ends.step)
        assert told.value.device == "zr1"
    assert bench.clock.now() - began_s <= ends.within_s
    report = bench.report()
    assert report.stage is ends.stage, report
    assert report.detail
    assert report.elapsed_s <= WAIT_S + 0.5
    if ends.step and fault != "unplug":  # when the fault is over a reset and the same steps bring the link up
        bench.module.faults.clear(fault)
        bench.driver.reset()
        bench.take(*STEPS)
        assert bench.report().stage is LockStage.LOCKED


@pytest.mark.parametrize("fault", LATER)
def test_a_fault_that_comes_while_the_link_is_up_is_named(fault: str) -> None:
    bench = ModuleInLight()
    bench.take(*STEPS)
    assert bench.report().stage is LockStage.LOCKED
    bench.module.faults.inject(fault)
    bench.clock.sleep(0.5)
    assert bench.report().stage is LATER[fault]
