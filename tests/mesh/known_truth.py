"""A hidden mesh as the emulator draws it, and the record that a perfect calibration of it would give."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lumion_hw.emulator.optics.physics_parameters import PhysicsParameters
from lumion_hw.emulator.optics.truth import MeshTruth, draw_mesh
from lumion_hw.mesh.layout.cells import NO_CHANNEL
from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.mesh.record.calibration_record import (
    CalibrationRecord,
    CouplerEntry,
    CrosstalkEntry,
    CrosstalkKernel,
    HeaterEntry,
    JointsEntry,
    PortEntry,
    PucEntry,
)
from lumion_hw.mesh.waves.cell import UnitCells
from lumion_hw.mesh.waves.crosstalk import BUL_MM
from lumion_hw.mesh.waves.heater import HeaterLaw

Real = NDArray[np.float64]

MAX_MA = 2.4
"""Some 4.3 π of a typical heater."""
KERNEL = CrosstalkKernel(
    0.906 / 59.5 / 6.0 * np.pi / (2.0 * 1.34), 1.18, 0.12 / 59.5 / 6.0 * np.pi / (2.0 * 1.34), BUL_MM
)
"""The published curve (Teofilovic 2024) at 1.34 mW per π: pm of ring shift per half a free spectral range, six PUCs."""


def drawn(mesh: MeshTopology, seed: int, **physics: float) -> MeshTruth:
    """Return a hidden mesh."""
    return draw_mesh(mesh, PhysicsParameters(**physics), np.random.default_rng(seed))


def true_cells(truth: MeshTruth, currents_ma: Real) -> UnitCells:
    """Return what the mesh really is at given currents: implicit heater law, crosstalk on arms and joints."""
    heat_mw = truth.heater_power_mw(currents_ma)
    arms = np.pi * heat_mw / truth.p_pi_mw + truth.crosstalk.arm_rad_per_mw @ heat_mw
    return UnitCells(
        truth.loss_db,
        truth.eta_in,
        truth.eta_out,
        truth.passive_phase + arms[0::2],
        arms[1::2],
        truth.joint_phase + truth.crosstalk.joint_rad_per_mw @ heat_mw,
    )


def record_of(mesh: MeshTopology, truth: MeshTruth) -> CalibrationRecord:
    """Return the record of a perfect calibration; laws are fitted to the implicit one over the whole range."""
    currents = np.linspace(0.05, MAX_MA, 60)
    heat = np.stack([truth.heater_power_mw(np.full(2 * mesh.n_pucs, current)) for current in currents])
    phases = np.pi * heat / truth.p_pi_mw
    powers = currents[:, None] ** np.array([2, 4, 6])
    laws = np.linalg.lstsq(powers, phases, rcond=None)[0].T
    # Heat in the record is ohm·I²·(own phase / ρ2 I²)·factor, and truly Pπ/π per radian of own phase.
    factor = truth.p_pi_mw / np.pi * laws[:, 0]
    designed = mesh.coupler_angles_rad
    first, second = np.arcsin(np.sqrt(truth.eta_in)) - designed[0], np.arcsin(np.sqrt(truth.eta_out)) - designed[1]

    def heater(number: int) -> HeaterEntry:
        if not mesh.has_heater[number]:
            return HeaterEntry(NO_CHANNEL, None, None)
        rho2, rho4, rho6 = laws[number].tolist()
        return HeaterEntry(number, HeaterLaw(rho2, rho4, MAX_MA, rho6), 1.0, "", float(factor[number]))

    def puc(number: int) -> PucEntry:
        passive = float((truth.passive_phase[number] + np.pi) % (2 * np.pi) - np.pi)
        common = float(0.5 * (first + second)[number])
        coupler = CouplerEntry(common, float((first - second)[number]), 1e-3, 1e-3)
        return PucEntry(
            passive, 0.002, float(truth.loss_db[number]), 0.01, heater(2 * number), heater(2 * number + 1), "", coupler
        )

    return CalibrationRecord(
        device_serial="MZ-0001",
        device_model="LM-1",
        device_firmware="1.2.3",
        mesh_label=mesh.label,
        mesh_sha256=mesh.sha256,
        heater_channels=tuple(np.where(mesh.has_heater, np.arange(2 * mesh.n_pucs), NO_CHANNEL).tolist()),
        monitor_ports=mesh.fibre_ports,
        wavelength_nm=1550.0,
        created_utc="2026-01-01T00:00:00+00:00",
        complete=True,
        heater_ohm=1000.0,
        pucs=tuple(puc(number) for number in range(mesh.n_pucs)),
        ports=tuple(PortEntry(port, 6.85, 0.1, 6.85, 0.1, 0.8) for port in mesh.fibre_ports),
        crosstalk=CrosstalkEntry(kernel=KERNEL),
        joints=JointsEntry(tuple(truth.joint_phase.tolist()), "none: as drawn"),
    )


def off_by(record: CalibrationRecord, sigma_rad: float, rng: np.random.Generator) -> CalibrationRecord:
    """Return a record whose passive phases, joints and couplers are off at random."""
    pucs = tuple(
        replace(
            entry,
            passive_phase_rad=(entry.passive_phase_rad or 0.0) + float(rng.normal(0.0, sigma_rad)),
            coupler=replace(
                entry.coupler or CouplerEntry(),
                common_rad=(entry.coupler or CouplerEntry()).common_rad + float(rng.normal(0.0, sigma_rad)),
            ),
        )
        for entry in record.pucs
    )
    joints = record.joints or JointsEntry(())
    phases = tuple(phase + float(rng.normal(0.0, sigma_rad)) for phase in joints.phase_rad)
    return replace(record, pucs=pucs, joints=replace(joints, phase_rad=phases))


def haar_unitary(n: int, rng: np.random.Generator) -> NDArray[np.complex128]:
    """Return an N x N unitary drawn uniformly."""
    q, r = np.linalg.qr(rng.standard_normal((n, n)) + 1j * rng.standard_normal((n, n)))
    diagonal = np.diag(r)
    return np.asarray(q * (diagonal / np.abs(diagonal)), dtype=np.complex128)
