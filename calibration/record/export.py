"""Export of a calibration record as plain JSON, comma-separated tables, or numpy arrays."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
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
from lumion_hw.mesh.record.calibration_record import CalibrationRecord, CouplerEntry, PucEntry
from lumion_hw.storage.array_files import write_arrays

Row = dict[str, object]

_PORT = ("port", "input_loss_db", "output_loss_db", "monitor_ma_per_mw", "source_dbm")
_LAW = ("rho2_rad_per_ma2", "rho4_rad_per_ma4", "rho6_rad_per_ma6", "max_ma", "max_phase_rad")


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
    values = {name: value for name, value in vars(parameters).items() if name != "extra_physics"}
    return values | dict(parameters.extra_physics)


def _plain(value: object) -> object:
    """Return a number or nested lists of numbers, with ``None`` for NaN and infinity."""
    array = np.asarray(value, dtype=np.float64)
    return np.where(np.isfinite(array), array, np.array(None)).tolist()


def tables(record: CalibrationRecord) -> dict[str, list[Row]]:
    """Return the tables ``pucs``, ``heaters``, ``ports`` and ``joints``; a row has its values by column."""
    ends, phases_rad = record.mesh.joints.tolist(), record.joints.phase_rad if record.joints else ()
    return {
        "pucs": [_puc_row(puc, entry) for puc, entry in enumerate(record.pucs)],
        "heaters": _heater_rows(record),
        "ports": [{name: getattr(entry, name) for name in _PORT} for entry in record.ports],
        "joints": [
            {"joint": number, "puc_port": ends[number][0], "other_puc_port": ends[number][1], "phase_rad": phase_rad}
            for number, phase_rad in enumerate(phases_rad)
        ],
    }


def _puc_row(puc: int, entry: PucEntry) -> Row:
    coupler = entry.coupler or CouplerEntry()
    smallest, largest = coupler.interval
    return {
        "puc": puc,
        "passive_phase_rad": entry.passive_phase_rad,
        "passive_phase_sigma_rad": entry.passive_phase_sigma_rad,
        "loss_db": entry.loss_db,
        "loss_sigma_db": entry.loss_sigma_db,
        "coupler_common_rad": coupler.common_rad,
        "coupler_difference_rad": coupler.difference_rad,
        "coupling_least": smallest,
        "coupling_most": largest,
        "note": entry.note,
    }


def _heater_rows(record: CalibrationRecord) -> list[Row]:
    heaters = [heater for entry in record.pucs for heater in (entry.upper, entry.lower)]
    p_pi_mw = (np.pi * CalibratedMesh.from_record(record).heat_mw_per_rad).tolist()
    return [
        {"puc": number // 2, "arm": ("upper", "lower")[number % 2], "channel": heater.channel}
        | {name: heater.law and getattr(heater.law, name) for name in _LAW}
        | {"p_pi_mw": p_pi_mw[number] if heater.law else None, "note": heater.note}
        for number, heater in enumerate(heaters)
    ]


def write_tables(record: CalibrationRecord, directory: AnyPath, overwrite: Overwrite = "own") -> tuple[Path, ...]:
    """Write each table of a record as ``NAME.csv`` into a folder, except empty ones; return the files."""
    written = []
    for name, rows in tables(record).items():
        if rows:
            path = Path(directory) / f"{name}.csv"
            write_file(path, "the table", _csv(rows), overwrite)
            written.append(path)
    return tuple(written)


def _csv(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: csv_cell(cell) for name, cell in row.items()} for row in rows)
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
