"""What a real chip does beyond the model of a calibration: one row per effect, with a size for each kind of chip.

Sizes are those of a decent foundry chip (``realistic``) and of one that its maker would not show (``harsh``). Where no
source gives a figure it is an assumption, and says so.
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
        does: What it does, in a sentence.
        realistic: Size on a decent chip.
        harsh: Size on a poor one.
        most: Largest size that can be asked for: far beyond any chip, for trials of what a calibration refuses.
        source: Where the sizes are from.
    """

    name: str
    does: str
    realistic: float
    harsh: float
    most: float
    source: str


CHIP_EFFECTS = (
    ChipEffect(
        "arm_loss_difference_db",
        "Loss of the upper arm over the lower, rms over the PUCs.",
        0.01,
        0.05,
        6.0,
        "assumed: 0.81 mm of waveguide at 1.5 to 2.5 dB/cm lose 0.16 dB, of which arms differ by some per cent",
    ),
    ChipEffect(
        "crosstalk_scatter",
        "Lognormal spread of the crosstalk of each pair of heater and waveguide about its curve.",
        0.1,
        0.3,
        2.0,
        "Teofilovic 2024: ridge regression leaves 0.43 pm of shifts of 0.2 to 1 pm",
    ),
    ChipEffect(
        "crosstalk_edge",
        "Relative rise of the crosstalk of heaters at the die's edge, where heat has half the room to spread.",
        0.1,
        0.3,
        2.0,
        "assumed: an edge that conducts no heat is an image source, which doubles it in the limit",
    ),
    ChipEffect(
        "crosstalk_routing",
        "Relative rise of crosstalk along the metal lines (x), and fall across them (y).",
        0.05,
        0.2,
        0.9,
        "assumed: aluminium conducts better than the oxide it lies in",
    ),
    ChipEffect(
        "slow_heat_share",
        "Share of all phase that comes with a second time constant of 20 ms, that of substrate and package.",
        0.001,
        0.01,
        0.5,
        "assumed",
    ),
    ChipEffect(
        "chip_heating_rad_per_w",
        "Phase of every arm for a watt of all heaters together: the rise of the die that its control does not see.",
        0.03,
        0.2,
        20.0,
        "0.6 rad/K of a PUC (silicon, 1.86e-4 /K) times 0.05 and 0.3 K/W (assumed)",
    ),
    ChipEffect(
        "heater_contact_ohm",
        "Resistance of the contacts, whose heat does not follow the law of the heater; a tenth of it reaches the arm.",
        10.0,
        50.0,
        1000.0,
        "assumed: 1 to 5 % of the heater",
    ),
    ChipEffect(
        "heater_irregularity",
        "Irregular part of the phase over the heat, rms, as a share of it.",
        2e-4,
        2e-3,
        0.2,
        "assumed",
    ),
    ChipEffect(
        "ground_return_share",
        "Share of its current that a heater loses while all others of its group of twelve carry 3 mA.",
        2e-4,
        2e-3,
        0.5,
        "assumed: some tenths of an ohm of common return over a drive of finite output resistance",
    ),
    ChipEffect(
        "photodiode_compression_per_ma",
        "Relative fall of the responsivity per mA.",
        0.004,
        0.02,
        1.0,
        "assumed: germanium diodes under bias are linear within 0.2 to 1 % at 0.5 mA",
    ),
    ChipEffect(
        "photodiode_leakage",
        "Share of the current of neighbouring channels that is read in a channel.",
        1e-5,
        3e-4,
        0.2,
        "assumed: -50 and -35 dB",
    ),
    ChipEffect(
        "photodiode_offset_drift_na",
        "Wandering of a photodiode's dark reading with a correlation time of ten minutes, rms.",
        0.3,
        3.0,
        1e5,
        "assumed",
    ),
    ChipEffect(
        "facet_reflection",
        "Share of the power that a facet sends back: light then runs both ways.",
        1e-4,
        1e-3,
        0.5,
        "-40 to -30 dB: angled or coated facets",
    ),
    ChipEffect(
        "joint_reflection",
        "Share of the power that a joint between two PUCs sends back.",
        1e-5,
        1e-4,
        0.5,
        "assumed: -50 and -40 dB",
    ),
    ChipEffect(
        "tm_path",
        "Share of the TM light that has entered that goes its own way, through other couplers and past weaker heaters.",
        1.0,
        1.0,
        1.0,
        "TE and TM differ in index and confinement; that they go one way is the simplification of `ideal`",
    ),
    ChipEffect(
        "facet_ripple_db",
        "Ripple of a port's loss over wavelength, peak to peak, with a period of 20 to 100 GHz.",
        0.02,
        0.2,
        10.0,
        "assumed: an etalon between facets of -30 and -20 dB, partly out of phase",
    ),
    ChipEffect(
        "heat_loss_db_per_mw",
        "Loss of an arm for a mW of its own heat.",
        2e-4,
        2e-3,
        1.0,
        "assumed",
    ),
    ChipEffect(
        "coupler_slope_sigma_per_nm",
        "Spread over the PUCs of the slope of their couplers' splitting.",
        1e-4,
        4e-4,
        0.1,
        "Sánchez-Jácome 2025: isolation bandwidths of 30 to 65 nm",
    ),
)


@dataclass(frozen=True)
class EffectSizes:
    """Size of every effect; all are 0 on an ideal chip. What each is, :data:`CHIP_EFFECTS` says."""

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
    def of(cls, physics: Physics, others: Mapping[str, float] | None = None) -> EffectSizes:
        """Return the sizes of a kind of chip.

        Args:
            physics: Kind of chip.
            others: Sizes in the place of those of that kind, by name.
        """
        sizes = cls()
        if physics != "ideal":
            sizes = cls(**{effect.name: float(getattr(effect, physics)) for effect in CHIP_EFFECTS})
        return replace(sizes, **(others or {}))

    @property
    def any(self) -> bool:
        """Whether there is any effect at all."""
        return any(getattr(self, each.name) != 0.0 for each in fields(self))
