"""Path set-up, aware of polarization: plan, program, align, prove by measured light, or roll back.

Begin at :class:`PathSetup`; ``plan`` decides before anything is changed, ``setup`` carries it out. ``service`` keeps
circuits between programs: ``state`` is their journal, ``lock`` says whose the bench is. All modules are
private: users import from here, and what aligns a polarization from :mod:`lumion_hw.polarization`.
"""

from lumion_hw.circuits.lock import BenchLock, LockOwner, lock_owner
from lumion_hw.circuits.plan import CircuitPlan, CircuitRequest, LinkBudget, PlannedCircuit, plan_circuits
from lumion_hw.circuits.service import CircuitService
from lumion_hw.circuits.setup import CircuitProof, PathSetup
from lumion_hw.circuits.state import (
    BegunChange,
    CircuitJournal,
    CircuitState,
    MeshDifference,
    MeshFinding,
    MeshVerdict,
    StandingCircuit,
    read_state,
    state_directory,
)

__all__ = [
    "BegunChange",
    "BenchLock",
    "CircuitJournal",
    "CircuitPlan",
    "CircuitProof",
    "CircuitRequest",
    "CircuitService",
    "CircuitState",
    "LinkBudget",
    "LockOwner",
    "MeshDifference",
    "MeshFinding",
    "MeshVerdict",
    "PathSetup",
    "PlannedCircuit",
    "StandingCircuit",
    "lock_owner",
    "plan_circuits",
    "read_state",
    "state_directory",
]
