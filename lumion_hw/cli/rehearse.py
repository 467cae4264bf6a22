"""``lumion rehearse``: real processes and real frames over emulated light; one fails, a spare takes over."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.common.numbers import SEED
from lumion_hw.cli.common.output import echo_json, echo_table, json_option, note, say
from lumion_hw.files.writing import write_file

if TYPE_CHECKING:
    from lumion_hw.mesh.record.calibration_record import CalibrationRecord
    from lumion_hw.rehearsal import LightFabric

_DIFFERENT = 3
_HEADERS = ("span", "at ms", "least", "most", "since before", "last", "made of")


@click.command()
@click.option("--bench", "file", default="lumion-prototype", show_default=True, help="Bench file or built-in bench.")
@click.option(
    "--fault",
    "faults",
    type=click.Choice(["light", "kill", "freeze"]),
    multiple=True,
    help="What happens: the light is cut, a process killed, a process frozen.  [default: all three]",
)
@click.option("--trials", default=1, show_default=True, type=click.IntRange(1, 1000), help="Times for each fault.")
@click.option(
    "--fabric",
    type=click.Choice(["bench", "switch"]),
    default="bench",
    show_default=True,
    help="The emulated bench, or a plain switch that takes 10 ms.",
)
@click.option(
    "--network",
    type=click.Choice(["auto", "tap", "pairs"]),
    default="auto",
    show_default=True,
    help="Namespaces with TAP devices (needs privileges), or pairs of sockets.",
)
@click.option(
    "--job",
    type=click.Choice(["auto", "torch", "numpy"]),
    default="auto",
    show_default=True,
    help="torch.distributed with gloo (needs lumion-hw[rehearsal]), or numpy.",
)
@click.option("--record", metavar="RECORD", help="Calibration of this bench and seed; made first if not given (20 s).")
@click.option("--steps", default=24, show_default=True, type=click.IntRange(12, 10_000), help="Training steps.")
@click.option("--seed", default=0, show_default=True, type=SEED, help="Seed of bench and model.")
@click.option("--timeline", type=click.Path(dir_okay=False), help="Picture of the spans, SVG.")
@json_option
def rehearse(
    file: str,
    faults: tuple[str, ...],
    trials: int,
    fabric: str,
    network: Any,
    job: Any,
    record: str | None,
    steps: int,
    seed: int,
    timeline: str | None,
    as_json: bool,
) -> None:
    """Rehearse the loss of a server: a training job goes on, bit for bit as if nothing had happened.

    Servers are network namespaces, circuits a forwarder that passes Ethernet frames only while the emulated light
    arrives. What cannot be had on this machine is replaced, and said so. Spans are wall-clock times since the fault,
    each with where it is from. The exit code is 3 if a final state differs.
    """
    from lumion_hw.rehearsal import RehearsalSetting, rehearse as rehearsed
    from lumion_hw.rehearsal.timing import table

    setting = RehearsalSetting(network=network, job=job, steps=steps, seed=seed)
    with contextlib.ExitStack() as stack:
        light = _light(stack, fabric, file, seed, record)
        chosen: Any = faults or ("light", "kill", "freeze")
        found = rehearsed(
            light, chosen, setting, trials=trials, report_progress=(lambda words: None) if as_json else note
        )
    if timeline is not None:
        write_file(Path(timeline), "the timeline", _picture(found))
    if as_json:
        echo_json({"rehearsals": [{**dataclasses.asdict(each), "spans": table(each.trials)} for each in found]})
    else:
        for each in found:
            rows = [
                (
                    row["name"],
                    *(f"{row[key]:.1f}" for key in ("at_ms", "least_ms", "most_ms", "since_before_ms")),
                    row["last"],
                    row["source"],
                )
                for row in table(each.trials)
            ]
            echo_table(f"{each.fault}: medians of {len(each.trials)}, ms of wall clock since the fault", _HEADERS, rows)
        last = found[-1]
        frames = f"{last.frames['moved']} frames moved, {last.frames['dropped']} dropped"
        say(f"network {last.network}, job {last.job}; {frames}")
        for words in last.fell_back:
            say(f"Done without: {words}.")
        for words in last.emulated:
            say(f"Emulated: {words}.")
        same = sum(sum(each.identical) for each in found)
        say(f"Final state as undisturbed, bit for bit: {same} of {sum(len(each.identical) for each in found)}")
    if not all(all(each.identical) for each in found):
        click.get_current_context().exit(_DIFFERENT)


def _light(stack: contextlib.ExitStack, fabric: str, file: str, seed: int, record: str | None) -> LightFabric:
    from lumion_hw.rehearsal import SwitchedLight

    if fabric == "switch":
        return SwitchedLight(["server0", "server1"], ["server2"])
    from lumion_hw.rehearsal.bench_fabric import BenchFabric

    directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="lumion-"))
    known = _record(file, seed, record, Path(directory))
    light = BenchFabric(file, known, Path(directory) / "state", seed=seed)
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

    note("calibrating the emulated bench; --record spares this the next time")
    with Bench.emulate(file, seed=seed) as bench, bench.dark():
        goal = Goal(sigma_rad=1e-3 * SIGMA_MRAD)
        return calibrate(bench, Aligner(bench.clock), seed, directory / "calibration.json", goal=goal)


def _picture(found: Any) -> str:
    """Return the spans of the first fault as a picture, medians of its trials."""
    from lumion_hw.fabric.spans import timeline_svg
    from lumion_hw.rehearsal.timing import table

    rows = table(found[0].trials)
    title = f"{found[0].fault}: {found[0].job} over {found[0].network}, medians of {len(found[0].trials)}"
    return timeline_svg(
        title, [row["name"] for row in rows], [row["at_ms"] for row in rows], [row["source"] for row in rows]
    )
