"""``lumion plan``: spares for a service level, and the cost of recovery policies. Uses no bench."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lumion_hw.cli.common.lazy import NamedGroup
from lumion_hw.cli.common.numbers import MANY, SEED, Number
from lumion_hw.cli.common.output import echo_json, echo_table, json_option, say
from lumion_hw.cli.common.outputs import force_option, out_option

if TYPE_CHECKING:
    from lumion_hw.planning.faults import Faults
    from lumion_hw.planning.overprovisioning import Fleet, Mapper, Overprovisioning

_Command = TypeVar("_Command", bound=Callable[..., Any])
_SHARE = Number("", 0.0, 1.0)
_LEVEL = Number("", 0.0, 0.999_999_999, above=True)
_COUNTINGS = ("stranded", "idle", "needed", "all")
_MIX_HELP = "Sizes of jobs: tpu-v4-small, even, or a CSV file with a size and its share per line."
COUNTED_BY = click.option(
    "--shares-of",
    "counted_by",
    type=click.Choice(("jobs", "accelerators")),
    default="jobs",
    show_default=True,
    help="Whether the shares in the file count jobs or accelerators.",
)
MIX = click.option("--mix", default="tpu-v4-small", show_default=True, help=_MIX_HELP)


@click.group(cls=NamedGroup)
def plan() -> None:
    """Plan spares for a service level, and compare the cost of recovery policies."""


def _fleet_options(function: _Command) -> _Command:
    for option in (
        click.option("--spare-racks", type=click.IntRange(0, MANY), default=0, help="Spare racks, in addition."),
        click.option(
            "--spares", type=click.IntRange(0, MANY), default=4, show_default=True, help="Spares in each rack."
        ),
        click.option(
            "--server",
            "per_server",
            type=click.IntRange(1, MANY),
            default=4,
            show_default=True,
            help="Accelerators per server.",
        ),
        click.option(
            "--rack",
            "per_rack",
            type=click.IntRange(1, MANY),
            default=64,
            show_default=True,
            help="Accelerators per rack.",
        ),
        click.option(
            "--racks", type=click.IntRange(1, MANY), default=64, show_default=True, help="Racks that run jobs."
        ),
    ):
        function = option(function)
    return function


def _rate_options(function: _Command) -> _Command:
    for option in (
        click.option("--server-share", type=_SHARE, default=0.0, help="Share of faults that stop the whole server."),
        click.option(
            "--repair", type=Number("d", 0.0, 3660.0), default=7.0, show_default=True, help="Time to repair, in days."
        ),
        click.option(
            "--rate",
            type=Number("1/d", 0.0, 1.0),
            default=4.7e-4,
            show_default=True,
            help="Faults per accelerator and day. The default was measured for Llama 3.",
        ),
    ):
        function = option(function)
    return function


_CAUSES = click.option(
    "--causes",
    type=click.Path(dir_okay=False),
    help="CSV file in place of --rate: name, accelerator or server, faults per accelerator and day, days to repair.",
)


def _faults(rate: float, repair: float, server_share: float, per_server: int, causes: str | None) -> Faults:
    """Return the faults for a rate, or for the causes in a file."""
    from lumion_hw.planning import Faults, read_causes

    if causes is None:
        return Faults.from_rate(rate, repair, server_share, per_server)
    given = click.get_current_context().get_parameter_source
    if any(given(name) == click.core.ParameterSource.COMMANDLINE for name in ("rate", "repair", "server_share")):
        raise click.UsageError("Give either --causes, or --rate, --repair and --server-share.")
    return Faults.from_causes(read_causes(causes), per_server)


def _simulation_options(function: _Command) -> _Command:
    for option in (
        click.option(
            "--scheduler", metavar="HOST:PORT", help="Compute on this dask cluster. Use only a cluster that you trust."
        ),
        click.option("--workers", type=click.IntRange(1, 256), help="Number of processes.  [default: all cores]"),
        click.option("--seed", type=SEED, default=0, show_default=True, help="Random seed."),
        click.option(
            "--states", type=click.IntRange(1, MANY), default=2000, show_default=True, help="Random states per fleet."
        ),
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
@click.option("--racks", type=click.IntRange(1, MANY), default=1, show_default=True, help="Number of racks, all equal.")
@click.option(
    "--rack", "per_rack", type=click.IntRange(1, MANY), default=64, show_default=True, help="Accelerators per rack."
)
@click.option(
    "--server",
    "per_server",
    type=click.IntRange(1, MANY),
    default=4,
    show_default=True,
    help="Accelerators per server.",
)
@_rate_options
@_CAUSES
@click.option(
    "--level", type=_LEVEL, default=0.95, show_default=True, help="Probability that every job has all its accelerators."
)
@click.option("--spares-fail", is_flag=True, help="Let spares fail as often as single accelerators do.")
@out_option("Plot the probability of too few spares to this file: .png, .svg or .pdf.", "--plot")
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
    """Compute how many spares a service level needs, per rack and in one pool.

    The result is exact. It is shown for two rules: the published rule keeps one spare more than needed
    (docs/planning.md).
    """
    from lumion_hw.errors import ConfigError
    from lumion_hw.planning import plan_spares, rack_of_servers

    if per_rack % per_server:
        raise ConfigError(f"a rack of {per_rack} accelerators cannot be divided into servers of {per_server}")
    faults = _faults(rate, repair, server_share, per_server, causes)
    alone, server = faults.accelerator_unavailable, faults.server_unavailable
    rack = rack_of_servers(per_rack // per_server, per_server, alone, server)
    lost = alone if spares_fail else 0.0
    plans = [plan_spares(rack, racks, level, rule, spare_unavailable=lost) for rule in ("published", "sufficient")]
    if plot is not None:
        from lumion_hw.files.writing import over
        from lumion_hw.planning import RiskGroup, lost_probability, plot_shortage

        groups = {f"one rack of {per_rack}": rack} | (
            {f"pool of {racks} racks": RiskGroup(0.0, (rack,) * racks)} if racks > 1 else {}
        )
        plot_shortage({label: lost_probability(group) for label, group in groups.items()}, level, plot, over(force))
    if as_json:
        shares = {"accelerator_unavailable": alone, "server_unavailable": server}
        echo_json(shares | {"plans": plans})
        return
    say(f"share of time unavailable: single accelerator {alone:.3g}, whole server {server:.3g}\n")
    echo_table(
        f"spare accelerators needed: {racks} racks of {per_rack}, service level {level:g}",
        ("rule", "one rack alone", "each rack, all racks safe", "all racks together", "one pool"),
        [[each.rule, each.one_rack, each.every_rack, racks * each.every_rack, each.pooled] for each in plans],
    )


@plan.command()
@_fleet_options
@MIX
@COUNTED_BY
@click.option("--failures", metavar="MIN,MAX", help="Failures per rack, drawn uniformly, in place of a rate.")
@_rate_options
@_CAUSES
@click.option("--level", type=_LEVEL, default=0.95, show_default=True, help="Service level for the reserve.")
@_simulation_options
@out_option("Plot the costs to this file: .png, .svg or .pdf.", "--plot")
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

    `lumion plan compare --failures 1,4` repeats the published experiment.
    """
    from lumion_hw.planning import job_mix, simulate

    if failures is not None and causes is not None:
        raise click.UsageError("Give --failures or --causes, not both.")

    fleet = _fleet(racks, per_rack, per_server, spares, spare_racks)
    drawn = failures is not None
    faults = _counted(failures or "") if drawn else _faults(rate, repair, server_share, per_server, causes)
    jobs = job_mix(mix, counted_by)
    mapper = _mapper(workers, scheduler)
    found = simulate(fleet, faults, jobs, states=states, seed=seed, service_level=level, mapper=mapper)
    if plot is not None:
        from lumion_hw.files.writing import over
        from lumion_hw.planning import plot_costs_of_policies

        plot_costs_of_policies(found, plot, over(force))
    if as_json:
        ratios = {how: _ratios(found, how) for how in _COUNTINGS}
        echo_json(
            {"fleet": fleet, "states": states, "failed": found.failed, "over_in_rack_spares": ratios}
            | {"policies": list(found.costs.values())}
        )
        return
    _say_policies(found, level)


def _counted(failures: str) -> Faults:
    from lumion_hw.planning import Faults

    try:
        least, most = (int(part) for part in failures.split(","))
    except ValueError:
        raise click.UsageError(
            f"--failures: {failures!r} is not two whole numbers. Write MIN,MAX, such as 1,4."
        ) from None
    return Faults((least, most))


def _ratios(found: Overprovisioning, counting: str) -> dict[str, float | None]:
    from math import isfinite

    from lumion_hw.planning import POLICIES

    ratios = {policy: found.ratio(policy, "in-rack-spares", counting=counting) for policy in POLICIES[:2]}
    return {policy: ratio if isfinite(ratio) else None for policy, ratio in ratios.items()}


def _say_policies(found: Overprovisioning, level: float) -> None:
    echo_table(
        f"accelerators, mean of {found.states} states; {found.failed:.4g} failed while in use",
        ("policy", "spares per", "stranded", "+-", "idle spares", f"reserve for {level:g}", "enough"),
        [
            (
                each.policy,
                each.scope,
                round(each.stranded, 2),
                round(1.96 * each.stranded_error, 2),
                round(each.idle, 1),
                each.reserved,
                f"{each.whole:.1%}",
            )
            for each in found.costs.values()
        ],
    )
    ratios = {counting: _ratios(found, counting).values() for counting in _COUNTINGS}
    echo_table(
        "cost relative to in-rack spares, by the accelerators counted",
        ("counted", "job migration", "server eviction"),
        [(name, *(None if value is None else round(value, 2) for value in row)) for name, row in ratios.items()],
    )
    say("stranded: healthy but out of service; idle: also unused spares; needed: also failed ones; all: all three.")


@plan.command("map")
@_fleet_options
@_rate_options
@click.option("--sizes", default="4,8,16,32,64,128,256,512", show_default=True, help="Job sizes to try.")
@click.option(
    "--server-shares", default="0,0.2,0.4,0.6,0.8,1", show_default=True, help="Shares of server faults to try."
)
@click.option(
    "--counting", type=click.Choice(_COUNTINGS), default="needed", show_default=True, help="Accelerators to count."
)
@_simulation_options
@out_option("Plot the map to this file: .png, .svg or .pdf.", "--plot")
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
    """Show for which job sizes and shares of server faults the published cost factors hold."""
    from lumion_hw.planning import factor_map

    if server_share:
        raise click.UsageError("Give --server-shares: the map varies the share, so --server-share has no meaning here.")
    if scheduler is not None:
        raise click.UsageError("Give --workers in place of --scheduler: a map is many small simulations.")
    found = factor_map(
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
        from lumion_hw.files.writing import over
        from lumion_hw.planning import plot_factors

        plot_factors(found, plot, over(force))
    tables = {policy: [[_finite(value) for value in row] for row in table] for policy, table in found.factors.items()}
    if as_json:
        echo_json(
            {"counting": counting, "sizes": found.sizes, "server_shares": found.server_shares} | {"factors": tables}
        )
        return
    for policy, rows in tables.items():
        echo_table(
            f"{policy}: cost relative to in-rack spares, counted: {counting}",
            ("job size", *(f"{share:.0%} servers" for share in found.server_shares)),
            [[size, *row] for size, row in zip(found.sizes, rows, strict=True)],
        )


def _finite(value: float) -> float | None:
    from math import isfinite

    return round(float(value), 3) if isfinite(value) else None


def _numbers(option: str, text: str, kind: type[int] | type[float]) -> list[float]:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise click.UsageError(f"{option}: {text!r} is not a list of numbers separated by commas.") from None
