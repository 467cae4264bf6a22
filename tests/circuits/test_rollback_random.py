"""Requests that fail randomly at random times: afterwards mesh and active circuits are as before, or the mesh is safe.

Compared are the currents that the controller reads back, the circuits that count as set up, their proofs, and the light
at their receivers. After an interlock, or without its controller, a mesh cannot be restored. In this case its heaters
are off, no circuit counts as set up, and the log reports it.
"""

from __future__ import annotations

import _thread
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from lumion_hw import Bench
from lumion_hw.circuits import CircuitRequest, PathSetup, plan_circuits
from lumion_hw.errors import LumionError
from lumion_hw.mesh.routing.request import opposite_state
from tests.circuits.known_mesh import path_setup
from tests.circuits.planted_faults import stick

STANDING = [CircuitRequest("sfp-s0n0", "sfp-s1n0"), CircuitRequest("sfp-s1n1", "sfp-s0n1")]
FREE = [CircuitRequest("sfp-s2n0", "sfp-s3n0"), CircuitRequest("sfp-s3n1", "sfp-s2n1")]
LATEST_S = 0.18
"""Duration of a set-up with known polarization; much of it is the start of a laser."""


@dataclass
class Trial:
    """One request that should fail."""

    setup: PathSetup
    request: CircuitRequest
    at_s: float
    rng: np.random.Generator
    is_running: bool = True

    @property
    def bench(self) -> Bench:
        return self.setup.bench

    def later(self, action: Callable[[], object]) -> None:
        """Act in the middle of the request; do nothing if it has ended."""

        def act() -> None:
            if self.is_running:
                action()

        self.bench.emulated.faults.after(self.at_s, act)

    def device(self, name: str, fault: str) -> Iterator[None]:
        """A fault of a device that begins in the middle and ends afterwards."""
        faults = self.bench.emulated.faults
        began: list[bool] = []
        self.later(lambda: (faults.inject(name, fault), began.append(True)))
        yield
        if began:
            faults.end(name, fault)
            self.bench.clock.sleep(3.0)  # until it has started up
            for devices in (self.bench.meters, self.bench.transponders, self.bench.polarization):
                if name in devices:
                    devices[name].close()
                    devices[name].open()  # type: ignore[attr-defined]
            if (name, fault) == ("mesh0", "no_cable"):
                self.bench.mesh.controller.open()  # type: ignore[attr-defined]


def stuck_puc_defect(trial: Trial) -> Iterator[None]:
    active, truth = trial.setup.active, trial.bench.emulated.world.truth
    assert active is not None
    plan = plan_circuits(trial.bench, trial.setup.record, [trial.request], active=active.circuits)
    taken = {puc for circuit in active.circuits for puc in circuit.path.pucs}
    puc = int(trial.rng.choice([puc for puc in plan.circuits[0].path.pucs if puc not in taken]))
    before = dict(truth.stuck_current_ma)
    trial.later(lambda: stick(trial.setup, puc, opposite_state(plan.states[puc])))
    yield
    truth.stuck_current_ma.clear()
    truth.stuck_current_ma.update(before)
    trial.bench.emulated.world.disturb()


def interrupt(trial: Trial) -> Iterator[None]:
    trial.later(_thread.interrupt_main)
    yield


def no_path(trial: Trial) -> Iterator[None]:
    trial.request = CircuitRequest(trial.request.source, trial.request.target, max_hops=1)
    yield


FAULTS: dict[str, Callable[[Trial], Iterator[None]]] = {
    "stuck PUC": stuck_puc_defect,
    "interrupt": interrupt,
    "no path": no_path,
    "meter unplugged": lambda trial: trial.device("meter0", "no_cable"),
    "interlock": lambda trial: trial.device("mesh0", "trip"),
    "controller unplugged": lambda trial: trial.device("mesh0", "no_cable"),
    "transmitter unplugged": lambda trial: trial.device(trial.request.source, "no_cable"),
    "receiver unplugged": lambda trial: trial.device(trial.request.target, "no_cable"),
    "dark transmitter": lambda trial: trial.device(trial.request.source, "laser_broken"),
    "dead receiver": lambda trial: trial.device(trial.request.target, "module_dead"),
    "controller of the polarization unplugged": lambda trial: trial.device(
        trial.bench.wiring.input_of(trial.request.source).polarization or "", "no_cable"
    ),
}
"""A fault as a generator: inserted until it yields, removed afterwards."""
ENDS_IT = {"interlock", "controller unplugged"}


def log_of(bench: Bench, path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def received_w(bench: Bench) -> list[float]:
    return [bench.emulated.world.received_w(request.target) for request in STANDING]


def assert_as_before(setup: PathSetup, before_ma: np.ndarray, before_w: list[float]) -> None:  # type: ignore[type-arg]
    assert np.array_equal(setup.bench.mesh.confirmed_currents_ma(), before_ma)
    assert setup.active is not None
    assert [circuit.request for circuit in setup.active.circuits] == STANDING
    assert received_w(setup.bench) == pytest.approx(before_w, rel=0.02)
    assert all(proof.proven for proof in setup.prove())


def repaired(setup: PathSetup) -> None:
    """Restore controller and circuits after a fault that has ended them."""
    for fault in setup.bench.mesh.controller.faults():
        setup.bench.mesh.controller.clear_fault(fault.fault_id)
    setup.bench.clock.sleep(3.0)
    setup.establish(setup.plan(STANDING), align=False)


def failing_requests(n: int, seed: int, log: Path) -> dict[str, int]:
    """Make requests fail until this many have failed; return the count of each outcome."""
    rng, outcomes = np.random.default_rng(seed), dict.fromkeys(("failed", "ended", "too late"), 0)
    with Bench.emulate(seed=4) as bench:
        bench.events.write_to(log)
        setup = path_setup(bench)
        setup.connect([*STANDING, *FREE])  # every polarization is known from now on
        setup.disconnect(FREE)
        while outcomes["failed"] + outcomes["ended"] < n:
            name = str(rng.choice(list(FAULTS)))
            request = FREE[int(rng.integers(len(FREE)))]
            trial = Trial(setup, request, float(rng.uniform(0.0, LATEST_S)), rng)
            before_ma, before_w = bench.mesh.confirmed_currents_ma(), received_w(bench)
            fault = FAULTS[name](trial)
            next(fault)
            try:
                setup.connect([trial.request], align=False)
            except (LumionError, KeyboardInterrupt):
                outcome = "failed" if setup.active is not None else "ended"
            else:
                outcome = "too late"  # or another path was found
            trial.is_running = False
            next(fault, None)
            outcomes[outcome] += 1
            if outcome == "ended":
                assert name in ENDS_IT, name
                assert not bench.mesh.confirmed_currents_ma().any(), name
                assert any(line["event"] == "not rolled back" for line in log_of(bench, log)[-9:])
                repaired(setup)
                continue
            if outcome == "too late":
                setup.disconnect([trial.request])
            if name in ENDS_IT and not bench.mesh.confirmed_currents_ma().any():
                repaired(setup)
                continue
            assert_as_before(setup, before_ma, before_w)
    return outcomes


@pytest.mark.parametrize(
    ("n", "seed"),
    [
        pytest.param(20, 2, marks=pytest.mark.long),
        pytest.param(200, 3, marks=pytest.mark.campaign),
    ],
)
def test_after_failing_requests_all_is_as_before(tmp_path: Path, n: int, seed: int) -> None:
    outcomes = failing_requests(n, seed, tmp_path / "events.jsonl")
    assert outcomes["failed"] + outcomes["ended"] == n
    assert outcomes["failed"] > outcomes["ended"]
