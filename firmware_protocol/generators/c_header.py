"""Generator of the C99 header (section 17)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum

from firmware_protocol import codes
from firmware_protocol.fields import ELEMENT_SIZES, Layout, PayloadField
from firmware_protocol.generators.constants import CONSTANTS
from firmware_protocol.layouts import LAYOUTS
from firmware_protocol.schema import TABLES, schema_crc32

C_TYPES = {"u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "i16": "int16_t", "i32": "int32_t"}
"""C type of each scalar."""

_MARKS = {"P": "PIPELINED", "N": "NO_REPLY", "R": "READ"}
_TOP = """\
/*
 * Wire protocol of the LUMION mesh controller, version 1: constants, enums and payloads.
 *
 * Generated from the protocol's schema by `python -m firmware_protocol.generate`. Do not edit.
 *
 * Each payload has a size (its fixed part, the minimum that a receiver accepts), the offset of every field (for
 * BAD_VALUE replies), a struct in the byte order of the processor, and two functions that convert between the struct
 * and the packed little-endian bytes. Arrays follow the fixed part at their own offset. Alignment and byte order of
 * the processor do not matter. Text is NUL padded, not terminated.
 */
#ifndef LUMION_PROTOCOL_H
#define LUMION_PROTOCOL_H

#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif
"""

_ACCESS = """\
/* Little-endian integers at any address. */

static inline uint8_t lum_get_u8(const uint8_t *p) { return p[0]; }

static inline uint16_t lum_get_u16(const uint8_t *p) { return (uint16_t)(p[0] | (uint16_t)(p[1] << 8)); }

static inline uint32_t lum_get_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline int16_t lum_get_i16(const uint8_t *p)
{
    const int32_t value = lum_get_u16(p);
    return (int16_t)(value >= 0x8000 ? value - 0x10000 : value);
}

static inline int32_t lum_get_i32(const uint8_t *p)
{
    const int64_t value = lum_get_u32(p);
    return (int32_t)(value >= 0x80000000LL ? value - 0x100000000LL : value);
}

static inline void lum_put_u8(uint8_t *p, uint8_t value) { p[0] = value; }

static inline void lum_put_u16(uint8_t *p, uint16_t value)
{
    p[0] = (uint8_t)(value & 0xFFu);
    p[1] = (uint8_t)(value >> 8);
}

static inline void lum_put_u32(uint8_t *p, uint32_t value)
{
    lum_put_u16(p, (uint16_t)(value & 0xFFFFu));
    lum_put_u16(p + 2, (uint16_t)(value >> 16));
}

static inline void lum_put_i16(uint8_t *p, int16_t value) { lum_put_u16(p, (uint16_t)value); }

static inline void lum_put_i32(uint8_t *p, int32_t value) { lum_put_u32(p, (uint32_t)value); }

/* Whether u32 a is newer than b: (a - b) mod 2^32 is in 1 .. 2^31 - 1 (generations, ticks, ids, limits). */
static inline int lum_is_newer(uint32_t a, uint32_t b) { return a != b && (uint32_t)(a - b) <= 0x7FFFFFFFu; }

/* Whether a bit number is set in a mask word (features, faults, fault_enable). */
#define LUM_BIT_SET(word, bit) ((((uint32_t)(word)) >> (bit) & 1u) != 0u)
"""

_BOTTOM = """\
#ifdef __cplusplus
}
#endif

#endif /* LUMION_PROTOCOL_H */
"""


def snake(name: str) -> str:
    """Convert a name such as ``CommitRequest`` to ``commit_request``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def members(layout: Layout) -> list[PayloadField]:
    """Return the fields of a message's C struct."""
    return [field for field in layout.fixed if field.name and field.const is None]


def _number(value: int) -> str:
    return f"0x{value:02X}" if value < 256 else f"0x{value:X}"


def _plain(text: str) -> str:
    return text.replace("µ", "u").replace("°", "deg ").replace("Ω", "Ohm").replace("−", "-")


def _constants() -> Iterator[str]:
    yield f"#define LUM_SCHEMA_CRC32 0x{schema_crc32():08X}u /* schema_crc32 of HELLO */"
    for name, value, meaning in CONSTANTS:
        yield f"#define LUM_{name} {value}u /* {meaning} */"


def _enum(table: type[Enum]) -> Iterator[str]:
    prefix = f"LUM_{snake(table.__name__).upper()}"
    yield f"/* {_plain((table.__doc__ or '').splitlines()[0]).replace('``', '')} */"
    yield f"enum lum_{snake(table.__name__)} {{"
    for member in table:
        yield f"    {prefix}_{member.name} = {_number(int(member.value))},"
    yield "};"


def _marks(command: codes.Command) -> str:
    return " | ".join(f"LUM_MARK_{_MARKS[mark]}" for mark in command.marks) or "0u"


def _commands() -> Iterator[str]:
    yield "/* Marks of a command: may be pipelined, accepts NO_REPLY (SUBSCRIBE: with RENEW), reads only. */"
    for bit, name in enumerate(_MARKS.values()):
        yield f"#define LUM_MARK_{name} 0x{1 << bit:02X}u"
    yield ""
    yield "/* X(name, code, least payload, marks) for every command; CONFIG by its op. */"
    yield "#define LUM_COMMANDS(X) \\"
    rows = [f"    X({c.name}, 0x{c:02X}u, {c.min_request}u, {_marks(c)})" for c in codes.Command]
    yield " \\\n".join(rows)


def _offsets(layout: Layout, prefix: str) -> Iterator[str]:
    for field in layout.fields:
        name = f"{prefix}_{field.name.upper()}"
        if field.name:
            yield f"#define {name}_OFFSET {field.offset}u"
        if field.const is not None:
            yield f"#define {name} {field.const}u"
        if field.none is not None:
            yield f"#define {name}_NONE {f'({field.none})' if field.none < 0 else f'{field.none}u'}"
        if field.is_array:
            yield f"#define {name}_ELEMENT {ELEMENT_SIZES[field.element]}u"


def _struct(layout: Layout) -> Iterator[str]:
    yield f"struct lum_{snake(layout.name)} {{"
    for field in members(layout):
        declared = (
            f"char {field.name}[{field.size}]" if field.element == "char" else f"{C_TYPES[field.type]} {field.name}"
        )
        notes = (field.unit and f" [{field.unit}]", field.range and f", {field.range}")
        yield f"    {declared}; /* {_plain(field.meaning + ''.join(notes))} */"
    yield "};"


def _read(layout: Layout) -> Iterator[str]:
    name = f"lum_{snake(layout.name)}"
    yield f"static inline void {name}_read(struct {name} *m, const uint8_t *p)"
    yield "{"
    for field in members(layout):
        if field.element == "char":
            yield f"    memcpy(m->{field.name}, p + {field.offset}, {field.size});"
        else:
            yield f"    m->{field.name} = lum_get_{field.type}(p + {field.offset});"
    yield "}"


def _write(layout: Layout) -> Iterator[str]:
    name = f"lum_{snake(layout.name)}"
    yield f"static inline void {name}_write(const struct {name} *m, uint8_t *p)"
    yield "{"
    for field in layout.fixed:
        if field.element == "char":
            yield f"    memcpy(p + {field.offset}, m->{field.name}, {field.size});"
            continue
        fixed = field.const if field.const is not None else 0
        value = f"m->{field.name}" if field.name and field.const is None else f"{fixed}u"
        yield f"    lum_put_{field.type}(p + {field.offset}, {value});"
    yield "}"


def _payload(layout: Layout) -> Iterator[str]:
    prefix = f"LUM_{snake(layout.name).upper()}"
    yield f"/* {layout.name}{f', {layout.code}' if layout.code else ''} */"
    yield f"#define {prefix}_SIZE {layout.fixed_size}u"
    yield from _offsets(layout, prefix)
    if members(layout):
        for part in (_struct, _read, _write):
            yield ""
            yield from part(layout)


def c_header() -> str:
    """Return the text of ``lumion_protocol.h``."""
    blocks = [_TOP, "\n".join(_constants()) + "\n"]
    blocks += ["\n".join(_enum(table)) + "\n" for table in TABLES]
    blocks += ["\n".join(_commands()) + "\n", _ACCESS]
    blocks += ["\n".join(_payload(layout)) + "\n" for layout in LAYOUTS.values()]
    return "\n".join([*blocks, _BOTTOM])
