"""Scattering matrix of a mesh of unit cells, by sparse LU.

With ``a`` the waves entering the 4E PUC-ports, S the block-diagonal scattering of the cells, C the partial permutation
of the joints and x the light injected at ports: ``(I - C·S)·a = x``; the waves leaving open PUC-ports are the answer.
All directed waves are kept: on a hexagonal mesh light comes back through waveguides it has used, backwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lumion_hw.errors import ConfigError, LumionError
from lumion_hw.mesh.cell import UnitCells
from lumion_hw.mesh.topology import HexMesh


class Solver:
    """Solves one mesh for any cells; everything that depends on the mesh alone is worked out once.

    Args:
        mesh: The mesh.
    """

    def __init__(self, mesh: HexMesh) -> None:
        self.mesh = mesh
        n = 4 * mesh.n_pucs
        joined = np.flatnonzero(mesh.mate >= 0)
        source = mesh.mate[joined]
        joint_of = np.full(n, -1, dtype=np.int64)
        joint_of[mesh.joints[:, 0]] = joint_of[mesh.joints[:, 1]] = np.arange(len(mesh.joints))
        self._n = n
        self._row = np.repeat(joined, 2)
        self._joint = np.repeat(joint_of[joined], 2)
        self._column, self._slot = _feeds(np.repeat(source, 2), np.tile([0, 1], len(joined)))
        port = np.repeat(mesh.port_puc_port, 2)
        self._out_column, self._out_slot = _feeds(port, np.tile([0, 1], mesh.n_ports))

    @cached_property
    def _order(self) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[Any], NDArray[np.int64]]:
        """Fill-reducing order of the unknowns, and the CSC pattern of the reordered matrix with its data order."""
        import scipy.sparse as sp
        from scipy.sparse.linalg import splu

        rows = np.concatenate([np.arange(self._n), self._row])
        columns = np.concatenate([np.arange(self._n), self._column])
        weights = np.concatenate([np.full(self._n, 4.0), np.ones(len(self._row))])
        pattern = sp.csc_array((weights, (rows, columns)), shape=(self._n, self._n))
        order = np.asarray(splu(pattern, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0).perm_c, dtype=np.int64)
        numbered = sp.csc_array(
            (np.arange(1, len(rows) + 1, dtype=np.float64), (order[rows], order[columns])), shape=(self._n, self._n)
        )
        numbered.sort_indices()
        return order, numbered.indices, numbered.indptr, numbered.data.astype(np.int64) - 1

    def waves(self, cells: UnitCells, frequency_hz: float, inputs: Sequence[int]) -> NDArray[np.complex128]:
        """Return the waves entering every PUC-port for unit light at each input, shape ``(4E, len(inputs))``."""
        return self._waves(cells.transfer(frequency_hz), cells.joint_phase, inputs)

    def solve(
        self, cells: UnitCells, frequency_hz: ArrayLike, inputs: Sequence[int] | None = None
    ) -> NDArray[np.complex128]:
        """Return the scattering matrix between ports.

        Args:
            cells: Unit cells of this mesh.
            frequency_hz: One optical frequency, or an array of shape ``(W,)``.
            inputs: Ports where light enters; all ports when omitted.

        Returns:
            Field transmission, shape ``(n_ports, len(inputs))``, or ``(W, n_ports, len(inputs))`` for an array of
            frequencies.
        """
        ports = range(self.mesh.n_ports) if inputs is None else inputs
        wrong = [port for port in ports if not 0 <= port < self.mesh.n_ports]
        if wrong or len(cells.loss_db) != self.mesh.n_pucs or len(cells.joint_phase) != len(self.mesh.joints):
            raise ConfigError(
                f"inputs {wrong} do not exist"
                if wrong
                else f"cells for {len(cells.loss_db)} PUCs and {len(cells.joint_phase)} joints",
                hint=f"It has {self.mesh.n_pucs} PUCs, {len(self.mesh.joints)} joints and {self.mesh.n_ports} ports.",
            )
        frequencies = np.atleast_1d(np.asarray(frequency_hz, dtype=np.float64))
        result = np.empty((len(frequencies), self.mesh.n_ports, len(ports)), dtype=np.complex128)
        for index, frequency in enumerate(frequencies):
            transfer = cells.transfer(float(frequency))
            result[index] = self._leaving(transfer, self._waves(transfer, cells.joint_phase, ports))
        matrix: NDArray[np.complex128] = result[0] if np.ndim(frequency_hz) == 0 else result
        return matrix

    def _waves(
        self, transfer: NDArray[np.complex128], joint_phase: NDArray[np.float64], inputs: Sequence[int]
    ) -> NDArray[np.complex128]:
        """Solve ``(I - C·S)·a = x`` for unit light at each input."""
        import scipy.sparse as sp
        from scipy.sparse.linalg import splu

        order, indices, indptr, data_order = self._order
        coupling = -np.exp(-1j * joint_phase)[self._joint] * transfer.reshape(-1)[self._slot]
        values = np.concatenate([np.ones(self._n, dtype=np.complex128), coupling])[data_order]
        matrix = sp.csc_array((values, indices, indptr), shape=(self._n, self._n))
        entering = order[self.mesh.port_puc_port[list(inputs)]]
        injected = np.zeros((self._n, len(inputs)), dtype=np.complex128)
        injected[entering, np.arange(len(inputs))] = 1.0
        try:
            lu = splu(matrix, permc_spec="NATURAL", diag_pivot_thresh=0.1, options={"SymmetricMode": True})
        except RuntimeError as error:
            raise LumionError(
                "these cells make an undamped resonator: light in a closed ring has no loss and no way out",
                hint="Give the PUCs a loss.",
            ) from error
        waves: NDArray[np.complex128] = lu.solve(injected)[order]
        return waves

    def _leaving(self, transfer: NDArray[np.complex128], waves: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """Return the waves leaving at the ports for given entering waves."""
        parts = transfer.reshape(-1)[self._out_slot, None] * waves[self._out_column]
        leaving: NDArray[np.complex128] = parts[0::2] + parts[1::2]
        return leaving


def _feeds(puc_port: NDArray[np.int64], rail: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return which wave feeds a wave leaving at ``puc_port`` and the index of the T element it passes.

    The wave leaving at (B, r) is fed by those entering at end A through T[r, rail]; the one leaving at (A, r) by those
    entering at end B through the transpose, T[rail, r].
    """
    puc, end, side = puc_port // 4, (puc_port % 4) // 2, puc_port % 2
    column = 4 * puc + 2 * (1 - end) + rail
    element = np.where(end == 1, 2 * side + rail, 2 * rail + side)
    return column, 4 * puc + element
