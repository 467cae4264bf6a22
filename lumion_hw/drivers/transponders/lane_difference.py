"""Different powers of lanes that share a fibre."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from lumion_hw.drivers.transponders.qsfp_monitors import DARK_DBM

KIND = "lane_difference"
"""Kind of a finding about lanes with different powers."""
Power = Literal["tx_power", "rx_power"]
_TEXTS: Mapping[Power, tuple[str, str]] = {
    "tx_power": ("launches", "A laser is weak: replace the module."),
    "rx_power": (
        "receives",
        "Read the launched powers at the far end. If they are equal, the path has more loss at this wavelength: use "
        "another path. If they differ, replace the module at the far end.",
    ),
}


@dataclass(frozen=True)
class LaneLimits:
    """Largest allowed power difference between two lanes of a fibre, in dB.

    The standards compare modulation amplitudes (OMA). Equal extinction ratios of all lanes are assumed here, so that
    average powers may be compared. Module monitors have errors of up to 3 dB (SFF-8636 clause 6.2.4).
    """

    tx_power: float
    rx_power: float


LR4 = LaneLimits(5.0, 5.5)
"""100GBASE-LR4 (IEEE 802.3 Tables 88-7 and 88-8); used for all modules except those of 40GBASE-LR4."""
LR4_40G = LaneLimits(6.5, 7.5)
"""40GBASE-LR4 (IEEE 802.3 Tables 87-7 and 87-8)."""


def describe_difference(power: Power, powers_dbm: Mapping[int, float | None], limits: LaneLimits = LR4) -> str:
    """Return which lanes are too weak, by how much, and what to do; empty if no lane is too weak.

    Dark lanes (at most -30 dBm) are not compared: their transmitter is off, or the receiver reports loss of signal.

    Args:
        power: Name of the power.
        powers_dbm: Power of each lane in one fibre in dBm; ``None`` if it is not measured or below the range.
        limits: Largest allowed differences.
    """
    lit = {lane: level for lane, level in powers_dbm.items() if level is not None and level > DARK_DBM}
    if not lit:
        return ""
    strongest, limit_db = max(lit, key=lambda lane: lit[lane]), getattr(limits, power)
    verb, advice = _TEXTS[power]
    weak = [
        f"lane {lane} {verb} {level:.1f} dBm, {lit[strongest] - level:.1f} dB less than lane {strongest}"
        for lane, level in sorted(lit.items())
        if lit[strongest] - level > limit_db
    ]
    return f"{'; '.join(weak)} (limit {limit_db:g} dB). {advice}" if weak else ""
