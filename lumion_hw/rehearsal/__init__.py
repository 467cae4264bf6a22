"""The experiment rehearsed: real processes and real frames, joined by emulated light; one fails, and training goes on.

The modules inside are private: users import from here.
"""

from lumion_hw.rehearsal.light import LightFabric, SwitchedLight
from lumion_hw.rehearsal.rehearse import Fault, Rehearsal, RehearsalSetting, rehearse
from lumion_hw.rehearsal.timing import SPAN_NAMES, Milestones

__all__ = [
    "SPAN_NAMES",
    "Fault",
    "LightFabric",
    "Milestones",
    "Rehearsal",
    "RehearsalSetting",
    "SwitchedLight",
    "rehearse",
]
