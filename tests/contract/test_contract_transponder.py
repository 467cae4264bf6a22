"""The SFP+ driver keeps the promises of the interface, on an emulated module behind a bridge, over its serial line."""

import random
from collections.abc import Iterator

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.transponders.sfp import SfpTransponder
from lumion_hw.emulator.transponders.i2c_bridge import I2cBridge
from lumion_hw.emulator.transponders.sfp import SfpModule
from lumion_hw.errors import FrameError, LinkError
from lumion_hw.links.replay import RecordedExchange, ReplayPeer, replay_link
from lumion_hw.quantities import w_from_dbm
from lumion_hw.sessions.module.sc18im700 import Sc18im700
from lumion_hw.testing.contracts import TransponderContract, WireFixtures

BAUD = 115_200


class Fibre:
    """What the module launches and what arrives at it."""

    def __init__(self) -> None:
        self.launched_w = 0.0
        self.received_w = 0.0

    def launch(self, power_w: float) -> None:
        self.launched_w = power_w


class TestSfpPlus(WireFixtures, TransponderContract):
    # The bridge's session may resynchronise three times with pauses of 0.7 s before it gives a dead bridge up.
    wires = ("pty",)

    @pytest.fixture
    def fibre(self) -> Fibre:
        return Fibre()

    @pytest.fixture
    def module(self, clock, fibre) -> SfpModule:
        return SfpModule(
            "sfp0",
            clock,
            np.random.default_rng(1),
            emit_w=fibre.launch,
            rx_power_w=lambda: fibre.received_w,
            serial="ER000001",
            warm=True,
        )

    @pytest.fixture
    def device(self, clock, module) -> I2cBridge:
        return I2cBridge("sfp0", clock, [module], baud=BAUD)

    @pytest.fixture
    def driver(self, wire, clock, request, transport) -> Iterator[SfpTransponder]:
        # On a wire the tenth of a second a real bridge gets would only judge how busy the machine is.
        timeout_s = 0.1 if transport == "memory" else 0.5
        if request.function.__name__ == "test_two_threads_share_the_driver":  # needs replies without delay
            timeout_s = 3.0
        bridge = Sc18im700(wire.link(), clock, device="sfp0", baud=BAUD, timeout_s=timeout_s)
        transponder = SfpTransponder(bridge, clock, device="sfp0", expected_serial="ER000001")
        transponder.open()
        yield transponder
        transponder.close()

    @pytest.fixture
    def receive_dbm(self, fibre):
        def receive(power_dbm: float | None) -> None:
            fibre.received_w = 0.0 if power_dbm is None else w_from_dbm(power_dbm)

        return receive

    @pytest.fixture
    def launched_w(self, wire, module, fibre):
        def launched() -> float:
            wire.run_action(module.advance)
            return fibre.launched_w

        return launched

    def test_garbage_never_becomes_a_monitor_value(self, driver, disturb, receive_dbm, clock) -> None:
        """Monitors have no check sum: bytes in front of a reply must not be taken for it, whatever they are."""
        receive_dbm(-10.0)
        driver.monitors()
        clock.sleep(self.settle_s)
        true = driver.monitors()
        dice = random.Random(1)
        for _ in range(300):
            disturb(dice.randbytes(dice.randrange(1, 40)))
            try:
                seen = driver.monitors()
            except LinkError:
                continue
            assert seen.temperature_c == pytest.approx(true.temperature_c, abs=2.0)
            assert seen.supply_v == pytest.approx(true.supply_v, abs=0.1)
            assert seen.rx_power_dbm == pytest.approx(true.rx_power_dbm, abs=2.0)


def test_bytes_behind_the_status_of_a_transfer_make_it_untrusted() -> None:
    """Sixteen bytes and a good status may be noise when the device has more to say: the true reply follows them."""
    clock = VirtualClock()
    read = b"S" + bytes([0xA2, 1, 96]) + b"S" + bytes([0xA3, 16]) + b"P"  # offset 96 of A2h, then 16 bytes
    noise, reply = bytes(16) + b"\xf0", bytes(range(16))
    peer = ReplayPeer(
        [
            RecordedExchange(b"R\x0aP", b"\xf0"),
            RecordedExchange(read, noise + reply),
            RecordedExchange(b"R\x0aP", b"\xf0"),
        ],
        clock,
    )
    bridge = Sc18im700(replay_link(peer, clock), clock, device="sfp0")
    bridge.open()
    with pytest.raises(FrameError, match="followed by unexpected bytes"):
        bridge.read(0x51, 96, 16)
