"""Record indexes of a sweep, both sides, without the records themselves (sections 10.3 and 10.4).

A record's index is ``pass × n_points + point``. The board keeps the newest records in a ring, pushes those below an
absolute limit and releases those the host has acknowledged; the host asks for the holes by index.
"""

from __future__ import annotations

from firmware_protocol.codec import Message
from firmware_protocol.fields import ELEMENT_SIZES
from firmware_protocol.frames import max_payload
from firmware_protocol.rules import is_newer
from firmware_protocol.stream_codes import MAX_RECORDS
from firmware_protocol.streams import later_limit


def run_records(n_points: int, repeat: int) -> int:
    """Return the records of a run. Raises ``ValueError`` when they are 2³¹ or more (BAD_VALUE of ``repeat``)."""
    records = n_points * repeat
    if not 1 <= records <= MAX_RECORDS:
        raise ValueError(f"{n_points} points x {repeat} passes are {records} records; 1..{MAX_RECORDS} are possible")
    return records


def record_index(pass_: int, point: int, n_points: int) -> int:
    """Return the index of the record of ``point`` in pass ``pass_``, both counted from 0."""
    return pass_ * n_points + point


def record_position(index: int, n_points: int) -> tuple[int, int]:
    """Return ``(pass, point)`` of a record, both counted from 0."""
    return divmod(index, n_points)


def ring_capacity(sweep_ring: int, n_selected: int) -> int:
    """Return how many records the result memory holds: ``sweep_ring // n_selected`` (section 6.1).

    Args:
        sweep_ring: Result memory in u16 values, as HELLO gives it.
        n_selected: Values per record, at least 1.
    """
    if n_selected < 1:
        raise ValueError("a record holds at least one value")
    return sweep_ring // n_selected


def max_elements(message: type[Message], mtu: int, row: int = 1) -> int:
    """Return how many elements of its array one message can carry under an MTU, whatever their values (section 2.4).

    Args:
        message: Class of the message, with an array.
        mtu: Largest frame in bytes on the wire.
        row: Elements that belong together: values per record for SWEEP_DATA and SWEEP_READ.

    Raises:
        ValueError: The message has no array.
    """
    array = message.layout.array
    if array is None:
        raise ValueError(f"{message.layout.name} carries no array")
    room = max_payload(mtu) - message.layout.fixed_size
    return max(0, room // (ELEMENT_SIZES[array.element] * row)) if row else 0


class RecordRing:
    """The board's side of a run: which records are held, pushed and released.

    Args:
        capacity: Records the result memory holds, at least 1.
        credit_limit: Limit of the SWEEP_START.
        overwrite: On a full ring discard the oldest record instead of pausing (OVERWRITE).

    Attributes:
        produced: Records produced; the index of the next one.
        oldest: Oldest record still held.
        dropped: Records overwritten before the host had acknowledged them.
        next_push: Index of the next record to push, unless the ring has lost it.
    """

    def __init__(self, capacity: int, credit_limit: int, *, overwrite: bool = False) -> None:
        if capacity < 1:
            raise ValueError("the result memory does not hold a single record")
        self.capacity = capacity
        self.credit_limit = credit_limit
        self.overwrite = overwrite
        self.produced = 0
        self.oldest = 0
        self.dropped = 0
        self.next_push = 0

    @property
    def full(self) -> bool:
        """No place is free."""
        return self.produced - self.oldest >= self.capacity

    @property
    def paused(self) -> bool:
        """The next point has to wait until the host acknowledges."""
        return self.full and not self.overwrite

    def produce(self) -> int:
        """Return the index of the record that is stored now.

        Raises:
            ValueError: The ring is full and the run has to pause.
        """
        if self.paused:
            raise ValueError(f"the ring holds {self.capacity} unacknowledged records: the run is paused")
        if self.full:
            self.oldest += 1
            self.dropped += 1
        self.produced += 1
        return self.produced - 1

    def acknowledge(self, up_to: int, credit_limit: int) -> None:
        """Release the records below ``up_to`` and move the push limit; neither moves back.

        Raises:
            ValueError: ``up_to`` is beyond what was produced (BAD_VALUE of ``up_to``); nothing changes.
        """
        if is_newer(up_to, self.produced):
            raise ValueError(f"up_to {up_to} is beyond the {self.produced} records produced")
        self.oldest = later_limit(self.oldest, up_to)
        self.credit_limit = later_limit(self.credit_limit, credit_limit)

    def pushable(self) -> range:
        """Return the indexes that may be pushed now: held, not pushed yet and below the limit."""
        # What has left the ring is not pushed any more, and events
        # are not sent again: the host asks for holes by index.
        first = max(self.next_push, self.oldest)
        room = (self.credit_limit - first) % (1 << 32) if is_newer(self.credit_limit, first) else 0
        return range(first, min(self.produced, first + room))

    def pushed(self, records: range) -> None:
        """Note that these records were put into a SWEEP_DATA event."""
        self.next_push = max(self.next_push, records.stop)

    def readable(self, first: int, count: int) -> range | None:
        """Return the indexes SWEEP_READ delivers: ``min(count, produced − first)`` from ``first``.

        ``None`` when the first one is no longer held: OVERFLOW with ``value`` = ``oldest``. A ``count`` of 0 asks for
        the state alone and is always answered.
        """
        # Refused rather than answered from the oldest one: the caller would take other records for those it asked for.
        if count and first < self.oldest:
            return None
        return range(first, first + max(0, min(count, self.produced - first)))


class RecordTrack:
    """The host's side of a run: which records have arrived, which are missing, what to acknowledge.

    Args:
        window: Records the host lets the board push ahead of what it has in a row.

    Attributes:
        in_a_row: Every record below this index has arrived or was given up.
    """

    def __init__(self, window: int) -> None:
        if window < 1:
            raise ValueError(f"a window of {window} records would never let one pass")
        self.window = window
        self.in_a_row = 0
        self._islands: list[range] = []

    def receive(self, first: int, count: int) -> list[range]:
        """Take the indexes of a SWEEP_DATA or SWEEP_READ and return those that are new, ascending."""
        # Pushed and read records overlap, and frames may arrive twice: only what was missing so far counts as new.
        fresh = [gap for gap in self.missing(first + count) if gap.stop > first]
        fresh = [range(max(gap.start, first), gap.stop) for gap in fresh]
        self._join(range(first, first + count))
        return fresh

    def missing(self, produced: int) -> list[range]:
        """Return the holes below ``produced``, ascending: what SWEEP_READ has to fetch."""
        holes, start = [], self.in_a_row
        for island in self._islands:
            if start < min(island.start, produced):
                holes.append(range(start, min(island.start, produced)))
            start = island.stop
        if start < produced:
            holes.append(range(start, produced))
        return holes

    def give_up(self, oldest: int) -> list[range]:
        """Note that the board no longer holds what is older than ``oldest``; return the indexes lost by that."""
        lost = self.missing(oldest)
        if oldest > self.in_a_row:
            self._join(range(self.in_a_row, oldest))
        return lost

    def acknowledgement(self) -> tuple[int, int]:
        """Return ``(up_to, credit_limit)`` for the next SWEEP_ACK."""
        return self.in_a_row, (self.in_a_row + self.window) % (1 << 32)

    def _join(self, records: range) -> None:
        # Records in a row are kept as one number, the rest as a few
        # islands behind the holes: a run may have 2³¹ records.
        if records:
            self._islands.append(records)
            self._islands.sort(key=lambda island: island.start)
        merged: list[range] = []
        for island in self._islands:
            if island.start <= self.in_a_row:
                self.in_a_row = max(self.in_a_row, island.stop)
            elif merged and island.start <= merged[-1].stop:
                merged[-1] = range(merged[-1].start, max(merged[-1].stop, island.stop))
            else:
                merged.append(island)
        self._islands = merged
