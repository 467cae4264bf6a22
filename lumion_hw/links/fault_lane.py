"""Faults of one direction of a link."""

from __future__ import annotations

import math
import random
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lumion_hw.links.fault_plan import BYTE_KINDS, LINE_KINDS, Direction, FaultEvent, FaultKind, FaultRates


@dataclass
class _Chunk:
    """Bytes that arrive at ``due_s``."""

    due_s: float
    data: bytes


class FaultLane:
    """Damages, delays and reorders the bytes of one direction of a link.

    Args:
        direction: Direction in which the bytes travel.
        seed: Random seed.
    """

    def __init__(self, direction: Direction, seed: int) -> None:
        self.direction = direction
        self.counts: Counter[str] = Counter()
        self.stalled_until_s = -math.inf
        self.ended = False
        # One generator per purpose, so that more draws from one do not change the others.
        self._byte_dice = random.Random(f"{seed} {direction.value} bytes")
        self._shot_dice = random.Random(f"{seed} {direction.value} shots")
        self._chunk_dice = random.Random(f"{seed} {direction.value} pieces")
        self._queue: deque[_Chunk] = deque()
        self._held: _Chunk | None = None
        self._rates = FaultRates()
        self._events: list[FaultEvent] = []
        self._line_events: deque[FaultEvent] = deque()
        self._next_hit: float = math.inf

    def apply(self, rates: FaultRates, events: Iterable[FaultEvent]) -> None:
        """Replace the fault rates and events from the next byte on."""
        pending = sorted((e for e in events if e.at_byte >= self.counts["accepted"]), key=lambda event: event.at_byte)
        self._rates = rates
        self._line_events = deque(event for event in pending if event.kind in LINE_KINDS)
        self._events = [event for event in pending if event.kind not in LINE_KINDS]
        self._next_hit = self.counts["accepted"] - 1
        self._draw_next_hit()

    def line_event_due(self) -> FaultEvent | None:
        """Return and remove the next fault of the whole link if its byte count is reached, otherwise ``None``."""
        if self._line_events and self._line_events[0].at_byte <= self.counts["accepted"]:
            return self._line_events.popleft()
        return None

    def bytes_before_line_event(self, n_bytes: int) -> int:
        """Return how many of ``n_bytes`` can enter before the next fault of the whole link."""
        return min(n_bytes, self._line_events[0].at_byte - self.counts["accepted"]) if self._line_events else n_bytes

    def push(self, data: bytes, now_s: float) -> None:
        """Accept one chunk of bytes, apply random faults, and queue the result."""
        start = self.counts["accepted"]
        self.counts["accepted"] += len(data)
        rates, shots = self._rates, self._shots(start, start + len(data))
        if self.ended:
            # The random hits are still drawn, so that later bytes are damaged as they would have been.
            deque(self._random_hits(start + len(data)), maxlen=0)
            self.counts["swallowed"] += len(data)
            return
        damaged = self._with_hits(self._with_bursts(data, start, shots), start, shots)
        due_s = now_s + self._extra_s(FaultKind.DELAY, rates.delay, rates.delay_s, shots, "delays")
        gap_s = self._extra_s(FaultKind.SPLIT, rates.split, rates.gap_s, shots, "splits", default=-1.0)
        wait_s = self._extra_s(FaultKind.SWAP, rates.swap, rates.max_swap_wait_s, shots, None, default=-1.0)
        held, self._held = self._held, None
        if held is not None:
            self._queue.pop()  # the chunk waiting to swap is always the last in the queue
        cut = self._chunk_dice.randrange(1, len(damaged)) if gap_s >= 0 and len(damaged) > 1 else len(damaged)
        last = self._append(damaged[:cut], due_s)
        if cut < len(damaged):
            last = self._append(damaged[cut:], due_s + gap_s)
        if held is not None:
            self._append(held.data, last.due_s)
            self.counts["swaps"] += 1
        elif wait_s >= 0:
            last.due_s = max(last.due_s, now_s + wait_s)
            self._held = last

    def pop(self, now_s: float) -> bytes:
        """Return the oldest chunk whose delay has passed, or ``b""``."""
        while self._queue and self._queue[0].due_s <= now_s:
            chunk = self._queue.popleft()
            self._held = None if chunk is self._held else self._held
            if chunk.data:
                self.counts["delivered"] += len(chunk.data)
                return chunk.data
        return b""

    def next_due(self) -> float:
        """Return the time at which the oldest chunk leaves, or infinity without a queued chunk."""
        return self._queue[0].due_s if self._queue else math.inf

    def waiting(self) -> int:
        """Return the number of queued bytes."""
        return sum(len(chunk.data) for chunk in self._queue)

    def clear(self) -> None:
        """Discard all queued bytes."""
        self.counts["swallowed"] += self.waiting()
        self._queue.clear()
        self._held = None

    def _append(self, data: bytes, due_s: float) -> _Chunk:
        chunk = _Chunk(max(due_s, self._queue[-1].due_s if self._queue else due_s), data)
        self._queue.append(chunk)
        return chunk

    def _shots(self, start: int, end: int) -> list[FaultEvent]:
        shots = [event for event in self._events if start <= event.at_byte < end]
        if shots:
            self._events = [event for event in self._events if event not in shots]
        return shots

    def _extra_s(
        self,
        kind: FaultKind,
        rate: float,
        usual_s: float,
        shots: list[FaultEvent],
        count: str | None,
        default: float = 0.0,
    ) -> float:
        hit = bool(rate) and self._chunk_dice.random() < rate
        times = [event.duration_s for event in shots if event.kind is kind] + ([usual_s] if hit else [])
        if times and count is not None:
            self.counts[count] += 1
        return sum(times) if times else default

    def _with_bursts(self, data: bytes, start: int, shots: list[FaultEvent]) -> bytes:
        dice, rates = self._chunk_dice, self._rates
        bursts = [(event.at_byte - start, event.n_bytes) for event in shots if event.kind is FaultKind.BURST]
        if rates.burst and dice.random() < rates.burst:
            bursts.append((dice.randrange(len(data)), dice.randint(1, rates.burst_bytes)))
        damaged_bytes = bytearray(data)
        for index, length in bursts:
            noise = dice.randbytes(min(length, len(damaged_bytes) - index))
            damaged_bytes[index : index + len(noise)] = noise
            self.counts["bursts"] += 1
            self.counts["noise"] += len(noise)
        return bytes(damaged_bytes)

    def _with_hits(self, data: bytes, start: int, shots: list[FaultEvent]) -> bytes:
        hits = [
            (event.at_byte - start, event.kind, self._shot_dice.randrange(8))
            for event in shots
            if event.kind in BYTE_KINDS
        ]
        hits += [(index - start, kind, bit) for index, kind, bit in self._random_hits(start + len(data))]
        if not hits:
            return data
        damaged_bytes = [data[index : index + 1] for index in range(len(data))]
        for index, kind, bit in hits:
            if not damaged_bytes[index]:
                continue
            if kind is FaultKind.FLIP:
                damaged_bytes[index] = bytes([damaged_bytes[index][0] ^ 1 << bit]) + damaged_bytes[index][1:]
                self.counts["flipped"] += 1
            elif kind is FaultKind.DROP:
                self.counts["dropped"] += len(damaged_bytes[index])
                damaged_bytes[index] = b""
            else:
                damaged_bytes[index] += damaged_bytes[index][-1:]
                self.counts["duplicated"] += 1
        return b"".join(damaged_bytes)

    def _random_hits(self, end: int) -> Iterator[tuple[int, FaultKind, int]]:
        while self._next_hit < end:
            index = int(self._next_hit)
            weights = (self._rates.flip, self._rates.drop, self._rates.duplicate)
            yield index, self._byte_dice.choices(BYTE_KINDS, weights)[0], self._byte_dice.randrange(8)
            self._draw_next_hit()

    def _draw_next_hit(self) -> None:
        rate = self._rates.flip + self._rates.drop + self._rates.duplicate
        if rate <= 0.0:
            self._next_hit = math.inf
        elif rate < 1.0:
            # The distance between hits of a Bernoulli process is geometric. It is drawn by inversion, once per hit
            # instead of once per byte.
            self._next_hit += 1 + math.floor(math.log1p(-self._byte_dice.random()) / math.log1p(-rate))
        else:
            self._next_hit += 1
