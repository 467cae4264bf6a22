"""Small benches for the tests of circuits and fabric, with calibration records computed from the emulated truth.

A calibration takes seconds, and the tests here only use its result. The tests of the command line include the
calibration.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from lumion_hw import Bench
from lumion_hw.circuits import CircuitRequest, PathSetup, PlannedCircuit
from lumion_hw.interfaces import CoherentTransponder
from lumion_hw.mesh.record.calibration_record import CalibrationRecord, CrosstalkEntry, HeaterEntry, PortEntry, PucEntry
from lumion_hw.mesh.waves.heater import HeaterLaw
from lumion_hw.polarization import Aligner
from tests.edited_files import edited as edited_copy

SMALL = Path(__file__).parents[1] / "data" / "small.yaml"

A_TO_B = [CircuitRequest("sfp-a", "sfp-b"), CircuitRequest("sfp-b", "sfp-a")]


def record_of_truth(bench: Bench) -> CalibrationRecord:
    """Return the record that a perfect calibration of an emulated bench would find."""
    mesh, truth, info = bench.mesh, bench.emulated.world.truth, bench.mesh.controller.info
    cold = truth.heater_ohm * 1e-3  # mW per mA²
    # Heat P = c / (1 - γc) with c = I²R (docs/calibration.md, 2), as a series in I²; φ = π P / Pπ.
    series = [cold, truth.nonlinearity_per_mw * cold**2, truth.nonlinearity_per_mw**2 * cold**3]
    rho = np.array([np.pi * term / truth.p_pi_mw for term in series])

    def heater(number: int) -> HeaterEntry:
        rho2, rho4, rho6 = rho[:, number].tolist()
        return HeaterEntry(mesh.heater_channels[number], HeaterLaw(rho2, rho4, mesh.heater_max_ma, rho6), 1.0)

    def puc(number: int) -> PucEntry:
        passive = float((truth.passive_phase[number] + np.pi) % (2 * np.pi) - np.pi)
        loss = float(truth.loss_db[number])
        return PucEntry(passive, 0.01, loss, 0.01, heater(2 * number), heater(2 * number + 1))

    # Input losses count from the power that a module reports, which is off by up to a decibel.
    modules = {path.port: path.transponder for path in bench.wiring.inputs if path.transponder}
    excess = {port: _reported_excess_db(bench, name) for port, name in modules.items()}

    def port(number: int) -> PortEntry:
        access, scale = float(truth.access_loss_db[number]), float(truth.monitor_scale[number])
        into = access + excess.get(number, 0.0)
        return PortEntry(number, into, 0.1, access, 0.1, mesh.responsivity_a_per_w * scale)

    crosstalk = truth.crosstalk.arm_rad_per_mw[0::2] - truth.crosstalk.arm_rad_per_mw[1::2]
    return CalibrationRecord(
        device_serial=info.serial,
        device_model=info.model,
        device_firmware=info.firmware,
        mesh_label=mesh.topology.label,
        mesh_sha256=mesh.topology.sha256,
        heater_channels=mesh.heater_channels,
        monitor_ports=mesh.monitor_ports,
        wavelength_nm=1550.0,
        created_utc="2026-01-01T00:00:00+00:00",
        complete=True,
        heater_ohm=mesh.heater_ohm,
        pucs=tuple(puc(number) for number in range(mesh.topology.n_pucs)),
        ports=tuple(port(number) for number in mesh.topology.fibre_ports),
        crosstalk=CrosstalkEntry(tuple(tuple(row) for row in crosstalk.tolist())),
    )


def _reported_excess_db(bench: Bench, transponder: str) -> float:
    """Return what a module reports over what it launches; it is dark afterwards."""
    module = bench.transponders[transponder]
    if isinstance(module, CoherentTransponder):
        return 0.0  # its report is good to a hundredth of a decibel
    module.enable()
    reported_dbm = module.monitors().tx_power_dbm
    module.disable()
    optics = bench.model.devices[transponder].optics
    assert reported_dbm is not None
    assert optics is not None
    return reported_dbm - optics.launch_dbm


def without_outputs(record: CalibrationRecord) -> CalibrationRecord:
    """Return what a calibration without meters behind the mesh knows: nothing of the outputs' losses."""
    blind = (replace(port, output_loss_db=None, output_loss_sigma_db=None) for port in record.ports)
    return replace(record, ports=tuple(blind))


def true_arm_losses_db(bench: Bench, circuit: PlannedCircuit) -> list[float]:
    """Return what each arm loses from module to module, by the hidden truth and the currents driven now."""
    world, losses_db = bench.emulated.world, []
    access_db = world.truth.access_loss_db
    for arm in circuit.arms:
        index = next(i for i, path in enumerate(bench.wiring.inputs) if path == arm.entry)
        hertz = world.chains[index].frequency_hz
        field = world.true_fields(arm.entry.port, hertz)[arm.exit.port]
        outside_db = access_db[arm.entry.port] + access_db[arm.exit.port] + arm.fixed_loss_db - arm.entry.gain_db
        losses_db.append(float(outside_db - 20.0 * np.log10(abs(field))))
    return losses_db


def path_setup(bench: Bench, record: CalibrationRecord | None = None) -> PathSetup:
    """Return a path set-up on a bench that is known perfectly, or by another record."""
    return PathSetup(bench, record or record_of_truth(bench), Aligner(bench.clock))


def with_puc(record: CalibrationRecord, number: int, **changes: object) -> CalibrationRecord:
    """Return a record with one PUC changed."""
    pucs = list(record.pucs)
    pucs[number] = replace(pucs[number], **changes)  # type: ignore[arg-type]
    return replace(record, pucs=tuple(pucs))


def edited(directory: Path, *changes: tuple[str, str]) -> Path:
    """Return a copy of the small bench file with texts replaced."""
    return edited_copy(SMALL, directory, *changes)
