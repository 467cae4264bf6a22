"""True parameters of an emulated bench, and errors of a record against them.

For tests, benchmarks and ``verify --against-truth`` only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration.model.arrays import Real
from calibration.model.parameters import MeshParameters
from calibration.model.space import space_from_record
from calibration.record.conversion import parameters_from_record
from lumion_hw.bench.bench import Bench
from lumion_hw.mesh.layout.topology import MeshTopology, State
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.mesh.programming.inverse import heater_currents_ma
from lumion_hw.mesh.record.calibration_record import CalibrationRecord

WANTED_EXTINCTION_DB = 30.0
HEATER_REST_S = 0.15
"""Time until a chip is in thermal equilibrium."""
_POINTS = 60
_LAW_POWERS = np.array([1, 2, 3])
_STATES: tuple[State, State] = ("bar", "cross")


@dataclass(frozen=True)
class TruthReport:
    """Errors of a record against the true parameters of an emulated bench.

    Attributes:
        phase_error_rad: Shape ``(pucs,)``; error of the passive phases, -π … π. True phases include the heat of heaters
            stuck at a current.
        loss_error_db: Shape ``(n_pucs,)``; error of the losses.
        extinction_db: Shape ``(2, pucs)``; extinction with all PUCs set to bar, then to cross.
        allowed_db: Shape ``(2, pucs)``; largest bar and cross extinction that the couplers allow.
    """

    phase_error_rad: Real
    loss_error_db: Real
    extinction_db: Real
    allowed_db: Real

    def shortfalls(self) -> int:
        """Return the number of bar and cross states below 30 dB extinction although the couplers alone allow 31 dB."""
        is_missed = (self.allowed_db >= WANTED_EXTINCTION_DB + 1.0) & (self.extinction_db < WANTED_EXTINCTION_DB)
        return int(is_missed.sum())


def compare(bench: Bench, record: CalibrationRecord) -> TruthReport:
    """Compare a record with an emulated bench; all PUCs are set to bar, then to cross.

    Raises:
        ConfigError: The bench is not emulated.
    """
    world = bench.emulated.world
    truth = world.truth
    # A mesh of single parts has no settable PUC.
    pucs = np.flatnonzero([entry.is_settable for entry in record.pucs] & record.mesh.interferes)
    phases = np.array([record.pucs[puc].passive_phase_rad for puc in pucs], dtype=np.float64)
    # Heaters stuck at a current shift phases at rest; a calibration cannot separate this from the passive phase.
    zero_current_mw = truth.heater_power_mw(np.zeros(len(truth.p_pi_mw)))
    zero_current_rad = np.pi * zero_current_mw / truth.p_pi_mw + truth.crosstalk.arm_rad_per_mw @ zero_current_mw
    passive_rad = truth.passive_phase + zero_current_rad[0::2] - zero_current_rad[1::2]
    passive_rad = passive_rad + world.cells().differential_slope_per_hz * reference_offset_hz(bench, record)
    return TruthReport(
        phase_error_rad=(phases - passive_rad[pucs] + np.pi) % (2 * np.pi) - np.pi,
        loss_error_db=record.loss_db - truth.loss_db,
        extinction_db=np.array([_extinction_db(bench, record, pucs, state) for state in _STATES]),
        allowed_db=allowed_db(bench)[:, pucs],
    )


def allowed_db(bench: Bench) -> Real:
    """Return the largest bar and cross extinction of each PUC in dB that its couplers allow, shape ``(2, n_pucs)``."""
    # Calculated from the cells themselves: half a turn of one arm gives both amplitudes that interfere in an output.
    cells = bench.emulated.world.cells()
    level, turned = (
        replace(cells, phase_upper=np.full_like(cells.phase_upper, arm)).transfer() for arm in (0.0, np.pi)
    )
    by_upper, by_lower = 0.5 * np.abs(level - turned), 0.5 * np.abs(level + turned)
    smallest, largest = (by_upper - by_lower) ** 2, (by_upper + by_lower) ** 2
    wanted, other = np.maximum(largest[..., 0].T, 1e-12), np.maximum(smallest[:, ::-1, 0].T, 1e-12)
    return np.asarray(10.0 * np.log10(wanted / other))


def reference_offset_hz(bench: Bench, record: CalibrationRecord) -> float:
    """Return the frequency of the light that a record refers to, minus the emulator's reference frequency, in Hz.

    With several modules, the true mean is assumed to be the stated mean.
    """
    world = bench.emulated.world
    detunings_hz = {
        entry.port: entry.source_detuning_hz for entry in record.ports if entry.source_detuning_hz is not None
    }
    # Without fitted frequencies the phases are still those at the lasers' true frequency, not at the stated one.
    off = [
        chain.frequency_hz - world.slopes.reference_hz - detunings_hz[path.port]
        for chain, path in zip(world.chains, world.wiring.inputs, strict=True)
        if path.port in detunings_hz
    ]
    return float(np.mean(off)) if off else 0.0


def _extinction_db(bench: Bench, record: CalibrationRecord, pucs: NDArray[np.int64], state: State) -> Real:
    bench.mesh.program(heater_currents_ma(record, dict.fromkeys(pucs.tolist(), state)))
    bench.clock.sleep(HEATER_REST_S)
    transfer = bench.emulated.world.cells().transfer()[pucs]
    bar, cross = np.abs(transfer[:, 0, 0]) ** 2, np.abs(transfer[:, 1, 0]) ** 2
    wanted, other = (bar, cross) if state == "bar" else (cross, bar)
    extinction: Real = 10 * np.log10(wanted / np.maximum(other, 1e-15))
    return extinction


def true_parameters(bench: Bench, record: CalibrationRecord) -> MeshParameters:
    """Return the parameters of a perfect calibration with the sources and monitors of a record.

    Heater laws are fits to the true laws over the current range of the record. Source powers are copied from the
    record.

    Raises:
        ConfigError: The bench is not emulated.
    """
    world = bench.emulated.world
    truth, cells, slopes = world.truth, world.cells(), world.slopes
    parameters, space = parameters_from_record(record), space_from_record(record)
    offset_hz = reference_offset_hz(bench, record)
    slope, eta_slope = cells.differential_slope_per_hz, slopes.eta_slope_per_nm * slopes.nm_per_hz
    mesh, both = space.mesh, space.mesh.has_coupler.all(axis=0)
    first, second = np.arcsin(np.sqrt(np.stack([truth.eta_in, truth.eta_out]))) - mesh.coupler_angles_rad
    of_port = {path.port: chain.frequency_hz for path, chain in zip(world.wiring.inputs, world.chains, strict=True)}
    stated = np.asarray(parameters.source_detuning_hz)
    off = np.array([of_port[port] - slopes.reference_hz - offset_hz for port in space.sources])
    return MeshParameters(
        passive_phase_rad=np.where(mesh.interferes, truth.passive_phase + slope * offset_hz, 0.0),
        heater_law=true_laws(bench, CalibratedMesh.from_record(record).max_ma),
        loss_db=truth.loss_db,
        coupler_common_rad=np.where(both, 0.5 * (first + second), first + second),
        coupler_difference_rad=np.where(both, first - second, 0.0),
        joint_phase_rad=truth.joint_phase
        + _arms_in_joints(mesh, truth.passive_phase)
        + 2.0 * np.pi * parameters.delay_s * offset_hz,
        source_db=parameters.source_db,
        second_db=parameters.second_db,
        monitor_ma_per_mw=bench.mesh.responsivity_a_per_w * truth.monitor_scale[list(space.monitors)],
        crosstalk_rad_per_mw=_true_kernel(bench),
        heat_factor=truth.heater_ohm / record.heater_ohm,
        source_detuning_hz=np.where(stated != 0.0, off, 0.0),
        delay_s=parameters.delay_s,
        differential_slope_rad_per_hz=slope,
        coupler_slope_rad_per_hz=eta_slope,  # η = sin²a, so dη = da near one half
    )


def _true_kernel(bench: Bench) -> Real:
    """Return amplitude (rad/mW), decay length (mm) and floor (rad/mW) of the emulated crosstalk without its scatter.

    In the emulator, two heaters at π together shift the resonance of a ring of six PUCs (free spectral range 119 pm) by
    0.906·exp(-d/1.18 mm) + 0.12 pm (Teofilovic 2024).
    """
    typical = bench.model.mesh_section.typical
    physics = bench.model.emulation.physics_parameters(
        puc_loss_db=typical.puc_loss_db,
        access_loss_db=typical.access_loss_db,
        heater_ohm=bench.mesh.heater_ohm,
        p_pi_range_mw=(typical.p_pi_min_mw, typical.p_pi_max_mw),
    )
    scale = physics.crosstalk * physics.crosstalk_scale
    per_pm = scale * 2.0 * np.pi / 119.0 / 6.0 / (2.0 * physics.p_pi_typical_mw)
    return np.array([0.906 * per_pm, 1.18, 0.12 * per_pm])


def _arms_in_joints(mesh: MeshTopology, passive_phase_rad: Real) -> Real:
    phases = np.zeros(4 * mesh.n_pucs)
    # The upper arm ends at rail L of end B.
    phases[2::4] = np.where(mesh.interferes, 0.0, passive_phase_rad)
    joined: Real = phases[mesh.joints].sum(axis=1)
    return joined


def heat_phases_rad(bench: Bench, currents_ma: Real) -> Real:
    """Return the true phases of all arms, then of all joints, due to heat; shape ``(heaters + joints,)``."""
    truth = bench.emulated.world.truth
    heat_mw, variations = truth.heater_power_mw(currents_ma), truth.variations
    die_rad = variations.sizes.chip_heating_rad_per_w * 1e-3 * float(heat_mw.sum())
    own_rad = variations.heaters.own_arm_phase_rad(heat_mw, truth.p_pi_mw)
    arms = own_rad + truth.crosstalk.arm_rad_per_mw @ heat_mw + die_rad
    return np.concatenate([arms, truth.crosstalk.joint_rad_per_mw @ heat_mw])


def own_phase_rad(bench: Bench, currents_ma: Real) -> Real:
    """Return the true phase of every heater on its own arm, shape ``(heaters,)``.

    It includes the heater's own share in warming the die, which no measurement tells apart from its law.
    """
    truth = bench.emulated.world.truth
    heat_mw, variations = truth.heater_power_mw(currents_ma), truth.variations
    by_die: Real = variations.sizes.chip_heating_rad_per_w * 1e-3 * heat_mw
    return variations.heaters.own_arm_phase_rad(heat_mw, truth.p_pi_mw) + by_die


def true_laws(bench: Bench, max_ma: Real) -> Real:
    """Return three-term fits to the true laws of all heaters up to ``max_ma``, shape ``(heaters, 3)``."""
    # The law of the emulator is deliberately not a polynomial; the nearest three terms are the best possible fit.
    share = np.linspace(0.0, 1.0, _POINTS)[1:]
    phases = np.array([own_phase_rad(bench, np.sqrt(part) * max_ma) for part in share])
    terms = np.linalg.lstsq(share[:, None] ** _LAW_POWERS, phases, rcond=None)[0].T
    scale = np.where(max_ma > 0.0, max_ma, np.inf)[:, None] ** (2.0 * _LAW_POWERS)
    laws: Real = terms / scale
    return laws
