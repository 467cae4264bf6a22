"""``lumion schedule``: sequences of circuits, their cost, demands and phases of a job. Most commands use no bench."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lumion_hw.cli.common.lazy import NamedGroup
from lumion_hw.cli.common.numbers import MANY, SEED, Number
from lumion_hw.cli.common.opening import bench_options, open_bench
from lumion_hw.cli.common.output import echo_json, echo_table, json_option, note, say
from lumion_hw.cli.common.outputs import force_option, out_option
from lumion_hw.cli.common.progress import RunProgress

if TYPE_CHECKING:
    from lumion_hw.cli.circuits import BenchTarget
    from lumion_hw.mesh.record.calibration_record import CalibrationRecord
    from lumion_hw.schedules.cost import CostModel
    from lumion_hw.schedules.decomposition import Decomposition
    from lumion_hw.schedules.mesh_steps import MeshRouter, MeshSchedule
    from lumion_hw.schedules.phase_run import MeasuredChange, MeasuredPhase
    from lumion_hw.schedules.phases import IterationTimes, PhasePlan, PreparedPhase
    from lumion_hw.schedules.schedule import Schedule

_Command = TypeVar("_Command", bound=Callable[..., Any])
_RANKS = click.IntRange(2, 1024)
_DAY_S = 86_400.0
_SECONDS = Number("s", 0.0, _DAY_S)
_RATE = Number("bytes/s", 1.0, 1e15)
_SHOWN_CONFIGURATIONS = 20


@click.group(cls=NamedGroup)
def schedule() -> None:
    """Make sequences of circuits for collectives, demands and job phases, and compute their cost."""


def _cost_options(function: _Command) -> _Command:
    for option in (
        click.option(
            "--hidden",
            type=_SECONDS,
            default=0.0,
            help="Time of other traffic before each change, during which a change costs nothing, in seconds.",
        ),
        click.option("--relock", type=_SECONDS, default=0.0, help="Time until the receiver has locked, in seconds."),
        click.option(
            "--delta",
            type=_SECONDS,
            default=0.01,
            show_default=True,
            help="Time to program the mesh and let it settle, in seconds.",
        ),
        click.option(
            "--alpha", type=_SECONDS, default=3e-6, show_default=True, help="Fixed cost of a round, in seconds."
        ),
        click.option(
            "--rate",
            type=_RATE,
            default=50e9,
            show_default=True,
            help="Rate of a port, in bytes (not bits) per second.",
        ),
    ):
        function = option(function)
    return function


def _model(rate: float, alpha: float, delta: float, relock: float, hidden: float) -> CostModel:
    from lumion_hw.schedules.cost import CostModel

    return CostModel(rate, alpha, delta, relock, hidden)


def _named_or_read(name: str, ranks: int | None) -> Schedule:
    """Return a schedule by its name and number of ranks, or from a JSON file."""
    if name.endswith(".json"):
        from lumion_hw.schedules.documents import load_schedule

        return load_schedule(name)
    if ranks is None:
        raise click.UsageError("Give --ranks, or the path of a schedule as JSON.")
    from lumion_hw.schedules.collectives import make_schedule

    with RunProgress(None, quiet=True) as bars:
        return make_schedule(name, ranks, progress=bars)


@schedule.command("list")
@click.option("--ranks", type=click.IntRange(2, 256), default=8, show_default=True, help="Number of ranks.")
@json_option
def list_(ranks: int, as_json: bool) -> None:
    """List the schedules for a number of ranks."""
    from lumion_hw.errors import ConfigError
    from lumion_hw.schedules.collectives import MAKERS, make_schedule

    rows: list[dict[str, Any]] = []
    for name in MAKERS:
        try:
            rows.append(_summary(make_schedule(name, ranks)))
        except ConfigError as error:
            rows.append({"name": name, "why_not": str(error)})
    if as_json:
        echo_json({"ranks": ranks, "schedules": rows})
        return
    made = [row for row in rows if "why_not" not in row]
    keys = ("name", "collective", "ports", "rounds", "programmings", "configurations")
    echo_table(f"{ranks} ranks", keys, [[row[key] for key in keys] for row in made])
    for row in rows:
        if "why_not" in row:
            say(row["why_not"])


def _summary(made: Schedule) -> dict[str, Any]:
    return {
        "name": made.name,
        "collective": made.collective,
        "ranks": made.ranks,
        "ports": "duplex" if made.duplex else "simplex",
        "rounds": len(made.rounds),
        "programmings": made.programmings,
        "configurations": made.configurations,
    }


@schedule.command()
@click.argument("name")
@click.option("--ranks", type=_RANKS, required=True, help="Number of ranks.")
@out_option("Write the schedule to this file, as JSON.")
@out_option("Plot the schedule to this file: .png, .svg or .pdf.", "--plot")
@force_option
@json_option
def make(name: str, ranks: int, out: Path | None, plot: Path | None, force: bool, as_json: bool) -> None:
    """Make a schedule, check it by executing it with integers, and print its rounds.

    `a-b x/y` means that a sends chunk x while b sends chunk y. `a>b x` means that only a sends. `+` marks a receiver
    that adds, `.` a link that sends nothing. `lumion schedule list` prints the names of all schedules.
    """
    from lumion_hw.files.writing import over
    from lumion_hw.schedules.documents import save_schedule, schedule_document
    from lumion_hw.schedules.verification import verify

    made = _named_or_read(name, ranks)
    verify(made)
    if out is not None:
        save_schedule(made, out, over(force))
    if plot is not None:
        from lumion_hw.schedules.picture import plot_schedule

        plot_schedule(made, plot, over(force))
    if as_json:
        echo_json(schedule_document(made))
    else:
        say(str(made))
        _say_bound(made)


def _say_bound(made: Schedule) -> None:
    if made.collective == "straggler all-reduce":
        from lumion_hw.schedules.straggler import min_straggler_rounds

        say(f"{len(made.rounds)} rounds; no schedule has fewer than {min_straggler_rounds(made.ranks)}")


@schedule.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--seed", type=SEED, default=0, show_default=True, help="Random seed of the integers.")
@json_option
def verify(file: str, seed: int, as_json: bool) -> None:
    """Check a schedule from a JSON file by executing it with random integers.

    Every rank must hold what it sends, and all sums must be exact.
    """
    from lumion_hw.schedules.documents import load_schedule
    from lumion_hw.schedules.verification import verify as execute

    read = load_schedule(file)
    execute(read, seed=seed)
    if as_json:
        echo_json({"verified": True} | _summary(read))
    else:
        say(f"{file}: {str(read).splitlines()[0]}: correct")
        _say_bound(read)


@schedule.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME|FILE...")
@click.option("--ranks", type=_RANKS, help="Number of ranks, for schedules given by name.")
@click.option(
    "--buffer", "buffer_bytes", type=Number("bytes", 0.0, 1e18), required=True, help="Buffer of one rank, in bytes."
)
@out_option("Plot time against dark time to this file: .png, .svg or .pdf.", "--plot")
@force_option
@click.option(
    "--late", type=_SECONDS, help="Delay of the straggler, in seconds.  [default: long enough to hide the other rounds]"
)
@_cost_options
@json_option
def cost(
    names: Sequence[str],
    ranks: int | None,
    buffer_bytes: float,
    plot: Path | None,
    force: bool,
    late: float | None,
    rate: float,
    alpha: float,
    delta: float,
    relock: float,
    hidden: float,
    as_json: bool,
) -> None:
    """Compute how long schedules take, and compare them with the best fixed configuration.

    Example: `lumion schedule cost ring stragglar --ranks 64 --buffer 1073741824 --delta 0.01`
    """
    from lumion_hw.schedules.cost import size_text, time_text

    model = _model(rate, alpha, delta, relock, hidden)
    schedules = [_named_or_read(name, ranks) for name in names]
    if plot is not None:
        from lumion_hw.files.writing import over
        from lumion_hw.schedules.picture import plot_costs

        plot_costs(schedules, model, buffer_bytes, plot, over(force))
    rows = [_cost_row(made, model, buffer_bytes, late) for made in schedules]
    if as_json:
        echo_json({"delta_s": model.delta_s, "buffer_bytes": buffer_bytes, "schedules": rows})
        return
    columns = ("time_s", "time_without_delta_s", "static_time_s", "break_even_delta_s", "straggler_late_s")
    echo_table(
        f"{size_text(buffer_bytes)} per rank, {rate / 1e9:g} GB/s, dark for {time_text(model.delta_s)} per change",
        ("schedule", "rounds", "changes", "time", "without dark time", "fixed", "break-even", "late by"),
        [
            [row["name"], row["rounds"], row["programmings"]]
            + [None if row[key] is None else time_text(row[key]) for key in columns]
            for row in rows
        ],
    )
    for row in rows:
        say(row["advice"])


def _cost_row(made: Schedule, model: CostModel, buffer_bytes: float, late: float | None) -> dict[str, Any]:
    import math

    from lumion_hw.schedules.cost import advice, best_static, cost_of, port_times_s

    own, beside = cost_of(made), best_static(made, model, buffer_bytes)
    late_s = math.inf if late is None else late
    break_even_s = None
    if beside is not None and own.programmings > beside.programmings:
        break_even_s = own.break_even_delta_s(beside, model, buffer_bytes)
    return _summary(made) | {
        "time_s": own.time_s(model, buffer_bytes, late_s=late_s),
        "time_without_delta_s": own.time_s(model.with_delta_s(0.0), buffer_bytes, late_s=late_s),
        "time_of_its_own_ports_s": port_times_s(made, model, buffer_bytes)[0],
        "straggler_late_s": own.early_s(model, buffer_bytes) or None,
        "static": None if beside is None else beside.name,
        "static_time_s": None if beside is None else beside.time_s(model, buffer_bytes),
        "break_even_delta_s": break_even_s,
        "advice": advice(made, model, buffer_bytes),
    }


@schedule.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option(
    "--bytes-per-count",
    type=Number("bytes", 0.0, 1e15, above=True),
    default=1.0,
    show_default=True,
    help="Bytes per count: hidden size times bytes per element for tokens, seconds per epoch for rates in bytes/s.",
)
@click.option("--rank-of-column", metavar="R,R,...", help="Rank that holds the expert of each column.")
@click.option("--combine", is_flag=True, help="Plan the reverse direction: the transposed matrix.")
@click.option(
    "--configurations",
    "count",
    type=click.IntRange(1, MANY),
    help="Largest number of configurations.  [default: no limit]",
)
@click.option("--duplex", is_flag=True, help="Use matchings only. Needs --configurations.")
@out_option("Plot the served demand to this file: .png, .svg or .pdf.", "--plot")
@force_option
@click.option(
    "--rest-rate", type=_RATE, help="Rate of an electrical network for the remaining demand, in bytes per second."
)
@_cost_options
@json_option
def demand(
    file: str,
    bytes_per_count: float,
    rank_of_column: str | None,
    combine: bool,
    count: int | None,
    duplex: bool,
    plot: Path | None,
    force: bool,
    rest_rate: float | None,
    rate: float,
    alpha: float,
    delta: float,
    relock: float,
    hidden: float,
    as_json: bool,
) -> None:
    """Turn a demand matrix (CSV or NPY) into configurations with hold times."""
    from lumion_hw.schedules.cost import time_text
    from lumion_hw.schedules.decomposition import birkhoff, bounded
    from lumion_hw.schedules.demand import demand_from_counts, read_counts

    if duplex and count is None:
        raise click.UsageError("Give --configurations with --duplex: matchings cannot serve every demand completely.")
    columns = None if rank_of_column is None else _whole_numbers("--rank-of-column", rank_of_column)
    wanted = demand_from_counts(read_counts(file), bytes_per_count=bytes_per_count, rank_of_column=columns)
    wanted = wanted.reversed() if combine else wanted
    found = birkhoff(wanted) if count is None else bounded(wanted, count, duplex=duplex)
    model = _model(rate, alpha, delta, relock, hidden)
    if plot is not None:
        from lumion_hw.files.writing import over
        from lumion_hw.schedules.picture import plot_served

        plot_served(found, plot, over(force))
    best = None if rest_rate is None else found.best_count(model, rest_rate)
    if as_json:
        echo_json(_demand_document(found, model) | {"best_count": best})
        return
    _say_demand(found, model)
    if best is not None and rest_rate is not None:
        whole = f"the rest over the other network at {rest_rate / 1e9:g} GB/s"
        say(f"best: {best} configurations, {whole}: {time_text(found.time_s(model, best, rest_rate))}")


def _demand_document(found: Decomposition, model: CostModel) -> dict[str, Any]:
    wanted = found.demand
    return {
        "method": found.method,
        "ranks": wanted.ranks,
        "wanted_bytes": wanted.total_bytes,
        "local_bytes": wanted.local_bytes,
        "busiest_bytes": wanted.busiest_bytes,
        "served_bytes": found.served_after_bytes[-1],
        "hold_bytes": found.hold_bytes,
        "time_s": found.time_s(model),
        "time_without_delta_s": found.time_s(model.with_delta_s(0.0)),
        "duty": found.duty(model),
        "configurations": [
            {"circuits": each.circuits, "hold_bytes": each.hold_bytes, "hold_s": each.hold_bytes / model.bytes_per_s}
            for each in found.configurations
        ],
    }


def _say_demand(found: Decomposition, model: CostModel) -> None:
    from lumion_hw.schedules.cost import size_text, time_text

    wanted, served = found.demand, found.served_after_bytes
    rows = [
        (
            place,
            len(each.circuits),
            time_text(each.hold_bytes / model.bytes_per_s),
            f"{100 * served[place] / wanted.total_bytes:.1f}",
        )
        for place, each in enumerate(found.configurations[:_SHOWN_CONFIGURATIONS], start=1)
    ]
    title = (
        f"{wanted.ranks} ranks want {size_text(wanted.total_bytes)}, {size_text(wanted.busiest_bytes)} at the busiest"
    )
    echo_table(title, ("configuration", "circuits", "held", "served %"), rows)
    if len(found.configurations) > len(rows):
        say(f"... {len(found.configurations)} configurations in all")
    say(
        f"served {100 * found.served_share:.1f} % in {time_text(found.time_s(model))}, without dark times "
        f"{time_text(found.time_s(model.with_delta_s(0.0)))}; circuits are up {100 * found.duty(model):.1f} % of it"
    )
    if wanted.local_bytes:
        say(f"{size_text(wanted.local_bytes)} stay on their ranks and need no circuit")


@schedule.command()
@click.argument("name", metavar="NAME|FILE")
@click.option("--ranks", type=_RANKS, help="Number of ranks, for a schedule given by name.")
@click.option("--mesh", "layout", default="smartlight", show_default=True, help="Mesh, as for `lumion mesh route`.")
@click.option("--inputs", metavar="P,P,...", help="Input port of each rank.")
@click.option("--outputs", metavar="P,P,...", help="Output port of each rank.  [default: the input ports]")
@click.option(
    "--bench",
    "bench_file",
    help="Use the calibrated mesh of this bench in place of --mesh. Needs --record and --modules.",
)
@click.option("--record", type=click.Path(dir_okay=False), help="Calibration record of the bench's mesh.")
@click.option("--modules", metavar="NAME,...", help="Optical module of each rank.")
@click.option("--max-hops", type=click.IntRange(1, MANY), help="Largest number of PUCs on a path.")
@click.option(
    "--relabel", is_flag=True, help="Assign ranks to other ports where that leaves fewer rounds without routes."
)
@click.option("--regroup", is_flag=True, help="Choose other rounds, for all-to-all and matchings.")
@out_option("Write the schedule with the chosen rounds and ports to this file, as JSON.")
@out_option("Write the settings to this file, for `lumion schedule phases`. Needs --bench.", "--phases")
@click.option(
    "--duration",
    type=_SECONDS,
    default=0.01,
    show_default=True,
    help="Duration of each setting written by --phases, in seconds.",
)
@force_option
@json_option
def route(
    name: str,
    ranks: int | None,
    layout: str,
    inputs: str | None,
    outputs: str | None,
    bench_file: str | None,
    record: str | None,
    modules: str | None,
    max_hops: int | None,
    relabel: bool,
    regroup: bool,
    out: Path | None,
    phases: Path | None,
    duration: float,
    force: bool,
    as_json: bool,
) -> None:
    """Turn a schedule into mesh states. A round that the mesh cannot route at once is split.

    Example: `lumion schedule route all-to-all-shifts --ranks 4 --mesh columns:2 --inputs 1,6,11,15 --outputs 3,8,13,0`
    """
    from lumion_hw.schedules.mesh_steps import regroup_schedule, relabel_ranks, route_schedule

    if phases is not None and modules is None:
        raise click.UsageError("--phases needs --bench, --record and --modules.")
    made = _named_or_read(name, ranks)
    router, names = _router(layout, inputs, outputs, bench_file, record, modules)
    router.max_hops = max_hops
    places = relabel_ranks(router, made) if relabel else tuple(range(made.ranks))
    router = router.with_ports_of(places) if relabel else router
    made = regroup_schedule(router, made) if regroup else made
    found = route_schedule(router, made)
    if out is not None or phases is not None:
        _save_routed(made, found, [names[each] for each in places] if names else [], out, phases, duration, force)
    if as_json:
        echo_json({"places": places} | _routed_document(router, found))
    else:
        _say_routed(router, made, found, places if relabel else ())


def _router(
    layout: str,
    inputs: str | None,
    outputs: str | None,
    bench_file: str | None,
    record: str | None,
    modules: str | None,
) -> tuple[MeshRouter, list[str]]:
    """Return the router for a mesh layout, or for a calibrated bench with the names of its modules."""
    from lumion_hw.schedules.mesh_steps import MeshRouter

    if len({each is None for each in (bench_file, record, modules)}) > 1:
        raise click.UsageError("Give --bench, --record and --modules together.")
    if (inputs is None) == (bench_file is None) or (outputs is not None and inputs is None):
        raise click.UsageError("Give either --inputs (and --outputs if they differ) or --bench.")
    if bench_file is not None and record is not None and modules is not None:
        from lumion_hw.bench.bench import load
        from lumion_hw.schedules.phases import bench_router
        from lumion_hw.storage import load_record

        names = [each.strip() for each in modules.split(",")]
        return bench_router(load(bench_file), load_record(record), names), names
    from lumion_hw.cli.mesh import mesh_named

    into = _whole_numbers("--inputs", inputs or "")
    return MeshRouter(mesh_named(layout), into, into if outputs is None else _whole_numbers("--outputs", outputs)), []


def _save_routed(
    made: Schedule,
    found: MeshSchedule,
    modules: Sequence[str],
    out: Path | None,
    phases: Path | None,
    duration_s: float,
    force: bool,
) -> None:
    from lumion_hw.files.writing import over
    from lumion_hw.schedules.documents import save_schedule
    from lumion_hw.schedules.phases import save_phases, schedule_phases

    if out is not None:
        save_schedule(made, out, over(force))
    if phases is not None:
        save_phases(schedule_phases(found, modules, duration_s, made.name), phases, over(force))


def _routed_document(router: MeshRouter, found: MeshSchedule) -> dict[str, Any]:
    return {
        "mesh": router.mesh.label,
        "mesh_sha256": router.mesh.sha256,
        "rounds": found.rounds,
        "extra": found.extra,
        "least_extra": found.min_extra,
        "steps": [
            {
                "round": step.number,
                "circuits": step.circuits,
                "kept": sorted(step.kept),
                "pucs": [path.pucs for path in step.routing.paths],
                "states": {str(puc): state for puc, state in sorted(step.routing.states.items())},
            }
            for step in found.steps
        ],
    }


def _say_routed(router: MeshRouter, made: Schedule, found: MeshSchedule, places: Sequence[int]) -> None:
    from lumion_hw.schedules.mesh_steps import min_rounds

    rows = [
        (step.number, len(step.circuits), len(step.kept), max((p.hops for p in step.routing.paths), default=0))
        for step in found.steps
    ]
    echo_table(router.mesh.label, ("round", "circuits", "unchanged", "longest path"), rows)
    if places:
        say(f"ranks were assigned to the ports of ranks {', '.join(map(str, places))}")
    say(
        f"{found.rounds} rounds, {found.extra} more settings for rounds without routes "
        f"(at least {found.min_extra}, proven), {found.rerouted} circuits re-routed"
    )
    if made.collective in ("all-to-all", "matchings"):
        say(f"{len(found.steps)} settings; fewer than {min_rounds(made)} settings are impossible on any mesh")


def _whole_numbers(option: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise click.BadParameter(
            f"{text[:60]!r} is not a list of whole numbers. Write them as 0,4,8.", param_hint=option
        ) from None


@schedule.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--bench", "bench_file", help="Prepare the configurations for this bench. Needs --record.")
@click.option("--record", type=click.Path(dir_okay=False), help="Calibration record of the bench's mesh.")
@out_option("Write the prepared configurations to this file, as JSON. Needs --bench.")
@click.option("--run", is_flag=True, help="Run the iterations on the bench and measure the dark times.")
@click.option(
    "--iterations", type=click.IntRange(1, MANY), help="Number of iterations.  [default: as the phase file says]"
)
@click.option(
    "--delta",
    type=_SECONDS,
    default=0.01,
    show_default=True,
    help="Assumed dark time of a port, in seconds, when nothing is run.",
)
@out_option("Plot one iteration to this file: .png, .svg or .pdf.", "--plot")
@force_option
@bench_options
@json_option
def phases(
    file: str,
    bench_file: str | None,
    record: str | None,
    out: Path | None,
    run: bool,
    iterations: int | None,
    delta: float,
    plot: Path | None,
    force: bool,
    emulate: bool,
    seed: int,
    endpoints: str | None,
    as_json: bool,
) -> None:
    """Check the phases of a job and compute the time of an iteration; prepare its circuits or run it on a bench.

    FILE is a phase file, or prepared configurations from --out (.json), which need no routing.

    Example: `lumion schedule phases job.yaml --bench small.yaml --record record.json --emulate --run --plot job.svg`
    """
    from lumion_hw.schedules.phases import iteration_times, load_phases, prepared_document

    _check_given(file, bench_file, record, out, run)
    measured: tuple[MeasuredPhase, ...] = ()
    changes: Mapping[str, MeasuredChange] = {}
    prepared: dict[str, PreparedPhase] = {}
    settle_s: float | None = None
    if bench_file is not None and record is not None:
        from lumion_hw.cli.circuits import BenchTarget
        from lumion_hw.storage import load_record

        calibrated = load_record(record)
        plan, prepared = _prepared(file, bench_file, calibrated, out, force)
        if run:
            target = BenchTarget(bench_file, emulate, seed, endpoints, None, record, None, 0.0, as_json)
            changes, measured, settle_s = _run_phases(target, calibrated, prepared, plan, iterations)
        if not as_json:
            _say_prepared(prepared)
    else:
        plan = load_phases(file)
    document: dict[str, Any] = {"job": plan.job, "tags": [phase.tag for phase in plan.phases]}
    document |= {"configurations": prepared_document(prepared)} if prepared else {}
    times = iteration_times(plan, delta, [each.excludes_others for each in prepared.values()] or None)
    modelled: IterationTimes | None = None
    if measured:
        from lumion_hw.schedules.phase_run import measured_iteration, model_with_measured_dark_times

        modelled = model_with_measured_dark_times(measured, prepared, plan)
        times = measured_iteration(measured, measured[-1].iteration, plan)
        document |= _measured_document(measured, modelled, settle_s) | {"changes": changes}
    document["iteration"] = _times_document(times)
    _plot_times(plan, times, plot, force)
    if as_json:
        echo_json(document)
        return
    _say_times(plan, times, measured, modelled, changes)
    _say_darkness(measured, settle_s)


def _check_given(file: str, bench_file: str | None, record: str | None, out: Path | None, run: bool) -> None:
    """Raise ``UsageError`` for options that need other options."""
    if (bench_file is None) != (record is None) or (run and bench_file is None):
        raise click.UsageError("--bench and --record need each other, and --run needs both.")
    if bench_file is None and (out is not None or file.endswith(".json")):
        raise click.UsageError("--out and prepared configurations (.json) need --bench and --record.")


def _plot_times(plan: PhasePlan, times: IterationTimes, plot: Path | None, force: bool) -> None:
    if plot is not None:
        from lumion_hw.files.writing import over
        from lumion_hw.schedules.picture import plot_iteration

        plot_iteration(plan, times, plot, over(force))


def _prepared(
    file: str, bench_file: str, record: CalibrationRecord, out: Path | None, force: bool
) -> tuple[PhasePlan, dict[str, PreparedPhase]]:
    """Return the phases with their configurations, read or prepared; write them if --out is given."""
    from lumion_hw.bench.bench import load
    from lumion_hw.files.writing import check_target, over
    from lumion_hw.schedules.phases import load_phases, prepare
    from lumion_hw.schedules.prepared_file import load_prepared, save_prepared

    if out is not None:
        check_target(out, "prepared configurations", over(force))
    model = load(bench_file)
    if file.endswith(".json"):
        plan, prepared = load_prepared(file, model, record)
    else:
        plan = load_phases(file)
        prepared = prepare(model, record, plan)
    if out is not None:
        save_prepared(prepared, plan, model, record, out, over(force))
    return plan, prepared


def _measured_document(
    measured: Sequence[MeasuredPhase], modelled: IterationTimes, settle_s: float | None
) -> dict[str, Any]:
    from lumion_hw.schedules.phase_run import measured_dark_times

    return {
        "model": _times_document(modelled),
        "iterations": measured[-1].iteration + 1,
        "dark_s": {each.tag: each.switched.longest_dark_s for each in measured if each.switched is not None},
        "ports": measured_dark_times(measured),
        "controller_settle_s": settle_s,
        "heat_mw": {each.tag: each.heat_mw for each in measured},
    }


def _say_darkness(measured: Sequence[MeasuredPhase], settle_s: float | None) -> None:
    """Print how long each port was dark, and the settling time that the controller reports."""
    from lumion_hw.schedules.cost import time_text
    from lumion_hw.schedules.phase_run import measured_dark_times

    rows = [
        (
            each.tag,
            each.port,
            each.changes,
            time_text(each.median_s),
            time_text(each.longest_s),
            None if settle_s is None else time_text(settle_s),
        )
        for each in measured_dark_times(measured)
    ]
    titles = ("phase", "port", "changes", "dark, median", "longest", "heaters settle in")
    echo_table("\ndark times port by port", titles, rows)


def _run_phases(
    target: BenchTarget,
    record: CalibrationRecord,
    prepared: dict[str, PreparedPhase],
    plan: PhasePlan,
    iterations: int | None,
) -> tuple[Mapping[str, MeasuredChange], tuple[MeasuredPhase, ...], float]:
    """Run the phases on a bench that no other program uses.

    Returns:
        The time of each change with the receivers, the outcome, and the settling time of the heaters alone.
    """
    from lumion_hw.circuits import BenchLock, PathSetup, read_state
    from lumion_hw.errors import ConfigError
    from lumion_hw.schedules.phase_run import PhaseSwitch

    with (
        target.directory() as directory,
        BenchLock(directory, "lumion schedule phases"),
        open_bench(target.file, target.emulate, target.seed, target.endpoints) as bench,
    ):
        if standing := read_state(directory)[0].circuits:
            names = ", ".join(circuit.name for circuit in standing)
            raise ConfigError(f"{names}: already connected", hint="Disconnect them with `lumion disconnect`.")
        switch = PhaseSwitch(PathSetup(bench, record), prepared)
        switch.rehearse()
        return switch.measure(), switch.run(plan, iterations=iterations), bench.mesh.settle_s


def _times_document(times: IterationTimes) -> dict[str, Any]:
    return {
        "total_s": times.total_s,
        "waiting_share": times.waiting_share,
        "starts_s": times.starts_s,
        "waits_s": times.waits_s,
        "dark": [{"port": span.port, "from_s": span.starts_s, "to_s": span.ends_s} for span in times.dark],
    }


def _say_prepared(prepared: dict[str, PreparedPhase]) -> None:
    rows = [
        (
            tag,
            len(each.circuits),
            len(each.kept),
            max((circuit.hops for circuit in each.plan.circuits), default=None),
            round(min(circuit.budget.margin_db for circuit in each.plan.circuits), 1) if each.circuits else None,
            round(each.plan.heat_mw, 1),
        )
        for tag, each in prepared.items()
    ]
    echo_table("configurations", ("phase", "circuits", "kept", "longest path", "smallest margin dB", "heat mW"), rows)


def _say_times(
    plan: PhasePlan,
    times: IterationTimes,
    measured: Sequence[MeasuredPhase],
    modelled: IterationTimes | None,
    changes: Mapping[str, MeasuredChange],
) -> None:
    from lumion_hw.schedules.cost import time_text
    from lumion_hw.schedules.phases import plan_warnings

    last = {each.tag: each for each in measured}
    said = (None,) * len(plan.phases) if modelled is None else tuple(time_text(wait) for wait in modelled.waits_s)
    rows = []
    for phase, start_s, wait_s, model in zip(plan.phases, times.starts_s, times.waits_s, said, strict=True):
        switched = last[phase.tag].switched if measured else None
        dark = None if switched is None else time_text(switched.longest_dark_s)
        change = None if switched is None else changes[phase.tag]
        after = (None, None) if change is None else (time_text(change.light_s), time_text(change.receivers_s))
        row = (phase.tag, time_text(start_s), time_text(phase.duration_s), time_text(wait_s), model, dark, *after)
        rows.append(row if measured else row[:4])
    title = f"{plan.job}: one iteration, {'as measured' if measured else 'by the model'}"
    titles = ("phase", "starts", "lasts", "waits", "by the model", "dark", "light after", "receivers after")
    echo_table(title, titles if measured else titles[:4], rows)
    say(f"{time_text(times.total_s)} in all, {100 * times.waiting_share:.2f} % of it waiting for circuits")
    if modelled is not None:
        say(f"by the model, with the measured dark times: {time_text(modelled.total_s)}")
    for warning in plan_warnings(plan, times):
        note(warning)
