"""What the diagnosis finds beside the model, and that it does not fit more often than it has to."""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from calibration.diagnose.drift_trajectory import DriftTrajectories
from calibration.fit import diagnosed_fit, row_scores, stated_errors
from calibration.fit.diagnosed_fit import DiagnosedFit, FaultDiagnosis, TimedReadings
from calibration.fit.global_fit import Round
from calibration.measure.design import IncrementalSettings
from calibration.model.device_under_test import DeviceUnderTest
from calibration.model.gauge import gauge_fixed_difference, loop_rms_rad, wrapped
from calibration.model.likelihood import SETTING_DRIFT, Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.nominal_heaters import NominalHeaters
from calibration.model.observations import NoiseModel, Observations
from calibration.model.parameters import MeshParameters
from calibration.model.priors import FREE_GROUPS, default_prior, run_prior
from calibration.model.response import GAIN_LEVELS
from lumion_hw.mesh.layout.hexagonal import HexMesh
from tests.calibration.simulated_mesh import FLOOR_MA, FULL_TURN_MA, RELATIVE, SimulatedMesh, start_near

Real = NDArray[np.float64]

SMALL = HexMesh.columns((1, 2, 1))
NOISE = NoiseModel(RELATIVE, FLOOR_MA)
FIRST, ALL = 120, 200
TAKEN_S = 0.05 * np.arange(ALL)
STUCK = 6
COMPRESSION_PER_MA = 0.014
"""Too little for a fit not to explain its readings, and enough to make its errors wrong."""


@dataclass
class Bench:
    """A simulated mesh, the settings of a run, and a diagnosis that counts the rounds of its fits."""

    simulated: SimulatedMesh
    asked: Observations
    rounds: list[Round] = field(default_factory=list)

    @classmethod
    def draw(cls, seed: int = 11) -> Bench:
        simulated = SimulatedMesh.draw(SMALL, seed)
        walk = IncrementalSettings(
            np.full(2 * SMALL.n_pucs, FULL_TURN_MA),
            simulated.ports[:4],
            simulated.ports,
            settings_per_source=10,
            off_share=0.3,
        )
        return cls(simulated, walk.random(ALL, np.random.default_rng(seed)))

    @property
    def model(self) -> MeshModel:
        return MeshModel(SMALL, self.simulated.ports[:4], self.simulated.ports)

    def measured(self, off: Real | None = None, **drift: Real) -> Observations:
        """All settings as asked for, read while something drifted; ``off`` is ``True`` where a heater did nothing."""
        currents = self.asked.currents_ma if off is None else np.where(off, 0.0, self.asked.currents_ma)
        read = self.simulated.measure(currents, self.asked.source, **drift)
        return replace(read, currents_ma=self.asked.currents_ma)

    def start(self, dead: tuple[int, ...] = ()) -> MeshParameters:
        near = start_near(self.simulated, 0.1, 0.02)
        laws = near.heater_law.copy()
        laws[list(dead)] = 0.0
        return replace(near, heater_law=laws, source_db=near.source_db[:4])

    def diagnosis(self, taken: Observations, count: int, dead: tuple[int, ...] = ()) -> FaultDiagnosis:
        start, space, part = self.start(dead), self.model.space, taken[np.arange(count)]
        return FaultDiagnosis(
            self.model,
            default_prior(space, start),
            space.mask(FREE_GROUPS),
            np.full(2 * SMALL.n_pucs, FULL_TURN_MA),
            range(2 * SMALL.n_pucs),
            [100.0] * 2 * SMALL.n_pucs,
            NominalHeaters(),
            Likelihood(part, NOISE, drift=SETTING_DRIFT),
            TimedReadings(part, TAKEN_S[:count]),
            self.rounds.append,
        )

    def diagnosed(
        self, taken: Observations, count: int, dead: tuple[int, ...] = (), before: DiagnosedFit | None = None
    ) -> DiagnosedFit:
        diagnosis = self.diagnosis(taken, count, dead)
        return (
            diagnosis.settle(diagnosis.begin(self.start(dead))) if before is None else diagnosis.continue_from(before)
        )

    def errors_mrad(self, found: MeshParameters, but: tuple[int, ...] = ()) -> tuple[float, float]:
        """Rms error of the passive phases and of the loops; a phase common to all joints is the end of a course."""
        truth = self.simulated.parameters()
        known = [puc for puc in range(SMALL.n_pucs) if puc not in but]
        passive = wrapped(found.passive_phase_rad - truth.passive_phase_rad)[known]
        joints = gauge_fixed_difference(SMALL, found.joint_phase_rad - truth.joint_phase_rad)
        return 1e3 * float(np.sqrt(np.mean(passive**2))), 1e3 * loop_rms_rad(SMALL, joints)


def _rising_rad(at: float = 0.12) -> Real:
    """A course that ends at 0, so that what is found is the mesh at the end of the run."""
    return np.linspace(-at, 0.0, ALL)


def test_a_run_at_rest_takes_one_fit_a_portion_and_nothing_is_named() -> None:
    bench = Bench.draw()
    taken = bench.measured()
    first = bench.diagnosed(taken, FIRST)
    assert len(bench.rounds) == len(first.fit.rounds)
    second = bench.diagnosed(taken, ALL, before=first)
    assert len(bench.rounds) == len(first.fit.rounds) + len(second.fit.rounds)
    assert second.certified
    assert second.defects == ()
    assert second.outliers == ()
    assert not second.dead


def test_a_fit_that_explains_its_readings_is_let_end_where_the_work_allowed_is_spent() -> None:
    bench = Bench.draw()
    taken = bench.measured()
    first = bench.diagnosed(taken, FIRST)
    diagnosis = bench.diagnosis(taken, ALL)
    diagnosis.model.work.allowed = 0.0
    second = diagnosis.continue_from(first)
    assert len(second.fit.rounds) > 1  # one step does not end it
    assert diagnosis.stated(second).certified


def test_a_row_without_which_nothing_is_certified_is_fitted_though_the_work_allowed_is_spent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench.draw()
    taken = bench.measured()
    taken = replace(taken, reading_ma=taken.reading_ma * (1.0 - 2.0 * COMPRESSION_PER_MA * taken.reading_ma))
    now = bench.diagnosed(taken, ALL)
    assert now.physics.names == ()
    diagnosis = bench.diagnosis(taken, ALL)
    diagnosis.model.work.allowed = 0.0
    assert diagnosis.stated(now).physics.names == ()  # it widens errors by 1.5, which a certificate allows
    monkeypatch.setattr(diagnosed_fit, "MAX_ERROR_FACTOR", 1.3)
    monkeypatch.setattr(stated_errors, "MAX_ERROR_FACTOR", 1.3)
    found = diagnosis.stated(now)
    assert found.physics.names == ("compression_per_ma",)
    assert found.certified


def test_an_amplifier_with_two_ranges_is_explained_by_its_gain_at_each_level() -> None:
    bench = Bench.draw()
    readings = bench.measured()
    high_range = np.where(readings.reading_ma > 0.02, 1.01 * readings.reading_ma, readings.reading_ma)
    readings = replace(readings, reading_ma=high_range)
    found = bench.diagnosis(readings, ALL).stated(bench.diagnosed(readings, ALL))
    assert "level_gain" in found.physics.names
    assert found.certified
    gain = found.parameters.extra_physics["level_gain"]
    low, high = gain[np.log10(0.01) > GAIN_LEVELS], gain[(np.log10(0.03) < GAIN_LEVELS) & (GAIN_LEVELS < -0.5)]
    assert high.mean() - low.mean() == pytest.approx(0.01, abs=0.003)


def test_what_a_pass_over_the_readings_holds_is_free_once_rows_are_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gigabytes on a large mesh: with garbage not looked for, two passes would need them twice."""
    made: list[weakref.ref[object]] = []
    begin = row_scores.Pass.__init__

    def begun(self: row_scores.Pass, *args: Any) -> None:
        begin(self, *args)
        made.append(weakref.ref(self))

    monkeypatch.setattr(row_scores.Pass, "__init__", begun)
    bench = Bench.draw()
    diagnosis = bench.diagnosis(bench.measured(), FIRST)
    gc.disable()
    try:
        diagnosis.stated(diagnosis.begin(bench.start()))
        assert [one() for one in made] == [None]
    finally:
        gc.enable()


def test_settings_with_a_wrong_current_are_left_out() -> None:
    bench = Bench.draw()
    wrong = np.arange(10, ALL, 40)
    currents_ma = bench.asked.currents_ma.copy()
    heaters = np.arange(len(wrong))
    currents_ma[wrong, heaters] = np.where(currents_ma[wrong, heaters] > 0.5 * FULL_TURN_MA, 0.0, FULL_TURN_MA)
    measured = replace(bench.simulated.measure(currents_ma, bench.asked.source), currents_ma=bench.asked.currents_ma)
    diagnosed = bench.diagnosed(measured, ALL)
    assert diagnosed.certified
    assert diagnosed.outliers == tuple(wrong.tolist())
    assert diagnosed.fit.chi2_per_dof < 1.1
    assert max(bench.errors_mrad(diagnosed.parameters)) < 3.0


def test_a_drift_that_goes_on_is_followed_before_the_next_fit_and_not_after_it() -> None:
    bench = Bench.draw()
    taken = bench.measured(common_rad=_rising_rad())
    first = bench.diagnosed(taken, FIRST)
    assert first.trajectories is not None
    assert first.trajectories.moved
    begun = len(bench.rounds)
    second = bench.diagnosed(taken, ALL, before=first)
    assert len(bench.rounds) - begun == len(second.fit.rounds)  # one fit
    assert second.certified
    assert max(bench.errors_mrad(second.parameters)) < 5.0
    assert second.trajectories is not None
    assert np.ptp(second.trajectories.temperature_rad) == pytest.approx(0.12, abs=0.01)


def test_a_course_that_was_none_is_given_up() -> None:
    bench = Bench.draw()
    taken = bench.measured()
    first = bench.diagnosed(taken, FIRST)
    false = DriftTrajectories(TAKEN_S[:FIRST], np.linspace(0.03, 0.0, FIRST), {}, {}, {})
    second = bench.diagnosed(taken, ALL, before=replace(first, trajectories=false))
    assert second.certified
    assert second.trajectories is not None
    assert not second.trajectories.moved
    assert max(bench.errors_mrad(second.parameters)) < 5.0


@pytest.mark.parametrize(("last_step_sigma", "is_certified"), [(0.03, True), (0.3, False)])
def test_a_fit_that_ends_at_the_limit_of_rounds_is_certified_if_its_last_step_is_small(
    monkeypatch: pytest.MonkeyPatch, last_step_sigma: float, is_certified: bool
) -> None:
    bench = Bench.draw()
    taken = bench.measured()
    diagnosed = bench.diagnosed(taken, ALL)
    coarse = replace(diagnosed.fit, rounds=(replace(diagnosed.fit.rounds[-1], step_sigma=0.4),))
    ended = replace(coarse, converged=False, rounds=(replace(coarse.rounds[-1], step_sigma=last_step_sigma),))
    monkeypatch.setattr(FaultDiagnosis, "_fit", lambda *arguments, **options: ended)
    finished = bench.diagnosis(taken, ALL)._finish_fit(replace(diagnosed, fit=coarse))
    assert finished.fit.certified is is_certified


def test_loops_are_as_accurate_as_stated_after_a_drift_of_half_a_milliradian() -> None:
    relative = []
    for seed in (12, 14):
        bench = Bench.draw(seed)
        drift_rad = 7e-4 * np.sin(3.0 * np.pi * TAKEN_S / TAKEN_S[-1])
        taken = bench.measured(common_rad=drift_rad - drift_rad[-1])
        fit = bench.diagnosis(taken, ALL).stated(bench.diagnosed(taken, ALL)).fit
        truth = bench.simulated.parameters()
        loops = bench.model.space.groups["loops"]
        found = fit.vector - bench.model.space.pack(replace(truth, source_db=truth.source_db[:4]))
        relative.append(wrapped(found[loops]) / np.sqrt(np.diag(fit.covariance())[loops]))
    assert np.sqrt(np.mean(np.square(relative))) < 1.6


def test_a_drift_that_missing_physics_feigned_is_given_up_once_a_row_explains_it() -> None:
    bench = Bench.draw()
    taken = bench.measured()
    taken = replace(taken, reading_ma=taken.reading_ma * (1.0 - COMPRESSION_PER_MA * taken.reading_ma))
    now = bench.diagnosed(taken, ALL)
    assert now.certified
    assert now.physics.names == ()
    false = DriftTrajectories(
        TAKEN_S, np.zeros(ALL), {}, dict.fromkeys(bench.model.space.sources, TAKEN_S),
        {port: np.linspace(0.13, 0.0, ALL) for port in bench.model.space.sources},
    )  # fmt: skip
    found = bench.diagnosis(taken, ALL).stated(replace(now, trajectories=false))
    assert "compression_per_ma" in found.physics.names
    assert found.trajectories is not None
    assert not found.trajectories.moved


@pytest.mark.long
def test_a_heater_that_dies_between_two_fits_is_found_and_named_once() -> None:
    bench = Bench.draw()
    off = np.zeros((ALL, 2 * SMALL.n_pucs), dtype=np.bool_)
    off[FIRST + 20 :, 9] = True
    taken = bench.measured(off)
    second = bench.diagnosed(taken, ALL, before=bench.diagnosed(taken, FIRST))
    assert second.certified
    assert second.dead == {9}
    assert [(defect.kind, defect.number) for defect in second.defects] == [("dead heater", 9)]
    assert not second.parameters.heater_law[9].any()


def test_of_a_stuck_puc_the_split_is_found_its_couplers_are_held_and_all_others_are_as_good_as_ever() -> None:
    bench, dead = Bench.draw(), (2 * STUCK, 2 * STUCK + 1)
    off = np.isin(np.arange(2 * SMALL.n_pucs), dead)[None].repeat(ALL, axis=0)
    found = bench.diagnosed(bench.measured(off), ALL, dead)
    assert found.certified
    space, variance = bench.model.space, np.diag(found.fit.covariance())
    for name in ("coupler_common_rad", "coupler_difference_rad"):
        held = variance[space.group(name)] == 0.0
        assert np.flatnonzero(held).tolist() == [STUCK]
    assert _coupling(found.parameters) == pytest.approx(_coupling(bench.simulated.parameters()), abs=2e-3)
    assert bench.errors_mrad(found.parameters, but=(STUCK,))[0] < 5.0
    # light that no fit has seen is told, though couplers and loops about the PUC are not the true ones
    walk = IncrementalSettings(np.full(2 * SMALL.n_pucs, FULL_TURN_MA), space.sources, space.monitors)
    plan = walk.random(50, np.random.default_rng(1))
    currents = np.where(np.isin(np.arange(2 * SMALL.n_pucs), dead), 0.0, plan.currents_ma)
    exact = bench.simulated.exact_ma(currents, plan.source)
    off_db = 10.0 * np.log10(bench.model.predict(found.parameters, plan) / exact)[exact > 1e-3]
    assert np.sqrt(np.mean(off_db**2)) < 0.05


def _coupling(parameters: MeshParameters) -> float:
    """Share of the light that the stuck PUC leads across, by the formula of docs/calibration.md, 2."""
    a_plus, a_minus = parameters.coupler_common_rad[STUCK], parameters.coupler_difference_rad[STUCK]
    cosine = np.cos(0.5 * parameters.passive_phase_rad[STUCK]) ** 2
    return float(np.cos(2.0 * a_plus) ** 2 * cosine + np.sin(a_minus) ** 2 * (1.0 - cosine))


def test_a_monitor_dim_behind_a_stuck_puc_is_not_taken_for_one_of_another_range() -> None:
    bench = Bench.draw()
    space = bench.model.space
    number = 3
    puc = int(SMALL.port_puc_port[space.monitors[number]]) // 4
    sigma = {}
    for dead in ((), (2 * puc, 2 * puc + 1)):
        start = bench.start(dead)
        level = start.monitor_ma_per_mw.copy()
        level[number] *= 10.0**-0.5  # 5 dB
        device = cast(
            DeviceUnderTest,
            SimpleNamespace(
                heaters=NominalHeaters(),
                puc_loss_db=0.5,
                monitor_ma_per_mw=0.8,
                monitor_spread_db=0.5,
                source_spread_hz=0.0,
            ),
        )
        prior = run_prior(space, replace(start, monitor_ma_per_mw=level), device)
        sigma[len(dead)] = prior.sigma[space.group("monitor_db")][number]
    assert sigma[2] == 0.5
    assert sigma[0] > 10.0


def _with_field_error(bench: Bench, size: float) -> Observations:
    """Readings whose fields are wrong by a relative size that no effect of the model explains, with little noise."""
    exact_ma = bench.simulated.exact_ma(bench.asked.currents_ma, bench.asked.source)
    rng = np.random.default_rng(8)
    off = rng.standard_normal(exact_ma.shape) + 1j * rng.standard_normal(exact_ma.shape)
    field = np.sqrt(exact_ma) + size * np.sqrt(exact_ma.mean(axis=0)) * off
    return replace(bench.measured(), reading_ma=np.abs(field) ** 2 * (1.0 + 5e-4 * rng.standard_normal(off.shape)))


def _stated_with_field_error(bench: Bench, size: float) -> DiagnosedFit:
    diagnosis = bench.diagnosis(_with_field_error(bench, size), ALL)
    low_noise = replace(diagnosis.likelihood, noise=replace(NOISE, relative=5e-4))
    diagnosis = replace(diagnosis, likelihood=low_noise)
    return diagnosis.stated(diagnosis.settle(diagnosis.begin(bench.start())))


@pytest.mark.long
def test_a_small_field_error_without_a_cause_increases_the_errors_and_a_large_one_is_not_certified() -> None:
    bench = Bench.draw()
    small, large = (_stated_with_field_error(bench, size) for size in (1e-3, 1e-2))
    assert (small.certified, large.certified) == (True, False)
    assert 0.5e-3 < small.physics.field_error < 2e-3
    sigma = np.sqrt(np.diag(small.fit.covariance())[bench.model.space.group("passive_phase_rad")])
    off = wrapped(small.parameters.passive_phase_rad - bench.simulated.parameters().passive_phase_rad)
    assert 0.4 < np.sqrt(np.mean((off / sigma) ** 2)) < 2.0
