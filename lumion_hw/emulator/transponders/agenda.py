"""Scheduled actions of an emulated module, run in order of time."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Appointment:
    """A scheduled action of a module. A reset cancels the action unless ``lasting``."""

    due_s: float
    action: Callable[[], None]
    lasting: bool = False
    cancelled: bool = False

    def cancel(self) -> None:
        """Cancel the scheduled action, if it has not run yet."""
        self.cancelled = True


class Agenda:
    """Scheduled actions of a module, in order of time."""

    def __init__(self, start_s: float) -> None:
        self.now = start_s
        self._order = itertools.count()
        self._heap: list[tuple[float, int, Appointment]] = []

    def after(self, delay_s: float, action: Callable[[], None], *, lasting: bool = False) -> Appointment:
        """Schedule an action ``delay_s`` from now."""
        appointment = Appointment(self.now + max(delay_s, 0.0), action, lasting)
        # Actions due at the same time run in the order in which they were scheduled.
        heapq.heappush(self._heap, (appointment.due_s, next(self._order), appointment))
        return appointment

    def next_s(self) -> float | None:
        """Return the time of the next scheduled action; ``None`` if there is none."""
        # Cancelled appointments stay in the heap until they come up; removing them would need a full sort.
        while self._heap and self._heap[0][2].cancelled:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def run_next(self, until_s: float) -> bool:
        """Run the next scheduled action if its time is not after ``until_s``. Return whether an action was run."""
        due_s = self.next_s()
        if due_s is None or due_s > until_s:
            return False
        appointment = heapq.heappop(self._heap)[2]
        # The action runs at its scheduled time, however late it is processed.
        self.now = max(self.now, due_s)
        appointment.action()
        return True

    def clear(self) -> None:
        """Cancel all scheduled actions that a reset cancels."""
        for _, _, appointment in self._heap:
            if not appointment.lasting:
                appointment.cancel()
