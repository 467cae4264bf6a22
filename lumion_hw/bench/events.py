"""The event log of a bench: one JSON object per line, written immediately."""

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

_MAX_IN_MEMORY = 20_000
"""Largest number of events in memory while no file is open; older events are dropped."""


class EventLog:
    """Log of events with the time of the bench clock. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start_s = clock.now()
        self._file: IO[bytes] | None = None
        self._path = Path()
        self._pending: deque[str] = deque(maxlen=_MAX_IN_MEMORY)
        self._max_bytes, self._size = math.inf, 0
        self._lock = fork_safe(threading.RLock())
        self._listeners: list[Callable[[dict[str, Any]], None]] = []

    def add_listener(self, listener: Callable[[dict[str, Any]], None]) -> None:
        """Call ``listener`` with every future event, in the thread that logs the event."""
        self._listeners.append(listener)

    def write_to(self, path: AnyPath, max_bytes: float = math.inf) -> None:
        """Append all past and future events to a file.

        Args:
            path: The file.
            max_bytes: Size in bytes above which the file is renamed to ``NAME.old``, replacing an older file, and a new
                file is started.

        Raises:
            ConfigError: The path is not writable, or contains another kind of file.
            LumionError: The disk is full.
        """
        self.close()
        path = Path(path)
        with writing("the event log", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file, self._path = check_target(path, "the event log").open("a+b", buffering=0), path
            self._size, self._max_bytes = self._file.seek(0, os.SEEK_END), max_bytes
            is_incomplete = self._size > 0
            if is_incomplete:
                self._file.seek(-1, os.SEEK_END)
                is_incomplete = self._file.read(1) != b"\n"
        pending = "".join(self._pending)
        self._pending.clear()
        self._write(("\n" if is_incomplete else "") + pending)

    def add(self, event: str, **data: Any) -> None:
        """Log an event with its data. Names of the data include units (``power_dbm``).

        Raises:
            LumionError: The file can no longer be written; this event and later ones are kept in memory.
        """
        # Merged twice: the first time sets the order of the keys, the second keeps `data` from replacing them.
        header = {"bench_s": round(self._clock.now() - self._start_s, 6), "event": event}
        entry = header | data | header
        line = json_text(entry, default=_as_json_value)
        for listener in self._listeners:
            listener(json.loads(line))
        self._write(line + "\n")

    def _write(self, lines: str) -> None:
        with self._lock:
            if self._file is None:
                self._pending.append(lines)
                return
            try:
                with writing("the event log", self._path):
                    remaining = lines.encode()
                    if self._size > self._max_bytes:
                        self._file = self._rotated_file(self._file)
                    self._size += len(remaining)
                    # An unbuffered file may write only a part.
                    while remaining:
                        remaining = remaining[self._file.write(remaining) :]
            except BaseException:
                self._pending.append(lines)
                self.close()
                raise

    def _rotated_file(self, full: IO[bytes]) -> IO[bytes]:
        os.replace(self._path, self._path.with_name(self._path.name + ".old"))
        full.close()
        self._size = 0
        return self._path.open("a+b", buffering=0)

    def close(self) -> None:
        """Close the log file; later events stay in memory. Never raises."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None


def _as_json_value(value: object) -> object:
    to_list = getattr(value, "tolist", None)
    return to_list() if callable(to_list) else str(value)
