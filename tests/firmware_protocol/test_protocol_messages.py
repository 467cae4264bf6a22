"""Messages: decode(encode(x)) = x, tails ignored, too short is an error that names the field (section 5)."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import firmware_protocol as fp
from firmware_protocol.layouts import LAYOUTS

u8, u16, u32 = (st.integers(0, (1 << bits) - 1) for bits in (8, 16, 32))
i32 = st.integers(-(1 << 31), (1 << 31) - 1)
state = st.sampled_from(fp.OutputsState)
codes = st.lists(u16, max_size=40)
fault = st.builds(
    fp.FaultRecord,
    fault_id=u32,
    tick=u32,
    source=st.integers(0, 31),
    fault_state=st.sampled_from(fp.FaultState),
    channel=st.none() | st.integers(0, 0xFFFE),
    value=i32,
    limit=i32,
)
limits = st.lists(st.tuples(u16, u16, u32), min_size=1, max_size=10)
global_fields = {
    "wd_policy": u8,
    "wd_timeout_ms": u16,
    "wd_param_ms": u32,
    "total_power_mw": u32,
    "fault_enable": u32,
    "temp_trip": st.none() | st.integers(-32768, 32766),
    "supply_min_mv": st.none() | st.integers(1, 0xFFFF),
}
messages = st.one_of(
    st.builds(fp.HelloRequest, proto_min=u8, proto_max=u8, hello_flags=u8, host_rx_max=u16, name=st.just("bench-µ")),
    st.builds(fp.PingRequest, token=u32),
    st.builds(fp.PingReply, token=u32, tick=u32, uptime_ms=u32, outputs_state=state, session=u16),
    st.builds(
        fp.GetStatsReply, uptime_ms=u32, tick=u32, session=u16, outputs_state=state, counters=st.lists(u32, max_size=30)
    ),
    st.builds(fp.StageRequest, bank_generation=u32, bank=u8, start=u16, codes=codes),
    st.builds(
        fp.StageSparseRequest,
        bank_generation=u32,
        bank=u8,
        base=u8,
        pairs=st.lists(st.tuples(u16, u16), min_size=1, max_size=9),
    ),
    st.builds(fp.SetRequest, generation=u32, codes=codes),
    st.builds(fp.SetReply, generation=u32, tick=u32, crc32=u32, latched=st.booleans(), outputs_state=state),
    st.builds(
        fp.ReadbackReply,
        generation=u32,
        crc32=u32,
        tick=u32,
        outputs_state=state,
        bank=u8,
        staged=u16,
        start=u16,
        codes=codes,
    ),
    st.builds(fp.ReadAdcReply, tick=u32, generation=u32, start=u16, adc=codes),
    st.builds(fp.ConfigGlobalRequest, **global_fields),
    st.builds(fp.ConfigGlobalReply, **global_fields),
    st.builds(fp.ConfigLimitsRequest, start=u16, limits=limits),
    st.builds(fp.ConfigLimitsReply, start=u16, limits=limits),
    fault,
    st.builds(
        fp.FaultListReply,
        latched=u32,
        newest_id=u32,
        outputs_state=state,
        records=st.lists(fault, max_size=5).map(tuple),
    ),
)


@given(messages, st.binary(max_size=9))
def test_what_is_encoded_is_decoded_and_a_longer_tail_is_ignored(message: fp.Message, tail: bytes) -> None:
    assert type(message).decode(message.encode() + tail) == message


@given(messages, st.data())
def test_a_payload_cut_anywhere_is_an_error_that_says_how_much_is_needed(m: fp.Message, data: st.DataObject) -> None:
    payload = m.encode()
    length = data.draw(st.one_of(st.just(len(payload) - 1), st.integers(0, len(payload) - 1)))
    with pytest.raises(fp.PayloadError) as caught:
        type(m).decode(payload[:length])
    assert caught.value.length == length
    assert length < caught.value.minimum <= len(payload)


@given(u8, st.none() | st.integers(0, 0xFFFE), i32, st.integers(0, 0xFFFFFFFF), st.text(max_size=60))
def test_a_refusal_survives_and_u32_values_travel_as_bit_patterns(
    status: int, channel: int | None, value: int, limit: int, text: str
) -> None:
    payload = fp.Refusal(status, channel, None, value, limit, text).encode()
    refusal = fp.Refusal.decode(status, payload + b"future")
    assert (refusal.status, refusal.channel, refusal.index, refusal.value) == (status, channel, None, value)
    assert refusal.limit_u32 == limit
    assert len(refusal.text) <= 32
    for length in range(13):
        with pytest.raises(fp.PayloadError):
            fp.Refusal.decode(status, payload[:length])


@pytest.mark.parametrize("command", fp.Command)
def test_a_request_shorter_than_the_minimum_of_the_command_table_is_too_short(command: fp.Command) -> None:
    if command.name.startswith("SWEEP") or command is fp.Command.SUBSCRIBE:
        with pytest.raises(fp.UnknownCommandError):
            fp.decode_request(command, bytes(64))
        return
    assert fp.decode_request(command, bytes(64)) is not None
    for length in range(command.min_request):
        with pytest.raises(fp.PayloadError):
            fp.decode_request(command, bytes(length))


def test_a_configuration_operation_nobody_knows_is_a_field_error_at_offset_0() -> None:
    with pytest.raises(fp.FieldError) as caught:
        fp.decode_request(fp.Command.CONFIG, b"\x05" + bytes(30))
    assert (caught.value.offset, caught.value.value) == (0, 5)


def test_the_error_of_a_short_payload_names_the_field_and_its_offset() -> None:
    with pytest.raises(fp.PayloadError, match="`at_tick` at offset 12") as caught:
        fp.CommitRequest.decode(bytes(13))
    assert (caught.value.offset, caught.value.length, caught.value.minimum) == (12, 13, 20)


def test_a_count_that_promises_more_than_came_is_an_error_of_the_array() -> None:
    payload = bytearray(fp.SetRequest(1, np.zeros(4, np.uint16)).encode())
    payload[6] = 5
    with pytest.raises(fp.PayloadError, match="codes") as caught:
        fp.SetRequest.decode(bytes(payload))
    assert (caught.value.offset, caught.value.minimum) == (8, 18)


def test_fault_records_are_read_by_the_stride_the_board_gives() -> None:
    record = fp.FaultRecord(5, 1, fp.FaultSource.WATCHDOG, fp.FaultState.LATCHED)
    grown = bytes.fromhex("00020000 05000000 02 04 1800") + (record.encode() + b"newr") * 2
    assert fp.FaultListReply.decode(grown).records == (record, record)


def test_fault_records_shorter_than_version_1_are_an_error() -> None:
    with pytest.raises(fp.PayloadError, match="record_size"):
        fp.FaultListReply.decode(bytes.fromhex("00020000 05000000 01 04 1300") + bytes(40))


@pytest.mark.parametrize(
    ("name", "values"),
    [("codes", [0, 65536]), ("codes", [-1]), ("codes", [0.5]), ("codes", [[1, 2]])],
)
def test_codes_that_do_not_fit_16_bits_cannot_be_made(name: str, values: list[object]) -> None:
    with pytest.raises(fp.FieldError, match=name):
        fp.SetRequest(1, values)  # type: ignore[arg-type]


def test_a_limit_record_that_does_not_fit_cannot_be_made() -> None:
    with pytest.raises(fp.FieldError, match="limits"):
        fp.ConfigLimitsRequest(0, [(65536, 1, 0)])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (fp.PingRequest(1 << 32), "token"),
        (fp.HelloRequest(name="seventeen letters"), "name"),
        (fp.CommitRequest(1, 2, 3, 256, 4), "bank"),
        (fp.ConfigApplyRequest(count=None, config_crc32=1), "count"),  # type: ignore[arg-type]
    ],
)
def test_a_value_its_field_cannot_hold_is_refused_by_name(message: fp.Message, field: str) -> None:
    with pytest.raises(fp.FieldError, match=f"`{field}`"):
        message.encode()


def test_an_unknown_output_state_in_a_reply_is_a_field_error() -> None:
    payload = bytearray(fp.FaultClearReply(0, 0, fp.OutputsState.SAFE).encode())
    payload[8] = 9
    with pytest.raises(fp.FieldError, match="OutputsState"):
        fp.FaultClearReply.decode(bytes(payload))


def test_arrays_of_a_message_cannot_be_changed_nor_follow_their_source() -> None:
    source = np.array([1, 2, 3], dtype="<u2")
    request = fp.SetRequest(1, source)
    source[0] = 9
    assert request.codes[0] == 1
    with pytest.raises(ValueError, match="read-only"):
        request.codes[0] = 9


def test_a_saturated_monitor_is_marked_and_not_a_number() -> None:
    reply = fp.ReadAdcReply(0, 0, 0, np.array([0xFFFE, 0xFFFF], np.uint16))
    assert reply.saturated.tolist() == [False, True]


@pytest.mark.parametrize(
    ("request_", "found"),
    [
        (fp.ConfigGlobalRequest(0, 2000, 0, 400), None),
        (fp.ConfigGlobalRequest(3, 2000, 0, 400), (1, 3)),
        (fp.ConfigGlobalRequest(0, 99, 0, 400), (2, 99)),
        (fp.ConfigGlobalRequest(0, 60001, 0, 400), (2, 60001)),
        (fp.ConfigGlobalRequest(0, 2000, 1, 400), (4, 1)),
        (fp.ConfigGlobalRequest(1, 2000, 0, 400), (4, 0)),
        (fp.ConfigGlobalRequest(1, 2000, 60000, 400), None),
        (fp.ConfigGlobalRequest(2, 2000, 3_600_001, 400), (4, 3_600_001)),
        (fp.ConfigGlobalRequest(0, 2000, 0, 0), (8, 0)),
        (fp.ConfigGlobalRequest(0, 2000, 0, 4_000_001), (8, 4_000_001)),
        (fp.ConfigGlobalRequest(0, 2000, 0, 400, temp_trip=15001), (16, 15001)),
        (fp.ConfigGlobalRequest(0, 2000, 0, 400, temp_trip=-4001), (16, -4001)),
        (fp.ConfigApplyRequest(4, 0), (4, 0)),
        (fp.ReadAdcRequest(0, 4, 0), (4, 0)),
        (fp.ReadAdcRequest(0, 4, 4096), None),
        (fp.ReadAdcRequest(0, 4, 4097), (4, 4097)),
        (fp.CommitRequest(1, 1, 1, 0, 4, when=3), (17, 3)),
        (fp.StageSparseRequest(1, 0, 2, np.zeros(1, fp.PAIR_DTYPE)), (5, 2)),
        (fp.HelloRequest(host_rx_max=255), (4, 255)),
        (fp.HelloRequest(proto_min=0), (0, 0)),
    ],
)
def test_the_first_field_outside_its_range_is_named_by_offset(
    request_: fp.AnyRequest, found: tuple[int, int] | None
) -> None:
    assert request_.out_of_range() == found


def test_classes_have_exactly_the_fields_of_their_layouts() -> None:
    for name, layout in LAYOUTS.items():
        if name == "ErrorReply":
            continue
        counts = set(layout.array.counts) if layout.array else set()
        derived = counts | ({"record_size"} if name == "FaultListReply" else set())
        wire = {field.name for field in layout.fields if field.name and field.const is None} - derived
        assert {field.name for field in dataclasses.fields(getattr(fp, name))} == wire, name


def test_reads_are_known_so_that_a_board_stores_no_reply_for_them() -> None:
    reads = {request.__name__ for request in fp.AnyRequest.__args__ if _reads(request)}
    assert reads == {
        "HelloRequest",
        "PingRequest",
        "GetStatsRequest",
        "ReadbackRequest",
        "ReadAdcRequest",
        "FaultListRequest",
        "ConfigReadGlobalRequest",
        "ConfigReadLimitsRequest",
    }


def _reads(kind: type[fp.AnyRequest]) -> bool:
    return fp.is_read(kind.decode(bytes(64)))
