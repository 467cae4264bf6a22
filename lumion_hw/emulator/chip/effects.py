"""Effects of a real chip beyond the model of a calibration: one row per effect, with a size for each quality of chip.

Sizes are those of a good foundry chip (``realistic``) and of a very poor one (``harsh``). A size without a source is
marked as assumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Literal

Physics = Literal["ideal", "realistic", "harsh"]


@dataclass(frozen=True)
class ChipEffect:
    """One effect.

    Attributes:
        name: Key in the bench file, with its unit.
        description: Effect in one sentence.
        realistic: Size on a good chip.
        harsh: Size on a poor chip.
        max_size: Largest allowed size: far beyond any chip, to test that a calibration rejects it.
        source: Source of the sizes.
    """

    name: str
    description: str
    realistic: float
    harsh: float
    max_size: float
    source: str


CHIP_EFFECTS = (
    ChipEffect(
        "arm_loss_difference_db",
        "Loss of the upper arm minus the lower, rms over the PUCs.",
        0.01,
        0.05,
        6.0,
        "assumed: 0.81 mm of waveguide at 1.5 to 2.5 dB/cm loses 0.16 dB; arms differ by a few per cent of it",
    ),
    ChipEffect(
        "crosstalk_scatter",
        "Lognormal spread of the crosstalk between each heater and waveguide about the mean curve.",
        0.1,
        0.3,
        2.0,
        "Teofilovic 2024: ridge regression leaves a residual of 0.43 pm for shifts of 0.2 to 1 pm",
    ),
    ChipEffect(
        "crosstalk_edge",
        "Relative increase of crosstalk from heaters at the die's edge, where heat spreads to one side only.",
        0.1,
        0.3,
        2.0,
        "assumed: an edge that conducts no heat acts as an image source, which at most doubles the crosstalk",
    ),
    ChipEffect(
        "crosstalk_routing",
        "Relative increase of crosstalk along the metal lines (x), and decrease across them (y).",
        0.05,
        0.2,
        0.9,
        "assumed: aluminium conducts heat better than the surrounding oxide",
    ),
    ChipEffect(
        "slow_heat_share",
        "Share of the heater phase that follows with a time constant of 20 ms, from substrate and package.",
        0.001,
        0.01,
        0.5,
        "assumed",
    ),
    ChipEffect(
        "chip_heating_rad_per_w",
        "Phase of every arm per watt of total heater power, from die heating that the controller misses.",
        0.03,
        0.2,
        20.0,
        "0.6 rad/K of a PUC (silicon, 1.86e-4 /K) times 0.05 and 0.3 K/W (assumed)",
    ),
    ChipEffect(
        "heater_contact_ohm",
        "Contact resistance. Its heat does not follow the heater's law; a tenth of it reaches the arm.",
        10.0,
        50.0,
        1000.0,
        "assumed: 1 to 5 % of the heater",
    ),
    ChipEffect(
        "heater_irregularity",
        "Irregular part of the phase as a function of heat, rms, relative to the phase.",
        2e-4,
        2e-3,
        0.2,
        "assumed",
    ),
    ChipEffect(
        "ground_return_share",
        "Share of its current that a heater loses while the others of its group of twelve carry 3 mA each.",
        2e-4,
        2e-3,
        0.5,
        "assumed: a few tenths of an ohm in the common return, and a drive with finite output resistance",
    ),
    ChipEffect(
        "photodiode_compression_per_ma",
        "Relative decrease of the responsivity per mA.",
        0.004,
        0.02,
        1.0,
        "assumed: germanium diodes under bias are linear within 0.2 to 1 % at 0.5 mA",
    ),
    ChipEffect(
        "photodiode_leakage",
        "Share of the current of each neighbouring channel that a channel reads.",
        1e-5,
        3e-4,
        0.2,
        "assumed: -50 and -35 dB",
    ),
    ChipEffect(
        "photodiode_offset_drift_na",
        "Drift of a photodiode's dark reading, rms, with a correlation time of ten minutes.",
        0.3,
        3.0,
        1e5,
        "assumed",
    ),
    ChipEffect(
        "facet_reflection",
        "Share of the power that a facet reflects; light then runs in both directions.",
        1e-4,
        1e-3,
        0.5,
        "-40 to -30 dB: angled or coated facets",
    ),
    ChipEffect(
        "joint_reflection",
        "Share of the power that a joint between two PUCs reflects.",
        1e-5,
        1e-4,
        0.5,
        "assumed: -50 and -40 dB",
    ),
    ChipEffect(
        "tm_path",
        "Share of the TM light in the mesh that is modelled with its own path: other couplers and weaker heaters.",
        1.0,
        1.0,
        1.0,
        "TE and TM differ in index and confinement; `ideal` simplifies and sends both along one path",
    ),
    ChipEffect(
        "facet_ripple_db",
        "Ripple of a port's loss against frequency, peak to peak, with a period of 20 to 100 GHz.",
        0.02,
        0.2,
        10.0,
        "assumed: an etalon between facets of -30 and -20 dB, partly out of phase",
    ),
    ChipEffect(
        "heat_loss_db_per_mw",
        "Loss of an arm per mW of its own heat.",
        2e-4,
        2e-3,
        1.0,
        "assumed",
    ),
    ChipEffect(
        "coupler_slope_sigma_per_nm",
        "Standard deviation over the PUCs of the slope of the coupler splitting.",
        1e-4,
        4e-4,
        0.1,
        "Sánchez-Jácome 2025: isolation bandwidths of 30 to 65 nm",
    ),
)


@dataclass(frozen=True)
class EffectSizes:
    """Size of each effect, described in :data:`CHIP_EFFECTS`; all are 0 on an ideal chip."""

    arm_loss_difference_db: float = 0.0
    crosstalk_scatter: float = 0.0
    crosstalk_edge: float = 0.0
    crosstalk_routing: float = 0.0
    slow_heat_share: float = 0.0
    chip_heating_rad_per_w: float = 0.0
    heater_contact_ohm: float = 0.0
    heater_irregularity: float = 0.0
    ground_return_share: float = 0.0
    photodiode_compression_per_ma: float = 0.0
    photodiode_leakage: float = 0.0
    photodiode_offset_drift_na: float = 0.0
    facet_reflection: float = 0.0
    joint_reflection: float = 0.0
    tm_path: float = 0.0
    facet_ripple_db: float = 0.0
    heat_loss_db_per_mw: float = 0.0
    coupler_slope_sigma_per_nm: float = 0.0

    @classmethod
    def for_chip(cls, physics: Physics, others: Mapping[str, float] | None = None) -> EffectSizes:
        """Return the sizes for a quality of chip.

        Args:
            physics: Quality of the chip.
            others: Sizes that replace the default ones, by name.
        """
        sizes = cls()
        if physics != "ideal":
            sizes = cls(**{effect.name: float(getattr(effect, physics)) for effect in CHIP_EFFECTS})
        return replace(sizes, **(others or {}))

    @property
    def has_any(self) -> bool:
        """Whether any effect is present."""
        return any(getattr(self, field.name) != 0.0 for field in fields(self))
