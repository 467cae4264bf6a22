"""Spares that stand by: light on, polarization aligned and held, and a plan ready for every single failure.

A spare stands by as a loop: each of its modules sends through the mesh to its own receiver. So its light ends at a
monitored port, both of its ends are proven by the same measurements as those of any circuit, and whatever holds
circuits holds it. Where the mesh has no room for a loop beside the jobs, the spare is cold: it can still be used, and
its light is then switched on and aligned in the recovery.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from lumion_hw.circuits import CircuitPlan, CircuitRequest, CircuitService
from lumion_hw.errors import LumionError, RoutingError
from lumion_hw.fabric.servers import FabricUnit, find_unit, substituted, touching, units


@dataclass(frozen=True)
class StandbyPlan:
    """What is to be done if a server or accelerator fails.

    Attributes:
        failed: What fails.
        spare: What takes its place.
        gone: Standing circuits that make room: those of the failed one, and the loops of the spare.
        wanted: Circuits in their place.
        plan: All that stands afterwards; ``None`` for a cold spare that is planned when it is needed.
        moved: Circuits of others that have to change their way.
        worst_loss_db: Largest predicted loss of the new circuits over the mesh.
        is_warm: Its light is on and aligned.
        left: Healthy spares of other risk groups that would be left.
    """

    failed: str
    spare: str
    gone: tuple[CircuitRequest, ...]
    wanted: tuple[CircuitRequest, ...]
    plan: CircuitPlan | None
    moved: tuple[CircuitRequest, ...]
    worst_loss_db: float
    is_warm: bool
    left: int

    @property
    def rank(self) -> tuple[bool, int, float, int]:
        """Order of choice: warm, then least disturbance, then loss to half a decibel, then balance."""
        return not self.is_warm, len(self.moved), round(2.0 * self.worst_loss_db) / 2.0, -self.left


def loops(unit: FabricUnit) -> list[CircuitRequest]:
    """Return the circuits of a spare that stands by."""
    return [CircuitRequest(nic, nic) for nic in unit.nics]


class Standby:
    """Plans for every single failure, made of what the record knows: no device is asked.

    Args:
        service: The circuits.

    Attributes:
        plans: Plans by what fails, best first; complete only for what :meth:`prepare` was told.
        refused: Why a spare is no use for a failure, by both names.
        cold: Why a spare is not warm, by its name.
        avoided: PUCs that new circuits are led round where that is possible.
    """

    def __init__(self, service: CircuitService) -> None:
        self._service = service
        self.plans: dict[str, tuple[StandbyPlan, ...]] = {}
        self.refused: dict[tuple[str, str], str] = {}
        self.cold: dict[str, str] = {}
        self.avoided: tuple[int, ...] = ()
        self._made_for: object = None
        self._is_stopped = threading.Event()

    @property
    def is_fresh(self) -> bool:
        """The plans are of what stands and of the record in use."""
        return self._made_for is not None and self._made_for == self._now()

    def warm(self, spares: Sequence[str]) -> None:
        """Let spares stand by, one after the other, as far as there is room in the mesh."""
        setup = self._service.setup
        self.cold = {}
        for name in spares:
            unit = find_unit(setup.bench.model, name)
            standing = {circuit.request for circuit in setup.active.circuits} if setup.active else set()
            missing = [request for request in loops(unit) if request not in standing]
            if not missing:
                continue
            try:
                self._service.connect(missing)
            except LumionError as error:
                if error.device == setup.bench.model.mesh_section.controller:
                    raise
                self.cold[name] = str(error)
                setup.bench.events.add("spare is cold", spare=name, reason=str(error))
            else:
                setup.bench.events.add("spare stands by", spare=name)

    def prepare(self, in_service: Collection[str], spares: Sequence[str], failed: Collection[str]) -> None:
        """Plan for the failure of each of these.

        Args:
            in_service: Servers and accelerators in service.
            spares: Healthy spares, in the order of the bench file.
            failed: What has failed already: spares that share a risk with it are left out.
        """
        now = self._now()
        plans, self.refused = {}, {}
        self._is_stopped.clear()
        for name in in_service:
            if self._is_stopped.is_set():
                return
            plans[name] = self.plans_for(name, spares, failed)
        self.plans, self._made_for = plans, now
        self._service.setup.bench.events.add(
            "plans ready", plans={name: [each.spare for each in found] for name, found in plans.items()}
        )

    def stop(self) -> None:
        """End :meth:`prepare` in another thread after the failure that it plans for now; its plans are dropped."""
        self._is_stopped.set()

    def plans_for(self, name: str, spares: Sequence[str], failed: Collection[str]) -> tuple[StandbyPlan, ...]:
        """Return the plans for one failure, best first."""
        model = self._service.setup.bench.model
        known = units(model)
        lost = frozenset[str]().union(*(known[each].risks for each in {*failed, name} if each in known))
        found: list[StandbyPlan] = []
        for spare in spares:
            shared = known[spare].risks & lost
            if spare == name or shared:
                why = "it has failed itself" if spare == name else f"it shares {', '.join(sorted(shared))}"
                self.refused[name, spare] = why
                continue
            left = sum(not known[other].risks & known[spare].risks for other in spares if other != spare)
            try:
                found.append(self._planned(name, spare, left))
            except LumionError as error:
                self.refused[name, spare] = str(error)
        return tuple(sorted(found, key=lambda each: each.rank))

    def _planned(self, failed: str, spare: str, left: int) -> StandbyPlan:
        setup = self._service.setup
        model = setup.bench.model
        standing = {} if setup.active is None else {each.request: each for each in setup.active.circuits}
        own, stand_in = find_unit(model, failed), find_unit(model, spare)
        lost = touching(list(standing), own.nics)
        waiting = [request for request in loops(stand_in) if request in standing]
        gone = (*lost, *waiting)
        wanted = tuple(substituted(model, [each for each in lost if each not in loops(own)], failed, spare))
        is_warm = len(waiting) == len(stand_in.nics)
        moved: tuple[CircuitRequest, ...] = ()
        stays = [request for request in standing if request not in gone]
        idle = [request for request in stays if request.source == request.target]
        # Moving others is better than no recovery; spares that stand by elsewhere make room first.
        for freed, avoid in ((gone, self.avoided), (gone, ()), ((*gone, *idle), self.avoided), ((*gone, *idle), ())):
            with contextlib.suppress(RoutingError):
                plan = setup.plan_change(freed, wanted, avoid=avoid)
                gone = freed
                break
        else:
            busy = [request for request in stays if request not in idle]
            plan = setup.plan([*busy, *wanted])
            gone, before = tuple(standing), {each.request: each.paths for each in standing.values()}
            after = {each.request: each.paths for each in plan.circuits}
            moved = tuple(request for request in busy if after[request] != before[request])
        new = [each for each in plan.circuits if each.request in wanted]
        worst_db = max((each.budget.mesh_loss_db for each in new), default=0.0)
        return StandbyPlan(failed, spare, gone, wanted, plan, moved, worst_db, is_warm, left)

    def _now(self) -> tuple[object, ...]:
        setup = self._service.setup
        standing = () if setup.active is None else tuple((c.request, c.paths) for c in setup.active.circuits)
        return standing, id(setup.record), self.avoided
