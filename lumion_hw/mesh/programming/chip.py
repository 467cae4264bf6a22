"""Parameters of one chip: phases and losses without heat, and phase of each heater as a function of current."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.mesh.record.calibration_record import CalibrationRecord, CouplerEntry, CrosstalkKernel, Dispersion
from lumion_hw.mesh.waves.cell import BASIC_UNIT_DELAY_S, UnitCells
from lumion_hw.mesh.waves.crosstalk import BUL_MM

Real = NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class ChipParameters:
    """Physics of one chip with E PUCs and J joints (waveguides between PUCs). Heater ``2·PUC`` is on the upper arm.

    The phase of an arm is ``ρ2·I² + ρ4·I⁴ + ρ6·I⁶`` of its own heater, plus the phase without heat (upper arm only),
    plus crosstalk. The heat of a heater is ``heater_ohm·I²``, times the rise of its resistance (``own phase /
    (ρ2·I²)``), times ``heat_factor``. ``heater_ohm`` is a nominal value and matters for crosstalk only.

    Attributes:
        passive_phase_rad: Shape ``(E,)``; phase without heat of the upper arm relative to the lower arm.
        heater_law: Shape ``(2E, 3)``; ρ2, ρ4, ρ6 in rad/mA², rad/mA⁴, rad/mA⁶; zeros for a heater without effect.
        loss_db: Shape ``(E,)``; insertion loss.
        coupler_common_rad: Shape ``(E,)``; mean of the two coupler angles asin√η, minus π/4.
        coupler_difference_rad: Shape ``(E,)``; angle at end A minus angle at end B.
        joint_phase_rad: Shape ``(J,)``; phases of the joints, of which only sums around closed paths can be observed
            (docs/calibration.md, 1.2).
        crosstalk_rad_per_mw: Shape ``(3,)``; amplitude, decay length and floor of the crosstalk ``κ(d) =
            amplitude·exp(-d/length) + floor`` over distance, in rad/mW, mm and rad/mW.
        heat_factor: Shape ``(2E,)`` or one number; ratio of each heater's heat to that of the nominal resistance.
        delay_s: Group delay of a PUC.
        differential_slope_rad_per_hz: Change of every φu - φl (upper minus lower arm) per Hz of optical frequency.
        coupler_slope_rad_per_hz: Change of every coupler angle per Hz of optical frequency.
        extra_physics: Parameters of additional effects, by name (:mod:`calibration.model.physics`). Contains only the
            effects that the readings required:

            * ``arm_difference_db``, shape ``(E,)``: loss of the upper arm minus that of the lower.
            * ``shared_return_per_ma``, one-dimensional, and ``supply_sag_share``, shape ``(1,)``: see
              :class:`~lumion_hw.mesh.waves.shared_return.SharedReturns`.
            * ``heat_loss_db_per_mw``, shape ``(1,)``: extra loss of an arm per heat applied to it.
            * ``coupler_rad_per_rad``, shape ``(1,)``: change of both coupler angles of a PUC per phase of its heaters;
              the angles above refer to both heaters at a phase of π.
            * ``both_arms_share``, shape ``(1,)``: phase that a heater adds to both arms of its PUC, relative to its
                law. ``both_arms_scatter``, shape ``(2E,)``: difference of single heaters, relative to it.
            * ``crosstalk_directions`` and ``crosstalk_sides``, shape ``(2,)`` each: see
                :meth:`~lumion_hw.mesh.waves.crosstalk.HeaterDistances.directed`.
            * ``crosstalk_pairs``, shape ``(2E + J, 2E)``: phase of every arm and joint per heat of every heater, in
                addition to the function of distance, in rad/mW.
    """

    passive_phase_rad: Real
    heater_law: Real
    loss_db: Real
    coupler_common_rad: Real
    coupler_difference_rad: Real
    joint_phase_rad: Real
    crosstalk_rad_per_mw: Real
    heat_factor: Real | float = 1.0
    delay_s: float = BASIC_UNIT_DELAY_S
    differential_slope_rad_per_hz: float = 0.0
    coupler_slope_rad_per_hz: float = 0.0
    extra_physics: Mapping[str, Real] = field(default_factory=dict)

    @classmethod
    def from_record(cls, record: CalibrationRecord) -> ChipParameters:
        """Return the chip parameters of a record.

        Unknown values are neutral: balanced couplers, zero phases, no crosstalk. The crosstalk matrix in records of
        schema version 1 is ignored.
        """
        heaters = [heater for entry in record.pucs for heater in (entry.upper, entry.lower)]
        laws = [heater.law for heater in heaters]
        couplers = [entry.coupler or CouplerEntry() for entry in record.pucs]
        dispersion = record.dispersion or Dispersion()
        # Zero amplitude and floor: no crosstalk; the length only must not be zero.
        no_kernel = CrosstalkKernel(0.0, 1.0, 0.0, BUL_MM)
        kernel = record.crosstalk.kernel or no_kernel if record.crosstalk else no_kernel
        return ChipParameters(
            passive_phase_rad=np.array([entry.passive_phase_rad or 0.0 for entry in record.pucs]),
            heater_law=np.array(
                [
                    (law.rho2_rad_per_ma2, law.rho4_rad_per_ma4, law.rho6_rad_per_ma6) if law else (0.0, 0.0, 0.0)
                    for law in laws
                ]
            ),
            loss_db=record.loss_db,
            coupler_common_rad=np.array([coupler.common_rad for coupler in couplers]),
            coupler_difference_rad=np.array([coupler.difference_rad for coupler in couplers]),
            joint_phase_rad=np.zeros(len(record.mesh.joints))
            if record.joints is None
            else np.array(record.joints.phase_rad),
            crosstalk_rad_per_mw=np.array([kernel.amplitude_rad_per_mw, kernel.length_mm, kernel.floor_rad_per_mw]),
            heat_factor=np.array([heater.heat_factor for heater in heaters]),
            delay_s=dispersion.delay_s,
            differential_slope_rad_per_hz=dispersion.differential_slope_rad_per_hz,
            coupler_slope_rad_per_hz=dispersion.coupler_slope_rad_per_hz,
            extra_physics=record.extra_physics,
        )

    def cold_cells(self, mesh: MeshTopology, reference_hz: float) -> UnitCells:
        """Return the unit cells with all heaters off, at the reference frequency of the record."""
        first = mesh.coupler_angles_rad[0] + self.coupler_common_rad + 0.5 * self.coupler_difference_rad
        second = mesh.coupler_angles_rad[1] + self.coupler_common_rad - 0.5 * self.coupler_difference_rad
        middle = 0.5 * (first + second)
        return UnitCells(
            loss_db=self.loss_db,
            eta_in=np.sin(first) ** 2,
            eta_out=np.sin(second) ** 2,
            phase_upper=self.passive_phase_rad,
            phase_lower=np.zeros(len(first)),
            joint_phase=self.joint_phase_rad,
            reference_hz=reference_hz,
            delay_s=self.delay_s,
            # η = sin² a, so dη = sin 2a · da; 2a is π/2 for balanced couplers.
            eta_slope_per_hz=np.where(mesh.has_coupler.all(axis=0), np.sin(2.0 * middle), 0.0)
            * self.coupler_slope_rad_per_hz,
            differential_slope_per_hz=self.differential_slope_rad_per_hz,
            arm_difference_db=self.extra_physics.get("arm_difference_db", 0.0),
        )
