"""Half a turn per PUC more for the light of one source: power hardly tells it, but in the end it does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibration.fit.diagnosed_fit import DiagnosedFit, FaultDiagnosis, TimedReadings
from calibration.fit.frequencies import equivalent_branches, nearest_branches
from calibration.fit.global_fit import GlobalFit
from calibration.measure.design import IncrementalSettings
from calibration.model.likelihood import SETTING_DRIFT, Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.nominal_heaters import NominalHeaters
from calibration.model.observations import NoiseModel
from calibration.model.parameters import MeshParameters
from calibration.model.priors import FREE_WITH_MODULES, default_prior
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.waves.cell import BASIC_UNIT_DELAY_S
from tests.calibration.simulated_mesh import FLOOR_MA, FULL_TURN_MA, RELATIVE, SimulatedMesh, start_near

SMALL = HexMesh.columns((1, 2, 1))
TURN_HZ = 0.5 / BASIC_UNIT_DELAY_S
HZ_PER_NM = 124.9e9
SIGMA_HZ = 12e9
SETTINGS = 160
APART_HZ = np.array([-21e9, 9e9, 3e9, 9e9])
"""The first source is so far off that half a turn more would look likelier."""


@pytest.fixture
def small() -> SimulatedMesh:
    """Arms differ by 15 mrad per nm (docs/sources.md)."""
    simulated = SimulatedMesh.draw(SMALL, 17)
    simulated.differential_slope_per_hz = 15e-3 / HZ_PER_NM
    return simulated


def _model(small: SimulatedMesh) -> MeshModel:
    return MeshModel(SMALL, small.ports[:4], small.ports)


def _diagnosis(small: SimulatedMesh, start: MeshParameters) -> FaultDiagnosis:
    """Measure with light of four modules."""
    model = _model(small)
    plan = IncrementalSettings(
        np.full(2 * SMALL.n_pucs, FULL_TURN_MA), small.ports[:4], small.ports, settings_per_source=10
    ).random(SETTINGS, small.rng)
    detuning_hz = APART_HZ[np.searchsorted(model.space.sources, plan.source)]
    read = small.measure(plan.currents_ma, plan.source, detuning_hz=detuning_hz)
    return FaultDiagnosis(
        model,
        default_prior(model.space, start).anchored("source_detuning_hz", model.space, 1e5),
        model.space.mask(FREE_WITH_MODULES),
        np.full(2 * SMALL.n_pucs, FULL_TURN_MA),
        range(2 * SMALL.n_pucs),
        [100.0] * 2 * SMALL.n_pucs,
        NominalHeaters(),
        Likelihood(read, NoiseModel(RELATIVE, FLOOR_MA), drift=SETTING_DRIFT),
        TimedReadings(read, 0.05 * np.arange(SETTINGS)),
    )


def _diagnosed(small: SimulatedMesh, start: MeshParameters) -> DiagnosedFit:
    """Measure, and fit from a start."""
    diagnosis = _diagnosis(small, start)
    return diagnosis.settle(diagnosis.begin(start))


def _start(small: SimulatedMesh) -> MeshParameters:
    near = start_near(small, 0.05, 0.02)
    return replace(near, source_db=near.source_db[:4], source_detuning_hz=APART_HZ)


@pytest.mark.parametrize("turns", [(0, 0, 0, 0), (1, 0, 0, 0), (0, -1, 2, 0), (1, 1, 1, 1)])
def test_sources_go_to_the_half_turn_nearest_to_the_others(turns: tuple[int, ...]) -> None:
    phases = np.array([0.3, -0.2, 0.5, 0.1])
    found = nearest_branches(phases + np.pi * np.array(turns))
    off = found - phases
    np.testing.assert_allclose(off, off[0], atol=1e-12)
    assert np.mod(off[0] + 0.1, np.pi) == pytest.approx(0.1)


def test_without_slopes_the_other_branch_is_the_same_light(small: SimulatedMesh) -> None:
    model = _model(small)
    here = replace(_start(small), differential_slope_rad_per_hz=0.0, coupler_slope_rad_per_hz=0.0)
    # Cold: what heat adds goes with the frequency, by 1e-4 of it.
    cold = IncrementalSettings(np.zeros(2 * SMALL.n_pucs), small.ports[:4], small.ports).random(4, small.rng)
    ((there, cost),) = equivalent_branches(here, SIGMA_HZ)
    there_hz = np.asarray(there.source_detuning_hz)
    np.testing.assert_allclose(np.diff(there_hz - APART_HZ), [-TURN_HZ, 0.0, 0.0], atol=1e-3)
    assert abs(there_hz.mean() - APART_HZ.mean()) < 1e-3
    assert cost == pytest.approx(((there_hz**2).sum() - (APART_HZ**2).sum()) / SIGMA_HZ**2)
    np.testing.assert_allclose(model.predict(there, cold), model.predict(here, cold), rtol=1e-9, atol=1e-15)


def test_sources_near_their_frequencies_have_no_other_branch(small: SimulatedMesh) -> None:
    near = replace(_start(small), source_detuning_hz=np.array([3e9, -8e9, 5e9, 0.0]))
    assert equivalent_branches(near, SIGMA_HZ) == []


def test_the_right_branch_stays_although_its_fit_has_not_converged(
    small: SimulatedMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fit of the other branch has three rounds more."""
    right = _start(small)
    diagnosis = _diagnosis(small, right)
    unfinished = GlobalFit(diagnosis.model, diagnosis.likelihood, diagnosis.prior, FREE_WITH_MODULES).run(right, 4)
    monkeypatch.setattr(FaultDiagnosis, "fit_from", lambda self, start: unfinished)
    found = diagnosis.begin(right).parameters
    np.testing.assert_allclose(np.asarray(found.source_detuning_hz), APART_HZ, atol=0.3e9)


@pytest.mark.long
def test_the_branch_that_readings_tell_is_taken_from_wherever_the_fit_begins(small: SimulatedMesh) -> None:
    right = _start(small)
    ((wrong, _),) = equivalent_branches(right, SIGMA_HZ)
    for start in (right, wrong):
        found = _diagnosed(small, start)
        assert found.certified
        np.testing.assert_allclose(np.asarray(found.parameters.source_detuning_hz), APART_HZ, atol=0.3e9)
        slope = found.parameters.differential_slope_rad_per_hz
        assert slope * HZ_PER_NM == pytest.approx(15e-3, abs=3e-3)
