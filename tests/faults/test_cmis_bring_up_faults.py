"""Bring-up of a 400ZR pair with each fault of the emulated module: the right named reason, before the deadline."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.transponders.cmis import CmisTransponder
from lumion_hw.emulator.transponders.cmis import FAULTS, CmisModule, Fibre, join
from lumion_hw.errors import DeviceError, DeviceTimeoutError, LumionError
from lumion_hw.interfaces.transponder import LockReport, LockStage
from lumion_hw.sessions.module.registers import ModuleAbsentError

WAIT_S = 20.0
STEPS = ("power_up", "select_application", "tune", "enable")
SLOWEST_S = 400.0
"""No step may take longer: the longest advertised time of this profile is tuning, 180 s."""

HARMLESS = (
    "temp_high",
    "no_init_pending",
    "reject_appsel0",
    "nack",
    "torn_read",
    "bad_checksum",
    "counter_truncated",
    "freeze_never_done",
    "reserved_bits_set",
    "drops_to_lowpwr_on_reset",
)
"""Faults that a host has to live with: the link comes up."""

FATAL: dict[str, tuple[str, type[LumionError], str]] = {
    "tx_failure": ("enable", DeviceTimeoutError, "tx_failure"),
    "tec_runaway": ("power_up", DeviceError, "tec_runaway"),
    "module_fault": ("power_up", DeviceError, "data_memory"),
    "stuck_power_up": ("power_up", DeviceTimeoutError, "pwr_up"),
    "stuck_init": ("select_application", DeviceTimeoutError, "state init"),
    "slow_init": ("select_application", DeviceTimeoutError, "state init"),
    "stuck_config": ("select_application", DeviceTimeoutError, "in_progress"),
    "stuck_tuning": ("tune", DeviceTimeoutError, "tuning_in_progress"),
    "wavelength_unlocked": ("tune", DeviceTimeoutError, "wavelength_unlocked"),
    "unplug": ("power_up", ModuleAbsentError, "no module"),
}
"""Fault to the step that cannot be taken, the error it ends in, and what the error has to name."""

NO_LOCK = {
    "los": LockStage.RX_LOS,
    "lol": LockStage.RX_LOL,
    "lof": LockStage.RX_LOL,
}
"""Faults of the light: every step succeeds, and the lock report says what is missing."""

LATER = {
    **NO_LOCK,
    "tx_failure": LockStage.TX_FAILURE,
    "tec_runaway": LockStage.FAULT,
    "module_fault": LockStage.FAULT,
    "wavelength_unlocked": LockStage.WAVELENGTH_UNLOCKED,
    "unplug": LockStage.ABSENT,
}
"""What is reported when the fault comes while the link is up; others change nothing then."""


class Pair:
    """A module under test and one that is up, joined by 8 dB of fibre."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.module = CmisModule.from_profile("400zr", clock=self.clock, seed=1)
        other = CmisModule.from_profile("400zr", clock=self.clock, seed=2, serial="EMU2")
        join(self.module, other, Fibre(loss_db=8.0, osnr_db=34.0))
        self.driver = CmisTransponder(self.module, clock=self.clock)
        other_end = CmisTransponder(other, clock=self.clock)
        other_end.open()
        for step in self.steps(other_end).values():
            step()
        self.driver.open()

    @staticmethod
    def steps(driver: CmisTransponder) -> dict[str, Callable[[], object]]:
        """Return the steps of a bring-up, in order."""
        return {
            "power_up": driver.power_up,
            "select_application": lambda: driver.select_application(1),
            "tune": lambda: driver.tune(193.7),
            "enable": driver.enable,
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
    assert set(FAULTS) == {*HARMLESS, *FATAL, *NO_LOCK}


@pytest.mark.parametrize("fault", HARMLESS)
def test_a_fault_that_a_host_has_to_live_with_does_not_keep_the_link_down(fault: str) -> None:
    pair = Pair()
    pair.module.faults.inject(fault)
    pair.take(*STEPS)
    assert pair.report().stage is LockStage.LOCKED


@pytest.mark.parametrize("fault", FATAL)
def test_a_step_that_cannot_be_taken_says_so_by_name(fault: str) -> None:
    failing, error, named = FATAL[fault]
    pair = Pair()
    pair.module.faults.inject(fault)
    pair.take(*STEPS[: STEPS.index(failing)])
    with pytest.raises(error, match=named):
        pair.take(failing)


@pytest.mark.parametrize("fault", NO_LOCK)
def test_light_that_is_missing_or_bad_is_named_by_the_lock_report(fault: str) -> None:
    pair = Pair()
    pair.module.faults.inject(fault)
    pair.take(*STEPS)
    assert pair.report().stage is NO_LOCK[fault]


@pytest.mark.parametrize("fault", LATER)
def test_a_fault_that_comes_while_the_link_is_up_is_named(fault: str) -> None:
    pair = Pair()
    pair.take(*STEPS)
    assert pair.report().stage is LockStage.LOCKED
    pair.module.faults.inject(fault)
    pair.clock.sleep(0.5)
    assert pair.report().stage is LATER[fault]


@pytest.mark.parametrize("fault", [fault for fault in FATAL if fault != "unplug"])
def test_when_the_fault_is_over_a_reset_and_the_same_steps_bring_the_link_up(fault: str) -> None:
    pair = Pair()
    pair.module.faults.inject(fault)
    with pytest.raises(LumionError):
        pair.take(*STEPS)
    pair.module.faults.clear(fault)
    pair.driver.reset()
    pair.take(*STEPS)
    assert pair.report().stage is LockStage.LOCKED
