"""Tracks which sweep records (one per point) exist, have arrived or are missing (sections 10.3 and 10.4).

The index of a record is ``pass × n_points + point``. The board stores the latest records in a ring and releases those
that the host acknowledged.
"""

from __future__ import annotations

from firmware_protocol.codec import Message
from firmware_protocol.fields import ELEMENT_SIZES
from firmware_protocol.frames import max_payload
from firmware_protocol.rules import is_newer
from firmware_protocol.stream_codes import MAX_RECORDS
from firmware_protocol.streams import later_limit


def run_records(n_points: int, repeat: int) -> int:
    """Return the number of records of a sweep. Raises ``ValueError`` for 2³¹ or more."""
    records = n_points * repeat
    if not 1 <= records <= MAX_RECORDS:
        raise ValueError(f"{n_points} points x {repeat} passes are {records} records; allowed: 1..{MAX_RECORDS}")
    return records


def record_index(pass_: int, point: int, n_points: int) -> int:
    """Return the index of a record; pass and point are counted from 0."""
    return pass_ * n_points + point


def record_position(index: int, n_points: int) -> tuple[int, int]:
    """Return pass and point of a record, both counted from 0."""
    return divmod(index, n_points)


def ring_capacity(sweep_ring: int, n_selected: int) -> int:
    """Return the number of records that fit into the controller's result memory (protocol section 6.1).

    Args:
        sweep_ring: Result memory in u16 values, from the HELLO reply.
        n_selected: Number of values per record, at least 1.
    """
    if n_selected < 1:
        raise ValueError("a record needs at least one value: select a monitor")
    return sweep_ring // n_selected


def max_elements(message: type[Message], mtu: int, row: int = 1) -> int:
    """Return how many array elements always fit into a message (section 2.4).

    Args:
        message: Class of the message, with an array.
        mtu: Largest frame in bytes.
        row: Number of elements that belong together.

    Raises:
        ValueError: The message has no array.
    """
    array = message.layout.array
    if array is None:
        raise ValueError(f"message {message.layout.name} has no array")
    room = max_payload(mtu) - message.layout.fixed_size
    return max(0, room // (ELEMENT_SIZES[array.element] * row)) if row else 0


class RecordRing:
    """The board's side of a sweep: which records are stored, sent and released.

    Args:
        capacity: Capacity of the result memory in records, at least 1.
        credit_limit: First index that must not be sent yet.
        overwrite: Whether to discard the oldest record instead of pausing if the memory is full.

    Attributes:
        produced: Number of records produced so far.
        oldest: Index of the oldest stored record.
        dropped: Number of records overwritten before the host acknowledged them.
        next_push: Index of the next record to send.
    """

    def __init__(self, capacity: int, credit_limit: int, *, overwrite: bool = False) -> None:
        if capacity < 1:
            raise ValueError("the result memory is too small for one record")
        self.capacity = capacity
        self.credit_limit = credit_limit
        self.overwrite = overwrite
        self.produced = 0
        self.oldest = 0
        self.dropped = 0
        self.next_push = 0

    @property
    def full(self) -> bool:
        """Whether the memory has no space for another record."""
        return self.produced - self.oldest >= self.capacity

    @property
    def paused(self) -> bool:
        """Whether the next point must wait for an acknowledgement of the host."""
        return self.full and not self.overwrite

    def produce(self) -> int:
        """Store the next record and return its index.

        Raises:
            ValueError: The ring is full and the run must pause.
        """
        if self.paused:
            raise ValueError(f"the ring holds {self.capacity} unacknowledged records: the run is paused")
        if self.full:
            self.oldest += 1
            self.dropped += 1
        self.produced += 1
        return self.produced - 1

    def acknowledge(self, up_to: int, credit_limit: int) -> None:
        """Release the records below ``up_to`` and raise the limit of records to send. Smaller values have no effect.

        Raises:
            ValueError: ``up_to`` is above the number of produced records; nothing changes.
        """
        if is_newer(up_to, self.produced):
            raise ValueError(f"up_to {up_to} is above the number of produced records, {self.produced}")
        self.oldest = later_limit(self.oldest, up_to)
        self.credit_limit = later_limit(self.credit_limit, credit_limit)

    def pushable(self) -> range:
        """Return the indexes of the records that can be sent now."""
        # Records that are no longer in the ring are not pushed, and events are
        # not sent again: the host requests missing records by index.
        first = max(self.next_push, self.oldest)
        room = (self.credit_limit - first) % (1 << 32) if is_newer(self.credit_limit, first) else 0
        return range(first, min(self.produced, first + room))

    def pushed(self, records: range) -> None:
        """Record that these records were sent."""
        self.next_push = max(self.next_push, records.stop)

    def readable(self, first: int, count: int) -> range | None:
        """Return the indexes of at most ``count`` stored records from ``first`` on.

        Returns ``None`` if the first record is no longer stored. A ``count`` of 0 gives an empty range.
        """
        # Refused, not answered from the oldest record on: the caller would get other records than it requested.
        if count and first < self.oldest:
            return None
        return range(first, first + max(0, min(count, self.produced - first)))


class RecordTrack:
    """The host's side of a sweep: which records have arrived, are missing, or can be acknowledged.

    The board may send ``window`` records beyond ``contiguous_end``, the index below which no record is missing.
    """

    def __init__(self, window: int) -> None:
        if window < 1:
            raise ValueError(f"the window is {window} records, but must be at least 1 so that a record can be sent")
        self.window = window
        self.contiguous_end = 0
        self._islands: list[range] = []

    def receive(self, first: int, count: int) -> list[range]:
        """Add received record indexes; return those that had not arrived before, ascending."""
        # Pushed and read records overlap, and frames can arrive twice: only records missing until now are new.
        fresh = [gap for gap in self.missing(first + count) if gap.stop > first]
        fresh = [range(max(gap.start, first), gap.stop) for gap in fresh]
        self._add(range(first, first + count))
        return fresh

    def missing(self, produced: int) -> list[range]:
        """Return the indexes below ``produced`` that have not arrived, ascending."""
        holes, start = [], self.contiguous_end
        for island in self._islands:
            if start < min(island.start, produced):
                holes.append(range(start, min(island.start, produced)))
            start = island.stop
        if start < produced:
            holes.append(range(start, produced))
        return holes

    def give_up(self, oldest: int) -> list[range]:
        """Stop waiting for records below ``oldest``, which the board no longer has; return the lost indexes."""
        missing = self.missing(oldest)
        if oldest > self.contiguous_end:
            self._add(range(self.contiguous_end, oldest))
        return missing

    def acknowledgement(self) -> tuple[int, int]:
        """Return the fields ``(up_to, credit_limit)`` of the next acknowledgement."""
        return self.contiguous_end, (self.contiguous_end + self.window) % (1 << 32)

    def _add(self, records: range) -> None:
        # A run can have 2³¹ records, so consecutive records are stored as one number
        # and later records as a few ranges.
        if records:
            self._islands.append(records)
            self._islands.sort(key=lambda island: island.start)
        merged: list[range] = []
        for island in self._islands:
            if island.start <= self.contiguous_end:
                self.contiguous_end = max(self.contiguous_end, island.stop)
            elif merged and island.start <= merged[-1].stop:
                merged[-1] = range(merged[-1].start, max(merged[-1].stop, island.stop))
            else:
                merged.append(island)
        self._islands = merged
