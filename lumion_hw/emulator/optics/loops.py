"""Fibres that lead light from one port of the emulated mesh back into another, and reflectors at a port.

Light that comes back adds as a field, since a laser's coherence is longer than any patch cord: with delay τ and
transmission g from facet to facet it enters the other port with √g·e^{-2πjfτ}, and goes round as often as it likes.
Model choices: the loop keeps TE in TE, and its length does not drift.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lumion_hw.interfaces.wiring import LoopPath

_S_PER_M = 1.468 / 299_792_458.0
"""Delay of standard single-mode fibre at 1550 nm: group index 1.468 (Corning SMF-28 data sheet)."""


class Loops:
    """All fibres that lead back into the mesh.

    Args:
        paths: The fibres.

    Attributes:
        ports: Ports at which something comes back, in order.
    """

    def __init__(self, paths: Sequence[LoopPath]) -> None:
        self._paths = tuple(paths)
        self.ports = tuple(sorted({port for path in paths for port in path.ports}))

    def closed(
        self,
        fields: NDArray[np.complex128],
        of_ports: NDArray[np.complex128],
        frequency_hz: float,
        access_loss_db: NDArray[np.float64],
    ) -> NDArray[np.complex128]:
        """Return the fields at all ports when light comes back.

        Args:
            fields: Shape ``(n_ports,)``; what leaves without the loops.
            of_ports: Shape ``(len(ports), n_ports)``; what leaves for unit light into each of :attr:`ports`.
            frequency_hz: Frequency of the light.
            access_loss_db: Shape ``(n_ports,)``; loss between a fibre and the mesh.
        """
        back = self._back(frequency_hz, access_loss_db)
        ports = list(self.ports)
        # u = back·(f + Sᵀu) at the ports of the loops, with u what comes back in.
        entering = np.linalg.solve(np.eye(len(ports)) - back @ of_ports[:, ports].T, back @ fields[ports])
        total: NDArray[np.complex128] = fields + entering @ of_ports
        return total

    def _back(self, frequency_hz: float, access_loss_db: NDArray[np.float64]) -> NDArray[np.complex128]:
        """Return what enters the ports (rows) per field that leaves them (columns)."""
        back = np.zeros((len(self.ports), len(self.ports)), dtype=np.complex128)
        for path in self._paths:
            first, last = path.ports
            loss_db = path.loss_db + access_loss_db[first] + access_loss_db[last]
            turn = np.exp(-2j * np.pi * frequency_hz * path.length_m * _S_PER_M)
            one, other = self.ports.index(first), self.ports.index(last)
            back[one, other] = back[other, one] = 10.0 ** (-loss_db / 20.0) * turn
        return back
