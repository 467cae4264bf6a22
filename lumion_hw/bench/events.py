"""The event log of a bench: one JSON object per line, flushed as it happens."""

from __future__ import annotations

import contextlib
import json
import math
import os
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from lumion_hw.clock import Clock
from lumion_hw.files import AnyPath
from lumion_hw.files.json_text import json_text
from lumion_hw.files.writing import check_target, writing
from lumion_hw.links.owner import fork_safe

_MOST_KEPT = 20_000
"""Events without a file: of a bench that is open for weeks, or whose disk is full, the newest are kept."""


class EventLog:
    """Events with the bench's time; kept in memory until a file is given, then written line by line. Thread-safe.

    Args:
        clock: The bench's clock.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start_s = clock.now()
        self._file: IO[bytes] | None = None
        self._path = Path()
        self._early: deque[str] = deque(maxlen=_MOST_KEPT)
        self._most_bytes, self._size = math.inf, 0
        self._guard = fork_safe(threading.RLock())
        self._listeners: list[Callable[[dict[str, Any]], None]] = []

    def add_listener(self, told: Callable[[dict[str, Any]], None]) -> None:
        """Tell somebody of every event from now on, in the thread that logs it."""
        self._listeners.append(told)

    def write_to(self, path: AnyPath, max_bytes: float = math.inf) -> None:
        """Write all events, those so far and those to come, to a file, behind what it may hold already.

        A line that an earlier run left torn stays alone in its line.

        Args:
            path: The file.
            max_bytes: A file that has grown beyond this is set aside as ``NAME.old``, in the place of the one before,
                and begun anew.

        Raises:
            ConfigError: Nothing can be written there, or there is something that is no event log.
            LumionError: There is no room.
        """
        self.close()
        path = Path(path)
        with writing("the event log", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file, self._path = check_target(path, "the event log").open("a+b", buffering=0), path
            self._size, self._most_bytes = self._file.seek(0, os.SEEK_END), max_bytes
            torn = self._size > 0
            if torn:
                self._file.seek(-1, os.SEEK_END)
                torn = self._file.read(1) != b"\n"
        early = "".join(self._early)
        self._early.clear()
        self._write(("\n" if torn else "") + early)

    def add(self, event: str, **data: Any) -> None:
        """Log an event. ``data`` holds plain values, units in the names; ``bench_s`` is the log's own time.

        Raises:
            LumionError: The file cannot be written any more; this event and later ones are kept in memory.
        """
        # First, to be read first in the line, and last again: no value of an event replaces time and name.
        own = {"bench_s": round(self._clock.now() - self._start_s, 6), "event": event}
        entry = own | data | own
        line = json_text(entry, default=_plain)
        for told in self._listeners:
            told(json.loads(line))
        self._write(line + "\n")

    def _write(self, lines: str) -> None:
        """Write lines to the file at once, or keep them."""
        with self._guard:
            if self._file is None:
                self._early.append(lines)
                return
            try:
                with writing("the event log", self._path):
                    left = lines.encode()
                    if self._size > self._most_bytes:
                        self._file = self._begun_anew(self._file)
                    self._size += len(left)
                    # An unbuffered file may take a part of what it is given.
                    while left:
                        left = left[self._file.write(left) :]
            except BaseException:
                self._early.append(lines)
                self.close()
                raise

    def _begun_anew(self, full: IO[bytes]) -> IO[bytes]:
        """Return an empty file in the place of one that has grown, which stays beside it."""
        os.replace(self._path, self._path.with_name(self._path.name + ".old"))
        full.close()
        self._size = 0
        return self._path.open("a+b", buffering=0)

    def close(self) -> None:
        """Close the file, if there is one; later events are kept in memory. Never raises."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None


def _plain(value: object) -> object:
    """Return numbers and arrays of numpy as JSON knows them, anything else as text."""
    to_list = getattr(value, "tolist", None)
    return to_list() if callable(to_list) else str(value)
