"""Sweeps that a controller runs by itself, and their encoding (section 10.1)."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firmware_protocol.codec import CODE_DTYPE, PAIR_DTYPE
from firmware_protocol.codes import Status
from firmware_protocol.config import Refusal
from firmware_protocol.errors import ChannelError, ImageError
from firmware_protocol.image_codec import (
    IMAGE_HEADER_SIZE,
    ImageHeader,
    ImageReader,
    changes_array,
    codes_array,
    pack_header,
    pack_point,
)
from firmware_protocol.masks import channels_from_mask
from firmware_protocol.messages import Codes, Records
from firmware_protocol.records import max_elements
from firmware_protocol.stream_codes import MAX_CHANGES, EndAction, ImageFlag, SweepTrigger
from firmware_protocol.stream_messages import SweepLoadRequest


@dataclass(frozen=True)
class PointTiming:
    """Times of one sweep point.

    Attributes:
        settle_us: Wait between setting the point and its first scan, in µs.
        dwell_us: Minimum time until the next point is set, in µs.
    """

    settle_us: int
    dwell_us: int


@dataclass(frozen=True, eq=False)
class SweepPoint:
    """One sweep point.

    Attributes:
        changes: Array of ``PAIR_DTYPE`` or rows of (channel, code). If a channel occurs twice, the last pair counts.
        table: Codes of all channels instead of ``changes``; ``None`` for changes.
        timing: Times of this point; ``None`` for the default times of the sweep.
    """

    changes: Records = field(default_factory=lambda: np.empty(0, dtype=PAIR_DTYPE))
    table: Codes | None = None
    timing: PointTiming | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "changes", changes_array(self.changes))
        if self.table is not None:
            object.__setattr__(self, "table", codes_array(self.table))

    def apply(self, table: NDArray[Any]) -> NDArray[np.uint16]:
        """Return the codes of all channels after this point; ``table`` contains those before."""
        if self.table is not None:
            return np.array(self.table, dtype=CODE_DTYPE)
        result = np.array(table, dtype=CODE_DTYPE)
        # If numpy assigns several values to one place, the last one counts. This is also the rule of section 10.1.
        result[self.changes["channel"]] = self.changes["code"]
        return result

    def encode(self) -> bytes:
        """Return this sweep point as bytes."""
        body = self.changes if self.table is None else self.table
        times = None if self.timing is None else (self.timing.settle_us, self.timing.dwell_us)
        return pack_point(body, times, is_complete=self.table is not None)


@dataclass(frozen=True, eq=False)
class SweepImage:
    """A sweep as the board stores it.

    Two objects are equal if they have the same bytes.

    Attributes:
        points: Sweep points, at least one. Each point changes the codes of the previous point.
        n_avg: Number of scans averaged per point, 1…4096.
        settle_us: Default wait between setting a point and its first scan, in µs.
        dwell_us: Default minimum time from one point to the next, in µs.
        end_action: Heater codes after the sweep.
        trigger: Start condition of each point; ``EXTERNAL`` needs the feature SWEEP_TRIGGER.
        mask: Channel mask of the monitors to record; empty for all.
        start_table: Codes before the first point; ``None`` for the codes driven at the start of the sweep.
    """

    points: tuple[SweepPoint, ...]
    n_avg: int = 1
    settle_us: int = 0
    dwell_us: int = 0
    end_action: EndAction = EndAction.BASE
    trigger: SweepTrigger = SweepTrigger.FREE
    mask: bytes = b""
    start_table: Codes | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", tuple(self.points))
        object.__setattr__(self, "mask", bytes(self.mask) + bytes(len(self.mask) % 2))
        if self.start_table is not None:
            object.__setattr__(self, "start_table", codes_array(self.start_table))

    def encode(self) -> bytes:
        """Return the sweep as bytes.

        Raises:
            ImageError: A value is outside its range, or codes of different length are mixed.
        """
        header = ImageHeader(
            img_flags=0 if self.start_table is None else ImageFlag.START_TABLE,
            n_avg=self.n_avg,
            n_points=len(self.points),
            settle_us=self.settle_us,
            dwell_us=self.dwell_us,
            end_action=self.end_action,
            trigger=self.trigger,
            mask_len=len(self.mask),
        )
        parts = [pack_header(header), self.mask]
        offset = IMAGE_HEADER_SIZE + len(self.mask)
        size = None if self.start_table is None else len(self.start_table)
        if self.start_table is not None:
            parts.append(self.start_table.tobytes())
            offset += len(parts[-1])
        for number, point in enumerate(self.points):
            if point.table is not None:
                size = len(point.table) if size is None else size
                if len(point.table) != size:
                    raise ImageError(offset, f"one table has {len(point.table)} codes, others have {size}", number)
            parts.append(point.encode())
            offset += len(parts[-1])
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes, n_dac: int, n_adc: int) -> SweepImage:
        """Decode an encoded sweep and check it (protocol section 10.2).

        ``n_dac`` and ``n_adc`` are the numbers of heater and monitor channels of the board.

        Raises:
            ImageError: A field is wrong or missing; the error gives its offset.
            ChannelError: A channel does not exist on the board.
        """
        reader = ImageReader(data, n_dac)
        header = reader.header()
        mask = reader.read(header.mask_len, "the mask")
        # The layout does not exclude a mask of zeros, with which a run would record nothing.
        if not channels_from_mask(mask, n_adc).size:
            raise ImageError(18, "the mask selects no monitor")
        start = reader.table() if header.img_flags & ImageFlag.START_TABLE else None
        points = []
        for number in range(header.n_points):
            changes, table, times = reader.point(number)
            points.append(SweepPoint(changes, table, None if times is None else PointTiming(*times)))
        reader.end()
        return cls(
            tuple(points),
            header.n_avg,
            header.settle_us,
            header.dwell_us,
            EndAction(header.end_action),
            SweepTrigger(header.trigger),
            mask,
            start,
        )

    def crc32(self) -> int:
        """Return the CRC-32 of the encoded sweep."""
        return zlib.crc32(self.encode())

    def monitors(self, n_adc: int) -> NDArray[np.intp]:
        """Return the recorded monitors, ascending. Raises ``ChannelError``."""
        return channels_from_mask(self.mask, n_adc)

    def timing(self, point: int) -> PointTiming:
        """Return the times of a point."""
        return self.points[point].timing or PointTiming(self.settle_us, self.dwell_us)

    def tables(self, base: NDArray[Any]) -> Iterator[NDArray[np.uint16]]:
        """Yield the codes of all channels at every point, each as a new array.

        Args:
            base: Codes driven at the start of the sweep, shape ``(n_dac,)``; ignored if there is a ``start_table``.
        """
        table = np.asarray(base if self.start_table is None else self.start_table, dtype=CODE_DTYPE)
        for point in self.points:
            table = point.apply(table)
            yield table

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SweepImage) and self.encode() == other.encode()

    def __hash__(self) -> int:
        return hash(self.encode())


def image_refusal(error: ImageError | ChannelError) -> Refusal:
    """Return the board's error reply for a wrong sweep (protocol section 10.2)."""
    if isinstance(error, ChannelError):
        return Refusal(Status.BAD_CHANNEL, error.channel, error.point, limit=error.channels)
    return Refusal(Status.BAD_VALUE, index=error.point, value=error.offset)


def delta_points(
    tables: Iterable[NDArray[Any]], base: NDArray[Any], timings: Sequence[PointTiming | None] | None = None
) -> tuple[SweepPoint, ...]:
    """Return sweep points for these codes, each encoded with the smaller number of bytes.

    Args:
        tables: Codes of all channels for each point, each of the shape of ``base``.
        base: Codes before the first point.
        timings: Times per point; ``None`` for the default times of the sweep.
    """
    points: list[SweepPoint] = []
    before = codes_array(base)
    for number, wanted in enumerate(tables):
        table = codes_array(wanted)
        if table.shape != before.shape:
            raise ValueError(f"table {number} has {table.size} codes, the base has {before.size}")
        changed = np.flatnonzero(table != before)
        timing = timings[number] if timings is not None else None
        # A pair needs four bytes, a code two. If more than half of the channels change, the whole table is shorter.
        if changed.size > MAX_CHANGES or changed.size * PAIR_DTYPE.itemsize > table.nbytes:
            points.append(SweepPoint(table=table, timing=timing))
        else:
            pairs = np.empty(changed.size, dtype=PAIR_DTYPE)
            pairs["channel"], pairs["code"] = changed, table[changed]
            points.append(SweepPoint(pairs, timing=timing))
        before = table
    return tuple(points)


def load_requests(sweep_id: int, image: bytes, mtu: int) -> Iterator[SweepLoadRequest]:
    """Yield the pieces of an encoded sweep in order, each as large as possible (protocol section 10.2).

    Args:
        sweep_id: Number that identifies the sweep, not 0.
        image: Encoded sweep.
        mtu: Largest frame that the board accepts, in bytes.
    """
    size, crc32 = max_elements(SweepLoadRequest, mtu), zlib.crc32(image)
    for offset in range(0, len(image), size):
        yield SweepLoadRequest(sweep_id, len(image), offset, crc32, image[offset : offset + size])
