from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lumion_hw.errors import CalibrationError, LimitError
from lumion_hw.mesh.layout.topology import State
from lumion_hw.mesh.programming.inverse import heater_currents_ma, split_phase
from lumion_hw.mesh.record.calibration_record import CalibrationRecord, CrosstalkEntry
from lumion_hw.mesh.waves.cell import UnitCells
from lumion_hw.mesh.waves.heater import HeaterLaw
from tests.mesh.sample_record import CELL, LAW, puc_entry, sample_record

TURN = 2 * math.pi
HALF_TURN_ONLY = HeaterLaw(math.pi / 6.25, 0.0, 2.5)
"""Reaches π and no more."""
angles = st.floats(-20.0, 20.0)


def off_by(up: float, down: float, passive: float, wanted: float) -> float:
    """Return the distance between what two arm phases make and what was wanted, modulo a turn."""
    return abs((up + passive - down - wanted + math.pi) % TURN - math.pi)


# Splitting a phase over two arms -------------------------------------------------------------------------------------


@given(angles, angles, st.floats(0.0, TURN))
def test_two_arms_make_the_wanted_difference(wanted: float, passive: float, common: float) -> None:
    up, down = split_phase(wanted, passive, LAW, LAW, common)
    assert off_by(up, down, passive, wanted) < 1e-9
    assert min(up, down) == pytest.approx(common, abs=1e-9)


@given(angles, angles)
def test_no_other_branch_needs_less_heat(wanted: float, passive: float) -> None:
    up, down = split_phase(wanted, passive, LAW, LAW)
    # Every pair with the right difference: heating one arm alone by the difference plus any number of turns.
    difference = (wanted - passive) % TURN
    alone = [abs(difference + turns * TURN) for turns in range(-3, 4)]
    assert up + down == pytest.approx(min(alone), abs=1e-9)
    assert up + down <= math.pi + 1e-9


@given(angles, angles, st.floats(0.1, TURN))
def test_one_living_heater_sets_every_difference_without_the_common_phase(
    wanted: float, passive: float, common: float
) -> None:
    up, down = split_phase(wanted, passive, LAW, None, common)
    assert down == 0.0
    assert up <= TURN
    assert off_by(up, down, passive, wanted) < 1e-9
    up, down = split_phase(wanted, passive, None, LAW, common)
    assert up == 0.0
    assert off_by(up, down, passive, wanted) < 1e-9


def test_a_weak_heater_leaves_the_work_to_the_other_arm() -> None:
    # 3 rad and a common phase of 1 rad would be 4 + 1 rad with the upper arm in front; it reaches π only, so the lower
    # arm goes in front with 2π - 3 rad.
    assert split_phase(3.0, 0.0, LAW, LAW, 1.0) == (pytest.approx(4.0), 1.0)
    assert split_phase(3.0, 0.0, HALF_TURN_ONLY, LAW, 1.0) == (1.0, pytest.approx(TURN - 3.0 + 1.0))


def test_dead_heaters_and_short_reach_are_refused_with_both_numbers() -> None:
    with pytest.raises(LimitError, match="cannot reach the desired phase") as caught:
        split_phase(math.pi, 0.0, None, None)
    assert (caught.value.requested, caught.value.limit) == (pytest.approx(math.pi), 0.0)
    with pytest.raises(LimitError) as caught:
        split_phase(1.5 * math.pi, 0.0, HALF_TURN_ONLY, None)
    assert (caught.value.requested, caught.value.limit) == (pytest.approx(1.5 * math.pi), pytest.approx(math.pi))


def test_a_difference_that_is_there_already_takes_no_heat() -> None:
    assert split_phase(math.pi, math.pi, LAW, LAW) == (0.0, 0.0)


# From states to currents ---------------------------------------------------------------------------------------------


def extinction_db(
    record: CalibrationRecord, currents_ma: np.ndarray, extra_rad: np.ndarray, states: dict[int, State]
) -> np.ndarray:
    """Return the extinction of every PUC by the transfer matrices of ideal couplers: the forward model."""
    laws = [arm.law for entry in record.pucs for arm in (entry.upper, entry.lower)]
    pairs = zip(laws, currents_ma, strict=True)
    heat = np.array([law.phase_rad(current) if law else 0.0 for law, current in pairs])
    passive = np.array([entry.passive_phase_rad or 0.0 for entry in record.pucs])
    half = np.full(len(record.pucs), 0.5)
    cells = UnitCells(
        np.zeros(len(half)), half, half, passive + heat[0::2] + extra_rad, heat[1::2], np.zeros(len(CELL.joints))
    )
    power = np.abs(cells.transfer(cells.reference_hz)) ** 2
    bar, cross = power[:, 0, 0], power[:, 1, 0]
    wanted = np.array([states[puc] == "bar" for puc in range(len(half))])
    return 10 * np.log10(np.where(wanted, bar, cross) / np.maximum(np.where(wanted, cross, bar), 1e-20))


MIXED: dict[int, State] = {puc: "bar" if puc % 3 else "cross" for puc in range(CELL.n_pucs)}
UNTOUCHED = np.zeros(CELL.n_pucs)


def crosstalk_of(strength: float, seed: int = 3) -> CrosstalkEntry:
    """Return differential crosstalk of a few mrad per mW, positive and negative."""
    rng = np.random.default_rng(seed)
    matrix = strength * rng.standard_normal((CELL.n_pucs, 2 * CELL.n_pucs))
    return CrosstalkEntry(tuple(map(tuple, matrix.tolist())))


def test_the_currents_of_a_record_make_the_wanted_states() -> None:
    record = sample_record()
    assert extinction_db(record, heater_currents_ma(record, MIXED), UNTOUCHED, MIXED).min() > 80.0


def test_pucs_without_a_wanted_state_stay_unheated() -> None:
    currents = heater_currents_ma(sample_record(), {3: "bar"})
    heated = np.flatnonzero(currents)
    assert set(heated // 2) == {3}


def test_recorded_crosstalk_is_compensated() -> None:
    record = sample_record(crosstalk=crosstalk_of(0.01))
    currents = heater_currents_ma(record, MIXED)
    # The heat that the record reckons with: I²·R with the nominal 1000 Ω, times what the law 2·I² + 0.05·I⁴ bends up.
    extra = np.array(record.crosstalk.differential_rad_per_mw) @ (currents**2 * (1.0 + 0.025 * currents**2))
    assert np.abs(extra).max() > 0.02
    assert extinction_db(record, currents, extra, MIXED).min() > 80.0


def test_crosstalk_that_was_not_recorded_is_left_alone() -> None:
    record, heated = sample_record(), sample_record(crosstalk=crosstalk_of(0.01))
    currents = heater_currents_ma(record, MIXED)
    alone = [heater_currents_ma(record, {puc: state})[2 * puc : 2 * puc + 2] for puc, state in MIXED.items()]
    np.testing.assert_allclose(currents.reshape(-1, 2), alone, rtol=0, atol=1e-12)
    # Under the crosstalk of the other test these currents miss by its phases: that is what compensation is worth.
    extra = np.array(heated.crosstalk.differential_rad_per_mw) @ (currents**2 * 1000.0 * 1e-3)
    expected_db = -20 * np.log10(np.abs(np.sin(extra / 2)))
    reached = extinction_db(record, currents, extra, MIXED)
    np.testing.assert_allclose(reached, expected_db, atol=0.1)


def test_crosstalk_too_strong_to_settle_is_an_error_not_a_wrong_answer() -> None:
    with pytest.raises(CalibrationError, match=r"did not converge: phases still change by .* rad after \d+ rounds"):
        heater_currents_ma(sample_record(crosstalk=crosstalk_of(3.0)), MIXED)


def test_a_puc_with_one_dead_heater_still_reaches_both_states() -> None:
    pucs = [puc_entry(0, 2.0, upper=None), puc_entry(1, 2.0, lower=None)]
    record = sample_record(pucs)
    for state in ("bar", "cross"):
        currents = heater_currents_ma(record, {0: state, 1: state})
        assert currents[0] == currents[3] == 0.0
        # cross: φu - φl = 0, so 2 rad on the lower arm or 2π - 2 on the upper; bar: π on top.
        difference = math.pi if state == "bar" else 0.0
        assert currents[1] == pytest.approx(LAW.current_ma((2.0 - difference) % TURN))
        assert currents[2] == pytest.approx(LAW.current_ma((difference - 2.0) % TURN))


def test_an_uncalibrated_puc_is_refused_by_name() -> None:
    record = sample_record([puc_entry(0, 0.0), puc_entry(1, None)])
    with pytest.raises(CalibrationError, match="PUC 1 is not calibrated: neither heater has any effect"):
        heater_currents_ma(record, {0: "bar", 1: "cross"})


def test_a_state_out_of_reach_names_the_puc_and_the_state() -> None:
    # Passive phase 0 with an upper heater that reaches π at most: cross takes nothing, bar exactly π; from 0.5 rad
    # passive phase, cross takes 2π - 0.5 on the upper arm, and there is no lower one.
    record = sample_record([puc_entry(0, 0.5, HALF_TURN_ONLY, None)])
    with pytest.raises(LimitError, match="PUC 0 cannot be set to cross") as caught:
        heater_currents_ma(record, {0: "cross"})
    assert caught.value.requested == pytest.approx(TURN - 0.5)
    assert caught.value.limit == pytest.approx(math.pi)
    assert heater_currents_ma(record, {0: "bar"})[0] == pytest.approx(HALF_TURN_ONLY.current_ma(math.pi - 0.5))
