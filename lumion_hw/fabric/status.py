"""Status of a fabric: jobs, servers, spares, recovery plans and alarms, as one immutable document.

Command line, process variables, metrics and the web page all show this document.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from lumion_hw.bench.file.model import BenchModel, JobModel
from lumion_hw.errors import ConfigError
from lumion_hw.fabric.decisions import free_spares
from lumion_hw.fabric.journal import FabricState
from lumion_hw.fabric.recovery import RecoveryStatus
from lumion_hw.fabric.servers import FabricUnit, job_requests, units
from lumion_hw.fabric.standby import StandbyStatus, loop_requests

Severity = Literal["none", "minor", "major"]
"""Severity of an alarm: ``major`` if a job cannot train, ``minor`` if the fabric tolerates fewer failures."""
JobCondition = Literal["connected", "not resumed", "not connected", "refused"]
"""Condition of a job; ``not resumed`` if its circuits are set up, but its hooks failed or still run."""
UnitCondition = Literal[
    "in service", "warm spare", "cold spare", "failed", "cut off", "drained", "job member", "spare", "unused"
]
"""Condition of a server or accelerator; ``job member`` and ``spare`` while no program manages the fabric.

``cut off``: a broken PUC of the mesh separates it from the others; it is healthy as far as is known.
"""
_SEVERITIES: tuple[Severity, ...] = ("none", "minor", "major")


@dataclass(frozen=True)
class JobStatus:
    """A job of the bench file.

    Attributes:
        units: Servers or accelerators that serve as its members, in rank order.
        condition: ``refused`` if no spare could be used and the job has no circuits.
        reason: Reason of the refusal, the missing circuits, or the failure of a hook; empty if connected.
        circuits: Names of the circuits that the job needs.
    """

    name: str
    units: tuple[str, ...]
    condition: JobCondition
    reason: str = ""
    circuits: tuple[str, ...] = ()


@dataclass(frozen=True)
class UnitStatus:
    """A server or accelerator of the fabric.

    Attributes:
        reason: Reason why the unit has failed, is cut off or was drained, or why the spare is cold; empty otherwise.
        job: Job that the unit serves; empty without one.
        replaces: Member of the job in whose place the unit serves; empty if the unit is that member.
        modules: Names of its optical modules.
        replacements: Spares that can replace the unit, best first; empty while no plans are ready.
    """

    name: str
    condition: UnitCondition
    reason: str = ""
    job: str = ""
    replaces: str = ""
    modules: tuple[str, ...] = ()
    replacements: tuple[str, ...] = ()


@dataclass(frozen=True)
class FabricAlarm:
    """A condition of the fabric that needs attention.

    Attributes:
        subject: Job, server, accelerator or spare, such as ``job train`` or ``spare server3``.
        condition: What is wrong, such as ``refused`` or ``cold``.
        reason: Reason; may be empty.
    """

    severity: Severity
    subject: str
    condition: str
    reason: str = ""


@dataclass(frozen=True)
class FabricStatus:
    """Status of a fabric (servers connected by optical circuits).

    Attributes:
        bench: Name of the bench.
        manager: Program that keeps the jobs connected, such as ``lumion serve of ada@lab3:4711``; empty without one.
        severity: Highest severity of the alarms.
        alarms: Conditions that need attention, the worst first.
        jobs: Jobs of the bench file.
        units: Servers, and accelerators with a part in a job or as spares.
        circuits: Names of all circuits that are set up, including those of waiting spares.
        plans_ready: Whether recovery plans for the present circuits exist.
        interrupted: Reason of a recovery that was not finished; empty without one.
        recovery: The last recovery; ``None`` before the first.
        avoided_pucs: PUCs that circuits avoid because a path over them has failed.
        fades: Number of times light was gone for a while and came back.
        false_alarms: Number of failures after which the light came back without a repair.
    """

    bench: str
    manager: str
    severity: Severity
    alarms: tuple[FabricAlarm, ...]
    jobs: tuple[JobStatus, ...]
    units: tuple[UnitStatus, ...]
    circuits: tuple[str, ...]
    plans_ready: bool
    interrupted: str
    recovery: RecoveryStatus | None
    avoided_pucs: tuple[int, ...]
    fades: int
    false_alarms: int

    def document(self) -> dict[str, Any]:
        """Return the status as a JSON document."""
        return asdict(self)


def fabric_status(
    model: BenchModel,
    state: FabricState,
    circuits: Collection[str],
    *,
    manager: str = "",
    standby: StandbyStatus | None = None,
    recovery: RecoveryStatus | None = None,
) -> FabricStatus | None:
    """Return the status of a fabric; ``None`` if the bench file has no servers.

    Args:
        model: The bench file.
        state: Replaced members of jobs, failed units, refused jobs and cold spares.
        circuits: Names of the circuits that are set up; a spare is warm if its modules send to their own receivers.
        manager: Program that manages the fabric; empty without one.
        standby: Recovery plans for these circuits; ``None`` if there are none.
        recovery: The last recovery.
    """
    if not model.servers:
        return None
    jobs = tuple(_job(model, job, state, circuits) for job in model.fabric.all_jobs)
    served_units = tuple(_units(model, state, circuits, bool(manager), standby))
    interrupted = "" if state.open is None else str(state.open.get("words", "unknown"))
    alarms = [*_job_alarms(jobs, bool(manager)), *_unit_alarms(served_units)]
    if standby is not None and model.fabric.spares:  # without spares in the bench file this is the normal state
        alarms += _plan_alarms(jobs, served_units, standby)
    if interrupted and not manager:
        alarms.append(FabricAlarm("minor", "recovery", "interrupted", interrupted))
    alarms.sort(key=lambda alarm: -_SEVERITIES.index(alarm.severity))
    return FabricStatus(
        bench=model.name,
        manager=manager,
        severity=alarms[0].severity if alarms else "none",
        alarms=tuple(alarms),
        jobs=jobs,
        units=served_units,
        circuits=tuple(circuits),
        plans_ready=standby is not None,
        interrupted=interrupted,
        recovery=recovery,
        avoided_pucs=tuple(state.avoided),
        fades=state.fades,
        false_alarms=state.false_alarms,
    )


class FabricStatusMemo:
    """Calculates the status of one fabric anew only when something has changed: it is published many times a second.

    Args:
        model: The bench file.
    """

    def __init__(self, model: BenchModel) -> None:
        self._model = model
        self._last: tuple[tuple[Any, ...], FabricStatus | None] | None = None

    def status(
        self,
        state: FabricState,
        circuits: tuple[str, ...],
        manager: str = "",
        standby: StandbyStatus | None = None,
        recovery: RecoveryStatus | None = None,
    ) -> FabricStatus | None:
        """Return the status of the fabric; see :func:`fabric_status`. Callable from any thread."""
        inputs = (state, circuits, manager, standby, recovery)
        last = self._last
        if last is None or last[0] != inputs:
            found = fabric_status(self._model, state, circuits, manager=manager, standby=standby, recovery=recovery)
            self._last = last = (inputs, found)
        return last[1]


def repaired_text(status: Mapping[str, Any], name: str) -> str:
    """Return what a repaired or drained unit does now, and the reason if it is a cold spare.

    Args:
        status: A document of :meth:`FabricStatus.document`.
        name: The server or accelerator that was repaired.
    """
    unit = next((unit for unit in status.get("units", ()) if unit["name"] == name), None)
    if unit is None or (not unit["job"] and not unit["condition"].endswith("spare")):
        return f"{name} is back"
    role = f"in service for job {unit['job']}" if unit["job"] else f"as a {unit['condition']}"
    return f"{name} is back {role}" + (f": {unit['reason']}" if unit["reason"] else "")


def _job(model: BenchModel, job: JobModel, state: FabricState, circuits: Collection[str]) -> JobStatus:
    members = tuple(map(state.unit_at, job.members))
    try:
        needed = tuple(request.name for request in job_requests(model, job, state.places))
    except ConfigError as error:  # a journal of an earlier bench file may name a spare with too few modules
        return JobStatus(job.name, members, "not connected", str(error))
    if job.name in state.refused:
        return JobStatus(job.name, members, "refused", state.refused[job.name], needed)
    missing = [name for name in needed if name not in circuits]
    if missing:
        return JobStatus(job.name, members, "not connected", f"without circuits {', '.join(missing)}", needed)
    if job.name in state.not_resumed:
        return JobStatus(job.name, members, "not resumed", state.not_resumed[job.name], needed)
    return JobStatus(job.name, members, "connected", "", needed)


def _units(
    model: BenchModel, state: FabricState, circuits: Collection[str], is_managed: bool, standby: StandbyStatus | None
) -> Iterator[UnitStatus]:
    serving = {state.unit_at(member): (job.name, member) for job in model.fabric.all_jobs for member in job.members}
    spares = free_spares(model, state)
    replacements = {} if standby is None else standby.replacements
    for name, unit in units(model).items():
        job, member = serving.get(name, ("", ""))
        condition = _condition(unit, state, circuits, is_managed, bool(job), name in spares)
        reason = state.failed.get(name) or (state.cold.get(name, "") if condition == "cold spare" else "")
        # An accelerator without a part in any job only repeats the line of its server.
        if condition != "unused" or name == unit.server:
            replaces = "" if member == name else member
            yield UnitStatus(name, condition, reason, job, replaces, unit.nics, replacements.get(name, ()))


def _condition(
    unit: FabricUnit,
    state: FabricState,
    circuits: Collection[str],
    is_managed: bool,
    serves: bool,
    is_spare: bool,
) -> UnitCondition:
    if unit.name in state.failed:
        return "failed" if unit.name in state.broken else "drained" if unit.name in state.drained else "cut off"
    if serves:
        return "in service" if is_managed else "job member"
    if not is_spare:
        return "unused"
    if not is_managed:  # its light may be off now, but the last manager found no place for its light
        return "cold spare" if unit.name in state.cold else "spare"
    return "warm spare" if all(request.name in circuits for request in loop_requests(unit)) else "cold spare"


def _job_alarms(jobs: Sequence[JobStatus], is_managed: bool) -> list[FabricAlarm]:
    return [
        FabricAlarm("major", f"job {job.name}", job.condition, job.reason)
        for job in jobs
        # Without a manager, unconnected jobs are the normal state.
        if job.condition in ("refused", "not resumed") or (job.condition == "not connected" and is_managed)
    ]


def _unit_alarms(units: Sequence[UnitStatus]) -> Iterator[FabricAlarm]:
    substitutes = {unit.replaces: unit.name for unit in units if unit.replaces}
    for unit in units:
        if unit.condition in ("failed", "cut off"):
            replaced = f", replaced by {substitutes[unit.name]}" if unit.name in substitutes else ""
            yield FabricAlarm("minor", unit.name, f"{unit.condition}{replaced}", unit.reason)
        elif unit.condition == "cold spare":
            yield FabricAlarm("minor", f"spare {unit.name}", "cold", unit.reason)


def _plan_alarms(
    jobs: Sequence[JobStatus], units: Sequence[UnitStatus], standby: StandbyStatus
) -> Iterator[FabricAlarm]:
    connected = {job.name for job in jobs if job.condition in ("connected", "not resumed")}
    for unit in units:
        if unit.condition == "in service" and unit.job in connected and not unit.replacements:
            reasons = [f"{spare}: {text}" for (name, spare), text in standby.reasons.items() if name == unit.name]
            yield FabricAlarm("minor", unit.name, "without a usable spare", "; ".join(reasons) or "no spare is free")
