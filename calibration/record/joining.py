"""Joining the record of a part of a mesh to a record of the whole mesh, or of another part."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from calibration.model.arrays import Real
from calibration.model.gauge import illuminated_loop_basis, wrapped
from calibration.model.physics import ROWS
from calibration.model.space import ParameterSpace, space_from_record
from calibration.model.symmetric import root_of
from calibration.record.conversion import covariance_from_record
from lumion_hw.errors import CalibrationError
from lumion_hw.mesh.programming.prediction import COVARIANCE_FACTOR, LOOP_DIRECTIONS
from lumion_hw.mesh.record.calibration_record import (
    HEATER_RESISTANCES,
    CalibrationRecord,
    CovarianceEntry,
    ExtraPhysics,
    JointsEntry,
    PortEntry,
    PucEntry,
)

JOINED_TO = "joined_to"
"""Provenance key with the identifier of the record to which a part was joined."""
_OF_HEATERS = ("rho2", "rho4", "rho6", "heat_factor")
_OF_PORTS = ("source_db", "second_db", "source_detuning_hz", "monitor_db")
_OF_PUCS = ("passive_phase_rad", "loss_db", "coupler_common_rad", "coupler_difference_rad", "arm_difference_db")


def join_records(base: CalibrationRecord, part: CalibrationRecord, pucs: Collection[int]) -> CalibrationRecord:
    """Return a record with ``pucs`` from ``part``, and everything else from ``base``, a record of the same mesh.

    Effects of the whole chip, such as crosstalk, keep the values of ``base``. So do couplers and losses that ``base``
    knows better: they do not age, and light at one input of a PUC shows less of them.

    Raises:
        CalibrationError: The records belong to different devices, or lack a covariance.
    """
    base.check_device(part.device_serial, part.mesh, part.heater_channels)
    if base.joints is None or part.joints is None:
        raise CalibrationError("a record without joint phases cannot be joined", hint="Calibrate the whole mesh.")
    old_ports = {entry.port: entry for entry in base.ports}
    new_ports = {entry.port: entry for entry in _on_scale_of(base, part)}
    used = {*part.monitor_ports, *(entry.port for entry in part.ports if entry.source_dbm is not None)}
    ports = {port: old_ports.get(port) or new_ports[port] for port in sorted({*old_ports, *new_ports})}
    ports |= {port: _joined_port(old_ports.get(port), new_ports[port]) for port in used}
    monitors = {*base.monitor_ports, *part.monitor_ports}
    order = sorted(monitors, key=lambda port: _position(port, base.monitor_ports, part.monitor_ports))
    named = {defect.evidence for defect in base.defects if _is_in_part(defect.element, defect.number, pucs)}
    joined = replace(
        part,
        monitor_ports=tuple(order),
        pucs=tuple(_joined_puc(old, part.pucs[puc]) if puc in pucs else old for puc, old in enumerate(base.pucs)),
        ports=tuple(ports[port] for port in sorted(ports)),
        crosstalk=base.crosstalk,
        dispersion=base.dispersion,
        complete=base.complete and part.complete,
        faults=tuple(dict.fromkeys((*(fault for fault in base.faults if fault not in named), *part.faults))),
        defects=tuple(
            dict.fromkeys((*(defect for defect in base.defects if defect.evidence not in named), *part.defects))
        ),
        joints=_joined_phases(part, base.joints, part.joints),
        parent_sha256=base.content_sha256,
        provenance=part.provenance | {JOINED_TO: base.record_id},
        arrays={},
        covariance=None,
        physics=(),
    )
    joined = replace(joined, physics=_joined_physics(base, part, joined, pucs))
    return _with_arrays(joined, base, part, pucs)


def _position(port: int, *orders: Sequence[int]) -> tuple[int, int]:
    """Return the place of a monitor in the record with the most monitors that has it."""
    longest = max((order for order in orders if port in order), key=len)
    return (longest.index(port), port)


def _is_in_part(element: str, number: int, pucs: Collection[int]) -> bool:
    puc = {"puc": number, "heater": number // 2}.get(element)
    return puc is not None and puc in pucs


def _on_scale_of(base: CalibrationRecord, part: CalibrationRecord) -> list[PortEntry]:
    """Return the ports of a part with the light shared between sources and monitors as in ``base``.

    A calibration sees only the product of a source's light and a monitor's sensitivity. Without this, light from a
    source of the part to a monitor of the base would be wrong.
    """
    old = {entry.port: entry for entry in base.ports}
    shifts_db = []
    for entry in part.ports:
        before = old.get(entry.port, entry)
        if entry.source_dbm is not None and before.source_dbm is not None:
            shifts_db.append(entry.source_dbm - before.source_dbm)
        if entry.monitor_ma_per_mw and before.monitor_ma_per_mw:
            shifts_db.append(10.0 * math.log10(before.monitor_ma_per_mw / entry.monitor_ma_per_mw))
    # The median: a fibre that was plugged again has changed, and the others have not.
    shift_db = float(np.median(shifts_db)) if shifts_db else 0.0

    def moved(value: float | None, by: float) -> float | None:
        return None if value is None else value + by

    return [
        replace(
            entry,
            source_dbm=moved(entry.source_dbm, -shift_db),
            input_loss_db=moved(entry.input_loss_db, shift_db),
            output_loss_db=moved(entry.output_loss_db, -shift_db),
            monitor_ma_per_mw=entry.monitor_ma_per_mw and entry.monitor_ma_per_mw * 10.0 ** (0.1 * shift_db),
        )
        for entry in part.ports
    ]


def _joined_puc(old: PucEntry, new: PucEntry) -> PucEntry:
    return replace(
        new,
        coupler=(new if _is_of_part("coupler_", old, new) else old).coupler,
        loss_db=(new if _is_of_part("loss_db", old, new) else old).loss_db,
        loss_sigma_db=min(new.loss_sigma_db, old.loss_sigma_db),
    )


def _coupler_variance(puc: PucEntry) -> float:
    coupler = puc.coupler
    if coupler is None or coupler.common_sigma_rad is None or coupler.difference_sigma_rad is None:
        return math.inf
    return coupler.common_sigma_rad**2 + coupler.difference_sigma_rad**2


def _is_of_part(group: str, old: PucEntry, new: PucEntry) -> bool:
    """Return whether a parameter of a PUC in the part is that of the part (``new``), not that of the base (``old``)."""
    if group.startswith("coupler_"):
        return _coupler_variance(new) <= _coupler_variance(old)
    return group != "loss_db" or new.loss_sigma_db <= old.loss_sigma_db


def _joined_port(old: PortEntry | None, new: PortEntry) -> PortEntry:
    if old is None:
        return new
    measured = {field.name: getattr(new, field.name) for field in fields(new) if getattr(new, field.name) is not None}
    return replace(old, **measured)


def _joined_phases(part: CalibrationRecord, base: JointsEntry, measured: JointsEntry) -> JointsEntry:
    """Return the joint phases of ``base``, changed where the part has measured loop phases."""
    space = space_from_record(part)
    old, new = np.array(base.phase_rad), np.array(measured.phase_rad)
    basis = illuminated_loop_basis(space.mesh, space.entries, space.monitors).astype(np.float64)
    # Readings show only phases around loops. This is the smallest change of joint phases that gives the loop phases of
    # the part.
    if len(basis):
        old = old + basis.T @ np.linalg.solve(basis @ basis.T, wrapped(basis @ (new - old)))
    return JointsEntry(tuple(old.tolist()), loop_sigma_rad=base.loop_sigma_rad)


def _joined_physics(
    base: CalibrationRecord, part: CalibrationRecord, joined: CalibrationRecord, pucs: Collection[int]
) -> tuple[ExtraPhysics, ...]:
    """Return the additional effects, those of single PUCs and monitors from the record that measured them."""
    space = space_from_record(joined)
    old, new = ({entry.name: entry for entry in record.physics} for record in (base, part))
    spaces = space_from_record(base), space_from_record(part)
    entries = []
    for name, row in ROWS.items():
        single = row.per in ("puc", "monitor", "source and monitor")
        entry = old.get(name) or (new.get(name) if single else None)
        if entry is None or not single:
            entries += [entry] if entry else []
            continue
        where = {key: i for i, key in enumerate(_names(space, name))}
        values = np.zeros(space.physics.size(name, space.mesh, len(space.sources), len(space.monitors)))
        for record, own, is_base in ((old, spaces[0], True), (new, spaces[1], False)):
            if name in record:
                for key, value in zip(_names(own, name), record[name].values, strict=True):
                    if is_base or row.per != "puc" or key in pucs:
                        values[where[key]] = value
        entries.append(replace(entry, parameters=values.size, values=tuple(values.tolist())))
    return tuple(entries)


def _with_arrays(
    joined: CalibrationRecord, base: CalibrationRecord, part: CalibrationRecord, pucs: Collection[int]
) -> CalibrationRecord:
    arrays = {name: array for name, array in base.arrays.items() if name not in (COVARIANCE_FACTOR, LOOP_DIRECTIONS)}
    resistances = [record.arrays.get(HEATER_RESISTANCES, np.zeros((0, 3))) for record in (base, part)]
    if any(len(rows) for rows in resistances):
        of_part = np.isin(resistances[0][:, 0] // 2, list(pucs))
        arrays[HEATER_RESISTANCES] = np.concatenate([resistances[0][~of_part], resistances[1]])
    space = space_from_record(joined)
    covariance = np.zeros((space.size, space.size))
    # The errors of the two records are independent, so their covariances add.
    for record, is_part in ((base, False), (part, True)):
        matrix = _error_matrix(space, (base, part), pucs, is_part=is_part)
        covariance += matrix @ covariance_from_record(record) @ matrix.T
    groups = tuple((name, group.stop - group.start) for name, group in space.groups.items())
    free = int((np.diag(covariance) > 0.0).sum())
    arrays |= {COVARIANCE_FACTOR: root_of(covariance).astype(np.float32), LOOP_DIRECTIONS: space.directions}
    return replace(joined, arrays=arrays, covariance=CovarianceEntry(groups, free, free))


def _error_matrix(
    space: ParameterSpace, records: tuple[CalibrationRecord, CalibrationRecord], pucs: Collection[int], *, is_part: bool
) -> Real:
    """Return the matrix from the errors of the base, or of the part, to those of the joined record."""
    base, part = records
    record = part if is_part else base
    own, of_part = space_from_record(record), space_from_record(part)
    matrix = np.zeros((space.size, own.size))
    used = {*of_part.entries, *of_part.monitors}
    for name in own.groups:
        if name == "loops" or name not in space.groups:
            continue
        rows = {key: i for i, key in enumerate(_names(space, name), start=space.groups[name].start)}
        for column, key in enumerate(_names(own, name), start=own.groups[name].start):
            if name in _OF_PUCS:
                belongs = key in pucs and _is_of_part(name, base.pucs[key], part.pucs[key])
            elif name in _OF_HEATERS:
                belongs = key // 2 in pucs
            else:
                belongs = name in _OF_PORTS and key in used
            if key in rows and belongs == is_part:
                matrix[rows[key], column] = 1.0
    illuminated = of_part.directions[:, : of_part.n_illuminated_loops]
    directions = record.arrays.get(LOOP_DIRECTIONS)
    by_joint = np.asarray(own.directions if directions is None else directions, dtype=np.float64)
    # Combinations of loop phases that the part measured have its errors; those orthogonal to them have the base's.
    projection = illuminated @ (illuminated.T @ by_joint)
    matrix[space.groups["loops"], own.groups["loops"]] = space.directions.T @ (
        projection if is_part else by_joint - projection
    )
    return matrix


def _names(space: ParameterSpace, group: str) -> list[Any]:
    """Return what each parameter of a group belongs to: a port, a source and a monitor, or else a running number."""
    ports = {
        "source_db": space.sources,
        "source_detuning_hz": space.sources,
        "second_db": tuple(space.seconds.values()),
        "monitor_db": space.monitors,
        "monitor": space.monitors,
        "source and monitor": itertools.product(space.sources, space.monitors),
        "puc": range(space.mesh.n_pucs),
    }
    element = ROWS[group].per if group in ROWS else group
    if element in ports:
        return list(ports[element])
    return list(range(space.groups[group].stop - space.groups[group].start))
