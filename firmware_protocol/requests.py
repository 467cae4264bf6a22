"""Finds message classes: for a board the request of a command byte, for a host the event of an event code."""

from __future__ import annotations

from typing import Any

from firmware_protocol.codes import Command
from firmware_protocol.config import (
    ConfigApplyRequest,
    ConfigGlobalRequest,
    ConfigLimitsRequest,
    ConfigReadGlobalRequest,
    ConfigReadLimitsRequest,
)
from firmware_protocol.errors import FieldError, PayloadError, UnknownCommandError
from firmware_protocol.messages import (
    CommitRequest,
    EstopRequest,
    FaultClearRequest,
    FaultListRequest,
    FaultRecord,
    GetStatsRequest,
    HelloRequest,
    PingRequest,
    ReadAdcRequest,
    ReadbackRequest,
    Request,
    SetRequest,
    StageRequest,
    StageSparseRequest,
)
from firmware_protocol.stream_codes import SubscribeFlag
from firmware_protocol.stream_messages import (
    LightEvent,
    SubscribeRequest,
    SweepAbortRequest,
    SweepAckRequest,
    SweepDataEvent,
    SweepDoneEvent,
    SweepLoadRequest,
    SweepReadRequest,
    SweepStartRequest,
    TelemetryEvent,
    WatchRequest,
)

AnyRequest = (
    HelloRequest
    | PingRequest
    | EstopRequest
    | GetStatsRequest
    | StageRequest
    | StageSparseRequest
    | CommitRequest
    | SetRequest
    | ReadbackRequest
    | ReadAdcRequest
    | SubscribeRequest
    | WatchRequest
    | SweepLoadRequest
    | SweepStartRequest
    | SweepReadRequest
    | SweepAckRequest
    | SweepAbortRequest
    | FaultListRequest
    | FaultClearRequest
    | ConfigGlobalRequest
    | ConfigLimitsRequest
    | ConfigApplyRequest
    | ConfigReadGlobalRequest
    | ConfigReadLimitsRequest
)
"""Every request of version 1."""

AnyEvent = TelemetryEvent | LightEvent | SweepDataEvent | SweepDoneEvent | FaultRecord
"""Every event of version 1."""

_CONFIG_OPS: dict[int, Any] = {
    kind.op: kind
    for kind in (
        ConfigGlobalRequest,
        ConfigLimitsRequest,
        ConfigApplyRequest,
        ConfigReadGlobalRequest,
        ConfigReadLimitsRequest,
    )
}
_REQUESTS: dict[int, Any] = {
    kind.command: kind for kind in AnyRequest.__args__ if kind not in frozenset(_CONFIG_OPS.values())
}
_EVENTS: dict[int, Any] = {kind.event: kind for kind in AnyEvent.__args__}


def decode_request(command: int, payload: bytes) -> AnyRequest:
    """Return the request of a command code and payload, as the board reads it.

    Raises:
        UnknownCommandError: No message for this code (UNKNOWN_COMMAND).
        PayloadError: The payload is too short (BAD_LENGTH).
        FieldError: CONFIG with an unknown op (BAD_VALUE, offset 0).
    """
    # Only CONFIG has several requests under one code; byte 0 selects one.
    kind = _REQUESTS.get(command)
    if command == Command.CONFIG:
        if not payload:
            raise PayloadError("ConfigRequest", "op", offset=0, length=0, minimum=1)
        kind = _CONFIG_OPS.get(payload[0])
        if kind is None:
            raise FieldError("ConfigRequest", "op", offset=0, value=payload[0], reason="this operation does not exist")
    if kind is None:
        raise UnknownCommandError(command)
    request: AnyRequest = kind.decode(payload)
    return request


def decode_event(event: int, payload: bytes) -> AnyEvent:
    """Return the event of an event code and payload, as the host reads it.

    Raises:
        UnknownCommandError: No message for this code: count ``unknown_event`` and drop it (section 13, row 12).
        PayloadError: The payload is too short: count ``bad_payload`` and drop it (row 13).
        FieldError: A state or reason of the event is unknown.
    """
    kind = _EVENTS.get(event)
    if kind is None:
        raise UnknownCommandError(event)
    message: AnyEvent = kind.decode(payload)
    return message


def is_read(request: Request[Any]) -> bool:
    """Return whether a repeat executes the request again instead of replaying a stored reply (mark R, section 5)."""
    return request.command.reads_only or isinstance(request, ConfigReadGlobalRequest | ConfigReadLimitsRequest)


def accepts_no_reply(request: Request[Any]) -> bool:
    """Return whether the flag NO_REPLY is accepted (mark N, section 5); for SUBSCRIBE only with RENEW."""
    if isinstance(request, SubscribeRequest):
        return bool(request.sub_flags & SubscribeFlag.RENEW)
    return request.command.accepts_no_reply
