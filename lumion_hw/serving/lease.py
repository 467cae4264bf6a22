"""Who may change a served bench: one owner at a time, known by name, with a number that only grows.

The number is stored on the disk before it is given away, so that it grows over restarts too: a writer that was frozen,
and comes back after somebody else has had the bench, carries an old one and is refused. A lease ends when its holder
gives it back, when the connection it was taken over is gone, or when its own deadline passes without a sign of life: a
deadline on the server's monotonic clock, which asks no network.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from pathlib import Path

from lumion_hw.clock import Clock, SystemClock
from lumion_hw.errors import BusyError, ConfigError, LimitError
from lumion_hw.files import AnyPath
from lumion_hw.files.escaping import one_line
from lumion_hw.files.reading import parse_json
from lumion_hw.files.writing import write_file
from lumion_hw.serving.state import ServedLease

MAX_LEASE_S = 86400.0
"""Longest time a lease may last without a sign of life."""
_NUMBER = "lease.json"
_MAX_NAME_LENGTH = 64


@dataclass(frozen=True)
class Caller:
    """Who asks for something.

    Attributes:
        name: Who it is, for logs: a person, or an account as the other side claims it.
        connection: The connection it asks over; a lease taken over one ends with it. Empty where there is none.
        account: User and host as the other side claims them; empty where it claims none.
        number: Fencing number of the lease it believes to hold; ``None`` where it knows of none.
    """

    name: str
    connection: str = ""
    account: str = ""
    number: int | None = None


@dataclass(frozen=True)
class _ActiveLease:
    """A lease that somebody holds."""

    owner: str
    number: int
    taken_s: float
    since_s: float
    lasts_s: float
    seen_s: float
    connection: str
    account: str

    def belongs_to(self, caller: Caller) -> bool:
        """Return whether a caller holds it: by number, or by the connection or account it was taken with."""
        if caller.number is not None:
            return caller.number == self.number
        if self.connection:
            return caller.connection == self.connection
        return bool(self.account) and caller.account == self.account


class BenchLease:
    """The lease of one bench. Thread-safe.

    Args:
        directory: State directory of the bench; the bench's lock is held meanwhile.
        wall_s: Time of day, in seconds since 1970.
        clock: Monotonic clock of the deadlines.
        on_end: Told of a lease that has ended without being given back, and why.
        connections: Returns the connections that stand; leases are taken over them.
    """

    def __init__(
        self,
        directory: AnyPath,
        wall_s: Callable[[], float],
        clock: Clock | None = None,
        on_end: Callable[[ServedLease, str], None] = lambda lease, why: None,
        connections: Callable[[], Container[str]] | None = None,
    ) -> None:
        self._path = Path(directory) / _NUMBER
        self._wall_s, self._clock = wall_s, clock or SystemClock()
        self._on_end, self._connections = on_end, connections
        self._guard = threading.RLock()
        self._active: _ActiveLease | None = None
        self._number = _last_number(self._path)

    def take(
        self, owner: str, caller: Caller, *, lasts_s: float, instead_of: str | None = None, bound: bool = True
    ) -> ServedLease:
        """Take the lease, or take it again.

        Args:
            owner: Name of the new holder.
            caller: Who asks.
            lasts_s: How long it lasts without a sign of life.
            instead_of: Name of the holder to be replaced; anybody else who holds it is not.
            bound: Whether it ends with the caller's connection, and belongs to that alone; otherwise to the account.

        Raises:
            BusyError: Somebody else holds it; the message says who, and how to take over.
            ConfigError: No name, or one that is too long; or ``instead_of`` does not hold it.
            LimitError: It would last no time, or longer than a day.
        """
        if not owner.strip() or len(owner) > _MAX_NAME_LENGTH or not owner.isprintable():
            raise ConfigError(
                f"{one_line(owner)[:80]!r} is no name for the holder of a lease",
                hint=f"Give 1 to {_MAX_NAME_LENGTH} printable letters.",
            )
        if not 0.0 < lasts_s <= MAX_LEASE_S:
            raise LimitError("time a lease lasts", requested=lasts_s, limit=MAX_LEASE_S, unit="s")
        with self._guard:
            self.expire()
            active = self._active
            if instead_of is not None and (active is None or active.owner != instead_of):
                raise ConfigError(
                    f"{instead_of!r} does not hold the lease: {self._holder_text()}.", hint="Name who does."
                )
            if active is not None and instead_of is None and not active.belongs_to(caller):
                raise BusyError(f"{self._holder_text()}.", hint=f"Wait, or take over by name: {active.owner}")
            if active is not None and not active.belongs_to(caller):
                self._end(f"taken over by {owner}")
            now_s = self._clock.now()
            connection = caller.connection if bound else ""
            self._number += 1
            write_file(self._path, "the number of the lease", f'{{"number": {self._number}}}\n', "any")
            self._active = _ActiveLease(
                owner, self._number, now_s, self._wall_s(), lasts_s, now_s, connection, caller.account
            )
            return self.served()

    def check(self, caller: Caller) -> ServedLease:
        """Return the lease of a caller who is about to change something; that is a sign of life.

        Raises:
            BusyError: The caller does not hold it; nothing may be changed.
        """
        with self._guard:
            active = self._active
            # Who asks over the connection of the lease is there: the system need not be asked on every change.
            self.expire((caller.connection,) if active is not None and active.connection == caller.connection else None)
            active = self._active
            if active is None:
                hint = "Take it first: write your name to the lease's owner, or call its take."
                if caller.number is not None:
                    raise BusyError(f"lease {caller.number} has ended, and nobody holds the bench.", hint=hint)
                raise BusyError("nobody holds the lease of this bench; without it nothing is changed.", hint=hint)
            if not active.belongs_to(caller):
                mine = "" if caller.number is None else f"lease {caller.number} has ended: "
                raise BusyError(f"{mine}{self._holder_text()}.", hint=f"Wait, or take over by name: {active.owner}")
            self._active = replace(active, seen_s=self._clock.now())
            return self.served()

    def release(self, caller: Caller) -> None:
        """Give the lease back. Raises ``BusyError`` if the caller does not hold it."""
        with self._guard:
            self.check(caller)
            self._active = None

    def expire(self, connections: Container[str] | None = None) -> None:
        """End a lease whose deadline has passed, or whose connection is gone; to be called again and again.

        Args:
            connections: Connections that stand; the system is asked if not given.
        """
        with self._guard:
            active = self._active
            if active is None:
                return
            if self._clock.now() - active.seen_s > active.lasts_s:
                self._end(f"no sign of life for {active.lasts_s:g} s")
                return
            if connections is None and self._connections is not None:
                connections = self._connections()
            if active.connection and connections is not None and active.connection not in connections:
                self._end("its holder is gone: the connection is lost")

    def served(self) -> ServedLease:
        """Return who holds it now."""
        with self._guard:
            active = self._active
            if active is None:
                return ServedLease(number=self._number)
            now_s = self._clock.now()
            left_s = max(active.seen_s + active.lasts_s - now_s, 0.0)
            return ServedLease(active.owner, active.number, active.since_s, now_s - active.taken_s, left_s)

    def _end(self, why: str) -> None:
        lease, self._active = self.served(), None
        self._on_end(lease, why)

    def _holder_text(self) -> str:
        lease = self.served()
        if not lease.owner:
            return "nobody holds the lease"
        return f"{lease.owner} holds lease {lease.number} of this bench since {lease.age_s:.0f} s"


def _last_number(path: Path) -> int:
    """Return the last number given away; 0 before the first.

    Raises:
        ConfigError: The file is there and holds no number: the next one might not be larger.
    """
    try:
        document = parse_json(path.read_bytes(), "the number of the lease")
    except FileNotFoundError:
        return 0
    number = document.get("number") if isinstance(document, dict) else None
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ConfigError(
            f"{path} holds no number of a lease", hint='Write {"number": N} there, with N above all given so far.'
        )
    return number
