"""Schedules: sequences of circuits for collectives, for phases of a job and for measured demand, and what they cost.

The modules inside are private: users import from here (docs/schedules.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lumion_hw.public_names import public_names

if TYPE_CHECKING:
    from lumion_hw.schedules.collectives import MAKERS, make_schedule, ring_broadcast
    from lumion_hw.schedules.cost import CostModel, ScheduleCost, advice, best_static, cost_of, port_times_s
    from lumion_hw.schedules.decomposition import Decomposition, HeldConfiguration, birkhoff, bounded, optimal
    from lumion_hw.schedules.demand import Demand, demand_from, read_counts
    from lumion_hw.schedules.documents import load_schedule, save_schedule
    from lumion_hw.schedules.leases import (
        Lease,
        LeaseRank,
        LeaseRefusedError,
        LeaseRequest,
        LeaseTable,
        StaleLeaseError,
        serve_leases,
    )
    from lumion_hw.schedules.mesh_steps import (
        MeshRouter,
        MeshSchedule,
        MeshStep,
        fewest_rounds,
        on_mesh,
        regrouped,
        relabelled,
    )
    from lumion_hw.schedules.phase_run import (
        MeasuredChange,
        MeasuredPhase,
        PhaseSwitch,
        PortDarkness,
        Switched,
        measured_darkness,
        measured_iteration,
        model_beside,
    )
    from lumion_hw.schedules.phases import (
        DarkSpan,
        IterationTimes,
        JobPhase,
        PhasePlan,
        PreparedPhase,
        bench_router,
        iteration_times,
        load_phases,
        prepare,
        save_phases,
        schedule_phases,
    )
    from lumion_hw.schedules.picture import plot_costs, plot_iteration, plot_schedule, plot_served
    from lumion_hw.schedules.prepared_file import load_prepared, save_prepared
    from lumion_hw.schedules.schedule import Schedule, ScheduleRound, Transfer
    from lumion_hw.schedules.straggler import least_rounds, stragglar
    from lumion_hw.schedules.verification import verify

__all__ = [
    "MAKERS",
    "CostModel",
    "DarkSpan",
    "Decomposition",
    "Demand",
    "HeldConfiguration",
    "IterationTimes",
    "JobPhase",
    "Lease",
    "LeaseRank",
    "LeaseRefusedError",
    "LeaseRequest",
    "LeaseTable",
    "MeasuredChange",
    "MeasuredPhase",
    "MeshRouter",
    "MeshSchedule",
    "MeshStep",
    "PhasePlan",
    "PhaseSwitch",
    "PortDarkness",
    "PreparedPhase",
    "Schedule",
    "ScheduleCost",
    "ScheduleRound",
    "StaleLeaseError",
    "Switched",
    "Transfer",
    "advice",
    "bench_router",
    "best_static",
    "birkhoff",
    "bounded",
    "cost_of",
    "demand_from",
    "fewest_rounds",
    "iteration_times",
    "least_rounds",
    "load_phases",
    "load_prepared",
    "load_schedule",
    "make_schedule",
    "measured_darkness",
    "measured_iteration",
    "model_beside",
    "on_mesh",
    "optimal",
    "plot_costs",
    "plot_iteration",
    "plot_schedule",
    "plot_served",
    "port_times_s",
    "prepare",
    "read_counts",
    "regrouped",
    "relabelled",
    "ring_broadcast",
    "save_phases",
    "save_prepared",
    "save_schedule",
    "schedule_phases",
    "serve_leases",
    "stragglar",
    "verify",
]
if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names(
        __name__,
        {
            "collectives": (
                "MAKERS",
                "make_schedule",
                "ring_broadcast",
            ),
            "cost": (
                "CostModel",
                "ScheduleCost",
                "advice",
                "best_static",
                "cost_of",
                "port_times_s",
            ),
            "decomposition": (
                "Decomposition",
                "HeldConfiguration",
                "birkhoff",
                "bounded",
                "optimal",
            ),
            "demand": (
                "Demand",
                "demand_from",
                "read_counts",
            ),
            "documents": (
                "load_schedule",
                "save_schedule",
            ),
            "leases": (
                "Lease",
                "LeaseRank",
                "LeaseRefusedError",
                "LeaseRequest",
                "LeaseTable",
                "StaleLeaseError",
                "serve_leases",
            ),
            "mesh_steps": (
                "MeshRouter",
                "MeshSchedule",
                "MeshStep",
                "fewest_rounds",
                "on_mesh",
                "regrouped",
                "relabelled",
            ),
            "phase_run": (
                "MeasuredChange",
                "MeasuredPhase",
                "PhaseSwitch",
                "PortDarkness",
                "Switched",
                "measured_darkness",
                "measured_iteration",
                "model_beside",
            ),
            "phases": (
                "DarkSpan",
                "IterationTimes",
                "JobPhase",
                "PhasePlan",
                "PreparedPhase",
                "bench_router",
                "iteration_times",
                "load_phases",
                "prepare",
                "save_phases",
                "schedule_phases",
            ),
            "picture": (
                "plot_costs",
                "plot_iteration",
                "plot_schedule",
                "plot_served",
            ),
            "prepared_file": (
                "load_prepared",
                "save_prepared",
            ),
            "schedule": (
                "Schedule",
                "ScheduleRound",
                "Transfer",
            ),
            "straggler": (
                "least_rounds",
                "stragglar",
            ),
            "verification": ("verify",),
        },
    )
