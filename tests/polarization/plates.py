"""Rotating plates of fixed retardance, as in boxes with motors."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lumion_hw.polarization.retarders import S1, S3, turn_matrix


def rotating_plate(angle_rad: ArrayLike, retardance_rad: float) -> NDArray[np.float64]:
    """Return the rotations by a plate of fixed retardance at mechanical angles, shape ``(..., 3, 3)``."""
    about_s3 = turn_matrix(S3, 2.0 * np.asarray(angle_rad, dtype=np.float64))
    turn: NDArray[np.float64] = about_s3 @ turn_matrix(S1, retardance_rad) @ np.swapaxes(about_s3, -1, -2)
    return turn
