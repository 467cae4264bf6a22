"""Durations of the phases of a circuit set-up."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lumion_hw.bench.bench import Bench
from lumion_hw.circuits.plan.planned import PlannedCircuit

Milestone = Callable[[str], None]
"""Called with the name of each milestone of a set-up: ``programmed``, ``settled``, ``los_clear``, ``link_up``."""


class Spans:
    """Measures how long each phase of a circuit set-up takes, and reports milestones."""

    def __init__(self, bench: Bench, milestone: Milestone) -> None:
        self._bench = bench
        self._milestone = milestone
        self._last_s = bench.clock.now()
        self._elapsed_ms: dict[str, float] = {}

    def end_phase(self, name: str) -> None:
        """End the present phase; durations of phases of the same name add up."""
        now_s = self._bench.clock.now()
        self._elapsed_ms[name] = self._elapsed_ms.get(name, 0.0) + (now_s - self._last_s) * 1e3
        self._last_s = now_s

    def report_milestone(self, name: str) -> None:
        """End the present phase and report a milestone."""
        self.end_phase(name)
        self._milestone(name)

    def log(self, event: str, circuits: Sequence[PlannedCircuit]) -> None:
        """Write the durations of all phases to the event log, in milliseconds on the bench's clock."""
        elapsed_ms = {name: round(ms, 3) for name, ms in self._elapsed_ms.items()}
        names = [str(circuit.request) for circuit in circuits]
        self._bench.events.add(event, circuits=names, spans_ms=elapsed_ms, all_ms=round(sum(elapsed_ms.values()), 3))
