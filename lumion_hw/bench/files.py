"""Writing files: a failure of the operating system in one sentence, with the exit code that fits it."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from lumion_hw.errors import ConfigError, LumionError

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


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
        failure = f"cannot write {what} {path}: {error.strerror or error}."
        if error.errno in _NO_ROOM:
            raise LumionError(failure, hint="Make room, or choose another place.") from error
        raise ConfigError(failure, hint="Choose another place.") from error
