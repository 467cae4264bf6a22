"""Steps of the demo: calibrate, set up circuits, lose a server, replace it, and write all files.

Every step is a call that a lab script can make; this module puts them in order and writes the files.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from calibration.report.summary import write_report
from calibration.run.bootstrap import Progress
from calibration.run.journaled_run import calibrate
from calibration.run.planning import Goal
from lumion_hw.bench.bench import Bench
from lumion_hw.bench.file.model import JobModel
from lumion_hw.circuits import BenchLock, CircuitJournal, CircuitProof, CircuitService, PathSetup
from lumion_hw.cli.demo.report import Artifacts, DemoRun, report_text
from lumion_hw.errors import CircuitError, ConfigError
from lumion_hw.fabric import FabricJournal, FabricManager, Recovery
from lumion_hw.fabric.spans import timeline_svg
from lumion_hw.files.writing import write_file
from lumion_hw.mesh.layout.topology import MeshTopology, State
from lumion_hw.mesh.picture.drawing import PicturePath, mesh_svg
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.polarization import Aligner

__all__ = ["calibrate", "lose_and_replace", "managed", "picture", "run_demo"]

DETECT_TIMEOUT_S = 10.0


@contextlib.contextmanager
def managed(bench: Bench, record_path: Path, record: CalibrationRecord, aligner: Aligner) -> Iterator[FabricManager]:
    """Return the manager for the fabric of a calibrated bench; its journals are in ``state`` next to the record."""
    directory = record_path.with_name("state")
    with (
        BenchLock(directory, "lumion demo") as lock,
        CircuitJournal(directory, bench.model.name, bench.mesh.topology.sha256) as circuits,
        FabricJournal(directory, bench.model.name) as fabric,
    ):
        service = CircuitService(bench, record, circuits, lock, str(record_path), aligner)
        with FabricManager(service, fabric) as manager:
            yield manager


def _first_job(bench: Bench) -> JobModel:
    if not bench.model.fabric.all_jobs:
        raise ConfigError("the bench file connects no servers", hint="Add 'fabric.pairs' or 'fabric.jobs'.")
    return bench.model.fabric.all_jobs[0]


def lose_and_replace(manager: FabricManager, server: str) -> Recovery:
    """Switch off a server of an emulated bench, detect the loss by its light alone, and replace it with a spare.

    Raises:
        ConfigError: The bench is not emulated.
        CircuitError: The loss was not detected, or no spare could be proven.
    """
    bench = manager.bench
    # Both clocks at the fault, because spans are given in bench time and in CPU time, which are never added.
    manager.fault_s, manager.fault_cpu_s = bench.clock.now(), time.process_time()
    bench.emulated.faults.kill_modules(bench.model.server(server).nics)
    bench.events.add("fault injected", server=server)
    made: list[Recovery] = []
    deadline_s = bench.clock.now() + DETECT_TIMEOUT_S
    while not made and bench.clock.now() < deadline_s and not manager.state.failed:
        made += filter(None, [manager.step(1.0)])
    if not made or made[0].failed != server:
        seen = f"{manager.state.failed or 'nothing'} failed, refused {manager.state.refused or 'nothing'}"
        raise CircuitError(f"{server} was switched off, but the result after {DETECT_TIMEOUT_S:.0f} s is: {seen}")
    return made[0]


def run_demo(
    bench: Bench,
    seed: int,
    directory: Path,
    *,
    progress: Progress = lambda stage, done, total: None,
    say: Callable[[str, object], None] = lambda step, result: None,
    goal: Goal | None = None,
    plots: bool = False,
) -> DemoRun:
    """Run the demo on an emulated bench.

    Args:
        bench: An emulated bench.
        seed: Seed of the calibration's random settings.
        directory: Output directory.
        progress: Called after every step.
        say: Called with each result as soon as it is available: ``calibration``, ``before``, ``crosstalk``,
            ``recovery``.
        goal: Required accuracy of the phases; the default if not given.
        plots: Whether the calibration report contains plots, which takes three seconds and needs matplotlib.

    Raises:
        ConfigError: The bench file connects no servers, or the directory cannot be written.
        CalibrationError: There is no light.
        CircuitError: A circuit was not proven, or no spare could replace the lost server.
    """
    lost = _first_job(bench).members[1]
    artifacts = Artifacts.in_directory(directory)
    bench.events.write_to(artifacts.events)
    aligner = Aligner(bench.clock)
    with bench.dark():
        record = calibrate(bench, aligner, seed, artifacts.calibration, progress, goal=goal)
        say("calibration", record)
        progress("circuits", 0, 3)
        with managed(bench, artifacts.calibration, record, aligner) as manager:
            manager.connect()
            before, setup = manager.confirm(), manager.service.setup
            _draw(setup, artifacts.picture_before, before, "before the fault")
            progress("circuits", 1, 3)
            crosstalk_db = setup.crosstalk_db()
            bench.events.add("crosstalk", db={f"{one.source} → {one.target}": db for one, db in crosstalk_db.items()})
            progress("circuits", 2, 3)
            say("before", before)
            say("crosstalk", crosstalk_db)
            manager.begin()  # spares are ready, plans are prepared, light is monitored
            progress("circuits", 3, 3)
            progress("recovery", 0, 1)
            recovery = lose_and_replace(manager, lost)
            _draw(setup, artifacts.picture, recovery.proofs, f"{recovery.spare} instead of {recovery.failed}")
            write_file(artifacts.timeline, "the timeline", _timeline(bench, recovery))
        progress("recovery", 1, 1)
        say("recovery", recovery)
    progress("report", 0, 1)
    written = write_report(artifacts.calibration, artifacts.calibration_report, plots=plots)
    demo_run = DemoRun(record, before, crosstalk_db, recovery, artifacts, written.missing)
    write_file(artifacts.report, "the report", report_text(bench, demo_run, seed))
    progress("report", 1, 1)
    return demo_run


def _timeline(bench: Bench, recovery: Recovery) -> str:
    """Return a picture of the time spans of a recovery."""
    title = f"{bench.model.name}: {recovery.failed} fails, {recovery.spare} replaces it (bench time)"
    names, at_ms, sources = zip(*((span.name, span.at_ms, span.source) for span in recovery.spans), strict=True)
    return timeline_svg(title, names, at_ms, sources)


def _draw(setup: PathSetup, path: Path, proofs: Sequence[CircuitProof], title: str) -> None:
    """Write a picture of the circuits."""
    states = setup.active.routing.states if setup.active else {}
    title = f"{setup.bench.model.name}, {title}"
    write_file(path, "the picture", picture(setup.bench.mesh.topology, states, proofs, title))


def picture(topology: MeshTopology, states: Mapping[int, State], proofs: Sequence[CircuitProof], title: str) -> str:
    """Return the mesh with its states and the paths of circuits, as SVG."""
    paths = []
    for proof in proofs:
        request, path = proof.circuit.request, proof.circuit.path
        paths.append(
            PicturePath(
                label=f"{request.source} → {request.target}",
                source=path.source,
                pucs=path.pucs,
                loss_db=proof.measured_loss_db,
                source_name=request.source,
                target_name=request.target,
            )
        )
    return mesh_svg(topology, states=states, paths=paths, title=title)
