"""Circuits of modules with four wavelengths in one fibre, each with the loss of the mesh at its own wavelength."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lumion_hw import Bench
from lumion_hw.circuits import CircuitRequest, PathSetup, PlannedCircuit
from lumion_hw.circuits.plan.explanation import explain
from lumion_hw.circuits.plan.refusal import BudgetError
from lumion_hw.emulator.optics.light import Light
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.mesh.record.entries import Dispersion
from tests.circuits.known_mesh import path_setup, record_of_truth

EXAMPLE = Path(__file__).parents[2] / "examples" / "dr4_breakout.yaml"
WIRING = """wiring:
  inputs: [{transponder: dr4-a, port: 0, polarization: pol1}]
  outputs: [{port: 4, transponder: dr4-b}]
"""
LAN_WDM_NM, CWDM_NM = (1295.56, 1300.05, 1304.58, 1309.14), (1271.0, 1291.0, 1311.0, 1331.0)
MODULES = {
    "kind: qsfp-8636, profile: 100g-lr4": (LAN_WDM_NM, 1302.35),
    "kind: qsfp-8636, profile: 100g-cwdm4": (CWDM_NM, 1301.0),
    "kind: cmis, profile: 400g-fr4": (CWDM_NM, 1301.0),
}
LR4 = next(iter(MODULES))
REQUEST = CircuitRequest("dr4-a", "dr4-b")
C_NM_HZ = 299_792_458e9


def emulated(directory: Path, module: str) -> Bench:
    devices = (
        EXAMPLE.read_text(encoding="utf-8").partition("wiring:")[0].replace("kind: cmis, profile: 400g-dr4", module)
    )
    bench_file = directory / "bench.yaml"
    bench_file.write_text(devices + WIRING, encoding="utf-8")
    return Bench.emulate(bench_file, seed=1)


def dispersive_record(bench: Bench, middle_nm: float, range_nm: tuple[float, float]) -> CalibrationRecord:
    """Return the truth with the chip's slopes: 15 mrad of phase and 7e-4 of splitting per nm (docs/sources.md)."""
    record, hertz_per_nm = record_of_truth(bench), -C_NM_HZ / middle_nm**2
    # η = sin² a of a balanced coupler changes by as much as its angle a.
    dispersion = Dispersion(11.25e-12, 15e-3 / hertz_per_nm, 7e-4 / hertz_per_nm)
    conditions = replace(record.conditions, wavelength_range_nm=range_nm)
    return replace(record, wavelength_nm=middle_nm, dispersion=dispersion, conditions=conditions)


def true_losses_db(bench: Bench, circuit: PlannedCircuit, lanes_nm: tuple[float, ...]) -> list[float]:
    """Return the loss from fibre to fibre at each wavelength, from the fields of the emulated chip."""
    world, source, target = bench.emulated.world, circuit.path.source, circuit.path.target
    access_db = world.truth.access_loss_db[source] + world.truth.access_loss_db[target]
    fields = [world.true_fields(source, C_NM_HZ / nm)[target] for nm in lanes_nm]
    return [float(access_db - 20.0 * np.log10(abs(field))) for field in fields]


@pytest.mark.parametrize("module", MODULES)
def test_each_lane_is_planned_and_proven_at_its_own_wavelength(tmp_path: Path, module: str) -> None:
    lanes_nm, middle_nm = MODULES[module]
    with emulated(tmp_path, module) as bench:
        record = dispersive_record(bench, middle_nm, (lanes_nm[0] - 1.0, lanes_nm[-1] + 1.0))
        setup = path_setup(bench, record)
        (proof,) = setup.connect([REQUEST])
        assert proof.proven, proof.failures
        budget = proof.circuit.budget
        assert [lane.wavelength_nm for lane in budget.lanes] == list(lanes_nm)
        assert all(lane.is_calibrated for lane in budget.lanes)
        losses_db = np.array(true_losses_db(bench, proof.circuit, lanes_nm))
        assert len({round(loss_db, 2 if lanes_nm == CWDM_NM else 4) for loss_db in losses_db}) == 4
        predicted_db = np.array([lane.mesh_loss_db for lane in budget.lanes])
        # The record's input loss contains the error of the launched power; differences between lanes do not. The slopes
        # of the record are only linear.
        between_db = losses_db - losses_db[0]
        assert predicted_db - predicted_db[0] == pytest.approx(between_db, abs=0.2 * np.ptp(losses_db))
        mean_db = -10.0 * np.log10(np.mean(10.0 ** (-predicted_db / 10.0)))
        assert budget.mesh_loss_db == pytest.approx(mean_db)
        assert [lane.lane for lane in proof.lanes] == [1, 2, 3, 4]
        for lane, loss_db in zip(proof.lanes, losses_db, strict=True):
            assert lane.measured_loss_db == pytest.approx(loss_db, abs=2.5)  # two monitors with errors up to 1 dB
        assert f"lane 1, {lanes_nm[0]:.2f} nm: loss " in str(proof.lanes[0])
        assert proof.findings == ()
        assert setup.active is not None
        text = explain(setup.active)
        assert all(f"mesh for lane {number}, {nm:.2f} nm" in text for number, nm in enumerate(lanes_nm, 1))
        assert "not valid" not in text


def test_lanes_outside_the_range_of_the_record_are_named(tmp_path: Path) -> None:
    with emulated(tmp_path, LR4) as bench:
        record = dispersive_record(bench, 1302.35, (1299.0, 1306.0))
        with pytest.warns(match=r"lanes of dr4-a are at 1295.56, 1309.14 nm; .* valid only from 1299 to 1306 nm"):
            setup = path_setup(bench, record)
        plan = setup.plan([REQUEST])
        assert [lane.is_calibrated for lane in plan.circuits[0].budget.lanes] == [False, True, True, False]
        assert explain(plan).count("the calibration is not valid at this wavelength") == 2


def test_the_weakest_lane_decides_about_the_margin(tmp_path: Path) -> None:
    with emulated(tmp_path, "kind: qsfp-8636, profile: 100g-cwdm4") as bench:
        setup = path_setup(bench, dispersive_record(bench, 1301.0, (1270.0, 1332.0)))
        (circuit,) = setup.plan([REQUEST]).circuits
        weakest = min(circuit.budget.lanes, key=lambda lane: lane.margin_db)
        between_db = 0.5 * (weakest.margin_db + circuit.budget.margin_db)  # enough for the total, too much for one lane
        with pytest.raises(BudgetError, match=rf"of lane {weakest.lane}, {weakest.wavelength_nm:.2f} nm is"):
            setup.plan([replace(REQUEST, min_margin_db=between_db)])


def weak_lane(setup: PathSetup, bench: Bench, lane: int, loss_db: float) -> None:
    """Let one lane arrive weaker than its module reports, as behind a filter."""
    powers_w = [1e-3] * 4
    powers_w[lane - 1] *= 10.0 ** (-loss_db / 10.0)
    bench.emulated.world.set_lines("dr4-a", [Light(w, nm) for w, nm in zip(powers_w, LAN_WDM_NM, strict=True)])
    bench.clock.sleep(1.0)


def test_a_lane_that_arrives_10_db_weaker_is_a_finding_of_the_proof(tmp_path: Path) -> None:
    with emulated(tmp_path, LR4) as bench:
        setup = path_setup(bench, dispersive_record(bench, 1302.35, (1295.0, 1310.0)))
        setup.connect([REQUEST])
        weak_lane(setup, bench, 3, 10.0)
        (proof,) = setup.prove()
        (finding,) = proof.findings
        assert finding.startswith("dr4-b: lane 3 receives ")
        assert "dB less than lane" in finding
        assert "use another path" in finding
        weak_lane(setup, bench, 3, 30.0)
        (proof,) = setup.prove()
        assert not proof.proven
        assert any(failure.startswith("lane 3 (1304.58 nm)") for failure in proof.failures) or proof.los


def test_a_lane_above_the_overload_of_its_receiver_is_not_proven(tmp_path: Path) -> None:
    """The total of the lanes may be far below their common limit."""
    with emulated(tmp_path, LR4) as bench:
        setup = path_setup(bench, dispersive_record(bench, 1302.35, (1295.0, 1310.0)))
        (proof,) = setup.connect([REQUEST])
        # Receiver of 100GBASE-LR4: +4.5 dBm per lane (IEEE 802.3 Table 88-8).
        spare_db = [lane.overload_margin_db for lane in proof.lanes]
        assert all(spare is not None and spare > 3.0 for spare in spare_db)
        (strong_db,) = (lane.received_dbm for lane in proof.lanes if lane.lane == 2)
        assert strong_db is not None
        assert spare_db[1] == pytest.approx(4.5 - strong_db)
        weak_lane(setup, bench, 2, strong_db - 6.5)  # 6.5 dBm, below the 8.16 dBm that the module can measure
        (proof,) = setup.prove()
        assert not proof.proven
        assert any(
            failure.startswith("lane 2 (1300.05 nm) receives")
            and failure.endswith("above the overload level of 4.5 dBm")
            for failure in proof.failures
        ), proof.failures
        assert not any("above the overload" in failure for failure in proof.failures if not failure.startswith("lane"))
