"""Servers joined by light: jobs and their circuits, detection of failures, spares that stand by, and recovery.

The modules inside are private: users import from here.
"""

from lumion_hw.fabric.evidence import Evidence, FailureVerdict, Judge
from lumion_hw.fabric.hooks import JobHooks, NoHooks
from lumion_hw.fabric.journal import FabricJournal, FabricState, read_fabric
from lumion_hw.fabric.manager import FabricManager
from lumion_hw.fabric.recovery import Recovery
from lumion_hw.fabric.servers import FabricUnit, find_unit, job_requests, pair_requests, partners, substituted, units
from lumion_hw.fabric.spans import Span
from lumion_hw.fabric.standby import Standby, StandbyPlan

__all__ = [
    "Evidence",
    "FabricJournal",
    "FabricManager",
    "FabricState",
    "FabricUnit",
    "FailureVerdict",
    "JobHooks",
    "Judge",
    "NoHooks",
    "Recovery",
    "Span",
    "Standby",
    "StandbyPlan",
    "find_unit",
    "job_requests",
    "pair_requests",
    "partners",
    "read_fabric",
    "substituted",
    "units",
]
