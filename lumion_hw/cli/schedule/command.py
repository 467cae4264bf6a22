"""``lumion schedule``: communication schedules over circuits, their cost, traffic demands, job phases."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.common.lazy import NamedGroup
from lumion_hw.cli.common.numbers import DURATION, MAX_COUNT, SEED, Number
from lumion_hw.cli.common.output import echo_json, echo_table, echo_text, json_option
from lumion_hw.cli.common.outputs import force_option, out_option, plot_option
from lumion_hw.cli.common.progress import RunProgress
from lumion_hw.cli.schedule.phases import phases

if TYPE_CHECKING:
    from lumion_hw.schedules.cost import CostModel
    from lumion_hw.schedules.decomposition import Decomposition
    from lumion_hw.schedules.mesh_steps import MeshRouter, MeshSchedule
    from lumion_hw.schedules.schedule import Schedule

_RANKS = click.IntRange(2, 1024)
_RATE = Number("bytes/s", 1.0, 1e15)
_MAX_LISTED_CONFIGURATIONS = 20


@click.group(cls=NamedGroup)
def schedule() -> None:
    """Build and check circuit schedules for collectives, traffic demands and job phases, and calculate their cost."""


def _cost_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a cost model, which the command receives as ``model``."""

    @functools.wraps(function)
    def command(*, rate: float, alpha: float, delta: float, relock: float, hidden: float, **others: Any) -> None:
        from lumion_hw.schedules.cost import CostModel

        function(model=CostModel(rate, alpha, delta, relock, hidden), **others)

    for option in (
        click.option(
            "--hidden",
            type=DURATION,
            default=0.0,
            help="Part of each change of circuits that overlaps with other traffic, in seconds.",
        ),
        click.option("--relock", type=DURATION, default=0.0, help="Time until a receiver has locked, in seconds."),
        click.option(
            "--delta", type=DURATION, default=0.01, show_default=True, help="Time to program and settle, in seconds."
        ),
        click.option(
            "--alpha", type=DURATION, default=3e-6, show_default=True, help="Fixed time per round, in seconds."
        ),
        click.option(
            "--rate", type=_RATE, default=50e9, show_default=True, help="Data rate of a port in bytes per second."
        ),
    ):
        command = option(command)
    return command


_ranks_if_named = click.option("--ranks", type=_RANKS, help="Number of ranks; needed if a schedule is given by name.")


def _make_or_load(name: str, ranks: int | None) -> Schedule:
    if name.endswith(".json"):
        from lumion_hw.schedules.documents import load_schedule

        return load_schedule(name)
    if ranks is None:
        raise click.UsageError("Give --ranks, or the JSON file of a schedule.")
    from lumion_hw.schedules.collectives import make_schedule

    with RunProgress(None, quiet=True) as bars:
        return make_schedule(name, ranks, progress=bars)


@schedule.command("list")
@click.option("--ranks", type=click.IntRange(2, 256), default=8, show_default=True, help="Number of ranks.")
@json_option
def list_(ranks: int, as_json: bool) -> None:
    """List all schedules for a number of ranks."""
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
    possible = [row for row in rows if "why_not" not in row]
    keys = ("name", "collective", "ports", "rounds", "programmings", "configurations")
    echo_table(f"{ranks} ranks", keys, [[row[key] for key in keys] for row in possible])
    for row in rows:
        if "why_not" in row:
            echo_text(row["why_not"])


def _summary(plan: Schedule) -> dict[str, Any]:
    return {
        "name": plan.name,
        "collective": plan.collective,
        "ranks": plan.ranks,
        "ports": "duplex" if plan.duplex else "simplex",
        "rounds": len(plan.rounds),
        "programmings": plan.programmings,
        "configurations": plan.configurations,
    }


@schedule.command()
@click.argument("name")
@click.option("--ranks", type=_RANKS, required=True, help="Number of ranks.")
@out_option("JSON file of the schedule to write.")
@plot_option("the schedule")
@force_option
@json_option
def make(name: str, ranks: int, out: Path | None, plot: Path | None, force: bool, as_json: bool) -> None:
    """Make the schedule NAME, verify it by executing it with integers, and print its rounds.

    In the output, `a-b x/y` means that rank a sends chunk x while rank b sends chunk y; `a>b x` means that only a
    sends. `+` means that the receiver adds the chunk, `.` that nothing is sent. `lumion schedule list` lists the names.
    """
    from lumion_hw.files.writing import overwrite_policy
    from lumion_hw.schedules.documents import save_schedule, schedule_document
    from lumion_hw.schedules.verification import verify

    plan = _make_or_load(name, ranks)
    verify(plan)
    if out is not None:
        save_schedule(plan, out, overwrite_policy(force))
    if plot is not None:
        from lumion_hw.schedules.picture import plot_schedule

        plot_schedule(plan, plot, overwrite_policy(force))
    if as_json:
        echo_json(schedule_document(plan))
    else:
        echo_text(str(plan))
        _print_lower_bound(plan)


def _print_lower_bound(plan: Schedule) -> None:
    if plan.collective == "straggler all-reduce":
        from lumion_hw.schedules.straggler import min_straggler_rounds

        echo_text(f"{len(plan.rounds)} rounds; the lower bound is {min_straggler_rounds(plan.ranks)}")


@schedule.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--seed", type=SEED, default=0, show_default=True, help="Random seed.")
@json_option
def verify(file: str, seed: int, as_json: bool) -> None:
    """Verify the schedule in FILE (JSON) by executing it with random integers.

    Every rank must send only chunks that it has, and all final sums must be exact.
    """
    from lumion_hw.schedules.documents import load_schedule
    from lumion_hw.schedules.verification import verify as execute

    plan = load_schedule(file)
    execute(plan, seed=seed)
    if as_json:
        echo_json({"verified": True} | _summary(plan))
    else:
        echo_text(f"{file}: {str(plan).splitlines()[0]}: verified")
        _print_lower_bound(plan)


@schedule.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME|FILE...")
@_ranks_if_named
@click.option(
    "--buffer", "buffer_bytes", type=Number("bytes", 0.0, 1e18), required=True, help="Buffer of each rank, in bytes."
)
@plot_option("schedule time against dark time")
@force_option
@click.option(
    "--late",
    type=DURATION,
    help="Seconds by which the last rank joins late. Without it, that rank joins when the others have finished their "
    "first rounds.",
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
    model: CostModel,
    as_json: bool,
) -> None:
    """Calculate how long schedules take, and compare with the best circuit configuration that never changes.

    Example: `lumion schedule cost ring stragglar --ranks 64 --buffer 1073741824 --delta 0.01`
    """
    from lumion_hw.schedules.cost import size_text, time_text

    schedules = [_make_or_load(name, ranks) for name in names]
    if plot is not None:
        from lumion_hw.files.writing import overwrite_policy
        from lumion_hw.schedules.picture import plot_costs

        plot_costs(schedules, model, buffer_bytes, plot, overwrite_policy(force))
    rows = [_cost_row(plan, model, buffer_bytes, late) for plan in schedules]
    if as_json:
        echo_json({"delta_s": model.delta_s, "buffer_bytes": buffer_bytes, "schedules": rows})
        return
    columns = ("time_s", "time_without_delta_s", "static_time_s", "break_even_delta_s", "straggler_late_s")
    fabric = f"{model.bytes_per_s / 1e9:g} GB/s, {time_text(model.delta_s)} dark time per change"
    echo_table(
        f"{size_text(buffer_bytes)} per rank, {fabric}",
        ("schedule", "rounds", "changes", "time", "without dark time", "fixed", "break-even", "straggler delay"),
        [
            [row["name"], row["rounds"], row["programmings"]]
            + [None if row[key] is None else time_text(row[key]) for key in columns]
            for row in rows
        ],
    )
    for row in rows:
        echo_text(row["advice"])


def _cost_row(plan: Schedule, model: CostModel, buffer_bytes: float, late: float | None) -> dict[str, Any]:
    import math

    from lumion_hw.schedules.cost import advice, best_static, cost_of, port_times_s

    own, static = cost_of(plan), best_static(plan, model, buffer_bytes)
    late_s = math.inf if late is None else late
    break_even_s = None
    if static is not None and own.programmings > static.programmings:
        break_even_s = own.break_even_delta_s(static, model, buffer_bytes)
    return _summary(plan) | {
        "time_s": own.time_s(model, buffer_bytes, late_s=late_s),
        "time_without_delta_s": own.time_s(model.with_delta_s(0.0), buffer_bytes, late_s=late_s),
        "time_of_its_own_ports_s": port_times_s(plan, model, buffer_bytes)[0],
        "straggler_late_s": own.early_s(model, buffer_bytes) or None,
        "static": None if static is None else static.name,
        "static_time_s": None if static is None else static.time_s(model, buffer_bytes),
        "break_even_delta_s": break_even_s,
        "advice": advice(plan, model, buffer_bytes),
    }


@schedule.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option(
    "--bytes-per-count",
    type=Number("bytes", 0.0, 1e15, above=True),
    default=1.0,
    show_default=True,
    help="Bytes for each unit in the matrix. Matrix of tokens: hidden size times bytes per element. Matrix of bytes/s: "
    "duration in seconds.",
)
@click.option(
    "--rank-of-column",
    metavar="R,R,...",
    help="Rank of each column, if columns of the matrix are experts instead of ranks.",
)
@click.option(
    "--combine", is_flag=True, help="Plan the traffic from columns back to rows (combine step after a dispatch)."
)
@click.option(
    "--configurations",
    "count",
    type=click.IntRange(1, MAX_COUNT),
    help="Largest number of configurations.  [default: as many as needed]",
)
@click.option(
    "--duplex", is_flag=True, help="Use only matchings (pairs of ranks, for duplex ports); needs --configurations."
)
@plot_option("the served traffic")
@force_option
@click.option(
    "--rest-rate",
    "fallback_rate",
    type=_RATE,
    help="Total data rate of an electrical network that carries the remaining traffic, in bytes/s.",
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
    fallback_rate: float | None,
    model: CostModel,
    as_json: bool,
) -> None:
    """Convert a traffic matrix of counts (CSV or NPY) to circuit configurations with durations."""
    from lumion_hw.schedules.cost import time_text
    from lumion_hw.schedules.decomposition import birkhoff, bounded
    from lumion_hw.schedules.demand import demand_from_counts, read_counts

    if duplex and count is None:
        raise click.UsageError(
            "--duplex needs --configurations N: duplex matchings may not serve the whole demand, so give their number."
        )
    columns = None if rank_of_column is None else _integers("--rank-of-column", rank_of_column)
    traffic = demand_from_counts(read_counts(file), bytes_per_count=bytes_per_count, rank_of_column=columns)
    traffic = traffic.reversed() if combine else traffic
    result = birkhoff(traffic) if count is None else bounded(traffic, count, duplex=duplex)
    if plot is not None:
        from lumion_hw.files.writing import overwrite_policy
        from lumion_hw.schedules.picture import plot_served

        plot_served(result, plot, overwrite_policy(force))
    best = None if fallback_rate is None else result.best_count(model, fallback_rate)
    if as_json:
        echo_json(_demand_document(result, model) | {"best_count": best})
        return
    _print_demand(result, model)
    if best is not None and fallback_rate is not None:
        remainder = f"remaining traffic over the other network at {fallback_rate / 1e9:g} GB/s"
        echo_text(f"best: {best} configurations, {remainder}: {time_text(result.time_s(model, best, fallback_rate))}")


def _demand_document(result: Decomposition, model: CostModel) -> dict[str, Any]:
    traffic = result.demand
    return {
        "method": result.method,
        "ranks": traffic.ranks,
        "wanted_bytes": traffic.total_bytes,
        "local_bytes": traffic.local_bytes,
        "busiest_bytes": traffic.busiest_bytes,
        "served_bytes": result.served_after_bytes[-1],
        "hold_bytes": result.hold_bytes,
        "time_s": result.time_s(model),
        "time_without_delta_s": result.time_s(model.with_delta_s(0.0)),
        "duty": result.duty(model),
        "configurations": [
            {
                "circuits": configuration.circuits,
                "hold_bytes": configuration.hold_bytes,
                "hold_s": configuration.hold_bytes / model.bytes_per_s,
            }
            for configuration in result.configurations
        ],
    }


def _print_demand(result: Decomposition, model: CostModel) -> None:
    from lumion_hw.schedules.cost import size_text, time_text

    traffic, served = result.demand, result.served_after_bytes
    rows = [
        (
            number,
            len(configuration.circuits),
            time_text(configuration.hold_bytes / model.bytes_per_s),
            f"{100 * served[number] / traffic.total_bytes:.1f}",
        )
        for number, configuration in enumerate(result.configurations[:_MAX_LISTED_CONFIGURATIONS], start=1)
    ]
    total, busiest = size_text(traffic.total_bytes), size_text(traffic.busiest_bytes)
    title = f"Traffic of {traffic.ranks} ranks: {total}, {busiest} at the busiest port"
    echo_table(title, ("configuration", "circuits", "hold time", "served %"), rows)
    if len(result.configurations) > len(rows):
        echo_text(f"... {len(result.configurations)} configurations in total")
    echo_text(
        f"served {100 * result.served_share:.1f} % in {time_text(result.time_s(model))}, without dark times "
        f"{time_text(result.time_s(model.with_delta_s(0.0)))}; circuits are up {100 * result.duty(model):.1f} % of the "
        "time"
    )
    if traffic.local_bytes:
        echo_text(f"{size_text(traffic.local_bytes)} are local to a rank and need no circuit")


@schedule.command()
@click.argument("name", metavar="NAME|FILE")
@_ranks_if_named
@click.option("--mesh", "layout", default="smartlight", show_default=True, help="Mesh, as for `lumion mesh route`.")
@click.option("--inputs", metavar="P,P,...", help="Input port of each rank.")
@click.option("--outputs", metavar="P,P,...", help="Output port of each rank.  [default: the input ports]")
@click.option(
    "--bench", "bench_file", help="Bench whose calibrated mesh is used instead of --mesh; needs --record and --modules."
)
@click.option("--record", type=click.Path(dir_okay=False), help="Calibration record of the bench.")
@click.option("--modules", metavar="NAME,...", help="Device name of the module of each rank.")
@click.option("--max-hops", type=click.IntRange(1, MAX_COUNT), help="Largest number of PUCs on a path.")
@click.option(
    "--relabel", is_flag=True, help="Assign ranks to other ports, so that fewer rounds need several mesh settings."
)
@click.option(
    "--regroup",
    is_flag=True,
    help="Form other rounds, which fit the mesh, from the same transfers (if rounds are independent).",
)
@out_option("JSON file of the resulting schedule to write.")
@out_option("Phase file of the settings to write, for `lumion schedule phases`; needs --bench.", "--phases")
@click.option(
    "--duration",
    type=DURATION,
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
    """Find mesh states for every round of a schedule; a round that does not fit the mesh is split.

    Example: `lumion schedule route all-to-all-shifts --ranks 4 --mesh columns:2 --inputs 1,6,11,15 --outputs 3,8,13,0`
    """
    from lumion_hw.schedules.mesh_steps import regroup_schedule, relabel_ranks, route_schedule

    if phases is not None and modules is None:
        raise click.UsageError("--phases needs --bench, --record and --modules.")
    plan = _make_or_load(name, ranks)
    router, names = _router(layout, inputs, outputs, bench_file, record, modules)
    router.max_hops = max_hops
    modules_of_ranks = relabel_ranks(router, plan) if relabel else tuple(range(plan.ranks))
    router = router.with_ports_of(modules_of_ranks) if relabel else router
    plan = regroup_schedule(router, plan) if regroup else plan
    routed = route_schedule(router, plan)
    if out is not None or phases is not None:
        _save_routed(
            plan, routed, [names[module] for module in modules_of_ranks] if names else [], out, phases, duration, force
        )
    if as_json:
        echo_json({"places": modules_of_ranks} | _routed_document(router, routed))
    else:
        _print_routed(router, plan, routed, modules_of_ranks if relabel else ())


def _router(
    layout: str,
    inputs: str | None,
    outputs: str | None,
    bench_file: str | None,
    record: str | None,
    modules: str | None,
) -> tuple[MeshRouter, list[str]]:
    from lumion_hw.schedules.mesh_steps import MeshRouter

    if len({option is None for option in (bench_file, record, modules)}) > 1:
        raise click.UsageError("--bench, --record and --modules must be given together.")
    if (inputs is None) == (bench_file is None) or (outputs is not None and inputs is None):
        raise click.UsageError("Give either --inputs (and --outputs if they differ), or --bench.")
    if bench_file is not None and record is not None and modules is not None:
        from lumion_hw.bench.bench import load
        from lumion_hw.schedules.phases import bench_router
        from lumion_hw.storage import load_record

        names = [name.strip() for name in modules.split(",")]
        return bench_router(load(bench_file), load_record(record), names), names
    from lumion_hw.cli.mesh.command import mesh_named

    input_ports = _integers("--inputs", inputs or "")
    output_ports = input_ports if outputs is None else _integers("--outputs", outputs)
    return MeshRouter(mesh_named(layout), input_ports, output_ports), []


def _save_routed(
    plan: Schedule,
    routed: MeshSchedule,
    modules: Sequence[str],
    out: Path | None,
    phases: Path | None,
    duration_s: float,
    force: bool,
) -> None:
    from lumion_hw.files.writing import overwrite_policy
    from lumion_hw.schedules.documents import save_schedule
    from lumion_hw.schedules.phases import save_phases, schedule_phases

    if out is not None:
        save_schedule(plan, out, overwrite_policy(force))
    if phases is not None:
        save_phases(schedule_phases(routed, modules, duration_s, plan.name), phases, overwrite_policy(force))


def _routed_document(router: MeshRouter, routed: MeshSchedule) -> dict[str, Any]:
    return {
        "mesh": router.mesh.label,
        "mesh_sha256": router.mesh.sha256,
        "rounds": routed.rounds,
        "extra": routed.extra,
        "least_extra": routed.min_extra,
        "steps": [
            {
                "round": step.number,
                "circuits": step.circuits,
                "kept": sorted(step.kept),
                "pucs": [path.pucs for path in step.routing.paths],
                "states": {str(puc): state for puc, state in sorted(step.routing.states.items())},
            }
            for step in routed.steps
        ],
    }


def _print_routed(router: MeshRouter, plan: Schedule, routed: MeshSchedule, modules_of_ranks: Sequence[int]) -> None:
    from lumion_hw.schedules.mesh_steps import min_rounds

    rows = [
        (step.number, len(step.circuits), len(step.kept), max((p.hops for p in step.routing.paths), default=0))
        for step in routed.steps
    ]
    echo_table(router.mesh.label, ("round", "circuits", "unchanged", "longest path"), rows)
    if modules_of_ranks:
        echo_text(
            f"ranks 0 to {len(modules_of_ranks) - 1} use the ports of ranks {', '.join(map(str, modules_of_ranks))}"
        )
    echo_text(
        f"{routed.rounds} rounds, {routed.extra} additional settings for rounds that were split "
        f"(lower bound {routed.min_extra}), {routed.rerouted} circuits rerouted"
    )
    if plan.collective in ("all-to-all", "matchings"):
        echo_text(f"{len(routed.steps)} settings; the lower bound for any mesh is {min_rounds(plan)}")


def _integers(option: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise click.BadParameter(
            f"{text[:60]!r} is not a list of integers, such as 0,4,8.", param_hint=option
        ) from None


schedule.add_command(phases)
