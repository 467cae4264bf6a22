"""The command ``lumion demo``: calibrate, connect, break and recover an emulated bench."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.common.numbers import SEED, Number
from lumion_hw.cli.common.output import echo_json, echo_text, json_option, note
from lumion_hw.cli.demo.terminal import bench_text, calibration_text, circuits_text, files_text, recovery_text, wrapped

if TYPE_CHECKING:
    from lumion_hw.bench.bench import Bench
    from lumion_hw.bench.file.model import BenchModel
    from lumion_hw.cli.common.progress import RunProgress
    from lumion_hw.cli.demo.artifacts import Artifacts
    from lumion_hw.mesh.layout.topology import MeshTopology

SIGMA_MRAD = 2.0
"""Target accuracy of the demo in mrad, sufficient for circuits."""

_LATER_S = {"circuits": 0.5, "recovery": 0.5, "reports": 1.5}
"""Typical processor time of the stages after the calibration, in seconds; see :class:`RunProgress`."""


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
    from lumion_hw.bench.bench import Bench, load
    from lumion_hw.cli.common.progress import RunProgress
    from lumion_hw.cli.demo.artifacts import Artifacts
    from lumion_hw.files.writing import writing

    # Wall-clock time, because the virtual clock of the bench does not show how long the user waited.
    start_s, start_cpu_s = time.monotonic(), time.process_time()
    with ExitStack() as stack:
        bars = stack.enter_context(RunProgress(True, quiet=as_json, later_s=_LATER_S, stage_lines=False))
        show = _show_nothing if as_json else _Display(bars)
        model = load(file)
        mesh = model.topology()
        directory = new_run_directory(out)
        with writing("to", directory):
            directory.mkdir(parents=True, exist_ok=True)
        _show_bench(model, mesh, Artifacts.in_directory(directory), show)
        bars("opening", 0, 1)
        bench = stack.enter_context(Bench.emulate(file, seed=seed))
        bars("opening", 1, 1)
        left_out = _run(bench, seed, directory, sigma_mrad, bars, show, plots=plots, as_json=as_json)
        if as_json:
            return
        for text in omissions(sigma_mrad, left_out):
            show(wrapped(f"Left out: {text}."))
    note(f"{time.monotonic() - start_s:.1f} s, {time.process_time() - start_cpu_s:.1f} s of CPU time")


def _run(
    bench: Bench,
    seed: int,
    directory: Path,
    sigma_mrad: float,
    bars: RunProgress,
    show: Callable[[str], None],
    *,
    plots: bool,
    as_json: bool,
) -> tuple[str, ...]:
    """Run the demo, show the results, then write the reports; return the missing parts of the calibration report.

    The plots of the calibration report take seconds, so they are drawn after the results are shown. A JSON document
    lists the missing parts, so it is printed last.
    """
    # These imports take most of a second, in which the bench and its picture are already shown.
    from calibration.report.headline import headline
    from calibration.run.planning import Goal
    from lumion_hw.cli.demo.report import demo_document, outcome
    from lumion_hw.cli.demo.steps import run_demo, write_reports

    texts: dict[str, Callable[[Any], str]] = {
        "calibration": lambda record: calibration_text(headline(record)),
        "before": circuits_text,
        "recovery": recovery_text,
    }

    def on_result(step: str, result: object) -> None:
        show(f"{texts[step](result)}\n")

    goal = Goal(sigma_rad=1e-3 * sigma_mrad)
    demo_run = run_demo(bench, seed, directory, progress=bars, on_result=on_result, goal=goal)
    show(f"{wrapped(outcome(demo_run))}\n\n{files_text(demo_run.artifacts)}")
    bars("reports", 0, 1)
    left_out = write_reports(bench, demo_run, seed, plots=plots)
    bars("reports", 1, 1)
    if as_json:
        bars.between()
        echo_json(demo_document(bench, demo_run, seed, left_out))
    return left_out


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


def _show_bench(model: BenchModel, mesh: MeshTopology, artifacts: Artifacts, show: Callable[[str], None]) -> None:
    """Show the bench, then draw its mesh without circuits; opening the bench takes longer than that."""
    from lumion_hw.files.writing import write_file
    from lumion_hw.mesh.picture.drawing import mesh_svg

    show(bench_text(model, mesh))
    picture = mesh_svg(mesh, title=f"{model.name}, before the calibration")
    write_file(artifacts.picture, "the figure", picture)
    show(
        f"Picture of the mesh: {artifacts.picture}\n"
        "Next: calibrate the mesh, connect servers by light, make one fail, replace it.\n"
    )


class _Display:
    """Prints text between the progress bars."""

    def __init__(self, bars: RunProgress) -> None:
        self._bars = bars

    def __call__(self, text: str) -> None:
        self._bars.between()
        echo_text(text)


def _show_nothing(text: str) -> None:
    """Print nothing, because stdout gets a JSON document."""
