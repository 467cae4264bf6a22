"""Raw readings held against a record: which of them are sweeps, and how far off they are in units of noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibration.model.observations import Observations
from calibration.model.parameters import MeshParameters
from calibration.model.space import ParameterSpace
from calibration.record.conversion import Origin, build_record
from calibration.report.readings import Readings, Sweep, find_sweeps
from lumion_hw.errors import CalibrationError
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.record.calibration_record import CalibrationRecord, Defect
from tests.calibration.simulated_mesh import FLOOR_MA, RELATIVE, SimulatedMesh

MESH = HexMesh.columns([2])
LEVELS = np.linspace(0.0, 3.4, 8)  # mA²


def hidden_and_record(seed: int = 3) -> tuple[SimulatedMesh, CalibrationRecord]:
    """Return a hidden mesh, and the record of somebody who knows it."""
    hidden = SimulatedMesh.draw(MESH, seed)
    return hidden, record_of(hidden.parameters())


def record_of(parameters: MeshParameters, **changes: object) -> CalibrationRecord:
    origin = Origin(
        serial="S",
        model="M",
        firmware="1",
        heater_channels=tuple(range(30)),
        wavelength_nm=1550.0,
        heater_max_ma=2.5,
        quality={"monitor_noise_relative": RELATIVE, "monitor_noise_floor_ma": FLOOR_MA},
    )
    known = replace(origin, **changes)  # type: ignore[arg-type]
    return build_record(ParameterSpace(MESH, MESH.fibre_ports, MESH.fibre_ports), parameters, known)


def swept_then_random(hidden: SimulatedMesh, heaters: tuple[int, ...] = (0, 7, 12)) -> Observations:
    """Sweep some heaters one after the other, as the procedure does, then take forty random settings."""
    level = np.full(30, 2)
    currents = [np.sqrt(LEVELS[level])]
    for heater in heaters:
        for _ in range(len(LEVELS) - 1):
            level[heater] = (level[heater] + 1) % len(LEVELS)
            currents.append(np.sqrt(LEVELS[level]))
    chosen, source = hidden.random_settings(40)
    sources = np.concatenate([np.zeros(len(currents), dtype=np.int64), source])
    return hidden.measure(np.concatenate([np.array(currents), chosen]), sources)


def test_sweeps_are_found_with_the_reading_they_share() -> None:
    hidden, _ = hidden_and_record()
    # Eight levels each; the last reading of one heater is the first of the next.
    assert find_sweeps(swept_then_random(hidden)) == (
        Sweep(0, tuple(range(8))),
        Sweep(7, tuple(range(7, 15))),
        Sweep(12, tuple(range(14, 22))),
    )


def test_a_sweep_ends_where_the_light_moves() -> None:
    hidden, _ = hidden_and_record()
    taken = swept_then_random(hidden, (0,))
    moved = replace(taken, source=np.where(np.arange(len(taken)) < 2, 1, taken.source))
    assert find_sweeps(moved) == (Sweep(0, tuple(range(2, 8))),)


def test_a_sweep_ends_where_the_wavelength_changes() -> None:
    hidden, _ = hidden_and_record()
    taken = swept_then_random(hidden, (0,))
    detuning_hz = np.where(np.arange(len(taken)) < 3, 1e9, 0.0)
    assert find_sweeps(replace(taken, detuning_hz=detuning_hz)) == (Sweep(0, tuple(range(3, 8))),)


def test_settings_read_again_and_random_ones_are_no_sweeps() -> None:
    hidden, _ = hidden_and_record()
    currents, source = hidden.random_settings(12)
    assert find_sweeps(hidden.measure(currents, source)) == ()
    assert find_sweeps(hidden.measure(np.zeros((12, 30)), np.zeros(12, dtype=np.int64))) == ()
    assert find_sweeps(hidden.measure(np.zeros((1, 30)), np.zeros(1, dtype=np.int64))) == ()


def test_a_record_that_knows_the_mesh_leaves_noise() -> None:
    hidden, record = hidden_and_record()
    found = Readings(record, swept_then_random(hidden)).statistics()
    # 16 monitors; rms of N normal numbers is 1 ± 1/√(2N): ± 3 % for 640, ± 4 % for 352; laws are fitted, not exact.
    assert found["random and reference settings"]["readings"] == 40 * 16
    assert found["random and reference settings"]["rms_sigma"] == pytest.approx(1.0, abs=0.12)
    assert found["sweeps"]["readings"] == 22 * 16
    assert found["sweeps"]["rms_sigma"] == pytest.approx(1.0, abs=0.16)


def test_a_wrong_phase_shows_in_the_residuals() -> None:
    hidden, _ = hidden_and_record()
    true = hidden.parameters()
    off = record_of(replace(true, passive_phase_rad=true.passive_phase_rad + 0.05 * (np.arange(15) == 4)))
    assert Readings(off, swept_then_random(hidden)).statistics()["random and reference settings"]["rms_sigma"] > 2.0


def test_a_fringe_lies_on_its_prediction() -> None:
    hidden, record = hidden_and_record()
    readings = Readings(record, swept_then_random(hidden))
    fringe = readings.fringe(readings.sweeps[1])
    assert (fringe.heater, fringe.source) == (7, 0)
    np.testing.assert_allclose(fringe.current_ma**2, LEVELS, atol=1e-12)
    predicted = np.interp(fringe.current_ma**2, fringe.dense_ma**2, fringe.predicted_ma)
    np.testing.assert_allclose(fringe.reading_ma, predicted, rtol=4 * RELATIVE, atol=4 * FLOOR_MA)
    assert fringe.rms_sigma < 1.6
    taken = readings.observations.reading_ma[7:15]
    swing = taken.std(axis=0) / np.hypot(RELATIVE * taken.mean(axis=0), FLOOR_MA)
    assert fringe.monitor == MESH.fibre_ports[int(swing.argmax())]  # where it is seen best


def test_the_sweeps_shown_go_from_the_worst_to_the_best() -> None:
    hidden, record = hidden_and_record()
    readings = Readings(record, swept_then_random(hidden, tuple(range(12))))
    chosen = readings.ranked_sweeps()
    names = ["worst", "second worst", "upper quarter", "median", "lower quarter", "best"]
    assert [rank for rank, _ in chosen] == names
    rms = [readings.fringe(sweep).rms_sigma for _, sweep in chosen]
    assert rms == sorted(rms, reverse=True)
    assert len(Readings(record, swept_then_random(hidden, (3,))).ranked_sweeps()) == 1


def test_saturated_and_dark_readings_say_nothing() -> None:
    hidden, record = hidden_and_record()
    taken = swept_then_random(hidden)
    saturated = np.zeros(taken.reading_ma.shape, dtype=np.bool_)
    saturated[30, 2] = True
    reading = np.where(saturated, np.nan, taken.reading_ma)
    source = np.where(np.arange(len(taken)) == 40, -1, taken.source)
    readings = Readings(record, replace(taken, saturated=saturated, reading_ma=reading, source=source))
    assert len(readings.observations) == len(taken) - 1
    assert np.isnan(readings.residual_sigma[30, 2])
    assert np.isfinite(readings.residual_sigma).sum() == readings.observations.reading_ma.size - 1


def test_readings_of_another_mesh_are_refused() -> None:
    _, record = hidden_and_record()
    cell = HexMesh.columns([1])
    other = SimulatedMesh.draw(cell, 1)
    with pytest.raises(CalibrationError, match="do not match the mesh"):
        Readings(record, other.measure(*other.random_settings(3)))


def with_stuck_pucs(hidden: SimulatedMesh, *pucs: int) -> tuple[Observations, MeshParameters]:
    """Return readings with the heaters of some PUCs off for good, and what a fit finds: no laws for them."""
    dead = [2 * puc + arm for puc in pucs for arm in (0, 1)]
    currents, source = hidden.random_settings(60)
    currents[:, dead] = 0.0
    true = hidden.parameters()
    law = true.heater_law.copy()
    law[dead] = 0.0
    return hidden.measure(currents, source), replace(true, heater_law=law)


def test_a_stuck_puc_is_taken_at_the_coupling_it_is_stuck_at() -> None:
    hidden, _ = hidden_and_record()
    taken, found = with_stuck_pucs(hidden, 7, 3)
    defects = []
    for puc in (7, 3):
        # The cross line of docs/calibration.md, 2; phases of both signs have the same coupling.
        sum_, difference = np.pi / 2 + 2 * found.coupler_common_rad[puc], found.coupler_difference_rad[puc]
        half = found.passive_phase_rad[puc] / 2
        coupling = np.sin(sum_) ** 2 * np.cos(half) ** 2 + np.sin(difference) ** 2 * np.sin(half) ** 2
        defects.append(Defect("stuck PUC", "puc", puc, "", (), float(coupling)))
    record = record_of(found, unknown_pucs={7: "stuck", 3: "stuck"}, defects=tuple(defects))
    statistics = Readings(record, taken).statistics()["random and reference settings"]
    assert statistics["typical_sigma"] < 2.0  # crosstalk on the stuck PUCs is some mrad


def test_without_the_phase_of_a_puc_nothing_is_predicted() -> None:
    hidden, _ = hidden_and_record()
    taken, found = with_stuck_pucs(hidden, 7)
    with pytest.raises(CalibrationError, match="the record has no phase of PUC 7"):
        Readings(record_of(found, unknown_pucs={7: "stuck"}), taken)
    unknown = dict.fromkeys(range(15), "not reached")
    with pytest.raises(CalibrationError, match="the record has no phase of 15 PUCs"):
        Readings(record_of(found, unknown_pucs=unknown, complete=False), taken)
