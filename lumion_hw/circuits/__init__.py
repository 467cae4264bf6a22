"""Polarization-aware path set-up: plan, program, align, prove by measured light, or roll back."""

from lumion_hw.circuits.plan import CircuitPlan, CircuitRequest, PlannedCircuit, plan_circuits
from lumion_hw.circuits.setup import CircuitProof, PathSetup
from lumion_hw.polarization.alignment import Aligner, Alignment, Tracking
from lumion_hw.polarization.tracking import TrackState

__all__ = [
    "Aligner",
    "Alignment",
    "CircuitPlan",
    "CircuitProof",
    "CircuitRequest",
    "PathSetup",
    "PlannedCircuit",
    "TrackState",
    "Tracking",
    "plan_circuits",
]
