"""For any byte string an instrument keeps working and its error queue is correct (SCPI-99)."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.meters.keysight_n77xx import EmulatedKeysightN77xx
from tests.emulator.fuzz_testbench import SCPI_ERROR, mutate
from tests.emulator.scpi.scpi_testbench import Host, Meter

CORPUS = [
    b"*IDN?",
    b"*ESE 32;*SRE 36;*STB?",
    b"*OPC?;*WAI;*OPC",
    b"SYST:ERR:NEXT?",
    b"STAT:OPER:ENAB 512;PTR 512;NTR #H00;:STAT:QUES?",
    b"SENS1:CORR:WAV 1310;BEAM 3",
    b"sense2:power:dc:range:upper 1.5E-3 MW",
    b"AVER #B101",
    b"POW:UNIT LOGGing",
    b'DISP:LAB "a;b,""c"""',
    b"DATA:BLOB #15\n;,#'",
    b"READ?",
    b"READ1:POW?",
    b"READ:POW:ALL?;ALL:CONF?",
    b"FETC4:CHAN1:POW?",
    b"SENS1:POW:WAV 1310 NM;ATIM 1MS;RANG -20DBM;RANG:AUTO 1;UNIT 1",
    b"SENS1:POW:WAV? MIN;ATIM? MAXimum",
    b"SENS1:CORR:COLL:ZERO:ALL;ZERO?",
    b"INIT1:CONT 0;:INIT1;*WAI",
    b"SENS1:CORR:LOSS:INP:MAGN 3DB",
]
LIMIT = 2000


def check_alive(host: Host, clock: VirtualClock) -> set[int]:
    """End pending input; the identity must be returned and the queue must empty. Returns the error codes."""
    host.raw(b"\n" * (LIMIT + 1))  # an announced block may be as long as the input buffer
    while (event := host.peer.next_event()) is not None:
        clock.sleep(max(event - clock.now(), 1e-6))
        host.peer.transmit()
    assert host.raw(b"*RST\n*IDN?\n").count(b",") == 3
    codes = set()
    for _ in range(40):
        match = SCPI_ERROR.fullmatch(host.raw(b"SYST:ERR?\n"))
        assert match, "the error queue answers in its own form"
        codes.add(int(match[1]))
        if codes >= {0}:
            break
    assert 0 in codes
    assert host.raw(b"*ESR?\n").strip().isdigit()
    return codes


def instruments(clock: VirtualClock):
    light = np.random.default_rng(2)
    meter = EmulatedKeysightN77xx(
        "pm", clock, np.random.default_rng(3), lambda _: 10 ** light.uniform(-12, -1), n_ports=4
    )
    return Meter(clock, message_limit=LIMIT).instrument, meter


def hammer(seed: int, lines: int, caplog) -> None:
    clock, rng = VirtualClock(), np.random.default_rng(seed)
    with caplog.at_level(logging.ERROR):
        for instrument in instruments(clock):
            host = Host(instrument)
            for _ in range(lines):
                before = host.raw(mutate(rng, CORPUS) + b"\n")
                assert before == b"" or before.endswith(b"\n")
                if rng.random() < 0.05:
                    assert -310 not in check_alive(host, clock), caplog.text
                if rng.random() < 0.02:
                    host.peer.close()
                    host = Host(instrument)
            assert -310 not in check_alive(host, clock), caplog.text
    assert caplog.text == "", "an internal error was logged"


@pytest.mark.parametrize("seed", range(4))
def test_mutated_lines_leave_it_alive_and_truthful(seed, caplog):
    hammer(seed, 250, caplog)


@pytest.mark.parametrize(
    "seed",
    [pytest.param(seed, marks=pytest.mark.long if seed < 101 else pytest.mark.campaign) for seed in range(100, 110)],
)
def test_many_more_mutated_lines(seed, caplog):
    hammer(seed, 5_000, caplog)


@pytest.mark.parametrize("seed", range(3))
def test_one_refused_unit_is_exactly_one_error(seed, caplog):
    """The event status register and the queue agree: no error without a reason, no lost error."""
    rng = np.random.default_rng(seed)
    host = Host(Meter(VirtualClock()).instrument)
    for _ in range(500):
        word = bytes(rng.choice(list(b"ABCDEFGHIJ$%&1 \x07\x90"), int(rng.integers(1, 20))).astype(np.uint8).tolist())
        if not word.strip(b" "):
            continue
        host.ask("*CLS")
        assert host.raw(word + b"\n") == b""
        assert host.ask("*ESR?") == "32"
        codes = host.errors()
        assert len(codes) == 1
        assert codes[0] in (-101, -102, -112, -113)


def test_flood_of_errors_does_not_grow_the_instrument():
    host = Host(Meter(VirtualClock()).instrument)
    for _ in range(3000):
        host.raw(b"FOO;BAR;BAZ\n")
    assert len(host.errors()) == 30
