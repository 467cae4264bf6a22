"""All payload layouts by name, in the order of the document."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from firmware_protocol import config, messages, stream_messages
from firmware_protocol.codec import Message
from firmware_protocol.fields import Layout, PayloadField
from firmware_protocol.image_codec import IMAGE_LAYOUT

_RECORDS = (
    Layout(
        "FrameHeader",
        "",
        (
            PayloadField(0, "u8", "kind_version", "", "", "low nibble 0 REQ, 1 RSP, 2 EVT; high nibble protocol major"),
            PayloadField(1, "u8", "flags", "bits", "", "b0 MORE, b1 RETRY, b2 NO_REPLY, b7 FAULT_PENDING"),
            PayloadField(2, "u8", "command", "", "", "command; in an EVT the event code"),
            PayloadField(3, "u8", "status", "", "", "REQ 0; RSP status code; EVT stream id"),
            PayloadField(
                4, "u16", "seq", "", "", "REQ host counter; RSP echo; EVT low 16 bits of the stream's event number"
            ),
            PayloadField(6, "u16", "session", "", "", "REQ chosen by the host; RSP echo; EVT current session"),
        ),
    ),
    Layout(
        "LimitRecord",
        "",
        (
            PayloadField(0, "u16", "code_max", "code", "", "largest code accepted on the channel"),
            PayloadField(2, "u16", "load_ohm", "Ω", "", "heater resistance; 0 = not fitted, then code_max is 0"),
            PayloadField(4, "u32", "trip_ua", "µA", "", "measured over-current trip; 0 = none"),
        ),
    ),
    Layout(
        "PairRecord",
        "",
        (
            PayloadField(0, "u16", "channel", "channel", "0..n_dac-1", "drive channel"),
            PayloadField(2, "u16", "code", "code", "0..code_max", "its new code"),
        ),
    ),
    Layout(
        "WatchRecord",
        "",
        (
            PayloadField(0, "u16", "channel", "channel", "0..n_adc-1", "monitor channel"),
            PayloadField(2, "u16", "dark_below", "code", "", "dark below this code; 0 = watch it no longer"),
            PayloadField(4, "u16", "light_from", "code", "dark_below..65535", "light again from this code on"),
            PayloadField(6, "u16", "hold_ticks", "ticks", "", "time a reading has to stay before it counts"),
        ),
    ),
)
"""Layouts of the frame header and of records."""


def _layouts(code: str, *messages: type[Message]) -> Iterator[Layout]:
    for message in messages:
        yield replace(message.layout, code=code)


_ALL = (
    *_RECORDS,
    config.ERROR_LAYOUT,
    *_layouts("HELLO", messages.HelloRequest, messages.HelloReply),
    *_layouts("PING", messages.PingRequest, messages.PingReply),
    *_layouts("ESTOP", messages.EstopRequest, messages.EstopReply),
    *_layouts("GET_STATS", messages.GetStatsRequest, messages.GetStatsReply),
    *_layouts(
        "CONFIG",
        config.ConfigGlobalRequest,
        config.ConfigLimitsRequest,
        config.ConfigApplyRequest,
        config.ConfigReadGlobalRequest,
        config.ConfigGlobalReply,
        config.ConfigReadLimitsRequest,
        config.ConfigLimitsReply,
        config.ConfigReply,
    ),
    *_layouts("STAGE", messages.StageRequest),
    *_layouts("STAGE_SPARSE", messages.StageSparseRequest),
    *_layouts("STAGE", messages.StageReply),
    *_layouts("COMMIT", messages.CommitRequest, messages.CommitReply),
    *_layouts("SET", messages.SetRequest, messages.SetReply),
    *_layouts("READBACK", messages.ReadbackRequest, messages.ReadbackReply),
    *_layouts("READ_ADC", messages.ReadAdcRequest, messages.ReadAdcReply),
    *_layouts("FAULT_LIST", messages.FaultListRequest, messages.FaultListReply),
    *_layouts("FAULT_CLEAR", messages.FaultClearRequest, messages.FaultClearReply),
    *_layouts("FAULT", messages.FaultRecord),
    *_layouts("SUBSCRIBE", stream_messages.SubscribeRequest, stream_messages.SubscribeReply),
    *_layouts("TELEMETRY", stream_messages.TelemetryEvent),
    *_layouts("WATCH", stream_messages.WatchRequest, stream_messages.WatchReply),
    *_layouts("LIGHT", stream_messages.LightEvent),
    IMAGE_LAYOUT,
    *_layouts("SWEEP_LOAD", stream_messages.SweepLoadRequest, stream_messages.SweepLoadReply),
    *_layouts("SWEEP_START", stream_messages.SweepStartRequest, stream_messages.SweepStartReply),
    *_layouts("SWEEP_DATA", stream_messages.SweepDataEvent),
    *_layouts("SWEEP_READ", stream_messages.SweepReadRequest, stream_messages.SweepReadReply),
    *_layouts("SWEEP_ACK", stream_messages.SweepAckRequest, stream_messages.SweepAckReply),
    *_layouts("SWEEP_ABORT", stream_messages.SweepAbortRequest, stream_messages.SweepAbortReply),
    *_layouts("SWEEP_DONE", stream_messages.SweepDoneEvent),
)

LAYOUTS: dict[str, Layout] = {layout.name: layout for layout in _ALL}
"""All payload layouts by name."""
