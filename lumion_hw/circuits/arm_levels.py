"""The two arms of a signal of two polarizations, told apart at its receiver, and levelled there.

What an arm loses behind the mesh no photodiode on the chip sees, and a calibration without meters there does not know
it. The receiver's own power reading does, and needs no lock; but it counts both arms together. So one arm after the
other is led aside at a PUC that only this arm passes, for as long as some readings take. What is left is the light of
the other arm, which is thereby proven. The brighter one is then trimmed by what it has too much.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from lumion_hw.bench.bench import Bench
from lumion_hw.circuits.budget import MAX_IMBALANCE_DB
from lumion_hw.circuits.phase_trim import shifted_currents_ma
from lumion_hw.circuits.planned import ArmTrim, CircuitArm, CircuitPlan, PlannedCircuit
from lumion_hw.circuits.planning_mesh import planning_mesh
from lumion_hw.circuits.trimming import Trimmer
from lumion_hw.errors import LimitError, LumionError
from lumion_hw.mesh.programming.heater_currents import PucTarget
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.mesh.routing.request import opposite_state
from lumion_hw.quantities import dbm_from_w, w_from_dbm

Real = NDArray[np.float64]

_UPDATE_S = 0.5
"""Modules refresh their monitors some times a second; readings before that are those of before (assumed)."""
_READS, _APART_S = 4, 0.15
_READING_SIGMA_DB = 0.1
"""Modules resolve received power to 0.1 dB."""
_LEVEL_WITHIN_DB = 0.5 * MAX_IMBALANCE_DB
_ROUNDS = 2
_MOST_LEVELLED_DB = 6.0
"""An arm that is dimmer by more has lost its light; to take as much off the other would hide that."""
_DARK_ENOUGH_DB = -25.0
"""An arm is led aside only where no receiver gets more than this of its light."""
_NO_TRIM_DB = 0.02
_MOST_TRIMS = 5
_HARMLESS_DB = -35.0
"""Of trims that bring less than this of one arm to the end of the other, none is better than another."""


@dataclass(frozen=True)
class ArmLevels:
    """The arms of one circuit as its receiver sees them, one at a time.

    Attributes:
        received_dbm: Power of each arm at the receiver; ``None`` if it is dark.
        aside: PUC at which each arm was led aside.
        sigma_db: Standard error of the difference.
        trimmed_db: What was taken off each arm because of it; below 0 where a trim was taken back.
        failure: Why the arms are not proven; empty if they are.
        untold: Why they could not be told apart; empty if they were. The rest then says nothing.
    """

    received_dbm: tuple[float | None, ...] = ()
    aside: tuple[int, ...] = ()
    sigma_db: float = math.nan
    trimmed_db: tuple[float, ...] = ()
    failure: str = ""
    untold: str = ""

    @property
    def imbalance_db(self) -> float | None:
        """Loss of the dimmer arm over the brighter one."""
        levels = [each for each in self.received_dbm if each is not None]
        return max(levels) - min(levels) if levels and len(levels) == len(self.received_dbm) else None

    @property
    def dimmer_first(self) -> tuple[int, ...]:
        """The arms by what they bring, the dimmest first; an arm without light is dimmer than any level in dBm."""
        levels = [-math.inf if level is None else level for level in self.received_dbm]
        return tuple(sorted(range(len(levels)), key=levels.__getitem__))


class ArmLeveller:
    """Tells arms apart and levels them, for circuits that carry no traffic yet.

    Args:
        bench: The bench, the circuits' light on.
        record: Calibration of its mesh.
    """

    def __init__(self, bench: Bench, record: CalibrationRecord) -> None:
        self._bench = bench
        self._planning = planning_mesh(record)
        self._lit: set[str] = set()

    def level(self, plan: CircuitPlan, circuit: PlannedCircuit) -> tuple[CircuitPlan, ArmLevels]:
        """Tell the arms of a circuit apart, and level them by its trims.

        Whatever happens, no arm stays led aside.

        Args:
            plan: All that is set up, as it is driven.
            circuit: One of its circuits, of two arms.

        Returns:
            The plan as it is driven then, and what was seen last.

        Raises:
            LumionError: A device failed.
        """
        taken_db = [0.0] * len(circuit.arms)
        self._lit = self._found_lit(plan, circuit)
        levels = self._seen(plan, circuit)
        for _ in range(_ROUNDS):
            wanted = None if levels.failure or levels.untold else _wanted_trims_db(circuit, levels)
            trimmed = None if wanted is None else self._trimmed(plan, circuit, wanted)
            if wanted is None or trimmed is None:
                break
            taken_db = [sum(each) for each in zip(taken_db, (b - a for a, b in wanted), strict=True)]
            plan, circuit = trimmed
            self._bench.mesh.program(plan.currents_ma)
            levels = self._seen(plan, circuit)
        return plan, replace(levels, trimmed_db=tuple(taken_db))

    # Seeing -----------------------------------------------------------------------------------------------------------

    def _seen(self, plan: CircuitPlan, circuit: PlannedCircuit) -> ArmLevels:
        asides = [self._aside(plan, circuit, arm) for arm in circuit.arms]
        found = [each for each in asides if each is not None]
        if len(found) < len(asides):
            arm = circuit.arms[asides.index(None)]
            why = f"no PUC that only arm {_name(arm)} passes can lead its light aside"
            return ArmLevels(untold=f"{why} without lighting a receiver")
        levels_w = [0.0] * len(found)
        try:
            for index, (_, currents_ma) in enumerate(found):
                self._bench.mesh.program(currents_ma)
                # Of two arms: what is left is the light of the other.
                levels_w[1 - index] = self._received_w(circuit.request.target)
        finally:
            self._bench.mesh.program(plan.currents_ma)
        levels = ArmLevels(
            tuple(dbm_from_w(each) if each > 0.0 else None for each in levels_w),
            tuple(puc for puc, _ in found),
            _READING_SIGMA_DB * math.sqrt(2.0 / _READS),
        )
        if all(level is None for level in levels.received_dbm):
            return replace(levels, untold="the receiver tells no power with either of them")
        return replace(levels, failure=_failure(circuit, levels))

    def _aside(self, plan: CircuitPlan, circuit: PlannedCircuit, arm: CircuitArm) -> tuple[int, Real] | None:
        """Return the PUC where an arm can be led aside with the least harm, and the currents that do it."""
        found = []
        for wave, state in self._trimmer(plan).unshared_waves(arm.path):
            puc = wave // 4
            if arm.trim is None or arm.trim.puc != puc:
                currents_ma = self._set(plan.currents_ma, puc, PucTarget.state(opposite_state(state)))
                if currents_ma is not None:
                    found.append((self._astray_db(plan, circuit, currents_ma, arm), puc, currents_ma))
        astray_db, puc, currents_ma = min(found, key=lambda each: each[0], default=(math.inf, -1, plan.currents_ma))
        return (puc, currents_ma) if astray_db < _DARK_ENOUGH_DB else None

    def _astray_db(
        self, plan: CircuitPlan, circuit: PlannedCircuit, currents_ma: Real, aside: CircuitArm | None = None
    ) -> float:
        """Return the most light that is where it should not be, over what the arms have at their ends.

        That of an arm at a receiver's port that is not its end, and all other light at the ends of this circuit. Of the
        whole field: to lead one arm aside may lead what strays of others to a receiver.

        Args:
            plan: All that is lit.
            circuit: The circuit.
            currents_ma: The setting.
            aside: An arm that is led aside in it: none of its light is to be anywhere.
        """
        wiring, devices = self._bench.wiring, self._bench.model.devices
        entries = {
            path.port: devices[path.transponder].optics for path in wiring.inputs if path.transponder in self._lit
        }
        sources = {port: math.nan if optics is None else optics.emits_nm for port, optics in entries.items()}
        power = {port: np.abs(field) ** 2 for port, field in self._planning.fields(currents_ma, sources).items()}
        receivers = {out.port for out in wiring.outputs if out.transponder is not None}
        # The end of an arm that is led aside is a way to the receiver as well: for the light of others.
        ends = {arm.exit.port for arm in circuit.arms}
        astray = [
            power[arm.entry.port][sorted(receivers - ({arm.exit.port} if arm is not aside else set()))].max()
            for arm in circuit.arms
        ]
        own = {arm.entry.port for arm in circuit.arms}
        astray += [power[port][sorted(ends)].max() for port in power.keys() - own]
        least = min(power[arm.entry.port][arm.exit.port] for arm in circuit.arms if arm is not aside)
        return 10.0 * math.log10(max(float(max(astray) / least), 1e-20))

    def _found_lit(self, plan: CircuitPlan, circuit: PlannedCircuit) -> set[str]:
        """Return the modules whose light enters the mesh, those that no circuit takes it from among them.

        They too may reach a receiver when an arm is led aside. One that does not answer may be on.
        """
        # A coherent receiver's own transmitter is on, with a circuit of its own or without.
        lit = {each.request.source for each in plan.circuits} | {circuit.request.target}
        for name in {path.transponder for path in self._bench.wiring.inputs if path.transponder} - lit:
            module = self._bench.transponders.get(name)
            try:
                status = None if module is None else module.status()
            except LumionError:
                status = None
            if status is None or not (status.tx_disabled or status.tx_fault):
                lit.add(name)
        return lit

    def _received_w(self, name: str) -> float:
        """Return the power that a module receives, averaged; 0 where it reads none."""
        clock, module, readings = self._bench.clock, self._bench.transponders[name], list[float]()
        clock.sleep(_UPDATE_S)
        for _ in range(_READS):
            clock.sleep(_APART_S)
            received_dbm = module.monitors().rx_power_dbm
            readings.append(0.0 if received_dbm is None else w_from_dbm(received_dbm))
        return sum(readings) / len(readings)

    # Trimming ---------------------------------------------------------------------------------------------------------

    def _trimmed(
        self, plan: CircuitPlan, circuit: PlannedCircuit, wanted_db: Sequence[tuple[float, float]]
    ) -> tuple[CircuitPlan, PlannedCircuit] | None:
        """Return plan and circuit with other trims; ``None`` where no PUC can take so much off."""
        currents_ma, arms = plan.currents_ma, list(circuit.arms)
        for index, (now_db, then_db) in enumerate(wanted_db):
            if then_db == now_db:
                continue
            tried = islice(self._trims(plan, currents_ma, arms[index], then_db), _MOST_TRIMS)
            found = [(self._astray_db(plan, circuit, then_ma), trim, then_ma) for trim, then_ma in tried]
            if not found:
                return None
            _, trim, currents_ma = min(found, key=lambda each: max(each[0], _HARMLESS_DB))
            arms[index] = replace(arms[index], trim=trim, loss_db=arms[index].loss_db + then_db - now_db)
        levelled = circuit.with_arms(arms)
        circuits = tuple(levelled if each is circuit else each for each in plan.circuits)
        heat_mw = float(self._planning.heat_mw(currents_ma).sum())
        return replace(plan, circuits=circuits, currents_ma=currents_ma, heat_mw=heat_mw), levelled

    def _trims(
        self, plan: CircuitPlan, currents_ma: Real, arm: CircuitArm, loss_db: float
    ) -> Iterator[tuple[ArmTrim | None, Real]]:
        """Yield trims of an arm with the currents that make them, those first whose stray harms least."""
        if arm.trim is not None:
            # Back to the state first: what it keeps, or where another PUC takes over.
            state = plan.routing.states[arm.trim.puc]
            back_ma = self._set(currents_ma, arm.trim.puc, PucTarget.state(state))
            if back_ma is None:
                return
            currents_ma = back_ma
        if loss_db < _NO_TRIM_DB:
            yield None, currents_ma
        for trim in self._trimmer(plan).options(arm.path, loss_db):
            target = PucTarget.coupling(trim.coupling, self._planning.known.coupler(trim.puc))
            then_ma = self._set(currents_ma, trim.puc, target)
            if then_ma is not None:
                yield trim, then_ma

    def _trimmer(self, plan: CircuitPlan) -> Trimmer:
        paths = [path for circuit in plan.circuits for path in circuit.paths]
        bench = self._bench
        return Trimmer(bench.mesh.topology, self._planning, bench.wiring, plan.states, plan.currents_ma, paths)

    def _set(self, currents_ma: Real, puc: int, target: PucTarget) -> Real | None:
        """Return currents with one PUC set otherwise; ``None`` where its heaters do not reach it."""
        known = self._planning.known
        cells = known.cells(currents_ma)
        now_rad = float((cells.phase_upper - cells.phase_lower)[puc])
        nearest = [math.remainder(each - now_rad, 2.0 * math.pi) for each in target.differentials_rad]
        changes = [each + turn for each in nearest for turn in (0.0, 2.0 * math.pi, -2.0 * math.pi)]
        for by_rad in sorted(changes, key=abs):
            try:
                return shifted_currents_ma(known, currents_ma, puc, by_rad)
            except LimitError:
                continue
        return None


def _name(arm: CircuitArm) -> str:
    return arm.entry.tributary or arm.exit.tributary or f"over port {arm.entry.port}"


def _failure(circuit: PlannedCircuit, levels: ArmLevels) -> str:
    """Say which arm brings its receiver no light, or far too little."""
    told = [
        (-math.inf if level is None else level, arm, level)
        for arm, level in zip(circuit.arms, levels.received_dbm, strict=True)
    ]
    (low, arm, level), (high, _, _) = sorted(told, key=lambda each: each[0])
    if high - low <= _MOST_LEVELLED_DB:
        return ""
    seen = "no light" if level is None else f"{level:.1f} dBm"
    puc = levels.aside[1 - circuit.arms.index(arm)]
    where = f"arm {_name(arm)} over ports {arm.entry.port} and {arm.exit.port} brings {seen} to the receiver"
    return f"{where}, seen alone with the other led aside at PUC {puc}; that one brings {high:.1f} dBm"


def _wanted_trims_db(circuit: PlannedCircuit, levels: ArmLevels) -> list[tuple[float, float]] | None:
    """Return what each arm loses by its trim and what it should lose; ``None`` where both are level."""
    now = [0.0 if arm.trim is None else arm.trim.loss_db for arm in circuit.arms]
    excess_db = levels.imbalance_db or 0.0
    if excess_db <= _LEVEL_WITHIN_DB:
        return None
    dim, bright = levels.dimmer_first
    then = now.copy()
    # A trim of the dimmer arm goes first, but for what keeps both below the overload.
    then[dim] -= min(excess_db, now[dim] - min(now))
    then[bright] += excess_db - (now[dim] - then[dim])
    return list(zip(now, then, strict=True))
