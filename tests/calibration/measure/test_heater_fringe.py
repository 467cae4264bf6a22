"""The law of a heater is found from the fringes it makes, whatever else the light does."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from calibration.measure.heater_fringe import FEED_FORWARD, RECIRCULATING, FringeTerms, HeaterSweep, fit_heater
from calibration.model.nominal_heaters import NominalHeaters
from calibration.model.observations import NoiseModel

NOISE = NoiseModel(0.005, 1e-6)
SQUARES = np.linspace(0.0, 4.6, 8)


def _phase(squares: NDArray[np.float64], rho2: float, bend: float = 0.02) -> NDArray[np.float64]:
    """A heater whose resistance rises, by default by 2 % per mA² (assumed)."""
    return rho2 * squares / (1.0 - bend * squares)


def _sweep(
    rho2: float, seed: int, second: float = 0.0, drift: float = 0.0, detectors: int = 20, bend: float = 0.02
) -> HeaterSweep:
    """Readings P = |a + b·x + c·x²|² / |1 + d·x|² with x = e^{-jφ}, and a drift with I²."""
    rng = np.random.default_rng(seed)
    x = np.exp(-1j * _phase(SQUARES, rho2, bend))[:, None]
    a, b, c = rng.standard_normal((3, detectors)) + 1j * rng.standard_normal((3, detectors))
    power = np.abs(a + 0.6 * b * x + second * c * x**2) ** 2 / np.abs(1.0 + 0.3 * np.exp(1j * seed) * x) ** 2
    power = 0.01 * power * (1.0 + drift * rng.standard_normal(detectors) * SQUARES[:, None])
    noise = np.hypot(NOISE.relative * power, NOISE.floor_ma) * rng.standard_normal(power.shape)
    return HeaterSweep(SQUARES, power + noise)


def _turn_error_rad(sweeps: list[HeaterSweep], rho2: float, bend: float = 0.02) -> float:
    fit = fit_heater(sweeps, NOISE, 2.5, NominalHeaters())
    assert fit.law is not None
    turn = np.array([2.0 * np.pi / rho2])
    return float(fit.law.phase_rad(float(np.sqrt(turn[0]))) - _phase(turn, rho2, bend)[0])


@pytest.mark.parametrize(
    "rho2", [1.5, *(pytest.param(between, marks=pytest.mark.long) for between in (1.9, 2.34)), 2.75]
)
@pytest.mark.parametrize(("second", "drift"), [(0.0, 0.0), (0.3, 0.0), (0.0, 0.01), (0.3, 0.01)])
def test_eight_levels_are_enough_for_a_law(rho2: float, second: float, drift: float) -> None:
    for seed in range(5):
        assert abs(_turn_error_rad([_sweep(rho2, seed, second, drift)], rho2)) < 0.1


@pytest.mark.parametrize("bend", [-0.03, 0.0, 0.04])
def test_the_resistance_may_rise_or_fall(bend: float) -> None:
    """From -5 to 6 % per π; the largest misfit is a few per cent of a turn, which the phase search tolerates."""
    errors = [_turn_error_rad([_sweep(2.1, seed, detectors=6, bend=bend)], 2.1, bend) for seed in range(8)]
    assert np.median(np.abs(errors)) < 0.05
    assert np.max(np.abs(errors)) < 0.2


@pytest.mark.parametrize("ohm", [50.0, 300.0, 1000.0, 5000.0])
@pytest.mark.parametrize("p_pi_mw", [1.0, 12.0, 60.0])
def test_the_fit_is_the_same_in_units_of_the_heater(ohm: float, p_pi_mw: float) -> None:
    heaters = NominalHeaters(ohm, 0.8 * p_pi_mw, 1.25 * p_pi_mw)
    published = NominalHeaters(1000.0, 0.8, 1.25)
    plain = _sweep(2.9, 3)
    per_ma2 = heaters.per_ma2 / published.per_ma2
    other = fit_heater([HeaterSweep(plain.squares_ma2 / per_ma2, plain.reading_ma)], NOISE, 2.5, heaters)
    same = fit_heater([plain], NOISE, 2.5, published)
    assert other.law is not None
    assert same.law is not None
    for power, name in enumerate(("rho2_rad_per_ma2", "rho4_rad_per_ma4", "rho6_rad_per_ma6"), start=1):
        assert getattr(other.law, name) == pytest.approx(per_ma2**power * getattr(same.law, name), rel=1e-6)
    assert other.turn_sigma_rad == pytest.approx(same.turn_sigma_rad, rel=1e-6)


def test_two_sweeps_on_different_backgrounds_share_one_law() -> None:
    one = [abs(_turn_error_rad([_sweep(2.1, seed, detectors=3)], 2.1)) for seed in range(0, 20, 2)]
    two = [
        abs(_turn_error_rad([_sweep(2.1, s, detectors=3), _sweep(2.1, s + 1, detectors=3)], 2.1))
        for s in range(0, 20, 2)
    ]
    assert np.mean(two) < np.mean(one)


def test_a_heater_nobody_sees_is_said_to_have_no_law() -> None:
    rng = np.random.default_rng(1)
    dark = 0.01 * (1.0 + 0.005 * rng.standard_normal((8, 20)))
    fit = fit_heater([HeaterSweep(SQUARES, dark)], NOISE, 2.5, NominalHeaters())
    assert fit.law is None
    assert not fit.turn_sigma_rad < np.inf


def test_saturated_detectors_are_left_out() -> None:
    sweep = _sweep(2.1, 3)
    sweep.reading_ma[4, :5] = np.nan
    assert abs(_turn_error_rad([sweep], 2.1)) < 0.1


def test_few_levels_on_many_turns_are_called_ambiguous() -> None:
    rng = np.random.default_rng(2)
    squares = np.linspace(0.0, 12.0, 5)
    x = np.exp(-1j * 2.0 * squares)[:, None]
    power = 0.01 * np.abs(1.0 + 0.6 * x * np.exp(1j * rng.uniform(0.0, 6.0, 3))) ** 2
    assert fit_heater([HeaterSweep(squares, power)], NOISE, 2.5, NominalHeaters()).turn_sigma_rad == np.inf


@pytest.mark.parametrize("seed", [0, 1, 2, 8, 15, 21, 31])
def test_a_law_from_a_third_of_a_fringe_rises_with_the_current(seed: int) -> None:
    rng = np.random.default_rng(seed)
    squares = np.linspace(0.0, 6.25, 8)
    phase = np.pi / rng.uniform(15.0, 35.0) * squares[:, None]
    mean, swing, offset = rng.uniform(0.5, 1.0, 4), rng.uniform(0.0, 0.5, 4), rng.uniform(0.0, 6.3, 4)
    power = mean + swing * np.cos(phase + offset)
    power /= 1.0 + rng.uniform(0.0, 0.3) * np.cos(phase + rng.uniform(0.0, 6.3))
    power *= 0.01 * (1.0 + 0.005 * rng.standard_normal(power.shape))
    fit = fit_heater([HeaterSweep(squares, power)], NOISE, 2.5, NominalHeaters(1000.0, 15.0, 35.0))
    assert fit.law is not None
    assert fit.law.max_phase_rad > 0.0


# Light that never turns back -----------------------------------------------------------------------------------------


def _one_way(rho2: float, seed: int, levels: int, detectors: int = 4) -> HeaterSweep:
    """Readings P = |a + b·x|²: no loop, and each arm is passed once."""
    rng = np.random.default_rng(seed)
    squares = np.linspace(0.0, 4.6, levels)
    x = np.exp(-1j * _phase(squares, rho2))[:, None]
    a, b = rng.standard_normal((2, detectors)) + 1j * rng.standard_normal((2, detectors))
    power = 0.01 * np.abs(a + 0.6 * b * x) ** 2
    return HeaterSweep(squares, power * (1.0 + NOISE.relative * rng.standard_normal(power.shape)))


def _known(levels: int, terms: FringeTerms) -> list[bool]:
    """Whether one sweep of few detectors determines a law to 0.05 rad at one turn."""
    rates = np.linspace(1.6, 2.7, 12)
    fits = [
        fit_heater([_one_way(rho2, i, levels)], NOISE, 2.5, NominalHeaters(), terms) for i, rho2 in enumerate(rates)
    ]
    return [fit.turn_sigma_rad < 0.05 for fit in fits]


def test_without_loops_fewer_settings_determine_a_law() -> None:
    assert sum(_known(6, FEED_FORWARD)) >= 11
    assert sum(_known(6, RECIRCULATING)) <= 3


def test_a_law_without_loops_has_the_error_that_it_states() -> None:
    errors = []
    for seed, rho2 in enumerate(np.linspace(1.6, 2.7, 40)):
        fit = fit_heater([_one_way(rho2, seed, 8)], NOISE, 2.5, NominalHeaters(), FEED_FORWARD)
        assert fit.law is not None
        turn = np.array([2.0 * np.pi / rho2])
        error_rad = fit.law.phase_rad(float(np.sqrt(turn[0]))) - _phase(turn, rho2)[0]
        errors.append(error_rad / fit.turn_sigma_rad)
    assert 0.5 < np.sqrt(np.mean(np.square(errors))) < 1.5
