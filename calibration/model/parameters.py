"""The parameters of a mesh as its ports see it: all that a calibration can find out, with a gauge where it cannot."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lumion_hw.mesh.cell import BASIC_UNIT_DELAY_S

Real = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class MeshParameters:
    """One point in the space of meshes; E PUCs, J joints, S sources, M monitors.

    Phase of an arm: ``ρ2·I² + ρ4·I⁴ + ρ6·I⁶`` of its own heater, the passive phase on the upper arm, and what the heat
    of all other heaters adds. Heat of a heater is ``heater_ohm·I²`` (nominal: only crosstalk needs it, and only its
    product with the kernel counts), times what its law bends up (``own phase / (ρ2·I²)``), times ``heat_factor``.

    Attributes:
        passive_phase_rad: Shape ``(E,)``; of the upper arm over the lower.
        heater_law: Shape ``(2E, 3)``; ρ2, ρ4, ρ6 in rad/mA², rad/mA⁴, rad/mA⁶; zeros for a heater without effect.
        loss_db: Shape ``(E,)``.
        coupler_common_rad: Shape ``(E,)``; mean of the two coupler angles asin√η, minus π/4.
        coupler_difference_rad: Shape ``(E,)``; angle at end A minus that at end B.
        joint_phase_rad: Shape ``(J,)``; only loops of them are visible (calibration.md 1.2).
        source_db: Shape ``(S,)``; power entering the mesh at each source's port, dBm.
        monitor_ma_per_mw: Shape ``(M,)``; photocurrent per power leaving the mesh at each monitor's port.
        crosstalk_rad_per_mw: Shape ``(3,)``; amplitude, decay length in mm, and floor of the kernel over distance:
            ``κ(d) = amplitude·exp(-d/length) + floor``, in rad/mW, mm and rad/mW, for arms and joints.
        heat_factor: Shape ``(2E,)`` or one number; heat of each heater over that of the nominal resistance.
        second_db: Shape ``(S2,)``; of each source that lights a second port, the power entering there over that at the
            first.
        source_detuning_hz: Shape ``(S,)`` or one number; frequency of each source's light above that it is said to
            have.
        delay_s: Group delay of a PUC.
        differential_slope_rad_per_hz: Change of every φu - φl per Hz.
        coupler_slope_rad_per_hz: Change of every coupler angle per Hz.
    """

    passive_phase_rad: Real
    heater_law: Real
    loss_db: Real
    coupler_common_rad: Real
    coupler_difference_rad: Real
    joint_phase_rad: Real
    source_db: Real
    monitor_ma_per_mw: Real
    crosstalk_rad_per_mw: Real
    heat_factor: Real | float = 1.0
    second_db: Real = field(default_factory=lambda: np.zeros(0))
    source_detuning_hz: Real | float = 0.0
    delay_s: float = BASIC_UNIT_DELAY_S
    differential_slope_rad_per_hz: float = 0.0
    coupler_slope_rad_per_hz: float = 0.0
