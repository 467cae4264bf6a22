"""Generator of the page ``docs/protocol-tables.md``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, IntFlag
from typing import Any

import numpy as np

from firmware_protocol.codec import Message
from firmware_protocol.codes import Command, FaultSource, Feature, Status
from firmware_protocol.config import ConfigLimitsRequest
from firmware_protocol.fields import ELEMENT_SIZES, Layout, PayloadField
from firmware_protocol.frames import max_payload, wire_bound
from firmware_protocol.generators.constants import CONSTANTS, HOST_TIMES
from firmware_protocol.layouts import LAYOUTS
from firmware_protocol.messages import CommitRequest, HelloReply, Request, SetRequest, StageRequest
from firmware_protocol.records import max_elements
from firmware_protocol.requests import AnyEvent, AnyRequest
from firmware_protocol.schema import TABLES, schema_crc32
from firmware_protocol.stream_messages import SweepLoadRequest, TelemetryEvent
from firmware_protocol.timing import DEADLINE_RTOS, exchange_bytes, retry_timeout_s

_ENUMS: dict[str, type[Enum]] = {table.__name__: table for table in TABLES}
_BAUDS = (115_200, 921_600, 3_000_000)

_TOP = f"""\
# Tables of the mesh controller protocol

Generated from the schema in `firmware_protocol/` by `python -m firmware_protocol.generate`; do not edit. The rules are
in [the protocol](protocol.md), under the same section numbers. Each layout has the name of its Python class; its C
struct in `lumion_protocol.h` has the same name in snake case (`HelloRequest`: `lum_hello_request`). *off* is the offset
in the payload in bytes; *request*, *reply* and *payload* are payload sizes in bytes. `schema_crc32` of this version:
0x{schema_crc32():08X}.
"""


def _table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    titles = list(head)
    lines = [titles, ["---"] * len(titles), *([str(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _range(field: PayloadField) -> str:
    text = field.range.replace("..", " … ").replace("-", "−").replace(",", ", ").strip()
    if field.none is not None:
        none = f"{field.none} = none".replace("-", "−")
        text = f"{text}; {none}" if text else none
    return text


def _layout(layout: Layout) -> str:
    rows = []
    for field in layout.fields:
        if field.name:
            rows.append((field.offset, f"`{field.type}`", f"`{field.name}`", field.unit, _range(field), field.meaning))
        else:
            rows.append((field.offset, f"`{field.type}`", "–", "", "", "reserved, 0"))
    return _table(("off", "type", "field", "unit", "range", "meaning"), rows) if rows else "No payload."


def _codes(table: type[Enum]) -> str:
    if issubclass(table, IntFlag):
        return _table(("bit value", "name"), ((f"0x{int(bit):02X}", bit.name) for bit in table))
    return _table(("code", "name"), ((row.value, row.name) for row in table))


def _size(layout: Layout) -> str:
    if layout.array is None:
        return str(layout.fixed_size)
    element = ELEMENT_SIZES[layout.array.element]
    times = f"{element} " if element > 1 else ""
    return f"{layout.fixed_size} + {times}{' '.join(f'`{count}`' for count in layout.array.counts)}"


def _sizes(kinds: Iterable[Any]) -> str:
    return ", ".join(dict.fromkeys(_size(kind.layout) for kind in kinds))


def _commands(vectors: dict[str, Any]) -> str:
    rows = []
    for command in Command:
        kinds = [kind for kind in AnyRequest.__args__ if kind.command is command]
        replies = _sizes(kind.reply for kind in kinds)
        marks = " ".join(command.marks) or "–"
        rows.append((f"0x{command:02X}", command.name, _sizes(kinds), replies, marks, command.states))
    return _table(("code", "command", "request", "reply", "marks", "states"), rows)


def _events(vectors: dict[str, Any]) -> str:
    rows = ((f"0x{kind.event:02X}", kind.event.name, _size(kind.layout)) for kind in AnyEvent.__args__)
    return _table(("code", "event", "payload"), rows)


def _status(vectors: dict[str, Any]) -> str:
    rows = ((int(s), s.name, s.channel_means or "–", s.value_means or "–", s.limit_means or "–") for s in Status)
    return _table(("code", "name", "`channel`", "`value`", "`limit`"), rows)


def _faults(vectors: dict[str, Any]) -> str:
    rows = []
    for source in FaultSource:
        enabled = "always" if source.feature is None else f"`fault_enable`, feature {int(source.feature)}"
        rows.append((int(source), source.name, source.unit or "0", enabled))
    return _table(("bit", "source", "unit of `value` and `limit`", "enabled"), rows)


def _features(vectors: dict[str, Any]) -> str:
    return _table(("bit", "name", "meaning"), ((int(f), f.name, f.meaning) for f in Feature))


def _constants(vectors: dict[str, Any]) -> str:
    return _table(("name", "value", "meaning"), CONSTANTS)


def _host_times(vectors: dict[str, Any]) -> str:
    return _table(("name", "value", "meaning"), HOST_TIMES)


def _frame_sizes(vectors: dict[str, Any]) -> str:
    kinds = (SetRequest, StageRequest, ConfigLimitsRequest, TelemetryEvent, SweepLoadRequest)
    columns = ("SET codes", "STAGE codes", "limit records", "TELEMETRY monitors", "SWEEP_LOAD bytes")
    rows = []
    for mtu in (256, 512, 1024, 4096):
        payload = max_payload(mtu)
        rows.append((mtu, payload, *(max_elements(kind, mtu) for kind in kinds)))
    return _table(("MTU", "payload", *columns), rows)


def _zeros(channels: int) -> SetRequest:
    return SetRequest(1, np.zeros(channels, dtype=np.uint16))


def _examples() -> dict[str, Request[Message]]:
    return {
        "SET of 144 codes": _zeros(144),
        "SET of 2000 codes": _zeros(2000),
        "COMMIT": CommitRequest(1, 1, 1, 0, 144),
    }


def _hello(vectors: dict[str, Any]) -> HelloReply:
    record = next(record for record in vectors["frames"] if record["name"] == "hello reply")
    return HelloReply.decode(bytes.fromhex(record["payload"]))


def _retry_times(vectors: dict[str, Any]) -> str:
    hello, rows = _hello(vectors), []
    for name, request in _examples().items():
        rtos_ms = [1e3 * retry_timeout_s(request, hello, baud) for baud in _BAUDS]
        rows.append((name, *(f"{rto_ms:.1f}, {DEADLINE_RTOS * rto_ms:.0f}" for rto_ms in rtos_ms)))
    return _table(("RTO, deadline in ms", *(f"{baud} baud" for baud in _BAUDS)), rows)


def _rates(vectors: dict[str, Any]) -> str:
    hello, rows = _hello(vectors), []
    for name, request in (_examples() | {"SET of 304 codes": _zeros(304)}).items():
        n_bytes = exchange_bytes(request, hello)
        bound = wire_bound(len(request.encode()))
        rows.append((name, bound, n_bytes - bound, *(f"{1e4 * n_bytes / baud:.3g}" for baud in _BAUDS)))
    for monitors in (64, 144):
        bound = wire_bound(TelemetryEvent.layout.fixed_size + 2 * monitors)
        rows.append(
            (f"TELEMETRY of {monitors} monitors", bound, "–", *(f"{1e4 * bound / baud:.3g}" for baud in _BAUDS))
        )
    return _table(("frame", "bytes", "reply bytes", *(f"ms at {baud} baud" for baud in _BAUDS)), rows)


OWN_TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    "Frame sizes": _frame_sizes,
    "Timing constants": _host_times,
    "Retry times": _retry_times,
    "Constants": _constants,
    "Rates": _rates,
    "Command": _commands,
    "Event": _events,
    "Feature": _features,
    "FaultSource": _faults,
    "Status": _status,
}
"""Tables with special columns, by their headings."""

SECTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("2. Frames", ("Frame sizes",)),
    ("3. Header", ("FrameHeader", "Kind", "HeaderFlag")),
    ("4. Retry", ("Timing constants", "Retry times")),
    ("5. Commands", ("Command", "Event", "Stream", "ErrorReply", "Constants")),
    (
        "6. Identity",
        (
            *("HelloRequest", "HelloFlag", "HelloReply", "Drive", "PingRequest", "PingReply"),
            *("GetStatsRequest", "GetStatsReply", "StatsCounter", "Feature"),
        ),
    ),
    (
        "7. CONFIG",
        (
            *("ConfigOp", "ConfigGlobalRequest", "WatchdogPolicy", "ConfigLimitsRequest", "LimitRecord"),
            *("ConfigApplyRequest", "ApplyFlag", "ConfigReply", "ConfigReadGlobalRequest", "ConfigGlobalReply"),
            *("ConfigReadLimitsRequest", "ConfigLimitsReply"),
        ),
    ),
    (
        "8. Phase set",
        (
            *("StageRequest", "StageSparseRequest", "SparseBase", "PairRecord", "StageReply"),
            *("CommitRequest", "CommitWhen", "CommitReply", "SetRequest", "SetReply"),
            *("ReadbackRequest", "ReadbackFlag", "ReadbackReply"),
        ),
    ),
    (
        "9. Monitors",
        (
            *("ReadAdcRequest", "ReadAdcReply", "SubscribeRequest", "SubscribeFlag", "SubscribeReply"),
            *("TelemetryEvent", "WatchRequest", "WatchFlag", "WatchRecord", "WatchReply", "LightEvent"),
        ),
    ),
    (
        "10. Sweeps",
        (
            *("SweepImageHeader", "ImageFlag", "EndAction", "SweepTrigger"),
            *("SweepLoadRequest", "SweepLoadReply", "SweepStartRequest", "RunFlag", "SweepStartReply"),
            *("SweepDataEvent", "SweepReadRequest", "SweepReadReply", "RunState", "SweepAckRequest", "SweepAckReply"),
            *("SweepAbortRequest", "SweepAbortReply", "SweepDoneEvent", "EndReason"),
        ),
    ),
    (
        "11. Safety",
        (
            *("OutputsState", "FaultSource", "FaultRecord", "FaultState", "FaultListRequest", "FaultListReply"),
            *("FaultClearRequest", "FaultClearReply", "EstopRequest", "EstopReply"),
        ),
    ),
    ("12. Status codes", ("Status",)),
    ("14. Bytes and rates", ("Rates",)),
)
"""Headings of the page with their tables."""


def table(name: str, vectors: dict[str, Any]) -> str:
    """Return a table of the protocol by its heading. Raises ``KeyError`` for an unknown heading."""
    if name in OWN_TABLES:
        return OWN_TABLES[name](vectors)
    return _codes(_ENUMS[name]) if name in _ENUMS else _layout(LAYOUTS[name])


def page(vectors: dict[str, Any]) -> str:
    """Return the text of the whole page of protocol tables."""
    parts = [_TOP]
    for title, names in SECTIONS:
        parts.append(f"## {title}\n")
        parts += [f"### {name}\n\n{table(name, vectors)}\n" for name in names]
    return "\n".join(parts)
