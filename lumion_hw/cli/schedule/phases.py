"""``lumion schedule phases``: the phases of a training job, prepared for a bench and run on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.common.numbers import DURATION, MAX_COUNT
from lumion_hw.cli.common.opening import bench_options, open_bench
from lumion_hw.cli.common.output import echo_json, echo_table, echo_text, json_option, note
from lumion_hw.cli.common.outputs import force_option, out_option, plot_option

if TYPE_CHECKING:
    from lumion_hw.cli.circuits import BenchTarget
    from lumion_hw.mesh.record.calibration_record import CalibrationRecord
    from lumion_hw.schedules.phase_run import MeasuredChange, MeasuredPhase
    from lumion_hw.schedules.phases import IterationTimes, PhasePlan, PreparedPhase


@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--bench", "bench_file", help="Bench to prepare the configurations for; needs --record.")
@click.option("--record", type=click.Path(dir_okay=False), help="Calibration record of the bench.")
@out_option("JSON file of the prepared configurations to write; needs --bench.")
@click.option("--run", is_flag=True, help="Run the iterations on the bench and measure them.")
@click.option("--iterations", type=click.IntRange(1, MAX_COUNT), help="Number of iterations.  [default: as in FILE]")
@click.option(
    "--delta",
    type=DURATION,
    default=0.01,
    show_default=True,
    help="Assumed time a port is dark during a change of circuits, in seconds; measured instead with --run.",
)
@plot_option("one iteration")
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
    """Check the phases of a job, calculate the iteration time, prepare the circuits, or run the job on a bench.

    FILE is a phase file, or a JSON file written by --out, whose circuit paths are used again.

    Example: `lumion schedule phases job.yaml --bench small.yaml --record record.json --emulate --run --plot job.svg`
    """
    from lumion_hw.schedules.phases import iteration_times, load_phases, prepared_document

    _check_option_combinations(file, bench_file, record, out, run)
    measured: tuple[MeasuredPhase, ...] = ()
    changes: Mapping[str, MeasuredChange] = {}
    prepared: dict[str, PreparedPhase] = {}
    settle_s: float | None = None
    if bench_file is not None and record is not None:
        from lumion_hw.cli.circuits import BenchTarget
        from lumion_hw.storage import load_record

        calibrated = load_record(record)
        plan, prepared = _prepare(file, bench_file, calibrated, out, force)
        if run:
            target = BenchTarget(bench_file, emulate, seed, endpoints, None, record, None, 0.0, as_json)
            changes, measured, settle_s = _run_phases(target, calibrated, prepared, plan, iterations)
        if not as_json:
            _print_prepared(prepared)
    else:
        plan = load_phases(file)
    document: dict[str, Any] = {"job": plan.job, "tags": [phase.tag for phase in plan.phases]}
    document |= {"configurations": prepared_document(prepared)} if prepared else {}
    times = iteration_times(plan, delta, [phase.excludes_others for phase in prepared.values()] or None)
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
    _print_times(plan, times, measured, modelled, changes)
    _print_dark_times(measured, settle_s)


def _check_option_combinations(
    file: str, bench_file: str | None, record: str | None, out: Path | None, run: bool
) -> None:
    if (bench_file is None) != (record is None) or (run and bench_file is None):
        raise click.UsageError("--bench and --record must be given together, and --run needs both.")
    if bench_file is None and (out is not None or file.endswith(".json")):
        raise click.UsageError("--out and prepared configurations (.json) need --bench and --record.")


def _plot_times(plan: PhasePlan, times: IterationTimes, plot: Path | None, force: bool) -> None:
    if plot is not None:
        from lumion_hw.files.writing import overwrite_policy
        from lumion_hw.schedules.picture import plot_iteration

        plot_iteration(plan, times, plot, overwrite_policy(force))


def _prepare(
    file: str, bench_file: str, record: CalibrationRecord, out: Path | None, force: bool
) -> tuple[PhasePlan, dict[str, PreparedPhase]]:
    from lumion_hw.bench.bench import load
    from lumion_hw.files.writing import check_target, overwrite_policy
    from lumion_hw.schedules.phases import load_phases, prepare
    from lumion_hw.schedules.prepared_file import load_prepared, save_prepared

    if out is not None:
        check_target(out, "prepared configurations", overwrite_policy(force))
    model = load(bench_file)
    if file.endswith(".json"):
        plan, prepared = load_prepared(file, model, record)
    else:
        plan = load_phases(file)
        prepared = prepare(model, record, plan)
    if out is not None:
        save_prepared(prepared, plan, model, record, out, overwrite_policy(force))
    return plan, prepared


def _measured_document(
    measured: Sequence[MeasuredPhase], modelled: IterationTimes, settle_s: float | None
) -> dict[str, Any]:
    from lumion_hw.schedules.phase_run import measured_dark_times

    return {
        "model": _times_document(modelled),
        "iterations": measured[-1].iteration + 1,
        "dark_s": {phase.tag: phase.switched.longest_dark_s for phase in measured if phase.switched is not None},
        "ports": measured_dark_times(measured),
        "controller_settle_s": settle_s,
        "heat_mw": {phase.tag: phase.heat_mw for phase in measured},
    }


def _print_dark_times(measured: Sequence[MeasuredPhase], settle_s: float | None) -> None:
    from lumion_hw.schedules.cost import time_text
    from lumion_hw.schedules.phase_run import measured_dark_times

    rows = [
        (
            dark.tag,
            dark.port,
            dark.changes,
            time_text(dark.median_s),
            time_text(dark.longest_s),
            None if settle_s is None else time_text(settle_s),
        )
        for dark in measured_dark_times(measured)
    ]
    titles = ("phase", "port", "changes", "median dark time", "longest", "heater settling")
    echo_table("\nDark times by port", titles, rows)


def _run_phases(
    target: BenchTarget,
    record: CalibrationRecord,
    prepared: dict[str, PreparedPhase],
    plan: PhasePlan,
    iterations: int | None,
) -> tuple[Mapping[str, MeasuredChange], tuple[MeasuredPhase, ...], float]:
    """Run the phases of a job on a bench that has no other circuits.

    Returns:
        The duration of each change including receiver lock, the measured phases, and the settling time of the heaters.
    """
    from lumion_hw.circuits import BenchLock, PathSetup, read_state
    from lumion_hw.errors import ConfigError
    from lumion_hw.schedules.phase_run import PhaseSwitch

    with (
        target.directory() as directory,
        BenchLock(directory, "lumion schedule phases"),
        open_bench(target.file, target.emulate, target.seed, target.endpoints) as bench,
    ):
        if connected := read_state(directory)[0].circuits:
            names = ", ".join(circuit.name for circuit in connected)
            raise ConfigError(
                f"the bench has connected circuits: {names}", hint="Disconnect them first with `lumion disconnect`."
            )
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


def _print_prepared(prepared: dict[str, PreparedPhase]) -> None:
    rows = [
        (
            tag,
            len(phase.circuits),
            len(phase.kept),
            max((circuit.hops for circuit in phase.plan.circuits), default=None),
            round(min(circuit.budget.margin_db for circuit in phase.plan.circuits), 1) if phase.circuits else None,
            round(phase.plan.heat_mw, 1),
        )
        for tag, phase in prepared.items()
    ]
    headers = ("phase", "circuits", "unchanged", "longest path", "min margin dB", "heat mW")
    echo_table("Configurations", headers, rows)


def _print_times(
    plan: PhasePlan,
    times: IterationTimes,
    measured: Sequence[MeasuredPhase],
    modelled: IterationTimes | None,
    changes: Mapping[str, MeasuredChange],
) -> None:
    from lumion_hw.schedules.cost import time_text
    from lumion_hw.schedules.phases import plan_warnings

    last = {phase.tag: phase for phase in measured}
    waits = (None,) * len(plan.phases) if modelled is None else tuple(time_text(wait) for wait in modelled.waits_s)
    rows = []
    for phase, start_s, wait_s, model in zip(plan.phases, times.starts_s, times.waits_s, waits, strict=True):
        switched = last[phase.tag].switched if measured else None
        dark = None if switched is None else time_text(switched.longest_dark_s)
        change = None if switched is None else changes[phase.tag]
        after = (None, None) if change is None else (time_text(change.light_s), time_text(change.receivers_s))
        row = (phase.tag, time_text(start_s), time_text(phase.duration_s), time_text(wait_s), model, dark, *after)
        rows.append(row if measured else row[:4])
    title = f"{plan.job}: one iteration, {'measured' if measured else 'by the model'}"
    titles = ("phase", "start", "duration", "wait", "wait by model", "dark", "light after", "receivers after")
    echo_table(title, titles if measured else titles[:4], rows)
    echo_text(f"total {time_text(times.total_s)}, of which {100 * times.waiting_share:.2f} % waiting for circuits")
    if modelled is not None:
        echo_text(f"by the model with the measured dark times: {time_text(modelled.total_s)}")
    for warning in plan_warnings(plan, times):
        note(warning)
