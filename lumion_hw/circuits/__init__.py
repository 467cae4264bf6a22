"""Path set-up, aware of polarization: plan, program, align, prove by measured light, or roll back.

Begin at :class:`PathSetup`; ``plan`` decides before anything is changed, ``setup`` carries it out. The modules are
private: users import from here, and what aligns a polarization from :mod:`lumion_hw.polarization`.
"""

from lumion_hw.circuits.budget import BudgetViolation, Leakage, LinkBudget
from lumion_hw.circuits.explanation import BudgetLine, budget_lines, explain
from lumion_hw.circuits.plan import plan_circuits
from lumion_hw.circuits.planned import ArmTrim, CircuitArm, CircuitPlan, PlannedCircuit
from lumion_hw.circuits.refusal import BudgetError
from lumion_hw.circuits.request import CircuitRequest
from lumion_hw.circuits.setup import CircuitProof, PathSetup

__all__ = [
    "ArmTrim",
    "BudgetError",
    "BudgetLine",
    "BudgetViolation",
    "CircuitArm",
    "CircuitPlan",
    "CircuitProof",
    "CircuitRequest",
    "Leakage",
    "LinkBudget",
    "PathSetup",
    "PlannedCircuit",
    "budget_lines",
    "explain",
    "plan_circuits",
]
