"""Hypotheses about wrong wiring: which ones are tried, and which currents the heaters then carry."""

from __future__ import annotations

import numpy as np
import pytest

from calibration.diagnose.miswiring import EXCHANGED, SHARED, Miswiring, miswiring_candidates
from calibration.model.observations import Observations


@pytest.mark.parametrize(
    ("kind", "carried"),
    [
        (EXCHANGED, [1.0, 4.0, 3.0, 2.0]),
        (SHARED, [1.0, 1.0, 3.0, 1.0]),  # two equal heaters in parallel carry half of the 2 mA each
    ],
)
def test_heaters_carry_the_currents_that_the_wiring_gives_them(kind: str, carried: list[float]) -> None:
    currents, dark = np.array([[1.0, 2.0, 3.0, 4.0]]), np.zeros((1, 1))
    seen = Observations(currents, np.zeros(1, dtype=np.int64), (0,), dark, dark > 0.0)
    assert Miswiring(kind, 1, 3).corrected(seen).currents_ma.tolist() == [carried]
    assert seen.currents_ma.tolist() == [[1.0, 2.0, 3.0, 4.0]]


def test_a_channel_can_be_shared_only_if_another_channel_has_no_effect() -> None:
    assert {wiring.kind for wiring in miswiring_candidates([0, 2, 5], [])} == {EXCHANGED}
    shared = [wiring for wiring in miswiring_candidates([0, 2, 5], [7]) if wiring.kind == SHARED]
    assert shared == [Miswiring(SHARED, 0, 7), Miswiring(SHARED, 2, 7), Miswiring(SHARED, 5, 7)]


def test_both_heaters_of_one_puc_are_no_candidate_because_the_light_stays_the_same() -> None:
    assert list(miswiring_candidates([4, 5], [])) == []
    assert list(miswiring_candidates([4], [5])) == []
