"""What every driver promises of its life: a failed opening leaves nothing open, whatever ended it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.lasers.itla import ItlaLaser
from lumion_hw.drivers.lasers.keysight_laser import KeysightLaser
from lumion_hw.drivers.lasers.santec_tsl import SantecTsl
from lumion_hw.drivers.life_cycle import Driver
from lumion_hw.drivers.mesh.lumion.controller import LumionMeshController
from lumion_hw.drivers.mesh.qontrol.controller import QontrolController
from lumion_hw.drivers.meters.keysight_816x import Keysight816x
from lumion_hw.drivers.meters.keysight_n77xx import KeysightN77xx
from lumion_hw.drivers.meters.santec_mpm import SantecMpm
from lumion_hw.drivers.meters.thorlabs_pm import ThorlabsPm
from lumion_hw.drivers.polarization.keysight_n778x import KeysightN7785C
from lumion_hw.drivers.polarization.novoptel_pm1000 import NovoptelPm1000
from lumion_hw.drivers.polarization.oz_epc04 import OzEpc04
from lumion_hw.drivers.polarization.thorlabs_mpc import ThorlabsMpc
from lumion_hw.drivers.transponders.cmis import CmisTransponder
from lumion_hw.drivers.transponders.qsfp import QsfpTransponder
from lumion_hw.drivers.transponders.sfp import SfpTransponder
from lumion_hw.errors import ConnectError, LinkLost, LumionError
from lumion_hw.sessions.module.paged_i2c import BridgedI2c
from lumion_hw.sessions.module.sc18im700 import Sc18im700


class CutLink:
    """A link on which every read ends in the same exception."""

    name = "serial:///dev/cut"

    def __init__(self, end: BaseException) -> None:
        self.end = end
        self.is_open = False
        self.opened = 0

    def open(self, deadline: float) -> None:
        self.is_open = True
        self.opened += 1

    def write(self, data: bytes, deadline: float) -> None:
        assert self.is_open

    def read(self, deadline: float) -> bytes:
        raise self.end

    def drain(self, quiet_s: float, deadline: float) -> int:
        return 0

    def close(self) -> None:
        self.is_open = False


def _over_bridge(driver: Callable[..., Driver]) -> Callable[..., Driver]:
    """A module behind an I2C bridge on that link."""

    def make(link: CutLink, clock: VirtualClock, *, device: str) -> Driver:
        bridge = Sc18im700(link, clock, device=device)
        return driver(bridge if driver is SfpTransponder else BridgedI2c(bridge), clock, device=device)

    return make


MAKERS: dict[str, Callable[..., Any]] = {
    driver.__name__: driver
    for driver in (
        ItlaLaser,
        KeysightLaser,
        SantecTsl,
        LumionMeshController,
        QontrolController,
        Keysight816x,
        KeysightN77xx,
        SantecMpm,
        ThorlabsPm,
        KeysightN7785C,
        NovoptelPm1000,
        OzEpc04,
        ThorlabsMpc,
    )
} | {module.__name__: _over_bridge(module) for module in (SfpTransponder, CmisTransponder, QsfpTransponder)}


CALLS: dict[str, tuple[Callable[[Any], object], ...]] = {
    "ItlaLaser": (lambda laser: laser.model, lambda laser: laser.ranges),
    "KeysightLaser": (lambda laser: laser.model, lambda laser: laser.ranges),
    "SantecTsl": (lambda laser: laser.model, lambda laser: laser.ranges),
    "Keysight816x": (lambda meter: meter.model, lambda meter: meter.channels),
    "KeysightN77xx": (lambda meter: meter.serial, lambda meter: meter.channels),
    "SantecMpm": (lambda meter: meter.model, lambda meter: meter.channels),
    "ThorlabsPm": (lambda meter: meter.firmware, lambda meter: meter.channels),
    "KeysightN7785C": (lambda box: box.model, lambda box: box.start()),
    "NovoptelPm1000": (lambda polarimeter: polarimeter.read(),),
    "OzEpc04": (lambda squeezers: squeezers.set(np.zeros(4)),),
    "ThorlabsMpc": (lambda paddles: paddles.set(np.full(3, 85.0)),),
    "SfpTransponder": (lambda module: module.capabilities,),
    "CmisTransponder": (lambda module: module.capabilities(),),
    "QsfpTransponder": (lambda module: module.capabilities, lambda module: module.monitors()),
}
"""What only an open device can tell."""


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("end", [KeyboardInterrupt(), LinkLost("the plug was pulled"), ZeroDivisionError()], ids=repr)
def test_an_opening_that_fails_leaves_the_link_closed(name: str, end: BaseException) -> None:
    link = CutLink(end)
    driver = MAKERS[name](link, VirtualClock(), device="cut")
    expected = LumionError if isinstance(end, LumionError) else type(end)
    with pytest.raises(expected), driver:
        pytest.fail("the driver opened on a link that gives nothing")
    assert link.opened >= 1
    assert not link.is_open


@pytest.mark.parametrize("name", CALLS)
def test_a_driver_that_failed_to_open_says_that_it_is_not_open(name: str) -> None:
    driver = MAKERS[name](CutLink(LinkLost("the plug was pulled")), VirtualClock(), device="cut")
    with pytest.raises(LumionError):
        driver.open()
    driver.close()
    driver.close()
    for call in CALLS[name]:
        with pytest.raises(ConnectError, match=r"cut.*is not open"):
            call(driver)
