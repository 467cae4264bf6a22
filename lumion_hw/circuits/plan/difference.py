"""The difference between the active circuits and the wanted ones, planned as one change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from lumion_hw.bench.bench import Bench
from lumion_hw.bench.file.model import BenchModel
from lumion_hw.circuits.plan.budget import violations
from lumion_hw.circuits.plan.planned import PlannedCircuit
from lumion_hw.circuits.plan.planner import plan_circuits
from lumion_hw.circuits.plan.refusal import BudgetError
from lumion_hw.circuits.plan.request import CircuitRequest
from lumion_hw.errors import CircuitError, LimitError, LumionError, RoutingError
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.mesh.routing.request import Progress, no_progress

OnRefusal = Literal["refuse_all", "skip"]
"""What happens if a wanted circuit cannot be set up: nothing is changed, or all other circuits are."""
_REFUSALS = (RoutingError, CircuitError, LimitError)
_MAX_ALTERNATIVES = 16
"""Largest number of other circuits that are planned to find the nearest feasible one."""

Planned = tuple[PlannedCircuit, ...]
Requests = tuple[CircuitRequest, ...]


@dataclass(frozen=True)
class CircuitRefusal:
    """A wanted circuit that cannot be set up beside the others.

    Attributes:
        reason: Reason, as a sentence.
        alternative: The nearest request that is feasible; ``None`` if none was found.
        needs_others: Whether the alternative is feasible only if it is planned together with the other new circuits.
    """

    request: CircuitRequest
    reason: str
    alternative: CircuitRequest | None = None
    needs_others: bool = False

    def __str__(self) -> str:
        return f"{self.request.name}: {self.reason} {self.nearest}"

    @property
    def nearest(self) -> str:
        """The nearest feasible circuit, as a sentence."""
        if self.alternative is None:
            return "No similar circuit is feasible."
        condition = ", if planned together with the other new ones" if self.needs_others else ""
        alternative = describe_request(self.alternative)
        if alternative == self.request.name:  # the same ends with the default limits
            alternative += " without these limits"
        return f"Nearest feasible circuit{condition}: {alternative}."


@dataclass(frozen=True)
class CircuitDifference:
    """A change from the active circuits to the wanted ones.

    Attributes:
        staying: Active circuits that stay exactly as they are, with the wanted limits if they meet them.
        first: New circuits that are set up before any circuit is removed.
        removed: Active circuits that are removed.
        last: New circuits that need a module or PUC of a removed circuit.
        refusals: Wanted circuits that cannot be set up.
    """

    staying: Planned
    first: Planned
    removed: Requests
    last: Planned
    refusals: tuple[CircuitRefusal, ...]

    @property
    def kept(self) -> Requests:
        """Requests of the active circuits that stay."""
        return tuple(circuit.request for circuit in self.staying)

    @property
    def added(self) -> Planned:
        """All new circuits."""
        return self.first + self.last

    @property
    def changes_nothing(self) -> bool:
        """Whether the active circuits are the wanted ones, as far as these are feasible."""
        return not (self.added or self.removed)

    def document(self) -> dict[str, Any]:
        """Return the difference as JSON values; new circuits in the order in which they are set up."""
        return {
            "kept": [request.name for request in self.kept],
            "staying": [_budget_document(circuit) for circuit in self.staying],
            "removed": [request.name for request in self.removed],
            "connected": [
                {"circuit": circuit.request.name, "before_removal": circuit in self.first, **_budget_document(circuit)}
                for circuit in self.added
            ],
            "refused": [
                {
                    "circuit": refusal.request.name,
                    "reason": refusal.reason,
                    "message": str(refusal),
                    "nearest": None if refusal.alternative is None else describe_request(refusal.alternative),
                }
                for refusal in self.refusals
            ],
        }


def _budget_document(circuit: PlannedCircuit) -> dict[str, Any]:
    return {
        "circuit": circuit.request.name,
        "hops": circuit.hops,
        "loss_db": round(circuit.budget.mesh_loss_db, 2),
        "margin_db": round(circuit.budget.margin_db, 2),
    }


def describe_request(request: CircuitRequest) -> str:
    """Return the name of a circuit and its limits, such as ``sfp-a:sfp-b with max_hops=7``."""
    default = CircuitRequest(request.source, request.target)
    limits = [f"{name}={value}" for name, value in vars(request).items() if value != getattr(default, name)]
    return request.name + (f" with {', '.join(limits)}" if limits else "")


def plan_difference(
    bench: Bench | BenchModel,
    record: CalibrationRecord,
    wanted: Sequence[CircuitRequest],
    active: Sequence[PlannedCircuit],
    progress: Progress = no_progress,
) -> CircuitDifference:
    """Plan the change from the active circuits to the wanted ones. Uses no device and changes nothing.

    An active circuit that meets changed limits stays. If it does not and cannot, it stays with its former limits.

    Args:
        bench: The bench, or its checked file; see :func:`~lumion_hw.circuits.plan_circuits`.
        record: Calibration of the bench's mesh.
        wanted: All circuits that are wanted.
        active: The active circuits.
        progress: As for :func:`~lumion_hw.circuits.plan_circuits`.

    Raises:
        CalibrationError: The record does not belong to this bench.
    """

    def plan(requests: Sequence[CircuitRequest], beside: Sequence[PlannedCircuit]) -> Planned:
        return plan_circuits(bench, record, requests, active=beside, progress=progress).circuits if requests else ()

    wiring = (bench if isinstance(bench, BenchModel) else bench.model).to_wiring()
    sources = [path.transponder for path in wiring.inputs if path.transponder is not None]
    targets = [path.transponder for path in wiring.outputs if path.transponder is not None]
    return _Difference(plan, (sources, targets), tuple(dict.fromkeys(wanted)), tuple(active)).plan()


class _Difference:
    """Plans one difference.

    Args:
        plan: Plans requests beside circuits that keep their paths.
        modules: Modules that are wired to inputs, and to outputs, of the mesh.
    """

    def __init__(
        self,
        plan: Callable[[Sequence[CircuitRequest], Sequence[PlannedCircuit]], Planned],
        modules: tuple[Sequence[str], Sequence[str]],
        wanted: Requests,
        active: Planned,
    ) -> None:
        self._plan, self._modules = plan, modules
        by_name = {request.name: request for request in wanted}
        self._wanted = wanted
        self._active = tuple(_with_limits(each, by_name.get(each.request.name)) for each in active)

    def plan(self) -> CircuitDifference:
        """Return the difference."""
        present = {circuit.request for circuit in self._active}
        added = [request for request in self._wanted if request not in present]
        failures: dict[CircuitRequest, LumionError] = {}
        for attempts_left in reversed(range(len(added) + 2)):
            refused = {request.name for request in failures}
            kept = [each for each in self._active if each.request in self._wanted or each.request.name in refused]
            removed = [each for each in self._active if each not in kept]
            try:
                first, last = self._ordered(added, kept, removed)
                break
            except _REFUSALS:
                if not attempts_left:
                    raise
                added, failed = self._fitting(added, kept)
                failures |= failed
        new = [*first, *last]
        requests_removed = tuple(each.request for each in removed)
        refusals = tuple(self._refusal(request, error, kept, new) for request, error in failures.items())
        return CircuitDifference(tuple(kept), first, requests_removed, last, refusals)

    def _ordered(
        self, added: Sequence[CircuitRequest], kept: Sequence[PlannedCircuit], removed: Sequence[PlannedCircuit]
    ) -> tuple[Planned, Planned]:
        """Return the new circuits that can be set up beside the removed ones, and all others.

        Raises the errors of planning if the new circuits do not fit together, beside those that stay.
        """
        if not removed:
            return self._plan(added, kept), ()
        senders, receivers = ({getattr(each.request, end) for each in removed} for end in ("source", "target"))
        free = [each for each in added if each.source not in senders and each.target not in receivers]
        try:
            first = self._plan(free, [*kept, *removed])
            return first, self._plan([each for each in added if each not in free], [*kept, *first])
        except _REFUSALS:
            return (), self._plan(added, kept)

    def _fitting(
        self, added: Sequence[CircuitRequest], kept: Sequence[PlannedCircuit]
    ) -> tuple[list[CircuitRequest], dict[CircuitRequest, LumionError]]:
        """Return the circuits that fit together, in the order in which they do, and the errors of all others.

        Circuits of higher priority come first, then those listed first.
        """
        accepted: list[CircuitRequest] = []
        failures: dict[CircuitRequest, LumionError] = {}
        for request in sorted(added, key=lambda each: -each.priority):
            try:
                self._plan([*accepted, request], kept)
                accepted.append(request)
            except _REFUSALS as error:
                failures[request] = error
        return accepted, failures

    def _refusal(
        self,
        request: CircuitRequest,
        error: LumionError,
        kept: Sequence[PlannedCircuit],
        new: Sequence[PlannedCircuit],
    ) -> CircuitRefusal:
        # The hint of a BudgetError names limits, which may not be feasible beside the other circuits.
        reason = _sentence(error.message if isinstance(error, BudgetError) else str(error))
        former = next((each.request for each in kept if each.request.name == request.name), None)
        if former is not None:
            return CircuitRefusal(request, reason, former)
        groups = self._candidates(request, error, [*kept, *new])
        others = [circuit.request for circuit in new]
        for needs_others, active, together in ((False, [*kept, *new], []), (True, kept, others))[: 1 + bool(others)]:
            for group in groups:
                losses_db: dict[CircuitRequest, float] = {}
                for candidate in group[:_MAX_ALTERNATIVES]:
                    try:
                        losses_db[candidate] = self._plan([*together, candidate], active)[-1].budget.mesh_loss_db
                    except _REFUSALS:
                        continue
                if losses_db:
                    nearest = min(losses_db, key=losses_db.__getitem__)
                    return CircuitRefusal(request, reason, nearest, needs_others)
        return CircuitRefusal(request, reason)

    def _candidates(
        self, request: CircuitRequest, error: LumionError, active: Sequence[PlannedCircuit]
    ) -> list[list[CircuitRequest]]:
        """Return similar circuits in groups, the most similar ones first: other limits, then other modules."""
        relaxed = [error.nearest] if isinstance(error, BudgetError) and error.nearest is not None else []
        relaxed.append(CircuitRequest(request.source, request.target, priority=request.priority))
        in_use = [*self._wanted, *(each.request for each in active)]
        sources = [name for name in self._modules[0] if name not in {each.source for each in in_use}]
        targets = [name for name in self._modules[1] if name not in {each.target for each in in_use}]
        return [
            *([each] for each in relaxed if each != request),
            [replace(request, target=name) for name in targets if name != request.source],
            [replace(request, source=name) for name in sources if name != request.target],
        ]


def _with_limits(circuit: PlannedCircuit, wanted: CircuitRequest | None) -> PlannedCircuit:
    """Return an active circuit with the limits that are wanted, if it meets them and nothing else is different."""
    if wanted is None:
        return circuit
    limits = {name: getattr(wanted, name) for name in ("min_margin_db", "max_loss_db", "max_hops", "priority")}
    is_met = replace(circuit.request, **limits) == wanted and not any(violations(wanted, circuit.budget, circuit.hops))
    return replace(circuit, request=wanted) if is_met else circuit


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
