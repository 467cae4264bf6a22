from .circuit_file import WantedCircuits as WantedCircuits, load_circuits as load_circuits
from .coherent import Acceptance as Acceptance, refuse_power_feedback as refuse_power_feedback
from .diagnosis import CircuitFinding as CircuitFinding
from .fault_location import LocatedFault as LocatedFault
from .lock import BenchLock as BenchLock, LockOwner as LockOwner, lock_owner as lock_owner
from .maintenance import CircuitHealth as CircuitHealth, CircuitMaintenance as CircuitMaintenance
from .plan.budget import BudgetViolation as BudgetViolation, Leakage as Leakage, LinkBudget as LinkBudget
from .plan.difference import (
    CircuitDifference as CircuitDifference,
    CircuitRefusal as CircuitRefusal,
    plan_difference as plan_difference,
)
from .plan.explanation import BudgetLine as BudgetLine, budget_lines as budget_lines, explain as explain
from .plan.planned import (
    ArmTrim as ArmTrim,
    CircuitArm as CircuitArm,
    CircuitPlan as CircuitPlan,
    PlannedCircuit as PlannedCircuit,
)
from .plan.planner import plan_circuits as plan_circuits
from .plan.refusal import BudgetError as BudgetError
from .plan.request import CircuitRequest as CircuitRequest
from .proof import CircuitProof as CircuitProof
from .service import CircuitService as CircuitService
from .setup import GLITCH_DB as GLITCH_DB, PathSetup as PathSetup
from .state import (
    ActiveCircuit as ActiveCircuit,
    CircuitJournal as CircuitJournal,
    CircuitState as CircuitState,
    MeshDifference as MeshDifference,
    MeshFinding as MeshFinding,
    MeshVerdict as MeshVerdict,
    UnfinishedChange as UnfinishedChange,
    read_state as read_state,
    state_directory as state_directory,
)
