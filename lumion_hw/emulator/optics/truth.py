"""The hidden truth of an emulated bench: everything a calibration has to find out, drawn from one seed.

Only the emulator and tests read it. Figures and their sources: SmartLight-class chip (D. Sánchez-Jácome, PhD thesis,
UPV 2025; Teofilovic et al., JLT 2024); what is marked *assumed* has no published source.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lumion_hw.emulator.chip.chip import ChipDraws, ChipParts
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
        puc_loss_sigma_db: Spread of it.
        access_loss_db: Mean loss between a fibre and the chip, facet and routing, per port.
        access_loss_sigma_db: Spread of it (assumed), cut at 2.5 sigma.
        coupler_common_sigma: Spread of the splitting error common to both couplers of a PUC.
        coupler_difference_rad: Spread of the difference of the two coupler angles.
        random_passive_phases: Passive phases are uniform over a turn; otherwise all zero, for teaching.
        p_pi_min_mw: Least heater power for a phase of π.
        p_pi_typical_mw: Most likely heater power for a phase of π.
        p_pi_max_mw: Largest heater power for a phase of π.
        heater_ohm: Mean cold heater resistance (assumed).
        heater_ohm_sigma: Relative spread of it (assumed).
        thermal_nonlinearity_per_mw: Relative rise of resistance per mW (assumed).
        thermal_tau_s: Thermal time constant (assumed, from undercut heaters).
        crosstalk: Whether heaters warm their neighbours.
        eta_slope_per_nm: Change of the coupler splitting per nm.
        differential_slope_per_nm: Change of the differential phase per nm, in rad.
        monitor_scale_sigma: Relative spread of the photodiode responsivity (assumed).
        monitor_noise_relative: Relative noise of a photodiode scan (assumed).
        monitor_noise_floor_dbm: Additive noise of a photodiode scan (assumed).
        wavelength_sigma_nm: Spread of module wavelengths about nominal (assumed).
        tm_rejection_db: Extra loss of TM light at a port (assumed).
        fibre_drift_rad2_per_s: Rate of the polarization random walk of each fibre.
        temperature_sigma_k: Spread of the chip's temperature that its control leaves (assumed).
        resistance_drift_per_root_day: Relative random walk of every heater's resistance (assumed).
        phase_drift_rad_per_root_day: Random walk of every passive phase, of PUCs and joints (assumed).
        squeezer_period_min_mv: Least drive of a polarization squeezer for a full turn (assumed).
        squeezer_period_max_mv: Largest drive for a full turn (assumed).
        slow_heat_tau_s: Time constant of the substrate below a heater, where an effect has it (assumed).
        effects: What the chip does beyond that.
    """

    puc_loss_db: float = 0.5  # 0.46 to 0.55 dB published
    puc_loss_sigma_db: float = 0.03
    access_loss_db: float = 6.85  # half of 13.7 dB: two facets of 3.34 dB and 7 dB of routing, typical
    access_loss_sigma_db: float = 1.0
    coupler_common_sigma: float = 0.011  # gives the published extinction of 33 dB in the through output
    coupler_difference_rad: float = 0.0063  # and of 44 dB in the cross output
    random_passive_phases: bool = True
    p_pi_min_mw: float = 1.2
    p_pi_typical_mw: float = 1.34  # 1.2, 1.34 and 2.0 mW: least, typical and largest published
    p_pi_max_mw: float = 2.0
    heater_ohm: float = 1000.0
    heater_ohm_sigma: float = 0.03
    thermal_nonlinearity_per_mw: float = 0.02
    thermal_tau_s: float = 100e-6  # suspended heaters: 141 to 144 µs (Micromachines 13:1509)
    crosstalk: bool = True
    eta_slope_per_nm: float = 7e-4  # gives the published 45 nm of 30 dB isolation (median, through)
    differential_slope_per_nm: float = 15e-3  # a slope of η alone moves a 50 % setting in second order only
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

    Faults change it: a stuck heater, a dead port. So does time: see :mod:`lumion_hw.emulator.optics.slow_drift`.

    Attributes:
        loss_db: Shape ``(E,)``.
        eta_in: Shape ``(E,)``.
        eta_out: Shape ``(E,)``.
        passive_phase: Shape ``(E,)``; α of the upper arm in rad.
        joint_phase: Shape ``(J,)``.
        p_pi_mw: Shape ``(2E,)``.
        heater_ohm: Shape ``(2E,)``; cold resistance.
        nonlinearity_per_mw: Shape ``(2E,)``.
        crosstalk: What the heat of each heater does to other arms and to the joints.
        access_loss_db: Shape ``(n_ports,)``.
        monitor_scale: Shape ``(n_ports,)``; photodiode responsivity over nominal.
        stuck_current_ma: Heater to current it really carries, for heaters that do not obey.
        draws: What was drawn of the chip beyond that.
        common_phase_rad: What the chip's temperature adds to both arms of every PUC.
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
    draws: ChipDraws
    common_phase_rad: float = 0.0

    @property
    def parts(self) -> ChipParts:
        """What light meets, as it is now: faults and time change it."""
        return ChipParts(
            self.loss_db,
            self.eta_in,
            self.eta_out,
            self.passive_phase,
            self.joint_phase,
            self.p_pi_mw,
            self.crosstalk,
        )

    def heater_power_mw(self, currents_ma: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the power each heater turns into heat at rest, shape ``(2E,)``."""
        current = self.draws.heaters.carried_ma(currents_ma.copy())
        for heater, stuck in self.stuck_current_ma.items():
            current[heater] = stuck
        return self.draws.heaters.heat_mw(current, self.heater_ohm, self.nonlinearity_per_mw)


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


def draw_mesh(
    mesh: MeshTopology,
    physics: PhysicsParameters,
    rng: np.random.Generator,
    effects_rng: np.random.Generator | None = None,
    heater_channels: Sequence[int] | None = None,
) -> MeshTruth:
    """Draw the hidden parameters of a mesh.

    Args:
        mesh: Its graph.
        physics: Spreads, and sizes of effects.
        rng: Draws what every chip has.
        effects_rng: Draws the effects, so that a chip with them is the one without, and something more.
        heater_channels: Drive channel of every heater; channel k drives heater k if not given.
    """
    effects_rng = effects_rng or np.random.default_rng(0)
    n_pucs, n_joints, heaters = mesh.n_pucs, len(mesh.joints), 2 * mesh.n_pucs
    common = physics.coupler_common_sigma * rng.standard_normal(n_pucs)
    difference = physics.coupler_difference_rad * rng.standard_normal(n_pucs)
    # The order of the draws is part of a seed: another order is another bench.
    spread = np.clip(rng.standard_normal(mesh.n_ports), -2.5, 2.5)
    loss = physics.puc_loss_db + physics.puc_loss_sigma_db * np.clip(rng.standard_normal(n_pucs), -2.0, 2.0)
    draws = ChipDraws.drawn(mesh, physics.effects, effects_rng, heater_channels)
    heat = HeatSpread.drawn(mesh, physics.p_pi_typical_mw, physics.effects, effects_rng)
    turn = 2 * np.pi if physics.random_passive_phases else 0.0
    return MeshTruth(
        loss_db=np.maximum(loss, 0.0),
        # Coupler angles asin √η about 45°: the common error to both, half of the difference to each.
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
        draws=draws,
    )


def truth_id(truth: MeshTruth, physics: PhysicsParameters) -> str:
    """Return a short name of a chip as it was drawn, the same on every machine: 8 hex digits of a hash."""
    drawn = np.concatenate([truth.passive_phase, truth.joint_phase, truth.loss_db, truth.p_pi_mw])
    rounded = ",".join(f"{value:.6f}" for value in drawn)
    return hashlib.sha256(f"{rounded};{physics.crosstalk};{physics.effects}".encode()).hexdigest()[:8]


def draw_chains(
    wiring: Wiring, nominal_nm: float, physics: PhysicsParameters, rng: np.random.Generator
) -> list[ChainTruth]:
    """Draw the hidden parameters of every input, in the order of the wiring."""
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
    # A QR decomposition leaves the phases of R open; taken out, Q is uniform (Mezzadri, Notices of the AMS 54, 592,
    # 2007).
    diagonal = np.diag(r)
    return np.asarray(q * (diagonal / np.abs(diagonal)), dtype=np.complex128)
