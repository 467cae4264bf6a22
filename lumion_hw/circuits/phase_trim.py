"""Phases that have drifted, found and set right by light in service.

Along a path in bar and cross states the light at the exit goes with cos²(ψ/2) of every PUC's phase error ψ. With the
phase moved by ±δ the two readings tell ψ by their difference: r = (P₊ - P₋)/(P₊ + P₋) = -sin ψ sin δ/(1 + cos ψ cos δ).
Each reading costs cos²(δ/2) of the light, 0.04 dB, for the time of a reading.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lumion_hw.bench.mesh_access import MeshAccess
from lumion_hw.errors import LimitError
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.mesh.record.calibration_record import CalibrationRecord

DITHER_RAD = 0.2
"""Costs 0.043 dB; readings good to 0.01 dB then tell a phase to 0.012 rad."""
_SIGMA_RAD = 0.012
LARGEST_RAD = 0.6
"""An error beyond this is no drift: the readings are those of something else."""
READS = 4
"""Readings per PUC: +, -, -, +, so that what drifts steadily meanwhile cancels."""
_LEAST_RAD = 0.03
"""Less costs 0.001 dB, and is hardly seen."""


@dataclass(frozen=True)
class PhaseError:
    """The phase of a PUC as light in service shows it.

    Attributes:
        puc: The PUC.
        error_rad: Differential phase there is, less the one wanted.
        corrected: Whether it was set right.
    """

    puc: int
    error_rad: float
    corrected: bool


def trim_phase(mesh: MeshAccess, record: CalibrationRecord, puc: int, read_w: Callable[[], float]) -> PhaseError:
    """Measure the phase error of a PUC that light in service passes, and set it right.

    Whatever happens, the heaters end as they were, or with the error of this PUC set right.

    Args:
        mesh: The mesh.
        record: Its calibration.
        puc: The PUC.
        read_w: Reads the light at the exit of its path.

    Raises:
        LimitError: Its heaters do not reach the phases beside the one they have; nothing was changed.
        LumionError: A device failed.
    """
    known, before_ma = CalibratedMesh.from_record(record, mesh.heater_max_ma), mesh.confirmed_currents_ma()
    aside_ma = {sign: shifted_currents_ma(known, before_ma, puc, sign * DITHER_RAD) for sign in (1.0, -1.0)}
    power_w = {1.0: 0.0, -1.0: 0.0}
    final_ma = before_ma
    try:
        for sign in (1.0, -1.0, -1.0, 1.0):
            mesh.program(aside_ma[sign])
            power_w[sign] += read_w()
        error_rad = _error_rad(power_w[1.0], power_w[-1.0])
        corrected = _LEAST_RAD <= abs(error_rad) <= LARGEST_RAD
        if corrected:
            final_ma = shifted_currents_ma(known, before_ma, puc, -error_rad)
    finally:
        mesh.program(final_ma)
    return PhaseError(puc, error_rad, corrected)


def shifted_currents_ma(
    known: CalibratedMesh, currents_ma: NDArray[np.float64], puc: int, by_rad: float
) -> NDArray[np.float64]:
    """Return currents with the differential phase of one PUC moved; heat moves as little as it can.

    Args:
        known: The mesh as its record knows it.
        currents_ma: Shape ``(2 n_pucs,)``.
        puc: The PUC.
        by_rad: Change of φu - φl.

    Raises:
        LimitError: Neither heater reaches it.
    """
    own_rad = known.own_rad(currents_ma)
    for heater, change in sorted(((2 * puc, by_rad), (2 * puc + 1, -by_rad)), key=lambda each: -own_rad[each[0]]):
        moved = own_rad[heater] + change
        if 0.0 <= moved <= known.reach_rad[heater]:
            own = own_rad.copy()
            own[heater] = moved
            result = currents_ma.copy()
            result[heater] = known.currents_ma(own)[heater]
            return result
    raise LimitError(
        f"phase of PUC {puc}: neither of its heaters can move it",
        requested=by_rad,
        limit=float(known.reach_rad[2 * puc : 2 * puc + 2].max()),
        unit="rad",
    )


def record_with_drift(record: CalibrationRecord, drifted_rad: dict[int, float]) -> CalibrationRecord:
    """Return the child of a record whose passive phases are those that light in service has shown.

    It has no covariance and no raw readings: those of its parent do not hold for phases measured otherwise.

    Args:
        record: The record.
        drifted_rad: By how much the phase of a PUC was off, by PUC.
    """
    pucs = list(record.pucs)
    for puc, by_rad in drifted_rad.items():
        passive = pucs[puc].passive_phase_rad
        if passive is not None:
            wrapped = (passive + by_rad + math.pi) % (2.0 * math.pi) - math.pi
            pucs[puc] = replace(pucs[puc], passive_phase_rad=wrapped, passive_phase_sigma_rad=_SIGMA_RAD)
    return replace(
        record,
        pucs=tuple(pucs),
        parent_sha256=record.content_sha256,
        provenance=record.provenance
        | {"renewed": f"by light in service: PUCs {', '.join(map(str, sorted(drifted_rad)))}"},
        covariance=None,
        raw=None,
        arrays={},
    )


def _error_rad(plus_w: float, minus_w: float) -> float:
    """Return ψ from the readings at +δ and -δ; solved for small errors first, then with the cosine it has."""
    ratio = (plus_w - minus_w) / max(plus_w + minus_w, 1e-30)
    error = 0.0
    for _ in range(8):  # converges by a factor of cos δ tan²(δ/2) each time
        sine = -ratio * (1.0 + math.cos(error) * math.cos(DITHER_RAD)) / math.sin(DITHER_RAD)
        error = math.asin(max(-1.0, min(1.0, sine)))
    return error
