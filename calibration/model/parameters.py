"""Parameters of a mesh that a calibration determines."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from calibration.model.arrays import Real
from lumion_hw.mesh.programming.chip import ChipParameters


@dataclass(frozen=True, eq=False, kw_only=True)
class MeshParameters(ChipParameters):
    """Parameters of a chip with S sources and M monitors.

    Attributes:
        source_db: Shape ``(S,)``; power that enters the mesh at each source, in dBm.
        monitor_ma_per_mw: Shape ``(M,)``; photocurrent per power that leaves the mesh.
        second_db: Shape ``(S2,)``; for each source with a second port, the power there relative to the first.
        source_detuning_hz: Shape ``(S,)`` or one number; true minus stated frequency of each source.

    ``extra_physics`` also contains: ``compression_per_ma`` and ``offset_ma``, shape ``(M,)``; ``monitor_leak``, shape
    ``(2(M - 1),)``: from the previous monitor, then from the next; ``background_share``, shape ``(S·M,)``: light around
    the mesh, relative to the source; ``facet_reflection``, shape ``(2p,)`` for p ports: real, then imaginary part of
    the field; ``joint_reflection``, shape ``(4J,)``: the same for the first, then the second end of every joint;
    ``port_ripple_db``, shape ``(S·M,)``: power at a monitor with the light of a source, relative to the mean.
    """

    source_db: Real
    monitor_ma_per_mw: Real
    second_db: Real = field(default_factory=lambda: np.zeros(0))
    source_detuning_hz: Real | float = 0.0
