"""Programs that can be struck at any step: each write to a device or to a journal is one step of the program's life."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from lumion_hw.circuits import lock
from lumion_hw.clock import Clock, Deadline
from lumion_hw.errors import LinkLost
from lumion_hw.files import writing
from lumion_hw.links.base import Link
from lumion_hw.storage import line_journal

_MODULES: tuple[ModuleType, ...] = (line_journal, lock, writing)
"""Modules that write journals, locks and files."""


class Killed(BaseException):
    """The program is killed: none of its later writes has any effect."""


@dataclass
class Step:
    """A write that is about to happen.

    Attributes:
        device: Name of the device; empty for a file.
        handle: The open file; -1 for a device.
        data: The bytes to be written.
    """

    device: str = ""
    handle: int = -1
    data: bytes = b""


def _is_in_timer() -> bool:
    frame = sys._getframe()
    while (back := frame.f_back) is not None:
        frame = back
        if frame.f_code.co_name == "_run_timer":
            return True
    return False


Accident = Callable[["Life", Step], None]


@dataclass
class Life:
    """One run of a program.

    Attributes:
        clock: Clock of the bench.
        steps: Number of writes to devices and files.
        wires: Number of those to devices.
        accidents: What happens at which step, and only there.
        disk_error: Error number of every write to a file from now on; 0 while the disk works.
        sync_s: Duration of a sync, in s.
        severed: Devices whose connection is half open: nothing arrives, and nothing comes back.
        is_dead: Whether the program was killed.
        is_over: Whether what was left of the killed program is gone, too.
        log: What has happened, for messages.
    """

    clock: Clock
    steps: int = 0
    accidents: dict[int, Accident] = field(default_factory=dict)
    disk_error: int = 0
    sync_s: float = 0.0
    severed: set[str] = field(default_factory=set)
    is_dead: bool = False
    is_over: bool = False
    log: list[str] = field(default_factory=list)
    _links: list[Link] = field(default_factory=list)

    def before(self, step: Step) -> None:
        """Count a step, and let happen what is due at it."""
        self.check_alive()
        self.steps += 1
        if self.steps in self.accidents and _is_in_timer():
            self.accidents[self.steps + 1] = self.accidents.pop(self.steps)  # the clock cannot be interrupted there
        if (accident := self.accidents.pop(self.steps, None)) is not None:
            self.log.append(f"at step {self.steps}, {step.device or 'a file'}")
            accident(self, step)
        self.check_alive()

    def check_alive(self) -> None:
        """Raise ``Killed`` after the program was killed, and ``LinkLost`` in its timers, which may outlive it."""
        if self.is_over or (self.is_dead and _is_in_timer()):
            raise LinkLost("the program has ended")
        if self.is_dead:
            raise Killed

    def kill(self) -> None:
        """Kill the program. The operating system closes its connections; nothing else is tidied up."""
        self.is_dead = True
        for link in self._links:
            link.close()
        raise Killed

    def link(self, inner: Link, device: str) -> LivingLink:
        """Return a link of this program to a device."""
        self._links.append(inner)
        return LivingLink(inner, self, device)


class LivingLink:
    """A link that ends with its program."""

    def __init__(self, inner: Link, life: Life, device: str) -> None:
        self._inner, self._life, self._device = inner, life, device
        self.name = inner.name

    def open(self, deadline: Deadline) -> None:
        self._life.check_alive()
        self._inner.open(deadline)

    def write(self, data: bytes, deadline: Deadline) -> None:
        self._life.before(Step(self._device, data=bytes(data)))
        if self._device not in self._life.severed:
            self._inner.write(data, deadline)

    def read(self, deadline: Deadline) -> bytes:
        self._life.check_alive()
        if self._device not in self._life.severed:
            return self._inner.read(deadline)
        self._life.clock.sleep(max(deadline - self._life.clock.now(), 1e-6))
        return b""

    def drain(self, quiet_s: float, deadline: Deadline) -> int:
        self._life.check_alive()
        return 0 if self._device in self._life.severed else self._inner.drain(quiet_s, deadline)

    def close(self) -> None:
        # The other end of a half-open connection does not notice that it is closed.
        if self._device not in self._life.severed:
            self._inner.close()


class LivingFiles:
    """Stands in for :mod:`os` where journals and locks are written: each program writes below its own directories."""

    def __init__(self) -> None:
        self.lives: dict[Path, Life] = {}
        self._open: dict[int, Life] = {}

    def belong_to(self, life: Life, directory: Path) -> None:
        """Let files below a directory that are opened from now on belong to a program."""
        self.lives[directory] = life

    def belong_to_nobody(self) -> None:
        """Let files that are opened from now on belong to no program that can be struck."""
        self.lives.clear()

    def close_all(self, life: Life) -> None:
        """Close the files of a killed program, as the operating system does; their numbers stay in use."""
        nothing = os.open(os.devnull, os.O_RDWR)
        for handle in [handle for handle, owner in self._open.items() if owner is life]:
            os.dup2(nothing, handle)
        os.close(nothing)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: Any, flags: int, *mode: int) -> int:
        life = next((life for directory, life in self.lives.items() if Path(path).is_relative_to(directory)), None)
        if life is None:
            return os.open(path, flags, *mode)
        life.check_alive()
        if life.disk_error == errno.EACCES and flags & (os.O_RDWR | os.O_WRONLY):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        handle = os.open(path, flags, *mode)
        self._open[handle] = life
        return handle

    def close(self, handle: int) -> None:
        self._open.pop(handle, None)
        os.close(handle)

    def write(self, handle: int, data: bytes) -> int:
        if (life := self._open.get(handle)) is not None:
            life.before(Step(handle=handle, data=bytes(data)))
            _check_disk(life)
        return os.write(handle, data)

    def fsync(self, handle: int) -> None:
        if (life := self._open.get(handle)) is not None:
            life.check_alive()
            _check_disk(life)
            if life.sync_s:
                life.clock.sleep(life.sync_s)

    def ftruncate(self, handle: int, size: int) -> None:
        life = self._open.get(handle)
        if life is None or not life.is_dead:
            os.ftruncate(handle, size)


def _check_disk(life: Life) -> None:
    if life.disk_error in (errno.ENOSPC, errno.EIO):
        raise OSError(life.disk_error, os.strerror(life.disk_error))


@contextlib.contextmanager
def living_files() -> Iterator[LivingFiles]:
    """Let journals, locks and files be written by programs that can be struck, during a ``with`` block."""
    files = LivingFiles()
    for module in _MODULES:
        module.os = files  # type: ignore[attr-defined]
    try:
        yield files
    finally:
        for module in _MODULES:
            module.os = os  # type: ignore[attr-defined]


# -- accidents of every program


def kill(life: Life, step: Step) -> None:
    """Kill the program before the write."""
    del step
    life.kill()


def kill_in_the_middle(life: Life, step: Step) -> None:
    """Kill the program in the middle of a write to a file; before a write to a device."""
    if step.handle >= 0:
        os.write(step.handle, step.data[: len(step.data) // 2])
    life.kill()


def lose_power(life: Life, step: Step) -> None:
    """Let the host lose power in the next write to a file: the file gets its new length, but zeros for the data."""
    if step.handle < 0:
        life.accidents[life.steps + 1] = lose_power
        return
    os.write(step.handle, bytes(len(step.data)))
    life.kill()


def disk(error: int) -> Accident:
    """Return the accident that every write to a file fails from now on."""

    def strike(life: Life, step: Step) -> None:
        if step.handle >= 0 and error == errno.ENOSPC:
            os.write(step.handle, step.data[: len(step.data) // 3])
        life.disk_error = error

    return strike


def slow_disk(sync_s: float) -> Accident:
    """Return the accident that every sync takes long from now on."""

    def strike(life: Life, step: Step) -> None:
        del step
        life.sync_s = sync_s

    return strike


def pause(duration_s: float) -> Accident:
    """Return the accident that the host stands still for a while."""

    def strike(life: Life, step: Step) -> None:
        del step
        life.clock.sleep(duration_s)

    return strike


def sever(device: str) -> Accident:
    """Return the accident that the connection to a device is half open from now on."""

    def strike(life: Life, step: Step) -> None:
        del step
        life.severed.add(device)

    return strike
