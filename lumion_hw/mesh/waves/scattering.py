"""Scattering matrix of a mesh of unit cells: eliminated in a fixed order, vectorised over wavelengths and samples.

With ``a`` the waves entering the 4E PUC-ports, S the block-diagonal scattering of the cells, C the partial permutation
of the joints and x the light injected at ports: ``(I - C·S)·a = x``; the waves leaving open PUC-ports are the answer.
Where joints or facets send light back, C has a diagonal.
All directed waves are kept: on a hexagonal mesh light comes back through waveguides it has used, backwards.
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
    """What follows from the mesh alone: which wave feeds which, and the order of their elimination."""

    def __init__(self, mesh: MeshTopology) -> None:
        self.mesh = mesh
        port = np.repeat(mesh.port_puc_port, 2)
        self.out_wave, self.out_element = feeds(port, np.tile([0, 1], mesh.n_ports))

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """Place of every wave in the elimination: light from outside first, then as the PUCs are dissected."""
        rank = np.empty(self.mesh.n_pucs, dtype=np.int64)
        rank[dissect(self.mesh)] = np.arange(self.mesh.n_pucs)
        waves = np.arange(4 * self.mesh.n_pucs)
        place = np.empty_like(waves)
        # Light from outside is fed by no other wave: eliminated first, it fills in nothing.
        place[np.lexsort((waves, rank[waves // 4], self.mesh.mate >= 0))] = waves
        return place

    @cached_property
    def waves_equations(self) -> WaveEquations:
        return self._equations(keep_ports=False)

    @cached_property
    def ports_equations(self) -> WaveEquations:
        """The same with a column for the light into each port and a row for the light out of it."""
        return self._equations(keep_ports=True)

    @cached_property
    def reflecting_equations(self) -> WaveEquations:
        """Those of the waves where both ends of every joint and all ports may send back: twice the work."""
        return self._equations(keep_ports=False, reflecting=True)

    def _equations(self, *, keep_ports: bool, reflecting: bool = False) -> WaveEquations:
        mesh, place, n = self.mesh, self.order, 4 * self.mesh.n_pucs
        joined = np.flatnonzero(mesh.mate >= 0)
        joint_of = np.full(n, -1, dtype=np.int64)
        joint_of[mesh.joints[:, 0]] = joint_of[mesh.joints[:, 1]] = np.arange(len(mesh.joints))
        wave, element = feeds(np.repeat(mesh.mate[joined], 2), np.tile([0, 1], len(joined)))
        rows, columns, joint = place[np.repeat(joined, 2)], place[wave], np.repeat(joint_of[joined], 2)
        if reflecting:
            at = np.concatenate([*mesh.joints.T, mesh.port_puc_port])
            sent, through = feeds(np.repeat(at, 2), np.tile([0, 1], len(at)))
            rows, columns = np.concatenate([rows, place[np.repeat(at, 2)]]), np.concatenate([columns, place[sent]])
            element = np.concatenate([element, through])
            joint = np.concatenate([joint, len(mesh.joints) + np.repeat(np.arange(len(at)), 2)])
            if len(set(zip(rows.tolist(), columns.tolist(), strict=True))) < len(rows):
                raise ConfigError(
                    "a joint of this mesh joins the two ports of one end of a PUC, which is a mirror already",
                    hint="Give its joints and facets no reflections of their own.",
                )
        if keep_ports:
            ports = n + np.arange(mesh.n_ports)
            rows = np.concatenate([rows, np.repeat(ports, 2)])
            columns = np.concatenate([columns, place[self.out_wave]])
            element = np.concatenate([element, self.out_element])
            joint = np.concatenate([joint, np.full(2 * mesh.n_ports, len(mesh.joints))])
        entry = place[mesh.port_puc_port] if keep_ports else np.empty(0, dtype=np.int64)
        return WaveEquations.compile(rows, columns, element, joint, n_waves=n, entry=entry)


_MOST_PATTERNS = 8
_patterns: dict[bytes, _Pattern] = {}
_patterns_guard = threading.Lock()


def _pattern_of(mesh: MeshTopology) -> _Pattern:
    """Return the pattern of a mesh, worked out once for all solvers of equal meshes: it costs more than an answer."""
    key = b"".join(part.tobytes() for part in (mesh.mate, mesh.port_puc_port, mesh.corners))
    with _patterns_guard:
        if key not in _patterns and len(_patterns) == _MOST_PATTERNS:
            del _patterns[next(iter(_patterns))]
        return _patterns.setdefault(key, _Pattern(mesh))


class Solver:
    """Solves one mesh for any cells; everything that depends on the mesh alone is worked out once.

    Uses one thread. Results agree with a pivoting sparse LU to 1e-12. With the extra ``fast`` (numba) the inner loops
    are compiled; without it they run in numpy and scipy, with the same results some ten times slower.

    Args:
        mesh: The mesh.
        compiled: Whether the compiled loops are used; by default if they are there.

    Raises:
        ConfigError: ``compiled`` is asked for, but numba is not installed.
    """

    def __init__(self, mesh: MeshTopology, *, compiled: bool | None = None) -> None:
        self.mesh = mesh
        self._engine: Engine = choose_engine(compiled)
        self._pattern = _pattern_of(mesh)

    # -- answers ------------------------------------------------------------------------------------------------------

    def solve(
        self, cells: UnitCells, frequency_hz: ArrayLike, inputs: Sequence[int] | None = None
    ) -> NDArray[np.complex128]:
        """Return the scattering matrix between ports.

        Args:
            cells: Unit cells of this mesh, for one sample or N.
            frequency_hz: One optical frequency, or an array of shape ``(W,)``.
            inputs: Ports where light enters; all ports when omitted.

        Returns:
            Field transmission, shape ``(n_ports, len(inputs))``, with leading axes ``(W,)``, ``(N,)`` or ``(W, N)`` for
            an array of frequencies and for samples.

        Raises:
            ConfigError: A port does not exist, or the cells are those of another mesh.
            LimitError: A splitting leaves 0 … 1 at one of the frequencies.
            LumionError: Light in a closed ring has no loss and no way out.
        """
        ports = self.checked_inputs(cells, inputs)
        elements, factors, batch = self.coefficients(cells, frequency_hz)
        # Many inputs: ports kept in the elimination give all of the matrix at once. Few: a substitution for each.
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
        """Return the waves entering every PUC-port for unit light at each input.

        Args and errors as in :meth:`solve`; the shape is ``(4E, len(inputs))``, with the same leading axes.
        """
        ports = self.checked_inputs(cells, inputs)
        elements, factors, batch = self.coefficients(cells, frequency_hz)
        everywhere = np.arange(4 * self.mesh.n_pucs)
        waves = self.entering(elements, factors, self.mesh.port_puc_port[ports], everywhere)
        return waves.reshape(*batch, 4 * self.mesh.n_pucs, len(ports))

    # -- the parts, for what is built on the solver -------------------------------------------------------------------

    def coefficients(
        self, cells: UnitCells, frequency_hz: ArrayLike
    ) -> tuple[NDArray[np.complex128], NDArray[np.complex128], tuple[int, ...]]:
        """Return elements of T, factors of joints, and the axes n stands for.

        Those of T have the shape ``(4E, n)``, the factors ``(J, n)`` or ``(J, 1)``; below them follow those of
        :meth:`UnitCells.reflection_coefficients`.
        """
        batch = cells.batch_shape(frequency_hz)
        elements = cells.elements(frequency_hz, _combine(self._engine)).reshape(4 * self.mesh.n_pucs, -1)
        factors = cells.joint_factor(frequency_hz)
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
        """Return the waves entering the PUC-ports ``wanted`` for a unit wave added to those entering at ``sources``.

        Shape ``(n, len(wanted), len(sources))``.
        """
        place, pattern = self._pattern.order, self._pattern
        one_way = len(factors) == len(self.mesh.joints)
        equations = pattern.waves_equations if one_way else pattern.reflecting_equations
        return self._engine.waves(equations, elements, factors, place[sources], place[wanted])

    def leaving(self, elements: NDArray[np.complex128], waves: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """Return the waves leaving at ports, ``(n, n_ports, k)``, for those entering the PUC-ports that feed them."""
        parts = elements[self._pattern.out_element].T[:, :, None] * waves
        total: NDArray[np.complex128] = parts[:, 0::2] + parts[:, 1::2]
        return total

    @property
    def port_feeds(self) -> NDArray[np.int64]:
        """Shape ``(2 n_ports,)``; the two PUC-ports whose entering waves feed the light out of each port."""
        return self._pattern.out_wave

    def checked_inputs(self, cells: UnitCells, inputs: Sequence[int] | None) -> NDArray[np.int64]:
        """Return the inputs, by default all. Raises ``ConfigError`` for a wrong port or cells of another mesh."""
        mesh = self.mesh
        ports = np.arange(mesh.n_ports) if inputs is None else np.asarray(list(inputs), dtype=np.int64)
        wrong = ports[(ports < 0) | (ports >= mesh.n_ports)].tolist()
        n_pucs, n_joints = cells.loss_db.shape[-1], cells.joint_phase.shape[-1]
        if wrong or n_pucs != mesh.n_pucs or n_joints != len(mesh.joints):
            raise ConfigError(
                f"inputs {wrong} do not exist" if wrong else f"cells for {n_pucs} PUCs and {n_joints} joints",
                hint=f"It has {mesh.n_pucs} PUCs, {len(mesh.joints)} joints and {mesh.n_ports} ports.",
            )
        return ports


def feeds(puc_port: NDArray[np.int64], rail: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return which wave feeds a wave leaving at ``puc_port`` and the index of the T element it passes.

    The wave leaving at (B, r) is fed by those entering at end A through T[r, rail]; the one leaving at (A, r) by those
    entering at end B through the transpose, T[rail, r].
    """
    puc, end, side = puc_port // 4, (puc_port % 4) // 2, puc_port % 2
    wave = 4 * puc + 2 * (1 - end) + rail
    element = np.where(end == 1, 2 * side + rail, 2 * rail + side)
    return wave, 4 * puc + element


def _combine(engine: Engine) -> Combine:
    """Return what puts unit cells together: compiled, where the elimination is."""
    if not isinstance(engine, CompiledEngine):
        return combine_cells
    from lumion_hw.mesh.waves.kernels import combine

    compiled: Combine = combine
    return compiled
