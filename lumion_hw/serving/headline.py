"""One sentence on the condition of a served bench."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from lumion_hw.fabric import FabricAlarm
from lumion_hw.serving.state import AlarmSeverity, ServedCircuit, ServedState, alarm_severity

MAX_REASON_LENGTH = 160
"""Longest reason in a headline, in characters; longer ones are cut."""
# The first statement of an error message: details of a search and hints follow it.
_FIRST_STATEMENT = re.compile(r"(.+?)(?: with \d+ blocked\b.*|[.;] .*|\.)?", re.DOTALL)

_ORDER = (AlarmSeverity.NONE, AlarmSeverity.MINOR, AlarmSeverity.INVALID, AlarmSeverity.MAJOR)
"""Severities in the order of a headline: a known fault is worse than an unknown condition."""

_Clause = tuple[AlarmSeverity, str]


@dataclass(frozen=True)
class BenchHeadline:
    """The condition of a bench in one sentence, and its severity."""

    severity: AlarmSeverity
    text: str


def headline(state: ServedState) -> BenchHeadline:
    """Return the condition of a bench: first circuits, then everything that is not as it should be."""
    clauses = [clause for find in _FINDERS for clause in find(state)]
    text = "; ".join(text for _, text in clauses)
    return BenchHeadline(max((severity for severity, _ in clauses), key=_ORDER.index), text[:1].upper() + text[1:])


def short_reason(reason: str) -> str:
    """Return the first statement of an error message, without details and hints."""
    match = _FIRST_STATEMENT.fullmatch(reason.strip())
    text = match[1] if match else reason
    return text if len(text) <= MAX_REASON_LENGTH else text[: MAX_REASON_LENGTH - 1] + "…"


def _faults(state: ServedState) -> list[_Clause]:
    faults = state.health.faults
    if not faults:
        return []
    names = " and ".join(dict.fromkeys(fault.partition(" ")[0] for fault in faults))
    dark = f", so {_count(len(state.circuits), 'circuit')} carry no light" if len(state.circuits) > 1 else ""
    dark = ", so the circuit carries no light" if len(state.circuits) == 1 else dark
    return [(AlarmSeverity.MAJOR, f"controller fault {names}: all heaters are off{dark}")]


def _trouble(state: ServedState) -> list[_Clause]:
    trouble = state.health.trouble
    if not trouble or state.health.faults:  # the fault itself says more than the failure that it causes
        return []
    kept = {"fabric": "the fabric is", "circuits": "the circuits are"}.get(state.health.keeps, "the bench is")
    return [(AlarmSeverity.MAJOR, f"{kept} not maintained: {short_reason(trouble)}")]


def _jobs(state: ServedState) -> list[_Clause]:
    job = state.job
    if job is None:
        return []
    if job.is_over:
        # A failed attempt to do what is done by now is history, which the list of events shows.
        # A program may end its own scan at any time.
        failed = job.error and job.kind != "scan" and not (job.kind == "calibrate" and state.record_sha256)
        return [(AlarmSeverity.MINOR, f"the job {job.kind} failed: {short_reason(job.error)}")] if failed else []
    progress = f", {job.done} of {job.total}" if job.total else ""
    stage = f": {job.stage}{progress}" if job.stage else ""
    verb = {"calibrate": "calibrating", "scan": "scanning"}.get(job.kind, f"job {job.kind} running")
    return [(AlarmSeverity.NONE, f"{verb} for {job.by}{stage}")]


def _circuits(state: ServedState) -> list[_Clause]:
    circuits = state.circuits
    if state.health.faults and circuits:
        return []
    if not circuits:
        return _without_circuits(state)
    broken = [circuit for circuit in circuits if circuit.fault]
    unknown = [circuit for circuit in circuits if circuit.unseen and not circuit.fault]
    n_up = len(circuits) - len(broken) - len(unknown)
    ratio = f"{n_up} of {_count(len(circuits), 'circuit')}" if n_up < len(circuits) else _count(n_up, "circuit")
    clauses = [(AlarmSeverity.NONE, f"{ratio} up{_smallest_margin(circuits)}")]
    if broken:
        others = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
        clauses.append((AlarmSeverity.MAJOR, f"{broken[0].name}{others} broken: {short_reason(broken[0].fault)}"))
    if unknown:
        others = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        clauses.append((AlarmSeverity.INVALID, f"{unknown[0].name}{others} unknown: {short_reason(unknown[0].unseen)}"))
    marked = [circuit for circuit in circuits if circuit.marks and circuit.is_known]
    if marked:
        clauses.append((AlarmSeverity.MINOR, f"{marked[0].name} {short_reason(marked[0].marks[0])}"))
    return clauses


def _smallest_margin(circuits: tuple[ServedCircuit, ...]) -> str:
    margins = [
        (circuit.margin_db, circuit.name) for circuit in circuits if circuit.is_known and circuit.margin_db is not None
    ]
    if not margins:
        return ""
    margin_db, name = min(margins)
    return f", {'smallest ' if len(margins) > 1 else ''}margin {margin_db:.1f} dB at {name}"


def _without_circuits(state: ServedState) -> list[_Clause]:
    if state.job is not None and not state.job.is_over:
        return []
    if state.mesh is None:
        n_devices = len({name.partition(".")[0] for name in state.points})
        return [(AlarmSeverity.NONE, f"{_count(n_devices, 'device')}, no mesh")]
    if not state.record_sha256:
        return [(AlarmSeverity.NONE, "no calibration record, so no circuits: calibrate the mesh first")]
    return [(AlarmSeverity.NONE, "calibrated, no circuits connected")]


def _fabric(state: ServedState) -> list[_Clause]:
    clauses: list[_Clause] = []
    alike: dict[str, list[FabricAlarm]] = {}
    for alarm in state.fabric_alarms:
        alike.setdefault(alarm.condition, []).append(alarm)
    for condition, (first, *others) in alike.items():
        more = f" and {len(others)} more" if others else ""
        reason = f": {short_reason(first.reason)}" if first.reason else ""
        clauses.append((alarm_severity(first.severity), f"{first.subject}{more} {condition}{reason}"))
    return clauses


def _silence(state: ServedState) -> list[_Clause]:
    names = list(state.health.silent)
    if not names:
        return []
    text = f"{names[0]} does" if len(names) == 1 else f"{len(names)} devices do"
    return [(AlarmSeverity.INVALID, f"{text} not answer")]


def _readings(state: ServedState) -> list[_Clause]:
    points = [point for point in state.points.values() if point.severity is AlarmSeverity.MAJOR]
    if not points:
        return []
    others = f" and {_count(len(points) - 1, 'more reading')}" if len(points) > 1 else ""
    return [(AlarmSeverity.MAJOR, f"{points[0].name} {short_reason(points[0].alarm)}{others}")]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


_FINDERS: tuple[Callable[[ServedState], list[_Clause]], ...] = (
    _faults,
    _trouble,
    _jobs,
    _circuits,
    _fabric,
    _silence,
    _readings,
)
"""Finders of the clauses, in the order of the sentence."""
