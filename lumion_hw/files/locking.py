"""A lock on an open file, which the system releases when the process ends."""

from __future__ import annotations

import fcntl
from pathlib import Path

from lumion_hw.errors import BusyError


def lock_file(handle: int, path: Path, what: str, hint: str) -> None:
    """Lock an open file for this process alone. A file system without locks locks nothing.

    Args:
        handle: Its descriptor.
        path: Its path, for the message.
        what: What it is, for the message.
        hint: What to do if another process has it.

    Raises:
        BusyError: Another process, or another descriptor of this process, holds the lock.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise BusyError(f"{what} {path} is in use by another process", hint=hint) from error
    except OSError:
        pass
