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


def accepted_share(
    state: NDArray[np.float64], accepted: NDArray[np.float64], dop: float = 1.0, crosstalk: float = 0.0
) -> NDArray[np.float64]:
    """Return the share of the light that a device takes which takes one state (docs/polarization.md, "The model").

    Args:
        state: Unit Stokes vectors of the light, shape ``(..., 3)``.
        accepted: Unit Stokes vector of the state that the device accepts.
        dop: Degree of polarization of the light.
        crosstalk: Share taken of the orthogonal state, ε = 10^(−XT/10).
    """
    along = dop * (state @ accepted)
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
        return np.stack(np.broadcast_arrays(*self._passed(np.moveaxis(retardances, -1, 0), state)), axis=-1)

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
        self, retardances: Iterable[NDArray[np.float64]], state: NDArray[np.float64], accepted: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return q = t·R s, shape ``(...)``.

        Args:
            retardances: One array for each squeezer, rad; all are broadcast against each other.
            state: s in front of the chain, shape ``(..., 3)``, its leading axes broadcast against them.
            accepted: t behind the chain, likewise.
        """
        light = self._passed(retardances, state)
        q: NDArray[np.float64] = accepted[..., 0] * light[0] + accepted[..., 1] * light[1] + accepted[..., 2] * light[2]
        return q

    def _passed(
        self, retardances: Iterable[NDArray[np.float64]], state: NDArray[np.float64]
    ) -> list[NDArray[np.float64]]:
        """Return the components behind the chain."""
        light: list[NDArray[np.float64]] = [state[..., 0], state[..., 1], state[..., 2]]
        for (i, j), angle in zip(self.mixed, retardances, strict=True):
            light[i], light[j] = _turned(light[i], light[j], np.cos(angle), np.sin(angle))
        return light


class DrivenChain:
    """A chain at several settings, in many lights and with many constants at once.

    The squeezers turn by x_k + o_k. What the drive phases x do is the same for all lights and constants, and computed
    once: the turns by the constants are beside the drives' own, about the same axis.

    Args:
        chain: Two squeezers or more.
        phases: x, shape ``(n, N)``, rad.
    """

    def __init__(self, chain: RetarderChain, phases: NDArray[np.float64]) -> None:
        self._mixed = chain.mixed
        self._drives = list(zip(np.cos(phases.T)[:, :, None], np.sin(phases.T)[:, :, None], strict=True))
        # In front of the first constant one matrix per setting, rows first: it takes all lights in one product.
        self._front = np.moveaxis(RetarderChain(2).turn(phases[:, None, :2], np.eye(3)), -1, 0).copy()

    def overlap_and_slopes(
        self, states: NDArray[np.float64], offsets: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], list[NDArray[np.float64]], NDArray[np.float64]]:
        """Return q = t·R s and its derivatives.

        Args:
            states: s in front of the chain and t behind it, shape ``(6, K)``.
            offsets: o, shape ``(N, K)``; the first and the last, which only turn s and t, are taken to be 0.

        Returns:
            q ``(n, K)``, N − 2 arrays dq/do ``(n, K)``, and dq/ds and dq/dt ``(6, n, K)``.
        """
        mixed, drives, last = self._mixed, self._drives, len(self._mixed) - 1
        constants = list(zip(np.cos(offsets), np.sin(offsets), strict=True))
        light = list(self._front @ states[:3])
        passed = []
        for k in range(1, last):
            i, j = mixed[k]
            light[i], light[j] = _turned(light[i], light[j], *constants[k])
            passed.append((light[i], light[j]))
            i, j = mixed[k + 1]
            light[i], light[j] = _turned(light[i], light[j], *drives[k + 1])
        t = states[3:]
        q: NDArray[np.float64] = t[0] * light[0] + t[1] * light[1] + t[2] * light[2]
        back, slopes = list(t), []
        for k in range(last, -1, -1):
            i, j = mixed[k]
            if 0 < k < last:
                first, second = passed[k - 1]
                slopes.append(back[j] * first - back[i] * second)  # t·(axis × light)
                back[j], back[i] = _turned(back[j], back[i], *constants[k])
            back[j], back[i] = _turned(back[j], back[i], *drives[k])
        return q, slopes[::-1], np.array([*back, *light])


def _turned(
    a: NDArray[np.float64], b: NDArray[np.float64], c: NDArray[np.float64], s: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return two components turned by an angle of cosine c and sine s; back by it, if given the other way round."""
    return c * a - s * b, s * a + c * b
