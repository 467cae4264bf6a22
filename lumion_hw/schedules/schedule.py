"""A schedule: rounds of circuits between ranks, and the data sent over them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

from lumion_hw.errors import ConfigError

Collective = Literal[
    "all-reduce", "straggler all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast", "matchings"
]
"""Purpose of a schedule; ``matchings`` are circuits without data."""
COLLECTIVES: tuple[Collective, ...] = get_args(Collective)
Circuits = tuple[tuple[int, int], ...]
"""Directed circuits ``(sender, receiver)`` of one configuration, sorted."""
MAX_RANKS = 1024
"""Largest number of ranks."""


@dataclass(frozen=True)
class Transfer:
    """Data that one rank sends to another in one round.

    Attributes:
        source: Sending rank.
        target: Receiving rank.
        chunks: Numbers of the chunks (parts of the data), each once.
        adds: Whether the receiver adds the chunks to its own; otherwise they replace its own.
    """

    source: int
    target: int
    chunks: tuple[int, ...]
    adds: bool = False


@dataclass(frozen=True)
class ScheduleRound:
    """One round of a schedule: circuits that are up together, and the data sent over them.

    Attributes:
        circuits: Directed circuits, at most one from and one to each rank.
        transfers: Simultaneous transfers, each over one of the circuits.
    """

    circuits: Circuits
    transfers: tuple[Transfer, ...] = ()

    @property
    def pairs(self) -> Circuits:
        """Pairs of ranks that are connected in either direction, smaller rank first."""
        return tuple(sorted({(min(pair), max(pair)) for pair in self.circuits}))

    @property
    def max_chunks(self) -> int:
        """Number of chunks in the largest transfer, which determines the duration of the round."""
        return max((len(transfer.chunks) for transfer in self.transfers), default=0)


@dataclass(frozen=True)
class Schedule:
    """A sequence of rounds of circuits and transfers.

    Use :func:`lumion_hw.schedules.verify` to check that it does what its collective requires.

    Attributes:
        name: Name of the algorithm, such as ``ring``.
        ranks: Number of ranks, numbered from 0.
        chunks: Number of different chunks (parts of the data): ``ranks**2`` for an all-to-all, where block ``i * ranks
            + j`` goes from i to j; otherwise the parts of one rank's buffer.
        duplex: Whether a port always sends to the port from which it receives, so that every round pairs the ranks.

    Raises:
        ConfigError: The schedule is inconsistent; the message names the round and the rank.
    """

    name: str
    collective: Collective
    ranks: int
    chunks: int
    duplex: bool
    rounds: tuple[ScheduleRound, ...]

    def __post_init__(self) -> None:
        check_ranks(self.ranks, self.name)
        if self.collective not in COLLECTIVES:
            raise ConfigError(
                f"{self.name}: unknown collective {self.collective!r}", hint=f"Collectives: {', '.join(COLLECTIVES)}."
            )
        if self.collective == "all-to-all" and self.chunks != self.ranks**2:
            raise ConfigError(
                f"{self.name}: {self.chunks} chunks, but an all-to-all of {self.ranks} ranks has {self.ranks**2}"
            )
        if (self.chunks == 0) != (self.collective == "matchings") or self.chunks < 0:
            raise ConfigError(f"{self.name}: {self.chunks} chunks are not possible for {self.collective}")
        for number, round_ in enumerate(self.rounds):
            where = f"{self.name}, round {number}"
            _check_circuits(round_.circuits, self.ranks, self.duplex, where)
            _check_transfers(round_, self.chunks, where)

    @cached_property
    def parts(self) -> int:
        """Number of chunks into which one rank's buffer is divided."""
        return self.ranks if self.collective == "all-to-all" else self.chunks

    @cached_property
    def configurations(self) -> int:
        """Number of different circuit configurations in the schedule."""
        return len({round_.circuits for round_ in self.rounds})

    @cached_property
    def changes(self) -> tuple[frozenset[int], ...]:
        """Ranks with a port whose partner has changed since the port's last use, for each round."""
        to: dict[int, int] = {}
        by: dict[int, int] = {}
        changes = []
        for round_ in self.rounds:
            moved = [pair for pair in round_.circuits if to.get(pair[0]) != pair[1] or by.get(pair[1]) != pair[0]]
            for a, b in moved:
                # The former partners lose theirs.
                by.pop(to.pop(a, -1), None)
                to.pop(by.pop(b, -1), None)
                to[a], by[b] = b, a
            changes.append(frozenset(rank for pair in moved for rank in pair))
        return tuple(changes)

    @cached_property
    def programmings(self) -> int:
        """Number of rounds before which circuits must change, the first round included."""
        return sum(bool(change) for change in self.changes)

    def __str__(self) -> str:
        """Return one line per round: ``a-b x/y`` if a sends chunk x and b sends chunk y; ``a>b x`` if only a sends."""
        head = (
            f"{self.name}: {self.collective}, {self.ranks} ranks, {'duplex' if self.duplex else 'simplex'} ports, "
            f"{len(self.rounds)} rounds, {self.programmings} programmings"
        )
        width = len(str(len(self.rounds)))
        lines = (f"{number:>{width}}: {self._line(round_)}" for number, round_ in enumerate(self.rounds))
        return "\n".join([head, *lines])

    def _line(self, round_: ScheduleRound) -> str:
        sent = {
            (transfer.source, transfer.target): _spans(transfer.chunks) + "+" * transfer.adds
            for transfer in round_.transfers
        }
        if self.duplex:
            pairs = ((f"{a}-{b}", sent.get((a, b), "."), sent.get((b, a), ".")) for a, b in round_.pairs)
            return "  ".join(pair if not self.chunks else f"{pair} {x}/{y}" for pair, x, y in pairs)
        one_way = ((f"{a}>{b}", sent.get((a, b), ".")) for a, b in round_.circuits)
        return "  ".join(circuit if not self.chunks else f"{circuit} {x}" for circuit, x in one_way)


def both_directions(pairs: Iterable[tuple[int, int]]) -> Circuits:
    """Return the two directed circuits of each pair, sorted."""
    return tuple(sorted(circuit for a, b in pairs for circuit in ((a, b), (b, a))))


def check_ranks(
    ranks: int,
    description: str,
    *,
    power_of_two: bool = False,
    even: bool = False,
    minimum: int = 2,
    maximum: int = MAX_RANKS,
) -> None:
    """Check the number of ranks.

    Raises:
        ConfigError: The number is too small, too large, odd, or not a power of two; the message names possible numbers.
    """
    if not minimum <= ranks <= maximum:
        raise ConfigError(f"{description}: {ranks} ranks are not possible", hint=f"Give {minimum} to {maximum} ranks.")
    if power_of_two and ranks & (ranks - 1):
        below = 1 << (ranks.bit_length() - 1)
        raise ConfigError(
            f"{description} needs a power of two, not {ranks} ranks", hint=f"Use {below} or {2 * below} ranks."
        )
    if even and ranks % 2:
        raise ConfigError(
            f"{description} needs an even number of ranks, not {ranks}; with an odd number, one is idle in every round",
            hint=f"Use {ranks - 1} or {ranks + 1} ranks.",
        )


def _check_circuits(circuits: Circuits, ranks: int, duplex: bool, where: str) -> None:
    existing = set(circuits)
    for a, b in circuits:
        if not (0 <= a < ranks and 0 <= b < ranks):
            raise ConfigError(f"{where}: circuit {a} to {b} does not exist, because ranks are 0 to {ranks - 1}")
        if a == b:
            raise ConfigError(f"{where}: rank {a} is connected to itself")
        if duplex and (b, a) not in existing:
            raise ConfigError(
                f"{where}: circuit {a} to {b} has no return circuit; one-way permutations need simplex ports",
                hint="On duplex ports every round must be a matching.",
            )
    for side, word in ((0, "sends to"), (1, "receives from")):
        ends = [pair[side] for pair in circuits]
        if len(set(ends)) != len(ends):
            twice = next(rank for rank in ends if ends.count(rank) > 1)
            raise ConfigError(f"{where}: rank {twice} {word} two ranks at once, but has one port per direction")


def _check_transfers(round_: ScheduleRound, chunks: int, where: str) -> None:
    free = set(round_.circuits)
    for transfer in round_.transfers:
        if (pair := (transfer.source, transfer.target)) not in free:
            raise ConfigError(f"{where}: rank {pair[0]} sends to rank {pair[1]} twice, or without a circuit")
        free.discard(pair)
        if len(set(transfer.chunks)) != len(transfer.chunks) or not transfer.chunks:
            raise ConfigError(
                f"{where}: the transfer from {pair[0]} to {pair[1]} has no chunk, or the same chunk twice"
            )
        if unknown := [chunk for chunk in transfer.chunks if not 0 <= chunk < chunks]:
            raise ConfigError(
                f"{where}: chunk {unknown[0]} from {pair[0]} to {pair[1]} does not exist; there are {chunks} chunks"
            )


def _spans(chunks: tuple[int, ...]) -> str:
    spans: list[list[int]] = []
    for chunk in sorted(chunks):
        if spans and chunk == spans[-1][1] + 1:
            spans[-1][1] = chunk
        else:
            spans.append([chunk, chunk])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
