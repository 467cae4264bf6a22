"""Ownership of open links: only the process that opened a link can use it.

In a forked child process, every use of a link, session or driver of the parent raises
:class:`~lumion_hw.errors.ForkError`, and closing sends nothing.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from lumion_hw.errors import ForkError

LockT = TypeVar("LockT")

_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_links: weakref.WeakSet[Any] = weakref.WeakSet()


class OwnerProcess:
    """The process that owns a link, which is the first that opened it."""

    __slots__ = ("_pid",)
    this_process: ClassVar[int] = os.getpid()
    """Id of this process."""

    def __init__(self) -> None:
        self._pid = 0

    @property
    def belongs_to_other_process(self) -> bool:
        """Whether a different process opened the link."""
        return self._pid not in (0, self.this_process)

    def claim(self, address: str, device: str | None = None) -> None:
        """Record that this process opens the link. Raises ``ForkError`` if a different process has opened it."""
        self.check(address, device)
        self._pid = self.this_process

    def check(self, address: str, device: str | None = None) -> None:
        """Raise ``ForkError`` if a different process has opened the link."""
        if self._pid not in (0, self.this_process):
            raise ForkError(
                f"opened by process {self._pid} but used by its child process {self.this_process}; nothing was sent",
                device=device,
                address=address,
                hint="Use it only in the process that opened it. If the child needs a bench, open one in the child, or "
                "start processes by 'spawn' instead of 'fork'.",
            )


def fork_safe(lock: LockT) -> LockT:
    """Make a lock free in forked child processes, and return it."""
    _locks.add(lock)
    return lock


def forget_in_child(link: Any) -> None:
    """Call ``link.forget()`` in forked child processes."""
    _links.add(link)


def _in_child() -> None:
    OwnerProcess.this_process = os.getpid()
    for lock in tuple(_locks):
        owned: Callable[[], bool] = getattr(lock, "_is_owned", lambda: False)
        if not owned():  # a lock held by the thread that forked stays held in the child
            lock._at_fork_reinit()
    for link in tuple(_links):
        link.forget()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_in_child)
