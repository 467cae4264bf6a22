"""Journal of changes over several benches, so that a change that was interrupted can be finished or undone.

A change has the entries ``begun``, written before any bench changes; ``decided``, written when all circuits are proven
and all benches have to keep their segments; and ``ended``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from lumion_hw.circuits.state import now_utc
from lumion_hw.errors import ConfigError
from lumion_hw.files import AnyPath
from lumion_hw.storage.line_journal import LineJournal, parse_entry

JOURNAL = "joined.jsonl"
"""File name of the journal in the state directory."""
_FORMAT = "lumion-joined 1"
_FILE_KIND = "the journal of joined meshes"


@dataclass(frozen=True)
class JoinedChange:
    """A change over several benches that was begun.

    Attributes:
        name: Name of the change, which the benches know too.
        kind: ``connect`` or ``disconnect``.
        circuits: Names of the circuits.
        segments: Names of the segments on each bench.
        since_utc: Time when the change was begun.
        decided: Whether all circuits were proven, so that the benches have to keep their segments.
    """

    name: str
    kind: str
    circuits: tuple[str, ...]
    segments: Mapping[str, tuple[str, ...]]
    since_utc: str
    decided: bool = False


class JoinedJournal:
    """Journal of one file of joined meshes, open for writing; the caller must hold the lock of the directory.

    Attributes:
        unfinished: The change that was begun and not ended; ``None`` if there is none.

    Raises:
        ConfigError: The journal belongs to other meshes or is damaged, or the directory is not writable.
        LumionError: The disk is full.
    """

    def __init__(self, directory: AnyPath, name: str) -> None:
        header = {"entry": "header", "format": _FORMAT, "name": name}
        self._lines = LineJournal(Path(directory) / JOURNAL, _FILE_KIND, header, _is_complete)
        self._number = 0
        self.unfinished: JoinedChange | None = None
        for entry in self._lines.take_existing_entries()[1:]:
            self._read(entry)

    def _read(self, entry: Mapping[str, Any]) -> None:
        if entry.get("entry") == "begun":
            self._number += 1
            self.unfinished = parse_entry(JoinedChange, entry.get("change"), self._lines.path)
        elif entry.get("entry") == "decided" and self.unfinished is not None:
            self.unfinished = dataclasses.replace(self.unfinished, decided=True)
        elif entry.get("entry") == "ended":
            self.unfinished = None

    @property
    def next_number(self) -> int:
        """Number of the next change."""
        return self._number + 1

    def begin(self, change: JoinedChange) -> None:
        """Record that a change begins. Do not change anything before this returns.

        Raises:
            ConfigError: Another change is unfinished.
            LumionError: The disk is full.
        """
        self.check_finished()
        self._lines.append({"entry": "begun", "utc": now_utc(), "change": dataclasses.asdict(change)})
        self._number += 1
        self.unfinished = change

    def check_finished(self) -> None:
        """Raise ``ConfigError`` if a change is unfinished."""
        if self.unfinished is not None:
            raise ConfigError(
                f"the change {self.unfinished.name} ({self.unfinished.kind} {', '.join(self.unfinished.circuits[:4])}) "
                f"was begun {self.unfinished.since_utc} and not finished",
                hint="Run `lumion joined recover FILE`, which finishes it or undoes it on all benches.",
            )

    def decide(self) -> None:
        """Record that all circuits are proven, so that the benches keep them. Raises ``LumionError`` on a full disk."""
        if self.unfinished is not None:
            self._lines.append({"entry": "decided", "utc": now_utc(), "name": self.unfinished.name})
            self.unfinished = dataclasses.replace(self.unfinished, decided=True)

    def end(self, outcome: str) -> None:
        """Record the outcome of the change. Raises ``LumionError`` if the disk is full."""
        entry = {"entry": "ended", "utc": now_utc(), "outcome": outcome}
        self._lines.append(entry)
        self.unfinished = None
        self._lines.restart_if_large(entry)

    def close(self) -> None:
        """Close the journal file; idempotent."""
        self._lines.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_complete(entry: Mapping[str, Any]) -> bool:
    return entry.get("entry") == "ended"
