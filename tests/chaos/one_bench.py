"""Circuits of one bench: a program changes them while a fault strikes, and the next program looks at what is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from numpy.random import Generator

from lumion_hw import Bench
from lumion_hw.bench.controller_faults import latched_faults
from lumion_hw.circuits import CircuitMaintenance, CircuitRequest, CircuitService, read_state
from lumion_hw.clock import Clock
from lumion_hw.errors import CircuitError, ConfigError, LumionError
from lumion_hw.links.base import Link
from lumion_hw.links.memory import MemoryLink
from tests.chaos.lives import Life, LivingFiles, living_files
from tests.chaos.scene import Fault, Findings, Scene, is_lit, survived
from tests.circuits.known_mesh import SMALL
from tests.circuits.lasting_bench import LastingBench

LEASE_S = 3000.0
"""Lease of all circuits, longer than any try."""
HELD_S = 3.0
"""Time for which circuits are held, in s of the bench's clock."""


@dataclass(frozen=True)
class Change:
    """A change of circuits by the program that is struck.

    Attributes:
        kind: ``connect``, ``disconnect``, ``apply``, or ``hold``, which changes nothing.
        before: Circuits that stand.
        after: Circuits that stand when the change is done.
    """

    kind: str
    before: tuple[str, ...]
    after: tuple[str, ...]

    def carry_out(self, service: CircuitService) -> None:
        """Make the change."""
        if self.kind == "connect":
            service.connect(requests([name for name in self.after if name not in self.before]), align=False)
        elif self.kind == "disconnect":
            service.disconnect([name for name in self.before if name not in self.after])
        elif self.kind == "hold":
            hold(service)
        else:
            service.apply(service.plan_difference(requests(self.after)), align=False)


def hold(service: CircuitService) -> None:
    """Maintain the circuits for a while, as ``lumion hold`` does."""
    CircuitMaintenance(service).run(HELD_S)


def requests(names: Sequence[str]) -> list[CircuitRequest]:
    """Return requests for circuits by name."""
    return [CircuitRequest(*name.split(":"), lease_s=LEASE_S) for name in names]


CHANGES = (
    Change("connect", (), ("sfp-a:sfp-b",)),
    Change("connect", (), ("sfp-a:sfp-b", "sfp-b:sfp-a")),
    Change("connect", ("sfp-a:sfp-b",), ("sfp-a:sfp-b", "sfp-b:sfp-a")),
    Change("connect", ("sfp-a:sfp-b",), ("sfp-a:sfp-b", "sfp-c:sfp-a")),
    Change("disconnect", ("sfp-a:sfp-b", "sfp-b:sfp-a"), ("sfp-a:sfp-b",)),
    Change("disconnect", ("sfp-a:sfp-b",), ()),
    Change("apply", ("sfp-a:sfp-b",), ("sfp-b:sfp-a",)),
    Change("apply", ("sfp-a:sfp-b", "sfp-b:sfp-a"), ("sfp-b:sfp-a", "sfp-a:sfp-c")),
    Change("apply", ("sfp-a:sfp-b", "sfp-b:sfp-a"), ("sfp-a:sfp-c", "sfp-c:sfp-a")),
    Change("hold", ("sfp-a:sfp-b", "sfp-b:sfp-a"), ("sfp-a:sfp-b", "sfp-b:sfp-a")),
)


class MortalBench(LastingBench):
    """A bench that outlives its programs, each of which can be struck."""

    def __init__(self, directory: Path, file: Path = SMALL) -> None:
        self.life: Life | None = None
        self.wires: dict[str, str] = {}
        super().__init__(directory, file)

    def open(self) -> Bench:
        life, links = self.life, self.emulated.link
        return Bench(
            self.model,
            lambda name, _: self._link(links(self.wires.get(name, name)), name, life),
            self.clock,
            self.emulated,
            allow_absent_modules=True,
        )

    def hold(self, directory: Path) -> None:
        """Hold the circuits in a program that cannot be struck."""

        def link(name: str, _: object) -> Link:
            # Named differently, because programs of one process wait for each other at an address.
            return MemoryLink(self.emulated.faults.device(name).connect, self.clock, f"{name} from another process")

        def open_bench() -> Bench:
            return Bench(self.model, link, self.clock, self.emulated)

        with CircuitService.open(open_bench, self.record, directory, program="lumion hold") as service:
            hold(service)

    @staticmethod
    def _link(link: Link, name: str, life: Life | None) -> Link:
        return link if life is None else life.link(link, name)

    def begin_life(self, files: LivingFiles, clock: Clock | None = None) -> Life:
        """Let the next program be one that can be struck."""
        self.life = Life(clock or self.clock)
        files.belong_to(self.life, self.directory)
        return self.life


@cache
def steps_of(change: Change) -> int:
    """Return the number of steps of a program that makes a change."""
    with TemporaryDirectory() as folder, living_files() as files:
        bench = MortalBench(Path(folder))
        with bench.service() as service:
            if change.before:
                service.connect(requests(change.before), align=False)
        life = bench.begin_life(files)
        with bench.service() as service:
            change.carry_out(service)
        return life.steps


def run(fault: Fault, rng: Generator, directory: Path) -> Findings:
    """Try a fault while a program changes circuits."""
    change = CHANGES[int(rng.integers(len(CHANGES)))]
    n_steps = steps_of(change)
    findings = Findings(story=[f"{change.kind} {change.before} -> {change.after}"])
    with living_files() as files:
        bench = MortalBench(directory)
        with bench.service() as service:
            if change.before:
                service.connect(requests(change.before), align=False)
        life = bench.begin_life(files)
        scene = Scene(rng, life, n_steps, bench.emulated, bench.model, bench.directory, files, findings)
        scene.rival, scene.hold, scene.wires = bench.service, bench.hold, bench.wires
        fault.strike(scene)
        is_done, reported = False, set[str]()
        with survived(scene), bench.service() as service:
            reported = {circuit.name for circuit in service.lost_circuits}
            change.carry_out(service)
            is_done = True
        findings.story += life.log
        scene.repair()
        bench.life = None
        with scene.last:
            judge(bench, change, is_done, reported, findings)
    return findings


def judge(bench: MortalBench, change: Change, is_done: bool, reported: set[str], findings: Findings) -> None:
    """Look at what is left, with the eyes of the next program and with the emulated truth."""
    try:
        with bench.service() as service:
            _judge_circuits(service, bench, change, is_done, reported, findings)
            for latched in latched_faults(service.setup.bench):
                service.setup.bench.mesh.controller.clear_fault(latched.fault_id)
            service.disconnect()
            service.connect(requests(["sfp-a:sfp-b", "sfp-b:sfp-a"]), align=False)
            if not all(proof.proven for proof in service.setup.prove()):
                findings.broken.append("afterwards, circuits cannot be connected")
    except CircuitError as error:
        findings.by_hand.append(str(error))
    except ConfigError as error:
        findings.by_hand.append(str(error))
    except LumionError as error:
        findings.broken.append(f"the next program failed: {type(error).__name__}: {error}")
    if read_state(bench.directory)[1] is not None:
        findings.by_hand.append("a change stays unfinished")


def _judge_circuits(
    service: CircuitService,
    bench: MortalBench,
    change: Change,
    is_done: bool,
    reported: set[str],
    findings: Findings,
) -> None:
    bench.clock.sleep(0.5)
    findings.broken += [f"the lease of {circuit.name} ended early" for circuit in service.end_expired_leases()]
    names = [circuit.name for circuit in service.state.circuits]
    lost = sorted({circuit.name for circuit in service.lost_circuits} | (reported - set(names)))
    proven = [proof.circuit.request.name for proof in service.setup.prove() if proof.proven]
    dark = [name for name in names if not is_lit(bench.emulated, name)]
    findings.story.append(f"afterwards {names}, reported lost {lost}, proven {proven}, dark {dark}")
    findings.lost += [f"{name} is dark and counts as proven" for name in dark if name in proven]
    expected = [set(change.after)] if is_done else [set(change.before), set(change.after)]
    if set(names) | set(lost) not in expected:
        findings.lost += sorted(set(change.before) & set(change.after) - set(names) - set(lost))
        findings.broken.append(f"{names or 'nothing'}, with {lost or 'nothing'} lost, is neither before nor after")
