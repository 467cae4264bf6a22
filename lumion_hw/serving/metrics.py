"""Metrics of a served bench in the Prometheus text format.

Readings and settings keep the unit of the device (label ``unit``); unknown values are omitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, get_args

import numpy as np
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lumion_hw.fabric import FabricStatus
from lumion_hw.fabric.status import UnitCondition
from lumion_hw.joined import JoinedStatus
from lumion_hw.serving.state import AlarmSeverity, Point, ServedState, alarm_severity

_Rows = Iterable[tuple[tuple[str, ...], float | None]]


class PageCounts(Protocol):
    """Number of open web pages, and number of published states that were not sent to slow pages."""

    n_pages: int
    missed: int


class ServedBench(Protocol):
    """The part of a bench owner that the metrics use."""

    @property
    def state(self) -> ServedState:
        """The last published state."""


def dashboard_path() -> Path:
    """Return the path of the Grafana dashboard for these metrics."""
    return Path(__file__).with_name("grafana.json")


class BenchMetrics(Collector):
    """Prometheus collector that converts the newest state to metrics.

    Args:
        pages: Counts of the web pages; ``None`` without a page server.
    """

    def __init__(self, owner: ServedBench, pages: PageCounts | None = None) -> None:
        self._owner, self._pages = owner, pages
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def text(self) -> tuple[bytes, str]:
        """Return all metrics as text, and the content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def describe(self) -> Iterable[Metric]:
        """Return no metrics, because their names depend on the bench."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics of the newest state."""
        state = self._owner.state
        for name, (description, labels, rows) in _GAUGES.items():
            yield _family(GaugeMetricFamily, name, description, labels, rows(state))
        for name, (description, labels, rows) in _COUNTERS.items():
            yield _family(CounterMetricFamily, name, description, labels, rows(state))
        if self._pages is not None:
            pages: _Rows = [((), float(self._pages.n_pages))]
            missed: _Rows = [((), float(self._pages.missed))]
            yield _family(GaugeMetricFamily, "lumion_pages", "Open web pages.", (), pages)
            yield _family(
                CounterMetricFamily, "lumion_page_states_missed", "States that were not sent to slow pages.", (), missed
            )


def _family(kind: Any, name: str, description: str, labels: tuple[str, ...], rows: _Rows) -> Metric:
    family: Metric = kind(name, description, labels=labels)
    for values, number in rows:
        if number is not None and math.isfinite(number):
            family.add_metric(list(values), number)  # type: ignore[attr-defined] # of both kinds
    return family


def _device(point: Point) -> str:
    return point.name.partition(".")[0]


def _readings(state: ServedState) -> Iterator[tuple[tuple[str, ...], float | None]]:
    for point in state.points.values():
        if point.severity is AlarmSeverity.INVALID or point.value is None or isinstance(point.value, str | np.ndarray):
            continue
        yield (point.name, _device(point), point.unit), float(point.value)


def _circuit(value: Callable[[Any], float | None]) -> Callable[[ServedState], _Rows]:
    return lambda state: [((circuit.name,), value(circuit)) for circuit in state.circuits]


def _proofs(state: ServedState) -> _Rows:
    readable = [circuit for circuit in state.circuits if not circuit.unseen]
    return [((circuit.name, name), number) for circuit in readable for name, number in circuit.proof.items()]


def _puc_counts(state: ServedState) -> Iterator[tuple[tuple[str, ...], float | None]]:
    mesh = state.mesh
    if mesh is None:
        return
    used = {puc: word for puc, word in mesh.states.items() if puc not in mesh.parked}
    yield ("bar",), float(sum(word == "bar" for word in used.values()))
    yield ("cross",), float(sum(word == "cross" for word in used.values()))
    yield ("parked",), float(len(mesh.parked))
    yield ("dead",), float(len(mesh.dead))
    yield ("none",), float(len(mesh.heat_mw) - len(set(mesh.states) | mesh.dead))


def _path_powers(state: ServedState) -> Iterator[tuple[tuple[str, ...], float | None]]:
    for path in () if state.mesh is None else state.mesh.paths:
        for hop, power_dbm in enumerate(path.power_dbm):
            yield (path.circuit, f"{path.source}-{path.target}", str(hop)), power_dbm


def _heat(state: ServedState) -> _Rows:
    return [((str(puc),), mw * 1e-3) for puc, mw in enumerate(() if state.mesh is None else state.mesh.heat_mw)]


def _job(value: Callable[[Any], float | None]) -> Callable[[ServedState], _Rows]:
    return lambda state: [] if state.job is None else [((state.job.kind,), value(state.job))]


def _spans(state: ServedState) -> _Rows:
    recovery = state.recovery
    return [] if recovery is None else [((span.name,), span.bench_ms * 1e-3) for span in recovery.spans]


def _silence(state: ServedState) -> _Rows:
    devices = {_device(point): None for point in state.points.values()}
    silent = state.health.silent
    return [((name,), state.time_s - silent[name][0] if name in silent else 0.0) for name in devices]


def _fabric(rows: Callable[[FabricStatus], _Rows]) -> Callable[[ServedState], _Rows]:
    return lambda state: [] if state.fabric is None else rows(state.fabric)


def _joined(rows: Callable[[JoinedStatus], _Rows]) -> Callable[[ServedState], _Rows]:
    return lambda state: [] if state.joined is None else rows(state.joined)


def _unit_counts(fabric: FabricStatus) -> _Rows:
    return [
        ((condition,), float(sum(unit.condition == condition for unit in fabric.units)))
        for condition in get_args(UnitCondition)
    ]


def _scalar(value: Callable[[ServedState], float | None]) -> Callable[[ServedState], _Rows]:
    return lambda state: [((), value(state))]


_GAUGES: Mapping[str, tuple[str, tuple[str, ...], Callable[[ServedState], _Rows]]] = {
    "lumion_bench_info": (
        "The served bench.",
        ("bench", "emulated", "record", "keeps"),
        lambda state: [
            ((state.bench, str(state.is_emulated).lower(), state.record_sha256[:12], state.health.keeps), 1.0)
        ],
    ),
    "lumion_state_time_seconds": ("Time of the newest state, since 1970.", (), _scalar(lambda s: s.time_s)),
    "lumion_start_time_seconds": ("Start time of the server, since 1970.", (), _scalar(lambda s: s.health.started_s)),
    "lumion_reading": ("Reading or setting, in the unit of the label.", ("name", "device", "unit"), _readings),
    "lumion_alarm_severity": (
        "Alarm severity of a reading or setting: 0 none, 1 minor, 2 major, 3 unknown or too old.",
        ("name", "device"),
        lambda state: [((point.name, _device(point)), float(point.severity)) for point in state.points.values()],
    ),
    "lumion_device_silence_seconds": (
        "Time since a silent device last answered; 0 while it answers.",
        ("device",),
        _silence,
    ),
    "lumion_keeping_trouble": (
        "1 while circuits or fabric cannot be maintained.",
        (),
        _scalar(lambda s: float(bool(s.health.trouble))),
    ),
    "lumion_controller_faults": (
        "Latched faults of the mesh controller; with any fault all heaters are off.",
        (),
        _scalar(lambda s: float(len(s.health.faults))),
    ),
    "lumion_pucs": ("Number of PUCs by state.", ("state",), _puc_counts),
    "lumion_puc_heat_watts": ("Heater power of a PUC, calculated from its currents.", ("puc",), _heat),
    "lumion_path_power_dbm": ("Optical power along the path of a circuit.", ("circuit", "ports", "hop"), _path_powers),
    "lumion_circuit_up": (
        "1 if a circuit carries light.",
        ("circuit",),
        _circuit(lambda c: None if c.unseen and not c.fault else float(not c.fault)),
    ),
    "lumion_circuit_severity": (
        "Circuit state: 0 good, 1 marked, 2 broken, 3 unknown.",
        ("circuit",),
        _circuit(lambda c: float(c.severity)),
    ),
    "lumion_circuit_margin_db": (
        "Last measured margin over the receiver sensitivity.",
        ("circuit",),
        _circuit(lambda c: c.margin_db if c.is_known else None),
    ),
    "lumion_circuit_lost_db": (
        "Loss increase of a circuit since set-up.",
        ("circuit",),
        _circuit(lambda c: None if c.unseen else c.lost_db),
    ),
    "lumion_circuit_age_seconds": ("Time since a circuit was set up.", ("circuit",), _circuit(lambda c: c.age_s)),
    "lumion_circuit_lease_seconds": (
        "Time until a circuit's lease ends.",
        ("circuit",),
        _circuit(lambda c: c.lease_left_s),
    ),
    "lumion_circuit_proof": ("Last measured values of a circuit, by quantity.", ("circuit", "quantity"), _proofs),
    "lumion_job_running": ("1 while a job is running.", ("what",), _job(lambda j: float(not j.is_over))),
    "lumion_job_failed": ("1 if the last job failed.", ("what",), _job(lambda j: float(bool(j.error)))),
    "lumion_job_progress_ratio": (
        "Fraction of the current stage of the job that is done.",
        ("what",),
        _job(lambda j: 1.0 if j.is_over and not j.error else j.done / j.total if j.total else 0.0),
    ),
    "lumion_lease_held": (
        "1 for the owner that holds the lease.",
        ("owner",),
        lambda s: [((s.lease.owner,), 1.0)] if s.lease.owner else [],
    ),
    "lumion_lease_number": (
        "Fencing number of the lease; it only grows.",
        (),
        _scalar(lambda s: float(s.lease.number)),
    ),
    "lumion_fabric_severity": (
        "Highest severity of the fabric's alarms: 0 none, 1 minor, 2 major (a job cannot train).",
        (),
        _fabric(lambda f: [((), float(alarm_severity(f.severity)))]),
    ),
    "lumion_fabric_job_connected": (
        "1 if all circuits of a job are set up.",
        ("job",),
        _fabric(lambda f: [((job.name,), float(job.condition in ("connected", "not resumed"))) for job in f.jobs]),
    ),
    "lumion_fabric_job_refused": (
        "1 if a job has no circuits because no spare can be used.",
        ("job",),
        _fabric(lambda f: [((job.name,), float(job.condition == "refused")) for job in f.jobs]),
    ),
    "lumion_fabric_units": ("Number of servers and accelerators by condition.", ("condition",), _fabric(_unit_counts)),
    "lumion_fabric_replacements": (
        "Number of spares that can replace a unit in service.",
        ("unit",),
        _fabric(
            lambda f: [
                ((unit.name,), float(len(unit.replacements)))
                for unit in f.units
                if f.plans_ready and unit.condition == "in service"
            ]
        ),
    ),
    "lumion_joined_severity": (
        "Highest severity of the alarms of joined meshes: 0 none, 1 minor, 2 major (a circuit is lost).",
        (),
        _joined(lambda j: [((), float(alarm_severity(j.severity)))]),
    ),
    "lumion_joined_bench_up": (
        "1 if a bench of the joined meshes answers.",
        ("bench",),
        _joined(lambda j: [((bench.name,), float(not bench.problem)) for bench in j.benches]),
    ),
    "lumion_joined_circuit_up": (
        "1 if a circuit over several meshes is complete and carries light.",
        ("circuit",),
        _joined(lambda j: [((link.name,), float(not link.is_lost)) for link in j.circuits]),
    ),
    "lumion_joined_circuit_margin_db": (
        "Last measured margin of a circuit over several meshes.",
        ("circuit",),
        _joined(lambda j: [((link.name,), link.margin_db) for link in j.circuits]),
    ),
    "lumion_joined_time_seconds": (
        "Time of the last query of the joined meshes, since 1970.",
        (),
        _joined(lambda j: [((), j.time_s)]),
    ),
    "lumion_recovery_time_seconds": (
        "Time of the last recovery, since 1970.",
        (),
        _scalar(lambda s: None if s.recovery is None else s.recovery.time_s),
    ),
    "lumion_recovery_span_seconds": ("Bench time of each span of the last recovery.", ("span",), _spans),
}
_COUNTERS: Mapping[str, tuple[str, tuple[str, ...], Callable[[ServedState], _Rows]]] = {
    "lumion_states": ("Published states.", (), _scalar(lambda s: float(s.number))),
    "lumion_events": (
        "Events of the bench so far.",
        (),
        _scalar(lambda s: float(s.events[-1].number) if s.events else 0.0),
    ),
    "lumion_fabric_fades": (
        "Fades of light so far.",
        (),
        _fabric(lambda f: [((), float(f.fades))]),
    ),
    "lumion_fabric_false_alarms": (
        "Failures after which the light came back without a repair.",
        (),
        _fabric(lambda f: [((), float(f.false_alarms))]),
    ),
}
