"""Encodes and decodes sweeps for the controller (sweep images, sections 10.1 and 10.2)."""

from __future__ import annotations

import struct
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from firmware_protocol.codec import CODE_DTYPE, PAIR_DTYPE, pack_fixed, unpack_fixed, wire_array
from firmware_protocol.errors import ChannelError, FieldError, ImageError
from firmware_protocol.fields import Layout, PayloadField
from firmware_protocol.stream_codes import FULL_TABLE, IMAGE_VERSION, MAX_CHANGES, POINT_TIMING

IMAGE_LAYOUT = Layout(
    "SweepImageHeader",
    "",
    (
        PayloadField(0, "u8", "version", "", "1", "image version"),
        PayloadField(1, "u8", "img_flags", "bits", "", "b0 START_TABLE"),
        PayloadField(2, "u16", "n_avg", "", "1..4096", "scans averaged per point"),
        PayloadField(4, "u32", "n_points", "", "1..", "point records"),
        PayloadField(8, "u32", "settle_us", "µs", "", "default wait between the latch of a point and its first scan"),
        PayloadField(12, "u32", "dwell_us", "µs", "", "default least time from this latch to the next one"),
        PayloadField(
            16, "u8", "end_action", "", "0,1", "0 drive the base table again at the end, 1 keep the last point"
        ),
        PayloadField(17, "u8", "trigger", "", "0,1", "0 free running, 1 each point waits for the external trigger"),
        PayloadField(18, "u16", "mask_len", "B", "even", "0 = all monitor channels"),
        PayloadField(20, "u8[mask_len]", "mask", "bits", "", "bit i of byte j selects channel 8 j + i"),
    ),
)
"""Header of an encoded sweep (section 10.1)."""
_CHANGES = PayloadField(2, "pair[head]", "changes")
_CODES = PayloadField(2, "u16[n_dac]", "codes")
_HEAD = struct.Struct("<H")
_TIMES = struct.Struct("<II")

IMAGE_HEADER_SIZE = IMAGE_LAYOUT.fixed_size
"""Size of the header of an encoded sweep before its channel mask, in bytes."""


@dataclass(frozen=True)
class ImageHeader:
    """Header of an encoded sweep."""

    img_flags: int
    n_avg: int
    n_points: int
    settle_us: int
    dwell_us: int
    end_action: int
    trigger: int
    mask_len: int
    version: int = IMAGE_VERSION

    def check(self) -> None:
        """Raise ``ImageError`` for the first field outside its range."""
        for field in IMAGE_LAYOUT.fixed:
            value = getattr(self, field.name)
            is_odd = field.name == "mask_len" and value % 2
            if is_odd or not field.allows(value):
                raise ImageError(field.offset, f"`{field.name}` is {value}; {field.range} is allowed")


def changes_array(changes: object) -> NDArray[Any]:
    """Return a point's changes as a read-only array. Raises ``FieldError`` for a value that does not fit."""
    return wire_array(IMAGE_LAYOUT, _CHANGES, changes)


def codes_array(codes: object) -> NDArray[np.uint16]:
    """Return DAC codes as a read-only array. Raises ``FieldError`` for a value that does not fit."""
    return cast(NDArray[np.uint16], wire_array(IMAGE_LAYOUT, _CODES, codes))


def pack_header(header: ImageHeader) -> bytes:
    """Encode the header of a sweep. Raises ``ImageError`` for a value outside its range."""
    header.check()
    try:
        return pack_fixed(IMAGE_LAYOUT, asdict(header))
    except FieldError as error:
        raise ImageError(error.offset, f"`{error.field}` cannot hold {error.value}") from error


def pack_point(body: NDArray[Any], times: tuple[int, int] | None, *, is_complete: bool) -> bytes:
    """Encode one sweep point.

    ``body`` contains the changes, or the codes of all channels if ``is_complete`` is set. ``times`` is ``(settle_us,
    dwell_us)``, or ``None`` for the default times.

    Raises:
        ImageError: There are too many changes, or a time does not fit 32 bits.
    """
    if not is_complete and len(body) > MAX_CHANGES:
        raise ImageError(0, f"{len(body)} changes in one point, but at most {MAX_CHANGES} are allowed")
    head = (FULL_TABLE if is_complete else len(body)) | (0 if times is None else POINT_TIMING)
    try:
        tail = b"" if times is None else _TIMES.pack(*times)
    except struct.error as error:
        raise ImageError(_HEAD.size + body.nbytes, f"times of {times} µs do not fit 32 bits") from error
    return _HEAD.pack(head) + body.tobytes() + tail


class ImageReader:
    """Reads an encoded sweep for a board with ``n_dac`` heater channels."""

    def __init__(self, data: bytes, n_dac: int) -> None:
        self._data = bytes(data)
        self._n_dac = n_dac
        self._offset = 0

    def read(self, size: int, description: str, point: int | None = None) -> bytes:
        """Return the next ``size`` bytes. Raises ``ImageError`` if fewer are left."""
        end = self._offset + size
        if end > len(self._data):
            raise ImageError(
                self._offset, f"{description} needs {size} bytes, but {len(self._data) - self._offset} are left", point
            )
        chunk = self._data[self._offset : end]
        self._offset = end
        return chunk

    def header(self) -> ImageHeader:
        """Read the header. Raises ``ImageError`` for a field outside its range."""
        header = ImageHeader(
            **cast("dict[str, int]", unpack_fixed(IMAGE_LAYOUT, self.read(IMAGE_HEADER_SIZE, "the header")))
        )
        header.check()
        return header

    def table(self, point: int | None = None) -> NDArray[np.uint16]:
        """Read the codes of all channels."""
        raw = self.read(CODE_DTYPE.itemsize * self._n_dac, "a table", point)
        return np.frombuffer(raw, dtype=CODE_DTYPE)

    def point(self, number: int) -> tuple[NDArray[Any], NDArray[np.uint16] | None, tuple[int, int] | None]:
        """Read the next point and return ``(changes, table, times)``."""
        (head,) = _HEAD.unpack(self.read(_HEAD.size, "a point", number))
        count, changes, table = head & FULL_TABLE, np.empty(0, dtype=PAIR_DTYPE), None
        # The largest count that fits the field is not a number of changes; it means a whole table.
        if count == FULL_TABLE:
            table = self.table(number)
        else:
            changes = np.frombuffer(self.read(PAIR_DTYPE.itemsize * count, "the changes", number), dtype=PAIR_DTYPE)
            out_of_range = changes["channel"][changes["channel"] >= self._n_dac]
            # Check this now, not when the point is due: a sweep must not stop half way.
            if out_of_range.size:
                raise ChannelError(int(out_of_range[0]), self._n_dac, number)
        times = _TIMES.unpack(self.read(_TIMES.size, "the times", number)) if head & POINT_TIMING else None
        return changes, table, times

    def end(self) -> None:
        """Raise ``ImageError`` if bytes are left."""
        if self._offset != len(self._data):
            # More bytes mean another version or a damaged count; such an image must not drive heaters.
            raise ImageError(self._offset, f"there are {len(self._data) - self._offset} bytes after the last point")
