"""Linear algebra of symmetric parameter matrices, each scaled to a unit diagonal.

Parameter units from rad to Hz span twenty decades.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from calibration.model.arrays import Real

Sparse: TypeAlias = Any
"""A ``scipy.sparse.csr_array``, such as the information of a prior. Its stubs do not cover sums with dense matrices."""

MIN_EIGENVALUE_FRACTION = 1e-14
"""Largest eigenvalue of a scaled matrix that counts as zero."""
_ROWS_AT_ONCE = 512


def scale_of(matrix: Real) -> Real:
    """Return the square roots of the diagonal, shape ``(P,)``; 1 where it is zero."""
    root = np.sqrt(np.maximum(np.diag(matrix), 0.0))
    return np.where(root > 0.0, root, 1.0)


def diagonal(values: Real) -> Sparse:
    """Return the matrix with this diagonal."""
    from scipy.sparse import diags_array

    return diags_array(values).tocsr()


def inverse_of(matrix: Real, min_fraction: float = MIN_EIGENVALUE_FRACTION) -> Real:
    """Return the inverse of a symmetric matrix, shape ``(P, P)``, with zeros for undetermined combinations.

    These have an eigenvalue of at most ``min_fraction`` in the scaled matrix.
    """
    from scipy.linalg.lapack import dpotrf, dpotri

    scale = scale_of(matrix)
    # In place: every further matrix of this size counts on a large mesh. The transpose is in the order of LAPACK.
    scaled = np.outer(scale, scale).T
    np.divide(matrix, scaled, out=scaled)
    factor, failed = dpotrf(scaled, lower=1, overwrite_a=1)
    if not failed:
        lower, failed = dpotri(factor, lower=1, overwrite_c=1)
        # No eigenvalue of a positive matrix is smaller than the reciprocal trace of its inverse.
        if not failed and np.trace(lower) * min_fraction < 1.0:
            return _unscaled(lower, scale)
    unit = np.outer(scale, scale)
    values, vectors = np.linalg.eigh(matrix / unit)
    is_kept = values > min_fraction
    return np.asarray((vectors[:, is_kept] / values[is_kept]) @ vectors[:, is_kept].T / unit)


def _unscaled(lower: Real, scale: Real) -> Real:
    """Return the symmetric matrix with this lower triangle, divided by the scales of row and column, in place."""
    for first in range(0, len(lower), _ROWS_AT_ONCE):
        rows = slice(first, first + _ROWS_AT_ONCE)
        corner = np.tril(lower[rows, rows])
        lower[rows, rows] = corner + np.tril(corner, -1).T
        lower[rows, rows.stop :] = lower[rows.stop :, rows].T
        lower[rows] /= np.outer(scale[rows], scale)
    return lower.T


def is_positive(matrix: Real) -> bool:
    """Return whether a symmetric matrix is positive definite."""
    from scipy.linalg.lapack import dpotrf

    _, failed = dpotrf(matrix, lower=1)
    return not failed


def solved(matrix: Real, right: Real) -> Real:
    """Solve linear equations with a positive definite matrix ``(P, P)``; right-hand sides ``(P,)`` or ``(P, n)``."""
    from scipy.linalg import cho_factor, cho_solve

    return cho_solve(cho_factor(matrix, check_finite=False), right, check_finite=False)


def subtract_product(matrix: Real, left: Real, right: Real) -> None:
    """Subtract the product of two matrices from a matrix, without a further matrix of this size."""
    for first in range(0, len(matrix), _ROWS_AT_ONCE):
        rows = slice(first, first + _ROWS_AT_ONCE)
        matrix[rows] -= left[rows] @ right


def root_of(matrix: Real, min_fraction: float = MIN_EIGENVALUE_FRACTION) -> Real:
    """Return a root F of a symmetric matrix F·Fᵀ, shape ``(P, k)``, with as few columns as possible.

    Columns with a relative variance below ``min_fraction`` are dropped.
    """
    from scipy.linalg.lapack import dpstrf

    if not matrix.size:
        return np.zeros((0, 0))
    scale = scale_of(matrix)
    factor, order, rank, _ = dpstrf(matrix / np.outer(scale, scale), tol=min_fraction, lower=1)
    root: Real = np.zeros((len(matrix), int(rank)))
    # Pivots are sorted by size; the remainder after the last one is rounding error.
    root[order - 1] = np.tril(factor)[:, : int(rank)]
    return root * scale[:, None]
