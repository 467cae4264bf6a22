"""Rehearsal of a server failure: a training job over emulated light loses a server and must continue.

The modules of this package are private.
"""

from lumion_hw.rehearsal.light import LightFabric, SwitchedLight
from lumion_hw.rehearsal.rehearse import FAULTS, Fault, Rehearsal, RehearsalSetting, rehearse
from lumion_hw.rehearsal.timing import SPAN_NAMES, Milestones

__all__ = [
    "FAULTS",
    "SPAN_NAMES",
    "Fault",
    "LightFabric",
    "Milestones",
    "Rehearsal",
    "RehearsalSetting",
    "SwitchedLight",
    "rehearse",
]
