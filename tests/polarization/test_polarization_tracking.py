"""Tracking of a polarization that drifts: loss, ends of the range, light that is lost."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from lumion_hw.clock import VirtualClock
from lumion_hw.errors import CircuitError
from lumion_hw.polarization import Aligner, Alignment, Tracking, TrackState, tracking as tracking_module
from tests.polarization.simulated_squeezers import AXES, Squeezers, random_state, turned


class Drifting:
    """Four squeezers whose fibres turn before every reading, half of the motion before them and half after them."""

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
        # Two directions across the state, and half of the motion on each side: 0.01 rad rms per reading in total.
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


# Of twenty searches about one ends at the brightest setting with a wrong idea of the fibres: its tracking loses up to
# some decibels at first. Which seed that is differs from processor to processor: the middle of several is judged.


def followed(seeds: range, drift_rad: float, reads: int) -> list[Drifting]:
    runs = [Drifting(seed, drift_rad) for seed in seeds]
    for run in runs:
        run.run(reads)
    return runs


def middle_of_worst_db(runs: list[Drifting]) -> float:
    """Return the loss that 99 of 100 readings of the median run stay below."""
    return float(np.median([np.percentile(run.losses_db, 99) for run in runs]))


def test_a_random_walk_of_a_hundredth_of_a_radian_per_reading_is_followed() -> None:
    runs = followed(range(3), 0.01, 240)
    assert not any(state.has_lost_light for run in runs for state in run.states)
    assert middle_of_worst_db(runs) <= 0.1  # docs/polarization.md#goals
    assert np.median([np.mean(run.losses_db) for run in runs]) < 0.03  # the dither itself costs 0.011 dB


@pytest.mark.parametrize(
    "reads", [pytest.param(400, marks=pytest.mark.long), pytest.param(3000, marks=pytest.mark.campaign)]
)
@pytest.mark.parametrize("drift_rad", [pytest.param(0.01, marks=pytest.mark.campaign), 0.03])
def test_a_random_walk_is_followed_for_long(drift_rad: float, reads: int) -> None:
    # 0.43 dB: the dithered gradient (docs/polarization.md, "Tracking").
    runs, limit_db = followed(range(10), drift_rad, reads), {0.01: 0.1, 0.03: 0.43}[drift_rad]
    assert sum(np.percentile(run.losses_db, 99) <= limit_db for run in runs) >= 8


def wandering(rng: np.random.Generator, angle: float) -> Callable[[np.ndarray], np.ndarray]:
    """Return a fibre that turns the light by an angle before every reading, about an axis that wanders."""
    axis = random_state(rng)

    def turn(state: np.ndarray) -> np.ndarray:
        nonlocal axis
        axis = axis + 0.033 * rng.standard_normal(3)  # another one after a thousand readings
        axis = axis / np.linalg.norm(axis)
        return turned(state, axis, angle)

    return turn


@pytest.mark.campaign
def test_fibres_that_turn_on_and_on_hardly_ever_cost_three_tenths_of_a_decibel() -> None:
    """1 rad/s, read every 11 ms, 10,000 times. Four failed when a wrong model could turn the light far at once."""
    beyond = []
    for seed in range(60, 63):
        drifting = Drifting(seed, 0.01)
        drifting.turn_source = wandering(drifting.rng, 0.011 / np.sqrt(2.0))
        drifting.turn_taken = wandering(drifting.rng, 0.011 / np.sqrt(2.0))
        drifting.run(10000)
        beyond.append(int((np.array(drifting.losses_db) > 0.3).sum()))
    assert np.median(beyond) <= 2, beyond


@pytest.mark.long
def test_a_drift_that_never_turns_back_is_followed_past_the_ends_of_the_range_without_a_jump() -> None:
    """The light goes round the first squeezer's axis more than twice; its range is a turn either way."""
    runs = []
    for seed in (11, 12, 13):
        drifting = Drifting(seed, 0.01, reach_mv=3700.0)
        drifting.turn_source = lambda state: turned(state, AXES[0], 0.01)
        drifting.turn_taken = lambda state: state
        drifting.run(1500)  # 15 rad
        runs.append(drifting)
    assert middle_of_worst_db(runs) < 0.15
    assert sum(not any(state.at_end for state in run.states) for run in runs) >= 2
    assert np.median([max(run.moves_mv) for run in runs]) < 3700.0 / 4.0  # never a quarter turn at once


def bright_near_an_end(path: Squeezers, channel: int, drive_mv: float) -> None:
    """Set one squeezer there and the others where all light is accepted, from the emulated truth."""
    others = [other for other in range(4) if other != channel]

    def missing(drives_mv: np.ndarray) -> float:
        path.settings = np.insert(drives_mv, channel, drive_mv)
        return 1.0 - path.pure

    within = [(-2500.0, 2500.0)] * 3
    starts = (path.settings[others], np.zeros(3), np.full(3, 900.0), np.full(3, -900.0))
    found = [minimize(missing, start, method="Nelder-Mead", bounds=within, options={"fatol": 1e-7}) for start in starts]
    path.set(np.insert(min(found, key=lambda one: one.fun).x, channel, drive_mv))


@pytest.mark.long
def test_a_squeezer_that_starts_near_its_end_is_led_back_while_the_light_stays() -> None:
    """The first or the last one, for which the others can compensate, within 25 readings in every trial."""
    worst_db, jumps_mv = [], []
    for seed in range(12, 18):
        channel = 0 if seed % 2 else 3
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
            moves.append(float(np.abs(path.settings - before).max()))
        assert returning
        assert abs(path.settings[channel]) < 0.6 * 4500.0
        worst_db.append(max(losses))
        jumps_mv.append(max(moves))
    assert np.median(worst_db) < 0.1
    assert np.median(jumps_mv) < 3700.0 / 6.0


def test_a_squeezer_far_from_the_middle_drifts_inwards_where_that_costs_no_light(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tracking_module, "_CIRCLE_RAD", 0.0)  # the circles would hide a drift of 1 % of the range
    for seed in (0, 3, 5):
        path, aligner = Squeezers(seed, n=4), Aligner(VirtualClock())
        found = aligner.maximise("pol", path, path.reading_w)
        bright_near_an_end(path, 0, 0.68 * 5000.0)
        tracking = aligner.track("pol", path, path.reading_w, found)
        places = []
        for _ in range(150):
            assert not tracking.step().returning
            places.append(path.settings[0] / 5000.0)
        assert np.mean(places[-30:]) < 0.65
        assert path.loss_db < 0.05


def misled(found: Alignment, path: Squeezers) -> Alignment:
    """Return an explanation that is right at the present setting and wrong elsewhere: constants off by a radian."""
    light = found.light
    assert light is not None
    offsets, state = light.offsets + np.array([0.0, 1.2, -0.9, 0.0]), light.accepted
    for index in reversed(range(4)):
        angle = 2.0 * np.pi * path.settings[index] / path.period_mv[index] + offsets[index]
        state = turned(state, AXES[index % 2], -float(angle))
    return replace(found, light=replace(light, offsets=offsets, state=state))


def test_a_wrong_idea_of_the_squeezers_is_noticed_before_it_costs_the_light() -> None:
    """With this explanation alone the tracker turns the light away and searches it in the wrong place."""
    worst_db, late_db = [], []
    for seed in range(20, 23):
        path, aligner = Squeezers(seed, n=4), Aligner(VirtualClock())
        found = aligner.maximise("pol", path, path.reading_w)
        tracking = aligner.track("pol", path, path.reading_w, misled(found, path))
        losses = []
        for _ in range(200):
            tracking.step()
            losses.append(path.loss_db)
        worst_db.append(max(losses))
        late_db.append(np.mean(losses[120:]))
    assert np.median(worst_db) < 3.0  # some ten decibels without
    assert np.median(late_db) < 0.3


def test_light_that_goes_out_is_announced_and_light_that_flickers_is_not() -> None:
    drifting = Drifting(13, 0.003)
    drifting.run(50)
    drifting.path.power_w = 1e-8
    drifting.run(2)
    assert not drifting.states[-1].has_lost_light
    drifting.run(8)
    assert drifting.states[-1].has_lost_light


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
    path, aligner = Squeezers(1), Aligner(VirtualClock())
    found = aligner.maximise("pol", path, path.reading_w)
    with pytest.raises(CircuitError, match="pol: cannot track"):
        aligner.track("pol", path, path.reading_w, replace(found, light=None))
