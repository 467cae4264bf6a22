"""Model of the whole emulated chip: fields at all ports for an input port, heat and frequency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lumion_hw.emulator.chip.cell import ChipCells
from lumion_hw.emulator.chip.effects import EffectSizes
from lumion_hw.emulator.chip.heat_spread import HeatSpread
from lumion_hw.emulator.chip.heaters import HeaterVariations
from lumion_hw.emulator.chip.waves import Mirrors, Waves
from lumion_hw.mesh.layout.cells import CELL_KINDS
from lumion_hw.mesh.layout.topology import MeshTopology

Real = NDArray[np.float64]
Complex = NDArray[np.complex128]
Integers = NDArray[np.int64]

PUC_DELAY_S = 11.25e-12
"""Group delay of one PUC in s (basic unit delay, Sánchez-Jácome 2025)."""
_TM_HEATER_SHARE = 0.6
"""Phase shift of TM light divided by that of TE light: TM is less confined in a flat strip (assumed)."""
_TM_ETA, _TM_EXTRA_LOSS_DB = 0.2, 1.0
"""Coupler splitting and extra loss for TM. Couplers are designed for TE; bends lose more TM (assumed)."""
_RIPPLE_PERIODS_HZ = (20e9, 100e9)


@dataclass(frozen=True, eq=False)
class ChipVariations:
    """Random imperfections of one chip with E PUCs, J joints (waveguides between PUCs) and P ports.

    Attributes:
        arm_loss_difference_db: Shape ``(E,)``; loss of the upper arm minus the lower.
        eta_slope_per_nm: Shape ``(E,)``; slope of each PUC's coupler splitting minus the slope common to all PUCs.
        ripple_period_hz: Shape ``(P,)``; period of the ripple of each port's loss over frequency.
        ripple_phase: Shape ``(P,)``; phase of the ripple in rad.
        mirrors: Reflections of joints and facets; ``None`` for none.
        tm: Phases of the upper arms and of the joints for TM light at zero heat; shapes ``(E,)`` and ``(J,)``.
    """

    sizes: EffectSizes
    heaters: HeaterVariations
    arm_loss_difference_db: Real
    eta_slope_per_nm: Real
    ripple_period_hz: Real
    ripple_phase: Real
    mirrors: Mirrors | None
    tm: tuple[Real, Real]

    @classmethod
    def draw(
        cls,
        mesh: MeshTopology,
        sizes: EffectSizes,
        rng: np.random.Generator,
        heater_channels: Sequence[int] | None = None,
    ) -> ChipVariations:
        """Draw the imperfections of one chip; a seed always gives the same chip.

        Args:
            mesh: Layout of the mesh.
            sizes: Sizes of the imperfections.
            rng: Source of random numbers.
            heater_channels: Drive channel of each heater; by default channel k drives heater k.
        """
        n_pucs, n_joints, n_ports = mesh.n_pucs, len(mesh.joints), mesh.n_ports
        differences = sizes.arm_loss_difference_db * rng.standard_normal(n_pucs)
        slopes = sizes.coupler_slope_sigma_per_nm * rng.standard_normal(n_pucs)
        periods = rng.uniform(*_RIPPLE_PERIODS_HZ, n_ports)
        phases = rng.uniform(0.0, 2.0 * np.pi, n_ports)
        back = np.exp(1j * rng.uniform(0.0, 2.0 * np.pi, n_joints)), np.exp(1j * rng.uniform(0.0, 2.0 * np.pi, n_ports))
        tm = rng.uniform(0.0, 2.0 * np.pi, n_pucs), rng.uniform(0.0, 2.0 * np.pi, n_joints)
        mirrors = None
        if sizes.joint_reflection or sizes.facet_reflection:
            # [[j√r·e^{jδ}, √(1-r)], [√(1-r), j√r·e^{-jδ}]]: a joint conserves power.
            amplitude = 1j * np.sqrt(sizes.joint_reflection)
            mirrors = Mirrors(
                facet=np.sqrt(sizes.facet_reflection) * back[1],
                joint=np.concatenate([amplitude * back[0], amplitude * back[0].conj()]),
                passed=np.full(n_joints, np.sqrt(1.0 - sizes.joint_reflection), dtype=np.complex128),
            )
        channels = range(2 * n_pucs) if heater_channels is None else heater_channels
        heaters = HeaterVariations.draw(channels, sizes, rng)
        return cls(sizes, heaters, differences, slopes, periods, phases, mirrors, tm)


@dataclass(frozen=True, eq=False)
class ChipParameterSet:
    """True parameters of the PUCs, joints and facets, without imperfections (see ``MeshTruth``)."""

    loss_db: Real
    eta_in: Real
    eta_out: Real
    passive_phase: Real
    joint_phase: Real
    heat_per_pi_mw: Real
    spread: HeatSpread


@dataclass(frozen=True)
class ChipSlopes:
    """Change of coupler splittings and phases with the optical frequency.

    Attributes:
        reference_hz: Frequency at which splittings and phases are specified.
        nm_per_hz: Change of wavelength per Hz, negative.
        eta_slope_per_nm: Change of the splittings per nm.
        differential_slope_per_nm: Change of the phase difference, upper minus lower arm, in rad per nm.
    """

    reference_hz: float
    nm_per_hz: float
    eta_slope_per_nm: float
    differential_slope_per_nm: float


class Chip:
    """Propagation of light through the chip."""

    def __init__(self, mesh: MeshTopology, variations: ChipVariations, slopes: ChipSlopes) -> None:
        self.variations, self.slopes = variations, slopes
        designed = [(CELL_KINDS[kind].eta_in, CELL_KINDS[kind].eta_out) for kind in mesh.cell_kinds]
        self._designed_eta = np.array(designed).T
        # A cell without a coupler has nothing whose splitting could depend on wavelength or polarization.
        self._has_coupler = (self._designed_eta > 0.0) & (self._designed_eta < 1.0)
        self._waves = Waves(mesh, sends_back=variations.mirrors is not None)

    def cells(
        self, parameters: ChipParameterSet, heat_mw: Real, common_rad: float, frequency_hz: float | Real | None
    ) -> ChipCells:
        """Return the parameters of all PUCs and joints at a given heat.

        Args:
            parameters: True parameters without imperfections.
            heat_mw: Shape ``(2E,)`` for E PUCs; heat of each heater.
            common_rad: Phase that the chip's temperature adds to every arm.
            frequency_hz: Optical frequency, scalar or of shape ``(n,)``; the reference frequency by default.
        """
        variations, slopes, sizes = self.variations, self.slopes, self.variations.sizes
        hertz = np.asarray(slopes.reference_hz if frequency_hz is None else frequency_hz, dtype=np.float64)[..., None]
        # Heat changes the optical path by the same length at all nearby wavelengths.
        turns = hertz / slopes.reference_hz
        arms = (
            variations.heaters.own_arm_phase_rad(heat_mw, parameters.heat_per_pi_mw)
            + parameters.spread.arm_rad_per_mw @ heat_mw
        )
        common = common_rad + sizes.chip_heating_rad_per_w * 1e-3 * float(heat_mw.sum())
        detuning_hz = hertz - slopes.reference_hz
        shift = (slopes.eta_slope_per_nm + variations.eta_slope_per_nm) * slopes.nm_per_hz * detuning_hz
        half_db = 0.5 * variations.arm_loss_difference_db
        # No arm may amplify: if the difference exceeds twice the mean, the better arm has no loss.
        mean_db = np.maximum(parameters.loss_db, np.abs(half_db))
        return ChipCells(
            eta_in=parameters.eta_in + shift * self._has_coupler[0],
            eta_out=parameters.eta_out + shift * self._has_coupler[1],
            loss_upper_db=mean_db + half_db + sizes.heat_loss_db_per_mw * heat_mw[0::2],
            loss_lower_db=mean_db - half_db + sizes.heat_loss_db_per_mw * heat_mw[1::2],
            phase_upper=parameters.passive_phase + common + turns * arms[0::2],
            phase_lower=common + turns * arms[1::2],
            joint_phase=parameters.joint_phase + turns * (parameters.spread.joint_rad_per_mw @ heat_mw),
            detuning_hz=detuning_hz,
            delay_s=PUC_DELAY_S,
            differential_slope_per_hz=slopes.differential_slope_per_nm * slopes.nm_per_hz,
        )

    def output_fields(self, cells: ChipCells, ports: Integers) -> Complex:
        """Return the fields at all ports for light of unit power into one port, shape ``(n, n_ports)``.

        Args:
            cells: The chip at one frequency, or at n frequencies.
            ports: Shape ``(n,)``; input port of each calculation.
        """
        fields: Complex = self._solve([cells], ports)[0]
        return fields

    def output_fields_with_tm(self, cells: ChipCells, ports: Integers) -> tuple[Complex, Complex]:
        """Return the TE and TM fields at all ports for light of unit power into one port."""
        tm_upper, tm_joint = self.variations.tm
        eta_in, eta_out = (
            np.broadcast_to(np.where(has_coupler, _TM_ETA, eta), cells.eta_in.shape)
            for has_coupler, eta in zip(self._has_coupler, self._designed_eta, strict=True)
        )
        other = replace(
            cells,
            eta_in=eta_in,
            eta_out=eta_out,
            loss_upper_db=cells.loss_upper_db + _TM_EXTRA_LOSS_DB,
            loss_lower_db=cells.loss_lower_db + _TM_EXTRA_LOSS_DB,
            phase_upper=_TM_HEATER_SHARE * cells.phase_upper + tm_upper,
            phase_lower=_TM_HEATER_SHARE * cells.phase_lower,
            joint_phase=cells.joint_phase + tm_joint,
        )
        solution = self._solve([cells, other], ports)
        return solution[0], solution[1]

    def _solve(self, kinds: list[ChipCells], ports: Integers) -> Complex:
        """Return the fields of TE light, or of TE and TM light; shape ``(1 or 2, n, n_ports)``."""
        transfer = np.stack([cells.transfer() for cells in kinds])
        joint_phase = np.stack([cells.joint_phase for cells in kinds])
        n_kinds, n_pucs, n_joints = len(kinds), self._waves.n_pucs, joint_phase.shape[-1]
        samples = np.arange(transfer.size // (4 * n_pucs)).reshape(n_kinds, -1)
        fields = self._waves.output_fields(
            transfer.reshape(-1, n_pucs, 2, 2),
            joint_phase.reshape(-1, n_joints),
            np.broadcast_to(samples, (n_kinds, len(ports))).ravel(),
            np.tile(ports, n_kinds),
            self.variations.mirrors,
        ).reshape(n_kinds, len(ports), -1)
        amplitude = np.broadcast_to(self._facet_amplitude(kinds[0].detuning_hz), fields.shape[1:])
        passed: Complex = amplitude * amplitude[np.arange(len(ports)), ports][:, None] * fields
        return passed

    def _facet_amplitude(self, detuning_hz: Real) -> Real:
        sizes, variations = self.variations.sizes, self.variations
        passed: Real = np.full(len(variations.ripple_phase), np.sqrt(1.0 - sizes.facet_reflection))
        if sizes.facet_ripple_db:
            wave = np.cos(2.0 * np.pi * detuning_hz / variations.ripple_period_hz + variations.ripple_phase)
            passed = passed * 10.0 ** (-0.5 * sizes.facet_ripple_db * wave / 20.0)
        return passed
