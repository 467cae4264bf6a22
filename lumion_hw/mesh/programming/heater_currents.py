"""From what PUCs are to do to heater currents, against thermal crosstalk, with the least heat.

Phases of arms are wanted modulo a turn, heat flows from every heater to every arm and joint: the own phases of the
heaters are found by iteration, P ← D⁻¹(φ - α - K·P) (docs/calibration.md, 7). Which turn is taken is settled first and
held while iterating, as a continuous function of the crosstalk: nothing jumps between two equally good choices.
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
"""φu - φl of the two routing states; a balanced PUC that nobody heats is in the cross state (docs/mesh.md#fields)."""

_TURN = 2.0 * math.pi
_ROUNDS = 60
_PASSES = 4
_SETTLED_RAD = 1e-9
_NOTHING_RAD = 1e-7
"""A heater phase as little below zero is zero: rounding, not another turn."""


@dataclass(frozen=True)
class PucTarget:
    """What one PUC is to do.

    Attributes:
        differentials_rad: φu - φl, modulo a turn; where there are several, any of them will do.
        common_rad: (φu + φl) / 2 that goes with it; ``None`` if it does not matter. Both arms are then set.
        name: What it is called in messages.
    """

    differentials_rad: tuple[float, ...]
    common_rad: float | None = None
    name: str = ""

    @classmethod
    def state(cls, state: State, common_rad: float | None = None) -> PucTarget:
        """Return the target of a routing state."""
        return cls((DIFFERENTIAL_RAD[state],), common_rad, state)

    @classmethod
    def arms(cls, upper_rad: float, lower_rad: float) -> PucTarget:
        """Return the target of two arm phases, each modulo a turn."""
        return cls((upper_rad - lower_rad,), 0.5 * (upper_rad + lower_rad), "the wanted arm phases")

    @classmethod
    def coupling(cls, k: float, coupler: CouplerEntry | None = None, common_rad: float | None = None) -> PucTarget:
        """Return the target of a power coupling, exact for imperfect couplers (docs/calibration.md, 2).

        Args:
            k: Power to the cross output: 0 bar, 1 cross.
            coupler: The couplers of this PUC; balanced if not given.
            common_rad: Common phase, if it matters; the differential phase is then the positive of the two that do.

        Raises:
            LimitError: The couplers do not allow it; the message names the interval they do.
        """
        low, high = (coupler or CouplerEntry()).interval
        if not low <= k <= high:
            raise LimitError(
                f"power coupling out of reach, these couplers allow {low:.3g} to {high:.6g}",
                requested=k,
                limit=low if k < low else high,
                unit="of the power",
            )
        differential = 2.0 * math.acos(math.sqrt((k - low) / (high - low)))
        choices = (differential,) if common_rad is not None else (differential, -differential)
        return cls(choices, common_rad, f"k = {k:g}")


@dataclass(frozen=True)
class HeaterLimits:
    """What the controller allows besides the largest current of every heater.

    Attributes:
        total_mw: Largest heat of all heaters together.
        dac_step_ma: Step of the currents; 0 if they are not rounded.
    """

    total_mw: float = math.inf
    dac_step_ma: float = 0.0


@dataclass(frozen=True, eq=False)
class ProgrammedCurrents:
    """Currents that do what was wanted.

    Attributes:
        currents_ma: Shape ``(2E,)``; as the controller can set them.
        heat_mw: Their heat in all.
        own_rad: Shape ``(2E,)``; phase of every heater on its own arm, before rounding.
        rounding_rad: Largest error of a differential phase by rounding.
        joint_error_rad: Largest joint phase that was to be cancelled and is not; 0 if none was to be.
    """

    currents_ma: Real
    heat_mw: float
    own_rad: Real
    rounding_rad: float
    joint_error_rad: float


def program_pucs(
    known: CalibratedMesh,
    targets: Mapping[int, PucTarget],
    *,
    limits: HeaterLimits | None = None,
    cancel_joints: NDArray[np.bool_] | None = None,
) -> ProgrammedCurrents:
    """Return the currents that do what is wanted with the least heat; PUCs without a target are left unheated.

    Args:
        known: The mesh as a record knows it.
        targets: What each PUC is to do.
        limits: What the controller allows.
        cancel_joints: Shape ``(J,)``; joints whose phase, heat included, is taken up by the common phases of the PUCs
            beside them, as if it were zero. PUCs without a common phase take no part.

    Raises:
        CalibrationError: A PUC is not calibrated or stuck, or crosstalk is so strong that no setting makes up for it.
        LimitError: A heater does not reach its phase, or the heat in all exceeds the limit; nothing is clipped.
    """
    limits = limits or HeaterLimits()
    for puc in targets:
        if np.isnan(known.passive_rad[puc]):
            note = known.record.pucs[puc].note or "its passive phase was not found"
            raise CalibrationError(f"PUC {puc} is not calibrated: {note}", hint="Calibrate it or route round it.")
        if not known.law[2 * puc : 2 * puc + 2].any():
            note = known.record.pucs[puc].note or "neither heater has any effect on the light"
            raise CalibrationError(f"PUC {puc} cannot be set: {note}", hint="Route round it.")
    takers = np.array([puc for puc, target in targets.items() if target.common_rad is not None], dtype=np.int64)
    taken = None if cancel_joints is None else _JointTakers(known, cancel_joints, takers)
    own = np.zeros(2 * len(known.passive_rad))
    choice = _Choice(known, targets, *_stray(known, own, taken))
    # Which turn is cheapest hangs on the crosstalk, and that on the turns: choose, settle, choose anew.
    for _ in range(_PASSES):
        own = _settled(known, choice, taken, own)
        if not choice.renew(*_stray(known, own, taken)):
            break
    own = _settled(known, choice, taken, own)
    choice.check(own)
    exact = known.currents_ma(own)
    currents = rounded_ma(exact, known.max_ma, limits.dac_step_ma)
    heat = float(known.heat_mw(known.own_rad(currents)).sum())
    if heat > limits.total_mw:
        raise LimitError("heat of all heaters", requested=heat, limit=limits.total_mw, unit="mW")
    off = known.own_rad(currents) - known.own_rad(exact)
    return ProgrammedCurrents(
        currents,
        heat,
        own,
        float(np.max(np.abs(off[0::2] - off[1::2]), initial=0.0)),
        0.0 if taken is None else taken.error_rad(known.heat_mw(own)),
    )


def rounded_ma(currents_ma: Real, max_ma: Real, step_ma: float) -> Real:
    """Return currents on whole steps of a converter, none above its largest."""
    if not step_ma:
        return currents_ma
    steps = np.rint(currents_ma / step_ma)
    steps -= steps * step_ma > max_ma
    on_grid: Real = steps * step_ma
    return on_grid


def common_for_joints(mesh: MeshTopology, joints: NDArray[np.bool_], takers: NDArray[np.int64]) -> Real:
    """Return how common phases of PUCs take up joint phases, shape ``(E, J)``: Δ = matrix @ joint_phase.

    Every PUC takes part of its phase for the joints at end A and part for those at end B; a joint between ends x and y
    acts as zero if both parts add up to minus its phase. Where three PUCs meet there are three joints for three ends.
    Elsewhere the smallest phases are taken.

    Args:
        mesh: The mesh.
        joints: Shape ``(J,)``; joints to cancel.
        takers: PUCs whose common phase is free.
    """
    wanted, ends = np.flatnonzero(joints), _ends(takers)
    parts = np.zeros((2 * mesh.n_pucs, len(mesh.joints)))
    parts[np.ix_(ends, wanted)] = -np.linalg.pinv(_joints_at(mesh, wanted, ends))
    both: Real = parts[0::2] + parts[1::2]
    return both


def _ends(pucs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the ends of PUCs: 2·PUC is end A, the next end B."""
    return np.concatenate([2 * pucs, 2 * pucs + 1])


def _joints_at(mesh: MeshTopology, joints: NDArray[np.int64], ends: NDArray[np.int64]) -> Real:
    """Return how often each joint (row) touches each end (column)."""
    at = np.zeros((len(joints), 2 * mesh.n_pucs))
    for side in (0, 1):
        at[np.arange(len(joints)), mesh.joints[joints, side] // 2] += 1.0
    return at[:, ends]


class _JointTakers:
    """Common phases that take up the phases of joints."""

    def __init__(self, known: CalibratedMesh, joints: NDArray[np.bool_], takers: NDArray[np.int64]) -> None:
        self._known, self._wanted = known, np.flatnonzero(joints)
        self._common = common_for_joints(known.mesh, joints, takers)
        self._at = _joints_at(known.mesh, self._wanted, _ends(takers))
        # Held on one turn, so that heat moves the phases continuously.
        self._cold = (known.joint_rad + math.pi) % _TURN - math.pi

    def _phases(self, heat_mw: Real) -> Real:
        heated = self._known.joint_rad_per_mw
        return self._cold + heated @ heat_mw if len(heated) else self._cold

    def common_rad(self, heat_mw: Real) -> Real:
        """Return what each PUC has to add to its common phase, shape ``(E,)``."""
        common: Real = self._common @ self._phases(heat_mw)
        return common

    def error_rad(self, heat_mw: Real) -> float:
        """Return the largest phase of a joint that no PUC takes up."""
        phases = self._phases(heat_mw)[self._wanted]
        left = phases - self._at @ (np.linalg.pinv(self._at) @ phases)
        return float(np.max(np.abs(left), initial=0.0))


def _stray(known: CalibratedMesh, own_rad: Real, taken: _JointTakers | None) -> tuple[Real, Real]:
    """Return what heat adds to every arm ``(2E,)``, and what the common phases have to take up besides ``(E,)``."""
    heat = known.heat_mw(own_rad)
    common = np.zeros(len(own_rad) // 2) if taken is None else taken.common_rad(heat)
    return known.arm_rad_per_mw @ heat, common


def _settled(known: CalibratedMesh, choice: _Choice, taken: _JointTakers | None, own_rad: Real) -> Real:
    """Iterate the own phases against the crosstalk until they stand still."""
    moved = math.inf
    # Crosstalk is a small part of any phase: a round leaves a small part of what the last one moved.
    for _ in range(_ROUNDS):
        after = choice.own_rad(*_stray(known, own_rad, taken))
        moved = float(np.max(np.abs(after - own_rad), initial=0.0))
        own_rad = after
        if moved < _SETTLED_RAD:
            return own_rad
    raise CalibrationError(
        f"crosstalk compensation does not settle: {moved:.2g} rad still move after {_ROUNDS} rounds",
        hint="The recorded crosstalk is too strong to be true.",
    )


def _differences(stray: Real) -> list[float]:
    """Return what heat adds to the upper arm of every PUC over the lower."""
    between: list[float] = (stray[0::2] - stray[1::2]).tolist()
    return between


class _Choice:
    """Which of the equivalent phases every PUC takes; held while the crosstalk is iterated.

    A PUC without a wanted common phase heats one arm: the continuous difference D on the upper arm if it is positive,
    -D on the lower if it is negative. One with a common phase sets both arms.
    """

    def __init__(self, known: CalibratedMesh, targets: Mapping[int, PucTarget], stray: Real, common: Real) -> None:
        self._known, self._targets = known, targets
        # Plain numbers: they are looked up one by one, thousands of times.
        self._reach: list[float] = known.reach_rad.tolist()
        self._passive: list[float] = known.passive_rad.tolist()
        self._difference: dict[int, float] = {}
        self._arms: dict[int, list[float]] = {}
        self.renew(stray, common)

    def renew(self, stray: Real, common: Real) -> bool:
        """Choose anew for a given crosstalk; return whether that changed anything that saves heat."""
        changed, bases = False, _differences(stray)
        for puc, target in self._targets.items():
            if target.common_rad is None:
                base, before = bases[puc], self._difference.get(puc)
                best = self._best_difference(puc, target, base)
                # A change has to be worth it: without this, two choices of equal heat would be taken in turns.
                if before is None or abs(best - base) < abs(before - base) - 1e-3:
                    self._difference[puc], changed = best, True
            else:
                half = 0.5 * target.differentials_rad[0]
                passive = self._passive[puc]
                wanted = (target.common_rad + half - passive, target.common_rad - half)
                held = self._arms.get(puc)
                least = [self._least(puc, arm, wanted[arm], stray, common) for arm in (0, 1)]
                # They differ by whole turns: less than one radian is only crosstalk that has moved.
                if held is None or any(least[arm] < held[arm] - 1.0 for arm in (0, 1)):
                    self._arms[puc], changed = least, True
        return changed

    def _least(self, puc: int, arm: int, wanted: float, stray: Real, common: Real) -> float:
        """Return an arm's phase on the turn that takes the least heat, crosstalk not yet taken off."""
        # Heat only adds: the first turn that is not below what crosstalk does already.
        base = float(stray[2 * puc + arm] - common[puc])
        return (wanted - base) % _TURN + base

    def own_rad(self, stray: Real, common: Real) -> Real:
        """Return the own phases that make the targets under a given crosstalk, shape ``(2E,)``."""
        own, bases = [0.0] * len(stray), _differences(stray)
        for puc, wanted in self._difference.items():
            rest = wanted - bases[puc]
            if not self._reaches(puc, rest):
                self._difference[puc] = self._best_difference(puc, self._targets[puc], bases[puc])
                rest = self._difference[puc] - bases[puc]
            own[2 * puc + (rest < 0.0)] = abs(rest)
        for puc, wanted_arms in self._arms.items():
            for arm in (0, 1):
                heater = 2 * puc + arm
                rest = wanted_arms[arm] + float(common[puc] - stray[heater])
                # Another turn where it takes one; back only from well above, so that nothing goes to and fro.
                turns = _TURN * ((rest < -_NOTHING_RAD) - (rest > _TURN + 1.0))
                wanted_arms[arm] += turns
                own[heater] = max(rest + turns, 0.0)
        return np.array(own)

    def _reaches(self, puc: int, rest: float) -> bool:
        return -self._reach[2 * puc + 1] <= rest <= self._reach[2 * puc]

    def _best_difference(self, puc: int, target: PucTarget, base: float) -> float:
        """Return the difference of own phases with the least heat, crosstalk not yet taken off.

        Args:
            puc: The PUC.
            target: What it is to do.
            base: What heat of all heaters adds to the difference.
        """
        passive = self._passive[puc]
        # Heat the upper arm by the rest of a turn, or the lower one by what is left to it: never both.
        needed = [(each - passive - base) % _TURN for each in target.differentials_rad]
        options = [rest - turn for rest in needed for turn in (0.0, _TURN) if self._reaches(puc, rest - turn)]
        if not options:
            asked, limit = min(needed), max(self._reach[2 * puc], self._reach[2 * puc + 1])
            raise LimitError(f"PUC {puc} cannot be set to {target.name}", requested=asked, limit=limit, unit="rad")
        return min(options, key=abs) + base

    def check(self, own_rad: Real) -> None:
        """Refuse a phase out of reach, and a common phase where a heater is dead.

        Raises:
            LimitError: As :func:`program`.
        """
        beyond = np.flatnonzero(own_rad > np.array(self._reach) * (1.0 + 1e-12))
        if len(beyond):
            heater = int(beyond[0])
            dead = self._known.max_ma[heater] == 0.0
            why = " has no effect: the common phase of this PUC is not free" if dead else " cannot reach its phase"
            asked, limit = float(own_rad[heater]), float(self._reach[heater])
            raise LimitError(f"{self._known.heater_name(heater)}{why}", requested=asked, limit=limit, unit="rad")
