"""Common information and busy reports of all emulated Keysight instruments with slots.

Sources: 8163/8164/8166 programming guide (Fifth Edition) pp. 26-27, 60, 81; N777xC programming guide p. 30.
"""

from __future__ import annotations

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.lasers.keysight_laser import EmulatedKeysightLaser
from lumion_hw.emulator.meters.keysight_816x import EmulatedKeysight816x
from lumion_hw.emulator.meters.keysight_n77xx import EmulatedKeysightN77xx
from lumion_hw.emulator.optics.light import Light
from tests.emulator.scpi.scpi_testbench import Host

DUAL, SINGLE, LASER = "81635A", "81634B", "81600B-200"


@pytest.fixture
def clock():
    return VirtualClock()


def mainframe(clock, **options) -> Host:
    return Host(EmulatedKeysight816x("mf0", clock, np.random.default_rng(3), lambda *_: Light(1e-4), **options))


def meter(clock, **options) -> Host:
    return Host(EmulatedKeysightN77xx("pm0", clock, np.random.default_rng(3), lambda _: 1e-4, **options))


def laser(clock) -> Host:
    return Host(EmulatedKeysightLaser("laser0", clock, np.random.default_rng(3)))


@pytest.mark.parametrize(
    ("model", "modules", "reply"),
    [
        ("8164B", {0: LASER, 2: DUAL}, "81600B,  ,81635A,  ,  "),
        ("8163B", {2: SINGLE}, "  ,81634B"),
        ("8164A", {0: LASER}, "81600B,  ,  ,  ,  "),
    ],
)
def test_options_are_the_part_numbers_slot_by_slot_with_two_spaces_for_none(clock, model, modules, reply):
    """Slots start at 0 in an 8164, at 1 in the others (p. 60)."""
    assert mainframe(clock, model=model, modules=modules).ask("*OPT?") == reply


def test_slots_tell_what_is_in_them(clock):
    host = mainframe(clock, modules={0: "81600B-160", 1: SINGLE})
    assert host.ask("SLOT0:EMPT?;:SLOT1:EMPT?;:SLOT2:EMPT?") == "0;0;1"
    assert host.ask("SLOT0:IDN?").split(",")[:2] == ["Agilent Technologies", "81600B"]
    assert host.ask("SLOT1:IDN?").split(",")[1] == "81634B"
    assert host.ask("SLOT0:OPT?") == "NO CONNECTOR OPTION, #160"
    assert host.ask("SLOT1:TST?") == '+0,"self test OK"'
    assert host.ask("SLOT2:IDN?") is None
    assert host.ask("SLOT5:EMPT?") is None
    assert host.errors() == [-114, -114]


def test_instruments_without_a_mainframe_are_their_own_modules(clock):
    assert meter(clock, model="N7744A", n_ports=4).ask("*OPT?") == "N7744A,N7744A,N7744A,N7744A"
    assert meter(clock).ask("SLOT8:EMPT?;:SLOT8:IDN?").split(";")[1].split(",")[1] == "N7745A"
    assert laser(clock).ask("*OPT?;:SLOT0:EMPT?") == "N7776C;0"
    assert laser(clock).ask("SLOT0:IDN?") == "Keysight Technologies,N7776C,DE00000002,1.06.00"


def test_a_slot_left_out_is_the_lowest(clock):
    """Slot 0 of an 8164, slot 1 of the others (p. 27)."""
    host = mainframe(clock, model="8163B", modules={1: DUAL})
    assert host.ask("SENS:POW:UNIT?;:SLOT:IDN?").split(",")[1] == "81635A"
    host = mainframe(clock, modules={0: LASER, 1: DUAL})
    assert host.ask("SLOT:IDN?;:WAV?").split(",")[1] == "81600B"
    assert host.ask("SENS:POW:UNIT?") is None
    assert host.errors() == [-114]


def test_a_mainframe_may_hold_a_laser_alone(clock):
    host = mainframe(clock, modules={0: LASER})
    assert host.ask("TRIG0:OUTP STF;:TRIG:CONF LOOP;:TRIG0:OUTP?;:TRIG:CONF?;:WAV? MIN") == "STF;LOOP;+1.44000000E-006"
    assert host.ask("READ1:POW?") is None
    assert host.errors() == [-113]


def test_sensors_differ(clock):
    host = mainframe(clock, modules={1: "81630B", 2: "81634B", 3: "81635A", 4: "81636B"})
    limits = [host.ask(f"SENS{slot}:POW:RANG? MIN;RANG? MAX;WAV? MAX") for slot in (1, 2, 3, 4)]
    assert [tuple(map(float, line.split(";"))) for line in limits] == [
        pytest.approx((-70.0, 30.0, 1.65e-6)),
        pytest.approx((-110.0, 10.0, 1.7e-6)),
        pytest.approx((-80.0, 10.0, 1.65e-6)),
        pytest.approx((-80.0, 10.0, 1.64e-6)),
    ]
    assert host.ask("SENS2:CHAN2:POW:UNIT?") is None
    assert host.ask("SENS3:CHAN2:POW:UNIT?") == "+0"
    assert host.errors() == [-114]


def test_opc_query_answers_at_once_0_while_a_module_is_busy(clock):
    """P. 60: `1 is returned if all modules are ready to execute a new operation. 0 ... if any module is busy.'"""
    for host, work in (
        (laser(clock), "SOUR0:WAV 1600NM"),
        (meter(clock), "SENS1:FUNC:STAT LOGG,STAR"),
        (mainframe(clock), "SENS1:CORR:COLL:ZERO"),
    ):
        assert host.ask("*OPC?") == "1"
        assert host.ask("*CLS;:" + work) is None
        assert host.ask("*OPC?;*ESR?") == "0;0"
        clock.sleep(20.0)
        assert host.ask("*OPC?;*ESR?") in ("1;1", "1;17"), (
            "it sets the bit when it answers 1 (17: not dark for zeroing)"
        )


def test_what_waits_for_a_trigger_keeps_nobody_waiting(clock):
    device = EmulatedKeysightLaser("laser0", clock, np.random.default_rng(3))
    host, other = Host(device), Host(device)
    host.ask("TRIG0:OUTP STF;:TRIG0:INP SWS;:SOUR0:WAV:SWE:STAR 1550NM;STOP 1560NM;STEP 1NM;MODE CONT;:WAV:SWE 1")
    clock.sleep(1.0)
    assert host.ask("SOUR0:WAV:SWE:FLAG?;*OPC?;*IDN?").startswith("+1;1;Keysight")
    assert other.ask("*OPC?") == "1"
    host.ask("SOUR0:WAV:SWE:SOFT")
    assert host.ask("*OPC?") == "0"
    clock.sleep(1.0)
    assert host.ask("*OPC?") == "1"


def test_a_run_that_waits_for_triggers_keeps_nobody_waiting(clock):
    host = meter(clock)
    host.ask("TRIG1:INP SME;:SENS1:FUNC:STAT LOGG,STAR")
    assert host.ask("*OPC?;:SENS1:FUNC:STAT?") == "1;LOGGING_STABILITY,PROGRESS"
