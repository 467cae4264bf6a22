from .benches import JoinedBench as JoinedBench, LocalBench as LocalBench, ServedBench as ServedBench
from .change import JoinedMeshes as JoinedMeshes
from .file import Fibre as Fibre, FibreEndName as FibreEndName, JoinedFile as JoinedFile, load_joined as load_joined
from .plan import JoinedPlan as JoinedPlan, JoinedRequest as JoinedRequest, PlannedLink as PlannedLink
from .status import LinkStatus as LinkStatus
