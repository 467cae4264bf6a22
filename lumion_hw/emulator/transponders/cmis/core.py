"""What the parts of one emulated module share: its memory, flags, time, randomness and the faults in force."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from lumion_hw.emulator.transponders.cmis.memory import Flags, Memory
from lumion_hw.emulator.transponders.cmis.profiles import ModuleProfile, ModuleQuirks, Timing
from lumion_hw.standards.cmis.codes import DataPathState, ModuleState


@dataclass
class Appointment:
    """One thing to do at one time; ``lasting`` ones survive a reset of the module."""

    due_s: float
    action: Callable[[], None]
    lasting: bool = False
    cancelled: bool = False

    def cancel(self) -> None:
        """Call it off; harmless when it is over."""
        self.cancelled = True


class Agenda:
    """Appointments in order of time.

    Args:
        start_s: The module's time at the start.
    """

    def __init__(self, start_s: float) -> None:
        self.now = start_s
        self._order = itertools.count()
        self._heap: list[tuple[float, int, Appointment]] = []

    def after(self, delay_s: float, action: Callable[[], None], *, lasting: bool = False) -> Appointment:
        """Make an appointment ``delay_s`` from now."""
        appointment = Appointment(self.now + max(delay_s, 0.0), action, lasting)
        # What is due at the same time happens in the order in which it was arranged.
        heapq.heappush(self._heap, (appointment.due_s, next(self._order), appointment))
        return appointment

    def next_s(self) -> float | None:
        """Return the time of the next appointment."""
        # Cancelled ones stay in the heap until they come up: taking them out would sort it anew.
        while self._heap and self._heap[0][2].cancelled:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def keep_next(self, until_s: float) -> bool:
        """Do the next appointment if it is due by ``until_s``, at its own time; returns whether there was one."""
        due_s = self.next_s()
        if due_s is None or due_s > until_s:
            return False
        appointment = heapq.heappop(self._heap)[2]
        # At its own time, however late it is noticed.
        self.now = max(self.now, due_s)
        appointment.action()
        return True

    def clear(self) -> None:
        """Call off everything that does not survive a reset."""
        for _, _, appointment in self._heap:
            if not appointment.lasting:
                appointment.cancel()


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
