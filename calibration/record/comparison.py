"""Comparison of two calibration records of one mesh, in units of their errors."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from calibration.model.arrays import Real
from calibration.model.gauge import gauge_fixed_difference, wrapped
from calibration.model.space import ParameterSpace, space_from_record
from calibration.record.conversion import covariance_from_record, parameters_from_record
from lumion_hw.errors import CalibrationError
from lumion_hw.mesh.programming.prediction import COVARIANCE_FACTOR
from lumion_hw.mesh.record.calibration_record import CalibrationRecord

UNITS: dict[str, str] = {
    "passive_phase_rad": "rad",
    "loops": "rad",
    "loss_db": "dB",
    "coupler_common_rad": "rad",
    "coupler_difference_rad": "rad",
    "rho2": "rad/mA²",
    "rho4": "rad/mA⁴",
    "rho6": "rad/mA⁶",
    "crosstalk": "rad/mW, mm, rad/mW",
    "heat_factor": "",
    "source_db": "dB",
    "second_db": "dB",
    "monitor_db": "dB",
    "source_detuning_hz": "Hz",
    "delay_s": "s",
    "differential_slope_rad_per_hz": "rad/Hz",
    "coupler_slope_rad_per_hz": "rad/Hz",
}
"""Parameter groups in the order of the report, with their units."""

_MIN_EIGENVALUE_FRACTION = 1e-9


@dataclass(frozen=True)
class GroupDifference:
    """Difference of one parameter group between two calibration records.

    Attributes:
        worst: Largest difference (second record minus first).
        worst_at: Name of this parameter.
        rms_sigma: Root mean square difference in standard errors of both records; ``None`` if unknown.
        worst_sigma: Largest difference in standard errors of both records.
    """

    group: str
    unit: str
    count: int
    rms: float
    worst: float
    worst_at: str
    rms_sigma: float | None
    worst_sigma: float | None


@dataclass(frozen=True)
class Comparison:
    """Difference between two calibration records of one mesh.

    Attributes:
        groups: One difference per parameter group.
        chi2_per_dof: Mean squared difference relative to both covariances: about 1 for independent records of an
            unchanged mesh. ``None`` if a record has no covariance.
        notes: Limits of the comparison, one sentence each.
    """

    groups: tuple[GroupDifference, ...]
    chi2_per_dof: float | None
    notes: tuple[str, ...]

    @property
    def worst_rms_sigma(self) -> float | None:
        """Largest rms difference among parameter groups, in standard errors; ``None`` without standard errors."""
        return max((group.rms_sigma for group in self.groups if group.rms_sigma is not None), default=None)


def compare_records(first: CalibrationRecord, second: CalibrationRecord) -> Comparison:
    """Compare two records of one mesh.

    Passive phases are compared modulo 2π, joint phases by loop phases (docs/calibration.md, 1.2).

    Raises:
        CalibrationError: The records belong to different meshes, or have crosstalk that is not a function of distance.
    """
    if first.mesh_sha256 != second.mesh_sha256:
        raise CalibrationError(
            f"the records belong to different meshes, {first.mesh_label!r} and {second.mesh_label!r}",
            hint="Choose two records of the same mesh.",
        )
    notes = _notes(first, second)
    first, second = _without_different_ports(first, second, notes)
    space = space_from_record(first)
    difference = _difference(space, first, second)
    variance: Real | None = None
    if all(COVARIANCE_FACTOR in record.arrays for record in (first, second)):
        # The records are assumed to be independent; the notes say so if one was derived from the other.
        variance = covariance_from_record(first) + covariance_from_record(second)
    groups = tuple(
        group
        for name, unit in UNITS.items()
        if (group := _group(space, name, unit, difference, None if variance is None else np.diag(variance))) is not None
    )
    return Comparison(groups, None if variance is None else _chi2(difference, variance), tuple(notes))


def _notes(first: CalibrationRecord, second: CalibrationRecord) -> list[str]:
    notes = []
    if first.device_serial != second.device_serial:
        notes.append(f"the controllers differ: {first.device_serial} and {second.device_serial}")
    if first.content_sha256 == second.content_sha256:
        notes.append("both files contain the same record")
    elif first.content_sha256 == second.parent_sha256:
        notes.append("the second record was derived from the first, so their errors are not independent")
    for which, record in (("first", first), ("second", second)):
        if not record.complete:
            notes.append(f"the {which} record is incomplete")
        if record.joints is None:
            notes.append(f"the {which} record has no joint phases")
        if COVARIANCE_FACTOR not in record.arrays:
            notes.append(f"the {which} record has no covariance, so differences cannot be compared with errors")
    only = [
        puc
        for puc, (a, b) in enumerate(zip(first.pucs, second.pucs, strict=True))
        if (a.passive_phase_rad is None) != (b.passive_phase_rad is None)
    ]
    if only:
        notes.append(f"only one record has passive phases of PUCs {only}")
    return notes


def _without_different_ports(
    first: CalibrationRecord, second: CalibrationRecord, notes: list[str]
) -> tuple[CalibrationRecord, CalibrationRecord]:
    """Return two records; if their ports differ, without sources, monitors and covariances."""
    ends = [(space.sources, space.seconds, space.monitors) for space in map(space_from_record, (first, second))]
    # Levels of other ports cannot be compared, and a covariance cannot be reduced without its columns.
    if ends[0] == ends[1]:
        return first, second
    notes.append("sources or monitors differ, so power levels, sensitivities and covariances are not compared")
    monitors = tuple(port for port in first.monitor_ports if port in second.monitor_ports)
    return _without_sources(first, monitors), _without_sources(second, monitors)


def _without_sources(record: CalibrationRecord, monitors: tuple[int, ...]) -> CalibrationRecord:
    ports = tuple(replace(entry, source_dbm=None) for entry in record.ports)
    return replace(record, ports=ports, monitor_ports=monitors, physics=(), arrays={}, covariance=None)


def _difference(space: ParameterSpace, first: CalibrationRecord, second: CalibrationRecord) -> Real:
    first_parameters, second_parameters = parameters_from_record(first), parameters_from_record(second)
    difference = space.pack(second_parameters) - space.pack(first_parameters)
    passive = space.groups["passive_phase_rad"]
    compared = [
        a.passive_phase_rad is not None and b.passive_phase_rad is not None
        for a, b in zip(first.pucs, second.pucs, strict=True)
    ]
    # Whole turns do not count as a difference.
    difference[passive] = np.where(compared, wrapped(difference[passive]), np.nan)
    loops = space.directions.T @ gauge_fixed_difference(
        space.mesh, second_parameters.joint_phase_rad - first_parameters.joint_phase_rad
    )
    have_joints = first.joints is not None and second.joints is not None
    difference[space.groups["loops"]] = loops if have_joints else np.nan
    return difference


def _group(
    space: ParameterSpace, name: str, unit: str, difference: Real, variance: Real | None
) -> GroupDifference | None:
    group = space.group(name)
    part = difference[group]
    positions = np.flatnonzero(np.isfinite(part))
    if not len(positions):
        return None
    worst = int(positions[np.argmax(np.abs(part[positions]))])
    in_sigma = np.zeros(0)
    if variance is not None:
        uncertain = positions[variance[group][positions] > 0.0]
        in_sigma = part[uncertain] / np.sqrt(variance[group][uncertain])
    return GroupDifference(
        name,
        unit,
        len(positions),
        float(np.sqrt(np.mean(part[positions] ** 2))),
        float(part[worst]),
        space.describe(group.start + worst),
        float(np.sqrt(np.mean(in_sigma**2))) if len(in_sigma) else None,
        float(np.abs(in_sigma).max()) if len(in_sigma) else None,
    )


def _chi2(difference: Real, variance: Real) -> float | None:
    free = np.flatnonzero((np.diag(variance) > 0.0) & np.isfinite(difference))
    if not len(free):
        return None
    sigma = np.sqrt(np.diag(variance)[free])
    values, vectors = np.linalg.eigh(variance[np.ix_(free, free)] / np.outer(sigma, sigma))
    # Combinations unknown to both records would divide rounding errors by zero.
    is_significant = values > _MIN_EIGENVALUE_FRACTION * values.max()
    projections = vectors[:, is_significant].T @ (difference[free] / sigma)
    return float(np.mean(projections**2 / values[is_significant]))
