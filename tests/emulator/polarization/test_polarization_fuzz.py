"""Random and mutated requests to every emulated polarization instrument: it keeps working and reports all errors.

Memory must not grow. The short version runs with the suite; a longer version is in ``make test-long``, and
``make campaign`` sends a million requests to each instrument.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.polarization.keysight_n778x import EmulatedKeysightN7785C
from lumion_hw.emulator.polarization.novoptel_pm1000 import Pm1000
from lumion_hw.emulator.polarization.oz_epc04 import Epc04
from lumion_hw.emulator.polarization.thorlabs_mpc import MESSAGES, Mpc320
from tests.emulator.fuzz_testbench import COMMON, MOST_MORE_BLOCKS, STATUS, Host, Target, blocks, hammer, mutate

STABILIZER = [
    b"STAB:STAB 1;STAB?",
    b"STAB:SOP 0,0,0,12.5;:TRIG 1;:STAB:SOP?",
    b"STAB:SOP 0,0,0,3;:TRIG 1;:TRIG 1",
    b"STAB:SOP 0.6,0,0.8;:STAB:STAB 0",
]
EPC = [b"V1,1234", b"V2,-500", b"V?", b"MDC", b"MAC", b"M?", b"F1,50", b"F?", b"WF1", b"WF2", b"WF?", b"SAVE"]
EPC += [b"VH1", b"VL2", b"VZ3", b"ENVF1", b"VF2", b"VF?", b"ENABLE0", b"BR1", b"BR?", b"SN?", b"VER?", b"RESET", b"?"]


def n7785c(clock: VirtualClock) -> EmulatedKeysightN7785C:
    return EmulatedKeysightN7785C("pol0", clock, np.random.default_rng(1), turn=lambda _: None)


def epc04(clock: VirtualClock) -> Epc04:
    return Epc04("pol0", clock, np.random.default_rng(1), drive_mv=lambda *_: None)


def epc_alive(host: Host) -> None:
    host.raw(b"\r\n")
    host.wait()
    assert host.raw(b"V?\r\n") == b""
    reply = host.wait()
    assert reply.startswith(b"Voltage(mV): CH1 ")
    assert reply.endswith(b"\r\nDone\r\n")
    host.raw(b"V9,1\r\n")
    assert host.wait() == b"Error!\r\n"


@dataclass(frozen=True)
class Frames:
    """An instrument with binary requests."""

    make: Callable[[VirtualClock], object]
    request: Callable[[np.random.Generator], bytes]
    alive: Callable[[Host], None]


def mpc320(clock: VirtualClock) -> Mpc320:
    return Mpc320("pol0", clock, np.random.default_rng(1), turn=lambda _: None)


def mpc_request(rng: np.random.Generator) -> bytes:
    """Return a message that exists, with random content, often damaged."""
    number = int(rng.choice(list(MESSAGES)))
    size = MESSAGES[number].size
    if size is None:
        frame = struct.pack("<H4B", number, int(rng.integers(8)), int(rng.integers(3)), 0x50, 0x01)
    else:
        data = struct.pack("<Hi", int(rng.integers(8)), int(rng.integers(-100, 1500))) if size == 6 else rng.bytes(size)
        frame = struct.pack("<HHBB", number, size, 0xD0, 0x01) + data
    return frame if rng.random() < 0.7 else mutate(rng, [frame])


def mpc_alive(host: Host) -> None:
    host.clock.sleep(1.0)
    host.raw(bytes.fromhex("12 00 00 00 50 01"))
    host.clock.sleep(5.0)
    host.raw(b"")
    host.peer.receive(bytes.fromhex("90 04 04 00 50 01"))
    reply = host.wait()
    assert reply[:6] == bytes.fromhex("91 04 0E 00 81 50")
    counts = struct.unpack_from("<i", reply, 8)[0]
    assert 0 <= counts <= 1370
    host.peer.receive(bytes.fromhex("43 04 08 00 50 01"))  # no such channel
    assert host.wait()[:2] == b"\x81\x00"


def pm1000(link: str) -> Callable[[VirtualClock], Pm1000]:
    rng = np.random.default_rng(2)

    def make(clock: VirtualClock) -> Pm1000:
        def light() -> np.ndarray:
            return 10 ** rng.uniform(-7, -2) * np.append(1.0, rng.uniform(-0.5, 0.5, 3))

        return Pm1000("pol0", clock, np.random.default_rng(1), light, link=link)

    return make


def lan_request(rng: np.random.Generator) -> bytes:
    address = int(rng.integers(500, 690)).to_bytes(2, "big")
    frame = b"\x57" + address + rng.bytes(2) if rng.random() < 0.5 else b"\x52" + address
    return frame if rng.random() < 0.8 else mutate(rng, [frame])


def usb_request(rng: np.random.Generator) -> bytes:
    frame = b"%c%03X%04X\r" % (b"WR"[int(rng.integers(2))], int(rng.integers(500, 690)), int(rng.integers(65536)))
    return frame if rng.random() < 0.8 else mutate(rng, [frame])


def lan_alive(host: Host) -> None:
    host.raw(b"\0\0\0\0")
    host.raw(bytes.fromhex("57 02 01 00 0A"))
    assert host.raw(bytes.fromhex("52 02 01")) == b"\x00\x0a"


def usb_alive(host: Host) -> None:
    host.raw(b"\r")
    host.wait()
    host.raw(b"W201000A\rR2010000\r")
    assert host.wait() == b"000A\r"


LINES = {"n7785c": Target(n7785c, COMMON + STATUS + STABILIZER), "epc04": Target(epc04, EPC, epc_alive, b"\r\n")}
FRAMES = {
    "mpc320": Frames(mpc320, mpc_request, mpc_alive),
    "pm1000-lan": Frames(pm1000("lan"), lan_request, lan_alive),
    "pm1000-usb": Frames(pm1000("usb"), usb_request, usb_alive),
}


def hammer_frames(target: Frames, seed: int, count: int, caplog) -> None:
    """Send random requests; the instrument keeps working and its memory does not grow."""
    clock, rng = VirtualClock(), np.random.default_rng(seed)
    with caplog.at_level(logging.ERROR):
        device = target.make(clock)
        host = Host(device, clock)
        for _ in range(200):
            host.raw(target.request(rng))
        target.alive(host)
        before = blocks()
        for number in range(count):
            host.raw(target.request(rng))
            if rng.random() < 0.1:
                clock.sleep(float(rng.exponential(0.05)))
                host.raw(b"")
            if number % 2000 == 1999:
                target.alive(host)
                host.peer.close()
                host = Host(device, clock)
        target.alive(host)
        assert blocks() - before < MOST_MORE_BLOCKS, "memory grows"
    assert caplog.text == "", "an internal error was logged"


@pytest.mark.parametrize("name", LINES)
def test_mutated_lines_leave_polarization_controllers_alive_and_truthful(name, caplog):
    hammer(LINES[name], 1, 500, caplog)


@pytest.mark.parametrize("name", FRAMES)
def test_random_frames_leave_polarization_instruments_alive(name, caplog):
    hammer_frames(FRAMES[name], 1, 1500, caplog)


@pytest.mark.long
@pytest.mark.parametrize("name", LINES)
def test_more_mutated_lines_leave_polarization_controllers_alive_and_truthful(name, caplog):
    hammer(LINES[name], 2, 8_000, caplog)


@pytest.mark.long
@pytest.mark.parametrize("name", FRAMES)
def test_more_random_frames_leave_polarization_instruments_alive(name, caplog):
    hammer_frames(FRAMES[name], 2, 12_000, caplog)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", LINES)
def test_a_million_lines_into_every_polarization_controller(name, seed, caplog):
    hammer(LINES[name], 100 + seed, 100_000, caplog)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", FRAMES)
def test_a_million_frames_into_every_polarization_instrument(name, seed, caplog):
    hammer_frames(FRAMES[name], 100 + seed, 100_000, caplog)
