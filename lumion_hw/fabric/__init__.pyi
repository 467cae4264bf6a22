from .evidence import Evidence as Evidence, FailureJudge as FailureJudge, FailureVerdict as FailureVerdict
from .hooks import JobHooks as JobHooks, NoHooks as NoHooks
from .journal import FabricJournal as FabricJournal, FabricState as FabricState, read_fabric as read_fabric
from .manager import FabricManager as FabricManager
from .nccl import (
    NcclSetup as NcclSetup,
    find_ring as find_ring,
    nccl_setup as nccl_setup,
    nccl_topology as nccl_topology,
)
from .recovery import Recovery as Recovery, RecoveryStatus as RecoveryStatus, last_recovery as last_recovery
from .servers import (
    FabricUnit as FabricUnit,
    find_unit as find_unit,
    job_requests as job_requests,
    pair_requests as pair_requests,
    partners as partners,
    replace_server as replace_server,
    units as units,
)
from .spans import Span as Span
from .standby import Standby as Standby, StandbyPlan as StandbyPlan, StandbyStatus as StandbyStatus
from .status import (
    FabricAlarm as FabricAlarm,
    FabricStatus as FabricStatus,
    JobStatus as JobStatus,
    UnitStatus as UnitStatus,
    fabric_status as fabric_status,
)
