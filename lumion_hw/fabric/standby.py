"""Spares that are ready for use, and a recovery plan for every single failure.

A warm spare has its light on: each module sends through the mesh to its own receiver, where its polarization is
aligned. A cold spare has no room for this in the mesh and is aligned during the recovery.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from lumion_hw.circuits import CircuitPlan, CircuitRequest, CircuitService
from lumion_hw.errors import LumionError, RoutingError
from lumion_hw.fabric.servers import FabricUnit, find_unit, replace_server, requests_at, units


@dataclass(frozen=True)
class StandbyPlan:
    """Plan for the failure of a server or accelerator.

    Attributes:
        failed: The server or accelerator that fails.
        removed: Active circuits that are removed: those of the failed one, and the spare's own.
        added: Circuits that replace those of the failed one.
        plan: All circuits that are active afterwards; ``None`` if it is made only when needed.
        moved: Other circuits that must change their path.
        worst_loss_db: Largest predicted mesh loss of the new circuits.
        is_warm: Whether the spare's light is on and aligned.
        spares_left: Number of other healthy spares that share no risk group with this spare.
    """

    failed: str
    spare: str
    removed: tuple[CircuitRequest, ...]
    added: tuple[CircuitRequest, ...]
    plan: CircuitPlan | None
    moved: tuple[CircuitRequest, ...]
    worst_loss_db: float
    is_warm: bool
    spares_left: int

    @property
    def rank(self) -> tuple[bool, int, float, int]:
        """Sort key, best plan first: warm spare, fewest moved circuits, lowest loss, most spares left."""
        # Losses are compared in steps of half a decibel: smaller differences matter less than the spares that remain.
        return not self.is_warm, len(self.moved), round(2.0 * self.worst_loss_db) / 2.0, -self.spares_left


@dataclass(frozen=True)
class StandbyStatus:
    """Recovery plans of a manager at one moment.

    Attributes:
        replacements: For each server or accelerator in service, the spares that can replace it, best first.
        reasons: By names of server and spare, the reason why the spare cannot replace the server.
    """

    replacements: Mapping[str, tuple[str, ...]]
    reasons: Mapping[tuple[str, str], str]


def loop_requests(unit: FabricUnit) -> list[CircuitRequest]:
    """Return the circuits of a waiting spare: each module sends to its own receiver."""
    return [CircuitRequest(nic, nic) for nic in unit.nics]


class Standby:
    """Recovery plans for the failure of any single server or accelerator, made without any device.

    Attributes:
        plans: Plans by failed server or accelerator, best first.
        refused: By names of server and spare, the reason why the spare cannot replace the server.
        cold: By name of a spare whose light is not on and aligned, the reason.
        avoided: PUCs that new circuits avoid if possible.
    """

    def __init__(self, service: CircuitService) -> None:
        self._service = service
        self.plans: dict[str, tuple[StandbyPlan, ...]] = {}
        self.refused: dict[tuple[str, str], str] = {}
        self.cold: dict[str, str] = {}
        self.avoided: tuple[int, ...] = ()
        self._inputs_of_plans: object = None
        self._is_stopped = threading.Event()

    @property
    def is_fresh(self) -> bool:
        """Whether the recovery plans match the active circuits and the calibration record in use."""
        return self._inputs_of_plans is not None and self._inputs_of_plans == self._planning_inputs()

    @property
    def status(self) -> StandbyStatus | None:
        """The recovery plans for a display; ``None`` unless they match the active circuits."""
        if not self.is_fresh:
            return None
        plans = {name: tuple(plan.spare for plan in ready) for name, ready in self.plans.items()}
        return StandbyStatus(plans, dict(self.refused))

    def warm_up(self, spares: Sequence[str]) -> None:
        """Connect each module of the spares to its own receiver, where the mesh has free paths."""
        setup = self._service.setup
        self.cold = {}
        for name in spares:
            unit = find_unit(setup.bench.model, name)
            active = {circuit.request for circuit in setup.active.circuits} if setup.active else set()
            missing = [request for request in loop_requests(unit) if request not in active]
            if not missing:
                continue
            try:
                self._service.connect(missing)
            except LumionError as error:
                # Without the mesh controller nothing can be connected; that says nothing about this spare.
                if setup.bench.model.mesh_section.is_driven_by(error.device):
                    raise
                self.cold[name] = str(error)
                setup.bench.events.add("spare is cold", spare=name, reason=str(error))
            else:
                setup.bench.events.add("spare stands by", spare=name)

    def prepare(self, in_service: Collection[str], spares: Sequence[str], failed: Collection[str]) -> None:
        """Make recovery plans for the failure of each server or accelerator in service.

        Args:
            in_service: Servers and accelerators in service.
            spares: Healthy spares, in the order of the bench file.
            failed: Servers and accelerators that have failed already; spares in the same risk group are not used.
        """
        # Taken before planning: if circuits change meanwhile, the plans count as outdated.
        inputs = self._planning_inputs()
        plans, self.refused = {}, {}
        self._is_stopped.clear()
        for name in in_service:
            if self._is_stopped.is_set():
                return
            plans[name] = self.plans_for(name, spares, failed)
        self.plans, self._inputs_of_plans = plans, inputs
        self._service.setup.bench.events.add(
            "plans ready", plans={name: [plan.spare for plan in ready] for name, ready in plans.items()}
        )

    def stop(self) -> None:
        """Stop a :meth:`prepare` that runs in another thread; its plans are discarded."""
        self._is_stopped.set()

    def plans_for(self, name: str, spares: Sequence[str], failed: Collection[str]) -> tuple[StandbyPlan, ...]:
        """Return the recovery plans for the failure of one server or accelerator, best first."""
        model = self._service.setup.bench.model
        all_units = units(model)
        risks = frozenset[str]().union(*(all_units[unit].risks for unit in {*failed, name} if unit in all_units))
        plans: list[StandbyPlan] = []
        for spare in spares:
            # A spare on the same power feed or rack as a failed unit may fail for the same reason.
            shared = all_units[spare].risks & risks
            if spare == name or shared:
                reason = "it has failed itself" if spare == name else f"it shares {', '.join(sorted(shared))}"
                self.refused[name, spare] = reason
                continue
            spares_left = sum(not all_units[other].risks & all_units[spare].risks for other in spares if other != spare)
            try:
                plans.append(self._plan(name, spare, spares_left))
            except LumionError as error:
                self.refused[name, spare] = str(error)
        return tuple(sorted(plans, key=lambda plan: plan.rank))

    def _plan(self, failed: str, spare: str, spares_left: int) -> StandbyPlan:
        setup = self._service.setup
        model = setup.bench.model
        active = {} if setup.active is None else {circuit.request: circuit for circuit in setup.active.circuits}
        own, spare_unit = find_unit(model, failed), find_unit(model, spare)
        affected = requests_at(list(active), own.nics)
        waiting = [request for request in loop_requests(spare_unit) if request in active]
        removed = (*affected, *waiting)
        added = tuple(
            replace_server(model, [request for request in affected if request not in loop_requests(own)], failed, spare)
        )
        is_warm = len(waiting) == len(spare_unit.nics)
        moved: tuple[CircuitRequest, ...] = ()
        stays = [request for request in active if request not in removed]
        idle = [request for request in stays if request.source == request.target]
        # Moving other circuits is better than no recovery; loops of other spares are removed first.
        for freed, avoid in (
            (removed, self.avoided),
            (removed, ()),
            ((*removed, *idle), self.avoided),
            ((*removed, *idle), ()),
        ):
            with contextlib.suppress(RoutingError):
                plan = setup.plan_change(freed, added, avoid=avoid)
                removed = freed
                break
        else:
            busy = [request for request in stays if request not in idle]
            plan = setup.plan([*busy, *added])
            removed, before = tuple(active), {circuit.request: circuit.paths for circuit in active.values()}
            after = {circuit.request: circuit.paths for circuit in plan.circuits}
            moved = tuple(request for request in busy if after[request] != before[request])
        new = [circuit for circuit in plan.circuits if circuit.request in added]
        worst_db = max((circuit.budget.mesh_loss_db for circuit in new), default=0.0)
        return StandbyPlan(failed, spare, removed, added, plan, moved, worst_db, is_warm, spares_left)

    def _planning_inputs(self) -> tuple[object, ...]:
        setup = self._service.setup
        active = () if setup.active is None else tuple((c.request, c.paths) for c in setup.active.circuits)
        # A record never changes, so its identity stands for its content.
        return active, id(setup.record), self.avoided
