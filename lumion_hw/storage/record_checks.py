"""Whether the parts of a calibration record fit each other: its hash may be right, and the record still none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from lumion_hw.mesh.layout.topology import MeshTopology
    from lumion_hw.mesh.record.calibration_record import CalibrationRecord

LARGEST = 1e30
"""No quantity of a record is larger in its unit: frequencies reach 1e15 Hz, and powers of six stay finite."""
_MOST_CHANNELS = 2**16
"""Channels of a controller are numbered in 16 bits (docs/protocol.md); no driver numbers more."""


def mismatches(record: CalibrationRecord) -> Iterator[str]:
    """Yield what does not fit, a part of a sentence each.

    Raises:
        CalibrationError: It does not say what mesh it is of.
    """
    mesh = record.mesh
    n_pucs, n_heaters, n_ports = mesh.n_pucs, 2 * mesh.n_pucs, mesh.n_ports
    ports = [entry.port for entry in record.ports]
    for what, count, wanted in (
        ("PUCs", len(record.pucs), n_pucs),
        ("heater channels", len(record.heater_channels), n_heaters),
        ("joint phases", len(record.joints.phase_rad) if record.joints else len(mesh.joints), len(mesh.joints)),
    ):
        if count != wanted:
            yield f"it has {count} {what}, its mesh {wanted}"
    if any(not 0 <= port < n_ports for port in (*ports, *record.monitor_ports)):
        yield f"it names ports that its mesh of {n_ports} ports does not have"
    if len(set(ports)) < len(ports) or len(set(record.monitor_ports)) < len(record.monitor_ports):
        yield "it names a port twice"
    if any(not 0 <= channel < _MOST_CHANNELS for channel in record.heater_channels):
        yield f"it names a heater channel outside 0 to {_MOST_CHANNELS - 1}"
    lit = {entry.port for entry in record.ports if entry.source_dbm is not None and entry.lit_with is None}
    firsts = [entry.lit_with for entry in record.ports if entry.lit_with is not None and entry.source_dbm is not None]
    if not set(firsts) <= lit or len(set(firsts)) < len(firsts):
        yield "it names a port that is lit with one that is no source, or two with the same"
    for name in ("wavelength_nm", "heater_ohm"):
        if not getattr(record, name) > 0.0:
            yield f"{name} is {getattr(record, name):g}"
    try:
        datetime.fromisoformat(record.created_utc)
    except ValueError:
        yield f"created_utc is no time: {record.created_utc[:40]!r}"
    rows = record.crosstalk.differential_rad_per_mw if record.crosstalk else ()
    if rows and (len(rows) != n_pucs or any(len(row) != n_heaters for row in rows)):
        yield f"its crosstalk is no table of {n_pucs} PUCs by {n_heaters} heaters"
    yield from _defects(record, mesh)


def _defects(record: CalibrationRecord, mesh: MeshTopology) -> Iterator[str]:
    n_pucs, n_ports = mesh.n_pucs, mesh.n_ports
    most = {"puc": n_pucs, "heater": 2 * n_pucs, "port": n_ports, "monitor": n_ports, "source": n_ports, "chip": 1}
    for defect in record.defects:
        if not 0 <= defect.number < most[defect.element]:
            yield f"it names a defect of {defect.element} {defect.number}, which its mesh does not have"


def array_mismatches(record: CalibrationRecord, arrays: Mapping[str, NDArray[Any]]) -> Iterator[str]:
    """Yield what does not fit between a record and the arrays of its side file."""
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            yield f"array {name!r} holds NaN or infinity"
        if array.ndim != 2:
            yield f"array {name!r} has the shape {array.shape}"
    factor = arrays.get("covariance_factor")
    if record.covariance is None or factor is None:
        return
    if min((size for _, size in record.covariance.groups), default=0) < 0 or record.covariance.size != len(factor):
        yield f"its covariance is of {record.covariance.size} parameters, the factor has {len(factor)} rows"


def too_large(value: Any, name: str = "") -> Iterator[str]:
    """Yield the names of numbers beyond all quantities, in what JSON knows."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from too_large(each, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from too_large(each, f"{name}[{number}]")
    elif isinstance(value, int | float) and abs(value) > LARGEST:
        yield name
