"""Powers of the two arms (paths of the two polarizations) of a circuit, measured and equalized at its receiver.

The receiver reports only the sum of both arms. So one arm at a time is diverted, for a few readings, at a PUC that only
this arm uses. Then the stronger arm is attenuated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from lumion_hw.bench.bench import Bench
from lumion_hw.circuits.phase_trim import shifted_currents_ma
from lumion_hw.circuits.plan.budget import MAX_IMBALANCE_DB
from lumion_hw.circuits.plan.planned import ArmTrim, CircuitArm, CircuitPlan, PlannedCircuit
from lumion_hw.circuits.plan.planning_mesh import planning_mesh
from lumion_hw.circuits.plan.trimming import Trimmer
from lumion_hw.errors import LimitError, LumionError
from lumion_hw.mesh.programming.heater_currents import PucTarget
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.mesh.routing.request import opposite_state
from lumion_hw.quantities import dbm_from_w, w_from_dbm

Real = NDArray[np.float64]

_UPDATE_S = 0.5
"""Time between two updates of a module's power reading (assumed)."""
_READS, _APART_S = 4, 0.15
_READING_SIGMA_DB = 0.1
"""Modules resolve received power to 0.1 dB."""
# Half of the allowed imbalance: the other half covers the error of the readings.
_LEVEL_TOLERANCE_DB = 0.5 * MAX_IMBALANCE_DB
# A trim is calculated with the calibrated model; the second one corrects the part that the model has missed.
_ROUNDS = 2
_MAX_LEVELLED_DB = 6.0
"""Largest difference that is equalized; an arm that is weaker by more has lost its light."""
_DARK_ENOUGH_DB = -25.0
"""An arm may be diverted only if no receiver gets more stray light than this, relative to the circuit's weakest arm."""
_MIN_TRIM_DB = 0.02
_MAX_TRIMS = 5
_HARMLESS_DB = -35.0
"""Light leaking to the other arm's end, in dB, below which it is ignored."""


@dataclass(frozen=True)
class ArmLevels:
    """Power of each arm (path of one polarization) of a circuit, measured separately at its receiver.

    Attributes:
        received_dbm: Power of each arm at the receiver; ``None`` if the arm is dark.
        diverted_at: PUC at which each arm was diverted.
        sigma_db: Standard error of the difference between the arms.
        trimmed_db: Loss added on purpose to each arm after the measurement; negative if it was reduced.
        failure: Why the arms' light is not accepted; empty if it is.
        unresolved: Why the arms could not be measured separately (all other attributes then have no meaning); empty if
            they were.
    """

    received_dbm: tuple[float | None, ...] = ()
    diverted_at: tuple[int, ...] = ()
    sigma_db: float = math.nan
    trimmed_db: tuple[float, ...] = ()
    failure: str = ""
    unresolved: str = ""

    @property
    def imbalance_db(self) -> float | None:
        """Loss of the weaker arm relative to the stronger arm, in dB."""
        levels = [level for level in self.received_dbm if level is not None]
        return max(levels) - min(levels) if levels and len(levels) == len(self.received_dbm) else None

    @property
    def arms_by_power(self) -> tuple[int, ...]:
        """Indices of the arms, weakest first; an arm without light is the weakest."""
        levels = [-math.inf if level is None else level for level in self.received_dbm]
        return tuple(sorted(range(len(levels)), key=levels.__getitem__))


class ArmLeveller:
    """Measures both arms (paths of the two polarizations) of a circuit and equalizes their powers."""

    def __init__(self, bench: Bench, record: CalibrationRecord) -> None:
        self._bench = bench
        self._planning = planning_mesh(record)
        self._transmitting: set[str] = set()

    def level(self, plan: CircuitPlan, circuit: PlannedCircuit) -> tuple[CircuitPlan, ArmLevels]:
        """Measure the arms of a circuit separately, and attenuate the stronger arm until both are equal.

        No arm stays diverted, even after an error.

        Args:
            plan: Plan of all active circuits, whose heater currents are driven now.
            circuit: One of these circuits, with two arms.

        Returns:
            The new plan, which is driven, and the last measurement.

        Raises:
            LumionError: A device failed.
        """
        trimmed_db = [0.0] * len(circuit.arms)
        self._transmitting = self._transmitting_modules(plan, circuit)
        levels = self._measure_arms(plan, circuit)
        for _ in range(_ROUNDS):
            changes_db = None if levels.failure or levels.unresolved else _trim_changes_db(circuit, levels)
            trimmed = None if changes_db is None else self._with_trims(plan, circuit, changes_db)
            if changes_db is None or trimmed is None:
                break
            # The trims of all rounds add up, because each round starts from the plan of the one before.
            trimmed_db = [sum(pair_db) for pair_db in zip(trimmed_db, (b - a for a, b in changes_db), strict=True)]
            plan, circuit = trimmed
            self._bench.mesh.program(plan.currents_ma)
            levels = self._measure_arms(plan, circuit)
        return plan, replace(levels, trimmed_db=tuple(trimmed_db))

    # Seeing -----------------------------------------------------------------------------------------------------------

    def _measure_arms(self, plan: CircuitPlan, circuit: PlannedCircuit) -> ArmLevels:
        diversions = [self._find_diversion(plan, circuit, arm) for arm in circuit.arms]
        safe_diversions = [diversion for diversion in diversions if diversion is not None]
        if len(safe_diversions) < len(diversions):
            arm = circuit.arms[diversions.index(None)]
            reason = f"no PUC that only arm {_name(arm)} uses can divert its light"
            return ArmLevels(unresolved=f"{reason} without lighting a receiver")
        levels_w = [0.0] * len(safe_diversions)
        try:
            for index, (_, currents_ma) in enumerate(safe_diversions):
                self._bench.mesh.program(currents_ma)
                # With one arm diverted, the receiver sees the other arm.
                levels_w[1 - index] = self._received_w(circuit.request.target)
        finally:
            self._bench.mesh.program(plan.currents_ma)
        # The difference of two means of _READS readings has this standard error.
        levels = ArmLevels(
            tuple(dbm_from_w(level_w) if level_w > 0.0 else None for level_w in levels_w),
            tuple(puc for puc, _ in safe_diversions),
            _READING_SIGMA_DB * math.sqrt(2.0 / _READS),
        )
        if all(level is None for level in levels.received_dbm):
            return replace(levels, unresolved="the receiver reports no power from either arm")
        return replace(levels, failure=_arm_failure(circuit, levels))

    def _find_diversion(self, plan: CircuitPlan, circuit: PlannedCircuit, arm: CircuitArm) -> tuple[int, Real] | None:
        candidates = []
        for wave, state in self._trimmer(plan).unshared_passes(arm.path):
            puc = wave // 4
            if arm.trim is None or arm.trim.puc != puc:
                currents_ma = self._with_puc_set(plan.currents_ma, puc, PucTarget.state(opposite_state(state)))
                if currents_ma is not None:
                    candidates.append((self._stray_light_db(plan, circuit, currents_ma, arm), puc, currents_ma))
        stray_db, puc, currents_ma = min(
            candidates, key=lambda candidate: candidate[0], default=(math.inf, -1, plan.currents_ma)
        )
        return (puc, currents_ma) if stray_db < _DARK_ENOUGH_DB else None

    def _stray_light_db(
        self, plan: CircuitPlan, circuit: PlannedCircuit, currents_ma: Real, diverted: CircuitArm | None = None
    ) -> float:
        """Return the strongest stray light at receivers in a setting, relative to the circuit's weakest arm, in dB.

        If the setting diverts an arm, pass it as ``diverted``; none of its light may reach a receiver.
        """
        wiring, devices = self._bench.wiring, self._bench.model.devices
        entries = {
            path.port: devices[path.transponder].optics
            for path in wiring.inputs
            if path.transponder in self._transmitting
        }
        sources = {port: math.nan if optics is None else optics.emits_nm for port, optics in entries.items()}
        power = {port: np.abs(field) ** 2 for port, field in self._planning.fields(currents_ma, sources).items()}
        receivers = {output.port for output in wiring.outputs if output.transponder is not None}
        # The end of a diverted arm still leads to the receiver, for light of other circuits.
        ends = {arm.exit.port for arm in circuit.arms}
        stray_w = [
            power[arm.entry.port][sorted(receivers - ({arm.exit.port} if arm is not diverted else set()))].max()
            for arm in circuit.arms
        ]
        own = {arm.entry.port for arm in circuit.arms}
        stray_w += [power[port][sorted(ends)].max() for port in power.keys() - own]
        weakest = min(power[arm.entry.port][arm.exit.port] for arm in circuit.arms if arm is not diverted)
        return 10.0 * math.log10(max(float(max(stray_w) / weakest), 1e-20))

    def _transmitting_modules(self, plan: CircuitPlan, circuit: PlannedCircuit) -> set[str]:
        # A coherent receiver's own transmitter is on, even if no circuit uses its light.
        transmitting = {other.request.source for other in plan.circuits} | {circuit.request.target}
        for name in {path.transponder for path in self._bench.wiring.inputs if path.transponder} - transmitting:
            module = self._bench.transponders.get(name)
            try:
                status = None if module is None else module.status()
            except LumionError:
                status = None
            if status is None or not (status.tx_disabled or status.tx_fault):
                transmitting.add(name)
        return transmitting

    def _received_w(self, name: str) -> float:
        clock, module, readings = self._bench.clock, self._bench.transponders[name], list[float]()
        # The module may still show a reading from before the mesh changed.
        clock.sleep(_UPDATE_S)
        for _ in range(_READS):
            clock.sleep(_APART_S)
            received_dbm = module.monitors().rx_power_dbm
            readings.append(0.0 if received_dbm is None else w_from_dbm(received_dbm))
        return sum(readings) / len(readings)

    # Trimming ---------------------------------------------------------------------------------------------------------

    def _with_trims(
        self, plan: CircuitPlan, circuit: PlannedCircuit, wanted_db: Sequence[tuple[float, float]]
    ) -> tuple[CircuitPlan, PlannedCircuit] | None:
        """Return plan and circuit with new added losses (trims) of the arms; ``None`` if no PUC can add that loss."""
        currents_ma, arms = plan.currents_ma, list(circuit.arms)
        for index, (present_db, then_db) in enumerate(wanted_db):
            if then_db == present_db:
                continue
            tried = islice(self._trims(plan, currents_ma, arms[index], then_db), _MAX_TRIMS)
            candidates = [(self._stray_light_db(plan, circuit, then_ma), trim, then_ma) for trim, then_ma in tried]
            if not candidates:
                return None
            # Trims below the harmless level tie, so that the first of them is used, in the order of `_trims`.
            _, trim, currents_ma = min(candidates, key=lambda candidate: max(candidate[0], _HARMLESS_DB))
            arms[index] = replace(arms[index], trim=trim, loss_db=arms[index].loss_db + then_db - present_db)
        levelled = circuit.with_arms(arms)
        circuits = tuple(levelled if other is circuit else other for other in plan.circuits)
        heat_mw = float(self._planning.heat_mw(currents_ma).sum())
        return replace(plan, circuits=circuits, currents_ma=currents_ma, heat_mw=heat_mw), levelled

    def _trims(
        self, plan: CircuitPlan, currents_ma: Real, arm: CircuitArm, loss_db: float
    ) -> Iterator[tuple[ArmTrim | None, Real]]:
        """Yield PUC settings that add loss to an arm, with heater currents; least stray light first."""
        if arm.trim is not None:
            # First undo the present trim, which may be changed or moved to another PUC.
            state = plan.routing.states[arm.trim.puc]
            back_ma = self._with_puc_set(currents_ma, arm.trim.puc, PucTarget.state(state))
            if back_ma is None:
                return
            currents_ma = back_ma
        if loss_db < _MIN_TRIM_DB:
            yield None, currents_ma
        for trim in self._trimmer(plan).options(arm.path, loss_db):
            target = PucTarget.coupling(trim.coupling, self._planning.calibrated.coupler(trim.puc))
            then_ma = self._with_puc_set(currents_ma, trim.puc, target)
            if then_ma is not None:
                yield trim, then_ma

    def _trimmer(self, plan: CircuitPlan) -> Trimmer:
        paths = [path for circuit in plan.circuits for path in circuit.paths]
        bench = self._bench
        return Trimmer(bench.mesh.topology, self._planning, bench.wiring, plan.states, plan.currents_ma, paths)

    def _with_puc_set(self, currents_ma: Real, puc: int, target: PucTarget) -> Real | None:
        calibrated = self._planning.calibrated
        cells = calibrated.cells(currents_ma)
        present_rad = float((cells.phase_upper - cells.phase_lower)[puc])
        # The smallest change of phase first, so that the heat, and with it the crosstalk to other circuits, changes
        # little. Where the heater's range ends, a full turn more or less gives the same state.
        nearest = [math.remainder(phase_rad - present_rad, 2.0 * math.pi) for phase_rad in target.differentials_rad]
        changes = [change_rad + turn for change_rad in nearest for turn in (0.0, 2.0 * math.pi, -2.0 * math.pi)]
        for by_rad in sorted(changes, key=abs):
            try:
                return shifted_currents_ma(calibrated, currents_ma, puc, by_rad)
            except LimitError:
                continue
        return None


def _name(arm: CircuitArm) -> str:
    return arm.entry.tributary or arm.exit.tributary or f"over port {arm.entry.port}"


def _arm_failure(circuit: PlannedCircuit, levels: ArmLevels) -> str:
    """Return which arm brings too little light to the receiver; an empty string if neither does."""
    by_level = [
        (-math.inf if level is None else level, arm, level)
        for arm, level in zip(circuit.arms, levels.received_dbm, strict=True)
    ]
    (low, arm, level), (high, _, _) = sorted(by_level, key=lambda item: item[0])
    if high - low <= _MAX_LEVELLED_DB:
        return ""
    level_text = "no light" if level is None else f"{level:.1f} dBm"
    puc = levels.diverted_at[1 - circuit.arms.index(arm)]
    where = f"arm {_name(arm)} (ports {arm.entry.port} to {arm.exit.port}) brings {level_text} to the receiver"
    return f"{where} while the other arm is diverted at PUC {puc}; the other arm brings {high:.1f} dBm"


def _trim_changes_db(circuit: PlannedCircuit, levels: ArmLevels) -> list[tuple[float, float]] | None:
    present_db = [0.0 if arm.trim is None else arm.trim.loss_db for arm in circuit.arms]
    excess_db = levels.imbalance_db or 0.0
    if excess_db <= _LEVEL_TOLERANCE_DB:
        return None
    dim, bright = levels.arms_by_power
    then = present_db.copy()
    # First reduce a trim of the weaker arm, except the part that keeps both below the overload level.
    then[dim] -= min(excess_db, present_db[dim] - min(present_db))
    then[bright] += excess_db - (present_db[dim] - then[dim])
    return list(zip(present_db, then, strict=True))
