"""Retarders on the Poincaré sphere, against Jones calculus and numbers calculated by hand."""

import numpy as np
import pytest

from lumion_hw.polarization.retarders import (
    S1,
    S2,
    S3,
    DrivenChain,
    RetarderChain,
    accepted_share,
    turn_matrix,
)
from tests.polarization.plates import rotating_plate

PAULI = np.array([[[1, 0], [0, -1]], [[0, 1], [1, 0]], [[0, -1j], [1j, 0]]])


def random_states(count: int, seed: int = 1) -> np.ndarray:
    states = np.random.default_rng(seed).standard_normal((count, 3))
    return states / np.linalg.norm(states, axis=1, keepdims=True)


def test_a_quarter_turn_goes_round_right_handed() -> None:
    assert turn_matrix(S1, np.pi / 2) @ S2 == pytest.approx(S3)
    assert turn_matrix(S2, np.pi / 2) @ S3 == pytest.approx(S1)
    assert turn_matrix(S3, np.pi / 2) @ S1 == pytest.approx(S2)


def test_a_retarder_does_in_stokes_space_what_its_jones_matrix_does() -> None:
    """The Jones matrix exp(-i φ n·σ/2) turns s by φ about n, σ the Pauli matrices in the order S1, S2, S3."""
    rng = np.random.default_rng(2)
    field = rng.standard_normal(2) + 1j * rng.standard_normal(2)
    field /= np.linalg.norm(field)
    axis, angle = random_states(1, seed=3)[0], 1.234
    jones = np.cos(angle / 2) * np.eye(2) - 1j * np.sin(angle / 2) * np.tensordot(axis, PAULI, axes=1)

    def stokes(vector: np.ndarray) -> np.ndarray:
        return np.array([(vector.conj() @ pauli @ vector).real for pauli in PAULI])

    assert turn_matrix(axis, angle) @ stokes(field) == pytest.approx(stokes(jones @ field))


def test_squeezers_at_0_45_0_45_degrees_turn_about_s1_s2_s1_s2() -> None:
    for index, axis in enumerate([S1, S2, S1, S2]):
        turned = RetarderChain(4).turn(0.7 * np.eye(4)[index], np.eye(3))
        assert turned == pytest.approx(turn_matrix(axis, 0.7).T)


@pytest.mark.parametrize(("error_rad", "loss_db"), [(0.05, 0.003), (0.1, 0.011), (0.2, 0.044), (0.3, 0.098)])
def test_an_error_on_the_sphere_costs_what_the_table_says(error_rad: float, loss_db: float) -> None:
    share = accepted_share(turn_matrix(S3, error_rad) @ S1, S1)
    assert -10 * np.log10(share) == pytest.approx(loss_db, abs=6e-4)


@pytest.mark.parametrize(("error_rad", "leak_db"), [(0.01, -46.0), (0.1, -26.0), (0.3, -16.5)])
def test_an_error_leaks_into_the_null_what_the_table_says(error_rad: float, leak_db: float) -> None:
    share = accepted_share(-(turn_matrix(S3, error_rad) @ S1), S1)
    assert 10 * np.log10(share) == pytest.approx(leak_db, abs=0.05)


def test_crosstalk_and_depolarized_light_bound_the_swing() -> None:
    assert accepted_share(-S1, S1, crosstalk=0.01) == pytest.approx(0.01)
    assert accepted_share(S1, S1, crosstalk=0.01) == pytest.approx(0.99)
    for state in (S1, -S1, S3):
        assert accepted_share(state, S1, dop=0.0, crosstalk=0.01) == pytest.approx(0.5)


def test_of_random_states_a_tenth_lose_more_than_10_db() -> None:
    share = accepted_share(random_states(10_000), S2)
    assert np.mean(-10 * np.log10(share) > 10.0) == pytest.approx(0.10, abs=0.01)  # (1 + s·t)/2 is uniform: 10^(-L/10)


def test_a_half_wave_plate_has_the_fourth_harmonic_only_and_any_other_the_second_as_well() -> None:
    """Harmonics 2θ and 4θ (docs/polarization.md, "Three readings")."""
    angle = np.arange(64) / 64 * 2 * np.pi
    light, taken = random_states(2, seed=4)

    def harmonics(retardance: float) -> set[int]:
        spectrum = np.abs(np.fft.rfft(accepted_share(rotating_plate(angle, retardance) @ light, taken))) / 64
        return {int(order) for order in np.flatnonzero(spectrum > 1e-9)} - {0}

    assert harmonics(np.pi) == {4}
    assert harmonics(np.pi / 2) == {2, 4}


@pytest.mark.parametrize("squeezers", [2, 3, 4, 5])
def test_the_slopes_of_a_driven_chain_are_the_differences_of_its_overlap(squeezers: int) -> None:
    chain, rng = RetarderChain(squeezers), np.random.default_rng(5)
    light, taken = random_states(7, seed=5), random_states(7, seed=6)
    phases, offsets = rng.uniform(-3, 3, (4, squeezers)), rng.uniform(-3, 3, (7, squeezers))
    offsets[:, [0, -1]] = 0.0

    def retardances(offsets: np.ndarray) -> np.ndarray:
        return phases[:, None] + offsets

    states = np.hstack([light, taken]).T
    overlap, slopes, by_states = DrivenChain(chain, phases).overlap_and_slopes(states, offsets.T)
    turned = chain.turn(retardances(offsets), light)
    assert overlap == pytest.approx((taken * turned).sum(axis=-1))
    assert overlap == pytest.approx(chain.overlap(np.moveaxis(retardances(offsets), -1, 0), light, taken))
    assert by_states[3:] == pytest.approx(np.moveaxis(turned, -1, 0))
    for axis in range(3):
        ahead = np.moveaxis(chain.turn(retardances(offsets), np.eye(3)[axis]), -1, 0)
        assert by_states[axis] == pytest.approx((taken.T[:, None] * ahead).sum(axis=0))
    assert len(slopes) == squeezers - 2
    for index, slope in enumerate(slopes, start=1):
        ahead = retardances(offsets + 1e-6 * np.eye(squeezers)[index])
        assert ((taken * chain.turn(ahead, light)).sum(axis=-1) - overlap) / 1e-6 == pytest.approx(slope, abs=1e-5)


def test_one_setting_of_a_chain_alone_is_what_it_is_among_many() -> None:
    chain, (light, taken) = RetarderChain(4), random_states(2, seed=7)
    phases = np.array([0.3, 1.1, -2.0, 0.7])
    turn, turned, slopes = chain.turn_and_slopes(phases, light)
    assert turned == pytest.approx(chain.turn(phases, light))
    assert turn @ taken == pytest.approx(chain.turn(phases, taken))
    for index in range(4):
        ahead = chain.turn(phases + 1e-6 * np.eye(4)[index], light)
        assert (ahead - turned) / 1e-6 == pytest.approx(slopes[:, index], abs=1e-5)


def test_a_chain_takes_many_settings_and_states_at_once() -> None:
    chain, states = RetarderChain(3), random_states(5)
    phases = np.random.default_rng(6).uniform(-3, 3, (5, 3))
    one_by_one = [chain.turn(each, state) for each, state in zip(phases, states, strict=True)]
    assert chain.turn(phases, states) == pytest.approx(np.stack(one_by_one))
