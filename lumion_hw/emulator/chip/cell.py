"""Unit cell of the emulated chip: two couplers, and two arms that differ in phase and loss.

Fields vary as e^{+jωt}, so a phase delay φ multiplies them by e^{-jφ}. A coupler of power splitting η multiplies the
straight field by √(1-η) and the crossing field by -j√η. The transfer matrix from end B to end A is the transpose of
that from A to B (reciprocity).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Real = NDArray[np.float64]
Complex = NDArray[np.complex128]


@dataclass(frozen=True, eq=False)
class ChipCells:
    """Parameters of a chip's E PUCs and J joints (waveguides between PUCs) at one or n frequencies.

    Attributes:
        eta_in: Shape ``(E,)`` or ``(n, E)``; power splitting of the coupler at end A.
        eta_out: Shape ``(E,)`` or ``(n, E)``; power splitting of the coupler at end B.
        loss_upper_db: Shape ``(E,)``; loss from end to end through the upper arm.
        loss_lower_db: Shape ``(E,)``; loss from end to end through the lower arm.
        phase_upper: Shape ``(E,)`` or ``(n, E)``; phase of the upper arm in rad at zero detuning.
        phase_lower: Shape ``(E,)`` or ``(n, E)``; phase of the lower arm in rad at zero detuning.
        joint_phase: Shape ``(J,)`` or ``(n, J)``; phase of each joint in rad.
        detuning_hz: Shape ``(1,)`` or ``(n, 1)``; frequency minus the reference frequency.
        delay_s: Group delay of a PUC.
        differential_slope_per_hz: Change of the phase difference, upper minus lower arm, per Hz.
    """

    eta_in: Real
    eta_out: Real
    loss_upper_db: Real
    loss_lower_db: Real
    phase_upper: Real
    phase_lower: Real
    joint_phase: Real
    detuning_hz: Real
    delay_s: float
    differential_slope_per_hz: float

    def transfer(self) -> Complex:
        """Return the transfer matrices of the PUCs from end A to end B, shape ``(..., E, 2, 2)``."""
        half_rad = 0.5 * self.differential_slope_per_hz * self.detuning_hz
        common_rad = 2.0 * np.pi * self.delay_s * self.detuning_hz
        upper = 10.0 ** (-self.loss_upper_db / 20.0) * np.exp(-1j * (self.phase_upper + common_rad + half_rad))
        lower = 10.0 ** (-self.loss_lower_db / 20.0) * np.exp(-1j * (self.phase_lower + common_rad - half_rad))
        straight_in, across_in = _coupler(self.eta_in)
        straight_out, across_out = _coupler(self.eta_out)
        transfer = np.empty((*np.broadcast_shapes(upper.shape, straight_in.shape), 2, 2), dtype=np.complex128)
        straight_upper, across_upper = straight_out * upper, across_out * upper
        straight_lower, across_lower = straight_out * lower, across_out * lower
        transfer[..., 0, 0] = straight_upper * straight_in + across_lower * across_in
        transfer[..., 0, 1] = straight_upper * across_in + across_lower * straight_in
        transfer[..., 1, 0] = across_upper * straight_in + straight_lower * across_in
        transfer[..., 1, 1] = across_upper * across_in + straight_lower * straight_in
        return transfer


def _coupler(eta: Real) -> tuple[Real, Complex]:
    """Return the straight and the crossing amplitude for a power splitting."""
    share = np.clip(eta, 0.0, 1.0)
    return np.sqrt(1.0 - share), -1j * np.sqrt(share)
