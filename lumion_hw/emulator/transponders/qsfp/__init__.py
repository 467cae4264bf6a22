"""Emulated QSFP+ and QSFP28 modules (SFF-8636): 100G LR4, CWDM4, SR4, PSM4, active and passive cables, 40G LR4."""

from lumion_hw.emulator.transponders.qsfp.faults import FAULTS
from lumion_hw.emulator.transponders.qsfp.light import ModuleLight
from lumion_hw.emulator.transponders.qsfp.module import QsfpModule
from lumion_hw.emulator.transponders.qsfp.profiles import PROFILES, QsfpProfile, find_profile

__all__ = ["FAULTS", "PROFILES", "ModuleLight", "QsfpModule", "QsfpProfile", "find_profile"]
