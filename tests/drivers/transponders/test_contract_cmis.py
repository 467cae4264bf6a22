"""The CMIS driver keeps the promises of the interface, on a scripted module that knows nothing but bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.transponders.cmis import CmisTransponder
from lumion_hw.testing.contracts import CoherentTransponderContract
from tests.drivers.transponders.cmis_peer import ACTIVATED, Peer


class TestCmisModule(CoherentTransponderContract):
    @pytest.fixture
    def clock(self) -> VirtualClock:
        return VirtualClock()

    @pytest.fixture
    def peer(self, clock: VirtualClock) -> Peer:
        return Peer(clock)

    @pytest.fixture
    def driver(self, peer: Peer, clock: VirtualClock) -> Iterator[CmisTransponder]:
        driver = CmisTransponder(peer, clock, device="zr1")
        driver.open()
        yield driver
        driver.close()

    @pytest.fixture
    def unplug(self, peer: Peer) -> Callable[[], None]:
        return lambda: setattr(peer, "plugged", False)

    @pytest.fixture
    def receive_dbm(self, peer: Peer) -> Callable[[float | None], None]:
        return lambda power_dbm: peer.receive(power_dbm is not None and power_dbm > -25.0)

    @pytest.fixture
    def launched_w(self, peer: Peer) -> Callable[[], float]:
        return lambda: 1e-4 if peer.get(0x11, 128)[0] & 0x0F == ACTIVATED else 0.0
