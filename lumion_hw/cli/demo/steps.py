"""The main job, end to end: calibrate, connect, lose a server, replace it; with everything it leaves behind.

Every step is a call that a lab script can make; this module only puts them in order and writes the artifacts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from calibration.report.summary import write_report
from calibration.run.bootstrap import Progress
from calibration.run.journaled_run import calibrate
from calibration.run.planning import Goal
from lumion_hw.bench.bench import Bench
from lumion_hw.circuits import CircuitProof, PathSetup
from lumion_hw.cli.demo.report import Artifacts, DemoRun, report_text
from lumion_hw.errors import CircuitError, ConfigError
from lumion_hw.fabric import LightWatch, Recovery, pair_requests, replace_server
from lumion_hw.files.writing import write_file
from lumion_hw.mesh.picture import PicturePath, mesh_svg
from lumion_hw.mesh.topology import MeshTopology, State
from lumion_hw.polarization import Aligner

__all__ = ["calibrate", "connect", "lose_and_replace", "picture", "run_demo"]

DETECT_TIMEOUT_S = 10.0


def connect(bench: Bench, setup: PathSetup) -> tuple[CircuitProof, ...]:
    """Set up and prove the circuits between the servers that the bench file pairs first.

    Raises:
        ConfigError: The bench file pairs no servers.
        CircuitError: A circuit was not proven; nothing is set up.
    """
    first, second = _first_pair(bench)
    return setup.establish(setup.plan(pair_requests(bench.model, first, second)))


def _first_pair(bench: Bench) -> tuple[str, str]:
    if not bench.model.fabric.pairs:
        raise ConfigError("the bench file pairs no servers", hint="Add 'fabric.pairs'.")
    return bench.model.fabric.pairs[0]


def lose_and_replace(bench: Bench, setup: PathSetup, server: str) -> Recovery:
    """Kill a server of an emulated bench, notice it by its light alone, and put a spare in its place.

    Raises:
        ConfigError: The bench is not emulated.
        CircuitError: The loss was not noticed, or no spare could be proven.
    """
    if setup.active is None:
        raise CircuitError("no circuits are set up")
    watch = LightWatch(bench, [circuit.request for circuit in setup.active.circuits])
    # Looked at once before: a receiver that is dark already would pass for the server that is about to fail.
    if watch.poll() is not None:
        raise CircuitError("a server is dark before any fault was injected")
    # Both clocks at the fault: spans are told in bench time and in CPU time, which are never added.
    fault_s, fault_cpu_s = bench.clock.now(), time.process_time()
    bench.emulated.faults.kill_modules(bench.model.server(server).nics)
    bench.events.add("fault injected", server=server)
    verdict = watch.wait(DETECT_TIMEOUT_S)
    if verdict is None or verdict.server != server:
        seen = "no verdict" if verdict is None else f"verdict on {verdict.server}"
        raise CircuitError(f"{server} went dark, but after {DETECT_TIMEOUT_S:.0f} s there was {seen}")
    return replace_server(setup, verdict, fault_s=fault_s, began_cpu_s=fault_cpu_s)


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
    """Run the main job on an emulated bench.

    Args:
        bench: An emulated bench.
        seed: Seed of the calibration's random settings.
        directory: Where the artifacts go.
        progress: Told of every step.
        say: Told of each result as soon as there is one: ``calibration``, ``before``, ``crosstalk``, ``recovery``.
        goal: How well the phases are to be known; the usual one if not given.
        plots: Whether the calibration's report has its plots: three seconds, and matplotlib is needed.

    Raises:
        ConfigError: The bench file pairs no servers, or nothing can be written to the directory.
        CalibrationError: No light at all.
        CircuitError: A circuit was not proven, or no spare could take the place of the lost server.
    """
    lost = _first_pair(bench)[1]
    artifacts = Artifacts.in_directory(directory)
    bench.events.write_to(artifacts.events)
    aligner = Aligner(bench.clock)
    with bench.dark():
        record = calibrate(bench, aligner, seed, artifacts.calibration, progress, goal=goal)
        say("calibration", record)
        progress("circuits", 0, 2)
        setup = PathSetup(bench, record, aligner)
        before = connect(bench, setup)
        _draw(setup, artifacts.picture_before, before, "before the fault")
        progress("circuits", 1, 2)
        crosstalk_db = setup.crosstalk_db()
        bench.events.add("crosstalk", db={f"{one.source} → {one.target}": db for one, db in crosstalk_db.items()})
        progress("circuits", 2, 2)
        say("before", before)
        say("crosstalk", crosstalk_db)
        progress("recovery", 0, 1)
        recovery = lose_and_replace(bench, setup, lost)
        _draw(setup, artifacts.picture, recovery.proofs, f"{recovery.spare} in the place of {recovery.failed}")
        progress("recovery", 1, 1)
        say("recovery", recovery)
    progress("report", 0, 1)
    written = write_report(artifacts.calibration, artifacts.calibration_report, plots=plots)
    demo_run = DemoRun(record, before, crosstalk_db, recovery, artifacts, written.missing)
    write_file(artifacts.report, "the report", report_text(bench, demo_run, seed))
    progress("report", 1, 1)
    return demo_run


def _draw(setup: PathSetup, path: Path, proofs: Sequence[CircuitProof], title: str) -> None:
    """Write a picture of what is set up."""
    states = setup.active.routing.states if setup.active else {}
    title = f"{setup.bench.model.name}, {title}"
    write_file(path, "the picture", picture(setup.bench.mesh.topology, states, proofs, title))


def picture(topology: MeshTopology, states: Mapping[int, State], proofs: Sequence[CircuitProof], title: str) -> str:
    """Return the mesh with its states and the paths of circuits drawn in, as SVG."""
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
