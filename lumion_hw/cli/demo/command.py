"""``lumion demo``: calibrate an emulated bench, set up circuits, and replace a failed server."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lumion_hw.cli.common.numbers import SEED, Number
from lumion_hw.cli.common.output import echo_json, echo_table, json_option, note, say

if TYPE_CHECKING:
    from lumion_hw.bench.bench import Bench
    from lumion_hw.cli.common.progress import RunProgress

SIGMA_MRAD = 3.0
"""Accurate enough for circuits; saves 14 s of CPU time against the default 1 mrad (docs/performance.md)."""


def new_run_directory(out: str | None) -> Path:
    """Return the output directory of this run: the given one, or ``runs/<time>``, with a number if that exists."""
    if out is not None:
        return Path(out)
    base = Path("runs") / time.strftime("%Y%m%d-%H%M%S")
    directory, again = base, 1
    while directory.exists():
        again += 1
        directory = base.with_name(f"{base.name}-{again}")
    return directory


@click.command()
@click.option("--bench", "file", default="lumion-prototype", show_default=True, help="Bench file or built-in bench.")
@click.option("--seed", default=0, show_default=True, type=SEED, help="Random seed.")
@click.option("--out", type=click.Path(file_okay=False), help="Output directory; default: runs/<time>.")
@click.option(
    "--sigma-mrad",
    default=SIGMA_MRAD,
    show_default=True,
    type=Number("mrad", 0.0, 1e3, above=True),
    help="Required rms standard error of passive phases and loops, in mrad.",
)
@click.option("--plots/--no-plots", default=True, help="Include plots in the calibration report; requires matplotlib.")
@json_option
def demo(file: str, seed: int, out: str | None, sigma_mrad: float, plots: bool, as_json: bool) -> None:
    """Calibrate an emulated bench, set up its circuits, break a server and recover.

    No hardware is needed: the devices are emulated in this process with virtual time, behind the same drivers and
    protocol bytes as real devices.
    """
    from calibration.run.planning import Goal
    from lumion_hw.bench.bench import Bench
    from lumion_hw.cli.common.progress import RunProgress
    from lumion_hw.cli.demo.report import demo_document, verdict
    from lumion_hw.cli.demo.steps import run_demo
    from lumion_hw.files.writing import writing

    # Real time of this process, because the virtual clock does not show how long the user waited.
    began, began_cpu = time.monotonic(), time.process_time()
    with ExitStack() as stack:
        bars = stack.enter_context(RunProgress(True, quiet=True))
        bars("opening", 0, 1)
        bench = stack.enter_context(Bench.emulate(file, seed=seed))
        directory = new_run_directory(out)
        with writing("to", directory):
            directory.mkdir(parents=True, exist_ok=True)
        narrator = _Narrator(bars)
        if not as_json:
            bars.between()
            _show_bench(bench)
        tell = (lambda *_: None) if as_json else narrator.say
        goal = Goal(sigma_rad=1e-3 * sigma_mrad)
        demo_run = run_demo(bench, seed, directory, progress=bars, say=tell, goal=goal, plots=plots)
        bars.between()
        if as_json:
            echo_json(demo_document(bench, demo_run, seed))
            return
        note(f"{time.monotonic() - began:.1f} s, {time.process_time() - began_cpu:.1f} s of CPU time")
    say(f"{verdict(demo_run)}\n")
    say(f"Files in {directory}/: " + ", ".join(sorted(path.name for path in directory.iterdir())))
    for sentence in left_out(sigma_mrad, demo_run.left_out):
        say(f"Left out: {sentence}.")


def left_out(sigma_mrad: float, of_report: Sequence[str]) -> list[str]:
    """Return sentences about omitted steps, with the command for each."""
    from calibration.run.planning import Goal
    from lumion_hw.mesh.waves.engines import compiled_available

    usual_mrad = 1e3 * Goal().sigma_rad
    said = list(of_report)
    if sigma_mrad > usual_mrad:
        said.insert(
            0,
            f"phases are measured to {sigma_mrad:g} mrad only; for the default {usual_mrad:g} mrad of "
            f"lumion-calibrate run use: lumion demo --sigma-mrad {usual_mrad:g}",
        )
    if not compiled_available():
        said.append("the compiled solver, which halves the time: pip install 'lumion-hw[fast]'")
    return said


def _show_bench(bench: Bench) -> None:
    """Print all devices of the bench as a table."""
    rows: list[list[object]] = []
    info = bench.mesh.controller.info
    for name, device in bench.model.devices.items():
        kind = getattr(device, "kind", "")
        if name == bench.model.mesh_section.controller:
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
    echo_table(title, ("device", "kind", "model", "serial", "details"), rows)


class _Narrator:
    """Prints each result of the run as soon as it is available.

    Args:
        bars: Progress display, which is paused for the output.
    """

    def __init__(self, bars: RunProgress) -> None:
        self._bars = bars

    def say(self, step: str, result: object) -> None:
        """Print one result."""
        self._bars.between()
        from calibration.report.summary import calibration_text
        from lumion_hw.cli.demo import report as page
        from lumion_hw.fabric import Recovery
        from lumion_hw.mesh.record.calibration_record import CalibrationRecord

        if isinstance(result, CalibrationRecord):
            say(f"Calibration\n{calibration_text(result)}\n")
        elif isinstance(result, Recovery):
            title = f"{result.failed} fails, {result.spare} replaces it"
            echo_table(title, page.SPAN_HEADERS, page.span_rows(result))
            echo_table("Circuits after the recovery", page.CIRCUIT_HEADERS, page.circuit_rows(result.proofs))
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
