"""The lock of a session: re-entrant, and fair to the thread that waits for it."""

from __future__ import annotations

import threading
from types import TracebackType


class TurnLock:
    """A re-entrant lock that a thread which lets it go and takes it again cannot keep from others.

    A plain ``RLock`` is often won again by the thread that has just released it: whoever waits for events in short
    turns would make the others wait for several of them.

    Attributes:
        shared: More than one thread has held it so far.
    """

    def __init__(self) -> None:
        self._door = threading.Lock()
        self._lock = threading.RLock()
        self._owner = 0
        self._depth = 0
        self._first_owner = 0
        self.shared = False

    def _is_owned(self) -> bool:
        """Whether this thread holds it; named as in ``threading``, for :mod:`lumion_hw.links.owner`."""
        return self._owner == threading.get_ident()

    def _at_fork_reinit(self) -> None:
        """Be free: the thread that held it was left behind in another process."""
        self._door, self._lock = threading.Lock(), threading.RLock()
        self._owner = self._depth = 0

    def acquire(self, *, blocking: bool = True) -> bool:
        """Take the lock; with ``blocking`` false return ``False`` at once when another thread has or awaits it."""
        me = threading.get_ident()
        if self._owner != me:
            if not self._door.acquire(blocking):
                return False
            try:
                if not self._lock.acquire(blocking):
                    return False
            finally:
                self._door.release()
            self._owner = me
            self._first_owner = self._first_owner or me
            self.shared = self.shared or self._first_owner != me
        self._depth += 1
        return True

    def release(self) -> None:
        """Let the lock go; the thread that waits at the door is next."""
        self._depth -= 1
        if not self._depth:
            self._owner = 0
            self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
