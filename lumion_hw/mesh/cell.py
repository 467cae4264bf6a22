"""The programmable unit cell: two couplers and two heated arms, with loss, imbalance, phases and dispersion.

Convention: fields vary as e^{+jωt}; a phase φ > 0 is a delay and multiplies by e^{-jφ}. Arm u (upper) lies on rail L,
arm l (lower) on rail R::

    T = g · C(η2) · diag(e^{-jφu}, e^{-jφl}) · C(η1)        C(η) = [[√(1-η), -j√η], [-j√η, √(1-η)]]

T maps the waves at (A, L), (A, R) to those at (B, L), (B, R); the way back is its transpose (reciprocity). Unheated
and ideal (φu = φl, η = ½) the cell is in the cross state; φu - φl = π is the bar state.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import LimitError

BASIC_UNIT_DELAY_S = 11.25e-12
"""Group delay of one PUC of the SmartLight-class chip (D. Sánchez-Jácome, PhD thesis, UPV 2025)."""


@dataclass(frozen=True)
class UnitCells:
    """Parameters of all unit cells and joints of one mesh at a reference frequency.

    Attributes:
        loss_db: Shape ``(E,)``; insertion loss per PUC, positive.
        eta_in: Shape ``(E,)``; power splitting of the coupler at end A at the reference frequency.
        eta_out: Shape ``(E,)``; power splitting of the coupler at end B at the reference frequency.
        phase_upper: Shape ``(E,)``; phase of arm u in rad, passive part included.
        phase_lower: Shape ``(E,)``; phase of arm l in rad.
        joint_phase: Shape ``(J,)``; phase of each joint in rad, in the order of ``HexMesh.joints``.
        reference_hz: Frequency at which the values above hold.
        delay_s: Group delay of a PUC.
        eta_slope_per_hz: Change of both splittings per Hz.
        differential_slope_per_hz: Change of φu - φl per Hz, in rad.
    """

    loss_db: NDArray[np.float64]
    eta_in: NDArray[np.float64]
    eta_out: NDArray[np.float64]
    phase_upper: NDArray[np.float64]
    phase_lower: NDArray[np.float64]
    joint_phase: NDArray[np.float64]
    reference_hz: float = 193.4145e12
    delay_s: float = BASIC_UNIT_DELAY_S
    eta_slope_per_hz: float = 0.0
    differential_slope_per_hz: float = 0.0

    @classmethod
    def ideal(cls, n_pucs: int, n_joints: int, theta: NDArray[np.float64], loss_db: float = 0.0) -> UnitCells:
        """Return balanced cells with half phase difference ``theta`` (0 cross, π/2 bar) and no passive phases.

        Args:
            n_pucs: Number of PUCs.
            n_joints: Number of joints.
            theta: Shape ``(n_pucs,)``; (φu - φl) / 2 in rad.
            loss_db: Loss of every PUC.
        """
        half = np.full(n_pucs, 0.5)
        return cls(np.full(n_pucs, loss_db), half, half, theta, -theta, np.zeros(n_joints))

    def transfer(self, frequency_hz: float) -> NDArray[np.complex128]:
        """Return T of every PUC, shape ``(E, 2, 2)``.

        Raises:
            LimitError: A splitting leaves 0 … 1 at this frequency.
        """
        detuning_hz = frequency_hz - self.reference_hz
        a_in = _coupler_angle(self.eta_in + self.eta_slope_per_hz * detuning_hz)
        a_out = _coupler_angle(self.eta_out + self.eta_slope_per_hz * detuning_hz)
        # The delay is reckoned from the detuning: 2πfτ itself is 1.4e4 rad and would cost precision (mesh.md b.1).
        half = 0.5 * self.differential_slope_per_hz * detuning_hz
        gain = 10.0 ** (-self.loss_db / 20.0) * np.exp(-2j * np.pi * detuning_hz * self.delay_s)
        upper = gain * np.exp(-1j * (self.phase_upper + half))
        lower = gain * np.exp(-1j * (self.phase_lower - half))
        through_in, cross_in, through_out, cross_out = np.cos(a_in), np.sin(a_in), np.cos(a_out), np.sin(a_out)
        transfer = np.empty((len(self.loss_db), 2, 2), dtype=np.complex128)
        transfer[:, 0, 0] = through_out * through_in * upper - cross_out * cross_in * lower
        transfer[:, 0, 1] = -1j * (through_out * cross_in * upper + cross_out * through_in * lower)
        transfer[:, 1, 0] = -1j * (cross_out * through_in * upper + through_out * cross_in * lower)
        transfer[:, 1, 1] = -cross_out * cross_in * upper + through_out * through_in * lower
        return transfer


def _coupler_angle(eta: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return asin √η. Raises ``LimitError`` where η is no splitting."""
    outside = ~((eta >= 0.0) & (eta <= 1.0))
    if outside.any():
        asked = float(eta[outside].flat[0])
        raise LimitError("coupler splitting", asked=asked, limit=float(asked > 0.0), unit="of the power")
    angle: NDArray[np.float64] = np.arcsin(np.sqrt(eta))
    return angle


@dataclass(frozen=True)
class CouplingFloors:
    """What imperfect couplers leave over: the least power in the output that should be dark.

    Attributes:
        bar_leak: Power left in the cross output in the bar state, sin²(a1 - a2).
        cross_leak: Power left in the bar output in the cross state, cos²(a1 + a2).
    """

    bar_leak: NDArray[np.float64]
    cross_leak: NDArray[np.float64]


def coupling_floors(eta_in: NDArray[np.float64], eta_out: NDArray[np.float64]) -> CouplingFloors:
    """Return the floors of PUCs with the given splittings, any shape (mesh.md b.2, exact)."""
    a_in, a_out = _coupler_angle(eta_in), _coupler_angle(eta_out)
    return CouplingFloors(np.sin(a_in - a_out) ** 2, np.cos(a_in + a_out) ** 2)
