"""READ_ADC, READBACK and the resolution of the converters (sections 6.1, 8.5, 9)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from firmware_protocol import (
    DRIVEN_TABLE,
    PingRequest,
    ReadAdcReply,
    ReadAdcRequest,
    ReadbackFlag,
    ReadbackRequest,
    Refusal,
    SetRequest,
    StageRequest,
    Status,
    encode_frame,
    table_crc32,
)
from lumion_hw.emulator.mesh.lumion import BoardProfile, MeshBoard
from tests.emulator.mesh.lumion.board_testbench import TINY, Bench, Host, table


def test_monitor_codes_are_the_current_over_full_scale() -> None:
    bench = Bench()  # 1 mA full scale
    host = Host(bench)
    host.open()
    bench.monitors_ma = np.array([0.0, 0.5, 0.25, 1e-5])
    reply = host.ask(ReadAdcRequest(0, 4))
    assert isinstance(reply, ReadAdcReply)
    assert reply.adc.tolist() == [0, 32768, 16384, 1]
    assert (reply.start, reply.generation) == (0, 0)
    assert host.ask(ReadAdcRequest(1, 2)).adc.tolist() == [32768, 16384]


def test_light_above_full_scale_saturates_and_darkness_is_zero() -> None:
    bench = Bench()
    host = Host(bench)
    host.open()
    bench.monitors_ma = np.array([1.0, 5.0, -0.1, 0.999])
    reply = host.ask(ReadAdcRequest(0, 4))
    assert reply.adc.tolist() == [65535, 65535, 0, 65469]
    assert reply.saturated.tolist() == [True, True, False, False]


def test_a_12_bit_monitor_has_4096_codes() -> None:
    bench = Bench(replace(TINY, adc_bits=12))
    host = Host(bench)
    host.open()
    bench.monitors_ma = np.array([0.5, 1.0, 1 / 4095, 0.4 / 4095])
    # native 2048, 4095, 1, 0; adc = native x 65535 // 4095
    assert host.ask(ReadAdcRequest(0, 4)).adc.tolist() == [32775, 65535, 16, 0]


def test_a_12_bit_drive_drives_the_upper_bits_and_reads_back_what_was_commanded() -> None:
    bench = Bench(replace(TINY, dac_bits=12))
    host = Host(bench).ready()
    host.drive(1, [0x1230, 0x123F, 0xFFFF, 0x000F])
    _, currents = bench.drives[-1]
    assert currents == pytest.approx(np.array([0x123, 0x123, 0xFFF, 0]) * 10 / 4095)
    assert host.ask(ReadbackRequest(count=4)).codes.tolist() == [0x1230, 0x123F, 0xFFFF, 0x000F]


def test_averaging_takes_its_scans_and_the_tick_is_that_of_the_first() -> None:
    bench = Bench()
    host = Host(bench)
    host.open()
    start = bench.clock.now()
    reply = host.ask(ReadAdcRequest(0, 4, n_avg=4000))
    assert bench.clock.now() - start == pytest.approx(1e-3 + 4000 * 50e-6, abs=1e-4)
    assert reply.tick == round((start + 1e-3) * 1e3)
    assert reply.tick < host.ask(PingRequest(1)).tick - 199


def test_a_sample_names_the_generation_it_was_taken_under() -> None:
    host = Host(Bench()).ready()
    host.drive(17, [1, 2, 3, 4])
    assert host.ask(ReadAdcRequest(0, 1)).generation == 17


@pytest.mark.parametrize(
    ("request_", "offset", "value"),
    [
        (ReadAdcRequest(4, 1), 0, 4),
        (ReadAdcRequest(0, 0), 2, 0),
        (ReadAdcRequest(1, 4), 2, 4),
        (ReadAdcRequest(0, 4, n_avg=0), 4, 0),
        (ReadAdcRequest(0, 4, n_avg=4097), 4, 4097),
        (ReadbackRequest(bank=2), 0, 2),
        (ReadbackRequest(start=4, count=1), 2, 4),
        (ReadbackRequest(count=0), 4, 0),
        (ReadbackRequest(start=1, count=4), 4, 4),
    ],
)
def test_what_is_out_of_range_is_a_bad_value(request_: ReadAdcRequest, offset: int, value: int) -> None:
    host = Host(Bench())
    host.open()
    assert host.ask(request_) == Refusal(Status.BAD_VALUE, channel=offset, value=value)


def test_a_reply_that_could_be_too_long_is_refused_and_says_what_fits() -> None:
    host = Host(Bench(BoardProfile(n_dac=4, n_adc=200)))
    host.hello(rx_max=256)  # 241 bytes of payload, 12 of them fixed: 114 codes
    assert host.ask(ReadAdcRequest(0, 200)) == Refusal(Status.TOO_BIG, value=200, limit=114)
    assert len(host.ask(ReadAdcRequest(0, 114)).adc) == 114


def test_a_board_without_monitors_has_nothing_to_read() -> None:
    host = Host(Bench(BoardProfile(n_dac=4, n_adc=0)))
    assert host.open().adc_bits == 0
    assert host.ask(ReadAdcRequest(0, 1)).status == Status.BAD_VALUE


def test_readback_without_codes_ignores_start_and_count() -> None:
    host = Host(Bench()).ready()
    latch = host.drive(3, [5, 6, 7, 8])
    reply = host.ask(ReadbackRequest(rb_flags=0, start=999, count=999))
    assert (reply.generation, reply.tick, reply.crc32) == (3, latch.tick, table_crc32([5, 6, 7, 8]))
    assert (reply.bank, reply.staged, len(reply.codes)) == (DRIVEN_TABLE, 4, 0)
    assert host.ask(ReadbackRequest(rb_flags=ReadbackFlag.CODES, start=1, count=2)).codes.tolist() == [6, 7]


def test_readback_of_a_bank_counts_unstaged_channels_as_zero() -> None:
    host = Host(Bench())
    host.open()
    host.ask(StageRequest(9, 1, 2, table([7])))
    reply = host.ask(ReadbackRequest(bank=1, count=4))
    assert (reply.generation, reply.staged, reply.tick) == (9, 1, 0)
    assert reply.codes.tolist() == [0, 0, 7, 0]
    assert reply.crc32 == table_crc32([0, 0, 7, 0])


def test_the_largest_set_fits_and_one_code_more_is_dropped_as_oversize() -> None:
    host = Host(Bench(BoardProfile(n_dac=116, mtu=256))).ready()
    assert host.drive(1, [9] * 116).latched, "256 bytes on the wire hold 116 codes"
    too_long = encode_frame(host.frame(SetRequest(2, table([257] * 118))))
    assert len(too_long) > 256
    assert host.raw(too_long, 0.1) is None
    assert host.ask(PingRequest(1)).outputs_state == 1


def test_a_scan_may_look_at_a_world_that_looks_back_at_the_board() -> None:
    """The optical world makes every device advance before it computes the light."""
    bench = Bench()
    asked = []

    class World:
        def sense(self, n_avg: int, at_s: float) -> object:
            bench.board.advance()
            asked.append(n_avg)
            return np.zeros(4)

    bench.board = MeshBoard(
        "board",
        bench.clock,
        np.random.default_rng(1),
        drive=lambda output, at_s: None,
        sense_ma=World().sense,  # type: ignore[arg-type]
        profile=TINY,
    )
    host = Host(bench)
    host.open()
    host.ask(ReadAdcRequest(0, 4, n_avg=16))
    assert asked == [16]
