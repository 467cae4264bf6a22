"""The search for a polarization: readings, remaining loss, and reports for readings that the model does not explain."""

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.errors import CircuitError
from lumion_hw.polarization import Aligner, Alignment
from tests.polarization.simulated_squeezers import AXES, LightPath, Paddles, Squeezers, turned


def brightest(path: LightPath) -> Alignment:
    return Aligner(VirtualClock()).maximise("pol", path, path.reading_w)


def darkest(path: LightPath) -> Alignment:
    return Aligner(VirtualClock()).minimise("pol", path, path.reading_w)


def check_goal(seeds: range) -> None:
    """Issue 5: below 0.05 dB in all, about 8 readings and at most 20 in 95 of 100, the stop included.

    Half of the searches take 7 or 8 readings, the others 9 to 11: whether the median of some is 8 or 9 depends on the
    last bits of the processor, while their mean, 8.5 with a spread of 0.9, tells.
    """
    paths = [Squeezers(seed) for seed in seeds]
    found = [brightest(path) for path in paths]
    reads = [path.reads for path in paths]
    assert max(path.loss_db for path in paths) < 0.05
    assert np.mean(reads) <= 8.6 + 3.0 * 0.9 / np.sqrt(len(reads))
    if len(reads) >= 400:
        assert np.median(reads) <= 8  # the goal itself
    assert np.percentile(reads, 95) <= 20
    assert reads == [each.reads for each in found]
    honest = np.mean([path.loss_db <= each.remaining_loss_db for path, each in zip(paths, found, strict=True)])
    assert honest > (0.85 if len(reads) >= 100 else 0.6)


def few_and_all(few: int, every: int) -> pytest.MarkDecorator:
    """Draw some with the fast tests, which find permanent errors, and all with the long tests."""
    return pytest.mark.parametrize("draws", [few, pytest.param(every, marks=pytest.mark.long)])


def test_three_squeezers_find_the_maximum_in_eight_readings() -> None:
    check_goal(range(1000, 1008))


@pytest.mark.parametrize(
    "states", [pytest.param(50, marks=pytest.mark.long), pytest.param(400, marks=pytest.mark.campaign)]
)
def test_three_squeezers_find_the_maximum_in_eight_readings_from_many_states(states: int) -> None:
    check_goal(range(states))


@few_and_all(3, 10)
def test_one_reading_more_than_there_are_unknowns_is_taken_at_the_least(draws: int) -> None:
    """Two states, one constant between the squeezers and the power are six unknowns: six readings fit anything."""
    assert min(brightest(Squeezers(seed)).reads for seed in range(2000, 2000 + draws)) >= 7


def test_the_stop_is_at_the_setting_that_is_reported_and_in_force() -> None:
    path = Squeezers(1)
    found = brightest(path)
    assert found.method == "model"
    assert found.settings == pytest.approx(path.settings)
    assert found.power == pytest.approx(path.power, rel=0.02)


def test_readings_in_decibels_instead_of_watts_spoil_the_search() -> None:
    """The judge of the other tests: fed with decibels they must fail. Over -80 dBm, so that no sign gives it away."""
    losses, reads, methods = [], [], []
    for seed in range(1000, 1003):
        path = Squeezers(seed)

        def decibels(path: Squeezers = path) -> float:
            return 80.0 + 10.0 * float(np.log10(1e3 * path.reading_w()))

        found = Aligner(VirtualClock()).maximise("pol", path, decibels)
        losses.append(path.loss_db)
        reads.append(found.reads)
        methods.append(found.method)
    assert max(losses) > 0.05 or np.median(reads) > 8
    assert "three-point" in methods


def test_readings_in_dbm_are_no_light() -> None:
    path = Squeezers(1)
    with pytest.raises(CircuitError, match="no light"):
        Aligner(VirtualClock()).maximise("pol", path, lambda: 10.0 * float(np.log10(1e3 * path.reading_w())))


@few_and_all(1, 5)
@pytest.mark.parametrize("floor_db", [-20.0, -30.0])
def test_a_null_ends_at_the_crosstalk_and_says_so_without_hunting(floor_db: float, draws: int) -> None:
    for seed in range(3000, 3000 + draws):
        path = Squeezers(seed)
        path.crosstalk = 10.0 ** (floor_db / 10.0)
        found = darkest(path)
        assert found.reads <= 25
        extinction_db = 10.0 * np.log10(path.power / path.power_w)
        assert extinction_db == pytest.approx(floor_db, abs=1.0)  # docs/polarization.md#goals asks 3 dB
        assert found.floor_power is not None
        assert 10.0 * np.log10(found.floor_power / path.power_w) == pytest.approx(floor_db, abs=1.5)
        assert found.worst_power > 5.0 * found.power


@few_and_all(1, 5)
def test_a_null_without_crosstalk_is_deeper_than_40_db(draws: int) -> None:
    for seed in range(3100, 3100 + draws):
        path = Squeezers(seed)
        found = darkest(path)
        assert found.reads <= 25
        assert path.pure < 1e-4
        assert found.remaining_loss_db < 0.01


@few_and_all(1, 5)
def test_a_search_with_loud_readings_takes_them_for_what_they_are(draws: int) -> None:
    """0.1 dB of noise: less light is found, and the estimate is not better than the result."""
    paths = [Squeezers(seed, noise_db=0.1) for seed in range(4000, 4000 + draws)]
    aligner = [Aligner(VirtualClock(), noise_db=0.1) for _ in paths]
    found = [a.maximise("pol", path, path.reading_w) for a, path in zip(aligner, paths, strict=True)]
    assert max(path.loss_db for path in paths) < 0.3
    assert max(each.reads for each in found) <= 45


@pytest.mark.long
def test_a_fourth_squeezer_takes_part_and_costs_a_reading_or_two() -> None:
    """Tracking must know how each squeezer turns the light."""
    paths = [Squeezers(seed, n=4) for seed in range(5000, 5010)]
    found = [brightest(path) for path in paths]
    assert max(path.loss_db for path in paths) < 0.05
    # Eight for three squeezers, and two more; one search takes 8 to 12, and another processor sends it another way.
    assert np.mean([each.reads for each in found]) < 11.0
    assert all(each.settings[3] != 0.0 for each in found)


@few_and_all(1, 5)
def test_squeezers_that_reach_no_whole_turn_are_led_as_far_as_they_go(draws: int) -> None:
    for seed in range(draws):
        path = Squeezers(seed, n=4, reach_mv=1000.0)
        start_w = path.power
        found = brightest(path)
        assert path.power >= 0.98 * start_w
        assert (np.abs(found.settings) <= 1000.0).all()


def explained_w(found: Alignment, phases: np.ndarray) -> float:
    """Return the power that the explanation of a search predicts, calculated independently."""
    light = found.light
    assert light is not None
    state = light.state
    for index, angle in enumerate(phases + light.offsets):
        state = turned(state, AXES[index % 2], float(angle))
    return float(light.p0 * ((1.0 - 2.0 * light.crosstalk) * (1.0 + light.accepted @ state) / 2.0 + light.crosstalk))


@pytest.mark.parametrize(
    "seeds", [range(6000, 6002), pytest.param(range(6100, 6140), marks=pytest.mark.campaign)], ids=["two", "forty"]
)
def test_what_explains_the_brightest_setting_explains_all_others(seeds: range) -> None:
    """Sweeps that learn the periods, one squeezer after the other, agree with many explanations: tracking needs one."""
    errors = []
    for seed in seeds:
        path, aligner = Squeezers(seed, n=4, told=False), Aligner(VirtualClock())
        found = aligner.maximise("pol", path, path.reading_w)
        periods = aligner.periods("pol")
        assert len(periods) == 4
        assert path.loss_db < 0.05
        elsewhere = np.random.default_rng(seed).uniform(-3000.0, 3000.0, (30, 4))
        missed = []
        for settings in elsewhere:
            path.set(settings)
            phases = 2.0 * np.pi * path.settings / np.array([periods[channel] for channel in range(4)])
            missed.append((explained_w(found, phases) - path.power) / path.power_w)
        errors.append(np.sqrt(np.mean(np.square(missed))))
    # Periods are learned to one part in 300: some hundredths of a radian near the ends.
    assert max(errors) < 0.05


@few_and_all(4, 8)
def test_a_wrong_period_is_noticed_and_the_search_goes_round_the_squeezers_instead(draws: int) -> None:
    fallen_back = 0
    for seed in range(draws):
        path = Squeezers(seed)
        path.period_mv = np.full(3, 2800.0)  # and 3700 is reported
        found = brightest(path)
        fallen_back += found.method == "three-point"
        assert found.light is None or found.method == "model"
    assert fallen_back >= 0.75 * draws


@few_and_all(1, 4)
def test_hysteresis_sends_the_search_round_the_squeezers_and_costs_little(draws: int) -> None:
    """A squeezer that lags by 0.2 rad towards where it came from."""
    for seed in range(draws):
        path = Squeezers(seed)
        move = path.set

        def lagging(settings: np.ndarray, path: Squeezers = path, move: object = move) -> None:
            behind = 0.2 / (2 * np.pi) * 3700.0 * np.sign(settings - path.settings)
            Squeezers.set(path, np.clip(settings - behind, -5000.0, 5000.0))

        path.set = lagging  # type: ignore[method-assign]
        found = brightest(path)
        assert path.loss_db < 0.5
        assert found.reads < 150


@pytest.mark.parametrize(
    ("fibre", "seeds", "share"),
    [
        ({}, 3, 0.5),
        pytest.param({}, 15, 0.7, marks=pytest.mark.campaign),
        # Of another wavelength, of twisted fibre, which turns the light by itself, not counted from the same direction.
        pytest.param({"retardances_rad": (1.2, 2.7, 1.9)}, 15, 0.7, marks=pytest.mark.campaign),
        pytest.param({"twist": 0.92}, 15, 0.7, marks=pytest.mark.campaign),
        pytest.param({"offset": True}, 15, 0.7, marks=pytest.mark.campaign),
        pytest.param(
            {"retardances_rad": (1.2, 2.7, 1.9), "twist": 0.92, "offset": True}, 15, 0.7, marks=pytest.mark.long
        ),
    ],
)
def test_paddles_are_searched_by_inference_in_some_sixteen_readings(fibre: dict, seeds: int, share: float) -> None:
    """Two or three searches of a hundred end with a wrong explanation; rounding decides which ones."""
    paths = [Paddles(seed, **fibre) for seed in range(seeds)]
    found = [brightest(path) for path in paths]
    assert np.mean([path.loss_db < 0.05 for path in paths]) >= share + 0.1
    assert np.median([path.reads for path in paths]) <= 18
    assert max(path.reads for path in paths) <= 22
    assert {each.method for each in found} == {"model"}
    assert {each.light for each in found} == {None}
    holds = [path.loss_db <= each.remaining_loss_db for path, each in zip(paths, found, strict=True)]
    assert np.mean(holds) > share


@few_and_all(1, 6)
def test_paddles_end_at_the_crosstalk_and_say_so(draws: int) -> None:
    for seed in range(draws):
        path = Paddles(seed)
        path.crosstalk = 1e-3
        found = darkest(path)
        assert found.settings == pytest.approx(path.settings, abs=0.07)
        assert ((found.settings >= 0.0) & (found.settings <= 170.0)).all()
        extinction_db = 10.0 * np.log10(path.power / path.power_w)
        assert extinction_db == pytest.approx(-30.0, abs=3.0)  # docs/polarization.md#goals
        assert found.floor_power is not None
        assert 10.0 * np.log10(found.floor_power / path.power_w) == pytest.approx(-30.0, abs=3.0)
        assert found.reads <= 22


def test_two_paddles_are_led_as_far_as_they_go() -> None:
    for seed in range(2):
        path = Paddles(seed, retardances_rad=(np.pi / 2, np.pi / 2))
        found = brightest(path)
        angles = np.linspace(0.0, 170.0, 25)
        best = 0.0
        for first in angles:
            for second in angles:
                path.settings = np.array([first, second])
                best = max(best, path.pure)
        path.settings = found.settings
        assert path.pure > 0.98 * best


@pytest.mark.long
def test_paddles_with_fibre_between_them_are_searched_round_by_round() -> None:
    """Plates of fixed retardance cannot explain these readings: five readings for each paddle, from several places."""
    for seed in range(2):
        path = Paddles(seed, between_rad=1.0)
        path.crosstalk = 1e-3
        found = darkest(path)
        assert found.method == "three-point"
        assert 10.0 * np.log10(path.power / path.power_w) == pytest.approx(-30.0, abs=3.0)
        assert found.reads <= 450


def test_paddles_without_light_are_led_back() -> None:
    path = Paddles(3)
    before = path.settings.copy()
    path.power_w = 0.0
    with pytest.raises(CircuitError, match="no light"):
        brightest(path)
    assert path.settings == pytest.approx(before, abs=0.07)


def test_periods_that_the_controller_tells_are_not_learnt() -> None:
    path = Squeezers(6)
    aligner = Aligner(VirtualClock())
    aligner.maximise("pol", path, path.reading_w)
    assert aligner.periods("pol") == {0: 3700.0, 1: 3700.0, 2: 3700.0}
    assert path.reads < 13


def test_periods_that_are_learnt_are_right_to_a_part_in_three_hundred() -> None:
    path = Squeezers(7, told=False)
    aligner = Aligner(VirtualClock())
    aligner.maximise("pol", path, path.reading_w)
    assert list(aligner.periods("pol").values()) == pytest.approx([3700.0] * 3, rel=1 / 300)


def test_the_same_readings_lead_the_same_way() -> None:
    first, second = Squeezers(8), Squeezers(8)
    assert brightest(first).settings == pytest.approx(brightest(second).settings, abs=0)
