"""Retarders as mathematics: squeezers and chains of them, on the Poincaré sphere.

States are unit Stokes vectors (S1, S2, S3); a retarder of retardance φ and eigen-axis n turns them by φ about n
(docs/polarization.md). Behind a chain of retarders a device that takes the state t alone gets the share (1 + s·t)/2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

S1, S2, S3 = np.eye(3)
"""Linear at 0°, linear at 45°, circular."""


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
    """Squeezers at 0°, 45°, 0°, 45° …, one behind the other: turns about S1 and S2, each of which mixes two components.

    Attributes:
        n_squeezers: N.
    """

    n_squeezers: int

    def __len__(self) -> int:
        return self.n_squeezers

    @cached_property
    def mixed(self) -> list[tuple[int, int]]:
        """Components that each squeezer mixes: turned by a quarter the first of them becomes the second."""
        return [(1, 2) if index % 2 == 0 else (2, 0) for index in range(self.n_squeezers)]

    def turn(self, retardances: NDArray[np.float64], state: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return states behind the chain, shape ``(..., 3)``, of retardances ``(..., N)`` and states ``(..., 3)``."""
        return np.stack(np.broadcast_arrays(*self._passed(np.moveaxis(retardances, -1, 0), state)[0]), axis=-1)

    def turn_and_slopes(
        self, retardances: NDArray[np.float64], state: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return the turn R of the whole chain, the light behind it, and its derivatives by the retardances.

        Args:
            retardances: One setting, shape ``(N,)``, rad.
            state: s in front of the chain, shape ``(3,)``.

        Returns:
            R ``(3, 3)``, R s ``(3,)``, dR s/dretardance ``(3, N)``.
        """
        # Plain numbers: tracking asks for one setting at a time, and calls of numpy would take three times as long.
        columns, axes = [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)], []
        for (i, j), angle in zip(reversed(self.mixed), reversed(retardances.tolist()), strict=True):
            axes.append(columns[3 - i - j])  # as seen behind the chain
            c, s, (a, b, d), (e, f, g) = math.cos(angle), math.sin(angle), columns[i], columns[j]
            columns[i] = (c * a + s * e, c * b + s * f, c * d + s * g)
            columns[j] = (c * e - s * a, c * f - s * b, c * g - s * d)
        turn = np.array(columns).T
        turned: NDArray[np.float64] = turn @ state
        x, y, z = turned.tolist()
        slopes = [(v * z - w * y, w * x - u * z, u * y - v * x) for u, v, w in reversed(axes)]
        return turn, turned, np.array(slopes).T

    def overlap(
        self, retardances: Iterable[NDArray[np.float64]], state: NDArray[np.float64], taken: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return q = t·R s; arguments are those of :meth:`overlap_and_slopes`."""
        light, _ = self._passed(retardances, state)
        q: NDArray[np.float64] = taken[..., 0] * light[0] + taken[..., 1] * light[1] + taken[..., 2] * light[2]
        return q

    def overlap_and_slopes(
        self, retardances: Iterable[NDArray[np.float64]], state: NDArray[np.float64], taken: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], list[NDArray[np.float64]], list[NDArray[np.float64]], list[NDArray[np.float64]]]:
        """Return q = t·R s and its derivatives, component by component.

        Args:
            retardances: One array for each squeezer, rad; all are broadcast against each other.
            state: s in front of the chain, shape ``(..., 3)``, its leading axes broadcast against them.
            taken: t behind the chain, likewise.

        Returns:
            q ``(...)``, N arrays dq/dretardance, the three components of R s (dq/dt) and of Rᵀ t (dq/ds).
        """
        light, passed = self._passed(retardances, state)
        back = [taken[..., 0], taken[..., 1], taken[..., 2]]
        q = back[0] * light[0] + back[1] * light[1] + back[2] * light[2]
        slopes = []
        for (i, j), (c, s, first, second) in zip(reversed(self.mixed), reversed(passed), strict=True):
            a, b = back[i], back[j]
            slopes.append(b * first - a * second)  # t·(axis × light)
            back[i], back[j] = c * a + s * b, c * b - s * a
        return q, slopes[::-1], light, back

    def _passed(
        self, retardances: Iterable[NDArray[np.float64]], state: NDArray[np.float64]
    ) -> tuple[list[NDArray[np.float64]], list[tuple[NDArray[np.float64], ...]]]:
        """Return the components behind the chain, and of each squeezer cosine, sine, and what it made of those two."""
        light: list[NDArray[np.float64]] = [state[..., 0], state[..., 1], state[..., 2]]
        passed: list[tuple[NDArray[np.float64], ...]] = []
        for (i, j), angle in zip(self.mixed, retardances, strict=True):
            a, b, c, s = light[i], light[j], np.cos(angle), np.sin(angle)
            light[i], light[j] = c * a - s * b, s * a + c * b
            passed.append((c, s, light[i], light[j]))
        return light, passed
