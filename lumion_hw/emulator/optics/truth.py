"""True parameters of an emulated bench, for the emulator and tests only."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lumion_hw.emulator.chip.chip import ChipParameterSet, ChipVariations
from lumion_hw.emulator.chip.heat_spread import HeatSpread
from lumion_hw.emulator.optics.physics_parameters import PhysicsParameters
from lumion_hw.interfaces.wiring import NO_ENDS, FibreEnds, Wiring
from lumion_hw.mesh.layout.cells import CELL_KINDS
from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.quantities import frequency_hz_from_wavelength_m


@dataclass
class MeshTruth:
    """True parameters of E PUCs and J joints between them. Heater 2·PUC is on the upper arm, 2·PUC + 1 on the lower.

    Faults and time change these parameters.

    Attributes:
        loss_db: Shape ``(E,)``; insertion loss of each PUC.
        eta_in: Shape ``(E,)``; power splitting of the coupler at end A of each PUC.
        eta_out: Shape ``(E,)``; power splitting of the coupler at end B.
        passive_phase: Shape ``(E,)``; phase of the upper arm minus that of the lower without heat, in rad.
        joint_phase: Shape ``(J,)``; phase of each joint (waveguide between two PUCs) in rad.
        p_pi_mw: Shape ``(2E,)``; power of each heater for a phase of π.
        heater_ohm: Shape ``(2E,)``; cold resistance.
        nonlinearity_per_mw: Shape ``(2E,)``; relative rise of each heater's resistance per mW.
        thermal_tau_s: Time constant of every heater.
        crosstalk: Phase that the heat of each heater adds to other arms and to joints, in rad per mW.
        access_loss_db: Shape ``(n_ports,)``; loss between fibre and mesh at each port.
        monitor_scale: Shape ``(n_ports,)``; photodiode responsivity relative to nominal.
        stuck_current_ma: Current of each heater that ignores its drive, by heater.
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
    thermal_tau_s: NDArray[np.float64]
    crosstalk: HeatSpread
    access_loss_db: NDArray[np.float64]
    monitor_scale: NDArray[np.float64]
    stuck_current_ma: dict[int, float]
    variations: ChipVariations
    common_phase_rad: float = 0.0

    @property
    def chip_parameters(self) -> ChipParameterSet:
        """Present parameters of the chip."""
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
        """Return a value that changes with every parameter that affects the light or the heat."""
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
        """Return the steady-state heat of each heater in mW, shape ``(2E,)`` for E PUCs."""
        current = self.variations.heaters.carried_ma(currents_ma.copy())
        for heater, stuck in self.stuck_current_ma.items():
            current[heater] = stuck
        return self.variations.heaters.heat_mw(current, self.heater_ohm, self.nonlinearity_per_mw)


@dataclass
class ChainTruth:
    """True parameters of one input of the mesh: module, fibre and polarization controller.

    Attributes:
        launch: Jones vector of the launched light, shape ``(2,)``.
        fibre_in: Jones matrix of the fibre before the polarization controller, shape ``(2, 2)``.
        fibre_out: Jones matrix of the fibre between controller and chip, shape ``(2, 2)``.
        squeezer_period_mv: Shape ``(4,)``; drive of each fibre squeezer for a retardance of 2π.
        squeezer_offset_rad: Shape ``(4,)``; retardance of each fibre squeezer without drive.
        maintains: Whether the fibre maintains the polarization, as a fibre from another mesh does.
    """

    frequency_hz: float
    launch: NDArray[np.complex128]
    fibre_in: NDArray[np.complex128]
    fibre_out: NDArray[np.complex128]
    squeezer_period_mv: NDArray[np.float64]
    squeezer_offset_rad: NDArray[np.float64]
    maintains: bool = False

    def state(self) -> tuple[object, ...]:
        """Return a value that changes with every parameter that affects the light."""
        return self.frequency_hz, self.launch.tobytes(), self.fibre_in.tobytes(), self.fibre_out.tobytes()


def draw_mesh(
    mesh: MeshTopology,
    physics: PhysicsParameters,
    rng: np.random.Generator,
    effects_rng: np.random.Generator | None = None,
    heater_channels: Sequence[int] | None = None,
) -> MeshTruth:
    """Draw the true parameters of an emulated mesh.

    Args:
        mesh: Layout of the mesh.
        physics: Means and standard deviations of the parameters, and sizes of the imperfections.
        rng: Random numbers for the parameters.
        effects_rng: Random numbers for the imperfections.
        heater_channels: Drive channel of each heater; by default channel k drives heater k.
    """
    effects_rng = effects_rng or np.random.default_rng(0)
    n_pucs, n_joints, heaters = mesh.n_pucs, len(mesh.joints), 2 * mesh.n_pucs
    common = physics.coupler_common_sigma * rng.standard_normal(n_pucs)
    difference = physics.coupler_difference_rad * rng.standard_normal(n_pucs)
    # A seed fixes the order of the draws: another order gives another bench.
    spread = np.clip(rng.standard_normal(mesh.n_ports), -2.5, 2.5)
    loss = physics.puc_loss_db + physics.puc_loss_sigma_db * np.clip(rng.standard_normal(n_pucs), -2.0, 2.0)
    kinds = [CELL_KINDS[kind] for kind in mesh.cell_kinds]
    # Without a coupler (or with one that moves all light) there is no splitting that could be off.
    angle_in, angle_out = (
        np.arctan2(np.sqrt(eta), np.sqrt(1.0 - eta)) + np.where((eta > 0.0) & (eta < 1.0), error, 0.0)
        for eta, error in (
            (np.array([kind.eta_in for kind in kinds]), common + 0.5 * difference),
            (np.array([kind.eta_out for kind in kinds]), common - 0.5 * difference),
        )
    )
    variations = ChipVariations.draw(mesh, physics.effects, effects_rng, heater_channels)
    heat = HeatSpread.draw(
        mesh, physics.p_pi_typical_mw, physics.effects, effects_rng, scale=physics.crosstalk_scale,
        other_arm=physics.other_arm_crosstalk, oxide_decay_mm=physics.oxide_decay_mm,
    )  # fmt: skip
    turn = 2 * np.pi if physics.random_passive_phases else 0.0
    tau_s = np.full(heaters, physics.thermal_tau_s)
    if physics.thermal_tau_max_s > physics.thermal_tau_s:
        # The effects come first in their stream, so that these draws change none of them.
        decades = effects_rng.uniform(0.0, np.log(physics.thermal_tau_max_s / physics.thermal_tau_s), heaters)
        tau_s = tau_s * np.exp(decades)
    return MeshTruth(
        loss_db=np.maximum(loss, 0.0) * np.array([kind.loss_share for kind in kinds]),
        # Coupler angles asin √η, 45° if balanced: both get the common error, each gets half of the difference.
        eta_in=np.sin(angle_in) ** 2,
        eta_out=np.sin(angle_out) ** 2,
        passive_phase=rng.uniform(0.0, 1.0, n_pucs) * turn,
        joint_phase=rng.uniform(0.0, 1.0, n_joints) * turn,
        p_pi_mw=rng.triangular(physics.p_pi_min_mw, physics.p_pi_typical_mw, physics.p_pi_max_mw, heaters),
        heater_ohm=physics.heater_ohm * (1.0 + physics.heater_ohm_sigma * rng.standard_normal(heaters)),
        nonlinearity_per_mw=physics.thermal_nonlinearity_per_mw * (1.0 + 0.1 * rng.standard_normal(heaters)),
        thermal_tau_s=tau_s,
        crosstalk=heat if physics.crosstalk else HeatSpread.none(mesh),
        access_loss_db=physics.access_loss_db + physics.access_loss_sigma_db * spread,
        monitor_scale=1.0 + physics.monitor_scale_sigma * rng.standard_normal(mesh.n_ports),
        stuck_current_ma={},
        variations=variations,
    )


def truth_id(truth: MeshTruth, physics: PhysicsParameters) -> str:
    """Return a short name for a chip: 8 hex digits of a hash of the parameters."""
    random_values = np.concatenate([truth.passive_phase, truth.joint_phase, truth.loss_db, truth.p_pi_mw])
    rounded = ",".join(f"{value:.6f}" for value in random_values)
    crosstalk = str(physics.crosstalk if physics.crosstalk_scale == 1.0 else physics.crosstalk_scale)
    if physics.other_arm_crosstalk:
        crosstalk += f",{physics.other_arm_crosstalk},{physics.oxide_decay_mm}"
    return hashlib.sha256(f"{rounded};{crosstalk};{physics.effects}".encode()).hexdigest()[:8]


def draw_chains(
    wiring: Wiring,
    nominal_nm: float,
    physics: PhysicsParameters,
    rng: np.random.Generator,
    ends: FibreEnds = NO_ENDS,
) -> list[ChainTruth]:
    """Draw the true parameters of every input of the mesh, in wiring order.

    Light from another mesh (``ends``) arrives as TE, because its fibre maintains the polarization.
    """
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
    te, straight = np.array([1.0 + 0j, 0.0]), np.eye(2, dtype=np.complex128)
    for index, path in enumerate(wiring.inputs):
        if path.transponder in ends.names:
            chains[index] = replace(chains[index], launch=te, fibre_in=straight, fibre_out=straight, maintains=True)
    return chains


def random_unitary(rng: np.random.Generator) -> NDArray[np.complex128]:
    """Return a 2x2 unitary drawn uniformly (Haar measure)."""
    q, r = np.linalg.qr(rng.standard_normal((2, 2)) + 1j * rng.standard_normal((2, 2)))
    # A QR decomposition leaves the phases of R arbitrary; removing them makes Q uniform (Mezzadri, Notices of the AMS
    # 54, 592, 2007).
    diagonal = np.diag(r)
    return np.asarray(q * (diagonal / np.abs(diagonal)), dtype=np.complex128)
