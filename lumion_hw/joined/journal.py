"""Journal of changes over several benches, so that a change that was interrupted can be finished or undone.

A change has the entries ``begun``, written before any bench changes; ``decided``, written when all circuits are proven
and all benches have to keep their segments; and ``ended``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from lumion_hw.circuits.state import now_utc
from lumion_hw.errors import ConfigError
from lumion_hw.files import AnyPath
from lumion_hw.files.reading import path_exists
from lumion_hw.storage.line_journal import LineJournal, OwnJournal, parse_entry, read_lines

JOURNAL = "joined.jsonl"
"""File name of the journal in the state directory."""
KEPT = "kept"
"""Outcome of a connection that was proven and stays."""
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
        replaced: Names of the circuits that the new ones replace.
        removed: Names of their segments on each bench.
        decided: Whether all circuits were proven, so that the benches have to keep their segments.
    """

    name: str
    kind: str
    circuits: tuple[str, ...]
    segments: Mapping[str, tuple[str, ...]]
    since_utc: str
    replaced: tuple[str, ...] = ()
    removed: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    decided: bool = False

    @property
    def ending(self) -> tuple[str, ...]:
        """Names of the circuits that the change takes away."""
        return self.circuits if self.kind == "disconnect" else tuple(set(self.replaced) - set(self.circuits))


@dataclass(frozen=True)
class JoinedHistory:
    """Changes over several benches, as a journal records them.

    Attributes:
        circuits: Circuits that were connected and not disconnected; after an accident they may be dark.
        last: The last change that has ended; ``None`` before the first.
        outcome: Outcome of the last change, such as ``kept`` or ``undone: no light at rack1:3``.
        ended_utc: Time when the last change ended.
        unfinished: The change that was begun and not ended; ``None`` if there is none.
        number: Number of changes that were begun.
    """

    circuits: tuple[str, ...] = ()
    last: JoinedChange | None = None
    outcome: str = ""
    ended_utc: str = ""
    unfinished: JoinedChange | None = None
    number: int = 0

    def summary(self) -> str:
        """Return the unfinished or the last change as one line; empty before the first."""
        change = self.unfinished or self.last
        if change is None:
            return ""
        outcome = self.outcome if self.unfinished is None else "not finished"
        circuits = "1 circuit" if len(change.circuits) == 1 else f"{len(change.circuits)} circuits"
        return f"{change.kind} {circuits} ({change.name}): {outcome}"

    @property
    def changed_s(self) -> float | None:
        """Time when the unfinished change began, or the last one ended, in s since 1970; ``None`` before the first."""
        utc = self.ended_utc if self.unfinished is None else self.unfinished.since_utc
        return datetime.fromisoformat(utc).timestamp() if utc else None

    def begun(self, change: JoinedChange) -> JoinedHistory:
        """Return the history after a change has begun."""
        return dataclasses.replace(self, unfinished=change, number=self.number + 1)

    def decided(self) -> JoinedHistory:
        """Return the history after the circuits of the unfinished change were proven."""
        change = None if self.unfinished is None else dataclasses.replace(self.unfinished, decided=True)
        return dataclasses.replace(self, unfinished=change)

    def ended(self, outcome: str, utc: str) -> JoinedHistory:
        """Return the history after the unfinished change has ended."""
        change, circuits = self.unfinished, self.circuits
        if change is not None:
            # Once all were proven, replaced circuits are gone even if the new ones are undone. A lost circuit that
            # could not be connected again stays in the list, so that it is still reported.
            gone = change.ending if change.decided or change.kind == "disconnect" else ()
            kept = [name for name in change.circuits if name not in circuits] if outcome == KEPT else []
            circuits = (*(name for name in circuits if name not in gone), *kept)
        return dataclasses.replace(
            self, circuits=circuits, last=change or self.last, outcome=outcome, ended_utc=utc, unfinished=None
        )


class JoinedJournal(OwnJournal):
    """Journal of one file of joined meshes, open for writing; the caller must hold the lock of the directory.

    Attributes:
        history: The changes so far.

    Raises:
        ConfigError: The journal belongs to other meshes or is damaged, or the directory is not writable.
        LumionError: The disk is full.
    """

    def __init__(self, directory: AnyPath, name: str) -> None:
        header = {"entry": "header", "format": _FORMAT, "name": name}
        super().__init__(LineJournal(Path(directory) / JOURNAL, _FILE_KIND, header, _is_complete))
        self.history = _history(self._lines.take_existing_entries(), self._lines.path)

    @property
    def unfinished(self) -> JoinedChange | None:
        """The change that was begun and not ended; ``None`` if there is none."""
        return self.history.unfinished

    @property
    def next_number(self) -> int:
        """Number of the next change."""
        return self.history.number + 1

    def begin(self, change: JoinedChange) -> None:
        """Record that a change begins. Do not change anything before this returns.

        Raises:
            ConfigError: Another change is unfinished.
            LumionError: The disk is full.
        """
        self.check_finished()
        self._lines.append({"entry": "begun", "utc": now_utc(), "change": dataclasses.asdict(change)})
        self.history = self.history.begun(change)

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
            self.history = self.history.decided()

    def end(self, outcome: str) -> None:
        """Record the outcome of the change. Raises ``LumionError`` if the disk is full."""
        utc = now_utc()
        history = self.history.ended(outcome, utc)
        entry = {"entry": "ended", "utc": utc, "outcome": outcome, "history": dataclasses.asdict(history)}
        self._lines.append(entry)
        self.history = history
        self._lines.restart_if_large(entry)


def read_joined(directory: AnyPath) -> JoinedHistory:
    """Return the changes that the journal in a directory records; takes no lock.

    Raises:
        ConfigError: The journal is damaged.
    """
    path = Path(directory) / JOURNAL
    if not path_exists(path, _FILE_KIND):
        return JoinedHistory()
    return _history(read_lines(path, _FILE_KIND, _is_complete).entries, path)


def _history(entries: Sequence[Mapping[str, Any]], path: Path) -> JoinedHistory:
    history = JoinedHistory()
    for entry in entries[1:]:  # after the header
        match entry.get("entry"):
            case "begun":
                history = history.begun(parse_entry(JoinedChange, entry.get("change"), path))
            case "decided":
                history = history.decided()
            case "ended" if "history" in entry:
                history = parse_entry(JoinedHistory, entry["history"], path)
            case "ended":  # of an earlier version
                history = history.ended(str(entry.get("outcome", "")), str(entry.get("utc", "")))
    return history


def _is_complete(entry: Mapping[str, Any]) -> bool:
    return entry.get("entry") == "ended"
