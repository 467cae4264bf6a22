from .benches import JoinedBench as JoinedBench, LocalBench as LocalBench, RemoteBench as RemoteBench
from .change import JoinedMeshes as JoinedMeshes
from .file import (
    FibreEndName as FibreEndName,
    JoinedFile as JoinedFile,
    MeshFibre as MeshFibre,
    load_joined as load_joined,
)
from .plan import JoinedPlan as JoinedPlan, JoinedRequest as JoinedRequest, PlannedLink as PlannedLink
from .status import LinkStatus as LinkStatus
from .watch import (
    BenchReach as BenchReach,
    JoinedStatus as JoinedStatus,
    JoinedWatch as JoinedWatch,
    joined_status as joined_status,
)
