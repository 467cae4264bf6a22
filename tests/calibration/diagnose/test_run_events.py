"""What broke while it was measured: when, and that healthy elements are not blamed."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from calibration.diagnose.breakdowns import (
    Breakdown,
    find_dead_heater,
    find_dead_monitors,
    without_dead_heater,
    without_dead_monitors,
)
from calibration.measure.design import IncrementalSettings
from calibration.model.ideal_mesh import MeanLight
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.observations import NoiseModel, Observations
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.layout.topologies import build_mesh
from tests.calibration.simulated_mesh import FLOOR_MA, FULL_TURN_MA, RELATIVE, SimulatedMesh

SMALL = HexMesh.columns((2, 3, 2))
NOISE = NoiseModel(RELATIVE, FLOOR_MA)


@cache
def light() -> MeanLight:
    """Computed by the first test: what is collected compiles nothing."""
    return MeanLight.of(SMALL)


@pytest.fixture
def small() -> SimulatedMesh:
    return SimulatedMesh.draw(SMALL, 5)


def _readings(small: SimulatedMesh, deaths: tuple[Breakdown, ...] = (), count: int = 120) -> Observations:
    """Settings as asked for, and what was read though heaters had died."""
    walk = IncrementalSettings(np.full(2 * SMALL.n_pucs, FULL_TURN_MA), small.ports[:3], small.ports, changed=60)
    asked = walk.random(count, small.rng)
    done = asked
    for death in deaths:
        done = without_dead_heater(done, death)
    measured = small.measure(done.currents_ma, done.source)
    return replace(measured, currents_ma=asked.currents_ma)


def _found(small: SimulatedMesh, observations: Observations) -> Breakdown | None:
    return find_dead_heater(
        MeshModel(SMALL, small.ports, small.ports), small.parameters(), Likelihood(observations, NOISE)
    )


@pytest.mark.parametrize("first", [0, 40, 90])
def test_a_heater_that_dies_is_found_with_the_setting_it_died_at(small: SimulatedMesh, first: int) -> None:
    observations = _readings(small, (Breakdown(11, first),))
    found = _found(small, observations)
    assert found is not None
    assert found.number == 11
    alive = np.flatnonzero(observations.currents_ma[:first, 11])
    assert alive.max(initial=-1) < found.first <= first  # a heater that is off shows nothing


def test_healthy_heaters_are_not_blamed(small: SimulatedMesh) -> None:
    assert _found(small, _readings(small)) is None


def test_a_monitor_is_dead_where_it_stays_dark_to_the_end(small: SimulatedMesh) -> None:
    observations = _readings(small)
    observations.reading_ma[69:, 3] = 0.01, *np.zeros(50)
    port = observations.monitors[3]
    (death,) = find_dead_monitors(observations, NOISE, light())
    assert death == Breakdown(port, 70)
    seen = without_dead_monitors(observations, (death,))
    assert np.isnan(seen.reading_ma[70:, 3]).all()
    assert np.isfinite(seen.reading_ma[:70]).all()


def test_a_monitor_that_is_dark_for_a_while_only_is_alive(small: SimulatedMesh) -> None:
    observations = _readings(small)
    observations.reading_ma[30:60, 3] = 0.0
    assert find_dead_monitors(observations, NOISE, light()) == ()


def test_a_monitor_that_a_source_hardly_reaches_may_be_dark_to_the_end() -> None:
    """Twelve modes: light from the lowest input leaves at the highest output only if eleven MZIs are set right."""
    mesh = build_mesh("clements", (12,))
    source, reading = np.repeat([0, 5, 11], 40), np.full((120, 2), 0.01)
    reading[80:] = 0.0
    readings = Observations(np.ones((120, 2 * mesh.n_pucs)), source, (12, 22), reading, reading < 0.0)
    (death,) = find_dead_monitors(readings, NOISE, MeanLight.of(mesh))
    assert death == Breakdown(22, 80)  # the other output, where this light is bright


def test_a_saturated_monitor_is_not_dark(small: SimulatedMesh) -> None:
    observations = _readings(small)
    observations.reading_ma[70:, 3] = np.nan
    observations.saturated[70:, 3] = True
    assert find_dead_monitors(observations, NOISE, light()) == ()
