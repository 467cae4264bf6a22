"""State shared by the parts of one emulated module: memory, flags, time, random numbers and active faults."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from lumion_hw.emulator.transponders.agenda import Agenda
from lumion_hw.emulator.transponders.cmis.memory import Flags, Memory
from lumion_hw.emulator.transponders.cmis.profiles import ModuleProfile, ModuleQuirks, Timing
from lumion_hw.standards.cmis.codes import DataPathState, ModuleState

_HISTORY = 10_000


@dataclass(frozen=True)
class Transition:
    """One recorded transition of a module's state machine.

    Attributes:
        machine: ``module``, or ``data path`` and its first host lane.
    """

    at_s: float
    machine: str
    before: ModuleState | DataPathState | None
    after: ModuleState | DataPathState | None


@dataclass
class Core:
    """State shared by all parts of one module.

    Attributes:
        timing: Durations of the module's operations, multiplied by the time scale.
        quirks: Deviations from the standard.
        memory: Registers; a reset replaces them.
        flags: Latched flags; a reset replaces them.
        faults: Active faults by name, with strength.
        unlocked: Whether the host has entered the password.
    """

    name: str
    profile: ModuleProfile
    timing: Timing
    quirks: ModuleQuirks
    agenda: Agenda
    rng: np.random.Generator
    memory: Memory
    flags: Flags
    faults: dict[str, float] = field(default_factory=dict)
    unlocked: bool = False
    history: deque[Transition] = field(default_factory=lambda: deque(maxlen=_HISTORY))

    def record_transition(
        self, machine: str, before: ModuleState | DataPathState | None, after: ModuleState | DataPathState | None
    ) -> None:
        """Record a transition of a state machine."""
        self.history.append(Transition(self.now, machine, before, after))

    @property
    def now(self) -> float:
        """The module's present time in s."""
        return self.agenda.now

    def has(self, fault: str) -> bool:
        """Return whether the fault with a given name is active."""
        return fault in self.faults
