"""Inputs that other programs failed on, as reported in public."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.transponders.cmis import CmisTransponder
from lumion_hw.drivers.transponders.qsfp import QsfpTransponder
from lumion_hw.drivers.transponders.sfp import SfpTransponder
from lumion_hw.errors import LumionError, NotSupportedError, VerifyError
from lumion_hw.sessions.module.adapter import AdapterRegisters
from lumion_hw.sessions.module.registers import NotRespondingError
from tests.drivers.transponders.cmis_peer import Peer
from tests.drivers.transponders.qsfp_memories import Module, cable
from tests.drivers.transponders.sfp_memories import CONSTANTS, IDENTITY, MONITORS
from tests.emulator.transponders.cmis_testbench import Host
from tests.sessions.i2c_libraries import Wire
from tests.sessions.test_i2c_adapters import Case, adapter_on, every_adapter

REJECTED = {6, 7}
"""Lanes in use, and only a part of a data path; either is right here."""
DEACTIVATED, ACTIVATED = 1, 4


def test_four_paths_replace_the_one_that_a_dr4_starts_with() -> None:
    """SONiC asked for 100G on two of the eight lanes of the running 400G (sonic-buildimage issue 20430)."""
    host = Host("400g-dr4", low_power_pin=False)
    host.wait(30.0)
    assert host.states() == [ACTIVATED] * 8
    lanes = host.stage(2, 1, 2)
    host.write(0x10, 128, lanes)
    host.wait(5.0)
    assert set(host.apply(lanes)[:2]) <= REJECTED
    with CmisTransponder(host.module, clock=host.clock, device="dr4") as module:
        for first_lane in (1, 3, 5, 7):
            module.path(first_lane).select_application(2)
        assert host.states() == [DEACTIVATED] * 8
        for first_lane in (1, 3, 5, 7):
            module.path(first_lane).enable()
        assert host.states() == [ACTIVATED] * 8
        assert [value >> 4 for value in host.read(0x11, 206, 8)] == [2] * 8


def flat_cmis(clock: VirtualClock) -> CmisTransponder:
    peer = Peer(clock)
    peer.lower[2] = 0x80
    peer.pages = {0x00: peer.pages[0x00]}
    return CmisTransponder(peer, clock)


def passive_qsfp(clock: VirtualClock) -> QsfpTransponder:
    return QsfpTransponder(Module(clock, cable()), clock)


@pytest.mark.parametrize("make", [flat_cmis, passive_qsfp])
def test_every_call_on_a_passive_cable_answers_or_says_what_is_missing(
    clock: VirtualClock, make: Callable[[VirtualClock], CmisTransponder | QsfpTransponder]
) -> None:
    """Calls that read pages which a cable lacks raised decoding errors in SONiC (sonic-platform-common 235 and 238)."""
    driver = make(clock)
    driver.open()
    refused = []
    for name, method in inspect.getmembers(driver, inspect.ismethod):
        needs_nothing = all(item.default is not item.empty for item in inspect.signature(method).parameters.values())
        if name.startswith("_") or name in ("open", "close") or not needs_nothing:
            continue
        try:
            method()
        except NotSupportedError:
            refused.append(name)
    assert {"enable", "disable", "power_up", "reset", "status"} <= set(refused)
    assert {"identify", "dump", "flags"}.isdisjoint(refused)


@pytest.mark.parametrize("page", [0x02, 0x03])
def test_a_page_that_cannot_be_read_costs_only_itself(clock: VirtualClock, page: int) -> None:
    """Sfputil showed nothing of a module if one page failed (sonic-utilities 4303)."""

    class BadPage(Module):
        def read(self, offset: int, length: int) -> bytes:
            if offset >= 128 and self.pages[None][127] == page:
                raise NotRespondingError("not acknowledged")
            return super().read(offset, length)

    driver = QsfpTransponder(BadPage(clock), clock)
    driver.open()
    image = driver.dump()
    assert list(image.unreadable) == [(0, page)]
    assert {(0, None), (0, 0x00), (0, 0x02), (0, 0x03)} - image.halves.keys() == {(0, page)}


class OneByteSfp:
    """One memory of an SFP whose processor answers and takes only one byte in a transaction."""

    def __init__(self, memory: bytes) -> None:
        self.memory = bytearray(memory.ljust(256, b"\x00"))

    def read(self, offset: int, length: int) -> bytes:
        return bytes([self.memory[offset]]).ljust(length, b"\xff")

    def write(self, offset: int, data: bytes) -> None:
        self.memory[offset] = data[0]


@every_adapter
def test_an_sfp_that_answers_one_byte_at_a_time_is_read_and_switched(case: Case, clock: VirtualClock) -> None:
    """GPON modules gave SFPTotal Wizard the first byte of a read only (SFPTotal-Wizard 4)."""
    wire = Wire(x50=OneByteSfp(IDENTITY), x51=OneByteSfp(CONSTANTS + MONITORS))
    with pytest.raises(LumionError):
        SfpTransponder(AdapterRegisters(adapter_on(case, wire), clock, device="s1"), clock, device="s1").open()
    registers = AdapterRegisters(adapter_on(case, wire, largest_read=1), clock, device="s1")
    sfp = SfpTransponder(registers, clock, device="s1")
    sfp.open()
    assert sfp.identify().serial == "EMU0000001"
    assert sfp.monitors().rx_power_dbm == pytest.approx(-10.0, abs=0.01)
    wire.transfers.clear()
    with suppress(VerifyError):  # the laser of this module does not follow
        sfp.disable()
    assert all(len(out) <= 2 for _, out, _ in wire.transfers)  # offset and at most one byte
    assert wire.targets[0x51].read(110, 1)[0] & 0x40  # soft Tx disable
