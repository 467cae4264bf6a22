"""Fits against drawn data whose truth is known, and against numbers worked out by hand."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from lumion_hw.acquisition import ScanData, ber_of_snr, fit_ber, fit_fringe, fit_loss_per_hop, snr_of_ber
from lumion_hw.acquisition.fits import NoFringeError, fit_clearest_fringe
from lumion_hw.acquisition.journal import LoggedFile
from lumion_hw.errors import ConfigError
from tests.acquisition.drawn_scans import LEAST, MAX_RUN_WORK, coverage, drawn


def fringe(
    rng: np.random.Generator, sigma: float, n: int = 60, *, bend: float = 0.0, most_ma: float = 3.0, dim: float = 1.0
):
    """1 kΩ: I in mA gives I² mW. Pπ is 2.5 mW, so 5 mA (25 mW) are five fringes; 3 mA are 1.8.

    A resistance R0·(1 + γ·P) makes P = I²R0 / (1 - γ·I²R0) of a current.
    """
    current_ma = np.linspace(0.0, most_ma, n)
    heat_mw = current_ma**2 / (1.0 - bend * current_ma**2)
    light = dim * (4.0e-6 * (1.0 + 0.8 * np.cos(np.pi * heat_mw / 2.5 + 0.7)) + rng.normal(0.0, sigma, n))
    volts = heat_mw / np.maximum(current_ma, 1e-9)
    readings = {("meter0.power.1", "W"): light, ("smu0.voltage.1", "V"): volts}
    return drawn("mesh0.heater_ma.3", "mA", current_ma, readings)


FRINGE = {"p_pi_mw": 2.5, "offset_rad": 0.7, "visibility": 0.8, "mean": 4.0e-6}
ERRORS = {
    "p_pi_mw": "p_pi_error_mw",
    "offset_rad": "offset_error_rad",
    "visibility": "visibility_error",
    "mean": "mean_error",
    "bend_per_mw": "bend_error_per_mw",
}


def test_a_fringe_without_noise_is_found_exactly() -> None:
    found = fit_fringe(fringe(np.random.default_rng(1), 0.0), "meter0.power.1", heater_ohm=1000.0)
    assert found.p_pi_mw == pytest.approx(2.5, rel=1e-6)
    assert found.offset_rad == pytest.approx(0.7, abs=1e-6)
    assert found.visibility == pytest.approx(0.8, rel=1e-6)
    assert found.mean == pytest.approx(4.0e-6, rel=1e-6)


@pytest.mark.parametrize("bend", [pytest.param(0.0, marks=pytest.mark.long), 0.02])
@pytest.mark.parametrize(("most_ma", "sigma"), [(3.0, 2e-7), (1.7, 4e-8)], ids=["1.8 fringes", "0.58 of a fringe"])
def test_the_errors_of_a_fringe_cover_the_truth_as_often_as_they_say(bend: float, most_ma: float, sigma: float) -> None:
    shares = coverage(
        lambda rng: fit_fringe(fringe(rng, sigma, bend=bend, most_ma=most_ma), "meter0.power.1", heater_ohm=1000.0),
        FRINGE | {"bend_per_mw": bend},
        ERRORS,
    )
    assert all(LEAST <= share <= MAX_RUN_WORK for share in shares.values()), shares


@pytest.mark.parametrize("bend", [-0.04, 0.04], ids=["down", "up"])  # 10 % of the heat over 2.5 mW
def test_a_sweep_too_short_to_tell_the_bend_allows_for_one(bend: float) -> None:
    short = [
        fit_fringe(fringe(np.random.default_rng(seed), 2e-7, 40, bend=bend, most_ma=1.58), "meter0.*", heater_ohm=1e3)
        for seed in range(40)
    ]
    untold = [each for each in short if each.bend_per_mw == 0.0]
    assert len(untold) > 20
    assert all(each.bend_error_per_mw == pytest.approx(0.04, rel=0.01) for each in untold)
    off = np.array([abs(each.p_pi_mw - 2.5) / each.p_pi_error_mw for each in untold])
    assert np.mean(off < 2.0) > 0.85


def test_a_fringe_over_voltage_bends_the_other_way() -> None:
    # U²/R0 = P·(1 + γ·P), so P = (sqrt(1 + 4·γ·U²/R0) - 1) / (2·γ): 0.02 per mW, 1 kΩ, U in V gives U² mW.
    volts = np.linspace(0.0, 3.0, 80)
    heat_mw = (np.sqrt(1.0 + 4.0 * 0.02 * volts**2) - 1.0) / (2.0 * 0.02)
    light = 1e-6 * (1.0 + 0.9 * np.cos(np.pi * heat_mw / 2.5 - 1.0))
    data = drawn("smu0.voltage.1", "V", volts, {("meter0.power.1", "W"): light})
    found = fit_fringe(data, "meter0.power.1", heater_ohm=1000.0)
    assert (found.p_pi_mw, found.bend_per_mw) == (pytest.approx(2.5, rel=1e-4), pytest.approx(0.02, rel=1e-3))
    assert found.visibility == pytest.approx(0.9, rel=1e-4)


def test_with_voltage_and_current_the_power_is_known_and_nothing_bends() -> None:
    data = fringe(np.random.default_rng(1), 1e-8, bend=0.02)
    found = fit_fringe(data, "meter0.power.1", measured="smu0.voltage.1")
    assert found.p_pi_mw == pytest.approx(2.5, abs=3.0 * found.p_pi_error_mw)
    assert abs(found.bend_per_mw) < 3.0 * found.bend_error_per_mw < 1e-3
    assert found.x.max() == pytest.approx(9.0 / (1.0 - 0.02 * 9.0))  # true heat, not the 9 mW of the cold heater
    with pytest.raises(ConfigError, match=r"meter0.power.1 is in W, but with mesh0.heater_ma.3 it must be in V"):
        fit_fringe(data, "meter0.power.1", measured="meter0.power.1")


def test_dim_light_and_its_unit_change_nothing_but_the_mean() -> None:
    bright = fit_fringe(fringe(np.random.default_rng(4), 2e-7), "meter0.power.1", heater_ohm=1000.0)
    dim = fit_fringe(fringe(np.random.default_rng(4), 2e-7, dim=1e-6), "meter0.power.1", heater_ohm=1000.0)
    for name in ("p_pi_mw", "offset_rad", "visibility", "bend_per_mw"):
        assert getattr(dim, name) == pytest.approx(getattr(bright, name), rel=1e-4, abs=1e-6), name
        assert getattr(dim, ERRORS[name]) == pytest.approx(getattr(bright, ERRORS[name]), rel=1e-3), name
    assert dim.mean == pytest.approx(1e-6 * bright.mean, rel=1e-4)


def test_residuals_that_go_together_widen_the_errors() -> None:
    """A ripple that the model does not know: the same scatter, drawn by another order of the points."""
    data = fringe(np.random.default_rng(1), 0.0, 200)
    ripple = 2e-7 * np.sin(np.arange(200) * 2.0 * np.pi / 25.0)
    errors = []
    for each in (ripple, np.random.default_rng(2).permutation(ripple)):
        value = {"meter0.power.1": data.value["meter0.power.1"] + each}
        errors.append(fit_fringe(dataclasses.replace(data, value=value), "meter0.power.1", heater_ohm=1000.0))
    assert errors[0].p_pi_error_mw > 1.5 * errors[1].p_pi_error_mw


def test_a_point_that_failed_is_left_out_and_moves_nothing() -> None:
    data = fringe(np.random.default_rng(2), 1e-8)
    data.value["meter0.power.1"][17] = np.nan
    data.state["meter0.power.1"][17] = 4
    found = fit_fringe(data, "meter0.power.1", heater_ohm=1000.0)
    assert found.n_left_out == 1
    assert found.p_pi_mw == pytest.approx(2.5, rel=5e-3)


def test_a_heater_without_effect_gives_no_fringe() -> None:
    x = np.linspace(0.0, 0.4, 40)  # 0.16 mW of 2.5: a sixteenth of half a fringe
    flat = 1e-6 * (1.0 + 0.5 * np.cos(np.pi * x**2 / 2.5 + 1.2))
    noise = np.random.default_rng(3).normal(0.0, 1e-9, 40)
    data = drawn("mesh0.heater_ma.3", "mA", x, {("meter0.power.1", "W"): flat + noise})
    with pytest.raises(ConfigError, match=r"less than half a fringe over 0.16 mW"):
        fit_fringe(data, "meter0.power.1", heater_ohm=1000.0)


def test_readings_without_light_give_no_fringe() -> None:
    x = np.linspace(0.0, 2.5, 40)
    data = drawn("mesh0.heater_ma.3", "mA", x, {("meter0.power.1", "W"): np.zeros(40)})
    with pytest.raises(ConfigError, match=r"all values of meter0.power.1 are zero. Check that the light is on"):
        fit_fringe(data, "meter0.power.1", heater_ohm=1000.0)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("dark_w", [0.0, 2e-9], ids=["dark", "stray light"])
def test_noise_shows_no_fringe(seed: int, dark_w: float) -> None:
    noise = np.random.default_rng(seed).normal(dark_w, 1e-10, 51)
    data = drawn("mesh0.heater_ma.3", "mA", np.linspace(0.0, 2.5, 51), {("meter0.power.1", "W"): noise})
    with pytest.raises(NoFringeError, match=r"no fringe above its noise over 6.25 mW of mesh0.heater_ma.3. Check"):
        fit_fringe(data, "meter0.power.1", heater_ohm=1000.0)


def clear_and_faint() -> ScanData:
    """Return a scan whose second reading shows the fringe of 2.5 mW best; the first is dark, the last in decibels."""
    rng, ma = np.random.default_rng(1), np.linspace(0.0, 3.0, 60)
    light = 1.0 + 0.8 * np.cos(np.pi * ma**2 / 2.5 + 0.7)
    readings = {
        ("mesh0.monitor.0", "mA"): rng.normal(0.0, 1e-4, 60),
        ("mesh0.monitor.1", "mA"): 0.1 * light + rng.normal(0.0, 1e-4, 60),
        ("mesh0.monitor.2", "mA"): 1.0 + 1e-3 * light + rng.normal(0.0, 1e-4, 60),
        ("sfp-b.rx_power_dbm", "dBm"): 10.0 * np.log10(light),
    }
    data = drawn("mesh0.heater_ma.3", "mA", ma, readings)
    bench_file = LoggedFile("small.yaml", "", (Path(__file__).parents[1] / "data" / "small.yaml").read_text())
    return dataclasses.replace(data, header=dataclasses.replace(data.header, bench_file=bench_file))


def test_the_clearest_fringe_of_all_readings_is_fitted() -> None:
    found = fit_clearest_fringe(clear_and_faint())
    assert found.y_label == "mesh0.monitor.1 (mA)"
    assert found.p_pi_mw == pytest.approx(2.5, rel=0.01)


def test_without_a_fringe_the_error_says_so_for_one_reading_or_for_all() -> None:
    data = clear_and_faint()
    with pytest.raises(NoFringeError, match=r"mesh0.monitor.0 shows no fringe above its noise"):
        fit_clearest_fringe(data, ["mesh0.monitor.0"])
    for name in ("mesh0.monitor.1", "mesh0.monitor.2"):
        data.value[name][:] = 0.0
    with pytest.raises(NoFringeError, match=r"none of the 3 readings that were fitted shows a fringe. Check that the"):
        fit_clearest_fringe(data)
    with pytest.raises(ConfigError, match=r"all selected readings are in decibels"):
        fit_clearest_fringe(data, ["sfp-b"])


def test_a_fringe_needs_a_current_and_its_resistance() -> None:
    x = np.linspace(1540.0, 1550.0, 20)
    with pytest.raises(ConfigError, match="is in nm, but a fringe fit needs mA, V or mW"):
        fit_fringe(drawn("tls-a.wavelength_nm", "nm", x, {("m.p.1", "W"): x}), "m.p.1")
    with pytest.raises(ConfigError, match=r"do not contain the resistance of mesh0.heater_ma.3"):
        fit_fringe(fringe(np.random.default_rng(1), 0.0), "meter0.power.1")


def test_a_bench_file_that_leaves_out_the_resistance_means_its_default() -> None:
    text = (Path(__file__).parents[1] / "data" / "small.yaml").read_text().replace("heater_ohm: 1000.0, ", "")
    data = fringe(np.random.default_rng(1), 0.0)
    file = LoggedFile("small.yaml", "", text)
    found = fit_fringe(dataclasses.replace(data, header=dataclasses.replace(data.header, bench_file=file)), "meter0.*")
    assert found.p_pi_mw == pytest.approx(2.5, rel=1e-6)  # 1 kΩ: docs/bench-file.md


def test_loss_per_hop_is_the_slope() -> None:
    # 0.25 dB per hop and 2 dB of access from 3 dBm: 4 hops arrive at 0 dBm = 1 mW, 8 at -1 dBm = 0.794 mW.
    hops = [4, 8, 12, 16]
    power_w = 1e-3 * 10.0 ** (-np.array([0.0, 1.0, 2.0, 3.0]) / 10.0)
    data = drawn("mesh0.heater_ma.0", "mA", np.arange(4.0), {("m.power.1", "W"): power_w})
    found = fit_loss_per_hop(data, "m.power.1", hops, launched_dbm=3.0)
    assert found.loss_per_hop_db == pytest.approx(0.25, abs=1e-6)
    assert found.access_loss_db == pytest.approx(2.0, abs=1e-6)


def test_the_error_of_the_slope_is_that_of_the_textbook() -> None:
    # Residuals ±0.1 about a line over 0..3: (0.1, -0.1, -0.1, 0.1) are orthogonal to 1 and x.
    # s² = 0.04/(4-2) = 0.02, Sxx = 5: error of the slope = sqrt(0.02/5) = 0.063246.
    loss_db = 1.0 + 0.5 * np.arange(4.0) + np.array([0.1, -0.1, -0.1, 0.1])
    data = drawn("mesh0.heater_ma.0", "mA", np.arange(4.0), {("m.rx_dbm", "dBm"): -loss_db})
    found = fit_loss_per_hop(data, "m.rx_dbm", [0, 1, 2, 3])
    assert found.loss_per_hop_db == pytest.approx(0.5, abs=1e-6)
    assert found.loss_per_hop_error_db == pytest.approx(0.063246, abs=1e-5)


def test_hops_have_to_fit_the_points() -> None:
    data = drawn("mesh0.heater_ma.0", "mA", np.arange(4.0), {("m.rx_dbm", "dBm"): np.arange(4.0)})
    with pytest.raises(ConfigError, match="4 points, but hops has 3 values"):
        fit_loss_per_hop(data, "m.rx_dbm", [1, 2, 3])
    with pytest.raises(ConfigError, match="at least three with different numbers of hops"):
        fit_loss_per_hop(data, "m.rx_dbm", [2, 2, 2, 2])


def test_bit_errors_are_those_of_the_textbook() -> None:
    # erfc(1) = 0.157299: 16QAM at SNR 10 has 3/8 of it, QPSK at SNR 2 half.
    assert ber_of_snr(10.0, "16qam") == pytest.approx(0.375 * 0.157299, rel=1e-5)
    assert ber_of_snr(2.0, "qpsk") == pytest.approx(0.5 * 0.157299, rel=1e-5)
    assert snr_of_ber(0.5 * 0.157299, "qpsk") == pytest.approx(2.0, rel=1e-4)


def ber_curve(rng: np.random.Generator, sigma: float):
    """1.5 dB of penalty, floor at SNR 20 dB (0.01), 60 GBd 16QAM: SNR_ase is OSNR - 6.812 dB."""
    osnr_db = np.linspace(19.0, 34.0, 16)
    snr_ase = 10.0 ** ((osnr_db - 6.8124) / 10.0)
    snr = 1.0 / (10.0**0.15 / snr_ase + 0.01)
    from scipy.special import erfc

    ratio = 0.375 * erfc(np.sqrt(snr / 10.0)) * 10.0 ** rng.normal(0.0, sigma, 16)
    readings = {("zr-b.prefec_ber", "1"): ratio, ("zr-b.osnr_db", "dB"): osnr_db}
    return drawn("zr-a.tx_power_dbm", "dBm", np.linspace(-15.0, 0.0, 16), readings)


def test_penalty_and_floor_of_a_curve_are_found() -> None:
    data = ber_curve(np.random.default_rng(1), 0.0)
    found = fit_ber(data, "zr-b.prefec_ber", "zr-b.osnr_db", symbol_rate_gbd=60.0)
    assert found.penalty_db == pytest.approx(1.5, abs=1e-3)
    assert found.floor_snr_db == pytest.approx(20.0, abs=1e-2)
    # 1.25e-2: erfcinv(1/30) squared is 2.2643, SNR 22.643; 1/SNR - 0.01 = 0.034164; 4.8/0.034164 is 21.477 dB.
    assert found.required_osnr_db(1.25e-2) == pytest.approx(21.477 + 1.5, abs=0.01)
    # By theory 4.8·22.643 is 20.362 dB.
    assert found.penalty_at_db(1.25e-2) == pytest.approx(22.977 - 20.362, abs=0.01)
    assert found.required_osnr_db(1e-12) == math.inf


def test_the_errors_of_a_curve_cover_the_truth_as_often_as_they_say() -> None:
    shares = coverage(
        lambda rng: fit_ber(ber_curve(rng, 0.03), "zr-b.prefec_ber", "zr-b.osnr_db", symbol_rate_gbd=60.0),
        {"penalty_db": 1.5, "inverse_floor": 0.01},
        {"penalty_db": "penalty_error_db", "inverse_floor": "inverse_floor_error"},
    )
    assert all(LEAST <= share <= MAX_RUN_WORK for share in shares.values()), shares


def test_what_is_no_modulation_and_too_few_points_are_refused() -> None:
    data = ber_curve(np.random.default_rng(1), 0.0)
    with pytest.raises(ConfigError, match="unknown modulation '64qam'"):
        fit_ber(data, "zr-b.prefec_ber", "zr-b.osnr_db", modulation="64qam")
    data.state["zr-b.prefec_ber"][3:] = 5
    with pytest.raises(ConfigError, match="3 points with a bit error ratio, but at least four"):
        fit_ber(data, "zr-b.prefec_ber", "zr-b.osnr_db")


def test_a_fit_draws_itself(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = fit_fringe(fringe(np.random.default_rng(1), 1e-7), "meter0.power.1", heater_ohm=1000.0)
    figure = found.plot(tmp_path / "fringe.png")
    assert (tmp_path / "fringe.png").stat().st_size > 10_000
    (_, fitted) = figure.axes[0].lines
    assert np.asarray(fitted.get_ydata()) == pytest.approx(found.y - found.residual)
    assert "Pπ = 2.488 ± 0.013 mW" in figure.get_suptitle()
    with pytest.raises(ConfigError, match="unknown picture format"):
        found.plot(tmp_path / "fringe.bmp")
