"""``lumion rehearse``: run a training job over an emulated fabric, make a server fail, and use a spare."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.common.numbers import SEED
from lumion_hw.cli.common.output import echo_json, echo_table, echo_text, json_option, note
from lumion_hw.errors import ConfigError
from lumion_hw.files.writing import write_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lumion_hw.mesh.record.calibration_record import CalibrationRecord
    from lumion_hw.rehearsal import LightFabric, Rehearsal

_DIFFERENT = 3
_FAULTS = ("light", "kill", "freeze", "server", "spare", "two")
_USUAL_FAULTS = ("light", "kill", "freeze")
_HEADERS = ("span", "at ms", "min", "max", "since previous", "last", "source")


@click.command()
@click.option("--bench", "file", default="lumion-prototype", show_default=True, help="Bench file or built-in bench.")
@click.option(
    "--fault",
    "faults",
    type=click.Choice(_FAULTS),
    multiple=True,
    help="Fault to inject: cut the light of a server, kill or freeze a process, lose a whole server, lose the spare "
    "too while it joins, or lose two servers at once.  [default: light, kill, freeze]",
)
@click.option(
    "--trials", default=1, show_default=True, type=click.IntRange(1, 1000), help="Number of trials for each fault."
)
@click.option(
    "--fabric",
    type=click.Choice(["bench", "switch"]),
    default="bench",
    show_default=True,
    help="Optical fabric: the emulated bench, or a simulated switch with a switching time of 10 ms.",
)
@click.option(
    "--servers",
    type=click.IntRange(2, 4),
    help="Servers of the job with --fabric switch.  [default: 2; a bench file lists its own]",
)
@click.option(
    "--accelerators",
    default=2,
    show_default=True,
    type=click.IntRange(1, 2),
    help="Training processes per server; the numpy job has one.",
)
@click.option(
    "--network",
    type=click.Choice(["auto", "tap", "pairs"]),
    default="auto",
    show_default=True,
    help="Network: namespaces with TAP devices (needs privileges), or socket pairs.",
)
@click.option(
    "--job",
    type=click.Choice(["auto", "torch", "sharded", "numpy"]),
    default="auto",
    show_default=True,
    help="Training job: torch with gloo, data parallel or sharded over the accelerators of a server (FSDP2; both need "
    "lumion-hw[rehearsal]), or numpy.",
)
@click.option(
    "--record",
    metavar="RECORD",
    help="Calibration record of this bench and seed.  [default: calibrate first, which takes 20 s]",
)
@click.option(
    "--steps", default=24, show_default=True, type=click.IntRange(12, 10_000), help="Number of training steps."
)
@click.option("--seed", default=0, show_default=True, type=SEED, help="Random seed of the bench and the model.")
@click.option("--timeline", type=click.Path(dir_okay=False), help="SVG file for a timeline of the first fault.")
@json_option
def rehearse(
    file: str,
    faults: tuple[str, ...],
    trials: int,
    fabric: str,
    servers: int | None,
    accelerators: int,
    network: Any,
    job: Any,
    record: str | None,
    steps: int,
    seed: int,
    timeline: str | None,
    as_json: bool,
) -> None:
    """Rehearse the loss of a server: a training job must continue and end with bit-identical results.

    Each server is a network namespace. Ethernet frames pass between two namespaces only while the emulated light
    arrives. If this machine lacks a feature, the command uses a substitute and reports it. The table shows wall-clock
    times since the fault and their sources. The exit code is 3 if a final model differs.
    """
    from lumion_hw.rehearsal import RehearsalSetting, rehearse as run_rehearsal
    from lumion_hw.rehearsal.timing import table

    if servers is not None and fabric == "bench":
        raise ConfigError("--servers needs --fabric switch; the servers of a bench are in its file")
    setting = RehearsalSetting(network=network, job=job, accelerators=accelerators, steps=steps, seed=seed)
    with contextlib.ExitStack() as stack:
        light = _switch(servers or 2) if fabric == "switch" else _bench(stack, file, seed, record)
        chosen: Any = faults or _USUAL_FAULTS
        results = run_rehearsal(
            light, chosen, setting, trials=trials, report_progress=(lambda _: None) if as_json else note
        )
    if timeline is not None:
        write_file(Path(timeline), "the timeline", _timeline(results))
    if as_json:
        echo_json({"rehearsals": [{**dataclasses.asdict(result), "spans": table(result.trials)} for result in results]})
    else:
        _print_results(results)
    if not all(all(result.identical) for result in results):
        click.get_current_context().exit(_DIFFERENT)


def _print_results(results: Sequence[Rehearsal]) -> None:
    from lumion_hw.rehearsal.timing import table

    for result in results:
        rows = [
            (
                row["name"],
                *(f"{row[key]:.1f}" for key in ("at_ms", "least_ms", "most_ms", "since_before_ms")),
                row["last"],
                row["source"],
            )
            for row in table(result.trials)
        ]
        title = f"{result.fault}: wall-clock times since the fault in ms, medians of {len(result.trials)} trials"
        echo_table(title, _HEADERS, rows)
    last = results[-1]
    frames = f"{last.frames['moved']} frames forwarded, {last.frames['dropped']} dropped"
    echo_text(f"network {last.network}, job {last.job} with {last.ranks} ranks; {frames}")
    for text in last.fell_back:
        echo_text(f"Not available on this machine: {text}.")
    for text in last.emulated:
        echo_text(f"Emulated: {text}.")
    n_identical = sum(sum(result.identical) for result in results)
    n_trials = sum(len(result.identical) for result in results)
    echo_text(f"Final state identical to an undisturbed run: {n_identical} of {n_trials} trials")


def _switch(n_servers: int) -> LightFabric:
    from lumion_hw.rehearsal import SwitchedLight

    names = [f"server{number}" for number in range(n_servers + 2)]
    return SwitchedLight(names[:n_servers], names[n_servers:])


def _bench(stack: contextlib.ExitStack, file: str, seed: int, record: str | None) -> LightFabric:
    from lumion_hw.rehearsal.bench_fabric import BenchFabric

    directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="lumion-"))
    loaded = _record(file, seed, record, Path(directory))
    light = BenchFabric(file, loaded, Path(directory) / "state", seed=seed)
    stack.callback(light.close)
    return light


def _record(file: str, seed: int, record: str | None, directory: Path) -> CalibrationRecord:
    from lumion_hw.storage import load_record

    if record is not None:
        return load_record(record)
    from calibration.run.journaled_run import calibrate
    from calibration.run.planning import Goal
    from lumion_hw.bench.bench import Bench
    from lumion_hw.cli.demo.command import SIGMA_MRAD
    from lumion_hw.polarization import Aligner

    note("calibrating the emulated bench; give --record to avoid this next time")
    with Bench.emulate(file, seed=seed) as bench, bench.dark():
        goal = Goal(sigma_rad=1e-3 * SIGMA_MRAD)
        return calibrate(bench, Aligner(bench.clock), seed, directory / "calibration.json", goal=goal)


def _timeline(results: Any) -> str:
    from lumion_hw.fabric.spans import timeline_svg
    from lumion_hw.rehearsal.timing import table

    first = results[0]
    rows = table(first.trials)
    title = f"{first.fault}: {first.job} over {first.network}, medians of {len(first.trials)} trials"
    return timeline_svg(
        title, [row["name"] for row in rows], [row["at_ms"] for row in rows], [row["source"] for row in rows]
    )
