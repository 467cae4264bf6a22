"""CONFIG (section 7): pending and active configuration, APPLY's checks in order, flash."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from firmware_protocol import (
    ApplyFlag,
    Command,
    ConfigApplyRequest,
    ConfigLimitsReply,
    ConfigLimitsRequest,
    ConfigReadGlobalRequest,
    ConfigReadLimitsRequest,
    ConfigReply,
    FaultSource,
    Feature,
    Frame,
    Kind,
    OutputsState,
    Refusal,
    SetRequest,
    Status,
    config_crc32,
    encode_frame,
)
from tests.emulator.mesh.lumion.board_testbench import TINY, Bench, Host, global_block, table

LIMITS = np.array([(65535, 1000, 0)] * 4)


def limits_request(start: int, rows: list[tuple[int, int, int]]) -> ConfigLimitsRequest:
    return ConfigLimitsRequest(start, np.array(rows, dtype=np.int64).reshape(-1, 3))


def apply_request(count: int = 4, crc32: int | None = None, flags: int = 0) -> ConfigApplyRequest:
    right = config_crc32(global_block(), limits_request(0, [(65535, 1000, 0)] * 4).limits)
    return ConfigApplyRequest(count, right if crc32 is None else crc32, flags)


@pytest.fixture
def host() -> Host:
    host = Host(Bench())
    host.open()
    return host


def test_a_configuration_is_built_and_becomes_active_as_a_whole(host: Host) -> None:
    assert host.ask(global_block()) == ConfigReply(0, OutputsState.BOOT, 0, 0)
    assert host.ask(limits_request(2, [(65535, 1000, 0)] * 2)) == ConfigReply(1, OutputsState.BOOT, 2, 0)
    assert host.ask(limits_request(0, [(65535, 1000, 0)] * 2)) == ConfigReply(1, OutputsState.BOOT, 4, 0)
    reply = host.ask(apply_request())
    assert reply == ConfigReply(2, OutputsState.READY, 0, apply_request().config_crc32)
    assert host.open().config_crc32 == apply_request().config_crc32


@pytest.mark.parametrize(
    ("fields", "offset", "value"),
    [
        ({"wd_policy": 3}, 1, 3),
        ({"wd_timeout_ms": 99}, 2, 99),
        ({"wd_timeout_ms": 60001}, 2, 60001),
        ({"wd_param_ms": 1}, 4, 1),
        ({"wd_policy": 1, "wd_param_ms": 0}, 4, 0),
        ({"wd_policy": 1, "wd_param_ms": 60001}, 4, 60001),
        ({"wd_policy": 2, "wd_param_ms": 3_600_001}, 4, 3_600_001),
        ({"total_power_mw": 0}, 8, 0),
        ({"total_power_mw": 4_000_001}, 8, 4_000_001),
        ({"temp_trip": 15001}, 16, 15001),
    ],
)
def test_global_fields_out_of_range_are_bad_values(host: Host, fields: dict[str, int], offset: int, value: int) -> None:
    assert host.ask(global_block(**fields)) == Refusal(Status.BAD_VALUE, channel=offset, value=value)


def test_a_fault_source_without_its_feature_cannot_be_enabled() -> None:
    host = Host(Bench(replace(TINY, features=0)))
    host.open()
    for source in FaultSource:
        if source.feature is not None:
            assert host.ask(global_block(fault_enable=source.mask)) == Refusal(
                Status.NOT_SUPPORTED, value=source.feature
            )


@pytest.mark.parametrize(
    ("request_", "refusal"),
    [
        (limits_request(4, [(1, 1, 0)]), Refusal(Status.BAD_VALUE, channel=2, value=4)),
        (limits_request(0, []), Refusal(Status.BAD_VALUE, channel=4, value=0)),
        (limits_request(1, [(1, 1, 0)] * 4), Refusal(Status.BAD_VALUE, channel=4, value=4)),
        (limits_request(0, [(0, 0, 0), (5, 0, 0)]), Refusal(Status.BAD_VALUE, channel=16, value=5)),
        (limits_request(0, [(1, 1, 9)]), Refusal(Status.NOT_SUPPORTED, value=Feature.CHANNEL_SENSE)),
    ],
)
def test_limit_records_that_make_no_sense_are_refused(
    host: Host, request_: ConfigLimitsRequest, refusal: Refusal
) -> None:
    host.ask(global_block())
    assert host.ask(request_) == refusal


def test_the_hardware_maximum_is_a_limit() -> None:
    host = Host(Bench(replace(TINY, hw_code_max=50000)))
    host.open()
    host.ask(global_block())
    refusal = host.ask(limits_request(1, [(50000, 1, 0), (50001, 1, 0)]))
    assert refusal == Refusal(Status.LIMIT, channel=2, value=50001, limit=50000, text="code")


def test_limits_before_global_and_an_unknown_op_are_refused(host: Host) -> None:
    assert host.ask(limits_request(0, [(1, 1, 0)])).status == Status.INCOMPLETE
    answer = host.raw(encode_frame(Frame(Kind.REQ, Command.CONFIG, 77, host.session, payload=b"\x05")))
    assert answer is not None
    assert Refusal.decode(answer.status, answer.payload) == Refusal(Status.BAD_VALUE, channel=0, value=5)


def test_apply_checks_fields_then_records_then_crc_then_the_driven_table(host: Host) -> None:
    assert host.ask(apply_request(count=3)) == Refusal(Status.BAD_VALUE, channel=2, value=3)
    assert host.ask(apply_request(crc32=0)) == Refusal(Status.BAD_VALUE, channel=4, value=0)
    assert host.ask(apply_request()) == Refusal(Status.INCOMPLETE, channel=0, value=0, limit=4)
    host.ask(global_block())
    host.ask(limits_request(0, [(65535, 1000, 0)]))
    host.ask(limits_request(2, [(65535, 1000, 0)]))
    assert host.ask(apply_request(crc32=1)) == Refusal(Status.INCOMPLETE, channel=1, value=2, limit=4)
    host.ask(limits_request(0, [(65535, 1000, 0)] * 4))
    refusal = host.ask(apply_request(crc32=1))
    assert (refusal.status, refusal.value_u32, refusal.limit) == (Status.CRC_MISMATCH, apply_request().config_crc32, 1)
    assert isinstance(host.ask(apply_request()), ConfigReply)


def test_a_configuration_the_driven_table_breaks_is_refused_and_the_old_one_stays(host: Host) -> None:
    host.configure()
    old = host.open().config_crc32
    host.drive(1, [100, 2000, 0, 0])
    refusal = host.configure(None, [(1000, 1000, 0)] * 4)
    assert refusal == Refusal(Status.LIMIT, channel=1, value=2000, limit=1000, text="code")
    assert host.open().config_crc32 == old
    assert host.bench.board.driven_codes.tolist() == [100, 2000, 0, 0]


def test_applying_the_same_configuration_again_changes_nothing(host: Host) -> None:
    host.configure()
    host.drive(1, [5, 5, 5, 5])
    drives = list(host.bench.drives)
    assert isinstance(host.configure(), ConfigReply)
    assert isinstance(host.ask(apply_request()), ConfigReply)
    assert host.bench.drives == drives


def test_a_new_global_forgets_pending_limits_and_a_new_session_forgets_all(host: Host) -> None:
    host.ask(global_block())
    host.ask(limits_request(0, [(65535, 1000, 0)] * 4))
    assert host.ask(global_block()).pending == 0
    host.ask(limits_request(0, [(65535, 1000, 0)] * 4))
    host.open()
    assert host.ask(apply_request()).status == Status.INCOMPLETE


def test_the_active_configuration_can_be_read(host: Host) -> None:
    assert host.ask(ConfigReadGlobalRequest()) == Refusal(Status.NOT_CONFIGURED)
    assert host.ask(ConfigReadLimitsRequest(0, 1)) == Refusal(Status.NOT_CONFIGURED)
    rows = [(1000 * n, 100 + n, 0) for n in range(1, 5)]
    common = global_block(wd_policy=1, wd_timeout_ms=500, wd_param_ms=800, temp_trip=8500)
    host.configure(common, rows)
    block = host.ask(ConfigReadGlobalRequest())
    assert block.encode() == b"\x03" + common.encode()[1:]
    reply = host.ask(ConfigReadLimitsRequest(1, 2))
    assert isinstance(reply, ConfigLimitsReply)
    assert [tuple(row) for row in reply.limits.tolist()] == rows[1:3]
    assert host.ask(ConfigReadLimitsRequest(4, 1)) == Refusal(Status.BAD_VALUE, channel=2, value=4)
    assert host.ask(ConfigReadLimitsRequest(1, 4)) == Refusal(Status.BAD_VALUE, channel=4, value=4)


def test_apply_is_refused_while_the_watchdog_holds_the_outputs(host: Host) -> None:
    host.configure(global_block(wd_policy=2, wd_param_ms=10_000))
    host.drive(1, [5] * 4)
    host.bench.sleep(3.0)
    assert host.bench.board.state is OutputsState.GRACE
    assert host.configure(global_block()) == Refusal(Status.SAFE, value=FaultSource.WATCHDOG.mask)


def test_apply_in_the_safe_state_configures_but_stays_safe(host: Host) -> None:
    host.bench.board.trip(FaultSource.HW_SPI)
    assert host.configure().outputs_state is OutputsState.SAFE


def test_a_channel_that_is_not_fitted_takes_only_zero(host: Host) -> None:
    host.configure(None, [(65535, 1000, 0), (0, 0, 0), (65535, 1000, 0), (65535, 1000, 0)])
    refusal = host.ask(SetRequest(1, table([1, 1, 0, 0])))
    assert refusal == Refusal(Status.LIMIT, channel=1, value=1, limit=0, text="code")
    host.drive(1, [1, 0, 1, 1])


def test_saving_needs_flash_takes_its_time_and_survives_a_reset() -> None:
    host = Host(Bench())
    host.ready()
    saved = apply_request(flags=ApplyFlag.SAVE)
    assert host.ask(saved) == Refusal(Status.NOT_SUPPORTED, value=Feature.FLASH_CONFIG)
    bench = Bench(replace(TINY, features=1 << Feature.FLASH_CONFIG))
    host = Host(bench).ready()
    start = bench.clock.now()
    assert isinstance(host.ask(saved), ConfigReply)
    assert bench.clock.now() - start == pytest.approx(0.5, abs=1e-4)
    bench.board.reset()
    reply = host.open()
    assert (reply.config_crc32, reply.outputs_state) == (saved.config_crc32, OutputsState.BOOT)
    assert host.ask(saved).outputs_state is OutputsState.READY
