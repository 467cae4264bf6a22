"""The bring-up of a 400ZR module with each fault of the facts ends in the right named reason before its deadline."""

from __future__ import annotations

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.transponders.cmis import CmisTransponder
from lumion_hw.emulator.transponders.cmis import FAULTS, CmisModule, ReceivedLight
from lumion_hw.errors import DeviceError, DeviceTimeoutError, LumionError
from lumion_hw.interfaces import LockStage
from lumion_hw.sessions.module.registers import ModuleAbsentError

SIGNAL = ReceivedLight(-8.0, -8.0, osnr_db=36.0)
UP = LockStage.LOCKED
# Fault: what the bring-up raises, if it does; the stage that the lock report names; the time all of it may take.
EXPECTED: dict[str, tuple[type[LumionError] | None, LockStage, float]] = {
    "bad_checksum": (None, UP, 90.0),
    "counter_truncated": (None, UP, 90.0),
    "drops_to_lowpwr_on_reset": (None, UP, 90.0),
    "freeze_never_done": (None, UP, 90.0),
    "lof": (None, LockStage.RX_LOL, 90.0),
    "lol": (None, LockStage.RX_LOL, 90.0),
    "los": (None, LockStage.RX_LOS, 90.0),
    "module_fault": (DeviceError, LockStage.FAULT, 5.0),
    "nack": (None, UP, 90.0),
    "no_init_pending": (None, UP, 90.0),
    "reject_appsel0": (None, UP, 90.0),
    "reserved_bits_set": (None, UP, 90.0),
    "slow_init": (DeviceTimeoutError, LockStage.DP_INIT, 150.0),
    "stuck_config": (DeviceTimeoutError, LockStage.CONFIG_IN_PROGRESS, 90.0),
    "stuck_init": (DeviceTimeoutError, LockStage.DP_INIT, 150.0),
    "stuck_power_up": (DeviceTimeoutError, LockStage.POWERING_UP, 120.0),
    "stuck_tuning": (DeviceTimeoutError, LockStage.TUNING, 260.0),
    "tec_runaway": (DeviceError, LockStage.FAULT, 5.0),
    "temp_high": (None, UP, 90.0),
    "torn_read": (None, UP, 90.0),
    "tx_failure": (DeviceTimeoutError, LockStage.TX_FAILURE, 100.0),
    "unplug": (ModuleAbsentError, LockStage.ABSENT, 5.0),
    "wavelength_unlocked": (DeviceTimeoutError, LockStage.WAVELENGTH_UNLOCKED, 260.0),
}


def bring_up(module: CmisTransponder) -> None:
    module.power_up()
    module.select_application(1)
    module.tune(193.4)
    module.set_tx_power_dbm(-9.0)
    module.enable()
    module.performance()


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_bring_up_ends_in_the_right_named_reason(fault: str) -> None:
    clock = VirtualClock()
    emulated = CmisModule.from_profile("400zr", clock=clock, seed=1, optics=lambda lane, at_s: SIGNAL)
    clock.sleep(1.0)
    module = CmisTransponder(emulated, clock, device="zr1")
    module.open()
    emulated.faults.inject(fault)
    raised, stage, deadline_s = EXPECTED[fault]
    if raised is None:
        bring_up(module)
    else:
        with pytest.raises(raised) as told:
            bring_up(module)
        assert told.value.device == "zr1"
    report = module.wait_for_lock(10.0)
    assert report.stage is stage, report
    assert report.detail
    assert report.elapsed_s <= 10.5
    assert clock.now() <= deadline_s + 10.5
