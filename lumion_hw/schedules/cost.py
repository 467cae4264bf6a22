"""What schedules cost on a switch that needs time to change, and when a fixed configuration does better.

A round takes alpha + bytes / rate; before a round whose circuits are not up, ports that change their partner are dark
for delta. Summed over a schedule that is A alpha + C b + P delta with whole numbers of rounds A and programmings P, and
C buffers over the busiest circuits (b is the time of one buffer at the rate of a port): break-even points are exact.
Tables of published and computed figures are in docs/schedules.md.
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
"""From fast switches of research to what a slow controller or a MEMS switch needs."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


@dataclass(frozen=True)
class CostModel:
    """A fabric of ports, and how long it takes to change.

    Attributes:
        bytes_per_s: Rate of a port in one direction, in bytes (not bits) per second.
        alpha_s: Fixed cost of a round.
        switching_s: From the request until light is at the receiver: programming and settling.
        relock_s: From there until the receiver has locked.
        hidden_s: Other traffic or computation before each change, during which ports may already be switched.

    Raises:
        LimitError: A number is negative, not finite, or beyond what makes sense.
    """

    bytes_per_s: float
    alpha_s: float = 3e-6
    switching_s: float = 0.0
    relock_s: float = 0.0
    hidden_s: float = 0.0

    def __post_init__(self) -> None:
        _check("rate of a port", self.bytes_per_s, 1.0, 1e15, "B/s")
        for what in ("alpha_s", "switching_s", "relock_s", "hidden_s"):
            _check(what.removesuffix("_s"), getattr(self, what), 0.0, MAX_DELTA_S, "s")

    @property
    def delta_s(self) -> float:
        """Dark time that is not hidden, per change of a port's partner."""
        return max(0.0, self.switching_s + self.relock_s - self.hidden_s)

    def with_delta_s(self, delta_s: float) -> CostModel:
        """Return the model with another dark time, nothing of it hidden."""
        return replace(self, switching_s=delta_s, relock_s=0.0, hidden_s=0.0)


@dataclass(frozen=True)
class ScheduleCost:
    """How often a schedule pays each price.

    Attributes:
        name: The schedule's.
        rounds: Rounds, each alpha.
        programmings: Changes of circuits, each delta; the first one included.
        buffers: Buffers of a rank that pass over the busiest circuit, summed over the rounds.
        early_rounds: Rounds before, which may be hidden while a late rank is awaited.
        early_buffers: Buffers of these rounds.
    """

    name: str
    rounds: int
    programmings: int
    buffers: float
    early_rounds: int = 0
    early_buffers: float = 0.0

    def time_s(
        self, model: CostModel, buffer_bytes: float, *, standing: bool = False, late_s: float = math.inf
    ) -> float:
        """Return how long it takes, all ranks in step.

        Args:
            model: The fabric.
            buffer_bytes: Buffer of one rank.
            standing: Whether the first configuration is already up.
            late_s: How late the straggler is, if the schedule is for one; by default late enough.

        Raises:
            LimitError: The buffer is negative, not finite, or larger than any.
        """
        b_s = _buffer_s(model, buffer_bytes)
        exposed_s = max(0.0, self.early_s(model, buffer_bytes) - late_s)
        dark_s = (self.programmings - standing) * model.delta_s
        return exposed_s + self.rounds * model.alpha_s + self.buffers * b_s + dark_s

    def early_s(self, model: CostModel, buffer_bytes: float) -> float:
        """Return how late a straggler has to be for the rounds before it to be hidden, without their programming."""
        return self.early_rounds * model.alpha_s + self.early_buffers * _buffer_s(model, buffer_bytes)

    def break_even_delta_s(self, static: ScheduleCost, model: CostModel, buffer_bytes: float) -> float:
        """Return the dark time below which this is faster than another that programs less often.

        Returns:
            Seconds; 0 if it is never faster, infinite if it is always.
        """
        gain_s = self._gain_s(static, model) + (static.buffers - self.buffers) * _buffer_s(model, buffer_bytes)
        more = self.programmings - static.programmings
        if more <= 0:
            return math.inf if gain_s > 0.0 else 0.0
        return max(0.0, gain_s / more)

    def winning_range_bytes(self, static: ScheduleCost, model: CostModel) -> tuple[float, float] | None:
        """Return from and up to which buffer this beats another at the model's dark time; ``None`` if never."""
        gain_s = self._gain_s(static, model) - (self.programmings - static.programmings) * model.delta_s
        slope = static.buffers - self.buffers
        if abs(slope) < 1e-12:
            return (0.0, math.inf) if gain_s > 0.0 else None
        edge = -gain_s / slope * model.bytes_per_s
        if slope > 0.0:
            return max(0.0, edge), math.inf
        return (0.0, edge) if edge > 0.0 else None

    def _gain_s(self, static: ScheduleCost, model: CostModel) -> float:
        return (static.rounds - self.rounds) * model.alpha_s


def cost_of(schedule: Schedule) -> ScheduleCost:
    """Return how often a schedule pays each price; of a straggler's, the reduce-scatter before it is told apart."""
    parts = max(schedule.parts, 1)
    buffers = sum(each.max_chunks for each in schedule.rounds) / parts
    early = schedule.ranks - 2 if schedule.collective == "straggler all-reduce" else 0
    return ScheduleCost(schedule.name, len(schedule.rounds), schedule.programmings, buffers, early, early / parts)


def best_static(schedule: Schedule, model: CostModel, buffer_bytes: float) -> ScheduleCost | None:
    """Return what the same costs over one configuration that stays: a ring.

    A broadcast goes along it in the number of pieces that is best for this buffer.

    Returns:
        The cost of a schedule of :func:`~lumion_hw.schedules.make_schedule`, which needs simplex ports or two ports per
        rank; ``None`` for matchings without data.
    """
    n = schedule.ranks
    pieces = _best_pieces(n, model, buffer_bytes)
    steps = n - 1
    # Names, rounds and buffers: in a round a rank sends one of n parts, of an all-to-all what still has to go on.
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


def _best_pieces(ranks: int, model: CostModel, buffer_bytes: float) -> int:
    """Return the k that makes (n - 2 + k)(alpha + b / k) least, or as many as there may be."""
    if model.alpha_s == 0.0:
        return MAX_PIECES
    best = math.sqrt((ranks - 2) * _buffer_s(model, buffer_bytes) / model.alpha_s)
    return min(max(round(best), 1), MAX_PIECES)


def port_times_s(schedule: Schedule, model: CostModel, buffer_bytes: float) -> tuple[float, tuple[float, ...]]:
    """Return when the last rank is done if none waits for others than its partners, and each rank's dark time.

    A port whose partner stays keeps sending while others are dark, and one that is idle is switched ahead.

    Returns:
        Seconds to the end, and dark seconds by rank.
    """
    part_s = _buffer_s(model, buffer_bytes) / max(schedule.parts, 1)
    free, dark = [0.0] * schedule.ranks, [0.0] * schedule.ranks
    for each, moved in zip(schedule.rounds, schedule.changes, strict=True):
        up = list(free)
        for rank in moved:
            up[rank] += model.delta_s
            dark[rank] += model.delta_s
            free[rank] = up[rank]
        for one in each.transfers:
            done = max(up[one.source], up[one.target]) + model.alpha_s + len(one.chunks) * part_s
            for rank in (one.source, one.target):
                free[rank] = max(free[rank], done)
    return max(free), tuple(dark)


def advice(schedule: Schedule, model: CostModel, buffer_bytes: float) -> str:
    """Return in one line when a schedule beats the fixed ring: ``at 10 ms never; at 10 µs from 4 MiB up``."""
    static = best_static(schedule, model, buffer_bytes)
    if static is None:
        return f"{schedule.name}: nothing fixed does the same"
    own = cost_of(schedule)
    if own.programmings == static.programmings:
        return f"{schedule.name}: programmed once, whatever a change takes"
    said = []
    for delta_s in sorted({*ADVISED_DELTAS_S, model.delta_s}):
        won = own.winning_range_bytes(static, model.with_delta_s(delta_s))
        said.append(f"at {time_text(delta_s)} {_range_text(won)}")
    return f"{schedule.name} against {static.name}: {'; '.join(reversed(said))}"


def _range_text(won: tuple[float, float] | None) -> str:
    if won is None or won[0] > MAX_BUFFER_BYTES:
        return "never"
    least, most = won
    if math.isinf(most):
        return f"from {size_text(least)} up" if least > 0.0 else "always"
    return f"up to {size_text(most)}"


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


def _check(what: str, value: float, least: float, most: float, unit: str) -> None:
    if not least <= value <= most:  # NaN fails both
        limit = least if value < least else most
        raise LimitError(f"{what} of a cost model", requested=value, limit=limit, unit=unit)
