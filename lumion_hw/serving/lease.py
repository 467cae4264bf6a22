"""The lease of a served bench: the right of one client to change settings.

It has a number that increases with every lease; a client with an older number is rejected. A lease ends when its holder
releases it, loses the connection, or sends no request until the deadline.
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
"""Longest time of a lease without a request from its holder."""
_NUMBER = "lease.json"
_MAX_NAME_LENGTH = 64


@dataclass(frozen=True)
class Caller:
    """The client that makes a request.

    Attributes:
        name: Name of the client for logs.
        connection: Connection over which the request arrived, or empty.
        account: User and host that the client claims, or empty.
        number: Lease number that the client sends; ``None`` if it sends none.
    """

    name: str
    connection: str = ""
    account: str = ""
    number: int | None = None


@dataclass(frozen=True)
class _ActiveLease:
    """The present lease. ``since_s`` is a time of day; the other times are on the monotonic clock."""

    owner: str
    number: int
    acquired_s: float
    since_s: float
    lasts_s: float
    seen_s: float
    connection: str
    account: str

    def belongs_to(self, caller: Caller) -> bool:
        """Return whether the caller holds this lease: by its number, or by the connection or account that took it."""
        if caller.number is not None:
            return caller.number == self.number
        if self.connection:
            return caller.connection == self.connection
        return bool(self.account) and caller.account == self.account


class BenchLease:
    """The lease of one bench. Thread-safe.

    Args:
        directory: State directory of the bench; the caller must hold the bench lock.
        wall_s: Returns the time of day, in seconds since 1970.
        clock: Monotonic clock for the deadlines.
        on_end: Called with a lease that ended without being released, and the reason.
        connections: Returns the established connections.
    """

    def __init__(
        self,
        directory: AnyPath,
        wall_s: Callable[[], float],
        clock: Clock | None = None,
        on_end: Callable[[ServedLease, str], None] = lambda lease, reason: None,
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
        """Take the lease; if the caller holds it already, renew it. The lease gets a new number.

        Args:
            owner: Name of the new holder.
            caller: The client.
            lasts_s: Time in seconds that the lease lasts without a request from its holder.
            instead_of: Name of the present holder from which to take the lease.
            bound: Whether the lease ends with the caller's connection; otherwise it belongs to the caller's account.

        Raises:
            BusyError: Another client holds the lease; the message names it and says how to take over.
            ConfigError: The name is empty, too long or not printable, or ``instead_of`` does not hold the lease.
            LimitError: The duration is not positive or longer than a day.
        """
        if not owner.strip() or len(owner) > _MAX_NAME_LENGTH or not owner.isprintable():
            raise ConfigError(
                f"{one_line(owner)[:80]!r} is not a valid name for a lease holder",
                hint=f"Give 1 to {_MAX_NAME_LENGTH} printable characters.",
            )
        if not 0.0 < lasts_s <= MAX_LEASE_S:
            raise LimitError("cannot give a lease of this duration", requested=lasts_s, limit=MAX_LEASE_S, unit="s")
        with self._guard:
            self.expire()
            active = self._active
            if instead_of is not None and (active is None or active.owner != instead_of):
                raise ConfigError(
                    f"{instead_of!r} does not hold the lease: {self._holder_text()}.",
                    hint="Give the name of the present holder.",
                )
            if active is not None and instead_of is None and not active.belongs_to(caller):
                raise BusyError(f"{self._holder_text()}.", hint=f"Wait, or take over by name: {active.owner}")
            if active is not None and not active.belongs_to(caller):
                self._end(f"taken over by {owner}")
            now_s = self._clock.now()
            connection = caller.connection if bound else ""
            self._number += 1
            write_file(self._path, "the lease number", f'{{"number": {self._number}}}\n', "any")
            self._active = _ActiveLease(
                owner, self._number, now_s, self._wall_s(), lasts_s, now_s, connection, caller.account
            )
            return self.served()

    def check(self, caller: Caller) -> ServedLease:
        """Extend and return the lease if the caller holds it.

        Raises:
            BusyError: The caller does not hold the lease and must not change anything.
        """
        with self._guard:
            active = self._active
            # A request over the lease's own connection proves that this connection exists: skip the system tables.
            self.expire((caller.connection,) if active is not None and active.connection == caller.connection else None)
            active = self._active
            if active is None:
                hint = "Take the lease first: write your name to lease:owner, or call lease:take."
                if caller.number is not None:
                    raise BusyError(f"lease {caller.number} has ended, and no client holds the lease.", hint=hint)
                raise BusyError("no client holds the lease of this bench, and changes need the lease.", hint=hint)
            if not active.belongs_to(caller):
                own_text = "" if caller.number is None else f"lease {caller.number} has ended: "
                raise BusyError(f"{own_text}{self._holder_text()}.", hint=f"Wait, or take over by name: {active.owner}")
            self._active = replace(active, seen_s=self._clock.now())
            return self.served()

    def release(self, caller: Caller) -> None:
        """Release the lease. Raises ``BusyError`` if the caller does not hold it."""
        with self._guard:
            self.check(caller)
            self._active = None

    def expire(self, connections: Container[str] | None = None) -> None:
        """End the lease if its deadline has passed or the connection of its holder is lost; call this periodically."""
        with self._guard:
            active = self._active
            if active is None:
                return
            if self._clock.now() - active.seen_s > active.lasts_s:
                self._end(f"no request from its holder for {active.lasts_s:g} s")
                return
            if connections is None and self._connections is not None:
                connections = self._connections()
            if active.connection and connections is not None and active.connection not in connections:
                self._end("connection to the holder lost")

    def served(self) -> ServedLease:
        """Return the present state of the lease."""
        with self._guard:
            active = self._active
            if active is None:
                return ServedLease(number=self._number)
            now_s = self._clock.now()
            left_s = max(active.seen_s + active.lasts_s - now_s, 0.0)
            return ServedLease(active.owner, active.number, active.since_s, now_s - active.acquired_s, left_s)

    def _end(self, reason: str) -> None:
        lease, self._active = self.served(), None
        self._on_end(lease, reason)

    def _holder_text(self) -> str:
        lease = self.served()
        if not lease.owner:
            return "no client holds the lease"
        return f"{lease.owner} has held lease {lease.number} of this bench for {lease.age_s:.0f} s"


def _last_number(path: Path) -> int:
    """Return the last issued lease number; 0 before the first.

    Raises:
        ConfigError: The file contains no valid number.
    """
    try:
        document = parse_json(path.read_bytes(), "the lease number")
    except FileNotFoundError:
        return 0
    number = document.get("number") if isinstance(document, dict) else None
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ConfigError(
            f"{path} contains no valid lease number",
            hint='Write {"number": N} to this file, with N above all numbers issued so far.',
        )
    return number
