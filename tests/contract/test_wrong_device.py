"""What answers at an address may be another device, or noise: a clear error in bounded time, and the link is closed.

Every driver meets every other emulated device, in memory on virtual time.
"""

import itertools

import numpy as np
import pytest

from lumion_hw.drivers.mesh.lumion.controller import LumionMeshController
from lumion_hw.drivers.meters.keysight_n77xx import KeysightN77xx
from lumion_hw.drivers.polarization.keysight_n778x import KeysightN7785C
from lumion_hw.drivers.polarization.novoptel_pm1000 import NovoptelPm1000
from lumion_hw.drivers.polarization.oz_epc04 import OzEpc04
from lumion_hw.drivers.polarization.thorlabs_mpc import ThorlabsMpc
from lumion_hw.drivers.transponders.sfp import SfpTransponder
from lumion_hw.emulator.mesh.lumion import BoardProfile, MeshBoard
from lumion_hw.emulator.meters.keysight_n77xx import EmulatedKeysightN77xx as EmulatedN77xx
from lumion_hw.emulator.polarization.oz_epc04 import Epc04
from lumion_hw.emulator.transponders.i2c_bridge import I2cBridge
from lumion_hw.emulator.transponders.sfp import SfpModule
from lumion_hw.errors import DeviceError, IdentityError, LinkError, LumionError
from lumion_hw.links.memory import MemoryLink
from lumion_hw.sessions.module.registers import ModuleAbsentError
from lumion_hw.sessions.module.sc18im700 import Sc18im700

OPEN_WITHIN_S = 20.0


def mesh_board(clock):
    return MeshBoard(
        "board",
        clock,
        np.random.default_rng(1),
        drive=lambda currents_ma, at_s: None,
        sense_ma=lambda n_avg, at_s: np.zeros(4),
        profile=BoardProfile(n_dac=4, n_adc=4, serial="LM1"),
    )


def power_meter(clock):
    return EmulatedN77xx(
        "meter", clock, np.random.default_rng(1), lambda _: 0.0, model="N7744A", serial="MY1", n_ports=4
    )


def module(clock):
    return SfpModule(
        "module",
        clock,
        np.random.default_rng(1),
        emit_w=lambda _: None,
        rx_power_w=lambda: 0.0,
        serial="ER1",
        warm=True,
    )


def bridge(clock):
    return I2cBridge("bridge", clock, [module(clock)])


def squeezer(clock):
    return Epc04("squeezer", clock, np.random.default_rng(1), drive_mv=lambda channel, drive_mv: None)


DEVICES = {"mesh": mesh_board, "meter": power_meter, "sfp": bridge, "pol": squeezer}
DRIVERS = {
    "mesh": lambda link, clock, serial: LumionMeshController(link, clock, device="dut", expected_serial=serial),
    "meter": lambda link, clock, serial: KeysightN77xx(link, clock, device="dut", expected_serial=serial),
    "sfp": lambda link, clock, serial: SfpTransponder(
        Sc18im700(link, clock, device="dut"), clock, device="dut", expected_serial=serial
    ),
    "pol": lambda link, clock, serial: OzEpc04(link, clock, device="dut"),
    "paddles": lambda link, clock, serial: ThorlabsMpc(link, clock, device="dut"),
    "box": lambda link, clock, serial: KeysightN7785C(link, clock, device="dut", expected_serial=serial),
    "sop": lambda link, clock, serial: NovoptelPm1000(link, clock, device="dut", expected_serial=serial),
    "sop-usb": lambda link, clock, serial: NovoptelPm1000(link, clock, device="dut", serial_line=True),
}
STRANGERS = [(wanted, found) for wanted, found in itertools.product(DRIVERS, DEVICES) if wanted != found]
SERIALS = {"mesh": "LM1", "meter": "MY1", "sfp": "ER1"}


class WatchedPeer:
    """A peer that knows whether it was let go."""

    def __init__(self, peer) -> None:
        self._peer = peer
        self.receive, self.transmit, self.next_event = peer.receive, peer.transmit, peer.next_event
        self.closed = False

    def close(self) -> None:
        self.closed = True
        self._peer.close()


class Bus:
    """A link to a device, and whether somebody still holds it."""

    def __init__(self, device, clock) -> None:
        self.peers: list[WatchedPeer] = []
        self._device = device
        self.link = MemoryLink(self._connect, clock, "memory://dut")

    def _connect(self) -> WatchedPeer:
        self.peers.append(WatchedPeer(self._device.connect()))
        return self.peers[-1]

    @property
    def is_open(self) -> bool:
        return any(not peer.closed for peer in self.peers)


class Babbler:
    """A device that says the same thing every millisecond, whatever it is asked."""

    def __init__(self, clock, text: bytes) -> None:
        self._clock = clock
        self._text = text
        self._said_at = clock.now()

    def connect(self):
        return self

    def receive(self, data: bytes) -> None:
        pass

    def transmit(self) -> bytes:
        if self._clock.now() < self._said_at + 1e-3:
            return b""
        self._said_at = self._clock.now()
        return self._text

    def next_event(self) -> float:
        return self._said_at + 1e-3

    def close(self) -> None:
        pass


def refusal_of(driver, bus, clock) -> LumionError:
    """Return the error of opening, after checking that it is a clear one and leaves nothing open."""
    started = clock.now()
    with pytest.raises((LinkError, IdentityError, DeviceError)) as caught:
        driver.open()
    error = caught.value
    assert (error.device, error.address) == ("dut", "memory://dut")
    assert error.hint, "the reader is not told what to do"
    assert clock.now() - started <= OPEN_WITHIN_S
    assert not bus.is_open, "a device that could not be opened is held on to"
    driver.close()
    return error


@pytest.mark.parametrize(("wanted", "found"), STRANGERS)
def test_a_driver_at_the_address_of_another_device_says_so(wanted, found, clock) -> None:
    bus = Bus(DEVICES[found](clock), clock)
    refusal_of(DRIVERS[wanted](bus.link, clock, None), bus, clock)


@pytest.mark.parametrize(("wanted", "found"), STRANGERS)
def test_a_device_survives_the_driver_of_another(wanted, found, clock) -> None:
    device = DEVICES[found](clock)
    bus = Bus(device, clock)
    refusal_of(DRIVERS[wanted](bus.link, clock, None), bus, clock)
    driver = DRIVERS[found](Bus(device, clock).link, clock, SERIALS.get(found))
    driver.open()
    driver.close()


def test_a_meter_address_that_leads_to_a_polarization_controller_names_what_answered(clock) -> None:
    bus = Bus(squeezer(clock), clock)
    error = refusal_of(KeysightN77xx(bus.link, clock, device="dut"), bus, clock)
    assert isinstance(error, IdentityError)
    assert "N7744A" in str(error)
    assert "Error!" in str(error)  # EPC04: what every unknown command is answered with


@pytest.mark.parametrize("kind", SERIALS)
def test_another_serial_number_is_refused_and_both_are_named(kind, clock) -> None:
    bus = Bus(DEVICES[kind](clock), clock)
    error = refusal_of(DRIVERS[kind](bus.link, clock, "WRONG7"), bus, clock)
    assert isinstance(error, IdentityError)
    assert "WRONG7" in str(error)
    assert SERIALS[kind] in str(error)


def test_a_meter_of_another_model_is_refused(clock) -> None:
    bus = Bus(power_meter(clock), clock)
    error = refusal_of(KeysightN77xx(bus.link, clock, device="dut", expected_model="N7745A"), bus, clock)
    assert isinstance(error, IdentityError)
    assert "N7745A" in str(error)
    assert "N7744A" in str(error)


def test_a_bridge_without_a_module_says_that_the_module_is_missing(clock) -> None:
    bus = Bus(I2cBridge("bridge", clock, []), clock)
    error = refusal_of(DRIVERS["sfp"](bus.link, clock, None), bus, clock)
    assert isinstance(error, ModuleAbsentError)


@pytest.mark.parametrize("kind", DRIVERS)
@pytest.mark.parametrize(
    "text", [b"\x00", b"noise", b"7\r\n", bytes(range(256))], ids=["zeros", "text", "lines", "bytes"]
)
def test_a_device_that_never_stops_talking_is_given_up(kind, text, clock) -> None:
    bus = Bus(Babbler(clock, text), clock)
    refusal_of(DRIVERS[kind](bus.link, clock, None), bus, clock)


@pytest.mark.parametrize("kind", DRIVERS)
def test_a_device_that_says_nothing_is_given_up(kind, clock) -> None:
    bus = Bus(Babbler(clock, b""), clock)
    refusal_of(DRIVERS[kind](bus.link, clock, None), bus, clock)
