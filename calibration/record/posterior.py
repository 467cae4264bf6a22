"""What a calibration record keeps of the fit it was made by: a point, its covariance, and what of it is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.model.parameters import MeshParameters
from calibration.model.space import ParameterSpace, space_of
from calibration.record.conversion import covariance_of, parameters_of
from lumion_hw.errors import CalibrationError
from lumion_hw.mesh.prediction import LOOP_DIRECTIONS
from lumion_hw.mesh.record import CalibrationRecord

Real = NDArray[np.float64]

_JITTER = 1e-12
"""Share of every variance added: the factor in the record is of single precision."""


@dataclass(frozen=True, eq=False)
class RecordPosterior:
    """What a record keeps of its fit.

    Attributes:
        parameters: The point.
        vector: The same as a vector.
        free: Which parameters have a standard error.
        matrix: Covariance of all parameters.
    """

    parameters: MeshParameters
    vector: Real
    free: NDArray[np.bool_]
    matrix: Real

    @classmethod
    def of(cls, record: CalibrationRecord) -> RecordPosterior:
        """Read it from a record.

        Raises:
            CalibrationError: The record does not hold what it takes; the message says what.
        """
        space, parameters = space_of(record), parameters_of(record)
        entry = record.covariance
        if record.joints is None or entry is None or not space.sources:
            raise CalibrationError(
                "this calibration record holds no loop phases, no covariance or no light: it cannot be renewed",
                hint="Calibrate again.",
            )
        unknown = [puc for puc, one in enumerate(record.pucs) if one.passive_phase_rad is None]
        if unknown:
            raise CalibrationError(
                f"this calibration record does not know the passive phases of PUCs {unknown}: it cannot be renewed",
                hint="Calibrate again.",
            )
        if entry.groups != tuple((name, place.stop - place.start) for name, place in space.groups.items()):
            raise CalibrationError("this calibration record counts its parameters otherwise", hint="Calibrate again.")
        matrix = _in_this_basis(covariance_of(record), record, space)
        variance = np.diag(matrix).copy()
        matrix[np.diag_indices_from(matrix)] += _JITTER * variance
        vector = space.pack(parameters)
        return cls(space.unpack(vector), vector, variance > 0.0, matrix)

    def covariance(self) -> Real:
        """Return the covariance."""
        return self.matrix


def _in_this_basis(covariance: Real, record: CalibrationRecord, space: ParameterSpace) -> Real:
    """Return a covariance whose loops are coordinates along this software's directions, not the writer's."""
    stored = record.arrays.get(LOOP_DIRECTIONS)
    if stored is None or np.array_equal(stored, space.directions):
        return covariance
    turn = np.eye(space.size)
    loops = space.groups["loops"]
    turn[loops, loops] = space.directions.T @ np.asarray(stored, dtype=np.float64)
    turned: Real = turn @ covariance @ turn.T
    return turned
