"""Export of a calibration record as plain JSON, comma-separated tables, or numpy arrays."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from calibration.model.parameters import MeshParameters
from calibration.model.space import space_from_record
from calibration.record.conversion import covariance_from_record, parameters_from_record
from lumion_hw.files import AnyPath
from lumion_hw.files.escaping import csv_cell
from lumion_hw.files.writing import Overwrite, write_file
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.mesh.programming.prediction import COVARIANCE_FACTOR
from lumion_hw.mesh.record.calibration_record import CalibrationRecord, CouplerEntry
from lumion_hw.storage.array_files import write_arrays

Rows = list[list[object]]

_PUC = (
    "puc",
    "passive_phase_rad",
    "passive_phase_sigma_rad",
    "loss_db",
    "loss_sigma_db",
    "coupler_common_rad",
    "coupler_difference_rad",
    "coupling_least",
    "coupling_most",
    "note",
)
_HEATER = (
    "puc",
    "arm",
    "channel",
    "rho2_rad_per_ma2",
    "rho4_rad_per_ma4",
    "rho6_rad_per_ma6",
    "max_ma",
    "max_phase_rad",
    "p_pi_mw",
    "note",
)


def parameters_document(record: CalibrationRecord) -> dict[str, Any]:
    """Return the parameters of a record as lists by name, with ports and standard errors."""
    parameters = parameters_from_record(record)
    space = space_from_record(record)
    document: dict[str, Any] = {
        "format": "lumion-parameters",
        "record_id": record.record_id,
        "device_serial": record.device_serial,
        "mesh": record.mesh_label,
        "reference_hz": record.reference_hz,
        "source_ports": list(space.sources),
        "monitor_ports": list(space.monitors),
        "parameters": {name: _plain(value) for name, value in _named(parameters).items()},
    }
    if COVARIANCE_FACTOR in record.arrays:
        sigma = np.sqrt(np.diag(covariance_from_record(record)))
        document["standard_errors"] = {name: sigma[group].tolist() for name, group in space.groups.items()}
    return document


def _named(parameters: MeshParameters) -> dict[str, Any]:
    values = {field.name: getattr(parameters, field.name) for field in fields(MeshParameters)}
    del values["extra_physics"]
    return values | dict(parameters.extra_physics)


def _plain(value: object) -> object:
    array = np.asarray(value, dtype=np.float64)
    if array.ndim == 0:
        return float(array) if np.isfinite(array) else None
    return [_plain(part) for part in array]


def tables(record: CalibrationRecord) -> dict[str, tuple[tuple[str, ...], Rows]]:
    """Return headers and rows of the tables ``pucs``, ``heaters``, ``ports`` and ``joints``."""
    return {
        "pucs": (_PUC, _pucs(record)),
        "heaters": (_HEATER, _heaters(record)),
        "ports": (
            ("port", "input_loss_db", "output_loss_db", "monitor_ma_per_mw", "source_dbm"),
            [
                [entry.port, entry.input_loss_db, entry.output_loss_db, entry.monitor_ma_per_mw, entry.source_dbm]
                for entry in record.ports
            ],
        ),
        "joints": (("joint", "puc_port", "other_puc_port", "phase_rad"), _joints(record)),
    }


def _pucs(record: CalibrationRecord) -> Rows:
    rows: Rows = []
    for puc, entry in enumerate(record.pucs):
        coupler = entry.coupler or CouplerEntry()
        phase = entry.passive_phase_rad, entry.passive_phase_sigma_rad
        angles = coupler.common_rad, coupler.difference_rad
        rows.append([puc, *phase, entry.loss_db, entry.loss_sigma_db, *angles, *coupler.interval, entry.note])
    return rows


def _heaters(record: CalibrationRecord) -> Rows:
    calibrated = CalibratedMesh.from_record(record)
    rows: Rows = []
    for puc, entry in enumerate(record.pucs):
        for arm, heater in enumerate((entry.upper, entry.lower)):
            law = heater.law
            numbers: list[float | None] = [None] * 6
            if law is not None:
                p_pi_mw = np.pi * float(calibrated.heat_mw_per_rad[2 * puc + arm])
                terms = law.rho2_rad_per_ma2, law.rho4_rad_per_ma4, law.rho6_rad_per_ma6
                numbers = [*terms, law.max_ma, law.max_phase_rad, p_pi_mw]
            rows.append([puc, ("upper", "lower")[arm], heater.channel, *numbers, heater.note])
    return rows


def _joints(record: CalibrationRecord) -> Rows:
    if record.joints is None:
        return []
    ends = record.mesh.joints.tolist()
    return [[number, *ends[number], phase] for number, phase in enumerate(record.joints.phase_rad)]


def write_tables(record: CalibrationRecord, directory: AnyPath, overwrite: Overwrite = "own") -> tuple[Path, ...]:
    """Write each table of a record as ``NAME.csv`` into a folder, except empty ones; return the files."""
    written = []
    for name, (headers, rows) in tables(record).items():
        if rows:
            path = Path(directory) / f"{name}.csv"
            write_file(path, "the table", _csv(headers, rows), overwrite)
            written.append(path)
    return tuple(written)


def _csv(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(headers)
    writer.writerows([csv_cell(cell) for cell in row] for row in rows)
    return text.getvalue()


def write_npz(record: CalibrationRecord, path: AnyPath, overwrite: Overwrite = "own") -> None:
    """Write parameters, ports and covariance of a record to an ``.npz`` file."""
    parameters, space = parameters_from_record(record), space_from_record(record)
    arrays = {name: np.atleast_1d(value) for name, value in _named(parameters).items()}
    arrays |= {"source_ports": np.array(space.sources, dtype=np.int64)}
    arrays |= {"monitor_ports": np.array(space.monitors, dtype=np.int64)}
    if COVARIANCE_FACTOR in record.arrays:
        arrays["covariance"] = covariance_from_record(record)
    write_arrays(Path(path), arrays, "the export", overwrite)
