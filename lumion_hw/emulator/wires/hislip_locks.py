"""Locks between HiSLIP sessions: one exclusive, or shared under a common key (IVI-6.1 section 6.5)."""

from __future__ import annotations

from dataclasses import dataclass

from lumion_hw.clock import Clock

FAILURE, SUCCESS, SUCCESS_SHARED, ERROR = range(4)
"""Answers to a request or a release."""


@dataclass(frozen=True)
class _Request:
    key: bytes
    deadline_s: float


class HislipLocks:
    """Who may talk to the instrument. Sessions are known by their number.

    Args:
        clock: The injected clock.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._exclusive: int | None = None
        self._key = b""
        self._shared: set[int] = set()
        self._requests: dict[int, _Request] = {}

    def may_talk(self, session: int) -> bool:
        """Return whether no other session's lock is in the way."""
        if self._exclusive is not None:
            return self._exclusive == session
        return not self._shared or session in self._shared

    def request(self, session: int, key: bytes, timeout_s: float) -> int | None:
        """Ask for a lock: shared if ``key`` is not empty. ``None`` means that the answer comes by :meth:`decided`."""
        if session == self._exclusive or (key and session in self._shared) or session in self._requests:
            return ERROR
        if self._grant(session, key):
            return SUCCESS
        if timeout_s <= 0:
            return FAILURE
        self._requests[session] = _Request(key, self._clock.now() + timeout_s)
        return None

    def _grant(self, session: int, key: bytes) -> bool:
        if self._exclusive is not None:
            return False
        if key:
            if self._shared and key != self._key:
                return False
            self._key = key
            self._shared.add(session)
            return True
        if self._shared and session not in self._shared:
            return False
        self._exclusive = session
        return True

    def release(self, session: int) -> int:
        """Give up the exclusive lock, else the shared one."""
        if self._exclusive == session:
            self._exclusive = None
            return SUCCESS
        if session in self._shared:
            self._shared.remove(session)
            return SUCCESS_SHARED
        return ERROR

    def decided(self, session: int) -> int | None:
        """Return the answer to a request that had to wait, once."""
        request = self._requests.get(session)
        if request is None:
            return None
        granted = self._grant(session, request.key)
        if not granted and self._clock.now() < request.deadline_s:
            return None
        del self._requests[session]
        return SUCCESS if granted else FAILURE

    def next_event(self) -> float | None:
        """Return when a waiting request ends at the latest."""
        return min((request.deadline_s for request in self._requests.values()), default=None)

    def info(self) -> tuple[int, int]:
        """Return whether there is an exclusive lock (0 or 1), and how many sessions hold one."""
        holders = self._shared | ({self._exclusive} if self._exclusive is not None else set())
        return int(self._exclusive is not None), len(holders)

    def forget(self, session: int) -> None:
        """The session is gone, and with it its locks."""
        self._requests.pop(session, None)
        self._shared.discard(session)
        if self._exclusive == session:
            self._exclusive = None
