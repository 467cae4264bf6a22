"""Planning: spares for a service level, what policies of recovery cost, slices of a rack. Nothing here needs a bench.

The modules inside are private: users import from here (docs/planning.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lumion_hw.public_names import public_names

if TYPE_CHECKING:
    from lumion_hw.planning.factors import PUBLISHED, FactorMap, factor_map
    from lumion_hw.planning.faults import CauseOfFaults, Faults, read_causes
    from lumion_hw.planning.jobs import MIXES, JobMix, job_mix
    from lumion_hw.planning.overprovisioning import (
        COUNTINGS,
        POLICIES,
        Fleet,
        Overprovisioning,
        PolicyCost,
        on_cluster,
        on_cores,
        simulate,
    )
    from lumion_hw.planning.picture import plot_costs_of_policies, plot_factors, plot_shortage, plot_stream
    from lumion_hw.planning.slices import (
        TOPOLOGIES,
        FabricRack,
        PlacedSlice,
        SliceRequest,
        StreamResult,
        TorusRack,
        communication_share_for,
        serve_stream,
        torus_share,
        training_speedup,
    )
    from lumion_hw.planning.spares import (
        RiskGroup,
        SparePlan,
        lost_probability,
        plan_spares,
        rack_of_servers,
        spares_needed,
        unavailable_share,
    )

__all__ = [
    "COUNTINGS",
    "MIXES",
    "POLICIES",
    "PUBLISHED",
    "TOPOLOGIES",
    "CauseOfFaults",
    "FabricRack",
    "FactorMap",
    "Faults",
    "Fleet",
    "JobMix",
    "Overprovisioning",
    "PlacedSlice",
    "PolicyCost",
    "RiskGroup",
    "SliceRequest",
    "SparePlan",
    "StreamResult",
    "TorusRack",
    "communication_share_for",
    "factor_map",
    "job_mix",
    "lost_probability",
    "on_cluster",
    "on_cores",
    "plan_spares",
    "plot_costs_of_policies",
    "plot_factors",
    "plot_shortage",
    "plot_stream",
    "rack_of_servers",
    "read_causes",
    "serve_stream",
    "simulate",
    "spares_needed",
    "torus_share",
    "training_speedup",
    "unavailable_share",
]
if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names(
        __name__,
        {
            "factors": ("PUBLISHED", "FactorMap", "factor_map"),
            "faults": ("CauseOfFaults", "Faults", "read_causes"),
            "jobs": ("MIXES", "JobMix", "job_mix"),
            "overprovisioning": (
                "COUNTINGS",
                "POLICIES",
                "Fleet",
                "Overprovisioning",
                "PolicyCost",
                "on_cluster",
                "on_cores",
                "simulate",
            ),
            "picture": ("plot_costs_of_policies", "plot_factors", "plot_shortage", "plot_stream"),
            "slices": (
                "TOPOLOGIES",
                "FabricRack",
                "PlacedSlice",
                "SliceRequest",
                "StreamResult",
                "TorusRack",
                "communication_share_for",
                "serve_stream",
                "torus_share",
                "training_speedup",
            ),
            "spares": (
                "RiskGroup",
                "SparePlan",
                "lost_probability",
                "plan_spares",
                "rack_of_servers",
                "spares_needed",
                "unavailable_share",
            ),
        },
    )
