"""The model of a mesh against the emulator's light, and its derivatives against differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from calibration.model.gauge import signed_incidence
from calibration.model.mesh_model import BATCH, MeshModel
from calibration.model.observations import Observations
from calibration.model.parameters import MeshParameters
from lumion_hw.errors import ConfigError
from lumion_hw.mesh.layout.hexagonal import HexMesh
from tests.calibration.simulated_mesh import SimulatedMesh

SMALL = HexMesh.columns((2, 3, 2))


@pytest.fixture(scope="module")
def small() -> SimulatedMesh:
    return SimulatedMesh.draw(SMALL, 3)


@pytest.fixture(scope="module")
def model(small: SimulatedMesh) -> MeshModel:
    return MeshModel(SMALL, small.ports, small.ports)


def _some(small: SimulatedMesh, count: int) -> Observations:
    currents, source = small.random_settings(count)
    none = np.zeros((count, len(small.ports)))
    return Observations(currents, source, small.ports, none, none > 0, small.rng.normal(0.0, 5e9, count))


def test_the_model_at_the_truth_reads_what_the_light_does(small: SimulatedMesh, model: MeshModel) -> None:
    """All that is left is what three terms of a heater law leave of the implicit one: some 1e-5 rad."""
    currents, source = small.random_settings(40)
    exact = small.exact_ma(currents, source)
    nothing = np.zeros_like(exact)
    predicted = model.predict(small.parameters(), Observations(currents, source, small.ports, nothing, nothing > 0))
    assert np.abs(predicted - exact).max() < 1e-4 * exact.max()
    # with the heat that really flows, not the law's, nothing is left of the difference but the law's
    assert np.median(np.abs(predicted / exact - 1)) < 3e-4


@pytest.mark.parametrize("compiled", [False, None])
def test_linearised_readings_are_the_predicted_ones(small: SimulatedMesh, compiled: bool | None) -> None:
    model = MeshModel(SMALL, small.ports, small.ports, compiled=compiled)
    observations = _some(small, 40)
    parts = list(model.linearise(small.parameters(), observations))
    assert [part.settings.start for part in parts] == list(range(0, 40, BATCH))
    together = np.concatenate([part.reading_ma for part in parts])
    np.testing.assert_allclose(together, model.predict(small.parameters(), observations), rtol=1e-9, atol=1e-15)


def test_the_slope_of_a_weighed_sum_is_that_of_its_terms(small: SimulatedMesh, model: MeshModel) -> None:
    observations = _some(small, 40)
    parameters = replace(small.parameters(), differential_slope_rad_per_hz=1e-13, coupler_slope_rad_per_hz=1e-14)
    weight = np.random.default_rng(4).standard_normal(observations.reading_ma.shape)
    terms = [
        part.jacobian * weight[part.settings][..., None]
        for part in model.with_double_precision().linearise(parameters, observations)
    ]
    expected = np.concatenate(terms).sum(axis=(0, 1))
    slope = model.slope(parameters, observations, weight)
    for where in model.space.groups.values():
        largest = np.abs(expected[where]).max()
        assert largest > 0.0
        np.testing.assert_allclose(slope[where], expected[where], rtol=0.0, atol=1e-11 * largest)


def _paired(small: SimulatedMesh, second_db: Sequence[float] = (0.7, -1.1)) -> tuple[MeshModel, MeshParameters]:
    """Return a model in which two of three sources light a second port, and its parameters."""
    model = MeshModel(SMALL, small.ports[:3], small.ports, seconds={port: port + 4 for port in small.ports[:2]})
    found = small.parameters()
    return model, replace(found, source_db=found.source_db[:3], second_db=np.array(second_db))


def _lit(small: SimulatedMesh, count: int) -> Observations:
    observations = _some(small, count)
    return replace(observations, source=np.resize(small.ports[:3], count))


def test_two_ports_lit_together_read_the_sum_of_their_powers(small: SimulatedMesh, model: MeshModel) -> None:
    pair, parameters = _paired(small)
    observations, whole = _lit(small, 12), small.parameters()
    expected = model.predict(whole, observations)
    for port, over_first_db in zip(small.ports[:2], parameters.second_db, strict=True):
        level_db = whole.source_db.copy()
        level_db[small.ports.index(port + 4)] = whole.source_db[small.ports.index(port)] + over_first_db
        rows = np.flatnonzero(observations.source == port)
        beside = replace(observations[rows], source=np.full(len(rows), port + 4))
        own_hz = replace(whole, source_db=level_db)
        expected[rows] += model.predict(own_hz, beside)
    np.testing.assert_allclose(pair.predict(parameters, observations), expected, rtol=1e-9)


def test_single_precision_of_derivatives_is_rounding(small: SimulatedMesh, model: MeshModel) -> None:
    parameters = replace(small.parameters(), differential_slope_rad_per_hz=1e-13, coupler_slope_rad_per_hz=1e-14)
    settings = _some(small, 40)
    ways = [list(way.linearise(parameters, settings)) for way in (model, model.with_double_precision())]
    single, double = (np.concatenate([part.jacobian for part in parts]) for parts in ways)
    assert (single.dtype, double.dtype) == (np.float32, np.float64)
    assert np.array_equal(*(np.concatenate([part.reading_ma for part in parts]) for parts in ways))
    for where in model.space.groups.values():
        off = np.abs(single[..., where] - double[..., where])
        assert 0.0 < off.max() < 3e-6 * np.abs(double[..., where]).max()


def test_derivatives_of_ports_lit_together_agree_with_differences_and_add_up(small: SimulatedMesh) -> None:
    pair, parameters = _paired(small)
    parameters = replace(parameters, differential_slope_rad_per_hz=1e-13, coupler_slope_rad_per_hz=1e-14)
    _agree(pair, parameters, _lit(small, 6))
    observations = _lit(small, 20)
    weight = np.random.default_rng(4).standard_normal(observations.reading_ma.shape)
    terms = [
        part.jacobian * weight[part.settings][..., None]
        for part in pair.with_double_precision().linearise(parameters, observations)
    ]
    expected = np.concatenate(terms).sum(axis=(0, 1))
    np.testing.assert_allclose(
        pair.slope(parameters, observations, weight), expected, rtol=1e-9, atol=1e-11 * np.abs(expected).max()
    )


def test_derivatives_agree_with_differences(small: SimulatedMesh, model: MeshModel) -> None:
    parameters = replace(small.parameters(), differential_slope_rad_per_hz=1e-13, coupler_slope_rad_per_hz=1e-14)
    _agree(model, parameters, _some(small, 3))


def _agree(model: MeshModel, parameters: MeshParameters, observations: Observations) -> None:
    """Compare derivatives with differences, group by group."""
    space, rng = model.space, np.random.default_rng(8)
    vector = space.pack(parameters)
    step = space.vector(
        {"rho2": 1e-6, "rho4": 1e-6, "rho6": 1e-6, "loss_db": 1e-4, "source_db": 1e-4, "monitor_db": 1e-4}, 1e-5
    )
    step[space.group("source_detuning_hz")] = 1e5
    step[space.group("crosstalk")] = 1e-7
    step[space.group("delay_s")] = 1e-17
    step[space.group("differential_slope_rad_per_hz")] = 1e-15
    step[space.group("coupler_slope_rad_per_hz")] = 1e-15
    (part,) = model.with_double_precision().linearise(space.unpack(vector), observations)
    for name, where in space.groups.items():
        direction = np.zeros(space.size)
        direction[where] = rng.standard_normal(where.stop - where.start) * step[where]
        ahead, behind = (model.predict(space.unpack(vector + sign * direction), observations) for sign in (1, -1))
        expected = 0.5 * (ahead - behind)
        found = part.jacobian @ direction
        assert np.abs(found - expected).max() < 1e-6 * np.abs(expected).max() + 1e-15, name


def test_a_gauge_of_the_joints_is_not_seen(small: SimulatedMesh, model: MeshModel) -> None:
    parameters = small.parameters()
    gauge = signed_incidence(SMALL) @ np.random.default_rng(1).uniform(0, 6, SMALL.n_pucs)
    moved = replace(parameters, joint_phase_rad=parameters.joint_phase_rad + gauge)
    observations = _some(small, 5)
    np.testing.assert_allclose(
        model.predict(moved, observations), model.predict(parameters, observations), rtol=1e-8, atol=1e-13
    )
    np.testing.assert_allclose(model.space.pack(moved), model.space.pack(parameters), atol=1e-9)


def test_a_heater_without_a_law_changes_nothing(small: SimulatedMesh, model: MeshModel) -> None:
    parameters, observations = small.parameters(), _some(small, 4)
    laws = parameters.heater_law.copy()
    laws[7] = 0.0
    dead = replace(parameters, heater_law=laws)
    currents = observations.currents_ma.copy()
    currents[:, 7] = 1.0
    other = replace(observations, currents_ma=currents)
    np.testing.assert_array_equal(model.predict(dead, other), model.predict(dead, observations))
    (part,) = model.linearise(dead, observations)
    assert np.isfinite(part.jacobian).all()


@pytest.mark.parametrize("length_mm", [-1e-3, -0.5, 1e-3])
def test_a_decay_length_without_meaning_gives_wrong_but_finite_light(
    small: SimulatedMesh, model: MeshModel, length_mm: float
) -> None:
    """Trial steps of a fit lead there; an overflow would be a warning for its user."""
    amplitude, usual_mm, floor = small.parameters().crosstalk_rad_per_mw
    observations = _some(small, 4)

    def light(decay_mm: float) -> np.ndarray:
        crosstalk = np.array([amplitude, decay_mm, floor])
        return model.predict(replace(small.parameters(), crosstalk_rad_per_mw=crosstalk), observations)

    assert np.isfinite(light(length_mm)).all()
    assert np.abs(light(length_mm) / light(usual_mm) - 1).max() > 0.01


def test_what_a_parameter_is_called(model: MeshModel) -> None:
    space = model.space
    assert space.describe(space.groups["rho4"].start + 7) == "rho4 of PUC 3 lower arm"
    assert space.describe(space.groups["source_db"].start + 2) == "source_db at port 2"
    assert space.describe(space.groups["delay_s"].start) == "delay_s"
    assert "second_db" not in space.groups  # records of such benches are what they always were


def test_the_level_of_a_second_port_is_called_by_that_port(small: SimulatedMesh) -> None:
    space = _paired(small)[0].space
    assert space.describe(space.groups["second_db"].start + 1) == f"second_db at port {small.ports[1] + 4}"


def test_light_from_elsewhere_is_refused(small: SimulatedMesh) -> None:
    model = MeshModel(SMALL, small.ports[:3], small.ports)
    with pytest.raises(ConfigError, match="do not match this model"):
        model.predict(small.parameters(), _some(small, 8))
    with pytest.raises(ConfigError, match="there is no parameter group 'phase'"):
        model.space.group("phase")
