"""``lumion connect``, ``disconnect``, ``circuits``, ``budget``, ``explain`` and ``hold``."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.common.numbers import MAX_DURATION_D, Duration, Number
from lumion_hw.cli.common.opening import (
    LEAVE_ON_HELP,
    RECORD_HELP,
    STATE_HELP,
    TAKE_OVER_HELP,
    bench_options,
    open_bench,
    read_endpoints,
)
from lumion_hw.cli.common.output import echo_json, echo_table, echo_text, json_option, note
from lumion_hw.cli.common.outputs import force_option, out_option
from lumion_hw.cli.common.parameter_type import ParameterType
from lumion_hw.cli.common.progress import RunProgress
from lumion_hw.errors import CircuitError, ConfigError, LimitError, RoutingError
from lumion_hw.files.writing import Overwrite, check_target

if TYPE_CHECKING:
    from lumion_hw.bench.bench import Bench
    from lumion_hw.circuits import CircuitPlan, CircuitProof, CircuitRequest, CircuitService, PlannedCircuit
    from lumion_hw.circuits.lease_clock import LeaseClock
    from lumion_hw.circuits.maintenance import CircuitHealth
    from lumion_hw.circuits.state import ActiveCircuit, CircuitState, MeshFinding
    from lumion_hw.mesh.record.calibration_record import CalibrationRecord, Use

_MARGIN_DB, _LOSS_DB = Number("dB", 0.0, 100.0), Number("dB", 0.0, 1000.0)
_STALE_S = 3600.0
"""Age in s above which a measurement is marked as stale."""
_OUT_OF_TOLERANCE = 3
_NO_DETOUR_DB = 0.01


class _Pair(ParameterType[tuple[str, str]]):
    """Parameter type for two modules, such as ``sfp-a:sfp-b``."""

    name = "from:to"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Return the pair of module names; fails with a usage error for anything else."""
        if isinstance(value, tuple):
            return value
        source, colon, target = str(value).partition(":")
        if not (source and colon and target) or ":" in target:
            self.fail(f"{str(value)[:60]!r} is not a pair; give two modules, such as sfp-a:sfp-b.", param, ctx)
        return source, target


@dataclass(frozen=True)
class BenchTarget:
    """Options that select the bench, its state directory and its calibration record."""

    file: str
    emulate: bool
    seed: int
    endpoints: str | None
    state: str | None
    record: str | None
    take_over: str | None
    leave_on_s: float
    as_json: bool

    @contextlib.contextmanager
    def directory(self) -> Iterator[Path]:
        """Yield the state directory: from ``--state``, by default that of the bench; temporary for an emulation."""
        from lumion_hw.bench.bench import load
        from lumion_hw.circuits.state import state_directory

        if self.state is not None:
            yield Path(self.state)
        elif self.emulate:
            with tempfile.TemporaryDirectory(prefix="lumion-") as directory:
                yield Path(directory)
        else:
            model = load(self.file)
            # A bench served by `lumion emulate` has the serial numbers of the real bench, but none of its circuits.
            served = read_endpoints(self.endpoints) if self.endpoints else {}
            yield state_directory(model.name, model.controller_names(served))

    @contextlib.contextmanager
    def opened(self, program: str) -> Iterator[CircuitService]:
        """Lock and open the bench, and load the state of its circuits."""
        from lumion_hw.circuits import CircuitService

        with self.directory() as directory:
            record = self.record_of(directory)
            with CircuitService.open(
                self.bench, record, directory, program=program, take_over=self.take_over
            ) as service:
                note_uncertified_record(service.setup.record)
                if service.lost_circuits:
                    names = ", ".join(circuit.name for circuit in service.lost_circuits)
                    note(f"the heaters were off, so these circuits are lost and must be connected again: {names}")
                yield service

    def bench(self) -> Bench:
        """Open the bench with heaters that stay on after it is closed."""
        return open_bench(
            self.file,
            self.emulate,
            self.seed,
            self.endpoints,
            leave_on_s=self.leave_on_s,
            allow_absent_modules=True,
        )

    def record_of(self, directory: Path) -> str:
        """Return the path of the calibration record: from ``--record``, by default that of the connected circuits."""
        from lumion_hw.circuits.state import read_state

        record = self.record or read_state(directory)[0].record
        if record is None:
            raise ConfigError(
                f"no calibration record is known for this bench in {directory}",
                hint="Give --record RECORD, a file written by `lumion-calibrate run`, or the same --endpoints or "
                "--state as the command that connected the circuits. For a served bench use `lumion apply --served`.",
            )
        return record


def note_uncertified_record(record: CalibrationRecord | None, use: Use = "switching") -> None:
    """Print a warning if the calibration was not certified for a use (did not pass its own checks)."""
    if record is not None and (doubts := record.doubts_for(use)):
        note(f"warning: the calibration record is {'; '.join(doubts)}. Predicted light may be wrong.")


def target_options(function: Any) -> Any:
    """Add the options for bench, state directory and calibration record, as the parameter ``target``."""

    def command(*args: Any, **options: Any) -> Any:
        target = {field.name: options.pop(field.name) for field in dataclasses.fields(BenchTarget)}
        return function(BenchTarget(**target), *args, **options)

    command.__doc__, command.__name__ = function.__doc__, function.__name__
    command.__click_params__ = list(getattr(function, "__click_params__", []))  # type: ignore[attr-defined] # of click
    decorated: Any = json_option(bench_options(command))
    for option in (
        click.option("--take-over", metavar="USER@HOST", help=TAKE_OVER_HELP),
        click.option(
            "--leave-on",
            "leave_on_s",
            type=Number("s", 1.0, 3600.0),
            default=3600.0,
            show_default=True,
            help=LEAVE_ON_HELP,
        ),
        click.option("--state", metavar="DIR", help=STATE_HELP),
        click.option("--record", metavar="RECORD", help=RECORD_HELP),
    ):
        decorated = option(decorated)
    return click.argument("file", metavar="BENCH")(decorated)


def _request_options(function: Any) -> Any:
    for option in (
        click.option("--both", is_flag=True, help="Also connect the opposite direction, as a second circuit."),
        click.option(
            "--polarization",
            type=click.Choice(["auto", "single", "dual"]),
            default="auto",
            show_default=True,
            help="Polarizations of the signal; auto: as many as the modules have.",
        ),
        click.option(
            "--min-margin",
            "min_margin_db",
            type=_MARGIN_DB,
            default=0.0,
            show_default=True,
            help="Smallest margin to the sensitivity and to the overload of the receiver, in dB.",
        ),
        click.option("--max-loss", "max_loss_db", type=_LOSS_DB, help="Largest predicted loss in the mesh, in dB."),
        click.option("--max-hops", type=click.IntRange(1, 10_000), help="Largest number of PUCs on a path."),
        click.option(
            "--priority",
            type=click.IntRange(-1000, 1000),
            default=0,
            show_default=True,
            help="Priority, an integer; circuits with a higher priority are routed first.",
        ),
        click.option("--exclusive", is_flag=True, help="Use no PUC that another circuit uses."),
        click.option(
            "--lease",
            "lease_s",
            type=Duration(),
            help=f"Disconnect after this time, such as 30s, 2h or 7d; at most {MAX_DURATION_D}d.",
        ),
    ):
        function = option(function)
    return click.argument("pairs", metavar="FROM:TO...", nargs=-1, required=True, type=_Pair())(function)


# -- commands that change the bench


@click.command()
@target_options
@_request_options
def connect(target: BenchTarget, pairs: Sequence[tuple[str, str]], **options: Any) -> None:
    """Connect modules of BENCH through its mesh: plan, program, align the polarization, verify by measured light.

    If a circuit cannot be verified, the bench returns to its previous state. Circuits stay connected after this
    command: the controller keeps the heaters on for --leave-on seconds, or as long as `lumion hold` runs.

    Without hardware: run `lumion emulate BENCH --endpoints FILE` in the background, and give --endpoints FILE to
    these commands. With --emulate the emulated bench exists only during this command.
    """
    requests = _requests(pairs, options)
    with target.opened("lumion connect") as service, RunProgress(None, quiet=True) as bars:
        proofs = service.connect(requests, progress=bars)
        state = service.state
    for proof in proofs:
        if proof.levels is not None and proof.levels.unresolved:
            note(
                f"{proof.circuit.request.name}: the power in its two arms could not be measured separately: "
                f"{proof.levels.unresolved}"
            )
        for finding in proof.findings:
            note(f"{proof.circuit.request.name}: {finding}")
    if target.as_json:
        echo_json({"connected": [_proof_document(proof) for proof in proofs], "standing": _names(state.circuits)})
        return
    rows = [_row(circuit) for circuit in state.circuits if circuit.request in requests]
    echo_table("Connected", _HEADERS, rows)
    for proof in proofs:
        for lane in proof.lanes:
            echo_text(f"{proof.circuit.request.name} {lane}")


@click.command()
@target_options
@click.argument("pairs", metavar="FROM:TO...", nargs=-1, type=_Pair())
@click.option(
    "--all", "all_circuits", is_flag=True, help="Disconnect all circuits and switch all heaters and transmitters off."
)
def disconnect(target: BenchTarget, pairs: Sequence[tuple[str, str]], all_circuits: bool) -> None:
    """Disconnect circuits of BENCH. With --all, switch off every heater and transmitter, even of other programs."""
    if bool(pairs) == all_circuits:
        raise click.UsageError("Give pairs, or --all.")
    if all_circuits:
        removed = _switch_everything_off(target)
        remaining: tuple[ActiveCircuit, ...] = ()
    else:
        with target.opened("lumion disconnect") as service:
            removed = service.disconnect([":".join(pair) for pair in pairs])
            remaining = service.state.circuits
    if target.as_json:
        echo_json({"disconnected": _names(removed), "standing": _names(remaining)})
    else:
        echo_text(f"disconnected: {', '.join(_names(removed)) or 'none'}; {len(remaining)} circuits remain")


@click.command()
@target_options
@click.option("--connect", "pairs", metavar="FROM:TO", multiple=True, type=_Pair(), help="Connect this pair first.")
@click.option(
    "--for",
    "for_s",
    type=Duration(),
    help=f"Duration, such as 30s, 2h or 7d; at most {MAX_DURATION_D}d.  [default: until Ctrl-C]",
)
@click.option(
    "--period",
    "period_s",
    type=Number("s", 0.05, 3600.0),
    default=1.0,
    show_default=True,
    help="Time between checks, in seconds.",
)
@click.option(
    "--reads",
    "reads_per_s",
    type=Number("1/s", 0.1, 1000.0),
    default=20.0,
    show_default=True,
    help="Largest number of power readings per second, for all circuits together.",
)
@click.option(
    "--every",
    "every_s",
    type=Duration(),
    default="1min",
    show_default=True,
    help=f"Time between status lines; at most {MAX_DURATION_D}d.",
)
@out_option("Calibration record to write if drifted phases were corrected.", "--renew")
@force_option
def hold(
    target: BenchTarget,
    pairs: Sequence[tuple[str, str]],
    for_s: float | None,
    period_s: float,
    reads_per_s: float,
    every_s: float,
    renew: Path | None,
    force: bool,
) -> None:
    """Maintain the circuits of BENCH: track polarization, monitor loss and margin, disconnect expired circuits.

    A failure is reported at once, with its location: fibre, path through the mesh, transmitter or receiver. All events
    are written to events.jsonl in the state directory. The exit code is 3 if a circuit is broken at the end. The
    circuits stay on while this command runs, and other commands cannot change the bench.
    """
    from lumion_hw.circuits.maintenance import CircuitMaintenance
    from lumion_hw.storage import save_record

    overwrite: Overwrite = "any" if force else "nothing"  # in particular not the record in use
    if renew is not None:
        check_target(renew, "the renewed record", overwrite)
    with target.opened("lumion hold") as service:
        service.setup.bench.events.write_to(service.journal.path.with_name("events.jsonl"))
        connected = _names(service.state.circuits)
        requests = [request for request in _requests(pairs, {}) if request.name not in connected]
        if requests:
            service.connect(requests)
        if not service.state.circuits:
            raise ConfigError(
                "no circuit is connected, so there is nothing to hold", hint="Run `lumion connect`, or give --connect."
            )
        service.setup.bench.events.add_listener(_note_lease)
        maintenance = CircuitMaintenance(service, period_s=period_s, reads_per_s=reads_per_s)
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is the normal end
            maintenance.run(for_s, _status_printer(every_s, target.as_json))
        health, summary = maintenance.health, maintenance.summary()
        if renew is not None and maintenance.drifted_rad:
            save_record(maintenance.record_with_drift(), renew, overwrite)
    if target.as_json:
        echo_json({"circuits": [circuit.document() for circuit in health], **summary})
    else:
        echo_text(f"held for {summary['held_s']:.0f} s with {summary['reads']} readings")
    broken = [circuit.name for circuit in health if circuit.fault is not None]
    if broken:
        note(f"broken: {', '.join(broken)}")
        click.get_current_context().exit(_OUT_OF_TOLERANCE)


# -- commands that change nothing


@click.command()
@target_options
@click.option("--check", is_flag=True, help="Read the heater currents back and measure every circuit.")
def circuits(target: BenchTarget, check: bool) -> None:
    """List the connected circuits of BENCH with their age, last measured margins and warnings.

    The command reads the journal and uses no device. With --check it reads the heater currents back and measures every
    circuit, without changing anything. The exit code is then 3 if the currents differ from the journal or a circuit is
    broken.
    """
    from lumion_hw.circuits import lock_owner, read_state
    from lumion_hw.circuits.lease_clock import LeaseClock

    with target.directory() as directory:
        state, unfinished = read_state(directory)
        owner = lock_owner(directory)
        finding, state, broken = _compared_with_controller(target, directory) if check else (None, state, False)
        clock = LeaseClock()
        if target.as_json:
            echo_json(
                {
                    "state": directory,
                    "circuits": [_active_document(circuit, clock) for circuit in state.circuits],
                    "begun": None if unfinished is None else unfinished.document(),
                    "held_by": None if owner is None else owner.name,
                    "record": state.record,
                    "mesh": None if finding is None else finding,
                }
            )
        else:
            headers = ("circuit", "age", "lease", "hops", "margin dB", "overload dB", "measured", "warnings")
            rows = [_active_row(circuit, clock) for circuit in state.circuits]
            echo_table(f"Circuits in {directory}", headers, rows)
            if not state.circuits:
                echo_text(f"no circuit is connected according to {directory} (--endpoints and --state select it)")
            if unfinished is not None:
                echo_text(
                    f"unfinished: {unfinished.kind} {' '.join(unfinished.circuits)}, started {unfinished.since_utc}"
                )
            if owner is not None:
                echo_text(f"in use by {owner.name} ({owner.program}) since {owner.since_utc}")
            if finding is not None:
                echo_text(str(finding))
    if broken:
        click.get_current_context().exit(_OUT_OF_TOLERANCE)


@click.command()
@target_options
@_request_options
def budget(target: BenchTarget, pairs: Sequence[tuple[str, str]], **options: Any) -> None:
    """Print the link budgets of circuits of BENCH, planned in addition to the connected circuits. Uses no hardware.

    A circuit that `lumion connect` would reject is an error here too, with the limit that the circuit misses.
    """
    from lumion_hw.circuits import budget_lines

    plan, requested = _plan_requests(target, _requests(pairs, options))
    if target.as_json:
        echo_json({"circuits": [_planned_document(circuit) for circuit in requested], "heat_mw": plan.heat_mw})
        return
    for circuit in requested:
        rows = [(line.name, _rounded(line.value), line.unit, line.limit) for line in budget_lines(circuit)]
        echo_table(str(circuit.request), ("quantity", "value", "unit", "limit"), rows)


@click.command()
@target_options
@_request_options
def explain(target: BenchTarget, pairs: Sequence[tuple[str, str]], **options: Any) -> None:
    """Explain which paths circuits of BENCH take, or would take if connected, and why. Uses no hardware."""
    from lumion_hw.circuits import explain as explain_plan

    requests = _requests(pairs, options)
    plan, requested = _plan_requests(target, requests)
    detours = [text for circuit in requested if (text := _describe_detour(target, circuit, plan))]
    if target.as_json:
        echo_json(
            {
                "circuits": [{**_planned_document(circuit), "why": circuit.reason} for circuit in requested],
                "detours": detours,
                "words": explain_plan(plan),
            }
        )
        return
    echo_text("\n".join([explain_plan(dataclasses.replace(plan, active=(), circuits=tuple(requested))), *detours]))


# -- planning without hardware


def _plan_requests(target: BenchTarget, requests: Sequence[CircuitRequest]) -> tuple[CircuitPlan, list[PlannedCircuit]]:
    from lumion_hw.bench.bench import load
    from lumion_hw.circuits import plan_circuits, plan_difference, read_state
    from lumion_hw.circuits.state import restored_plan
    from lumion_hw.storage import load_record

    model, names = load(target.file), {request.name for request in requests}
    with target.directory() as directory:
        record, state = load_record(target.record_of(directory)), read_state(directory)[0]
    active_plan = restored_plan(model, record, state)
    active = () if active_plan is None else active_plan.circuits
    connected = {circuit.name for circuit in state.circuits}
    missing = [request for request in requests if request.name not in connected]
    with RunProgress(None, quiet=True) as bars:
        try:
            plan = plan_circuits(model, record, missing, active=active, progress=bars)
        except (RoutingError, CircuitError, LimitError) as error:
            wanted = [*(circuit.request for circuit in active), *missing]
            difference = plan_difference(model, record, wanted, active, bars)
            nearest = [refusal.nearest for refusal in difference.refusals if refusal.alternative is not None]
            if nearest and getattr(error, "nearest", None) is None:  # otherwise the hint contains it already
                error.hint = " ".join([error.hint or "", *nearest]).strip()
            raise
    return plan, [circuit for circuit in plan.all_circuits if circuit.request.name in names]


def _describe_detour(target: BenchTarget, circuit: PlannedCircuit, plan: CircuitPlan) -> str:
    from lumion_hw.bench.bench import load
    from lumion_hw.circuits import plan_circuits
    from lumion_hw.storage import load_record

    with target.directory() as directory:
        record = load_record(target.record_of(directory))
    unshared = plan_circuits(load(target.file), record, [circuit.request]).circuits[0]
    more_db = circuit.budget.mesh_loss_db - unshared.budget.mesh_loss_db
    if unshared.paths == circuit.paths or more_db < _NO_DETOUR_DB:
        return ""
    best_pucs = {puc for path in unshared.paths for puc in path.pucs}
    other_circuits = [
        other.request.name
        for other in plan.all_circuits
        if other is not circuit and best_pucs & {puc for path in other.paths for puc in path.pucs}
    ]
    paths = " and ".join(" ".join(map(str, path.pucs)) for path in unshared.paths)
    return (
        f"{circuit.request}: without other circuits the loss would be {more_db:.2f} dB lower, over PUCs {paths}; "
        f"some of these PUCs are used by {', '.join(other_circuits) or 'another circuit'}"
    )


# -- output


_HEADERS = ("circuit", "hops", "loss dB", "predicted dB", "received dBm", "margin dB", "overload dB")
_NUMBERS = ("measured_loss_db", "predicted_loss_db", "received_dbm", "margin_db", "overload_margin_db")


def _row(circuit: ActiveCircuit) -> tuple[object, ...]:
    numbers = (circuit.proof.get(name) for name in _NUMBERS)
    return (circuit.name, len(circuit.pucs), *map(_rounded, numbers))


def _active_row(circuit: ActiveCircuit, clock: LeaseClock) -> tuple[object, ...]:
    document = _active_document(circuit, clock)
    margins = (circuit.proof.get(name) for name in ("margin_db", "overload_margin_db"))
    return (
        circuit.name,
        _format_duration(document["age_s"]),
        "-" if document["lease_left_s"] is None else _format_duration(document["lease_left_s"]),
        len(circuit.pucs),
        *map(_rounded, margins),
        "never" if document["measured_s_ago"] is None else f"{_format_duration(document['measured_s_ago'])} ago",
        "; ".join(document["marks"]) or "-",
    )


def _active_document(circuit: ActiveCircuit, clock: LeaseClock) -> dict[str, Any]:
    measured_s_ago = None
    if circuit.seen_utc is not None:
        measured_s_ago = max((clock.utc() - datetime.fromisoformat(circuit.seen_utc)).total_seconds(), 0.0)
    marks = list(circuit.marks)
    if measured_s_ago is None or measured_s_ago > _STALE_S:
        marks.append("stale: not measured for an hour")
    if circuit.has_expired(clock):
        marks.append("expired")
    return {
        "circuit": circuit.name,
        "request": circuit.request,
        "pucs": circuit.pucs,
        "ports": [(path.source, path.target) for path in circuit.paths],
        "age_s": round(circuit.age_s(clock.utc()), 3),
        "lease_left_s": circuit.lease_left_s(clock),
        "measured_s_ago": measured_s_ago,
        **circuit.proof,
        "marks": marks,
    }


def _proof_document(proof: CircuitProof) -> dict[str, Any]:
    from lumion_hw.circuits.proof import rounded_lane
    from lumion_hw.circuits.state import proof_document

    return {
        "circuit": proof.circuit.request.name,
        "pucs": [puc for path in proof.circuit.paths for puc in path.pucs],
        **proof_document(proof),
        "los": proof.los,
        "arms_untold": proof.levels.unresolved if proof.levels is not None else "",
        "lanes": [rounded_lane(lane) for lane in proof.lanes],
        "findings": proof.findings,
    }


def _planned_document(circuit: PlannedCircuit) -> dict[str, Any]:
    budget_ = circuit.budget
    return {
        "circuit": circuit.request.name,
        "strategy": circuit.strategy,
        "paths": [dataclasses.asdict(path) for path in circuit.paths],
        **dataclasses.asdict(budget_),
        "margin_db": budget_.margin_db,
        "overload_margin_db": budget_.overload_margin_db,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _status_printer(every_s: float, as_json: bool) -> Callable[[float, Sequence[CircuitHealth]], None]:
    printed: dict[str, Any] = {"at_s": None, "marks": None}

    def print_status(held_s: float, health: Sequence[CircuitHealth]) -> None:
        marks = [(circuit.name, circuit.marks, circuit.fault) for circuit in health]
        if marks == printed["marks"] and printed["at_s"] is not None and held_s < printed["at_s"] + every_s:
            return
        printed.update(at_s=held_s, marks=marks)
        text = "  ".join(circuit.describe() for circuit in health)
        (note if as_json else echo_text)(f"{_format_duration(held_s):>8}  {text}")

    return print_status


def _note_lease(event: Mapping[str, Any]) -> None:
    if event["event"] == "lease ended":
        note(f"{event['circuit']}: {event['reason']}; the circuit is disconnected")


def _format_duration(seconds: float) -> str:
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def _requests(pairs: Sequence[tuple[str, str]], options: Mapping[str, Any]) -> list[CircuitRequest]:
    from lumion_hw.circuits import CircuitRequest

    fields = {name: value for name, value in options.items() if name != "both"}
    requests = [CircuitRequest(source, target, **fields) for source, target in pairs]
    if options.get("both"):
        requests += [dataclasses.replace(request, source=request.target, target=request.source) for request in requests]
    return list(dict.fromkeys(requests))


def _switch_everything_off(target: BenchTarget) -> tuple[ActiveCircuit, ...]:
    """Switch all heaters and transmitters off; return the removed circuits. Needs no calibration record."""
    from lumion_hw.circuits import BenchLock, CircuitJournal
    from lumion_hw.circuits.service import switch_everything_off

    with (
        target.directory() as directory,
        BenchLock(directory, "lumion disconnect --all", take_over=target.take_over) as lock,
        target.bench() as bench,
        CircuitJournal(directory, bench.model.name, bench.mesh.topology.sha256) as journal,
    ):
        removed = journal.state.circuits
        switch_everything_off(bench, journal, lock)
    return removed


def _compared_with_controller(target: BenchTarget, directory: Path) -> tuple[MeshFinding, CircuitState, bool]:
    from lumion_hw.bench.bench import load
    from lumion_hw.circuits.lock import BenchLock
    from lumion_hw.circuits.state import MeshVerdict, compare_with_mesh, read_state

    state, unfinished = read_state(directory)
    only = None if state.circuits else [load(target.file).mesh_section.controller]
    with (
        BenchLock(directory, "lumion circuits --check", take_over=target.take_over),
        open_bench(
            target.file,
            target.emulate,
            target.seed,
            target.endpoints,
            only,
            leave_on_s=target.leave_on_s,
            allow_absent_modules=True,
        ) as b,
    ):
        finding = compare_with_mesh(b.mesh, state, unfinished)
        if finding.verdict not in (MeshVerdict.AS_LEFT, MeshVerdict.AS_BEFORE):
            broken = tuple(_mark_broken(circuit, f"the mesh is {finding.verdict}") for circuit in state.circuits)
            return finding, dataclasses.replace(state, circuits=broken), True
        if not state.circuits:
            return finding, state, False
        measured = _measure_circuits(b, target.record_of(directory), state)
    is_broken = any(mark.startswith("broken") for circuit in measured for mark in circuit.marks)
    return finding, dataclasses.replace(state, circuits=measured), is_broken


def _measure_circuits(bench: Bench, record: str, state: CircuitState) -> tuple[ActiveCircuit, ...]:
    from lumion_hw.bench.fibre_devices import wiring_with_device_losses
    from lumion_hw.circuits import PathSetup
    from lumion_hw.circuits.state import now_utc, proof_document, restored_plan
    from lumion_hw.storage import load_record

    setup = PathSetup(bench, load_record(record))
    plan = restored_plan(bench.model, setup.record, state, wiring_with_device_losses(bench))
    if plan is None:
        return ()
    setup.adopt(plan)
    proofs, silent = setup.prove_reachable()
    proof_of = {proof.circuit.request.name: proof for proof in proofs}
    reasons = {request.name: text for request, text in silent.items()}
    measured = []
    for circuit in state.circuits:
        proof = proof_of.get(circuit.name)
        if proof is None or not proof.proven:
            reason = reasons.get(circuit.name, "") if proof is None else ", ".join(proof.failures)
            measured.append(_mark_broken(circuit, reason))
        else:
            marks = tuple(mark for mark in circuit.marks if not mark.startswith("broken"))
            measured.append(dataclasses.replace(circuit, proof=proof_document(proof), marks=marks, seen_utc=now_utc()))
    return tuple(measured)


def _mark_broken(circuit: ActiveCircuit, reason: str) -> ActiveCircuit:
    from lumion_hw.circuits.state import now_utc

    return dataclasses.replace(circuit, proof={}, marks=(f"broken: {reason}",), seen_utc=now_utc())


def _names(active: Sequence[ActiveCircuit]) -> list[str]:
    return [circuit.name for circuit in active]
