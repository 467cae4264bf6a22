"""Finds the message class of a command code or event code."""

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
    """Return the request with a command code and payload.

    Raises:
        UnknownCommandError: The code is unknown.
        PayloadError: The payload is too short.
        FieldError: The operation of a CONFIG request is unknown.
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
    """Return the event with an event code and payload.

    Raises:
        UnknownCommandError: The code is unknown.
        PayloadError: The payload is too short.
        FieldError: A state or reason in the event is unknown.
    """
    kind = _EVENTS.get(event)
    if kind is None:
        raise UnknownCommandError(event)
    message: AnyEvent = kind.decode(payload)
    return message


def is_read(request: Request[Any]) -> bool:
    """Return whether a request only reads, so that a repeat is executed again (mark R, section 5)."""
    return request.command.reads_only or isinstance(request, ConfigReadGlobalRequest | ConfigReadLimitsRequest)


def accepts_no_reply(request: Request[Any]) -> bool:
    """Return whether a request accepts the flag NO_REPLY (mark N, section 5)."""
    if isinstance(request, SubscribeRequest):
        return bool(request.sub_flags & SubscribeFlag.RENEW)
    return request.command.accepts_no_reply
