"""What drifted while it was measured: the trajectories found are those injected, and a run at rest has none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibration.diagnose.drift_trajectory import DriftTrajectories, excess_db, fit_drift_trajectories, measure_drift
from calibration.measure.design import IncrementalSettings
from calibration.measure.logbook import LogbookEntry, times_s
from calibration.model.mesh_model import MeshModel
from calibration.model.observations import NoiseModel, Observations
from lumion_hw.mesh.layout.hexagonal import HexMesh
from tests.calibration.simulated_mesh import FLOOR_MA, FULL_TURN_MA, RELATIVE, SimulatedMesh

SMALL = HexMesh.columns((2, 3, 2))
NOISE = NoiseModel(RELATIVE, FLOOR_MA)
REACH_MA = np.full(2 * SMALL.n_pucs, FULL_TURN_MA)
COUNT = 240
RAMP = np.linspace(0.0, 1.0, COUNT)
TAKEN_S = 0.02 * np.arange(COUNT)


@pytest.fixture
def small() -> SimulatedMesh:
    return SimulatedMesh.draw(SMALL, 6)


def _settings(small: SimulatedMesh) -> Observations:
    """Random settings, every source lit in three stretches."""
    return IncrementalSettings(REACH_MA, small.ports[:4], small.ports, settings_per_source=20).random(COUNT, small.rng)


def _model(small: SimulatedMesh) -> MeshModel:
    return MeshModel(SMALL, small.ports, small.ports)


def _trajectories(small: SimulatedMesh, observations: Observations) -> DriftTrajectories:
    return fit_drift_trajectories(
        measure_drift(_model(small), small.parameters(), observations, TAKEN_S, NOISE, REACH_MA)
    )


def test_a_run_at_rest_has_not_moved_and_names_nothing(small: SimulatedMesh) -> None:
    plan = _settings(small)
    found = _trajectories(small, small.measure(plan.currents_ma, plan.source))
    assert not found.moved
    assert found.defects(small.parameters().delay_s) == ()


def test_a_temperature_that_rises_is_followed_to_a_few_milliradians(small: SimulatedMesh) -> None:
    plan, rising_rad = _settings(small), 0.09 * RAMP
    found = _trajectories(small, small.measure(plan.currents_ma, plan.source, common_rad=rising_rad))
    seen = np.interp(TAKEN_S, found.at_s, found.temperature_rad)
    assert np.abs(seen - (rising_rad - rising_rad[-1])).max() < 0.006
    (named,) = found.defects(small.parameters().delay_s)
    assert (named.kind, named.element) == ("temperature drift", "chip")
    assert "+0.15 K" in named.evidence  # 0.09 rad at 0.6 rad/K


def test_a_fit_that_is_wrong_about_crosstalk_is_not_taken_for_a_temperature(small: SimulatedMesh) -> None:
    """Settings get cooler towards the end of a run, as chosen ones do: 1 mrad per mA² would look like a drift."""
    plan, rising_rad = _settings(small), 0.09 * RAMP
    currents = plan.currents_ma * np.where(RAMP < 0.3, 1.0, 0.5)[:, None]
    square_ma2 = (currents**2).sum(axis=1)
    by_heat_rad = 1e-3 * square_ma2
    found = _trajectories(small, small.measure(currents, plan.source, common_rad=rising_rad + by_heat_rad))
    seen = np.interp(TAKEN_S, found.at_s, found.temperature_rad)
    assert np.ptp(by_heat_rad) > 0.02
    assert np.abs(seen - (rising_rad - rising_rad[-1])).max() < 0.006


def test_one_source_that_jumps_while_the_others_rest_is_a_mode_hop(small: SimulatedMesh) -> None:
    plan = _settings(small)
    port = small.ports[1]
    hop_hz = np.where((plan.source == port) & (np.arange(COUNT) > 120), 2e9, 0.0)
    found = _trajectories(small, small.measure(plan.currents_ma, plan.source, detuning_hz=hop_hz))
    (named,) = found.defects(small.parameters().delay_s)
    assert (named.kind, named.number) == ("mode hop", port)
    assert "+2.0 GHz" in named.evidence
    assert np.ptp(found.temperature_rad) < 0.01


def test_one_source_that_fades_is_named_by_its_port(small: SimulatedMesh) -> None:
    plan = _settings(small)
    port = small.ports[2]
    power_db = np.where(plan.source == port, -0.4 * RAMP, 0.0)
    found = _trajectories(small, small.measure(plan.currents_ma, plan.source, power_db=power_db))
    (named,) = found.defects(small.parameters().delay_s)
    assert (named.kind, named.number) == ("power drift", port)


def test_what_drifted_is_taken_out_of_settings_and_readings(small: SimulatedMesh) -> None:
    plan = _settings(small)
    fading_db = np.where(np.arange(COUNT) < COUNT - 80, 0.3, 0.0)  # every source is as at the end in its last stretch
    drifted = small.measure(plan.currents_ma, plan.source, power_db=fading_db, common_rad=0.09 * RAMP)
    parameters, model = small.parameters(), _model(small)
    still = _trajectories(small, drifted).corrected(drifted, TAKEN_S, parameters.delay_s)
    after = replace(still, detuning_hz=still.detunings_hz + 0.09 / (2.0 * np.pi * parameters.delay_s))
    bright = drifted.reading_ma > 1e-3
    off_db = 10.0 * np.log10(still.reading_ma[bright] / model.predict(parameters, after)[bright])
    assert np.sqrt(np.median(off_db**2)) < 0.03  # noise is 0.022 dB, the drift 0.3 dB


def test_a_batch_takes_the_time_since_what_was_asked_before_it() -> None:
    def entry(count: int, at_s: float) -> LogbookEntry:
        return LogbookEntry("settings", 3, np.zeros((count, 2)), np.zeros((count, 4)), at_s)

    found = times_s(
        [entry(1, 1.0), LogbookEntry("launched", 3, np.zeros((0, 2)), np.zeros((1, 1)), 2.0), entry(4, 3.0)]
    )
    assert found.tolist() == [1.0, 2.25, 2.5, 2.75, 3.0]


def test_a_batch_that_took_no_time_happened_at_one_instant() -> None:
    """0 s is a duration; only a batch that does not state one is spread over the time since the entry before it."""
    settings = LogbookEntry("settings", 3, np.zeros((3, 2)), np.zeros((3, 4)), 5.0, spent_s=0.0)
    before = LogbookEntry("launched", 3, np.zeros((0, 2)), np.zeros((1, 1)), 2.0)
    assert times_s([before, settings]).tolist() == [5.0, 5.0, 5.0]
    assert LogbookEntry.of(settings.document()).spent_s == 0.0
    assert LogbookEntry.of(replace(settings, spent_s=None).document()).spent_s is None


def test_excess_is_what_drift_and_noise_do_not_explain(small: SimulatedMesh) -> None:
    plan, model = _settings(small), _model(small)
    drifted = small.measure(plan.currents_ma, plan.source, power_db=0.3 * RAMP, common_rad=0.05 * RAMP)
    for parameters, least, most in (
        (small.parameters(), 0.0, 0.06),  # noise is 0.022 dB
        (replace(small.parameters(), passive_phase_rad=small.parameters().passive_phase_rad + 0.05), 0.5, 5.0),
    ):
        drift = measure_drift(model, parameters, drifted, TAKEN_S, NOISE, REACH_MA)
        assert least <= excess_db(drift, model, parameters, drifted, NOISE) < most


def test_a_setting_that_tells_nothing_of_its_phase_has_that_of_its_neighbours(small: SimulatedMesh) -> None:
    plan, model = _settings(small), _model(small)
    drifted = small.measure(plan.currents_ma, plan.source, power_db=0.3 * RAMP, common_rad=0.05 * RAMP)
    drift = measure_drift(model, small.parameters(), drifted, TAKEN_S, NOISE, REACH_MA)
    astray = np.arange(COUNT) % 5 == 2
    lost = replace(
        drift,
        phase_rad=np.where(astray, 0.4, drift.phase_rad),
        phase_sigma_rad=np.where(astray, 0.3, drift.phase_sigma_rad),
        power_db=np.where(astray, 1.0, drift.power_db),
        power_sigma_db=np.where(astray, 0.3, drift.power_sigma_db),
    )
    assert excess_db(lost, model, small.parameters(), drifted, NOISE) < 0.03
