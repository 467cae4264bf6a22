"""Coupling of light from a fibre into the mesh at a port, which accepts TE polarization."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def entering_fraction(jones: NDArray[np.complex128], loss_db: ArrayLike, tm_rejection_db: float) -> NDArray[np.float64]:
    """Return the fraction of the power in the fibre that enters the mesh at a port.

    TM light enters with ``tm_rejection_db`` more loss than TE (assumed). Powers of TE and TM are added, not fields
    (docs/polarization.md, "The model"): if fields were added, the sum would vanish for some polarization.

    Args:
        jones: Shape ``(..., 2)``; field at the facet (TE, TM), normalised to 1.
        loss_db: Access loss of the port for TE, with the leading axes of ``jones`` or one number.
        tm_rejection_db: Extra loss of TM light.
    """
    te, tm = np.abs(jones[..., 0]) ** 2, np.abs(jones[..., 1]) ** 2
    relative_power = te + 10.0 ** (-tm_rejection_db / 10.0) * tm
    fraction: NDArray[np.float64] = relative_power * 10.0 ** (-np.asarray(loss_db) / 10.0)
    return fraction
