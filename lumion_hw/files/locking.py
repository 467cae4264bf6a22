"""Locks an open file; the system releases the lock when the process ends."""

from __future__ import annotations

import fcntl
from pathlib import Path

from lumion_hw.errors import BusyError


def lock_file(handle: int, path: Path, description: str, hint: str) -> None:
    """Lock an open file exclusively; no effect on a file system without locks.

    ``description`` is the kind of file for the message.

    Raises:
        BusyError: Another process, or another descriptor of this process, holds the lock.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise BusyError(f"{description} {path} is in use by another process", hint=hint) from error
    except OSError:
        pass
