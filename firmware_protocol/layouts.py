"""Every payload layout by name, in the order of the document and of the C header.

The fields of a message stand in its class (``messages``, ``config``, ``stream_messages``), those of the error reply and
of the image header beside the classes that show them; here are the parts that are no class.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from firmware_protocol.codec import Message
from firmware_protocol.config import (
    ERROR_LAYOUT,
    ConfigApplyRequest,
    ConfigGlobalReply,
    ConfigGlobalRequest,
    ConfigLimitsReply,
    ConfigLimitsRequest,
    ConfigReadGlobalRequest,
    ConfigReadLimitsRequest,
    ConfigReply,
)
from firmware_protocol.fields import Layout, PayloadField
from firmware_protocol.image_codec import IMAGE_LAYOUT
from firmware_protocol.messages import (
    CommitReply,
    CommitRequest,
    EstopReply,
    EstopRequest,
    FaultClearReply,
    FaultClearRequest,
    FaultListReply,
    FaultListRequest,
    FaultRecord,
    GetStatsReply,
    GetStatsRequest,
    HelloReply,
    HelloRequest,
    PingReply,
    PingRequest,
    ReadAdcReply,
    ReadAdcRequest,
    ReadbackReply,
    ReadbackRequest,
    SetReply,
    SetRequest,
    StageReply,
    StageRequest,
    StageSparseRequest,
)
from firmware_protocol.stream_messages import (
    SubscribeReply,
    SubscribeRequest,
    SweepAbortReply,
    SweepAbortRequest,
    SweepAckReply,
    SweepAckRequest,
    SweepDataEvent,
    SweepDoneEvent,
    SweepLoadReply,
    SweepLoadRequest,
    SweepReadReply,
    SweepReadRequest,
    SweepStartReply,
    SweepStartRequest,
    TelemetryEvent,
)

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
)
"""Parts of messages that are no message: the frame header and two records."""


def _layouts(code: str, *messages: type[Message]) -> Iterator[Layout]:
    """Yield the layouts of messages that belong to one command or event."""
    for message in messages:
        yield replace(message.layout, code=code)


_ALL = (
    *_RECORDS,
    ERROR_LAYOUT,
    *_layouts("HELLO", HelloRequest, HelloReply),
    *_layouts("PING", PingRequest, PingReply),
    *_layouts("ESTOP", EstopRequest, EstopReply),
    *_layouts("GET_STATS", GetStatsRequest, GetStatsReply),
    *_layouts(
        "CONFIG",
        ConfigGlobalRequest,
        ConfigLimitsRequest,
        ConfigApplyRequest,
        ConfigReadGlobalRequest,
        ConfigGlobalReply,
        ConfigReadLimitsRequest,
        ConfigLimitsReply,
        ConfigReply,
    ),
    *_layouts("STAGE", StageRequest),
    *_layouts("STAGE_SPARSE", StageSparseRequest),
    *_layouts("STAGE", StageReply),
    *_layouts("COMMIT", CommitRequest, CommitReply),
    *_layouts("SET", SetRequest, SetReply),
    *_layouts("READBACK", ReadbackRequest, ReadbackReply),
    *_layouts("READ_ADC", ReadAdcRequest, ReadAdcReply),
    *_layouts("FAULT_LIST", FaultListRequest, FaultListReply),
    *_layouts("FAULT_CLEAR", FaultClearRequest, FaultClearReply),
    *_layouts("FAULT", FaultRecord),
    *_layouts("SUBSCRIBE", SubscribeRequest, SubscribeReply),
    *_layouts("TELEMETRY", TelemetryEvent),
    IMAGE_LAYOUT,
    *_layouts("SWEEP_LOAD", SweepLoadRequest, SweepLoadReply),
    *_layouts("SWEEP_START", SweepStartRequest, SweepStartReply),
    *_layouts("SWEEP_DATA", SweepDataEvent),
    *_layouts("SWEEP_READ", SweepReadRequest, SweepReadReply),
    *_layouts("SWEEP_ACK", SweepAckRequest, SweepAckReply),
    *_layouts("SWEEP_ABORT", SweepAbortRequest, SweepAbortReply),
    *_layouts("SWEEP_DONE", SweepDoneEvent),
)

LAYOUTS: dict[str, Layout] = {layout.name: layout for layout in _ALL}
"""Every layout by name: that of its message class, or of a part several messages share (empty ``code``)."""
