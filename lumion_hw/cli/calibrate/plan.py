"""``lumion-calibrate plan``: predict the cost and accuracy of a calibration without using hardware."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.calibrate.goal import goal_of, goal_options
from lumion_hw.cli.calibrate.output import report_result
from lumion_hw.cli.common.bench_notes import print_bench_notes
from lumion_hw.cli.common.numbers import PORT, SEED
from lumion_hw.cli.common.output import json_option
from lumion_hw.cli.common.progress import RunProgress
from lumion_hw.errors import CalibrationError

if TYPE_CHECKING:
    from calibration.run.dry_run import DryRun

_MAX_NAMED = 8


@click.command()
@click.argument("bench_file", metavar="BENCH")
@click.option("--seed", default=0, show_default=True, type=SEED, help="Random seed.")
@goal_options
@click.option(
    "--without-source",
    multiple=True,
    type=PORT,
    metavar="PORT",
    help="Plan as if the light source at this port had failed.",
)
@click.option(
    "--without-monitor",
    multiple=True,
    type=PORT,
    metavar="PORT",
    help="Plan as if the monitor at this port had failed.",
)
@json_option
def plan(
    bench_file: str,
    seed: int,
    sigma_mrad: float | None,
    seconds: float | None,
    settings: int | None,
    without_source: tuple[int, ...],
    without_monitor: tuple[int, ...],
    as_json: bool,
) -> int:
    """Predict the cost of a calibration of BENCH, its accuracy, and the parameters that it cannot determine.

    The prediction uses the bench file and a nominal mesh with random phases, but no hardware. The exit code is 2 if the
    plan exceeds a limit of the controller or the chip, 3 if it will not reach the target standard error.
    """
    from calibration.run.dry_run import dry_run
    from lumion_hw.bench.bench import load

    goal = goal_of(sigma_mrad, seconds, settings)
    model = load(bench_file)
    print_bench_notes(model)
    with RunProgress(emulated=None) as progress:
        result = dry_run(model, seed, goal, without_source, without_monitor, progress)
    result.check()
    failure = None
    if result.shortfall:
        failure = CalibrationError(
            f"{result.shortfall}.", hint="Allow more time (--seconds), or add sources or monitors."
        )
    document = _document(bench_file, result, goal.sigma_rad)
    return report_result(document, _text(document), failure, as_json)


def _document(bench_file: str, result: DryRun, target_rad: float) -> dict[str, Any]:
    import numpy as np

    bound = result.bound
    by_prior = [bound.space.describe(int(index)) for index in np.flatnonzero(bound.set_by_prior())]
    return {
        "bench": bench_file,
        "stages": [stage.__dict__ for stage in result.stages],
        "settings": result.settings,
        "source_changes": result.source_changes,
        "pluggings": result.pluggings,
        "hardware_s": result.hardware_s,
        "peak_heater_mw": result.peak_mw,
        "limit_heater_mw": result.limit_mw,
        "peak_heater_ma": result.peak_ma,
        "limit_heater_ma": result.limit_ma,
        "sources": list(result.sources),
        "monitors": list(result.monitors),
        "wanted_sigma_rad": target_rad,
        "predicted_sigma": result.sigma_rad,
        "rank": bound.rank,
        "free_parameters": bound.n_free,
        "left_out": list(result.left_out),
        "unseen": list(bound.unseen()),
        "set_by_prior": by_prior,
    }


def _text(document: dict[str, Any]) -> str:
    lines = [f"{'stage':<16} {'settings':>8} {'moves':>6} {'hardware s':>10} {'peak mW':>8}"]
    lines += [
        f"{stage['name']:<16} {stage['settings']:>8} {stage['source_changes']:>6} {stage['hardware_s']:>10.1f} "
        f"{stage['peak_mw']:>8.0f}"
        for stage in document["stages"]
    ]
    lines.append(
        f"{'total':<16} {document['settings']:>8} {document['source_changes']:>6} {document['hardware_s']:>10.1f} "
        f"{document['peak_heater_mw']:>8.0f}   limit {document['limit_heater_mw']:.0f} mW"
    )
    sigma = document["predicted_sigma"]
    lines += [
        f"largest heater current: {document['peak_heater_ma']:.2f} mA, limit {document['limit_heater_ma']:.2f} mA",
        f"sources: {document['sources']}",
        f"monitors: {document['monitors']}",
        "the hardware time does not include the time for switching between sources",
        *([f"pluggings by hand: {document['pluggings']}"] if document["pluggings"] else []),
        *document["left_out"],
        "",
        f"target: {1e3 * document['wanted_sigma_rad']:.3g} mrad",
        f"predicted standard errors, rms: passive phases {1e3 * sigma['passive_phase_rad']:.2g} mrad, "
        f"loops {1e3 * sigma['loops']:.2g} mrad, losses {1e3 * sigma['loss_db']:.2g} mdB, "
        f"couplers {1e3 * sigma['coupler_common_rad']:.2g} mrad",
        f"rank {document['rank']} of {document['free_parameters']} free parameters",
    ]
    for title, names in (("not identifiable", document["unseen"]), ("set by the prior", document["set_by_prior"])):
        omitted = f", and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
        lines.append(f"{title}: {'; '.join(names[:_MAX_NAMED]) or 'nothing'}{omitted}")
    return "\n".join(lines)
