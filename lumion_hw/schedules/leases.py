"""Leases of circuits: two ports and their circuit are reserved for one holder, for a limited time.

Each lease has a larger number than all earlier ones, even over restarts, so that outdated requests can be refused. This
module moves no data. Example of use: AQUA, arXiv 2407.21255.
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
    """Priority of a lease. Only pre-emptible leases are ended early, by requests of any higher priority."""

    PREEMPTIBLE = 0
    GUARANTEED = 1
    PHASES = 2
    RECOVERY = 3


@dataclass(frozen=True)
class LeaseRequest:
    """Request for a circuit in both directions between two ports.

    Attributes:
        partners: Possible partner ports; the one that is free soonest is used.
        wait_s: Longest acceptable wait until the start, in seconds.
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
                f"lease of {self.holder} for {self.duration_s} s, starting within {self.wait_s} s: out of range",
                hint=f"Give a duration and a wait of up to {MAX_LEASE_S:g} s.",
            )
        if not self.partners or self.port in self.partners:
            raise ConfigError(
                f"lease of {self.holder} from {self.port} to {', '.join(self.partners) or 'no port'}: name other ports"
            )


@dataclass(frozen=True)
class Lease:
    """Two ports and the circuit between them, reserved for one holder.

    Attributes:
        number: Larger than that of any earlier lease.
        starts_s: Start in seconds, on the clock of the lease table.
        ends_s: End in seconds, on the same clock.
    """

    number: int
    holder: str
    ports: tuple[str, str]
    starts_s: float
    ends_s: float
    rank: LeaseRank

    def overlaps(self, port: str, starts_s: float, ends_s: float) -> bool:
        """Return whether the lease uses a port during part of a time span."""
        return port in self.ports and self.starts_s < ends_s and starts_s < self.ends_s


class LeaseRefusedError(LumionError):
    """The requested lease is refused; nothing was changed.

    Attributes:
        port: The port that is in use.
        earliest_s: Earliest possible start in seconds, on the clock of the lease table.
    """

    exit_code = 6

    def __init__(self, message: str, *, port: str, earliest_s: float, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.port = port
        self.earliest_s = earliest_s


class StaleLeaseError(LumionError):
    """The lease number belongs to no current lease; a program that still uses the circuit must stop."""


class LeaseTable:
    """All leases of one fabric. Not thread-safe.

    Call :meth:`take_changes` at :attr:`next_s` or earlier, then change circuits accordingly.

    Args:
        ports: Ports that can be reserved.
        grace_s: Time in seconds until a lease ends that a request of higher priority replaces.
        path: File that stores the last lease number.
    """

    def __init__(
        self, clock: Clock, ports: Sequence[str], *, grace_s: float = 1.0, path: AnyPath | None = None
    ) -> None:
        self._clock, self._ports, self._grace_s = clock, frozenset(ports), grace_s
        self._path = None if path is None else Path(path)
        self._number = 0 if self._path is None or not self._path.exists() else _last_number(self._path)
        self._leases: dict[int, Lease] = {}
        self._started: set[int] = set()

    @property
    def leases(self) -> tuple[Lease, ...]:
        """Current and future leases, lowest number first."""
        return tuple(self._leases.values())

    @property
    def next_s(self) -> float:
        """Time of the next start or end of a lease; infinite if there is none."""
        starts = [lease.starts_s for number, lease in self._leases.items() if number not in self._started]
        return min([*starts, *(lease.ends_s for lease in self._leases.values())], default=math.inf)

    def request(self, requested: LeaseRequest) -> Lease:
        """Return a lease that starts now or within the requested wait.

        Conflicting leases that are pre-emptible and of lower priority end after the grace time.

        Raises:
            UnknownNameError: A port does not exist.
            LeaseRefusedError: The lease cannot begin in time.
        """
        self._check_ports((requested.port, *requested.partners))
        now_s = self._clock.now()
        options = [(self._earliest_start_s(requested, partner, None), partner) for partner in requested.partners]
        starts_s, partner = min(options, key=lambda option: option[0])
        if starts_s > now_s + requested.wait_s:
            options = [
                (self._earliest_start_s(requested, partner, requested.rank), partner) for partner in requested.partners
            ]
            earliest_s, other = min(options, key=lambda option: option[0])
            if earliest_s > now_s + requested.wait_s:
                raise self._refusal(requested, partner, starts_s)
            starts_s, partner = earliest_s, other
            self._cut_short((requested.port, partner), starts_s, starts_s + requested.duration_s)
        number = self._next_number()
        lease = Lease(
            number,
            requested.holder,
            (requested.port, partner),
            starts_s,
            starts_s + requested.duration_s,
            requested.rank,
        )
        self._leases[number] = lease
        return lease

    def renew(self, number: int, duration_s: float) -> Lease:
        """Extend a lease to end ``duration_s`` from now, under a new number; a lease is never shortened.

        Raises:
            StaleLeaseError: The lease has ended, or the number was replaced by a renewal.
            LeaseRefusedError: Another lease uses one of the ports during the extension.
        """
        lease = self._current_lease(number)
        if not 0.0 < duration_s <= MAX_LEASE_S:
            raise ConfigError(
                f"lease {number} cannot be renewed for {duration_s} s",
                hint=f"Give a duration of up to {MAX_LEASE_S:g} s.",
            )
        ends_s = max(lease.ends_s, self._clock.now() + duration_s)
        for other in self._leases.values():
            port = next((port for port in lease.ports if other.overlaps(port, lease.ends_s, ends_s)), None)
            if other.number != number and port is not None:
                raise LeaseRefusedError(
                    f"lease {number} of {lease.holder} cannot be extended: port {port} is then reserved for "
                    f"{other.holder}",
                    port=port,
                    earliest_s=other.ends_s,
                    hint=f"The lease ends {_seconds_text(lease.ends_s - self._clock.now())}.",
                )
        renewed = replace(lease, number=self._next_number(), ends_s=ends_s)
        if number in self._started:
            self._started = (self._started - {number}) | {renewed.number}
        del self._leases[number]
        self._leases[renewed.number] = renewed
        return renewed

    def release(self, number: int) -> None:
        """End a lease now.

        Raises:
            StaleLeaseError: The lease has ended already.
        """
        self._end_lease(self._current_lease(number), self._clock.now())

    def revoke(self, port: str) -> tuple[Lease, ...]:
        """End all leases of a failed port, and return them."""
        self._check_ports((port,))
        lost_leases = tuple(lease for lease in self._leases.values() if port in lease.ports)
        for lease in lost_leases:
            self._end_lease(lease, self._clock.now())
        return lost_leases

    def take_changes(self) -> tuple[tuple[Lease, ...], tuple[Lease, ...]]:
        """Return the leases that have ended and the leases that have started since the last call."""
        now_s = self._clock.now()
        expired = [lease for lease in self._leases.values() if lease.ends_s <= now_s]
        ended = tuple(lease for lease in expired if lease.number in self._started)
        for lease in expired:
            del self._leases[lease.number]
            self._started.discard(lease.number)
        new = [
            lease for lease in self._leases.values() if lease.starts_s <= now_s and lease.number not in self._started
        ]
        self._started |= {lease.number for lease in new}
        return ended, tuple(new)

    def _earliest_start_s(self, requested: LeaseRequest, partner: str, preempting_rank: LeaseRank | None) -> float:
        now_s = self._clock.now()
        ports = (requested.port, partner)
        blocking = [lease for lease in self._leases.values() if set(lease.ports) & set(ports)]
        # A port can only become free at the end of a lease, so no other start can be earlier than these.
        starts_s = [now_s]
        if preempting_rank is not None:
            # A preemptible lease ends at the latest after the grace time; one that starts later does not block.
            blocking = [lease for lease in blocking if not self._is_preemptible(lease, preempting_rank)] + [
                replace(lease, ends_s=min(lease.ends_s, now_s + self._grace_s))
                for lease in blocking
                if self._is_preemptible(lease, preempting_rank) and lease.starts_s < now_s + self._grace_s
            ]
        starts_s += [lease.ends_s for lease in blocking]
        return min(
            start_s
            for start_s in starts_s
            if start_s >= now_s
            and not any(
                lease.overlaps(port, start_s, start_s + requested.duration_s) for lease in blocking for port in ports
            )
        )

    def _is_preemptible(self, lease: Lease, rank: LeaseRank) -> bool:
        return lease.rank == LeaseRank.PREEMPTIBLE and rank > lease.rank

    def _cut_short(self, ports: Sequence[str], starts_s: float, ends_s: float) -> None:
        for lease in self.leases:
            if any(lease.overlaps(port, starts_s, ends_s) for port in ports):
                self._end_lease(lease, starts_s)

    def _end_lease(self, lease: Lease, ends_s: float) -> None:
        if lease.number not in self._started and lease.starts_s >= ends_s:
            del self._leases[lease.number]
        else:
            self._leases[lease.number] = replace(lease, ends_s=min(lease.ends_s, ends_s))

    def _current_lease(self, number: int) -> Lease:
        lease = self._leases.get(number)
        if lease is None or lease.ends_s <= self._clock.now():
            raise StaleLeaseError(
                f"lease {number} has ended", hint="Stop using the circuit of this lease and request a new lease."
            )
        return lease

    def _refusal(self, requested: LeaseRequest, partner: str, starts_s: float) -> LeaseRefusedError:
        now_s = self._clock.now()
        pairs = [(lease, port) for lease in self._leases.values() for port in (requested.port, partner)]
        lease, port = max(
            ((lease, port) for lease, port in pairs if lease.overlaps(port, now_s, starts_s)),
            key=lambda pair: pair[0].ends_s,
        )
        return LeaseRefusedError(
            f"no circuit for {requested.holder} within {requested.wait_s:g} s: {lease.holder} has reserved port {port} "
            f"(lease {lease.number}, priority {lease.rank.name.lower()})",
            port=port,
            earliest_s=starts_s,
            hint=f"The lease could begin {_seconds_text(starts_s - now_s)}.",
        )

    def _check_ports(self, ports: Sequence[str]) -> None:
        if unknown := [port for port in ports if port not in self._ports]:
            raise UnknownNameError(
                f"there is no port {unknown[0]!r} to lend", hint=f"Ports: {', '.join(sorted(self._ports))}."
            )

    def _next_number(self) -> int:
        number = self._number + 1
        # On disk before the lease is granted, so that no number is issued again after a restart.
        if self._path is not None:
            text = json.dumps({"format": _FORMAT, "version": 1, "last_number": number}) + "\n"
            write_file(self._path, "last number of a lease", text)
        self._number = number
        return number


def serve_leases(setup: PathSetup, table: LeaseTable) -> tuple[tuple[Lease, ...], tuple[Lease, ...]]:
    """Remove the circuits of ended leases and set up the circuits of started leases, in both directions.

    The ports of the leases are device names of modules.

    Returns:
        The result of :meth:`LeaseTable.take_changes`.

    Raises:
        LumionError: A circuit could not be set up or verified. Its lease has ended; all other circuits are set up.
    """
    ended, begun = table.take_changes()
    active = set() if setup.active is None else {circuit.request for circuit in setup.active.circuits}
    ended_requests = [request for lease in ended for request in _both_directions(lease) if request in active]
    if ended_requests:
        setup.disconnect(ended_requests)
    failures: list[LumionError] = []
    for lease in begun:
        try:
            setup.connect(_both_directions(lease))
        except LumionError as error:
            table.release(lease.number)
            failures.append(error)
    if failures:
        raise failures[0] if len(failures) == 1 else ExceptionGroup("leased circuits could not be set up", failures)
    return ended, begun


def _both_directions(lease: Lease) -> list[CircuitRequest]:
    forward = CircuitRequest(*lease.ports)
    return [forward, forward.reverse()]


def _last_number(path: Path) -> int:
    file_kind = "last number of a lease"
    document = read_json(path, file_kind, max_bytes=MEGABYTE)
    number = document.get("last_number") if isinstance(document, dict) and document.get("format") == _FORMAT else None
    if type(number) is not int or number < 0:
        raise ConfigError(
            f"{path} does not hold the {file_kind}", hint="Restore the file: old lease numbers must never be reused."
        )
    return number


def _seconds_text(seconds: float) -> str:
    return f"in {seconds:.3g} s"
