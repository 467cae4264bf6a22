"""The search with boxes that optimise themselves, whatever their own search is."""

from __future__ import annotations

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.errors import CircuitError, DeviceError
from lumion_hw.polarization import Aligner, Alignment
from lumion_hw.polarization.feedback import FeedbackSearch, remaining_loss_db
from tests.polarization.simulated_boxes import Box, GradientBox, TryingBox

BOXES = [GradientBox, TryingBox]


def brightest(box: Box) -> Alignment:
    return Aligner(VirtualClock()).maximise("pol", box, box.reading_w)


def darkest(box: Box) -> Alignment:
    return Aligner(VirtualClock()).minimise("pol", box, box.reading_w)


@pytest.mark.parametrize("kind", BOXES)
def test_a_null_ends_within_three_decibels_of_the_crosstalk(kind: type[Box]) -> None:
    for seed in range(20):
        box = kind(seed, crosstalk=1e-3)
        found = darkest(box)
        extinction_db = 10.0 * np.log10(box.power / box.power_w)
        assert extinction_db == pytest.approx(-30.0, abs=3.0)  # docs/polarization.md#goals
        assert found.reads == box.reads <= 400
        assert found.remaining_loss_db < 0.02


@pytest.mark.parametrize("kind", BOXES)
def test_the_brightest_is_found_to_a_twentieth_of_a_decibel(kind: type[Box]) -> None:
    boxes = [kind(seed) for seed in range(20)]
    found = [brightest(box) for box in boxes]
    assert max(box.loss_db for box in boxes) < 0.05
    assert max(each.reads for each in found) <= 250
    assert np.mean([box.loss_db <= each.remaining_loss_db for box, each in zip(boxes, found, strict=True)]) > 0.85


@pytest.mark.parametrize("kind", BOXES)
def test_the_result_says_what_was_read_and_holds_the_light_there(kind: type[Box]) -> None:
    box = kind(3)
    found = brightest(box)
    assert box.calls[-1] == "stop"
    assert found.method == "feedback"
    assert found.settings.shape == (0,)
    assert found.light is None
    assert found.power == pytest.approx(box.power, rel=0.02)
    assert found.swing_db > 1.0


@pytest.mark.parametrize("kind", BOXES)
@pytest.mark.parametrize("search", [brightest, darkest])
def test_every_factor_is_above_zero_and_at_most_a_hundred(kind: type[Box], search: object) -> None:
    box = kind(5)
    search(box)  # type: ignore[operator]
    assert min(box.factors) > 0.0
    assert max(box.factors) <= 100.0
    assert max(box.factors) > 20.0  # "maximum scaled to 1-100 …; larger scale converges faster"


def test_every_reading_waits_for_the_box() -> None:
    clock, box = VirtualClock(), TryingBox(4)
    stepped_at: list[float] = []
    waited: list[float] = []
    step = box.step

    def stepped(factor: float) -> None:
        stepped_at.append(clock.now())
        step(factor)

    def read() -> float:
        waited.extend([clock.now() - stepped_at[-1]] if stepped_at else [])
        return box.reading_w()

    box.step = stepped  # type: ignore[method-assign]
    Aligner(clock).maximise("pol", box, read)
    assert min(waited) == pytest.approx(box.settle_s)


def test_without_light_it_says_so_soon_and_stops() -> None:
    box = TryingBox(6)
    box.power_w = 0.0
    with pytest.raises(CircuitError, match="pol: no light arrives for any polarization"):
        brightest(box)
    assert box.reads <= 30
    assert not box.running
    with pytest.raises(CircuitError, match="no light"):
        darkest(box)


@pytest.mark.parametrize("failure", [DeviceError("over-range"), KeyboardInterrupt()])
def test_a_search_cut_short_stops_the_box(failure: BaseException) -> None:
    box = GradientBox(7)

    def read() -> float:
        if box.reads == 15:
            raise failure
        return box.reading_w()

    with pytest.raises(type(failure)):
        Aligner(VirtualClock()).maximise("pol", box, read)
    assert not box.running


def test_a_box_that_never_finds_anything_ends_as_well() -> None:
    class Lost(Box):
        def step(self, factor: float) -> None:
            self.angles_rad = self.rng.uniform(0.0, np.pi, 6)

    box = Lost(8)
    found = brightest(box)
    assert found.reads < 1100
    assert found.remaining_loss_db < 3.0


def test_a_box_that_does_nothing_is_left_alone_after_its_patience() -> None:
    class Idle(Box):
        def step(self, factor: float) -> None: ...

    found = brightest(Idle(9))
    assert found.reads <= 110
    assert found.swing_db < 0.2  # the message means that this is not the measured source


def test_a_brighter_light_than_thought_begins_anew() -> None:
    """Earlier factors then have another meaning; a box that remembers its best one would never find a better one."""
    search = FeedbackSearch(sign=1.0, noise_db=0.01)
    first = search.next_step(1.0)
    assert first is not None
    assert (first.factor, first.restart) == (pytest.approx(50.0), False)
    assert [step.restart for power in (1.5, 1.9, 2.0, 3.0) if (step := search.next_step(power))] == [
        False,
        False,
        True,
        False,
    ]


def test_factors_get_small_where_the_light_is_bright() -> None:
    """The steps of a box can be as large as its factor, so it must not step at the brightest setting."""
    search = FeedbackSearch(sign=1.0, noise_db=0.01)
    steps = [search.next_step(1.0) for _ in range(40)]
    assert steps[0] is not None
    assert steps[-1] is not None
    assert steps[0].factor == pytest.approx(50.0)
    assert steps[-1].factor == pytest.approx(100.0 * (1.0 - 1.0 / 1.02))
    assert [step.restart for step in steps if step].count(True) == 1


def test_what_is_missing_is_told_from_the_brightest() -> None:
    assert remaining_loss_db(0.5, 1.0, 1.0) == pytest.approx(3.0103, abs=1e-4)
    assert remaining_loss_db(0.01, 1.0, -1.0) == pytest.approx(-10.0 * np.log10(0.99))
    assert remaining_loss_db(0.0, 1.0, -1.0) == 0.0
