"""The event log of a bench: one JSON object per line, flushed as it happens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, Any

from lumion_hw.clock import Clock


class EventLog:
    """Events with the bench's time; kept in memory until a file is given, then written line by line.

    Args:
        clock: The bench's clock.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start_s = clock.now()
        self._file: IO[str] | None = None
        self._early: list[str] = []

    def write_to(self, path: Path) -> None:
        """Write all events, those so far and those to come, to a file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.close()
        self._file = path.open("a", encoding="utf-8")
        for line in self._early:
            self._file.write(line)
        self._file.flush()
        self._early.clear()

    def add(self, event: str, **data: Any) -> None:
        """Log an event. ``data`` holds plain values, units in the names."""
        entry = {"bench_s": round(self._clock.now() - self._start_s, 6), "event": event, **data}
        line = json.dumps(entry, default=str) + "\n"
        if self._file is None:
            self._early.append(line)
        else:
            self._file.write(line)
            self._file.flush()

    def close(self) -> None:
        """Close the file, if there is one; later events are kept in memory."""
        if self._file is not None:
            self._file.close()
            self._file = None
