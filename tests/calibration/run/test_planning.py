"""Measuring on until enough is known: what it saves, when it ends, and what it says when it cannot go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from calibration.fit.global_fit import FitResult, GlobalFit
from calibration.measure.design import IncrementalSettings
from calibration.measure.logbook import HardwareTimes, Logbook, LogbookEntry
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.observations import NoiseModel, Observations
from calibration.model.priors import default_prior
from calibration.model.work import SCORE_EFFECTS_WORK, derivatives_work
from calibration.run.planning import AdaptiveMeasurement, Goal, Knowledge, PlanningOutcome, light_change_s
from lumion_hw.mesh.layout.hexagonal import HexMesh
from tests.calibration.simulated_bench import SimulatedBench
from tests.calibration.simulated_mesh import FLOOR_MA, FULL_TURN_MA, RELATIVE, start_near

SMALL = HexMesh.columns((1, 2, 1))
NOISE = NoiseModel(RELATIVE, FLOOR_MA)
MOST_MA = np.full(2 * SMALL.n_pucs, FULL_TURN_MA)


@dataclass
class Bench:
    """A simulated bench and the fit of some random settings of it."""

    logbook: Logbook
    model: MeshModel
    observations: Observations
    fit: FitResult

    @classmethod
    def after(cls, settings: int, sources: tuple[int, ...] | None = None, monitors: tuple[int, ...] = ()) -> Bench:
        bench = SimulatedBench.draw(SMALL, 3, sources)
        logbook = Logbook(bench)
        seen = monitors or bench.monitors
        plan = IncrementalSettings(MOST_MA, bench.sources, seen, settings_per_source=10, off_share=0.25).random(
            settings, np.random.default_rng(1)
        )
        for source, currents in zip(plan.source, plan.currents_ma, strict=True):
            logbook.light_only_port(int(source))
            logbook.measure(currents)
        columns = [bench.monitors.index(port) for port in seen]
        taken = logbook.observations()
        reading, saturated = taken.reading_ma[:, columns], taken.saturated[:, columns]
        observations = replace(taken, monitors=seen, reading_ma=reading, saturated=saturated)
        model = MeshModel(SMALL, bench.sources, seen)
        made = cls(logbook, model, observations, None)  # type: ignore[arg-type]
        _, made.fit = made.refit(observations, None)
        return made

    def refit(self, observations: Observations, last: FitResult | None) -> tuple[MeshModel, FitResult]:
        hidden = self.logbook.probe.simulated  # type: ignore[attr-defined]
        start = start_near(hidden, 0.02, 0.01)
        sources = [hidden.ports.index(port) for port in self.model.space.sources]
        monitors = [hidden.ports.index(port) for port in self.model.space.monitors]
        start = replace(start, source_db=start.source_db[sources], monitor_ma_per_mw=start.monitor_ma_per_mw[monitors])
        prior = default_prior(self.model.space, start)
        fit = GlobalFit(self.model, Likelihood(observations, NOISE), prior)
        return self.model, fit.run(start) if last is None else fit.run(last.parameters, near=True)

    def pursue(
        self,
        goal: Goal,
        dead: tuple[str, ...] = (),
        refit: Callable[[Observations, FitResult], tuple[MeshModel, FitResult]] | None = None,
    ) -> tuple[FitResult, Observations, PlanningOutcome]:
        measuring = AdaptiveMeasurement(
            self.logbook,
            self.model,
            Likelihood(self.observations, NOISE),
            MOST_MA,
            goal,
            np.random.default_rng(5),
            HardwareTimes(),
            dark_ma=dict.fromkeys(self.model.space.monitors, 0.0),
            dead=dead,
        )
        return measuring.run(self.fit, self.observations, refit or self.refit)


def _rms(bench: Bench, fit: FitResult) -> float:
    return Knowledge.of(bench.model.space, fit, 1.0).rms_rad(bench.model.space)


def test_it_measures_on_until_enough_is_known_and_no_longer() -> None:
    bench = Bench.after(60)
    before = _rms(bench, bench.fit)
    fit, observations, outcome = bench.pursue(Goal(0.4 * before))
    assert 0.3 * before < outcome.sigma_rad <= 0.4 * before
    assert outcome.shortfall == ""
    assert outcome.settings == len(observations) - 60 == len(bench.logbook) - 60
    assert fit.certified
    truth = bench.logbook.probe.simulated.truth.passive_phase  # type: ignore[attr-defined]
    error = (fit.parameters.passive_phase_rad - truth + np.pi) % (2 * np.pi) - np.pi
    assert np.sqrt(np.mean(error**2)) < 2.5 * outcome.sigma_rad


def test_what_is_known_well_enough_costs_nothing() -> None:
    bench = Bench.after(60)
    _, _, outcome = bench.pursue(Goal(2.0 * _rms(bench, bench.fit)))
    assert (outcome.settings, outcome.shortfall, len(bench.logbook)) == (0, "", 60)


def test_where_fits_know_less_than_was_promised_batches_aim_for_more() -> None:
    """What the design holds and the fit does not: the same errors twice as large after every batch."""
    bench = Bench.after(60)
    goal = 0.5 * _rms(bench, bench.fit)
    batches: list[int] = []

    def refit(observations: Observations, last: FitResult) -> tuple[MeshModel, FitResult]:
        batches.append(len(observations))
        model, fit = bench.refit(observations, last)
        return model, replace(fit, information=fit.information / 2.0**2)

    _, outcome = bench.pursue(Goal(goal), refit=refit)[1:]
    assert outcome.sigma_rad <= goal
    assert len(batches) == 2  # without, a third one of eight settings follows


@pytest.mark.parametrize("second", [False, True], ids=["it does not", "it does"])
def test_another_batch_is_begun_only_if_the_work_that_is_allowed_reaches_for_it(
    monkeypatch: pytest.MonkeyPatch, second: bool
) -> None:
    # Choosing hundreds of settings takes longer than all else.
    monkeypatch.setattr("calibration.run.planning.BATCH", 40)
    monkeypatch.setattr("calibration.run.planning._MIN_BATCH", 20)
    bench = Bench.after(60)
    batch = SCORE_EFFECTS_WORK * derivatives_work(bench.model.space.size) * len(bench.model.space.monitors) * (60 + 80)
    bench.model.work.allowed = bench.model.work.spent + second * 4.0 * batch
    _, observations, outcome = bench.pursue(Goal(0.05 * _rms(bench, bench.fit)))
    assert outcome.settings == len(observations) - 60
    # The first is as large as it may be, and never smaller than is worth a fit.
    assert outcome.settings >= 80 if second else outcome.settings == 20
    assert "the work limit does not allow another fit" in outcome.shortfall


@pytest.mark.long
def test_chosen_settings_take_less_than_half_of_the_time_of_random_ones() -> None:
    """The same bench, the same start: chosen settings until the goal, then as many seconds of random ones as it takes.

    Against settings as the search takes them, a quarter of the heaters off, every source for a stretch.
    """
    bench = Bench.after(60)
    goal = 0.4 * _rms(bench, bench.fit)
    before_s = bench.logbook.effort.hardware_s
    _, _, outcome = bench.pursue(Goal(goal))
    chosen_s = bench.logbook.effort.hardware_s - before_s
    random = IncrementalSettings(
        MOST_MA, bench.model.space.sources, bench.model.space.monitors, settings_per_source=10, off_share=0.25
    )
    plan = random.random(2000, np.random.default_rng(9))
    hidden = bench.logbook.probe.simulated  # type: ignore[attr-defined]
    counts = np.cumsum(HardwareTimes().setting_s(np.full(2000, 17)))
    within = int(np.searchsorted(counts, 2.0 * chosen_s))
    taken = replace(
        hidden.measure(plan.currents_ma[:within], plan.source[:within]), monitors=bench.model.space.monitors
    )
    _, fit = bench.refit(bench.observations + taken, bench.fit)
    assert outcome.sigma_rad <= goal < _rms(bench, fit)


@pytest.mark.long
def test_when_the_settings_are_used_up_it_says_so_and_names_the_worst() -> None:
    bench = Bench.after(60)
    _, _, outcome = bench.pursue(Goal(1e-6, settings=100))
    assert outcome.settings == 40
    assert bench.logbook.effort.settings == 100
    assert outcome.shortfall.startswith("the goal is 0.001 mrad, but only ")
    assert "100 settings are used up" in outcome.shortfall
    assert "largest errors: " in outcome.shortfall


@pytest.mark.long
def test_when_the_time_is_used_up_it_says_so() -> None:
    bench = Bench.after(60)
    limit_s = bench.logbook.effort.hardware_s + 0.5
    _, _, outcome = bench.pursue(Goal(1e-6, hardware_s=limit_s))
    assert limit_s - 0.15 < bench.logbook.effort.hardware_s <= limit_s
    assert "s of hardware time are used up" in outcome.shortfall


@pytest.mark.long
def test_phases_that_no_setting_shows_are_named_and_the_rest_is_measured() -> None:
    bench = Bench.after(60)
    unseen = bench.model.space.mask(("passive_phase_rad",))
    unseen &= np.arange(bench.model.space.size) == bench.model.space.group("passive_phase_rad").start + 7
    # As if PUC 7 lay behind a dead port: the readings say nothing of its phase, and neither does the prior.
    place = np.flatnonzero(unseen[bench.fit.free])
    information = bench.fit.information.copy()
    information[place], information[:, place] = 0.0, 0.0
    blind = replace(bench.fit, information=information)
    known = Knowledge.of(bench.model.space, blind, 1e-3)
    assert (
        np.flatnonzero(~known.wanted & bench.model.space.mask(("passive_phase_rad",))).tolist()
        == np.flatnonzero(unseen).tolist()
    )
    bench.fit = blind
    bench.refit = lambda observations, last: (bench.model, replace(blind, information=4.0 * information))  # type: ignore[method-assign]
    goal = 0.5 * known.rms_rad(bench.model.space, known.wanted) * 1.001
    _, _, outcome = bench.pursue(Goal(goal, settings=400), dead=("monitor at port 9: dark",))
    assert outcome.settings > 0
    assert "no setting determines 1 PUC, with monitor at port 9: dark: PUC 7" in outcome.shortfall


def test_the_cost_of_moving_the_light_is_what_it_took_on_this_bench() -> None:
    """Settings of 2 ms each; moves take 0.3 s, one of them, interrupted by people, a minute."""
    entries, now = [], 0.0
    for number, source in enumerate([1, 1, 2, 2, 1, 3, 3, 1, 2]):
        count = 1 + number % 3
        moved = bool(entries) and entries[-1].source != source
        now += 0.002 * count + (60.0 if number == 4 else 0.3 if moved else 0.0)
        entries.append(LogbookEntry("settings", source, np.zeros((count, 4)), np.zeros((count, 1)), now))
    assert light_change_s(entries) == pytest.approx(0.3)
    assert light_change_s(entries[:1]) == 0.0
