"""Scattering matrix of a mesh of unit cells, for many wavelengths and samples.

Let ``a`` be the fields entering all PUC-ports (four per PUC), S the block-diagonal scattering of the cells, C the
permutation of the joints (waveguides between PUCs) and x the light injected at ports. Then ``(I - C·S)·a = x``. If
joints or facets reflect light, C has a diagonal.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.mesh.waves.cell import Combine, UnitCells, combine_cells
from lumion_hw.mesh.waves.elimination import dissect
from lumion_hw.mesh.waves.engines import CompiledEngine, Engine, WaveEquations, choose_engine

__all__ = ["Solver"]


class _Pattern:
    """Sparsity pattern of the wave equations of one mesh, and the order in which waves are eliminated."""

    def __init__(self, mesh: MeshTopology) -> None:
        self.mesh = mesh
        port = np.repeat(mesh.port_puc_port, 2)
        self.out_wave, self.out_element = feeds(port, np.tile([0, 1], mesh.n_ports))

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """Place of each PUC-port's field in the elimination order, shape ``(4 n_pucs,)``."""
        rank = np.empty(self.mesh.n_pucs, dtype=np.int64)
        rank[dissect(self.mesh)] = np.arange(self.mesh.n_pucs)
        waves = np.arange(4 * self.mesh.n_pucs)
        position = np.empty_like(waves)
        # No other wave feeds the waves from outside, so eliminating them first causes no fill-in.
        position[np.lexsort((waves, rank[waves // 4], self.mesh.mate >= 0))] = waves
        return position

    @cached_property
    def waves_equations(self) -> WaveEquations:
        """Equations of the waves inside the mesh; light enters through their right-hand side."""
        return self._equations(keep_ports=False)

    @cached_property
    def ports_equations(self) -> WaveEquations:
        """Equations with a column for the light into each port and a row for the light out of it."""
        return self._equations(keep_ports=True)

    @cached_property
    def reflecting_equations(self) -> WaveEquations:
        """Equations with reflections at joints and ports; they take twice as long to solve."""
        return self._equations(keep_ports=False, reflecting=True)

    def _equations(self, *, keep_ports: bool, reflecting: bool = False) -> WaveEquations:
        mesh, position, n = self.mesh, self.order, 4 * self.mesh.n_pucs
        joined = np.flatnonzero(mesh.mate >= 0)
        # A joint is passed in both directions, with the same factor.
        joint_of = np.full(n, -1, dtype=np.int64)
        joint_of[mesh.joints[:, 0]] = joint_of[mesh.joints[:, 1]] = np.arange(len(mesh.joints))
        wave, element = feeds(np.repeat(mesh.mate[joined], 2), np.tile([0, 1], len(joined)))
        rows, columns, joint = position[np.repeat(joined, 2)], position[wave], np.repeat(joint_of[joined], 2)
        if reflecting:
            reflectors = np.concatenate([*mesh.joints.T, mesh.port_puc_port])
            feeding, through = feeds(np.repeat(reflectors, 2), np.tile([0, 1], len(reflectors)))
            rows, columns = (
                np.concatenate([rows, position[np.repeat(reflectors, 2)]]),
                np.concatenate([columns, position[feeding]]),
            )
            element = np.concatenate([element, through])
            joint = np.concatenate([joint, len(mesh.joints) + np.repeat(np.arange(len(reflectors)), 2)])
            if len(set(zip(rows.tolist(), columns.tolist(), strict=True))) < len(rows):
                raise ConfigError(
                    "a joint of this mesh connects both rails of one PUC end, which already reflects all light",
                    hint="Remove the reflections of joints and facets for this mesh.",
                )
        if keep_ports:
            ports = n + np.arange(mesh.n_ports)
            rows = np.concatenate([rows, np.repeat(ports, 2)])
            columns = np.concatenate([columns, position[self.out_wave]])
            element = np.concatenate([element, self.out_element])
            # The row behind those of the joints holds ones: light leaves a port without passing a joint.
            joint = np.concatenate([joint, np.full(2 * mesh.n_ports, len(mesh.joints))])
        entry = position[mesh.port_puc_port] if keep_ports else np.empty(0, dtype=np.int64)
        return WaveEquations.compile(rows, columns, element, joint, n_waves=n, entry=entry)


_MAX_PATTERNS = 8
_patterns: dict[bytes, _Pattern] = {}
_patterns_guard = threading.Lock()


def _cached_pattern(mesh: MeshTopology) -> _Pattern:
    # Positions count too: they decide the order of elimination.
    key = b"".join(part.tobytes() for part in (mesh.mate, mesh.port_puc_port, mesh.corners))
    with _patterns_guard:
        if key not in _patterns and len(_patterns) == _MAX_PATTERNS:
            # The oldest pattern: dictionaries keep the order of insertion.
            del _patterns[next(iter(_patterns))]
        return _patterns.setdefault(key, _Pattern(mesh))


class Solver:
    """Solves the field of one mesh for any cells, in one thread.

    Results agree with a pivoting sparse LU to 1e-12. With numba (dependency ``fast``) it is about ten times faster.

    Args:
        compiled: Whether to use compiled loops; by default if numba is installed.

    Raises:
        ConfigError: ``compiled`` is set, but numba is not installed.
    """

    def __init__(self, mesh: MeshTopology, *, compiled: bool | None = None) -> None:
        self.mesh = mesh
        self._engine: Engine = choose_engine(compiled)
        self._pattern = _cached_pattern(mesh)

    # -- results ------------------------------------------------------------------------------------------------------

    def solve(
        self, cells: UnitCells, frequency_hz: ArrayLike, inputs: Sequence[int] | None = None
    ) -> NDArray[np.complex128]:
        """Return the scattering matrix between ports.

        Args:
            cells: Unit cells of this mesh, for one sample or N.
            frequency_hz: One optical frequency, or an array of shape ``(W,)``.
            inputs: Ports where light enters; all ports by default.

        Returns:
            Field transmission, shape ``(n_ports, len(inputs))``, with leading axes ``(W,)``, ``(N,)`` or ``(W, N)`` for
            an array of frequencies and for samples.

        Raises:
            ConfigError: A port does not exist, or the cells belong to another mesh.
            LimitError: A splitting is outside 0 … 1 at one of the frequencies.
            LumionError: A closed ring has no loss.
        """
        ports = self.checked_inputs(cells, inputs)
        elements, factors, batch = self.coefficients(cells, frequency_hz)
        # For many inputs, elimination with ports gives the whole matrix at once; for few, substitute for each input.
        if 2 * len(ports) >= self.mesh.n_ports and len(factors) == len(self.mesh.joints):
            matrix = self._engine.between_ports(self._pattern.ports_equations, elements, factors)
            matrix = matrix if inputs is None else matrix[:, :, ports]
        else:
            waves = self.entering(elements, factors, self.mesh.port_puc_port[ports], self._pattern.out_wave)
            matrix = self.leaving(elements, waves)
        return matrix.reshape(*batch, self.mesh.n_ports, len(ports))

    def waves(
        self, cells: UnitCells, frequency_hz: ArrayLike, inputs: Sequence[int] | None = None
    ) -> NDArray[np.complex128]:
        """Return the fields entering every PUC-port for unit light at each input.

        Arguments and errors as in :meth:`solve`; shape ``(4 n_pucs, len(inputs))``, with the same leading axes.
        """
        ports = self.checked_inputs(cells, inputs)
        elements, factors, batch = self.coefficients(cells, frequency_hz)
        all_entries = np.arange(4 * self.mesh.n_pucs)
        waves = self.entering(elements, factors, self.mesh.port_puc_port[ports], all_entries)
        return waves.reshape(*batch, 4 * self.mesh.n_pucs, len(ports))

    # -- building blocks for other modules ----------------------------------------------------------------------------

    def coefficients(
        self, cells: UnitCells, frequency_hz: ArrayLike
    ) -> tuple[NDArray[np.complex128], NDArray[np.complex128], tuple[int, ...]]:
        """Return the transfer matrix elements of the PUCs, the factors of the joints, and the shape of the batch.

        With n samples in the batch the elements have shape ``(4 n_pucs, n)`` and the factors ``(n_joints, n)``, or
        ``(n_joints, 1)`` if all samples have the same factors. On a chip with reflections the rows of
        :meth:`UnitCells.reflection_coefficients` are appended to the factors.
        """
        batch = cells.batch_shape(frequency_hz)
        elements = cells.elements(frequency_hz, _combine(self._engine)).reshape(4 * self.mesh.n_pucs, -1)
        factors = cells.joint_factor(frequency_hz)
        # Factors that are equal for all samples stay one column, which saves memory and time.
        if factors.size != len(factors):
            factors = np.broadcast_to(factors, (len(factors), *batch))
        factors = factors.reshape(len(factors), -1)
        every = np.concatenate([factors, cells.reflection_coefficients(factors, self.mesh.n_ports)])
        return elements, np.ascontiguousarray(every), batch

    def entering(
        self,
        elements: NDArray[np.complex128],
        factors: NDArray[np.complex128],
        sources: NDArray[np.int64],
        wanted: NDArray[np.int64],
    ) -> NDArray[np.complex128]:
        """Return the fields entering PUC-ports ``wanted`` for a unit field added at each of ``sources``.

        Shape ``(n, len(wanted), len(sources))``.
        """
        position, pattern = self._pattern.order, self._pattern
        is_reflection_free = len(factors) == len(self.mesh.joints)
        equations = pattern.waves_equations if is_reflection_free else pattern.reflecting_equations
        return self._engine.waves(equations, elements, factors, position[sources], position[wanted])

    def leaving(self, elements: NDArray[np.complex128], waves: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """Return the fields leaving at ports, shape ``(n, n_ports, k)``, from the fields at :attr:`port_feeds`."""
        parts = elements[self._pattern.out_element].T[:, :, None] * waves
        total: NDArray[np.complex128] = parts[:, 0::2] + parts[:, 1::2]
        return total

    @property
    def port_feeds(self) -> NDArray[np.int64]:
        """PUC-ports whose light leaves at each port, two per port, shape ``(2 n_ports,)``."""
        return self._pattern.out_wave

    def checked_inputs(self, cells: UnitCells, inputs: Sequence[int] | None) -> NDArray[np.int64]:
        """Return the inputs; all ports by default.

        Raises:
            ConfigError: A port does not exist, or the cells belong to another mesh.
        """
        mesh = self.mesh
        ports = np.arange(mesh.n_ports) if inputs is None else np.asarray(list(inputs), dtype=np.int64)
        invalid = ports[(ports < 0) | (ports >= mesh.n_ports)].tolist()
        n_pucs, n_joints = cells.loss_db.shape[-1], cells.joint_phase.shape[-1]
        if invalid or n_pucs != mesh.n_pucs or n_joints != len(mesh.joints):
            raise ConfigError(
                f"input ports {invalid} do not exist"
                if invalid
                else f"the cells have {n_pucs} PUCs and {n_joints} joints, which does not match the mesh",
                hint=f"The mesh has {mesh.n_pucs} PUCs, {len(mesh.joints)} joints and {mesh.n_ports} ports.",
            )
        return ports


def feeds(puc_port: NDArray[np.int64], rail: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the PUC-port that light enters to leave at ``puc_port``, and the index of the T element between them.

    Light leaving at end B on rail r enters at end A on ``rail``, through T[r, rail]; light leaving at end A enters at
    end B, through the transpose, T[rail, r].
    """
    puc, end, side = puc_port // 4, (puc_port % 4) // 2, puc_port % 2
    wave = 4 * puc + 2 * (1 - end) + rail
    element = np.where(end == 1, 2 * side + rail, 2 * rail + side)
    return wave, 4 * puc + element


def _combine(engine: Engine) -> Combine:
    if not isinstance(engine, CompiledEngine):
        return combine_cells
    from lumion_hw.mesh.waves.kernels import combine

    compiled: Combine = combine
    return compiled
