"""Schedules as JSON documents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from lumion_hw.errors import ConfigError
from lumion_hw.files import AnyPath
from lumion_hw.files.reading import MAX_BYTES, read_json
from lumion_hw.files.writing import Overwrite, write_file
from lumion_hw.schedules.schedule import COLLECTIVES, Schedule, ScheduleRound, Transfer

_FORMAT, _VERSION = "lumion-schedule", 1
_HINT = "`lumion schedule make` writes schedules."


def schedule_document(schedule: Schedule) -> dict[str, Any]:
    """Return a schedule as a dictionary of numbers, strings and lists for JSON."""
    rounds = [
        {
            "circuits": [list(pair) for pair in round_.circuits],
            "transfers": [
                {"from": transfer.source, "to": transfer.target, "chunks": list(transfer.chunks)}
                | ({"adds": True} if transfer.adds else {})
                for transfer in round_.transfers
            ],
        }
        for round_ in schedule.rounds
    ]
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "name": schedule.name,
        "collective": schedule.collective,
        "ranks": schedule.ranks,
        "chunks": schedule.chunks,
        "duplex": schedule.duplex,
        "rounds": rounds,
    }


def save_schedule(schedule: Schedule, path: AnyPath, overwrite: Overwrite = "own") -> None:
    """Write a schedule as JSON.

    Raises:
        ConfigError: The file cannot be written, or the schedule is too large to be read again.
    """
    text = json.dumps(schedule_document(schedule)) + "\n"
    if len(text) > MAX_BYTES:
        raise ConfigError(
            f"the schedule has {len(text) // 1024} KiB as JSON, but only {MAX_BYTES // 1024} KiB can be read",
            hint="Use fewer ranks, or generate the schedule by its name instead of reading a file.",
        )
    write_file(Path(path), "schedule", text, overwrite)


def load_schedule(path: AnyPath) -> Schedule:
    """Read a schedule; :func:`lumion_hw.schedules.verify` checks that it does what its collective requires.

    Raises:
        ConfigError: The file cannot be read, or contains no schedule of this version; the message names the wrong key.
    """
    return schedule_from_document(read_json(Path(path), "schedule", hint=_HINT), str(path))


def schedule_from_document(document: Any, name: str) -> Schedule:
    """Return the schedule in a JSON document.

    ``name`` identifies the document in messages.
    """
    reader = _Fields(document, name)
    if (reader.get("format", str), reader.get("version", int)) != (_FORMAT, _VERSION):
        raise ConfigError(f"{name}: this is not a schedule of version {_VERSION}", hint=_HINT)
    collective = reader.get("collective", str)
    if collective not in COLLECTIVES:
        reader.refuse("collective", f"one of {', '.join(COLLECTIVES)}", collective)
    rounds = (_round(_Fields(entry, f"{name}: rounds[{i}]")) for i, entry in enumerate(reader.get("rounds", list)))
    try:
        return Schedule(
            reader.get("name", str),
            collective,
            reader.get("ranks", int),
            reader.get("chunks", int),
            reader.get("duplex", bool),
            tuple(rounds),
        )
    except ConfigError as error:
        raise type(error)(f"{name}: {error.message}", hint=error.hint) from error


def _round(reader: _Fields) -> ScheduleRound:
    circuits = []
    for i, pair in enumerate(reader.get("circuits", list)):
        if not isinstance(pair, list) or [type(end) for end in pair] != [int, int]:
            reader.refuse(f"circuits[{i}]", "two ranks", pair)
        circuits.append((pair[0], pair[1]))
    transfers = []
    for i, entry in enumerate(reader.get("transfers", list)):
        fields = _Fields(entry, f"{reader.name}.transfers[{i}]")
        chunks = fields.get("chunks", list)
        if any(type(chunk) is not int for chunk in chunks):
            fields.refuse("chunks", "numbers of chunks", chunks)
        adds = fields.get("adds", bool) if "adds" in entry else False
        transfers.append(Transfer(fields.get("from", int), fields.get("to", int), tuple(chunks), adds))
    return ScheduleRound(tuple(sorted(circuits)), tuple(transfers))


class _Fields:
    """A mapping in a JSON document, read key by key, with errors that name the key."""

    def __init__(self, document: Any, name: str) -> None:
        if not isinstance(document, Mapping):
            raise ConfigError(f"{name}: expected a mapping, found {_value_text(document)}", hint=_HINT)
        self._document, self.name = document, name

    def get(self, key: str, kind: type) -> Any:
        """Return the value of a key. Raises ``ConfigError`` if it has another type; ``True`` is no whole number."""
        value = self._document.get(key)
        if type(value) is not kind:
            self.refuse(key, {list: "a list", int: "a whole number", str: "text", bool: "true or false"}[kind], value)
        return value

    def refuse(self, key: str, expected: str, actual: Any) -> NoReturn:
        """Raise ``ConfigError`` for a key, with the expected and the actual value."""
        raise ConfigError(f"{self.name}: {key}: expected {expected}, found {_value_text(actual)}", hint=_HINT)


def _value_text(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
