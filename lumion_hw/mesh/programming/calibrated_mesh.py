"""Predicted behaviour of the mesh at given heater currents, from a calibration record."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import CalibrationError, LimitError
from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.mesh.programming.chip import ChipParameters
from lumion_hw.mesh.record.calibration_record import CROSSTALK_PAIRS, CalibrationRecord, CouplerEntry, CrosstalkKernel
from lumion_hw.mesh.record.validity import UseConditions, check_validity
from lumion_hw.mesh.waves.cell import UnitCells, excess_phase_rad, with_heat_loss, with_turned_couplers
from lumion_hw.mesh.waves.crosstalk import BUL_MM, HeaterDistances, ThermalCrosstalk
from lumion_hw.mesh.waves.shared_return import RETURN_GROUP_SIZES, SharedReturns
from lumion_hw.quantities import wavelength_m_from_frequency_hz

Real = NDArray[np.float64]

_NEWTON_STEPS = 12
_BALANCED = CouplerEntry()


@dataclass(frozen=True, eq=False)
class CalibratedMesh:
    """A calibrated mesh of E PUCs and J joints (waveguides between PUCs).

    Heater ``2·PUC`` is on the upper arm. Unknown values are neutral: zero phase, balanced couplers, no crosstalk.

    Attributes:
        chip: Chip parameters in the record.
        passive_rad: Shape ``(E,)``; phase without heat, NaN where unknown.
        max_ma: Shape ``(2E,)``; largest current, 0 for a heater without effect.
        heat_mw_per_rad: Shape ``(2E,)``; heat per radian on the heater's own arm.
        arm_rad_per_mw: Shape ``(2E, 2E)``; phase of an arm (row) per heat of another heater (column).
        joint_rad_per_mw: Shape ``(J, 2E)``; phase of a joint (row) per heat of a heater (column); no rows if the record
            gives no crosstalk as a function of distance.
        returns: Current loss of channels that share a return conductor.
    """

    record: CalibrationRecord
    chip: ChipParameters
    passive_rad: Real
    max_ma: Real
    heat_mw_per_rad: Real
    arm_rad_per_mw: Real
    joint_rad_per_mw: Real
    returns: SharedReturns

    def __repr__(self) -> str:
        """Return a one-line summary of the calibrated mesh."""
        return f"<KnownMesh of {self.record!r}>"

    @classmethod
    def from_record(cls, record: CalibrationRecord, max_ma: float = np.inf) -> CalibratedMesh:
        """Return the calibrated mesh of a record.

        Args:
            record: Calibration record of the mesh.
            max_ma: Largest current of the controller, if smaller than the limits in the record.

        Raises:
            CalibrationError: The record assumes another distance between PUCs, or other groups of channels that share a
                return conductor.
        """
        heaters = [heater for entry in record.pucs for heater in (entry.upper, entry.lower)]
        laws = [heater.law for heater in heaters]
        chip = ChipParameters.from_record(record)
        rho2, expected = chip.heater_law[:, 0], 2 * len(RETURN_GROUP_SIZES)
        # The numbers belong to the group sizes one by one, so another number of sizes would shift their meaning.
        if (n_values := len(chip.extra_physics.get("shared_return_per_ma", np.zeros(expected)))) != expected:
            raise CalibrationError(
                f"the record describes shared returns by {n_values} numbers; this software uses {expected}",
                hint="Calibrate again with this version of the software.",
            )
        # P = R0·I²·(own phase over ρ2·I²)·factor (docs/calibration.md, 2): the heat per radian does not depend on the
        # current.
        nominal = record.heater_ohm * 1e-3 * chip.heat_factor
        arms, joints = _crosstalk(record)
        heat_mw_per_rad = np.divide(nominal, rho2, out=np.zeros(len(rho2)), where=rho2 != 0.0)
        if (share := chip.extra_physics.get("both_arms_share")) is not None:
            live = np.flatnonzero(rho2)
            shares = share[0] * (1.0 + chip.extra_physics.get("both_arms_scatter", np.zeros(len(rho2))))
            for arm in (live, live ^ 1):
                arms[arm, live] += shares[live] / heat_mw_per_rad[live]
        passive = [entry.passive_phase_rad for entry in record.pucs]
        return cls(
            record,
            chip,
            np.array([np.nan if value is None else value for value in passive]),
            np.array([min(law.max_ma, max_ma) if law else 0.0 for law in laws]),
            heat_mw_per_rad,
            arms,
            joints,
            SharedReturns.from_channels(record.heater_channels),
        )

    @property
    def mesh(self) -> MeshTopology:
        """Topology of the mesh.

        Raises:
            CalibrationError: As in :attr:`CalibrationRecord.mesh`.
        """
        return self.record.mesh

    @property
    def law(self) -> Real:
        """Coefficients of I², I⁴ and I⁶ in every heater's phase, shape ``(2 n_pucs, 3)``; zeros for a dead heater."""
        return self.chip.heater_law

    @property
    def reach_rad(self) -> Real:
        """Phase that each heater can reach on its own arm, shape ``(2 n_pucs,)``; 0 if dead."""
        # Alone, a heater reaches more; with all others driven, a shared return takes part of its current.
        return np.minimum(self._law_rad(self.max_ma), self.own_rad(self.max_ma))

    @property
    def joint_rad(self) -> Real:
        """Phase of every joint (waveguide between PUCs) without heat, shape ``(n_joints,)``."""
        return self.chip.joint_phase_rad

    def own_rad(self, currents_ma: Real) -> Real:
        """Return the phase of every heater on its own arm with all heaters driven together, ``(…, 2 n_pucs)``."""
        return self._law_rad(self.returns.flowing_ma(currents_ma, self.law[:, 0], self.chip.extra_physics))

    def _law_rad(self, currents_ma: Real) -> Real:
        square = currents_ma**2
        rho2, rho4, rho6 = self.law.T
        own: Real = square * (rho2 + square * (rho4 + square * rho6))
        return own

    def own_slope_rad_per_ma2(self, currents_ma: Real) -> Real:
        """Return the derivative of each heater's phase on its own arm by the squared current, ``(…, 2 n_pucs)``."""
        square = currents_ma**2
        rho2, rho4, rho6 = self.law.T
        slope: Real = rho2 + square * (2.0 * rho4 + 3.0 * square * rho6)
        return slope

    def currents_ma(self, own_rad: Real) -> Real:
        """Return the heater currents for the wanted phases of all heaters on their own arms.

        Phases and currents have shape ``(2 n_pucs,)``.

        Raises:
            LimitError: A phase is negative or beyond the heater's range; the message names the heater.
        """
        # The phases may come from this same law, whose rounding can put them above the reach.
        outside = (own_rad < 0.0) | (own_rad > self.reach_rad * (1.0 + 1e-12))
        if outside.any():
            heater = int(np.flatnonzero(outside)[0])
            raise LimitError(
                f"{self.heater_name(heater)} cannot reach this phase", requested=float(own_rad[heater]),
                limit=float(self.reach_rad[heater]), unit="rad",
            )  # fmt: skip
        live = self.law[:, 0] != 0.0
        # Start from the first term of the law; the others are small, so a few Newton steps suffice.
        square = np.divide(own_rad, self.law[:, 0], out=np.zeros(len(own_rad)), where=live)
        for _ in range(_NEWTON_STEPS):
            current = np.sqrt(np.maximum(square, 0.0))
            slope = np.where(live, self.own_slope_rad_per_ma2(current), 1.0)
            step = np.where(live, (self._law_rad(current) - own_rad) / slope, 0.0)
            square = square - step
            if np.max(np.abs(step), initial=0.0) < 1e-13:
                break
        flowing = np.sqrt(np.maximum(square, 0.0))
        currents: Real = self.returns.driven_ma(flowing, self.law[:, 0], self.chip.extra_physics)
        # At the end of the range, rounding must not exceed the largest current.
        return np.minimum(currents, self.max_ma)

    def heat_mw(self, own_rad: Real) -> Real:
        """Return the heat in mW for given phases of the heaters' own arms, without crosstalk, ``(…, 2 n_pucs)``."""
        heat: Real = own_rad * self.heat_mw_per_rad
        return heat

    def cells(self, currents_ma: Real, frequency_hz: float | None = None) -> UnitCells:
        """Return the unit cells of the mesh at given heater currents.

        Args:
            currents_ma: Heater currents, shape ``(2 n_pucs,)``, or ``(N, 2 n_pucs)`` for N settings.
            frequency_hz: Frequency of the light, by default the reference frequency. Heater phases are proportional to
                it.

        Raises:
            LimitError: The record is not valid at this frequency.
        """
        # The path difference of a heated arm is fixed; its phase in radians grows with the frequency.
        ratio = 1.0 if frequency_hz is None else self._frequency_ratio(frequency_hz)
        own = self.own_rad(currents_ma)
        heat = self.heat_mw(own)
        arms = (own + heat @ self.arm_rad_per_mw.T) * ratio
        cold = self.cold_cells()
        joints = cold.joint_phase
        if len(self.joint_rad_per_mw):
            joints = joints + heat @ self.joint_rad_per_mw.T * ratio
        upper, lower = cold.phase_upper + arms[..., 0::2], cold.phase_lower + arms[..., 1::2]
        cells = replace(cold, phase_upper=upper, phase_lower=lower, joint_phase=joints)
        if (db_per_mw := self.chip.extra_physics.get("heat_loss_db_per_mw")) is not None:
            cells = with_heat_loss(cells, heat * db_per_mw)
        if (per_rad := self.chip.extra_physics.get("coupler_rad_per_rad")) is not None:
            turned_rad = excess_phase_rad(own, self.law[:, 0] != 0.0) * per_rad
            cells = with_turned_couplers(cells, turned_rad, self.mesh.has_coupler)
        return cells

    def _frequency_ratio(self, frequency_hz: float) -> float:
        wavelength_nm = round(
            wavelength_m_from_frequency_hz(frequency_hz) * 1e9, 6
        )  # remove the rounding error of the conversion
        check_validity(self.record, UseConditions(wavelength_nm=wavelength_nm))
        return frequency_hz / self.record.reference_hz

    def cold_cells(self) -> UnitCells:
        """Return the unit cells of the mesh with all heaters off."""
        return self.chip.cold_cells(self.mesh, self.record.reference_hz)

    def coupler(self, puc: int) -> CouplerEntry:
        """Return the couplers of a PUC; balanced if not measured."""
        return self.record.pucs[puc].coupler or _BALANCED

    def heater_name(self, heater: int) -> str:
        """Return the name of a heater for messages, such as ``PUC 41 lower heater (channel 83)``."""
        entry = self.record.pucs[heater // 2]
        channel = (entry.lower if heater % 2 else entry.upper).channel
        return f"PUC {heater // 2} {'lower' if heater % 2 else 'upper'} heater (channel {channel})"


def _crosstalk(record: CalibrationRecord) -> tuple[Real, Real]:
    n_heaters = 2 * len(record.pucs)
    arms, joints = np.zeros((n_heaters, n_heaters)), np.zeros((0, n_heaters))
    entry = record.crosstalk
    if entry is None:
        return arms, joints
    if entry.kernel is not None:
        thermal = kernel_crosstalk(record.mesh, entry.kernel)
        rise, sides = (record.extra_physics.get(name) for name in ("crosstalk_directions", "crosstalk_sides"))
        if rise is not None or sides is not None:
            # The die may conduct heat better in one direction; the kernel then is the mean over all directions.
            thermal = HeaterDistances.from_mesh(record.mesh).directed(thermal, rise, sides)
        arms, joints = thermal.arm_rad_per_mw, thermal.joint_rad_per_mw
    pairs = record.extra_physics.get(CROSSTALK_PAIRS)
    # The array holds the rows of the arms first, then those of the joints.
    if pairs is not None and len(joints):
        arms, joints = arms + pairs[:n_heaters], joints + pairs[n_heaters:]
    if entry.differential_rad_per_mw:
        # Only the difference of the arms is recorded, so the upper arm gets all of it.
        arms[0::2] += np.asarray(entry.differential_rad_per_mw)
    return arms, joints


def kernel_crosstalk(mesh: MeshTopology, kernel: CrosstalkKernel) -> ThermalCrosstalk:
    """Return the phases of arms and joints (waveguides between PUCs) per heat, from a crosstalk kernel.

    The kernel gives crosstalk as a function of distance.

    Raises:
        CalibrationError: The kernel was fitted with another lattice edge length.
    """
    if kernel.edge_mm != BUL_MM:
        raise CalibrationError(
            f"the crosstalk in the record assumes a PUC spacing of {kernel.edge_mm} mm; this software uses {BUL_MM} mm",
            hint="Calibrate again with this version of the software.",
        )

    def shape(distance_mm: Real) -> Real:
        decay: Real = kernel.amplitude_rad_per_mw * np.exp(-distance_mm / kernel.length_mm) + kernel.floor_rad_per_mw
        return decay

    return HeaterDistances.from_mesh(mesh).crosstalk(shape)
