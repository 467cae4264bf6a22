"""Rings against drawn spectra whose truth is known: ideal ones, and as grating couplers and photodiodes leave them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from lumion_hw.acquisition import fit_ring
from lumion_hw.errors import ConfigError
from tests.acquisition.drawn_scans import LEAST, MAX_RUN_WORK, coverage, drawn

LIGHT = 299_792_458.0


# -- a ring: FSR 500 GHz, self-coupling r = 0.95, round trip a = 0.97, resonance at 193.5 THz
R, A, FSR_GHZ, NU_GHZ = 0.95, 0.97, 500.0, 193_500.0


def ring(rng: np.random.Generator, sigma: float, n: int = 1500):
    nm = np.linspace(1540.0, 1560.0, n)
    ghz = LIGHT / nm
    phase = 2.0 * np.pi * (ghz - NU_GHZ) / FSR_GHZ
    light = (A**2 - 2 * R * A * np.cos(phase) + R**2) / (1.0 - 2 * A * R * np.cos(phase) + (R * A) ** 2)
    return drawn("tls-a.wavelength_nm", "nm", nm, {("m.power.1", "W"): 1e-4 * (light + rng.normal(0.0, sigma, n))})


# By hand (all-pass): FWHM = (1 - ra)·FSR / (π·sqrt(ra)) to second order; 0.0785·500/(π·0.95995) = 13.01 GHz.
FWHM_GHZ = (1.0 - R * A) * FSR_GHZ / (math.pi * math.sqrt(R * A))
# Least (a-r)²/(1-ra)² = (0.02/0.0785)², most (a+r)²/(1+ra)² = (1.92/1.9215)²: 11.87 dB.
EXTINCTION_DB = 10.0 * math.log10((1.92 / 1.9215) ** 2 / (0.02 / 0.0785) ** 2)


def test_a_ring_is_found_with_fsr_width_q_and_extinction() -> None:
    found = fit_ring(ring(np.random.default_rng(1), 0.0), "m.power.1")
    assert found.fsr_ghz == pytest.approx(500.0, rel=1e-6)
    assert found.fwhm_ghz == pytest.approx(FWHM_GHZ, rel=1e-3)
    assert found.q == pytest.approx(found.resonance_thz * 1e3 / FWHM_GHZ, rel=1e-3)
    assert found.extinction_db == pytest.approx(EXTINCTION_DB, abs=0.01)
    assert (found.resonance_thz * 1e3 - NU_GHZ) / FSR_GHZ == pytest.approx(
        round((found.resonance_thz * 1e3 - NU_GHZ) / FSR_GHZ), abs=1e-6
    )
    assert found.fsr_nm == pytest.approx(4.0, rel=0.02)  # λ²/c · FSR at 1549 nm


@pytest.mark.long
def test_the_errors_of_a_ring_cover_the_truth_as_often_as_they_say() -> None:
    nearest = {"fsr_ghz": 500.0, "extinction_db": EXTINCTION_DB, "fwhm_ghz": FWHM_GHZ}
    shares = coverage(
        lambda rng: fit_ring(ring(rng, 0.02, 600), "m.power.1"),
        nearest,
        {"fsr_ghz": "fsr_error_ghz", "extinction_db": "extinction_error_db", "fwhm_ghz": "fwhm_error_ghz"},
    )
    assert all(LEAST <= share <= MAX_RUN_WORK for share in shares.values()), shares


def test_one_resonance_is_too_few() -> None:
    nm = np.linspace(1548.0, 1550.5, 400)
    ghz = LIGHT / nm
    light = 1.0 - 0.9 / (1.0 + ((ghz - 193_500.0) / 5.0) ** 2)
    with pytest.raises(ConfigError, match="shows fewer than two resonances"):
        fit_ring(drawn("tls-a.wavelength_nm", "nm", nm, {("m.power.1", "W"): light}), "m.power.1")


# -- as measured: an envelope of 25 dB, ripples, noise of the photodiode, resonances of changing depth and width


def envelope(nm: np.ndarray) -> np.ndarray:
    """A grating coupler: 25 dB down at 40 nm from 1530 nm, on a floor of stray light."""
    return 10.0 ** (-2.5 * ((nm - 1530.0) / 40.0) ** 2) + 1e-3


def measured(
    rng: np.random.Generator,
    *,
    fsr_ghz: float,
    width_ghz: float,
    depth: float,
    ripple: float = 0.01,
    drop: bool = False,
):
    """110 nm at 8 pm. Every second resonance has half of the depth; the width changes by a third over the sweep."""
    nm = np.linspace(1475.0, 1583.0, 13_501)
    ghz = LIGHT / nm - LIGHT / 1530.0
    order = np.round(ghz / fsr_ghz)
    width = width_ghz * (1.0 + ghz / 4e4)
    finesse = 1.0 / np.sin(0.5 * np.pi * width / fsr_ghz) ** 2
    resonant = 1.0 / (1.0 + finesse * np.sin(np.pi * ghz / fsr_ghz) ** 2)
    share = np.where(order % 2 == 0, depth, 0.5 * depth)
    light = resonant * depth if drop else 1.0 - share * resonant
    ripples = 1.0 + ripple * np.sin(2.0 * np.pi * ghz / 47.0)
    power_w = 1e-5 * (envelope(nm) * light * ripples + 1e-5 * rng.standard_normal(len(nm)))
    return drawn(
        "tls-a.wavelength_nm", "nm", nm, {("m.power.1", "W"): power_w, ("m.power.2", "W"): 3e-6 * envelope(nm)}
    )


@pytest.mark.parametrize("drop", [False, True], ids=["through", "drop"])
@pytest.mark.parametrize(("fsr_ghz", "width_ghz"), [(1137.0, 17.0), (379.0, 14.0), (2600.0, 40.0)])
def test_under_an_envelope_width_and_spacing_are_those_of_the_resonance(
    fsr_ghz: float, width_ghz: float, drop: bool
) -> None:
    data = measured(np.random.default_rng(1), fsr_ghz=fsr_ghz, width_ghz=width_ghz, depth=0.98, drop=drop)
    found = fit_ring(data, "m.power.1")
    assert found.fsr_ghz == pytest.approx(fsr_ghz, rel=1e-3), "twice as much if every second one is missed"
    place_ghz = 1e3 * found.resonance_thz - LIGHT / 1530.0
    assert place_ghz / fsr_ghz == pytest.approx(round(place_ghz / fsr_ghz), abs=2e-3)
    for each in found.resonances[1:-1]:
        true_ghz = width_ghz * (1.0 + (1e3 * each.frequency_thz - LIGHT / 1530.0) / 4e4)
        assert each.fwhm_ghz == pytest.approx(true_ghz, rel=0.1)
    true_ghz = width_ghz * (1.0 + place_ghz / 4e4)
    assert found.fwhm_ghz == pytest.approx(true_ghz, rel=0.03)
    assert found.q == pytest.approx(1e3 * found.resonance_thz / true_ghz, rel=0.03)


def test_shallow_dips_are_told_from_ripples_of_their_size() -> None:
    data = measured(np.random.default_rng(2), fsr_ghz=379.0, width_ghz=13.0, depth=0.2, ripple=0.02)
    found = fit_ring(data, "m.power.1")
    assert found.fsr_ghz == pytest.approx(379.0, rel=2e-3)
    assert found.fwhm_ghz == pytest.approx(13.0, abs=3.0 * found.fwhm_error_ghz)
    assert found.fwhm_error_ghz < 3.0


def test_a_dip_that_is_none_of_the_ring_does_not_halve_the_spacing() -> None:
    data = measured(np.random.default_rng(2), fsr_ghz=2270.0, width_ghz=16.0, depth=0.6, ripple=0.005)
    ghz = LIGHT / data.setting() - LIGHT / 1530.0
    other = 1.0 - 0.2 / (1.0 + (2.0 * (ghz - 0.5 * 2270.0) / 16.0) ** 2)
    with_it = replace(data, value={"m.power.1": data.value["m.power.1"] * other})
    assert fit_ring(with_it, "m.power.1").fsr_ghz == pytest.approx(2270.0, rel=1e-3)


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_dips_at_random_places_are_no_ring(seed: int) -> None:
    rng = np.random.default_rng(seed)
    nm = np.linspace(1475.0, 1583.0, 13_501)
    ghz = LIGHT / nm - LIGHT / 1530.0
    light = envelope(nm) * (1.0 + 0.002 * rng.standard_normal(len(nm)))
    for place_ghz in rng.uniform(-3000.0, 3000.0, 14):
        light = light * (1.0 - rng.uniform(0.08, 0.2) / (1.0 + (2.0 * (ghz - place_ghz) / 16.0) ** 2))
    with pytest.raises(ConfigError, match="shows fewer than two resonances"):
        fit_ring(drawn("tls-a.wavelength_nm", "nm", nm, {("m.power.1", "W"): 1e-6 * light}), "m.power.1")


def test_decibels_are_the_same_light() -> None:
    data = measured(np.random.default_rng(3), fsr_ghz=1137.0, width_ghz=17.0, depth=0.9)
    power_w = np.maximum(data.value["m.power.1"], 1e-15)
    in_dbm = drawn("tls-a.wavelength_nm", "nm", data.setting(), {("m.power.1", "dBm"): 10.0 * np.log10(1e3 * power_w)})
    linear, decibels = fit_ring(data, "m.power.1"), fit_ring(in_dbm, "m.power.1")
    assert decibels.fsr_ghz == pytest.approx(linear.fsr_ghz, rel=1e-6)
    assert decibels.q == pytest.approx(linear.q, rel=1e-4)
    assert decibels.extinction_db == pytest.approx(linear.extinction_db, abs=1e-3)


def test_dim_light_has_the_same_errors() -> None:
    data = measured(np.random.default_rng(3), fsr_ghz=1137.0, width_ghz=17.0, depth=0.9)
    dim = replace(data, value={name: 1e-6 * each for name, each in data.value.items()})
    bright, faint = fit_ring(data, "m.power.1"), fit_ring(dim, "m.power.1")
    for name in ("fsr_ghz", "fsr_error_ghz", "q", "q_error", "extinction_db", "extinction_error_db"):
        assert getattr(faint, name) == pytest.approx(getattr(bright, name), rel=1e-3), name


def test_the_light_is_divided_by_a_reference() -> None:
    """A channel of the scan, or another scan: then the curve is that of the ring, 1 between resonances."""
    data = measured(np.random.default_rng(4), fsr_ghz=1137.0, width_ghz=17.0, depth=0.9, ripple=0.0)
    without = drawn("tls-a.wavelength_nm", "nm", data.setting(), {("m.power.1", "W"): data.value["m.power.2"]})
    for reference in ("m.power.2", without):
        found = fit_ring(data, "m.power.1", reference=reference)
        assert np.quantile(found.y, 0.9) == pytest.approx(1e-5 / 3e-6, rel=0.01)
        assert found.fwhm_ghz == pytest.approx(17.0, rel=0.03)
    short = drawn("tls-a.wavelength_nm", "nm", data.setting()[:500], {("m.power.1", "W"): np.ones(500)})
    with pytest.raises(ConfigError, match=r"the reference m.power.1 has no light in a part of the sweep"):
        fit_ring(data, "m.power.1", reference=short)


def test_an_extinction_that_nobody_can_see_is_a_lower_bound() -> None:
    """Critically coupled: no light is left, and photodiode and ripples hide what little there might be."""
    found = fit_ring(measured(np.random.default_rng(5), fsr_ghz=1137.0, width_ghz=17.0, depth=1.0), "m.power.1")
    assert math.isinf(found.extinction_error_db)
    assert 15.0 < found.extinction_db < 60.0
    assert f"extinction > {found.extinction_db:.2f} dB" in found.summary()
    seen = fit_ring(measured(np.random.default_rng(5), fsr_ghz=1137.0, width_ghz=17.0, depth=0.9), "m.power.1")
    # By hand: 0.1 of the light is left at the bottom, at the top all but 1/F of 0.9: 10.0 dB.
    assert seen.extinction_db == pytest.approx(10.0, abs=3.0 * seen.extinction_error_db)
    assert seen.extinction_error_db < 0.5


@pytest.mark.long
def test_the_errors_under_an_envelope_cover_the_truth_as_often_as_they_say() -> None:
    width_ghz = 30.0
    shares = coverage(
        lambda rng: fit_ring(coarse(rng, width_ghz), "m.power.1"),
        {"fsr_ghz": 900.0, "fwhm_ghz": width_ghz, "extinction_db": -10.0 * math.log10(0.2)},
        {"fsr_ghz": "fsr_error_ghz", "fwhm_ghz": "fwhm_error_ghz", "extinction_db": "extinction_error_db"},
        40,
    )
    assert all(LEAST - 0.04 <= share <= MAX_RUN_WORK + 0.04 for share in shares.values()), shares  # of 40 draws


def coarse(rng: np.random.Generator, width_ghz: float):
    """2000 points of white noise, half a percent of the light where it is brightest."""
    nm = np.linspace(1500.0, 1560.0, 2000)
    ghz = LIGHT / nm - LIGHT / 1530.0
    finesse = 1.0 / math.sin(0.5 * math.pi * width_ghz / 900.0) ** 2
    light = 1.0 - 0.8 / (1.0 + finesse * np.sin(np.pi * ghz / 900.0) ** 2)
    power_w = 1e-6 * (10.0 ** (-2.5 * ((nm - 1530.0) / 40.0) ** 2) * light + rng.normal(0.0, 0.005, 2000))
    return drawn("tls-a.wavelength_nm", "nm", nm, {("m.power.1", "W"): power_w})


def test_one_resonance_in_the_light_is_not_taken_for_two() -> None:
    """The next one lies where the coupler lets no light through; ripples are no resonances."""
    data = measured(np.random.default_rng(6), fsr_ghz=5700.0, width_ghz=33.0, depth=0.8, ripple=0.03)
    with pytest.raises(ConfigError, match="shows fewer than two resonances"):
        fit_ring(data, "m.power.1")
