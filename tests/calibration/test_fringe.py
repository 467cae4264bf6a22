from __future__ import annotations

import math

import numpy as np
import pytest

from calibration.fringe import HARMONICS, fit_law, fourier
from calibration.probe import NoiseModel
from lumion_hw.mesh.heater import HeaterLaw

MAX_MA = 2.5
SQUARES = np.linspace(0.0, MAX_MA**2, 24)
RANGE = (1.41, 2.88)
"""ρ2 of 1.2 to 2 mW per π at 1000 Ω, with a tenth on either side: 0.9·π/2 to 1.1·π/1.2 rad/mA²."""
SHARP = NoiseModel(1e-6, 1e-9)
REAL = NoiseModel(0.005, 1e-6)


def phase_of(rho2: float, gamma_per_ma2: float = 0.02, squares: np.ndarray = SQUARES) -> np.ndarray:
    """Return the phase of a heater whose resistance rises with its heat: φ = ρ2·I² / (1 - γ·I²), exactly."""
    return rho2 * squares / (1 - gamma_per_ma2 * squares)


def resonances(phase: np.ndarray, round_trip: float, seed: int = 0, detectors: int = 6) -> np.ndarray:
    """Return traces with the peaked shape of light that passes the heater again and again in a loop."""
    rng = np.random.default_rng(seed)
    start = rng.uniform(0, 2 * math.pi, detectors)
    mixed = rng.uniform(0.2, 1.0, detectors) * np.exp(1j * rng.uniform(0, 2 * math.pi, detectors))
    turned = np.exp(1j * (phase[:, None] + start))
    return np.abs(mixed + turned / (1 - round_trip * turned)) ** 2 * 1e-3


def law_error_rad(law: HeaterLaw | None, true: np.ndarray, up_to_rad: float = 2 * math.pi) -> float:
    """Return the largest error of a law over the currents that calibrated states need, up to a full turn."""
    assert law is not None
    found = np.array([law.phase_rad(math.sqrt(square)) for square in SQUARES])
    return float(np.abs(found - true)[true <= up_to_rad].max())


def noisy(traces: np.ndarray, noise: NoiseModel, seed: int) -> np.ndarray:
    return traces + noise.sigma_ma(traces) * np.random.default_rng(seed).standard_normal(traces.shape)


# Known laws ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rho2", [1.45, 1.8, 2.345, 2.85])
def test_a_pure_fringe_gives_its_law(rho2: float) -> None:
    # φ = ρ2·I²: a heater that does not feel its own heat.
    true = phase_of(rho2, 0.0)
    fit = fit_law(SQUARES, 1e-3 * (1 + 0.8 * np.cos(true[:, None] + np.array([0.3, 2.0]))), SHARP, MAX_MA, RANGE)
    assert law_error_rad(fit.law, true, math.inf) < 2e-3
    assert fit.law is not None
    assert fit.law.rho2_rad_per_ma2 == pytest.approx(rho2, rel=1e-3)
    assert fit.law.max_ma == MAX_MA


@pytest.mark.parametrize("rho2", [1.6, 2.0, 2.4, 2.8])
@pytest.mark.parametrize("round_trip", [0.0, 0.2, 0.35])
def test_the_law_of_a_self_heating_heater_is_found_from_peaked_traces(rho2: float, round_trip: float) -> None:
    true = phase_of(rho2)
    fit = fit_law(SQUARES, noisy(resonances(true, round_trip), REAL, 1), REAL, MAX_MA, RANGE)
    assert law_error_rad(fit.law, true) < 0.03


def test_the_residual_of_a_good_fit_is_the_noise() -> None:
    # Fringes of little contrast, so that the noise is the same all along them.
    traces = 1e-3 * (1 + 0.2 * np.cos(phase_of(2.0)[:, None] + np.arange(6)))
    fits = [fit_law(SQUARES, noisy(traces, REAL, seed), REAL, MAX_MA, RANGE) for seed in range(6)]
    # 24 readings per trace, of which a constant and two coefficients per harmonic are fitted away.
    left = math.sqrt(1 - (1 + 2 * HARMONICS) / 24)
    assert np.mean([fit.residual_sigma for fit in fits]) == pytest.approx(left, abs=0.06)


def test_a_trace_that_no_law_explains_shows_in_the_residual() -> None:
    # A detector that wanders during the sweep: nothing periodic in the phase.
    traces = resonances(phase_of(2.0), 0.1)
    wander = np.random.default_rng(5).uniform(0.8, 1.2, SQUARES.shape)
    fit = fit_law(SQUARES, traces * wander[:, None], REAL, MAX_MA, RANGE)
    assert fit.residual_sigma > 5.0


# Half and double rates -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_a_plain_fast_fringe_is_not_taken_for_the_second_harmonic_of_a_slow_one(seed: int) -> None:
    true = phase_of(2.85)  # half of it, 1.43, is in range too and would explain the trace as well
    traces = 1e-3 * (1 + 0.5 * np.cos(true[:, None] + np.arange(4)))
    assert law_error_rad(fit_law(SQUARES, noisy(traces, REAL, seed), REAL, MAX_MA, RANGE).law, true) < 0.03


@pytest.mark.parametrize("share", [0.3, 1.0, 1.5])
def test_light_that_passes_twice_does_not_double_the_rate(share: float) -> None:
    true = phase_of(1.45)
    start = np.arange(4)
    traces = 1e-3 * (3 + np.cos(true[:, None] + start) + share * np.cos(2 * true[:, None] + 1.7 * start))
    assert law_error_rad(fit_law(SQUARES, noisy(traces, REAL, 3), REAL, MAX_MA, RANGE).law, true) < 0.03


# What is left out, and what is not there -----------------------------------------------------------------------------


def test_saturated_detectors_are_left_out() -> None:
    traces = noisy(resonances(phase_of(2.0), 0.2), REAL, 4)
    flawed = np.hstack([traces, 5 * traces[:, :2]])
    flawed[3, -2] = flawed[9, -1] = np.nan
    assert fit_law(SQUARES, flawed, REAL, MAX_MA, RANGE) == fit_law(SQUARES, traces, REAL, MAX_MA, RANGE)


def test_dark_detectors_do_not_drown_the_lit_ones() -> None:
    true = phase_of(2.0)
    lit = noisy(resonances(true, 0.1, detectors=1), REAL, 5)
    dark = np.abs(1e-6 * np.random.default_rng(6).standard_normal((len(SQUARES), 30)))
    assert law_error_rad(fit_law(SQUARES, np.hstack([lit, dark]), REAL, MAX_MA, RANGE).law, true) < 0.05


@pytest.mark.parametrize(
    "traces",
    [
        np.full((24, 5), 1e-3),
        np.zeros((24, 5)),
        noisy(np.full((24, 40), 1e-3), REAL, 7),
        noisy(np.full((24, 40), 1e-7), REAL, 8),
        np.full((24, 5), np.nan),
        np.empty((24, 0)),
    ],
    ids=["constant", "dark", "noise on light", "noise in the dark", "all saturated", "no detector"],
)
def test_a_heater_without_effect_has_no_law(traces: np.ndarray) -> None:
    fit = fit_law(SQUARES, traces, REAL, MAX_MA, RANGE)
    assert fit.law is None
    assert fit.modulation_sigma < 8.0


def test_modulation_is_counted_in_units_of_the_noise() -> None:
    # A swing of ±10 % of 1 µA is 70.7 nA rms; the noise is half a percent, 5 nA, with a floor of 1 nA.
    true = phase_of(2.0, 0.0, np.linspace(0, 2 * math.pi, 24, endpoint=False))
    fit = fit_law(SQUARES, 1e-3 * (1 + 0.1 * np.cos(true))[:, None], REAL, MAX_MA, RANGE)
    assert fit.modulation_sigma == pytest.approx(70.7 / math.hypot(5.0, 1.0), rel=0.001)


def test_the_fourier_series_starts_with_a_constant_and_pairs_cosine_and_sine() -> None:
    np.testing.assert_allclose(
        fourier(np.array([math.pi / 6]), 2), [[1.0, math.sqrt(3) / 2, 0.5, 0.5, math.sqrt(3) / 2]]
    )
