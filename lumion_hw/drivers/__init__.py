"""Drivers: one file per instrument family, all of them from public documents, none of them aware of an emulator.

A bench opens them by their kind; who opens an instrument without a bench file, or writes a driver, imports from here.
The modules inside are private.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lumion_hw.public_names import public_names

if TYPE_CHECKING:
    from lumion_hw.drivers.amplifiers.amonics_aedfa import AmonicsAedfa
    from lumion_hw.drivers.analyzers.yokogawa_aq6370 import YokogawaAq6370
    from lumion_hw.drivers.attenuators.keysight_n776x import KeysightN776x
    from lumion_hw.drivers.attenuators.oz_da100 import OzDa100
    from lumion_hw.drivers.held_setup import HeldSetting, HeldSetup
    from lumion_hw.drivers.lasers.itla import ItlaLaser
    from lumion_hw.drivers.lasers.keysight_laser import KeysightLaser
    from lumion_hw.drivers.lasers.santec_tsl import SantecTsl
    from lumion_hw.drivers.life_cycle import Driver, IdentifiedDriver, closed_if_failed
    from lumion_hw.drivers.mesh.line_server import LineServerMesh
    from lumion_hw.drivers.mesh.lumion.controller import LumionMeshController
    from lumion_hw.drivers.mesh.lumion.reconnect import LinkEvent, LinkEventKind, LinkState, ReconnectPolicy
    from lumion_hw.drivers.mesh.lumion.safety import safe_on_signals
    from lumion_hw.drivers.mesh.qontrol.controller import QontrolController
    from lumion_hw.drivers.meters.keysight_816x import Keysight816x
    from lumion_hw.drivers.meters.keysight_functions import PowerRun, TriggerInput, TriggerOutput, TriggerWiring
    from lumion_hw.drivers.meters.keysight_n77xx import KeysightN77xx
    from lumion_hw.drivers.meters.santec_mpm import SantecMpm
    from lumion_hw.drivers.meters.thorlabs_pm import ThorlabsPm
    from lumion_hw.drivers.polarization.keysight_n778x import KeysightN7785C
    from lumion_hw.drivers.polarization.novoptel_pm1000 import NovoptelPm1000
    from lumion_hw.drivers.polarization.oz_epc04 import OzEpc04
    from lumion_hw.drivers.polarization.thorlabs_mpc import ThorlabsMpc
    from lumion_hw.drivers.scpi import Expected, Identity, ScpiDriver, StrictScpi
    from lumion_hw.drivers.switches.polatis import Polatis
    from lumion_hw.drivers.temperature.arroyo_tec import ArroyoTec
    from lumion_hw.drivers.transponders.cmis.context import Quirks
    from lumion_hw.drivers.transponders.cmis.data_paths import DataPath
    from lumion_hw.drivers.transponders.cmis.driver import CmisTransponder
    from lumion_hw.drivers.transponders.cmis.path_driver import ModulePath
    from lumion_hw.drivers.transponders.cmis.snapshots import Difference, differences
    from lumion_hw.drivers.transponders.decoded import DecodedField, DecodedModule, Finding, Severity
    from lumion_hw.drivers.transponders.dump_decoder import decode_file
    from lumion_hw.drivers.transponders.sfp import SfpTransponder

__all__ = [
    "AmonicsAedfa",
    "ArroyoTec",
    "CmisTransponder",
    "DataPath",
    "DecodedField",
    "DecodedModule",
    "Difference",
    "Driver",
    "Expected",
    "Finding",
    "HeldSetting",
    "HeldSetup",
    "IdentifiedDriver",
    "Identity",
    "ItlaLaser",
    "Keysight816x",
    "KeysightLaser",
    "KeysightN77xx",
    "KeysightN776x",
    "KeysightN7785C",
    "LineServerMesh",
    "LinkEvent",
    "LinkEventKind",
    "LinkState",
    "LumionMeshController",
    "ModulePath",
    "NovoptelPm1000",
    "OzDa100",
    "OzEpc04",
    "Polatis",
    "PowerRun",
    "QontrolController",
    "Quirks",
    "ReconnectPolicy",
    "SantecMpm",
    "SantecTsl",
    "ScpiDriver",
    "Severity",
    "SfpTransponder",
    "StrictScpi",
    "ThorlabsMpc",
    "ThorlabsPm",
    "TriggerInput",
    "TriggerOutput",
    "TriggerWiring",
    "YokogawaAq6370",
    "closed_if_failed",
    "decode_file",
    "differences",
    "safe_on_signals",
]
if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names(
        __name__,
        {
            "amplifiers.amonics_aedfa": ("AmonicsAedfa",),
            "analyzers.yokogawa_aq6370": ("YokogawaAq6370",),
            "attenuators.keysight_n776x": ("KeysightN776x",),
            "attenuators.oz_da100": ("OzDa100",),
            "switches.polatis": ("Polatis",),
            "temperature.arroyo_tec": ("ArroyoTec",),
            "held_setup": ("HeldSetting", "HeldSetup"),
            "lasers.itla": ("ItlaLaser",),
            "lasers.keysight_laser": ("KeysightLaser",),
            "lasers.santec_tsl": ("SantecTsl",),
            "life_cycle": ("Driver", "IdentifiedDriver", "closed_if_failed"),
            "mesh.line_server": ("LineServerMesh",),
            "mesh.lumion.controller": ("LumionMeshController",),
            "mesh.lumion.reconnect": ("LinkEvent", "LinkEventKind", "LinkState", "ReconnectPolicy"),
            "mesh.lumion.safety": ("safe_on_signals",),
            "mesh.qontrol.controller": ("QontrolController",),
            "meters.keysight_816x": ("Keysight816x",),
            "meters.keysight_functions": ("PowerRun", "TriggerInput", "TriggerOutput", "TriggerWiring"),
            "meters.keysight_n77xx": ("KeysightN77xx",),
            "meters.santec_mpm": ("SantecMpm",),
            "meters.thorlabs_pm": ("ThorlabsPm",),
            "polarization.keysight_n778x": ("KeysightN7785C",),
            "polarization.novoptel_pm1000": ("NovoptelPm1000",),
            "polarization.oz_epc04": ("OzEpc04",),
            "polarization.thorlabs_mpc": ("ThorlabsMpc",),
            "scpi": ("Expected", "Identity", "ScpiDriver", "StrictScpi"),
            "transponders.cmis.context": ("Quirks",),
            "transponders.cmis.data_paths": ("DataPath",),
            "transponders.cmis.driver": ("CmisTransponder",),
            "transponders.cmis.path_driver": ("ModulePath",),
            "transponders.cmis.snapshots": ("Difference", "differences"),
            "transponders.decoded": ("DecodedField", "DecodedModule", "Finding", "Severity"),
            "transponders.dump_decoder": ("decode_file",),
            "transponders.sfp": ("SfpTransponder",),
        },
    )
