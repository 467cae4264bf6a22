"""Definition of the fields and layout of a message's payload."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

SCALAR_SIZES = {"u8": 1, "u16": 2, "u32": 4, "i16": 2, "i32": 4}
"""Size of each scalar type, in bytes."""

_STRUCT = {"u8": "B", "u16": "H", "u32": "I", "i16": "h", "i32": "i"}

ELEMENT_SIZES = {"char": 1, "u8": 1, "u16": 2, "u32": 4, "pair": 4, "limit": 8, "watch": 8, "fault": 20}
"""Size of an array element by its type, in bytes."""


@dataclass(frozen=True)
class PayloadField:
    """One field of a message's payload.

    Attributes:
        offset: Position in the payload, in bytes.
        type: ``u8 u16 u32 i16 i32``; ``char[n]`` for text; ``T[count]`` for an array whose length is in the field
            ``count``; ``T[count,n_adc]`` for an array of rows. T can also be a record: ``limit``, ``pair``, ``watch``
            or ``fault`` (protocol sections 7.1, 8.2, 9.3 and 11.3).
        name: Field name; empty for a reserved field.
        unit: Unit; empty for a pure number.
        range: ``lo..hi`` or ``a,b,c``.
        meaning: Description in one line.
        none: Transmitted value that means ``None``.
        const: Value of a field that is the same in every message of this layout.
        view: Name of the enum (or ``bool``) to which the number in a reply is converted.
    """

    offset: int
    type: str
    name: str
    unit: str = ""
    range: str = ""
    meaning: str = ""
    none: int | None = None
    const: int | None = None
    view: str = ""

    @cached_property
    def is_array(self) -> bool:
        """Whether the field is an array of variable length."""
        return "[" in self.type and not self.type.split("[")[1][:-1].isdigit()

    @cached_property
    def element(self) -> str:
        """Type of the elements of an array field."""
        return self.type.split("[")[0]

    @cached_property
    def counts(self) -> tuple[str, ...]:
        """Names of the fields that contain the shape of an array field."""
        return tuple(self.type.split("[")[1][:-1].split(",")) if self.is_array else ()

    @cached_property
    def size(self) -> int:
        """Size of the field in bytes; 0 for an array."""
        if self.is_array:
            return 0
        return SCALAR_SIZES[self.type] if self.type in SCALAR_SIZES else int(self.type.split("[")[1][:-1])

    @cached_property
    def struct_code(self) -> str:
        """Type code of the field for :mod:`struct`."""
        if not self.name:
            return f"{self.size}x"
        return _STRUCT.get(self.type, f"{self.size}s")

    def allows(self, value: int) -> bool:
        """Return whether ``range`` allows a value."""
        if self.none is not None and value == self.none:
            return True
        low, dots, high = self.range.partition("..")
        if dots:
            # Only the board knows an end that is not a number, such as n_dac - 1; here it allows every value.
            return not (low.lstrip("-").isdigit() and value < int(low)) and not (high.isdigit() and value > int(high))
        choices = self.range.split(",")
        return value in map(int, choices) if choices[0].isdigit() else True


@dataclass(frozen=True)
class Layout:
    """Layout of one message's payload.

    Attributes:
        name: Name of the message class.
        code: Name of the command or event; empty for a part that several messages share.
        fields: Fields in the order of their offsets; an array is the last one.
    """

    name: str
    code: str
    fields: tuple[PayloadField, ...]

    @cached_property
    def array(self) -> PayloadField | None:
        """Array at the end of the payload; ``None`` without an array."""
        last = self.fields[-1] if self.fields else None
        return last if last is not None and last.is_array else None

    @cached_property
    def fixed(self) -> tuple[PayloadField, ...]:
        """Fields of fixed size."""
        return tuple(field for field in self.fields if not field.is_array)

    @cached_property
    def named(self) -> tuple[PayloadField, ...]:
        """Fields of fixed size that are not reserved."""
        return tuple(field for field in self.fixed if field.name)

    @cached_property
    def packer(self) -> struct.Struct:
        """Fields of fixed size as a :class:`struct.Struct`."""
        return struct.Struct("<" + "".join(field.struct_code for field in self.fixed))

    @cached_property
    def fixed_size(self) -> int:
        """Size of all fixed-size fields together, in bytes."""
        return sum(field.size for field in self.fixed)

    def offset_of(self, name: str) -> int:
        """Return the payload offset of a field. Raises ``KeyError`` for an unknown name."""
        for field in self.fields:
            if field.name == name:
                return field.offset
        raise KeyError(f"{self.name} has no field {name}")


WIRE = "wire"
"""Key of the :class:`PayloadField` in the metadata of a dataclass field."""


def wire(
    offset: int,
    type: str,
    unit: str = "",
    range: str = "",
    meaning: str = "",
    *,
    none: int | None = None,
    const: int | None = None,
    view: str = "",
    default: Any = dataclasses.MISSING,
) -> Any:
    """Define a field of a message class; see :class:`PayloadField`.

    A field whose name begins with ``_`` is transmitted but is no attribute: the length of an array, a constant, or
    reserved bytes (``_reserved_<offset>``).

    Args:
        offset: Position in the payload, in bytes.
        type: Type in the payload.
        unit: Unit.
        range: Allowed values.
        meaning: Description in one line.
        none: Transmitted value that means ``None``.
        const: Value that is always the same.
        view: Enum (or ``bool``) to which the number in a reply is converted.
        default: Default value.
    """
    field = PayloadField(offset, type, "", unit, range, meaning, none, const, view)
    return dataclasses.field(default=default, metadata={WIRE: field})


def layout_of(name: str, attributes: Mapping[str, Any], base: Layout | None = None) -> Layout:
    """Return the layout of a message class, beginning with the fields of its base class."""
    by_offset = {field.offset: field for field in base.fields} if base is not None else {}
    for attribute, value in attributes.items():
        if isinstance(value, dataclasses.Field) and WIRE in value.metadata:
            # A field with the same offset replaces the field of the base class:
            # the operations of CONFIG share a block and differ in byte 0.
            table_name = "" if attribute.startswith("_reserved_") else attribute.removeprefix("_")
            field = dataclasses.replace(value.metadata[WIRE], name=table_name)
            by_offset[field.offset] = field
    return Layout(name, "", tuple(by_offset[offset] for offset in sorted(by_offset)))
