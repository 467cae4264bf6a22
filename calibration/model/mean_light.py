"""Mean light in a mesh of which nothing is known: intensities, every PUC splitting evenly.

Interference with unknown phases averages out over random settings; what is left follows intensities. They obey the
equations of the fields with the squares of the transfer matrix in its place, so the solver of the fields solves them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.mesh.scattering import Solver
from lumion_hw.mesh.topology import MeshTopology

TYPICAL_LOSS_DB = 0.5
"""Published typical loss of a PUC (mesh.md b.8)."""


@dataclass(frozen=True, eq=False)
class MeanLight:
    """Mean light between all ports.

    Attributes:
        entering: Shape ``(E, n_ports)``; power that enters each PUC, from both ends, per power into each port.
        power: Shape ``(n_ports, n_ports)``; power out of a port (row) per power into another (column).
        by_bar_share: Shape ``(E, n_ports, n_ports)``; how that grows with the bar share of each PUC.
    """

    entering: NDArray[np.float64]
    power: NDArray[np.float64]
    by_bar_share: NDArray[np.float64]

    @classmethod
    def of(cls, mesh: MeshTopology) -> MeanLight:
        """Solve for the mean light of a mesh."""
        solver, gain = Solver(mesh), 10.0 ** (-TYPICAL_LOSS_DB / 10.0)
        elements = np.full((4 * mesh.n_pucs, 1), 0.5 * gain, dtype=np.complex128)
        factors = np.ones((len(mesh.joints), 1), dtype=np.complex128)
        waves = solver.entering(elements, factors, mesh.port_puc_port, np.arange(4 * mesh.n_pucs))
        power = solver.leaving(elements, waves[:, solver.port_feeds])[0].real
        met = waves[0].real.reshape(mesh.n_pucs, 2, 2, mesh.n_ports)
        # More bar share takes from the other rail what it gives to this one; the way back is the way there (mesh.md
        # c.1), so the light out of a port is known from the light into it.
        tilt = met[:, :, 0] - met[:, :, 1]
        change = gain * (tilt[:, 1, :, None] * tilt[:, 0, None, :] + tilt[:, 0, :, None] * tilt[:, 1, None, :])
        return cls(met.sum(axis=(1, 2)), power, change)

    def lit_together(self, seconds: Mapping[int, int]) -> MeanLight:
        """Return the same with the light of both ports in the columns of sources that light two alike."""
        first, second = list(seconds), list(seconds.values())
        entering, power, change = self.entering.copy(), self.power.copy(), self.by_bar_share.copy()
        entering[:, first] += self.entering[:, second]
        power[:, first] += self.power[:, second]
        change[:, :, first] += self.by_bar_share[:, :, second]
        return MeanLight(entering, power, change)

    def relative_swing(self, sources: Sequence[int], monitors: Sequence[int]) -> NDArray[np.float64]:
        """Return how the logarithm of mean powers follows bar shares, shape ``(len(sources), len(monitors), E)``."""
        change = self.by_bar_share[:, list(monitors)][:, :, list(sources)]
        relative: NDArray[np.float64] = (change / self.power[np.ix_(monitors, sources)]).transpose(2, 1, 0)
        return relative
