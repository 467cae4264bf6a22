"""Rows of physics beyond the model of every chip: what they do to light, by differences and by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from calibration.model.gauge import common_phase_rad, gauge_fixed_difference
from calibration.model.mesh_model import MeshModel
from calibration.model.observations import SLOW_TAUS_S, Observations, late_powers
from calibration.model.parameters import MeshParameters
from calibration.model.physics import LAW_POINTS, PHYSICS, ROWS, PairDirections, Physics, select_test_heaters
from calibration.model.response import GAIN_LEVELS, Response
from lumion_hw.mesh.layout.hexagonal import HexMesh
from tests.calibration.simulated_mesh import SimulatedMesh

Real = NDArray[np.float64]

SMALL = HexMesh.columns((2, 3, 2))
WAVEGUIDES = 2 * SMALL.n_pucs + len(SMALL.joints)


@pytest.fixture(scope="module")
def small() -> SimulatedMesh:
    return SimulatedMesh.draw(SMALL, 3)


def _settings(small: SimulatedMesh, monitors: tuple[int, ...], count: int = 24) -> Observations:
    currents, source = small.random_settings(count)
    nothing = np.zeros((count, len(monitors)))
    late = late_powers(currents, 0.01 * np.arange(count), 1e-3)
    return Observations(currents, source, monitors, nothing, nothing > 0, late=late)


def _pairs(rng: np.random.Generator) -> PairDirections:
    shape = WAVEGUIDES, 2 * SMALL.n_pucs
    vectors, _ = np.linalg.qr(rng.standard_normal((shape[0] * shape[1], 6)))
    return PairDirections(rng.uniform(1e-4, 2e-3, shape), vectors.reshape(*shape[::-1], 6).astype(np.float32))


def _physics(*names: str) -> Physics:
    pairs = _pairs(np.random.default_rng(8)) if "crosstalk_pairs" in names else None
    return Physics({name: ROWS[name].usual for name in names}, pairs)


def _drawn(model: MeshModel, plain: MeshParameters, share: float = 1.0) -> Real:
    """Return a vector with all further physics of its usual size."""
    rng = np.random.default_rng(5)
    vector = model.space.pack(plain)
    for name, width in model.space.physics.widths.items():
        place = model.space.groups[name]
        vector[place] = share * width * rng.standard_normal(place.stop - place.start)
    return vector


@pytest.mark.parametrize("row", PHYSICS, ids=lambda row: row.name)
def test_derivatives_of_a_row_are_those_of_its_predictions(small: SimulatedMesh, row: object) -> None:
    name = row.name  # type: ignore[attr-defined]
    model = MeshModel(SMALL, small.ports, small.ports).with_physics(_physics(name))
    settings, vector = _settings(small, small.ports), _drawn(model, small.parameters())
    jacobian = np.concatenate([part.jacobian for part in model.linearise(model.space.unpack(vector), settings)])
    place, width = model.space.groups[name], ROWS[name].usual
    for number in np.linspace(place.start, place.stop - 1, 4).astype(int):
        step = np.zeros_like(vector)
        step[number] = 1e-3 * width
        ahead, behind = (model.predict(model.space.unpack(vector + way * step), settings) for way in (1.0, -1.0))
        expected = (ahead - behind) / (2e-3 * width)
        # Derivatives are sums of hundreds of terms in single precision.
        np.testing.assert_allclose(jacobian[..., number], expected, rtol=0.0, atol=3e-4 * np.abs(expected).max())


@pytest.mark.parametrize("group", ["passive_phase_rad", "loss_db", "coupler_common_rad", "loops", "source_detuning_hz"])
def test_what_is_sent_back_follows_all_that_light_passes(small: SimulatedMesh, group: str) -> None:
    """Left out, it made fits go on for a dozen rounds near their end."""
    model = MeshModel(SMALL, small.ports, small.ports).with_physics(_physics("facet_reflection", "joint_reflection"))
    settings, vector = _settings(small, small.ports), _drawn(model, small.parameters(), 3.0)
    jacobian = np.concatenate([part.jacobian for part in model.linearise(model.space.unpack(vector), settings)])
    along = np.zeros_like(vector)
    along[model.space.groups[group]] = 1e6 if group == "source_detuning_hz" else 1e-5
    ahead, behind = (model.predict(model.space.unpack(vector + way * along), settings) for way in (1.0, -1.0))
    expected = 0.5 * (ahead - behind)
    np.testing.assert_allclose(jacobian @ along, expected, rtol=0.0, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("group", ["rho2", "rho6", "slow_heat_share", "shared_return_per_ma"])
def test_light_follows_a_law_that_departs_from_its_terms(small: SimulatedMesh, group: str) -> None:
    """With departures a hundred times as large as any: derivatives without their slope would be off by a fifth."""
    model = MeshModel(SMALL, small.ports, small.ports).with_physics(
        _physics("slow_heat_share", "shared_return_per_ma", "law_deviation")
    )
    settings, vector = _settings(small, small.ports), _drawn(model, small.parameters())
    vector[model.space.groups["law_deviation"]] *= 100.0
    jacobian = np.concatenate([part.jacobian for part in model.linearise(model.space.unpack(vector), settings)])
    along, place = np.zeros_like(vector), model.space.groups[group]
    along[place] = 1e-6 * vector[place]
    ahead, behind = (model.predict(model.space.unpack(vector + way * along), settings) for way in (1.0, -1.0))
    expected = 0.5 * (ahead - behind)
    np.testing.assert_allclose(jacobian @ along, expected, rtol=0.0, atol=1e-4 * np.abs(expected).max())


def test_a_law_departs_linearly_between_points_a_sixth_of_a_turn_apart(small: SimulatedMesh) -> None:
    model = MeshModel(SMALL, small.ports, small.ports).with_physics(_physics("law_deviation"))
    asked = select_test_heaters(2 * SMALL.n_pucs)
    heater, at_points = int(asked[3]), np.zeros((len(asked), LAW_POINTS))
    at_points[3] = 0.01 * np.arange(1, LAW_POINTS + 1)
    plain = replace(small.parameters(), crosstalk_rad_per_mw=np.array([0.0, 1.0, 0.0]))
    currents = np.zeros((7, 2 * SMALL.n_pucs))
    currents[:, heater] = np.linspace(0.3, 2.1, 7)
    own, turned = (
        model.heating.phases(each, currents).arm_rad[:, heater]
        for each in (plain, replace(plain, extra_physics={"law_deviation": at_points.ravel()}))
    )
    # 1 % more for every sixth of a turn, up to the last point.
    share = 0.01 * np.minimum(own / (np.pi / 3.0), LAW_POINTS)
    assert own[-1] > np.pi / 3.0 * LAW_POINTS > own[-2]
    np.testing.assert_allclose(turned, own * (1.0 + share), rtol=1e-12)


def test_the_slope_of_a_weighed_sum_has_all_rows_in_it(small: SimulatedMesh) -> None:
    model = MeshModel(SMALL, small.ports, small.ports).with_physics(_physics(*ROWS))
    settings, parameters = _settings(small, small.ports), model.space.unpack(_drawn(model, small.parameters()))
    weight = np.random.default_rng(4).standard_normal(settings.reading_ma.shape)
    terms = [
        part.jacobian * weight[part.settings][..., None]
        for part in model.with_double_precision().linearise(parameters, settings)
    ]
    expected = np.concatenate(terms).sum(axis=(0, 1))
    slope = model.slope(parameters, settings, weight)
    for name, where in model.space.groups.items():
        # Pairs are kept in single precision.
        share = 1e-5 if name == "crosstalk_pairs" else 1e-10
        np.testing.assert_allclose(slope[where], expected[where], rtol=0.0, atol=share * np.abs(expected[where]).max())


def test_facets_send_back_what_a_sum_over_all_echoes_says_those_of_dark_ports_too(small: SimulatedMesh) -> None:
    monitors = small.ports[:5]
    settings = _settings(small, monitors)
    plain = replace(small.parameters(), monitor_ma_per_mw=small.parameters().monitor_ma_per_mw[:5])
    model = MeshModel(SMALL, small.ports, monitors).with_physics(_physics("facet_reflection"))
    vector = _drawn(model, plain, 5.0)
    parts = np.split(vector[model.space.groups["facet_reflection"]], 2)
    sent_back = parts[0] + 1j * parts[1]
    predicted = model.predict(model.space.unpack(vector), settings)
    # Fields between all ports, from a model that knows no reflections.
    bare = MeshModel(SMALL, small.ports, monitors)
    plain = bare.space.unpack(bare.space.pack(plain))  # phases as the vector holds them: facets are in that gauge
    cells, _ = bare._cells(plain, settings, bare._sources_of(settings))
    between = bare._solver.solve(cells, cells.reference_hz)
    leaving = np.linalg.solve(np.eye(SMALL.n_ports) - between * sent_back, between)
    there = leaving[np.arange(len(settings)), :, settings.source][:, list(monitors)]
    expected = np.abs(there) ** 2 * bare._scale(plain, bare._sources_of(settings))
    np.testing.assert_allclose(predicted, expected, rtol=1e-6)
    # Without those of the dark ports it would be other light.
    silent = vector.copy()
    dark = [port for port in range(SMALL.n_ports) if port not in small.ports[:5]]
    silent[model.space.groups["facet_reflection"].start + np.array(dark)] = 0.0
    without = model.predict(model.space.unpack(silent), settings)
    assert np.abs(without / expected - 1.0).max() > 1e-3


def test_a_gain_deviation_is_linear_in_the_logarithm_of_the_current_and_zero_below_the_levels() -> None:
    deviation = np.zeros(len(GAIN_LEVELS))
    deviation[GAIN_LEVELS == -1.0] = 0.004
    deviation[0] = 0.1
    current_ma = 10.0 ** np.array([[-1.0, -1.125, -1.25, -2.5, -2.625, -2.75, -6.0]])
    response = Response.of({"level_gain": deviation}, current_ma, np.zeros(1, np.int64), np.ones((1, 7)))
    expected = [0.004, 0.002, 0.0, 0.1, 0.05, 0.0, 0.0]
    np.testing.assert_allclose(response.reading_ma / current_ma - 1.0, [expected], atol=1e-12)


def test_physics_that_is_known_is_held_and_has_no_parameters(small: SimulatedMesh) -> None:
    model = MeshModel(SMALL, small.ports, small.ports).with_physics(_physics("compression_per_ma"))
    settings, vector = _settings(small, small.ports), _drawn(model, small.parameters())
    parameters = model.space.unpack(vector)
    held = model.with_physics(Physics(fixed_values=parameters.extra_physics))
    assert held.space.size == MeshModel(SMALL, small.ports, small.ports).space.size
    again = held.space.unpack(vector[: held.space.size])
    np.testing.assert_allclose(held.predict(again, settings), model.predict(parameters, settings), rtol=1e-12)


def test_a_phase_common_to_all_pucs_is_found_however_far_it_turns_loops() -> None:
    rng = np.random.default_rng(2)
    for common in (0.3, 1.4, 2.0944, 3.0, -2.5):
        small = 1e-3 * rng.standard_normal(len(SMALL.joints))
        turns = 2.0 * np.pi * rng.integers(-2, 3, len(SMALL.joints))
        found = common_phase_rad(SMALL, small + turns + common)
        # Loops have even numbers of PUCs: half a turn of each is no difference.
        assert abs((found - common + 0.5 * np.pi) % np.pi - 0.5 * np.pi) < 2e-3
        assert np.abs(gauge_fixed_difference(SMALL, small + turns + common - found)).max() < 0.02


@pytest.mark.parametrize("wait_s", [1e-3, 1.0], ids=["set a millisecond before", "set once the last was read"])
def test_what_is_late_is_what_each_time_constant_has_left_of_the_settings_before(wait_s: float) -> None:
    """Two steps by hand: 3 mA from rest, read at 10 ms, 1 mA, read at 25 ms; squares, fourth and sixth powers."""
    currents, taken_s = np.array([[0.0], [3.0], [1.0]]), np.array([0.0, 10e-3, 25e-3])
    late = late_powers(currents, taken_s, wait_s)
    one_s, two_s = min(wait_s, 10e-3), min(wait_s, 15e-3)
    for number, tau_s in enumerate(SLOW_TAUS_S):
        for power, above in enumerate((9.0, 81.0, 729.0)):
            first = above * (1.0 - np.exp(-one_s / tau_s))
            still = above + (first - above) * np.exp(-(15e-3 - two_s) / tau_s)
            second = 1.0 + (still - 1.0) * np.exp(-two_s / tau_s)
            np.testing.assert_allclose(late[:, 0, number, power], [0.0, first - above, second - 1.0], atol=1e-12)


def test_it_is_heat_that_comes_late_and_not_squared_current(small: SimulatedMesh) -> None:
    """A heater switched off after 3 mA: its arm still has the share of the whole law at 3 mA, bend included."""
    model = MeshModel(SMALL, small.ports, small.ports).with_physics(_physics("slow_heat_share"))
    parameters = model.space.unpack(model.space.pack(small.parameters()))
    parameters.extra_physics["slow_heat_share"][:] = [0.0, 0.01, 0.0]
    currents = np.zeros((2, 2 * SMALL.n_pucs))
    currents[0, 5] = 3.0
    # At rest for long before it is switched off, and read at once: all of the share is left.
    late = late_powers(np.concatenate([currents[:1], currents]), np.array([0.0, 10.0, 20.0]), 1e-9)[1:]
    phases = model.heating.phases(parameters, currents, late)
    rho2, rho4, rho6 = parameters.heater_law[5]
    warm = rho2 * 9.0 + rho4 * 81.0 + rho6 * 729.0
    assert phases.arm_rad[0, 5] == pytest.approx(warm, rel=1e-6)
    assert phases.arm_rad[1, 5] == pytest.approx(0.01 * warm, rel=1e-6)
    assert rho4 * 81.0 > 0.05 * warm  # a bend that shows


def test_pairs_beside_the_directions_fitted_spread_readings_by_what_is_left_of_all_pairs() -> None:
    rng = np.random.default_rng(9)
    pairs = _pairs(rng)
    by_waveguide = rng.standard_normal((2, 3, WAVEGUIDES))
    heat_mw = rng.uniform(-1.0, 1.0, (2, 2 * SMALL.n_pucs))
    # What each reading does for a relative deviation of every pair, heaters first as in the directions.
    by_pair = np.einsum("nmw,wh,nh->nmhw", by_waveguide, pairs.curve_rad_per_mw, heat_mw).reshape(2, 3, -1)
    directions = pairs.vectors.reshape(-1, pairs.count).astype(np.float64)
    left = by_pair - (by_pair @ directions) @ directions.T
    np.testing.assert_allclose(pairs.unfitted_variance(by_waveguide, heat_mw), (left**2).sum(axis=-1), rtol=1e-3)


def test_readings_are_spread_by_heat_that_changes_and_not_by_heat_that_stays(small: SimulatedMesh) -> None:
    """What pairs do alike in all settings goes into the passive phases."""
    model = MeshModel(SMALL, small.ports, small.ports).with_physics(_physics("crosstalk_pairs"))
    settings, parameters = _settings(small, small.ports), model.space.unpack(_drawn(model, small.parameters()))
    same = replace(settings, currents_ma=np.tile(settings.currents_ma[:1], (len(settings), 1)))
    spread, still = (model.unmodelled_ma2(parameters, each) for each in (settings, same))
    assert spread is not None
    assert still is not None
    assert still.max() < 1e-12 * spread.max()
    wider = model.with_physics(model.space.physics.having("crosstalk_pairs", 0.3)).unmodelled_ma2(parameters, settings)
    assert wider is not None
    np.testing.assert_allclose(wider, 9.0 * spread)
    plain = MeshModel(SMALL, small.ports, small.ports)
    assert plain.unmodelled_ma2(small.parameters(), settings) is None
