"""Matrices on meshes of every topology, judged by the solver on the hidden mesh itself."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from lumion_hw.emulator.optics.truth import MeshTruth
from lumion_hw.errors import CalibrationError, ConfigError
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.layout.topologies import mesh_from_label
from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.mesh.programming.decomposition import variants
from lumion_hw.mesh.programming.interferometer import Interferometer, PhaseSolver, feed_forward_ports, start_settings
from lumion_hw.mesh.programming.matrix import (
    MatrixSetting,
    amplitude_fidelity,
    fidelity_up_to_port_phases,
    program_matrix,
    reachable_phases,
)
from lumion_hw.mesh.waves.scattering import Solver
from tests.mesh.known_truth import drawn, haar_unitary, off_by, record_of, true_cells

EVEN = {"coupler_common_sigma": 0.0, "coupler_difference_rad": 0.0, "puc_loss_db": 0.0, "puc_loss_sigma_db": 0.0}
"""A chip whose couplers are balanced and lose nothing: any unitary is reached exactly."""


def calibrated(mesh: MeshTopology, truth: MeshTruth) -> CalibratedMesh:
    return CalibratedMesh.from_record(record_of(mesh, truth))


def truly(mesh: MeshTopology, truth: MeshTruth, setting: MatrixSetting) -> NDArray[np.complex128]:
    cells = true_cells(truth, setting.currents_ma)
    return Solver(mesh).solve(cells, cells.reference_hz, setting.inputs)[list(setting.outputs)]


@pytest.mark.parametrize(
    "label", ["clements 2", "clements 3", "clements 6", "reck 3", "reck 5", "bell 2", "bell 4", "bell 5"]
)
def test_universal_meshes_are_set_by_decomposition_alone(label: str) -> None:
    mesh = mesh_from_label(label)
    truth = drawn(mesh, 1, **EVEN)
    n = int(label.split()[1])
    unitary = haar_unitary(n, np.random.default_rng(n))
    setting = program_matrix(CalibratedMesh.from_record(record_of(mesh, truth)), unitary, refine=False)
    assert fidelity_up_to_port_phases(unitary, truly(mesh, truth, setting)) > 1.0 - 1e-6
    assert setting.inputs == tuple(range(n))


def test_phase_shifters_at_the_ports_that_no_light_shows_are_not_needed() -> None:
    """A calibration with power meters gives no laws for phases at inputs and outputs; crosstalk cannot replace them."""
    mesh = mesh_from_label("clements 6")
    truth = drawn(mesh, 1, **EVEN)
    record = record_of(mesh, truth)
    shifters = [puc for puc, kind in enumerate(mesh.cell_kinds) if kind in ("upper-phase", "two-phases")]
    unseen = {*shifters[:3], *shifters[-3:]}
    truth.stuck_current_ma |= {2 * puc + arm: 0.0 for puc in unseen for arm in (0, 1)}
    without_law = [
        replace(entry, upper=replace(entry.upper, law=None), lower=replace(entry.lower, law=None))
        for entry in record.pucs
    ]
    pucs = tuple(without_law[puc] if puc in unseen else entry for puc, entry in enumerate(record.pucs))
    known, rng = CalibratedMesh.from_record(replace(record, pucs=pucs)), np.random.default_rng(6)
    for _ in range(5):
        unitary = haar_unitary(6, rng)
        setting = program_matrix(known, unitary, refine=False)
        assert fidelity_up_to_port_phases(unitary, truly(mesh, truth, setting)) > 1.0 - 1e-6


def test_the_signs_of_the_angles_are_those_that_need_little_heat() -> None:
    """Every angle can have both signs: of all 2^6 settings of a mesh with four modes, ours is among the best."""
    mesh = mesh_from_label("clements 4")
    known, guides = calibrated(mesh, drawn(mesh, 1, **EVEN)), Interferometer(mesh, range(4))
    rng = np.random.default_rng(2)
    for _ in range(3):
        unitary = haar_unitary(4, rng)
        (start,) = start_settings(known, guides, unitary)
        whole = next(variant for variant in variants(unitary) if guides.equations(variant) is not None)
        heats = []
        for signs in itertools.product((False, True), repeat=6):
            setting = whole
            for number in np.flatnonzero(signs):
                setting = setting.with_opposite_angle(int(number))
            equations = guides.equations(setting)
            assert equations is not None
            solver = PhaseSolver(known, equations.rows)
            if (solved := solver.solve(equations.wanted_rad)).is_exact:
                heats.append(solver.heat_mw(solved))
        assert known.heat_mw(start.own_rad).sum() <= np.quantile(heats, 0.1)


def test_a_limit_that_forbids_a_phase_gives_the_nearest_matrix() -> None:
    mesh = mesh_from_label("clements 3")
    truth = drawn(mesh, 6, **EVEN)
    unitary = haar_unitary(3, np.random.default_rng(6))
    whole = program_matrix(calibrated(mesh, truth), unitary)
    # Enough current for little more than half a turn.
    limited = CalibratedMesh.from_record(record_of(mesh, truth), max_ma=1.3)
    assert limited.reach_rad[limited.max_ma > 0.0].max() < 6.0
    nearest = program_matrix(limited, unitary)
    assert nearest.currents_ma.max() <= 1.3
    assert nearest.fidelity < whole.fidelity
    assert fidelity_up_to_port_phases(unitary, truly(mesh, truth, nearest)) == pytest.approx(nearest.fidelity, abs=1e-4)
    assert nearest.fidelity > 0.8


@pytest.mark.parametrize(
    ("label", "least"),
    [("clements 4", 0.998), ("reck 4", 0.99), ("rectangular 4", 0.97), ("benes 4", 0.9), ("clements 8", 0.99)],
)
def test_real_couplers_losses_and_crosstalk_are_corrected(label: str, least: float) -> None:
    """Unequal losses of the paths remain, and a Benes network has too few cells for every matrix."""
    mesh = mesh_from_label(label)
    truth = drawn(mesh, 2)
    n = int(label.split()[1])
    unitary = haar_unitary(n, np.random.default_rng(n))
    setting = program_matrix(CalibratedMesh.from_record(record_of(mesh, truth)), unitary)
    matrix = truly(mesh, truth, setting)
    assert fidelity_up_to_port_phases(unitary, matrix) > least
    assert fidelity_up_to_port_phases(unitary, matrix) == pytest.approx(setting.fidelity, abs=1e-5)
    assert amplitude_fidelity(unitary, matrix) >= fidelity_up_to_port_phases(unitary, matrix)
    np.testing.assert_allclose(np.abs(matrix), np.abs(setting.matrix), atol=2e-3)


@pytest.mark.parametrize(("label", "phases"), [("clements 4", 9), ("rectangular 6", 24), ("benes 4", 9), ("reck 3", 4)])
def test_how_many_phases_a_mesh_reaches(label: str, phases: int) -> None:
    """A rectangular mesh of interferometers alone has 34 of 36 with port phases (rank of its derivatives)."""
    mesh = mesh_from_label(label)
    known = CalibratedMesh.from_record(record_of(mesh, drawn(mesh, 1)))
    n = int(label.split()[1])
    assert reachable_phases(known, *feed_forward_ports(mesh)) == (phases, (n - 1) ** 2)


def test_a_small_matrix_avoids_cells_without_calibration_and_keeps_to_the_best_ports() -> None:
    mesh = mesh_from_label("clements 6")
    record = record_of(mesh, drawn(mesh, 3))
    unitary = haar_unitary(2, np.random.default_rng(1))
    free = program_matrix(CalibratedMesh.from_record(record), unitary)
    unknown = replace(record.pucs[min(free.pucs)], passive_phase_rad=None)
    pucs = tuple(unknown if puc == min(free.pucs) else entry for puc, entry in enumerate(record.pucs))
    other = program_matrix(CalibratedMesh.from_record(replace(record, pucs=pucs)), unitary)
    assert min(free.pucs) not in other.pucs
    assert other.inputs != free.inputs
    assert other.fidelity > 0.9999
    blind = tuple(replace(entry, passive_phase_rad=None) for entry in record.pucs)
    with pytest.raises(CalibrationError, match="no free place for a matrix of 2 outputs and 2 inputs"):
        program_matrix(CalibratedMesh.from_record(replace(record, pucs=blind)), unitary)


def test_a_dead_heater_costs_little_if_another_can_take_its_part() -> None:
    mesh = mesh_from_label("clements 4")
    truth = drawn(mesh, 4)
    record = record_of(mesh, truth)
    heater = next(puc for puc, kind in enumerate(mesh.cell_kinds) if kind == "upper-phase")
    truth.stuck_current_ma[2 * heater] = 0.0
    dead = replace(record.pucs[heater], upper=replace(record.pucs[heater].upper, law=None))
    pucs = tuple(dead if puc == heater else entry for puc, entry in enumerate(record.pucs))
    unitary = haar_unitary(4, np.random.default_rng(4))
    setting = program_matrix(CalibratedMesh.from_record(replace(record, pucs=pucs)), unitary)
    # The first outer phase acts on one input alone, where phases do not count.
    assert fidelity_up_to_port_phases(unitary, truly(mesh, truth, setting)) > 0.998
    assert setting.currents_ma[2 * heater] == 0.0


@pytest.mark.parametrize("shape", [(2, 2), (3, 2), (1, 3)])
def test_matrices_that_are_not_unitary(shape: tuple[int, int]) -> None:
    mesh = mesh_from_label("clements 6")
    truth = drawn(mesh, 5)
    wanted = np.random.default_rng(6).standard_normal(shape).astype(complex)
    setting = program_matrix(CalibratedMesh.from_record(record_of(mesh, truth)), wanted)
    assert (len(setting.outputs), len(setting.inputs)) == shape
    assert fidelity_up_to_port_phases(wanted, truly(mesh, truth, setting)) > 0.9995


def test_ports_can_be_chosen_also_where_light_can_turn_back() -> None:
    mesh = HexMesh.columns([2, 3, 2])
    truth = drawn(mesh, 7)
    unitary = haar_unitary(2, np.random.default_rng(2))
    ports = mesh.fibre_ports
    setting = program_matrix(
        CalibratedMesh.from_record(record_of(mesh, truth)), unitary, inputs=ports[:2], outputs=ports[4:6]
    )
    assert setting.inputs == ports[:2]
    assert fidelity_up_to_port_phases(unitary, truly(mesh, truth, setting)) > 0.99


def test_a_record_with_errors_gives_the_fidelity_that_is_predicted() -> None:
    mesh = mesh_from_label("clements 4")
    truth = drawn(mesh, 8, **EVEN)
    rng = np.random.default_rng(8)
    reached = []
    for _ in range(5):
        known = CalibratedMesh.from_record(off_by(record_of(mesh, truth), 0.02, rng))
        unitary = haar_unitary(4, rng)
        reached.append(1.0 - fidelity_up_to_port_phases(unitary, truly(mesh, truth, program_matrix(known, unitary))))
    # 1 - F = k σ² with k of 3 to 6.3 for four modes, in joints and couplers too.
    assert 0.0003 < np.mean(reached) < 0.02


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.zeros((3, 3)), "is zero everywhere"),
        (np.full((2, 2), np.nan), "contains nan or infinity"),
        (np.ones(4), r"has the shape \(4,\)"),
        (np.eye(5), "the matrix has 5 outputs and 5 inputs, but mesh 'clements 4' has 4 and 4"),
    ],
)
def test_impossible_matrices_are_refused(matrix: NDArray[np.complex128], message: str) -> None:
    mesh = mesh_from_label("clements 4")
    known = CalibratedMesh.from_record(record_of(mesh, drawn(mesh, 1)))
    with pytest.raises(ConfigError, match=message):
        program_matrix(known, matrix)


def test_impossible_ports_are_refused() -> None:
    mesh = mesh_from_label("clements 4")
    known = CalibratedMesh.from_record(record_of(mesh, drawn(mesh, 1)))
    with pytest.raises(ConfigError, match="needs as many ports"):
        program_matrix(known, np.eye(2), inputs=[0, 1], outputs=[4])
    with pytest.raises(ConfigError, match="port 99 does not exist"):
        program_matrix(known, np.eye(2), inputs=[0, 1], outputs=[4, 99])
