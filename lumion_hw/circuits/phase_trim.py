"""Measure and correct phase drift with the light of a circuit in service.

Along a path in bar and cross states the output power is proportional to cos²(ψ/2) of every PUC's phase error ψ. With
the phase moved by ±δ, the two powers P₊ and P₋ give ψ: r = (P₊ - P₋)/(P₊ + P₋) = -sin ψ sin δ/(1 + cos ψ cos δ). The
output power falls to cos²(δ/2), by 0.04 dB.
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
"""Phase change for a measurement; it costs 0.043 dB. Reading noise of 0.01 dB gives a phase error of 0.012 rad."""
_SIGMA_RAD = 0.012
MAX_DRIFT_RAD = 0.6
"""Larger phase errors are not drift but a disturbed measurement."""
READS = 4
"""Readings per PUC in the order +, -, -, +, so that steady drift cancels."""
_MIN_CORRECTION_RAD = 0.03
"""Smaller phase errors cost less than 0.001 dB and are not corrected."""


@dataclass(frozen=True)
class PhaseError:
    """Phase error of a PUC, measured with light in service.

    Attributes:
        error_rad: Actual minus wanted phase difference between the arms.
    """

    puc: int
    error_rad: float
    corrected: bool


def trim_phase(mesh: MeshAccess, record: CalibrationRecord, puc: int, read_w: Callable[[], float]) -> PhaseError:
    """Measure the phase error of a PUC on a circuit in service, and correct it.

    After an error, the heaters have their former currents or this PUC is corrected. ``read_w`` reads the power at the
    output of the circuit.

    Raises:
        LimitError: The heaters cannot reach the phases for the measurement; nothing was changed.
        LumionError: A device failed.
    """
    calibrated, before_ma = CalibratedMesh.from_record(record, mesh.heater_max_ma), mesh.confirmed_currents_ma()
    dithered_ma = {sign: shifted_currents_ma(calibrated, before_ma, puc, sign * DITHER_RAD) for sign in (1.0, -1.0)}
    power_w = {1.0: 0.0, -1.0: 0.0}
    final_ma = before_ma
    try:
        for sign in (1.0, -1.0, -1.0, 1.0):
            mesh.program(dithered_ma[sign])
            power_w[sign] += read_w()
        error_rad = _error_rad(power_w[1.0], power_w[-1.0])
        corrected = _MIN_CORRECTION_RAD <= abs(error_rad) <= MAX_DRIFT_RAD
        if corrected:
            final_ma = shifted_currents_ma(calibrated, before_ma, puc, -error_rad)
    finally:
        mesh.program(final_ma)
    return PhaseError(puc, error_rad, corrected)


def shifted_currents_ma(
    calibrated: CalibratedMesh, currents_ma: NDArray[np.float64], puc: int, by_rad: float
) -> NDArray[np.float64]:
    """Return heater currents that shift the phase difference of one PUC's arms, with little change of total heat.

    ``by_rad`` is the change of the upper arm's phase minus the lower arm's.

    Raises:
        LimitError: Neither heater can make the change.
    """
    own_rad = calibrated.own_rad(currents_ma)
    # The arm that is heated already comes first, so that the other arm can stay cold.
    for heater, change in sorted(((2 * puc, by_rad), (2 * puc + 1, -by_rad)), key=lambda item: -own_rad[item[0]]):
        moved = own_rad[heater] + change
        if 0.0 <= moved <= calibrated.reach_rad[heater]:
            own = own_rad.copy()
            own[heater] = moved
            result = currents_ma.copy()
            # Only this current is taken over: recalculating the others would change them by rounding errors.
            result[heater] = calibrated.currents_ma(own)[heater]
            return result
    raise LimitError(
        f"neither heater of PUC {puc} can make this phase shift",
        requested=by_rad,
        limit=float(calibrated.reach_rad[2 * puc : 2 * puc + 2].max()),
        unit="rad",
    )


def record_with_drift(record: CalibrationRecord, drifted_rad: dict[int, float]) -> CalibrationRecord:
    """Return a new calibration record with the phases that drifted in service, by PUC.

    It has no covariance and no raw readings, which would not apply to the new phases.
    """
    pucs = list(record.pucs)
    for puc, by_rad in drifted_rad.items():
        passive = pucs[puc].passive_phase_rad
        if passive is not None:
            # A record stores passive phases from -π to π.
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
    ratio = (plus_w - minus_w) / max(plus_w + minus_w, 1e-30)
    error = 0.0
    for _ in range(8):  # converges by a factor of cos δ tan²(δ/2) each time
        sine = -ratio * (1.0 + math.cos(error) * math.cos(DITHER_RAD)) / math.sin(DITHER_RAD)
        error = math.asin(max(-1.0, min(1.0, sine)))
    return error
