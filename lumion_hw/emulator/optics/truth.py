"""Hidden truth of an emulated bench: all parameters that a calibration has to find, drawn from one seed.

Only the emulator and tests read it. Figures and their sources: SmartLight-class chip (D. Sánchez-Jácome, PhD thesis,
UPV 2025; Teofilovic et al., JLT 2024). Values marked *assumed* have no published source.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lumion_hw.emulator.chip.chip import ChipParameterSet, ChipVariations
from lumion_hw.emulator.chip.effects import EffectSizes
from lumion_hw.emulator.chip.heat_spread import HeatSpread
from lumion_hw.interfaces.wiring import Wiring
from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.quantities import frequency_hz_from_wavelength_m


@dataclass(frozen=True)
class PhysicsParameters:
    """Spreads and constants from which the hidden truth is drawn.

    Attributes:
        puc_loss_db: Mean insertion loss of a PUC.
        puc_loss_sigma_db: Standard deviation of the insertion loss.
        access_loss_db: Mean loss between a fibre and the chip, facet and routing, per port.
        access_loss_sigma_db: Standard deviation of the access loss (assumed), cut at 2.5 sigma.
        coupler_common_sigma: Standard deviation of the splitting error common to both couplers of a PUC.
        coupler_difference_rad: Standard deviation of the difference of the two coupler angles.
        random_passive_phases: Passive phases are uniform over a turn; otherwise all are zero, for teaching.
        p_pi_min_mw: Smallest heater power for a phase of π.
        p_pi_typical_mw: Most likely heater power for a phase of π.
        p_pi_max_mw: Largest heater power for a phase of π.
        heater_ohm: Mean cold heater resistance (assumed).
        heater_ohm_sigma: Relative standard deviation of the resistance (assumed).
        thermal_nonlinearity_per_mw: Relative rise of the resistance per mW (assumed).
        thermal_tau_s: Thermal time constant (assumed, from undercut heaters).
        crosstalk: Whether heaters warm their neighbours.
        eta_slope_per_nm: Change of the coupler splitting per nm.
        differential_slope_per_nm: Change of the differential phase per nm, in rad.
        monitor_scale_sigma: Relative standard deviation of the photodiode responsivity (assumed).
        monitor_noise_relative: Relative noise of a photodiode scan (assumed).
        monitor_noise_floor_dbm: Additive noise of a photodiode scan (assumed).
        wavelength_sigma_nm: Standard deviation of module wavelengths about nominal (assumed).
        tm_rejection_db: Extra loss of TM light at a port (assumed).
        fibre_drift_rad2_per_s: Rate of the polarization random walk of each fibre.
        temperature_sigma_k: Standard deviation of the chip's temperature under control (assumed).
        resistance_drift_per_root_day: Relative random walk of every heater's resistance (assumed).
        phase_drift_rad_per_root_day: Random walk of every passive phase, of PUCs and joints (assumed).
        squeezer_period_min_mv: Smallest drive of a polarization squeezer for a full turn (assumed).
        squeezer_period_max_mv: Largest drive for a full turn (assumed).
        slow_heat_tau_s: Time constant of the substrate below a heater, for chips with that effect (assumed).
        effects: Sizes of further effects of the chip.
    """

    puc_loss_db: float = 0.5  # 0.46 to 0.55 dB published
    puc_loss_sigma_db: float = 0.03
    access_loss_db: float = 6.85  # half of 13.7 dB: two facets of 3.34 dB and 7 dB of routing, typical
    access_loss_sigma_db: float = 1.0
    coupler_common_sigma: float = 0.011  # gives the published extinction of 33 dB in the through output
    coupler_difference_rad: float = 0.0063  # and of 44 dB in the cross output
    random_passive_phases: bool = True
    p_pi_min_mw: float = 1.2
    p_pi_typical_mw: float = 1.34  # 1.2, 1.34 and 2.0 mW: smallest, typical and largest value published
    p_pi_max_mw: float = 2.0
    heater_ohm: float = 1000.0
    heater_ohm_sigma: float = 0.03
    thermal_nonlinearity_per_mw: float = 0.02
    thermal_tau_s: float = 100e-6  # suspended heaters: 141 to 144 µs (Micromachines 13:1509)
    crosstalk: bool = True
    eta_slope_per_nm: float = 7e-4  # gives the published 45 nm of 30 dB isolation (median, through)
    differential_slope_per_nm: float = 15e-3  # a slope of η alone changes a 50 % setting only to second order
    monitor_scale_sigma: float = 0.03
    monitor_noise_relative: float = 0.005
    monitor_noise_floor_dbm: float = -60.0
    wavelength_sigma_nm: float = 0.05
    tm_rejection_db: float = 25.0  # extinction of TM in splitter-rotators (AIP Advances 10, 125214)
    fibre_drift_rad2_per_s: float = 1e-5
    temperature_sigma_k: float = 0.0
    resistance_drift_per_root_day: float = 0.0
    phase_drift_rad_per_root_day: float = 0.0
    squeezer_period_min_mv: float = 3200.0
    squeezer_period_max_mv: float = 4200.0
    slow_heat_tau_s: float = 20e-3
    effects: EffectSizes = field(default_factory=EffectSizes)


@dataclass
class MeshTruth:
    """Hidden parameters of the mesh. Heaters are numbered 2·PUC (upper arm) and 2·PUC + 1 (lower arm).

    Faults change the truth, for example a stuck heater or a dead port. So does time
    (:mod:`lumion_hw.emulator.optics.slow_drift`).

    Attributes:
        loss_db: Shape ``(E,)``.
        eta_in: Shape ``(E,)``.
        eta_out: Shape ``(E,)``.
        passive_phase: Shape ``(E,)``; α of the upper arm in rad.
        joint_phase: Shape ``(J,)``.
        p_pi_mw: Shape ``(2E,)``.
        heater_ohm: Shape ``(2E,)``; cold resistance.
        nonlinearity_per_mw: Shape ``(2E,)``.
        crosstalk: Phase per heat of each heater at other arms and at the joints.
        access_loss_db: Shape ``(n_ports,)``.
        monitor_scale: Shape ``(n_ports,)``; photodiode responsivity relative to nominal.
        stuck_current_ma: Actual current of each heater that ignores its drive.
        variations: Parameters of the further effects.
        common_phase_rad: Phase that the chip's temperature adds to both arms of every PUC.
    """

    loss_db: NDArray[np.float64]
    eta_in: NDArray[np.float64]
    eta_out: NDArray[np.float64]
    passive_phase: NDArray[np.float64]
    joint_phase: NDArray[np.float64]
    p_pi_mw: NDArray[np.float64]
    heater_ohm: NDArray[np.float64]
    nonlinearity_per_mw: NDArray[np.float64]
    crosstalk: HeatSpread
    access_loss_db: NDArray[np.float64]
    monitor_scale: NDArray[np.float64]
    stuck_current_ma: dict[int, float]
    variations: ChipVariations
    common_phase_rad: float = 0.0

    @property
    def chip_parameters(self) -> ChipParameterSet:
        """Present parameters of the chip; faults and time change them."""
        return ChipParameterSet(
            self.loss_db,
            self.eta_in,
            self.eta_out,
            self.passive_phase,
            self.joint_phase,
            self.p_pi_mw,
            self.crosstalk,
        )

    def state(self) -> tuple[object, ...]:
        """Return a value that differs whenever any parameter that light or heat depends on has changed."""
        arrays = (
            self.loss_db,
            self.eta_in,
            self.eta_out,
            self.passive_phase,
            self.joint_phase,
            self.p_pi_mw,
            self.heater_ohm,
            self.nonlinearity_per_mw,
            self.access_loss_db,
        )
        # The crosstalk matrices are large and frozen, so the identity of their object suffices.
        stuck = tuple(self.stuck_current_ma.items())
        return *(array.tobytes() for array in arrays), stuck, self.common_phase_rad, id(self.crosstalk)

    def heater_power_mw(self, currents_ma: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the power that each heater turns into heat in the steady state, shape ``(2E,)``."""
        current = self.variations.heaters.carried_ma(currents_ma.copy())
        for heater, stuck in self.stuck_current_ma.items():
            current[heater] = stuck
        return self.variations.heaters.heat_mw(current, self.heater_ohm, self.nonlinearity_per_mw)


@dataclass
class ChainTruth:
    """Hidden parameters of one input: module, fibre and polarization controller.

    Attributes:
        frequency_hz: Optical frequency of the module.
        launch: Jones vector of the launched light, shape ``(2,)``.
        fibre_in: Unitary of the fibre before the controller, shape ``(2, 2)``; drifts.
        fibre_out: Unitary between controller and chip, shape ``(2, 2)``; drifts.
        squeezer_period_mv: Shape ``(4,)``; drive for a full turn.
        squeezer_offset_rad: Shape ``(4,)``; retardance without drive.
    """

    frequency_hz: float
    launch: NDArray[np.complex128]
    fibre_in: NDArray[np.complex128]
    fibre_out: NDArray[np.complex128]
    squeezer_period_mv: NDArray[np.float64]
    squeezer_offset_rad: NDArray[np.float64]

    def state(self) -> tuple[object, ...]:
        """Return a value that differs whenever a parameter that the light depends on has changed."""
        return self.frequency_hz, self.launch.tobytes(), self.fibre_in.tobytes(), self.fibre_out.tobytes()


def draw_mesh(
    mesh: MeshTopology,
    physics: PhysicsParameters,
    rng: np.random.Generator,
    effects_rng: np.random.Generator | None = None,
    heater_channels: Sequence[int] | None = None,
) -> MeshTruth:
    """Draw the hidden parameters of a mesh.

    Args:
        mesh: Layout of the mesh.
        physics: Spreads, and sizes of effects.
        rng: Random numbers for the parameters of every chip.
        effects_rng: Random numbers for the effects; a separate stream, so that effects do not change the other
            parameters.
        heater_channels: Drive channel of each heater; by default channel k drives heater k.
    """
    effects_rng = effects_rng or np.random.default_rng(0)
    n_pucs, n_joints, heaters = mesh.n_pucs, len(mesh.joints), 2 * mesh.n_pucs
    common = physics.coupler_common_sigma * rng.standard_normal(n_pucs)
    difference = physics.coupler_difference_rad * rng.standard_normal(n_pucs)
    # A seed fixes the order of the draws: another order gives another bench.
    spread = np.clip(rng.standard_normal(mesh.n_ports), -2.5, 2.5)
    loss = physics.puc_loss_db + physics.puc_loss_sigma_db * np.clip(rng.standard_normal(n_pucs), -2.0, 2.0)
    variations = ChipVariations.draw(mesh, physics.effects, effects_rng, heater_channels)
    heat = HeatSpread.draw(mesh, physics.p_pi_typical_mw, physics.effects, effects_rng)
    turn = 2 * np.pi if physics.random_passive_phases else 0.0
    return MeshTruth(
        loss_db=np.maximum(loss, 0.0),
        # Coupler angles asin √η about 45°: both get the common error, each gets half of the difference.
        eta_in=np.sin(np.pi / 4 + common + 0.5 * difference) ** 2,
        eta_out=np.sin(np.pi / 4 + common - 0.5 * difference) ** 2,
        passive_phase=rng.uniform(0.0, 1.0, n_pucs) * turn,
        joint_phase=rng.uniform(0.0, 1.0, n_joints) * turn,
        p_pi_mw=rng.triangular(physics.p_pi_min_mw, physics.p_pi_typical_mw, physics.p_pi_max_mw, heaters),
        heater_ohm=physics.heater_ohm * (1.0 + physics.heater_ohm_sigma * rng.standard_normal(heaters)),
        nonlinearity_per_mw=physics.thermal_nonlinearity_per_mw * (1.0 + 0.1 * rng.standard_normal(heaters)),
        crosstalk=heat if physics.crosstalk else HeatSpread.none(mesh),
        access_loss_db=physics.access_loss_db + physics.access_loss_sigma_db * spread,
        monitor_scale=1.0 + physics.monitor_scale_sigma * rng.standard_normal(mesh.n_ports),
        stuck_current_ma={},
        variations=variations,
    )


def truth_id(truth: MeshTruth, physics: PhysicsParameters) -> str:
    """Return a short name for a chip as it was drawn, the same on every machine: 8 hex digits of a hash."""
    drawn = np.concatenate([truth.passive_phase, truth.joint_phase, truth.loss_db, truth.p_pi_mw])
    rounded = ",".join(f"{value:.6f}" for value in drawn)
    return hashlib.sha256(f"{rounded};{physics.crosstalk};{physics.effects}".encode()).hexdigest()[:8]


def draw_chains(
    wiring: Wiring, nominal_nm: float, physics: PhysicsParameters, rng: np.random.Generator
) -> list[ChainTruth]:
    """Draw the hidden parameters of each input, in the order of the wiring."""
    chains = []
    for _ in wiring.inputs:
        wavelength_nm = nominal_nm + physics.wavelength_sigma_nm * float(rng.standard_normal())
        launch = rng.standard_normal(2) + 1j * rng.standard_normal(2)
        chains.append(
            ChainTruth(
                frequency_hz=frequency_hz_from_wavelength_m(wavelength_nm * 1e-9),
                launch=launch / np.linalg.norm(launch),
                fibre_in=random_unitary(rng),
                fibre_out=random_unitary(rng),
                squeezer_period_mv=rng.uniform(physics.squeezer_period_min_mv, physics.squeezer_period_max_mv, 4),
                squeezer_offset_rad=rng.uniform(0.0, 2 * np.pi, 4),
            )
        )
    return chains


def random_unitary(rng: np.random.Generator) -> NDArray[np.complex128]:
    """Return a 2x2 unitary drawn uniformly (Haar measure)."""
    q, r = np.linalg.qr(rng.standard_normal((2, 2)) + 1j * rng.standard_normal((2, 2)))
    # A QR decomposition leaves the phases of R arbitrary; removing them makes Q uniform (Mezzadri, Notices of the AMS
    # 54, 592, 2007).
    diagonal = np.diag(r)
    return np.asarray(q * (diagonal / np.abs(diagonal)), dtype=np.complex128)
