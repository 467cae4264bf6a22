from .amplifiers.amonics_aedfa import AmonicsAedfa as AmonicsAedfa
from .analyzers.yokogawa_aq6370 import YokogawaAq6370 as YokogawaAq6370
from .attenuators.keysight_n776x import KeysightN776x as KeysightN776x
from .attenuators.oz_da100 import OzDa100 as OzDa100
from .held_setup import HeldSetting as HeldSetting, HeldSetup as HeldSetup
from .lasers.itla import ItlaLaser as ItlaLaser
from .lasers.keysight_laser import KeysightLaser as KeysightLaser
from .lasers.santec_tsl import SantecTsl as SantecTsl
from .life_cycle import Driver as Driver, IdentifiedDriver as IdentifiedDriver, close_on_error as close_on_error
from .mesh.line_server import LineServerMesh as LineServerMesh
from .mesh.lumion.controller import LumionMeshController as LumionMeshController
from .mesh.lumion.reconnect import (
    LinkEvent as LinkEvent,
    LinkEventKind as LinkEventKind,
    LinkState as LinkState,
    ReconnectPolicy as ReconnectPolicy,
)
from .mesh.lumion.safety import safe_on_signals as safe_on_signals
from .mesh.qontrol.controller import QontrolController as QontrolController
from .meters.keysight_816x import Keysight816x as Keysight816x
from .meters.keysight_functions import (
    PowerRun as PowerRun,
    TriggerInput as TriggerInput,
    TriggerOutput as TriggerOutput,
    TriggerWiring as TriggerWiring,
)
from .meters.keysight_n77xx import KeysightN77xx as KeysightN77xx
from .meters.santec_mpm import SantecMpm as SantecMpm
from .meters.thorlabs_pm import ThorlabsPm as ThorlabsPm
from .polarization.keysight_n778x import KeysightN7785C as KeysightN7785C
from .polarization.novoptel_pm1000 import NovoptelPm1000 as NovoptelPm1000
from .polarization.oz_epc04 import OzEpc04 as OzEpc04
from .polarization.thorlabs_mpc import ThorlabsMpc as ThorlabsMpc
from .scpi import (
    ExpectedIdentity as ExpectedIdentity,
    Identity as Identity,
    ScpiDriver as ScpiDriver,
    StrictScpi as StrictScpi,
)
from .switches.polatis import Polatis as Polatis
from .temperature.arroyo_tec import ArroyoTec as ArroyoTec
from .transponders.cmis.context import Quirks as Quirks
from .transponders.cmis.data_paths import DataPath as DataPath
from .transponders.cmis.driver import CmisTransponder as CmisTransponder
from .transponders.cmis.path_driver import ModulePath as ModulePath
from .transponders.cmis.signal_integrity import SignalIntegrity as SignalIntegrity
from .transponders.cmis.snapshots import Difference as Difference, differences as differences
from .transponders.decoded import (
    DecodedField as DecodedField,
    DecodedModule as DecodedModule,
    Finding as Finding,
    Severity as Severity,
)
from .transponders.dump_decoder import decode_file as decode_file
from .transponders.qsfp import QsfpTransponder as QsfpTransponder
from .transponders.sfp import SfpTransponder as SfpTransponder
