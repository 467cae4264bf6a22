"""Jones matrices of polarization controllers (docs/polarization.md).

A retarder of retardance φ and eigen-axis n on the Poincaré sphere is exp(-i φ n·σ/2), with the Pauli matrices σ in the
order S1 (diagonal), S2, S3. Squeezers have fixed axes and variable retardance; plates have fixed retardance and rotate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Jones = NDArray[np.complex128]
"""Jones matrix, shape ``(2, 2)``: a unitary matrix times the square root of the power transmission."""

PAULI = np.array([[[1, 0], [0, -1]], [[0, 1], [1, 0]], [[0, -1j], [1j, 0]]], dtype=np.complex128)
"""Pauli matrices of S1, S2, S3, shape ``(3, 2, 2)``."""
QUARTER, HALF = math.pi / 2.0, math.pi
"""Retardance of a quarter-wave and of a half-wave plate."""
_SETTLED_TAUS = 25.0  # in time constants: the remaining change is below 1e-10 of a turn


def stokes_of(field: NDArray[np.complex128]) -> NDArray[np.float64]:
    """Return the Stokes parameters S1, S2, S3 of a Jones vector, shape ``(3,)``; their norm is the power."""
    stokes: NDArray[np.float64] = np.real(np.einsum("i,kij,j->k", field.conj(), PAULI, field))
    return stokes


def retarder(vector: NDArray[np.float64]) -> Jones:
    """Return the Jones matrix exp(-i v·σ/2): a rotation of the Poincaré sphere about the vector v by |v|."""
    angle = float(np.linalg.norm(vector))
    if angle == 0.0:
        return np.eye(2, dtype=np.complex128)
    axis = np.tensordot(vector / angle, PAULI, axes=1)
    matrix: Jones = np.cos(angle / 2) * np.eye(2) - 1j * np.sin(angle / 2) * axis
    return matrix


def rotation_of_stokes(unitary: Jones) -> NDArray[np.float64]:
    """Return the rotation of Stokes vectors by a unitary Jones matrix U, shape ``(3, 3)``: ½ tr(σi U σj U†)."""
    rotation: NDArray[np.float64] = 0.5 * np.real(
        np.einsum("iab,bc,jcd,da->ij", PAULI, unitary, PAULI, unitary.conj().T)
    )
    return rotation


def plates(angles_rad: Sequence[float], retardances_rad: Sequence[float], activation_loss_db: float = 0.0) -> Jones:
    """Return the Jones matrix of wave plates in series, in the order of the light.

    Args:
        angles_rad: Mechanical angle of each fast axis.
        retardances_rad: Retardance of each plate.
        activation_loss_db: Largest change of the loss with the plate angles.
    """
    field = np.eye(2, dtype=np.complex128)
    for angle, retardance in zip(angles_rad, retardances_rad, strict=True):
        # Angles on the Poincaré sphere are twice those in space.
        axis = np.array([math.cos(2.0 * angle), math.sin(2.0 * angle), 0.0])
        field = retarder(retardance * axis) @ field
    # Choice of this emulator: only the largest change of the loss is published, not its dependence on the angles.
    loss_db = activation_loss_db * float(np.mean(np.sin(np.asarray(angles_rad)) ** 2))
    return np.asarray(field * 10.0 ** (-loss_db / 20.0), dtype=np.complex128)


@dataclass(frozen=True)
class SqueezerProfile:
    """Imperfections of fibre squeezers (assumed).

    Attributes:
        hysteresis_rad: Largest lag of a retardance behind the drive.
        settle_tau_s: Time constant of the retardance.
        activation_loss_db: Loss when all squeezers are fully driven; proportional to the mean drive.
        full_drive_mv: Drive at which a squeezer is fully driven.
    """

    hysteresis_rad: float = 0.01
    settle_tau_s: float = 0.2e-3
    activation_loss_db: float = 0.02
    full_drive_mv: float = 5000.0


class Squeezers:
    """Four fibre squeezers at 0°, 45°, 0°, 45°, which rotate the polarization about S1, S2, S1, S2.

    Args:
        period_mv: Drive of each squeezer for a retardance of 2π.
        offset_rad: Retardance of each squeezer without drive.
    """

    def __init__(
        self,
        period_mv: NDArray[np.float64],
        offset_rad: NDArray[np.float64],
        now_s: Callable[[], float],
        profile: SqueezerProfile | None = None,
    ) -> None:
        self._profile = profile or SqueezerProfile()
        self._period_mv, self._offset_rad = period_mv, offset_rad
        self._now = now_s
        self._axes = np.eye(3)[[index % 2 for index in range(len(period_mv))]]
        self._drive_mv = np.zeros(len(period_mv))
        self._target_rad = self._from_rad = np.array(offset_rad, dtype=np.float64)
        self._changed_s = -math.inf
        self._settled_jones: Jones | None = None

    def drive(self, channel: int, drive_mv: float) -> None:
        """Set the drive of a squeezer in mV; channels count from 1."""
        now_s, index = self._now(), channel - 1
        self._settled_jones = None
        self._from_rad = self._retardance_rad(now_s)
        self._changed_s = now_s
        self._drive_mv[index] = drive_mv
        target_rad = self._offset_rad[index] + 2 * np.pi * drive_mv / self._period_mv[index]
        # Backlash, as in a gear: the retardance moves only after the drive has taken up the slack.
        play = self._profile.hysteresis_rad
        self._target_rad = self._target_rad.copy()
        self._target_rad[index] = min(max(self._target_rad[index], target_rad - play), target_rad + play)

    def _is_settled(self, at_s: float) -> bool:
        return at_s - self._changed_s > _SETTLED_TAUS * self._profile.settle_tau_s

    def _retardance_rad(self, at_s: float) -> NDArray[np.float64]:
        if self._is_settled(at_s):
            return self._target_rad
        remaining = math.exp((self._changed_s - at_s) / self._profile.settle_tau_s)
        retardance: NDArray[np.float64] = self._target_rad + (self._from_rad - self._target_rad) * remaining
        return retardance

    def jones(self) -> Jones:
        """Return the present Jones matrix of all squeezers."""
        if self._settled_jones is not None:
            return self._settled_jones
        now_s = self._now()
        field = np.eye(2, dtype=np.complex128)
        for axis, retardance in zip(self._axes, self._retardance_rad(now_s), strict=True):
            field = retarder(retardance * axis) @ field
        used = float(np.mean(np.abs(self._drive_mv))) / self._profile.full_drive_mv
        jones: Jones = field * 10.0 ** (-self._profile.activation_loss_db * used / 20.0)
        # Stored, since most readings find the squeezers settled.
        if self._is_settled(now_s):
            self._settled_jones = jones
        return jones
