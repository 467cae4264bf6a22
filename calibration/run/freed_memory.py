"""Reuse of freed memory during a calibration.

Without it, glibc returns large arrays to the system, which costs an eighth of the CPU time
(docs/performance.md#run-time-of-a-calibration).
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator
from typing import Any

# Constants of malloc.h, and the defaults of glibc, which raises the second one automatically up to 32 MiB.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_USUAL = {_TRIM_THRESHOLD: 64 * 1024 * 1024, _MMAP_THRESHOLD: 32 * 1024 * 1024}
RETAINED_BYTES = 1 << 30
# Larger arrays (large meshes) are returned at once, because they would leave gaps too small for the next ones.
LARGE_BYTES = 64 * 1024 * 1024
_guard = threading.Lock()
_running: list[object] = []


@contextlib.contextmanager
def keep_freed_memory() -> Iterator[None]:
    """Keep up to 1 GiB of freed memory, in arrays of up to 64 MiB, during a ``with`` block.

    The memory is returned at the end of the last such block. Does nothing without ``mallopt`` in the C library.
    """
    library, marker = _c_library(), object()
    with _guard:
        _running.append(marker)
        _set(library, {_TRIM_THRESHOLD: RETAINED_BYTES, _MMAP_THRESHOLD: LARGE_BYTES})
    try:
        yield
    finally:
        with _guard:
            _running.remove(marker)
            if not _running:
                _set(library, _USUAL)
                if hasattr(library, "malloc_trim"):
                    library.malloc_trim(0)


def _c_library() -> Any:
    try:
        return ctypes.CDLL(None)
    except (OSError, TypeError):  # this system does not support symbol lookup in the process
        return None


def _set(library: Any, options: dict[int, int]) -> None:
    if hasattr(library, "mallopt"):
        for option, value in options.items():
            library.mallopt(option, value)
