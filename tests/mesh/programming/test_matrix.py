"""Unitaries on the hexagonal mesh, judged by the solver on the hidden mesh itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from lumion_hw.emulator.optics.truth import MeshTruth
from lumion_hw.errors import ConfigError, LimitError
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.layout.topology import State
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.mesh.programming.heater_currents import HeaterLimits
from lumion_hw.mesh.programming.hexagonal_block import FeedForwardBlock, find_block
from lumion_hw.mesh.programming.matrix import (
    MatrixModel,
    MatrixPlace,
    MatrixSetting,
    fidelity,
    fidelity_up_to_port_phases,
    predicted_fidelities,
    program_matrix,
)
from lumion_hw.mesh.programming.prediction import COVARIANCE_FACTOR, LOOP_DIRECTIONS
from lumion_hw.mesh.record.calibration_record import CovarianceEntry
from lumion_hw.mesh.waves.scattering import Solver
from tests.mesh.known_truth import drawn, haar_unitary, off_by, record_of, true_cells


def measured(solver: Solver, truth: MeshTruth, setting: MatrixSetting) -> NDArray[np.complex128]:
    """Return the matrix that the hidden mesh makes of a setting."""
    cells = true_cells(truth, setting.currents_ma)
    return solver.solve(cells, cells.reference_hz, setting.inputs)[list(setting.outputs)]


# Blocks --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_modes", range(1, 7))
def test_each_mode_of_a_block_goes_straight_through_its_own_row(smartlight: HexMesh, n_modes: int) -> None:
    found = find_block(smartlight, n_modes)
    states: dict[int, State] = {wire.puc: wire.state for column in found.wires for wire in column}
    states |= {puc: "bar" for column in found.mixers for puc, _ in column}
    for source, port in zip(found.inputs, found.outputs, strict=True):
        trace = smartlight.trace(source, states)
        # Eight slanted and seven horizontal PUCs: the 15 hops of the published 6x6 switch (Sánchez-Jácome 2025).
        assert (trace.port, len(trace.pucs)) == (port, 15)
    assert found.hops == 15


def test_six_modes_take_the_whole_mesh_between_the_ports_of_the_published_switch(smartlight: HexMesh) -> None:
    found = find_block(smartlight, 6)
    assert found.pucs == frozenset(range(72))
    # {0, 39, 38, 37, 36, 35} to {15, ..., 20}; 0 and 1, 34 and 35, 14 and 15, 20 and 21 share a stub.
    assert found.inputs == (1, 39, 38, 37, 36, 34)
    assert found.outputs == (14, 16, 17, 18, 19, 21)


def test_modes_meet_like_bricks(smartlight: HexMesh) -> None:
    found = find_block(smartlight, 4, first_row=0)
    meeting = [[mode for mode in range(3) if found.mixer_of(column, mode) is not None] for column in range(7)]
    assert meeting == [[0, 2], [1], [0, 2], [1], [0, 2], [1], [0, 2]]


def test_a_block_keeps_off_pucs_to_be_avoided(smartlight: HexMesh) -> None:
    first = find_block(smartlight, 4)
    other = find_block(smartlight, 4, avoid=[0])
    assert (first.first_row, other.first_row) == (0, 1)
    assert 0 not in other.pucs
    with pytest.raises(ConfigError, match=r"has no free block of 4 modes: PUCs \[30\] are to be avoided"):
        find_block(smartlight, 4, avoid=[30])
    with pytest.raises(ConfigError, match="no free block of 7 modes"):
        find_block(smartlight, 7)


@pytest.mark.parametrize("cells", [[2, 3, 2], [3, 2, 3, 2], [1, 2, 1]])
def test_other_meshes_of_columns_have_blocks_too(cells: list[int]) -> None:
    mesh = HexMesh.columns(cells)
    found = find_block(mesh, 4)
    states: dict[int, State] = {wire.puc: wire.state for column in found.wires for wire in column}
    states |= {puc: "bar" for column in found.mixers for puc, _ in column}
    assert [mesh.trace(port, states).port for port in found.inputs] == list(found.outputs)


# Fidelities ----------------------------------------------------------------------------------------------------------


def test_fidelity_ignores_loss_and_common_phase_and_the_other_one_port_phases() -> None:
    rng = np.random.default_rng(5)
    unitary = haar_unitary(4, rng)
    assert fidelity(unitary, 0.3j * unitary) == pytest.approx(1.0)
    shifted = np.exp(1j * rng.uniform(0, 6, 4))[:, None] * unitary * np.exp(1j * rng.uniform(0, 6, 4))
    assert fidelity(unitary, shifted) < 0.9
    assert fidelity_up_to_port_phases(unitary, shifted) == pytest.approx(1.0)
    # Two orthogonal matrices of one element each: nothing in common.
    assert fidelity(np.eye(2, dtype=complex), np.eye(2, dtype=complex)[::-1]) == 0.0


# Programming ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_ideal_couplers_and_equal_losses_make_the_unitary_without_refinement(
    smartlight: HexMesh, solver: Solver, n: int
) -> None:
    truth = drawn(smartlight, n, coupler_common_sigma=0.0, coupler_difference_rad=0.0, puc_loss_sigma_db=0.0)
    unitary = haar_unitary(n, np.random.default_rng(n))
    setting = program_matrix(CalibratedMesh.from_record(record_of(smartlight, truth)), unitary, refine=False)
    assert fidelity(unitary, measured(solver, truth, setting)) > 0.99999
    assert setting.loss_db == pytest.approx(15 * 0.5, abs=0.01)  # 15 PUCs of 0.5 dB


@pytest.mark.parametrize("n", [2, 4, pytest.param(6, marks=pytest.mark.long)])
def test_a_mesh_that_is_known_makes_unitaries_whatever_its_couplers(
    smartlight: HexMesh, solver: Solver, n: int
) -> None:
    truth = drawn(smartlight, 10 + n)
    unitary = haar_unitary(n, np.random.default_rng(n))
    setting = program_matrix(CalibratedMesh.from_record(record_of(smartlight, truth)), unitary)
    reached = fidelity(unitary, measured(solver, truth, setting))
    assert reached > 0.999
    assert setting.fidelity == pytest.approx(reached, abs=1e-4)  # as predicted
    assert setting.fidelity >= setting.unrefined_fidelity


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 3))])
def test_four_modes_by_a_record_that_is_off_by_3_mrad(smartlight: HexMesh, solver: Solver, seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = drawn(smartlight, seed)
    unitary = haar_unitary(4, rng)
    setting = program_matrix(CalibratedMesh.from_record(off_by(record_of(smartlight, truth), 3e-3, rng)), unitary)
    assert fidelity(unitary, measured(solver, truth, setting)) >= 0.995


@pytest.mark.campaign
def test_the_fidelity_that_can_be_expected_follows_from_the_covariance(smartlight: HexMesh, solver: Solver) -> None:
    sigma_rad, rng = 10e-3, np.random.default_rng(8)
    truth = drawn(smartlight, 8)
    exact = record_of(smartlight, truth)
    groups = (("passive_phase_rad", 72), ("coupler_common_rad", 72), ("loops", 124))
    unitary = haar_unitary(4, rng)
    reached, expected = [], []
    for _ in range(6):
        # Errors of passive phases, couplers and every single joint, and a covariance that says so.
        record = replace(
            off_by(exact, sigma_rad, rng),
            covariance=CovarianceEntry(groups, 268, 268),
            arrays={COVARIANCE_FACTOR: sigma_rad * np.eye(268), LOOP_DIRECTIONS: np.eye(124)},
        )
        known = CalibratedMesh.from_record(record)
        setting = program_matrix(known, unitary)
        reached.append(1.0 - fidelity_up_to_port_phases(unitary, measured(solver, truth, setting)))
        expected.append(1.0 - predicted_fidelities(known, setting, unitary, draws=16).mean())
    assert 0.5 < np.mean(reached) / np.mean(expected) < 2.0


def test_the_slope_of_the_fidelity_counts_all_the_ways_heat_goes(smartlight: HexMesh) -> None:
    record = record_of(smartlight, drawn(smartlight, 9))
    assert record.crosstalk is not None
    assert record.crosstalk.kernel is not None
    # Ten times the crosstalk of a real mesh, so that it cannot be missed.
    strong = replace(record.crosstalk.kernel, amplitude_rad_per_mw=0.03, floor_rad_per_mw=0.004)
    known = CalibratedMesh.from_record(replace(record, crosstalk=replace(record.crosstalk, kernel=strong)))
    block = find_block(smartlight, 4)
    place = MatrixPlace(block.inputs, block.outputs, block.pucs)
    model = MatrixModel(known, haar_unitary(4, np.random.default_rng(9)), place)
    own = np.random.default_rng(9).uniform(0.5, 6.0, 144)
    _, slope, _ = model.fidelity_and_slopes(own)
    for heater in (0, 37, 82, 143):
        step = np.zeros(144)
        step[heater] = 1e-4
        ahead, behind = (model.fidelity_and_slopes(own + sign * step)[0] for sign in (1, -1))
        assert slope[heater] == pytest.approx((ahead - behind) / 2e-4, abs=1e-7)


def test_joint_phases_are_what_it_takes(smartlight: HexMesh, solver: Solver) -> None:
    truth = drawn(smartlight, 1)
    unitary = haar_unitary(4, np.random.default_rng(1))
    blind = replace(record_of(smartlight, truth), joints=None)
    setting = program_matrix(CalibratedMesh.from_record(blind), unitary)
    assert setting.fidelity > 0.999  # it believes so
    assert fidelity_up_to_port_phases(unitary, measured(solver, truth, setting)) < 0.98


def test_another_gauge_of_the_joints_moves_port_phases_only(smartlight: HexMesh, solver: Solver) -> None:
    truth = drawn(smartlight, 2)
    record = record_of(smartlight, truth)
    chi = np.random.default_rng(2).uniform(0.0, 6.0, smartlight.n_pucs)
    # χ of each PUC on the joints at end A, -χ on those at end B: nothing that a power meter sees.
    sign = np.where(smartlight.joints % 4 < 2, 1.0, -1.0)
    shifted = truth.joint_phase + (sign * chi[smartlight.joints // 4]).sum(axis=1)
    assert record.joints is not None
    other = replace(record, joints=replace(record.joints, phase_rad=tuple(shifted.tolist())))
    unitary = haar_unitary(4, np.random.default_rng(2))
    matrix = measured(solver, truth, program_matrix(CalibratedMesh.from_record(other), unitary))
    assert fidelity(unitary, matrix) < 0.9
    assert fidelity_up_to_port_phases(unitary, matrix) > 0.999


def test_a_converter_of_14_bits_costs_next_to_nothing(smartlight: HexMesh, solver: Solver) -> None:
    truth = drawn(smartlight, 3)
    unitary = haar_unitary(4, np.random.default_rng(3))
    step = 2.4 / 2**14
    setting = program_matrix(
        CalibratedMesh.from_record(record_of(smartlight, truth)), unitary, limits=HeaterLimits(dac_step_ma=step)
    )
    steps = setting.currents_ma / step
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-6)
    assert fidelity(unitary, measured(solver, truth, setting)) > 0.9995


def test_dead_heaters_are_kept_out_of_the_block(smartlight: HexMesh, solver: Solver) -> None:
    truth = drawn(smartlight, 4)
    truth.stuck_current_ma[1] = 0.0  # lower arm of PUC 0, which is the way in of row 0
    record = record_of(smartlight, truth)
    lower = replace(record.pucs[0].lower, law=None)
    record = replace(record, pucs=(replace(record.pucs[0], lower=lower), *record.pucs[1:]))
    unitary = haar_unitary(4, np.random.default_rng(4))
    setting = program_matrix(CalibratedMesh.from_record(record), unitary)
    assert 0 not in setting.pucs
    assert fidelity(unitary, measured(solver, truth, setting)) > 0.999


def test_too_much_heat_is_refused(smartlight: HexMesh) -> None:
    known = CalibratedMesh.from_record(record_of(smartlight, drawn(smartlight, 5)))
    with pytest.raises(LimitError, match="total heat of all heaters"):
        program_matrix(known, np.eye(4, dtype=complex), limits=HeaterLimits(total_mw=50.0))


def test_the_block_must_have_room_for_the_matrix(smartlight: HexMesh) -> None:
    known = CalibratedMesh.from_record(record_of(smartlight, drawn(smartlight, 5)))
    where: FeedForwardBlock = find_block(smartlight, 3)
    with pytest.raises(ConfigError, match="the matrix has 4 modes, but the block has 3"):
        program_matrix(known, np.eye(4, dtype=complex), block=where)
    short = HexMesh.columns([2, 3, 2])
    with pytest.raises(ConfigError, match="6 modes need more columns"):
        program_matrix(
            CalibratedMesh.from_record(record_of(short, drawn(short, 5))), haar_unitary(6, np.random.default_rng(0))
        )
