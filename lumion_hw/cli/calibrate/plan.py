"""``lumion-calibrate plan``: expected effort and accuracy of a calibration, without any device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.calibrate.goal import goal_of, goal_options
from lumion_hw.cli.calibrate.output import conclude
from lumion_hw.cli.common.numbers import PORT, SEED
from lumion_hw.cli.common.output import json_option
from lumion_hw.cli.common.progress import RunProgress
from lumion_hw.errors import CalibrationError

if TYPE_CHECKING:
    from calibration.run.dry_run import DryRun

_MAX_NAMED = 8


@click.command()
@click.argument("bench_file", metavar="BENCH")
@click.option("--seed", default=0, show_default=True, type=SEED, help="Random seed of the phases.")
@goal_options
@click.option(
    "--without-source", multiple=True, type=PORT, metavar="PORT", help="Port of a source to ignore; may be repeated."
)
@click.option(
    "--without-monitor", multiple=True, type=PORT, metavar="PORT", help="Port of a monitor to ignore; may be repeated."
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
    """Calculate effort, expected accuracy and limits of a calibration of BENCH.

    No device is opened: all data come from the bench file and from a nominal mesh with random phases. Exit code 2 if
    the plan exceeds a limit of controller or chip, 3 if it will not reach the required standard error.
    """
    from calibration.run.dry_run import dry_run
    from lumion_hw.bench.bench import load

    goal = goal_of(sigma_mrad, seconds, settings)
    with RunProgress(emulated=None) as progress:
        found = dry_run(load(bench_file), seed, goal, without_source, without_monitor, progress)
    found.check()
    failure = (
        CalibrationError(f"{found.shortfall}.", hint="Allow more time, or increase the light.")
        if found.shortfall
        else None
    )
    document = _document(bench_file, found, goal.sigma_rad)
    return conclude(document, _text(document), failure, as_json)


def _document(bench_file: str, found: DryRun, wanted_rad: float) -> dict[str, Any]:
    import numpy as np

    bound = found.bound
    by_prior = [bound.space.describe(int(index)) for index in np.flatnonzero(bound.set_by_prior())]
    return {
        "bench": bench_file,
        "stages": [stage.__dict__ for stage in found.stages],
        "settings": found.settings,
        "source_changes": found.source_changes,
        "hardware_s": found.hardware_s,
        "peak_heater_mw": found.peak_mw,
        "limit_heater_mw": found.limit_mw,
        "peak_heater_ma": found.peak_ma,
        "limit_heater_ma": found.limit_ma,
        "sources": list(found.sources),
        "monitors": list(found.monitors),
        "wanted_sigma_rad": wanted_rad,
        "predicted_sigma": found.sigma_rad,
        "rank": bound.rank,
        "free_parameters": bound.n_free,
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
        f"{'in all':<16} {document['settings']:>8} {document['source_changes']:>6} {document['hardware_s']:>10.1f} "
        f"{document['peak_heater_mw']:>8.0f}   limit {document['limit_heater_mw']:.0f} mW"
    )
    sigma = document["predicted_sigma"]
    lines += [
        f"largest heater current: {document['peak_heater_ma']:.2f} mA, limit {document['limit_heater_ma']:.2f} mA",
        f"sources: {document['sources']}",
        f"monitors: {document['monitors']}",
        "source changes are not included in the hardware time, because their duration depends on the bench",
        "",
        f"goal: {1e3 * document['wanted_sigma_rad']:.3g} mrad",
        f"predicted standard errors, rms: passive phases {1e3 * sigma['passive_phase_rad']:.2g} mrad, "
        f"loops {1e3 * sigma['loops']:.2g} mrad, losses {1e3 * sigma['loss_db']:.2g} mdB, "
        f"couplers {1e3 * sigma['coupler_common_rad']:.2g} mrad",
        f"rank {document['rank']} of {document['free_parameters']} free parameters",
    ]
    for title, names in (("not identifiable", document["unseen"]), ("set by the prior", document["set_by_prior"])):
        more = f", and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
        lines.append(f"{title}: {'; '.join(names[:_MAX_NAMED]) or 'nothing'}{more}")
    return "\n".join(lines)
