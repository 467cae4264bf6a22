"""The losses that a calibration assumes before a measurement are those of ``mesh.typical``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from calibration.measure.bench_probe import BenchProbe
from calibration.model.parameters import MeshParameters
from calibration.model.priors import run_prior
from calibration.model.space import ParameterSpace
from lumion_hw.bench.bench import Bench

FOUNDRY = Path(__file__).parents[3] / "examples" / "benches" / "clements-4x4-qontrol.yaml"


def test_the_prior_of_the_losses_follows_the_bench_file() -> None:
    with Bench.emulate(FOUNDRY, seed=1) as bench:
        device, mesh = BenchProbe(bench).device_under_test(), bench.mesh.topology
    assert device.puc_loss_db == 0.3
    space = ParameterSpace(mesh, (0, 1, 2, 3), (4, 5, 6, 7))
    n_pucs = mesh.n_pucs
    start = MeshParameters(
        passive_phase_rad=np.zeros(n_pucs),
        heater_law=np.full((2 * n_pucs, 3), 1e-3),
        loss_db=np.full(n_pucs, 2.0),
        coupler_common_rad=np.zeros(n_pucs),
        coupler_difference_rad=np.zeros(n_pucs),
        joint_phase_rad=np.zeros(len(mesh.joints)),
        source_db=np.zeros(4),
        second_db=np.zeros(0),
        monitor_ma_per_mw=np.ones(4),
        crosstalk_rad_per_mw=device.heaters.kernel,
    )
    mean = run_prior(space, start, device).mean[space.group("loss_db")]
    # A phase shifter, a waveguide with a heater, loses a fifth of an MZI.
    np.testing.assert_allclose(mean[:2], [0.06, 0.3])
