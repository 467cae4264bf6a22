"""Planning of circuits: routes, heater settings and link budgets, before anything is changed."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from lumion_hw.bench.bench import Bench
from lumion_hw.bench.fibre_devices import wiring_with_device_losses
from lumion_hw.bench.file.model import BenchModel
from lumion_hw.circuits.plan.budget import MAX_IDLE_LIGHT_DB, MAX_IMBALANCE_DB, BudgetViolation, violations
from lumion_hw.circuits.plan.ends import CircuitEnds, check_modules, circuit_ends, pairings
from lumion_hw.circuits.plan.link_budgets import RoutedCircuit, with_budgets
from lumion_hw.circuits.plan.planned import ArmTrim, CircuitArm, CircuitPlan, PlannedCircuit, Strategy
from lumion_hw.circuits.plan.planning_mesh import PlanningMesh, Real, planning_mesh
from lumion_hw.circuits.plan.refusal import BudgetError, budget_error
from lumion_hw.circuits.plan.request import CircuitRequest
from lumion_hw.circuits.plan.route_finder import HopLimits, PlanningEffort, RouteFinder
from lumion_hw.circuits.plan.trimming import Trimmer
from lumion_hw.errors import LimitError, NoPathError, RoutingError
from lumion_hw.interfaces.wiring import Wiring
from lumion_hw.mesh.layout.topology import MeshTopology, State
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.mesh.routing import Path, RouteRequest, Routing, route
from lumion_hw.mesh.routing.parking import park_unused_pucs
from lumion_hw.mesh.routing.request import Progress, no_progress, opposite_state

__all__ = ["ArmTrim", "CircuitArm", "CircuitPlan", "CircuitRequest", "PlannedCircuit", "Strategy", "plan_circuits"]

_TRIM_ABOVE_DB = 0.5 * MAX_IMBALANCE_DB
"""Two paths of a circuit that differ by less than this are not equalized; the rest of the limit covers errors."""
_BELOW_OVERLOAD_DB = 1.0
"""Light that would overload a receiver is attenuated to this far below the overload level."""
_MAX_TRIMS = 5
"""Largest number of PUCs of a path tried for adding loss."""
_DARK_ENOUGH_DB = -35.0
"""Stray light at receivers in dB, relative to the attenuated path, up to which no other PUC is tried."""
_EXPLAIN_S = 10.0
"""Time to find out which circuits conflict if there are no routes for all."""
_ALTERNATIVES_S = 60.0
"""Time limit for trying other pairings of inputs and outputs, and other path lengths."""
_ROUNDS = 4
"""Largest number of routings tried until every circuit keeps its hop limit."""
_DARKER_ROUNDS = 3
"""Largest number of routings tried to reduce the light at receivers without a circuit."""
_MAX_IN_THE_WAY = 16
"""Largest number of active circuits that are tried as the reason why a circuit has no path."""
_DARKER_DB = MAX_IDLE_LIGHT_DB - 2.0
"""Target for light at receivers without a circuit: 2 dB below the limit, for errors in the calibration record."""


def plan_circuits(
    bench: Bench | BenchModel,
    record: CalibrationRecord,
    requests: Sequence[CircuitRequest],
    *,
    fixed: Mapping[int, State] | None = None,
    active: Sequence[PlannedCircuit] = (),
    improve_s: float = 0.0,
    progress: Progress = no_progress,
) -> CircuitPlan:
    """Plan circuits on a calibrated bench without changing it.

    Routes have the lowest loss. Unused PUCs are parked (set to guide stray light out of the mesh). The stronger of two
    arms is attenuated to the power of the weaker one, and so is light that would overload a receiver.

    Args:
        bench: The bench, or its checked file. An open bench includes the present settings of attenuators, switches and
            amplifiers in the fibres; a file counts them as lossless.
        record: Calibration of the bench's mesh.
        requests: The circuits; those of higher priority choose their routes first.
        fixed: PUC states that must stay.
        active: Active circuits of an earlier plan; they keep their paths.
        improve_s: Time to search for better routes than the first ones found, in seconds.
        progress: Called with the current task, the steps done and the maximum of steps, in long searches.

    Raises:
        CircuitError: A module is not wired to the mesh, or two modules cannot work together.
        BudgetError: A value of a circuit's budget is out of its limits; the message names it and what would help.
        NoPathError: It is proven that there are no conflict-free routes; the message says why.
        UndecidedError: No routes were found, and nothing was proven.
        LimitError: The heaters of all circuits together exceed the power limit.
        CalibrationError: The record does not belong to this bench.
    """
    model = bench if isinstance(bench, BenchModel) else bench.model
    mesh = _checked_mesh(bench, record)
    wiring = model.to_wiring() if isinstance(bench, BenchModel) else wiring_with_device_losses(bench)
    effort = _effort(improve_s, progress)
    return _Planner(model, wiring, mesh, planning_mesh(record), requests, fixed or {}, active, effort).plan()


def _effort(improve_s: float, progress: Progress) -> PlanningEffort:
    until_s = time.monotonic() + _ALTERNATIVES_S
    return PlanningEffort(improve_s, _EXPLAIN_S, lambda: time.monotonic() >= until_s, progress)


def _checked_mesh(bench: Bench | BenchModel, record: CalibrationRecord) -> MeshTopology:
    if isinstance(bench, BenchModel):
        mesh, section = bench.topology(), bench.mesh_section
        serial = bench.controller_serial or record.device_serial
        channels = section.channels()
        record.check_device(serial, mesh, channels, bench.monitors() or None)
        record.check_complete()
        return record.mesh  # its cached planning data serve the next plan too
    bench.mesh.check_record(record)
    return bench.mesh.topology


class _Planner:
    """Plans circuits: finds routes, and shorter routes for circuits whose link budget their length violates."""

    def __init__(
        self,
        model: BenchModel,
        wiring: Wiring,
        mesh: MeshTopology,
        planning: PlanningMesh,
        requests: Sequence[CircuitRequest],
        fixed: Mapping[int, State],
        active: Sequence[PlannedCircuit],
        effort: PlanningEffort,
    ) -> None:
        self._model, self._mesh, self._planning = model, mesh, planning
        self._wiring = wiring
        self._ends = tuple(circuit_ends(model, self._wiring, mesh, request) for request in requests)
        check_modules(self._ends, active)
        self._active = tuple(self._reroute(circuit) for circuit in active)
        self._fixed = fixed
        # Only the first pairing's refusal is reported, so the others need no explanation.
        unexplained = replace(effort, explain_s=0.0)
        self._effort = effort
        self._finders = [
            RouteFinder(mesh, planning, ends, fixed, active, unexplained if number else effort)
            for number, ends in enumerate(pairings(self._ends))
        ]
        self._total_mw = float(getattr(model.devices[model.mesh_section.controller], "total_power_mw", float("inf")))

    def plan(self) -> CircuitPlan:
        """Return the plan.

        Raises:
            RoutingError: No routes exist within the hop limits.
            BudgetError: A link budget is violated, also with shorter routes.
        """
        hop_limits = self._hop_limits()
        try:
            plan = self._plan_once(hop_limits)
        except RoutingError as error:
            if all(limit is None for limit in hop_limits):
                self._name_circuits_in_the_way(error)
                raise
            # Without the limits, the error can say by how much they are too low.
            return self._plan_without_hop_limits(error)
        failing = self._violations_by_circuit(plan)
        for _ in range(_ROUNDS):
            shorter = {
                index
                for index, problems in failing.items()
                if index >= 0 and any(violation.is_of_length for violation in problems)
            }
            if not shorter:
                break
            # One PUC less than the route that failed, so that the same route is not found again.
            hop_limits = [
                plan.circuits[index].hops - 1 if index in shorter else limit for index, limit in enumerate(hop_limits)
            ]
            try:
                plan = self._plan_once(hop_limits)
            except RoutingError:
                break
            failing = self._violations_by_circuit(plan)
        if failing:
            raise self._refusal(plan, failing)
        return self._with_less_idle_light(plan, hop_limits)

    def _with_less_idle_light(self, plan: CircuitPlan, hop_limits: HopLimits) -> CircuitPlan:
        avoided, turned, best = set[int](), set[int](), plan
        for _ in range(_DARKER_ROUNDS):
            idle_leaks = [
                (circuit, leak.port)
                for circuit in plan.circuits
                for leak in circuit.budget.idle_leaks_above(_DARKER_DB)
            ]
            if not idle_leaks:
                break
            at_ports = {int(self._mesh.port_puc_port[port]) // 4 for _, port in idle_leaks}
            # All PUCs at the idle ports have been tried, so go on to the PUCs where the light leaves its path.
            if at_ports <= avoided | turned:
                at_ports = {
                    self._planning.leaking_puc(plan.currents_ma, path, port)
                    for circuit, port in idle_leaks
                    for path in circuit.paths
                }
            passed = at_ports & plan.routing.states.keys()
            avoided, turned = avoided | passed, turned | at_ports - passed
            try:
                plan = self._plan_once(hop_limits, avoided, turned)
            except (RoutingError, LimitError):
                break
            if not self._violations_by_circuit(plan) and _idle_light_db(plan) < _idle_light_db(best):
                best = plan
        return best

    def _plan_without_hop_limits(self, error: RoutingError) -> CircuitPlan:
        """Return a plan made without hop limits if it meets its link budgets; otherwise raise an error."""
        try:
            plan = self._plan_once([None] * len(self._ends))
        except NoPathError as unlimited_error:
            self._name_circuits_in_the_way(unlimited_error)
            raise
        except RoutingError:
            raise error from None
        failing = self._violations_by_circuit(plan)
        if failing:
            raise self._refusal(plan, failing) from error
        return plan

    def _name_circuits_in_the_way(self, error: RoutingError) -> None:
        """Name the active circuits in the hint if a circuit without a path had one without one of them."""
        pairs = [pair for ends in self._ends for pair in ends.pairs]
        is_named = any(str(circuit.ends.request) in error.message for circuit in self._active)
        if not isinstance(error, NoPathError) or error.ports not in pairs or is_named:
            return
        in_the_way = []
        for circuit in self._active[:_MAX_IN_THE_WAY]:
            other_paths = [path for other in self._active if other is not circuit for path in other.paths]
            request = RouteRequest(
                [error.ports], unusable=self._planning.unusable, fixed=self._fixed, active=other_paths
            )
            with contextlib.suppress(RoutingError):
                route(self._mesh, request)
                in_the_way.append(circuit.ends.request.name)
        if in_the_way:
            error.hint = f"Disconnect {' or '.join(in_the_way)}, or use other ports."

    def _refusal(self, plan: CircuitPlan, failing: Mapping[int, Sequence[BudgetViolation]]) -> BudgetError:
        # New circuits have numbers from 0 and active ones negative numbers, so a new circuit is named first.
        index = max(failing)
        circuit = plan.circuits[index] if index >= 0 else plan.active[-1 - index]
        return budget_error(circuit, failing[index])

    def _violations_by_circuit(self, plan: CircuitPlan) -> dict[int, list[BudgetViolation]]:
        """Return the violated budget limits by circuit number; active circuits have the numbers -1, -2, …."""
        result = {
            index: list(violations(circuit.request, circuit.budget, circuit.hops))
            for index, circuit in enumerate(plan.circuits)
        }
        for index, circuit in enumerate(plan.active):
            # Of an active circuit, only violations that other circuits cause are counted.
            own = violations(circuit.request, circuit.budget, circuit.hops)
            result[-1 - index] = [violation for violation in own if violation.is_from_other_circuits]
        return {index: own for index, own in result.items() if own}

    def _hop_limits(self) -> list[int | None]:
        typical_db = self._model.mesh_section.typical.access_loss_db
        # With the loss of the best PUC no possible path is excluded.
        lowest_db = float(self._planning.puc_loss_db.min())
        hop_limits: HopLimits = []
        for ends in self._ends:
            request, allowed_db = ends.request, []
            for entry, output in zip(ends.entries, ends.exits, strict=True):
                access_db = (
                    self._planning.input_loss_db(self._wiring, entry, typical_db)[0]
                    + self._planning.output_loss_db(output.port, typical_db)[0]
                )
                if request.max_loss_db is not None:
                    allowed_db.append(request.max_loss_db - access_db)
            hops = [] if request.max_hops is None else [request.max_hops]
            # The mean loss of two arms counts, so a length is excluded only if it is too long for both arms.
            # The small number keeps a path that just fits from being lost by rounding.
            hops += [max(int(max(allowed_db) / lowest_db + 1e-9), 0)] if allowed_db else []
            hop_limits.append(min(hops) if hops else None)
        return hop_limits

    def _plan_once(
        self, hop_limits: HopLimits, avoided: Collection[int] = (), turned: Collection[int] = ()
    ) -> CircuitPlan:
        ends, paths, routing = self._route(hop_limits, avoided)
        parked = dict(park_unused_pucs(self._mesh, routing.states, unusable=self._planning.unusable).states)
        for puc in parked.keys() & set(turned) - routing.states.keys():
            if (puc, opposite_state(parked[puc])) not in self._planning.unusable:
                parked[puc] = opposite_state(parked[puc])
        routed = [
            RoutedCircuit(circuit_ends, own, (None,) * len(own)) for circuit_ends, own in zip(ends, paths, strict=True)
        ]
        circuits, currents = self._with_trims(routed, parked)
        n_active = len(self._active)
        heat_mw = float(self._planning.heat_mw(currents).sum())
        return CircuitPlan(circuits[n_active:], routing, parked, currents, circuits[:n_active], heat_mw)

    def _route(
        self, hop_limits: HopLimits, avoided: Collection[int]
    ) -> tuple[Sequence[CircuitEnds], list[tuple[Path, ...]], Routing]:
        refusal: RoutingError | None = None
        for finder in self._finders:
            try:
                return finder.ends, *finder.find(hop_limits, avoided)
            except RoutingError as error:
                refusal = refusal or error
            if self._effort.is_over():
                break
        raise refusal or RoutingError("there was no pairing of inputs and outputs to try")

    def _program(
        self, routed: Sequence[RoutedCircuit], states: Mapping[int, State]
    ) -> tuple[tuple[PlannedCircuit, ...], Real]:
        all_circuits = [*self._active, *routed]
        couplings = {trim.puc: trim.coupling for circuit in all_circuits for trim in circuit.trims if trim is not None}
        currents = self._planning.currents_ma(states, couplings, self._total_mw)
        return with_budgets(self._model, self._wiring, self._planning, all_circuits, currents), currents

    def _reroute(self, circuit: PlannedCircuit) -> RoutedCircuit:
        ends = replace(
            circuit_ends(self._model, self._wiring, self._mesh, circuit.request),
            entries=tuple(arm.entry for arm in circuit.arms),
            exits=tuple(arm.exit for arm in circuit.arms),
        )
        return RoutedCircuit(ends, circuit.paths, tuple(arm.trim for arm in circuit.arms))

    def _with_trims(
        self, routed: list[RoutedCircuit], states: Mapping[int, State]
    ) -> tuple[tuple[PlannedCircuit, ...], Real]:
        circuits, currents = self._program(routed, states)
        own = circuits[len(self._active) :]
        without_trim = [
            (index, arm, loss_db)
            for index, circuit in enumerate(own)
            for arm, loss_db in enumerate(_excess_power_db(circuit))
            if loss_db > 0.0
        ]
        paths = [path for circuit in (*self._active, *routed) for path in circuit.paths]
        # The path of one arm's stray light depends on the other trims, so the first choices are checked once more.
        for index, arm, loss_db in without_trim * 2:
            if routed[index].trims[arm] is not None and _darkness_db(circuits) < _DARK_ENOUGH_DB:
                continue
            trimmer = Trimmer(self._mesh, self._planning, self._wiring, states, currents, paths)
            best: tuple[float, list[RoutedCircuit], tuple[PlannedCircuit, ...], Real] | None = None
            for trim in trimmer.options(routed[index].paths[arm], loss_db)[:_MAX_TRIMS]:
                trims = (*routed[index].trims[:arm], trim, *routed[index].trims[arm + 1 :])
                tried = [*routed[:index], replace(routed[index], trims=trims), *routed[index + 1 :]]
                try:
                    then, currents_ma = self._program(tried, states)
                except LimitError:
                    continue  # the PUC's heaters cannot reach this coupling
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
    levels_db = (leak.level_db for circuit in plan.circuits for leak in circuit.budget.idle_leaks_above(_DARKER_DB))
    return max(levels_db, default=-math.inf)


def _excess_power_db(circuit: PlannedCircuit) -> list[float]:
    budget = circuit.budget
    losses = [arm.total_loss_db for arm in circuit.arms]
    excess = [max(losses) - loss for loss in losses] if budget.imbalance_db > _TRIM_ABOVE_DB else [0.0] * len(losses)
    max_dbm = budget.overload_dbm - circuit.request.min_margin_db
    min_dbm = budget.sensitivity_dbm + circuit.request.min_margin_db
    if budget.received_dbm > max_dbm > min_dbm:
        # If the receiver's range is narrower than twice this distance, aim at its middle.
        down_db = budget.received_dbm - max(max_dbm - _BELOW_OVERLOAD_DB, 0.5 * (max_dbm + min_dbm))
        excess = [value_db + down_db for value_db in excess]
    return excess
