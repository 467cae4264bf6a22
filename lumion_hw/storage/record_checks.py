"""Consistency checks of calibration records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.mesh.layout.cells import NO_CHANNEL

if TYPE_CHECKING:
    from lumion_hw.mesh.layout.topology import MeshTopology
    from lumion_hw.mesh.record.calibration_record import CalibrationRecord

MAX_NUMBER = 1e30
"""Upper limit of all quantities in a record."""
_MAX_CHANNELS = 2**16
"""Controller channels have 16-bit numbers (docs/protocol.md)."""


def mismatches(record: CalibrationRecord) -> Iterator[str]:
    """Yield the inconsistencies of a record, each as text that continues a sentence.

    Raises:
        CalibrationError: The record does not name its mesh.
    """
    mesh = record.mesh
    n_pucs, n_heaters, n_ports = mesh.n_pucs, 2 * mesh.n_pucs, mesh.n_ports
    ports = [entry.port for entry in record.ports]
    for quantity, count, expected in (
        ("PUCs", len(record.pucs), n_pucs),
        ("heater channels", len(record.heater_channels), n_heaters),
        ("joint phases", len(record.joints.phase_rad) if record.joints else len(mesh.joints), len(mesh.joints)),
    ):
        if count != expected:
            yield f"the record has {count} {quantity}, but its mesh has {expected}"
    if any(not 0 <= port < n_ports for port in (*ports, *record.monitor_ports)):
        yield f"the record contains port numbers outside its mesh of {n_ports} ports"
    if len(set(ports)) < len(ports) or len(set(record.monitor_ports)) < len(record.monitor_ports):
        yield "a port is listed twice"
    if any(not 0 <= channel < _MAX_CHANNELS for channel in record.heater_channels if channel != NO_CHANNEL):
        yield f"a heater channel is outside 0 to {_MAX_CHANNELS - 1}"
    source_ports = {entry.port for entry in record.ports if entry.source_dbm is not None and entry.lit_with is None}
    first_ports = [
        entry.lit_with for entry in record.ports if entry.lit_with is not None and entry.source_dbm is not None
    ]
    if not set(first_ports) <= source_ports or len(set(first_ports)) < len(first_ports):
        yield "a port has lit_with set to a port without a source, or two ports have the same lit_with"
    for name in ("wavelength_nm", "heater_ohm"):
        if not getattr(record, name) > 0.0:
            yield f"{name} must be positive, but is {getattr(record, name):g}"
    try:
        datetime.fromisoformat(record.created_utc)
    except ValueError:
        yield f"created_utc is not a time: {record.created_utc[:40]!r}"
    rows = record.crosstalk.differential_rad_per_mw if record.crosstalk else ()
    if rows and (len(rows) != n_pucs or any(len(row) != n_heaters for row in rows)):
        yield f"the crosstalk is not a table of {n_pucs} PUCs by {n_heaters} heaters"
    yield from _defects(record, mesh)


def _defects(record: CalibrationRecord, mesh: MeshTopology) -> Iterator[str]:
    n_pucs, n_ports = mesh.n_pucs, mesh.n_ports
    counts = {"puc": n_pucs, "heater": 2 * n_pucs, "port": n_ports, "monitor": n_ports, "source": n_ports, "chip": 1}
    for defect in record.defects:
        if not 0 <= defect.number < counts[defect.element]:
            yield f"a defect is listed for {defect.element} {defect.number}, which the mesh does not have"


def array_mismatches(record: CalibrationRecord, arrays: Mapping[str, NDArray[Any]]) -> Iterator[str]:
    """Yield the inconsistencies between a record and its array file, each as a sentence."""
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            yield f"array {name!r} contains NaN or infinity"
        if array.ndim != 2:
            yield f"array {name!r} has shape {array.shape} instead of two dimensions"
    factor = arrays.get("covariance_factor")
    if record.covariance is None or factor is None:
        return
    if min((size for _, size in record.covariance.groups), default=0) < 0 or record.covariance.size != len(factor):
        yield f"the covariance has {record.covariance.size} parameters, but its factor has {len(factor)} rows"


def too_large(value: Any, name: str = "") -> Iterator[str]:
    """Yield the keys of numbers in a JSON document that are larger than :data:`MAX_NUMBER`."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from too_large(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from too_large(item, f"{name}[{number}]")
    elif isinstance(value, int | float) and abs(value) > MAX_NUMBER:
        yield name
