"""Random and mutated lines to every emulated instrument: it keeps working and reports all errors.

Memory must not grow. The short version runs with the suite; a longer version is in ``make test-long``, and
``make campaign`` sends a million lines to each instrument in about ten minutes of one core.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.lasers.itla import Itla
from lumion_hw.emulator.lasers.itla.frames import bip4
from lumion_hw.emulator.lasers.keysight_laser import EmulatedKeysightLaser
from lumion_hw.emulator.lasers.santec_tsl import EmulatedSantecTsl
from lumion_hw.emulator.meters.keysight_816x import EmulatedKeysight816x
from lumion_hw.emulator.meters.keysight_n77xx import EmulatedKeysightN77xx
from lumion_hw.emulator.meters.santec_mpm import COMMANDS, ERRORS, EmulatedSantecMpm
from lumion_hw.emulator.meters.thorlabs_pm import ThorlabsPm100
from lumion_hw.emulator.meters.thorlabs_pm_sensor import ES111C, S154C, S405C
from lumion_hw.emulator.optics.light import Light
from lumion_hw.emulator.wires.hislip import HislipFront
from lumion_hw.emulator.wires.hislip_frames import HislipDecoder, HislipMessage, MessageType as Kind
from lumion_hw.errors import LinkLost
from tests.emulator.fuzz_testbench import COMMON, MOST_MORE_BLOCKS, STATUS, Host, Target, blocks, hammer, mutate

METER = [
    b"SENS1:POW:WAV 1310 NM;ATIM 1MS;RANG -20DBM;RANG:AUTO 1;UNIT 1",
    b"READ1:POW?;:FETC1:POW?",
    b"READ:POW:ALL?;ALL:CONF?",
    b"SENS1:CORR:COLL:ZERO:ALL;ZERO?",
    b"INIT1:CONT 0;:INIT1;*WAI",
    b"SENS1:FUNC:PAR:LOGG 64,1ms;:SENS1:FUNC:STAT LOGG,STAR",
    b"SENS1:FUNC:PAR:STAB 1,0.1,0.1;MINM WIND,10;LOGG?",
    b"SENS1:FUNC:STAT MINM,STAR;STAT?;RES?",
    b"SENS1:FUNC:STAT STAB,STAR;STAT LOGG,STOP",
    b"TRIG1:INP SME;OUTP AVG;INP:REAR 0;:TRIG 1;:TRIG NODEB",
    b"TRIG:CONF LOOP;CONF?",
    b"SENS1:POW:REF:DISP;STAT 1;STAT:RAT?",
    b"SLOT1:HEAD1:TST?;WAV:RESP?",
]
LASER = [
    b"LOCK 0,1234;:SOUR0:POW:STAT 1;STAT?",
    b"SOUR0:POW 2 mW;POW:UNIT 1;:SOUR0:POW? MAX",
    b"SOUR0:WAV 1555.5nm;WAV?",
    b"SOUR0:WAV:SWE:STAR 1550NM;STOP 1551NM;STEP 0.1NM;SPE 5NM/S;MODE CONT;LLOG 1",
    b"TRIG0:OUTP STF;INP SWS",
    b"SOUR0:WAV:SWE:CHEC?;EXP?;FLAG?;PMAX? 1550NM,1560NM",
    b"SOUR0:WAV:SWE 1;:SOUR0:WAV:SWE:SOFT;:SOUR0:WAV:SWE?",
    b"SOUR0:WAV:SWE:MODE MAN;:SOUR0:WAV:SWE 1;STEP:NEXT;PREV",
    b"SOUR0:WAV:SWE 0;:SOUR0:READ:POIN? LLOG;DATA? LLOG",
]
THORLABS = [
    b"MEAS:POW?;CURR?;VOLT?;ENER?;PDEN?;FREQ?;TEMP?",
    b"CONF:POW;CONF?;:READ?;:FETC?;:INIT;:ABOR",
    b"SENS:CORR:WAV 1310;BEAM 3;LOSS:INP:MAGN 3DB",
    b"SENS:CORR:COLL:ZERO:INIT;STAT?;MAGN?;ABOR",
    b"POW:RANG 1E-3;RANG:AUTO 1;REF 1E-6;REF:STAT 1;UNIT DBM",
    b"CURR:RANG? MIN;:AVER 100;AVER?",
    b"INP:PDI:FILT:LPAS:STAT 1;:INP:THER:ACC:TAU 1.5S;:INP:ADAP THER",
    b"SYST:SENS:IDN?;BEEP:STAT 1;:SYST:DATE 2026,1,2;TIME 1,2,3;LFR 60",
    b"DISP:BRIG 0.5;CONT?;:CAL:STR?;:PEAK:THR 30",
    b"STAT:MEAS:ENAB 3;:STAT:AUX:COND?",
]
TSL = [
    b"POW:STAT 1;SHUT 0;UNIT 1;ACT?;:POW 3DBM;:POW?",
    b"WAV 1555.5;WAV?;:FREQ 193.1;FREQ?",
    b"WAV:SWE:STAR 1550;STOP 1551;STEP 0.1;SPE 50;MOD 3;CYCL 2;DWEL 0.1;DEL 0.1",
    b"WAV:SWE 1;:WAV:SWE?;:WAV:SWE:COUN?",
    b"WAV:SWE:REP;:WAV:SWE 0",
    b"SYST:COMM:COD 1;COD?",
    b"TRIG:INP:STAN 1;EXT 1;SOFT",
    b"FREQ:SWE:STAR 193.1;STOP?;STEP 0.1;RANG:MIN?",
    b"TRIG:OUTP 3;OUTP:STEP 0.05;SETT 1;:READ:POIN?;DAT?",
    b"WAV:FIN 5;FIN:DIS;:COHC 1;:SYST:ALER?;:WAV:MIN?",
]
MPM = [word.encode() + b" 0,1,1550"[: [0, 2, 4, 9][COMMANDS[word].arguments]] for word in COMMANDS] + [
    b"WMOD SWEEP1",
    b"WSET 1550,1551,0.1",
    b"TRIG 0",
    b"LOGN 50",
    b"AVG 1",
]
MPM_ERROR = re.compile(rb"(-?\d+),([A-Za-z ]+)\r\n")


def mpm_alive(host: Host) -> None:
    host.raw(b"\r\nSTOP\r\n")
    host.wait()
    host.clock.sleep(4.0)
    match = MPM_ERROR.fullmatch(host.raw(b"ERR?\r\n"))
    assert match
    assert ERRORS[int(match[1])] == match[2].decode()
    assert host.raw(b"*IDN?\r\n").startswith(b"SANTEC,MPM-210H,")
    host.raw(b"NONSENSE\r\n")
    assert host.raw(b"ERR?\r\n") == b"-113,Undefined Header\r\n"
    assert host.raw(b"ERR?\r\n") == b"0,No Error\r\n"


def itla_alive(host: Host) -> None:
    def exchange(body: bytes) -> bytes:
        host.raw(bytes((body[0] | bip4(body) << 4,)) + body[1:])
        return host.wait()

    host.wait()
    host.clock.sleep(40.0)
    host.raw(b"")
    reply = exchange(b"\x00\x00\x00\x00")
    assert len(reply) == 4
    assert reply[0] >> 4 == bip4(reply)
    assert reply[3] & 0x10, "ready"
    assert exchange(b"\x00\x7f\x00\x00")[0] & 0x03 == 1
    assert exchange(b"\x00\x00\x00\x00")[3] & 0x0F == 1, "not implemented"
    assert exchange(b"\x00\x00\x00\x00")[3] & 0x0F == 0


def hislip_session(front: HislipFront) -> list:
    """Open a session; return its synchronous and asynchronous channel."""
    sync, other, decoder = front.connect(), front.connect(), HislipDecoder()
    sync.receive(HislipMessage(Kind.INITIALIZE, 0, 1 << 24, b"hislip0").encode())
    decoder.feed(sync.transmit())
    other.receive(HislipMessage(Kind.ASYNC_INITIALIZE, 0, decoder.next().parameter & 0xFFFF).encode())
    other.transmit()
    return [sync, other]


def hislip_alive(front: HislipFront) -> None:
    """Check that a new session is served."""
    sync, other = hislip_session(front)
    sync.receive(HislipMessage(Kind.DATA_END, 0, 8, b"*IDN?").encode())
    decoder = HislipDecoder()
    decoder.feed(sync.transmit())
    assert decoder.next().payload.count(b",") == 3
    sync.close()
    other.close()


def random_light(seed: int) -> Callable[..., Light]:
    rng = np.random.default_rng(seed)
    return lambda *_where: Light(float(10 ** rng.uniform(-12, -1)), 1550.0, 10.0)


def thorlabs(sensor) -> Target:
    def make(clock: VirtualClock) -> ThorlabsPm100:
        return ThorlabsPm100("pm0", clock, np.random.default_rng(1), random_light(2), sensor=sensor)

    return Target(make, COMMON + STATUS + THORLABS)


def n77xx(clock: VirtualClock) -> EmulatedKeysightN77xx:
    light = random_light(2)
    return EmulatedKeysightN77xx(
        "pm0", clock, np.random.default_rng(1), lambda _: light().power_w, model="N7744A", n_ports=4
    )


def mainframe(clock: VirtualClock) -> EmulatedKeysight816x:
    modules = {0: "81600B-200", 1: "81635A"}
    return EmulatedKeysight816x("mf0", clock, np.random.default_rng(1), random_light(2), modules=modules)


def hislip(clock: VirtualClock) -> HislipFront:
    return HislipFront(n77xx(clock), clock)


TARGETS = {
    "pm100-photodiode": thorlabs(S154C),
    "pm100-thermal": thorlabs(S405C),
    "pm100-pyro": thorlabs(ES111C),
    "pm100-no-sensor": thorlabs(None),
    "n77xx": Target(n77xx, COMMON + STATUS + METER),
    "816x": Target(mainframe, COMMON + STATUS + METER + LASER),
    "keysight-laser": Target(
        lambda clock: EmulatedKeysightLaser("laser0", clock, np.random.default_rng(1)), COMMON + STATUS + LASER
    ),
    "santec-tsl": Target(
        lambda clock: EmulatedSantecTsl("laser0", clock, np.random.default_rng(1)), COMMON + STATUS + TSL
    ),
    "santec-mpm": Target(
        lambda clock: EmulatedSantecMpm("pm0", clock, np.random.default_rng(1), random_light(2)),
        MPM,
        mpm_alive,
        b"\r\n",
    ),
}


def hammer_frames(seed: int, frames: int) -> None:
    """Random frames to an ITLA: half have correct parity, half of those plausible registers."""
    clock, rng = VirtualClock(), np.random.default_rng(seed)
    module = Itla("laser0", clock, np.random.default_rng(1), paced=False)
    host = Host(module, clock)
    itla_alive(host)
    before = blocks()
    for number in range(frames):
        body = bytearray(rng.bytes(4))
        if rng.random() < 0.7:
            body[0] &= 0x09
            if rng.random() < 0.5:
                body[1] = int(rng.choice([0x00, 0x01, 0x0B, 0x20, 0x30, 0x31, 0x32, 0x34, 0x35, 0x42, 0x62]))
                body[2:] = int(rng.integers(0, 1500)).to_bytes(2, "big")
            body[0] |= bip4(bytes(body)) << 4
        host.raw(bytes(body))
        if rng.random() < 0.05:
            clock.sleep(float(rng.exponential(1.0)))
            assert len(host.raw(b"")) % 4 == 0
        if number % 5000 == 4999:
            itla_alive(host)
    itla_alive(host)
    assert blocks() - before < MOST_MORE_BLOCKS, "memory grows"


def hammer_hislip(seed: int, messages: int, caplog) -> None:
    """Random messages, some with a flipped bit, to both channels of two sessions."""
    clock, rng = VirtualClock(), np.random.default_rng(seed)
    front = hislip(clock)
    hislip_alive(front)
    sessions = [hislip_session(front) for _ in range(2)]
    before = blocks()
    kinds = [Kind.DATA, *[Kind.DATA_END] * 4, Kind.TRIGGER, Kind.DEVICE_CLEAR_COMPLETE, Kind.ASYNC_DEVICE_CLEAR]
    kinds += [Kind.ASYNC_LOCK, Kind.ASYNC_STATUS_QUERY, Kind.ASYNC_LOCK_INFO, Kind.ASYNC_MAX_MSG_SIZE, Kind.ERROR, 99]
    with caplog.at_level(logging.ERROR):
        for number in range(messages):
            place, channel = int(rng.integers(2)), int(rng.integers(2))
            kind = int(rng.choice(kinds))
            payload = mutate(rng, COMMON + METER) if kind in (6, 7) else rng.bytes(int(rng.integers(0, 9)))
            data = bytearray(HislipMessage(kind, int(rng.integers(2)), int(rng.integers(100)), payload).encode())
            if rng.random() < 0.01:
                data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
            try:
                sessions[place][channel].receive(bytes(data))
                for each in sessions[place]:
                    each.transmit()
            except LinkLost:
                for each in sessions[place]:
                    each.close()
                sessions[place] = hislip_session(front)
            if number % 1000 == 999:
                clock.sleep(1.0)
                for session in sessions:
                    for each in session:
                        each.close()
                hislip_alive(front)
                sessions = [hislip_session(front) for _ in range(2)]
    for session in sessions:
        for each in session:
            each.close()
    hislip_alive(front)
    assert blocks() - before < MOST_MORE_BLOCKS, "memory grows"
    assert caplog.text == "", "an internal error was logged"


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_lines_leave_every_instrument_alive_and_truthful(name, caplog):
    hammer(TARGETS[name], 1, 150, caplog)


def test_random_frames_leave_the_itla_alive():
    hammer_frames(1, 1500)


def test_random_messages_leave_hislip_alive(caplog):
    hammer_hislip(1, 750, caplog)


@pytest.mark.long
@pytest.mark.parametrize("name", TARGETS)
def test_more_mutated_lines_leave_every_instrument_alive_and_truthful(name, caplog):
    hammer(TARGETS[name], 2, 4_000, caplog)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", TARGETS)
def test_a_million_lines_into_every_instrument(name, seed, caplog):
    """The four sensors of the PM100 are one emulator and share its million lines."""
    hammer(TARGETS[name], 100 + seed, 25_000 if name.startswith("pm100") else 100_000, caplog)


@pytest.mark.long
def test_more_random_frames_leave_the_itla_alive():
    hammer_frames(2, 20_000)


@pytest.mark.long
def test_more_random_messages_leave_hislip_alive(caplog):
    hammer_hislip(2, 8_000, caplog)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(10))
def test_a_million_frames_into_the_itla(seed):
    hammer_frames(100 + seed, 100_000)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(10))
def test_a_million_messages_into_hislip(seed, caplog):
    hammer_hislip(100 + seed, 100_000, caplog)
