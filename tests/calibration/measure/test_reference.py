"""The reference setting tells drift of the light from drift of the mesh."""

from __future__ import annotations

import numpy as np
import pytest

from calibration.measure.logbook import DARK, LogbookEntry
from calibration.measure.port_survey import noise_of, reference_change, reference_changes, reference_readings
from calibration.model.observations import NoiseModel

NOISE = NoiseModel(0.005, 1e-5)
BRIGHT_MA = np.array([0.4, 0.1, 0.02, 0.3, 0.001])
RNG = np.random.default_rng(3)


def noisy(exact_ma: np.ndarray) -> np.ndarray:
    return exact_ma + NOISE.sigma_ma(exact_ma) * RNG.standard_normal(exact_ma.shape)


def setting(source: int, answer_ma: np.ndarray, current_ma: float = 0.0) -> LogbookEntry:
    return LogbookEntry("settings", source, np.full((1, 4), current_ma), answer_ma[None])


def tuned(source: int, frequency_hz: float) -> LogbookEntry:
    return LogbookEntry("tuned", source, np.zeros((0, 4)), np.array([[frequency_hz]]), requested_hz=frequency_hz)


def test_weaker_light_is_power_and_nothing_else() -> None:
    found = reference_change(6, BRIGHT_MA, BRIGHT_MA * 10.0**-0.03, NOISE)
    assert found.power_db == pytest.approx(-0.3)
    assert found.shape_sigma == pytest.approx(0.0, abs=1e-9)
    (descriptions,) = found.descriptions()
    assert descriptions.startswith(
        "source at port 6: its light changed by -0.30 dB at all monitors, because laser or polarization drifted"
    )


def test_light_shared_otherwise_is_told_in_standard_errors() -> None:
    after = BRIGHT_MA.copy()
    after[1] *= 1.10
    after[3] *= 0.90
    # Four bright monitors of five, two of them off by 10 % where √2 · 0.5 % is normal: some 10 standard errors rms.
    found = reference_change(6, BRIGHT_MA, after, NOISE)
    assert abs(found.power_db) < 0.1
    assert 7.0 < found.shape_sigma < 13.0
    assert any("temperature" in text for text in found.descriptions())


def test_noise_alone_is_no_change() -> None:
    found = [reference_change(6, noisy(BRIGHT_MA), noisy(BRIGHT_MA), NOISE) for _ in range(300)]
    assert all(each.descriptions() == () for each in found)
    # Mean of four relative readings, twice: 0.5 % · √2 / √4 is 0.015 dB.
    assert np.std([each.power_db for each in found]) == pytest.approx(0.0154, rel=0.2)
    assert np.sqrt(np.mean([each.shape_sigma**2 for each in found])) == pytest.approx(1.0, abs=0.1)


def test_saturated_and_dark_monitors_say_nothing() -> None:
    before, after = np.append(BRIGHT_MA, [np.nan, 1.0]), np.append(BRIGHT_MA, [1.0, np.nan])
    assert reference_change(6, before, after, NOISE).descriptions() == ()
    assert reference_change(6, np.zeros(5), np.zeros(5), NOISE).descriptions() == ()


def test_only_single_settings_with_light_and_without_heat_are_references() -> None:
    batch = LogbookEntry("settings", 6, np.zeros((2, 4)), np.zeros((2, 5)))
    entries = [
        setting(DARK, BRIGHT_MA),
        setting(6, BRIGHT_MA, 1.0),
        batch,
        setting(6, BRIGHT_MA),
        setting(11, BRIGHT_MA),
    ]
    assert {key: len(each) for key, each in reference_readings(entries).items()} == {(6, 0.0): 1, (11, 0.0): 1}


def test_references_at_one_frequency_are_not_compared_with_those_at_another() -> None:
    entries = [
        setting(6, BRIGHT_MA),
        tuned(6, 193e12),
        setting(6, 0.5 * BRIGHT_MA),
        tuned(6, 0.0),
        setting(6, BRIGHT_MA),
    ]
    (found,) = reference_changes(entries, (6,), NOISE)
    assert found.power_db == pytest.approx(0.0)


def test_the_largest_change_since_the_first_reading_counts() -> None:
    entries = [setting(6, BRIGHT_MA * factor) for factor in (1.0, 0.9, 0.99)]
    (found,) = reference_changes(entries, (6, 11), NOISE)
    assert found.power_db == pytest.approx(10.0 * np.log10(0.9))
    assert reference_changes(entries, (11,), NOISE) == []


def test_the_noise_is_that_of_settings_read_again_and_again() -> None:
    dark = [setting(DARK, noisy(np.zeros(5))) for _ in range(60)]
    lit = [setting(6, noisy(BRIGHT_MA), 1.0) for _ in range(60)]
    assert noise_of([*dark[:3], *lit], 0.0) is None
    found = noise_of([*dark, *lit], 0.0)
    assert found is not None
    assert found.relative == pytest.approx(0.005, rel=0.2)
    assert found.floor_ma == pytest.approx(1e-5, rel=0.2)
