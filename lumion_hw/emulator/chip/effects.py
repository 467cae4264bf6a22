"""Imperfections of a real chip that a calibration does not model, with sizes for a good and for a poor chip.

A size without a source is marked as assumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

Physics = Literal["ideal", "realistic", "harsh"]


@dataclass(frozen=True)
class ChipEffect:
    """One imperfection of the emulated chip.

    Attributes:
        name: Key in the bench file, with unit.
        realistic: Size on a good foundry chip.
        harsh: Size on a very poor chip.
        max_size: Largest allowed size, beyond any real chip.
    """

    name: str
    description: str
    realistic: float
    harsh: float
    max_size: float
    source: str


def _effect(description: str, *, realistic: float, harsh: float, max_size: float, source: str) -> Any:
    row = {"description": description, "realistic": realistic, "harsh": harsh, "max_size": max_size, "source": source}
    return field(default=0.0, metadata=row)


@dataclass(frozen=True)
class EffectSizes:
    """Size of each imperfection of the chip; 0 on an ideal chip. :data:`CHIP_EFFECTS` lists the descriptions."""

    arm_loss_difference_db: float = _effect(
        "Loss of the upper arm minus the lower, rms over the PUCs.",
        realistic=0.01,
        harsh=0.05,
        max_size=6.0,
        source="assumed: 0.81 mm of waveguide at 1.5 to 2.5 dB/cm loses 0.16 dB; arms differ by a few per cent of it",
    )
    crosstalk_scatter: float = _effect(
        "Lognormal spread of the crosstalk between single heaters and waveguides about the mean at their distance.",
        realistic=0.1,
        harsh=0.3,
        max_size=2.0,
        source="Teofilovic 2024: ridge regression leaves a residual of 0.43 pm for shifts of 0.2 to 1 pm",
    )
    crosstalk_edge: float = _effect(
        "Relative increase of crosstalk from heaters at the die's edge, where heat spreads to one side only.",
        realistic=0.1,
        harsh=0.3,
        max_size=2.0,
        source="assumed: an edge that conducts no heat acts as an image source, which at most doubles the crosstalk",
    )
    crosstalk_routing: float = _effect(
        "Relative increase of crosstalk along the metal lines (x), and decrease across them (y).",
        realistic=0.05,
        harsh=0.2,
        max_size=0.9,
        source="assumed: aluminium conducts heat better than the surrounding oxide",
    )
    slow_heat_share: float = _effect(
        "Share of a heater's phase shift that settles with a time constant of 20 ms, as substrate and package warm up.",
        realistic=0.001,
        harsh=0.01,
        max_size=0.5,
        source="assumed",
    )
    chip_heating_rad_per_w: float = _effect(
        "Phase of every arm per watt of total heater power: die heating that the temperature controller does not see.",
        realistic=0.03,
        harsh=0.2,
        max_size=20.0,
        source="0.6 rad/K of a PUC (silicon, 1.86e-4 /K) times 0.05 and 0.3 K/W (assumed)",
    )
    heater_contact_ohm: float = _effect(
        "Resistance of a heater's contacts, independent of temperature; a tenth of the contacts' heat reaches the arm.",
        realistic=10.0,
        harsh=50.0,
        max_size=1000.0,
        source="assumed: 1 to 5 % of the heater",
    )
    heater_irregularity: float = _effect(
        "Irregular part of a heater's phase shift as a function of its heat: rms, relative to the phase shift.",
        realistic=2e-4,
        harsh=2e-3,
        max_size=0.2,
        source="assumed",
    )
    ground_return_share: float = _effect(
        "Share of its current that a heater loses while the other eleven on its ground return carry 3 mA each.",
        realistic=2e-4,
        harsh=2e-3,
        max_size=0.5,
        source="assumed: a few tenths of an ohm in the common return, and a drive with finite output resistance",
    )
    photodiode_compression_per_ma: float = _effect(
        "Relative decrease of a photodiode's responsivity per mA of photocurrent.",
        realistic=0.004,
        harsh=0.02,
        max_size=1.0,
        source="assumed: germanium diodes under bias are linear within 0.2 to 1 % at 0.5 mA",
    )
    photodiode_leakage: float = _effect(
        "Share of each neighbouring channel's photocurrent that a channel reads in addition to its own.",
        realistic=1e-5,
        harsh=3e-4,
        max_size=0.2,
        source="assumed: -50 and -35 dB",
    )
    photodiode_offset_drift_na: float = _effect(
        "Drift of a photodiode's dark reading, rms, with a correlation time of ten minutes.",
        realistic=0.3,
        harsh=3.0,
        max_size=1e5,
        source="assumed",
    )
    facet_reflection: float = _effect(
        "Share of the power that a facet reflects; light then runs in both directions.",
        realistic=1e-4,
        harsh=1e-3,
        max_size=0.5,
        source="-40 to -30 dB: angled or coated facets",
    )
    joint_reflection: float = _effect(
        "Share of the power that a joint between two PUCs reflects.",
        realistic=1e-5,
        harsh=1e-4,
        max_size=0.5,
        source="assumed: -50 and -40 dB",
    )
    tm_path: float = _effect(
        "Share of the TM light that is computed separately, because couplers and heaters act differently on TM.",
        realistic=1.0,
        harsh=1.0,
        max_size=1.0,
        source="TE and TM differ in index and confinement; `ideal` simplifies and sends both along one path",
    )
    facet_ripple_db: float = _effect(
        "Ripple of a port's loss against frequency, peak to peak, with a period of 20 to 100 GHz.",
        realistic=0.02,
        harsh=0.2,
        max_size=10.0,
        source="assumed: an etalon between facets of -30 and -20 dB, partly out of phase",
    )
    heat_loss_db_per_mw: float = _effect(
        "Loss of an arm per mW of its own heat.",
        realistic=2e-4,
        harsh=2e-3,
        max_size=1.0,
        source="assumed",
    )
    coupler_slope_sigma_per_nm: float = _effect(
        "Slope of the coupler splitting against wavelength: standard deviation over the PUCs.",
        realistic=1e-4,
        harsh=4e-4,
        max_size=0.1,
        source="Sánchez-Jácome 2025: isolation bandwidths of 30 to 65 nm",
    )

    @classmethod
    def for_chip(cls, physics: Physics, other_sizes: Mapping[str, float] | None = None) -> EffectSizes:
        """Return the sizes of all imperfections for a quality of chip. ``other_sizes`` replaces sizes by name."""
        sizes = cls()
        if physics != "ideal":
            sizes = cls(**{effect.name: float(getattr(effect, physics)) for effect in CHIP_EFFECTS})
        return replace(sizes, **(other_sizes or {}))

    @property
    def has_any(self) -> bool:
        """Whether any imperfection has a size other than 0."""
        return any(getattr(self, item.name) != 0.0 for item in fields(self))


CHIP_EFFECTS = tuple(ChipEffect(item.name, **item.metadata) for item in fields(EffectSizes))
"""All imperfections, in the order of :class:`EffectSizes`."""
