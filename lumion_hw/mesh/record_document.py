"""A calibration record as a JSON document: written, hashed, read back, and migrated from older schema versions."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lumion_hw.errors import CalibrationError
from lumion_hw.files.reading import read_json
from lumion_hw.files.writing import Over, check_target, write_file
from lumion_hw.mesh.array_files import array_suffix, arrays_sha256, read_arrays, write_arrays
from lumion_hw.mesh.record_checks import array_mismatches, mismatches, too_large
from lumion_hw.mesh.record_entries import CONVENTIONS

if TYPE_CHECKING:
    from lumion_hw.mesh.record import CalibrationRecord

SCHEMA = "lumion-calibration"
SCHEMA_VERSION = 2

_HEADER = ("schema", "schema_version", "record_id", "content_sha256", "arrays_file")
"""What stands before the content and is not part of its hash."""
_WIDTH = 116
_WHAT = "the calibration record"


def record_body(record: CalibrationRecord) -> dict[str, Any]:
    """Return the content that is hashed: all fields, the conventions, and the hashes of map and arrays."""
    body = dataclasses.asdict(dataclasses.replace(record, arrays={}))
    del body["arrays"]
    for port in body["ports"]:
        if port["lit_with"] is None:
            del port["lit_with"]  # so that records from before there was any keep their hash
    if body["conditions"]["heater_tau_s"] is None:
        del body["conditions"]["heater_tau_s"]  # likewise
    body["conventions"] = CONVENTIONS
    body["channel_map_sha256"] = content_hash([list(record.heater_channels), list(record.monitor_ports)])
    body["arrays_sha256"] = arrays_sha256(record.arrays) if record.arrays else None
    return body


def content_hash(body: Any) -> str:
    """Return the hash over the canonical form of a document: sorted keys, no spaces."""
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def record_text(record: CalibrationRecord, arrays_file: str | None = None) -> str:
    """Return the document of a record. Raises ``ValueError`` for NaN and infinity, which JSON does not know."""
    values = (SCHEMA, SCHEMA_VERSION, record.record_id, record.content_sha256, arrays_file)
    return _readable(dict(zip(_HEADER, values, strict=True)) | record_body(record)) + "\n"


def save_record(record: CalibrationRecord, path: Path, over: Over = "own") -> None:
    """Write a record: its arrays first, under a name that no other content has, then the document."""
    check_target(path, _WHAT, over)
    name = None
    text = record.to_json(name)  # what cannot be written is refused before anything is
    if record.arrays:
        name = f"{path.stem}.{arrays_sha256(record.arrays)[:12]}{array_suffix()}"
        text = record.to_json(name)
        write_arrays(path.parent / name, record.arrays, "the arrays of the record")
    write_file(path, _WHAT, text, over)


def load_record(path: Path) -> CalibrationRecord:
    """Read a record; errors as in :meth:`CalibrationRecord.load`."""
    document = read_json(path, "calibration record", error=CalibrationError)
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise CalibrationError(f"{path}: is not a calibration record")
    version = document.get("schema_version")
    if version not in (1, SCHEMA_VERSION):
        raise CalibrationError(
            f"{path}: has schema version {version}, this software reads 1 to {SCHEMA_VERSION}",
            hint="Use the software it was written with, or a newer one.",
        )
    body = {name: value for name, value in document.items() if name not in _HEADER}
    if document.get("content_sha256") != content_hash(body):
        raise CalibrationError(f"{path}: its content does not match its hash", hint="It was edited or damaged.")
    for name in too_large(body):
        raise CalibrationError(f"{path}: {name} is larger than any quantity")
    if version == 1:
        return _validated(_migrated(body, document["content_sha256"], path), path)
    return _current(body, document.get("arrays_file"), path)


def _current(body: dict[str, Any], arrays_file: Any, path: Path) -> CalibrationRecord:
    """Return the record of a document of this schema version."""
    if body.pop("conventions", None) != CONVENTIONS:
        raise CalibrationError(f"{path}: was written under other conventions", hint="Its numbers mean something else.")
    body.pop("channel_map_sha256", None)
    stated = body.pop("arrays_sha256", None)
    record = _validated(body, path)
    if stated is None:
        return record
    if not isinstance(arrays_file, str) or Path(arrays_file).name != arrays_file:
        raise CalibrationError(f"{path}: names no side file for its arrays, but {arrays_file!r}")
    arrays = read_arrays(path.parent / arrays_file)
    for mismatch in array_mismatches(record, arrays):
        raise CalibrationError(f"{path.parent / arrays_file}: {mismatch}")
    if arrays_sha256(arrays) != stated:
        raise CalibrationError(
            f"{path.parent / arrays_file}: is not the side file of {path.name}: another hash",
            hint="Copy the record together with its own side file.",
        )
    return dataclasses.replace(record, arrays=arrays)


def _validated(body: dict[str, Any], path: Path) -> CalibrationRecord:
    from pydantic import TypeAdapter, ValidationError

    from lumion_hw.mesh.record import CalibrationRecord

    try:
        record = TypeAdapter(CalibrationRecord).validate_python(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise CalibrationError(f"{path}: {where}: {first['msg']}") from error
    try:
        found = list(mismatches(record))
    except CalibrationError as error:
        raise CalibrationError(f"{path}: {error.message}", hint=error.hint) from error
    if found:
        raise CalibrationError(f"{path}: {found[0]}", hint="Restore it from a copy, or calibrate again.")
    return record


def _migrated(body: dict[str, Any], content_sha256: str, path: Path) -> dict[str, Any]:
    try:
        return migrate_1(body, content_sha256)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CalibrationError(f"{path}: is no record of schema version 1: {error!r}") from error


def migrate_1(body: dict[str, Any], content_sha256: str) -> dict[str, Any]:
    """Return a body of schema version 1 as one of version 2.

    All fields of version 1 are there in version 2 and mean the same. Faults as data follow from what version 1 says of
    PUCs and heaters; what it did not know (joints, couplers, covariance) stays unknown.
    """
    defects: list[dict[str, Any]] = []
    for puc, entry in enumerate(body["pucs"]):
        if entry["passive_phase_rad"] is None:
            kind = "PUC not calibrated"
            defects.append(_defect(kind, "puc", puc, entry["note"]) | {"usable_states": []})
            continue
        for arm, name in enumerate(("upper", "lower")):
            if entry[name]["law"] is None:
                defects.append(_defect("dead heater", "heater", 2 * puc + arm, entry[name]["note"]))
    origin = {"migrated_from": f"schema version 1, content {content_sha256}"}
    return body | {"defects": defects, "provenance": body.get("provenance", {}) | origin}


def _defect(kind: str, element: str, number: int, evidence: str) -> dict[str, Any]:
    return {"kind": kind, "element": element, "number": number, "evidence": evidence}


def _readable(value: Any, indent: int = 0) -> str:
    """Return JSON with one line for whatever fits a line, and long rows of numbers folded."""
    flat = json.dumps(value, allow_nan=False, ensure_ascii=False)
    if not isinstance(value, dict | list | tuple) or len(flat) + indent <= _WIDTH:
        return flat
    pad, inner = " " * indent, " " * (indent + 1)
    if isinstance(value, dict):
        parts = [
            f"{inner}{json.dumps(key, ensure_ascii=False)}: {_readable(item, indent + 1)}"
            for key, item in value.items()
        ]
        return "{\n" + ",\n".join(parts) + f"\n{pad}}}"
    if all(not isinstance(item, dict | list | tuple) for item in value):
        return _folded(value, indent)
    parts = [f"{inner}{_readable(item, indent + 1)}" for item in value]
    return "[\n" + ",\n".join(parts) + f"\n{pad}]"


def _folded(values: list[Any] | tuple[Any, ...], indent: int) -> str:
    """Return a row of plain values, as many to a line as fit."""
    lines, line = [], ""
    for item in values:
        word = json.dumps(item, allow_nan=False, ensure_ascii=False)
        if line and indent + 1 + len(line) + len(word) + 2 > _WIDTH:
            lines.append(line)
            line = ""
        line += f"{', ' if line else ''}{word}"
    lines.append(line)
    pad = " " * (indent + 1)
    return "[\n" + ",\n".join(pad + line for line in lines) + f"\n{' ' * indent}]"
