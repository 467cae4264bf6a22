"""The figures of a report that follow from the record alone, against hand calculations and docs/sources.md."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibration.model.gauge import signed_incidence
from calibration.model.space import ParameterSpace
from calibration.record.conversion import build_record
from calibration.report.headline import describe_miss
from calibration.report.numbers import Metric, arm_crosstalk_rad, extinctions, metrics, other_quality
from calibration.report.uncertainty import (
    correlation_by_group,
    crosstalk_sigma_mrad,
    dispersion,
    face_loops,
    face_sigma_mrad,
    set_by_prior,
)
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.record.calibration_record import (
    CalibrationRecord,
    CouplerEntry,
    CrosstalkEntry,
    CrosstalkKernel,
    HeaterEntry,
)
from lumion_hw.mesh.waves.crosstalk import BUL_MM
from tests.calibration.one_cell import CELL, ORIGIN, SPACE
from tests.calibration.simulated_mesh import SimulatedMesh


def record_with(covariance: np.ndarray | None = None) -> CalibrationRecord:
    """Return the record of one cell with its six cell PUCs and four stubs."""
    return build_record(SPACE, SimulatedMesh.draw(CELL, 5).parameters(), ORIGIN, covariance)


def diagonal(**sigma: float) -> np.ndarray:
    return np.diag(SPACE.vector({name: each**2 for name, each in sigma.items()}))


def figure(record: CalibrationRecord, name: str) -> Metric:
    return next(metric for metric in metrics(record) if metric.name == name)


@pytest.mark.parametrize(
    ("value", "goal", "at_least", "ok"),
    [(1.0, 2.0, False, True), (3.0, 2.0, False, False), (3.0, 2.0, True, True), (None, 2.0, False, None)],
)
def test_a_goal_is_met_or_not_or_unknown(value: float | None, goal: float, at_least: bool, ok: bool | None) -> None:
    assert Metric("x", value, "", goal, at_least).ok is ok


def test_standard_errors_are_summed_over_pucs() -> None:
    covariance = diagonal(passive_phase_rad=2e-3)
    covariance[3, 3] = (6e-3) ** 2
    record = record_with(covariance)
    # √((9·2² + 6²)/10) = 2.683; and dk = dφ/2 at k = ½ makes 0.003 of 6 mrad.
    assert figure(record, "passive phases, standard error, rms").value == pytest.approx(2.683, abs=1e-3)
    worst = figure(record, "passive phases, standard error, worst")
    assert (worst.value, worst.note) == (pytest.approx(6.0, rel=1e-5), "PUC 3")
    assert figure(record, "power coupling, standard error at k = ½, worst").value == pytest.approx(3e-3, rel=1e-5)


def test_the_phase_round_a_cell_is_no_matter_of_gauge() -> None:
    mesh = HexMesh.smartlight()
    loops = face_loops(mesh)
    assert loops.shape == (17, 124)
    assert (loops.sum(axis=1) == 6).all()
    assert not (loops @ signed_incidence(mesh)).any()


def test_independent_loops_make_the_phase_round_a_cell() -> None:
    # Six joints, each with weight 1: the loop v is a vector of length √6, and coordinates of loops are orthonormal. The
    # phase c common to all PUCs is taken out: all joints the same, as far as visible (G of docs/calibration.md, 1.2).
    mesh = HexMesh.columns([2])
    space = ParameterSpace(mesh, mesh.fibre_ports, mesh.fibre_ports)
    covariance = np.diag(space.vector({"loops": 1e-6, "passive_phase_rad": 1e-6}))
    parameters = SimulatedMesh.draw(mesh, 5).parameters()
    record = build_record(space, parameters, replace(ORIGIN, heater_channels=tuple(range(30))), covariance)
    gauge, ones = signed_incidence(mesh).astype(float), np.ones(len(mesh.joints))
    visible = ones - gauge @ np.linalg.lstsq(gauge, ones, rcond=None)[0]
    left = np.sqrt(6.0 - 36.0 / (visible @ visible))
    assert 0.5 < left < np.sqrt(6.0)
    assert face_sigma_mrad(record) == {cell: pytest.approx(left, rel=1e-5) for cell in (0, 1)}


def test_a_phase_common_to_all_pucs_is_no_error_of_the_loops() -> None:
    # A shift of all lasers, or of the temperature, adds the same phase to every PUC: to every joint, as ports see it.
    # In one cell alone there is nothing else.
    covariance = diagonal(loops=1e-3, source_detuning_hz=1.0)
    visible = SPACE.directions.sum(axis=0)
    shift = np.zeros(SPACE.size)
    shift[SPACE.groups["source_detuning_hz"]] = 4e9
    shift[SPACE.groups["loops"]] = 0.4 * visible
    moved, still = record_with(covariance + np.outer(shift, shift)), record_with(covariance)
    assert face_sigma_mrad(moved) == face_sigma_mrad(still) == {}
    # Of four loops three are left, 1 mrad each.
    loops = "loop phases, standard error, rms per loop"
    assert figure(moved, loops).value == pytest.approx(figure(still, loops).value, rel=1e-2)
    assert figure(still, loops).value == pytest.approx(np.sqrt(3 / 4), rel=1e-4)
    per_loop = np.sqrt(0.4**2 * (visible @ visible) / len(visible) + 1e-6)
    name = "loop phases with the phase common to all PUCs"
    assert figure(moved, name).value == pytest.approx(1e3 * per_loop, rel=1e-3)


def test_published_couplers_have_the_published_extinction() -> None:
    # Sánchez-Jácome 2025: 33 dB (through) and 44 dB (cross) are 0.011 common to both couplers and 0.0063 between them.
    record = record_with()
    coupler = CouplerEntry(0.011, 0.0063, 1e-4, 1e-4)
    (found,) = extinctions(replace(record, pucs=(replace(record.pucs[0], coupler=coupler),)))
    assert found is not None
    assert found.through_db == pytest.approx(33.0, abs=0.2)
    assert found.cross_db == pytest.approx(44.0, abs=0.1)
    assert (found.through_is_bound, found.cross_is_bound) == (False, False)


def test_an_angle_that_may_be_zero_gives_a_bound() -> None:
    record = record_with()
    coupler = CouplerEntry(0.011, 0.001, 1e-4, 2e-3)
    (found,) = extinctions(replace(record, pucs=(replace(record.pucs[0], coupler=coupler),)))
    assert found is not None
    # 0.001 ± 0.002: at most 0.005 by two standard errors, -20·lg(0.005) = 46.0 dB.
    assert (found.cross_db, found.cross_is_bound) == (pytest.approx(46.0, abs=0.1), True)


def test_crosstalk_falls_with_distance_as_the_kernel_says() -> None:
    kernel = CrosstalkKernel(3e-3, 1.2, 4e-4, BUL_MM)
    record = replace(record_with(), crosstalk=CrosstalkEntry(kernel=kernel))
    shift = arm_crosstalk_rad(record)
    assert shift is not None
    law, heater = record.pucs[2].upper.law, record.pucs[2].upper
    assert law is not None
    # The other arm of the PUC is 50 µm away; π takes π·R·heat factor/ρ2.
    p_pi_mw = np.pi * record.heater_ohm * 1e-3 * heater.heat_factor / law.rho2_rad_per_ma2
    assert shift[5, 4] == pytest.approx(p_pi_mw * (3e-3 * np.exp(-0.05 / 1.2) + 4e-4), rel=1e-9)
    assert (np.diag(shift) == 0.0).all()


def test_crosstalk_after_compensation_is_the_uncertainty_of_the_kernel() -> None:
    # Only the floor uncertain, 1e-5 rad/mW: every arm sees it times the heat of the 19 other heaters.
    record = record_with(diagonal(passive_phase_rad=1e-3))
    covariance = diagonal(passive_phase_rad=1e-3)
    floor = SPACE.groups["crosstalk"].start + 2
    covariance[floor, floor] = 1e-10
    heat = [_heat_mw(record, heater) for entry in record.pucs for heater in (entry.upper, entry.lower)]
    expected = 1e3 * 1e-5 * np.sqrt(np.mean((sum(heat) - np.array(heat)) ** 2))
    assert crosstalk_sigma_mrad(record_with(covariance)) == pytest.approx(expected, rel=1e-4)
    assert crosstalk_sigma_mrad(record_with()) is None


def _heat_mw(record: CalibrationRecord, heater: HeaterEntry) -> float:
    assert heater.law is not None
    return float(np.pi * record.heater_ohm * 1e-3 * heater.heat_factor / heater.law.rho2_rad_per_ma2)


def test_what_the_prior_has_set_is_named() -> None:
    # Prior 0.03 dB (docs/calibration.md, 1.3): 0.025 dB is 69 % of its variance, 0.02 dB is 44 %.
    covariance = diagonal(loss_db=0.02, passive_phase_rad=1e-3)
    place = SPACE.groups["loss_db"].start + 6
    covariance[place, place] = 0.025**2
    record = record_with(covariance)
    assert set_by_prior(record) == ("loss_db of PUC 6",)
    assert figure(record, "parameters set by the prior").value == 1.0
    assert record.covariance is not None
    stated = replace(record, covariance=replace(record.covariance, set_by_prior=("this", "that")))
    assert set_by_prior(stated) == ("this", "that")
    assert set_by_prior(record_with()) == ()


def test_correlations_are_the_largest_of_each_pair_of_groups() -> None:
    covariance = diagonal(passive_phase_rad=1e-3, loss_db=0.01)
    covariance[2, SPACE.groups["loss_db"].start + 5] = covariance[SPACE.groups["loss_db"].start + 5, 2] = -0.6e-5
    covariance[0, 1] = covariance[1, 0] = 0.3e-6
    found = correlation_by_group(record_with(covariance))
    assert found is not None
    assert found[0] == ("passive_phase_rad", "loss_db")
    np.testing.assert_allclose(found[1], [[0.3, 0.6], [0.6, 0.0]], atol=1e-5)
    assert correlation_by_group(record_with()) is None


def test_what_changes_with_wavelength_comes_with_its_error() -> None:
    record = record_with(diagonal(delay_s=2e-15, passive_phase_rad=1e-3))
    delay, slope, coupler = dispersion(record)
    assert delay[1:] == (pytest.approx(11.25), pytest.approx(2e-3, rel=1e-5), "ps")  # Sánchez-Jácome 2025
    assert slope[2] is coupler[2] is None  # held
    assert dispersion(replace(record, dispersion=None)) == []


def test_figures_that_the_table_does_not_know_are_not_lost() -> None:
    record = replace(record_with(), quality={"settings": 12.0, "starts_tried": 3.0})
    assert figure(record, "settings used").value == 12.0
    assert other_quality(record) == {"starts_tried": 3.0}


@pytest.mark.parametrize(("value", "text"), [(1.0004e-3, "0.0010004"), (1.2345e-3, "0.00123"), (2.0, "2")])
def test_a_value_just_beyond_its_goal_has_enough_digits_to_differ(value: float, text: str) -> None:
    assert f" is {text}; the goal is at most 0.001" in describe_miss(Metric("power coupling", value, "", 1e-3))
