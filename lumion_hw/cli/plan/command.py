"""``lumion plan``: number of spares for a service level, and cost of recovery policies. Uses no bench."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lumion_hw.cli.common.lazy import NamedGroup
from lumion_hw.cli.common.numbers import MAX_COUNT, SEED, Number, count_option
from lumion_hw.cli.common.output import echo_json, echo_table, echo_text, json_option
from lumion_hw.cli.common.outputs import force_option, plot_option
from lumion_hw.cli.plan.joined import joined
from lumion_hw.cli.plan.networks import bandwidth, power

if TYPE_CHECKING:
    from lumion_hw.planning.faults import Faults
    from lumion_hw.planning.overprovisioning import Fleet, Mapper, Overprovisioning

_Command = TypeVar("_Command", bound=Callable[..., Any])
_SHARE = Number("", 0.0, 1.0)
_LEVEL = Number("", 0.0, 0.999_999_999, above=True)
_COUNTINGS = ("stranded", "idle", "needed", "all")
_MIX_HELP = "Job sizes: tpu-v4-small, even, or a CSV file with one size and its share per line."
COUNTED_BY = click.option(
    "--shares-of",
    "counted_by",
    type=click.Choice(("jobs", "accelerators")),
    default="jobs",
    show_default=True,
    help="Whether the shares in the --mix file count jobs, or the accelerators of these jobs.",
)
SERVER = count_option("--server", "per_server", default=4, meaning="Accelerators per server.")
_RACK = count_option("--rack", "per_rack", default=64, meaning="Accelerators per rack.")
MIX = click.option("--mix", default="tpu-v4-small", show_default=True, help=_MIX_HELP)


@click.group(cls=NamedGroup)
def plan() -> None:
    """Plan the number of spares for a service level, compare recovery policies and networks."""


plan.add_command(bandwidth)
plan.add_command(power)
plan.add_command(joined)


def _fleet_options(function: _Command) -> _Command:
    for option in (
        click.option(
            "--spare-racks",
            type=click.IntRange(0, MAX_COUNT),
            default=0,
            help="Number of additional racks reserved as spares.",
        ),
        count_option("--spares", default=4, lowest=0, meaning="Number of accelerators per rack reserved as spares."),
        SERVER,
        _RACK,
        count_option("--racks", default=64, meaning="Number of racks that run jobs."),
    ):
        function = option(function)
    return function


def _rate_options(function: _Command) -> _Command:
    for option in (
        click.option(
            "--server-share",
            type=_SHARE,
            default=0.0,
            help="Fraction of the faults that affect a whole server, 0 to 1.",
        ),
        click.option(
            "--repair", type=Number("d", 0.0, 3660.0), default=7.0, show_default=True, help="Repair time in days."
        ),
        click.option(
            "--rate",
            type=Number("1/d", 0.0, 1.0),
            default=4.7e-4,
            show_default=True,
            help="Faults per accelerator and day; the default is the rate published for Llama-3.",
        ),
    ):
        function = option(function)
    return function


_CAUSES = click.option(
    "--causes",
    type=click.Path(dir_okay=False),
    help="CSV file of fault causes, used instead of a rate: name, accelerator or server, faults per accelerator and "
    "day, repair time in days.",
)


def _faults(rate: float, repair: float, server_share: float, per_server: int, causes: str | None) -> Faults:
    from lumion_hw.planning import Faults, read_causes

    if causes is None:
        return Faults.from_rate(rate, repair, server_share, per_server)
    source_of = click.get_current_context().get_parameter_source
    if any(source_of(name) == click.core.ParameterSource.COMMANDLINE for name in ("rate", "repair", "server_share")):
        raise click.UsageError("Give either --causes, or --rate, --repair and --server-share, but not both.")
    return Faults.from_causes(read_causes(causes), per_server)


def _simulation_options(function: _Command) -> _Command:
    for option in (
        click.option("--scheduler", metavar="HOST:PORT", help="Scheduler of a trusted dask cluster to use."),
        click.option(
            "--workers", type=click.IntRange(1, 256), help="Number of worker processes.  [default: all cores]"
        ),
        click.option("--seed", type=SEED, default=0, show_default=True, help="Random seed of layouts and faults."),
        count_option("--states", default=2000, meaning="Number of simulated fleet states."),
    ):
        function = option(function)
    return function


def _mapper(workers: int | None, scheduler: str | None) -> Mapper:
    from lumion_hw.planning import on_cluster, on_cores

    return on_cores(workers) if scheduler is None else on_cluster(scheduler)


def _fleet(racks: int, per_rack: int, per_server: int, spares: int, spare_racks: int) -> Fleet:
    from lumion_hw.planning import Fleet

    return Fleet(racks, per_rack, per_server, spares, spare_racks)


@plan.command()
@count_option("--racks", default=1, meaning="Number of racks.")
@_RACK
@SERVER
@_rate_options
@_CAUSES
@click.option(
    "--level",
    type=_LEVEL,
    default=0.95,
    show_default=True,
    help="Service level: required probability that the spares suffice, 0 to 1.",
)
@click.option(
    "--spares-fail",
    is_flag=True,
    help="Assume that spares fail as often as single accelerators; by default spares never fail.",
)
@plot_option("the shortage probability")
@force_option
@json_option
def spares(
    racks: int,
    per_rack: int,
    per_server: int,
    rate: float,
    repair: float,
    server_share: float,
    causes: str | None,
    level: float,
    spares_fail: bool,
    plot: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Calculate exactly how many spares reach a service level, per rack and in one shared pool.

    The table compares the exact rule with the published one, which reserves one spare too many (docs/planning.md).
    """
    from lumion_hw.errors import ConfigError
    from lumion_hw.planning import plan_spares, rack_of_servers

    if per_rack % per_server:
        raise ConfigError(
            f"--rack {per_rack} is not a multiple of --server {per_server}",
            hint="Give a rack size that is a whole number of servers.",
        )
    faults = _faults(rate, repair, server_share, per_server, causes)
    accelerator_unavailable, server_unavailable = faults.accelerator_unavailable, faults.server_unavailable
    rack = rack_of_servers(per_rack // per_server, per_server, accelerator_unavailable, server_unavailable)
    spare_unavailable = accelerator_unavailable if spares_fail else 0.0
    plans = [
        plan_spares(rack, racks, level, rule, spare_unavailable=spare_unavailable)
        for rule in ("published", "sufficient")
    ]
    if plot is not None:
        from lumion_hw.files.writing import overwrite_policy
        from lumion_hw.planning import RiskGroup, lost_probability, plot_shortage

        groups = {f"one rack of {per_rack}": rack} | (
            {f"pool of {racks} racks": RiskGroup(0.0, (rack,) * racks)} if racks > 1 else {}
        )
        plot_shortage(
            {label: lost_probability(group) for label, group in groups.items()}, level, plot, overwrite_policy(force)
        )
    if as_json:
        shares = {"accelerator_unavailable": accelerator_unavailable, "server_unavailable": server_unavailable}
        echo_json(shares | {"plans": plans})
        return
    echo_text(
        f"fraction of time unavailable: a single accelerator {accelerator_unavailable:.3g}, "
        f"a whole server {server_unavailable:.3g}\n"
    )
    echo_table(
        f"Spare accelerators for {racks} racks of {per_rack} at level {level:g}",
        ("rule", "one rack", "per rack, all racks", "total", "one pool"),
        [[p.rule, p.one_rack, p.every_rack, racks * p.every_rack, p.pooled] for p in plans],
    )


@plan.command()
@_fleet_options
@MIX
@COUNTED_BY
@click.option(
    "--failures",
    metavar="MIN,MAX",
    help="Smallest and largest number of failures per rack (uniform); used instead of a rate.",
)
@_rate_options
@_CAUSES
@click.option(
    "--level",
    type=_LEVEL,
    default=0.95,
    show_default=True,
    help="Service level: required probability that the reserved spares suffice, 0 to 1.",
)
@_simulation_options
@plot_option("the costs")
@force_option
@json_option
def compare(
    racks: int,
    per_rack: int,
    per_server: int,
    spares: int,
    spare_racks: int,
    mix: str,
    counted_by: Any,
    failures: str | None,
    rate: float,
    repair: float,
    server_share: float,
    causes: str | None,
    level: float,
    states: int,
    seed: int,
    workers: int | None,
    scheduler: str | None,
    plot: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Compare job migration, server eviction and spares over random states of a fleet.

    Example: `lumion plan compare --failures 1,4` repeats the published experiment.
    """
    from lumion_hw.planning import job_mix, simulate

    if failures is not None and causes is not None:
        raise click.UsageError("Give either --failures or --causes, but not both.")

    fleet = _fleet(racks, per_rack, per_server, spares, spare_racks)
    if failures is not None:
        faults = _faults_per_rack(failures)
    else:
        faults = _faults(rate, repair, server_share, per_server, causes)
    jobs = job_mix(mix, counted_by)
    mapper = _mapper(workers, scheduler)
    result = simulate(fleet, faults, jobs, states=states, seed=seed, service_level=level, mapper=mapper)
    if plot is not None:
        from lumion_hw.files.writing import overwrite_policy
        from lumion_hw.planning import plot_costs_of_policies

        plot_costs_of_policies(result, plot, overwrite_policy(force))
    if as_json:
        ratios = {counting: _ratios(result, counting) for counting in _COUNTINGS}
        echo_json(
            {"fleet": fleet, "states": states, "failed": result.failed, "over_in_rack_spares": ratios}
            | {"policies": list(result.costs.values())}
        )
        return
    _print_policies(result, level)


def _faults_per_rack(failures: str) -> Faults:
    from lumion_hw.planning import Faults

    try:
        low, high = (int(part) for part in failures.split(","))
    except ValueError:
        raise click.UsageError(
            f"--failures: {failures!r} is invalid; give the smallest and largest number per rack, such as 1,4."
        ) from None
    return Faults((low, high))


def _ratios(result: Overprovisioning, counting: str) -> dict[str, float | None]:
    from math import isfinite

    from lumion_hw.planning import POLICIES

    ratios = {policy: result.ratio(policy, "in-rack-spares", counting=counting) for policy in POLICIES[:2]}
    return {policy: ratio if isfinite(ratio) else None for policy, ratio in ratios.items()}


def _print_policies(result: Overprovisioning, level: float) -> None:
    echo_table(
        f"Number of accelerators, mean of {result.states} states; {result.failed:.4g} failed ones were in use by jobs",
        ("policy", "scope of spares", "stranded", "+-", "idle spares", f"reserved for {level:g}", "sufficient"),
        [
            (
                cost.policy,
                cost.scope,
                round(cost.stranded, 2),
                round(1.96 * cost.stranded_error, 2),
                round(cost.idle, 1),
                cost.reserved,
                f"{cost.whole:.1%}",
            )
            for cost in result.costs.values()
        ],
    )
    ratios = {counting: _ratios(result, counting).values() for counting in _COUNTINGS}
    echo_table(
        "Cost relative to in-rack spares",
        ("counted", "job migration", "server eviction"),
        [(name, *(None if value is None else round(value, 2) for value in row)) for name, row in ratios.items()],
    )
    echo_text(
        "stranded: healthy accelerators out of service; idle: stranded plus idle spares; needed: stranded plus failed "
        "accelerators; all: stranded plus both."
    )


@plan.command("map")
@_fleet_options
@_rate_options
@click.option(
    "--sizes",
    default="4,8,16,32,64,128,256,512",
    show_default=True,
    help="Job sizes in accelerators, separated by commas.",
)
@click.option(
    "--server-shares",
    default="0,0.2,0.4,0.6,0.8,1",
    show_default=True,
    help="Fractions of faults that affect a whole server, 0 to 1, separated by commas.",
)
@click.option(
    "--counting",
    type=click.Choice(_COUNTINGS),
    default="needed",
    show_default=True,
    help="Accelerators that count as cost: stranded (healthy but out of service), idle spares, failed ones, or sums.",
)
@_simulation_options
@plot_option("the map")
@force_option
@json_option
def map_(
    racks: int,
    per_rack: int,
    per_server: int,
    spares: int,
    spare_racks: int,
    rate: float,
    repair: float,
    server_share: float,
    sizes: str,
    server_shares: str,
    counting: str,
    states: int,
    seed: int,
    workers: int | None,
    scheduler: str | None,
    plot: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Show where the published costs hold, for several job sizes and fractions of server faults."""
    from lumion_hw.planning import factor_map

    if server_share:
        raise click.UsageError("Give --server-shares instead of --server-share: the map covers several fractions.")
    if scheduler is not None:
        raise click.UsageError("Give --workers instead of --scheduler: a map consists of many small simulations.")
    result = factor_map(
        _fleet(racks, per_rack, per_server, spares, spare_racks),
        rate,
        repair,
        [int(size) for size in _numbers("--sizes", sizes, int)],
        _numbers("--server-shares", server_shares, float),
        counting=counting,
        states=states,
        seed=seed,
        mapper=_mapper(workers, None),
    )
    if plot is not None:
        from lumion_hw.files.writing import overwrite_policy
        from lumion_hw.planning import plot_factors

        plot_factors(result, plot, overwrite_policy(force))
    tables = {policy: [[_finite(value) for value in row] for row in table] for policy, table in result.factors.items()}
    if as_json:
        echo_json(
            {"counting": counting, "sizes": result.sizes, "server_shares": result.server_shares} | {"factors": tables}
        )
        return
    for policy, rows in tables.items():
        echo_table(
            f"{policy}: cost relative to in-rack spares, counting: {counting}",
            ("job size", *(f"{share:.0%} server faults" for share in result.server_shares)),
            [[size, *row] for size, row in zip(result.sizes, rows, strict=True)],
        )


def _finite(value: float) -> float | None:
    from math import isfinite

    return round(float(value), 3) if isfinite(value) else None


def _numbers(option: str, text: str, kind: type[int] | type[float]) -> list[float]:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise click.UsageError(f"{option}: {text!r} is not a list of numbers separated by commas.") from None
