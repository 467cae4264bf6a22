"""The fit of readings behind rotating plates, against an independent calculation of the plates."""

import numpy as np
import pytest

from lumion_hw.polarization.plate_fit import PlateLight, fit_plates
from lumion_hw.polarization.retarders import accepted_share
from tests.polarization.plates import rotating_plate

RETARDANCES = (1.4, 3.3, 1.7)
OFFSETS = (0.0, 1.1, -0.7)
STRETCH = 0.94
LOW, HIGH = np.zeros(3), np.full(3, 170.0)


def on_sphere(rng: np.random.Generator) -> np.ndarray:
    state = rng.standard_normal(3)
    return np.asarray(state / np.linalg.norm(state))


def truth(seed: int, crosstalk: float = 1e-3) -> PlateLight:
    rng = np.random.default_rng(seed)
    return PlateLight(
        on_sphere(rng), on_sphere(rng), np.array(RETARDANCES), np.array(OFFSETS), STRETCH, 2e-4, crosstalk
    )


def reckoned(light: PlateLight, angles_deg: np.ndarray) -> float:
    """The power, plate by plate with rotation matrices."""
    state = light.state
    for angle, offset, retardance in zip(angles_deg, light.offsets_rad, light.retardances, strict=True):
        state = rotating_plate(np.deg2rad(light.stretch * angle) + offset, retardance) @ state
    return float(light.p0 * accepted_share(state, light.accepted, crosstalk=light.crosstalk))


def test_powers_are_those_of_plates_one_behind_the_other() -> None:
    light, rng = truth(1), np.random.default_rng(2)
    for angles in rng.uniform(0.0, 170.0, (20, 3)):
        assert light.powers(angles) == pytest.approx(reckoned(light, angles), rel=1e-9)
    grid = rng.uniform(0.0, 170.0, (4, 5, 3))
    assert light.powers(grid).shape == (4, 5)


@pytest.mark.parametrize("seed", range(4))
def test_sixteen_readings_predict_the_power_everywhere(seed: int) -> None:
    light, rng = truth(seed), np.random.default_rng(100 + seed)
    angles = rng.uniform(0.0, 170.0, (16, 3))
    found = fit_plates(angles, light.powers(angles), rng, relative_noise=1e-3)
    assert found.misfit < 0.01
    elsewhere = rng.uniform(0.0, 170.0, (200, 3))
    assert found.powers(elsewhere) == pytest.approx(light.powers(elsewhere), abs=0.02 * light.p0)


def test_a_former_explanation_is_where_the_next_begins() -> None:
    light, rng = truth(7), np.random.default_rng(7)
    angles = rng.uniform(0.0, 170.0, (16, 3))
    found = fit_plates(angles, light.powers(angles), rng, relative_noise=1e-3, former=light, starts=1)
    elsewhere = rng.uniform(0.0, 170.0, (200, 3))
    assert found.powers(elsewhere) == pytest.approx(light.powers(elsewhere), abs=0.01 * light.p0)


def test_readings_that_are_no_plates_are_not_explained() -> None:
    rng = np.random.default_rng(9)
    angles = rng.uniform(0.0, 170.0, (24, 3))
    found = fit_plates(angles, rng.uniform(0.1, 1.0, 24), rng, relative_noise=3e-3)
    assert found.misfit > 0.05


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_extreme_is_no_worse_than_any_of_a_fine_grid(sign: float) -> None:
    light, rng = truth(11), np.random.default_rng(11)
    best = light.extreme(LOW, HIGH, np.full((1, 3), 85.0), rng, sign=sign)
    assert ((best >= LOW) & (best <= HIGH)).all()
    grid = np.stack(np.meshgrid(*[np.linspace(0.0, 170.0, 40)] * 3), axis=-1)
    assert sign * light.powers(best) >= (sign * light.powers(grid)).max() - 1e-6 * light.p0
