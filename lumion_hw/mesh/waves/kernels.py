"""Inner loops of the mesh solver, compiled by numba (optional dependency ``fast``).

Samples are processed in groups of :data:`LANES`, with real and imaginary parts stored separately.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

LANES = 8
"""Number of samples processed together: one AVX-512 register of doubles, two AVX or four NEON registers."""

_PARTS = ir.ArrayType(ir.VectorType(ir.DoubleType(), LANES), 2)
_ELEMENT_BYTES = 8
# Allows fused multiply-add, which is faster and rounds only once.
_FUSED = ("contract",)


def _index(value: int) -> Any:
    return ir.Constant(ir.IntType(32), value)


def _three_rows(combine: Callable[[Any, Any, Any, Any], tuple[Any, Any]]) -> Any:
    @intrinsic
    def instruction(_: Any, y: Any, i: Any, a: Any, j: Any, b: Any, k: Any) -> Any:
        """Generate code that replaces row i of y by a combination of itself, row j of a and row k of b."""

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            def row(position: int) -> list[Any]:
                array = context.make_array(signature.args[position])(context, builder, values[position])
                number = context.cast(builder, values[position + 1], signature.args[position + 1], types.intp)
                parts = builder.gep(builder.bitcast(array.data, _PARTS.as_pointer()), [number])
                return [builder.gep(parts, [_index(0), _index(part)]) for part in (0, 1)]

            def load(pointer: Any) -> Any:
                vector = builder.load(pointer)
                vector.align = _ELEMENT_BYTES
                return vector

            operands = [[load(part) for part in row(position)] for position in (0, 2, 4)]
            for pointer, vector in zip(row(0), combine(builder, *operands), strict=True):
                builder.store(vector, pointer).align = _ELEMENT_BYTES
            return context.get_dummy_value()

        return types.void(y, i, a, j, b, k), generate

    return instruction


def _minus_product(builder: Any, y: Any, a: Any, b: Any) -> tuple[Any, Any]:
    real = builder.fsub(y[0], builder.fmul(a[0], b[0], flags=_FUSED), flags=_FUSED)
    imaginary = builder.fsub(y[1], builder.fmul(a[0], b[1], flags=_FUSED), flags=_FUSED)
    return (
        builder.fadd(real, builder.fmul(a[1], b[1], flags=_FUSED), flags=_FUSED),
        builder.fsub(imaginary, builder.fmul(a[1], b[0], flags=_FUSED), flags=_FUSED),
    )


def _product(builder: Any, _: Any, a: Any, b: Any) -> tuple[Any, Any]:
    return (
        builder.fsub(builder.fmul(a[0], b[0], flags=_FUSED), builder.fmul(a[1], b[1], flags=_FUSED), flags=_FUSED),
        builder.fadd(builder.fmul(a[0], b[1], flags=_FUSED), builder.fmul(a[1], b[0], flags=_FUSED), flags=_FUSED),
    )


_subtract_product = _three_rows(_minus_product)
_multiply = _three_rows(_product)


@njit(cache=True, nogil=True, error_model="numpy")
def _aligned(rows):  # type: ignore[no-untyped-def]
    memory = np.empty(rows * 2 * LANES + LANES)
    ahead = -(memory.ctypes.data // _ELEMENT_BYTES) % LANES
    return memory[ahead : ahead + rows * 2 * LANES].reshape(rows, 2, LANES)


@njit(cache=True, nogil=True, error_model="numpy")
def _load(start, slots, element, joint, elements, through, first, work):  # type: ignore[no-untyped-def]
    step = 1 if through.shape[1] > 1 else 0
    n_present = min(LANES, elements.shape[1] - first)
    for slot in range(len(start)):
        for lane in range(LANES):
            work[slot, 0, lane] = start[slot]
            work[slot, 1, lane] = 0.0
    for e in range(len(slots)):
        slot, row, passed = slots[e], element[e], joint[e]
        for lane in range(n_present):
            value = elements[row, first + lane] * through[passed, step * (first + lane)]
            work[slot, 0, lane] = value.real
            work[slot, 1, lane] = value.imag
        for lane in range(n_present, LANES):
            work[slot, 0, lane] = work[slot, 0, 0]
            work[slot, 1, lane] = work[slot, 1, 0]


@njit(cache=True, nogil=True, error_model="numpy")
def _eliminate(pivot, below_start, below, right_start, right, target, work):  # type: ignore[no-untyped-def]
    smallest = np.inf
    t = 0
    for k in range(len(pivot)):
        diagonal = pivot[k]
        for lane in range(LANES):
            square = work[diagonal, 0, lane] ** 2 + work[diagonal, 1, lane] ** 2
            smallest = min(smallest, square)
            # 1 / (a + jb) = (a - jb) / (a² + b²), and the square is known already.
            inverse = 1.0 / square
            work[diagonal, 0, lane] *= inverse
            work[diagonal, 1, lane] *= -inverse
        for a in range(below_start[k], below_start[k + 1]):
            row = below[a]
            _multiply(work, row, work, row, work, diagonal)
            for b in range(right_start[k], right_start[k + 1]):
                _subtract_product(work, target[t], work, row, work, right[b])
                t += 1
    return smallest


@njit(cache=True, nogil=True, error_model="numpy")
def _substitute(steps, source, work, x, reached):  # type: ignore[no-untyped-def]
    pivot, below_start, below, below_row, right_start, right, right_column, _ = steps
    x[:] = 0.0
    reached[:] = False
    x[source, 0, :] = 1.0
    reached[source] = True
    # In elimination order a wave changes only later ones, so everything before the source stays zero.
    for k in range(source, len(pivot)):
        if reached[k]:
            for a in range(below_start[k], below_start[k + 1]):
                reached[below_row[a]] = True
                _subtract_product(x, below_row[a], work, below[a], x, k)
    for k in range(len(pivot) - 1, -1, -1):
        for b in range(right_start[k], right_start[k + 1]):
            _subtract_product(x, k, work, right[b], x, right_column[b])
        _multiply(x, k, x, k, work, pivot[k])


@njit(cache=True, nogil=True, error_model="numpy")
def run_eliminate(steps, start, slots, element, joint, elements, through, wanted, result):  # type: ignore[no-untyped-def]
    """Eliminate for every sample and copy the wanted elements; return the smallest squared pivot of each group."""
    pivot, below_start, below, _, right_start, right, _, target = steps
    n_samples = elements.shape[1]
    work = _aligned(len(start))
    smallest = np.empty((n_samples + LANES - 1) // LANES)
    for group in range(len(smallest)):
        first = group * LANES
        _load(start, slots, element, joint, elements, through, first, work)
        smallest[group] = _eliminate(pivot, below_start, below, right_start, right, target, work)
        for lane in range(min(LANES, n_samples - first)):
            for w in range(len(wanted)):
                result[first + lane, w] = complex(work[wanted[w], 0, lane], work[wanted[w], 1, lane])
    return smallest


@njit(cache=True, nogil=True, error_model="numpy")
def run_solve(steps, start, slots, element, joint, elements, through, sources, wanted, result):  # type: ignore[no-untyped-def]
    """Solve for unit light at each source; return the smallest squared pivot of each group."""
    pivot, below_start, below, _, right_start, right, _, target = steps
    n_samples, n = elements.shape[1], len(pivot)
    work = _aligned(len(start))
    x, reached = _aligned(n), np.empty(n, np.bool_)
    smallest = np.empty((n_samples + LANES - 1) // LANES)
    for group in range(len(smallest)):
        first = group * LANES
        _load(start, slots, element, joint, elements, through, first, work)
        smallest[group] = _eliminate(pivot, below_start, below, right_start, right, target, work)
        for i in range(len(sources)):
            _substitute(steps, sources[i], work, x, reached)
            for lane in range(min(LANES, n_samples - first)):
                for w in range(len(wanted)):
                    result[first + lane, w, i] = complex(x[wanted[w], 0, lane], x[wanted[w], 1, lane])
    return smallest


@njit(cache=True, nogil=True, error_model="numpy")
def combine(through_in, cross_in, upper, lower, through_out, cross_out, result):  # type: ignore[no-untyped-def]
    """Combine couplers and arms as :func:`lumion_hw.mesh.waves.cell.combine_cells` does."""
    n = result.shape[3]
    steps = (
        int(through_in.shape[1] > 1),
        int(cross_in.shape[1] > 1),
        int(upper.shape[1] > 1),
        int(lower.shape[1] > 1),
        int(through_out.shape[1] > 1),
        int(cross_out.shape[1] > 1),
    )
    for e in range(result.shape[0]):
        for s in range(n):
            t1, c1 = through_in[e, steps[0] * s], cross_in[e, steps[1] * s]
            u, v = upper[e, steps[2] * s], lower[e, steps[3] * s]
            t2, c2 = through_out[e, steps[4] * s], cross_out[e, steps[5] * s]
            result[e, 0, 0, s] = t2 * t1 * u - c2 * c1 * v
            result[e, 0, 1, s] = -1j * (t2 * c1 * u + c2 * t1 * v)
            result[e, 1, 0, s] = -1j * (c2 * t1 * u + t2 * c1 * v)
            result[e, 1, 1, s] = t2 * t1 * v - c2 * c1 * u
