"""Circuits on request: a port is lent to one holder at a time, for a time, and taken back by the clock.

Who needs a circuit for a while (memory of another accelerator, say; AQUA, arXiv 2407.21255) asks for one between two
ports. A request is granted whole or refused with what stands in its way and when it could be met. Every lease has a
number that only grows, also over restarts: whoever holds an old one is refused, however long it was frozen.
This lends circuits; pages are moved by others.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path

from lumion_hw.circuits import CircuitRequest, PathSetup
from lumion_hw.clock import Clock
from lumion_hw.errors import ConfigError, LumionError, UnknownNameError
from lumion_hw.files import AnyPath
from lumion_hw.files.reading import MEGABYTE, read_json
from lumion_hw.files.writing import write_file

_FORMAT = "lumion-leases"
MAX_LEASE_S = 30 * 86_400.0


class LeaseRank(IntEnum):
    """Whose wish comes first. Only pre-emptible leases are cut short for others, by any rank above theirs."""

    PREEMPTIBLE = 0
    GUARANTEED = 1
    PHASES = 2
    RECOVERY = 3


@dataclass(frozen=True)
class LeaseRequest:
    """One wish for a circuit, both ways, between two ports.

    Attributes:
        holder: Who asks.
        port: Its port.
        partners: Ports of which any will do, the first that is free soonest being taken.
        duration_s: How long.
        wait_s: Latest start, from now.
        rank: Whose wish it is.
    """

    holder: str
    port: str
    partners: tuple[str, ...]
    duration_s: float
    wait_s: float = 0.0
    rank: LeaseRank = LeaseRank.PREEMPTIBLE

    def __post_init__(self) -> None:
        if not 0.0 < self.duration_s <= MAX_LEASE_S or not 0.0 <= self.wait_s <= MAX_LEASE_S:
            raise ConfigError(
                f"lease of {self.holder}: {self.duration_s} s, starting within {self.wait_s} s",
                hint=f"Give times of up to {MAX_LEASE_S:g} s.",
            )
        if not self.partners or self.port in self.partners:
            raise ConfigError(f"lease of {self.holder}: {self.port} to {', '.join(self.partners) or 'no port'}")


@dataclass(frozen=True)
class Lease:
    """A port pair lent to a holder.

    Attributes:
        number: Fencing number, larger than any before.
        holder: Who has it.
        ports: The two ports.
        starts_s: When it begins, on the clock of the table.
        ends_s: When it ends by itself.
        rank: Whose wish it was.
    """

    number: int
    holder: str
    ports: tuple[str, str]
    starts_s: float
    ends_s: float
    rank: LeaseRank

    def overlaps(self, port: str, starts_s: float, ends_s: float) -> bool:
        """Return whether it has a port at some time of a span."""
        return port in self.ports and self.starts_s < ends_s and starts_s < self.ends_s


class LeaseRefusedError(LumionError):
    """A circuit cannot be lent as asked; nothing was changed.

    Attributes:
        port: The port that stands in the way.
        earliest_s: When it could be, on the clock of the table.
    """

    exit_code = 6

    def __init__(self, message: str, *, port: str, earliest_s: float, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.port = port
        self.earliest_s = earliest_s


class StaleLeaseError(LumionError):
    """The number is of no lease that lasts; whoever shows it has to stop using the circuit."""


class LeaseTable:
    """All leases of one fabric.

    Not thread-safe. The owner calls :meth:`take_changes` at :attr:`next_s` or earlier, then sets up and takes down
    circuits accordingly.

    Args:
        clock: Time; its zero may differ from one program to the next, so leases end with the program.
        ports: Ports that can be lent.
        grace_s: Notice that the holder of a pre-empted lease has.
        path: File that keeps the last number, so that it grows over restarts.
    """

    def __init__(
        self, clock: Clock, ports: Sequence[str], *, grace_s: float = 1.0, path: AnyPath | None = None
    ) -> None:
        self._clock, self._ports, self._grace_s = clock, frozenset(ports), grace_s
        self._path = None if path is None else Path(path)
        self._number = 0 if self._path is None or not self._path.exists() else _last_number(self._path)
        self._leases: dict[int, Lease] = {}
        self._begun: set[int] = set()

    @property
    def leases(self) -> tuple[Lease, ...]:
        """Leases that last or are to begin, oldest number first."""
        return tuple(self._leases.values())

    @property
    def next_s(self) -> float:
        """When a lease begins or ends next; infinite if none does."""
        starts = [lease.starts_s for number, lease in self._leases.items() if number not in self._begun]
        return min([*starts, *(lease.ends_s for lease in self._leases.values())], default=math.inf)

    def request(self, wish: LeaseRequest) -> Lease:
        """Lend a circuit, from now or the earliest time that is early enough.

        Leases in the way that are pre-emptible and of lower rank end after the grace time.

        Raises:
            UnknownNameError: A port does not exist.
            LeaseRefusedError: It cannot begin in time.
        """
        self._check_ports((wish.port, *wish.partners))
        now_s = self._clock.now()
        options = [(self._free_from_s(wish, partner, None), partner) for partner in wish.partners]
        starts_s, partner = min(options, key=lambda option: option[0])
        if starts_s > now_s + wish.wait_s:
            options = [(self._free_from_s(wish, partner, wish.rank), partner) for partner in wish.partners]
            sooner_s, other = min(options, key=lambda option: option[0])
            if sooner_s > now_s + wish.wait_s:
                raise self._refusal(wish, partner, starts_s)
            starts_s, partner = sooner_s, other
            self._cut_short((wish.port, partner), starts_s, starts_s + wish.duration_s)
        number = self._next_number()
        lease = Lease(number, wish.holder, (wish.port, partner), starts_s, starts_s + wish.duration_s, wish.rank)
        self._leases[number] = lease
        return lease

    def renew(self, number: int, duration_s: float) -> Lease:
        """Let a lease last so long from now, under a new number; it is never made shorter.

        Raises:
            StaleLeaseError: It does not last any more, or the number is an old one.
            LeaseRefusedError: Another lease has one of the ports before that.
        """
        lease = self._lasting(number)
        if not 0.0 < duration_s <= MAX_LEASE_S:
            raise ConfigError(f"lease {number} renewed for {duration_s} s", hint=f"Give up to {MAX_LEASE_S:g} s.")
        ends_s = max(lease.ends_s, self._clock.now() + duration_s)
        for other in self._leases.values():
            port = next((port for port in lease.ports if other.overlaps(port, lease.ends_s, ends_s)), None)
            if other.number != number and port is not None:
                raise LeaseRefusedError(
                    f"lease {number} of {lease.holder} cannot last longer: {other.holder} has {port} then",
                    port=port,
                    earliest_s=other.ends_s,
                    hint=f"It ends {_in_s(lease.ends_s - self._clock.now())}.",
                )
        renewed = replace(lease, number=self._next_number(), ends_s=ends_s)
        if number in self._begun:
            self._begun = (self._begun - {number}) | {renewed.number}
        del self._leases[number]
        self._leases[renewed.number] = renewed
        return renewed

    def release(self, number: int) -> None:
        """End a lease now; the next :meth:`take_changes` reports it. Raises ``StaleLeaseError`` if it has ended."""
        self._end(self._lasting(number), self._clock.now())

    def revoke(self, port: str) -> tuple[Lease, ...]:
        """End all leases of a port that was lost, now, and return them."""
        self._check_ports((port,))
        lost = tuple(lease for lease in self._leases.values() if port in lease.ports)
        for lease in lost:
            self._end(lease, self._clock.now())
        return lost

    def take_changes(self) -> tuple[tuple[Lease, ...], tuple[Lease, ...]]:
        """Return the leases that have ended and those that have begun since it was called last, by the clock alone."""
        now_s = self._clock.now()
        over = [lease for lease in self._leases.values() if lease.ends_s <= now_s]
        ended = tuple(lease for lease in over if lease.number in self._begun)
        for lease in over:
            del self._leases[lease.number]
            self._begun.discard(lease.number)
        new = [each for each in self._leases.values() if each.starts_s <= now_s and each.number not in self._begun]
        self._begun |= {lease.number for lease in new}
        return ended, tuple(new)

    def _free_from_s(self, wish: LeaseRequest, partner: str, over: LeaseRank | None) -> float:
        """Return when both ports are free for long enough, pre-empting what is of lower rank if ``over`` is given."""
        now_s = self._clock.now()
        ports = (wish.port, partner)
        others = [lease for lease in self._leases.values() if set(lease.ports) & set(ports)]
        starts_s = [now_s]
        if over is not None:
            others = [lease for lease in others if not self._yields(lease, over)] + [
                replace(lease, ends_s=min(lease.ends_s, now_s + self._grace_s))
                for lease in others
                if self._yields(lease, over) and lease.starts_s < now_s + self._grace_s
            ]
        starts_s += [lease.ends_s for lease in others]
        return min(
            start_s
            for start_s in starts_s
            if start_s >= now_s
            and not any(lease.overlaps(port, start_s, start_s + wish.duration_s) for lease in others for port in ports)
        )

    def _yields(self, lease: Lease, rank: LeaseRank) -> bool:
        return lease.rank == LeaseRank.PREEMPTIBLE and rank > lease.rank

    def _cut_short(self, ports: Sequence[str], starts_s: float, ends_s: float) -> None:
        """End leases by the time when another begins."""
        for lease in self.leases:
            if any(lease.overlaps(port, starts_s, ends_s) for port in ports):
                self._end(lease, starts_s)

    def _end(self, lease: Lease, ends_s: float) -> None:
        """Let a lease end at a time; one that has not begun by then is dropped."""
        if lease.number not in self._begun and lease.starts_s >= ends_s:
            del self._leases[lease.number]
        else:
            self._leases[lease.number] = replace(lease, ends_s=min(lease.ends_s, ends_s))

    def _lasting(self, number: int) -> Lease:
        lease = self._leases.get(number)
        if lease is None or lease.ends_s <= self._clock.now():
            raise StaleLeaseError(
                f"lease {number} does not last any more", hint="Stop using its circuit, and request a new one."
            )
        return lease

    def _refusal(self, wish: LeaseRequest, partner: str, starts_s: float) -> LeaseRefusedError:
        now_s = self._clock.now()
        pairs = [(lease, port) for lease in self._leases.values() for port in (wish.port, partner)]
        lease, port = max(
            ((lease, port) for lease, port in pairs if lease.overlaps(port, now_s, starts_s)),
            key=lambda pair: pair[0].ends_s,
        )
        return LeaseRefusedError(
            f"no circuit for {wish.holder} within {wish.wait_s:g} s: {lease.holder} has {port}, lease {lease.number} "
            f"of rank {lease.rank.name.lower()}",
            port=port,
            earliest_s=starts_s,
            hint=f"It could begin {_in_s(starts_s - now_s)}.",
        )

    def _check_ports(self, ports: Sequence[str]) -> None:
        if unknown := [port for port in ports if port not in self._ports]:
            raise UnknownNameError(
                f"no port {unknown[0]!r} can be lent", hint=f"There are {', '.join(sorted(self._ports))}."
            )

    def _next_number(self) -> int:
        number = self._number + 1
        if self._path is not None:  # on disk before anyone can hold it
            text = json.dumps({"format": _FORMAT, "version": 1, "last_number": number}) + "\n"
            write_file(self._path, "last number of a lease", text)
        self._number = number
        return number


def serve_leases(setup: PathSetup, table: LeaseTable) -> tuple[tuple[Lease, ...], tuple[Lease, ...]]:
    """Take down the circuits of leases that have ended and set up those of leases that have begun, both ways.

    Ports are device names of modules. A circuit that cannot be set up ends its lease.

    Args:
        setup: Path set-up of the bench.
        table: The leases.

    Returns:
        What :meth:`LeaseTable.take_changes` returned.

    Raises:
        LumionError: A circuit could not be set up or proven; its lease has ended, all others are served.
    """
    ended, begun = table.take_changes()
    standing = set() if setup.active is None else {circuit.request for circuit in setup.active.circuits}
    gone = [request for lease in ended for request in _both_ways(lease) if request in standing]
    if gone:
        setup.disconnect(gone)
    failures: list[LumionError] = []
    for lease in begun:
        try:
            setup.connect(_both_ways(lease))
        except LumionError as error:
            table.release(lease.number)
            failures.append(error)
    if failures:
        raise failures[0] if len(failures) == 1 else ExceptionGroup("leased circuits could not be set up", failures)
    return ended, begun


def _both_ways(lease: Lease) -> list[CircuitRequest]:
    there = CircuitRequest(*lease.ports)
    return [there, there.reverse()]


def _last_number(path: Path) -> int:
    what = "last number of a lease"
    document = read_json(path, what, max_bytes=MEGABYTE)
    number = document.get("last_number") if isinstance(document, dict) and document.get("format") == _FORMAT else None
    if type(number) is not int or number < 0:
        raise ConfigError(f"{path} holds no {what}", hint="Restore it: old numbers must never come again.")
    return number


def _in_s(seconds: float) -> str:
    return f"in {seconds:.3g} s"
