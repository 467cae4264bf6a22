from .bandwidth import (
    BandwidthResult as BandwidthResult,
    FabricSteps as FabricSteps,
    Influence as Influence,
    PublishedGain as PublishedGain,
    StepTime as StepTime,
    SweepRow as SweepRow,
    compare_bandwidth as compare_bandwidth,
    fabric_steps as fabric_steps,
)
from .bandwidth_file import BandwidthFileModel as BandwidthFileModel, load_bandwidth_file as load_bandwidth_file
from .detour import TorusJob as TorusJob
from .factors import PUBLISHED as PUBLISHED, FactorMap as FactorMap, factor_map as factor_map
from .faults import FaultRate as FaultRate, Faults as Faults, read_causes as read_causes
from .hierarchy import (
    HierarchyLevel as HierarchyLevel,
    HierarchyResult as HierarchyResult,
    MeshHierarchy as MeshHierarchy,
    plan_hierarchy as plan_hierarchy,
)
from .jobs import MIXES as MIXES, JobMix as JobMix, job_mix as job_mix
from .network_power import (
    PowerFileModel as PowerFileModel,
    PowerRow as PowerRow,
    compare_power as compare_power,
    load_power_file as load_power_file,
)
from .overprovisioning import (
    COUNTINGS as COUNTINGS,
    POLICIES as POLICIES,
    Fleet as Fleet,
    Overprovisioning as Overprovisioning,
    PolicyCost as PolicyCost,
    on_cluster as on_cluster,
    on_cores as on_cores,
    simulate as simulate,
)
from .picture import (
    plot_costs_of_policies as plot_costs_of_policies,
    plot_factors as plot_factors,
    plot_shortage as plot_shortage,
    plot_stream as plot_stream,
)
from .slices import (
    TOPOLOGIES as TOPOLOGIES,
    FabricRack as FabricRack,
    PlacedSlice as PlacedSlice,
    SliceRequest as SliceRequest,
    StreamResult as StreamResult,
    TorusRack as TorusRack,
    needed_communication_share as needed_communication_share,
    serve_stream as serve_stream,
    torus_share as torus_share,
    training_speedup as training_speedup,
)
from .spares import (
    RiskGroup as RiskGroup,
    SparePlan as SparePlan,
    lost_probability as lost_probability,
    plan_spares as plan_spares,
    rack_of_servers as rack_of_servers,
    spares_needed as spares_needed,
    unavailable_share as unavailable_share,
)
from .stated import Assumption as Assumption, assumptions_of as assumptions_of
