from .amplifiers.amonics_aedfa import EmulatedAedfa as EmulatedAedfa
from .analyzers.yokogawa_aq6370 import EmulatedAq6370 as EmulatedAq6370
from .assembly import EmulatedBench as EmulatedBench
from .attenuators.keysight_n77xx_attenuator import EmulatedN776xA as EmulatedN776xA
from .attenuators.oz_da100 import EmulatedDa100 as EmulatedDa100
from .faults.device_faults import calls as calls, passes as passes, sets as sets
from .faults.fault_table import Argument as Argument, ScriptedFault as ScriptedFault
from .lasers.itla.device import Itla as Itla
from .lasers.itla.laser import ItlaProfile as ItlaProfile
from .lasers.keysight_laser import EmulatedKeysightLaser as EmulatedKeysightLaser
from .lasers.santec_tsl import EmulatedSantecTsl as EmulatedSantecTsl
from .lasers.swept_laser import LaserProfile as LaserProfile
from .mesh.line_server import LineServer as LineServer
from .mesh.lumion.device import MeshBoard as MeshBoard
from .mesh.lumion.profile import BoardProfile as BoardProfile
from .mesh.qontrol.chain import QontrolChain as QontrolChain
from .mesh.qontrol.load import HeaterLoad as HeaterLoad
from .mesh.qontrol.profile import (
    ChainProfile as ChainProfile,
    ErrorOrder as ErrorOrder,
    ModuleSpec as ModuleSpec,
    OverLimit as OverLimit,
    Readback as Readback,
    ReplyMode as ReplyMode,
)
from .meters.keysight_816x import EmulatedKeysight816x as EmulatedKeysight816x
from .meters.keysight_n77xx import EmulatedKeysightN77xx as EmulatedKeysightN77xx
from .meters.santec_mpm import EmulatedSantecMpm as EmulatedSantecMpm
from .meters.thorlabs_pm import ThorlabsPm100 as ThorlabsPm100
from .meters.thorlabs_pm_sensor import SensorProfile as SensorProfile
from .optics.inline_devices import Amplification as Amplification
from .optics.light import Light as Light
from .optics.world import SpectralLine as SpectralLine
from .polarization.keysight_n778x import EmulatedKeysightN7785C as EmulatedKeysightN7785C
from .polarization.novoptel_pm1000 import Pm1000 as Pm1000
from .polarization.oz_epc04 import Epc04 as Epc04
from .polarization.thorlabs_mpc import Mpc320 as Mpc320
from .switches.polatis import EmulatedPolatis as EmulatedPolatis
from .temperature.arroyo_tec import EmulatedArroyoTec as EmulatedArroyoTec
from .transponders.cmis.cdb import firmware_image as firmware_image
from .transponders.cmis.fibre import Fibre as Fibre, join as join
from .transponders.cmis.module import (
    BusAccess as BusAccess,
    CmisModule as CmisModule,
    LinearView as LinearView,
    ModuleOnBus as ModuleOnBus,
)
from .transponders.cmis.optics import LaunchedLight as LaunchedLight, ReceivedLight as ReceivedLight
from .transponders.cmis.profiles import ModuleProfile as ModuleProfile, ModuleQuirks as ModuleQuirks, Timing as Timing
from .transponders.cmis.recorded import RecordedModule as RecordedModule
from .transponders.i2c_bridge import I2cBridge as I2cBridge
from .transponders.sfp import SfpModule as SfpModule, SfpProfile as SfpProfile
from .wires.device import EmulatedDevice as EmulatedDevice, MessagePeer as MessagePeer
from .wires.mains import (
    DeviceConnection as DeviceConnection,
    MessageConnection as MessageConnection,
    Switchable as Switchable,
)
from .wires.serial_device import SerialDevice as SerialDevice
from .wires.server import EmulatorServer as EmulatorServer
from .wires.text_device import TextDevice as TextDevice
