"""All heaters are swept on whatever background there is, one channel changing per setting."""

from __future__ import annotations

import numpy as np
import pytest

from calibration.measure.heater_fringe import HeaterFit
from calibration.measure.heater_sweeps import HeaterSweepPlan, HeaterSweeps
from calibration.measure.logbook import Logbook
from calibration.model.ideal_mesh import MeanLight
from calibration.model.nominal_heaters import NominalHeaters
from calibration.model.observations import NoiseModel
from lumion_hw.mesh.layout.hexagonal import HexMesh
from tests.calibration.simulated_bench import SimulatedBench
from tests.calibration.simulated_mesh import FLOOR_MA, RELATIVE

MESH = HexMesh.columns((1, 2, 1))


Swept = tuple[SimulatedBench, Logbook, dict[int, HeaterFit]]


@pytest.fixture(scope="module")
def sound() -> Swept:
    """All heaters of one bench, swept; what several tests look at."""
    bench = SimulatedBench.draw(MESH, 1)
    return bench, *_swept(bench)


@pytest.fixture(scope="module")
def dead() -> Swept:
    """The same with a dead heater."""
    bench = SimulatedBench.draw(MESH, 1)
    bench.simulated.truth.stuck_current_ma[7] = 0.0
    return bench, *_swept(bench)


def _swept(bench: SimulatedBench) -> tuple[Logbook, dict[int, HeaterFit]]:
    logbook = Logbook(bench)
    noise = NoiseModel(RELATIVE, FLOOR_MA)
    sweeps = HeaterSweeps(
        logbook,
        MeanLight.of(bench.mesh),
        bench.sources,
        noise,
        NominalHeaters(),
        HeaterSweepPlan(),
        np.random.default_rng(5),
    )
    fits: dict[int, HeaterFit] = {}
    sweeps.run(fits, lambda done, total: None)
    return logbook, fits


def _turn_errors_rad(bench: SimulatedBench, fits: dict[int, HeaterFit]) -> np.ndarray:
    true = bench.simulated.laws(2.05)
    errors = []
    for heater, fit in fits.items():
        assert fit.law is not None
        square = 2.0 * np.pi / true[heater, 0]
        errors.append(fit.law.phase_rad(float(np.sqrt(square))) - true[heater] @ square ** np.arange(1, 4))
    return np.array(errors)


def test_every_law_is_known_to_two_percent(sound: Swept) -> None:
    bench, _, fits = sound
    assert_known(bench, fits)


@pytest.mark.long
@pytest.mark.parametrize("seed", [2, 3])
def test_so_it_is_on_other_benches(seed: int) -> None:
    bench = SimulatedBench.draw(MESH, seed)
    assert_known(bench, _swept(bench)[1])


def assert_known(bench: SimulatedBench, fits: dict[int, HeaterFit]) -> None:
    errors = _turn_errors_rad(bench, fits)
    assert np.sqrt((errors**2).mean()) < 0.01 * 2 * np.pi
    assert np.abs(errors).max() < 0.05 * 2 * np.pi


def test_one_channel_changes_from_setting_to_setting(sound: Swept) -> None:
    _, logbook, _ = sound
    currents = logbook.observations().currents_ma
    changed = (np.diff(currents, axis=0) != 0).sum(axis=1)
    assert set(changed.tolist()) == {0, 1}  # 0 where only the light moves


@pytest.mark.long
def test_the_whole_mesh_takes_some_1100_settings_and_16_seconds() -> None:
    bench = SimulatedBench.draw(HexMesh.smartlight(), 4)
    logbook, fits = _swept(bench)
    assert np.sqrt((_turn_errors_rad(bench, fits) ** 2).mean()) < 0.01 * 2 * np.pi
    assert logbook.effort.settings < 1200
    assert logbook.effort.hardware_s < 18.0


def test_a_dead_heater_is_looked_at_several_times_and_has_no_law(dead: Swept) -> None:
    _, _, fits = dead
    assert [heater for heater, fit in fits.items() if fit.law is None] == [7]


def test_a_heater_without_effect_is_swept_again_on_other_backgrounds_with_one_write_for_each(dead: Swept) -> None:
    _, logbook, _ = dead
    currents = logbook.observations().currents_ma
    changed = (np.diff(currents, axis=0) != 0).sum(axis=1)
    assert (changed > MESH.n_pucs).sum() == 12  # of fourteen sweeps the first two use the mesh as it is
