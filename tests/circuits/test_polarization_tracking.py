"""Tracking of a polarization that drifts: loss, ends of the range, light that is lost."""

import numpy as np
import pytest
from scipy.optimize import minimize
from simulated_squeezers import AXES, Squeezers, turned

from lumion_hw.circuits import Aligner, Tracking, TrackState
from lumion_hw.clock import VirtualClock
from lumion_hw.errors import CircuitError


class Drifting:
    """Four squeezers whose fibres turn before every reading, half of the motion before them and half behind."""

    def __init__(self, seed: int, drift_rad: float, *, reach_mv: float = 5000.0) -> None:
        self.path = Squeezers(seed, n=4, reach_mv=reach_mv)
        self.drift_rad = drift_rad
        self.rng = np.random.default_rng(seed + 500)
        self.turn_source = self.turn_taken = self.walk
        self.clock = VirtualClock()
        aligner = Aligner(self.clock)
        found = aligner.maximise("pol", self.path, self.path.reading_w)
        self.tracking: Tracking = aligner.track("pol", self.path, self.path.reading_w, found)
        self.states: list[TrackState] = []
        self.losses_db: list[float] = []
        self.moves_mv: list[float] = []

    def walk(self, state: np.ndarray) -> np.ndarray:
        # Two directions across the state, and half of the motion on either side: 0.01 rad rms per reading in all.
        vector = 0.5 * self.drift_rad * self.rng.standard_normal(3)
        angle = float(np.linalg.norm(vector))
        return turned(state, vector / angle, angle)

    def run(self, reads: int) -> None:
        for _ in range(reads):
            self.path.source, self.path.taken = self.turn_source(self.path.source), self.turn_taken(self.path.taken)
            before = self.path.settings
            self.states.append(self.tracking.step())
            self.losses_db.append(self.path.loss_db)
            self.moves_mv.append(float(np.abs(self.path.settings - before).max()))


def test_a_random_walk_of_a_hundredth_of_a_radian_per_reading_is_followed() -> None:
    losses = []
    for seed in range(3):
        drifting = Drifting(seed, 0.01)
        drifting.run(400)
        losses += drifting.losses_db
        assert not any(state.lost for state in drifting.states)
    assert np.percentile(losses, 99) <= 0.1  # polarization.md 8
    assert np.mean(losses) < 0.03  # the dither itself costs 0.011 dB


def test_a_random_walk_of_three_hundredths_is_followed_better_than_by_a_gradient() -> None:
    drifting = Drifting(4, 0.03)
    drifting.run(600)
    assert np.percentile(drifting.losses_db, 99) <= 0.43  # polarization.md 3, the dithered gradient


@pytest.mark.long
@pytest.mark.parametrize("drift_rad", [0.01, 0.03])
def test_a_random_walk_is_followed_for_long(drift_rad: float) -> None:
    losses = []
    for seed in range(10):
        drifting = Drifting(seed, drift_rad)
        drifting.run(3000)
        losses += drifting.losses_db
    assert np.percentile(losses, 99) <= {0.01: 0.1, 0.03: 0.43}[drift_rad]


def test_a_drift_that_never_turns_back_is_followed_past_the_ends_of_the_range_without_a_jump() -> None:
    """The light goes round the first squeezer's axis more than twice; its range is a turn either way."""
    drifting = Drifting(11, 0.01, reach_mv=3700.0)
    drifting.turn_source = lambda state: turned(state, AXES[0], 0.01)
    drifting.turn_taken = lambda state: state
    drifting.run(1500)  # 15 rad
    assert np.percentile(drifting.losses_db, 99) < 0.15
    assert not any(state.at_end for state in drifting.states)
    assert max(drifting.moves_mv) < 3700.0 / 4.0  # never a quarter turn at once


def bright_near_an_end(path: Squeezers, channel: int, drive_mv: float) -> None:
    """Put one squeezer there and the others where all light is taken: by what the path knows, not by a search."""
    others = [other for other in range(4) if other != channel]

    def missing(drives_mv: np.ndarray) -> float:
        path.settings = np.insert(drives_mv, channel, drive_mv)
        return 1.0 - path.pure

    within = [(-2500.0, 2500.0)] * 3
    found = minimize(missing, path.settings[others], method="Nelder-Mead", bounds=within, options={"fatol": 1e-7})
    path.set(np.insert(found.x, channel, drive_mv))


@pytest.mark.parametrize("channel", [0, 3])
@pytest.mark.parametrize("seed", [12, 13, 14])
def test_a_squeezer_that_starts_near_its_end_is_led_back_while_the_light_stays(seed: int, channel: int) -> None:
    """The first or the last one, for which the others can make up: twelve of twelve were back within 25 readings."""
    path, aligner = Squeezers(seed, n=4, reach_mv=4500.0), Aligner(VirtualClock())
    found = aligner.maximise("pol", path, path.reading_w)
    bright_near_an_end(path, channel, np.copysign(0.85 * 4500.0, -path.settings[channel]))
    assert path.loss_db < 0.05
    tracking = aligner.track("pol", path, path.reading_w, found)
    returning, losses, moves = False, [], []
    for _ in range(100):
        before = path.settings
        returning |= channel in tracking.step().returning
        losses.append(path.loss_db)
        moves.append(np.abs(path.settings - before).max())
    assert returning
    assert abs(path.settings[channel]) < 0.6 * 4500.0
    assert max(losses) < 0.1
    assert max(moves) < 3700.0 / 6.0


def test_light_that_goes_out_is_announced_and_light_that_flickers_is_not() -> None:
    drifting = Drifting(13, 0.003)
    drifting.run(50)
    drifting.path.power_w = 1e-8
    drifting.run(2)
    assert not drifting.states[-1].lost
    drifting.run(8)
    assert drifting.states[-1].lost


def test_the_estimate_of_what_is_missing_is_of_the_size_of_what_is_missing() -> None:
    drifting = Drifting(14, 0.01)
    drifting.run(400)
    told = np.mean([state.remaining_loss_db for state in drifting.states])
    assert 0.3 < told / np.mean(drifting.losses_db) < 3.0


def test_freezing_takes_the_dither_away() -> None:
    drifting = Drifting(15, 0.001)
    drifting.run(100)
    settings = drifting.tracking.freeze()
    assert drifting.path.settings == pytest.approx(settings)
    assert drifting.path.loss_db < 0.01


def test_every_reading_waits_for_the_squeezers() -> None:
    drifting = Drifting(16, 0.003)
    began = drifting.clock.now()
    drifting.run(10)
    assert drifting.clock.now() - began == pytest.approx(10 * drifting.path.settle_s)


def test_without_a_model_there_is_nothing_to_track_by() -> None:
    path = Squeezers(1)
    path.period_mv = np.full(3, 2800.0)
    aligner = Aligner(VirtualClock())
    found = aligner.maximise("pol", path, path.reading_w)
    assert found.method == "three-point"
    with pytest.raises(CircuitError, match="pol: cannot track"):
        aligner.track("pol", path, path.reading_w, found)
