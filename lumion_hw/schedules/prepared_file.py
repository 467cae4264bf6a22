"""Files with prepared configurations for one bench, mesh and calibration record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lumion_hw.bench.file.model import BenchModel
from lumion_hw.circuits.plan.planned import CircuitPlan, PlannedCircuit
from lumion_hw.errors import ConfigError, LumionError
from lumion_hw.files import AnyPath
from lumion_hw.files.json_text import check_numbers
from lumion_hw.files.reading import read_json
from lumion_hw.files.writing import Overwrite, write_file
from lumion_hw.mesh.layout.topology import MeshTopology, State
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.mesh.record.canonical import content_hash, readable
from lumion_hw.mesh.routing import Routing, states_for_paths
from lumion_hw.schedules.phases import JobPhase, ModuleCircuits, PhasePlan, PreparedPhase

_SCHEMA, _VERSION = "lumion-prepared-phases", 1
_HEADER = ("schema", "schema_version", "content_sha256")
_FILE_KIND = "prepared configurations"
_HINT = "Prepare them again: `lumion schedule phases JOB --bench BENCH --record RECORD --out FILE`."


@dataclass(frozen=True)
class _Configuration:
    """A :class:`~lumion_hw.schedules.phases.PreparedPhase` in plain values, as stored in the file."""

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
    """Contents of the file, with hashes of the bench, the mesh and the record to which they belong."""

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
    overwrite: Overwrite = "own",
) -> None:
    """Write phases and their prepared configurations as JSON; after an error there is no file.

    Raises:
        ConfigError: The file cannot be written, or an existing file must not be overwritten.
        LumionError: The disk is full or failed.
    """
    from pydantic import TypeAdapter

    from lumion_hw import __version__

    configurations = tuple(
        _Configuration(
            configuration.phase,
            configuration.circuits,
            configuration.kept,
            configuration.excludes_others,
            configuration.plan.circuits,
            configuration.plan.routing,
            configuration.plan.states,
            tuple(configuration.plan.currents_ma.tolist()),
            configuration.plan.heat_mw,
        )
        for configuration in prepared.values()
    )
    origin = _origin(model, record)
    content = _Content(__version__, **origin, job=plan.job, iterations=plan.iterations, configurations=configurations)
    body = TypeAdapter(_Content).dump_python(content, mode="json")
    check_numbers(body, _FILE_KIND)
    header = dict(zip(_HEADER, (_SCHEMA, _VERSION, content_hash(body)), strict=True))
    write_file(Path(path), _FILE_KIND, readable(header | body) + "\n", overwrite)


def load_prepared(
    path: AnyPath, model: BenchModel, record: CalibrationRecord
) -> tuple[PhasePlan, dict[str, PreparedPhase]]:
    """Read the phases and their prepared configurations by name.

    Raises:
        ConfigError: The file is of another kind or version, was changed, or belongs to another bench, mesh or record;
            the message says which.
    """
    name = str(path)
    document = read_json(Path(path), _FILE_KIND, hint=_HINT)
    if not isinstance(document, dict) or document.get("schema") != _SCHEMA:
        raise ConfigError(f"{name}: this is not a file with {_FILE_KIND}", hint=_HINT)
    if (version := document.get("schema_version")) != _VERSION:
        raise ConfigError(
            f"{name}: the file has schema version {version!r}, but this software reads version {_VERSION}",
            hint="Use the software that wrote the file, or prepare the configurations again.",
        )
    body = {key: value for key, value in document.items() if key not in _HEADER}
    if document.get("content_sha256") != content_hash(body):
        raise ConfigError(f"{name}: the content does not match its hash, so the file was edited or damaged", hint=_HINT)
    content = _validate(body, name)
    _check_origin(content, model, record, name)
    prepared = {
        configuration.phase.tag: _restore_phase(configuration, record.mesh, name)
        for configuration in content.configurations
    }
    return PhasePlan(
        content.job, tuple(configuration.phase for configuration in prepared.values()), content.iterations
    ), prepared


def _origin(model: BenchModel, record: CalibrationRecord) -> dict[str, Any]:
    # leave_on_s is chosen whenever a bench is opened, and no circuit depends on it.
    bench = model.model_dump(mode="json", exclude={"devices": {"__all__": {"leave_on_s"}}})
    return {
        "bench": model.name,
        "bench_sha256": content_hash(bench),
        "mesh": record.mesh_label,
        "mesh_sha256": record.mesh_sha256,
        "record": record.record_id,
        "record_sha256": record.content_sha256,
    }


def _validate(body: Any, name: str) -> _Content:
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(_Content).validate_python(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{name}: {where}: {first['msg']}", hint=_HINT) from error
    except LumionError as error:  # an invalid request
        raise ConfigError(f"{name}: {error.message}", hint=_HINT) from error


def _check_origin(content: _Content, model: BenchModel, record: CalibrationRecord, name: str) -> None:
    present = _origin(model, record)
    kinds = {"mesh": "mesh", "bench": "bench file", "record": "calibration record"}
    differing = [
        f"another {kind} ({_label_with_hash(getattr(content, key), getattr(content, f'{key}_sha256'))}, "
        f"given {_label_with_hash(present[key], present[f'{key}_sha256'])})"
        for key, kind in kinds.items()
        if getattr(content, f"{key}_sha256") != present[f"{key}_sha256"]
    ]
    if differing:
        raise ConfigError(f"{name}: the file was prepared for {' and '.join(differing)}", hint=_HINT)


def _label_with_hash(label: str, sha256: str) -> str:
    return f"{label}, hash {sha256[:12]}"


def _restore_phase(stored: _Configuration, mesh: MeshTopology, name: str) -> PreparedPhase:
    paths = tuple(path for circuit in stored.planned for path in circuit.paths)
    try:
        fits = states_for_paths(mesh, paths) == stored.routing.states and paths == stored.routing.paths
    except ConfigError as error:
        raise ConfigError(f"{name}: phase {stored.phase.tag}: {error.message}", hint=_HINT) from error
    if not fits or len(stored.currents_ma) != 2 * mesh.n_pucs:
        raise ConfigError(f"{name}: phase {stored.phase.tag}: states, paths and currents do not match", hint=_HINT)
    plan = CircuitPlan(
        stored.planned, stored.routing, stored.states, np.array(stored.currents_ma), heat_mw=stored.heat_mw
    )
    return PreparedPhase(stored.phase, stored.circuits, plan, stored.kept, stored.alone)
