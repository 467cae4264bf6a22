from .discovery import (
    DiscoveredInstrument as DiscoveredInstrument,
    discover as discover,
    draft_bench_file as draft_bench_file,
)
from .events import EventLog as EventLog
from .file.checks import BenchData as BenchData, Check as Check
from .file.devices import (
    DeviceModel as DeviceModel,
    HeaterDriverModel as HeaterDriverModel,
    MeterModel as MeterModel,
    PartModel as PartModel,
)
from .file.fields import (
    Address as Address,
    Flag as Flag,
    Name as Name,
    Number as Number,
    Port as Port,
    Serial as Serial,
    StrictModel as StrictModel,
    WholeNumber as WholeNumber,
)
from .file.kind import DeviceKind as DeviceKind, DiscoveryQuery as DiscoveryQuery, ScpiIdentity as ScpiIdentity
from .file.loader import (
    Problem as Problem,
    bench_schema as bench_schema,
    builtin_names as builtin_names,
    builtin_path as builtin_path,
    check_bench as check_bench,
    load_bench as load_bench,
)
from .file.model import BenchModel as BenchModel
from .file.module_connection import PluggableModel as PluggableModel
from .file.module_optics import ModuleFormat as ModuleFormat, ModuleOptics as ModuleOptics
from .file.roles import Role as Role
from .identity import DeviceIdentity as DeviceIdentity, device_identities as device_identities
from .mesh_access import MeshAccess as MeshAccess
