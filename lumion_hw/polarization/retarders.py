"""Mathematics of retarders on the Poincaré sphere (docs/polarization.md).

States are unit Stokes vectors (S1, S2, S3). A retarder with retardance φ and eigen-axis n rotates them by φ about n. A
device that accepts only the state t receives the fraction (1 + s·t)/2 of light in state s.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

S1, S2, S3 = np.eye(3)
"""Linear at 0°, linear at 45°, and circular polarization."""


def turn_matrix(axis: NDArray[np.float64], angle_rad: ArrayLike) -> NDArray[np.float64]:
    """Return the matrices that rotate by ``angle_rad`` about ``axis`` (Rodrigues' formula), shape ``(..., 3, 3)``."""
    angle = np.asarray(angle_rad, dtype=np.float64)[..., None, None]
    cross = cross_matrix(axis)
    matrix: NDArray[np.float64] = np.eye(3) + np.sin(angle) * cross + (1.0 - np.cos(angle)) * (cross @ cross)
    return matrix


def cross_matrix(axis: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the matrix of ``v -> axis × v``."""
    x, y, z = axis
    return np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])


def accepted_share(
    state: NDArray[np.float64], accepted: NDArray[np.float64], dop: float = 1.0, crosstalk: float = 0.0
) -> NDArray[np.float64]:
    """Return the fraction of light that a device with one accepted state receives (docs/polarization.md, "The model").

    Args:
        state: Unit Stokes vectors of the light, shape ``(..., 3)``.
        accepted: Unit Stokes vector of the state that the device accepts.
        dop: Degree of polarization of the light.
        crosstalk: Accepted fraction of the orthogonal state, ε = 10^(−XT/10).
    """
    projection = dop * (state @ accepted)
    share: NDArray[np.float64] = ((1.0 - crosstalk) * (1.0 + projection) + crosstalk * (1.0 - projection)) / 2.0
    return share


@dataclass(frozen=True)
class RetarderChain:
    """Chain of N squeezers at 0°, 45°, 0°, 45° …, which rotate the Stokes vector about S1 and S2 in turn."""

    n_squeezers: int

    def __len__(self) -> int:
        return self.n_squeezers

    @cached_property
    def mixed(self) -> list[tuple[int, int]]:
        """Pair of Stokes components that each squeezer mixes."""
        return [(1, 2) if index % 2 == 0 else (2, 0) for index in range(self.n_squeezers)]

    def turn(self, retardances: NDArray[np.float64], state: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the states behind N squeezers, shape ``(..., 3)``.

        Args:
            retardances: Shape ``(..., N)``, rad.
            state: States in front of the squeezers.
        """
        return np.stack(np.broadcast_arrays(*self._propagate(np.moveaxis(retardances, -1, 0), state)), axis=-1)

    def turn_and_slopes(
        self, retardances: NDArray[np.float64], state: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return the rotation R of the chain, the light behind it, and its derivatives by the retardances.

        Args:
            retardances: Shape ``(N,)``, rad.
            state: State s in front of the chain, shape ``(3,)``.

        Returns:
            R ``(3, 3)``, R s ``(3,)``, dR s/dretardance ``(3, N)``.
        """
        # Plain numbers: tracking needs one setting at a time, for which numpy would take three times as long.
        columns, axes = [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)], []
        for (i, j), angle in zip(reversed(self.mixed), reversed(retardances.tolist()), strict=True):
            axes.append(columns[3 - i - j])  # seen behind the chain
            c, s, (a, b, d), (e, f, g) = math.cos(angle), math.sin(angle), columns[i], columns[j]
            columns[i] = (c * a + s * e, c * b + s * f, c * d + s * g)
            columns[j] = (c * e - s * a, c * f - s * b, c * g - s * d)
        turn = np.array(columns).T
        turned: NDArray[np.float64] = turn @ state
        x, y, z = turned.tolist()
        # A rotation about an axis changes the light by the cross product of axis and light.
        slopes = [(v * z - w * y, w * x - u * z, u * y - v * x) for u, v, w in reversed(axes)]
        return turn, turned, np.array(slopes).T

    def overlap(
        self, retardances: Iterable[NDArray[np.float64]], state: NDArray[np.float64], accepted: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the overlap q = t·R s of the light behind the chain with an accepted state t, shape ``(...)``.

        Args:
            retardances: One array for each squeezer, rad; all arrays are broadcast.
            state: State s in front of the chain, shape ``(..., 3)``.
            accepted: State t behind the chain, shape ``(..., 3)``.
        """
        light = self._propagate(retardances, state)
        q: NDArray[np.float64] = accepted[..., 0] * light[0] + accepted[..., 1] * light[1] + accepted[..., 2] * light[2]
        return q

    def _propagate(
        self, retardances: Iterable[NDArray[np.float64]], state: NDArray[np.float64]
    ) -> list[NDArray[np.float64]]:
        light: list[NDArray[np.float64]] = [state[..., 0], state[..., 1], state[..., 2]]
        for (i, j), angle in zip(self.mixed, retardances, strict=True):
            light[i], light[j] = _rotate(light[i], light[j], np.cos(angle), np.sin(angle))
        return light


class DrivenChain:
    """A chain of squeezers at several settings, for many polarization states at once.

    Squeezer k rotates by its drive phase x_k plus a constant o_k.

    Args:
        chain: Two squeezers or more.
        phases: Drive phases x of n settings of N squeezers, shape ``(n, N)``, rad.
    """

    def __init__(self, chain: RetarderChain, phases: NDArray[np.float64]) -> None:
        self._mixed = chain.mixed
        self._drives = list(zip(np.cos(phases.T)[:, :, None], np.sin(phases.T)[:, :, None], strict=True))
        # One matrix per setting in front of the first constant, so that all states need only one product.
        self._front = np.moveaxis(RetarderChain(2).turn(phases[:, None, :2], np.eye(3)), -1, 0).copy()

    def overlap_and_slopes(
        self, states: NDArray[np.float64], offsets: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], list[NDArray[np.float64]], NDArray[np.float64]]:
        """Return the overlap q = t·R s of the light behind the chain with the accepted state t, and its derivatives.

        Args:
            states: Stokes components of s in front of the chain and t behind it, for K pairs, shape ``(6, K)``.
            offsets: Constants o, shape ``(N, K)``; the first and the last are ignored.

        Returns:
            q ``(n, K)``, N − 2 arrays dq/do ``(n, K)``, and dq/ds and dq/dt ``(6, n, K)``.
        """
        mixed, drives, last = self._mixed, self._drives, len(self._mixed) - 1
        constants = list(zip(np.cos(offsets), np.sin(offsets), strict=True))
        light = list(self._front @ states[:3])
        partial = []
        for k in range(1, last):
            i, j = mixed[k]
            light[i], light[j] = _rotate(light[i], light[j], *constants[k])
            partial.append((light[i], light[j]))
            i, j = mixed[k + 1]
            light[i], light[j] = _rotate(light[i], light[j], *drives[k + 1])
        t = states[3:]
        q: NDArray[np.float64] = t[0] * light[0] + t[1] * light[1] + t[2] * light[2]
        # Backwards from t, so that one pass gives the derivatives by all constants.
        back, slopes = list(t), []
        for k in range(last, -1, -1):
            i, j = mixed[k]
            if 0 < k < last:
                first, second = partial[k - 1]
                slopes.append(back[j] * first - back[i] * second)  # t·(axis × light)
                back[j], back[i] = _rotate(back[j], back[i], *constants[k])
            back[j], back[i] = _rotate(back[j], back[i], *drives[k])
        return q, slopes[::-1], np.array([*back, *light])


def _rotate(
    a: NDArray[np.float64], b: NDArray[np.float64], c: NDArray[np.float64], s: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return two Stokes components rotated by an angle with cosine ``c`` and sine ``s``."""
    return c * a - s * b, s * a + c * b
