"""What a module has to do, and when: appointments on its own time, which follows the bench clock."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass


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
        heapq.heappush(self._heap, (appointment.due_s, next(self._order), appointment))
        return appointment

    def next_s(self) -> float | None:
        """Return the time of the next appointment."""
        while self._heap and self._heap[0][2].cancelled:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def keep_next(self, until_s: float) -> bool:
        """Do the next appointment if it is due by ``until_s``, at its own time; returns whether there was one."""
        due_s = self.next_s()
        if due_s is None or due_s > until_s:
            return False
        appointment = heapq.heappop(self._heap)[2]
        self.now = max(self.now, due_s)
        appointment.action()
        return True

    def clear(self) -> None:
        """Call off everything that does not survive a reset."""
        for _, _, appointment in self._heap:
            if not appointment.lasting:
                appointment.cancel()
