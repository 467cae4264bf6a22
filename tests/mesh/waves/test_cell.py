from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from lumion_hw.mesh.waves.cell import BASIC_UNIT_DELAY_S, UnitCells, coupling_floors

F0 = 193.4145e12

angles = st.floats(-10.0, 10.0)
splittings = st.floats(0.0, 0.99)  # the angle asin √η itself loses digits towards 1


def one_cell(**changes: object) -> UnitCells:
    """One ideal lossless cell in cross, with some of its parameters replaced."""
    parts = {
        name: np.atleast_1d(np.asarray(value, dtype=float))
        if name.startswith(("loss", "eta_in", "eta_out", "ph"))
        else value
        for name, value in changes.items()
    }
    return dataclasses.replace(UnitCells.ideal(1, 0, np.zeros(1)), **parts)  # type: ignore[arg-type]


def coupler(eta: float) -> NDArray[np.complex128]:
    """C(η) of docs/calibration.md, 2, written from the definition."""
    through, cross = math.sqrt(1 - eta), math.sqrt(eta)
    return np.array([[through, -1j * cross], [-1j * cross, through]])


# ------------------------------------------------------------------------------------------------------- states, signs


def test_an_unheated_ideal_cell_is_in_the_cross_state() -> None:
    transfer = one_cell().transfer(F0)[0]
    np.testing.assert_allclose(np.abs(transfer), [[0, 1], [1, 0]], atol=1e-15)


def test_half_a_turn_between_the_arms_makes_the_bar_state() -> None:
    transfer = one_cell(phase_upper=math.pi).transfer(F0)[0]
    np.testing.assert_allclose(np.abs(transfer), np.eye(2), atol=1e-15)


def test_ideal_takes_half_the_phase_difference() -> None:
    cells = UnitCells.ideal(3, 5, np.array([0.0, math.pi / 2, math.pi / 4]), loss_db=0.5)
    powers = np.abs(cells.transfer(F0)) ** 2 / 10 ** (-0.5 / 10)
    np.testing.assert_allclose(powers[:, 1, 0], [1.0, 0.0, 0.5], atol=1e-15)
    np.testing.assert_allclose(powers[:, 0, 0], [0.0, 1.0, 0.5], atol=1e-15)
    assert cells.joint_phase.shape == (5,)


@given(upper=angles, lower=angles)
def test_a_balanced_cell_follows_its_closed_form(upper: float, lower: float) -> None:
    """T = -j e^{-jΔ} [[sin θ, cos θ], [cos θ, -sin θ]] for η = ½ (docs/sources.md)."""
    theta, delta = (upper - lower) / 2, (upper + lower) / 2
    expected = (
        -1j * np.exp(-1j * delta) * np.array([[math.sin(theta), math.cos(theta)], [math.cos(theta), -math.sin(theta)]])
    )
    transfer = one_cell(phase_upper=upper, phase_lower=lower).transfer(F0)[0]
    np.testing.assert_allclose(transfer, expected, atol=1e-14)


@given(eta_in=splittings, eta_out=splittings, upper=angles, lower=angles, loss_db=st.floats(0, 3))
def test_any_cell_is_coupler_arms_coupler(
    eta_in: float, eta_out: float, upper: float, lower: float, loss_db: float
) -> None:
    arms = np.diag(np.exp([-1j * upper, -1j * lower]))
    expected = 10 ** (-loss_db / 20) * coupler(eta_out) @ arms @ coupler(eta_in)
    cells = one_cell(eta_in=eta_in, eta_out=eta_out, phase_upper=upper, phase_lower=lower, loss_db=loss_db)
    np.testing.assert_allclose(cells.transfer(F0)[0], expected, atol=1e-14)


@given(eta_in=splittings, eta_out=splittings, upper=angles, lower=angles)
def test_a_lossless_cell_is_unitary(eta_in: float, eta_out: float, upper: float, lower: float) -> None:
    transfer = one_cell(eta_in=eta_in, eta_out=eta_out, phase_upper=upper, phase_lower=lower).transfer(F0)[0]
    np.testing.assert_allclose(transfer.conj().T @ transfer, np.eye(2), atol=1e-14)


def test_half_a_turn_of_theta_keeps_the_powers_but_turns_the_sign() -> None:
    one = one_cell(phase_upper=0.7, phase_lower=0.2).transfer(F0)
    other = one_cell(phase_upper=0.7 + math.pi, phase_lower=0.2 - math.pi).transfer(F0)
    np.testing.assert_allclose(other, -one, atol=1e-14)


@pytest.mark.parametrize("loss_db", [0.0, 0.46, 0.5, 0.55])
def test_loss_is_power_in_db(loss_db: float) -> None:
    transfer = one_cell(loss_db=loss_db).transfer(F0)[0]
    assert -10 * math.log10(abs(transfer[1, 0]) ** 2 + abs(transfer[0, 0]) ** 2) == pytest.approx(loss_db, abs=1e-12)


# ----------------------------------------------------------------------------------------------------------- couplers


@given(eta_in=splittings, eta_out=splittings, theta=angles)
def test_output_powers_of_imperfect_couplers_follow_the_exact_table(
    eta_in: float, eta_out: float, theta: float
) -> None:
    """Cross = sin²(a1+a2) cos²θ + sin²(a1-a2) sin²θ; bar likewise with cosines (docs/calibration.md, 2)."""
    total, apart = math.asin(eta_in**0.5) + math.asin(eta_out**0.5), math.asin(eta_in**0.5) - math.asin(eta_out**0.5)
    powers = (
        np.abs(one_cell(eta_in=eta_in, eta_out=eta_out, phase_upper=theta, phase_lower=-theta).transfer(F0)[0]) ** 2
    )
    sin2, cos2 = math.sin(theta) ** 2, math.cos(theta) ** 2
    assert powers[1, 0] == pytest.approx(math.sin(total) ** 2 * cos2 + math.sin(apart) ** 2 * sin2, abs=1e-13)
    assert powers[0, 0] == pytest.approx(math.cos(apart) ** 2 * sin2 + math.cos(total) ** 2 * cos2, abs=1e-13)


@given(eta_in=splittings, eta_out=splittings)
def test_floors_are_what_the_bar_and_cross_states_leave_in_the_dark_output(eta_in: float, eta_out: float) -> None:
    floors = coupling_floors(np.array([eta_in]), np.array([eta_out]))
    bar = np.abs(one_cell(eta_in=eta_in, eta_out=eta_out, phase_upper=math.pi).transfer(F0)[0]) ** 2
    cross = np.abs(one_cell(eta_in=eta_in, eta_out=eta_out).transfer(F0)[0]) ** 2
    assert floors.bar_leak[0] == pytest.approx(bar[1, 0], abs=1e-13)
    assert floors.cross_leak[0] == pytest.approx(cross[0, 0], abs=1e-13)


def test_two_couplers_at_52_percent_give_28_db_through_extinction() -> None:
    # cos²(a1+a2) = (2·0.52 - 1)² = 0.0016 and cos²(a1-a2) = 1: 10·log10(1/0.0016) = 27.96 dB.
    floors = coupling_floors(np.array([0.52]), np.array([0.52]))
    assert 10 * math.log10(1 / floors.cross_leak[0]) == pytest.approx(27.96, abs=0.01)
    assert floors.bar_leak[0] == pytest.approx(0.0, abs=1e-30)


def test_published_extinction_is_half_plus_0_011_common_and_0_0063_rad_apart() -> None:
    """33 dB through and 44 dB cross (Sánchez-Jácome 2025)."""
    common = math.asin(math.sqrt(0.511))
    eta_in, eta_out = (np.array([math.sin(common + sign * 0.0063 / 2) ** 2]) for sign in (1, -1))
    floors = coupling_floors(eta_in, eta_out)
    assert 10 * math.log10((1 - floors.bar_leak[0]) / floors.cross_leak[0]) == pytest.approx(33, abs=0.3)
    assert 10 * math.log10((1 - floors.cross_leak[0]) / floors.bar_leak[0]) == pytest.approx(44, abs=0.1)


def test_floors_keep_the_shape_of_what_they_are_given() -> None:
    floors = coupling_floors(np.full((4, 3), 0.5), np.full((4, 3), 0.51))
    assert floors.bar_leak.shape == floors.cross_leak.shape == (4, 3)


# --------------------------------------------------------------------------------------------------------- dispersion


@pytest.mark.parametrize(("row", "column", "upper"), [(1, 0, 0.0), (0, 0, math.pi), (0, 1, 0.3)])
def test_group_delay_is_11_25_ps_and_positive(row: int, column: int, upper: float) -> None:
    """Delay is -d arg T / dω in the convention e^{+jωt}."""
    step_hz = 1e9
    cells = one_cell(phase_upper=upper)
    ahead, behind = (cells.transfer(F0 + sign * step_hz)[0, row, column] for sign in (1, -1))
    delay_s = -np.angle(ahead / behind) / (2 * math.pi * 2 * step_hz)
    assert delay_s == pytest.approx(11.25e-12, rel=1e-9)
    assert BASIC_UNIT_DELAY_S == 11.25e-12


def test_a_cell_repeats_after_one_free_spectral_range() -> None:
    cells = one_cell(phase_upper=0.4, phase_lower=1.1)
    fsr_hz = 1 / 11.25e-12
    np.testing.assert_allclose(cells.transfer(F0 + fsr_hz), cells.transfer(F0), atol=1e-12)


def test_splitting_slopes_move_both_couplers_with_frequency() -> None:
    cells = one_cell(eta_slope_per_hz=2e-14, eta_in=0.5, eta_out=0.51)
    expected = coupling_floors(np.array([0.52]), np.array([0.53]))  # 1 THz up
    cross = np.abs(cells.transfer(F0 + 1e12)[0]) ** 2
    assert cross[0, 0] == pytest.approx(expected.cross_leak[0], rel=1e-9)


def test_differential_slope_turns_a_balanced_cross_into_a_bar() -> None:
    cells = one_cell(differential_slope_per_hz=math.pi / 1e12)
    np.testing.assert_allclose(np.abs(cells.transfer(F0)[0]), [[0, 1], [1, 0]], atol=1e-15)
    np.testing.assert_allclose(np.abs(cells.transfer(F0 + 1e12)[0]), np.eye(2), atol=1e-12)


def test_differential_slope_adds_to_the_phase_of_the_upper_arm_less_the_lower() -> None:
    sloped = one_cell(phase_upper=0.5, phase_lower=0.1, differential_slope_per_hz=1e-13, delay_s=0.0)
    shifted = one_cell(phase_upper=0.5 + 0.05, phase_lower=0.1 - 0.05, delay_s=0.0)
    np.testing.assert_allclose(sloped.transfer(F0 + 1e12), shifted.transfer(F0), atol=1e-14)


@settings(deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_cells_do_not_influence_one_another(seed: int) -> None:
    rng = np.random.default_rng(seed)
    many = UnitCells(*(rng.uniform(0.1, 0.9, 7) for _ in range(5)), np.zeros(0))
    together = many.transfer(F0)
    assert together.shape == (7, 2, 2)
    for i in range(7):
        alone = UnitCells(
            *(a[i : i + 1] for a in (many.loss_db, many.eta_in, many.eta_out, many.phase_upper, many.phase_lower)),
            np.zeros(0),
        )
        np.testing.assert_allclose(alone.transfer(F0)[0], together[i], rtol=1e-13)
