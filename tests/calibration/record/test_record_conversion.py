"""Parameters to record and back; raw readings beside it."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from calibration.fit.bound import plan_bound
from calibration.model.gauge import loop_rms_rad
from calibration.model.heating import Heating
from calibration.model.mesh_model import MeshModel
from calibration.model.observations import NoiseModel
from calibration.model.parameters import MeshParameters
from calibration.model.physics import PairDirections, Physics
from calibration.model.space import LAW_TERMS, ParameterSpace, space_from_record
from calibration.record.conversion import (
    build_record,
    covariance_from_record,
    parameters_from_record,
    rising_to_ma,
)
from calibration.record.raw_data import load_raw, save_raw
from lumion_hw.errors import CalibrationError
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.mesh.programming.prediction import predict_path, predict_pucs
from lumion_hw.mesh.record.calibration_record import CROSSTALK_PAIRS, CrosstalkEntry, Defect
from lumion_hw.mesh.waves.scattering import Solver
from lumion_hw.mesh.waves.shared_return import RETURN_GROUP_SIZES
from lumion_hw.storage import load_record, save_record
from tests.calibration import one_cell
from tests.calibration.one_cell import CELL
from tests.calibration.simulated_mesh import SimulatedMesh

ORIGIN = replace(one_cell.ORIGIN, provenance={"seed": "7"})


@pytest.fixture(scope="module")
def hidden() -> SimulatedMesh:
    return SimulatedMesh.draw(CELL, 5)


@pytest.fixture(scope="module")
def space() -> ParameterSpace:
    return one_cell.SPACE


def random_covariance(space: ParameterSpace) -> np.ndarray:
    """Return a covariance with sizes as different as those of losses and heater laws, and one parameter held."""
    rng = np.random.default_rng(3)
    mixed = rng.standard_normal((space.size, space.size)) * 10.0 ** rng.uniform(-6.0, 0.0, space.size)[:, None]
    mixed[-1] = 0.0
    return mixed @ mixed.T


def test_parameters_survive_the_record_on_disk(hidden: SimulatedMesh, space: ParameterSpace, tmp_path: Path) -> None:
    found = replace(
        hidden.parameters(),
        heat_factor=np.linspace(0.9, 1.1, 20),
        source_detuning_hz=np.linspace(-1e9, 1e9, 12),
        differential_slope_rad_per_hz=1e-13,
    )
    save_record(build_record(space, found, ORIGIN), tmp_path / "record.json")
    back = parameters_from_record(load_record(tmp_path / "record.json"))
    for each in fields(MeshParameters):
        before, after = np.asarray(getattr(found, each.name)), np.asarray(getattr(back, each.name))
        if each.name == "passive_phase_rad":  # kept in -π … π
            np.testing.assert_allclose(np.exp(1j * after), np.exp(1j * before))
        else:
            np.testing.assert_array_equal(after, before, err_msg=each.name)


def test_what_was_lit_together_survives_the_record_on_disk(hidden: SimulatedMesh, tmp_path: Path) -> None:
    ports = CELL.fibre_ports
    space = ParameterSpace(CELL, ports[:3], ports, {ports[0]: ports[5], ports[2]: ports[4]})
    found = replace(hidden.parameters(), source_db=np.array([1.0, 2.0, 3.0]), second_db=np.array([0.5, -0.25]))
    record = build_record(space, found, ORIGIN, random_covariance(space))
    save_record(record, tmp_path / "record.json")
    read = load_record(tmp_path / "record.json")
    assert read.content_sha256 == record.content_sha256
    back = space_from_record(read)
    assert (back.sources, back.seconds, back.groups) == (space.sources, space.seconds, space.groups)
    np.testing.assert_allclose(parameters_from_record(read).second_db, found.second_db)
    assert read.port(ports[4]).lit_with == ports[2]


def test_a_record_whose_second_port_is_lit_with_no_source_is_refused(
    hidden: SimulatedMesh, space: ParameterSpace, tmp_path: Path
) -> None:
    record = build_record(space, hidden.parameters(), ORIGIN)
    entries = tuple(replace(one, lit_with=99) if one.port == space.sources[1] else one for one in record.ports)
    save_record(replace(record, ports=entries), tmp_path / "record.json")
    with pytest.raises(CalibrationError, match="lit_with set to a port without a source"):
        load_record(tmp_path / "record.json")


@pytest.mark.parametrize("shared", [False, True], ids=["drives alone", "drives with a common return"])
def test_model_and_record_predict_the_same_light(hidden: SimulatedMesh, space: ParameterSpace, shared: bool) -> None:
    found = hidden.parameters()
    if shared:
        per_ma = np.random.default_rng(2).normal(0.0, 1e-3, 2 * len(RETURN_GROUP_SIZES))
        found = replace(found, extra_physics={"shared_return_per_ma": per_ma})
    channels = tuple(reversed(range(2 * CELL.n_pucs)))
    record = build_record(space, found, replace(ORIGIN, heater_channels=channels))
    currents, source = hidden.random_settings(8)
    plan = hidden.measure(currents, source)
    expected = MeshModel(CELL, space.sources, space.monitors, channels=channels).predict(found, plan)
    known, solver = CalibratedMesh.from_record(record), Solver(CELL)
    for setting in range(8):
        cells = known.cells(currents[setting])
        power = np.abs(solver.solve(cells, cells.reference_hz, [int(source[setting])])[:, 0]) ** 2
        launched = record.port(int(source[setting])).source_dbm
        assert launched is not None
        scale = np.array([record.port(port).monitor_ma_per_mw for port in record.monitor_ports], dtype=float)
        reading = power[list(record.monitor_ports)] * 10 ** (launched / 10) * scale
        np.testing.assert_allclose(reading, expected[setting], rtol=1e-9)


def test_covariance_comes_back_factored(space: ParameterSpace, hidden: SimulatedMesh, tmp_path: Path) -> None:
    covariance = random_covariance(space)
    save_record(build_record(space, hidden.parameters(), ORIGIN, covariance), tmp_path / "record.json")
    record = load_record(tmp_path / "record.json")
    sigma = np.sqrt(np.diag(covariance))
    scale = np.where(sigma > 0, sigma, 1.0)
    # Single precision, relative to the standard errors.
    np.testing.assert_allclose(
        (covariance_from_record(record) - covariance) / np.outer(scale, scale), np.zeros_like(covariance), atol=1e-5
    )
    assert record.covariance is not None
    assert record.covariance.size == space.size
    assert record.covariance.rows_of("loops") == space.groups["loops"]
    place = space.groups["passive_phase_rad"].start
    assert record.pucs[2].passive_phase_sigma_rad == pytest.approx(float(sigma[place + 2]))
    assert space_from_record(record).size == space.size


def test_errors_of_laws_include_their_covariance_with_pair_crosstalk(hidden: SimulatedMesh) -> None:
    """A fit knows the phase between two arms better than the law and the crosstalk between the arms."""
    n_arms = 2 * CELL.n_pucs
    shape = n_arms, n_arms + len(CELL.joints), 3
    rng = np.random.default_rng(8)
    pairs = PairDirections(rng.uniform(1e-4, 2e-3, shape[:2]).T, rng.standard_normal(shape).astype(np.float32))
    ports = tuple(range(CELL.n_ports))
    space = ParameterSpace(CELL, ports, ports, physics=Physics({CROSSTALK_PAIRS: 0.1}, pairs))
    parameters = replace(hidden.parameters(), extra_physics={CROSSTALK_PAIRS: np.zeros(shape[1::-1])})
    # The first combination is known only together with the first term of all laws.
    covariance, group = np.zeros((space.size, space.size)), space.groups[CROSSTALK_PAIRS]
    covariance[group.start, group.start] = 0.1**2
    currents_ma = np.diag(np.full(n_arms, 1.2))
    heating = Heating(CELL, ORIGIN.heater_ohm)

    def between_arms_rad(point: MeshParameters) -> np.ndarray:
        arms = heating.phases(point, currents_ma).arm_rad
        return np.array([arms[heater, heater] - arms[heater, heater ^ 1] for heater in range(n_arms)])

    vector = space.pack(parameters)
    moved = vector + 0.1 * np.eye(space.size)[group.start]
    expected = between_arms_rad(space.unpack(moved)) - between_arms_rad(parameters)
    record = build_record(space, parameters, ORIGIN, covariance)
    stored = covariance_from_record(record)
    law = np.concatenate([np.arange(space.size)[space.groups[name]].reshape(1, -1) for name in LAW_TERMS])
    by_term = np.array([np.full(n_arms, 1.2 ** (2 * power)) for power in (1, 2, 3)])
    variance = np.einsum("ih,ihjh,jh->h", by_term, stored[law[:, :, None, None], law[None, None]], by_term)
    np.testing.assert_allclose(np.sqrt(variance), np.abs(expected), rtol=1e-4)


def test_a_plan_says_what_was_set_by_prior_and_what_cannot_be_seen(
    hidden: SimulatedMesh, space: ParameterSpace
) -> None:
    model = MeshModel(CELL, space.sources, space.monitors)
    currents, source = hidden.random_settings(24)
    noise = NoiseModel(0.005, 8e-7)
    bound = plan_bound(
        model, hidden.parameters(), hidden.measure(currents, source), noise, free=("passive_phase_rad", "loss_db",
        "source_db", "monitor_db")
    )  # fmt: skip
    bound = replace(bound, reachable_rank=bound.rank + 2)
    record = build_record(space, hidden.parameters(), ORIGIN, bound.covariance(), bound)
    assert record.covariance is not None
    assert (record.covariance.rank, record.covariance.n_free) == (bound.rank, bound.n_free)
    assert record.covariance.expected_rank == bound.reachable_rank
    assert record.covariance.unidentifiable == bound.unseen()
    assert bound.unseen()  # the rim corners of docs/calibration.md, 1.3


def test_predictions_use_the_covariance(hidden: SimulatedMesh, space: ParameterSpace) -> None:
    covariance = np.zeros((space.size, space.size))
    for name, sigma in (("passive_phase_rad", 3e-3), ("loss_db", 0.02), ("loops", 2e-3)):
        place = space.groups[name]
        covariance[place, place] = sigma**2 * np.eye(place.stop - place.start)
    record = build_record(space, hidden.parameters(), ORIGIN, covariance)
    known = CalibratedMesh.from_record(record)
    currents = np.full(2 * CELL.n_pucs, 0.7)
    np.testing.assert_allclose(predict_pucs(known, currents).differential_sigma_rad, 3e-3, rtol=1e-5)
    path = predict_path(known, currents, 0, 5)
    # Against draws of the parameters by that covariance, each predicted anew.
    rng, solver = np.random.default_rng(0), Solver(CELL)
    found = hidden.parameters()
    drawn = []
    for _ in range(200):
        vector = space.pack(found)
        vector += np.sqrt(np.diag(covariance)) * rng.standard_normal(space.size)
        cells = CalibratedMesh.from_record(build_record(space, space.unpack(vector), ORIGIN)).cells(currents)
        drawn.append(10 * np.log10(np.abs(solver.solve(cells, cells.reference_hz, [0])[5, 0]) ** 2))
    assert path.sigma_db == pytest.approx(float(np.std(drawn)), rel=0.2)


def test_what_was_not_found_is_none(hidden: SimulatedMesh, space: ParameterSpace) -> None:
    law = hidden.parameters().heater_law.copy()
    law[9] = 0.0
    origin = replace(
        ORIGIN,
        unknown_pucs={3: "stuck: light does not change"},
        launched_dbm={0: 1.5},
        output_loss_db={5: (7.0, 0.1)},
        defects=(Defect("dead heater", "heater", 9),),
        faults=("PUC 4 lower heater (channel 9): no effect",),
    )
    record = build_record(space, replace(hidden.parameters(), heater_law=law), origin)
    assert (record.pucs[3].passive_phase_rad, record.pucs[3].note) == (None, "stuck: light does not change")
    assert record.unusable_states() == ((3, "bar"), (3, "cross"))
    assert record.pucs[4].lower.law is None
    assert record.pucs[4].passive_phase_sigma_rad is None
    assert record.port(0).input_loss_db == pytest.approx(1.5 - hidden.source_db[0])
    assert record.port(1).input_loss_db is None
    assert (record.port(5).output_loss_db, record.port(6).output_loss_db) == (7.0, None)
    with pytest.raises(CalibrationError, match="has no covariance"):
        covariance_from_record(record)


def test_a_record_whose_crosstalk_is_a_matrix_has_no_parameters(hidden: SimulatedMesh, space: ParameterSpace) -> None:
    record = build_record(space, hidden.parameters(), ORIGIN)
    matrix = tuple((0.0,) * 20 for _ in range(10))
    with pytest.raises(CalibrationError, match="is a matrix"):
        parameters_from_record(replace(record, crosstalk=CrosstalkEntry(matrix)))


def test_laws_hold_only_as_far_as_they_rise() -> None:
    # φ = 2·x - 0.25·x² in x = I² rises to x = 4, I = 2 mA.
    assert rising_to_ma(2.0, -0.25, 0.0, 3.0) == pytest.approx(2.0, abs=0.02)
    assert rising_to_ma(2.0, 0.05, 0.0, 3.0) == 3.0


def test_joints_of_a_packed_point_have_the_same_loops(hidden: SimulatedMesh, space: ParameterSpace) -> None:
    found = hidden.parameters()
    record = build_record(space, space.unpack(space.pack(found)), ORIGIN)
    assert record.joints is not None
    assert loop_rms_rad(CELL, np.array(record.joints.phase_rad) - found.joint_phase_rad) < 1e-9


# Raw readings --------------------------------------------------------------------------------------------------------


def test_raw_readings_lie_beside_the_record(hidden: SimulatedMesh, tmp_path: Path) -> None:
    currents, source = hidden.random_settings(6)
    taken = hidden.measure(currents, source)
    taken.reading_ma[0, 0] = np.nan
    raw = save_raw(tmp_path / "record.json", taken)
    assert raw.name == "record.raw.h5"
    back = load_raw(tmp_path / "record.json", raw)
    np.testing.assert_array_equal(back.reading_ma, taken.reading_ma)
    np.testing.assert_array_equal(back.currents_ma, taken.currents_ma)
    assert back.monitors == taken.monitors


def test_other_raw_readings_are_refused(hidden: SimulatedMesh, tmp_path: Path) -> None:
    currents, source = hidden.random_settings(6)
    raw = save_raw(tmp_path / "record.json", hidden.measure(currents, source))
    save_raw(tmp_path / "record.json", hidden.measure(currents, source))
    with pytest.raises(CalibrationError, match=r"does not contain the raw data of record\.json"):
        load_raw(tmp_path / "record.json", raw)
