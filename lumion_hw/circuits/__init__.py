"""Path set-up, aware of polarization: plan, program, align, prove by measured light, or roll back.

Begin at :class:`PathSetup`; ``plan`` decides before anything is changed, ``setup`` carries it out. Both modules are
private: users import from here, and what aligns a polarization from :mod:`lumion_hw.polarization`.
"""

from lumion_hw.circuits.diagnosis import Finding
from lumion_hw.circuits.plan import CircuitPlan, CircuitRequest, LinkBudget, PlannedCircuit, plan_circuits
from lumion_hw.circuits.proof import CircuitProof
from lumion_hw.circuits.setup import GLITCH_DB, PathSetup

__all__ = [
    "GLITCH_DB",
    "CircuitPlan",
    "CircuitProof",
    "CircuitRequest",
    "Finding",
    "LinkBudget",
    "PathSetup",
    "PlannedCircuit",
    "plan_circuits",
]
