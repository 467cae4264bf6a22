"""Updates for pages: the changed parts of a state as JSON."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lumion_hw.fabric import FabricStatus, RecoveryStatus
from lumion_hw.files.json_text import json_text
from lumion_hw.joined import JoinedStatus
from lumion_hw.serving.event_sentences import event_sentence
from lumion_hw.serving.headline import headline, short_reason
from lumion_hw.serving.history import interval_starts
from lumion_hw.serving.state import (
    MarginSample,
    Point,
    ServedCircuit,
    ServedEvent,
    ServedJob,
    ServedMesh,
    ServedState,
    alarm_severity,
)

_DIGITS = 6
_MAX_CACHED_MESSAGES = 8


class PageUpdates:
    """Parts of the bench state as JSON, each with the number of the state in which it changed last."""

    def __init__(self, about: Mapping[str, Any]) -> None:
        self.number = 0
        self.time_s = 0.0
        self._about = about
        self._parts: dict[str, tuple[int, str]] = {}
        self._sources: dict[str, Any] = {}
        self._points: dict[str, tuple[int, Point, str]] = {}
        self._point_kinds: dict[str, tuple[int, tuple[Any, ...]]] = {}
        self._events: list[tuple[int, int, str]] = []
        self._alignments: dict[str, tuple[float, bool, float | None]] = {}
        self._mesh: ServedMesh | None = None
        self._pictures = 0
        self._picture_key: Any = None
        self._messages: dict[int, str] = {}

    def update(self, state: ServedState) -> None:
        """Replace the parts that have changed in a new state."""
        self.number, self.time_s = state.number, state.time_s
        self._messages.clear()
        for point in state.points.values():
            self._update_point(point)
        for removed in [name for name in self._points if name not in state.points]:
            self._points[removed] = (self.number, self._points[removed][1], "null")
        self._update_mesh(state.mesh)
        self._update_events(state.events)
        self._set_part("circuits", [circuit_document(circuit, state.time_s) for circuit in state.circuits])
        self._set_part("headline", _headline_document(state))
        self._set_part("lease", _lease_document(state))
        self._set_part("health", _health_document(state))
        # The other parts seldom change, and their JSON is made only then.
        sources = {"fabric": state.fabric, "joined": state.joined, "recovery": state.recovery, "job": state.job}
        for name, source in sources.items():
            if name not in self._parts or self._sources.get(name) != source:
                self._sources[name] = source
                self._set_part(name, None if source is None else _DOCUMENTS[name](source))
        about = (state.bench, state.is_emulated)
        if self._sources.get("about") != about:
            self._sources["about"] = about
            self._set_part("about", {**self._about, "bench": state.bench, "is_emulated": state.is_emulated})

    def message(self, since: int) -> str:
        """Return all changes after state ``since`` as the content of a JSON object, without braces."""
        # Usually all pages have received the same state last, so they get the same text.
        message = self._messages.get(since)
        if message is None:
            if len(self._messages) >= _MAX_CACHED_MESSAGES:
                self._messages.clear()
            message = self._messages[since] = self._message(since)
        return message

    def _message(self, since: int) -> str:
        parts = [f'"{name}":{text}' for name, (number, text) in self._parts.items() if number > since]
        points = _object((name, text) for name, (number, _, text) in self._points.items() if number > since)
        kinds = _object((name, to_json(kind)) for name, (number, kind) in self._point_kinds.items() if number > since)
        events = ",".join(text for number, _, text in self._events if number > since)
        for name, text in (("points", points), ("point_kinds", kinds)):
            if text != "{}":
                parts.append(f'"{name}":{text}')
        if events:
            parts.append(f'"events":[{events}]')
        return f'"number":{self.number},"time_s":{self.time_s:.3f},"parts":{{{",".join(parts)}}}'

    def _set_part(self, name: str, document: Any) -> None:
        text = to_json(document)
        if self._parts.get(name, (0, ""))[1] != text:
            self._parts[name] = (self.number, text)

    def _update_point(self, point: Point) -> None:
        previous = self._points.get(point.name)
        if previous is not None and previous[1] is point:
            return
        text = _point_text(point)
        if previous is None or previous[2] != text:
            self._points[point.name] = (self.number, point, text)
        kind = (point.unit, point.limits, point.writable, point.choices, point.kind)
        if self._point_kinds.get(point.name, (0, None))[1] != kind:
            self._point_kinds[point.name] = (self.number, kind)

    def _update_mesh(self, mesh: ServedMesh | None) -> None:
        if mesh == self._mesh and "mesh" in self._parts:
            return
        self._mesh = mesh
        if mesh is None:
            self._set_part("mesh", None)
            return
        key = picture_key(mesh)
        self._pictures += key != self._picture_key
        self._picture_key = key
        paths = [
            {
                "circuit": path.circuit,
                "source": path.source,
                "target": path.target,
                "pucs": path.pucs,
                "power_dbm": [_json_value(power) for power in path.power_dbm],
            }
            for path in mesh.paths
        ]
        self._set_part("paths", paths)
        document = {
            "picture": self._pictures,
            "states": mesh.states,
            "heat_mw": [round(heat_mw, 3) for heat_mw in mesh.heat_mw],
            "parked": sorted(mesh.parked),
            "dead": sorted(mesh.dead),
        }
        self._set_part("mesh", document)

    def _update_events(self, events: Sequence[ServedEvent]) -> None:
        last = self._events[-1][1] if self._events else 0
        oldest = events[0].number if events else last + 1
        self._events = [event for event in self._events if event[1] >= oldest]
        for event in events:
            if event.number > last:
                severity, sentence = event_sentence(event.event, event.data)
                document = [event.number, round(event.time_s, 3), event.event, sentence, int(severity)]
                self._events.append((self.number, event.number, to_json(document)))
                self._note_alignment(event)
        self._set_part("alignments", self._alignments)

    def _note_alignment(self, event: ServedEvent) -> None:
        """Keep time, success and remaining loss in dB (if known) of the last polarization search of each controller."""
        if event.event in ("aligned", "not aligned"):
            loss_db = _json_value(event.data.get("remaining_loss_db"))
            self._alignments[str(event.data.get("controller"))] = (
                round(event.time_s),
                event.event == "aligned",
                loss_db,
            )


def picture_key(mesh: ServedMesh) -> Any:
    """Return a key that changes if the picture of the mesh changes (power rounded to 0.5 dB)."""
    paths = [
        (path.circuit, path.source, path.pucs, tuple(None if p is None else round(2.0 * p) for p in path.power_dbm))
        for path in mesh.paths
    ]
    return dict(mesh.states), mesh.parked, mesh.dead, paths


def to_json(document: Any) -> str:
    """Return compact JSON text without ``<``, for embedding in HTML."""
    return json_text(document, compact=True, default=str).replace("<", "\\u003c")


def _point_text(point: Point) -> str:
    value = point.value
    is_plain = isinstance(value, float) and math.isfinite(value)
    value_text = f"{value:.{_DIGITS}g}" if is_plain else to_json(_json_value(value))
    alarm = to_json(point.alarm) if point.alarm else '""'
    return f"[{value_text},{point.time_s:.2f},{int(point.severity)},{alarm}]"


def _object(members: Iterable[tuple[str, str]]) -> str:
    return "{" + ",".join(f"{_quoted(name)}:{text}" for name, text in members) + "}"


@functools.lru_cache(maxsize=4096)
def _quoted(name: str) -> str:
    return to_json(name)


def _json_value(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_json_value(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    return value if isinstance(value, bool | int | str) or value is None else str(value)


def circuit_document(circuit: ServedCircuit, now_s: float) -> dict[str, Any]:
    """Return the document of a circuit for pages, with times instead of ages."""
    left_s = circuit.lease_left_s
    return {
        "name": circuit.name,
        "since_s": round(circuit.since_s, 1),
        "ends_s": None if left_s is None else round(now_s + left_s),
        "seen_s": None if circuit.seen_s is None else round(circuit.seen_s, 1),
        "proof": _json_value(circuit.proof),
        "margin_db": _json_value(circuit.margin_db),
        "min_margin_db": circuit.min_margin_db,
        "lost_db": _json_value(circuit.lost_db),
        "marks": list(circuit.marks),
        "fault": circuit.fault,
        "unseen": circuit.unseen,
        "severity": int(circuit.severity),
    }


def _headline_document(state: ServedState) -> list[Any]:
    sentence = headline(state)
    return [int(sentence.severity), sentence.text]


def _fabric_document(fabric: FabricStatus) -> dict[str, Any]:
    document = fabric.document()
    for part in (*document["units"], *document["jobs"], *document["alarms"]):
        part["reason"] = short_reason(part["reason"])
    for alarm in document["alarms"]:
        alarm["severity"] = int(alarm_severity(alarm["severity"]))
    return {name: document[name] for name in ("manager", "jobs", "units", "alarms", "plans_ready")}


def _first_of(problems: Sequence[str]) -> str:
    more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
    return short_reason(problems[0]) + more if problems else ""


def _joined_document(joined: JoinedStatus) -> dict[str, Any]:
    return {
        "name": joined.name,
        "time_s": round(joined.time_s, 1),
        "benches": [[bench.name, bench.circuits, short_reason(bench.problem)] for bench in joined.benches],
        "circuits": [
            [link.name, _json_value(link.margin_db), int(alarm_severity(link.severity)), _first_of(link.problems)]
            for link in joined.circuits
        ],
        "change": joined.history.summary(),
        "changed_s": joined.history.changed_s,
        "alarms": [
            {
                "severity": int(alarm_severity(alarm.severity)),
                "subject": alarm.subject,
                "condition": alarm.condition,
                "reason": short_reason(alarm.reason),
            }
            for alarm in joined.alarms
        ],
    }


def _recovery_document(recovery: RecoveryStatus) -> dict[str, Any]:
    return {
        "time_s": round(recovery.time_s, 3),
        "failed": recovery.failed,
        "spare": recovery.spare,
        "words": recovery.reason,
        "circuit": recovery.circuit,
        "is_confirmed": recovery.is_confirmed,
        "spans": [[span.name, span.bench_ms, span.cpu_ms, span.at_ms, span.source] for span in recovery.spans],
    }


def _job_document(job: ServedJob) -> dict[str, Any]:
    return {
        "number": job.number,
        "what": job.kind,
        "by": job.by,
        "begun_s": round(job.begun_s, 1),
        "stage": job.stage,
        "done": job.done,
        "total": job.total,
        "residuals": _json_value(job.residuals),
        "stages": [[name, round(begun_s, 1)] for name, begun_s in job.stages],
        "residual_log": [[round(time_s, 1), name, _json_value(value)] for time_s, name, value in job.residual_log],
        "is_over": job.is_over,
        "error": job.error,
        "result": _json_value(job.result),
        "curve": _json_value(None if job.curve is None else vars(job.curve)),
    }


def _lease_document(state: ServedState) -> dict[str, Any]:
    lease = state.lease
    return {
        "owner": lease.owner,
        "number": lease.number,
        "since_s": round(lease.since_s, 1),
        "ends_s": round(state.time_s + lease.left_s) if lease.owner else None,
    }


def _health_document(state: ServedState) -> dict[str, Any]:
    health = state.health
    return {
        "started_s": round(health.started_s, 1),
        "silent": {name: [round(since_s), reason] for name, (since_s, reason) in health.silent.items()},
        "keeps": health.keeps,
        "trouble": health.trouble,
        "faults": list(health.faults),
        "record_sha256": state.record_sha256,
    }


_DOCUMENTS: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "fabric": _fabric_document,
    "joined": _joined_document,
    "recovery": _recovery_document,
    "job": _job_document,
}


def margin_curves(
    history: Sequence[MarginSample], start_s: float = -math.inf, end_s: float = math.inf
) -> dict[str, Any]:
    """Return margin curves over time: the lowest margin of each interval.

    Args:
        history: All samples, oldest first.
        start_s: Start of the time range, in seconds since 1970.
        end_s: End of the time range, in seconds since 1970.

    Returns:
        ``time_s`` with at most ``MAX_INTERVALS`` values, and ``margin_db`` with as many values per circuit name;
        ``None`` if the circuit was not active or had no light.
    """
    samples = [sample for sample in history if start_s <= sample.time_s <= end_s]
    starts = interval_starts(np.array([sample.time_s for sample in samples])).tolist()
    intervals = [samples[start:end] for start, end in itertools.pairwise([*starts, len(samples)])]
    names = sorted({name for sample in samples for name in sample.margin_db})
    return {
        "time_s": [round(interval[-1].time_s, 1) for interval in intervals],
        "margin_db": {name: [_min_margin(name, interval) for interval in intervals] for name in names},
    }


def _min_margin(name: str, samples: Sequence[MarginSample]) -> float | None:
    margins_db = [sample.margin_db.get(name) for sample in samples]
    finite_margins_db = [margin_db for margin_db in margins_db if margin_db is not None and math.isfinite(margin_db)]
    return round(min(finite_margins_db), 2) if len(finite_margins_db) == len(margins_db) else None
