"""Journal of the fabric: replaced job members, failed servers and accelerators, recovery in progress.

A recovery has two entries: ``begun`` before anything changes, and ``ended``. If a program is killed in between, the
next one continues. Every entry contains the complete state.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lumion_hw.circuits.state import now_utc
from lumion_hw.errors import ConfigError
from lumion_hw.fabric.evidence import FailureVerdict
from lumion_hw.fabric.recovery import last_recovery, recovery_after
from lumion_hw.files import AnyPath
from lumion_hw.files.reading import path_exists
from lumion_hw.storage.line_journal import LineJournal, OwnJournal, parse_entry, read_lines

JOURNAL = "fabric.jsonl"
"""File name of the journal in the state directory."""
_FORMAT = "lumion-fabric 1"
_FILE_KIND = "the journal of the fabric"


@dataclass(frozen=True)
class FabricState:
    """State of the fabric (servers connected by optical circuits).

    Attributes:
        places: For each replaced member of a job, the server or accelerator that now serves in its place.
        failed: Reason why a server or accelerator counts as failed, by name.
        avoided: PUCs that circuits avoid because a path over them has failed.
        refused: Reason why a job has no circuits, by job.
        not_resumed: Reason why a connected job was not resumed after a recovery, by job.
        cold: Reason why a spare is cold (its light is not on and aligned), by spare.
        drained: Those of ``failed`` that an operator took out of service and that have not failed.
        cut_off: Those of ``failed`` that a broken PUC of the mesh cuts off and that have not failed as far as is known.
        open: Failure whose recovery was not finished.
        fades: Number of times light was gone for a while and came back.
        false_alarms: Number of failures after which the light came back without a repair.
    """

    places: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    avoided: tuple[int, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    not_resumed: Mapping[str, str] = field(default_factory=dict)
    cold: Mapping[str, str] = field(default_factory=dict)
    drained: tuple[str, ...] = ()
    cut_off: tuple[str, ...] = ()
    open: Mapping[str, Any] | None = None
    fades: int = 0
    false_alarms: int = 0

    def unit_at(self, member: str) -> str:
        """Return the server or accelerator that now serves as a member of a job."""
        return self.places.get(member, member)

    @property
    def broken(self) -> tuple[str, ...]:
        """Servers and accelerators that have failed: neither drained by an operator nor cut off by the mesh."""
        return tuple(name for name in self.failed if name not in (*self.drained, *self.cut_off))


class FabricJournal(OwnJournal):
    """Journal of the fabric, open for writing; the caller must hold the bench's lock.

    Attributes:
        state: State of the fabric.
        recovery: The last recovery that the journal contains; ``None`` before the first.

    Raises:
        ConfigError: The journal belongs to another bench or is damaged.
        LumionError: The directory is not writable.
    """

    def __init__(self, directory: AnyPath, bench: str) -> None:
        header = {"entry": "header", "format": _FORMAT, "bench": bench}
        super().__init__(LineJournal(Path(directory) / JOURNAL, _FILE_KIND, header, _is_complete))
        existing = self._lines.take_existing_entries()
        self.state = _state(existing, self._lines.path)
        self.recovery = last_recovery(existing)

    def begin(self, verdict: FailureVerdict) -> None:
        """Record that a recovery begins. Do not change anything before this returns."""
        self._record("begun", dataclasses.replace(self.state, open=verdict.document()))

    def end(self, outcome: str, state: FabricState, **details: Any) -> None:
        """Record the outcome of a recovery and the new state, with further details for the history."""
        self._record("ended", dataclasses.replace(state, open=None), outcome=outcome, **details)

    def record(self, event: str, state: FabricState, **details: Any) -> None:
        """Record a change of the fabric state outside recoveries, such as ``failed`` or ``repaired``."""
        self._record(event, state, **details)

    def _record(self, event: str, state: FabricState, **details: Any) -> None:
        entry = {"entry": event, "utc": now_utc(), **details, "state": dataclasses.asdict(state)}
        # The disk comes first: after a write error, the state in memory must not be ahead of the journal.
        self._lines.append(entry)
        self.state, self.recovery = state, recovery_after(self.recovery, entry)
        self._lines.restart_if_large(entry)


def read_fabric(directory: AnyPath) -> tuple[FabricState, list[Mapping[str, Any]]]:
    """Return the fabric state and the entries of a bench's fabric journal.

    Raises:
        ConfigError: The journal is damaged.
    """
    path = Path(directory) / JOURNAL
    if not path_exists(path, _FILE_KIND):
        return FabricState(), []
    entries = read_lines(path, _FILE_KIND, _is_complete).entries
    return _state(entries, path), list(entries[1:])


def _state(entries: Sequence[Mapping[str, Any]], path: Path) -> FabricState:
    if entries and entries[0].get("format") != _FORMAT:
        raise ConfigError(f"{path} is not a {_FORMAT} journal", hint="Choose another directory with --state.")
    states = [entry["state"] for entry in entries if "state" in entry]
    if not states:
        return FabricState()
    state = parse_entry(FabricState, states[-1], path)
    if state.open is not None:
        parse_entry(FailureVerdict, FailureVerdict.fields_of(state.open), path)
    return state


def _is_complete(entry: Mapping[str, Any]) -> bool:
    return "state" in entry
