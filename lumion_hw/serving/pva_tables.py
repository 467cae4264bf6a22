"""PV Access tables and scalars other than readings and settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from lumion_hw.fabric import FabricAlarm, FabricStatus, RecoveryStatus
from lumion_hw.fabric.status import UnitCondition
from lumion_hw.files.json_text import json_text
from lumion_hw.joined import JoinedStatus
from lumion_hw.serving.state import AlarmSeverity, ServedState, alarm_severity

_N, _M = AlarmSeverity.NONE, AlarmSeverity.MAJOR
_Part = TypeVar("_Part", bound=FabricStatus | JoinedStatus)
_ScalarValue = tuple[Any, AlarmSeverity, str]


def _circuits(state: ServedState) -> list[tuple[Any, ...]]:
    return [
        (
            circuit.name,
            circuit.since_s,
            round(circuit.age_s),
            _number_or_nan(circuit.margin_db),
            _number_or_nan(circuit.proof.get("received_dbm")),
            _number_or_nan(circuit.proof.get("measured_loss_db")),
            _number_or_nan(circuit.lost_db),
            _number_or_nan(circuit.lease_left_s),
            int(circuit.severity),
            circuit.alarm,
        )
        for circuit in state.circuits
    ]


def _alarms(state: ServedState) -> list[tuple[Any, ...]]:
    faults = [("mesh controller", int(_M), f"switched off: {fault}") for fault in state.health.faults]
    points = [(point.name, int(point.severity), point.alarm) for point in state.points.values()]
    circuits = [(circuit.name, int(circuit.severity), circuit.alarm) for circuit in state.circuits]
    of_fabric = [
        (alarm.subject, int(alarm_severity(alarm.severity)), _alarm_text(alarm)) for alarm in state.fabric_alarms
    ]
    return [row for row in (*faults, *of_fabric, *points, *circuits) if row[1]]


def _alarm_text(alarm: FabricAlarm) -> str:
    return f"{alarm.condition}: {alarm.reason}" if alarm.reason else alarm.condition


def _events(state: ServedState) -> list[tuple[Any, ...]]:
    return [(event.number, event.time_s, event.event, json_text(event.data)) for event in state.events]


def _spans(state: ServedState) -> list[tuple[Any, ...]]:
    spans = () if state.recovery is None else state.recovery.spans
    return [(span.name, span.bench_ms, span.at_ms, span.cpu_ms, span.source) for span in spans]


def _fabric_jobs(state: ServedState) -> list[tuple[Any, ...]]:
    jobs = () if state.fabric is None else state.fabric.jobs
    return [(job.name, job.condition, " ".join(job.units), job.reason) for job in jobs]


def _fabric_units(state: ServedState) -> list[tuple[Any, ...]]:
    units = () if state.fabric is None else state.fabric.units
    return [
        (unit.name, unit.condition, unit.job, unit.replaces, " ".join(unit.replacements), unit.reason) for unit in units
    ]


def _joined_circuits(state: ServedState) -> list[tuple[Any, ...]]:
    links = () if state.joined is None else state.joined.circuits
    return [
        (link.name, _number_or_nan(link.margin_db), int(alarm_severity(link.severity)), "; ".join(link.problems))
        for link in links
    ]


def _joined_benches(state: ServedState) -> list[tuple[Any, ...]]:
    benches = () if state.joined is None else state.joined.benches
    return [(bench.name, not bench.problem, bench.circuits, bench.problem) for bench in benches]


TABLES: Mapping[str, tuple[list[tuple[str, str]], Callable[[ServedState], list[tuple[Any, ...]]]]] = {
    "circuits": (
        [
            ("name", "s"), ("since_s", "d"), ("age_s", "d"), ("margin_db", "d"), ("received_dbm", "d"),
            ("loss_db", "d"), ("lost_db", "d"), ("lease_left_s", "d"), ("severity", "i"), ("alarm", "s"),
        ],
        _circuits,
    ),
    "alarms": ([("name", "s"), ("severity", "i"), ("alarm", "s")], _alarms),
    "events": ([("number", "l"), ("time_s", "d"), ("event", "s"), ("data", "s")], _events),
    "recovery:spans": (
        [("name", "s"), ("bench_ms", "d"), ("at_ms", "d"), ("cpu_ms", "d"), ("source", "s")],
        _spans,
    ),
    "fabric:jobs": ([("name", "s"), ("condition", "s"), ("units", "s"), ("reason", "s")], _fabric_jobs),
    "fabric:units": (
        [
            ("name", "s"), ("condition", "s"), ("job", "s"), ("replaces", "s"), ("replacements", "s"), ("reason", "s"),
        ],
        _fabric_units,
    ),
    "joined:circuits": ([("name", "s"), ("margin_db", "d"), ("severity", "i"), ("alarm", "s")], _joined_circuits),
    "joined:benches": ([("name", "s"), ("reachable", "?"), ("circuits", "i"), ("alarm", "s")], _joined_benches),
}  # fmt: skip
"""For each table, its columns with PV Access types, and the function that returns its rows."""


def _worst_severity(state: ServedState) -> _ScalarValue:
    fault_severity = [_M] if state.health.faults else []
    fault_severity += [alarm_severity(alarm.severity) for alarm in state.fabric_alarms]
    severities = [point.severity for point in state.points.values()] + [circuit.severity for circuit in state.circuits]
    worst = max([_N, *fault_severity, *severities])
    return int(worst), worst, worst.name if worst else ""


def _trouble(state: ServedState) -> _ScalarValue:
    trouble = state.health.trouble
    return trouble, _M if trouble else _N, trouble


def _faults(state: ServedState) -> _ScalarValue:
    faults = list(state.health.faults)
    return faults, _M if faults else _N, "; ".join(faults)


def _silent(state: ServedState) -> _ScalarValue:
    names = list(state.health.silent)
    return (
        names,
        AlarmSeverity.INVALID if names else _N,
        "; ".join(f"{n}: {reason}" for n, (_, reason) in state.health.silent.items()),
    )


def _job(attribute: str, otherwise: Any) -> Callable[[ServedState], _ScalarValue]:
    def value(state: ServedState) -> _ScalarValue:
        job = state.job
        if job is None:
            return otherwise, _N, ""
        return getattr(job, attribute), _M if job.error else _N, job.error

    return value


def _progress(state: ServedState) -> _ScalarValue:
    job = state.job
    if job is None or not (job.total or job.is_over):
        return 0.0, _N, ""
    return (
        100.0 if job.is_over and not job.error else 100.0 * job.done / max(job.total, 1),
        _M if job.error else _N,
        job.error,
    )


def _states(state: ServedState) -> _ScalarValue:
    mesh = state.mesh
    if mesh is None:
        return [], _N, ""
    return [mesh.states.get(puc, "") for puc in range(len(mesh.heat_mw))], _N, ""


def _heat(state: ServedState) -> _ScalarValue:
    return [] if state.mesh is None else list(state.mesh.heat_mw), _N, ""


def _scalar_of(
    part: Callable[[ServedState], _Part | None], value: Callable[[_Part], Any], otherwise: Any, *conditions: str
) -> Callable[[ServedState], _ScalarValue]:
    """Return the function of a scalar of one part; its alarm is the first one with one of these conditions."""

    def scalar(state: ServedState) -> _ScalarValue:
        present = part(state)
        if present is None:
            return otherwise, _N, ""
        return value(present), *_alarm_of(present.alarms, conditions)

    return scalar


_fabric = partial(_scalar_of, lambda state: state.fabric)
_joined = partial(_scalar_of, lambda state: state.joined)


def _alarm_of(alarms: Sequence[FabricAlarm], conditions: tuple[str, ...]) -> tuple[AlarmSeverity, str]:
    those = [alarm for alarm in alarms if alarm.condition.startswith(conditions)]
    texts = [f"{alarm.subject} {_alarm_text(alarm)}" for alarm in those]
    return alarm_severity(those[0].severity) if those else _N, "; ".join(texts)


def _names(condition: UnitCondition) -> Callable[[FabricStatus], list[str]]:
    return lambda fabric: [unit.name for unit in fabric.units if unit.condition == condition]


def _recovered(value: Callable[[RecoveryStatus], Any], otherwise: Any) -> Callable[[FabricStatus], Any]:
    return lambda fabric: otherwise if fabric.recovery is None else value(fabric.recovery)


SCALARS: Mapping[str, tuple[str, Callable[[ServedState], _ScalarValue]]] = {
    "lease:owner": ("s", lambda state: (state.lease.owner, _N, "")),
    "lease:number": ("l", lambda state: (state.lease.number, _N, "")),
    "lease:age_s": ("d", lambda state: (round(state.lease.age_s), _N, "")),
    "job:what": ("s", _job("kind", "")),
    "job:by": ("s", _job("by", "")),
    "job:stage": ("s", _job("stage", "")),
    "job:done": ("l", _job("done", 0)),
    "job:total": ("l", _job("total", 0)),
    "job:progress_percent": ("d", _progress),
    "job:is_over": ("?", _job("is_over", True)),
    "job:error": ("s", _job("error", "")),
    "record:sha256": ("s", lambda state: (state.record_sha256, _N, "")),
    "mesh:states": ("as", _states),
    "mesh:heat_mw": ("ad", _heat),
    "health:keeps": ("s", lambda state: (state.health.keeps, _N, "")),
    "health:trouble": ("s", _trouble),
    "health:faults": ("as", _faults),
    "health:silent": ("as", _silent),
    "health:severity": ("i", _worst_severity),
    "fabric:severity": ("i", _fabric(lambda fabric: int(alarm_severity(fabric.severity)), 0, "")),
    "fabric:manager": ("s", _fabric(lambda fabric: fabric.manager, "")),
    "fabric:refused": (
        "as",
        _fabric(lambda f: [job.name for job in f.jobs if job.condition == "refused"], [], "refused", "not connected"),
    ),
    "fabric:failed": ("as", _fabric(_names("failed"), [], "failed")),
    "fabric:cut_off": ("as", _fabric(_names("cut off"), [], "cut off")),
    "fabric:drained": ("as", _fabric(_names("drained"), [])),
    "fabric:warm": ("as", _fabric(_names("warm spare"), [])),
    "fabric:cold": ("as", _fabric(_names("cold spare"), [], "cold")),
    "fabric:circuits": ("as", _fabric(lambda fabric: list(fabric.circuits), [])),
    "fabric:plans_ready": ("?", _fabric(lambda fabric: fabric.plans_ready, False, "without a usable spare")),
    "fabric:interrupted": ("s", _fabric(lambda fabric: fabric.interrupted, "", "interrupted")),
    "recovery:time_s": ("d", _fabric(_recovered(lambda recovery: recovery.time_s, math.nan), math.nan)),
    "recovery:failed": ("s", _fabric(_recovered(lambda recovery: recovery.failed or recovery.circuit, ""), "")),
    "recovery:spare": ("s", _fabric(_recovered(lambda recovery: recovery.spare, ""), "")),
    "joined:severity": ("i", _joined(lambda joined: int(alarm_severity(joined.severity)), 0, "")),
    "joined:lost": ("as", _joined(lambda joined: [link.name for link in joined.circuits if link.is_lost], [], "lost")),
    "joined:unreachable": (
        "as",
        _joined(lambda joined: [bench.name for bench in joined.benches if bench.problem], [], "not reachable"),
    ),
    "joined:min_margin_db": ("d", _joined(lambda joined: _number_or_nan(joined.min_margin_db), math.nan)),
    "joined:change": ("s", _joined(lambda joined: joined.history.summary(), "", "not finished")),
    "health:emulated": ("?", lambda state: (state.is_emulated, _N, "")),
}
"""For each scalar, its PV Access type, and the function that returns value, severity and alarm."""


def _number_or_nan(number: float | None) -> float:
    return math.nan if number is None else float(number)
