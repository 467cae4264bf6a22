"""Light of several frequencies: delays, slopes, and modules that are each where they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibration.fit.frequencies import find_detunings
from calibration.fit.global_fit import GlobalFit
from calibration.measure.design import IncrementalSettings
from calibration.model.gauge import wrapped
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.observations import NoiseModel
from calibration.model.priors import FREE_GROUPS, FREE_WITH_MODULES, default_prior
from lumion_hw.mesh.layout.hexagonal import HexMesh
from tests.calibration.simulated_mesh import FLOOR_MA, FULL_TURN_MA, RELATIVE, SimulatedMesh, start_near

SMALL = HexMesh.columns((1, 2, 1))
NOISE = NoiseModel(RELATIVE, FLOOR_MA)
HZ_PER_NM = 124.9e9
"""At 1549.3 nm."""


@pytest.fixture
def small() -> SimulatedMesh:
    """7e-4 per nm of the splitting, 15 mrad per nm of the differential phase (docs/sources.md)."""
    simulated = SimulatedMesh.draw(SMALL, 41)
    simulated.eta_slope_per_hz = 7e-4 / HZ_PER_NM
    simulated.differential_slope_per_hz = 15e-3 / HZ_PER_NM
    return simulated


def _passive_mrad(small: SimulatedMesh, found: np.ndarray) -> float:
    return 1e3 * float(np.sqrt(np.mean(wrapped(found - small.truth.passive_phase) ** 2)))


@pytest.mark.long
def test_a_tunable_laser_tells_delay_and_slopes(small: SimulatedMesh) -> None:
    model = MeshModel(SMALL, small.ports, small.ports)
    plan = IncrementalSettings(np.full(2 * SMALL.n_pucs, FULL_TURN_MA), small.ports, small.ports).random(200, small.rng)
    detuning = np.array([0.0, -20e9, 60e9, 150e9])[np.arange(200) // 50]
    readings = small.measure(plan.currents_ma, plan.source, detuning_hz=detuning)
    likelihood = Likelihood(replace(readings, detuning_hz=detuning), NOISE)
    start = replace(start_near(small, 0.05, 0.02), delay_s=11.26e-12)
    free = (*FREE_GROUPS, "delay_s", "differential_slope_rad_per_hz", "coupler_slope_rad_per_hz")
    fit = GlobalFit(model, likelihood, default_prior(model.space, start), free).run(start)
    assert fit.certified
    assert fit.parameters.delay_s == pytest.approx(11.25e-12, abs=2e-15)
    assert fit.parameters.differential_slope_rad_per_hz * HZ_PER_NM == pytest.approx(15e-3, abs=1e-3)
    # dη = sin 2a · da, and sin 2a is 1 for a coupler near balance
    assert fit.parameters.coupler_slope_rad_per_hz * HZ_PER_NM == pytest.approx(7e-4, abs=1e-4)
    assert _passive_mrad(small, fit.parameters.passive_phase_rad) < 3


def test_modules_tell_how_far_apart_they_are(small: SimulatedMesh) -> None:
    """Each module somewhere within ±0.1 nm; the mesh is first found with the light of one."""
    model = MeshModel(SMALL, small.ports, small.ports)
    plan = IncrementalSettings(
        np.full(2 * SMALL.n_pucs, FULL_TURN_MA), small.ports, small.ports, settings_per_source=100
    ).random(100, small.rng)
    first = Likelihood(small.measure(plan.currents_ma, plan.source), NOISE)
    start = start_near(small, 0.05, 0.02)
    prior = default_prior(model.space, start)
    one = GlobalFit(model, first, prior).run(start)
    assert one.certified
    apart = np.concatenate([[0.0], small.rng.uniform(-12e9, 12e9, len(small.ports) - 1)])
    others = IncrementalSettings(np.full(2 * SMALL.n_pucs, FULL_TURN_MA), small.ports, small.ports).random(
        160, small.rng
    )
    frequency = apart[np.searchsorted(small.ports, others.source)]
    second = small.measure(others.currents_ma, others.source, detuning_hz=frequency)
    together = Likelihood(first.observations + second, NOISE)
    found = find_detunings(model, one.parameters, together, 12.5e9)
    np.testing.assert_allclose(found.source_detuning_hz, apart, atol=0.5e9)
    fit = GlobalFit(model, together, prior, FREE_WITH_MODULES).run(found)
    assert fit.certified
    detuning = np.asarray(fit.parameters.source_detuning_hz)
    np.testing.assert_allclose(detuning - detuning[0], apart, atol=0.05e9)
    assert _passive_mrad(small, fit.parameters.passive_phase_rad) < 5
