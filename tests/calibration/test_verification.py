from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from solver_probe import LAW, SolverProbe

from calibration.verification import TOLERANCE_RMS_DB, HeldOut, rms_db, verify
from lumion_hw.mesh.heater import HeaterLaw
from lumion_hw.mesh.record import CalibrationRecord, HeaterEntry, PortEntry, PucEntry
from lumion_hw.mesh.topology import HexMesh

MESH = HexMesh.columns([2])
SOURCES = (1, 6, 11)


def paper_probe() -> SolverProbe:
    probe = SolverProbe(MESH, SOURCES, noise_relative=0.005, noise_floor_ma=2e-5)
    probe.monitor_step_ma = 7.6e-5  # 5 mA over 16 bit
    probe.input_db[list(SOURCES)] = (6.0, 7.1, 8.0)
    return probe


def true_record(probe: SolverProbe) -> CalibrationRecord:
    """Return the record that knows everything about a probe."""
    laws: list[HeaterLaw | None] = [LAW if alive else None for alive in probe.alive]
    return CalibrationRecord(
        device_serial="PAPER-1",
        device_model="paper",
        device_firmware="0",
        mesh_label=probe.mesh.label,
        mesh_sha256=probe.mesh.sha256,
        heater_channels=tuple(range(2 * probe.mesh.n_pucs)),
        monitor_ports=probe.monitors,
        wavelength_nm=1550.0,
        created_utc="2025-06-01T12:00:00+00:00",
        complete=True,
        heater_ohm=1000.0,
        pucs=tuple(
            PucEntry(
                float(probe.passive_rad[puc]),
                0.01,
                float(probe.loss_db[puc]),
                0.03,
                HeaterEntry(2 * puc, laws[2 * puc], 1.0),
                HeaterEntry(2 * puc + 1, laws[2 * puc + 1], 1.0),
            )
            for puc in range(probe.mesh.n_pucs)
        ),
        ports=tuple(
            PortEntry(port, float(probe.input_db[port]) if port in probe.sources else None, 0.05, None, None, 1.0)
            for port in range(probe.mesh.n_ports)
        ),
    )


def with_puc(record: CalibrationRecord, puc: int, **changes: object) -> CalibrationRecord:
    pucs = list(record.pucs)
    pucs[puc] = dataclasses.replace(pucs[puc], **changes)  # type: ignore[arg-type]
    return dataclasses.replace(record, pucs=tuple(pucs))


def with_port(record: CalibrationRecord, port: int, **changes: object) -> CalibrationRecord:
    ports = [dataclasses.replace(p, **changes) if p.port == port else p for p in record.ports]  # type: ignore[arg-type]
    return dataclasses.replace(record, ports=tuple(ports))


def errors_db(results: list[HeldOut]) -> NDArray[np.float64]:
    return np.array([result.error_db for result in results])


# A true record -------------------------------------------------------------------------------------------------------


def test_a_true_record_predicts_light_within_the_noise() -> None:
    probe = paper_probe()
    results = verify(probe, true_record(probe), seed=0)
    assert len(results) == 40
    assert rms_db(results) == pytest.approx(10 * math.log10(1.005), rel=0.4)  # half a percent
    for result in results:
        assert result.source in SOURCES
        assert result.hops > 0


def test_every_source_takes_its_share_and_every_step_is_told() -> None:
    probe, told = paper_probe(), []
    results = verify(probe, true_record(probe), 0, lambda step, total: told.append((step, total)), settings=30)
    assert told == [(step, 30) for step in range(1, 31)]
    counts = [sum(result.source == port for result in results) for port in SOURCES]
    assert min(counts) >= 9


def test_the_same_seed_looks_at_the_same_paths() -> None:
    first, again, other = (verify(paper_probe(), true_record(paper_probe()), seed) for seed in (3, 3, 4))
    assert first == again
    assert [result.port for result in first] != [result.port for result in other]


# A tampered record ---------------------------------------------------------------------------------------------------


def test_a_loss_off_by_two_db_shows_on_the_paths_that_pass_it() -> None:
    probe = paper_probe()
    results = verify(probe, with_puc(true_record(probe), 4, loss_db=2.5), 0)
    errors = errors_db(results)
    # The prediction is 2 dB too low for each time PUC 4 is passed, and right elsewhere.
    np.testing.assert_allclose(errors, 2 * np.round(errors / 2), atol=0.1)
    assert (np.round(errors / 2) >= 1).sum() > 5
    assert rms_db(results) > TOLERANCE_RMS_DB


def test_an_input_loss_off_by_one_db_shows_on_its_source_alone() -> None:
    probe = paper_probe()
    results = verify(probe, with_port(true_record(probe), 6, input_loss_db=8.1), 0)
    for result in results:
        assert result.error_db == pytest.approx(1.0 if result.source == 6 else 0.0, abs=0.1)


@pytest.mark.parametrize("puc", [4, 9])
def test_a_passive_phase_off_by_a_radian_and_a_half_is_out_of_tolerance(puc: int) -> None:
    probe = paper_probe()
    record = true_record(probe)
    wrong = with_puc(record, puc, passive_phase_rad=float(probe.passive_rad[puc]) + 1.5)
    results = verify(probe, wrong, 0)
    assert rms_db(results) > TOLERANCE_RMS_DB
    # One pass costs 10·log10(cos²(0.75)) = -2.71 dB, and there are paths that pass by it.
    assert np.isclose(errors_db(results), -2.71, atol=0.1).any()
    assert np.isclose(errors_db(results), 0.0, atol=0.1).any()


@pytest.mark.parametrize("puc", range(MESH.n_pucs))
def test_a_puc_recorded_as_its_opposite_counts_as_the_worst_not_as_unseen(puc: int) -> None:
    # Light then leaves elsewhere, and the monitor where it was expected stays dark. No PUC escapes.
    probe = paper_probe()
    record = true_record(probe)
    wrong = with_puc(record, puc, passive_phase_rad=float(probe.passive_rad[puc]) + math.pi)
    results = verify(probe, wrong, 0)
    assert len(results) == 40
    assert rms_db(results) > 5.0
    # 0 dBm less 6 to 8 dB at the input and some 4 dB in the mesh, against ten steps of the monitor, -31.2 dBm.
    assert errors_db(results).min() < -10.0


def test_every_puc_of_a_large_mesh_is_passed() -> None:
    mesh = HexMesh.smartlight()
    probe = SolverProbe(mesh, (12, 20, 5, 37, 2, 1, 7, 35))
    probe.monitor_step_ma = 7.6e-5
    passed: set[int] = set()
    for result, currents in zip(verify(probe, true_record(probe), 1), probe.settings, strict=True):
        heat = np.array([LAW.phase_rad(current) for current in currents])
        bar = np.cos(heat[0::2] - heat[1::2] + probe.passive_rad) < 0.0
        trace = mesh.trace(result.source, {puc: "bar" if bar[puc] else "cross" for puc in range(mesh.n_pucs)})
        assert (trace.port, len(trace.pucs)) == (result.port, result.hops)
        passed |= set(trace.pucs)
    assert passed == set(range(mesh.n_pucs))


def test_a_dead_source_is_out_of_tolerance() -> None:
    probe = paper_probe()
    record = true_record(probe)
    probe.input_db[1] = 90.0
    assert rms_db(verify(probe, record, 0)) > 5.0


# What cannot be judged -----------------------------------------------------------------------------------------------


def test_paths_through_uncalibrated_pucs_are_left_out() -> None:
    probe = paper_probe()
    results = verify(probe, with_puc(true_record(probe), 4, passive_phase_rad=None), 0)
    assert len(results) > 20
    assert rms_db(results) < 0.1


def test_monitors_and_sources_of_unknown_level_are_left_out() -> None:
    probe = paper_probe()
    record = with_port(with_port(true_record(probe), 8, monitor_ma_per_mw=None), 11, input_loss_db=None)
    results = verify(probe, record, 0)
    assert len(results) > 10
    assert all(result.port != 8 and result.source != 11 for result in results)


def test_a_saturated_monitor_is_left_out() -> None:
    class Saturated(SolverProbe):
        def measure(self, currents_ma: NDArray[np.float64]) -> NDArray[np.float64]:
            readings = super().measure(currents_ma)
            return np.where(readings > 0.5, np.nan, readings)

    probe = Saturated(MESH, SOURCES)
    assert 0 < len(verify(probe, true_record(probe), 0)) < 40


def test_light_predicted_below_the_floor_proves_nothing() -> None:
    probe = paper_probe()
    probe.input_db[list(SOURCES)] = 60.0
    assert verify(probe, true_record(probe), 0) == []


def test_a_state_that_a_weak_heater_cannot_reach_is_left_out() -> None:
    probe = paper_probe()
    record = true_record(probe)
    weak = HeaterLaw(0.05, 0.0, 2.5)  # reaches 0.3 rad
    entry = record.pucs[4]
    record = with_puc(
        record,
        4,
        upper=dataclasses.replace(entry.upper, law=weak),
        lower=dataclasses.replace(entry.lower, law=weak),
    )
    results = verify(probe, record, 0)
    assert len(results) < 40


def test_without_paths_there_is_no_figure() -> None:
    with pytest.raises(ValueError, match="no path could be judged"):
        rms_db([])


def test_the_figure_is_the_root_mean_square() -> None:
    assert rms_db([HeldOut(1, 2, 3, 3.0), HeldOut(1, 2, 3, -4.0)]) == pytest.approx(math.sqrt(12.5))
