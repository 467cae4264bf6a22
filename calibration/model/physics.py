"""Table of physical effects that a chip may have beyond the basic model.

Each effect adds independent parameters around zero with a common prior width. The width is estimated from the readings
(:mod:`calibration.fit.growth`). The formulas are in :mod:`calibration.model.mesh_model` (chip) and
:mod:`calibration.model.response` (detectors).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.model.arrays import Real, Single
from calibration.model.observations import OWN_TAUS, SLOW_TAUS_S
from calibration.model.response import GAIN_LEVELS
from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.mesh.waves.shared_return import RETURN_GROUP_SIZES


@dataclass(frozen=True)
class PhysicsRow:
    """One physical effect that a fit may add to the basic model.

    Attributes:
        name: Name of the effect and its parameter group, with the unit.
        description: What the effect is, for records and certificates.
        per: Type of element, as listed in :func:`size_of`; there is one parameter per element.
        usual: Typical prior width.
        largest: Largest prior width of any known chip.
        source: Reference for ``usual`` and ``largest``.
        fitted: Whether a fit may include the effect; otherwise it only increases the errors.
        rare: Whether a fit includes the effect only if no other one explains the readings better than before.
    """

    name: str
    description: str
    per: str
    usual: float
    largest: float
    source: str
    fitted: bool = True
    rare: bool = False


SLOW_CROSSTALK = "slow_crosstalk_share"
"""Name of the effect that a part of the crosstalk arrives late."""
BOTH_ARMS = "both_arms_share"
"""Name of the effect that a heater warms the other arm of its PUC. The law of the heater is the phase difference of the
arms; this share of it is added to both."""
BOTH_ARMS_SCATTER = "both_arms_scatter"
"""Name of the effect that this share differs between heaters, relative to the mean."""
LAW_DEVIATION = "law_deviation"
"""Name of the effect that is never fitted, because records keep laws of three terms."""
PHYSICS: tuple[PhysicsRow, ...] = (
    PhysicsRow("slow_heat_share", "slow heat", "time constant", 1e-3, 0.1, "assumed"),
    PhysicsRow(
        SLOW_CROSSTALK, "crosstalk that arrives late", "time constant of crosstalk", 0.02, 1.0,
        "the part of the heat that goes through the submount (assumed)", rare=True,
    ),
    PhysicsRow(
        "shared_return_per_ma", "drives with a common return", "size of a group", 1e-4, 0.02,
        "some tenths of an ohm of a common return against drives of some hundred ohm to kilo-ohm (assumed)",
    ),
    PhysicsRow(
        "supply_sag_share", "a supply that sags with the cube of the current", "chip", 1e-3, 5e-3,
        "some tenths of a per cent with all heaters at π (assumed)", rare=True,
    ),
    PhysicsRow("heat_loss_db_per_mw", "loss that increases with heat", "chip", 0.002, 0.1, "assumed"),
    PhysicsRow(
        "coupler_rad_per_rad", "couplers that change with the heat of their PUC", "chip", 1e-4, 3e-4,
        "some 1e-4 per kelvin for directional couplers, and some kelvin at the coupler for π (both assumed)",
        rare=True,
    ),
    PhysicsRow(
        BOTH_ARMS, "heat that reaches the other arm of a PUC", "chip", 0.01, 0.2,
        "plain oxide carries at least 3.5 % of a heater's phase over 15 µm, 10 % over 5 µm (Jacques 2019)",
    ),
    PhysicsRow(
        BOTH_ARMS_SCATTER, "differences between heaters in the heat that reaches the other arm", "heater", 0.1, 0.6,
        "relative to the mean; as for other crosstalk",
    ),
    PhysicsRow(
        "crosstalk_directions", "crosstalk that depends on the direction on the die", "direction", 0.05, 0.5,
        "metal lines conduct better than the oxide they lie in (assumed); relative to the kernel",
    ),
    PhysicsRow(
        "crosstalk_sides", "crosstalk that is stronger towards one side of the die", "direction", 0.05, 0.5,
        "an edge, bond pads or a package that cools one side (assumed); relative to the kernel", rare=True,
    ),
    PhysicsRow("compression_per_ma", "compression of monitors", "monitor", 0.02, 0.2, "assumed"),
    PhysicsRow("offset_ma", "offset of monitors under light", "monitor", 1e-4, 0.02, "assumed"),
    PhysicsRow(
        "level_gain", "gain of the monitor amplifiers that changes with the level", "level", 1e-3, 0.02,
        "some 0.1 to 0.5 % between two ranges of an amplifier (assumed); the same at all monitors",
    ),
    PhysicsRow(
        "arm_difference_db", "unequal losses of the arms of a PUC", "puc", 0.03, 0.5,
        "PUC losses spread by 0.03 dB (Sánchez-Jácome 2025); the same is assumed for arms",
    ),
    PhysicsRow("monitor_leak", "leakage between neighbouring monitors", "neighbours", 1e-3, 0.05, "assumed"),
    PhysicsRow(
        "background_share", "stray light that bypasses the mesh", "source and monitor", 3e-5, 3e-3,
        "TM light 25 dB down (AIP Advances 10, 125214), spread over the ports (assumed)",
    ),
    PhysicsRow(
        "facet_reflection", "reflections at facets", "port", 0.013, 0.1,
        "-40 to -30 dB: a field of 0.01 to 0.03, real and imaginary part (assumed)",
    ),
    PhysicsRow(
        "port_ripple_db", "ripple of port losses with wavelength, which differs between sources",
        "source and monitor", 0.02, 1.0, "assumed",
    ),
    PhysicsRow(
        "joint_reflection", "reflections at joints", "joint", 0.003, 0.05,
        "-50 to -40 dB at joints of waveguides: a field of 0.003 to 0.01 (assumed)",
    ),
    PhysicsRow(
        "crosstalk_pairs", "deviations of single pairs from the crosstalk kernel", "pair", 0.1, 0.6,
        "the published kernel explains 0.50 to 0.55 pm of some 1 to 5 pm (Teofilovic 2024); relative to the kernel",
    ),
    PhysicsRow(
        LAW_DEVIATION, "deviations of heater laws from three terms", "point of a law", 2e-4, 0.01,
        "assumed; share of the phase, at points a sixth of a turn apart", fitted=False,
    ),
)  # fmt: skip
"""All effects, the fastest to compute first; effects that are never fitted come last."""
ROWS: dict[str, PhysicsRow] = {row.name: row for row in PHYSICS}
MAX_PAIRS = 300
"""Number of fitted combinations of heater-waveguide pairs."""

LEFT_BY_LAW_TERMS = 0.6
"""Share of a law deviation that a fit of the three terms of a law cannot absorb, rms over heat from a sixth of a turn
to the largest current (independent deviations at the points, linear between them)."""
LAW_POINTS = 8
"""Number of phases, a sixth of a turn apart, at which a heater law is tested for deviations."""
_MAX_TEST_HEATERS = 40


def select_test_heaters(heaters: int) -> NDArray[np.int64]:
    """Return the heaters whose laws are tested for deviations; a sample on a large mesh."""
    return np.linspace(0, heaters - 1, min(heaters, _MAX_TEST_HEATERS)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class PairDirections:
    """Fitted combinations (directions) of pair crosstalk, relative to the crosstalk as a function of distance.

    Attributes:
        curve_rad_per_mw: Shape ``(W, heaters)``, W arms and joints; crosstalk as a function of distance, 0 for own
            arms.
        vectors: Shape ``(heaters, W, K)``; K orthonormal combinations of the relative deviations of all pairs.
    """

    curve_rad_per_mw: Real
    vectors: Single

    @property
    def count(self) -> int:
        """Number of combinations."""
        return int(self.vectors.shape[2])

    def deviation_rad_per_mw(self, coefficients: Real) -> Real:
        """Return the crosstalk deviation, ``(waveguides, heaters)``, for amounts of the K combinations."""
        return self.curve_rad_per_mw * (self.vectors @ coefficients.astype(np.float32)).T

    def coefficients(self, deviation_rad_per_mw: Real) -> Real:
        """Return the amounts of the K combinations in a crosstalk deviation, shape ``(K,)``."""
        curve = self.curve_rad_per_mw
        relative = np.divide(deviation_rad_per_mw, curve, out=np.zeros_like(curve), where=curve > 0.0)
        return np.tensordot(relative.T, self.vectors.astype(np.float64), axes=2)

    @cached_property
    def _by_heat(self) -> Single:
        """Shape ``(heaters, W·K)``; derivatives of W phases by K combinations, per mW of each heater."""
        weighted: Single = self.vectors * self.curve_rad_per_mw.T[..., None].astype(np.float32)
        return weighted.reshape(len(weighted), -1)

    def phases(self, heat_mw: Real) -> Single:
        """Return derivatives of waveguide phases by the K combinations, ``(settings, waveguides, K)``."""
        phases: Single = heat_mw.astype(np.float32) @ self._by_heat
        return phases.reshape(len(heat_mw), *self.vectors.shape[1:])

    def unfitted_variance(self, by_waveguide: NDArray[np.floating[Any]], heat_mw: Real) -> Real:
        """Return the variance of readings, ``(settings, monitors)``, due to unfitted pair crosstalk of width 1.

        ``by_waveguide`` are the derivatives of readings by the phases of arms and joints.
        """
        every = heat_mw**2 @ self.curve_rad_per_mw.T**2
        spread = (by_waveguide**2 @ every[..., None])[..., 0]
        fitted = by_waveguide.astype(np.float32) @ self.phases(heat_mw)
        variance: Real = np.maximum(spread - np.einsum("nmk,nmk->nm", fitted, fitted), 0.0)
        return variance

    def summed(self, by_pair: Real) -> Real:
        """Convert derivatives by single pairs, ``(waveguides, heaters)``, to those by the K combinations."""
        weighted = (by_pair * self.curve_rad_per_mw).T.astype(np.float32)
        return np.tensordot(weighted, self.vectors, axes=2).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Physics:
    """Additional physical effects that a model includes.

    Attributes:
        widths: Prior widths of the parameters, by effect.
        pairs: Combinations of pair crosstalk, if included.
        fixed_values: Fixed parameter values, by effect.
        field_error: Relative error of predicted fields that no included effect explains; readings have a larger
            variance because of it (:mod:`calibration.model.likelihood`).
        law_deviation: Relative deviation of heater phases from their laws, rms; also counted as noise of readings.
        unsteady: Relative changes of the phases of single heaters during the run, by heater; counted as noise, too.
    """

    widths: Mapping[str, float] = field(default_factory=dict)
    pairs: PairDirections | None = None
    fixed_values: Mapping[str, Real] = field(default_factory=dict)
    field_error: float = 0.0
    law_deviation: float = 0.0
    unsteady: Mapping[int, float] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the included effects, in the order of the table ``PHYSICS``."""
        return tuple(row.name for row in PHYSICS if row.name in self.widths)

    def having(self, name: str, width: float, pairs: PairDirections | None = None) -> Physics:
        """Return a copy with one more effect, or with another prior width."""
        widths = {row.name: self.widths.get(row.name, width) for row in PHYSICS if row.name in (*self.widths, name)}
        return replace(self, widths=widths | {name: width}, pairs=pairs or self.pairs)

    def size(self, name: str, mesh: MeshTopology, n_sources: int, n_monitors: int) -> int:
        """Return the number of parameters of an included effect."""
        if name == "crosstalk_pairs":
            return self.pairs.count if self.pairs else 0
        return size_of(ROWS[name], mesh, n_sources, n_monitors)


def size_of(row: PhysicsRow, mesh: MeshTopology, n_sources: int, n_monitors: int) -> int:
    """Return the number of parameters of an effect; for pair crosstalk, the number of all pairs."""
    waveguides = 2 * mesh.n_pucs + len(mesh.joints)
    sizes: dict[str, int] = {
        "time constant": OWN_TAUS,
        "time constant of crosstalk": len(SLOW_TAUS_S),
        "size of a group": 2 * len(RETURN_GROUP_SIZES),
        "chip": 1,
        "direction": 2,
        "heater": 2 * mesh.n_pucs,
        "puc": mesh.n_pucs,
        "monitor": n_monitors,
        "neighbours": 2 * (n_monitors - 1),
        "source and monitor": n_sources * n_monitors,
        "port": 2 * mesh.n_ports,
        "level": len(GAIN_LEVELS),
        "joint": 4 * len(mesh.joints),
        "point of a law": LAW_POINTS * len(select_test_heaters(2 * mesh.n_pucs)),
        "pair": waveguides * 2 * mesh.n_pucs,
    }
    return sizes[row.per]
