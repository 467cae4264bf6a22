"""Retarders as mathematics: squeezers and chains of them, on the Poincaré sphere.

States are unit Stokes vectors (S1, S2, S3); a retarder of retardance φ and eigen-axis n turns them by φ about n
(docs/polarization.md). Behind a chain of retarders a device that takes the state t alone gets the share (1 + s·t)/2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

S1, S2, S3 = np.eye(3)
"""Linear at 0°, linear at 45°, circular."""


def squeezer_axes(n_squeezers: int) -> NDArray[np.float64]:
    """Return the axes of squeezers at 0°, 45°, 0°, 45° …, shape ``(n, 3)``: S1 and S2 in turn."""
    return np.stack([(S1, S2)[index % 2] for index in range(n_squeezers)])


def turn_matrix(axis: NDArray[np.float64], angle_rad: ArrayLike) -> NDArray[np.float64]:
    """Return the rotations by ``angle_rad`` about ``axis`` (Rodrigues), shape ``(..., 3, 3)``.

    Args:
        axis: Unit vector, shape ``(3,)``.
        angle_rad: Angles of any shape.
    """
    angle = np.asarray(angle_rad, dtype=np.float64)[..., None, None]
    cross = cross_matrix(axis)
    matrix: NDArray[np.float64] = np.eye(3) + np.sin(angle) * cross + (1.0 - np.cos(angle)) * (cross @ cross)
    return matrix


def turned_by(
    axis: NDArray[np.float64], sine: NDArray[np.float64], cosine: NDArray[np.float64], state: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return states ``(..., 3)`` turned about ``axis`` by angles given by sine and cosine, each ``(...)``."""
    cross = cross_matrix(axis).T
    once = state @ cross
    turned: NDArray[np.float64] = state + sine[..., None] * once + (1.0 - cosine)[..., None] * (once @ cross)
    return turned


def cross_matrix(axis: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the matrix of ``v -> axis × v``: the derivative of a turn about ``axis`` by its angle."""
    x, y, z = axis
    return np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])


def taken_share(
    state: NDArray[np.float64], taken: NDArray[np.float64], dop: float = 1.0, crosstalk: float = 0.0
) -> NDArray[np.float64]:
    """Return the share of the light that a device takes which takes one state (docs/polarization.md, "The model").

    Args:
        state: Unit Stokes vectors of the light, shape ``(..., 3)``.
        taken: Unit Stokes vector that is taken.
        dop: Degree of polarization of the light.
        crosstalk: Share taken of the orthogonal state, ε = 10^(−XT/10).
    """
    along = dop * (state @ taken)
    share: NDArray[np.float64] = ((1.0 - crosstalk) * (1.0 + along) + crosstalk * (1.0 - along)) / 2.0
    return share


@dataclass(frozen=True)
class RetarderChain:
    """Retarders of fixed axes and variable retardance, one behind the other: squeezers.

    Attributes:
        axes: Eigen-axes in the order of the light, shape ``(N, 3)``, unit vectors.
    """

    axes: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.axes)

    def turn(self, retardances: NDArray[np.float64], state: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return states behind the chain, shape ``(..., 3)``, of retardances ``(..., N)`` and states ``(..., 3)``."""
        for index, axis in enumerate(self.axes):
            state = turned_by(axis, np.sin(retardances[..., index]), np.cos(retardances[..., index]), state)
        return state

    @cached_property
    def _crosses(self) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        crosses = [cross_matrix(axis) for axis in self.axes]
        return [(cross, cross @ cross) for cross in crosses]

    def turn_and_axes(self, retardances: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the turn of the whole chain, shape ``(3, 3)``, and its axes as seen behind it, shape ``(3, N)``.

        A little more retardance of squeezer k turns the light behind the chain about column k.

        Args:
            retardances: One setting, shape ``(N,)``, rad.
        """
        behind, seen = np.eye(3), np.empty((3, len(self.axes)))
        angles = retardances.tolist()
        for index in reversed(range(len(self.axes))):
            seen[:, index] = behind @ self.axes[index]
            once, twice = self._crosses[index]
            behind = (
                behind + math.sin(angles[index]) * (behind @ once) + (1.0 - math.cos(angles[index])) * (behind @ twice)
            )
        return behind, seen

    def overlap(
        self, retardances: NDArray[np.float64], state: NDArray[np.float64], taken: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return q = t·R s and its derivatives.

        Args:
            retardances: Shape ``(..., N)``, rad.
            state: s in front of the chain, shape ``(..., 3)``, broadcast against the leading axes.
            taken: t behind the chain, likewise.

        Returns:
            q ``(...)``, dq/dretardance ``(..., N)``, R s ``(..., 3)`` (dq/dt) and Rᵀ t ``(..., 3)`` (dq/ds).
        """
        # Components first: a turn is then one product with all states, and a sum over components adds whole planes.
        shape = np.broadcast_shapes(retardances.shape[:-1], state.shape[:-1], taken.shape[:-1])
        crosses = [cross_matrix(axis) for axis in self.axes]
        drives = np.moveaxis(retardances, -1, 0)
        sines, rest = np.sin(drives), 1.0 - np.cos(drives)
        present = _planes(state, shape)
        across = []
        for cross, sine, versine in zip(crosses, sines, rest, strict=True):
            once = _product(cross, present)
            present = present + sine * once + versine * _product(cross, once)
            across.append(_product(cross, present))
        backward = _planes(taken, shape)
        overlap: NDArray[np.float64] = np.asarray((backward * present).sum(axis=0))
        slopes = np.empty((*shape, len(self.axes)))
        for index in reversed(range(len(self.axes))):
            slopes[..., index] = (backward * across[index]).sum(axis=0)
            once = _product(crosses[index], backward)
            backward = backward - sines[index] * once + rest[index] * _product(crosses[index], once)
        return overlap, slopes, np.moveaxis(present, 0, -1), np.moveaxis(backward, 0, -1)


def _planes(vectors: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return vectors ``(..., 3)`` as planes of their components, shape ``(3, *shape)``."""
    return np.ascontiguousarray(np.moveaxis(np.broadcast_to(vectors, (*shape, 3)), -1, 0))


def _product(matrix: NDArray[np.float64], planes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a matrix ``(3, 3)`` times vectors given as planes, ``(3, ...)``."""
    product: NDArray[np.float64] = (matrix @ planes.reshape(3, -1)).reshape(planes.shape)
    return product
