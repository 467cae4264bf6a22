"""Uncertainty figures of a report, from the standard errors and covariance of a record."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.model.arrays import Real
from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh, kernel_crosstalk
from lumion_hw.mesh.programming.prediction import COVARIANCE_FACTOR, LOOP_DIRECTIONS
from lumion_hw.mesh.record.calibration_record import CalibrationRecord, CrosstalkKernel

_ROUNDING = 1e-6
_SET_BY_PRIOR = 0.5
_KERNEL_TERMS = ("amplitude_rad_per_mw", "length_mm", "floor_rad_per_mw")
_KERNEL_STEP = 1e-4
# Group of the covariance, field of the record, description, scale, unit.
_DISPERSION = (
    ("delay_s", "group delay of a PUC", 1e12, "ps"),
    ("differential_slope_rad_per_hz", "change of φu − φl", 1e12, "mrad/GHz"),
    ("coupler_slope_rad_per_hz", "change of a coupler angle", 1e12, "mrad/GHz"),
)


def passive_sigma_mrad(record: CalibrationRecord) -> dict[int, float]:
    """Return the standard errors of passive phases in mrad, where known."""
    return {
        puc: 1e3 * entry.passive_phase_sigma_rad
        for puc, entry in enumerate(record.pucs)
        if entry.passive_phase_sigma_rad is not None
    }


def face_loops(mesh: MeshTopology) -> Real:
    """Return 1 where a joint is part of the loop around a face of the mesh and 0 elsewhere, shape ``(faces, joints)``.

    Of the joint phases only their sums around loops are observable at the ports (docs/calibration.md, 1.2).
    """
    number = {(int(first) // 4, int(second) // 4): joint for joint, (first, second) in enumerate(mesh.joints)}
    number |= {(second, first): joint for (first, second), joint in number.items()}
    loops = np.zeros((len(mesh.faces), len(mesh.joints)))
    for face, pucs in enumerate(mesh.faces):
        for puc, following in zip(pucs, (*pucs[1:], pucs[0]), strict=True):
            loops[face, number[puc, following]] = 1.0
    return loops


def _factor_of(record: CalibrationRecord, group: str) -> Real | None:
    """Return the rows of a parameter group in the factor F of the covariance F·Fᵀ, ``(parameters, n)``, if known."""
    entry, factor = record.covariance, record.arrays.get(COVARIANCE_FACTOR)
    rows = None if entry is None else entry.rows_of(group)
    return None if factor is None or rows is None else np.asarray(factor[rows], dtype=np.float64)


def loop_factor(record: CalibrationRecord) -> Real | None:
    """Return a factor F, ``(joints, n)``, of the covariance F·Fᵀ of joint phases without the phase common to all PUCs.

    ``None`` without a covariance.
    """
    loops, directions = _factor_of(record, "loops"), record.arrays.get(LOOP_DIRECTIONS)
    if loops is None or directions is None:
        return None
    basis = np.asarray(directions, dtype=np.float64)
    # The same phase on every joint, in coordinates of the loops with light.
    common = np.where(loops.any(axis=1), basis.sum(axis=0), 0.0)
    length = float(common @ common)
    if length > _ROUNDING**2:
        without = loops - np.outer(common, common @ loops) / length
        # Of a single loop nothing but rounding errors may be left.
        loops = np.where(np.abs(without) > _ROUNDING * np.abs(loops).max(initial=0.0), without, 0.0)
    return basis @ loops


def face_sigma_mrad(record: CalibrationRecord) -> dict[int, float]:
    """Return the standard error of the loop phase around each face, without the phase common to all PUCs.

    Empty without a covariance of the loops.
    """
    factor = loop_factor(record)
    if factor is None:
        return {}
    loops = face_loops(record.mesh)
    sigma = 1e3 * np.linalg.norm(loops @ factor, axis=1)
    stated_rad = record.joints.loop_sigma_rad if record.joints else None
    rounding = 1e3 * _ROUNDING * (stated_rad or 1.0)
    dark = np.asarray(record.arrays[LOOP_DIRECTIONS], dtype=np.float64)[:, ~illuminated_loops(record)]
    is_dark = np.abs(loops @ dark).max(axis=1, initial=0.0) > _ROUNDING
    return {face: float(value) for face, value in enumerate(sigma) if value > rounding and not is_dark[face]}


def illuminated_loops(record: CalibrationRecord) -> NDArray[np.bool_]:
    """Return which loop parameters of a record have a standard error; the others have no light."""
    loops = _factor_of(record, "loops")
    if loops is None:
        return np.zeros(0, dtype=np.bool_)
    is_measured: NDArray[np.bool_] = np.linalg.norm(loops, axis=1) > 0.0
    return is_measured


def crosstalk_sigma_mrad(record: CalibrationRecord) -> float | None:
    """Return the rms phase error of an arm after crosstalk compensation, with all heaters at π.

    ``None`` without a covariance.
    """
    factor, kernel = _factor_of(record, "crosstalk"), record.crosstalk.kernel if record.crosstalk else None
    if kernel is None or factor is None:
        return None
    heat_mw = np.pi * CalibratedMesh.from_record(record).heat_mw_per_rad
    by_kernel = np.stack([_arm_slope(record.mesh, kernel, name, heat_mw) for name in _KERNEL_TERMS], axis=1)
    sigma = np.linalg.norm(by_kernel @ factor, axis=1)
    return 1e3 * float(np.sqrt(np.mean(sigma**2)))


def _arm_slope(mesh: MeshTopology, kernel: CrosstalkKernel, name: str, heat_mw: Real) -> Real:
    value: float = getattr(kernel, name)
    step = _KERNEL_STEP * (abs(value) or 1e-3)
    changed: dict[str, Any] = {name: value + step}
    upper, nominal = (
        kernel_crosstalk(mesh, variant).arm_rad_per_mw for variant in (replace(kernel, **changed), kernel)
    )
    return (upper - nominal) @ heat_mw / step


def dispersion(record: CalibrationRecord) -> list[tuple[str, float, float | None, str]]:
    """Return the wavelength-dependent quantities of a record: name, value, standard error (if fitted), unit."""
    entry, factor, dispersion = record.covariance, record.arrays.get(COVARIANCE_FACTOR), record.dispersion
    if dispersion is None:
        return []
    rows = []
    for group, label, scale, unit in _DISPERSION:
        place = entry.rows_of(group) if entry is not None else None
        sigma = None if place is None or factor is None else float(np.linalg.norm(factor[place]))
        rows.append((label, scale * float(getattr(dispersion, group)), scale * sigma if sigma else None, unit))
    return rows


def correlation_by_group(record: CalibrationRecord) -> tuple[tuple[str, ...], Real] | None:
    """Return the parameter groups, and for each pair of groups the largest correlation between their parameters.

    ``None`` without a covariance.
    """
    entry, factor = record.covariance, record.arrays.get(COVARIANCE_FACTOR)
    if entry is None or factor is None:
        return None
    factor_64 = np.asarray(factor, dtype=np.float64)
    length = np.linalg.norm(factor_64, axis=1, keepdims=True)
    unit = np.divide(factor_64, length, out=np.zeros_like(factor_64), where=length > 0.0)
    size = np.abs(unit @ unit.T)
    np.fill_diagonal(size, 0.0)
    named = [(name, rows) for name, _ in entry.groups if (rows := entry.rows_of(name)) is not None]
    free = [(name, rows) for name, rows in named if length[rows].any()]
    largest = np.array([[size[first, second].max() for _, second in free] for _, first in free])
    return tuple(name for name, _ in free), largest


def set_by_prior(record: CalibrationRecord) -> tuple[str, ...]:
    """Return the names of parameters that the prior determines more than the readings do.

    For a record without such a list: parameters with more than half the variance of the default prior.
    """
    from calibration.model.priors import PRIOR_SIGMA
    from calibration.model.space import space_from_record

    entry, factor = record.covariance, record.arrays.get(COVARIANCE_FACTOR)
    if entry is None or factor is None or entry.set_by_prior:
        return () if entry is None else entry.set_by_prior
    space, named = space_from_record(record), []
    if space.size != entry.size:
        return ()
    variance = (np.asarray(factor, dtype=np.float64) ** 2).sum(axis=1)
    for name, sigma in PRIOR_SIGMA.items():
        rows = entry.rows_of(name)
        if rows is not None and np.isfinite(sigma):
            named += (rows.start + np.flatnonzero(variance[rows] > _SET_BY_PRIOR * sigma**2)).tolist()
    return tuple(space.describe(index) for index in sorted(named))
