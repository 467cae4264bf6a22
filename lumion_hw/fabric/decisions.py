"""Decisions on what to do after a failure of the fabric (servers connected by optical circuits).

The manager calls :func:`decide`, acts, and calls it again with the reason if the action failed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from lumion_hw.bench.file.model import BenchModel, JobModel
from lumion_hw.circuits import CircuitRequest
from lumion_hw.circuits.diagnosis import CircuitFinding
from lumion_hw.fabric.evidence import FailureVerdict
from lumion_hw.fabric.journal import FabricState
from lumion_hw.fabric.servers import find_unit, job_requests, units
from lumion_hw.fabric.standby import StandbyPlan, loop_requests
from lumion_hw.mesh.routing import Path

_AT_SENDER, _AT_RECEIVER = (
    {"transmitter", "fibre before the mesh", "polarization"},
    {"fibre behind the mesh", "receiver"},
)
"""Places of findings at which a spare in the place of this end helps, because the mesh is healthy."""
_NO_SPARE = "the bench file has no free spare"
_HOOKS_PENDING = "its hooks have not ended yet"


@dataclass(frozen=True)
class FabricView:
    """Everything that a decision depends on.

    Attributes:
        model: The bench file, with its servers, jobs and spares.
        state: State of the fabric: replaced job members, failed servers and accelerators, and refused jobs.
        connected: Connected circuits, with their paths through the mesh.
        plans: Plans to replace the failed unit, one per usable spare, best first.
        unusable: Reasons why the other spares cannot be used.
    """

    model: BenchModel
    state: FabricState
    connected: Mapping[CircuitRequest, tuple[Path, ...]]
    plans: tuple[StandbyPlan, ...] = ()
    unusable: tuple[str, ...] = ()

    @property
    def in_service(self) -> tuple[str, ...]:
        """Servers and accelerators that serve a job at present."""
        return in_service(self.model, self.state)

    @property
    def spares(self) -> tuple[str, ...]:
        """Spare servers and accelerators that are healthy and free."""
        return free_spares(self.model, self.state)


@dataclass(frozen=True)
class Swap:
    """Action: replace a failed server or accelerator by a spare.

    Attributes:
        plan: The spare, and the circuits that change.
    """

    plan: StandbyPlan


@dataclass(frozen=True)
class Reroute:
    """Action: route a circuit around PUCs that may be broken.

    Attributes:
        idle: Circuits of spares, which are removed if there is no other path.
    """

    request: CircuitRequest
    avoid: tuple[int, ...]
    idle: tuple[CircuitRequest, ...]


@dataclass(frozen=True)
class Diagnose:
    """Action: find out where a circuit loses its light, because no other path helps.

    Attributes:
        reason: Reason why no other path helps.
    """

    reason: str


@dataclass(frozen=True)
class RemoveLoop:
    """Action: remove the circuit of a waiting spare, which is then cold."""

    request: CircuitRequest


@dataclass(frozen=True)
class DropSpare:
    """Action: take a failed spare out of service.

    Attributes:
        dead_modules: Modules of the spare, which may be dead.
    """

    unit: str
    circuits: tuple[CircuitRequest, ...]
    dead_modules: tuple[str, ...]


@dataclass(frozen=True)
class Refuse:
    """Action: leave jobs without circuits because no spare can be used.

    Attributes:
        reason: Reason, with the problem of every spare.
        circuits: Circuits of these jobs, which are to be removed.
        dead_modules: Modules of failed units, which may be dead.
    """

    jobs: tuple[str, ...]
    reason: str
    circuits: tuple[CircuitRequest, ...]
    dead_modules: tuple[str, ...]


@dataclass(frozen=True)
class KeepInService:
    """Action: keep a healthy unit in service, because no spare can take its place.

    Attributes:
        reason: Reason, with the problem of every spare.
    """

    reason: str


@dataclass(frozen=True)
class NoAction:
    """Action: none, because the failure affects no connected circuit."""


Decision = Swap | Reroute | Diagnose | RemoveLoop | DropSpare | Refuse | KeepInService | NoAction


def decide(view: FabricView, verdict: FailureVerdict, failures: Sequence[str] = ()) -> Decision:
    """Return the action to take after a failure of the fabric.

    ``failures`` are the reasons why earlier actions for this failure failed, in order.
    """
    if verdict.suspect == "path":
        return _decide_on_path(view, verdict, failures)
    is_served = verdict.name in (_circuits_of_jobs(view) if verdict.suspect == "end" else view.in_service)
    if not is_served:
        return _decide_on_spare(view, verdict)
    usable = [plan for plan in view.plans if plan.spare in view.spares]
    if len(failures) < len(usable):
        # Every failure has used up one plan, so continue with the next.
        return Swap(usable[len(failures)])
    reasons = [*view.unusable, *(f"{plan.spare}: {reason}" for plan, reason in zip(usable, failures, strict=False))]
    if verdict.cause == "drain":
        return KeepInService("; ".join(reasons) or _NO_SPARE)
    return _refuse(view, verdict, reasons)


def _decide_on_spare(view: FabricView, verdict: FailureVerdict) -> Decision:
    if verdict.suspect == "end":
        request = _connected_request(view, verdict)
        return NoAction() if request is None else RemoveLoop(request)
    unit = find_unit(view.model, verdict.name)
    return DropSpare(verdict.name, tuple(loop_requests(unit)), unit.nics)


def _decide_on_path(view: FabricView, verdict: FailureVerdict, failures: Sequence[str]) -> Decision:
    request = _connected_request(view, verdict)
    if request is None or _unit_of(view, request.source) is None:
        return NoAction()
    # The light of other circuits shows that their PUCs work.
    proven = {puc for other, paths in view.connected.items() if other != request for path in paths for puc in path.pucs}
    # Every path of a circuit begins and ends at the PUCs of its ports, so these cannot be avoided.
    inner = [puc for path in view.connected[request] for puc in path.pucs[1:-1] if puc not in proven]
    half = len(inner) // 2
    # If no path avoids all suspects, avoiding half of them is easier; a single broken PUC lies in one of the halves.
    attempts = [tuple(pucs) for pucs in (inner, inner[:half], inner[half:]) if pucs]
    if len(failures) < len(attempts):
        idle = tuple(other for other in view.connected if other.source == other.target)
        return Reroute(request, attempts[len(failures)], idle)
    return Diagnose("; ".join(failures) or "its ports are neighbours")


def _connected_request(view: FabricView, verdict: FailureVerdict) -> CircuitRequest | None:
    return next((candidate for candidate in view.connected if candidate.name == verdict.name), None)


def _unit_of(view: FabricView, module: str) -> str | None:
    all_units = units(view.model)
    return next((name for name in (*view.in_service, *view.spares) if module in all_units[name].nics), None)


def after_diagnosis(view: FabricView, verdict: FailureVerdict, finding: CircuitFinding | str) -> FailureVerdict:
    """Return what has failed if a dark circuit has no other path.

    Args:
        view: The circuits and their paths.
        verdict: The failure of the path.
        finding: Where the circuit loses its light, or the reason why that is unknown.
    """
    request = next(each for each in view.connected if each.name == verdict.name)
    sender, receiver = _unit_of(view, request.source), _unit_of(view, request.target)
    if not isinstance(finding, str):
        unit = sender if finding.place in _AT_SENDER else receiver if finding.place in _AT_RECEIVER else None
        if unit is not None:
            reason = f"{verdict.name} is dark: {finding.detail}"
            return dataclasses.replace(verdict, suspect="unit", name=unit, reason=reason)
    begin, test = f"{verdict.name} is dark and has no other path", f"exchange the fibres of {sender} and another server"
    test = f"To find out, {test}: if the fault moves with {sender}, {sender} has failed"
    if isinstance(finding, str):
        pucs = " ".join(str(puc) for path in view.connected[request] for puc in path.pucs)
        reason = f"{begin}: {sender}, its fibre or one of PUCs {pucs} has failed (no diagnosis: {finding}). {test}"
        return dataclasses.replace(verdict, suspect="end", reason=reason)
    reason = f"{begin}: {finding.detail}{f'. {test}' if finding.may_be_outside else ''}"
    return dataclasses.replace(verdict, suspect="end", reason=reason, pucs=finding.pucs)


def ends_to_replace(view: FabricView, verdict: FailureVerdict) -> tuple[str, ...]:
    """Return the units at the ends of a circuit without another path, first the one closer to the broken PUCs."""
    request = _connected_request(view, verdict)
    if request is None:
        return ()
    pucs = [puc for path in view.connected[request] for puc in path.pucs]
    middle, broken = (len(pucs) - 1) / 2.0, [pucs.index(puc) for puc in verdict.pucs if puc in pucs]
    ends = [_unit_of(view, request.source), _unit_of(view, request.target)]
    if broken and sum(broken) / len(broken) > middle:
        ends.reverse()
    return tuple(unit for unit in ends if unit is not None)


def _refuse(view: FabricView, verdict: FailureVerdict, reasons: Sequence[str]) -> Refuse:
    reason = "; ".join(reasons) or _NO_SPARE
    jobs = [
        job
        for job in view.model.fabric.all_jobs
        if verdict.name in map(view.state.unit_at, job.members) or verdict.name in _circuits_of(view, job)
    ]
    introduction = (
        f"{verdict.reason}, and no spare helps"
        if verdict.suspect == "end"
        else f"no spare can replace {verdict.name} ({verdict.reason})"
    )
    all_units = units(view.model)
    failed = {*view.state.failed, verdict.name}
    return Refuse(
        tuple(job.name for job in jobs),
        f"{introduction}: {reason}",
        tuple(request for job in jobs for request in job_requests(view.model, job, view.state.places)),
        tuple(nic for name in sorted(failed & all_units.keys()) for nic in all_units[name].nics),
    )


def _circuits_of(view: FabricView, job: JobModel) -> set[str]:
    return {request.name for request in job_requests(view.model, job, view.state.places)}


def _circuits_of_jobs(view: FabricView) -> set[str]:
    return {name for job in view.model.fabric.all_jobs for name in _circuits_of(view, job)}


# -- the state afterwards


def after_swap(
    view: FabricView, verdict: FailureVerdict, failed: str, spare: str, proven: Collection[int] = ()
) -> FabricState:
    """Return the fabric state after a spare has replaced a server or accelerator (``failed``).

    ``proven`` are PUCs on paths verified by measured light, which are therefore healthy.
    """
    members = (member for job in view.model.fabric.all_jobs for member in job.members)
    member = next(member for member in members if view.state.unit_at(member) == failed)
    # A member that serves in its own place is not recorded as replaced.
    places = {name: at for name, at in {**view.state.places, member: spare}.items() if name != at}
    # Verified light has passed these PUCs, so they are no longer suspected.
    avoided = tuple(sorted({*view.state.avoided, *verdict.pucs} - set(proven)))
    return dataclasses.replace(with_failed(view.state, verdict, failed), places=places, avoided=avoided)


def after_reroute(state: FabricState, avoid: Iterable[int]) -> FabricState:
    """Return the fabric state after a circuit was routed around PUCs."""
    return dataclasses.replace(state, avoided=tuple(sorted({*state.avoided, *avoid})))


def after_refusal(state: FabricState, verdict: FailureVerdict, decision: Refuse) -> FabricState:
    """Return the fabric state after jobs were left without circuits."""
    refused = {**state.refused, **dict.fromkeys(decision.jobs, decision.reason)}
    # A job that a PUC of the mesh cuts off has healthy members.
    after = state if verdict.suspect == "end" else with_failed(state, verdict, verdict.name)
    return dataclasses.replace(after, refused=refused)


def with_failed(state: FabricState, verdict: FailureVerdict, name: str) -> FabricState:
    """Return the fabric state with a server or accelerator marked as failed, as drained, or as cut off."""
    drained, cut_off = (
        tuple(other for other in marked if other in state.failed and other != name)
        for marked in (state.drained, state.cut_off)
    )
    if verdict.cause == "drain":
        drained = (*drained, name)
    elif verdict.suspect == "end":
        cut_off = (*cut_off, name)
    return dataclasses.replace(state, failed={**state.failed, name: verdict.reason}, drained=drained, cut_off=cut_off)


def with_hooks_pending(state: FabricState, jobs: Iterable[str]) -> FabricState:
    """Return the fabric state with jobs whose hooks have not ended yet."""
    return dataclasses.replace(state, not_resumed={**state.not_resumed, **dict.fromkeys(jobs, _HOOKS_PENDING)})


def with_hooks_ended(state: FabricState, job: str, failure: str) -> FabricState:
    """Return the fabric state after the hooks of a job have ended; ``failure`` is empty without an error."""
    others = {name: reason for name, reason in state.not_resumed.items() if name != job}
    return dataclasses.replace(state, not_resumed={**others, job: failure} if failure else others)


def in_service(model: BenchModel, state: FabricState) -> tuple[str, ...]:
    """Return the servers and accelerators that serve a job at present, each once."""
    return tuple(dict.fromkeys(state.unit_at(member) for job in model.fabric.all_jobs for member in job.members))


def free_spares(model: BenchModel, state: FabricState) -> tuple[str, ...]:
    """Return the healthy free spares, including repaired servers that a spare has replaced."""
    members = (member for job in model.fabric.all_jobs for member in job.members)
    names, busy = dict.fromkeys((*model.fabric.spares, *members)), in_service(model, state)
    return tuple(name for name in names if name not in busy and name not in state.failed)
