"""Random failures, returns, device faults and kills of the manager on the small bench, and checks of the result."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lumion_hw import Bench
from lumion_hw.errors import LumionError
from lumion_hw.fabric import FabricManager, FailureVerdict, find_unit, job_requests, read_fabric
from lumion_hw.fabric.detectors.light import PhotodiodeOptions, Photodiodes
from tests.fabric.managed_fabric import SMALL, managed


class Killed(BaseException):
    """The manager is killed: everything that it has not written down is lost."""


@dataclass
class Chaos:
    """Record of a sequence and its end.

    Attributes:
        managers: Number of managers that ran one after the other.
        recoveries: Number of finished recoveries.
        done: Events, in order.
        refused: Whether the job was refused at the end; otherwise it ended connected and proven.
    """

    managers: int = 0
    recoveries: int = 0
    done: tuple[str, ...] = ()
    refused: bool = False


class _KilledAt:
    """Kills the manager at its n-th event from now on; never if n is 0."""

    def __init__(self) -> None:
        self.left = 0

    def __call__(self, what: str, told: dict[str, Any]) -> None:
        del what, told
        if self.left:
            self.left -= 1
            if not self.left:
                raise Killed


def sequence(number: int, directory: Path) -> Chaos:
    """Run a random sequence of events, and check the result.

    Raises:
        AssertionError: A job is neither connected nor refused, a circuit is left over, or a journal is not consistent.
    """
    rng = np.random.default_rng([7, number])
    chaos = Chaos()
    with Bench.emulate(SMALL, seed=5) as bench:
        for _ in range(int(rng.integers(2, 6))):
            chaos.managers += 1
            kill = _KilledAt()
            with (
                contextlib.suppress(LumionError, Killed),
                managed(bench, directory, detectors=[photodiodes()], on_event=kill) as manager,
            ):
                manager.begin()
                for _ in range(int(rng.integers(1, 4))):
                    name = str(rng.choice([*EVENTS, *3 * ["a server comes back"]]))
                    chaos.done = (*chaos.done, name)
                    chaos.recoveries += EVENTS[name](manager, rng, kill)
            mend_controller(bench)
        with managed(bench, directory, detectors=[photodiodes()]) as manager:
            manager.begin()
            # A search of a polarization takes seconds.
            chaos.recoveries += len(manager.run(1.0 if is_settled(manager) else 20.0))
            check(manager, directory, f"sequence {number}: {', '.join(chaos.done)}")
            chaos.refused = bool(manager.state.refused)
    return chaos


def is_settled(manager: FabricManager) -> bool:
    """Return whether nothing is dark and all circuits of the jobs are proven."""
    try:
        return not manager.judge.dark and all(proof.proven for proof in manager.confirm())
    except LumionError:
        return False


def check(manager: FabricManager, directory: Path, words: str) -> None:
    """Check that every job is connected and proven or refused with a reason, and that there are no other circuits."""
    state = manager.state
    standing = {circuit.name for circuit in manager.service.state.circuits}
    wanted = {
        f"{request.source}:{request.target}"
        for job in manager.jobs
        if job.name not in state.refused
        for request in job_requests(manager.bench.model, job, state.places)
    }
    loop_requests = {f"{nic}:{nic}" for name in manager.spares for nic in find_unit(manager.bench.model, name).nics}
    assert wanted <= standing, (words, wanted, standing, state)
    assert standing - wanted <= loop_requests, (words, standing, wanted, state)
    assert all(state.refused.values()), (words, "a job is refused without a reason")
    assert all(proof.proven for proof in manager.confirm()), words
    active = manager.service.setup.active
    assert standing == {f"{c.request.source}:{c.request.target}" for c in (active.circuits if active else ())}, words
    assert read_fabric(directory)[0] == state, words
    assert state.open is None, words
    assert manager.service.journal.unfinished is None, words


def photodiodes() -> Photodiodes:
    """Return the detector; it scans every 5 ms, which makes the emulation five times faster."""
    return Photodiodes(PhotodiodeOptions(detector="photodiodes", period_s=0.005, hold_s=0.01))


def mend_controller(bench: Bench) -> None:
    """Power the controller again, and attach to it as the next program would."""
    board = bench.emulated.faults.board("mesh0")
    if not board.powered:
        board.power_on()
    with contextlib.suppress(LumionError):
        bench.mesh.controller.open()  # type: ignore[attr-defined]


# -- events: each returns the number of finished recoveries


def _any(manager: FabricManager, rng: np.random.Generator) -> str:
    return str(rng.choice([server.name for server in manager.bench.model.servers]))


def _dies(manager: FabricManager, rng: np.random.Generator, kill: _KilledAt) -> int:
    del kill
    manager.bench.emulated.faults.kill_modules(find_unit(manager.bench.model, _any(manager, rng)).nics)
    return len(manager.run(1.0))


def _two_die(manager: FabricManager, rng: np.random.Generator, kill: _KilledAt) -> int:
    del kill
    for name in rng.choice([server.name for server in manager.bench.model.servers], 2, replace=False):
        manager.bench.emulated.faults.kill_modules(find_unit(manager.bench.model, str(name)).nics)
    return len(manager.run(1.5))


def _spare_dies_in_the_recovery(manager: FabricManager, rng: np.random.Generator, kill: _KilledAt) -> int:
    """The spare's light goes out while it is being put in the place of a server that was declared failed.

    A warm spare is in place after milliseconds; a cold one is lit and its polarization searched, which takes seconds.
    """
    del kill
    if not manager.spares:
        return 0
    faults, spare = manager.bench.emulated.faults, find_unit(manager.bench.model, manager.spares[0])
    loop_requests = [f"{nic}:{nic}" for nic in spare.nics]
    is_cold = bool(rng.integers(2))
    if is_cold:
        standing = {circuit.name for circuit in manager.service.state.circuits}
        manager.service.disconnect([name for name in loop_requests if name in standing])
    later_s = manager.bench.clock.now() + float(rng.uniform(0.0, 3.0 if is_cold else 5e-3))
    manager.bench.emulated.world.time.add(later_s, lambda: faults.kill_modules(spare.nics))
    return _declared(manager, manager.members(manager.jobs[0])[0]) + len(manager.run(1.0))


def _comes_back(manager: FabricManager, rng: np.random.Generator, kill: _KilledAt) -> int:
    del kill
    name = _any(manager, rng)
    manager.bench.emulated.faults.revive_modules(find_unit(manager.bench.model, name).nics)
    manager.bench.clock.sleep(1.0)
    if name in manager.state.failed:
        manager.mark_repaired(name)
    return 0


def _declared(manager: FabricManager, name: str) -> int:
    return 0 if name in manager.state.failed else int(manager.mark_failed(name) is not None)


def _is_declared(manager: FabricManager, rng: np.random.Generator, kill: _KilledAt) -> int:
    del kill
    return _declared(manager, _any(manager, rng))


def _controller_dies(manager: FabricManager, rng: np.random.Generator, kill: _KilledAt) -> int:
    """The next call fails, and the manager with it."""
    del rng, kill
    manager.bench.emulated.faults.board("mesh0").power_off()
    return len(manager.run(0.2))


def _killed_in_the_recovery(manager: FabricManager, rng: np.random.Generator, kill: _KilledAt) -> int:
    """A manager killed at a random step between verdict and the last hook."""
    kill.left = int(rng.integers(1, 9))
    name = _any(manager, rng)
    if rng.integers(2):
        return _declared(manager, name)
    manager.bench.emulated.faults.kill_modules(find_unit(manager.bench.model, name).nics)
    return len(manager.run(1.0))


def _killed_before(manager: FabricManager, rng: np.random.Generator, kill: _KilledAt) -> int:
    del kill
    name, now_s = _any(manager, rng), manager.bench.clock.now()
    manager.journal.begin(FailureVerdict("unit", name, "process", f"{name} is gone", now_s, now_s, ("chaos",)))
    raise Killed


def _fades(manager: FabricManager, rng: np.random.Generator, kill: _KilledAt) -> int:
    del kill
    bench, ports = manager.bench, [path.port for path in manager.bench.wiring.inputs]
    begin_s = bench.clock.now() + float(rng.uniform(0.0, 0.1))
    bench.emulated.faults.drift_power(
        int(rng.choice(ports)), lambda _: -40.0 if begin_s <= bench.clock.now() < begin_s + 0.05 else 0.0
    )
    return len(manager.run(0.5))


def _fibre_is_moved(manager: FabricManager, rng: np.random.Generator, kill: _KilledAt) -> int:
    del kill
    manager.bench.emulated.faults.turn_polarization(find_unit(manager.bench.model, _any(manager, rng)).nics[0])
    return len(manager.run(5.0))


EVENTS: dict[str, Callable[[FabricManager, np.random.Generator, _KilledAt], int]] = {
    "a server dies": _dies,
    "two die": _two_die,
    "the spare dies in the recovery": _spare_dies_in_the_recovery,
    "a server comes back": _comes_back,
    "one is declared failed": _is_declared,
    "the controller dies": _controller_dies,
    "killed in the recovery": _killed_in_the_recovery,
    "killed before it": _killed_before,
    "a fibre fades": _fades,
    "a fibre is moved": _fibre_is_moved,
}
