"""Symmetric matrices of parameters, each worked on in units of its own diagonal.

Units from rad to Hz span twenty decades: only scaled to a unit diagonal can "hardly known" be told from "in small
units". Factors are those of Cholesky; eigenvalues, which take ten times as long, are asked only where one may be
nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Real = NDArray[np.float64]

NOTHING = 1e-14
"""Eigenvalue of a scaled matrix at which rounding begins."""


def scale_of(matrix: Real) -> Real:
    """Return the roots of a diagonal, shape ``(P,)``; 1 where it is zero."""
    root = np.sqrt(np.maximum(np.diag(matrix), 0.0))
    scale: Real = np.where(root > 0.0, root, 1.0)
    return scale


def inverse_of(matrix: Real, nothing: float = NOTHING) -> Real:
    """Return the inverse, shape ``(P, P)``; combinations of which the matrix says nothing have no part in it.

    Args:
        matrix: Shape ``(P, P)``; symmetric, no eigenvalue far below zero.
        nothing: Eigenvalue of the scaled matrix up to which a combination counts as not known.
    """
    from scipy.linalg.lapack import dpotrf, dpotri

    scale = scale_of(matrix)
    unit = np.outer(scale, scale)
    scaled = matrix / unit
    factor, failed = dpotrf(scaled, lower=1)
    if not failed:
        lower, failed = dpotri(factor, lower=1, overwrite_c=1)
        # No eigenvalue of a positive matrix is below one over the trace of its inverse.
        if not failed and np.trace(lower) * nothing < 1.0:
            inverse: Real = np.tril(lower)
            inverse += np.tril(lower, -1).T
            return np.asarray(inverse / unit)
    values, vectors = np.linalg.eigh(scaled)
    seen = values > nothing
    return np.asarray((vectors[:, seen] / values[seen]) @ vectors[:, seen].T / unit)


def solved(matrix: Real, right: Real) -> Real:
    """Return the solution of equations with a positive matrix, ``(P, P)``, for right sides ``(P,)`` or ``(P, n)``."""
    from scipy.linalg import cho_factor, cho_solve

    solution: Real = cho_solve(cho_factor(matrix, check_finite=False), right, check_finite=False)
    return solution


def root_of(matrix: Real, nothing: float = NOTHING) -> Real:
    """Return F with F·Fᵀ = matrix, shape ``(P, k)``, as few columns as it takes.

    Args:
        matrix: Shape ``(P, P)``; symmetric, no eigenvalue far below zero.
        nothing: Share of a scaled variance at which a column is left out.
    """
    from scipy.linalg.lapack import dpstrf

    if not matrix.size:
        return np.zeros((0, 0))
    scale = scale_of(matrix)
    factor, order, rank, _ = dpstrf(matrix / np.outer(scale, scale), tol=nothing, lower=1)
    root: Real = np.zeros((len(matrix), int(rank)))
    # Pivots are taken by size: what is left after the last of them is rounding.
    root[order - 1] = np.tril(factor)[:, : int(rank)]
    return root * scale[:, None]
