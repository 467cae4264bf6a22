"""Coupling of light from a fibre into the mesh, which accepts TE polarization."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def entering_fraction(jones: NDArray[np.complex128], loss_db: ArrayLike, tm_rejection_db: float) -> NDArray[np.float64]:
    """Return the fraction of the power in the fibre that enters the mesh at a port.

    Powers of TE and TM are added, not fields (docs/polarization.md, "The model").

    Args:
        jones: Shape ``(..., 2)``; field at the facet (TE, TM), normalised to 1.
        loss_db: Loss of the port for TE; one number, or with the leading axes of ``jones``.
        tm_rejection_db: Extra loss of TM light (assumed).
    """
    te, tm = np.abs(jones[..., 0]) ** 2, np.abs(jones[..., 1]) ** 2
    relative_power = te + 10.0 ** (-tm_rejection_db / 10.0) * tm
    fraction: NDArray[np.float64] = relative_power * 10.0 ** (-np.asarray(loss_db) / 10.0)
    return fraction
