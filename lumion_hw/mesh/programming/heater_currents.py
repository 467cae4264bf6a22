"""Calculate the heater currents for wanted PUC phases with the least heat, compensating thermal crosstalk.

The heats P are found by iterating P ← D⁻¹(φ - α - K·P), with wanted arm phases φ, phases without heat α, crosstalk K,
and phase per heat D of each heater on its own arm (docs/calibration.md, 7).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import CalibrationError, LimitError
from lumion_hw.mesh.layout.topology import MeshTopology, State
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.mesh.record.calibration_record import CouplerEntry

Real = NDArray[np.float64]

DIFFERENTIAL_RAD: dict[str, float] = {"cross": 0.0, "bar": math.pi}
"""Phase of the upper arm minus the lower arm in bar and in cross (docs/mesh.md#fields)."""

_TURN = 2.0 * math.pi
# All 72 PUCs take 6 rounds with the published crosstalk, and 6 for each choice with five times as much.
_MAX_ROUNDS = 60
# One choice suffices with the published crosstalk. With twice as much, half of the random settings use all four.
_MAX_CHOICES = 4
_CONVERGED_RAD = 1e-9
_ROUNDING_RAD = 1e-7
"""A negative heater phase smaller than this is a rounding error and treated as zero."""


@dataclass(frozen=True)
class PucTarget:
    """Wanted phases of one PUC.

    Attributes:
        differentials_rad: Acceptable phases of the upper arm minus the lower arm, modulo 2π.
        common_rad: Wanted mean phase of both arms; ``None`` if it does not matter.
        name: Description of the target in messages.
    """

    differentials_rad: tuple[float, ...]
    common_rad: float | None = None
    name: str = ""

    @classmethod
    def state(cls, state: State, common_rad: float | None = None) -> PucTarget:
        """Return the target for the bar or cross state."""
        return cls((DIFFERENTIAL_RAD[state],), common_rad, state)

    @classmethod
    def arms(cls, upper_rad: float, lower_rad: float) -> PucTarget:
        """Return the target for two arm phases, each modulo 2π."""
        return cls((upper_rad - lower_rad,), 0.5 * (upper_rad + lower_rad), "the wanted arm phases")

    @classmethod
    def coupling(cls, k: float, coupler: CouplerEntry | None = None, common_rad: float | None = None) -> PucTarget:
        """Return the target for a power coupling (docs/calibration.md, 2).

        Args:
            k: Fraction of power to the cross output: 0 bar, 1 cross.
            coupler: Calibrated couplers of this PUC; balanced by default.
            common_rad: Wanted mean phase of both arms, if any; of the two solutions for the phase difference, the
                positive one is then used.

        Raises:
            LimitError: The couplers cannot reach this coupling; the message names the possible interval.
        """
        low, high = (coupler or CouplerEntry()).interval
        if not low <= k <= high:
            raise LimitError(
                f"this power coupling cannot be set; the couplers of the PUC allow {low:.3g} to {high:.6g}",
                requested=k,
                limit=low if k < low else high,
                unit="of the power",
            )
        # The inverse of k = low + (high - low) cos²(Δφ/2), which is exact for any couplers.
        differential = 2.0 * math.acos(math.sqrt((k - low) / (high - low)))
        choices = (differential,) if common_rad is not None else (differential, -differential)
        return cls(choices, common_rad, f"k = {k:g}")


@dataclass(frozen=True)
class HeaterLimits:
    """Limits of the mesh controller.

    Attributes:
        total_mw: Largest total heat of all heaters.
        dac_step_ma: Current step of the DAC; 0 if currents are not rounded.
    """

    total_mw: float = math.inf
    dac_step_ma: float = 0.0


@dataclass(frozen=True, eq=False)
class ProgrammedCurrents:
    """Heater currents for the wanted phases.

    Attributes:
        currents_ma: Shape ``(2 n_pucs,)``; rounded to the steps of the controller.
        heat_mw: Total heat of all heaters.
        own_rad: Shape ``(2 n_pucs,)``; phase of every heater on its own arm, before rounding.
        rounding_rad: Largest error of a phase difference due to rounding.
        joint_error_rad: Largest remaining phase of the joints (waveguides between PUCs) to be cancelled; 0 if there are
            none.
    """

    currents_ma: Real
    heat_mw: float
    own_rad: Real
    rounding_rad: float
    joint_error_rad: float


def program_pucs(
    calibrated: CalibratedMesh,
    targets: Mapping[int, PucTarget],
    *,
    limits: HeaterLimits | None = None,
    cancel_joints: NDArray[np.bool_] | None = None,
) -> ProgrammedCurrents:
    """Return the currents for the wanted phases with the least heat. PUCs without a target stay unheated.

    ``cancel_joints`` is a mask of joints (waveguides between PUCs), shape ``(n_joints,)``; their phases are cancelled
    by adjacent PUCs whose target has a common phase.

    Raises:
        CalibrationError: A PUC is not calibrated or stuck, or crosstalk is too strong to be compensated.
        LimitError: A heater cannot reach its phase, or the total heat exceeds the limit; nothing is clipped.
    """
    limits = limits or HeaterLimits()
    for puc in targets:
        # An unknown passive phase would give an arbitrary state without any sign of it.
        if np.isnan(calibrated.passive_rad[puc]):
            note = calibrated.record.pucs[puc].note or "its passive phase was not found"
            raise CalibrationError(
                f"PUC {puc} is not calibrated: {note}", hint="Calibrate this PUC, or route around it."
            )
        if not calibrated.law[2 * puc : 2 * puc + 2].any():
            note = calibrated.record.pucs[puc].note or "neither heater has any effect on the light"
            raise CalibrationError(f"PUC {puc} cannot be set: {note}", hint="Route around this PUC.")
    compensating_pucs = np.array(
        [puc for puc, target in targets.items() if target.common_rad is not None], dtype=np.int64
    )
    compensation = None if cancel_joints is None else _JointCompensation(calibrated, cancel_joints, compensating_pucs)
    own = np.zeros(2 * len(calibrated.passive_rad))
    choice = _Choice(calibrated, targets, *_crosstalk_phases(calibrated, own, compensation))
    # The cheapest turn depends on the crosstalk, and the crosstalk on the turns: choose, iterate, choose again.
    for _ in range(_MAX_CHOICES):
        own = _iterate_phases(calibrated, choice, compensation, own)
        if not choice.renew(*_crosstalk_phases(calibrated, own, compensation)):
            break
    own = _iterate_phases(calibrated, choice, compensation, own)
    choice.check(own)
    unrounded_ma = calibrated.currents_ma(own)
    currents = rounded_ma(unrounded_ma, calibrated.max_ma, limits.dac_step_ma)
    heat = float(calibrated.heat_mw(calibrated.own_rad(currents)).sum())
    # Nothing is scaled down: a smaller heat would set other states.
    if heat > limits.total_mw:
        raise LimitError(
            "the total heat of all heaters exceeds the limit", requested=heat, limit=limits.total_mw, unit="mW"
        )
    rounding_rad = calibrated.own_rad(currents) - calibrated.own_rad(unrounded_ma)
    return ProgrammedCurrents(
        currents,
        heat,
        own,
        float(np.max(np.abs(rounding_rad[0::2] - rounding_rad[1::2]), initial=0.0)),
        0.0 if compensation is None else compensation.error_rad(calibrated.heat_mw(own)),
    )


def rounded_ma(currents_ma: Real, max_ma: Real, step_ma: float) -> Real:
    """Return heater currents rounded to whole DAC steps, never above ``max_ma``."""
    if not step_ma:
        return currents_ma
    steps = np.rint(currents_ma / step_ma)
    # Rounding up must not exceed the limit of a heater.
    steps -= steps * step_ma > max_ma
    on_grid: Real = steps * step_ma
    return on_grid


def joint_compensation(mesh: MeshTopology, joints: NDArray[np.bool_], compensating_pucs: NDArray[np.int64]) -> Real:
    """Return the matrix that converts joint phases to the PUC common phases that cancel them, ``(n_pucs, n_joints)``.

    A joint is a waveguide between two PUCs. A common phase is added to both arms of a PUC.

    Args:
        mesh: The mesh.
        joints: Mask of the joints to cancel.
        compensating_pucs: PUCs whose common phase may change.
    """
    cancelled, ends = np.flatnonzero(joints), _ends(compensating_pucs)
    parts = np.zeros((2 * mesh.n_pucs, len(mesh.joints)))
    # Where joints leave a choice, the pseudo-inverse takes the smallest phases, which need the least heat.
    parts[np.ix_(ends, cancelled)] = -np.linalg.pinv(_joint_incidence(mesh, cancelled, ends))
    by_puc: Real = parts[0::2] + parts[1::2]
    return by_puc


def _ends(pucs: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([2 * pucs, 2 * pucs + 1])


def _joint_incidence(mesh: MeshTopology, joints: NDArray[np.int64], ends: NDArray[np.int64]) -> Real:
    at = np.zeros((len(joints), 2 * mesh.n_pucs))
    for side in (0, 1):
        at[np.arange(len(joints)), mesh.joints[joints, side] // 2] += 1.0
    return at[:, ends]


class _JointCompensation:
    """Common phases of PUCs that cancel the phases of joints, as crosstalk and heat change them."""

    def __init__(
        self, calibrated: CalibratedMesh, joints: NDArray[np.bool_], compensating_pucs: NDArray[np.int64]
    ) -> None:
        self._calibrated, self._cancelled = calibrated, np.flatnonzero(joints)
        self._common = joint_compensation(calibrated.mesh, joints, compensating_pucs)
        self._at = _joint_incidence(calibrated.mesh, self._cancelled, _ends(compensating_pucs))
        # Kept on one turn, so that the phases change continuously with heat.
        self._cold = (calibrated.joint_rad + math.pi) % _TURN - math.pi

    def _phases(self, heat_mw: Real) -> Real:
        heated = self._calibrated.joint_rad_per_mw
        return self._cold + heated @ heat_mw if len(heated) else self._cold

    def common_rad(self, heat_mw: Real) -> Real:
        """Return the common phase of every PUC that cancels the joint phases at this heat; shape ``(n_pucs,)``."""
        common: Real = self._common @ self._phases(heat_mw)
        return common

    def error_rad(self, heat_mw: Real) -> float:
        """Return the largest joint phase that remains because the PUCs cannot cancel it."""
        phases = self._phases(heat_mw)[self._cancelled]
        remaining = phases - self._at @ (np.linalg.pinv(self._at) @ phases)
        return float(np.max(np.abs(remaining), initial=0.0))


def _crosstalk_phases(
    calibrated: CalibratedMesh, own_rad: Real, compensation: _JointCompensation | None
) -> tuple[Real, Real]:
    """Return the crosstalk phase of every arm, and for every PUC the common phase that cancels joint phases."""
    heat = calibrated.heat_mw(own_rad)
    common = np.zeros(len(own_rad) // 2) if compensation is None else compensation.common_rad(heat)
    return calibrated.arm_rad_per_mw @ heat, common


def _iterate_phases(
    calibrated: CalibratedMesh, choice: _Choice, compensation: _JointCompensation | None, own_rad: Real
) -> Real:
    moved = math.inf
    # Crosstalk is a small part of every phase, so each round changes the phases much less than the one before.
    for _ in range(_MAX_ROUNDS):
        after = choice.own_rad(*_crosstalk_phases(calibrated, own_rad, compensation))
        moved = float(np.max(np.abs(after - own_rad), initial=0.0))
        own_rad = after
        if moved < _CONVERGED_RAD:
            return own_rad
    raise CalibrationError(
        f"crosstalk compensation did not converge: phases still change by {moved:.2g} rad after {_MAX_ROUNDS} rounds",
        hint="The recorded crosstalk is implausibly strong; calibrate again.",
    )


def _differences(stray: Real) -> list[float]:
    between: list[float] = (stray[0::2] - stray[1::2]).tolist()
    return between


class _Choice:
    def __init__(self, calibrated: CalibratedMesh, targets: Mapping[int, PucTarget], stray: Real, common: Real) -> None:
        self._calibrated, self._targets = calibrated, targets
        # Python floats, because single elements are read thousands of times.
        self._reach: list[float] = calibrated.reach_rad.tolist()
        self._passive: list[float] = calibrated.passive_rad.tolist()
        self._difference: dict[int, float] = {}
        self._arms: dict[int, list[float]] = {}
        self.renew(stray, common)

    def renew(self, stray: Real, common: Real) -> bool:
        """Choose multiples of 2π and heated arms again; return whether this saves heat."""
        changed, bases = False, _differences(stray)
        for puc, target in self._targets.items():
            if target.common_rad is None:
                base, before = bases[puc], self._difference.get(puc)
                best = self._best_difference(puc, target, base)
                # Require a real saving; otherwise two choices of equal heat would alternate for ever.
                if before is None or abs(best - base) < abs(before - base) - 1e-3:
                    self._difference[puc], changed = best, True
            else:
                # The upper arm takes half of the difference and the lower arm the other half with opposite sign; the
                # passive phase lies on the upper arm.
                half = 0.5 * target.differentials_rad[0]
                passive = self._passive[puc]
                cancelled = (target.common_rad + half - passive, target.common_rad - half)
                present = self._arms.get(puc)
                coolest = [self._coolest_phase(puc, arm, cancelled[arm], stray, common) for arm in (0, 1)]
                # Choices differ by whole turns; a difference below one radian is only a change of crosstalk.
                if present is None or any(coolest[arm] < present[arm] - 1.0 for arm in (0, 1)):
                    self._arms[puc], changed = coolest, True
        return changed

    def _coolest_phase(self, puc: int, arm: int, cancelled: float, stray: Real, common: Real) -> float:
        # Heaters only add phase, so take the first turn that is not below the crosstalk phase.
        base = float(stray[2 * puc + arm] - common[puc])
        return (cancelled - base) % _TURN + base

    def own_rad(self, stray: Real, common: Real) -> Real:
        """Return the phase of each heater on its own arm, shape ``(2 n_pucs,)``; ``common`` is that of each PUC."""
        own, bases = [0.0] * len(stray), _differences(stray)
        for puc, cancelled in self._difference.items():
            remaining = cancelled - bases[puc]
            # Crosstalk has moved the phase beyond the range of this heater, so choose the turn again.
            if not self._reaches(puc, remaining):
                self._difference[puc] = self._best_difference(puc, self._targets[puc], bases[puc])
                remaining = self._difference[puc] - bases[puc]
            own[2 * puc + (remaining < 0.0)] = abs(remaining)
        for puc, wanted_arms in self._arms.items():
            for arm in (0, 1):
                heater = 2 * puc + arm
                remaining = wanted_arms[arm] + float(common[puc] - stray[heater])
                # Move up a turn where necessary, and down only from well above, to avoid oscillation.
                turns = _TURN * ((remaining < -_ROUNDING_RAD) - (remaining > _TURN + 1.0))
                wanted_arms[arm] += turns
                own[heater] = max(remaining + turns, 0.0)
        return np.array(own)

    def _reaches(self, puc: int, remaining: float) -> bool:
        return -self._reach[2 * puc + 1] <= remaining <= self._reach[2 * puc]

    def _best_difference(self, puc: int, target: PucTarget, base: float) -> float:
        """Return the phase difference of a PUC's arms that needs the least heat.

        ``base`` is the crosstalk phase of the upper arm minus that of the lower arm.
        """
        passive = self._passive[puc]
        # Heat either the upper arm by the missing phase or the lower arm by the rest of the turn, never both.
        needed = [(phase - passive - base) % _TURN for phase in target.differentials_rad]
        options = [
            remaining - turn for remaining in needed for turn in (0.0, _TURN) if self._reaches(puc, remaining - turn)
        ]
        if not options:
            requested, limit = min(needed), max(self._reach[2 * puc], self._reach[2 * puc + 1])
            raise LimitError(f"PUC {puc} cannot be set to {target.name}", requested=requested, limit=limit, unit="rad")
        return min(options, key=abs) + base

    def check(self, own_rad: Real) -> None:
        """Raise ``LimitError`` if a phase is beyond the range of its heater."""
        unreachable = np.flatnonzero(own_rad > np.array(self._reach) * (1.0 + 1e-12))
        if len(unreachable):
            heater = int(unreachable[0])
            dead = self._calibrated.max_ma[heater] == 0.0
            reason = (
                " has no effect, so the common phase of its PUC cannot be set" if dead else " cannot reach its phase"
            )
            requested, limit = float(own_rad[heater]), float(self._reach[heater])
            raise LimitError(
                f"{self._calibrated.heater_name(heater)}{reason}", requested=requested, limit=limit, unit="rad"
            )
