"""Decompositions of unitary matrices, multiplied out again and compared with independent ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.programming.decomposition import (
    nearest_unitary,
    rectangular,
    triangular,
    unitary_dilation,
    variants,
)
from tests.mesh.known_truth import haar_unitary


def product(n: int, mixers, output_rad: NDArray[np.float64]) -> NDArray[np.complex128]:
    """Return the matrix that mixers with a phase on their first mode make, element by element."""
    matrix = np.eye(n, dtype=complex)
    for mixer in mixers:
        sine, cosine = np.sin(mixer.theta_rad), np.cos(mixer.theta_rad)
        element = np.eye(n, dtype=complex)
        first, second = mixer.first, mixer.second
        turned = np.exp(-1j * mixer.before_rad)
        element[first, first], element[first, second] = sine * turned, cosine
        element[second, first], element[second, second] = cosine * turned, -sine
        matrix = element @ matrix
    return np.exp(-1j * output_rad)[:, None] * matrix


@pytest.mark.parametrize("decompose", [rectangular, triangular])
@pytest.mark.parametrize("n", range(1, 7))
def test_mixers_multiply_to_the_unitary(n: int, decompose) -> None:
    unitary = haar_unitary(n, np.random.default_rng(n))
    decomposition = decompose(unitary)
    assert len(decomposition.mixers) == n * (n - 1) // 2
    np.testing.assert_allclose(product(n, decomposition.mixers, decomposition.output_rad), unitary, atol=1e-12)


@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_all_variants_have_the_same_matrix(n: int) -> None:
    unitary = haar_unitary(n, np.random.default_rng(n))
    orders = set()
    for variant in variants(unitary):
        np.testing.assert_allclose(variant.matrix(), unitary, atol=1e-12)
        orders.add(tuple((mixer.first, mixer.second) for mixer in variant.mixers))
    assert len(orders) > 1 or n == 2


@pytest.mark.parametrize("matrix", [np.eye(4), np.eye(4)[[1, 0, 3, 2]], np.diag(np.exp(1j * np.arange(4.0)))])
@pytest.mark.parametrize("decompose", [rectangular, triangular])
def test_matrices_full_of_zeros_are_no_trouble(matrix: NDArray[np.complex128], decompose) -> None:
    np.testing.assert_allclose(decompose(matrix).matrix(), matrix, atol=1e-12)


def test_what_is_not_unitary_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not unitary"):
        rectangular(np.ones((2, 2), dtype=complex))


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (3, 2), (4, 4)])
def test_any_matrix_is_part_of_a_unitary(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    matrix = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    unitary = unitary_dilation(matrix)
    np.testing.assert_allclose(unitary.conj().T @ unitary, np.eye(len(unitary)), atol=1e-7)
    part = unitary[: shape[0], : shape[1]]
    np.testing.assert_allclose(part, matrix / np.linalg.norm(matrix, 2), atol=1e-12)
    near = nearest_unitary(matrix)
    np.testing.assert_allclose(near.conj().T @ near, np.eye(max(shape)), atol=1e-12)


def test_a_unitary_times_a_factor_needs_no_more_modes() -> None:
    unitary = haar_unitary(3, np.random.default_rng(1))
    np.testing.assert_allclose(unitary_dilation(0.2 * unitary), unitary, atol=1e-12)


@pytest.mark.parametrize("name", ["square_decomposition", "triangle_decomposition"])
@pytest.mark.parametrize("n", [2, 4, 7])
def test_the_interferometer_package_finds_the_same_splittings(n: int, name: str) -> None:
    judge = pytest.importorskip("interferometer")
    unitary = haar_unitary(n, np.random.default_rng(n))
    theirs = getattr(judge, name)(unitary)
    np.testing.assert_allclose(theirs.calculate_transformation(), unitary, atol=1e-12)
    _assert_some_variant_splits_like(unitary, [np.cos(beam_splitter.theta) for beam_splitter in theirs.BS_list])


@pytest.mark.parametrize("name", ["rectangular", "triangular"])
@pytest.mark.parametrize("n", [2, 4, 7])
def test_strawberryfields_finds_the_same_splittings(n: int, name: str) -> None:
    # Its releases need old versions of numpy and scipy, in a venv of their own; with newer ones the import fails.
    judge = pytest.importorskip("strawberryfields.decompositions", exc_type=ImportError)
    unitary = haar_unitary(n, np.random.default_rng(n))
    mixers, _, *others = getattr(judge, name)(unitary)
    every = [*mixers, *(mixer for others_mixers in others if others_mixers for mixer in others_mixers)]
    assert len(every) == n * (n - 1) // 2
    _assert_some_variant_splits_like(unitary, [np.cos(theta) for _, _, theta, *_ in every])


def _assert_some_variant_splits_like(unitary: NDArray[np.complex128], amplitudes: Sequence[float]) -> None:
    """Packages start their mesh at different corners, so the splittings of one of our variants have to agree."""
    theirs = sorted(np.square(amplitudes))
    ours = [sorted(np.sin(mixer.theta_rad) ** 2 for mixer in variant.mixers) for variant in variants(unitary)]
    assert min(np.abs(np.subtract(splittings, theirs)).max() for splittings in ours) < 1e-12


def test_a_mixer_with_the_opposite_angle_is_the_same_mixer() -> None:
    mixer = rectangular(haar_unitary(2, np.random.default_rng(5))).mixers[0]
    other = mixer.with_opposite_angle()
    assert other.theta_rad == -mixer.theta_rad
    np.testing.assert_allclose(other.matrix(), mixer.matrix(), atol=1e-12)
    decomposition = triangular(haar_unitary(4, np.random.default_rng(6)))
    for number in range(6):
        np.testing.assert_allclose(
            decomposition.with_opposite_angle(number).matrix(), decomposition.matrix(), atol=1e-12
        )
