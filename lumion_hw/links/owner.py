"""What is open belongs to the process that opened it.

A child made by ``fork`` shares the sockets and ports of its parent. If both used them, each would take replies that are
meant for the other, and a child that ends would say its parent's farewell: heaters off. So links, sessions and drivers
remember their process. In another one every use is a :class:`~lumion_hw.errors.ForkError`, and closing sends nothing.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from lumion_hw.errors import ForkError

LockT = TypeVar("LockT")

_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_forgetful: weakref.WeakSet[Any] = weakref.WeakSet()


class OwnerProcess:
    """The process something belongs to: the first one that opened it, for good."""

    __slots__ = ("_pid",)
    this_process: ClassVar[int] = os.getpid()
    """Known, not asked for: a check comes before every use of a link, and a system call is dear in containers."""

    def __init__(self) -> None:
        self._pid = 0

    @property
    def belongs_to_other_process(self) -> bool:
        """Whether it was opened, and by another process than this one."""
        return self._pid not in (0, self.this_process)

    def claim(self, address: str, device: str | None = None) -> None:
        """Note that this process opens it. Raises ``ForkError`` if another one did before."""
        self.check(address, device)
        self._pid = self.this_process

    def check(self, address: str, device: str | None = None) -> None:
        """Raise ``ForkError`` unless this process may use it."""
        if self._pid not in (0, self.this_process):
            raise ForkError(
                f"opened by process {self._pid}, and used by its child {self.this_process}: nothing was sent.",
                device=device,
                address=address,
                hint="Leave it to the process that opened it, and open a bench of its own where another one is needed; "
                "or start processes by 'spawn' instead of 'fork'.",
            )


def fork_safe(lock: LockT) -> LockT:
    """Return the lock, which in a child is free again if a thread that was left behind in the parent held it."""
    _locks.add(lock)
    return lock


def forget_in_child(link: Any) -> None:
    """Call ``link.forget()`` in a child: it drops a handle whose library says a farewell at the end of a process."""
    _forgetful.add(link)


def _in_child() -> None:
    OwnerProcess.this_process = os.getpid()
    for lock in tuple(_locks):
        owned: Callable[[], bool] = getattr(lock, "_is_owned", lambda: False)
        if not owned():  # what the thread that forked holds, it goes on to hold here
            lock._at_fork_reinit()
    for link in tuple(_forgetful):
        link.forget()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_in_child)
