"""The tables of ``docs/protocol.md``, printed from the schema and the locked vectors (section 17).

A section of the document between ``<!-- generated: NAME -->`` and ``<!-- end -->`` is replaced by the table of that
name. Names are ``layout NAME``, ``codes NAME``, ``frame NAME`` (a locked frame) or one of the tables of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any

from firmware_protocol.codes import Command, FaultSource, Feature, Status
from firmware_protocol.config import ConfigLimitsRequest
from firmware_protocol.fields import ELEMENT_SIZES, Layout, PayloadField
from firmware_protocol.frames import CRC_SIZE, HEADER_SIZE, max_payload
from firmware_protocol.layouts import LAYOUTS
from firmware_protocol.messages import SetRequest, StageRequest
from firmware_protocol.records import max_elements
from firmware_protocol.requests import AnyEvent, AnyRequest
from firmware_protocol.schema import TABLES, schema_crc32
from firmware_protocol.stream_messages import SweepLoadRequest, TelemetryEvent

_SECTION = re.compile(r"(<!-- generated: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)
_HEX_PER_LINE = 32


class UnknownSectionError(ValueError):
    """The document asks for a table nobody makes."""


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


def _layout(name: str) -> str:
    rows = []
    for field in LAYOUTS[name].fields:
        if field.name:
            rows.append((field.offset, f"`{field.type}`", f"`{field.name}`", field.unit, _range(field), field.meaning))
        else:
            rows.append((field.offset, f"`{field.type}`", "–", "", "", "reserved, 0"))
    return _table(("off", "type", "field", "unit", "range", "meaning"), rows) if rows else "No payload."


def _size(layout: Layout) -> str:
    if layout.array is None:
        return str(layout.fixed_size)
    element = ELEMENT_SIZES[layout.array.element]
    times = f"{element} " if element > 1 else ""
    return f"{layout.fixed_size} + {times}{' '.join(f'`{count}`' for count in layout.array.counts)}"


def _requests(command: Command) -> list[Any]:
    return [kind for kind in AnyRequest.__args__ if kind.command is command]


def _sizes(kinds: Iterable[Any]) -> str:
    return ", ".join(dict.fromkeys(_size(kind.layout) for kind in kinds))


def _commands() -> str:
    rows = []
    for command in Command:
        kinds = _requests(command)
        replies = _sizes(kind.reply for kind in kinds)
        marks = " ".join(command.marks) or "–"
        rows.append((f"0x{command:02X}", command.name, _sizes(kinds), replies, marks, command.states))
    return _table(("code", "command", "request", "reply", "marks", "states"), rows)


def _events() -> str:
    rows = ((f"0x{kind.event:02X}", kind.event.name, _size(kind.layout)) for kind in AnyEvent.__args__)
    return _table(("code", "event", "payload"), rows)


def _status() -> str:
    rows = ((int(s), s.name, s.channel_means or "–", s.value_means or "–", s.limit_means or "–") for s in Status)
    return _table(("code", "name", "`channel`", "`value`", "`limit`"), rows)


def _faults() -> str:
    rows = []
    for source in FaultSource:
        enabled = "always" if source.feature is None else f"`fault_enable`, feature {int(source.feature)}"
        rows.append((int(source), source.name, source.unit or "0", enabled))
    return _table(("bit", "source", "unit of `value` and `limit`", "enabled"), rows)


def _features() -> str:
    return _table(("bit", "name", "meaning"), ((int(f), f.name, f.meaning) for f in Feature))


def _codes(name: str) -> str:
    table: type[Enum] = next(table for table in TABLES if table.__name__ == name)
    bits = {True: "value", False: "code"}[name.endswith("Flag")]
    return _table((bits, "name"), ((f"0x{m.value:02X}" if bits == "value" else m.value, m.name) for m in table))


def _mtu() -> str:
    head = (
        "MTU",
        "content",
        "payload",
        "SET codes",
        "STAGE codes",
        "limit records",
        "TELEMETRY monitors",
        "SWEEP_LOAD",
    )
    kinds = (SetRequest, StageRequest, ConfigLimitsRequest, TelemetryEvent, SweepLoadRequest)
    rows = []
    for mtu in (256, 512, 1024, 4096):
        payload = max_payload(mtu)
        rows.append((mtu, payload + HEADER_SIZE + CRC_SIZE, payload, *(max_elements(kind, mtu) for kind in kinds)))
    return _table(head, rows)


def _cobs(vectors: dict[str, Any]) -> str:
    lengths = dict(vectors["cobs_lengths"])
    content = lengths.pop("content")
    return _table(("content bytes", *map(str, content)), ((name, *row) for name, row in lengths.items()))


def _large(vectors: dict[str, Any]) -> str:
    rows = []
    for row in vectors["set_frames"]:
        codes = f"{row['first']} + {row['step']} i" if row["step"] else f"{row['first']}"
        sizes = (row[key] for key in ("payload", "content", "wire", "bound"))
        rows.append((row["count"], codes, *sizes, f"0x{row['crc32']:08X}"))
    return _table(("codes", "code i", "payload", "content", "wire", "bound", "CRC-32 of the wire bytes"), rows)


def _hex(data: bytes) -> Iterator[str]:
    for start in range(0, len(data), _HEX_PER_LINE):
        yield data[start : start + _HEX_PER_LINE].hex(" ")


def _frame(vectors: dict[str, Any], name: str) -> str:
    record = next((record for record in vectors["frames"] if record["name"] == name), None)
    if record is None:
        raise UnknownSectionError(f"no locked frame `{name}`")
    wire = list(_hex(bytes.fromhex(record["wire"])))
    payload = list(_hex(bytes.fromhex(record["payload"]))) or ["(empty)"]
    lines = [
        f"{label:8}{line}"
        for parts, title in ((payload, "payload"), (wire, "wire"))
        for label, line in zip([title, *[""] * len(parts)], parts, strict=False)
    ]
    return "\n".join(["```", *lines, f"{'':8}({len(record['wire']) // 2} bytes)", "```"])


def _schema_crc() -> str:
    return f"`schema_crc32` of this version: 0x{schema_crc32():08X}."


_PLAIN: dict[str, Callable[[], str]] = {
    "commands": _commands,
    "events": _events,
    "status": _status,
    "faults": _faults,
    "features": _features,
    "mtu": _mtu,
    "schema crc": _schema_crc,
}
_FROM_VECTORS: dict[str, Callable[[dict[str, Any]], str]] = {"cobs lengths": _cobs, "large frames": _large}


def section(name: str, vectors: dict[str, Any]) -> str:
    """Return the table of a name. Raises ``UnknownSectionError``."""
    kind, _, rest = name.partition(" ")
    if name in _PLAIN:
        return _PLAIN[name]()
    if name in _FROM_VECTORS:
        return _FROM_VECTORS[name](vectors)
    if kind == "layout" and rest in LAYOUTS:
        return _layout(rest)
    if kind == "codes" and rest in {table.__name__ for table in TABLES}:
        return _codes(rest)
    if kind == "frame":
        return _frame(vectors, rest)
    raise UnknownSectionError(f"the document asks for `{name}`, which no table is called")


def document(text: str, vectors: dict[str, Any]) -> str:
    """Return the document with every generated section as it should be. Raises ``UnknownSectionError``."""
    return _SECTION.sub(lambda found: f"{found[1]}{section(found[2], vectors)}\n{found[3]}", text)
