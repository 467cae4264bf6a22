"""Hypotheses about wrong wiring: which ones are tried, and which currents the heaters then carry."""

from __future__ import annotations

import numpy as np
import pytest

from calibration.diagnose.miswiring import EXCHANGED, SHARED, Miswiring, miswiring_candidates
from calibration.model.nominal_heaters import PUBLISHED_HEATERS
from calibration.model.observations import Observations
from lumion_hw.mesh.layout.hexagonal import HexMesh
from tests.calibration.simulated_mesh import SimulatedMesh


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


def test_a_weak_heater_and_a_dead_one_are_no_shared_channel() -> None:
    """A fit that gives the second heater no effect explains a dead heater, whatever the first channel drives."""
    wiring = Miswiring(SHARED, 4, 9)
    parameters = SimulatedMesh.draw(HexMesh.columns((2, 3, 2)), 8).parameters()
    assert wiring.is_plausible(wiring.with_expected_laws(parameters, PUBLISHED_HEATERS), PUBLISHED_HEATERS)
    parameters.heater_law[9] = 0.01
    assert not wiring.is_plausible(parameters, PUBLISHED_HEATERS)
    assert Miswiring(EXCHANGED, 4, 9).is_plausible(parameters, PUBLISHED_HEATERS)
