"""What a row of a payload layout is. The rows themselves stand in :mod:`firmware_protocol.layouts`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

SCALAR_SIZES = {"u8": 1, "u16": 2, "u32": 4, "i16": 2, "i32": 4}
"""Bytes of each scalar type."""

ELEMENT_SIZES = {"char": 1, "u8": 1, "u16": 2, "u32": 4, "pair": 4, "limit": 8, "fault": 20}
"""Bytes of one element of an array, by its type."""


@dataclass(frozen=True)
class Field:
    """One field of a payload.

    Attributes:
        offset: Bytes from the first payload byte.
        type: Wire type, see the module's text.
        name: Field name; empty for a reserved field.
        unit: Unit, empty for a pure number.
        range: ``lo..hi`` or ``a,b,c``; anything else is decided with more knowledge than the field alone.
        meaning: One line for the reader.
        none: Wire value that means "none" and is ``None`` in the message.
        const: Value of a field that is the same in every message of this layout.
        view: Name of the enum (or ``bool``) a reply shows the number as.
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
        """The field is the variable part behind the fixed fields."""
        return "[" in self.type and not self.type.split("[")[1][:-1].isdigit()

    @cached_property
    def element(self) -> str:
        """Type of one element of an array."""
        return self.type.split("[")[0]

    @cached_property
    def counts(self) -> tuple[str, ...]:
        """Names of the fields that hold the shape of an array."""
        return tuple(self.type.split("[")[1][:-1].split(",")) if self.is_array else ()

    @cached_property
    def size(self) -> int:
        """Bytes of a field of fixed size; 0 for an array."""
        if self.is_array:
            return 0
        return SCALAR_SIZES[self.type] if self.type in SCALAR_SIZES else int(self.type.split("[")[1][:-1])

    def allows(self, value: int) -> bool:
        """Return whether a value is inside a range that is known from the field alone."""
        if self.none is not None and value == self.none:
            return True
        low, dots, high = self.range.partition("..")
        if dots:
            return not (low.lstrip("-").isdigit() and value < int(low)) and not (high.isdigit() and value > int(high))
        choices = self.range.split(",")
        return value in map(int, choices) if choices[0].isdigit() else True


@dataclass(frozen=True)
class Layout:
    """The payload of one message.

    Attributes:
        name: Name of the message class.
        code: Name of the command or event it belongs to; empty for parts shared by several.
        fields: The fields, by offset; an array is the last one.
    """

    name: str
    code: str
    fields: tuple[Field, ...]

    @cached_property
    def array(self) -> Field | None:
        """The variable part, if there is one."""
        last = self.fields[-1] if self.fields else None
        return last if last is not None and last.is_array else None

    @cached_property
    def fixed(self) -> tuple[Field, ...]:
        """The fields of fixed size."""
        return tuple(field for field in self.fields if not field.is_array)

    @cached_property
    def fixed_size(self) -> int:
        """Bytes of the fixed part: the version-1 minimum of the payload."""
        return sum(field.size for field in self.fixed)

    def offset_of(self, name: str) -> int:
        """Return the payload offset of a field. Raises ``KeyError`` for a name the layout does not have."""
        for field in self.fields:
            if field.name == name:
                return field.offset
        raise KeyError(f"{self.name} has no field {name}")
