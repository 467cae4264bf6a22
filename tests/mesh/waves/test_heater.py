from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from lumion_hw.errors import LimitError
from lumion_hw.mesh.waves.heater import HeaterLaw

MAX_MA = 2.5


def self_heating_law(gamma_per_mw: float, ohm: float = 1000.0, p_pi_mw: float = 1.34) -> HeaterLaw:
    """The first three terms of φ = π/Pπ · I²R0 / (1 - γ·I²R0), which are a geometric series in γ·I²R0."""
    rho2 = math.pi * ohm * 1e-3 / p_pi_mw
    gamma_per_ma2 = gamma_per_mw * ohm * 1e-3
    return HeaterLaw(rho2, rho2 * gamma_per_ma2, MAX_MA, rho2 * gamma_per_ma2**2)


@st.composite
def rising_laws(draw: st.DrawFn) -> HeaterLaw:
    """Laws that rise up to the largest current, with a resistance that rises or falls with heat."""
    rho2 = draw(st.floats(0.5, 5.0))
    gamma = draw(st.floats(-0.03, 0.05))
    return HeaterLaw(rho2, gamma * rho2, MAX_MA, gamma**2 * rho2)


def test_the_phase_is_the_polynomial_in_the_square_of_the_current() -> None:
    # At 2 mA: 2·4 + 0.05·16 + 0.001·64 = 8.864 rad.
    assert HeaterLaw(2.0, 0.05, MAX_MA, 0.001).phase_rad(2.0) == pytest.approx(8.864, abs=1e-12)
    assert HeaterLaw(2.0, 0.05, MAX_MA).phase_rad(2.0) == pytest.approx(8.8, abs=1e-12)


def test_the_heat_for_half_a_turn_is_the_published_figure() -> None:
    # A heater of Pπ = 1.34 mW and 1000 Ω that does not change with heat takes sqrt(1.34) mA for π.
    assert self_heating_law(0.0).current_ma(math.pi) == pytest.approx(math.sqrt(1.34), rel=1e-12)


def test_three_terms_follow_self_heating_to_the_fourth() -> None:
    # Self-heating raises the heat of 4 mW at 2 mA to 4/(1 - 0.08) mW; the terms left out are 4·0.08³/(1 - 0.08) mW.
    exact = math.pi / 1.34 * 4.0 / (1.0 - 0.08)
    left_out = math.pi / 1.34 * 4.0 * 0.08**3 / (1.0 - 0.08)
    assert self_heating_law(0.02).phase_rad(2.0) == pytest.approx(exact - left_out, abs=1e-9)


@given(rising_laws(), st.floats(0.0, 1.0))
def test_the_current_for_a_phase_gives_that_phase(law: HeaterLaw, share: float) -> None:
    phase = share * law.max_phase_rad
    current = law.current_ma(phase)
    assert 0.0 <= current <= law.max_ma * (1 + 1e-9)
    assert law.phase_rad(current) == pytest.approx(phase, abs=1e-9)


@given(rising_laws(), st.floats(0.0, MAX_MA))
def test_the_phase_of_a_current_asks_for_that_current(law: HeaterLaw, current_ma: float) -> None:
    assert law.current_ma(law.phase_rad(current_ma)) == pytest.approx(current_ma, abs=1e-6)


@given(st.floats(1e-15, 1e-6))
def test_tiny_phases_keep_their_relative_precision(phase: float) -> None:
    # φ = ρ2·I² there, whatever the curvature.
    assert HeaterLaw(2.0, 0.05, MAX_MA).current_ma(phase) == pytest.approx(math.sqrt(phase / 2.0), rel=1e-6)


def test_the_ends_of_the_range_belong_to_it() -> None:
    law = self_heating_law(0.02)
    assert law.current_ma(0.0) == 0.0
    assert law.current_ma(law.max_phase_rad) == pytest.approx(MAX_MA, rel=1e-9)


@pytest.mark.parametrize("asked", [-1e-9, 14.6, math.inf, math.nan], ids=["below 0", "beyond reach", "inf", "nan"])
def test_a_phase_out_of_reach_is_refused_not_clipped(asked: float) -> None:
    law = HeaterLaw(2.0, 0.05, MAX_MA)  # reaches 2·6.25 + 0.05·39.0625 = 14.453 rad
    with pytest.raises(
        LimitError, match=r"the heater cannot reach this phase: requested .* limit 14\.4531 rad"
    ) as caught:
        law.current_ma(asked)
    assert caught.value.limit == pytest.approx(14.453125)
    assert caught.value.unit == "rad"
