"""``lumion demo``: the main job on an emulated bench."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lumion_hw.cli.output import echo_json, echo_table, json_option, note, progress

if TYPE_CHECKING:
    from lumion_hw.bench.bench import Bench


def new_run_directory(out: str | None) -> Path:
    """Return the directory of this run: the one asked for, or ``runs/<time>`` with a number if that exists."""
    if out is not None:
        return Path(out)
    base = Path("runs") / time.strftime("%Y%m%d-%H%M%S")
    directory, again = base, 1
    while directory.exists():
        again += 1
        directory = base.with_name(f"{base.name}-{again}")
    return directory


class StageBars:
    """Progress callback that draws one bar on stderr per stage; use it as a context manager."""

    def __init__(self) -> None:
        self._stage = ""
        self._done = 0
        self._bar: ExitStack | None = None
        self._update: Callable[[int], None] = lambda steps: None

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Advance the bar of a stage; a new stage ends the bar of the one before."""
        if stage != self._stage:
            self.__exit__()
            self._bar = ExitStack()
            self._update = self._bar.enter_context(progress(total, f"{stage:>12}")).update
            self._stage, self._done = stage, 0
        self._update(done - self._done)
        self._done = done

    def __enter__(self) -> StageBars:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


@click.command()
@click.option("--bench", "file", default="lumion-prototype", show_default=True, help="Bench file or built-in bench.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Seed of everything random.")
@click.option("--out", type=click.Path(file_okay=False), help="Directory for the artifacts; runs/<time> if not given.")
@json_option
def demo(file: str, seed: int, out: str | None, as_json: bool) -> None:
    """Calibrate, connect, break and recover an emulated bench.

    Nothing here needs hardware: the devices are emulated in this process, on virtual time, behind the same drivers and
    the same bytes as the real ones.
    """
    from calibration.story import run_story
    from calibration.story_report import story_document
    from lumion_hw.bench.bench import Bench
    from lumion_hw.bench.files import writing

    began, began_cpu = time.monotonic(), time.process_time()
    with Bench.emulate(file, seed=seed) as bench:
        directory = new_run_directory(out)
        with writing("to", directory):
            directory.mkdir(parents=True, exist_ok=True)
        if not as_json:
            _show_bench(bench)
        with StageBars() as bars:
            story = run_story(
                bench, seed, directory, progress=bars, say=(lambda *_: None) if as_json else _Narrator().say
            )
        if as_json:
            echo_json(story_document(bench, story, seed))
            return
        note(f"{time.monotonic() - began:.1f} s, {time.process_time() - began_cpu:.1f} s of CPU time")
    click.echo(f"Left behind in {directory}/: " + ", ".join(sorted(path.name for path in directory.iterdir())))


def _show_bench(bench: Bench) -> None:
    """Print the bench as a table: every device, as it answered."""
    rows: list[list[object]] = []
    info = bench.mesh.controller.info
    for name, device in bench.model.devices.items():
        kind = getattr(device, "kind", "")
        if name == bench.model.mesh.controller:
            rows.append([name, kind, info.model, info.serial, f"{info.n_heaters} heaters, {info.n_monitors} monitors"])
        elif name in bench.meters:
            meter = bench.meters[name]
            rows.append([name, kind, meter.model, meter.serial, f"{len(meter.channels)} channels"])
        elif name in bench.transponders:
            identity = bench.transponders[name].identify()
            words = f"{identity.technology}, {identity.wavelength_nm:g} nm"
            rows.append([name, kind, identity.part_number, identity.serial, words])
        elif name in bench.polarization:
            actuators = bench.polarization[name].actuators
            rows.append([name, kind, None, None, f"{len(actuators)} actuators"])
        elif name in bench.lasers:
            laser = bench.lasers[name]
            rows.append([name, kind, laser.model, laser.serial, "laser"])
        else:
            rows.append([name, kind, None, None, None])
    mesh = bench.mesh.topology
    title = (
        f"{bench.model.name}: {mesh.n_pucs} PUCs, {mesh.n_ports} ports, {len(bench.model.servers)} servers (emulated)"
    )
    echo_table(title, ("device", "kind", "model", "serial", "what it has"), rows)


class _Narrator:
    """Prints each result of the run as soon as there is one."""

    def say(self, step: str, result: object) -> None:
        """Print one result."""
        from calibration import story_report as page
        from calibration.report import calibration_summary, calibration_text
        from lumion_hw.fabric import Recovery
        from lumion_hw.mesh.record import CalibrationRecord

        if isinstance(result, CalibrationRecord):
            summary = calibration_summary(result)
            click.echo(f"Calibration\n{calibration_text(summary)}\n")
        elif isinstance(result, Recovery):
            title = f"{result.failed} fails, {result.spare} takes its place"
            echo_table(title, page.SPAN_HEADERS, page.span_rows(result))
            echo_table("Circuits after the swap", page.CIRCUIT_HEADERS, page.circuit_rows(result.proofs))
            echo_table("Link budgets", page.BUDGET_HEADERS, page.budget_rows(result.proofs))
        elif isinstance(result, dict):
            echo_table("Crosstalk", page.CROSSTALK_HEADERS, page.crosstalk_rows(result))
        elif isinstance(result, tuple):
            echo_table("Circuits", page.CIRCUIT_HEADERS, page.circuit_rows(result))
            echo_table(
                "Link budgets (every input has a booster)",
                page.BUDGET_HEADERS,
                page.budget_rows(result),
            )
