"""Fits of the power against one actuator."""

import numpy as np
import pytest

from lumion_hw.polarization.sinusoids import Coordinate, fit_period, harmonic_columns

SQUEEZER = Coordinate(-5000.0, 5000.0, 3600.0, 1)
PLATE = Coordinate(0.0, 170.0, 180.0, 2)


def wave(drives: np.ndarray) -> np.ndarray:
    """2 + cos(φ - 60°): the largest at 600 of 3600, the smallest at 2400 or -1200."""
    return 2.0 + np.cos(2.0 * np.pi * (drives - 600.0) / 3600.0)


def test_three_readings_a_third_of_a_period_apart_give_maximum_and_minimum() -> None:
    drives = np.array([0.0, *SQUEEZER.other_settings(0.0)])
    assert sorted(drives % 3600.0) == pytest.approx([0.0, 1200.0, 2400.0])
    assert SQUEEZER.best(drives, wave(drives), 0.0, 1.0) == pytest.approx((600.0, 3.0))
    assert SQUEEZER.best(drives, wave(drives), 0.0, -1.0) == pytest.approx((-1200.0, 1.0))


def test_an_equivalent_inside_the_range_is_taken_towards_its_middle() -> None:
    assert SQUEEZER.wrap_into_range(5600.0, near=5000.0) == pytest.approx(2000.0)
    assert SQUEEZER.wrap_into_range(-4000.0, near=0.0) == pytest.approx(-400.0)
    assert Coordinate(-100.0, 100.0, 3600.0, 1).wrap_into_range(900.0, near=0.0) == 100.0


def test_five_readings_36_degrees_apart_describe_a_plate() -> None:
    def power(angle: np.ndarray) -> np.ndarray:
        return 1.0 + 0.3 * np.cos(2 * np.deg2rad(angle) - 0.4) + 0.5 * np.cos(4 * np.deg2rad(angle) + 1.0)

    angles = np.array([0.0, *PLATE.other_settings(0.0)])
    assert sorted(angles) == pytest.approx([0.0, 36.0, 72.0, 108.0, 144.0])
    setting, promised = PLATE.best(angles, power(angles), 0.0, 1.0)
    fine = np.linspace(0.0, 170.0, 100_001)
    assert setting == pytest.approx(fine[np.argmax(power(fine))], abs=0.3)
    assert promised == pytest.approx(power(fine).max(), rel=1e-3)


def test_readings_about_a_start_near_the_end_of_the_range_stay_distinct_and_inside() -> None:
    for start in (0.0, 20.0, 100.0, 160.0, 170.0):
        places = np.array([start, *PLATE.other_settings(start)])
        assert ((places >= 0.0) & (places <= 170.0)).all()
        assert np.linalg.cond(harmonic_columns(places, 180.0, 2)) < 50.0


def test_a_period_is_learnt_from_thirteen_readings_over_the_range() -> None:
    drives = np.linspace(-5000.0, 5000.0, 13)
    assert fit_period(drives, wave(drives)) == pytest.approx(3600.0, rel=1e-4)


@pytest.mark.parametrize(
    "readings", [np.full(13, 1.0), np.linspace(1.0, 1.04, 13), np.random.default_rng(1).random(13)]
)
def test_what_is_no_sinusoid_teaches_no_period(readings: np.ndarray) -> None:
    assert fit_period(np.linspace(-5000.0, 5000.0, 13), readings) is None
