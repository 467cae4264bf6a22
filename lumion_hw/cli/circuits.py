"""Commands for circuits, which stay connected between commands: ``lumion connect``, ``hold``, ``circuits`` and more."""

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

from lumion_hw.cli.common.numbers import LONGEST_D, Duration, Number
from lumion_hw.cli.common.opening import bench_options, open_bench, read_endpoints
from lumion_hw.cli.common.output import echo_json, echo_table, json_option, note, say
from lumion_hw.cli.common.outputs import force_option, out_option
from lumion_hw.cli.common.parameter_type import ParameterType
from lumion_hw.cli.common.progress import RunProgress
from lumion_hw.errors import ConfigError
from lumion_hw.files.writing import Over, check_target

if TYPE_CHECKING:
    from lumion_hw.bench.bench import Bench
    from lumion_hw.circuits import CircuitPlan, CircuitProof, CircuitRequest, CircuitService, PlannedCircuit
    from lumion_hw.circuits.lease_clock import LeaseClock
    from lumion_hw.circuits.maintenance import CircuitHealth
    from lumion_hw.circuits.state import ActiveCircuit, CircuitState, MeshFinding
    from lumion_hw.mesh.record.calibration_record import CalibrationRecord

_MARGIN_DB, _LOSS_DB = Number("dB", 0.0, 100.0), Number("dB", 0.0, 1000.0)
_STALE_S = 3600.0
"""Older measurements may be stale: no controller keeps heaters on for longer without a host."""
_OUT_OF_TOLERANCE = 3
_NO_DETOUR_DB = 0.01


class _Pair(ParameterType[tuple[str, str]]):
    """Two modules, such as ``sfp-a:sfp-b``. Light travels from the first to the second."""

    name = "from:to"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Return both names."""
        if isinstance(value, tuple):
            return value
        source, colon, target = str(value).partition(":")
        if not (source and colon and target) or ":" in target:
            self.fail(f"{str(value)[:60]!r} is not a pair of modules. Write FROM:TO, such as sfp-a:sfp-b.", param, ctx)
        return source, target


@dataclass(frozen=True)
class BenchTarget:
    """Bench that a command uses, with its state directory and calibration record."""

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
        """Yield the state directory: the one given, that of the bench, or a temporary one for an emulated bench."""
        from lumion_hw.bench.bench import load
        from lumion_hw.circuits.state import state_directory

        if self.state is not None:
            yield Path(self.state)
        elif self.emulate:
            with tempfile.TemporaryDirectory(prefix="lumion-") as directory:
                yield Path(directory)
        else:
            model = load(self.file)
            name = model.mesh_section.controller
            device = model.devices[name]
            # A bench served by `lumion emulate` has the serial numbers of the real one, and none of its circuits.
            served = read_endpoints(self.endpoints).get(name) if self.endpoints else None
            yield state_directory(model.name, served or getattr(device, "serial", None) or device.address or name)

    @contextlib.contextmanager
    def opened(self, program: str) -> Iterator[CircuitService]:
        """Lock and open the bench, and restore the connected circuits."""
        from lumion_hw.circuits import CircuitService

        with self.directory() as directory:
            record = self.record_of(directory)
            with CircuitService.open(
                self.bench, record, directory, program=program, take_over=self.take_over
            ) as service:
                note_doubts(service.setup.record)
                if service.lost:
                    names = ", ".join(circuit.name for circuit in service.lost)
                    note(f"the heaters were off: {names} was connected before and has to be connected again")
                yield service

    def bench(self) -> Bench:
        """Open the bench so that its heaters stay on when it is closed."""
        return open_bench(self.file, self.emulate, self.seed, self.endpoints, leave_on_s=self.leave_on_s)

    def record_of(self, directory: Path) -> str:
        """Return the path of the calibration record: the one given, or that of the connected circuits."""
        from lumion_hw.circuits.state import read_state

        record = self.record or read_state(directory)[0].record
        if record is None:
            raise ConfigError(
                "no calibration record is known for this bench",
                hint="Give --record RECORD, the file from `lumion-calibrate run`. Later commands remember it.",
            )
        return record


def note_doubts(record: CalibrationRecord | None) -> None:
    """Warn about a record whose calibration was not certified."""
    if record is not None and record.doubts:
        note(f"warning: the calibration record is {'; '.join(record.doubts)}. Predicted margins may be wrong.")


def target_options(function: Any) -> Any:
    """Add the options for the bench, its state and its calibration record; the command gets them as ``target``."""

    def command(*args: Any, **options: Any) -> Any:
        given = {field.name: options.pop(field.name) for field in dataclasses.fields(BenchTarget)}
        return function(BenchTarget(**given), *args, **options)

    command.__doc__, command.__name__ = function.__doc__, function.__name__
    command.__click_params__ = list(getattr(function, "__click_params__", []))  # type: ignore[attr-defined] # of click
    decorated: Any = json_option(bench_options(command))
    for option in (
        click.option("--take-over", metavar="USER@HOST", help="Take the bench over from the program of this name."),
        click.option(
            "--leave-on",
            "leave_on_s",
            type=Number("s", 1.0, 3600.0),
            default=3600.0,
            show_default=True,
            help="Longest time the controller keeps circuits on after this command, in seconds.",
        ),
        click.option(
            "--state", metavar="DIR", help="Directory that stores the circuit state.  [default: one per user]"
        ),
        click.option(
            "--record", metavar="RECORD", help="Calibration record.  [default: that of the connected circuits]"
        ),
    ):
        decorated = option(decorated)
    return click.argument("file", metavar="BENCH")(decorated)


def _request_options(function: Any) -> Any:
    """Add the options for the requirements on circuits."""
    for option in (
        click.option("--both", is_flag=True, help="Connect both directions, one circuit each."),
        click.option(
            "--polarization",
            type=click.Choice(["auto", "single", "dual"]),
            default="auto",
            show_default=True,
            help="Polarizations of the signal; auto uses those of the modules.",
        ),
        click.option(
            "--min-margin",
            "min_margin_db",
            type=_MARGIN_DB,
            default=0.0,
            show_default=True,
            help="Smallest margin above the receiver's sensitivity and below its overload, in dB.",
        ),
        click.option("--max-loss", "max_loss_db", type=_LOSS_DB, help="Largest loss over the mesh, in dB."),
        click.option("--max-hops", type=click.IntRange(1, 10_000), help="Largest number of PUCs on a path."),
        click.option(
            "--priority",
            type=click.IntRange(-1000, 1000),
            default=0,
            show_default=True,
            help="Priority: circuits with a higher number choose their paths first.",
        ),
        click.option("--exclusive", is_flag=True, help="Share no PUC with another circuit."),
        click.option(
            "--lease",
            "lease_s",
            type=Duration(),
            help=f"Lease, after which `lumion hold` disconnects: 30s, 2h, 7d, up to {LONGEST_D}d.",
        ),
    ):
        function = option(function)
    return click.argument("pairs", metavar="FROM:TO...", nargs=-1, required=True, type=_Pair())(function)


# -- commands that change the bench


@click.command()
@target_options
@_request_options
def connect(target: BenchTarget, pairs: Sequence[tuple[str, str]], **asked: Any) -> None:
    r"""Connect modules of BENCH through its mesh: plan, program, align the polarization, prove by measured light.

    Either all circuits are proven, and the earlier ones still work, or the mesh is restored as it was. Circuits stay
    connected after this command: the controller keeps the heaters on for --leave-on seconds, or while `lumion hold`
    runs.

    \b
    Without hardware: run `lumion emulate BENCH --endpoints FILE` in the background, and give --endpoints FILE to these
    commands. With --emulate the bench exists only during one command.
    """
    requests = _requests(pairs, asked)
    with target.opened("lumion connect") as service, RunProgress(None, quiet=True) as bars:
        proofs = service.connect(requests, progress=bars)
        state = service.state
    for proof in proofs:
        if proof.levels is not None and proof.levels.unresolved:
            note(f"{proof.circuit.request.name}: its arms could not be measured separately: {proof.levels.unresolved}")
    if target.as_json:
        echo_json({"connected": [_proof_document(proof) for proof in proofs], "standing": _names(state.circuits)})
        return
    rows = [_row(circuit) for circuit in state.circuits if circuit.request in requests]
    echo_table("Connected", _HEADERS, rows)


@click.command()
@target_options
@click.argument("pairs", metavar="FROM:TO...", nargs=-1, type=_Pair())
@click.option(
    "--all", "everything", is_flag=True, help="Disconnect all circuits and switch heaters and transmitters off."
)
def disconnect(target: BenchTarget, pairs: Sequence[tuple[str, str]], everything: bool) -> None:
    """Disconnect circuits of BENCH.

    --all also switches off heaters that other programs have set.
    """
    if bool(pairs) == everything:
        raise click.UsageError("Give FROM:TO, or --all.")
    if everything:
        gone = _brought_to_rest(target)
        left: tuple[ActiveCircuit, ...] = ()
    else:
        with target.opened("lumion disconnect") as service:
            gone = service.disconnect([":".join(pair) for pair in pairs])
            left = service.state.circuits
    if target.as_json:
        echo_json({"disconnected": _names(gone), "standing": _names(left)})
    else:
        say(f"disconnected {', '.join(_names(gone)) or 'nothing'}; {len(left)} left")


@click.command()
@target_options
@click.option(
    "--connect", "pairs", metavar="FROM:TO", multiple=True, type=_Pair(), help="Connect this pair before holding."
)
@click.option(
    "--for", "for_s", type=Duration(), help=f"Duration: 30s, 2h, 7d, up to {LONGEST_D}d.  [default: until Ctrl-C]"
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
    help="Largest number of power readings per second, all circuits together.",
)
@click.option(
    "--every",
    "every_s",
    type=Duration(),
    default="1min",
    show_default=True,
    help=f"Time between status reports, up to {LONGEST_D}d.",
)
@out_option("File for the renewed record, written if drifted phases were corrected.", "--renew")
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
    """Maintain the circuits of BENCH: follow the polarization, watch loss and margin, end leases.

    A failure is reported at once, with its place (fibre, path through the mesh, transmitter or receiver), and written
    to events.jsonl in the state directory. The circuits stay on while this command runs; other commands that change the
    bench are refused. The exit code is 3 if a circuit is broken at the end.
    """
    from lumion_hw.circuits.maintenance import CircuitMaintenance
    from lumion_hw.storage import save_record

    over: Over = "any" if force else "nothing"  # least of all the record in use
    if renew is not None:
        check_target(renew, "the renewed record", over)
    with target.opened("lumion hold") as service:
        service.setup.bench.events.write_to(service.journal.path.with_name("events.jsonl"))
        requests = [each for each in _requests(pairs, {}) if each.name not in _names(service.state.circuits)]
        if requests:
            service.connect(requests)
        if not service.state.circuits:
            raise ConfigError("no circuit is connected", hint="Connect one with `lumion connect` or --connect.")
        service.setup.bench.events.add_listener(_note_lease)
        maintenance = CircuitMaintenance(service, period_s=period_s, reads_per_s=reads_per_s)
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is how it is meant to end
            maintenance.run(for_s, _teller(every_s, target.as_json))
        health, summary = maintenance.health, maintenance.summary()
        if renew is not None and maintenance.drifted_rad:
            save_record(maintenance.record_with_drift(), renew, over)
    if target.as_json:
        echo_json({"circuits": [each.document() for each in health], **summary})
    else:
        say(f"held for {summary['held_s']:.0f} s with {summary['reads']} readings")
    broken = [each.name for each in health if each.fault is not None]
    if broken:
        note(f"broken: {', '.join(broken)}")
        click.get_current_context().exit(_OUT_OF_TOLERANCE)


# -- commands that change nothing


@click.command()
@target_options
@click.option("--check", is_flag=True, help="Read the mesh back and measure every circuit.")
def circuits(target: BenchTarget, check: bool) -> None:
    """List the circuits of BENCH with their age, last measured margins and problems.

    Without --check this reads only the journal. --check reads the mesh back and measures every circuit, without
    changing anything; the exit code is 3 if the mesh differs from the journal or a circuit is broken.
    """
    from lumion_hw.circuits import lock_owner, read_state
    from lumion_hw.circuits.lease_clock import LeaseClock

    with target.directory() as directory:
        state, begun = read_state(directory)
        owner = lock_owner(directory)
        finding, state, broken = _checked(target, directory) if check else (None, state, False)
        now = LeaseClock()
        if target.as_json:
            echo_json(
                {
                    "state": directory,
                    "circuits": [_standing_document(each, now) for each in state.circuits],
                    "begun": begun,
                    "held_by": None if owner is None else owner.name,
                    "record": state.record,
                    "mesh": None if finding is None else finding,
                }
            )
        else:
            headers = ("circuit", "age", "lease", "hops", "margin dB", "overload dB", "measured", "marks")
            echo_table(
                f"Circuits from the journal in {directory}", headers, [_listed(each, now) for each in state.circuits]
            )
            if not state.circuits:
                say("no circuit is connected")
            if begun is not None:
                say(f"{begun.what} {' '.join(begun.circuits)} started {begun.since_utc} and did not finish")
            if owner is not None:
                say(f"held by {owner.name} ({owner.program}) since {owner.since_utc}")
            if finding is not None:
                say(str(finding))
    if broken:
        click.get_current_context().exit(_OUT_OF_TOLERANCE)


@click.command()
@target_options
@_request_options
def budget(target: BenchTarget, pairs: Sequence[tuple[str, str]], **asked: Any) -> None:
    """Plan circuits of BENCH and print the predicted power at the receivers. Uses no hardware.

    Connected circuits stay. A circuit that `lumion connect` would refuse is refused here, with the value that fails.
    """
    from lumion_hw.circuits import budget_lines

    plan, wanted = _planned(target, _requests(pairs, asked))
    if target.as_json:
        echo_json({"circuits": [_planned_document(circuit) for circuit in wanted], "heat_mw": plan.heat_mw})
        return
    for circuit in wanted:
        rows = [(line.what, _rounded(line.value), line.unit, line.limit) for line in budget_lines(circuit)]
        echo_table(str(circuit.request), ("", "", "", "limit"), rows)


@click.command()
@target_options
@_request_options
def explain(target: BenchTarget, pairs: Sequence[tuple[str, str]], **asked: Any) -> None:
    """Print the paths of circuits of BENCH, connected or planned, and the reason for each path. Uses no hardware."""
    from lumion_hw.circuits import explain as in_words

    requests = _requests(pairs, asked)
    plan, wanted = _planned(target, requests)
    detours = [words for circuit in wanted if (words := _detour(target, circuit, plan))]
    if target.as_json:
        echo_json(
            {
                "circuits": [{**_planned_document(circuit), "why": circuit.reason} for circuit in wanted],
                "detours": detours,
                "words": in_words(plan),
            }
        )
        return
    say("\n".join([in_words(dataclasses.replace(plan, active=(), circuits=tuple(wanted))), *detours]))


# -- what is planned without hardware


def _planned(target: BenchTarget, requests: Sequence[CircuitRequest]) -> tuple[CircuitPlan, list[PlannedCircuit]]:
    """Plan circuits while the connected ones stay; return the plan and the requested circuits."""
    from lumion_hw.bench.bench import load
    from lumion_hw.circuits import plan_circuits, read_state
    from lumion_hw.circuits.state import restored_plan
    from lumion_hw.storage import load_record

    model, names = load(target.file), {request.name for request in requests}
    with target.directory() as directory:
        record, state = load_record(target.record_of(directory)), read_state(directory)[0]
    stands = restored_plan(model, record, state)
    standing = () if stands is None else stands.circuits
    there = {circuit.name for circuit in state.circuits}
    missing = [each for each in requests if each.name not in there]
    with RunProgress(None, quiet=True) as bars:
        plan = plan_circuits(model, record, missing, active=standing, progress=bars)
    return plan, [circuit for circuit in plan.everything if circuit.request.name in names]


def _detour(target: BenchTarget, circuit: PlannedCircuit, plan: CircuitPlan) -> str:
    """Return a sentence on the extra loss that other circuits cause; ``None`` if there is none."""
    from lumion_hw.bench.bench import load
    from lumion_hw.circuits import plan_circuits
    from lumion_hw.storage import load_record

    with target.directory() as directory:
        record = load_record(target.record_of(directory))
    alone = plan_circuits(load(target.file), record, [circuit.request]).circuits[0]
    more_db = circuit.budget.mesh_loss_db - alone.budget.mesh_loss_db
    if alone.paths == circuit.paths or more_db < _NO_DETOUR_DB:
        return ""
    wanted = {puc for path in alone.paths for puc in path.pucs}
    others = [
        each.request.name
        for each in plan.everything
        if each is not circuit and wanted & {puc for path in each.paths for puc in path.pucs}
    ]
    ways = " and ".join(" ".join(map(str, path.pucs)) for path in alone.paths)
    return (
        f"{circuit.request}: alone it would lose {more_db:.2f} dB less, on PUCs {ways}; "
        f"{', '.join(others) or 'another circuit'} uses some of these"
    )


# -- what is said


_HEADERS = ("circuit", "hops", "loss dB", "predicted dB", "received dBm", "margin dB", "overload dB")
_NUMBERS = ("measured_loss_db", "predicted_loss_db", "received_dbm", "margin_db", "overload_margin_db")


def _row(circuit: ActiveCircuit) -> tuple[object, ...]:
    numbers = (circuit.proof.get(name) for name in _NUMBERS)
    return (circuit.name, len(circuit.pucs), *map(_rounded, numbers))


def _listed(circuit: ActiveCircuit, now: LeaseClock) -> tuple[object, ...]:
    document = _standing_document(circuit, now)
    margins = (circuit.proof.get(name) for name in ("margin_db", "overload_margin_db"))
    return (
        circuit.name,
        _span(document["age_s"]),
        "-" if document["lease_left_s"] is None else _span(document["lease_left_s"]),
        len(circuit.pucs),
        *map(_rounded, margins),
        "never" if document["measured_s_ago"] is None else f"{_span(document['measured_s_ago'])} ago",
        "; ".join(document["marks"]) or "-",
    )


def _standing_document(circuit: ActiveCircuit, now: LeaseClock) -> dict[str, Any]:
    """Return an active circuit as JSON, with marks for its age."""
    seen_s = None
    if circuit.seen_utc is not None:
        seen_s = max((now.utc() - datetime.fromisoformat(circuit.seen_utc)).total_seconds(), 0.0)
    marks = list(circuit.marks)
    if seen_s is None or seen_s > _STALE_S:
        marks.append("stale: not measured for an hour")
    if circuit.has_expired(now):
        marks.append("expired")
    return {
        "circuit": circuit.name,
        "request": circuit.request,
        "pucs": circuit.pucs,
        "ports": [(path.source, path.target) for path in circuit.paths],
        "age_s": round(circuit.age_s(now.utc()), 3),
        "lease_left_s": circuit.lease_left_s(now),
        "measured_s_ago": seen_s,
        **circuit.proof,
        "marks": marks,
    }


def _proof_document(proof: CircuitProof) -> dict[str, Any]:
    from lumion_hw.circuits.state import proof_document

    return {
        "circuit": proof.circuit.request.name,
        "pucs": [puc for path in proof.circuit.paths for puc in path.pucs],
        **proof_document(proof),
        "los": proof.los,
        "arms_untold": proof.levels.unresolved if proof.levels is not None else "",
    }


def _planned_document(circuit: PlannedCircuit) -> dict[str, Any]:
    plain = circuit.budget
    return {
        "circuit": circuit.request.name,
        "strategy": circuit.strategy,
        "paths": [dataclasses.asdict(path) for path in circuit.paths],
        **dataclasses.asdict(plain),
        "margin_db": plain.margin_db,
        "overload_margin_db": plain.overload_margin_db,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _teller(every_s: float, as_json: bool) -> Callable[[float, Sequence[CircuitHealth]], None]:
    """Return a function that prints the state of the circuits, periodically and after every change."""
    said: dict[str, Any] = {"at_s": None, "marks": None}

    def tell(held_s: float, health: Sequence[CircuitHealth]) -> None:
        marks = [(each.name, each.marks, each.fault) for each in health]
        if marks == said["marks"] and said["at_s"] is not None and held_s < said["at_s"] + every_s:
            return
        said.update(at_s=held_s, marks=marks)
        words = "  ".join(each.describe() for each in health)
        (note if as_json else say)(f"{_span(held_s):>8}  {words}")

    return tell


def _note_lease(event: Mapping[str, Any]) -> None:
    """Report the end of a lease on stderr at once."""
    if event["event"] == "lease ended":
        note(f"{event['circuit']}: {event['reason']}; the circuit is disconnected")


def _span(seconds: float) -> str:
    """Return a time as text in a suitable unit."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def _requests(pairs: Sequence[tuple[str, str]], asked: Mapping[str, Any]) -> list[CircuitRequest]:
    """Return the circuit requests of a command line."""
    from lumion_hw.circuits import CircuitRequest

    fields = {name: value for name, value in asked.items() if name != "both"}
    found = [CircuitRequest(source, target, **fields) for source, target in pairs]
    if asked.get("both"):
        found += [dataclasses.replace(each, source=each.target, target=each.source) for each in found]
    return list(dict.fromkeys(found))


def _brought_to_rest(target: BenchTarget) -> tuple[ActiveCircuit, ...]:
    """Switch everything off without a calibration record; return the circuits that were connected."""
    from lumion_hw.circuits import BenchLock, CircuitJournal
    from lumion_hw.circuits.service import switch_everything_off

    with (
        target.directory() as directory,
        BenchLock(directory, "lumion disconnect --all", take_over=target.take_over) as lock,
        target.bench() as bench,
        CircuitJournal(directory, bench.model.name, bench.mesh.topology.sha256) as journal,
    ):
        stood = journal.state.circuits
        switch_everything_off(bench, journal, lock)
    return stood


def _checked(target: BenchTarget, directory: Path) -> tuple[MeshFinding, CircuitState, bool]:
    """Read the mesh back and measure the circuits without changing anything.

    Returns:
        The comparison of mesh and journal, the circuits as measured, and whether anything is wrong.
    """
    from lumion_hw.bench.bench import load
    from lumion_hw.circuits.lock import BenchLock
    from lumion_hw.circuits.state import MeshVerdict, compare_with_mesh, read_state

    state, begun = read_state(directory)
    only = None if state.circuits else [load(target.file).mesh_section.controller]
    with (
        BenchLock(directory, "lumion circuits --check", take_over=target.take_over),
        open_bench(target.file, target.emulate, target.seed, target.endpoints, only, leave_on_s=target.leave_on_s) as b,
    ):
        finding = compare_with_mesh(b.mesh, state, begun)
        if finding.verdict not in (MeshVerdict.AS_LEFT, MeshVerdict.AS_BEFORE):
            dark = tuple(_broken(circuit, f"the mesh is {finding.verdict}") for circuit in state.circuits)
            return finding, dataclasses.replace(state, circuits=dark), True
        if not state.circuits:
            return finding, state, False
        measured = _measured(b, target.record_of(directory), state)
    broken = any(mark.startswith("broken") for circuit in measured for mark in circuit.marks)
    return finding, dataclasses.replace(state, circuits=measured), broken


def _measured(bench: Bench, record: str, state: CircuitState) -> tuple[ActiveCircuit, ...]:
    """Return the circuits of the journal with new measurements."""
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
    found = {proof.circuit.request.name: proof for proof in proofs}
    why = {request.name: text for request, text in silent.items()}
    measured = []
    for circuit in state.circuits:
        proof = found.get(circuit.name)
        if proof is None or not proof.proven:
            measured.append(_broken(circuit, why.get(circuit.name, "") if proof is None else ", ".join(proof.failures)))
        else:
            kept = tuple(mark for mark in circuit.marks if not mark.startswith("broken"))
            measured.append(dataclasses.replace(circuit, proof=proof_document(proof), marks=kept, seen_utc=now_utc()))
    return tuple(measured)


def _broken(circuit: ActiveCircuit, why: str) -> ActiveCircuit:
    """Return a broken circuit without the values of earlier measurements."""
    from lumion_hw.circuits.state import now_utc

    return dataclasses.replace(circuit, proof={}, marks=(f"broken: {why}",), seen_utc=now_utc())


def _names(standing: Sequence[ActiveCircuit]) -> list[str]:
    return [circuit.name for circuit in standing]
