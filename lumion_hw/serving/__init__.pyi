from .lease import BenchLease as BenchLease, Caller as Caller
from .owner import BenchOwner as BenchOwner, Subscription as Subscription
from .pva import PvaServer as PvaServer
from .state import (
    AlarmSeverity as AlarmSeverity,
    MarginSample as MarginSample,
    Point as Point,
    ServedCircuit as ServedCircuit,
    ServedEvent as ServedEvent,
    ServedHealth as ServedHealth,
    ServedJob as ServedJob,
    ServedLease as ServedLease,
    ServedMesh as ServedMesh,
    ServedPath as ServedPath,
    ServedState as ServedState,
)
