"""Mean light in a mesh that is only partly known: intensities, with unknown PUCs splitting evenly.

Interference with unknown phases averages out over random settings, so what is left on average follows intensities.
The model serves two ends: to choose paths for a measurement, and to tell which sign a fringe must have at a detector.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from lumion_hw.mesh.topology import LEAVES, HexMesh, State

_LOSS = 10.0 ** (-0.05)
"""Transmission of one PUC at the typical 0.5 dB."""


class MeanTransport:
    """Mean-intensity model of one mesh.

    Args:
        mesh: The mesh.
    """

    def __init__(self, mesh: HexMesh) -> None:
        self.mesh = mesh
        self._nodes = np.arange(4 * mesh.n_pucs)
        self._leaving = {state: self._nodes ^ LEAVES[state] for state in ("bar", "cross")}

    def bar_sensitivity(self, source: int, target: int, states: Mapping[int, State]) -> NDArray[np.float64]:
        """Return how the power at every port grows with the bar share of one PUC.

        Args:
            source: Port where light enters.
            target: The PUC.
            states: PUCs in a known state; all others split evenly.

        Returns:
            Shape ``(n_ports,)``; change of transmitted power per change of the bar share.
        """
        n_pucs, n_nodes = self.mesh.n_pucs, 4 * self.mesh.n_pucs
        bar_share = np.full(n_pucs, 0.5)
        for puc, state in states.items():
            if puc != target:
                bar_share[puc] = 1.0 if state == "bar" else 0.0
        inside = np.zeros((n_nodes, n_nodes))
        outside = np.zeros((self.mesh.n_ports, n_nodes))
        for state, share in (("bar", bar_share), ("cross", 1.0 - bar_share)):
            leaving = self._leaving[state]
            weight = _LOSS * share[self._nodes // 4]
            joined = self.mesh.mate[leaving] >= 0
            inside[self.mesh.mate[leaving[joined]], self._nodes[joined]] += weight[joined]
            outside[self.mesh.port_at[leaving[~joined]], self._nodes[~joined]] += weight[~joined]
        system = np.eye(n_nodes) - inside
        injected = np.zeros(n_nodes)
        injected[self.mesh.port_puc_port[source]] = 1.0
        intensity = np.asarray(np.linalg.solve(system, injected), dtype=np.float64)
        worth = np.asarray(np.linalg.solve(system.T, outside.T), dtype=np.float64)
        entering = 4 * target + np.arange(4)
        gain = self._worth_of_leaving(entering ^ LEAVES["bar"], worth)
        gain -= self._worth_of_leaving(entering ^ LEAVES["cross"], worth)
        sensitivity: NDArray[np.float64] = _LOSS * (intensity[entering] @ gain)
        return sensitivity

    def _worth_of_leaving(self, leaving: NDArray[np.int64], worth: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what a unit wave leaving at each PUC-port brings to every port."""
        result = np.zeros((len(leaving), self.mesh.n_ports))
        mate = self.mesh.mate[leaving]
        inner = mate >= 0
        result[inner] = worth[mate[inner]]
        result[~inner, self.mesh.port_at[leaving[~inner]]] = 1.0
        return result
