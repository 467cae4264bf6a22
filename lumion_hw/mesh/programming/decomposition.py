"""Decompose a unitary matrix into mixers of two modes and phases, as interferometer meshes realise it.

A rectangular mesh follows Clements et al. 2016 (Optica 3, 1460), a triangular one Reck et al. 1994 (Phys. Rev. Lett.
73, 58). Mirrored and transposed decompositions serve meshes that are built the other way round.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError

Real = NDArray[np.float64]
Complex = NDArray[np.complex128]

_NOT_UNITARY = 1e-9


@dataclass(frozen=True)
class Mixer:
    """A mix of two modes between two phases.

    The matrix on modes ``first`` and ``second`` is
    e^{-j·both} · diag(e^{-j·after}, 1) · [[sin θ, cos θ], [cos θ, -sin θ]] · diag(e^{-j·before}, 1).

    Attributes:
        first: First mode, which has the phases.
        second: Second mode.
        theta_rad: θ; π/2 keeps the modes apart, 0 swaps them.
        before_rad: Phase before the mix.
        after_rad: Phase behind the mix.
        both_rad: Phase of both modes.
    """

    first: int
    second: int
    theta_rad: float
    before_rad: float = 0.0
    after_rad: float = 0.0
    both_rad: float = 0.0

    def matrix(self) -> Complex:
        """Return the matrix on both modes, shape ``(2, 2)``."""
        sine, cosine = math.sin(self.theta_rad), math.cos(self.theta_rad)
        before = np.array([np.exp(-1j * self.before_rad), 1.0])
        after = np.array([[np.exp(-1j * self.after_rad)], [1.0]])
        matrix: Complex = after * np.array([[sine, cosine], [cosine, -sine]]) * before * np.exp(-1j * self.both_rad)
        return matrix

    def with_opposite_angle(self) -> Mixer:
        """Return a mixer with the same matrix and the opposite θ."""
        return replace(
            self,
            theta_rad=-self.theta_rad,
            before_rad=self.before_rad + math.pi,
            after_rad=self.after_rad + math.pi,
            both_rad=self.both_rad + math.pi,
        )


@dataclass(frozen=True, eq=False)
class UnitaryDecomposition:
    """A matrix as input phases, mixers in the order of the light, and output phases.

    U = diag(e^{-j·output}) · (last mixer) ⋯ (first mixer) · diag(e^{-j·input}).

    Attributes:
        input_rad: Shape ``(N,)``.
        mixers: The N (N - 1) / 2 mixers.
        output_rad: Shape ``(N,)``.
    """

    input_rad: Real
    mixers: tuple[Mixer, ...]
    output_rad: Real

    def matrix(self) -> Complex:
        """Return the matrix, shape ``(N, N)``."""
        matrix: Complex = np.diag(np.exp(-1j * self.input_rad))
        for mixer in self.mixers:
            pair = [mixer.first, mixer.second]
            matrix[pair] = mixer.matrix() @ matrix[pair]
        product: Complex = np.exp(-1j * self.output_rad)[:, None] * matrix
        return product

    def with_opposite_angle(self, number: int) -> UnitaryDecomposition:
        """Return a decomposition of the same matrix in which one mixer has the opposite θ."""
        mixers = list(self.mixers)
        mixers[number] = mixers[number].with_opposite_angle()
        return replace(self, mixers=tuple(mixers))

    def transposed(self) -> UnitaryDecomposition:
        """Return the decomposition of the transposed matrix, with the mixers in reverse order."""
        mixers = [
            replace(mixer, before_rad=mixer.after_rad, after_rad=mixer.before_rad) for mixer in reversed(self.mixers)
        ]
        return UnitaryDecomposition(self.output_rad, tuple(mixers), self.input_rad)

    def mirrored(self) -> UnitaryDecomposition:
        """Return the decomposition of the matrix with rows and columns in reverse order."""
        last = len(self.input_rad) - 1
        mixers = [replace(mixer, first=last - mixer.first, second=last - mixer.second) for mixer in self.mixers]
        return UnitaryDecomposition(self.input_rad[::-1], tuple(mixers), self.output_rad[::-1])


def rectangular(unitary: Complex) -> UnitaryDecomposition:
    """Decompose a unitary for a rectangular mesh, which is the shallowest (Clements 2016).

    Raises:
        ConfigError: The matrix is not unitary.
    """
    remainder = _copy(unitary)
    n = len(remainder)
    first: list[Mixer] = []
    last: list[Mixer] = []
    # Diagonals are nulled alternately from both sides.
    for diagonal in range(1, n):
        for step in range(diagonal):
            if diagonal % 2:
                first.append(_null_from_right(remainder, n - 1 - step, diagonal - 1 - step))
            else:
                last.append(_null_from_left(remainder, n - diagonal + step, step))
    phases = -np.angle(np.diag(remainder))
    moved = []
    for mixer in reversed(last):
        # T†·D = D'·T' moves all phases to the outputs.
        m = mixer.first
        moved.append(replace(mixer, before_rad=float(phases[m] - phases[m + 1])))
        phases[m] = phases[m + 1] - mixer.before_rad
    return UnitaryDecomposition(np.zeros(n), (*first, *moved), phases)


def triangular(unitary: Complex) -> UnitaryDecomposition:
    """Decompose a unitary for a triangular mesh (Reck 1994). The first light passes the mixer of modes 0 and 1.

    Raises:
        ConfigError: The matrix is not unitary.
    """
    remainder = _copy(unitary)
    n = len(remainder)
    mixers = [_null_from_right(remainder, row, mode) for row in range(n - 1, 0, -1) for mode in range(row)]
    return UnitaryDecomposition(np.zeros(n), tuple(mixers), -np.angle(np.diag(remainder)))


def variants(unitary: Complex) -> Iterator[UnitaryDecomposition]:
    """Yield the decompositions of a unitary: rectangular and triangular, as they are, mirrored and transposed.

    Raises:
        ConfigError: The matrix is not unitary.
    """
    for decompose in (rectangular, triangular):
        yield decompose(unitary)
        yield decompose(unitary[::-1, ::-1]).mirrored()
        yield decompose(unitary.T).transposed()
        yield decompose(unitary.T[::-1, ::-1]).mirrored().transposed()


def unitary_dilation(matrix: Complex) -> Complex:
    """Return a unitary whose first rows and columns are the matrix, divided by its largest singular value.

    A unitary matrix times any factor gives a unitary of the same size, another one a unitary of twice the size.
    """
    size = max(matrix.shape)
    square = np.zeros((size, size), dtype=np.complex128)
    square[: matrix.shape[0], : matrix.shape[1]] = matrix
    left, values, right = np.linalg.svd(square)
    values = values / values[0]
    if np.abs(values - 1.0).max() < _NOT_UNITARY:
        unitary: Complex = left @ right
        return unitary
    # Halmos dilation [[A, √(1 - A·A†)], [√(1 - A†·A), -A†]]; the outputs of the second half take the remaining light.
    remaining = np.sqrt(1.0 - np.minimum(values, 1.0) ** 2)
    blocks = [[left * values @ right, left * remaining @ left.conj().T],
              [(right.conj().T * remaining) @ right, -(right.conj().T * values) @ left.conj().T]]  # fmt: skip
    whole: Complex = np.block(blocks)
    return whole


def nearest_unitary(matrix: Complex) -> Complex:
    """Return the unitary nearest to a matrix, padded to a square; its polar factor."""
    size = max(matrix.shape)
    square = np.zeros((size, size), dtype=np.complex128)
    square[: matrix.shape[0], : matrix.shape[1]] = matrix
    left, _, right = np.linalg.svd(square)
    unitary: Complex = left @ right
    return unitary


def _copy(unitary: Complex) -> Complex:
    # The decomposition nulls the elements of the copy one by one.
    remainder = np.array(unitary, dtype=np.complex128)
    n = len(remainder)
    if remainder.shape != (n, n) or n < 1 or np.abs(remainder.conj().T @ remainder - np.eye(n)).max() > _NOT_UNITARY:
        raise ConfigError(
            "the matrix to program is not unitary", hint="Give a matrix U with U†U equal to the identity within 1e-9."
        )
    return remainder


def _null_from_right(remainder: Complex, row: int, mode: int) -> Mixer:
    """Multiply ``remainder`` from the right by an inverse mixer so that element (row, mode) vanishes.

    Return the mixer.
    """
    a, b = remainder[row, mode], remainder[row, mode + 1]
    mixer = Mixer(mode, mode + 1, math.atan2(abs(b), abs(a)), float(np.pi + np.angle(b) - np.angle(a)))
    pair = remainder[:, mode : mode + 2]
    pair[:] = pair @ mixer.matrix().conj().T
    return mixer


def _null_from_left(remainder: Complex, row: int, column: int) -> Mixer:
    """Multiply ``remainder`` from the left by a mixer so that element (row, column) vanishes; return the mixer."""
    a, b = remainder[row - 1, column], remainder[row, column]
    mixer = Mixer(row - 1, row, math.atan2(abs(a), abs(b)), float(np.angle(a) - np.angle(b)))
    pair = remainder[row - 1 : row + 1]
    pair[:] = mixer.matrix() @ pair
    return mixer
