"""Prepared configurations as a file: ways, states, currents and budgets, for the bench they were prepared for alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lumion_hw.bench.file.model import BenchModel
from lumion_hw.circuits.planned import CircuitPlan, PlannedCircuit
from lumion_hw.errors import ConfigError, LumionError
from lumion_hw.files import AnyPath
from lumion_hw.files.json_text import check_numbers
from lumion_hw.files.reading import read_json
from lumion_hw.files.writing import Over, write_file
from lumion_hw.mesh.layout.topology import MeshTopology, State
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.mesh.record.canonical import content_hash, readable
from lumion_hw.mesh.routing import Routing, states_for_paths
from lumion_hw.schedules.phases import JobPhase, ModuleCircuits, PhasePlan, PreparedPhase

_SCHEMA, _VERSION = "lumion-prepared-phases", 1
_HEADER = ("schema", "schema_version", "content_sha256")
_WHAT = "prepared configurations"
_HINT = "Prepare them anew: `lumion schedule phases JOB --bench BENCH --record RECORD --out FILE`."


@dataclass(frozen=True)
class _Configuration:
    """A :class:`~lumion_hw.schedules.phases.PreparedPhase` in plain values, as the file has it."""

    phase: JobPhase
    circuits: ModuleCircuits
    kept: ModuleCircuits
    alone: bool
    planned: tuple[PlannedCircuit, ...]
    routing: Routing
    states: dict[int, State]
    currents_ma: tuple[float, ...]
    heat_mw: float


@dataclass(frozen=True)
class _Content:
    """What the file holds besides its header."""

    software: str
    bench: str
    bench_sha256: str
    mesh: str
    mesh_sha256: str
    record: str
    record_sha256: str
    job: str
    iterations: int
    configurations: tuple[_Configuration, ...]


def save_prepared(
    prepared: Mapping[str, PreparedPhase],
    plan: PhasePlan,
    model: BenchModel,
    record: CalibrationRecord,
    path: AnyPath,
    over: Over = "own",
) -> None:
    """Write prepared configurations as JSON, all or nothing.

    Args:
        prepared: Configurations by tag.
        plan: The phases they were prepared for.
        model: The checked bench file.
        record: Calibration of its mesh.
        path: Where to.
        over: What may be written over.

    Raises:
        ConfigError: Nothing can be written there, or there is something that must not be written over.
        LumionError: There is no room, or the disk failed.
    """
    from pydantic import TypeAdapter

    from lumion_hw import __version__

    configurations = tuple(
        _Configuration(
            each.phase,
            each.circuits,
            each.kept,
            each.excludes_others,
            each.plan.circuits,
            each.plan.routing,
            each.plan.states,
            tuple(each.plan.currents_ma.tolist()),
            each.plan.heat_mw,
        )
        for each in prepared.values()
    )
    belonging = _belonging(model, record)
    content = _Content(
        __version__, **belonging, job=plan.job, iterations=plan.iterations, configurations=configurations
    )
    body = TypeAdapter(_Content).dump_python(content, mode="json")
    check_numbers(body, _WHAT)
    header = dict(zip(_HEADER, (_SCHEMA, _VERSION, content_hash(body)), strict=True))
    write_file(Path(path), _WHAT, readable(header | body) + "\n", over)


def load_prepared(
    path: AnyPath, model: BenchModel, record: CalibrationRecord
) -> tuple[PhasePlan, dict[str, PreparedPhase]]:
    """Read prepared configurations; nothing is routed or reckoned anew, and no device is asked.

    Args:
        path: The file.
        model: The checked bench file; what it says counts, not how it is laid out.
        record: Calibration of its mesh.

    Returns:
        The phases, and their configurations by tag.

    Raises:
        ConfigError: It is no such file, of another version, changed since it was written, or was prepared for another
            bench, mesh or record; the message says which.
    """
    name = str(path)
    document = read_json(Path(path), _WHAT, hint=_HINT)
    if not isinstance(document, dict) or document.get("schema") != _SCHEMA:
        raise ConfigError(f"{name}: holds no {_WHAT}", hint=_HINT)
    if (version := document.get("schema_version")) != _VERSION:
        raise ConfigError(
            f"{name}: has schema version {version!r}, this software reads {_VERSION}",
            hint="Use the software it was written with, or prepare them anew.",
        )
    body = {key: value for key, value in document.items() if key not in _HEADER}
    if document.get("content_sha256") != content_hash(body):
        raise ConfigError(f"{name}: its content does not match its hash: it was edited or damaged", hint=_HINT)
    content = _validated(body, name)
    _check_belongs(content, model, record, name)
    prepared = {each.phase.tag: _prepared(each, record.mesh, name) for each in content.configurations}
    return PhasePlan(content.job, tuple(each.phase for each in prepared.values()), content.iterations), prepared


def _belonging(model: BenchModel, record: CalibrationRecord) -> dict[str, Any]:
    """Return what says which bench, mesh and record configurations belong to, by the names it has in the file."""
    # How long heaters stay on is said anew whenever a bench is opened; no circuit depends on it.
    bench = model.model_dump(mode="json", exclude={"devices": {"__all__": {"leave_on_s"}}})
    return {
        "bench": model.name,
        "bench_sha256": content_hash(bench),
        "mesh": record.mesh_label,
        "mesh_sha256": record.mesh_sha256,
        "record": record.record_id,
        "record_sha256": record.content_sha256,
    }


def _validated(body: Any, name: str) -> _Content:
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(_Content).validate_python(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{name}: {where}: {first['msg']}", hint=_HINT) from error
    except LumionError as error:  # a request that no bench could make good
        raise ConfigError(f"{name}: {error.message}", hint=_HINT) from error


def _check_belongs(content: _Content, model: BenchModel, record: CalibrationRecord, name: str) -> None:
    """Refuse what was prepared for something else.

    Raises:
        ConfigError: The message names all that differs.
    """
    given = _belonging(model, record)
    kinds = {"mesh": "mesh", "bench": "bench file", "record": "calibration record"}
    differing = [
        f"another {kind} ({_told(getattr(content, key), getattr(content, f'{key}_sha256'))}, "
        f"given {_told(given[key], given[f'{key}_sha256'])})"
        for key, kind in kinds.items()
        if getattr(content, f"{key}_sha256") != given[f"{key}_sha256"]
    ]
    if differing:
        raise ConfigError(f"{name}: was prepared for {' and '.join(differing)}", hint=_HINT)


def _told(label: str, sha256: str) -> str:
    return f"{label}, hash {sha256[:12]}"


def _prepared(stored: _Configuration, mesh: MeshTopology, name: str) -> PreparedPhase:
    """Return a configuration whose ways are traced through the mesh.

    Raises:
        ConfigError: They do not lead where they should, or there are not as many currents as heaters.
    """
    paths = tuple(path for circuit in stored.planned for path in circuit.paths)
    try:
        fits = states_for_paths(mesh, paths) == stored.routing.states and paths == stored.routing.paths
    except ConfigError as error:
        raise ConfigError(f"{name}: phase {stored.phase.tag}: {error.message}", hint=_HINT) from error
    if not fits or len(stored.currents_ma) != 2 * mesh.n_pucs:
        raise ConfigError(f"{name}: phase {stored.phase.tag}: states, ways and currents do not agree", hint=_HINT)
    plan = CircuitPlan(
        stored.planned, stored.routing, stored.states, np.array(stored.currents_ma), heat_mw=stored.heat_mw
    )
    return PreparedPhase(stored.phase, stored.circuits, plan, stored.kept, stored.alone)
