"""Matrices measured on an emulated chip, beside the hidden truth."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from calibration.report.hidden_truth import reference_offset_hz
from calibration.run.matrices import heater_limits, measure_matrix, refine_matrix
from lumion_hw.bench.bench import Bench
from lumion_hw.errors import ConfigError, LumionError
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.mesh.programming.matrix import (
    MatrixSetting,
    amplitude_fidelity,
    fidelity_up_to_port_phases,
    program_matrix,
    source_detunings_hz,
)
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.storage import load_record
from tests.mesh.known_truth import haar_unitary
from tests.recorded_calibration import RECORD, SEED, SMALL


def on_chip(bench: Bench, record: CalibrationRecord, setting: MatrixSetting) -> NDArray[np.complex128]:
    """Return the matrix that the hidden chip makes of a setting."""
    bench.mesh.program(setting.currents_ma)
    world = bench.emulated.world
    light_hz = world.slopes.reference_hz + reference_offset_hz(bench, record)
    detunings_hz = source_detunings_hz(record)
    fields = [world.true_fields(port, light_hz + detunings_hz.get(port, 0.0)) for port in setting.inputs]
    return np.stack(fields, axis=1)[list(setting.outputs)]


@pytest.fixture(scope="module")
def setting() -> MatrixSetting:
    """A 2x2 matrix programmed on the recorded chip; to find its currents takes as long as to measure it."""
    record, wanted = load_record(RECORD), haar_unitary(2, np.random.default_rng(3))
    with Bench.emulate(SMALL, seed=SEED) as bench:
        known = CalibratedMesh.from_record(record, bench.mesh.heater_max_ma)
        limits = heater_limits(bench)
    sources = [entry.port for entry in record.ports if entry.source_dbm is not None and entry.lit_with is None][:2]
    monitors = [port for port in record.monitor_ports if port not in sources][:2]
    detunings_hz = source_detunings_hz(record)
    return program_matrix(known, wanted, inputs=sources, outputs=monitors, limits=limits, detunings_hz=detunings_hz)


def test_what_is_measured_is_what_the_chip_does(setting: MatrixSetting) -> None:
    record = load_record(RECORD)
    with Bench.emulate(SMALL, seed=SEED) as bench, bench.dark():
        measured = measure_matrix(bench, record, setting, readings=40)
        assert not bench.mesh.confirmed_currents_ma().any(), "the heaters are left on"
        true = on_chip(bench, record, setting)
    assert measured.readings <= 40
    assert measured.phases_are_measured
    shares = [powers / powers.sum() for powers in (measured.powers, np.abs(true) ** 2)]
    np.testing.assert_allclose(*shares, atol=0.01)
    truly = fidelity_up_to_port_phases(setting.wanted, true), amplitude_fidelity(setting.wanted, true)
    for fidelity, truth in zip((measured.phase_true, measured.amplitude), truly, strict=True):
        assert abs(fidelity.value - truth) < 5.0 * fidelity.sigma + 1e-4
    assert all(column.value > 0.99 for column in measured.columns)


def test_without_a_setting_the_present_currents_are_measured(setting: MatrixSetting) -> None:
    record = load_record(RECORD)
    with Bench.emulate(SMALL, seed=SEED) as bench, bench.dark():
        currents_ma = setting.currents_ma
        bench.mesh.program(currents_ma)
        measured = measure_matrix(bench, record, readings=40)
        true = on_chip(bench, record, measured.setting)
    np.testing.assert_array_equal(measured.setting.currents_ma, currents_ma)
    assert set(measured.setting.inputs) == {entry.port for entry in record.ports if entry.source_dbm is not None}
    assert not set(measured.setting.inputs) & set(measured.setting.outputs)
    shares = [powers / powers.sum() for powers in (measured.powers, np.abs(true) ** 2)]
    np.testing.assert_allclose(*shares, atol=0.01)
    # The record predicts this matrix well.
    assert measured.phase_true.value > 0.999


def test_ports_without_light_or_monitor_are_refused_before_anything_is_measured(setting: MatrixSetting) -> None:
    record = load_record(RECORD)
    with Bench.emulate(SMALL, seed=SEED) as bench, bench.dark():
        known = CalibratedMesh.from_record(record, bench.mesh.heater_max_ma)
        lit = {entry.port for entry in record.ports if entry.source_dbm is not None}
        dark = next(port for port in record.mesh.fibre_ports if port not in lit)
        elsewhere = program_matrix(known, np.eye(1), inputs=[dark], outputs=setting.outputs[:1])
        with pytest.raises(ConfigError, match=f"port {dark} has no source in this record and bench"):
            measure_matrix(bench, record, elsewhere)


@pytest.mark.parametrize(
    ("device", "fault", "error"),
    [
        ("", "", KeyboardInterrupt),
        ("sfp-a", "module_dead", LumionError),
        ("mesh0", "no_cable", LumionError),
    ],
)
def test_what_happens_in_the_middle_leaves_heaters_and_light_off(
    setting: MatrixSetting, device: str, fault: str, error: type[BaseException]
) -> None:
    """Ctrl-C, a source that loses its supply, and a controller whose cable is pulled."""
    record = load_record(RECORD)
    with Bench.emulate(SMALL, seed=SEED) as bench, bench.dark():
        chip = bench.emulated.world
        cold = chip.cells()

        def strike(stage: str, done: int, total: int) -> None:
            if not fault:
                raise KeyboardInterrupt
            bench.emulated.faults.inject(device, fault)

        with pytest.raises(error) as raised:
            refine_matrix(bench, record, setting, on_step=strike)
        if isinstance(raised.value, LumionError):
            assert raised.value.hint
            assert device in str(raised.value)
        # Without its cable, the watchdog of the controller switches the heaters off.
        bench.clock.sleep(60.0)
        assert not chip.mesh_output_w().any()
        after = chip.cells()
        np.testing.assert_allclose(after.phase_upper, cold.phase_upper, atol=1e-6)
        np.testing.assert_allclose(after.phase_lower, cold.phase_lower, atol=1e-6)
