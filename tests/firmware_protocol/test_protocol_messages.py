"""Messages: decode(encode(x)) = x, tails ignored, too short is an error that names the field (section 5)."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, strategies as st

import firmware_protocol as fp
from firmware_protocol.layouts import LAYOUTS

u8, u16, u32 = (st.integers(0, (1 << bits) - 1) for bits in (8, 16, 32))
i32 = st.integers(-(1 << 31), (1 << 31) - 1)
state = st.sampled_from(fp.OutputsState)
reason = st.sampled_from(fp.EndReason)
codes = st.lists(u16, max_size=40)
records = st.tuples(st.integers(0, 5), st.integers(0, 7), u16).map(
    lambda shape: np.full(shape[:2], shape[2], dtype=np.uint16)
)
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
    st.builds(
        fp.SubscribeRequest,
        stream=u8,
        credit_limit=u32,
        period_ticks=u32,
        n_avg=u16,
        mask=st.binary(max_size=20),
        sub_flags=u8,
    ),
    st.builds(fp.SubscribeReply, stream=u8, count=u16, next_event=u32, dropped=u32),
    st.builds(
        fp.TelemetryEvent,
        tick=u32,
        dropped=u32,
        generation=u32,
        chip_temp=st.none() | st.integers(-32767, 32767),
        adc=codes,
    ),
    st.builds(fp.SweepLoadRequest, sweep_id=u32, total=u32, offset=u32, image_crc32=u32, data=st.binary(max_size=80)),
    st.builds(fp.SweepLoadReply, sweep_id=u32, received=u32),
    st.builds(
        fp.SweepStartRequest,
        generation=u32,
        sweep_id=u32,
        base_crc32=u32,
        credit_limit=u32,
        repeat=u16,
        run_flags=u16,
    ),
    st.builds(fp.SweepStartReply, generation=u32, tick=u32, records=u32, n_adc=u16, outputs_state=state),
    st.builds(fp.SweepDataEvent, generation=u32, first=u32, tick=u32, values=records),
    st.builds(fp.SweepReadRequest, generation=u32, first=u32, count=u16),
    st.builds(
        fp.SweepReadReply,
        generation=u32,
        first=u32,
        produced=u32,
        oldest=u32,
        dropped=u32,
        run_state=st.sampled_from(fp.RunState),
        reason=st.none() | reason,
        values=records,
    ),
    st.builds(fp.SweepAckRequest, generation=u32, up_to=u32, credit_limit=u32),
    st.builds(fp.SweepAckReply, generation=u32, produced=u32, oldest=u32),
    st.builds(fp.SweepAbortRequest, generation=u32),
    st.builds(fp.SweepAbortReply, generation=u32, records=u32, tick=u32, outputs_state=state, reason=reason),
    st.builds(
        fp.SweepDoneEvent,
        generation=u32,
        records=u32,
        dropped=u32,
        tick=u32,
        crc32=u32,
        late=u16,
        reason=reason,
        outputs_state=state,
    ),
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
        (fp.ReadbackRequest(rb_flags=0, count=0), None),  # 8.5: without CODES start and count are ignored
        (fp.ReadbackRequest(count=0), (4, 0)),
        (fp.ReadbackRequest(count=1), None),
        (fp.StageRequest(1, 0, 0, np.empty(0, np.uint16)), (8, 0)),
        (fp.StageSparseRequest(1, 0, 0, np.empty(0, fp.PAIR_DTYPE)), (6, 0)),
        (fp.SubscribeRequest(2, 8, 100), None),
        (fp.SubscribeRequest(1, 8, 100), (0, 1)),
        (fp.SubscribeRequest(2, 8, 100, n_avg=4097), (2, 4097)),
        (fp.SubscribeRequest(2, 8, 100, mask=bytes(8193)), (12, 8193)),
        (fp.SubscribeRequest(2, 8, n_avg=0, sub_flags=fp.SubscribeFlag.RENEW), None),
        (fp.SubscribeRequest(1, 8, n_avg=0, sub_flags=fp.SubscribeFlag.RENEW), (0, 1)),
        (fp.SweepLoadRequest(0, 4, 0, 1, b"1234"), (0, 0)),
        (fp.SweepLoadRequest(1, 0, 0, 1, b"1"), (4, 0)),
        (fp.SweepLoadRequest(1, 4, 4, 1, b"1"), (8, 4)),
        (fp.SweepLoadRequest(1, 4, 0, 1, b""), (16, 0)),
        (fp.SweepLoadRequest(1, 4, 1, 1, b"1234"), (16, 4)),
        (fp.SweepLoadRequest(1, 4, 1, 1, b"123"), None),
        (fp.SweepStartRequest(1, 1, 0, 0, repeat=0), (16, 0)),
        (fp.SweepStartRequest(1, 1, 0, 0, repeat=65535), None),
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
        if not layout.code:
            continue  # a part that several messages share
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
        "SweepReadRequest",
        "FaultListRequest",
        "ConfigReadGlobalRequest",
        "ConfigReadLimitsRequest",
    }


def _reads(kind: type[fp.AnyRequest]) -> bool:
    return fp.is_read(kind.decode(bytes(64)))


def test_no_reply_is_honoured_for_marked_commands_and_of_subscribe_for_a_renewal() -> None:
    silent = {kind.__name__ for kind in fp.AnyRequest.__args__ if fp.accepts_no_reply(kind.decode(bytes(64)))}
    assert silent == {"PingRequest", "StageRequest", "StageSparseRequest", "SweepAckRequest"}
    assert fp.accepts_no_reply(fp.SubscribeRequest(2, 8, sub_flags=fp.SubscribeFlag.RENEW))


@given(u8, st.binary(max_size=80))
def test_arbitrary_payloads_give_a_message_or_an_error_of_the_protocol(code: int, payload: bytes) -> None:
    for decode in (fp.decode_request, fp.decode_event):
        try:
            message: fp.Message | None = decode(code, payload)
        except fp.ProtocolError:
            message = None
        wrong = None if message is None else message.out_of_range()
        assert wrong is None or 0 <= wrong[0] < len(payload)


def test_an_event_nobody_knows_is_an_error_that_names_its_code() -> None:
    with pytest.raises(fp.UnknownCommandError, match="0x85"):
        fp.decode_event(0x85, bytes(40))


def test_records_keep_their_width_even_when_there_are_none() -> None:
    payload = bytes.fromhex("2e000000 00000000 04000000 00000000 00000000 0000 0300 01 ff 0000")
    reply = fp.SweepReadReply.decode(payload)
    assert (reply.values.shape, reply.reason, reply.run_state) == ((0, 3), None, fp.RunState.RUNNING)
    assert reply.encode() == payload


def test_saturated_values_of_streams_and_sweeps_are_marked() -> None:
    event = fp.TelemetryEvent(0, 0, 0, None, np.array([1, 0xFFFF], np.uint16))
    data = fp.SweepDataEvent(1, 0, 0, np.array([[0xFFFF, 0], [1, 2]], np.uint16))
    reply = fp.SweepReadReply(1, 0, 2, 0, 0, fp.RunState.ENDED, fp.EndReason.COMPLETE, data.values)
    assert event.saturated.tolist() == [False, True]
    assert data.saturated.tolist() == reply.saturated.tolist() == [[True, False], [False, False]]


def test_an_unknown_reason_of_the_end_is_a_field_error() -> None:
    with pytest.raises(fp.FieldError, match="EndReason"):
        fp.SweepAbortReply.decode(bytes(13) + b"\x09\0\0")
