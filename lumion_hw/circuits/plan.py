"""Planning circuits: routes, heater settings and link budgets, before anything is changed or any device is asked."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from lumion_hw.bench.bench import Bench
from lumion_hw.bench.fibre_devices import wiring_with_device_losses
from lumion_hw.bench.file.model import BenchModel
from lumion_hw.circuits.budget import MAX_IDLE_LIGHT_DB, MAX_IMBALANCE_DB, BudgetViolation, violations
from lumion_hw.circuits.ends import CircuitEnds, circuit_ends, pairings
from lumion_hw.circuits.planned import ArmTrim, CircuitArm, CircuitPlan, PlannedCircuit, Strategy
from lumion_hw.circuits.planning_mesh import PlanningMesh, Real, planning_mesh
from lumion_hw.circuits.reckoning import RoutedCircuit, with_budgets
from lumion_hw.circuits.refusal import BudgetError, refused
from lumion_hw.circuits.request import CircuitRequest
from lumion_hw.circuits.trimming import Trimmer
from lumion_hw.circuits.ways import Ceilings, PlanningEffort, WayFinder
from lumion_hw.errors import LimitError, RoutingError
from lumion_hw.interfaces.wiring import Wiring
from lumion_hw.mesh.layout.topology import MeshTopology, State
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.mesh.routing import Path, Routing
from lumion_hw.mesh.routing.parking import park_unused_pucs
from lumion_hw.mesh.routing.request import Progress, no_progress, opposite_state

__all__ = ["ArmTrim", "CircuitArm", "CircuitPlan", "CircuitRequest", "PlannedCircuit", "Strategy", "plan_circuits"]

_TRIM_ABOVE_DB = 0.5 * MAX_IMBALANCE_DB
"""Arms that differ by less are left alone; the other half of the limit is for what the prediction does not know."""
_BELOW_OVERLOAD_DB = 1.0
"""Light that would overload a receiver is trimmed to so much below."""
_MOST_TRIMS = 5
"""PUCs of an arm that are tried for a trim, until …"""
_DARK_ENOUGH_DB = -35.0
"""… no receiver gets more than this of light that is not for it."""
_EXPLAIN_S = 10.0
"""Time to find the few circuits that conflict, where there are no ways for all."""
_ALTERNATIVES_S = 60.0
"""Other pairings of arms and other lengths are tried for so long."""
_ROUNDS = 4
"""Routings tried until every circuit keeps its ceilings."""
_DARKER_ROUNDS = 3
"""Routings tried until no idle receiver gets more light than wanted, …"""
_DARKER_DB = MAX_IDLE_LIGHT_DB - 2.0
"""… 2 dB kept for phases and couplers that the record knows to a milliradian."""


def plan_circuits(
    bench: Bench | BenchModel,
    record: CalibrationRecord,
    requests: Sequence[CircuitRequest],
    *,
    fixed: Mapping[int, State] | None = None,
    standing: Sequence[PlannedCircuit] = (),
    improve_s: float = 0.0,
    progress: Progress = no_progress,
) -> CircuitPlan:
    """Plan circuits on a calibrated bench; nothing is changed, and no device is asked but those in the fibres.

    Routes take the least loss; PUCs that no circuit uses are parked in the cross state, or in bar where that opens a
    closed ring. A state that a PUC's heaters do not reach is neither used nor parked in. Of two arms the better one is
    trimmed, and so is light that would overload a receiver.

    Args:
        bench: The bench, or its checked file alone: for a plan without any device. Of an open bench attenuators,
            switches and amplifiers in the fibres count as they are set, of a file as if they took nothing.
        record: Calibration of its mesh.
        requests: Circuits wanted, planned together; those of higher priority choose their ways first.
        fixed: States that have to stay. A circuit all of whose PUCs are fixed keeps its path.
        standing: Circuits of an earlier plan that keep their ways and count what leaks into them.
        improve_s: Time to look for better routes than the first ones found.
        progress: Called with what is being done, steps done and steps at most, when routes are not found at once.

    Raises:
        CircuitError: A module is not wired to the mesh, or two modules cannot work together.
        BudgetError: A number of a circuit is not what it has to be; the message says which, and what would do.
        NoPathError: No conflict-free routes, and that is proven; the message says why.
        UndecidedError: None were found, and nothing was proven.
        LimitError: The heaters of all circuits together are too hot.
        CalibrationError: The record does not belong to this bench.
    """
    model = bench if isinstance(bench, BenchModel) else bench.model
    mesh = _checked(bench, record)
    wiring = model.to_wiring() if isinstance(bench, BenchModel) else wiring_with_device_losses(bench)
    effort = _effort(improve_s, progress)
    return _Draughtsman(model, wiring, mesh, planning_mesh(record), requests, fixed or {}, standing, effort).plan()


def _effort(improve_s: float, progress: Progress) -> PlanningEffort:
    """Return how long to look for ways, from now on."""
    until_s = time.monotonic() + _ALTERNATIVES_S
    return PlanningEffort(improve_s, _EXPLAIN_S, lambda: time.monotonic() >= until_s, progress)


def _checked(bench: Bench | BenchModel, record: CalibrationRecord) -> MeshTopology:
    """Return the mesh of a bench that a record belongs to.

    Raises:
        CalibrationError: It belongs to another one.
    """
    if isinstance(bench, BenchModel):
        mesh, section = bench.topology(), bench.mesh_section
        serial = getattr(bench.devices[section.controller], "serial", None) or record.device_serial
        channels = tuple(channel for pair in section.heater_table() for channel in pair)
        record.check_device(serial, mesh, channels, bench.monitors() or None)
        record.check_complete()
        return record.mesh  # what was worked out of it once is there for the next plan
    bench.mesh.check_record(record)
    return bench.mesh.topology


class _Draughtsman:
    """One plan in the making.

    Args:
        model: The bench.
        wiring: Its fibres.
        mesh: Its mesh.
        planning: What is known of that.
        requests: Circuits wanted.
        fixed: States that have to stay.
        standing: Circuits that keep their ways.
        effort: How long to look for ways.
    """

    def __init__(
        self,
        model: BenchModel,
        wiring: Wiring,
        mesh: MeshTopology,
        planning: PlanningMesh,
        requests: Sequence[CircuitRequest],
        fixed: Mapping[int, State],
        standing: Sequence[PlannedCircuit],
        effort: PlanningEffort,
    ) -> None:
        self._model, self._mesh, self._planning = model, mesh, planning
        self._wiring = wiring
        self._ends = tuple(circuit_ends(model, self._wiring, mesh, request) for request in requests)
        self._standing = tuple(self._stands(circuit) for circuit in standing)
        stands = [path for circuit in standing for path in circuit.paths]
        trimmed = [arm.trim.puc for circuit in standing for arm in circuit.arms if arm.trim is not None]
        alone = [path for circuit in standing if circuit.request.exclusive for path in circuit.paths]
        # Only the refusal of the first pairing is told.
        unexplained = replace(effort, explain_s=0.0)
        self._effort = effort
        self._finders = [
            WayFinder(mesh, planning, ends, fixed, stands, alone, trimmed, unexplained if number else effort)
            for number, ends in enumerate(pairings(self._ends))
        ]
        self._total_mw = float(getattr(model.devices[model.mesh_section.controller], "total_power_mw", float("inf")))

    def plan(self) -> CircuitPlan:
        """Return the plan.

        Raises:
            LumionError: As :func:`plan_circuits`.
        """
        ceilings = self._ceilings()
        try:
            plan = self._drafted(ceilings)
        except RoutingError as error:
            if all(most is None for most in ceilings):
                raise
            return self._without_ceilings(error)
        failing = self._failing(plan)
        for _ in range(_ROUNDS):
            shorter = {
                index for index, found in failing.items() if index >= 0 and any(each.is_of_length for each in found)
            }
            if not shorter:
                break
            ceilings = [
                plan.circuits[index].hops - 1 if index in shorter else most for index, most in enumerate(ceilings)
            ]
            try:
                plan = self._drafted(ceilings)
            except RoutingError:
                break
            failing = self._failing(plan)
        if failing:
            raise self._refusal(plan, failing)
        return self._darker(plan, ceilings)

    def _darker(self, plan: CircuitPlan, ceilings: Ceilings) -> CircuitPlan:
        """Return a plan with less light at idle receivers, if other ways give one that is as good else.

        What reaches one is what couplers that are not balanced leave over. The PUC at its port is parked the other way,
        or if circuits pass it they are led round it; where that was not enough, round the PUC that leaks.
        """
        avoided, turned, best = set[int](), set[int](), plan
        for _ in range(_DARKER_ROUNDS):
            lit = [(circuit, leak.port) for circuit in plan.circuits for leak in circuit.budget.idle_above(_DARKER_DB)]
            if not lit:
                break
            at_ports = {int(self._mesh.port_puc_port[port]) // 4 for _, port in lit}
            if at_ports <= avoided | turned:
                at_ports = {
                    self._planning.leaking_puc(plan.currents_ma, path, port)
                    for circuit, port in lit
                    for path in circuit.paths
                }
            passed = at_ports & plan.routing.states.keys()
            avoided, turned = avoided | passed, turned | at_ports - passed
            try:
                plan = self._drafted(ceilings, avoided, turned)
            except (RoutingError, LimitError):
                break
            if not self._failing(plan) and _idle_light_db(plan) < _idle_light_db(best):
                best = plan
        return best

    def _without_ceilings(self, error: RoutingError) -> CircuitPlan:
        """Return the plan that needs no ceilings, or say by how much they are broken."""
        try:
            plan = self._drafted([None] * len(self._ends))
        except RoutingError:
            raise error from None
        failing = self._failing(plan)
        if failing:
            raise self._refusal(plan, failing) from error
        return plan

    def _refusal(self, plan: CircuitPlan, failing: Mapping[int, Sequence[BudgetViolation]]) -> BudgetError:
        index = max(failing)
        circuit = plan.circuits[index] if index >= 0 else plan.standing[-1 - index]
        return refused(circuit, failing[index])

    def _failing(self, plan: CircuitPlan) -> dict[int, list[BudgetViolation]]:
        """Return what fails of each circuit that fails; circuits that stand are counted down from -1."""
        found = {
            index: list(violations(circuit.request, circuit.budget, circuit.hops))
            for index, circuit in enumerate(plan.circuits)
        }
        for index, circuit in enumerate(plan.standing):
            # Of what stands only that counts which others do to it.
            suffers = violations(circuit.request, circuit.budget, circuit.hops)
            found[-1 - index] = [each for each in suffers if each.is_of_others]
        return {index: each for index, each in found.items() if each}

    def _ceilings(self) -> list[int | None]:
        """Return the most PUCs that each circuit can have without its loss being too much, whichever they are."""
        typical_db = self._model.mesh_section.typical.access_loss_db
        least_db = float(self._planning.puc_loss_db.min())
        ceilings: Ceilings = []
        for ends in self._ends:
            request, allowed_db = ends.request, []
            for entry, out in zip(ends.entries, ends.exits, strict=True):
                access_db = (
                    self._planning.into_db(self._wiring, entry, typical_db)[0]
                    + self._planning.out_of_db(out.port, typical_db)[0]
                )
                if request.max_loss_db is not None:
                    allowed_db.append(request.max_loss_db - access_db)
            hops = [] if request.max_hops is None else [request.max_hops]
            # With two arms it is their mean that counts: only where both have to be shorter, none may be as long.
            hops += [max(int(max(allowed_db) / least_db + 1e-9), 0)] if allowed_db else []
            ceilings.append(min(hops) if hops else None)
        return ceilings

    def _drafted(self, ceilings: Ceilings, avoided: Collection[int] = (), turned: Collection[int] = ()) -> CircuitPlan:
        """Return a plan that keeps ceilings of hops, whatever its budgets say.

        Args:
            ceilings: Most PUCs of each circuit.
            avoided: PUCs that circuits are led round, where that is not too far.
            turned: PUCs that are parked the other way than parking has it.
        """
        ends, paths, routing = self._found(ceilings, avoided)
        parked = dict(park_unused_pucs(self._mesh, routing.states, unusable=self._planning.unusable).states)
        for puc in parked.keys() & set(turned) - routing.states.keys():
            if (puc, opposite_state(parked[puc])) not in self._planning.unusable:
                parked[puc] = opposite_state(parked[puc])
        routed = [RoutedCircuit(each, own, (None,) * len(own)) for each, own in zip(ends, paths, strict=True)]
        circuits, currents = self._trimmed(routed, parked)
        n_standing = len(self._standing)
        heat_mw = float(self._planning.heat_mw(currents).sum())
        return CircuitPlan(circuits[n_standing:], routing, parked, currents, circuits[:n_standing], heat_mw)

    def _found(
        self, ceilings: Ceilings, avoided: Collection[int]
    ) -> tuple[Sequence[CircuitEnds], list[tuple[Path, ...]], Routing]:
        """Return ways for the first pairing of inputs and outputs that has any."""
        refusal: RoutingError | None = None
        for finder in self._finders:
            try:
                return finder.ends, *finder.find(ceilings, avoided)
            except RoutingError as error:
                refusal = refusal or error
            if self._effort.is_over():
                break
        raise refusal or RoutingError("no pairing of inputs and outputs was tried")

    def _set(
        self, routed: Sequence[RoutedCircuit], states: Mapping[int, State]
    ) -> tuple[tuple[PlannedCircuit, ...], Real]:
        """Return all circuits with their budgets, those that stand first, and the heater currents."""
        everything = [*self._standing, *routed]
        couplings = {trim.puc: trim.coupling for each in everything for trim in each.trims if trim is not None}
        currents = self._planning.currents_ma(states, couplings, self._total_mw)
        return with_budgets(self._model, self._wiring, self._planning, everything, currents), currents

    def _stands(self, circuit: PlannedCircuit) -> RoutedCircuit:
        """Return a circuit of an earlier plan, on the ways it has."""
        ends = replace(
            circuit_ends(self._model, self._wiring, self._mesh, circuit.request),
            entries=tuple(arm.entry for arm in circuit.arms),
            exits=tuple(arm.exit for arm in circuit.arms),
        )
        return RoutedCircuit(ends, circuit.paths, tuple(arm.trim for arm in circuit.arms))

    def _trimmed(
        self, routed: list[RoutedCircuit], states: Mapping[int, State]
    ) -> tuple[tuple[PlannedCircuit, ...], Real]:
        """Return circuits and currents with what has to be trimmed from arms, one arm after the other."""
        circuits, currents = self._set(routed, states)
        own = circuits[len(self._standing) :]
        todo = [
            (index, arm, loss_db)
            for index, circuit in enumerate(own)
            for arm, loss_db in enumerate(_too_much_db(circuit))
            if loss_db > 0.0
        ]
        paths = [path for each in (*self._standing, *routed) for path in each.paths]
        # Where one arm's stray goes depends on the other trims: what was chosen first is looked at once more.
        for index, arm, loss_db in todo * 2:
            if routed[index].trims[arm] is not None and _darkness_db(circuits) < _DARK_ENOUGH_DB:
                continue
            trimmer = Trimmer(self._mesh, self._planning, self._wiring, states, currents, paths)
            best: tuple[float, list[RoutedCircuit], tuple[PlannedCircuit, ...], Real] | None = None
            for trim in trimmer.options(routed[index].paths[arm], loss_db)[:_MOST_TRIMS]:
                trims = (*routed[index].trims[:arm], trim, *routed[index].trims[arm + 1 :])
                tried = [*routed[:index], replace(routed[index], trims=trims), *routed[index + 1 :]]
                try:
                    then, currents_ma = self._set(tried, states)
                except LimitError:
                    continue  # the heaters of that PUC do not reach it
                dark_db = _darkness_db(then)
                if best is None or dark_db < best[0]:
                    best = dark_db, tried, then, currents_ma
                if dark_db < _DARK_ENOUGH_DB:
                    break
            if best is not None:
                _, routed, circuits, currents = best
        return circuits, currents


def _darkness_db(circuits: Sequence[PlannedCircuit]) -> float:
    return max(circuit.budget.darkness_db for circuit in circuits)


def _idle_light_db(plan: CircuitPlan) -> float:
    found = (leak.level_db for circuit in plan.circuits for leak in circuit.budget.idle_above(_DARKER_DB))
    return max(found, default=-math.inf)


def _too_much_db(circuit: PlannedCircuit) -> list[float]:
    """Return by how much each arm is too bright: for the other arm, and for the receiver."""
    budget = circuit.budget
    losses = [arm.total_loss_db for arm in circuit.arms]
    excess = [max(losses) - loss for loss in losses] if budget.imbalance_db > _TRIM_ABOVE_DB else [0.0] * len(losses)
    most_dbm = budget.overload_dbm - circuit.request.min_margin_db
    least_dbm = budget.sensitivity_dbm + circuit.request.min_margin_db
    if budget.received_dbm > most_dbm > least_dbm:
        down_db = budget.received_dbm - max(most_dbm - _BELOW_OVERLOAD_DB, 0.5 * (most_dbm + least_dbm))
        excess = [each + down_db for each in excess]
    return excess
