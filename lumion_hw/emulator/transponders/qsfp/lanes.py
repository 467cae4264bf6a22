"""Lane bits that follow a request after a delay."""

from __future__ import annotations

from functools import partial

from lumion_hw.emulator.transponders.agenda import Agenda, Appointment
from lumion_hw.emulator.transponders.qsfp.offsets import LANES


class DelayedLanes:
    """A mask of lanes, bit 0 for lane 1; each bit follows its request after a delay."""

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self._timers: dict[int, Appointment] = {}
        self.reset()

    def reset(self) -> None:
        """Clear all lanes at once, and cancel pending requests."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers = {}
        self.value = 0
        self._requested = 0

    def request(self, mask: int, set_s: float, clear_s: float) -> None:
        """Request a mask: lanes are set after ``set_s`` and cleared after ``clear_s``."""
        for lane in LANES:
            bit = 1 << (lane - 1)
            if not (mask ^ self._requested) & bit:
                continue
            if lane in self._timers:
                self._timers[lane].cancel()
            is_set = bool(mask & bit)
            self._timers[lane] = self._agenda.after(set_s if is_set else clear_s, partial(self._set, bit, is_set))
        self._requested = mask

    def _set(self, bit: int, is_set: bool) -> None:
        self.value = self.value | bit if is_set else self.value & ~bit
