"""The event log of a bench: one JSON object per line, flushed as it happens."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from lumion_hw.clock import Clock
from lumion_hw.files import AnyPath
from lumion_hw.files.writing import check_target, writing


class EventLog:
    """Events with the bench's time; kept in memory until a file is given, then written line by line.

    Args:
        clock: The bench's clock.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start_s = clock.now()
        self._file: IO[bytes] | None = None
        self._path = Path()
        self._early: list[str] = []
        self._followers: list[Callable[[dict[str, Any]], None]] = []

    def follow(self, told: Callable[[dict[str, Any]], None]) -> None:
        """Tell somebody of every event from now on, in the thread that logs it."""
        self._followers.append(told)

    def write_to(self, path: AnyPath) -> None:
        """Write all events, those so far and those to come, to a file, behind what it may hold already.

        A line that an earlier run left torn stays alone in its line.

        Raises:
            ConfigError: Nothing can be written there, or there is something that is no event log.
            LumionError: There is no room.
        """
        self.close()
        path = Path(path)
        with writing("the event log", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file, self._path = check_target(path, "the event log").open("a+b", buffering=0), path
            torn = self._file.seek(0, os.SEEK_END) > 0
            if torn:
                self._file.seek(-1, os.SEEK_END)
                torn = self._file.read(1) != b"\n"
        early, self._early = self._early, []
        self._write(("\n" if torn else "") + "".join(early))

    def add(self, event: str, **data: Any) -> None:
        """Log an event. ``data`` holds plain values, units in the names; ``bench_s`` is the log's own time.

        Raises:
            LumionError: The file cannot be written any more; this event and later ones are kept in memory.
        """
        # First, to be read first in the line, and last again: no value of an event replaces time and name.
        own = {"bench_s": round(self._clock.now() - self._start_s, 6), "event": event}
        entry = own | data | own
        line = json.dumps(entry, default=_plain)
        for told in self._followers:
            told(json.loads(line))
        self._write(line + "\n")

    def _write(self, lines: str) -> None:
        """Write lines to the file at once, or keep them."""
        if self._file is None:
            self._early.append(lines)
            return
        try:
            with writing("the event log", self._path):
                left = lines.encode()
                # An unbuffered file may take a part of what it is given.
                while left:
                    left = left[self._file.write(left) :]
        except BaseException:
            self._early.append(lines)
            self.close()
            raise

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
