"""Lock of a bench: only one program at a time drives it.

The lock is a file in the bench's state directory, held with ``flock``. The operating system releases it when the
program ends in any way. If the owner is on another host, the time since it last renewed the file decides. A take-over
replaces the file; the former owner notices in :meth:`BenchLock.check` and stops.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import json
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lumion_hw.errors import BusyError, ConfigError
from lumion_hw.files import AnyPath
from lumion_hw.files.reading import parse_json
from lumion_hw.files.writing import writing

STALE_S = 120.0
"""Time without a renewal of the lock file after which an owner on another host counts as dead."""
CHANGE_WAIT_S = 30.0
"""Time that a take-over waits for a running change."""
_LOCK, _CHANGE = "lock", "change.lock"
_FILE_KIND = "the lock of the bench"
_MAX_BYTES = 4096


@dataclass(frozen=True)
class LockOwner:
    """Owner of a bench: user, host, process ID, program, and the time when the program acquired the lock (ISO 8601)."""

    user: str
    host: str
    pid: int
    program: str
    since_utc: str

    @property
    def name(self) -> str:
        """Name of the owner, such as ``ada@lab3:4711``; who takes over the lock must give it."""
        return f"{self.user}@{self.host}:{self.pid}"

    @classmethod
    def of_this_process(cls, program: str) -> LockOwner:
        """Return the owner entry of this process."""
        time_utc = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(_user(), socket.gethostname(), os.getpid(), program, time_utc)


class BenchLock:
    """Lock of one bench, as a context manager.

    Args:
        program: Name of this program, shown to other users.
        take_over: Name of the owner to replace, ``user@host:pid`` or ``user@host`` as in the error message.

    Attributes:
        dead_owner: Owner on this host whose program ended without releasing the lock; ``None`` if there was none.
    """

    def __init__(self, directory: AnyPath, program: str, *, take_over: str | None = None) -> None:
        self._directory = Path(directory)
        self._take_over = take_over
        self._own_owner = LockOwner.of_this_process(program)
        self._handle: int | None = None
        self.dead_owner: LockOwner | None = None

    def __enter__(self) -> Self:
        """Acquire the lock of the bench.

        Raises:
            BusyError: Another program holds it; the message names the program and how to take over.
            ConfigError: The directory is not writable, or ``take_over`` does not name the present owner.
        """
        with writing(_FILE_KIND, self._directory):
            self._directory.mkdir(parents=True, exist_ok=True)
        handle, owner, is_held = self._open_and_lock()
        if is_held:
            os.close(handle)
            self._take_over_from(owner)
            return self
        try:
            self.dead_owner = owner if owner is not None and owner.host == self._own_owner.host else None
            self._write_owner(handle)
        except BaseException:
            os.close(handle)
            raise
        self._handle = handle
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is None:
            return
        with contextlib.suppress(OSError):
            # An empty file tells the next program that this one did not die.
            if self._is_lock_held():
                os.ftruncate(self._handle, 0)
        os.close(self._handle)
        self._handle = None

    def check(self) -> None:
        """Check that this program still holds the bench, and renew the lock file.

        Raises:
            BusyError: Another program has taken over; this program must not change anything.
        """
        if self._handle is None or not self._is_lock_held():
            owner = lock_owner(self._directory)
            holder = "nobody" if owner is None else f"{owner.name} ({owner.program}) since {owner.since_utc}"
            raise BusyError(
                f"the bench was taken over: it now belongs to {holder}.",
                hint="This program makes no further changes.",
            )
        with writing(_FILE_KIND, self._directory):
            # Hosts that may not see the lock judge by the time of the last change of the file.
            os.utime(self._handle)

    @property
    def owner(self) -> LockOwner:
        """This program as owner of the bench."""
        return self._own_owner

    @property
    def program(self) -> str:
        """Name of this program."""
        return self._own_owner.program

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Prevent other programs from taking over during a ``with`` block.

        Raises:
            BusyError: Another program has taken over.
        """
        with writing(_FILE_KIND, self._directory):
            handle = os.open(self._directory / _CHANGE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if not _try_lock(handle):
                raise BusyError("another program is changing the bench", hint="Try again in a moment.")
            self.check()
            yield
        finally:
            os.close(handle)

    def _open_and_lock(self) -> tuple[int, LockOwner | None, bool]:
        path = self._directory / _LOCK
        while True:
            with writing(_FILE_KIND, path):
                handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            locked, owner = _try_lock(handle), _read_owner(handle)
            if not _is_same_file(handle, path):  # replaced between opening and locking
                os.close(handle)
                continue
            is_remote_alive = owner is not None and owner.host != self._own_owner.host and _silence_s(handle) < STALE_S
            return handle, owner, not locked or is_remote_alive

    def _take_over_from(self, owner: LockOwner | None) -> None:
        path = self._directory / _LOCK
        if owner is None:  # it has locked the file and not yet written its name
            raise BusyError("another program is opening this bench", hint="Try again in a moment.")
        silent_s = _silence_of_s(path)
        holder = (
            f"{owner.name} has been driving this bench with {owner.program!r} since {owner.since_utc}, "
            f"last heard from {silent_s:.0f} s ago"
        )
        if self._take_over is None:
            served = (
                "Reach it with `Bench.attach` or `lumion apply --served`. " if owner.program == "lumion serve" else ""
            )
            wait = f"Wait for it to end, or take over with --take-over {owner.name}"
            raise BusyError(f"{holder}.", hint=served + wait)
        if self._take_over not in (owner.name, f"{owner.user}@{owner.host}"):
            raise ConfigError(f"{self._take_over!r} does not hold the bench: {holder}.", hint="Name the actual owner.")
        with self._wait_for_change(owner):
            temporary = path.with_name(f".{_LOCK}.{os.getpid()}.tmp")
            with writing(_FILE_KIND, temporary):
                handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                # Lock the new file before it gets its name, so that no other program can lock it first.
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._write_owner(handle)
                temporary.replace(path)
            except BaseException:
                os.close(handle)
                temporary.unlink(missing_ok=True)
                raise
        self._handle = handle

    @contextlib.contextmanager
    def _wait_for_change(self, owner: LockOwner) -> Iterator[None]:
        with writing(_FILE_KIND, self._directory):
            handle = os.open(self._directory / _CHANGE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # Wall clock: another process is waited for, whatever clock this bench has.
            deadline = time.monotonic() + CHANGE_WAIT_S
            while not _try_lock(handle):
                if time.monotonic() >= deadline:
                    raise BusyError(
                        f"{owner.name} has been changing the bench for more than {CHANGE_WAIT_S:g} s",
                        hint=f"Check process {owner.pid} on {owner.host}; when it ends, the bench is free.",
                    )
                time.sleep(0.05)
            yield
        finally:
            os.close(handle)

    def _write_owner(self, handle: int) -> None:
        with writing(_FILE_KIND, self._directory):
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(asdict(self._own_owner)).encode() + b"\n", 0)
            os.fsync(handle)

    def _is_lock_held(self) -> bool:
        return self._handle is not None and _is_same_file(self._handle, self._directory / _LOCK)


def lock_owner(directory: AnyPath) -> LockOwner | None:
    """Return the owner of a bench, or ``None`` if there is none.

    An owner on this host whose program has ended does not count.
    """
    try:
        handle = os.open(Path(directory) / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        owner = _read_owner(handle)
        # A shared lock can be acquired only if no live program of this host holds the lock. It ends when the file is
        # closed.
        if owner is None or (owner.host == socket.gethostname() and _try_lock(handle, shared=True)):
            return None
        return owner
    finally:
        os.close(handle)


def _try_lock(handle: int, *, shared: bool = False) -> bool:
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # the time since the owner renewed the file decides
    return True


def _read_owner(handle: int) -> LockOwner | None:
    text = os.pread(handle, _MAX_BYTES, 0)
    try:
        document: Any = parse_json(text, _FILE_KIND) if text.strip() else None
        return LockOwner(**document) if isinstance(document, dict) else None
    except (ConfigError, TypeError):
        return None


def _is_same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except OSError:
        return False


def _silence_s(handle: int) -> float:
    return max(time.time() - os.fstat(handle).st_mtime, 0.0)


def _silence_of_s(path: Path) -> float:
    try:
        return max(time.time() - path.stat().st_mtime, 0.0)
    except OSError:
        return 0.0


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
