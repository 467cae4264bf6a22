"""The steps of the demo: calibrate, connect, lose a server, replace it by a spare, write the reports."""

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
from lumion_hw.cli.demo.artifacts import Artifacts
from lumion_hw.cli.demo.report import DemoRun, report_text
from lumion_hw.errors import CircuitError, ConfigError
from lumion_hw.fabric import FabricJournal, FabricManager, Recovery
from lumion_hw.fabric.spans import timeline_svg
from lumion_hw.files.writing import write_file
from lumion_hw.mesh.layout.topology import MeshTopology, State
from lumion_hw.mesh.picture.drawing import PicturePath, mesh_svg
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.polarization import Aligner

__all__ = ["calibrate", "lose_and_replace", "managed", "picture", "run_demo", "write_reports"]

DETECT_TIMEOUT_S = 10.0


@contextlib.contextmanager
def managed(bench: Bench, record_path: Path, record: CalibrationRecord, aligner: Aligner) -> Iterator[FabricManager]:
    """Yield the fabric manager of a calibrated bench; its journals are in the folder ``state`` next to the record."""
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
        raise ConfigError("the bench file has no jobs", hint="Add 'fabric.pairs' or 'fabric.jobs'.")
    return bench.model.fabric.all_jobs[0]


def lose_and_replace(manager: FabricManager, server: str) -> Recovery:
    """Make a server of an emulated bench fail, detect the missing light, and replace the server by a spare.

    Raises:
        ConfigError: The bench is not emulated.
        CircuitError: The failure was not detected, or the circuits of the spare could not be verified.
    """
    bench = manager.bench
    # The recovery is reported in bench time and in CPU time, so both clocks are noted at the fault.
    manager.fault_s, manager.fault_cpu_s = bench.clock.now(), time.process_time()
    bench.emulated.faults.kill_modules(bench.model.server(server).nics)
    bench.events.add("fault injected", server=server)
    recovery: Recovery | None = None
    deadline_s = bench.clock.now() + DETECT_TIMEOUT_S
    while recovery is None and bench.clock.now() < deadline_s and not manager.state.failed:
        recovery = manager.step(1.0)
    if recovery is None or recovery.failed != server:
        detected = f"failed: {manager.state.failed or 'none'}; without circuits: {manager.state.refused or 'none'}"
        raise CircuitError(f"{server} was not replaced within {DETECT_TIMEOUT_S:.0f} s of its failure ({detected})")
    return recovery


def run_demo(
    bench: Bench,
    seed: int,
    directory: Path,
    *,
    progress: Progress = lambda stage, done, total: None,
    on_result: Callable[[str, object], None] = lambda step, result: None,
    goal: Goal | None = None,
) -> DemoRun:
    """Run all steps of the demo on an emulated bench; :func:`write_reports` writes the reports.

    Args:
        bench: An emulated bench.
        seed: Random seed of the calibration.
        directory: Directory for the output files.
        progress: Called after each step.
        on_result: Called with each result: ``calibration``, ``before``, ``recovery``.
        goal: Target accuracy of the calibration; by default the usual one.

    Raises:
        ConfigError: The bench file has no jobs, or the directory is not writable.
        CalibrationError: No light was measured.
        CircuitError: A circuit could not be verified, or no spare could replace the failed server.
    """
    server = _first_job(bench).members[1]
    artifacts = Artifacts.in_directory(directory)
    bench.events.write_to(artifacts.events)
    aligner = Aligner(bench.clock)
    with bench.dark():
        record = calibrate(bench, aligner, seed, artifacts.calibration, progress, goal=goal)
        on_result("calibration", record)
        progress("circuits", 0, 3)
        with managed(bench, artifacts.calibration, record, aligner) as manager:
            manager.connect()
            before, setup = manager.confirm(), manager.service.setup
            _draw(setup, artifacts.picture_before, before, "before the fault")
            progress("circuits", 1, 3)
            crosstalk_db = setup.crosstalk_db()
            bench.events.add("crosstalk", db={f"{r.source} → {r.target}": db for r, db in crosstalk_db.items()})
            on_result("before", before)
            progress("circuits", 2, 3)
            manager.begin()  # prepares the spares, plans the swaps and starts to watch the light
            progress("circuits", 3, 3)
            progress("recovery", 0, 1)
            recovery = lose_and_replace(manager, server)
            _draw(setup, artifacts.picture, recovery.proofs, f"{recovery.failed} replaced by {recovery.spare}")
            write_file(artifacts.timeline, "the timeline", _timeline(bench, recovery))
        progress("recovery", 1, 1)
        on_result("recovery", recovery)
    return DemoRun(record, before, crosstalk_db, recovery, artifacts)


def write_reports(bench: Bench, demo_run: DemoRun, seed: int, *, plots: bool = False) -> tuple[str, ...]:
    """Write the report of a demo run and the report of its calibration.

    Args:
        bench: The bench of the run.
        demo_run: The results of the run.
        seed: Random seed of the run.
        plots: Whether the calibration report has plots (needs matplotlib), which take a few seconds.

    Returns:
        Parts missing in the calibration report because of an option or a missing package.

    Raises:
        ConfigError: A report cannot be written.
    """
    artifacts = demo_run.artifacts
    write_file(artifacts.report, "the report", report_text(bench, demo_run, seed))
    return write_report(artifacts.calibration, artifacts.calibration_report, plots=plots).missing


def _timeline(bench: Bench, recovery: Recovery) -> str:
    title = f"{bench.model.name}: {recovery.failed} fails and is replaced by {recovery.spare} (simulated time)"
    names, at_ms, sources = zip(*((span.name, span.at_ms, span.source) for span in recovery.spans), strict=True)
    return timeline_svg(title, names, at_ms, sources)


def _draw(setup: PathSetup, path: Path, proofs: Sequence[CircuitProof], title: str) -> None:
    states = setup.active.routing.states if setup.active else {}
    title = f"{setup.bench.model.name}, {title}"
    write_file(path, "the figure", picture(setup.bench.mesh.topology, states, proofs, title))


def picture(topology: MeshTopology, states: Mapping[int, State], proofs: Sequence[CircuitProof], title: str) -> str:
    """Draw the mesh with its states and the paths of circuits, as SVG."""
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
