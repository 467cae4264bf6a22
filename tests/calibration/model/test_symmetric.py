"""Inverses, solutions and roots of symmetric matrices whose units span twenty decades."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from calibration.model.symmetric import inverse_of, root_of, solved

Real = NDArray[np.float64]

UNITS = 10.0 ** np.linspace(-10.0, 10.0, 9)


def _matrix(rank: int) -> Real:
    rows = np.random.default_rng(2).standard_normal((rank, 9)) * UNITS
    matrix: Real = rows.T @ rows
    return matrix


def test_a_matrix_that_knows_all_is_inverted_and_solved() -> None:
    matrix = _matrix(40)
    unit = np.outer(UNITS, UNITS)
    expected = np.linalg.inv(matrix / unit) / unit
    np.testing.assert_allclose(inverse_of(matrix) * unit, expected * unit, rtol=1e-9, atol=1e-12)
    right = np.random.default_rng(3).standard_normal((9, 2)) * UNITS[:, None]
    np.testing.assert_allclose(solved(matrix / unit, right), np.linalg.solve(matrix / unit, right), rtol=1e-8)


@pytest.mark.parametrize("rank", [0, 1, 6])
def test_what_a_matrix_does_not_know_has_no_part_in_its_inverse(rank: int) -> None:
    matrix, unit = _matrix(rank), np.outer(UNITS, UNITS)
    scale = np.sqrt(np.diag(matrix / unit))
    scaled = matrix / unit / np.outer(scale, scale) if rank else matrix
    expected = np.linalg.pinv(scaled, hermitian=True, rcond=1e-12)
    found = inverse_of(matrix, 1e-12) * unit
    np.testing.assert_allclose(found * np.outer(scale, scale) if rank else found, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("rank", [0, 1, 6, 40])
def test_a_root_has_as_many_columns_as_the_matrix_has_rank(rank: int) -> None:
    matrix = _matrix(rank)
    root = root_of(matrix)
    assert root.shape == (9, min(rank, 9))
    unit = np.outer(UNITS, UNITS)
    np.testing.assert_allclose(root @ root.T / unit, matrix / unit, rtol=1e-9, atol=1e-12 * max(rank, 1))
