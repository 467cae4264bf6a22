"""Effect of polarization controllers on light, against docs/polarization.md, "The model"."""

from __future__ import annotations

import numpy as np
import pytest

from lumion_hw.emulator.optics.polarization import (
    HALF,
    QUARTER,
    SqueezerProfile,
    Squeezers,
    plates,
    retarder,
    rotation_of_stokes,
    stokes_of,
)

TE = np.array([1.0, 0.0], dtype=np.complex128)
PERIOD_MV = np.array([4000.0, 3600.0, 3300.0, 4100.0])


def squeezers(profile: SqueezerProfile) -> tuple[Squeezers, list[float]]:
    """Four squeezers without offset, and their clock."""
    time = [0.0]
    return Squeezers(PERIOD_MV, np.zeros(4), lambda: time[0], profile), time


@pytest.mark.parametrize(("axis", "turned"), [(0, [0, 0, 1]), (1, [0, 1, 0]), (2, [-1, 0, 0])])
def test_retarder_turns_the_sphere_about_its_axis(axis: int, turned: list[int]) -> None:
    """A right-handed quarter turn of S2: about S1 to S3, about S2 unchanged, about S3 to -S1."""
    field = np.array([1.0, 1.0], dtype=np.complex128) / np.sqrt(2.0)
    np.testing.assert_allclose(stokes_of(field), [0, 1, 0], atol=1e-12)
    np.testing.assert_allclose(stokes_of(retarder(np.pi / 2 * np.eye(3)[axis]) @ field), turned, atol=1e-12)


def test_rotation_of_stokes_is_what_the_matrix_does_to_states() -> None:
    matrix = retarder(np.array([0.3, -1.1, 0.7]))
    field = np.array([0.6, 0.8j])
    np.testing.assert_allclose(rotation_of_stokes(matrix) @ stokes_of(field), stokes_of(matrix @ field), atol=1e-12)


def test_half_wave_plate_at_45_degrees_makes_tm_of_te() -> None:
    np.testing.assert_allclose(stokes_of(plates([np.pi / 4], [HALF]) @ TE), [-1, 0, 0], atol=1e-12)


def test_quarter_wave_plate_at_45_degrees_makes_circular_light() -> None:
    assert abs(stokes_of(plates([np.pi / 4], [QUARTER]) @ TE)[2]) == pytest.approx(1.0)


def test_power_behind_a_half_wave_plate_has_only_the_fourth_harmonic_of_its_angle() -> None:
    angles = np.arange(32) * 2 * np.pi / 32
    power = np.array([abs((plates([angle], [HALF]) @ TE)[0]) ** 2 for angle in angles])
    harmonics = np.abs(np.fft.rfft(power)) / len(power)
    assert harmonics[4] > 0.1
    assert np.delete(harmonics, [0, 4]).max() < 1e-6


def test_a_squeezer_follows_its_drive_within_a_millisecond() -> None:
    """Half a turn about S2 goes from TE to TM; after one time constant it is 1 - 1/e complete."""
    chain, time = squeezers(SqueezerProfile(hysteresis_rad=0.0, settle_tau_s=0.2e-3, activation_loss_db=0.0))
    chain.drive(2, PERIOD_MV[1] / 2)
    assert stokes_of(chain.jones() @ TE)[0] == pytest.approx(1.0)
    time[0] = 0.2e-3
    assert stokes_of(chain.jones() @ TE)[0] == pytest.approx(np.cos(np.pi * (1 - np.exp(-1))))
    time[0] = 1e-3
    assert stokes_of(chain.jones() @ TE)[0] == pytest.approx(-1.0, abs=1e-3)


def test_a_squeezer_stays_behind_its_drive_on_the_side_it_comes_from() -> None:
    play = 0.05
    chain, time = squeezers(SqueezerProfile(hysteresis_rad=play, settle_tau_s=1e-6, activation_loss_db=0.0))
    found = []
    for drive in (PERIOD_MV[1] / 2, PERIOD_MV[1] / 4, 0.0, PERIOD_MV[1] / 4):
        chain.drive(2, drive)
        time[0] += 1.0
        found.append(np.arccos(np.clip(stokes_of(chain.jones() @ TE)[0], -1, 1)))
    assert found == pytest.approx([np.pi - play, np.pi / 2 + play, play, np.pi / 2 - play])


def test_light_is_lost_as_squeezers_are_driven() -> None:
    """One of four squeezers at half its drive has an eighth of the loss."""
    chain, time = squeezers(SqueezerProfile(activation_loss_db=0.04, full_drive_mv=5000.0))
    chain.drive(1, 2500.0)
    time[0] = 1.0
    lost_db = -10 * np.log10(np.linalg.norm(chain.jones() @ TE) ** 2)
    assert lost_db == pytest.approx(0.04 / 8)


def test_squeezers_at_rest_are_not_reckoned_again() -> None:
    chain, time = squeezers(SqueezerProfile())
    chain.drive(1, 100.0)
    time[0] = 1.0
    assert chain.jones() is chain.jones()
    chain.drive(1, 200.0)
    assert chain.jones() is not chain.jones()
