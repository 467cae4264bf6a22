from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from calibration.run.verification import (
    MIN_DBM,
    TOLERANCE_DB,
    HeldOut,
    Verification,
    out_of_tolerance,
    verify,
)
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.record.calibration_record import CalibrationRecord, HeaterEntry, JointsEntry, PortEntry, PucEntry
from lumion_hw.mesh.waves.heater import HeaterLaw
from tests.calibration.model.solver_probe import LAW, SolverProbe

MESH = HexMesh.columns([2])
OTHER_PUCS = [puc for puc in range(MESH.n_pucs) if puc not in (0, 7)]
SOURCES = (1, 6, 11)


def paper_probe() -> SolverProbe:
    probe = SolverProbe(MESH, SOURCES, noise_relative=0.005, noise_floor_ma=3e-5)
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
        joints=JointsEntry(tuple(probe.joint_rad.tolist())),
        quality={"monitor_noise_relative": 0.005, "monitor_noise_floor_ma": 3e-5},
    )


def with_puc(record: CalibrationRecord, puc: int, **changes: object) -> CalibrationRecord:
    pucs = list(record.pucs)
    pucs[puc] = dataclasses.replace(pucs[puc], **changes)  # type: ignore[arg-type]
    return dataclasses.replace(record, pucs=tuple(pucs))


def with_port(record: CalibrationRecord, port: int, **changes: object) -> CalibrationRecord:
    ports = [dataclasses.replace(p, **changes) if p.port == port else p for p in record.ports]  # type: ignore[arg-type]
    return dataclasses.replace(record, ports=tuple(ports))


def worst(found: Verification) -> HeldOut:
    return max(found.results, key=lambda result: abs(result.error_db))


def test_a_few_readings_may_scatter_more_than_many() -> None:
    few, many = (tuple(HeldOut(n, "hot", 1, 2, -20.0, 0.5, 0.01, 1.5) for n in range(count)) for count in (6, 200))
    assert not Verification(few).is_wrong
    assert Verification(many).is_wrong


# A true record -------------------------------------------------------------------------------------------------------


def test_a_true_record_predicts_light_within_the_noise() -> None:
    probe = paper_probe()
    found = verify(probe, true_record(probe), seed=0)
    assert found.settings == 40
    assert len(found.results) > 150
    assert 0.4 < found.chi2 < 1.2  # at bright ports half of what is allowed for is drifting light, and there is none
    assert found.rms_db == pytest.approx(found.noise_db, rel=0.25)
    assert found.excess_db < 0.05
    assert found.suspects == ()
    bright = [result.error_db for result in found.results if result.predicted_dbm > -20.0]
    assert np.std(bright) == pytest.approx(10 * math.log10(1.005), rel=0.4)  # half a percent


def test_half_of_the_settings_are_random_and_half_are_states() -> None:
    probe, told = paper_probe(), []
    found = verify(probe, true_record(probe), 0, lambda step, total: told.append((step, total)), settings=30)
    assert told == [(10, 30), (20, 30), (30, 30)]
    assert (found.of("random").settings, found.of("states").settings) == (15, 15)
    counts = [len({result.setting for result in found.results if result.source == port}) for port in SOURCES]
    assert counts == [10, 10, 10]
    figures = found.figures()
    assert figures["held_out_settings"] == 30.0
    assert figures["held_out_random_rms_db"] == found.of("random").rms_db
    assert figures["held_out_states_rms_db"] == found.of("states").rms_db


def test_the_same_seed_looks_at_the_same_settings() -> None:
    first, again, other = (verify(paper_probe(), true_record(paper_probe()), seed) for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_only_lit_ports_are_judged() -> None:
    """Above -40 dBm in the mesh, and 10 dB above the floor: 3e-5 mA at 1 mA/mW is -45.2 dBm."""
    probe = paper_probe()
    found = verify(probe, true_record(probe), 0)
    brighter = [max(result.predicted_dbm, result.predicted_dbm + result.error_db) for result in found.results]
    assert min(brighter) > -35.3
    record = dataclasses.replace(true_record(probe), quality={"monitor_noise_floor_ma": 1e-6})
    probe.monitor_step_ma, probe.noise = 1e-7, (0.005, 1e-6)
    found = verify(probe, record, 0)
    brighter = [max(result.predicted_dbm, result.predicted_dbm + result.error_db) for result in found.results]
    assert MIN_DBM < min(brighter) < -37.0
    assert found.rms_db < 0.1


def test_each_source_is_predicted_at_its_own_frequency() -> None:
    """A source 0.05 nm off adds 2π · 6.25 GHz · 11.25 ps = 0.44 rad to every PUC."""
    probe = paper_probe()
    record = true_record(probe)
    assert verify(probe, with_port(record, 6, source_detuning_hz=6.25e9), 0).rms_db > 0.5
    own = probe.passive_rad, probe.joint_rad

    class Detuned(SolverProbe):
        def light_only_port(self, port: int | None) -> None:
            super().light_only_port(port)
            turned = 2 * np.pi * 6.25e9 * 11.25e-12 if port == 6 else 0.0
            self.joint_rad = own[1] + turned  # a phase of every PUC is one of every joint between two

    detuned = Detuned(MESH, SOURCES, noise_relative=0.005, noise_floor_ma=3e-5)
    detuned.monitor_step_ma = 7.6e-5
    detuned.input_db[list(SOURCES)] = (6.0, 7.1, 8.0)
    assert verify(detuned, with_port(record, 6, source_detuning_hz=6.25e9), 0).excess_db < 0.05
    assert verify(detuned, record, 0).rms_db > 0.5


# A tampered record ---------------------------------------------------------------------------------------------------


def test_an_input_loss_off_by_one_db_shows_on_its_source_alone() -> None:
    probe = paper_probe()
    found = verify(probe, with_port(true_record(probe), 6, input_loss_db=8.1), 0)
    for result in found.results:
        if result.predicted_dbm > -30.0:
            assert result.error_db == pytest.approx(1.0 if result.source == 6 else 0.0, abs=0.3)


def test_a_loss_off_by_two_db_is_out_of_tolerance_and_its_puc_is_a_suspect() -> None:
    probe = paper_probe()
    found = verify(probe, with_puc(true_record(probe), 4, loss_db=2.5), 0)
    assert found.excess_db > 5 * TOLERANCE_DB
    assert 4 in found.suspects


@pytest.mark.parametrize("turn_rad", [0.1, 0.5, 1.5])
@pytest.mark.parametrize("puc", [0, 7, *(pytest.param(puc, marks=pytest.mark.long) for puc in OTHER_PUCS)])
def test_a_wrong_passive_phase_is_out_of_tolerance_and_its_puc_a_suspect(puc: int, turn_rad: float) -> None:
    probe = paper_probe()
    wrong = with_puc(true_record(probe), puc, passive_phase_rad=float(probe.passive_rad[puc]) + turn_rad)
    found = verify(probe, wrong, 0)
    assert found.excess_db > TOLERANCE_DB
    assert puc in found.suspects
    assert turn_rad > 0.2 or found.suspects[0] == puc


@pytest.mark.parametrize("puc", [0, 7, *(pytest.param(puc, marks=pytest.mark.long) for puc in OTHER_PUCS)])
def test_a_puc_recorded_as_its_opposite_counts_as_the_worst_not_as_unseen(puc: int) -> None:
    # Light then leaves elsewhere, and the monitor where it was expected stays dark. No PUC escapes.
    probe = paper_probe()
    wrong = with_puc(true_record(probe), puc, passive_phase_rad=float(probe.passive_rad[puc]) + math.pi)
    found = verify(probe, wrong, 0)
    assert found.rms_db > 3.0
    # 0 dBm less 6 to 8 dB at the input and some 4 dB in the mesh, against 10 dB above the floor, -35.2 dBm.
    errors = found.of("states").errors_db
    assert errors.min() < -10.0
    assert errors.max() > 10.0


def test_every_puc_of_a_large_mesh_is_passed() -> None:
    mesh = HexMesh.smartlight()
    probe = SolverProbe(mesh, (12, 20, 5, 37, 2, 1, 7, 35))
    probe.monitor_step_ma = 7.6e-5
    record = dataclasses.replace(true_record(probe), joints=None)  # states only
    passed: set[int] = set()
    found = verify(probe, record, 1)
    for index, currents in enumerate(probe.settings):
        heat = np.array([LAW.phase_rad(current) for current in currents])
        bar = np.cos(heat[0::2] - heat[1::2] + probe.passive_rad) < 0.0
        source = next(result.source for result in found.results if result.setting == index)
        passed |= set(mesh.trace(source, {puc: "bar" if bar[puc] else "cross" for puc in range(mesh.n_pucs)}).pucs)
    assert passed == set(range(mesh.n_pucs))


def test_a_dead_source_is_out_of_tolerance() -> None:
    probe = paper_probe()
    record = true_record(probe)
    probe.input_db[1] = 90.0
    found = verify(probe, record, 0)
    assert found.rms_db > 5.0
    assert worst(found).source == 1


# What cannot be judged -----------------------------------------------------------------------------------------------


def test_a_record_without_loops_is_judged_by_the_paths_of_pure_states() -> None:
    probe = paper_probe()
    found = verify(probe, dataclasses.replace(true_record(probe), joints=None), 0)
    assert {result.kind for result in found.results} == {"states"}
    assert len(found.results) >= 39
    assert found.excess_db < 0.05


def test_light_that_depends_on_an_unknown_phase_is_left_out() -> None:
    probe = paper_probe()
    found = verify(probe, with_puc(true_record(probe), 4, passive_phase_rad=None), 0)
    assert 15 < len(found.results) < len(verify(paper_probe(), true_record(probe), 0).results)
    assert found.excess_db < 0.06


def test_monitors_and_sources_of_unknown_level_are_left_out() -> None:
    probe = paper_probe()
    record = with_port(with_port(true_record(probe), 8, monitor_ma_per_mw=None), 11, input_loss_db=None)
    found = verify(probe, record, 0)
    assert len(found.results) > 100
    assert all(result.port != 8 and result.source != 11 for result in found.results)


def test_a_saturated_monitor_is_left_out() -> None:
    class Saturated(SolverProbe):
        def measure(self, currents_ma: NDArray[np.float64]) -> NDArray[np.float64]:
            readings = super().measure(currents_ma)
            return np.where(readings > 0.05, np.nan, readings)

    probe = Saturated(MESH, SOURCES)
    found = verify(probe, true_record(probe), 0)
    assert len(found.results) > 100
    assert max(result.predicted_dbm for result in found.results) < 10 * math.log10(0.05) + 0.1


def test_light_below_the_floor_proves_nothing() -> None:
    probe = paper_probe()
    probe.input_db[list(SOURCES)] = 60.0
    found = verify(probe, true_record(probe), 0)
    assert found == Verification(())
    assert found.figures() == {"held_out_readings": 0.0, "held_out_settings": 0.0}


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
    verify(probe, record, 0)
    assert 20 <= len(probe.settings) < 40


def test_without_light_there_is_no_figure() -> None:
    with pytest.raises(ValueError, match="no reading was bright enough to be compared"):
        _ = Verification(()).rms_db


def test_the_figures_are_root_mean_squares() -> None:
    """3-4-5: of 5 dB rms, 4 dB of noise leave 3 dB."""
    results = (HeldOut(0, "states", 1, 2, -20.0, 7.0, 4.0, 1.0), HeldOut(1, "random", 1, 2, -20.0, -1.0, 4.0, 1.0))
    found = Verification(results)
    assert found.rms_db == pytest.approx(5.0)
    assert found.excess_db == pytest.approx(3.0)
    assert found.of("states").rms_db == pytest.approx(7.0)
    assert found.figures()["held_out_median_db"] == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("error_db", "sigma", "wrong"),
    [(0.5, 1.2, False), (0.5, 1.3, True), (0.05, 3.0, False)],
    ids=["as the record says of itself", "more than it says", "within tolerance"],
)
def test_light_is_wrong_where_it_is_off_by_more_than_the_record_says_of_itself(
    error_db: float, sigma: float, wrong: bool
) -> None:
    results = tuple(HeldOut(setting, "states", 1, 2, -20.0, error_db, 0.01, sigma) for setting in range(200))
    assert Verification(results).is_wrong == wrong
    assert not Verification(()).is_wrong


# Tolerance asked for -------------------------------------------------------------------------------------------------


def test_a_record_misses_only_a_tolerance_that_was_asked_for() -> None:
    record = true_record(paper_probe())
    assert out_of_tolerance(record, None) == ()
    assert out_of_tolerance(record, 0.1) == ("out of tolerance: no setting could be verified, the tolerance is 0.1 dB",)
    verified = dataclasses.replace(record, quality={"held_out_excess_db": 0.15})
    assert out_of_tolerance(verified, 0.2) == ()
    assert out_of_tolerance(verified, 0.1) == (
        "out of tolerance: the held-out error is 0.150 dB above noise, the tolerance is 0.1 dB",
    )
