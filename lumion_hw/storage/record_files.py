"""Calibration record files: atomic writing, reading with checks, and migration of older versions."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from lumion_hw.errors import CalibrationError
from lumion_hw.files import AnyPath
from lumion_hw.files.json_text import rename_key
from lumion_hw.files.reading import read_json
from lumion_hw.files.writing import Overwrite, check_target, write_file
from lumion_hw.mesh.record.calibration_record import HEADER, SCHEMA, SCHEMA_VERSION, CalibrationRecord
from lumion_hw.mesh.record.canonical import arrays_sha256, content_hash
from lumion_hw.mesh.record.entries import CONVENTIONS
from lumion_hw.storage.array_files import array_suffix, read_arrays, write_arrays
from lumion_hw.storage.record_checks import MAX_NUMBER, array_mismatches, mismatches, too_large

_FILE_KIND = "the calibration record"


def save_record(record: CalibrationRecord, path: AnyPath, overwrite: Overwrite = "own") -> None:
    """Write a calibration record to a file, atomically.

    The arrays are written to a second file in the same folder, named by its hash (``.h5``, or ``.npz`` without h5py).

    Args:
        record: The record.
        path: The file.
        overwrite: Record files that may be overwritten.

    Raises:
        ConfigError: The path is not writable, or the file must not be overwritten.
        LumionError: The disk is full or failed.
    """
    path = Path(path)
    check_target(path, _FILE_KIND, overwrite)
    name = None
    text = record.to_json(name)  # raises errors before any file is written
    if record.arrays:
        name = f"{path.stem}.{arrays_sha256(record.arrays)[:12]}{array_suffix()}"
        text = record.to_json(name)
        write_arrays(path.parent / name, record.arrays, "the arrays of the record")
    write_file(path, _FILE_KIND, text, overwrite)


def load_record(path: AnyPath) -> CalibrationRecord:
    """Read a calibration record from a file; older schema versions are migrated.

    Raises:
        CalibrationError: The file is not a calibration record, has an unknown schema version or other conventions, was
            changed after writing, or its array file is missing, damaged or from another record.
        ConfigError: The array file is HDF5 and h5py is missing.
    """
    path = Path(path)
    document = read_json(path, "calibration record", error=CalibrationError)
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise CalibrationError(f"{path} is not a calibration record")
    version = document.get("schema_version")
    if version not in (1, SCHEMA_VERSION):
        raise CalibrationError(
            f"{path} has schema version {version}, but this software reads versions 1 to {SCHEMA_VERSION}",
            hint="Use the software version that wrote the record, or a newer one.",
        )
    body = {name: value for name, value in document.items() if name not in HEADER}
    if document.get("content_sha256") != content_hash(body):
        raise CalibrationError(
            f"{path}: the content does not match its hash",
            hint="The file was edited or damaged: restore it from a backup.",
        )
    for name in too_large(body):
        raise CalibrationError(f"{path}: {name} is implausibly large (above {MAX_NUMBER:g})")
    if version == 1:
        return _validated(_migrated(body, document["content_sha256"], path), path)
    return _current(body, document.get("arrays_file"), path)


def _current(body: dict[str, Any], arrays_file: Any, path: Path) -> CalibrationRecord:
    if body.pop("conventions", None) != CONVENTIONS:
        raise CalibrationError(
            f"{path} uses other sign or phase conventions", hint="Its numbers have another meaning: calibrate again."
        )
    body.pop("channel_map_sha256", None)
    stated = body.pop("arrays_sha256", None)
    record = _validated(body, path)
    if stated is None:
        return record
    if not isinstance(arrays_file, str) or Path(arrays_file).name != arrays_file:
        raise CalibrationError(f"{path}: the value of arrays_file is not a file name: {arrays_file!r}")
    arrays = read_arrays(path.parent / arrays_file)
    for mismatch in array_mismatches(record, arrays):
        raise CalibrationError(f"{path.parent / arrays_file}: {mismatch}")
    if arrays_sha256(arrays) != stated:
        raise CalibrationError(
            f"{path.parent / arrays_file} does not belong to {path.name}: its hash differs",
            hint="Copy the record together with its array file.",
        )
    return dataclasses.replace(record, arrays=arrays)


def _validated(body: dict[str, Any], path: Path) -> CalibrationRecord:
    from pydantic import TypeAdapter, ValidationError

    try:
        record = TypeAdapter(CalibrationRecord).validate_python(_with_present_keys(body))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise CalibrationError(f"{path}: {where}: {first['msg']}") from error
    try:
        problems = list(mismatches(record))
    except CalibrationError as error:
        raise CalibrationError(f"{path}: {error.message}", hint=error.hint) from error
    if problems:
        raise CalibrationError(f"{path}: {problems[0]}", hint="Restore the file from a backup, or calibrate again.")
    return record


def _with_present_keys(body: dict[str, Any]) -> dict[str, Any]:
    effects = body.get("physics")
    if not isinstance(effects, list):
        return body
    renamed = [rename_key(effect, "words", "description") if isinstance(effect, dict) else effect for effect in effects]
    return body | {"physics": renamed}


def _migrated(body: dict[str, Any], content_sha256: str, path: Path) -> dict[str, Any]:
    try:
        return migrate_1(body, content_sha256)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CalibrationError(f"{path} is not a valid record of schema version 1: {error!r}") from error


def migrate_1(body: dict[str, Any], content_sha256: str) -> dict[str, Any]:
    """Convert the body of a record from schema version 1 to version 2.

    Version 1 has no data on joints, couplers and covariance; they stay unknown.
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
