"""Writing files that somebody named: whole or not at all, into regular files only, and over nothing of others."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from lumion_hw.errors import ConfigError, LumionError
from lumion_hw.files.made_here import made_here
from lumion_hw.files.reading import KINDS

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})

Over = Literal["nothing", "own", "any"]
"""What may be written over: no file at all, one that this program has made, or any regular file."""


def over(force: bool) -> Over:
    """Return what a command may write over that has ``--force``."""
    return "any" if force else "own"


@contextlib.contextmanager
def writing(what: str, path: Path) -> Iterator[None]:
    """Turn an ``OSError`` of the block into an error of this package.

    Args:
        what: What is written, for the message.
        path: Where to.

    Raises:
        ConfigError: Nothing can be written at this path.
        LumionError: The path is right, but there is no room, or the disk failed.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, LumionError):
            raise
        failure = f"cannot write {what} {_short(path)}: {error.strerror or error}."
        if error.errno in _NO_ROOM:
            raise LumionError(failure, hint="Make room, or choose another place.") from error
        raise ConfigError(failure, hint="Choose another place.") from error


def check_target(path: Path, what: str, over: Over = "own") -> Path:
    """Return where a file is to be written: links are followed, so that they stay links.

    For commands that work before they write: what cannot be written is refused at once.

    Args:
        path: What somebody named.
        what: What is to be written, for the message.
        over: What may be written over.

    Raises:
        ConfigError: There is something that must not be written over, or that is no file.
    """
    with writing(what, path):
        if not path.name or "\0" in str(path):
            raise ConfigError(f"cannot write {what}: {str(path)!r} names no file", hint="Choose another name.")
        real = Path(os.path.realpath(path))
        try:
            mode = real.stat().st_mode
        except FileNotFoundError:
            if path.is_symlink() and not real.parent.is_dir():
                raise ConfigError(
                    f"cannot write {what} {path}: it links to {real}, and there is no directory {real.parent}",
                    hint="Make that directory, or choose another name.",
                ) from None
            return real
        if not stat.S_ISREG(mode):
            kind = KINDS.get(stat.S_IFMT(mode), "something else")
            raise ConfigError(f"cannot write {what} {path}: it is {kind}, not a file", hint="Choose another name.")
        if over == "nothing":
            raise ConfigError(f"{path} exists", hint="Choose another name.")
        if over == "own":
            _check_own(real, path, what, mode)
    return real


def _check_own(real: Path, path: Path, what: str, mode: int) -> None:
    """Refuse a file of somebody else, or one that is protected."""
    hint = "Choose another name, or move it away; --force writes over it where a command has that."
    if not mode & 0o222:
        raise ConfigError(f"cannot write {what} {path}: that file is read-only.", hint=hint)
    if not made_here(real):
        raise ConfigError(f"cannot write {what} {path}: that file was not made by this program.", hint=hint)


def write_file(path: Path, what: str, content: str | bytes | Callable[[Path], None], over: Over = "own") -> None:
    """Write a file so that a reader finds the old one or the new one, never half of it.

    It is written under another name beside it, synced and renamed; then the directory is synced.

    Args:
        path: Where to.
        what: What it is, for the message.
        content: Text, bytes, or a function that writes the file at the path it is given.
        over: What may be written over.

    Raises:
        ConfigError: Nothing can be written there, or there is something that must not be written over.
        LumionError: There is no room, or the disk failed.
    """
    with writing(what, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        real = check_target(path, what, over)
        temporary = real.with_name(f".{real.name}.{os.getpid()}.tmp")
        try:
            if callable(content):
                content(temporary)
            else:
                temporary.write_bytes(content.encode() if isinstance(content, str) else content)
            _sync(temporary)
            temporary.replace(real)
        finally:
            temporary.unlink(missing_ok=True)
        _sync(real.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _short(path: Path) -> str:
    text = str(path)
    return text if len(text) <= 300 else f"{text[:300]}…"
