"""What the parts of one emulated module share: its memory, flags, time, randomness and the faults in force."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from lumion_hw.emulator.transponders.cmis.agenda import Agenda
from lumion_hw.emulator.transponders.cmis.flags import Flags
from lumion_hw.emulator.transponders.cmis.memory import Memory
from lumion_hw.emulator.transponders.cmis.profile import ModuleProfile, Timing
from lumion_hw.emulator.transponders.cmis.quirks import ModuleQuirks
from lumion_hw.standards.cmis.codes import DataPathState, ModuleState

_HISTORY = 10_000


@dataclass(frozen=True)
class Transition:
    """A state machine's step: when, whose (``module``, or ``data path`` and its first host lane), from and to."""

    at_s: float
    machine: str
    before: ModuleState | DataPathState | None
    after: ModuleState | DataPathState | None


@dataclass
class Core:
    """State that outlives no reset except where it says so.

    Attributes:
        name: Device name.
        profile: Type of the module.
        timing: Its times, scaled.
        quirks: Its ways.
        agenda: Its time.
        rng: Its noise.
        memory: Its registers; a reset replaces them.
        flags: Its latched flags; a reset replaces them.
        faults: Faults in force, by name, with their strength; they survive a reset.
        unlocked: Whether the host has entered the password.
        history: The last steps of its state machines.
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

    def note(
        self, machine: str, before: ModuleState | DataPathState | None, after: ModuleState | DataPathState | None
    ) -> None:
        """Remember a step of a state machine."""
        self.history.append(Transition(self.now, machine, before, after))

    @property
    def now(self) -> float:
        """The module's time in s."""
        return self.agenda.now

    def has(self, fault: str) -> bool:
        """Tell whether a fault is in force."""
        return fault in self.faults
