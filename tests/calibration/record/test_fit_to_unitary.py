"""From readings to light: a mesh is fitted, its record written and read, a unitary programmed, and the mesh judges."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibration.fit.global_fit import GlobalFit
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.observations import NoiseModel
from calibration.model.priors import default_prior
from calibration.record.comparison import compare_records
from calibration.record.conversion import Origin, build_record
from calibration.record.raw_data import save_raw
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.mesh.programming.inverse import heater_currents_ma
from lumion_hw.mesh.programming.matrix import fidelity_up_to_port_phases, predicted_fidelities, program_matrix
from lumion_hw.mesh.programming.prediction import predict_pucs
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.mesh.waves.cell import coupling_floors
from lumion_hw.mesh.waves.scattering import Solver
from lumion_hw.storage import load_record, save_record
from tests.calibration.simulated_mesh import FLOOR_MA, RELATIVE, SimulatedMesh, start_near

pytestmark = pytest.mark.long

MESH = HexMesh.smartlight()
ORIGIN = Origin("MZ-0001", "LM-1", "1.2.3", tuple(range(144)), wavelength_nm=1550.0, heater_max_ma=1.85)


@pytest.fixture(scope="module")
def hidden() -> SimulatedMesh:
    return SimulatedMesh.draw(MESH, 21)


@pytest.fixture(scope="module")
def records(hidden: SimulatedMesh, tmp_path_factory: pytest.TempPathFactory) -> list[CalibrationRecord]:
    """Two calibrations of the same mesh from readings of their own, written and read back."""
    model = MeshModel(MESH, hidden.ports, hidden.ports)
    found = []
    for number in range(2):
        path = tmp_path_factory.mktemp("records") / f"{number}.json"
        readings = hidden.measure(*hidden.random_settings(300))
        start = start_near(hidden, 0.1, 0.03)
        fit = GlobalFit(model, Likelihood(readings, NoiseModel(RELATIVE, FLOOR_MA)), default_prior(model.space, start))
        result = fit.run(start)
        record = build_record(model.space, result.parameters, ORIGIN, result.covariance())
        save_record(replace(record, raw=save_raw(path, readings)), path)
        found.append(load_record(path))
        assert [each.suffix for each in sorted(path.parent.iterdir())].count(".h5") == 2
    return found


def test_a_four_by_four_unitary_comes_out_of_a_fitted_record(
    hidden: SimulatedMesh, records: list[CalibrationRecord]
) -> None:
    known, solver = CalibratedMesh.from_record(records[0]), Solver(MESH)
    rng = np.random.default_rng(4)
    for _ in range(3):
        q, r = np.linalg.qr(rng.standard_normal((4, 4)) + 1j * rng.standard_normal((4, 4)))
        unitary = q * (np.diag(r) / np.abs(np.diag(r)))
        setting = program_matrix(known, unitary)
        cells = hidden.cells(setting.currents_ma[None])
        field = solver.solve(cells, cells.reference_hz, setting.inputs)[0]
        reached = fidelity_up_to_port_phases(unitary, field[list(setting.outputs)])
        assert reached >= 0.995
        assert 1.0 - reached < 10.0 * (1.0 - predicted_fidelities(known, setting, unitary, draws=16).mean()) + 1e-4


def test_bar_and_cross_come_within_a_decibel_of_what_the_couplers_allow(
    hidden: SimulatedMesh, records: list[CalibrationRecord]
) -> None:
    truth = hidden.truth
    floors = coupling_floors(truth.eta_in, truth.eta_out)
    for state, floor in (("bar", floors.bar_leak), ("cross", floors.cross_leak)):
        currents = heater_currents_ma(records[0], dict.fromkeys(range(72), state))
        cells = hidden.cells(currents[None])
        power = np.abs(cells.transfer(cells.reference_hz)[0]) ** 2
        k = power[:, 1, 0] / (power[:, 0, 0] + power[:, 1, 0])
        weaker = k if state == "bar" else 1.0 - k
        # A decibel of what they allow, where that is less than the 45 dB at which a few mrad are all there is.
        assert (10 * np.log10(weaker / np.maximum(floor, 10**-4.5)) < 1.0).all()
        assert (
            np.abs(predict_pucs(CalibratedMesh.from_record(records[0]), currents).differential_sigma_rad) < 0.01
        ).all()


def test_two_calibrations_of_one_mesh_agree_within_their_errors(records: list[CalibrationRecord]) -> None:
    result = compare_records(*records)
    groups = {group.group: group for group in result.groups}
    for name in ("passive_phase_rad", "loops", "loss_db"):
        rms_sigma = groups[name].rms_sigma
        assert rms_sigma is not None
        assert 0.5 < rms_sigma < 1.5
    assert result.chi2_per_dof is not None
    assert 0.5 < result.chi2_per_dof < 2.0
