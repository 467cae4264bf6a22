"""Wall-clock times of the milestones of a recovery."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SPAN_NAMES = (
    "signal_lost", "detected", "spare_chosen", "route_found", "programmed", "settled", "proven", "link_up", "group_up",
    "first_allreduce", "state_restored", "first_step",
)  # fmt: skip
"""Names of the milestones, in order; a milestone is reached when its last participant has reached it."""


@dataclass(frozen=True)
class Milestone:
    """One milestone of one rehearsed recovery.

    Attributes:
        at_ms: Time since the fault, in ms.
        source: ``measured``, or ``emulated`` with the constant that gives the time.
        last: Participant that reached the milestone last, if there are several.
    """

    name: str
    at_ms: float
    source: str
    last: str = ""


class Milestones:
    """Records the milestones of one rehearsed recovery. Thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._fault_s: float | None = None
        self._milestones: dict[str, Milestone] = {}

    def fault(self) -> None:
        """Record the present time as the time of the fault."""
        self._fault_s = time.monotonic()

    @property
    def has_begun(self) -> bool:
        """Whether the fault has happened."""
        return self._fault_s is not None

    def mark(self, name: str, source: str = "measured", last: str = "") -> None:
        """Record the present time for a milestone; if several participants reach it, the last one counts."""
        now_s = time.monotonic()
        with self._guard:
            if self._fault_s is not None and name in SPAN_NAMES:
                self._milestones[name] = Milestone(name, 1e3 * (now_s - self._fault_s), source, last)

    def in_order(self) -> list[Milestone]:
        """Return the milestones in order of time."""
        with self._guard:
            return [self._milestones[name] for name in SPAN_NAMES if name in self._milestones]


def table(trials: Sequence[Sequence[Milestone]]) -> list[dict[str, Any]]:
    """Return one row per milestone with its times in ms over all trials.

    Each row has the median, minimum and maximum time since the fault, the number of trials, and the median time since
    the previous milestone.
    """
    rows: list[dict[str, Any]] = []
    for name in SPAN_NAMES:
        spans = [span for trial in trials for span in trial if span.name == name]
        if not spans:
            continue
        at_ms = [span.at_ms for span in spans]
        before = [
            span.at_ms - max((other.at_ms for other in trial[: list(trial).index(span)]), default=0.0)
            for trial in trials
            for span in trial
            if span.name == name
        ]
        rows.append(
            {
                "name": name,
                "at_ms": round(statistics.median(at_ms), 2),
                "least_ms": round(min(at_ms), 2),
                "most_ms": round(max(at_ms), 2),
                "since_before_ms": round(statistics.median(before), 2),
                "trials": len(at_ms),
                "source": spans[-1].source,
                "last": spans[-1].last,
            }
        )
    return rows
