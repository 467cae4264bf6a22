"""Writes user files: completely or not at all, and never over files of other programs."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from lumion_hw.errors import ConfigError, LumionError
from lumion_hw.files.own_files import is_own_file
from lumion_hw.files.reading import KINDS

_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})

Overwrite = Literal["nothing", "own", "any"]
"""Files that may be overwritten: none, files of this program, or any regular file."""


def overwrite_policy(force: bool) -> Overwrite:
    """Return which files a command may overwrite, with or without ``--force``."""
    return "any" if force else "own"


@contextlib.contextmanager
def writing(description: str, path: Path) -> Iterator[None]:
    """Convert an ``OSError`` in the ``with`` block to an error of this package.

    Args:
        description: Kind of file, for the message.
        path: The file.

    Raises:
        ConfigError: The path is not writable.
        LumionError: The disk is full or failed.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, LumionError):
            raise
        failure = f"cannot write {description} {_short(path)}: {error.strerror or error}."
        if error.errno in _DISK_ERRORS:
            raise LumionError(failure, hint="Free some disk space, or choose another directory.") from error
        raise ConfigError(failure, hint="Choose another path.") from error


def check_target(path: Path, description: str, overwrite: Overwrite = "own") -> Path:
    """Check that a file can be written, and return its path with symbolic links resolved.

    Call this before long work, so that a wrong path fails at once.

    Args:
        path: Path given by the user.
        description: Kind of file, for the message.
        overwrite: Files that may be overwritten.

    Raises:
        ConfigError: The path is not a file, or the file must not be overwritten.
    """
    with writing(description, path):
        if not path.name or "\0" in str(path):
            raise ConfigError(
                f"cannot write {description}: {str(path)!r} is not a file name", hint="Choose another name."
            )
        real = Path(os.path.realpath(path))
        try:
            mode = real.stat().st_mode
        except FileNotFoundError:
            if path.is_symlink() and not real.parent.is_dir():
                raise ConfigError(
                    f"cannot write {description} {path}: it links to {real}, and there is no directory {real.parent}",
                    hint="Create this directory, or choose another name.",
                ) from None
            return real
        if not stat.S_ISREG(mode):
            kind = KINDS.get(stat.S_IFMT(mode), "something else")
            raise ConfigError(
                f"cannot write {description} {path}: it is {kind}, not a file", hint="Choose another name."
            )
        if overwrite == "nothing":
            raise ConfigError(f"{path} already exists", hint="Choose another name, or move the file away.")
        if overwrite == "own":
            _check_own(real, path, description, mode)
    return real


def _check_own(real: Path, path: Path, description: str, mode: int) -> None:
    hint = "Choose another name, move the file away, or give --force if the command has this option."
    if not mode & 0o222:
        raise ConfigError(f"cannot write {description} {path}: the existing file is read-only.", hint=hint)
    if not is_own_file(real):
        raise ConfigError(f"cannot write {description} {path}: the existing file is not from this program.", hint=hint)


def write_file(
    path: Path, description: str, content: str | bytes | Callable[[Path], None], overwrite: Overwrite = "own"
) -> None:
    """Write a file atomically: a reader finds either the complete old file or the complete new file.

    The file is safe on the disk when this returns.

    Args:
        path: The file.
        description: Kind of file, for the message.
        content: Text, bytes, or a function that writes the file at a given path.
        overwrite: Files that may be overwritten.

    Raises:
        ConfigError: The path is not writable, or the file must not be overwritten.
        LumionError: The disk is full or failed.
    """
    with writing(description, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        real = check_target(path, description, overwrite)
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
