from .collectives import MAKERS as MAKERS, make_schedule as make_schedule, ring_broadcast as ring_broadcast
from .cost import (
    CostModel as CostModel,
    ScheduleCost as ScheduleCost,
    advice as advice,
    best_static as best_static,
    cost_of as cost_of,
    port_times_s as port_times_s,
)
from .decomposition import (
    Decomposition as Decomposition,
    TimedConfiguration as TimedConfiguration,
    birkhoff as birkhoff,
    bounded as bounded,
    optimal as optimal,
)
from .demand import Demand as Demand, demand_from_counts as demand_from_counts, read_counts as read_counts
from .documents import load_schedule as load_schedule, save_schedule as save_schedule
from .leases import (
    Lease as Lease,
    LeaseRank as LeaseRank,
    LeaseRefusedError as LeaseRefusedError,
    LeaseRequest as LeaseRequest,
    LeaseTable as LeaseTable,
    StaleLeaseError as StaleLeaseError,
    serve_leases as serve_leases,
)
from .mesh_steps import (
    MeshRouter as MeshRouter,
    MeshSchedule as MeshSchedule,
    MeshStep as MeshStep,
    min_rounds as min_rounds,
    regroup_schedule as regroup_schedule,
    relabel_ranks as relabel_ranks,
    route_schedule as route_schedule,
)
from .phase_run import (
    MeasuredChange as MeasuredChange,
    MeasuredPhase as MeasuredPhase,
    MeasuredSwitch as MeasuredSwitch,
    PhaseSwitch as PhaseSwitch,
    PortDarkTimes as PortDarkTimes,
    measured_dark_times as measured_dark_times,
    measured_iteration as measured_iteration,
    model_with_measured_dark_times as model_with_measured_dark_times,
)
from .phases import (
    DarkSpan as DarkSpan,
    IterationTimes as IterationTimes,
    JobPhase as JobPhase,
    PhasePlan as PhasePlan,
    PreparedPhase as PreparedPhase,
    bench_router as bench_router,
    iteration_times as iteration_times,
    load_phases as load_phases,
    prepare as prepare,
    save_phases as save_phases,
    schedule_phases as schedule_phases,
)
from .picture import (
    plot_costs as plot_costs,
    plot_iteration as plot_iteration,
    plot_schedule as plot_schedule,
    plot_served as plot_served,
)
from .prepared_file import load_prepared as load_prepared, save_prepared as save_prepared
from .schedule import Schedule as Schedule, ScheduleRound as ScheduleRound, Transfer as Transfer
from .straggler import min_straggler_rounds as min_straggler_rounds, stragglar as stragglar
from .verification import verify as verify
