"""Roles of devices on a bench, such as power meter or laser."""

from __future__ import annotations

import enum


class Role(enum.Enum):
    """Role of a device on a bench, such as power meter or laser.

    Attributes:
        attribute: Attribute of :class:`lumion_hw.bench.bench.Bench` that contains the devices of this role.
    """

    MESH = "mesh", "mesh controller"
    MESH_STATES = "mesh_states", "mesh controlled by states"
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

    def __init__(self, attribute: str, label: str) -> None:
        self.attribute = attribute
        self.label = label
