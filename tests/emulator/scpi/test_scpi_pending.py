"""Pending operations: an operation that completes later blocks its connection and no other."""

from __future__ import annotations

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.links.memory import MemoryLink
from tests.emulator.scpi.scpi_testbench import Host, Meter


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def meter(clock):
    return Meter(clock).instrument


@pytest.fixture
def host(meter):
    return Host(meter)


def test_reading_is_answered_after_its_averaging_time(host, clock):
    host.raw(b"READ?\n")
    assert host.peer.next_event() == pytest.approx(1.0)
    clock.sleep(0.999)
    assert host.peer.transmit() == b""
    clock.sleep(0.001)
    assert host.peer.transmit() == b"+1.00000000E-003\n"
    assert host.peer.next_event() is None


def test_other_connections_go_on_while_one_waits(meter, host):
    host.raw(b"READ?\n")
    assert Host(meter).ask("*IDN?") == "Maker,M1,SN1,1.0"


def test_units_and_messages_behind_a_pending_one_wait_their_turn(host, clock):
    assert host.raw(b"READ?;*OPC?;READ?\n*IDN?\n") == b""
    clock.sleep(1.0)
    assert host.peer.transmit() == b""
    clock.sleep(1.0)
    assert host.peer.transmit() == b"+1.00000000E-003;1;+1.00000000E-003\nMaker,M1,SN1,1.0\n"


def test_opc_sets_its_event_when_the_operation_ends(host, clock):
    host.ask("*CLS;:INIT;*OPC")
    assert host.ask("*ESR?;:STAT:OPER:COND?") == "0;+512"
    clock.sleep(1.0)
    assert host.ask("*ESR?;:STAT:OPER:COND?") == "1;+0"


def test_opc_with_nothing_pending_sets_its_event_at_once(host):
    assert host.ask("*CLS;*OPC;*ESR?") == "1"


def test_opc_query_and_wai_wait_for_every_operation(host, clock):
    host.ask("POW:ATIM 2;:INIT;:POW:ATIM 1;:INIT")
    assert host.raw(b"*OPC?\n") == b""
    assert host.peer.next_event() == pytest.approx(2.0)
    clock.sleep(2.0)
    assert host.peer.transmit() == b"1\n"
    assert host.raw(b"INIT;*WAI;:STAT:OPER:COND?\n") == b""
    clock.sleep(1.0)
    assert host.peer.transmit() == b"+0\n"


def test_operation_without_a_known_end_gives_no_event_until_reset_drops_the_query(meter, host, clock):
    host.raw(b"WAIT:FOR:EVER;*OPC?;*IDN?\n")
    assert host.peer.next_event() is None
    clock.sleep(1000.0)
    assert host.peer.transmit() == b""
    Host(meter).ask("*RST")
    assert host.peer.transmit() == b"Maker,M1,SN1,1.0\n"


def test_reset_forgets_a_pending_opc(host, clock):
    host.ask("*CLS;:INIT;*OPC;*RST")
    clock.sleep(5.0)
    assert host.ask("*ESR?") == "0"


def test_cls_forgets_a_pending_opc_but_not_the_operation(host, clock):
    host.ask("INIT;*OPC;*CLS")
    assert host.ask("STAT:OPER:COND?") == "+512"
    clock.sleep(5.0)
    assert host.ask("*ESR?") == "0"


def test_operation_ended_from_outside_completes(meter, host):
    ended = []
    operation = meter.state.begin(None, lambda: ended.append(True))
    host.ask("*CLS;*OPC")
    meter.state.end(operation)
    meter.state.end(operation)
    assert ended == [True]
    assert host.ask("*ESR?") == "1"


def test_input_buffer_of_a_waiting_connection_is_finite(host, clock):
    host.raw(b"READ?\n")
    for _ in range(70):
        host.raw(b"*IDN?" + b" " * 1000 + b"\n")
    clock.sleep(1.0)
    replies = host.peer.transmit().splitlines()
    assert replies[0] == b"+1.00000000E-003"
    assert len(replies) == 1 + 65536 // 1006
    assert set(host.errors()) == {-363}


def test_overlong_message_is_an_overrun_and_the_next_one_is_answered(host):
    assert host.raw(b"X" * 70000 + b"\n*IDN?\n") == b"Maker,M1,SN1,1.0\n"
    assert host.errors() == [-363]
    assert host.ask("*ESR?") == str(128 + 8)


def test_unprintable_byte_drops_its_unit_only(host):
    assert host.raw(b"*IDN\x07?;*OPC?\n") == b"1\n"
    assert host.errors() == [-101]


def test_in_memory_link_waits_on_the_virtual_clock(meter, clock):
    link = MemoryLink(meter.connect, clock, "meter")
    link.open(deadline=1.0)
    link.write(b"READ?\n", deadline=clock.now() + 1)
    assert link.read(deadline=clock.now() + 0.5) == b""
    assert link.read(deadline=clock.now() + 5.0) == b"+1.00000000E-003\n"
    assert clock.now() == pytest.approx(1.0, abs=1e-5)
    link.close()


def test_closed_connection_takes_and_gives_nothing(host):
    host.raw(b"READ?\n")
    host.peer.close()
    assert host.raw(b"*IDN?\n") == b""
    assert host.peer.next_event() is None
