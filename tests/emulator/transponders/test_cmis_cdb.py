"""The command data block and the passwords of the emulated module (CMIS 5.2)."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.transponders.cmis import PROFILES, CmisModule, ModuleQuirks
from lumion_hw.emulator.transponders.cmis.profiles import CdbProfile
from lumion_hw.sessions.module.registers import NotRespondingError
from lumion_hw.standards.cmis.cdb import decode_reply
from lumion_hw.standards.cmis.firmware import decode_firmware_info
from tests.emulator.transponders.cmis_testbench import Host

DONE, UNKNOWN, PARAMETER, BAD_CODE, PASSWORD = 0x01, 0x41, 0x42, 0x45, 0x46
CAPTURED, CHECKING, EXECUTING = 0x81, 0x82, 0x83


def awake(**options) -> Host:
    host = Host(**options)
    host.wait(0.6)
    return host


def send(host: Host, command: int, code: int, payload: bytes = b"") -> None:
    """Write a command in CMIS order: 130 and up first, the command last. The check code comes from the vectors."""
    host.select(0x9F)
    body = bytes([0, 0, len(payload), code, 0, 0]) + payload
    for start in range(0, len(body), 8):
        host.module.write(130 + start, body[start : start + 8])
    host.module.write(128, command.to_bytes(2, "big"))


def status(host: Host) -> int:
    return host.module.read(37, 1)[0]


def run(host: Host, command: int, code: int, payload: bytes = b"") -> int:
    send(host, command, code, payload)
    host.until(lambda: not status(host) & 0x80, 10.0)
    return status(host)


def reply(host: Host) -> bytes:
    return decode_reply(host.read(0x9F, 128, 128))


# Check codes by hand, the complement of the sum of all bytes: 0000h with payload 0010h -> EDh, 0040h -> BFh,
# 0041h -> BEh, 0100h -> FEh, 0001h + 1011h -> D9h


def test_query_status_tells_whether_the_module_is_unlocked() -> None:
    host = awake()
    assert run(host, 0x0000, 0xED, b"\x00\x10") == DONE
    assert host.read(0x9F, 137) == b"\x00"
    assert run(host, 0x0001, 0xD9, b"\x00\x00\x10\x11") == DONE
    assert run(host, 0x0000, 0xED, b"\x00\x10") == DONE
    assert host.read(0x9F, 137) == b"\x01"


def test_the_status_goes_through_its_phases() -> None:
    host = awake()
    send(host, 0x0040, 0xBF)
    seen = [status(host)]
    for _ in range(40):
        host.wait(0.001)
        if status(host) != seen[-1]:
            seen.append(status(host))
    assert seen == [CAPTURED, CHECKING, EXECUTING, DONE]


def test_completion_is_flagged() -> None:
    host = awake()
    host.module.read(8, 1)
    run(host, 0x0040, 0xBF)
    assert host.module.read(8, 1) == b"\x40"
    assert host.module.read(8, 1) == b"\x00"


def test_query_status_waits_as_long_as_it_is_told() -> None:
    host = awake()
    payload = (2000).to_bytes(2, "big")  # 2 s; check code FFh - (00 + 00 + 00 + 00 + 02 + 07 + D0) = 26h
    send(host, 0x0000, 0x26, payload)
    host.wait(1.9)
    assert status(host) == EXECUTING
    host.wait(0.2)
    assert status(host) == DONE


def test_module_features_list_the_commands() -> None:
    """Reply bytes 138 to 169: bit k of the map is command k."""
    host = awake()
    assert run(host, 0x0040, 0xBF) == DONE
    features = reply(host)
    supported = {number for number in range(256) if features[2 + number // 8] >> number % 8 & 1}
    assert supported == {0x00, 0x01, 0x02, 0x40, 0x41, 0x42, 0x43, 0x44, 0x45}


@pytest.mark.parametrize(("command", "code"), [(0x0042, 0xBD), (0x0043, 0xBC), (0x0045, 0xBA)])
def test_feature_commands_answer(command: int, code: int) -> None:
    host = awake()
    assert run(host, command, code) == DONE
    assert set(reply(host)) == {0}


def test_firmware_information_names_both_images() -> None:
    host = awake()
    assert run(host, 0x0100, 0xFE) == DONE
    running, spare = decode_firmware_info(reply(host))
    assert running is not None
    assert spare is not None
    assert (running.major, running.minor) == tuple(host.module.read(39, 2))
    assert (running.running, running.committed, running.valid) == (True, True, True)
    assert (spare.running, spare.valid) == (False, True)
    assert (spare.major, spare.minor) == tuple(host.read(0x01, 128, 2))


@pytest.mark.parametrize("command", [0x0104, 0x0105, 0x0106, 0x0200, 0xFFFF])
def test_other_commands_are_unknown_also_those_of_firmware_that_the_module_does_not_advertise(command: int) -> None:
    host = awake()
    code = 0xFF - sum(command.to_bytes(2, "big")) % 256
    assert run(host, command, code) == UNKNOWN


def test_a_wrong_check_code_is_refused() -> None:
    host = awake()
    assert run(host, 0x0040, 0xBE) == BAD_CODE
    assert host.module.read(8, 1)[0] & 0x40


def test_an_impossible_length_is_a_parameter_error() -> None:
    host = awake()
    host.select(0x9F)
    host.module.write(130, bytes([0, 0, 121, 0x86, 0, 0]))
    host.module.write(128, b"\x00\x00")
    host.wait(0.1)
    assert status(host) == PARAMETER


def test_the_longest_payload_has_120_bytes() -> None:
    """120 bytes are read and rejected as a query; 121 bytes do not fit."""
    host = awake()
    for length, heard in ((120, BAD_CODE), (121, PARAMETER)):
        host.select(0x9F)
        host.module.write(130, bytes([0, 0, length, 0, 0, 0]))
        host.module.write(128, b"\x00\x00")
        host.wait(0.1)
        assert status(host) == heard


@pytest.mark.parametrize(("command", "lengths"), [(0x0000, (0, 1, 3)), (0x0001, (3, 5)), (0x0002, (3, 5))])
def test_a_payload_of_the_wrong_length_is_a_parameter_error(command: int, lengths: tuple[int, ...]) -> None:
    host = awake()
    for length in lengths:
        assert run(host, command, 0xFF - command - length, bytes(length)) == PARAMETER


def test_a_wrong_password_is_refused_and_locks() -> None:
    host = awake()
    assert run(host, 0x0001, 0xD9, b"\x00\x00\x10\x11") == DONE
    assert run(host, 0x0001, 0xDA, b"\x00\x00\x10\x10") == PASSWORD
    run(host, 0x0000, 0xED, b"\x00\x10")
    assert host.read(0x9F, 137) == b"\x00"


def test_a_command_written_whole_from_128_on_is_triggered_too() -> None:
    host = awake()
    host.select(0x9F)
    host.module.write(128, bytes([0x00, 0x00, 0, 0, 2, 0xED, 0, 0, 0x00, 0x10]))
    host.wait(0.1)
    assert status(host) == DONE


def test_the_command_byte_alone_does_not_trigger_and_its_second_byte_does() -> None:
    host = awake()
    host.select(0x9F)
    host.module.write(130, bytes([0, 0, 0, 0xBF, 0, 0]))
    host.module.write(128, b"\x00")
    host.wait(0.1)
    assert status(host) == 0x00
    host.module.write(129, b"\x40")
    assert status(host) == CAPTURED


def test_a_busy_module_ignores_another_trigger() -> None:
    host = awake()
    send(host, 0x0000, 0x26, (2000).to_bytes(2, "big"))
    host.wait(0.5)
    send(host, 0x0100, 0xFE)
    host.wait(1.6)
    assert status(host) == DONE
    assert len(reply(host)) == 2


def test_a_module_without_background_mode_is_silent_meanwhile() -> None:
    profile = dataclasses.replace(PROFILES["400zr"], cdb=CdbProfile(background=False))
    host = awake()
    clock = VirtualClock()
    host.clock, host.module = clock, CmisModule(profile, clock, np.random.default_rng(1))
    host.wait(0.6)
    send(host, 0x0040, 0xBF)
    with pytest.raises(NotRespondingError, match="CDB command"):
        status(host)
    host.wait(0.031)
    assert status(host) == DONE


def test_a_module_without_cdb_has_no_page_for_it() -> None:
    profile = dataclasses.replace(PROFILES["400zr"], cdb=None)
    clock = VirtualClock()
    module = CmisModule(profile, clock, np.random.default_rng(1))
    clock.sleep(0.6)
    module.write(127, b"\x9f")
    assert module.read(127, 1) == b"\x00"
    module.write(127, b"\x01")
    assert module.read(163, 1)[0] >> 6 == 0


def test_a_reset_ends_a_command() -> None:
    host = awake()
    send(host, 0x0000, 0x26, (2000).to_bytes(2, "big"))
    host.module.reset()
    host.wait(0.6)
    assert status(host) == 0
    assert run(host, 0x0040, 0xBF) == DONE


# Passwords -----------------------------------------------------------------------------------------------------------


def test_the_password_opens_the_user_eeprom_where_it_is_locked() -> None:
    host = awake(quirks=ModuleQuirks(password_protects_eeprom=True))
    host.write(0x03, 128, 0x55)
    assert host.read(0x03, 128) == b"\x00"
    host.module.write(122, b"\x00\x00\x10\x11")
    host.write(0x03, 128, 0x55)
    assert host.read(0x03, 128) == b"\x55"
    host.module.write(122, b"\x00\x00\x00\x00")
    host.write(0x03, 128, 0x66)
    assert host.read(0x03, 128) == b"\x55"


def test_a_password_is_changed_only_by_who_knows_the_old_one() -> None:
    host = awake(quirks=ModuleQuirks(password_protects_eeprom=True))
    host.module.write(118, b"\x12\x34\x56\x78")
    host.module.write(122, b"\x00\x00\x10\x11")
    host.write(0x03, 128, 0x01)
    assert host.read(0x03, 128) == b"\x01"
    host.module.write(118, b"\x12\x34\x56\x78")
    host.module.reset()
    host.wait(0.6)
    host.module.write(122, b"\x00\x00\x10\x11")
    host.write(0x03, 128, 0x02)
    assert host.read(0x03, 128) == b"\x01"
    host.module.write(122, b"\x12\x34\x56\x78")
    host.write(0x03, 128, 0x02)
    assert host.read(0x03, 128) == b"\x02"
