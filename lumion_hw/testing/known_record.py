"""Calibration records of emulated benches, computed from the true parameters of their chips."""

from __future__ import annotations

import numpy as np

from lumion_hw.bench.bench import Bench
from lumion_hw.errors import DeviceError
from lumion_hw.interfaces import CoherentTransponder
from lumion_hw.mesh.record.calibration_record import CalibrationRecord, CrosstalkEntry, HeaterEntry, PortEntry, PucEntry
from lumion_hw.mesh.waves.heater import HeaterLaw


def record_of_truth(bench: Bench) -> CalibrationRecord:
    """Return the record that a perfect calibration of an emulated bench would find.

    For programs and tests that need a record, but no calibration. The modules are dark afterwards.

    Args:
        bench: A bench that is emulated in this process.

    Raises:
        ConfigError: The bench is real, or emulated in another process.
    """
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
    modules = {path.port: path.source for path in bench.wiring.inputs if path.transponder in bench.transponders}
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
    """Return the reported minus the launched power of a module in dB; the module is dark afterwards."""
    module = bench.transponders[transponder]
    if isinstance(module, CoherentTransponder):
        return 0.0  # its report is good to a hundredth of a decibel
    module.enable()
    reported_dbm = module.monitors().tx_power_dbm
    module.disable()
    optics = bench.model.devices[transponder].optics
    if reported_dbm is None or optics is None:
        raise DeviceError("the module reports no launch power", device=transponder)
    return reported_dbm - optics.launch_dbm
