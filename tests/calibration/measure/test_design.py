"""Settings worth their time: what they cost, what they tell, and when they are enough."""

from __future__ import annotations

import numpy as np
import pytest

from calibration.fit.bound import plan_bound
from calibration.measure.design import DESIGN_GROUPS, Designer, IncrementalSettings
from calibration.measure.logbook import HardwareTimes
from calibration.model.mesh_model import MeshModel
from calibration.model.observations import NoiseModel
from calibration.model.priors import default_prior
from lumion_hw.errors import ConfigError
from lumion_hw.mesh.layout.hexagonal import HexMesh
from tests.calibration.simulated_mesh import FLOOR_MA, FULL_TURN_MA, RELATIVE, SimulatedMesh

SMALL = HexMesh.columns((1, 2, 1))
NOISE = NoiseModel(RELATIVE, FLOOR_MA)
HEATERS = 2 * SMALL.n_pucs


@pytest.fixture(scope="module")
def small() -> SimulatedMesh:
    return SimulatedMesh.draw(SMALL, 4)


@pytest.fixture(scope="module")
def model(small: SimulatedMesh) -> MeshModel:
    return MeshModel(SMALL, small.ports, small.ports)


def _walk(small: SimulatedMesh, **kind: float) -> IncrementalSettings:
    return IncrementalSettings(np.full(HEATERS, FULL_TURN_MA), small.ports, small.ports, **{"changed": 8, **kind})  # type: ignore[arg-type]


def _designer(small: SimulatedMesh, model: MeshModel) -> Designer:
    return Designer(model, small.parameters(), NOISE, default_prior(model.space, small.parameters()))


def test_a_setting_takes_as_long_as_its_channels_take_to_write() -> None:
    """14 ms for one channel, 62.5 ms for 160, 0.3 ms to read (Sánchez-Jácome 2025); settling 0.5 ms."""
    times = HardwareTimes()
    np.testing.assert_allclose(times.setting_s(np.array([0, 1, 160])), [0.0008, 0.0148, 0.0633])
    assert times.setting_s(np.array([80])) == pytest.approx(0.014 + 79 / 159 * 0.0485 + 0.0008)


def test_a_walk_changes_few_heaters_leaves_most_of_them_off_and_lights_all_ports(small: SimulatedMesh) -> None:
    plan = _walk(small, settings_per_source=3).random(300, np.random.default_rng(1))
    changed = (np.diff(plan.currents_ma, axis=0) != 0.0).sum(axis=1)
    assert 0 < changed.max() <= 8
    assert np.mean(plan.currents_ma == 0.0) == pytest.approx(0.7, abs=0.05)
    assert plan.currents_ma.max() <= FULL_TURN_MA
    assert plan.source[:7].tolist() == [0, 0, 0, 1, 1, 1, 2]
    assert set(plan.source.tolist()) == set(small.ports)


def test_the_time_of_a_plan_counts_writes_and_changes_of_the_input(small: SimulatedMesh) -> None:
    plan = _walk(small, settings_per_source=10).random(20, np.random.default_rng(1))
    without, with_changes = HardwareTimes().plan_s(plan), HardwareTimes(input_change_s=2.0).plan_s(plan)
    assert with_changes - without == pytest.approx(4.0)
    assert without == pytest.approx(20 * 0.0165, rel=0.15)


def test_a_heater_that_must_stay_off_does(small: SimulatedMesh) -> None:
    most = np.full(HEATERS, FULL_TURN_MA)
    most[5] = 0.0
    assert (
        not IncrementalSettings(most, small.ports, small.ports)
        .random(50, np.random.default_rng(1))
        .currents_ma[:, 5]
        .any()
    )


def test_cold_heaters_tell_the_passive_phases(small: SimulatedMesh, model: MeshModel) -> None:
    prior = default_prior(model.space, small.parameters())
    warm, half = (
        plan_bound(model, small.parameters(), walk.random(100, np.random.default_rng(2)), NOISE, prior)
        for walk in (_walk(small, off_share=0.0, changed=HEATERS), _walk(small, off_share=0.5))
    )
    assert 2 * half.rms("passive_phase_rad") < warm.rms("passive_phase_rad")


@pytest.mark.campaign
def test_chosen_settings_tell_twice_as_much_as_any_in_the_same_time(small: SimulatedMesh, model: MeshModel) -> None:
    """Information goes as the inverse square of the standard error."""
    ends = [
        np.mean(
            [
                _designer(small, model)
                .choose(_walk(small), 0.8, 1e-9, np.random.default_rng(seed), tries)
                .sigma_rad[-1]
                for seed in range(3)
            ]
        )
        for tries in (1, 8)
    ]
    assert 2.0 * ends[1] ** 2 < ends[0] ** 2


@pytest.mark.long
def test_light_that_costs_much_is_moved_less(small: SimulatedMesh, model: MeshModel) -> None:
    moves = []
    for change_s in (0.0, 2.0):
        prior = default_prior(model.space, small.parameters())
        times = HardwareTimes(input_change_s=change_s)
        designer = Designer(model, small.parameters(), NOISE, prior, times=times)
        design = designer.choose(
            _walk(small, settings_per_source=5), 60.0, 1e-9, np.random.default_rng(1), 4, max_settings=60
        )
        moves.append(int((np.diff(design.plan.source) != 0).sum()))
        assert design.seconds == pytest.approx(times.plan_s(design.plan))
    assert moves[0] >= 5
    assert moves[1] <= moves[0] // 2


def test_what_all_sources_are_off_by_is_no_phase_of_the_mesh(small: SimulatedMesh, model: MeshModel) -> None:
    """A mean frequency that is off by 12 GHz would turn every joint by 2π · 12 GHz · 11.25 ps = 0.85 rad."""
    free = model.space.mask((*DESIGN_GROUPS, "source_detuning_hz"))
    prior = default_prior(model.space, small.parameters())
    plan = _walk(small, off_share=0.5).random(100, np.random.default_rng(1))
    assert plan_bound(model, small.parameters(), plan, NOISE, prior, free).rms("loops") > 0.02
    designer = Designer(model, small.parameters(), NOISE, prior, free)
    designer.add(plan)
    assert designer.sigma_rad() < 0.003


def test_only_what_is_wanted_counts(small: SimulatedMesh, model: MeshModel) -> None:
    wanted = np.zeros(model.space.size, dtype=np.bool_)
    wanted[model.space.group("passive_phase_rad").start + 3] = True
    prior = default_prior(model.space, small.parameters())
    one = Designer(model, small.parameters(), NOISE, prior, wanted=wanted)
    plan = _walk(small).random(50, np.random.default_rng(1))
    one.add(plan)
    bound = plan_bound(model, small.parameters(), plan, NOISE, prior, DESIGN_GROUPS)
    assert one.sigma_rad() == pytest.approx(bound.sigma("passive_phase_rad")[3], rel=0.02)


@pytest.mark.long
def test_a_design_says_what_the_bound_of_its_plan_is(small: SimulatedMesh, model: MeshModel) -> None:
    design = _designer(small, model).choose(_walk(small), 1.0, 1e-9, np.random.default_rng(3), 2)
    prior = default_prior(model.space, small.parameters())
    bound = plan_bound(model, small.parameters(), design.plan, NOISE, prior, DESIGN_GROUPS)
    expected = max(bound.rms("passive_phase_rad"), bound.rms("loops"))
    assert design.sigma_rad[-1] == pytest.approx(expected, rel=0.02)
    assert design.seconds == pytest.approx(HardwareTimes().plan_s(design.plan))
    assert not design.reached
    assert "the time limit does not allow 1e-09 rad" in design.reason


@pytest.mark.long
def test_a_design_stops_when_enough_is_known(small: SimulatedMesh, model: MeshModel) -> None:
    design = _designer(small, model).choose(_walk(small), 60.0, 0.003, np.random.default_rng(3))
    assert design.reached
    assert design.sigma_rad[-1] <= 0.003 < design.sigma_rad[-2]
    more = _designer(small, model)
    more.add(design.plan)
    assert more.sigma_rad() == pytest.approx(design.sigma_rad[-1], rel=1e-6)
    assert more.gain_rad2(design.plan[:3]).shape == (3,)
    assert len(more.choose(_walk(small), 60.0, 0.003, np.random.default_rng(3)).plan) == 0


def test_a_design_needs_something_to_choose_from(small: SimulatedMesh, model: MeshModel) -> None:
    with pytest.raises(ConfigError, match="number of candidate settings is 0"):
        _designer(small, model).choose(_walk(small), 1.0, 1e-3, np.random.default_rng(3), tries=0)


def test_a_chip_with_few_heaters_never_gets_a_setting_with_all_of_them_off() -> None:
    """Such a setting is taken for the reference, and no fit uses it."""
    few = IncrementalSettings(np.array([5.0, 0.0, 5.0]), (0,), (1,), off_share=0.5)
    currents = few.random(200, np.random.default_rng(2)).currents_ma[1:]
    assert currents.any(axis=1).all()
    assert not currents[:, 1].any()
    assert (currents[:, 0] == 0.0).mean() > 0.3  # the share of heaters that are off stays
