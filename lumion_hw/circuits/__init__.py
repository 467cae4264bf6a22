"""Path set-up, aware of polarization: plan, program, align, prove by measured light, or roll back.

Begin at :class:`PathSetup`; ``plan`` decides before anything is changed, ``setup`` carries it out. ``service`` keeps
circuits between programs: ``state`` is their journal, ``lock`` says whose the bench is. The modules are
private: users import from here, and what aligns a polarization from :mod:`lumion_hw.polarization`.
"""

from lumion_hw.circuits.breaks import FaultFound
from lumion_hw.circuits.budget import BudgetViolation, Leakage, LinkBudget
from lumion_hw.circuits.coherent import Acceptance, refuse_power_feedback
from lumion_hw.circuits.diagnosis import CircuitFinding
from lumion_hw.circuits.explanation import BudgetLine, budget_lines, explain
from lumion_hw.circuits.hold import CircuitHealth, Upkeep
from lumion_hw.circuits.lock import BenchLock, LockOwner, lock_owner
from lumion_hw.circuits.plan import plan_circuits
from lumion_hw.circuits.planned import ArmTrim, CircuitArm, CircuitPlan, PlannedCircuit
from lumion_hw.circuits.proof import CircuitProof
from lumion_hw.circuits.refusal import BudgetError
from lumion_hw.circuits.request import CircuitRequest
from lumion_hw.circuits.service import CircuitService
from lumion_hw.circuits.setup import GLITCH_DB, PathSetup
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
    "GLITCH_DB",
    "Acceptance",
    "ArmTrim",
    "BegunChange",
    "BenchLock",
    "BudgetError",
    "BudgetLine",
    "BudgetViolation",
    "CircuitArm",
    "CircuitFinding",
    "CircuitHealth",
    "CircuitJournal",
    "CircuitPlan",
    "CircuitProof",
    "CircuitRequest",
    "CircuitService",
    "CircuitState",
    "FaultFound",
    "Leakage",
    "LinkBudget",
    "LockOwner",
    "MeshDifference",
    "MeshFinding",
    "MeshVerdict",
    "PathSetup",
    "PlannedCircuit",
    "StandingCircuit",
    "Upkeep",
    "budget_lines",
    "explain",
    "lock_owner",
    "plan_circuits",
    "read_state",
    "refuse_power_feedback",
    "state_directory",
]
