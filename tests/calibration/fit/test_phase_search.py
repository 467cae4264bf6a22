"""Random settings alone show passive phases and loops: by correlation first, then by a search."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from calibration.fit.phase_search import (
    Levels,
    PassiveGuess,
    PhaseSearch,
    SearchPlan,
    SearchResult,
    guess_passive_phases,
    is_same_valley,
    mean_levels,
)
from calibration.model.gauge import loop_rms_rad, wrapped
from calibration.model.heating import Heating
from calibration.model.ideal_mesh import AmplitudeModel, MeanLight
from calibration.model.observations import NoiseModel, Observations
from lumion_hw.emulator.optics.physics_parameters import PhysicsParameters
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.layout.topologies import build_mesh
from lumion_hw.mesh.waves.cell import UnitCells
from lumion_hw.mesh.waves.scattering import Solver
from tests.calibration.simulated_mesh import FLOOR_MA, RELATIVE, SimulatedMesh

SMALL = HexMesh.columns((1, 2, 1))
PAIR = HexMesh.columns((2,))
WHOLE = HexMesh.smartlight()
NOISE = NoiseModel(RELATIVE, FLOOR_MA)


def _searched(
    simulated: SimulatedMesh,
    count: int,
    common_rad: float = 0.0,
    dim: int | None = None,
    plan: SearchPlan | None = None,
    seed_result: SearchResult | None = None,
    max_work: float = math.inf,
) -> tuple[PassiveGuess, SearchResult]:
    """Search with true heater laws; every source's light may have a common phase of its own, a monitor may be dim."""
    mesh, sources = simulated.mesh, np.array(simulated.ports)
    rng = np.random.default_rng(8)
    currents, _ = simulated.random_settings(count)
    number = np.arange(count) * len(sources) // count
    common = common_rad * rng.standard_normal(len(sources))
    seen = simulated.measure(currents, sources[number], common_rad=common[number])
    if dim is not None:
        column = seen.reading_ma[:, dim]
        column[column < np.quantile(column, 0.6)] = 0.0
    light, heated = MeanLight.of(mesh), Heating(mesh).phases(simulated.parameters(), currents)
    levels = mean_levels(seen, simulated.ports, light)
    guess = guess_passive_phases(seen, heated.arm_rad, simulated.ports, light, levels)
    model = AmplitudeModel(mesh, simulated.ports, simulated.ports)
    plan = plan or SearchPlan(source_phase_rad=common_rad)
    search = PhaseSearch(model, seen, number, heated.arm_rad, heated.joint_rad, NOISE, plan, rng)
    return guess, search.run(guess, levels, lambda step, share: None, seed_result=seed_result, max_work=max_work)


def test_a_search_that_ends_where_another_did_makes_no_more_starts() -> None:
    """Nothing explains every photon: asked for that, a search makes more starts, unless one says where it ended."""
    simulated = SimulatedMesh.draw(SMALL, 2)
    plan = SearchPlan(plausible=0.0, starts=2, portion=100, steps=60)
    found = _searched(simulated, 200, plan=plan)[1]
    elsewhere = replace(found, passive_rad=found.passive_rad + 1.0)
    assert [_searched(simulated, 200, plan=plan, seed_result=each)[1].starts for each in (found, elsewhere)] == [1, 2]


def test_a_search_begins_no_start_beyond_the_work_it_may_take() -> None:
    simulated = SimulatedMesh.draw(SMALL, 2)
    plan = SearchPlan(plausible=0.0, starts=3, portion=100, steps=60)
    one = _searched(simulated, 200, plan=replace(plan, starts=1))[1].work
    starts = [_searched(simulated, 200, plan=plan, max_work=share * one)[1].starts for share in (0.5, 1.5)]
    assert starts == [1, 2]


def _passive_errors_rad(simulated: SimulatedMesh, found_rad: np.ndarray) -> np.ndarray:
    return np.abs(wrapped(found_rad - simulated.truth.passive_phase))


def test_derivatives_of_amplitudes_are_those_of_finite_differences() -> None:
    rng, monitors = np.random.default_rng(1), SMALL.fibre_ports
    model = AmplitudeModel(SMALL, monitors, monitors)
    upper, lower = rng.uniform(0.0, 6.0, (2, 3, SMALL.n_pucs))
    joint = rng.uniform(0.0, 6.0, len(SMALL.joints))
    source, monitor = np.array([0, 4, 9]), np.array([[1, 2], [4, 0], [3, 9]])
    _, slope = model.linearise(upper, lower, joint, source, monitor)
    step = 1e-6
    for index in (0, 5, SMALL.n_pucs - 1):
        moved = upper.copy()
        moved[:, index] += step
        change = model.linearise(moved, lower, joint, source, monitor)[0]
        moved[:, index] -= 2 * step
        change -= model.linearise(moved, lower, joint, source, monitor)[0]
        np.testing.assert_allclose(slope[..., index], change / (2 * step), atol=2e-5)
    for index in (0, 7, len(joint) - 1):
        moved = joint.copy()
        moved[index] += step
        change = model.linearise(upper, lower, moved, source, monitor)[0]
        moved[index] -= 2 * step
        change -= model.linearise(upper, lower, moved, source, monitor)[0]
        np.testing.assert_allclose(slope[..., SMALL.n_pucs + index], change / (2 * step), atol=2e-5)


def test_two_ports_lit_together_add_by_power_and_so_do_their_slopes() -> None:
    ports, rng = SMALL.fibre_ports[:8], np.random.default_rng(3)
    pair = AmplitudeModel(SMALL, ports[:2], ports, {ports[0]: ports[4]})
    alone = AmplitudeModel(SMALL, ports, ports)
    second = np.array([0.8, 0.0])
    upper, lower = rng.uniform(0.0, 6.0, (2, 2, SMALL.n_pucs))
    joint = rng.uniform(0.0, 6.0, len(SMALL.joints))
    source, monitor = np.array([0, 1]), np.array([[2, 3], [5, 6]])
    found, slope = pair.linearise(upper, lower, joint, source, monitor, second)
    first = alone.linearise(upper, lower, joint, np.array([0, 1]), monitor)[0]
    beside = alone.linearise(upper, lower, joint, np.array([4, 1]), monitor)[0]
    np.testing.assert_allclose(found, np.hypot(first, second[:, None] * beside), rtol=1e-9)
    every = pair.predict(upper[:1], lower[:1], joint, 0, monitor[:1], second)
    np.testing.assert_allclose(every, found[:1], rtol=1e-9)

    def amplitude(turned: float, joined: float, more: float) -> np.ndarray:
        return pair.linearise(upper + turned, lower, joint + joined, source, monitor, second * np.exp(more))[0]

    step, n_pucs = 1e-6, SMALL.n_pucs
    for index, where in enumerate((slice(0, n_pucs), slice(n_pucs, -1), slice(-1, None))):
        moved = [step * (index == one) for one in range(3)]
        change = (amplitude(*moved) - amplitude(*(-one for one in moved))) / (2 * step)
        np.testing.assert_allclose(slope[..., where].sum(axis=-1), change, atol=1e-4)


def test_amplitudes_are_those_of_the_solver() -> None:
    rng, ports = np.random.default_rng(2), SMALL.fibre_ports
    upper, lower = rng.uniform(0.0, 6.0, (2, 1, SMALL.n_pucs))
    joint = rng.uniform(0.0, 6.0, len(SMALL.joints))
    half = np.full(SMALL.n_pucs, 0.5)
    cells = UnitCells(half, half, half, upper, lower, joint)
    expected = np.abs(Solver(SMALL).solve(cells, cells.reference_hz, [ports[3]])[0, list(ports), 0])
    model, every = AmplitudeModel(SMALL, ports, ports), np.arange(len(ports))[None]
    np.testing.assert_allclose(model.predict(upper, lower, joint, 3, every)[0], expected, rtol=1e-9)
    np.testing.assert_allclose(model.linearise(upper, lower, joint, np.array([3]), every)[0][0], expected, rtol=1e-9)


@pytest.mark.parametrize(("layout", "size"), [("square", (2, 2)), ("triangular", (2, 3))])
def test_phases_are_found_although_light_from_a_port_reaches_half_of_the_ports(
    layout: str, size: tuple[int, int]
) -> None:
    simulated = SimulatedMesh.draw(build_mesh(layout, size), 1)
    _, found = _searched(simulated, 300)
    assert _passive_errors_rad(simulated, found.passive_rad).max() < 0.15
    assert loop_rms_rad(simulated.mesh, found.joint_rad - simulated.truth.joint_phase) < 0.1


@pytest.mark.long
def test_correlation_finds_most_passive_phases_at_once() -> None:
    simulated = SimulatedMesh.draw(WHOLE, 3)
    guess, _ = _searched(simulated, 400)
    errors = _passive_errors_rad(simulated, guess.passive_rad)
    assert np.median(errors) < 0.4
    assert np.median(errors[guess.strength > 5.0]) < 0.25


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_four_hundred_random_settings_show_all_phases_and_loops(seed: int) -> None:
    simulated = SimulatedMesh.draw(WHOLE, seed)
    _, found = _searched(simulated, 400)
    assert _passive_errors_rad(simulated, found.passive_rad).max() < 0.15
    assert loop_rms_rad(WHOLE, found.joint_rad - simulated.truth.joint_phase) < 0.05
    assert found.unexplained < 0.0025
    source_db = 10.0 * np.log10(found.levels.source / 0.8)
    assert np.sqrt(np.mean((source_db - simulated.source_db[list(simulated.ports)]) ** 2)) < 0.5


@pytest.mark.long
def test_sources_of_slightly_different_wavelength_are_told_apart() -> None:
    # Module wavelengths within 0.05 nm, 6 GHz: 0.44 rad per PUC of 11.25 ps.
    simulated = SimulatedMesh.draw(SMALL, 2, PhysicsParameters(crosstalk=False))
    _, found = _searched(simulated, 500, common_rad=0.44)
    assert found.unexplained < 0.0025
    assert _passive_errors_rad(simulated, found.passive_rad).max() < 0.15


def _with_lasers(
    simulated: SimulatedMesh, sources: tuple[int, ...], off_rad: np.ndarray, count: int, draw: int, plan: SearchPlan
) -> SearchResult:
    """Search in the light of lasers whose common phases are given, by as many settings of each."""
    mesh, currents = simulated.mesh, simulated.random_settings(count)[0]
    number = np.arange(count) * len(sources) // count
    seen = simulated.measure(currents, np.array(sources)[number], common_rad=off_rad[number])
    light, heated = MeanLight.of(mesh), Heating(mesh).phases(simulated.parameters(), currents)
    levels = mean_levels(seen, sources, light)
    guess, model = (
        guess_passive_phases(seen, heated.arm_rad, sources, light, levels),
        AmplitudeModel(mesh, sources, seen.monitors),
    )
    rng = np.random.default_rng(draw)
    search = PhaseSearch(model, seen, number, heated.arm_rad, heated.joint_rad, NOISE, plan, rng)
    return search.run(guess, levels, lambda step, share: None)


def _assert_lasers_and_loops(simulated: SimulatedMesh, found: SearchResult, off_rad: np.ndarray) -> None:
    apart = found.source_phase_rad - found.source_phase_rad[0] - (off_rad - off_rad[0])
    # Half a turn per PUC is none on loops of an even number.
    np.testing.assert_allclose((apart + 0.5 * np.pi) % np.pi, 0.5 * np.pi, atol=0.1)
    # A phase common to all sources is one of the loops'.
    loops = found.joint_rad + found.source_phase_rad[0] - off_rad[0] - simulated.truth.joint_phase
    assert loop_rms_rad(simulated.mesh, loops) < 0.1


@pytest.mark.long
def test_a_laser_far_from_the_others_is_found_by_every_draw() -> None:
    """Two cells, three lasers, one at two standard deviations: valleys a sixth of a turn off catch most first loops."""
    simulated, off_rad = SimulatedMesh.draw(PAIR, 1), np.array([-0.1, 0.9, -0.1])
    for draw in range(2):
        found = _with_lasers(simulated, (1, 6, 11), off_rad, 864, draw, SearchPlan(source_phase_rad=0.44))
        _assert_lasers_and_loops(simulated, found, off_rad)


@pytest.mark.long
@pytest.mark.parametrize("seed", [2, pytest.param(7, marks=pytest.mark.campaign)])
def test_lasers_in_two_groups_a_valley_apart_are_told_apart_by_one_start(seed: int) -> None:
    """Eight lasers round 72 PUCs: a third of all starts end with those of one side a sixth of a turn off."""
    simulated, sources = SimulatedMesh.draw(WHOLE, seed), (1, 2, 5, 7, 12, 20, 35, 37)
    off_rad = np.random.default_rng(100 + seed).normal(0.0, 0.44, len(sources))
    found = _with_lasers(simulated, sources, off_rad, 490, 0, SearchPlan(source_phase_rad=0.44, starts=1))
    _assert_lasers_and_loops(simulated, found, off_rad)


def test_with_phases_found_by_one_laser_the_others_are_told_apart_at_once() -> None:
    simulated, lit = SimulatedMesh.draw(SMALL, 2), SMALL.fibre_ports[:8:2]
    rng, apart_rad = np.random.default_rng(8), np.array([0.0, 0.9, -0.6, 0.3])
    currents, _ = simulated.random_settings(400)
    number = np.maximum(np.arange(400) - 200, 0) * len(lit) // 200  # most of the light is the first one's
    seen = simulated.measure(currents, np.array(lit)[number], common_rad=apart_rad[number])
    light, heated = MeanLight.of(SMALL), Heating(SMALL).phases(simulated.parameters(), currents)
    levels = mean_levels(seen, lit, light)
    guess = guess_passive_phases(seen, heated.arm_rad, lit, light, levels)

    def among(count: int, plan: SearchPlan) -> PhaseSearch:
        own = np.flatnonzero(number < count)
        given = seen[own], number[own], heated.arm_rad[own], heated.joint_rad[own]
        return PhaseSearch(AmplitudeModel(SMALL, lit[:count], simulated.ports), *given, NOISE, plan, rng)

    alone = among(1, SearchPlan()).run(guess, levels.first_source_only(), lambda step, share: None)
    assert _passive_errors_rad(simulated, alone.passive_rad).max() < 0.4
    search = among(len(lit), SearchPlan(source_phase_rad=0.4))
    before = search.add_other_lasers(alone, levels)
    assert np.abs(wrapped(before.source_phase_rad - apart_rad)).max() < np.pi / 6.0  # no valley off
    found = search.run(guess, levels, lambda step, share: None, before)
    assert found.starts == 1
    apart = found.source_phase_rad - found.source_phase_rad[0]
    assert np.abs(wrapped(apart - apart_rad)).max() < 0.1


def test_a_plan_grows_with_a_mesh_beyond_twice_the_usual_one() -> None:
    plan = SearchPlan(source_phase_rad=0.4)
    assert plan.on(72) is plan.on(138) is plan
    large = plan.on(288)
    assert (large.portion, large.monitors, large.steps) == (400, 28, 300)
    assert large.plausible == pytest.approx(4.0 * plan.plausible)
    assert large.one_laser_first
    assert not SearchPlan().on(288).one_laser_first  # one laser has nothing to be told apart


def test_readings_that_nothing_explains_are_not_explained() -> None:
    simulated = SimulatedMesh.draw(SMALL, 2)
    currents, source = simulated.random_settings(200)
    order = np.argsort(source, kind="stable")
    seen = simulated.measure(currents, source)
    nonsense = Observations(np.roll(currents, 1, axis=1), source, seen.monitors, seen.reading_ma, seen.saturated)[order]
    light, ports = MeanLight.of(SMALL), simulated.ports
    heated = Heating(SMALL).phases(simulated.parameters(), nonsense.currents_ma)
    levels = mean_levels(nonsense, ports, light)
    guess = guess_passive_phases(nonsense, heated.arm_rad, ports, light, levels)
    number, model = np.searchsorted(ports, nonsense.source), AmplitudeModel(SMALL, ports, ports)
    plan = SearchPlan(steps=60, starts=2)
    search = PhaseSearch(
        model, nonsense, number, heated.arm_rad, heated.joint_rad, NOISE, plan, np.random.default_rng(1)
    )
    found = search.run(guess, levels, lambda step, share: None)
    assert found.starts == 2
    assert found.unexplained > 0.02


def test_a_monitor_that_reads_nothing_in_most_settings_does_not_spoil_the_search() -> None:
    """One in a corner that little light reaches, its steps larger than most of that."""
    simulated = SimulatedMesh.draw(SMALL, 2, PhysicsParameters(crosstalk=False))
    _, found = _searched(simulated, 500, dim=3)
    assert found.unexplained < 0.0025
    assert _passive_errors_rad(simulated, found.passive_rad).max() < 0.15


def test_searches_end_in_the_same_valley_only_with_the_same_phases_and_the_same_light_left_over() -> None:
    rng = np.random.default_rng(3)
    passive = rng.uniform(0.0, 2.0 * np.pi, 72)
    one = SearchResult(passive, np.zeros(52), np.zeros(8), Levels(np.ones(8), np.ones(28)), np.zeros(124), 0.01, 60, 1)
    near = replace(one, passive_rad=np.mod(passive + rng.normal(0.0, 0.05, 72), 2.0 * np.pi))
    assert is_same_valley(one, near)
    assert not is_same_valley(one, replace(near, unexplained=0.011))  # other loops
    assert not is_same_valley(one, replace(one, passive_rad=passive + np.where(np.arange(72) < 20, 1.0, 0.0)))
