"""The emulated chip as a whole: from heat, frequency and an input to the fields at all ports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lumion_hw.emulator.chip.cell import ChipCells
from lumion_hw.emulator.chip.effects import EffectSizes
from lumion_hw.emulator.chip.heat_spread import HeatSpread
from lumion_hw.emulator.chip.heaters import HeaterDraws
from lumion_hw.emulator.chip.waves import Mirrors, Waves
from lumion_hw.mesh.layout.topology import MeshTopology

Real = NDArray[np.float64]
Complex = NDArray[np.complex128]
Integers = NDArray[np.int64]

PUC_DELAY_S = 11.25e-12
"""Basic unit delay (Sánchez-Jácome 2025)."""
_TM_HEATER_SHARE = 0.6
"""Of the phase a heater gives TE: TM is less confined in a flat strip (assumed)."""
_TM_ETA, _TM_EXTRA_LOSS_DB = 0.2, 1.0
"""Couplers made for TE couple TM otherwise, and bends lose more of it (assumed)."""
_RIPPLE_PERIODS_HZ = (20e9, 100e9)


@dataclass(frozen=True, eq=False)
class ChipDraws:
    """What is drawn of a chip beyond what every chip has. E PUCs, J joints, P ports.

    Attributes:
        sizes: Sizes of the effects.
        heaters: Of the heaters.
        arm_loss_difference_db: Shape ``(E,)``; loss of the upper arm over the lower.
        eta_slope_per_nm: Shape ``(E,)``; slope of the couplers over that of all.
        ripple_period_hz: Shape ``(P,)``.
        ripple_phase: Shape ``(P,)``.
        mirrors: What joints and facets send back; ``None`` for nothing.
        tm: Passive phases that TM meets, of upper arms and joints; shapes ``(E,)`` and ``(J,)``.
    """

    sizes: EffectSizes
    heaters: HeaterDraws
    arm_loss_difference_db: Real
    eta_slope_per_nm: Real
    ripple_period_hz: Real
    ripple_phase: Real
    mirrors: Mirrors | None
    tm: tuple[Real, Real]

    @classmethod
    def drawn(
        cls,
        mesh: MeshTopology,
        sizes: EffectSizes,
        rng: np.random.Generator,
        heater_channels: Sequence[int] | None = None,
    ) -> ChipDraws:
        """Draw a chip; the order of the draws is part of a seed.

        Args:
            mesh: Its graph.
            sizes: Effects.
            rng: Draws it.
            heater_channels: Drive channel of every heater; channel k drives heater k if not given.
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
            # [[j√r·e^{jδ}, √(1-r)], [√(1-r), j√r·e^{-jδ}]]: no power is lost or made at a joint.
            amplitude = 1j * np.sqrt(sizes.joint_reflection)
            mirrors = Mirrors(
                facet=np.sqrt(sizes.facet_reflection) * back[1],
                joint=np.concatenate([amplitude * back[0], amplitude * back[0].conj()]),
                passed=np.full(n_joints, np.sqrt(1.0 - sizes.joint_reflection), dtype=np.complex128),
            )
        channels = range(2 * n_pucs) if heater_channels is None else heater_channels
        heaters = HeaterDraws.drawn(channels, sizes, rng)
        return cls(sizes, heaters, differences, slopes, periods, phases, mirrors, tm)


@dataclass(frozen=True, eq=False)
class ChipParts:
    """What every chip has; the hidden truth of a bench. Attributes as of ``MeshTruth``."""

    loss_db: Real
    eta_in: Real
    eta_out: Real
    passive_phase: Real
    joint_phase: Real
    heat_per_pi_mw: Real
    spread: HeatSpread


@dataclass(frozen=True)
class ChipSlopes:
    """How a chip follows the frequency of light.

    Attributes:
        reference_hz: Frequency at which splittings and phases hold.
        nm_per_hz: Change of wavelength per Hz, negative.
        eta_slope_per_nm: Change of splittings.
        differential_slope_per_nm: Change of the phase of upper arms over lower ones, rad.
    """

    reference_hz: float
    nm_per_hz: float
    eta_slope_per_nm: float
    differential_slope_per_nm: float


class Chip:
    """Light through the chip.

    Args:
        mesh: Its graph.
        draws: What was drawn of it.
        slopes: How it follows the frequency.
    """

    def __init__(self, mesh: MeshTopology, draws: ChipDraws, slopes: ChipSlopes) -> None:
        self.draws, self.slopes = draws, slopes
        self._waves = Waves(mesh, sends_back=draws.mirrors is not None)

    def cells(self, parts: ChipParts, heat_mw: Real, common_rad: float, frequency_hz: float | Real | None) -> ChipCells:
        """Return all cells at some heat.

        Args:
            parts: The hidden truth.
            heat_mw: Shape ``(2E,)``; heat of every heater.
            common_rad: Phase of all arms by the temperature of the chip.
            frequency_hz: Optical frequency, or several of shape ``(n,)``; the reference if not given.
        """
        draws, slopes, sizes = self.draws, self.slopes, self.draws.sizes
        hertz = np.asarray(slopes.reference_hz if frequency_hz is None else frequency_hz, dtype=np.float64)[..., None]
        # What heat adds to the optical path is the same length at every wavelength nearby.
        turns = hertz / slopes.reference_hz
        arms = draws.heaters.own_phase_rad(heat_mw, parts.heat_per_pi_mw) + parts.spread.arm_rad_per_mw @ heat_mw
        common = common_rad + sizes.chip_heating_rad_per_w * 1e-3 * float(heat_mw.sum())
        detuning_hz = hertz - slopes.reference_hz
        shift = (slopes.eta_slope_per_nm + draws.eta_slope_per_nm) * slopes.nm_per_hz * detuning_hz
        half_db = 0.5 * draws.arm_loss_difference_db
        # No arm gives light, however far the two are apart: beyond twice the mean the better one has no loss.
        mean_db = np.maximum(parts.loss_db, np.abs(half_db))
        return ChipCells(
            eta_in=parts.eta_in + shift,
            eta_out=parts.eta_out + shift,
            loss_upper_db=mean_db + half_db + sizes.heat_loss_db_per_mw * heat_mw[0::2],
            loss_lower_db=mean_db - half_db + sizes.heat_loss_db_per_mw * heat_mw[1::2],
            phase_upper=parts.passive_phase + common + turns * arms[0::2],
            phase_lower=common + turns * arms[1::2],
            joint_phase=parts.joint_phase + turns * (parts.spread.joint_rad_per_mw @ heat_mw),
            detuning_hz=detuning_hz,
            delay_s=PUC_DELAY_S,
            differential_slope_per_hz=slopes.differential_slope_per_nm * slopes.nm_per_hz,
        )

    def leaving(self, cells: ChipCells, ports: Integers) -> Complex:
        """Return the fields that leave all ports for unit light that comes to one.

        Args:
            cells: The chip at one frequency, or at as many as there are ports.
            ports: Shape ``(n,)``; where light comes in, each for itself.

        Returns:
            Shape ``(n, n_ports)``.
        """
        fields: Complex = self._solved([cells], ports)[0]
        return fields

    def leaving_with_tm(self, cells: ChipCells, ports: Integers) -> tuple[Complex, Complex]:
        """Return the same, and beside it that of TM, which meets other couplers, less heat and more loss."""
        tm_upper, tm_joint = self.draws.tm
        eta = np.full(cells.eta_in.shape, _TM_ETA)
        other = replace(
            cells,
            eta_in=eta,
            eta_out=eta,
            loss_upper_db=cells.loss_upper_db + _TM_EXTRA_LOSS_DB,
            loss_lower_db=cells.loss_lower_db + _TM_EXTRA_LOSS_DB,
            phase_upper=_TM_HEATER_SHARE * cells.phase_upper + tm_upper,
            phase_lower=_TM_HEATER_SHARE * cells.phase_lower,
            joint_phase=cells.joint_phase + tm_joint,
        )
        found = self._solved([cells, other], ports)
        return found[0], found[1]

    def _solved(self, kinds: list[ChipCells], ports: Integers) -> Complex:
        """Return the fields for light of several kinds, all in one elimination, shape ``(kinds, n, n_ports)``."""
        transfer = np.stack([cells.transfer() for cells in kinds])
        joint_phase = np.stack([cells.joint_phase for cells in kinds])
        n_kinds, n_pucs, n_joints = len(kinds), self._waves.n_pucs, joint_phase.shape[-1]
        samples = np.arange(transfer.size // (4 * n_pucs)).reshape(n_kinds, -1)
        fields = self._waves.leaving(
            transfer.reshape(-1, n_pucs, 2, 2),
            joint_phase.reshape(-1, n_joints),
            np.broadcast_to(samples, (n_kinds, len(ports))).ravel(),
            np.tile(ports, n_kinds),
            self.draws.mirrors,
        ).reshape(n_kinds, len(ports), -1)
        amplitude = np.broadcast_to(self._facets(kinds[0].detuning_hz), fields.shape[1:])
        passed: Complex = amplitude * amplitude[np.arange(len(ports)), ports][:, None] * fields
        return passed

    def _facets(self, detuning_hz: Real) -> Real:
        """Return the amplitude that passes every facet: what is not sent back, times its ripple."""
        sizes, draws = self.draws.sizes, self.draws
        passed: Real = np.full(len(draws.ripple_phase), np.sqrt(1.0 - sizes.facet_reflection))
        if sizes.facet_ripple_db:
            wave = np.cos(2.0 * np.pi * detuning_hz / draws.ripple_period_hz + draws.ripple_phase)
            passed = passed * 10.0 ** (-0.5 * sizes.facet_ripple_db * wave / 20.0)
        return passed
