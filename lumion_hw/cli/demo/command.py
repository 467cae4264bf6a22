"""The command ``lumion demo``: calibrate, connect, break and recover an emulated bench."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lumion_hw.cli.common.numbers import SEED, Number
from lumion_hw.cli.common.output import echo_json, echo_table, echo_text, json_option, note

if TYPE_CHECKING:
    from lumion_hw.bench.bench import Bench
    from lumion_hw.cli.common.progress import RunProgress

SIGMA_MRAD = 2.0
"""Target accuracy of the demo in mrad, sufficient for circuits."""


def new_run_directory(out: str | None) -> Path:
    """Return the directory for the files of this run: ``out``, or a new directory ``runs/<time>``."""
    if out is not None:
        return Path(out)
    base = Path("runs") / time.strftime("%Y%m%d-%H%M%S")
    directory, number = base, 1
    while directory.exists():
        number += 1
        directory = base.with_name(f"{base.name}-{number}")
    return directory


@click.command()
@click.option("--bench", "file", default="lumion-prototype", show_default=True, help="Bench file or built-in bench.")
@click.option("--seed", default=0, show_default=True, type=SEED, help="Random seed.")
@click.option("--out", type=click.Path(file_okay=False), help="Directory for the output files.  [default: runs/<time>]")
@click.option(
    "--sigma-mrad",
    default=SIGMA_MRAD,
    show_default=True,
    type=Number("mrad", 0.0, 1e3, above=True),
    help="Target standard error of passive phases and loop phases, rms in mrad.",
)
@click.option("--plots/--no-plots", default=True, help="Include plots in the calibration report (needs matplotlib).")
@json_option
def demo(file: str, seed: int, out: str | None, sigma_mrad: float, plots: bool, as_json: bool) -> None:
    """Calibrate, connect, break and recover an emulated bench.

    The demo needs no hardware: the devices are emulated in this process, on virtual time. Drivers and bytes on the wire
    are the same as with real devices.
    """
    from calibration.run.planning import Goal
    from lumion_hw.bench.bench import Bench
    from lumion_hw.cli.common.progress import RunProgress
    from lumion_hw.cli.demo.report import demo_document, verdict
    from lumion_hw.cli.demo.steps import run_demo
    from lumion_hw.files.writing import writing

    # Wall-clock time, because the virtual clock of the bench does not show how long the user waited.
    start_s, start_cpu_s = time.monotonic(), time.process_time()
    with ExitStack() as stack:
        bars = stack.enter_context(RunProgress(True, quiet=True))
        bars("opening", 0, 1)
        bench = stack.enter_context(Bench.emulate(file, seed=seed))
        directory = new_run_directory(out)
        with writing("to", directory):
            directory.mkdir(parents=True, exist_ok=True)
        printer = _ResultPrinter(bars)
        if not as_json:
            bars.between()
            _show_bench(bench)
        on_result = (lambda *_: None) if as_json else printer.print_result
        goal = Goal(sigma_rad=1e-3 * sigma_mrad)
        demo_run = run_demo(bench, seed, directory, progress=bars, on_result=on_result, goal=goal, plots=plots)
        bars.between()
        if as_json:
            echo_json(demo_document(bench, demo_run, seed))
            return
        note(f"{time.monotonic() - start_s:.1f} s, {time.process_time() - start_cpu_s:.1f} s of CPU time")
    echo_text(f"{verdict(demo_run)}\n")
    echo_text(f"Files in {directory}/: " + ", ".join(sorted(path.name for path in directory.iterdir())))
    for text in omissions(sigma_mrad, demo_run.left_out):
        echo_text(f"Left out: {text}.")


def omissions(sigma_mrad: float, missing_in_report: Sequence[str]) -> list[str]:
    """Return the omitted parts of the demo, with the command to add each."""
    from calibration.run.planning import Goal
    from lumion_hw.mesh.waves.engines import compiled_available

    default_mrad = 1e3 * Goal().sigma_rad
    texts = list(missing_in_report)
    if sigma_mrad > default_mrad:
        texts.insert(
            0,
            f"the demo stops at {sigma_mrad:g} mrad to save time. For {default_mrad:g} mrad run "
            f"lumion demo --sigma-mrad {default_mrad:g}",
        )
    if not compiled_available():
        texts.append("the compiled solver, which halves the time: pip install 'lumion-hw[fast]'")
    return texts


def _show_bench(bench: Bench) -> None:
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
            text = f"{identity.technology}, {identity.wavelength_nm:g} nm"
            rows.append([name, kind, identity.part_number, identity.serial, text])
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


class _ResultPrinter:
    """Prints the result of each step of the demo as tables."""

    def __init__(self, bars: RunProgress) -> None:
        self._bars = bars

    def print_result(self, step: str, result: object) -> None:
        """Print the result of a step; unknown types are skipped."""
        self._bars.between()
        from calibration.report.summary import calibration_text
        from lumion_hw.cli.demo import report as page
        from lumion_hw.fabric import Recovery
        from lumion_hw.mesh.record.calibration_record import CalibrationRecord

        if isinstance(result, CalibrationRecord):
            echo_text(f"Calibration\n{calibration_text(result)}\n")
        elif isinstance(result, Recovery):
            title = f"{result.failed} fails and is replaced by {result.spare}"
            echo_table(title, page.SPAN_HEADERS, page.span_rows(result))
            echo_table("Circuits after the replacement", page.CIRCUIT_HEADERS, page.circuit_rows(result.proofs))
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
