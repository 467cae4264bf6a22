"""Solve a mesh for many settings of a few PUCs, as low-rank changes of one solution (Woodbury).

The fields a that enter the changed PUCs follow from ``(1 - G·ΔS)·a = a0``, with fields a0 of the base setting,
responses G to unit light, and the change ΔS of the PUCs' scattering.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.waves.cell import UnitCells
from lumion_hw.mesh.waves.scattering import Solver


class SweepSolver:
    """Solves a mesh for many settings of a few of its PUCs, with everything else fixed.

    Create a new solver when anything except these PUCs changes.

    Args:
        cells: Unit cells with one value per parameter (no axis of samples).
        pucs: PUCs to sweep, each once.
        inputs: Ports where light enters; all ports by default.

    Raises:
        ConfigError: A PUC or port does not exist, a PUC is named twice, or the cells have an axis of samples.
        LumionError: As for :meth:`Solver.solve`.
    """

    def __init__(
        self,
        solver: Solver,
        cells: UnitCells,
        frequency_hz: float,
        pucs: Sequence[int],
        inputs: Sequence[int] | None = None,
    ) -> None:
        mesh = solver.mesh
        invalid = [puc for puc in pucs if not 0 <= puc < mesh.n_pucs]
        if invalid or len(set(pucs)) != len(pucs) or cells.n_samples is not None or np.ndim(frequency_hz):
            raise ConfigError(
                f"PUCs {invalid} do not exist"
                if invalid
                else "a sweep needs one base setting, one frequency and different PUCs",
                hint=f"Name each PUC once, 0 to {mesh.n_pucs - 1}; give one frequency and cells without sample axis.",
            )
        ports = solver.checked_inputs(cells, inputs)
        elements, factors, _ = solver.coefficients(cells, frequency_hz)
        self.pucs = tuple(pucs)
        self._base = elements.reshape(-1, 2, 2)[list(pucs)]
        entering = (4 * np.asarray(pucs, dtype=np.int64)[:, None] + np.arange(4)).ravel()
        # Light that leaves a PUC-port passes its joint and enters the next PUC-port, or leaves the mesh.
        mate = mesh.mate[entering]
        is_joined = mate >= 0
        joint = np.searchsorted(mesh.joints[:, 0], np.minimum(entering, mate)[is_joined])
        sources = np.concatenate([mesh.port_puc_port[ports], mate[is_joined]])
        wanted = np.concatenate([solver.port_feeds, entering])
        waves = solver.entering(elements, factors, sources, wanted)[0]
        # Light that a swept PUC emits passes its joint before it enters the next PUC.
        waves[:, len(ports) :] *= factors[joint, 0]
        n_feeds = len(solver.port_feeds)
        leaving = solver.leaving(elements, waves[None, :n_feeds])[0]
        self._entering = waves[n_feeds:, : len(ports)]
        self._leaving = leaving[:, : len(ports)]
        self._emitted = np.zeros((len(entering), len(entering)), dtype=np.complex128)
        self._emitted[:, is_joined] = waves[n_feeds:, len(ports) :]
        self._emitted_out = np.zeros((mesh.n_ports, len(entering)), dtype=np.complex128)
        self._emitted_out[:, is_joined] = leaving[:, len(ports) :]
        self._emitted_out[mesh.port_at[entering[~is_joined]], np.flatnonzero(~is_joined)] = 1.0

    def solve(self, transfer: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """Return the scattering matrix for each setting of the swept PUCs.

        Args:
            transfer: Transfer matrices of the swept PUCs in N settings (:meth:`UnitCells.transfer`), shape ``(N,
                len(pucs), 2, 2)``.

        Returns:
            Field transmission, shape ``(N, n_ports, len(inputs))``.

        Raises:
            ConfigError: The array has the wrong shape.
        """
        m = len(self.pucs)
        if transfer.shape[1:] != (m, 2, 2):
            raise ConfigError(
                f"T has the wrong shape, {transfer.shape}",
                hint=f"Give (settings, {m}, 2, 2): one transfer matrix T for each of PUCs {self.pucs}.",
            )
        # ΔS of a PUC is [[0, ΔTᵀ], [ΔT, 0]] in the order AL, AR, BL, BR.
        change = np.zeros((len(transfer), m, 4, 4), dtype=np.complex128)
        change[:, :, 2:, :2] = transfer - self._base
        change[:, :, :2, 2:] = change[:, :, 2:, :2].swapaxes(2, 3)
        n, size, k = len(transfer), 4 * m, self._entering.shape[1]
        # One product of large matrices is much faster than N products of small ones.
        system = np.empty((n, size, size), dtype=np.complex128)
        for index in range(m):
            part = slice(4 * index, 4 * index + 4)
            columns = self._emitted[:, part] @ change[:, index].transpose(1, 0, 2).reshape(4, 4 * n)
            system[:, :, part] = -columns.reshape(size, n, 4).swapaxes(0, 1)
        system[:, np.arange(size), np.arange(size)] += 1.0
        entering = np.linalg.solve(system, self._entering[None])
        emitted = np.einsum("nmij,nmjk->nkmi", change, entering.reshape(n, m, 4, k))
        result: NDArray[np.complex128] = (emitted.reshape(n * k, size) @ self._emitted_out.T).reshape(n, k, -1)
        result += self._leaving.T
        return result.swapaxes(1, 2)
