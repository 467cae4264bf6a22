"""Circuit configurations for the phases of a training job, selected by name (Opus, arXiv 2507.08119, 2602.12521).

All configurations are routed and checked in advance. A circuit stays up until a later phase needs its ports.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lumion_hw.bench.file.model import BenchModel
from lumion_hw.circuits.plan.planned import CircuitPlan, PlannedCircuit
from lumion_hw.circuits.plan.planner import plan_circuits
from lumion_hw.circuits.plan.planning_mesh import planning_mesh
from lumion_hw.circuits.plan.refusal import BudgetError
from lumion_hw.circuits.plan.request import CircuitRequest
from lumion_hw.errors import ConfigError, LimitError, LumionError, RoutingError, VerifyError
from lumion_hw.files import AnyPath
from lumion_hw.files.own_files import CREATOR
from lumion_hw.files.writing import Overwrite, write_file
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.mesh.routing import states_for_paths
from lumion_hw.mesh.routing.result import traced_paths
from lumion_hw.schedules.cost import MAX_DELTA_S
from lumion_hw.schedules.mesh_steps import MeshRouter, MeshSchedule

WARN_SHARE = 0.06
"""Fraction of an iteration spent waiting for circuits above which a warning is given."""
ModuleCircuits = tuple[tuple[str, str], ...]
"""Directed circuits ``(transmitter, receiver)`` by device names of modules, sorted."""


@dataclass(frozen=True)
class JobPhase:
    """One phase of an iteration.

    Attributes:
        duration_s: Duration once its circuits are up.
        circuits: Circuits that the phase uses; empty for a phase that only computes.
    """

    tag: str
    duration_s: float
    circuits: ModuleCircuits


@dataclass(frozen=True)
class PhasePlan:
    """Phases of one iteration of a job, in order; the last is followed by the first."""

    job: str
    phases: tuple[JobPhase, ...]
    iterations: int = 10

    @property
    def modules(self) -> tuple[str, ...]:
        """All modules that send or receive in any phase."""
        return tuple(sorted({name for phase in self.phases for pair in phase.circuits for name in pair}))

    def configurations(self) -> tuple[ModuleCircuits, ...]:
        """Return the active circuits in each phase, including those that remain from earlier phases."""
        active: ModuleCircuits = ()
        configurations: list[ModuleCircuits] = []
        # Two iterations: circuits of the last phases can remain active at the start of the next iteration.
        for phase in self.phases * 2:
            active = _with_remaining(active, phase.circuits)
            configurations.append(active)
        return tuple(configurations[len(self.phases) :])


def _with_remaining(active: ModuleCircuits, added: ModuleCircuits) -> ModuleCircuits:
    senders, receivers = {a for a, _ in added}, {b for _, b in added}
    remaining = [(a, b) for a, b in active if a not in senders and b not in receivers]
    return tuple(sorted((*added, *remaining)))


def load_phases(path: str | os.PathLike[str]) -> PhasePlan:
    """Read and check a phase file; docs/schedules.md describes its format.

    Raises:
        ConfigError: The file cannot be read or has mistakes; the message lists all with line and column.
    """
    from lumion_hw.bench.file.checked_yaml import load_yaml
    from lumion_hw.schedules.phase_file import PhaseFileModel

    hint = "docs/schedules.md has an example."
    model = load_yaml(path, "phase file", PhaseFileModel, hint, PhaseFileModel.checks)
    phases = tuple(JobPhase(phase.tag, phase.duration_s, phase.all_circuits()) for phase in model.phases)
    return PhasePlan(model.job, phases, model.iterations)


def save_phases(plan: PhasePlan, target: AnyPath, overwrite: Overwrite = "own") -> None:
    """Write phases as a file that :func:`load_phases` can read; after an error there is no file.

    Raises:
        ConfigError: A name could not be read back, or the file cannot be written.
    """
    import yaml

    from lumion_hw.bench.file.checked_yaml import parse_yaml
    from lumion_hw.schedules.phase_file import PhaseFileModel

    phases = [
        {"tag": phase.tag, "duration_s": phase.duration_s, "circuits": [list(pair) for pair in phase.circuits]}
        for phase in plan.phases
    ]
    document = {"version": 1, "job": plan.job, "iterations": plan.iterations, "phases": phases}
    text = f"# {CREATOR}\n{yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=120)}"
    parse_yaml(text, os.fspath(target), "phase file", PhaseFileModel, PhaseFileModel.checks)
    write_file(Path(target), "phase file", text, overwrite)


def schedule_phases(
    mesh_schedule: MeshSchedule, modules: Sequence[str], duration_s: float, job: str = "schedule"
) -> PhasePlan:
    """Return the steps of a schedule on a mesh as consecutive phases.

    Args:
        mesh_schedule: The schedule on the mesh.
        modules: Device name of the module of each rank.
        duration_s: Duration of each phase once its circuits are up.
        job: Name of the plan.

    Raises:
        ConfigError: There are fewer modules than ranks.
    """
    ranks = 1 + max(rank for step in mesh_schedule.steps for pair in step.circuits for rank in pair)
    if ranks > len(modules):
        raise ConfigError(f"{ranks} ranks need as many modules, not {len(modules)}", hint="Give one module per rank.")
    phases = tuple(
        JobPhase(f"step-{number}", duration_s, tuple(sorted((modules[a], modules[b]) for a, b in step.circuits)))
        for number, step in enumerate(mesh_schedule.steps)
    )
    return PhasePlan(job, phases, iterations=1)


# -- the model --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DarkSpan:
    """Time during which a port is dark, in seconds from the start of the iteration.

    Attributes:
        port: ``name>`` for a transmitter, ``>name`` for a receiver.
        starts_s: End of the port's former circuit.
        ends_s: Time at which the port's new circuit is up.
    """

    port: str
    starts_s: float
    ends_s: float


@dataclass(frozen=True)
class IterationTimes:
    """Times of one iteration of a job in steady state, in seconds from the start of the iteration.

    Attributes:
        waits_s: Time that each phase waits for its circuits.
        requests_s: Time at which each configuration is requested; ``None`` where nothing changes.
        dark: Times in which ports are dark.
    """

    starts_s: tuple[float, ...]
    waits_s: tuple[float, ...]
    requests_s: tuple[float | None, ...]
    dark: tuple[DarkSpan, ...]
    total_s: float

    @property
    def waiting_share(self) -> float:
        """Fraction of the iteration that is spent waiting for circuits."""
        return sum(self.waits_s) / self.total_s


def iteration_times(
    plan: PhasePlan, delta_s: float | Sequence[float], excludes_others: Sequence[bool] | None = None
) -> IterationTimes:
    """Return the times of one iteration.

    Circuits change as soon as the running phase no longer needs them. The next phase waits for the rest of the dark
    time.

    Args:
        plan: The phases.
        delta_s: Dark time in seconds of a port that changes its partner: one number, or one per phase.
        excludes_others: Whether each phase leaves no room on the mesh for circuits of other phases.

    Raises:
        LimitError: A dark time is negative, not finite or longer than a day.
    """
    deltas_s = [delta_s] * len(plan.phases) if isinstance(delta_s, int | float) else list(delta_s)
    for value in deltas_s:
        if not 0.0 <= value <= MAX_DELTA_S:
            raise LimitError("cannot use this dark time of a port", requested=value, limit=MAX_DELTA_S, unit="s")
    is_exclusive = [False] * len(plan.phases) if excludes_others is None else list(excludes_others)
    used_s: dict[str, float] = {}
    now_s = iteration_start_s = ready_s = 0.0
    rows: list[tuple[float, float, float | None, list[DarkSpan]]] = []
    active = plan.configurations()[-1]
    # In the first iteration no port is busy at the start; only the second iteration is in steady state.
    for turn in range(2 * len(plan.phases)):
        number = turn % len(plan.phases)
        if turn == len(plan.phases):
            iteration_start_s = now_s
        phase = plan.phases[number]
        then = phase.circuits if is_exclusive[number] else _with_remaining(active, phase.circuits)
        new = [pair for pair in phase.circuits if pair not in active]
        requested_s = None
        spans: list[DarkSpan] = []
        start_s = now_s
        if new:
            ended_pairs = [pair for pair in active if pair not in then]
            # One configuration after the other: the previous one must be up.
            requested_s = max(ready_s, *(used_s.get(port, 0.0) for port in _ports_of([*new, *ended_pairs])))
            ready_s = requested_s + deltas_s[number]
            start_s = max(now_s, ready_s)
            spans = [DarkSpan(port, requested_s, ready_s) for port in _ports_of(new)]
        rows.append((start_s, start_s - now_s, requested_s, spans))
        active = then
        now_s = start_s + phase.duration_s
        used_s |= dict.fromkeys(_ports_of(phase.circuits), now_s)
    rows = rows[len(plan.phases) :]
    return IterationTimes(
        tuple(start - iteration_start_s for start, _, _, _ in rows),
        tuple(wait for _, wait, _, _ in rows),
        tuple(None if requested_s is None else requested_s - iteration_start_s for _, _, requested_s, _ in rows),
        tuple(
            DarkSpan(span.port, span.starts_s - iteration_start_s, span.ends_s - iteration_start_s)
            for row in rows
            for span in row[3]
        ),
        now_s - iteration_start_s,
    )


def _ports_of(circuits: Sequence[tuple[str, str]]) -> list[str]:
    return [port for a, b in circuits for port in (f"{a}>", f">{b}")]


# -- preparation ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PreparedPhase:
    """One configuration, routed and checked.

    Attributes:
        circuits: All active circuits of the configuration.
        plan: Paths, budgets and heater currents.
        kept: Circuits that continue from the previous phase on the same paths.
        excludes_others: Whether the mesh had no room for circuits that only the previous phase needs.
    """

    phase: JobPhase
    circuits: ModuleCircuits
    plan: CircuitPlan
    kept: ModuleCircuits
    excludes_others: bool

    @property
    def changed(self) -> ModuleCircuits:
        """Circuits that must be set up for this phase."""
        return tuple(pair for pair in self.circuits if pair not in self.kept)


def prepare(model: BenchModel, record: CalibrationRecord, plan: PhasePlan) -> dict[str, PreparedPhase]:
    """Route and check the configuration of every phase without any device.

    Returns:
        Configurations by name, in the order of the phases.

    Raises:
        ConfigError: A module does not exist or is not wired to the mesh.
        CircuitError: Two modules are not compatible.
        LumionError: A phase has no paths for all its circuits at once, or a budget fails; the message names the phase.
    """
    _check_wired(model, plan)
    preparation = _Preparation(model, record)
    # Two rounds, as the last phase is followed by the first.
    prepared = [preparation.next_phase(phase) for phase in plan.phases * 2]
    return {phase.phase.tag: phase for phase in prepared[len(plan.phases) :]}


def _check_wired(model: BenchModel, plan: PhasePlan) -> None:
    wiring = model.to_wiring()
    pairs = [pair for phase in plan.phases for pair in phase.circuits]
    for kind, used, wired in (
        ("input", {a for a, _ in pairs}, {entry.transponder for entry in wiring.inputs}),
        ("output", {b for _, b in pairs}, {output.transponder for output in wiring.outputs}),
    ):
        if missing := sorted(used - wired):
            raise ConfigError(
                f"{', '.join(missing)}: this bench has no such module with an {kind} of the mesh",
                hint=f"Modules with an {kind}: {', '.join(sorted(name for name in wired if name)) or 'none'}.",
            )


class _Preparation:
    """Plans the phases of a job one after another; circuits keep their paths where possible."""

    def __init__(self, model: BenchModel, record: CalibrationRecord) -> None:
        self._model, self._record = model, record
        self._planned: dict[tuple[str, str], PlannedCircuit] = {}
        self._active: ModuleCircuits = ()

    def next_phase(self, phase: JobPhase) -> PreparedPhase:
        """Plan a phase whose circuits follow those of the phase before."""
        try:
            circuits, excludes_others, plan = self._plan_phase(phase)
        except LumionError as error:
            error.message = f"phase {phase.tag}: {error.message}"
            raise
        planned = {_ends_of(circuit): circuit for circuit in plan.circuits}
        kept_circuits = tuple(
            pair for pair in circuits if pair in self._active and self._planned[pair].paths == planned[pair].paths
        )
        self._planned |= planned
        self._active = circuits
        return PreparedPhase(phase, circuits, plan, kept_circuits, excludes_others)

    def _plan_phase(self, phase: JobPhase) -> tuple[ModuleCircuits, bool, CircuitPlan]:
        circuits = _with_remaining(self._active, phase.circuits)
        try:
            return circuits, False, self._plan_circuits(circuits)
        except _NO_ROOM:
            if circuits == phase.circuits:
                raise
        return phase.circuits, True, self._plan_circuits(phase.circuits)

    def _plan_circuits(self, circuits: ModuleCircuits) -> CircuitPlan:
        refusal: LumionError | None = None
        # First keep the paths of all earlier phases, then only those of active circuits, then none.
        active_circuits = [pair for pair in circuits if pair in self._active]
        for kept_pairs in dict.fromkeys(
            (self._compatible_pairs(circuits), self._compatible_pairs(active_circuits), ())
        ):
            requests = [CircuitRequest(*pair) for pair in circuits if pair not in kept_pairs]
            active = [self._planned[pair] for pair in kept_pairs]
            try:
                return _in_given_order(plan_circuits(self._model, self._record, requests, active=active), circuits)
            except _NO_ROOM as error:
                refusal = error
        raise refusal or RoutingError("nothing was tried")

    def _compatible_pairs(self, circuits: Sequence[tuple[str, str]]) -> ModuleCircuits:
        fitting: ModuleCircuits = ()
        for pair in circuits:
            if pair in self._planned and self._are_compatible([self._planned[member] for member in (*fitting, pair)]):
                fitting = (*fitting, pair)
        return fitting

    def _are_compatible(self, circuits: Sequence[PlannedCircuit]) -> bool:
        mesh, paths = self._record.mesh, [path for circuit in circuits for path in circuit.paths]
        passes = Counter(puc for path in paths for puc in path.pucs)
        trimmed = [arm.trim.puc for circuit in circuits for arm in circuit.arms if arm.trim is not None]
        try:
            states = states_for_paths(mesh, paths)
            traced_paths(mesh, [(path.source, path.target) for path in paths], states, self._record.loss_db)
        except (ConfigError, VerifyError):
            return False
        return all(passes[puc] == 1 for puc in trimmed)


_NO_ROOM = (RoutingError, BudgetError, LimitError)
"""Errors after which planning tries other paths or fewer circuits."""


def _ends_of(circuit: PlannedCircuit) -> tuple[str, str]:
    return circuit.request.source, circuit.request.target


def _in_given_order(plan: CircuitPlan, circuits: ModuleCircuits) -> CircuitPlan:
    by_ends = {_ends_of(circuit): circuit for circuit in plan.all_circuits}
    ordered = tuple(by_ends[pair] for pair in circuits)
    paths = tuple(path for circuit in ordered for path in circuit.paths)
    routing = replace(plan.routing, paths=paths, active=(), moved=())
    return replace(plan, circuits=ordered, active=(), routing=routing)


def bench_router(model: BenchModel, record: CalibrationRecord, names: Sequence[str]) -> MeshRouter:
    """Return a router for a calibrated mesh that connects modules, one module per rank.

    Raises:
        ConfigError: A module does not exist or is not wired for one polarization.
    """
    wiring = model.to_wiring()
    inputs = {entry.transponder: entry.port for entry in wiring.inputs if entry.tributary is None}
    outputs = {output.transponder: output.port for output in wiring.outputs if output.tributary is None}
    missing = [name for name in names if name not in inputs or name not in outputs]
    if missing:
        raise ConfigError(
            f"{', '.join(missing)}: this bench has no such module with one input and one output of the mesh",
            hint=f"Such modules: {', '.join(sorted(name for name in inputs if name and name in outputs)) or 'none'}.",
        )
    planning = planning_mesh(record)
    return MeshRouter(
        record.mesh,
        [inputs[name] for name in names],
        [outputs[name] for name in names],
        puc_loss_db=planning.puc_loss_db,
        unusable=planning.unusable,
    )


def plan_warnings(plan: PhasePlan, times: IterationTimes) -> tuple[str, ...]:
    """Return warnings about a plan of phases before it is run."""
    warnings = []
    if times.waiting_share > WARN_SHARE:
        warnings.append(
            f"{100 * times.waiting_share:.0f} % of an iteration is spent waiting for circuits; "
            f"above {100 * WARN_SHARE:.0f} %, consider another order, longer phases or fewer configurations"
        )
    return tuple(warnings)


def prepared_document(prepared: Mapping[str, PreparedPhase]) -> dict[str, Any]:
    """Return prepared configurations as a dictionary of numbers, strings and lists for JSON."""
    return {
        tag: {
            "circuits": [list(pair) for pair in configuration.circuits],
            "kept": [list(pair) for pair in configuration.kept],
            "alone": configuration.excludes_others,
            "pucs": [[puc for path in circuit.paths for puc in path.pucs] for circuit in configuration.plan.circuits],
            "margins_db": [round(circuit.budget.margin_db, 2) for circuit in configuration.plan.circuits],
            "states": {str(puc): state for puc, state in sorted(configuration.plan.routing.states.items())},
            "heat_mw": round(configuration.plan.heat_mw, 2),
        }
        for tag, configuration in prepared.items()
    }
