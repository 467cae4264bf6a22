"""Fibres that feed light from one port of the emulated mesh back into another, and reflectors at a port.

Returning light adds as a field. At the frequency f, a loop with delay τ and power transmission g from facet to facet
feeds √g·e^{-2πjfτ} of the field into the other port. Assumed: TE light stays TE in the loop, and the loop's length does
not drift.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lumion_hw.interfaces.wiring import LoopPath

_S_PER_M = 1.468 / 299_792_458.0
"""Delay in s per metre of standard single-mode fibre at 1550 nm: group index 1.468 (Corning SMF-28 data sheet)."""


class Loops:
    """All fibres and reflectors that feed light back into the mesh; ``ports`` are the ports where light returns."""

    def __init__(self, paths: Sequence[LoopPath]) -> None:
        self._paths = tuple(paths)
        self.ports = tuple(sorted({port for path in paths for port in path.ports}))

    def with_feedback(
        self,
        fields: NDArray[np.complex128],
        output_per_port: NDArray[np.complex128],
        frequency_hz: float,
        access_loss_db: NDArray[np.float64],
    ) -> NDArray[np.complex128]:
        """Return the fields at all ports with the light that loops and reflectors feed back into the mesh.

        Args:
            fields: Shape ``(n_ports,)``; output fields without the loops.
            output_per_port: Shape ``(len(ports), n_ports)``; output fields without the loops for light of unit power
                into each of :attr:`ports`.
            frequency_hz: Frequency of the light.
            access_loss_db: Shape ``(n_ports,)``; loss between fibre and mesh at each port.
        """
        feedback = self._feedback(frequency_hz, access_loss_db)
        ports = list(self.ports)
        # u = back·(f + Sᵀu) at the ports of the loops, where u is the returning field.
        entering = np.linalg.solve(
            np.eye(len(ports)) - feedback @ output_per_port[:, ports].T, feedback @ fields[ports]
        )
        total: NDArray[np.complex128] = fields + entering @ output_per_port
        return total

    def _feedback(self, frequency_hz: float, access_loss_db: NDArray[np.float64]) -> NDArray[np.complex128]:
        """Return the field fed back into each port (row) per unit field that leaves each port (column)."""
        feedback = np.zeros((len(self.ports), len(self.ports)), dtype=np.complex128)
        for path in self._paths:
            first, last = path.ports
            loss_db = path.loss_db + access_loss_db[first] + access_loss_db[last]
            phase_factor = np.exp(-2j * np.pi * frequency_hz * path.length_m * _S_PER_M)
            first_index, last_index = self.ports.index(first), self.ports.index(last)
            feedback[first_index, last_index] = feedback[last_index, first_index] = (
                10.0 ** (-loss_db / 20.0) * phase_factor
            )
        return feedback
