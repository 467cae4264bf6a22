"""Description of a fault that the panel of an emulated module can start."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ModuleFault:
    """Description of one fault of a pluggable module.

    Attributes:
        strength: Default strength.
        strength_meaning: Meaning of the strength; empty for a fault that is only present or absent.
    """

    strength: float
    effect: str
    strength_meaning: str = "1: present"
    low: float = 1.0
    high: float = 1.0
    unit: str = ""
