from __future__ import annotations

import numpy as np
import pytest
from solver_probe import LAW, MAX_MA, SolverProbe, every_port, wrapped

from calibration.knowledge import COMMON_STEPS_RAD, Knowledge, PucKnowledge
from lumion_hw.errors import LimitError
from lumion_hw.mesh.topology import HexMesh, State

MESH = HexMesh.columns([2])


def states_of(seed: int) -> dict[int, State]:
    bar = np.random.default_rng(seed).random(MESH.n_pucs) < 0.5
    return {puc: "bar" if bar[puc] else "cross" for puc in range(MESH.n_pucs)}


def arm_phases(currents_ma: np.ndarray) -> np.ndarray:
    """Return the heater phases, shape (n_pucs, 2)."""
    return np.array([LAW.phase_rad(current) for current in currents_ma]).reshape(-1, 2)


@pytest.mark.parametrize("seed", range(6))
def test_a_setting_sends_light_where_its_states_say(seed: int) -> None:
    probe, states = SolverProbe(MESH, every_port(MESH), seed=seed), states_of(seed)
    currents = probe.knowledge().setting(states, np.random.default_rng(seed))
    for source in (0, 5, 11):
        trace = MESH.trace(source, states)
        power = probe.transmission(currents, source)
        assert power[trace.port] == pytest.approx(10 ** (-0.05 * len(trace.pucs)), rel=1e-6)
        assert np.delete(power, trace.port).max() < 1e-9


def test_random_common_phases_move_the_strays_but_not_the_states() -> None:
    probe = SolverProbe(MESH, every_port(MESH))
    known, rng = probe.knowledge(), np.random.default_rng(0)
    settings = [known.setting(states_of(1), rng) for _ in range(40)]
    common = np.array([arm_phases(currents).min(axis=1) for currents in settings])
    for step in COMMON_STEPS_RAD:
        assert np.isclose(common, step, atol=1e-6).mean() == pytest.approx(1 / 3, abs=0.08)
    assert np.abs(np.exp(1j * np.array(COMMON_STEPS_RAD)).mean()) < 1e-12
    assert np.abs(np.exp(2j * np.array(COMMON_STEPS_RAD)).mean()) < 1e-12


def test_known_pucs_without_a_wish_take_either_state() -> None:
    probe = SolverProbe(MESH, every_port(MESH))
    known, rng = probe.knowledge(), np.random.default_rng(0)
    differences = []
    for _ in range(60):
        phases = arm_phases(known.setting({0: "bar"}, rng))
        differences.append(wrapped(phases[:, 0] - phases[:, 1] + probe.passive_rad))
    is_bar, is_cross = (np.isclose(np.abs(differences), angle, atol=1e-6) for angle in (np.pi, 0.0))
    assert np.all(is_bar | is_cross)
    assert np.all(is_bar[:, 0])
    assert is_bar[:, 1:].mean() == pytest.approx(0.5, abs=0.06)


def test_unknown_pucs_are_driven_at_random_and_within_limits() -> None:
    probe = SolverProbe(MESH, every_port(MESH))
    known, rng = probe.knowledge(pucs=range(5)), np.random.default_rng(0)
    settings = np.array([known.setting({}, rng) for _ in range(200)])
    unknown = settings[:, 10:]
    assert settings.min() >= 0.0
    assert settings.max() <= MAX_MA
    # Uniform in I², at least one turn and a half of a typical heater: 2 rad/mA² · 6.25 mA² · share.
    squares = unknown**2
    assert squares.max() * 2.0 > 2 * np.pi
    assert squares.mean() == pytest.approx(squares.max() / 2, rel=0.05)


def test_the_puc_under_test_stays_cold() -> None:
    probe = SolverProbe(MESH, every_port(MESH))
    for known in (probe.knowledge(), probe.knowledge(pucs=())):
        currents = known.setting(states_of(0), np.random.default_rng(0), without=4)
        assert not currents[8:10].any()
        assert currents[10:].any()


def test_the_same_random_numbers_give_the_same_setting() -> None:
    probe = SolverProbe(MESH, every_port(MESH))
    one, same = (probe.knowledge().setting(states_of(0), np.random.default_rng(5)) for _ in range(2))
    np.testing.assert_array_equal(one, same)


def test_better_knowledge_is_used_at_once() -> None:
    probe = SolverProbe(MESH, every_port(MESH))
    known = probe.knowledge()
    known.pucs[3] = PucKnowledge(float(probe.passive_rad[3]) + 0.4, 0.1)
    known.setting({3: "bar"}, np.random.default_rng(0))
    known.pucs[3] = PucKnowledge(float(probe.passive_rad[3]), 0.01)
    phases = arm_phases(known.setting({3: "bar"}, np.random.default_rng(0)))[3]
    assert abs(wrapped(phases[0] - phases[1] + probe.passive_rad[3])) == pytest.approx(np.pi, abs=1e-6)


def test_heat_can_be_asked_for_before_the_passive_phase_is_known() -> None:
    known = Knowledge(MESH, MAX_MA)
    known.laws[8] = known.laws[9] = LAW
    up, down = known.heat_currents(4, 1.0, 0.5)
    assert (LAW.phase_rad(up), LAW.phase_rad(down)) == (pytest.approx(1.5), pytest.approx(0.5))


def test_a_dead_heater_is_never_driven() -> None:
    known = Knowledge(MESH, MAX_MA)
    known.laws[8], known.laws[9] = None, LAW
    known.pucs[4] = PucKnowledge(0.7, 0.01)
    for _ in range(10):
        currents = known.setting({4: "bar"}, np.random.default_rng(0))
        assert currents[8] == 0.0
        assert LAW.phase_rad(currents[9]) == pytest.approx((0.7 - np.pi) % (2 * np.pi))
    known.laws[9] = None
    with pytest.raises(LimitError):
        known.differential_currents(4, np.pi, 0.0)


def test_what_is_neither_known_nor_given_up_is_unknown() -> None:
    known = Knowledge(MESH, MAX_MA)
    known.pucs[3] = PucKnowledge(0.0, 0.1)
    known.stuck[5] = "neither heater has any effect on the light"
    assert known.unknown == set(range(15)) - {3, 5}
