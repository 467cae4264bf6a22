"""Duration of schedules on a switch that needs time to change circuits.

A schedule takes A alpha + C b + P delta. A is the number of rounds, alpha the fixed time per round, C the number of
buffers over the busiest circuits, b the time to send one buffer, P the number of circuit changes, and delta the dark
time per change. Tables: docs/schedules.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from lumion_hw.errors import LimitError
from lumion_hw.schedules.collectives import MAX_PIECES
from lumion_hw.schedules.schedule import Schedule

MAX_DELTA_S = 86400.0
MAX_BUFFER_BYTES = 1e18
ADVISED_DELTAS_S = (1e-5, 1e-4, 1e-3, 1e-2)
"""Dark times for which :func:`advice` is given, from fast research switches to a MEMS switch."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


@dataclass(frozen=True)
class CostModel:
    """Rate of a fabric's ports, and the time that a round and a change of circuits take.

    Attributes:
        bytes_per_s: Rate of a port in one direction, in bytes (not bits) per second.
        alpha_s: Fixed time of a round, independent of its bytes.
        switching_s: Time from the request until light is at the receiver.
        relock_s: Time from the arrival of light until the receiver has locked.
        hidden_s: Part of these two times that overlaps with other traffic or computation.

    Raises:
        LimitError: A number is negative, not finite, or unreasonably large.
    """

    bytes_per_s: float
    alpha_s: float = 3e-6
    switching_s: float = 0.0
    relock_s: float = 0.0
    hidden_s: float = 0.0

    def __post_init__(self) -> None:
        _check("rate of a port", self.bytes_per_s, 1.0, 1e15, "B/s")
        for quantity in ("alpha_s", "switching_s", "relock_s", "hidden_s"):
            _check(quantity.removesuffix("_s"), getattr(self, quantity), 0.0, MAX_DELTA_S, "s")

    @property
    def delta_s(self) -> float:
        """Time per change of circuits in which a port is dark and nothing else can be done."""
        return max(0.0, self.switching_s + self.relock_s - self.hidden_s)

    def with_delta_s(self, delta_s: float) -> CostModel:
        """Return the cost model with a given dark time per change of circuits."""
        return replace(self, switching_s=delta_s, relock_s=0.0, hidden_s=0.0)


@dataclass(frozen=True)
class ScheduleCost:
    """Cost of a schedule as counts of rounds, circuit changes and transferred buffers.

    Attributes:
        programmings: Number of circuit changes, the first set-up included.
        buffers: Data over the busiest circuit in units of a rank's buffer, summed over the rounds.
        early_rounds: Number of rounds before a late rank joins.
        early_buffers: Data of these early rounds, counted like ``buffers``.
    """

    name: str
    rounds: int
    programmings: int
    buffers: float
    early_rounds: int = 0
    early_buffers: float = 0.0

    def time_s(
        self, model: CostModel, buffer_bytes: float, *, first_is_ready: bool = False, late_s: float = math.inf
    ) -> float:
        """Return the duration of the schedule in seconds, if all ranks are in step.

        Args:
            model: The fabric.
            buffer_bytes: Size of one rank's buffer, in bytes.
            first_is_ready: Whether the first circuits are already set up.
            late_s: Delay of the late rank in seconds, if there is one; during this time the early rounds run.

        Raises:
            LimitError: The buffer is negative, not finite, or too large.
        """
        b_s = _buffer_s(model, buffer_bytes)
        exposed_s = max(0.0, self.early_s(model, buffer_bytes) - late_s)
        dark_s = (self.programmings - first_is_ready) * model.delta_s
        return exposed_s + self.rounds * model.alpha_s + self.buffers * b_s + dark_s

    def early_s(self, model: CostModel, buffer_bytes: float) -> float:
        """Return the duration in s of the rounds before a late rank joins."""
        return self.early_rounds * model.alpha_s + self.early_buffers * _buffer_s(model, buffer_bytes)

    def break_even_delta_s(self, static: ScheduleCost, model: CostModel, buffer_bytes: float) -> float:
        """Return the dark time per change below which this schedule is faster than ``static``.

        Returns:
            Dark time in seconds; 0 if this schedule is never faster, infinite if it always is.
        """
        gain_s = self._latency_gain_s(static, model) + (static.buffers - self.buffers) * _buffer_s(model, buffer_bytes)
        extra_programmings = self.programmings - static.programmings
        if extra_programmings <= 0:
            return math.inf if gain_s > 0.0 else 0.0
        return max(0.0, gain_s / extra_programmings)

    def winning_range_bytes(self, static: ScheduleCost, model: CostModel) -> tuple[float, float] | None:
        """Return the smallest and largest buffer in bytes for which this schedule is faster, or ``None``."""
        gain_s = self._latency_gain_s(static, model) - (self.programmings - static.programmings) * model.delta_s
        slope = static.buffers - self.buffers
        if abs(slope) < 1e-12:
            return (0.0, math.inf) if gain_s > 0.0 else None
        edge = -gain_s / slope * model.bytes_per_s
        if slope > 0.0:
            return max(0.0, edge), math.inf
        return (0.0, edge) if edge > 0.0 else None

    def _latency_gain_s(self, static: ScheduleCost, model: CostModel) -> float:
        return (static.rounds - self.rounds) * model.alpha_s


def cost_of(schedule: Schedule) -> ScheduleCost:
    """Return the cost of a schedule; if a rank is late, the reduce-scatter before it arrives is included."""
    parts = max(schedule.parts, 1)
    buffers = sum(round_.max_chunks for round_ in schedule.rounds) / parts
    early = schedule.ranks - 2 if schedule.collective == "straggler all-reduce" else 0
    return ScheduleCost(schedule.name, len(schedule.rounds), schedule.programmings, buffers, early, early / parts)


def best_static(schedule: Schedule, model: CostModel, buffer_bytes: float) -> ScheduleCost | None:
    """Return the cost of the same collective on a fixed ring of circuits; ``None`` for a schedule without data.

    The ring has simplex ports or two ports per rank.
    """
    n = schedule.ranks
    pieces = _best_piece_count(n, model, buffer_bytes)
    steps = n - 1
    # Names, rounds and buffers. In a round a rank sends one of n parts; in an all-to-all, the blocks not yet delivered.
    rings: dict[str, tuple[str, int, float]] = {
        "all-reduce": ("ring", 2 * steps, 2 * steps / n),
        "straggler all-reduce": ("ring", 2 * steps, 2 * steps / n),
        "reduce-scatter": ("ring-reduce-scatter", steps, steps / n),
        "all-gather": ("ring-all-gather", steps, steps / n),
        "all-to-all": ("all-to-all-ring", steps, steps / 2),
        "broadcast": ("ring-broadcast", pieces + n - 2, (pieces + n - 2) / pieces),
    }
    if schedule.collective not in rings:
        return None
    name, rounds, buffers = rings[schedule.collective]
    return ScheduleCost(name, rounds, 1, buffers)


def _best_piece_count(ranks: int, model: CostModel, buffer_bytes: float) -> int:
    if model.alpha_s == 0.0:
        return MAX_PIECES
    best = math.sqrt((ranks - 2) * _buffer_s(model, buffer_bytes) / model.alpha_s)
    return min(max(round(best), 1), MAX_PIECES)


def port_times_s(schedule: Schedule, model: CostModel, buffer_bytes: float) -> tuple[float, tuple[float, ...]]:
    """Return the duration in s if ranks wait only for their partners, and each rank's dark time."""
    part_s = _buffer_s(model, buffer_bytes) / max(schedule.parts, 1)
    free, dark = [0.0] * schedule.ranks, [0.0] * schedule.ranks
    for round_, moved in zip(schedule.rounds, schedule.changes, strict=True):
        up = list(free)
        for rank in moved:
            up[rank] += model.delta_s
            dark[rank] += model.delta_s
            free[rank] = up[rank]
        for transfer in round_.transfers:
            finish_s = max(up[transfer.source], up[transfer.target]) + model.alpha_s + len(transfer.chunks) * part_s
            for rank in (transfer.source, transfer.target):
                free[rank] = max(free[rank], finish_s)
    return max(free), tuple(dark)


def advice(schedule: Schedule, model: CostModel, buffer_bytes: float) -> str:
    """Return a line that says when a schedule beats the fixed ring: ``at 10 ms never; at 10 µs from 4 MiB up``."""
    static = best_static(schedule, model, buffer_bytes)
    if static is None:
        return f"{schedule.name}: no fixed configuration does the same"
    own = cost_of(schedule)
    if own.programmings == static.programmings:
        return f"{schedule.name}: programmed only once, so the dark time does not matter"
    texts = []
    for delta_s in sorted({*ADVISED_DELTAS_S, model.delta_s}):
        won = own.winning_range_bytes(static, model.with_delta_s(delta_s))
        texts.append(f"at {time_text(delta_s)} {_range_text(won)}")
    return f"{schedule.name} against {static.name}: {'; '.join(reversed(texts))}"


def _range_text(won: tuple[float, float] | None) -> str:
    if won is None or won[0] > MAX_BUFFER_BYTES:
        return "never"
    low, high = won
    if math.isinf(high):
        return f"from {size_text(low)} up" if low > 0.0 else "always"
    return f"up to {size_text(high)}"


def size_text(count: float) -> str:
    """Return a number of bytes with three digits and a binary unit: ``4 MiB``."""
    power = min(int(math.log2(count) // 10), len(_UNITS) - 1) if count >= 1.0 else 0
    return f"{_digits(count / 1024.0**power)} {_UNITS[power]}"


def time_text(seconds: float) -> str:
    """Return a time with three digits and its unit: ``10 µs``."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= 0.9995 * scale:
            return f"{_digits(seconds / scale)} {unit}"
    return f"{_digits(seconds / 1e-9)} ns" if seconds else "0 s"


def _digits(number: float) -> str:
    return f"{number:.3g}" if number < 999.5 else f"{number:.0f}"


def _buffer_s(model: CostModel, buffer_bytes: float) -> float:
    _check("buffer", buffer_bytes, 0.0, MAX_BUFFER_BYTES, "B")
    return buffer_bytes / model.bytes_per_s


def _check(quantity: str, value: float, low: float, high: float, unit: str) -> None:
    if not low <= value <= high:  # NaN fails both
        limit = low if value < low else high
        raise LimitError(f"cannot use this {quantity} of a cost model", requested=value, limit=limit, unit=unit)
