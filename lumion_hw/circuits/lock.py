"""Who drives a bench: one program at a time, known by name.

The lock is a file in the bench's state directory, held with ``flock`` as long as its program lives: the system lets it
go when the program ends, however it ends, so a dead owner on this host never blocks. Where another host holds it the
system may not tell; then the age of the owner's last sign of life decides.

A take-over replaces the file. The former owner finds that out before its next change, at :meth:`BenchLock.check`, and
stops; a change that it has begun is waited for.
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
"""Without a sign of life for so long, an owner on another host counts as gone."""
CHANGE_PATIENCE_S = 30.0
"""How long a take-over waits for a change that the owner has begun."""
_LOCK, _CHANGE = "lock", "change.lock"
_WHAT = "the lock of the bench"
_MAX_BYTES = 4096


@dataclass(frozen=True)
class LockOwner:
    """Who holds a bench.

    Attributes:
        user: Name of the user.
        host: Name of the host.
        pid: Number of the process there.
        program: What it was called as.
        since_utc: When it took the lock, ISO 8601.
    """

    user: str
    host: str
    pid: int
    program: str
    since_utc: str

    @property
    def name(self) -> str:
        """How it is named for a take-over, such as ``ada@lab3:4711``."""
        return f"{self.user}@{self.host}:{self.pid}"

    @classmethod
    def here(cls, program: str) -> LockOwner:
        """Return this process as an owner."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(_user(), socket.gethostname(), os.getpid(), program, now)


class BenchLock:
    """The lock of one bench; taken when it is entered as a context manager, let go when it is left.

    Args:
        directory: State directory of the bench.
        program: What this program is called, shown to others.
        take_over: Name of the owner to be replaced: ``user@host:pid``, or ``user@host``, as the error says it. Anybody
            else who holds the bench is not.

    Attributes:
        dead_owner: The owner on this host whose program ended without letting go, if there was one.
    """

    def __init__(self, directory: AnyPath, program: str, *, take_over: str | None = None) -> None:
        self._directory = Path(directory)
        self._take_over = take_over
        self._me = LockOwner.here(program)
        self._handle: int | None = None
        self.dead_owner: LockOwner | None = None

    def __enter__(self) -> Self:
        """Take the lock.

        Raises:
            BusyError: Another program holds it; the message says who, and how to take over.
            ConfigError: Nothing can be written there, or the owner named is not the one who holds it.
        """
        with writing(_WHAT, self._directory):
            self._directory.mkdir(parents=True, exist_ok=True)
        handle, owner, held = self._locked()
        if held:
            os.close(handle)
            self._replace(owner)
            return self
        try:
            self.dead_owner = owner if owner is not None and owner.host == self._me.host else None
            self._sign(handle)
        except BaseException:
            os.close(handle)
            raise
        self._handle = handle
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the lock go; what somebody has taken over stays theirs."""
        if self._handle is None:
            return
        with contextlib.suppress(OSError):
            if self._is_mine():
                os.ftruncate(self._handle, 0)
        os.close(self._handle)
        self._handle = None

    def check(self) -> None:
        """Give a sign of life.

        Raises:
            BusyError: Another program has taken over; nothing may be changed any more.
        """
        if self._handle is None or not self._is_mine():
            owner = lock_owner(self._directory)
            who = "nobody any more" if owner is None else f"{owner.name} ({owner.program}) since {owner.since_utc}"
            raise BusyError(
                f"the bench was taken over: it belongs to {who}.", hint="Nothing more is changed from here."
            )
        with writing(_WHAT, self._directory):
            os.utime(self._handle)

    @property
    def owner(self) -> LockOwner:
        """This program, as others see the owner of the bench."""
        return self._me

    @property
    def program(self) -> str:
        """What this program is called."""
        return self._me.program

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Change the bench within a block: whoever takes over waits until it has ended.

        Raises:
            BusyError: Another program has taken over.
        """
        with writing(_WHAT, self._directory):
            handle = os.open(self._directory / _CHANGE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if not _flocked(handle):
                raise BusyError("another program is changing the bench", hint="Try again in a moment.")
            self.check()
            yield
        finally:
            os.close(handle)

    def _locked(self) -> tuple[int, LockOwner | None, bool]:
        """Open the lock file, try to lock it, and return its handle, who is named in it, and whether they hold it."""
        path = self._directory / _LOCK
        while True:
            with writing(_WHAT, path):
                handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            locked, owner = _flocked(handle), _read_owner(handle)
            if not _is_same(handle, path):  # replaced between opening and locking
                os.close(handle)
                continue
            far = owner is not None and owner.host != self._me.host and _silent_s(handle) < STALE_S
            return handle, owner, not locked or far

    def _replace(self, owner: LockOwner | None) -> None:
        """Take over from the owner who was named, or say who it is."""
        path = self._directory / _LOCK
        if owner is None:  # between its locking and its signing
            raise BusyError("another program is just opening this bench", hint="Try again in a moment.")
        silent_s = _silent_s_of(path)
        who = (
            f"{owner.name} drives this bench with {owner.program!r} since {owner.since_utc}, "
            f"last sign of life {silent_s:.0f} s ago"
        )
        if self._take_over is None:
            raise BusyError(f"{who}.", hint=f"Wait for it to end, or take over with --take-over {owner.name}")
        if self._take_over not in (owner.name, f"{owner.user}@{owner.host}"):
            raise ConfigError(f"{self._take_over!r} does not hold the bench: {who}.", hint="Name the one who does.")
        with self._no_change(owner):
            temporary = path.with_name(f".{_LOCK}.{os.getpid()}.tmp")
            with writing(_WHAT, temporary):
                handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._sign(handle)
                temporary.replace(path)
            except BaseException:
                os.close(handle)
                temporary.unlink(missing_ok=True)
                raise
        self._handle = handle

    @contextlib.contextmanager
    def _no_change(self, owner: LockOwner) -> Iterator[None]:
        """Hold off changes of the owner, once the one under way has ended."""
        with writing(_WHAT, self._directory):
            handle = os.open(self._directory / _CHANGE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # The wall clock: what is waited for is another process, whatever clock this bench has.
            deadline = time.monotonic() + CHANGE_PATIENCE_S
            while not _flocked(handle):
                if time.monotonic() >= deadline:
                    raise BusyError(
                        f"{owner.name} is in the middle of a change for more than {CHANGE_PATIENCE_S:g} s",
                        hint=f"Look at process {owner.pid} on {owner.host}; when it ends, the bench is free.",
                    )
                time.sleep(0.05)
            yield
        finally:
            os.close(handle)

    def _sign(self, handle: int) -> None:
        with writing(_WHAT, self._directory):
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(asdict(self._me)).encode() + b"\n", 0)
            os.fsync(handle)

    def _is_mine(self) -> bool:
        return self._handle is not None and _is_same(self._handle, self._directory / _LOCK)


def lock_owner(directory: AnyPath) -> LockOwner | None:
    """Return who holds a bench, without touching the lock; ``None`` if nobody does.

    An owner on this host whose program has ended does not count, however it ended.
    """
    try:
        handle = os.open(Path(directory) / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        owner = _read_owner(handle)
        if owner is None or (owner.host == socket.gethostname() and _flocked(handle, shared=True)):
            return None
        return owner
    finally:
        os.close(handle)


def _flocked(handle: int, *, shared: bool = False) -> bool:
    """Lock a file without waiting; return whether it worked. A file system that knows no locks is one nobody holds."""
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # the owner's last sign of life decides
    return True


def _read_owner(handle: int) -> LockOwner | None:
    """Return who has signed a lock file; ``None`` where nobody has, or what stands there is no name."""
    text = os.pread(handle, _MAX_BYTES, 0)
    try:
        document: Any = parse_json(text, _WHAT) if text.strip() else None
        return LockOwner(**document) if isinstance(document, dict) else None
    except (ConfigError, TypeError):
        return None


def _is_same(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except OSError:
        return False


def _silent_s(handle: int) -> float:
    return max(time.time() - os.fstat(handle).st_mtime, 0.0)


def _silent_s_of(path: Path) -> float:
    try:
        return max(time.time() - path.stat().st_mtime, 0.0)
    except OSError:
        return 0.0


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
