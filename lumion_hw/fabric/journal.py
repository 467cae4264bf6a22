"""What the fabric's manager knows, kept in a file: who stands in whose place, what has failed, which recovery goes on.

One journal (:mod:`lumion_hw.storage.line_journal`) beside that of the circuits. A recovery is two entries: ``begun``
before anything is changed, ``ended`` with the spans when it is done or refused. A manager that is killed in between
leaves ``begun`` alone, and the next one goes on from what stands. Every entry holds all that is known: a journal that
has grown large begins anew with its last one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from lumion_hw.circuits.state import now_utc
from lumion_hw.errors import ConfigError
from lumion_hw.fabric.evidence import FailureVerdict
from lumion_hw.files import AnyPath
from lumion_hw.files.reading import path_exists
from lumion_hw.storage.line_journal import LineJournal, checked, read_lines

JOURNAL = "fabric.jsonl"
"""Name of the journal in the state directory."""
_FORMAT = "lumion-fabric 1"
_WHAT = "the journal of the fabric"


@dataclass(frozen=True)
class FabricState:
    """What is known.

    Attributes:
        places: Who stands in the place of a job's member, by member; members that stand themselves are left out.
        failed: Why a server or accelerator counts as failed, by name.
        avoided: PUCs that circuits are led round since a path over them has failed.
        refused: Why a job has no circuits, by job.
        open: FailureVerdict on which a recovery was begun that has not ended.
        fades: Times light was gone for a while and came back.
        false_alarms: Verdicts whose light came back by itself.
    """

    places: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    avoided: tuple[int, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    open: Mapping[str, Any] | None = None
    fades: int = 0
    false_alarms: int = 0

    def at(self, member: str) -> str:
        """Return who stands in the place of a member."""
        return self.places.get(member, member)


class FabricJournal:
    """The journal, open for writing; hold the bench's lock meanwhile.

    Args:
        directory: State directory of the bench.
        bench: Name of the bench.

    Raises:
        ConfigError: It is of another bench, or damaged.
        LumionError: Nothing can be written there.
    """

    def __init__(self, directory: AnyPath, bench: str) -> None:
        header = {"entry": "header", "format": _FORMAT, "bench": bench}
        self._lines = LineJournal(Path(directory) / JOURNAL, _WHAT, header)
        self.state = _state(self._lines.take_existing_entries(), self._lines.path)

    def begin(self, verdict: FailureVerdict) -> None:
        """Note that a recovery begins. Nothing may be changed before this has returned."""
        self._note("begun", dataclasses.replace(self.state, open=dataclasses.asdict(verdict)))

    def end(self, outcome: str, state: FabricState, **told: Any) -> None:
        """Note how it ended, and what is known now; ``told`` is kept for the history."""
        self._note("ended", dataclasses.replace(state, open=None), outcome=outcome, **told)

    def note(self, what: str, state: FabricState, **told: Any) -> None:
        """Note something else that has changed what is known, such as ``failed`` and ``repaired``."""
        self._note(what, state, **told)

    def _note(self, what: str, state: FabricState, **told: Any) -> None:
        entry = {"entry": what, "utc": now_utc(), **told, "state": dataclasses.asdict(state)}
        self._lines.append(entry)
        self.state = state
        self._lines.restart_if_large(entry)

    def close(self) -> None:
        """Close the file; idempotent."""
        self._lines.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_fabric(directory: AnyPath) -> tuple[FabricState, list[Mapping[str, Any]]]:
    """Return what the journal of a bench says, and its entries, changing nothing.

    Raises:
        ConfigError: It is damaged.
    """
    path = Path(directory) / JOURNAL
    if not path_exists(path, _WHAT):
        return FabricState(), []
    entries = read_lines(path, _WHAT).entries
    return _state(entries, path), list(entries[1:])


def _state(entries: Sequence[Mapping[str, Any]], path: Path) -> FabricState:
    if entries and entries[0].get("format") != _FORMAT:
        raise ConfigError(f"{path} is no {_FORMAT} journal", hint="Choose another directory with --state.")
    states = [entry["state"] for entry in entries if "state" in entry]
    if not states:
        return FabricState()
    state = checked(FabricState, states[-1], path)
    if state.open is not None:
        checked(FailureVerdict, state.open, path)
    return state
