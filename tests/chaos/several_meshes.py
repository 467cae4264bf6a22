"""Two racks and a spine: an operator changes circuits over three meshes while a fault strikes him or a bench."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import permutations, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from numpy.random import Generator

from lumion_hw import Bench
from lumion_hw.bench.bench import load, with_leave_on
from lumion_hw.bench.controller_faults import latched_faults
from lumion_hw.bench.emulated import emulated_bench
from lumion_hw.circuits import CircuitService, read_state
from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.optics.joined_fibres import JoinedFibres
from lumion_hw.errors import CircuitError, ConfigError, LinkLost, LumionError
from lumion_hw.joined import JoinedBench, JoinedMeshes, JoinedRequest, LocalBench
from lumion_hw.joined.journal import JoinedJournal
from lumion_hw.storage import save_record
from tests.chaos.lives import Killed, Life, LivingFiles, Step, living_files
from tests.chaos.scene import LIT_W, Fault, Findings, Scene, survived
from tests.circuits.lasting_bench import HOLD_S
from tests.joined.two_racks import FILE, JOINED, SEED, emulated_fibres, record_of

OPERATOR, SECOND = "operator", "second operator"
CIRCUITS = (
    "rack0:sfp-a:rack1:sfp-a",
    "rack1:sfp-a:rack0:sfp-b",
    "rack0:sfp-b:rack1:sfp-b",
    "rack1:sfp-b:rack0:sfp-a",
)
OTHER_CIRCUITS = (*CIRCUITS, "rack0:sfp-a:rack1:sfp-b", "rack1:sfp-a:rack0:sfp-a")
"""Circuits that a second operator wants: some need the same modules and fibres."""


class Server:
    """The program that owns one bench; it can be killed and started again, while the bench itself lives on."""

    is_remote = False

    def __init__(self, name: str, folder: Path, clock: VirtualClock) -> None:
        self.name, self.clock, self.directory = name, clock, folder / name
        self.model = with_leave_on(load(JOINED.with_name(f"{name}.yaml")), HOLD_S)
        self.ends = FILE.ends_of(name)
        self.emulated = emulated_bench(self.model, clock, SEED, ends=self.ends)
        self.record = folder / f"{name}.json"
        save_record(record_of(name), self.record, overwrite="any")
        self.life: Life | None = None
        self.lost: set[str] = set()
        self._running = contextlib.ExitStack()
        self._bench: LocalBench | None = None

    def open(self) -> Bench:
        """Open the devices."""
        life, links = self.life, self.emulated.link
        return Bench(
            self.model,
            lambda name, _: links(name) if life is None else life.link(links(name), name),
            self.clock,
            self.emulated,
            ends=self.ends,
            allow_absent_modules=True,
        )

    def start(self, life: Life | None = None) -> None:
        """Start the server."""
        self.life = life
        service = self._running.enter_context(CircuitService.open(self.open, self.record, self.directory))
        self.lost |= {circuit.name for circuit in service.lost_circuits}
        self._bench = LocalBench(service)

    def stop(self) -> None:
        """Stop the server, which undoes a prepared change; also after it was killed."""
        if (bench := self._bench) is not None and not (self.life is not None and self.life.is_dead):
            with contextlib.suppress(LumionError, Killed):
                if (change := bench.circuits().prepared) is not None:
                    bench.undo(change, "the server stops")
        self._bench, running, self._running = None, self._running, contextlib.ExitStack()
        with contextlib.suppress(LumionError, ExceptionGroup, Killed):
            running.close()
        if self.life is not None:
            self.life.is_over = self.life.is_dead
        self.life = None

    def is_lit(self, module: str) -> bool:
        """Return by the emulated truth whether light arrives at a module."""
        return self.emulated.world.received_w(module) > LIT_W

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            if self._bench is None:
                raise LinkLost(f"the connection to the server of {self.name} is lost")
            try:
                return getattr(self._bench, name)(*arguments)
            except Killed:
                self.stop()
                raise LinkLost(f"the connection to the server of {self.name} is lost; it may have acted") from None

        return call


@dataclass
class OperatorsView:
    """A bench as the operator's program sees it: each call is a step of that program."""

    server: Server
    life: Life
    is_remote: bool = False

    @property
    def model(self) -> Any:
        return self.server.model

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.server, name)

        def call(*arguments: Any) -> Any:
            self.life.before(Step(self.server.name))
            if self.server.name in self.life.severed:
                raise LinkLost(f"the connection to the server of {self.server.name} is lost")
            outcome = method(*arguments)
            self.life.check_alive()
            return outcome

        return call


@dataclass
class Racks:
    """The benches, their servers, and the fibres between them."""

    folder: Path
    clock: VirtualClock = field(default_factory=VirtualClock)
    servers: dict[str, Server] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.servers = {name: Server(name, self.folder, self.clock) for name in FILE.benches}
        worlds = {name: server.emulated.world for name, server in self.servers.items()}
        self.fibres = JoinedFibres(worlds, emulated_fibres(FILE))

    def start(self) -> None:
        """Start all servers, with their transmitters off."""
        for server in self.servers.values():
            with server.open() as bench:
                for module in bench.transponders.values():
                    module.disable()
            server.start()

    def stop(self) -> None:
        """Stop all servers."""
        for server in self.servers.values():
            server.stop()

    @contextlib.contextmanager
    def operator(self, life: Life | None = None, name: str = OPERATOR) -> Any:
        """Yield the joined meshes as a program of the operator sees them."""
        benches: dict[str, JoinedBench] = {
            key: server if life is None else OperatorsView(server, life)  # type: ignore[misc]
            for key, server in self.servers.items()
        }
        with JoinedJournal(self.folder / name, FILE.name) as journal:
            yield JoinedMeshes(FILE, benches, journal, self.clock.sleep)


@dataclass(frozen=True)
class JoinedWork:
    """A change by the operator: circuits that stand before it, and those that stand after it."""

    before: tuple[str, ...]
    after: tuple[str, ...]

    def carry_out(self, meshes: JoinedMeshes) -> None:
        """Make the change."""
        if added := [name for name in self.after if name not in self.before]:
            meshes.connect([JoinedRequest.parse(name) for name in added])
        if removed := [name for name in self.before if name not in self.after]:
            meshes.disconnect(removed)


WORK = (
    JoinedWork((), CIRCUITS[:1]),
    JoinedWork(CIRCUITS[:2], CIRCUITS),
    JoinedWork(CIRCUITS[:3], CIRCUITS),
    JoinedWork(CIRCUITS[:3], CIRCUITS[:1]),
    JoinedWork(CIRCUITS[:1], ()),
)


def prepared(folder: Path, work: JoinedWork) -> Racks:
    """Return racks with the circuits that stand before a change."""
    racks = Racks(folder)
    racks.start()
    if work.before:
        with racks.operator() as meshes:
            meshes.connect([JoinedRequest.parse(name) for name in work.before])
    return racks


@cache
def steps_of(work: JoinedWork) -> dict[str, int]:
    """Return the number of steps of the operator and of each server for a change without a fault."""
    with TemporaryDirectory() as folder, living_files() as files:
        racks = prepared(Path(folder), work)
        lives = begin_lives(racks, files)
        with racks.operator(lives[OPERATOR]) as meshes:
            work.carry_out(meshes)
        racks.stop()
        return {name: life.steps for name, life in lives.items()}


def begin_lives(racks: Racks, files: LivingFiles) -> dict[str, Life]:
    """Let every server and the operator be programs that can be struck, from now on."""
    lives = {name: Life(racks.clock) for name in (*racks.servers, OPERATOR)}
    for name, server in racks.servers.items():
        server.stop()
        files.belong_to(lives[name], server.directory)
        server.start(lives[name])
        lives[name].steps = 0
    files.belong_to(lives[OPERATOR], racks.folder / OPERATOR)
    return lives


@dataclass
class JoinedScene(Scene):
    """Several meshes; ``life`` is that of the victim.

    Attributes:
        others: Changes by other operators, each with whether it was carried out.
    """

    racks: Racks | None = None
    others: list[tuple[JoinedWork, bool]] = field(default_factory=list)


def run(fault: Fault, rng: Generator, directory: Path, victim: str = "") -> Findings:
    """Try a fault of the operator's program, or of a bench, while circuits over three meshes change."""
    work = WORK[int(rng.integers(len(WORK)))]
    steps = steps_of(work)
    if victim == "a bench":
        victim = str(rng.choice([name for name in FILE.benches if steps[name]]))
    findings = Findings(story=[f"{len(work.before)} -> {len(work.after)} circuits, {victim}"])
    with living_files() as files:
        racks = prepared(directory, work)
        lives = begin_lives(racks, files)
        server = racks.servers.get(victim, racks.servers["rack0"])
        scene = JoinedScene(
            rng,
            lives[victim],
            max(steps[victim], 1),
            server.emulated,
            server.model,
            directory / victim,
            files,
            findings,
            racks=racks,
        )
        fault.strike(scene)
        is_done = False
        with survived(scene), racks.operator(lives[OPERATOR]) as meshes:
            work.carry_out(meshes)
            is_done = True
        findings.story += lives[victim].log
        scene.repair()
        with scene.last:
            judge(racks, work.before, [(work, is_done), *scene.others], findings)
            racks.stop()
    return findings


def second_operator(scene: JoinedScene) -> None:
    """A second operator changes circuits over the same meshes at a random instant."""
    racks, (first, then) = scene.racks, scene.rng.choice(len(OTHER_CIRCUITS), 2, replace=False)
    removed = (CIRCUITS[int(scene.rng.integers(3))],)
    second = scene.choice(
        JoinedWork((), (OTHER_CIRCUITS[first],)),
        JoinedWork((), (OTHER_CIRCUITS[first], OTHER_CIRCUITS[then])),
        JoinedWork(removed, ()),
        JoinedWork(removed, ()),
    )
    assert racks is not None

    def strike(life: Life, step: Step) -> None:
        del step
        is_done = False
        try:
            with racks.operator(name=SECOND) as meshes:
                second.carry_out(meshes)
            is_done = True
        except LumionError as error:
            life.log.append(f"the second operator was refused: {type(error).__name__}: {error}")
        life.log.append(f"second operator: {second.before} -> {second.after}, done: {is_done}")
        scene.others.append((second, is_done))

    scene.at_random(strike)


def outcomes(before: Sequence[str], changes: Sequence[tuple[JoinedWork, bool]]) -> list[set[str]]:
    """Return the circuits that may stand after some changes, in any order; one that failed has happened or not."""
    possible = []
    for happened in product(*([True] if is_done else [False, True] for _, is_done in changes)):
        works = [work for (work, _), has_happened in zip(changes, happened, strict=True) if has_happened]
        for order in permutations(works):
            circuits = set(before)
            for work in order:
                circuits = (circuits | (set(work.after) - set(work.before))) - (set(work.before) - set(work.after))
            possible.append(circuits)
    return possible


def judge(racks: Racks, before: Sequence[str], changes: Sequence[tuple[JoinedWork, bool]], findings: Findings) -> None:
    """Start what has ended, recover, and look at what is left."""
    try:
        racks.stop()  # all of them first: on one virtual clock, a program that waits delays the others
        for server in racks.servers.values():
            with server.open() as bench:
                for latched in latched_faults(bench):
                    bench.mesh.controller.clear_fault(latched.fault_id)
            server.start()
        if (racks.folder / SECOND).exists():
            with racks.operator(name=SECOND) as meshes:
                if meshes.unfinished is not None:
                    findings.story.append(meshes.recover())
        with racks.operator() as meshes:
            if meshes.unfinished is not None:
                findings.story.append(meshes.recover())
            _judge_circuits(racks, meshes, outcomes(before, changes), findings)
            meshes.disconnect()
            meshes.connect([JoinedRequest.parse(name) for name in CIRCUITS])
            if any(status.problems for status in meshes.status()):
                findings.broken.append("afterwards, circuits cannot be connected")
    except (ConfigError, CircuitError) as error:
        findings.by_hand.append(f"{type(error).__name__}: {error}")
    except LumionError as error:
        findings.broken.append(f"afterwards: {type(error).__name__}: {error}")
    for name, server in racks.servers.items():
        if read_state(server.directory)[1] is not None:
            findings.by_hand.append(f"a change stays unfinished on {name}")


def _judge_circuits(racks: Racks, meshes: JoinedMeshes, expected: Sequence[set[str]], findings: Findings) -> None:
    racks.clock.sleep(1.0)
    statuses = {status.name: status for status in meshes.status()}
    whole = {name for name, status in statuses.items() if not status.problems}
    lost = {name for server in racks.servers.values() for name in server.lost}
    findings.story.append(f"whole {sorted(whole)}, others {sorted(set(statuses) - whole)}, lost {sorted(lost)}")
    for name in sorted(whole):
        source, target = name.rsplit(":", 2)[0], name.split(":")[2:]
        origins_w = racks.fibres.ends[target[0]].origins(target[1])
        if origins_w.get(source, 0.0) < LIT_W:
            findings.lost.append(f"{name} is dark and counts as connected")
    if whole not in expected and not lost:
        findings.lost += sorted(set.intersection(*expected) - set(statuses))
        findings.broken.append(f"{sorted(whole)} is neither before nor after the change")
