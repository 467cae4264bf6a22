"""From nothing but light to a start for the global fit, on the whole 72-PUC mesh and with faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from calibration.fit.global_fit import GlobalFit
from calibration.fit.phase_search import PhaseSearch, SearchPlan, SearchResult
from calibration.measure.logbook import Logbook, LogbookEntry
from calibration.model.device_under_test import DeviceUnderTest
from calibration.model.gauge import loop_rms_rad, wrapped
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.priors import default_prior
from calibration.run.bootstrap import Bootstrap, BootstrapPlan, Start, interfering_puc
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.layout.topologies import build_mesh
from tests.calibration.simulated_bench import SimulatedBench

WHOLE = HexMesh.smartlight()
SMALL = HexMesh.columns((1, 2, 1))
TINY = HexMesh.columns((2,))
SMALL_PLAN = BootstrapPlan(random_settings=200)


def _started(
    bench: SimulatedBench, plan: BootstrapPlan, before: Sequence[LogbookEntry] = (), seed: int = 1
) -> tuple[Logbook, Start]:
    logbook = Logbook(bench, before=before)
    channels = tuple(range(2 * bench.mesh.n_pucs))
    device = DeviceUnderTest("S-1", "simulated", "1.0", channels, 1550.0, 1000.0, (1.2, 2.0), 0.8)
    return logbook, Bootstrap(logbook, device, seed, plan).run()


def faults(start: Start) -> tuple[str, ...]:
    """Return sentences about all problems found."""
    return *(defect.evidence for defect in start.defects), *start.warnings


def _passive_errors_rad(bench: SimulatedBench, passive_rad: np.ndarray) -> np.ndarray:
    return np.abs(wrapped(passive_rad - bench.simulated.truth.passive_phase))


@pytest.mark.campaign  # the demo calibrates the same mesh
def test_the_whole_mesh_is_known_to_50_mrad_after_half_a_minute_and_to_1_mrad_after_the_global_fit() -> None:
    bench = SimulatedBench.draw(WHOLE, 2)
    logbook, start = _started(bench, BootstrapPlan())
    true = bench.simulated.truth
    errors = _passive_errors_rad(bench, start.parameters.passive_phase_rad)
    assert start.trusted
    assert faults(start) == ()
    assert np.sqrt((errors**2).mean()) < 0.06
    assert errors.max() < 0.35
    assert loop_rms_rad(WHOLE, start.parameters.joint_phase_rad - true.joint_phase) < 0.06
    assert logbook.effort.settings < 2100
    assert logbook.effort.hardware_s < 35.0
    model = MeshModel(WHOLE, start.survey.sources, start.survey.monitors)
    likelihood = Likelihood(start.random, start.survey.noise)
    fit = GlobalFit(model, likelihood, default_prior(model.space, start.parameters)).run(start.parameters)
    assert fit.certified
    errors = _passive_errors_rad(bench, fit.parameters.passive_phase_rad)
    assert np.sqrt((errors**2).mean()) < 1e-3
    assert loop_rms_rad(WHOLE, fit.parameters.joint_phase_rad - true.joint_phase) < 1e-3


@pytest.mark.long
@pytest.mark.parametrize("sources", [(0,), (1, 6, 11)])
def test_few_sources_are_enough(sources: tuple[int, ...]) -> None:
    bench = SimulatedBench.draw(SMALL, 3, sources)
    _, start = _started(bench, SMALL_PLAN)
    assert start.trusted
    assert _passive_errors_rad(bench, start.parameters.passive_phase_rad).max() < 0.4


@pytest.mark.long
def test_a_start_is_found_in_the_light_of_one_laser_and_counts_the_settings_of_all() -> None:
    bench = SimulatedBench.draw(SMALL, 3, (0, 4, 9))
    search = SearchPlan(source_phase_rad=0.2, one_laser_first=True)
    _, start = _started(bench, BootstrapPlan(random_settings=340, search=search))
    lit = np.bincount(np.searchsorted(start.survey.sources, start.random.source))
    assert lit.tolist() == [247, 47, 46]  # 100 of 170 readings are the first one's alone
    assert start.trusted
    assert _passive_errors_rad(bench, start.parameters.passive_phase_rad).max() < 0.4
    assert np.count_nonzero(np.diff(start.random.source)) == 2  # each laser once


def test_searches_of_all_portions_count_as_work(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[float] = []
    search = PhaseSearch.run

    def counted(self: PhaseSearch, *args: Any) -> SearchResult:
        found = search(self, *args)
        made.append(found.work)
        return found

    monkeypatch.setattr(PhaseSearch, "run", counted)
    # Searches for another cause do not count.
    monkeypatch.setattr("calibration.run.bootstrap._CROSSTALK_TRIALS", ())
    monkeypatch.setattr("calibration.run.bootstrap.exchange_candidates", lambda *_: [])
    # No search explains everything: each is followed by another one with more settings.
    never = SearchPlan(plausible=0.0, unexplained=0.0, starts=1, steps=5)
    _, start = _started(SimulatedBench.draw(TINY, 3), BootstrapPlan(random_settings=60, portions=3, search=never))
    assert len(made) == 3
    assert start.search.work == pytest.approx(sum(made))
    assert len(start.random) == 100


@pytest.mark.long  # test_planning.py: measuring within the work that is allowed
@pytest.mark.parametrize(("most", "starts"), [(0.0, 1), (100.0, 2)])
def test_starts_are_begun_only_within_the_work_that_searches_may_take(
    monkeypatch: pytest.MonkeyPatch, most: float, starts: int
) -> None:
    monkeypatch.setattr("calibration.run.bootstrap.MAX_SEARCH_WORK", most)
    never = SearchPlan(plausible=0.0, unexplained=0.0, starts=2, steps=5)
    _, start = _started(SimulatedBench.draw(TINY, 3), BootstrapPlan(random_settings=60, portions=1, search=never))
    assert start.search.starts == starts


def test_faults_are_named_and_the_rest_is_found_all_the_same() -> None:
    bench = SimulatedBench.draw(SMALL, 4)
    bench.simulated.truth.stuck_current_ma.update({6: 0.0, 20: 0.0, 21: 0.0})
    bench.dead_monitors.add(5)
    bench.dead_sources.add(2)
    bench.full_scale_ma[9] = 0.05
    _, start = _started(bench, SMALL_PLAN)
    said = "\n".join(faults(start))
    assert "monitor at port 5: dark" in said
    assert "source at port 2: its light reaches no monitor" in said
    assert "PUC 3 upper heater (channel 6): no effect" in said
    assert "PUC 10 (channels 20 and 21): no heater has any effect" in said
    assert "monitor at port 9: saturated in" in said
    assert len(faults(start)) == 5
    assert start.trusted
    errors = _passive_errors_rad(bench, start.parameters.passive_phase_rad)
    assert np.delete(errors, 10).max() < 0.4  # a stuck PUC shows little of its phase


@pytest.mark.campaign
def test_an_interrupted_run_goes_on_to_the_same_start() -> None:
    logbook, start = _started(SimulatedBench.draw(SMALL, 5), SMALL_PLAN)
    readings = logbook.entries
    for kept in (1, 50, len(readings) - 1):
        _, again = _started(SimulatedBench.draw(SMALL, 5), SMALL_PLAN, before=readings)
        np.testing.assert_array_equal(again.parameters.passive_phase_rad, start.parameters.passive_phase_rad)
        _, resumed = _started(SimulatedBench.draw(SMALL, 5), SMALL_PLAN, before=readings[:kept])
        assert resumed.trusted
        apart = wrapped(resumed.parameters.passive_phase_rad - start.parameters.passive_phase_rad)
        assert np.abs(apart).max() < 0.2


@pytest.mark.campaign
def test_channels_of_two_pucs_exchanged_are_not_trusted() -> None:
    bench = SimulatedBench.draw(SMALL, 6)
    bench.swapped.append((4, 27))
    _, start = _started(bench, SMALL_PLAN)
    assert not start.trusted
    assert "unexplained" in faults(start)[-1]


def test_outputs_of_one_mzi_are_known_as_such_behind_their_phase_shifters() -> None:
    """Exchanged monitors there give the same light as half a turn in the MZI."""
    mesh = build_mesh("clements", (4,))
    last = [interfering_puc(mesh, port) for port in range(4, 8)]
    assert last[1] == last[2]
    assert last[0] != last[1] != last[3]
    assert all(mesh.interferes[puc] for puc in last)
    assert not mesh.interferes[[int(mesh.port_puc_port[port]) // 4 for port in range(4, 8)]].any()
