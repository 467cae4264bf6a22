"""The emulated bench: devices that speak the same bytes as the hardware, over one optical world, seed and clock.

``Bench.emulate`` makes them all. From here come single ones, the server that puts them on wires, and what an emulated
device of one's own is made of; the engine of SCPI instruments is :mod:`lumion_hw.emulator.scpi`. All other modules
inside are private.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lumion_hw.public_names import public_names

if TYPE_CHECKING:
    from lumion_hw.emulator.amplifiers.amonics_aedfa import EmulatedAedfa
    from lumion_hw.emulator.analyzers.yokogawa_aq6370 import EmulatedAq6370
    from lumion_hw.emulator.assembly import EmulatedBench
    from lumion_hw.emulator.attenuators.keysight_n77xx_attenuator import EmulatedN776xA
    from lumion_hw.emulator.attenuators.oz_da100 import EmulatedDa100
    from lumion_hw.emulator.faults.device_faults import calls, passes, sets
    from lumion_hw.emulator.faults.fault_table import Argument, ScriptedFault
    from lumion_hw.emulator.lasers.itla.device import Itla
    from lumion_hw.emulator.lasers.itla.laser import ItlaProfile
    from lumion_hw.emulator.lasers.keysight_laser import EmulatedKeysightLaser
    from lumion_hw.emulator.lasers.santec_tsl import EmulatedSantecTsl
    from lumion_hw.emulator.lasers.swept_laser import LaserProfile
    from lumion_hw.emulator.mesh.line_server import LineServer
    from lumion_hw.emulator.mesh.lumion.device import MeshBoard
    from lumion_hw.emulator.mesh.lumion.profile import BoardProfile
    from lumion_hw.emulator.mesh.qontrol.chain import QontrolChain
    from lumion_hw.emulator.mesh.qontrol.load import HeaterLoad
    from lumion_hw.emulator.mesh.qontrol.profile import (
        ChainProfile,
        ErrorOrder,
        ModuleSpec,
        OverLimit,
        Readback,
        ReplyMode,
    )
    from lumion_hw.emulator.meters.keysight_816x import EmulatedKeysight816x
    from lumion_hw.emulator.meters.keysight_n77xx import EmulatedKeysightN77xx
    from lumion_hw.emulator.meters.santec_mpm import EmulatedSantecMpm
    from lumion_hw.emulator.meters.thorlabs_pm import ThorlabsPm100
    from lumion_hw.emulator.meters.thorlabs_pm_sensor import SensorProfile
    from lumion_hw.emulator.optics.light import Light
    from lumion_hw.emulator.optics.light_parts import Amplification
    from lumion_hw.emulator.optics.world import SpectralLine
    from lumion_hw.emulator.polarization.keysight_n778x import EmulatedKeysightN7785C
    from lumion_hw.emulator.polarization.novoptel_pm1000 import Pm1000
    from lumion_hw.emulator.polarization.oz_epc04 import Epc04
    from lumion_hw.emulator.polarization.thorlabs_mpc import Mpc320
    from lumion_hw.emulator.switches.polatis import EmulatedPolatis
    from lumion_hw.emulator.temperature.arroyo_tec import EmulatedArroyoTec
    from lumion_hw.emulator.transponders.cmis.cdb import firmware_image
    from lumion_hw.emulator.transponders.cmis.fibre import Fibre, join
    from lumion_hw.emulator.transponders.cmis.module import BusAccess, CmisModule, LinearView, ModuleOnBus
    from lumion_hw.emulator.transponders.cmis.optics import LaunchedLight, ReceivedLight
    from lumion_hw.emulator.transponders.cmis.profiles import ModuleProfile, ModuleQuirks, Timing
    from lumion_hw.emulator.transponders.cmis.recorded import RecordedModule
    from lumion_hw.emulator.transponders.i2c_bridge import I2cBridge
    from lumion_hw.emulator.transponders.sfp import SfpModule, SfpProfile
    from lumion_hw.emulator.wires.device import EmulatedDevice, MessagePeer
    from lumion_hw.emulator.wires.mains import Cord, MessageCord, Switchable
    from lumion_hw.emulator.wires.serial_device import SerialDevice
    from lumion_hw.emulator.wires.server import EmulatorServer
    from lumion_hw.emulator.wires.text_device import TextDevice

__all__ = [
    "Amplification",
    "Argument",
    "BoardProfile",
    "BusAccess",
    "ChainProfile",
    "CmisModule",
    "Cord",
    "EmulatedAedfa",
    "EmulatedAq6370",
    "EmulatedArroyoTec",
    "EmulatedBench",
    "EmulatedDa100",
    "EmulatedDevice",
    "EmulatedKeysight816x",
    "EmulatedKeysightLaser",
    "EmulatedKeysightN77xx",
    "EmulatedKeysightN7785C",
    "EmulatedN776xA",
    "EmulatedPolatis",
    "EmulatedSantecMpm",
    "EmulatedSantecTsl",
    "EmulatorServer",
    "Epc04",
    "ErrorOrder",
    "Fibre",
    "HeaterLoad",
    "I2cBridge",
    "Itla",
    "ItlaProfile",
    "LaserProfile",
    "LaunchedLight",
    "Light",
    "LineServer",
    "LinearView",
    "MeshBoard",
    "MessageCord",
    "MessagePeer",
    "ModuleOnBus",
    "ModuleProfile",
    "ModuleQuirks",
    "ModuleSpec",
    "Mpc320",
    "OverLimit",
    "Pm1000",
    "QontrolChain",
    "Readback",
    "ReceivedLight",
    "RecordedModule",
    "ReplyMode",
    "ScriptedFault",
    "SensorProfile",
    "SerialDevice",
    "SfpModule",
    "SfpProfile",
    "SpectralLine",
    "Switchable",
    "TextDevice",
    "ThorlabsPm100",
    "Timing",
    "calls",
    "firmware_image",
    "join",
    "passes",
    "sets",
]
if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names(
        __name__,
        {
            "amplifiers.amonics_aedfa": ("EmulatedAedfa",),
            "analyzers.yokogawa_aq6370": ("EmulatedAq6370",),
            "attenuators.keysight_n77xx_attenuator": ("EmulatedN776xA",),
            "attenuators.oz_da100": ("EmulatedDa100",),
            "assembly": ("EmulatedBench",),
            "faults.device_faults": ("calls", "passes", "sets"),
            "faults.fault_table": ("Argument", "ScriptedFault"),
            "lasers.itla.device": ("Itla",),
            "lasers.itla.laser": ("ItlaProfile",),
            "lasers.keysight_laser": ("EmulatedKeysightLaser",),
            "lasers.santec_tsl": ("EmulatedSantecTsl",),
            "lasers.swept_laser": ("LaserProfile",),
            "mesh.line_server": ("LineServer",),
            "mesh.lumion.device": ("MeshBoard",),
            "mesh.lumion.profile": ("BoardProfile",),
            "mesh.qontrol.chain": ("QontrolChain",),
            "mesh.qontrol.load": ("HeaterLoad",),
            "mesh.qontrol.profile": ("ChainProfile", "ErrorOrder", "ModuleSpec", "OverLimit", "Readback", "ReplyMode"),
            "meters.keysight_816x": ("EmulatedKeysight816x",),
            "meters.keysight_n77xx": ("EmulatedKeysightN77xx",),
            "meters.santec_mpm": ("EmulatedSantecMpm",),
            "meters.thorlabs_pm": ("ThorlabsPm100",),
            "meters.thorlabs_pm_sensor": ("SensorProfile",),
            "optics.light": ("Light",),
            "optics.light_parts": ("Amplification",),
            "optics.world": ("SpectralLine",),
            "polarization.keysight_n778x": ("EmulatedKeysightN7785C",),
            "polarization.novoptel_pm1000": ("Pm1000",),
            "polarization.oz_epc04": ("Epc04",),
            "polarization.thorlabs_mpc": ("Mpc320",),
            "transponders.cmis.fibre": ("Fibre", "join"),
            "transponders.cmis.cdb": ("firmware_image",),
            "transponders.cmis.module": ("BusAccess", "CmisModule", "LinearView", "ModuleOnBus"),
            "transponders.cmis.optics": ("LaunchedLight", "ReceivedLight"),
            "transponders.cmis.profiles": ("ModuleProfile", "ModuleQuirks", "Timing"),
            "transponders.cmis.recorded": ("RecordedModule",),
            "transponders.i2c_bridge": ("I2cBridge",),
            "transponders.sfp": ("SfpModule", "SfpProfile"),
            "switches.polatis": ("EmulatedPolatis",),
            "temperature.arroyo_tec": ("EmulatedArroyoTec",),
            "wires.text_device": ("TextDevice",),
            "wires.device": ("EmulatedDevice", "MessagePeer"),
            "wires.mains": ("Cord", "MessageCord", "Switchable"),
            "wires.serial_device": ("SerialDevice",),
            "wires.server": ("EmulatorServer",),
        },
    )
