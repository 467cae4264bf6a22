"""What a device is for on a bench, whatever its kind."""

from __future__ import annotations

import enum


class Role(enum.Enum):
    """Where an open device is found, and what it is called in messages.

    Attributes:
        attribute: Attribute of :class:`lumion_hw.bench.bench.Bench` that holds it.
        words: What it is called.
    """

    MESH = "mesh", "mesh controller"
    MESH_STATES = "mesh_states", "mesh that takes states"
    METER = "meters", "power meter"
    LASER = "lasers", "laser"
    TRANSPONDER = "transponders", "module"
    POLARIZATION = "polarization", "polarization controller"
    POLARIZATION_OPTIMIZER = "polarization_optimizers", "optimizer"
    POLARIMETER = "polarimeters", "polarimeter"
    ATTENUATOR = "attenuators", "attenuator"
    SWITCH = "switches", "optical switch"
    AMPLIFIER = "amplifiers", "optical amplifier"
    SPECTRUM_ANALYZER = "spectrum_analyzers", "spectrum analyser"
    TEMPERATURE = "temperature_controllers", "temperature controller"

    def __init__(self, attribute: str, words: str) -> None:
        self.attribute = attribute
        self.words = words
