"""The whole protocol as one document, for the documentation and the C header."""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict
from enum import Enum
from functools import cache
from typing import Any

from firmware_protocol import codes, stream_codes
from firmware_protocol.layouts import LAYOUTS

TABLES: tuple[type[Enum], ...] = (
    codes.Kind,
    codes.HeaderFlag,
    codes.Command,
    codes.Event,
    codes.Stream,
    codes.Status,
    codes.Feature,
    codes.FaultSource,
    codes.FaultState,
    codes.OutputsState,
    codes.Drive,
    codes.WatchdogPolicy,
    codes.ConfigOp,
    codes.CommitWhen,
    codes.SparseBase,
    codes.HelloFlag,
    codes.ApplyFlag,
    codes.ReadbackFlag,
    codes.StatsCounter,
    stream_codes.SubscribeFlag,
    stream_codes.WatchFlag,
    stream_codes.ImageFlag,
    stream_codes.RunFlag,
    stream_codes.EndAction,
    stream_codes.SweepTrigger,
    stream_codes.RunState,
    stream_codes.EndReason,
)
"""All tables of codes, bits and states, in the order of the document."""


def _row(member: Enum) -> dict[str, Any]:
    columns = {name: value for name, value in vars(member).items() if not name.startswith("_")}
    plain = {name: value.name if isinstance(value, Enum) else value for name, value in columns.items()}
    return {"name": member.name, "code": int(member.value), **plain}


def schema_document() -> dict[str, Any]:
    """Return the protocol as plain data: all tables and layouts."""
    tables = {table.__name__: [_row(member) for member in table] for table in TABLES}
    layouts = {
        name: {"code": layout.code, "fields": [asdict(field) for field in layout.fields]}
        for name, layout in LAYOUTS.items()
    }
    return {"protocol_major": codes.PROTOCOL_MAJOR, "tables": tables, "layouts": layouts}


def schema_text() -> str:
    """Return the protocol as JSON text with sorted keys and without blanks (protocol section 6.4)."""
    return json.dumps(schema_document(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@cache
def schema_crc32() -> int:
    """Return the CRC-32 of :func:`schema_text`, which the HELLO reply contains."""
    return zlib.crc32(schema_text().encode())
