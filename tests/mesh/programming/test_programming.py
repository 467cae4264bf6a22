"""From wanted couplings and arm phases to currents, judged by the hidden mesh itself."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from lumion_hw.errors import CalibrationError, LimitError
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.mesh.programming.heater_currents import (
    HeaterLimits,
    PucTarget,
    joint_compensation,
    program_pucs,
    rounded_ma,
)
from lumion_hw.mesh.programming.inverse import heater_currents_ma
from lumion_hw.mesh.programming.prediction import COVARIANCE_FACTOR, predict_path, predict_pucs
from lumion_hw.mesh.record.calibration_record import (
    CalibrationRecord,
    CouplerEntry,
    CovarianceEntry,
    CrosstalkEntry,
    CrosstalkKernel,
    Defect,
    HeaterEntry,
)
from lumion_hw.mesh.waves.scattering import Solver
from tests.effort import examples
from tests.mesh.known_truth import MAX_MA, drawn, record_of, true_cells
from tests.mesh.sample_record import puc_entry, sample_record

TURN = 2.0 * math.pi


@pytest.fixture(scope="module")
def hidden(smartlight: HexMesh):
    """The hidden mesh of seed 3 and the record of its perfect calibration."""
    truth = drawn(smartlight, 3)
    return truth, record_of(smartlight, truth)


def with_heater(record: CalibrationRecord, heater: int, **changes: object) -> CalibrationRecord:
    """Return a record with one heater changed."""
    puc, arm = heater // 2, ("upper", "lower")[heater % 2]
    pucs = list(record.pucs)
    entry: HeaterEntry = getattr(pucs[puc], arm)
    pucs[puc] = replace(pucs[puc], **{arm: replace(entry, **changes)})  # type: ignore[arg-type]
    return replace(record, pucs=tuple(pucs))


def coupling_of(truth, currents_ma: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of the power that every PUC of the hidden mesh sends to the cross output."""
    cells = true_cells(truth, currents_ma)
    power = np.abs(cells.transfer(cells.reference_hz)) ** 2
    return power[:, 1, 0] / (power[:, 0, 0] + power[:, 1, 0])


# Couplings -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0.001, 0.1, 1 / 3, 0.5, 2 / 3, 0.9, 0.98])
def test_every_puc_takes_the_coupling_wanted_whatever_its_couplers(hidden, k: float) -> None:
    truth, record = hidden
    targets = {puc: PucTarget.coupling(k, entry.coupler) for puc, entry in enumerate(record.pucs)}
    currents = program_pucs(CalibratedMesh.from_record(record), targets).currents_ma
    # The law of the record is a polynomial fitted to the implicit one: within a milliradian, half of that in k.
    np.testing.assert_allclose(coupling_of(truth, currents), k, atol=5e-4)


def test_bar_and_cross_are_as_dark_as_the_couplers_allow(hidden) -> None:
    truth, record = hidden
    angles = np.arcsin(np.sqrt(truth.eta_in)), np.arcsin(np.sqrt(truth.eta_out))
    for state, floor in (("bar", np.sin(angles[0] - angles[1]) ** 2), ("cross", np.cos(angles[0] + angles[1]) ** 2)):
        currents = heater_currents_ma(record, dict.fromkeys(range(72), state))
        k = coupling_of(truth, currents)
        np.testing.assert_allclose(k if state == "bar" else 1.0 - k, floor, atol=2e-6)


@pytest.mark.parametrize(("k", "limit"), [(0.0, math.sin(0.02) ** 2), (1.0, math.cos(0.2) ** 2)])
def test_a_coupling_out_of_reach_names_the_interval(k: float, limit: float) -> None:
    with pytest.raises(LimitError, match=r"couplers of the PUC allow 0\.0004 to 0\.96053") as caught:
        PucTarget.coupling(k, CouplerEntry(0.1, 0.02))
    assert caught.value.limit == pytest.approx(limit)


def test_of_two_ways_to_a_coupling_the_cooler_one_is_taken() -> None:
    # k = 1/2 is φu - φl = ±π/2; with a passive phase of 2 rad, -0.43 rad of heat on the lower arm makes π/2 of it.
    record = sample_record([puc_entry(0, 2.0)])
    programmed = program_pucs(CalibratedMesh.from_record(record), {0: PucTarget.coupling(0.5)})
    np.testing.assert_allclose(programmed.own_rad, [0.0, 2.0 - math.pi / 2], atol=1e-9)


# Arm phases and crosstalk --------------------------------------------------------------------------------------------


def test_both_arms_of_all_pucs_come_out_as_wanted_against_crosstalk(hidden) -> None:
    truth, record = hidden
    wanted = np.random.default_rng(1).uniform(-10.0, 10.0, (72, 2))
    targets = {puc: PucTarget.arms(*pair) for puc, pair in enumerate(wanted.tolist())}
    known = CalibratedMesh.from_record(record)
    programmed = program_pucs(known, targets)
    cells = true_cells(truth, programmed.currents_ma)
    for found, phases in ((cells.phase_upper, wanted[:, 0]), (cells.phase_lower, wanted[:, 1])):
        off = (found - phases + np.pi) % TURN - np.pi
        assert np.abs(off).max() < 2e-3  # polynomial against implicit law
    # Without compensation neighbours move an arm by tenths of a radian (Teofilovic 2024).
    assert np.abs(known.arm_rad_per_mw @ known.heat_mw(programmed.own_rad)).max() > 0.05
    # No arm takes more than a turn and what its neighbours do: the least heat that there is.
    assert programmed.own_rad.min() >= 0.0
    assert programmed.own_rad.max() < TURN


@examples(30)
@given(st.floats(0.0, TURN), st.floats(0.0, 0.02))
def test_equally_good_choices_are_not_taken_in_turns(passive: float, strength: float) -> None:
    # All PUCs half a turn from their state: either arm will do, and each choice warms the neighbours differently.
    record = sample_record([puc_entry(puc, passive) for puc in range(10)])
    matrix = strength * np.where(np.arange(20) % 2, -1.0, 1.0) * (1.0 - np.eye(10).repeat(2, axis=1))
    record = replace(record, crosstalk=CrosstalkEntry(tuple(map(tuple, matrix.tolist()))))
    known = CalibratedMesh.from_record(record)
    wanted = passive + math.pi
    programmed = program_pucs(known, {puc: PucTarget((wanted,)) for puc in range(10)})
    stray = known.arm_rad_per_mw @ known.heat_mw(programmed.own_rad)
    made = passive + (programmed.own_rad + stray)[0::2] - (programmed.own_rad + stray)[1::2]
    assert np.abs((made - wanted + np.pi) % TURN - np.pi).max() < 1e-7


def test_crosstalk_too_strong_to_be_true_is_said_to_be() -> None:
    record = replace(sample_record(), crosstalk=CrosstalkEntry(tuple((3.0,) * 20 for _ in range(10))))
    with pytest.raises(CalibrationError, match="did not converge"):
        program_pucs(CalibratedMesh.from_record(record), {puc: PucTarget((1.0 + puc,)) for puc in range(10)})


def test_a_kernel_of_another_scale_is_refused() -> None:
    kernel = CrosstalkKernel(2e-3, 1.18, 3e-4, 1.0)
    with pytest.raises(CalibrationError, match=r"a PUC spacing of 1\.0 mm"):
        CalibratedMesh.from_record(replace(sample_record(), crosstalk=CrosstalkEntry(kernel=kernel)))


# Joints --------------------------------------------------------------------------------------------------------------


def test_common_phases_take_up_all_joints_of_a_mesh(smartlight: HexMesh, hidden, solver: Solver) -> None:
    truth, record = hidden
    rng = np.random.default_rng(2)
    wanted = rng.uniform(0.0, TURN, (72, 2))
    targets = {puc: PucTarget.arms(*pair) for puc, pair in enumerate(wanted.tolist())}
    everywhere = np.ones(len(smartlight.joints), dtype=bool)
    programmed = program_pucs(CalibratedMesh.from_record(record), targets, cancel_joints=everywhere)
    assert programmed.joint_error_rad < 1e-9
    assert programmed.own_rad.max() < TURN  # the least heat, joints or not
    cells = true_cells(truth, programmed.currents_ma)
    ideal = replace(
        cells, phase_upper=wanted[:, 0], phase_lower=wanted[:, 1], joint_phase=np.zeros(len(smartlight.joints))
    )
    # Powers between ports are those of a mesh whose joints have no phase: all 52 loops are set right.
    found, expected = (np.abs(solver.solve(each, each.reference_hz)) ** 2 for each in (cells, ideal))
    np.testing.assert_allclose(found, expected, atol=3e-3 * expected.max())
    without = program_pucs(CalibratedMesh.from_record(record), targets)
    cells = true_cells(truth, without.currents_ma)
    other = np.abs(solver.solve(cells, cells.reference_hz)) ** 2
    assert np.abs(other - expected).max() > 0.05 * expected.max()


def test_three_joints_have_three_ends(smartlight: HexMesh) -> None:
    matrix = joint_compensation(smartlight, np.ones(len(smartlight.joints), dtype=bool), np.arange(72))
    phases = np.random.default_rng(0).uniform(-3.0, 3.0, len(smartlight.joints))
    # At a full vertex with joints a-b, b-c, c-a the end of a takes -(ab + ca - bc)/2; by hand at one end of one PUC
    # with the other end's share added.
    puc = 20
    expected = 0.0
    for end in (0, 1):
        touching = [j for j, pair in enumerate(smartlight.joints // 2) if 2 * puc + end in pair]
        others = [next(e for e in smartlight.joints[j] // 2 if e != 2 * puc + end) for j in touching]
        (third,) = (j for j, pair in enumerate(smartlight.joints // 2) if set(pair) == set(others))
        expected -= 0.5 * (phases[touching].sum() - phases[third])
    assert (matrix @ phases)[puc] == pytest.approx(expected)


def test_joints_beside_a_puc_without_common_phase_are_owned_up_to(smartlight: HexMesh, hidden) -> None:
    _, record = hidden
    targets = {puc: PucTarget.state("bar", 0.0) for puc in range(72)}
    targets[20] = PucTarget.state("bar")
    programmed = program_pucs(
        CalibratedMesh.from_record(record), targets, cancel_joints=np.ones(len(smartlight.joints), dtype=bool)
    )
    assert programmed.joint_error_rad > 1e-3


# Limits and faults ---------------------------------------------------------------------------------------------------


def test_heat_beyond_the_limit_is_refused(hidden) -> None:
    _, record = hidden
    targets = {puc: PucTarget.arms(3.0, 6.0) for puc in range(72)}
    with pytest.raises(LimitError, match="total heat of all heaters") as caught:
        program_pucs(CalibratedMesh.from_record(record), targets, limits=HeaterLimits(total_mw=100.0))
    assert caught.value.requested > 100.0
    assert (
        program_pucs(
            CalibratedMesh.from_record(record), targets, limits=HeaterLimits(total_mw=caught.value.requested + 1)
        ).heat_mw
        < 1000.0
    )


def test_the_controllers_own_limit_counts(hidden) -> None:
    _, record = hidden
    # 1.2 mA makes some 1.1 π of a typical heater: enough for one arm or the other, not for both at 1.9 π.
    targets = {7: PucTarget.arms(6.0, 6.0)}
    program_pucs(CalibratedMesh.from_record(record), targets)
    with pytest.raises(LimitError, match=r"PUC 7 (upper|lower) heater \(channel 1[45]\) cannot reach its phase"):
        program_pucs(CalibratedMesh.from_record(record, max_ma=1.0), targets)


def test_currents_are_rounded_to_the_converter_and_the_error_is_told(hidden) -> None:
    _, record = hidden
    step = MAX_MA / 2**12
    targets = dict.fromkeys(range(72), PucTarget.coupling(0.5))
    known = CalibratedMesh.from_record(record)
    programmed = program_pucs(known, targets, limits=HeaterLimits(dac_step_ma=step))
    exact = program_pucs(known, targets)
    steps = programmed.currents_ma / step
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-9)
    assert np.abs(programmed.currents_ma - exact.currents_ma).max() <= 0.5 * step
    # Half a step of 0.6 µA at 1.1 mA: φ = ρ2·I², ρ2 near 2.4 rad/mA², so 2·2.4·1.1·0.0003 = 1.5 mrad.
    assert 0.3e-3 < programmed.rounding_rad < 3e-3


def test_rounding_never_goes_beyond_the_largest_current() -> None:
    # On steps of 0.3 mA 1.0 mA is nearest to 0.9, and so is 0.79, unless 0.8 mA is all there is.
    currents = np.array([1.0, 0.79, 0.79, 0.0])
    rounded = rounded_ma(currents, np.array([2.0, 2.0, 0.8, 2.0]), 0.3)
    np.testing.assert_allclose(rounded, [0.9, 0.9, 0.6, 0.0])


def test_a_dead_heater_leaves_every_coupling_but_no_common_phase(hidden) -> None:
    _, record = hidden
    broken = CalibratedMesh.from_record(with_heater(record, 83, law=None, note="no effect"))
    for k in (0.01, 0.5, 0.98):
        programmed = program_pucs(broken, {41: PucTarget.coupling(k, record.pucs[41].coupler)})
        assert programmed.currents_ma[83] == 0.0
        assert programmed.currents_ma[82] > 0.0
    with pytest.raises(LimitError, match=r"PUC 41 lower heater \(channel 83\) has no effect, so the common phase"):
        program_pucs(broken, {41: PucTarget.arms(1.0, 2.0)})


def test_a_puc_stuck_in_the_state_wanted_is_left_alone() -> None:
    record = sample_record([puc_entry(0, None, None, None), puc_entry(1, 0.5)])
    stuck = replace(record, defects=(Defect("stuck PUC", "puc", 0, "no effect", ("bar",)),))
    currents = heater_currents_ma(stuck, {0: "bar", 1: "bar"})
    assert currents[0] == currents[1] == 0.0
    with pytest.raises(CalibrationError, match="PUC 0 is not calibrated"):
        heater_currents_ma(stuck, {0: "cross", 1: "bar"})


# Predicted accuracy --------------------------------------------------------------------------------------------------


def test_without_covariance_the_phase_error_is_that_of_the_passive_phase(hidden) -> None:
    _, record = hidden
    known = CalibratedMesh.from_record(record)
    currents = program_pucs(known, {puc: PucTarget.coupling(0.5, known.coupler(puc)) for puc in range(72)}).currents_ma
    predicted = predict_pucs(known, currents)
    np.testing.assert_allclose(predicted.differential_sigma_rad, 0.002)
    np.testing.assert_allclose(predicted.coupling, 0.5, atol=1e-6)
    # dk = ½ sin(π/2)·dφ, times what the couplers leave of the swing.
    np.testing.assert_allclose(predicted.coupling_sigma, 0.001, rtol=0.02)


def test_covariance_of_laws_counts_where_a_heater_is_driven() -> None:
    record = sample_record([puc_entry(puc, 0.0) for puc in range(10)])
    # σ(α) = 3 mrad, σ(ρ2) = 4 mrad/mA² on the upper heaters of two PUCs, not correlated.
    factor = np.zeros((30, 30))
    factor[0, 0] = factor[1, 1] = 3e-3
    factor[10, 10] = factor[12, 12] = 4e-3
    covariance = CovarianceEntry((("passive_phase_rad", 10), ("rho2", 20)), 30, 30)
    known = CalibratedMesh.from_record(replace(record, covariance=covariance, arrays={COVARIANCE_FACTOR: factor}))
    predicted = predict_pucs(known, np.array([1.0, 0.0, 0.0, 2.0, *[0.0] * 16]))
    np.testing.assert_allclose(predicted.differential_sigma_rad[:2], [5e-3, 3e-3])
    # An error that both arms share does not show where both are driven alike, and twice where they are not.
    shared = np.zeros((30, 1))
    shared[10:12] = 4e-3
    known = CalibratedMesh.from_record(replace(record, covariance=covariance, arrays={COVARIANCE_FACTOR: shared}))
    both_arms = predict_pucs(known, np.array([1.0, 1.0, *[0.0] * 18]))
    assert both_arms.differential_sigma_rad[0] == pytest.approx(0.0, abs=1e-12)
    assert predict_pucs(known, np.array([0.0, 1.0, *[0.0] * 18])).differential_sigma_rad[0] == pytest.approx(4e-3)


def test_extinction_is_what_couplers_and_phase_errors_leave() -> None:
    couplers = CouplerEntry(0.0, 0.01)
    entries = [replace(puc_entry(0, math.pi), coupler=couplers), *(puc_entry(puc, math.pi) for puc in range(1, 10))]
    predicted = predict_pucs(CalibratedMesh.from_record(sample_record(entries)), np.zeros(20))
    # Bar: sin²(0.01) = 1.0e-4 by the couplers and σ²/4 = 2.5e-5 by 10 mrad.
    expected = [10 * math.log10(1 / 1.25e-4), 10 * math.log10(4e4)]
    np.testing.assert_allclose(predicted.extinction_db[:2], expected, atol=0.01)


def test_rounding_adds_to_the_phase_error() -> None:
    known = CalibratedMesh.from_record(sample_record([puc_entry(0, 0.0)]))
    # dφ/dI = 2·2·1 + 4·0.05·1 = 4.2 rad/mA at 1 mA.
    predicted = predict_pucs(known, np.array([1.0, 0.0]), dac_step_ma=0.01)
    assert predicted.differential_sigma_rad[0] == pytest.approx(math.hypot(0.01, 4.2 * 0.01 / math.sqrt(12)))


def test_the_power_of_a_path_comes_with_its_standard_error(smartlight: HexMesh, hidden, solver: Solver) -> None:
    truth, record = hidden
    known = CalibratedMesh.from_record(record)
    states = dict.fromkeys(range(72), "cross") | {16: "bar", 20: "bar"}
    currents = heater_currents_ma(record, states)  # golden path 0x 6x 10x 16= 20= 19x to port 5
    predicted = predict_path(known, currents, 0, 5, solver=solver)
    cells = true_cells(truth, currents)
    power = np.abs(solver.solve(cells, cells.reference_hz, [0])[5, 0]) ** 2
    assert predicted.transmission_db == pytest.approx(10 * math.log10(power), abs=0.01)
    # Six PUCs of 0.01 dB each and next to nothing by phases at their extrema.
    assert predicted.sigma_db == pytest.approx(math.sqrt(6) * 0.01, rel=0.1)
