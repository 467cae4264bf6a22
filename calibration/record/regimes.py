"""Regimes in which a record is used; the light of each is judged by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from lumion_hw.mesh.record.calibration_record import USES, Use

Kind = Literal["random", "states", "single", "turns", "hot", "changed", "cold", "rested", "repeated"]


@dataclass(frozen=True)
class Regime:
    """A kind of settings in which a record is used.

    Attributes:
        uses: Uses for which a record is not certified if its light is wrong in this regime.
        description: What is set, for sentences.
    """

    uses: tuple[Use, ...]
    description: str


REGIMES: Mapping[Kind, Regime] = {
    "random": Regime(("matrices",), "with random currents"),
    "states": Regime(("switching",), "in bar and cross states"),
    "single": Regime(("single heaters",), "with one heater alone"),
    "turns": Regime(("matrices",), "with random phases of up to a turn in every PUC"),
    "hot": Regime(("matrices",), "with all heaters hot"),
    "changed": Regime(USES, "right after a large change"),
    "cold": Regime(USES, "with all heaters off"),
    "rested": Regime(USES, "right after a long pause"),
    "repeated": Regime(USES, "in the first settings, measured again at the end"),
}
"""All regimes. The first two are those of every verification; the others are measured at the end of a calibration."""
