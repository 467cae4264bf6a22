"""A fabric of three servers: its manager works while a fault strikes, and the next manager looks at what is left."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.random import Generator

from lumion_hw import Bench
from lumion_hw.bench.controller_faults import latched_faults
from lumion_hw.circuits import BenchLock, CircuitJournal, CircuitService, read_state
from lumion_hw.errors import ConfigError, LumionError
from lumion_hw.fabric import FabricJournal, FabricManager, find_unit, job_requests, read_fabric
from lumion_hw.fabric.detectors.light import Modules
from lumion_hw.fabric.standby import loop_requests
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.storage import load_record
from tests.chaos.lives import living_files
from tests.chaos.one_bench import MortalBench
from tests.chaos.scene import Fault, Findings, Scene, is_lit, survived
from tests.circuits.known_mesh import SMALL
from tests.fabric.chaos import photodiodes

SMALL_CMIS = SMALL.with_name("small_cmis.yaml")

WATCHED_S = 2.0
"""Time that a manager is given to notice a fault, in s of the bench's clock."""
LAST_S = 20.0
"""Time that the last manager is given: a search of a polarization takes seconds."""


@contextlib.contextmanager
def managing(bench: MortalBench, record: CalibrationRecord, **options: Any) -> Iterator[FabricManager]:
    """Manage the fabric as a program of its own would."""
    with (
        BenchLock(bench.directory, "chaos") as lock,
        bench.open() as opened,
        CircuitJournal(bench.directory, opened.model.name, opened.mesh.topology.sha256) as circuits,
        FabricJournal(bench.directory, opened.model.name) as fabric,
    ):
        service = CircuitService(opened, record, circuits, lock)
        service.restore()
        with FabricManager(service, fabric, detectors=[photodiodes(), Modules()], **options) as manager:
            yield manager


# -- what the manager does when the fault strikes; each returns the servers that fail by it


def start(manager: FabricManager, rng: Generator) -> set[str]:
    """Connect the jobs."""
    del rng
    manager.begin()
    return set()


def watch(manager: FabricManager, rng: Generator) -> set[str]:
    """Watch circuits that are all well."""
    del rng
    manager.begin()
    manager.run(WATCHED_S)
    return set()


def recover(manager: FabricManager, rng: Generator) -> set[str]:
    """Replace a server whose light goes out."""
    manager.begin()
    name = str(rng.choice(["a", "b"]))
    manager.bench.emulated.faults.kill_modules([module_of(nic) for nic in find_unit(manager.bench.model, name).nics])
    manager.run(WATCHED_S)
    return {name}


def replace_by_hand(manager: FabricManager, rng: Generator) -> set[str]:
    """Replace a server that an operator declares failed."""
    manager.begin()
    name = str(rng.choice(["a", "b"]))
    manager.mark_failed(name)
    return {name}


def drain(manager: FabricManager, rng: Generator) -> set[str]:
    """Take a healthy server out of service and back."""
    manager.begin()
    name = str(rng.choice(["a", "b", "c"]))
    manager.drain(name)
    manager.mark_repaired(name)
    return {name}


WORK: dict[str, Callable[[FabricManager, Generator], set[str]]] = {
    "start": start,
    "watch": watch,
    "recover": recover,
    "replace by hand": replace_by_hand,
    "drain": drain,
}
DIES = {"recover": {"a", "b"}, "replace by hand": {"a", "b"}, "drain": {"a", "b", "c"}}
"""Servers that the work itself may take out of service."""


def module_of(nic: str) -> str:
    """Return the module of a NIC, which may be one of its lanes."""
    return nic.partition("/")[0]


@cache
def steps_of(work: str, file: Path) -> tuple[int, int]:
    """Return the number of steps of a manager at some work without a fault: until the jobs are connected, and all."""
    with TemporaryDirectory() as folder, living_files() as files:
        bench, connected = MortalBench(Path(folder), file), list[int]()
        record = load_record(bench.record)
        life = bench.begin_life(files)
        with managing(bench, record, on_event=lambda name, told: connected.append(life.steps)) as manager:
            WORK[work](manager, np.random.default_rng(0))
            manager.run(WATCHED_S)
        return connected[0], life.steps


def run(fault: Fault, rng: Generator, directory: Path, file: Path = SMALL) -> Findings:
    """Try a fault while a manager works."""
    work = str(rng.choice([*WORK]))
    n_connected, n_steps = steps_of(work, file)
    findings = Findings(story=[work])
    with living_files() as files:
        bench = MortalBench(directory, file)
        record = load_record(bench.record)
        life = bench.begin_life(files)
        scene = Scene(rng, life, n_steps, bench.emulated, bench.model, bench.directory, files, findings)
        # A manager writes a thousand times to open a bench and connect its jobs, and less often later.
        scene.first_step = int(rng.choice([1, n_connected]))
        scene.rival, scene.hold, scene.wires = (lambda: managing(bench, record)), bench.hold, bench.wires
        fault.strike(scene)
        events: list[str] = []
        with survived(scene), managing(bench, record, on_event=lambda name, told: events.append(name)) as manager:
            WORK[work](manager, rng)
            manager.run(WATCHED_S)
            for _ in range(round(LAST_S)):  # a search of a polarization takes seconds
                if not dark_circuits(manager):
                    break
                manager.run(1.0)
            judge_alarms(manager, findings)
        findings.story += [*life.log, f"events {events}"]
        hurt = {server.name for server in bench.model.servers if scene.hurt & set(map(module_of, server.nics))}
        scene.repair()
        judge_blame(bench, hurt | DIES.get(work, set()), findings)
        bench.life = None
        with scene.last:
            # What a fault has left of a chip or a module may dim a circuit; it must carry light all the same.
            may_be_dim = bool(scene.hurt - {"mesh0"})
            judge_end(bench, record, hurt | DIES.get(work, set()), may_be_dim, findings)
    return findings


def dark_circuits(manager: FabricManager) -> list[str]:
    """Return the circuits of connected jobs that are missing or, by the emulated truth, dark."""
    active = {circuit.name for circuit in manager.service.state.circuits}
    names = [
        request.name
        for job in manager.jobs
        if job.name not in manager.state.refused
        for request in job_requests(manager.bench.model, job, manager.state.places)
    ]
    return [name for name in names if name not in active or not is_lit(manager.bench.emulated, name)]


def judge_alarms(manager: FabricManager, findings: Findings) -> None:
    """Check that a manager that still runs reports every dark circuit of a job."""
    dark = dark_circuits(manager)
    status = manager.status
    reported = set(manager.judge.dark) | set(manager.maintenance.searching) | marked(manager)
    reported |= {name for alarm in (status.alarms if status else ()) for name in (alarm.subject, *alarm.reason.split())}
    findings.story.append(f"dark {dark}, alarms {status.alarms if status else ()}, judged dark {manager.judge.dark}")
    if latched_faults(manager.bench):  # the manager has reported that the controller is off, and tries to clear it
        reported |= set(dark)
    findings.lost += [name for name in dark if name not in reported]


def judge_blame(bench: MortalBench, hurt: set[str], findings: Findings) -> None:
    """Check that only servers that the fault touches count as failed."""
    try:
        state, _ = read_fabric(bench.directory)
    except ConfigError as error:
        findings.by_hand.append(str(error))
        return
    findings.blamed += sorted(set(state.broken) - hurt)


def judge_end(
    bench: MortalBench, record: CalibrationRecord, hurt: set[str], may_be_dim: bool, findings: Findings
) -> None:
    """Let the next manager go on, and check that every job is connected and proven, or refused with a reason."""
    try:
        clear_by_hand(bench.open)
        with managing(bench, record) as manager:
            manager.begin()
            manager.run(1.0)
            for _ in range(round(LAST_S)):
                if is_settled(manager):
                    break
                manager.run(1.0)
            _judge_state(manager, may_be_dim, findings)
    except ConfigError as error:
        findings.by_hand.append(f"{type(error).__name__}: {error}")
    except LumionError as error:
        findings.broken.append(f"the next manager failed: {type(error).__name__}: {error}")
    judge_blame(bench, hurt, findings)
    if read_state(bench.directory)[1] is not None or read_fabric(bench.directory)[0].open is not None:
        findings.by_hand.append("a change or recovery stays unfinished")


def clear_by_hand(open_bench: Callable[[], Bench]) -> None:
    """Clear the latched faults of the controller, as an operator does."""
    with open_bench() as opened:
        for latched in latched_faults(opened):
            opened.mesh.controller.clear_fault(latched.fault_id)


def is_settled(manager: FabricManager) -> bool:
    """Return whether no circuit is dark and all those of the jobs are proven."""
    return not manager.judge.dark and all(proof.proven for proof in manager.confirm())


def marked(manager: FabricManager) -> set[str]:
    """Return the circuits about which the maintenance warns."""
    return {health.name for health in manager.maintenance.health if health.fault is not None or health.marks}


def _judge_state(manager: FabricManager, may_be_dim: bool, findings: Findings) -> None:
    state, model = manager.state, manager.bench.model
    standing = {circuit.name for circuit in manager.service.state.circuits}
    wanted = {
        request.name
        for job in manager.jobs
        if job.name not in state.refused
        for request in job_requests(model, job, state.places)
    }
    loops = {loop.name for name in manager.spares for loop in loop_requests(find_unit(model, name))}
    unproven = [proof.circuit.request.name for proof in manager.confirm() if not proof.proven]
    manager.measure()
    warned = marked(manager)
    dark = [name for name in wanted & standing if not is_lit(manager.bench.emulated, name)]
    findings.story.append(
        f"at the end {sorted(standing)}, failed {state.failed}, refused {state.refused}, dark {dark}, warned {warned}"
    )
    findings.lost += [*sorted(wanted - standing), *(name for name in dark if name not in warned)]
    if not may_be_dim:
        findings.broken += [f"{name} is not proven at the end" for name in unproven]
    findings.broken += [f"{name} is left over" for name in standing - wanted - loops]
    findings.broken += [f"{job} is refused without a reason" for job, reason in state.refused.items() if not reason]
