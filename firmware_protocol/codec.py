"""Base of the message classes.

Bytes after the known fields are ignored (section 5). A payload that is too short raises :class:`PayloadError`.
"""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, dataclass_transform

import numpy as np
from numpy.typing import NDArray

from firmware_protocol.codes import Drive, FaultState, OutputsState
from firmware_protocol.errors import FieldError, PayloadError
from firmware_protocol.fields import ELEMENT_SIZES, Layout, PayloadField, layout_of, wire
from firmware_protocol.stream_codes import EndReason, RunState

LIMIT_DTYPE = np.dtype([("code_max", "<u2"), ("load_ohm", "<u2"), ("trip_ua", "<u4")])
"""One limit record (section 7.1): largest code, heater resistance in Ω, trip in µA; 0 for no heater or no trip."""

PAIR_DTYPE = np.dtype([("channel", "<u2"), ("code", "<u2")])
"""One change of the command STAGE_SPARSE (section 8.2)."""

WATCH_DTYPE = np.dtype([(name, "<u2") for name in ("channel", "dark_below", "light_from", "hold_ticks")])
"""One monitor of the command WATCH (section 9.3): thresholds in codes, hold-off in ticks."""

CODE_DTYPE = np.dtype("<u2")
"""Number type of heater and monitor codes."""

_ELEMENTS: dict[str, np.dtype[Any]] = {
    "u16": CODE_DTYPE,
    "u32": np.dtype("<u4"),
    "limit": LIMIT_DTYPE,
    "pair": PAIR_DTYPE,
    "watch": WATCH_DTYPE,
}
_VIEWS: dict[str, Callable[[int], int]] = {
    "bool": bool,
    "OutputsState": OutputsState,
    "Drive": Drive,
    "FaultState": FaultState,
    "RunState": RunState,
    "EndReason": EndReason,
}


def _field_error(layout: Layout, field: PayloadField, value: object, reason: str) -> FieldError:
    number = value if isinstance(value, int) else 0
    return FieldError(layout.name, field.name, offset=field.offset, value=number, reason=reason)


def _to_wire(layout: Layout, field: PayloadField, value: object) -> int | bytes:
    if field.const is not None:
        return field.const
    if value is None and field.none is not None:
        return field.none
    if isinstance(value, str):
        raw = value.encode()
        if len(raw) > field.size:
            raise _field_error(layout, field, len(raw), f"longer than {field.size} bytes: {value!r}")
        return raw
    if not isinstance(value, int):
        raise _field_error(layout, field, value, f"{value!r} is not a value of type {field.type}")
    return int(value)


def _from_wire(layout: Layout, field: PayloadField, value: int | bytes) -> object:
    if isinstance(value, bytes):
        # Padded with NUL. A damaged letter in a name is harmless, so it is replaced and not refused.
        return value.split(b"\0")[0].decode(errors="replace")
    if field.none is not None and value == field.none:
        return None
    if not field.view:
        return value
    try:
        return _VIEWS[field.view](value)
    except ValueError:
        raise _field_error(layout, field, value, f"not a {field.view}") from None


def pack_fixed(layout: Layout, values: Mapping[str, object]) -> bytes:
    """Return the bytes of a payload's fixed-size fields. Raises ``FieldError`` for a value that does not fit."""
    sent = [_to_wire(layout, field, values.get(field.name)) for field in layout.named]
    try:
        return layout.packer.pack(*sent)
    except struct.error as error:
        # The error of struct does not name the field. Only now try one field at a time, so good messages cost one call.
        for field, value in zip(layout.named, sent, strict=True):
            try:
                struct.pack("<" + field.struct_code, value)
            except struct.error as cause:
                raise _field_error(layout, field, value, str(cause)) from error
        raise


def unpack_fixed(layout: Layout, payload: bytes) -> dict[str, object]:
    """Return the named fixed-size fields of a payload. Raises ``PayloadError`` if the payload is too short."""
    packer = layout.packer
    if len(payload) < packer.size:
        short = next(field for field in layout.fixed if field.offset + field.size > len(payload))
        raise PayloadError(
            layout.name,
            short.name or "reserved",
            offset=short.offset,
            length=len(payload),
            minimum=packer.size,
        )
    pairs = zip(layout.named, packer.unpack_from(payload), strict=True)
    return {field.name: _from_wire(layout, field, value) for field, value in pairs if field.const is None}


def need(layout: Layout, field: PayloadField, payload: bytes, size: int) -> bytes:
    """Return ``size`` bytes of a payload's array or text. Raises ``PayloadError`` if the payload is too short."""
    end = field.offset + size
    if len(payload) < end:
        raise PayloadError(layout.name, field.name, offset=field.offset, length=len(payload), minimum=end)
    return payload[field.offset : end]


def wire_bytes(layout: Layout, field: PayloadField, value: object) -> bytes:
    """Return ``value`` unchanged. Raises ``FieldError`` if it is not bytes."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise _field_error(layout, field, 0, f"{type(value).__name__} instead of bytes")
    return bytes(value)


def wire_array(layout: Layout, field: PayloadField, value: object) -> NDArray[Any]:
    """Return ``value`` as a read-only array of the field's type. Raises ``FieldError`` if an element does not fit."""
    dtype = _ELEMENTS[field.element]
    array = np.asarray(value)
    owner: object = array.base
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, bytes) and array.dtype == dtype and array.ndim == len(field.counts):
        return array  # decoded from a payload: already has the type of the wire, and bytes cannot change
    if array.dtype != dtype:
        if dtype.names is not None:
            # Convert to 64 bits first: a cast directly to 16 would wrap large values silently.
            rows = np.asarray(value, dtype=np.int64).reshape(-1, len(dtype.names))
            _check_elements(layout, field, rows, [dtype[name] for name in dtype.names])
            array = np.array([tuple(row) for row in rows], dtype=dtype)
        else:
            if array.size == 0:
                # For numpy, an empty list is an array of floats.
                array = array.astype(np.int64)
            _check_elements(layout, field, array.reshape(-1, 1), [dtype])
            array = array.astype(dtype)
    if array.ndim != len(field.counts):
        raise _field_error(layout, field, array.ndim, f"{array.ndim} dimensions instead of {len(field.counts)}")
    array = np.array(array, dtype=dtype, order="C")
    array.setflags(write=False)
    return array


def _check_elements(layout: Layout, field: PayloadField, rows: NDArray[Any], kinds: list[np.dtype[Any]]) -> None:
    if rows.dtype.kind not in "iu":
        raise _field_error(layout, field, 0, f"elements of type {rows.dtype} instead of integers")
    for column, kind in enumerate(kinds):
        values = rows[:, column]
        top = np.iinfo(kind).max
        if values.size and (int(values.min()) < 0 or int(values.max()) > top):
            worst = int(values.max()) if int(values.max()) > top else int(values.min())
            raise _field_error(layout, field, worst, f"an element outside 0..{top}")


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(wire,))
class Message:
    """Base class of all messages.

    Two messages are equal if they have the same class and the same bytes.
    """

    layout: ClassVar[Layout]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        attributes = dict(vars(cls))
        cls.layout = layout_of(cls.__name__, attributes, getattr(cls, "layout", None))
        for name, value in attributes.items():
            if name.startswith("_") and isinstance(value, dataclasses.Field):
                delattr(cls, name)  # on the wire, but not an attribute of the message
        dataclass(frozen=True, eq=False)(cls)

    def __post_init__(self) -> None:
        """Convert arrays to the number type of their field."""
        field = self.layout.array
        if field is not None and (field.element in _ELEMENTS or field.element == "u8"):
            convert = wire_bytes if field.element == "u8" else wire_array
            object.__setattr__(self, field.name, convert(self.layout, field, getattr(self, field.name)))

    def encode(self) -> bytes:
        """Return the payload bytes of this message. Raises ``FieldError`` for a value that does not fit."""
        values = dict(vars(self))
        field = self.layout.array
        if field is None:
            return pack_fixed(self.layout, values)
        array: NDArray[Any] | bytes = values[field.name]
        values.update(self._counts())
        return pack_fixed(self.layout, values) + (array if isinstance(array, bytes) else array.tobytes())

    def _counts(self) -> dict[str, int]:
        field = self.layout.array
        if field is None:
            return {}
        array: Any = getattr(self, field.name)
        shape = array.shape if isinstance(array, np.ndarray) else (len(array),)
        return dict(zip(field.counts, shape, strict=True))

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Return the message in a payload.

        Raises:
            PayloadError: The payload is too short.
            FieldError: A reply contains an unknown code.
        """
        values = unpack_fixed(cls.layout, payload)
        field = cls.layout.array
        if field is not None:
            # Every array has an explicit count. Its length does not follow from the
            # length of the payload, which can grow at its tail (section 5).
            shape = tuple(int(str(values.pop(name))) for name in field.counts)
            raw = need(cls.layout, field, payload, math.prod(shape) * ELEMENT_SIZES[field.element])
            dtype = _ELEMENTS.get(field.element)
            values[field.name] = raw if dtype is None else np.frombuffer(raw, dtype=dtype).reshape(shape)
        return cls(**values)

    def out_of_range(self) -> tuple[int, int] | None:
        """Return ``(payload offset, value)`` of the first field outside its range, or ``None``."""
        counts = self._counts()
        for field in self.layout.fixed:
            value = counts.get(field.name, getattr(self, field.name, None)) if field.name else None
            if isinstance(value, int) and not field.allows(value):
                return field.offset, int(value)
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and type(self) is type(other) and self.encode() == other.encode()

    def __hash__(self) -> int:
        return hash((type(self), self.encode()))
