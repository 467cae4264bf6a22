"""The worked frames of the specification (section 19), byte for byte, on its 4-channel voltage board."""

from __future__ import annotations

import zlib

import numpy as np

from firmware_protocol import (
    ESTOP_WIRE,
    ConfigGlobalRequest,
    ConfigReply,
    Drive,
    Feature,
    Frame,
    HelloReply,
    Kind,
    SetReply,
    SetRequest,
    encode_frame,
)
from lumion_hw.emulator.mesh.lumion import BoardProfile
from tests.emulator.mesh.lumion.board_testbench import Bench, Host

BOARD = BoardProfile(
    n_dac=4,
    n_adc=4,
    drive=Drive.VOLTAGE,
    dac_full_scale=12_000_000,
    adc_full_scale=2_000_000,
    mtu=512,
    n_streams=2,
    sweep_mem=8192,
    sweep_ring=4096,
    features=1 << Feature.SWEEP | 1 << Feature.CHIP_TEMPERATURE,
    serial="FP-0007",
    fw_version="1.0.0",
)
GLOBAL = ConfigGlobalRequest(
    wd_policy=0, wd_timeout_ms=2000, wd_param_ms=0, total_power_mw=400, fault_enable=1, temp_trip=8500
)
LIMITS = [(65535, 1000, 0), (65535, 1000, 0), (52428, 1000, 0), (65535, 1000, 0)]

HELLO = "0002100101010105712f010101010210010862656e63682d61010101010101010105de0c263f00"
STAGE = "0002100211020104712f01010101010101020401021001010880ffff1e9812fd00"
STAGE_REPLY = "0002110211020104712f01010102040101053241e7c300"
COMMIT = "0002100213020204712f2a01010201010105d84aef5d0101010101020405c1bf8c9100"
COMMIT_REPLY = "0002110213020204712f2a0101033a300107d84aef5d01010105f8de415700"
SET = "0004100214020304712f2b010101010204010101010360ea01053683847e00"
SET_REFUSED = "0002110414060304712f0205ffff60ea0103cccc010a04636f6465ce301a9300"
ESTOP = "0002100202010101010953544f50b0dfbfdd00"
ESTOP_REPLY = "00041180020101010102010101037030010204010105c757450500"


def wire(text: str) -> bytes:
    return bytes.fromhex(text)


def at_generation_41() -> tuple[Bench, Host]:
    """Return the board of section 19, configured, at active generation 41, in a new session 0x2F71."""
    bench = Bench(BOARD)
    host = Host(bench)
    host.open()
    reply = host.configure(GLOBAL, LIMITS)
    assert isinstance(reply, ConfigReply)
    assert reply.config_crc32 == 0xA3FD60C2
    assert isinstance(host.ask(SetRequest(41, np.zeros(4, dtype=np.uint16))), SetReply)
    answer = host.raw(wire(HELLO))
    assert answer is not None
    return bench, host


def answer_to(host: Host, request: str) -> bytes:
    frame = host.raw(wire(request))
    assert frame is not None
    return encode_frame(frame)


def test_the_hello_is_answered_with_the_block_of_19_2() -> None:
    bench, host = at_generation_41()
    assert host.last is not None
    body, reply = host.last.payload, HelloReply.decode(host.last.payload)
    expected = bytes.fromhex(
        "01080002000204000400101002020100001bb70080841e00e8030100f40100003200000004040000"
        "00000000290000" + "00c260fda30020000000100000"
        "46502d30303037000000000000000000312e302e300000000000000000000000"
    )
    # All fields except schema_crc32 (an example value there), boot_id (random) and uptime_ms.
    assert body[:40] + body[52:] == expected
    assert reply.active_generation == 41
    assert reply.boot_id == bench.board.boot_id != 0
    assert len(encode_frame(host.last)) == 119


def test_stage_and_commit_answer_as_in_19_3_to_19_6() -> None:
    bench, host = at_generation_41()
    assert answer_to(host, STAGE) == wire(STAGE_REPLY)
    bench.until(12.344)
    assert answer_to(host, COMMIT) == wire(COMMIT_REPLY)
    # 12 V full scale, codes 0x1000, 0, 0x8000, 0xFFFF, in mV, at tick 12346
    instant, volts = bench.drives[-1]
    assert np.isclose(instant, 12.346)
    assert np.allclose(volts, np.array([0x1000, 0, 0x8000, 0xFFFF]) * 12_000 / 65535)


def test_a_set_above_the_limit_is_refused_as_in_19_8_and_changes_nothing() -> None:
    bench, host = at_generation_41()
    answer_to(host, STAGE)
    answer_to(host, COMMIT)
    before = list(bench.drives)
    assert answer_to(host, SET) == wire(SET_REFUSED)
    assert bench.drives == before


def test_the_constant_estop_frame_is_answered_as_in_19_10() -> None:
    bench, host = at_generation_41()
    answer_to(host, STAGE)
    bench.until(12.344)
    answer_to(host, COMMIT)
    bench.until(12.4)
    assert wire(ESTOP) == ESTOP_WIRE
    assert answer_to(host, ESTOP) == wire(ESTOP_REPLY)
    assert bench.drives[-1] == (12.4, [0.0] * 4)


def test_a_144_channel_set_of_the_vector_table_is_understood() -> None:
    bench = Bench(BoardProfile())
    host = Host(bench)
    host.open()
    host.configure()
    codes = (455 * np.arange(144)).astype(np.uint16)
    request = SetRequest(0x01010101, codes)
    frame = encode_frame(Frame(Kind.REQ, request.command, 0x0102, 0x2F71, payload=request.encode()))
    assert (len(frame), zlib.crc32(frame)) == (312, 0x53E1E755)
    answer = host.raw(frame)
    assert answer is not None
    assert answer.status == 0
    assert np.array_equal(bench.board.driven_codes, codes)
