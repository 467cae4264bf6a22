"""Calibration records as files: written so that nothing is lost, read back, checked, migrated from older versions."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from lumion_hw.errors import CalibrationError
from lumion_hw.files import AnyPath
from lumion_hw.files.reading import read_json
from lumion_hw.files.writing import Over, check_target, write_file
from lumion_hw.mesh.record.calibration_record import HEADER, SCHEMA, SCHEMA_VERSION, CalibrationRecord
from lumion_hw.mesh.record.canonical import arrays_sha256, content_hash
from lumion_hw.mesh.record.entries import CONVENTIONS
from lumion_hw.storage.array_files import array_suffix, read_arrays, write_arrays
from lumion_hw.storage.record_checks import array_mismatches, mismatches, too_large

_WHAT = "the calibration record"


def save_record(record: CalibrationRecord, path: AnyPath, over: Over = "own") -> None:
    """Write a record so that a reader finds the old document or the new one, never half of it.

    Arrays go first, into a side file beside it named by their hash (``.h5``, or ``.npz`` without h5py).

    Args:
        record: The record.
        path: Where to.
        over: What the document may be written over; the side file only over one that this program has made.

    Raises:
        ConfigError: Nothing can be written there, or there is something that must not be written over.
        LumionError: There is no room, or the disk failed.
    """
    path = Path(path)
    check_target(path, _WHAT, over)
    name = None
    text = record.to_json(name)  # what cannot be written is refused before anything is
    if record.arrays:
        name = f"{path.stem}.{arrays_sha256(record.arrays)[:12]}{array_suffix()}"
        text = record.to_json(name)
        write_arrays(path.parent / name, record.arrays, "the arrays of the record")
    write_file(path, _WHAT, text, over)


def load_record(path: AnyPath) -> CalibrationRecord:
    """Read a record; one of an older schema version is migrated.

    Raises:
        CalibrationError: It is not a calibration record, of an unknown schema version, was changed since it was
            written, follows other conventions, or its side file is missing, damaged or another one.
        ConfigError: Its side file is HDF5, and h5py is missing.
    """
    path = Path(path)
    document = read_json(path, "calibration record", error=CalibrationError)
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise CalibrationError(f"{path}: is not a calibration record")
    version = document.get("schema_version")
    if version not in (1, SCHEMA_VERSION):
        raise CalibrationError(
            f"{path}: has schema version {version}, this software reads 1 to {SCHEMA_VERSION}",
            hint="Use the software it was written with, or a newer one.",
        )
    body = {name: value for name, value in document.items() if name not in HEADER}
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
