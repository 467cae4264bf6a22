"""The schema: layouts without holes, codes as in the specification, one canonical text."""

from __future__ import annotations

import json
import zlib

import pytest

import firmware_protocol as fp
from firmware_protocol.fields import Layout, PayloadField
from firmware_protocol.layouts import LAYOUTS

REPLY_SIZES = {  # fixed part of the reply payloads, command table of section 5
    "HelloReply": 104,
    "PingReply": 16,
    "EstopReply": 12,
    "GetStatsReply": 16,
    "ConfigReply": 8,
    "ConfigGlobalReply": 20,
    "ConfigLimitsReply": 8,
    "StageReply": 8,
    "CommitReply": 16,
    "SetReply": 16,
    "ReadbackReply": 20,
    "ReadAdcReply": 12,
    "SubscribeReply": 12,
    "TelemetryEvent": 16,
    "SweepLoadReply": 8,
    "SweepStartReply": 16,
    "SweepDataEvent": 16,
    "SweepReadReply": 28,
    "SweepAckReply": 12,
    "SweepAbortReply": 16,
    "SweepDoneEvent": 24,
    "SweepImageHeader": 20,
    "FrameHeader": 8,
    "LimitRecord": 8,
    "PairRecord": 4,
    "FaultListReply": 12,
    "FaultClearReply": 12,
    "FaultRecord": 20,
    "ErrorReply": 13,
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=lambda layout: layout.name)
def test_a_layout_has_no_holes_and_its_array_comes_last(layout: Layout) -> None:
    offset = 0
    for field in layout.fields:
        assert field.offset == offset, f"{layout.name}.{field.name}"
        offset += field.size
    assert not any(field.is_array for field in layout.fields[:-1])


@pytest.mark.parametrize(("name", "size"), REPLY_SIZES.items())
def test_reply_payloads_have_the_sizes_of_the_command_table(name: str, size: int) -> None:
    assert LAYOUTS[name].fixed_size == size


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=lambda layout: layout.name)
def test_request_payloads_have_the_minimum_of_the_command_table(layout: Layout) -> None:
    if layout.name.endswith("Request") and layout.code != "CONFIG":
        assert layout.fixed_size == fp.Command[layout.code].min_request


def test_codes_and_marks_are_those_of_the_command_table() -> None:
    table = {
        0x00: ("HELLO", "R"),
        0x01: ("PING", "PNR"),
        0x02: ("ESTOP", ""),
        0x03: ("GET_STATS", "PR"),
        0x10: ("CONFIG", ""),
        0x11: ("STAGE", "PN"),
        0x12: ("STAGE_SPARSE", "PN"),
        0x13: ("COMMIT", "P"),
        0x14: ("SET", "P"),
        0x15: ("READBACK", "PR"),
        0x20: ("READ_ADC", "PR"),
        0x21: ("SUBSCRIBE", "P"),
        0x22: ("WATCH", "P"),
        0x30: ("SWEEP_LOAD", "P"),
        0x31: ("SWEEP_START", ""),
        0x32: ("SWEEP_READ", "PR"),
        0x33: ("SWEEP_ACK", "PN"),
        0x34: ("SWEEP_ABORT", ""),
        0x40: ("FAULT_LIST", "PR"),
        0x41: ("FAULT_CLEAR", ""),
    }
    assert {int(command): (command.name, command.marks) for command in fp.Command} == table
    assert fp.Command.PING.pipelined
    assert fp.Command.STAGE.accepts_no_reply
    assert not fp.Command.SET.accepts_no_reply


def test_bits_and_states_of_sweeps_are_those_of_the_specification() -> None:
    reasons = ["COMPLETE", "ABORTED", "FAULT", "WATCHDOG", "HOST_CHANGED", "ESTOP"]
    assert [reason.name for reason in fp.EndReason] == reasons
    assert [state.name for state in fp.RunState] == ["NONE", "RUNNING", "PAUSED", "ENDED"]
    assert (fp.RunFlag.OVERWRITE, fp.RunFlag.NO_BASE_CHECK, fp.ImageFlag.START_TABLE) == (1, 2, 1)
    assert (fp.SubscribeFlag.RENEW, fp.EndAction.KEEP, fp.SweepTrigger.EXTERNAL) == (1, 1, 1)
    assert {event.name: int(event) for event in fp.Event} == {
        "TELEMETRY": 0x80,
        "SWEEP_DATA": 0x81,
        "SWEEP_DONE": 0x82,
        "FAULT": 0x83,
        "LIGHT": 0x84,
    }


def test_records_of_arrays_have_the_size_of_their_layouts() -> None:
    assert fp.LIMIT_DTYPE.itemsize == LAYOUTS["LimitRecord"].fixed_size
    assert fp.PAIR_DTYPE.itemsize == LAYOUTS["PairRecord"].fixed_size
    assert fp.LIMIT_DTYPE.names == tuple(field.name for field in LAYOUTS["LimitRecord"].fields)
    assert fp.PAIR_DTYPE.names == tuple(field.name for field in LAYOUTS["PairRecord"].fields)
    assert fp.WATCH_DTYPE.itemsize == LAYOUTS["WatchRecord"].fixed_size
    assert fp.WATCH_DTYPE.names == tuple(field.name for field in LAYOUTS["WatchRecord"].fields)


def test_status_codes_count_without_holes_from_ok_to_unknown_fault() -> None:
    assert [int(status) for status in fp.Status] == list(range(26))
    assert (fp.Status.LIMIT, fp.Status.SAFE, fp.Status.SESSION, fp.Status.CRC_MISMATCH) == (6, 8, 12, 24)
    assert (fp.Status.LIMIT.value_means, fp.Status.LIMIT.limit_means) == ("asked", "allowed")


def test_reserved_and_vendor_numbers_have_names_for_messages() -> None:
    assert fp.status_name(6) == "LIMIT"
    assert fp.status_name(200) == "STATUS_200"
    assert fp.fault_source_name(9) == "WATCHDOG"
    assert fp.fault_source_name(13) == "RESERVED_13"
    assert fp.fault_source_name(31) == "VENDOR_31"


def test_fault_sources_name_their_unit_feature_and_bit() -> None:
    assert fp.FaultSource.OVER_TEMPERATURE.feature is fp.Feature.CHIP_TEMPERATURE
    assert fp.FaultSource.WATCHDOG.feature is None
    assert fp.FaultSource.WATCHDOG.mask == 0x200
    assert fp.FaultSource.TOTAL_POWER.unit == "mW"


def test_the_worked_feature_word_means_sweep_and_chip_temperature() -> None:
    assert [feature for feature in fp.Feature if fp.has_feature(0x404, feature)] == [
        fp.Feature.SWEEP,
        fp.Feature.CHIP_TEMPERATURE,
    ]


def test_counters_are_in_the_order_of_the_specification() -> None:
    names = "RX_FRAMES RX_BYTES TX_FRAMES TX_BYTES BAD_COBS BAD_SHORT BAD_CRC BAD_OVERSIZE BAD_KIND BAD_VERSION"
    names += " BAD_SESSION STALE REPLAYED SEQ_GAPS UNKNOWN_COMMAND NO_REPLY_ERRORS UART_ERRORS EVENTS_SENT"
    names += " EVENTS_DROPPED LATCHES REFUSED WD_TRIPS FAULTS TICK_OVERRUNS"
    assert [counter.name for counter in fp.StatsCounter] == names.split()
    assert list(fp.StatsCounter) == list(range(24))
    reply = fp.GetStatsReply(0, 0, 1, fp.OutputsState.READY, range(24))  # type: ignore[arg-type]
    assert reply.counter(fp.StatsCounter.WD_TRIPS) == 21


def test_the_schema_text_is_canonical_json_and_its_crc_is_what_hello_carries() -> None:
    text = fp.schema_text()
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert fp.schema_crc32() == zlib.crc32(text.encode())
    assert fp.schema_document()["layouts"]["SetRequest"]["fields"][-1]["type"] == "u16[count]"


@pytest.mark.parametrize(
    ("range_", "none", "inside", "outside"),
    [
        ("1..15", None, (1, 15), (0, 16)),
        ("24..", None, (24, 1 << 30), (23,)),
        ("-4000..15000", 32767, (-4000, 15000, 32767), (-4001, 15001)),
        ("0,1,2", None, (0, 2), (3,)),
        ("n_dac", None, (0, 65535), ()),
        ("0..n_dac-1", None, (0, 65535), (-1,)),
        ("", None, (0, 65535), ()),
    ],
)
def test_a_range_decides_what_it_can(
    range_: str, none: int | None, inside: tuple[int, ...], outside: tuple[int, ...]
) -> None:
    field = PayloadField(0, "u16", "x", range=range_, none=none)
    assert all(field.allows(value) for value in inside)
    assert not any(field.allows(value) for value in outside)


def test_a_layout_knows_the_offset_of_a_field_and_refuses_unknown_names() -> None:
    assert LAYOUTS["CommitRequest"].offset_of("when") == 17
    with pytest.raises(KeyError):
        LAYOUTS["CommitRequest"].offset_of("where")
