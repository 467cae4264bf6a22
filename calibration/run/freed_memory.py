"""What large arrays free stays with the process while a calibration runs, for the next ones.

A fit makes and drops thousands of arrays of some tens of megabytes. The allocator of glibc gives each of them back to
the system and asks for it anew, cleared page by page: an eighth of the CPU time of a calibration of 72 PUCs with all
its physics (docs/performance.md#freed-memory).
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator
from typing import Any

# Numbers of malloc.h, and what glibc begins with; the largest it raises the second one to by itself is 32 MiB.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_USUAL = {_TRIM_THRESHOLD: 64 * 1024 * 1024, _MMAP_THRESHOLD: 32 * 1024 * 1024}
KEPT_BYTES = 1 << 30
# Larger arrays, those of large meshes, go back at once: kept, they leave gaps that the next ones do not fit into.
LARGE_BYTES = 64 * 1024 * 1024
_guard = threading.Lock()
_running: list[object] = []


@contextlib.contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Keep up to 1 GiB of what is freed, in arrays of 64 MiB at most, for the time of a block.

    It goes back to the system after the last such block.

    Where the C library has no ``mallopt``, nothing is done.
    """
    library, me = _c_library(), object()
    with _guard:
        _running.append(me)
        _set(library, {_TRIM_THRESHOLD: KEPT_BYTES, _MMAP_THRESHOLD: LARGE_BYTES})
    try:
        yield
    finally:
        with _guard:
            _running.remove(me)
            if not _running:
                _set(library, _USUAL)
                if hasattr(library, "malloc_trim"):
                    library.malloc_trim(0)


def _c_library() -> Any:
    try:
        return ctypes.CDLL(None)
    except (OSError, TypeError):  # a system on which a process cannot be asked for its symbols
        return None


def _set(library: Any, options: dict[int, int]) -> None:
    if hasattr(library, "mallopt"):
        for option, value in options.items():
            library.mallopt(option, value)
