"""Circuits behind a box that optimises the polarization itself, instead of a controller."""

import numpy as np

from lumion_hw import Bench
from lumion_hw.circuits import PathSetup
from tests.circuits.known_mesh import A_TO_B


class TryingSqueezers:
    """A box with squeezers inside. It tries a random turn and keeps it if the factor is smaller."""

    settle_s = 0.01

    def __init__(self, controller) -> None:
        self.controller = controller
        self.rng = np.random.default_rng(3)
        self.running = False

    def start(self) -> None:
        self.base_mv, self.best, self.size_mv, self.running = self.controller.read(), np.inf, 400.0, True

    def improve(self, factor: float) -> None:
        assert self.running
        assert 0.0 < factor <= 100.0
        if factor < self.best:
            self.best, self.base_mv, self.size_mv = factor, self.controller.read(), min(1.6 * self.size_mv, 800.0)
        else:
            self.size_mv = max(0.85 * self.size_mv, 5.0)
        trial_mv = self.base_mv + self.size_mv * self.rng.standard_normal(4)
        self.controller.set(np.clip(trial_mv, -5000.0, 5000.0))

    def stop(self) -> None:
        self.running = False

    def close(self) -> None: ...


def test_a_circuit_is_aligned_by_the_box_and_proven(bench: Bench, setup: PathSetup) -> None:
    entry = next(path for path in bench.wiring.inputs if path.transponder == A_TO_B[0].source)
    assert entry.polarization is not None
    box = TryingSqueezers(bench.polarization.pop(entry.polarization))
    bench.polarization_optimizers[entry.polarization] = box
    proof, other = setup.establish(setup.plan(A_TO_B))
    assert proof.proven
    assert proof.alignment is not None
    assert proof.alignment.method == "feedback"
    assert proof.alignment.remaining_loss_db < 0.3
    assert other.alignment is not None
    assert other.alignment.method == "model"
    assert not box.running
