"""Three solvers for the equations of a mesh: compiled, in numpy, and a pivoting sparse LU.

The sparse LU also solves the samples for which a solver without pivoting meets a pivot below :data:`MIN_PIVOT`.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError, LumionError
from lumion_hw.mesh.waves.elimination import Program, compile_elimination

_log = logging.getLogger(__name__)

MIN_PIVOT = 1e-3
"""Smallest pivot magnitude; with smaller pivots, rounding errors could exceed 1e-12 of the light."""

_SMALL_BATCH = 8
"""Smallest number of samples for which elimination in numpy is faster than one sparse LU per sample."""

_CHUNK = 4_000_000
"""Number of complex values processed at once in numpy (64 MB)."""

Complex = NDArray[np.complex128]


@dataclass(frozen=True, eq=False)
class WaveEquations:
    """The matrix I - C·S of a mesh in elimination order, with or without ports as extra rows and columns.

    Attributes:
        program: Elimination of the matrix.
        rows: Rows of the elements that depend on the cells.
        columns: Columns of these elements.
        slots: Slots (array positions) of these elements.
        element: For each of these elements, the index of its element of the cells' transfer matrices T.
        joint: For each of these elements, the index of its joint; the number of joints where light leaves instead.
        fixed_slots: Slots of the elements that do not depend on the cells.
        fixed: Values of these elements.
        n_waves: Number of unknown fields, four per PUC.
        n_ports: Number of ports in the matrix.
        entry: Shape ``(n_ports,)``; unknown field that carries the light into each of these ports.
        port_slots: Shape ``(n_ports²,)``; slots that hold the matrix between ports after elimination.
    """

    program: Program
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    slots: NDArray[np.int32]
    element: NDArray[np.int64]
    joint: NDArray[np.int64]
    fixed_slots: NDArray[np.int32]
    fixed: NDArray[np.float64]
    n_waves: int
    n_ports: int
    entry: NDArray[np.int64]
    port_slots: NDArray[np.int32]

    @classmethod
    def compile(
        cls,
        rows: NDArray[np.int64],
        columns: NDArray[np.int64],
        element: NDArray[np.int64],
        joint: NDArray[np.int64],
        *,
        n_waves: int,
        entry: NDArray[np.int64],
    ) -> WaveEquations:
        """Prepare the elimination.

        ``entry`` is the unknown field that carries the light into each port; empty if the matrix has no ports.
        """
        n_ports, waves = len(entry), np.arange(n_waves)
        size = n_waves + n_ports
        ports = np.arange(n_waves, size)
        between = np.repeat(ports, n_ports), np.tile(ports, n_ports)
        fixed = [(waves, waves, np.ones(n_waves)), (entry, ports, -np.ones(n_ports)), (*between, np.zeros(n_ports**2))]
        fixed_rows, fixed_columns, values = (np.concatenate(part) for part in zip(*fixed, strict=True))
        program = compile_elimination(
            np.concatenate([rows, fixed_rows]), np.concatenate([columns, fixed_columns]), size, n_waves
        )
        return cls(
            program=program,
            rows=rows,
            columns=columns,
            slots=program.slots(rows, columns),
            element=element,
            joint=joint,
            fixed_slots=program.slots(fixed_rows, fixed_columns),
            fixed=values,
            n_waves=n_waves,
            n_ports=n_ports,
            entry=entry,
            port_slots=program.slots(*between),
        )

    @cached_property
    def for_kernel(self) -> tuple[object, ...]:
        """Arrays for the loops that numba compiles."""
        program = self.program
        steps = (
            program.pivot,
            program.below_start,
            program.below,
            program.below_row,
            program.right_start,
            program.right,
            program.right_column,
            program.target,
        )
        start = np.zeros(program.n_slots)
        start[self.fixed_slots] = self.fixed
        return steps, start, self.slots, self.element, self.joint

    @cached_property
    def sparse_pattern(self) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
        """Return the pattern of the wave equations as a sparse matrix in compressed columns (CSC).

        The arrays hold the index of each non-zero element in this class, its row, and the first element of each column.
        """
        n = self.n_waves
        rows, columns = (np.concatenate([np.arange(n), index]) for index in (self.rows, self.columns))
        chosen = np.lexsort((rows, columns))
        chosen = chosen[(rows[chosen] < n) & (columns[chosen] < n)]
        starts = np.searchsorted(columns[chosen], np.arange(n + 1))
        # SuperLU takes 32-bit indices only.
        return chosen, rows[chosen].astype(np.int32), starts.astype(np.int32)

    def values(self, elements: Complex, factors: Complex) -> Complex:
        """Return the values of the matrix elements that depend on the cells, for n samples: ``(len(slots), n)``."""
        through = np.concatenate([-factors, np.ones((1, factors.shape[1]))])
        result: Complex = through[self.joint] * elements[self.element]
        return result


class Engine(Protocol):
    """Solves the equations of a mesh for n samples.

    Cell matrix elements have shape ``(4 n_pucs, n)``, joint factors ``(n_joints, n)`` or ``(n_joints, 1)``.
    """

    def between_ports(self, equations: WaveEquations, elements: Complex, factors: Complex) -> Complex:
        """Return the scattering matrix between the ports of the equations, shape ``(n, n_ports, n_ports)``."""
        ...

    def waves(
        self,
        equations: WaveEquations,
        elements: Complex,
        factors: Complex,
        sources: NDArray[np.int64],
        wanted: NDArray[np.int64],
    ) -> Complex:
        """Return the fields at ``wanted`` for a unit field at each of ``sources``, shape ``(n, wanted, sources)``."""
        ...


def compiled_available() -> bool:
    """Return whether the compiled engine is available (numba is installed)."""
    return importlib.util.find_spec("numba") is not None


def choose_engine(compiled: bool | None) -> Engine:
    """Return the compiled or the numpy engine; by default the compiled engine if available.

    Raises:
        ConfigError: The compiled engine is requested but numba is not installed.
    """
    is_available = compiled_available()
    if compiled and not is_available:
        raise ConfigError("the compiled solver needs numba", hint="Install it: pip install 'lumion-hw[fast]'")
    if is_available and compiled is not False:
        return CompiledEngine()
    return VectorEngine()


class CompiledEngine:
    """Runs the elimination in loops that numba compiles at first use."""

    def between_ports(self, equations: WaveEquations, elements: Complex, factors: Complex) -> Complex:
        """Return the scattering matrix between ports; see :class:`Engine`."""
        from lumion_hw.mesh.waves.kernels import LANES, run_eliminate

        result = np.empty((elements.shape[1], equations.n_ports**2), dtype=np.complex128)
        loops: Callable[..., NDArray[np.float64]] = run_eliminate
        min_squares = loops(*_for_kernel(equations, elements, factors), equations.port_slots, result)
        matrix = result.reshape(-1, equations.n_ports, equations.n_ports)
        _repair(matrix, np.repeat(min_squares, LANES), equations, elements, factors, _sparse_between_ports)
        return matrix

    def waves(
        self,
        equations: WaveEquations,
        elements: Complex,
        factors: Complex,
        sources: NDArray[np.int64],
        wanted: NDArray[np.int64],
    ) -> Complex:
        """Return the fields at ``wanted`` for a unit field at each source; see :class:`Engine`."""
        from lumion_hw.mesh.waves.kernels import LANES, run_solve

        result = np.empty((elements.shape[1], len(wanted), len(sources)), dtype=np.complex128)
        loops: Callable[..., NDArray[np.float64]] = run_solve
        min_squares = loops(*_for_kernel(equations, elements, factors), sources, wanted, result)
        _repair(result, np.repeat(min_squares, LANES), equations, elements, factors, _pivoting_solver(sources, wanted))
        return result


def _for_kernel(equations: WaveEquations, elements: Complex, factors: Complex) -> tuple[object, ...]:
    through = np.concatenate([-factors, np.ones((1, factors.shape[1]))])
    return (*equations.for_kernel, elements, through)


class VectorEngine:
    """Runs the elimination in numpy for all samples at once."""

    def between_ports(self, equations: WaveEquations, elements: Complex, factors: Complex) -> Complex:
        """Return the scattering matrix between ports; see :class:`Engine`."""
        n_ports = equations.n_ports
        result = np.empty((elements.shape[1], n_ports, n_ports), dtype=np.complex128)

        def store_result(part: slice, work: Complex) -> None:
            result[part] = work[equations.port_slots].T.reshape(-1, n_ports, n_ports)

        min_squares = _eliminate_in_chunks(equations, elements, factors, store_result)
        _repair(result, min_squares, equations, elements, factors, _sparse_between_ports)
        return result

    def waves(
        self,
        equations: WaveEquations,
        elements: Complex,
        factors: Complex,
        sources: NDArray[np.int64],
        wanted: NDArray[np.int64],
    ) -> Complex:
        """Return the fields at ``wanted`` for a unit field at each source; see :class:`Engine`."""
        result = np.empty((elements.shape[1], len(wanted), len(sources)), dtype=np.complex128)

        def store_result(part: slice, work: Complex) -> None:
            # The caller wants samples first; elimination has them last, where they are contiguous.
            result[part] = np.moveaxis(_substitute(equations.program, work, sources)[wanted], 2, 0)

        min_squares = _eliminate_in_chunks(equations, elements, factors, store_result)
        _repair(result, min_squares, equations, elements, factors, _pivoting_solver(sources, wanted))
        return result


def _eliminate_in_chunks(
    equations: WaveEquations, elements: Complex, factors: Complex, store_result: Callable[[slice, Complex], None]
) -> NDArray[np.float64]:
    """Eliminate as many samples at once as memory allows; return the smallest squared pivot of each sample.

    Samples too few for elimination get 0, so that the sparse LU solves them.
    """
    n = elements.shape[1]
    min_squares = np.zeros(n)
    # At least as many samples as pay for the elimination in numpy.
    step = max(_CHUNK // equations.program.n_slots, _SMALL_BATCH)
    for first in range(0, n if n >= _SMALL_BATCH else 0, step):
        part = slice(first, min(first + step, n))
        work = np.zeros((equations.program.n_slots, part.stop - first), dtype=np.complex128)
        work[equations.fixed_slots] = equations.fixed[:, None]
        joints = factors if factors.shape[1] == 1 else factors[:, part]
        work[equations.slots] = equations.values(elements[:, part], joints)
        min_squares[part] = _eliminate(equations.program, work)
        store_result(part, work)
    return min_squares


def _eliminate(program: Program, work: Complex) -> NDArray[np.float64]:
    min_squares = np.full(work.shape[1], np.inf)
    first = 0
    for k, pivot in enumerate(program.pivot.tolist()):
        below = program.below[program.below_start[k] : program.below_start[k + 1]]
        right = program.right[program.right_start[k] : program.right_start[k + 1]]
        np.minimum(min_squares, work[pivot].real ** 2 + work[pivot].imag ** 2, out=min_squares)
        # The inverse is stored, because back substitution needs it again and a product is faster than a division.
        work[pivot] = 1.0 / work[pivot]
        if len(below):
            work[below] *= work[pivot]
            target = program.target[first : first + len(below) * len(right)]
            first += len(target)
            work[target] -= (work[below][:, None] * work[right]).reshape(len(target), work.shape[1])
    return min_squares


def _substitute(program: Program, work: Complex, sources: NDArray[np.int64]) -> Complex:
    x = np.zeros((program.n_pivots, len(sources), work.shape[1]), dtype=np.complex128)
    x[sources, np.arange(len(sources))] = 1.0
    for k in range(program.n_pivots):
        part = slice(program.below_start[k], program.below_start[k + 1])
        # Light from one port has not reached most of the first unknowns, so there is nothing to subtract.
        if part.start < part.stop and x[k].any():
            x[program.below_row[part]] -= work[program.below[part]][:, None] * x[k]
    for k in reversed(range(program.n_pivots)):
        part = slice(program.right_start[k], program.right_start[k + 1])
        if part.start < part.stop:
            x[k] -= (work[program.right[part]][:, None] * x[program.right_column[part]]).sum(axis=0)
        x[k] *= work[program.pivot[k]]
    return x


# -- sparse LU with pivoting ---------------------------------------------------------------------------------------


def _repair(
    result: Complex,
    min_squares: NDArray[np.float64],
    equations: WaveEquations,
    elements: Complex,
    factors: Complex,
    solve_with_pivoting: Callable[[WaveEquations, Complex], Complex],
) -> None:
    # Negated comparison, so that NaN pivots are included.
    doubtful = np.flatnonzero(~(min_squares[: len(result)] >= MIN_PIVOT**2))
    if len(doubtful) and min_squares[doubtful].any():
        _log.info(
            "%d of %d samples are close to a lossless resonance and were solved with pivoting",
            len(doubtful),
            len(result),
        )
    for index in doubtful.tolist():
        joints = factors if factors.shape[1] == 1 else factors[:, index : index + 1]
        result[index] = solve_with_pivoting(equations, equations.values(elements[:, index : index + 1], joints)[:, 0])


def _pivoting_solver(
    sources: NDArray[np.int64], wanted: NDArray[np.int64]
) -> Callable[[WaveEquations, Complex], Complex]:
    """Return a function that solves one sample for the fields at ``wanted``; see :class:`Engine`."""
    return lambda equations, values: _sparse_waves(equations, values, sources)[wanted]


def _sparse_waves(equations: WaveEquations, values: Complex, sources: NDArray[np.int64]) -> Complex:
    import scipy.sparse as sp
    from scipy.sparse.linalg import splu

    n = equations.n_waves
    chosen, indices, starts = equations.sparse_pattern
    matrix = sp.csc_array((np.concatenate([np.ones(n), values])[chosen], indices, starts), shape=(n, n))
    unit = np.zeros((n, len(sources)), dtype=np.complex128)
    unit[sources, np.arange(len(sources))] = 1.0
    try:
        # The matrix is already in dissection order; another pivot is used only if it is ten times the diagonal.
        lu = splu(matrix, permc_spec="NATURAL", diag_pivot_thresh=0.1, options={"SymmetricMode": True})
    except RuntimeError as error:
        raise LumionError(
            "these cells form a closed ring without loss, so the field has no solution",
            hint="Give the PUCs a loss above 0 dB.",
        ) from error
    waves: Complex = lu.solve(unit)
    return waves


def _sparse_between_ports(equations: WaveEquations, values: Complex) -> Complex:
    n, n_ports = equations.n_waves, equations.n_ports
    waves = _sparse_waves(equations, values, equations.entry)
    result = np.zeros((n_ports, n_ports), dtype=np.complex128)
    # Rows behind the waves are those of the light that leaves at ports.
    leaves_at_port = equations.rows >= n
    np.add.at(
        result,
        equations.rows[leaves_at_port] - n,
        values[leaves_at_port, None] * waves[equations.columns[leaves_at_port]],
    )
    return result
