"""Emulated pluggable modules with CMIS memory: coherent, parallel, multiplexed, linear, copper.

Create a module with :meth:`CmisModule.from_profile`. Its memory is one I2C device.
"""

from lumion_hw.emulator.transponders.cmis.banked import BankedModule
from lumion_hw.emulator.transponders.cmis.core import Transition
from lumion_hw.emulator.transponders.cmis.faults import FAULTS
from lumion_hw.emulator.transponders.cmis.fibre import Fibre, join
from lumion_hw.emulator.transponders.cmis.module import BusAccess, CmisModule, LinearView, ModuleOnBus
from lumion_hw.emulator.transponders.cmis.optics import LaunchedLight, ReceivedLight
from lumion_hw.emulator.transponders.cmis.profiles import PROFILES, SFP_PROFILES, ModuleProfile, ModuleQuirks, Timing
from lumion_hw.emulator.transponders.cmis.recorded import RecordedModule

__all__ = [
    "FAULTS",
    "PROFILES",
    "SFP_PROFILES",
    "BankedModule",
    "BusAccess",
    "CmisModule",
    "Fibre",
    "LaunchedLight",
    "LinearView",
    "ModuleOnBus",
    "ModuleProfile",
    "ModuleQuirks",
    "ReceivedLight",
    "RecordedModule",
    "Timing",
    "Transition",
    "join",
]
