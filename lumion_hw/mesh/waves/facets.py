"""What of the light at a port's fibre reaches the mesh: it takes TE only."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def entering_fraction(jones: NDArray[np.complex128], loss_db: ArrayLike, tm_rejection_db: float) -> NDArray[np.float64]:
    """Return the power in the mesh over the power in the fibre.

    TM leaks in through the port ``tm_rejection_db`` below TE (assumed). The two are added in power
    (docs/polarization.md, "The model"): were TM a field, some polarization would hide it altogether.

    Args:
        jones: Shape ``(..., 2)``; field at the facet (TE, TM), of length 1.
        loss_db: Access loss of the port for TE, with the leading axes of ``jones`` or one number.
        tm_rejection_db: Extra loss of TM.
    """
    te, tm = np.abs(jones[..., 0]) ** 2, np.abs(jones[..., 1]) ** 2
    share = te + 10.0 ** (-tm_rejection_db / 10.0) * tm
    fraction: NDArray[np.float64] = share * 10.0 ** (-np.asarray(loss_db) / 10.0)
    return fraction
