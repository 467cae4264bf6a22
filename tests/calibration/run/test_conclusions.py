"""What a fit that does not explain its readings says of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibration.fit.global_fit import GlobalFit
from calibration.measure.bench_probe import BenchProbe
from calibration.measure.design import IncrementalSettings
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.nominal_heaters import NominalHeaters
from calibration.model.observations import NoiseModel, Observations
from calibration.model.priors import default_prior
from calibration.run.conclusions import find_worst_misfits, short_reach
from calibration.run.procedure import Calibration
from lumion_hw import Bench
from lumion_hw.mesh.layout.hexagonal import HexMesh
from tests.calibration.simulated_mesh import FLOOR_MA, FULL_TURN_MA, RELATIVE, SimulatedMesh

SMALL = HexMesh.columns((2, 3, 2))
NOISE = NoiseModel(RELATIVE, FLOOR_MA)
LYING = 4


@pytest.fixture
def small() -> SimulatedMesh:
    return SimulatedMesh.draw(SMALL, 31)


def _worst_after_a_fit(small: SimulatedMesh, observations: Observations) -> tuple[str, ...]:
    model, likelihood = MeshModel(SMALL, small.ports, small.ports), Likelihood(observations, NOISE)
    start = small.parameters()
    fit = GlobalFit(model, likelihood, default_prior(model.space, start)).run(start, near=True)
    return find_worst_misfits(model, fit.parameters, likelihood)


def test_only_a_monitor_that_lies_is_named_first(small: SimulatedMesh) -> None:
    walk = IncrementalSettings(np.full(2 * SMALL.n_pucs, FULL_TURN_MA), small.ports, small.ports, changed=60)
    plan = walk.random(200, small.rng)
    honest = small.measure(plan.currents_ma, plan.source)
    lying = np.arange(len(small.ports)) == LYING
    bent = np.where(lying, 0.8 * np.maximum(honest.reading_ma, 0.0) ** 0.9, honest.reading_ma)
    worst = _worst_after_a_fit(small, replace(honest, reading_ma=bent))[0]
    assert worst.startswith(f"monitor_db at port {small.ports[LYING]}:")
    assert _worst_after_a_fit(small, honest) == ()


# Heaters that the controller cannot heat enough ----------------------------------------------------------------------


def test_currents_too_small_for_half_a_fringe_are_named_with_the_current_needed() -> None:
    """2.5 mA in 1000 ohm are 6.25 mW; two times 35 mW need the root of 70,000 / 1000, 8.37 mA."""
    heaters = NominalHeaters(1000.0, 15.0, 35.0)
    warning = short_reach(heaters, 2.5)
    assert warning is not None
    assert "2.5 mA gives 6.25 mW in 1000 Ω, but a phase of π needs 15 to 35 mW" in warning
    assert "Set heater_max_ma to 8.37 if chip and driver allow it" in warning
    assert short_reach(heaters, 3.88) is None  # 15.05 mW


def test_a_calibration_with_too_small_currents_names_them_first() -> None:
    with Bench.emulate("small-bench") as bench:
        probe = BenchProbe(bench)
        device = replace(probe.device_under_test(), p_pi_mw=(15.0, 35.0))
        assert Calibration(probe, device, 1).faults == [short_reach(device.heaters, probe.heater_max_ma)]
        assert not Calibration(probe, probe.device_under_test(), 1).faults
