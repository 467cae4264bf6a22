"""The parameters of a mesh as its ports see it: all that a calibration can find out, with a gauge where it cannot."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lumion_hw.mesh.programming.chip import ChipParameters

Real = NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class MeshParameters(ChipParameters):
    """One point in the space of meshes: the chip, and the light of S sources and M monitors it is seen by.

    Attributes:
        source_db: Shape ``(S,)``; power entering the mesh at each source's port, dBm.
        monitor_ma_per_mw: Shape ``(M,)``; photocurrent per power leaving the mesh at each monitor's port.
        second_db: Shape ``(S2,)``; of each source that lights a second port, the power entering there over that at the
            first.
        source_detuning_hz: Shape ``(S,)`` or one number; frequency of each source's light above that it is said to
            have.

    Here count of ``extra_physics`` ``compression_per_ma`` and ``offset_ma``, shape ``(M,)``; ``monitor_leak``, shape
    ``(2(M - 1),)``: from the monitor before, then from that after; ``background_share``, shape ``(S·M,)``: light past
    the mesh over that of the source; ``facet_reflection``, shape ``(2p,)``, p ports: real, then imaginary part of a
    field; ``joint_reflection``, shape ``(4J,)``: the same of the first, then the second end of every joint, in the
    gauge of the joint phases; ``port_ripple_db``, shape ``(S·M,)``: power at a monitor by the light of a source over
    what is usual.
    """

    source_db: Real
    monitor_ma_per_mw: Real
    second_db: Real = field(default_factory=lambda: np.zeros(0))
    source_detuning_hz: Real | float = 0.0
