"""Types of arrays."""

import numpy as np
from numpy.typing import NDArray

Real = NDArray[np.float64]
"""Array in double precision."""
Single = NDArray[np.float32]
"""Array in single precision."""
