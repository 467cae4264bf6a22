"""One direction of a fault link: bytes come in, are damaged by dice of their own, and go out when they are due."""

from __future__ import annotations

import math
import random
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lumion_hw.links.fault_plan import BYTE_KINDS, LINE_KINDS, Direction, FaultEvent, FaultKind, FaultRates


@dataclass
class _Piece:
    due_s: float
    data: bytes


class FaultLane:
    """One direction: damages bytes, holds pieces until they are due, and knows when its line events happen.

    Args:
        direction: Which way its bytes go.
        seed: Seed of all that is random; the two directions draw independently.
    """

    def __init__(self, direction: Direction, seed: int) -> None:
        self.direction = direction
        self.counts: Counter[str] = Counter()
        self.stalled_until_s = -math.inf
        self.ended = False
        # A generator for each purpose, so that asking one more often does not change what the others give.
        self._byte_dice = random.Random(f"{seed} {direction.value} bytes")
        self._shot_dice = random.Random(f"{seed} {direction.value} shots")
        self._piece_dice = random.Random(f"{seed} {direction.value} pieces")
        self._queue: deque[_Piece] = deque()
        self._held: _Piece | None = None
        self._rates = FaultRates()
        self._events: list[FaultEvent] = []
        self._line_events: deque[FaultEvent] = deque()
        self._next_hit: float = math.inf

    def apply(self, rates: FaultRates, events: Iterable[FaultEvent]) -> None:
        """Follow another plan from the next byte on."""
        ahead = sorted((e for e in events if e.at_byte >= self.counts["taken"]), key=lambda event: event.at_byte)
        self._rates = rates
        self._line_events = deque(event for event in ahead if event.kind in LINE_KINDS)
        self._events = [event for event in ahead if event.kind not in LINE_KINDS]
        self._next_hit = self.counts["taken"] - 1
        self._find_next_hit()

    def line_event_due(self) -> FaultEvent | None:
        """Take the next line event, if all bytes before it have come in."""
        if self._line_events and self._line_events[0].at_byte <= self.counts["taken"]:
            return self._line_events.popleft()
        return None

    def room(self, n_bytes: int) -> int:
        """Return how many of ``n_bytes`` come in before the next line event."""
        return min(n_bytes, self._line_events[0].at_byte - self.counts["taken"]) if self._line_events else n_bytes

    def push(self, data: bytes, now: float) -> None:
        """Take one piece; what is left of it is due now or later."""
        start = self.counts["taken"]
        self.counts["taken"] += len(data)
        rates, shots = self._rates, self._shots(start, start + len(data))
        if self.ended:
            # Drawn all the same, so that later bytes are hit as they would have been.
            deque(self._random_hits(start + len(data)), maxlen=0)  # these hit nothing
            self.counts["swallowed"] += len(data)
            return
        damaged = self._with_hits(self._with_bursts(data, start, shots), start, shots)
        due_s = now + self._extra_s(FaultKind.DELAY, rates.delay, rates.delay_s, shots, "delays")
        gap_s = self._extra_s(FaultKind.SPLIT, rates.split, rates.gap_s, shots, "splits", default=-1.0)
        wait_s = self._extra_s(FaultKind.SWAP, rates.swap, rates.patience_s, shots, None, default=-1.0)
        held, self._held = self._held, None
        if held is not None:
            self._queue.pop()  # it is the last: whatever follows it changes places with it
        cut = self._piece_dice.randrange(1, len(damaged)) if gap_s >= 0 and len(damaged) > 1 else len(damaged)
        last = self._append(damaged[:cut], due_s)
        if cut < len(damaged):
            last = self._append(damaged[cut:], due_s + gap_s)
        if held is not None:
            self._append(held.data, last.due_s)
            self.counts["swaps"] += 1
        elif wait_s >= 0:
            last.due_s = max(last.due_s, now + wait_s)
            self._held = last

    def pop(self, now: float) -> bytes:
        """Give the oldest piece that is due, or nothing."""
        while self._queue and self._queue[0].due_s <= now:
            piece = self._queue.popleft()
            self._held = None if piece is self._held else self._held
            if piece.data:
                self.counts["given"] += len(piece.data)
                return piece.data
        return b""

    def next_due(self) -> float:
        """Return when the oldest piece is due; infinity if there is none."""
        return self._queue[0].due_s if self._queue else math.inf

    def waiting(self) -> int:
        """Return the number of bytes under way."""
        return sum(len(piece.data) for piece in self._queue)

    def clear(self) -> None:
        """Lose what is under way."""
        self.counts["swallowed"] += self.waiting()
        self._queue.clear()
        self._held = None

    def _append(self, data: bytes, due_s: float) -> _Piece:
        piece = _Piece(max(due_s, self._queue[-1].due_s if self._queue else due_s), data)
        self._queue.append(piece)
        return piece

    def _shots(self, start: int, end: int) -> list[FaultEvent]:
        """Take the one-shot faults that belong to these bytes."""
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
        hit = bool(rate) and self._piece_dice.random() < rate
        times = [event.duration_s for event in shots if event.kind is kind] + ([usual_s] if hit else [])
        if times and count is not None:
            self.counts[count] += 1
        return sum(times) if times else default

    def _with_bursts(self, data: bytes, start: int, shots: list[FaultEvent]) -> bytes:
        dice, rates = self._piece_dice, self._rates
        bursts = [(event.at_byte - start, event.n_bytes) for event in shots if event.kind is FaultKind.BURST]
        if rates.burst and dice.random() < rates.burst:
            bursts.append((dice.randrange(len(data)), dice.randint(1, rates.burst_bytes)))
        out = bytearray(data)
        for at, length in bursts:
            noise = dice.randbytes(min(length, len(out) - at))
            out[at : at + len(noise)] = noise
            self.counts["bursts"] += 1
            self.counts["noise"] += len(noise)
        return bytes(out)

    def _with_hits(self, data: bytes, start: int, shots: list[FaultEvent]) -> bytes:
        hits = [
            (event.at_byte - start, event.kind, self._shot_dice.randrange(8))
            for event in shots
            if event.kind in BYTE_KINDS
        ]
        hits += [(at - start, kind, bit) for at, kind, bit in self._random_hits(start + len(data))]
        if not hits:
            return data
        out = [data[at : at + 1] for at in range(len(data))]
        for at, kind, bit in hits:
            if not out[at]:
                continue
            if kind is FaultKind.FLIP:
                out[at] = bytes([out[at][0] ^ 1 << bit]) + out[at][1:]
                self.counts["flipped"] += 1
            elif kind is FaultKind.DROP:
                self.counts["dropped"] += len(out[at])
                out[at] = b""
            else:
                out[at] += out[at][-1:]
                self.counts["duplicated"] += 1
        return b"".join(out)

    def _random_hits(self, end: int) -> Iterator[tuple[int, FaultKind, int]]:
        """Yield byte, fault and bit of every hit before ``end``; all is drawn hit by hit, however bytes are cut."""
        while self._next_hit < end:
            at = int(self._next_hit)
            weights = (self._rates.flip, self._rates.drop, self._rates.duplicate)
            yield at, self._byte_dice.choices(BYTE_KINDS, weights)[0], self._byte_dice.randrange(8)
            self._find_next_hit()

    def _find_next_hit(self) -> None:
        """Draw the distance to the next byte that is hit, so that unharmed bytes cost nothing."""
        rate = self._rates.flip + self._rates.drop + self._rates.duplicate
        if rate <= 0.0:
            self._next_hit = math.inf
        elif rate < 1.0:
            # The distance between hits of a Bernoulli process is geometric;
            # drawn by inversion, once per hit and not once per byte.
            self._next_hit += 1 + math.floor(math.log1p(-self._byte_dice.random()) / math.log1p(-rate))
        else:
            self._next_hit += 1
