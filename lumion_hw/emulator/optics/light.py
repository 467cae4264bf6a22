"""Light between emulated instruments, from a laser to a meter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Light:
    """Light in one fibre at one instant.

    Attributes:
        repetition_hz: Pulses per second; 0 for continuous light.
    """

    power_w: float
    wavelength_nm: float = 1550.0
    repetition_hz: float = 0.0


class LightOutlet:
    """Optical output of a laser, which reports changes of the light to the bench (``emit``)."""

    def __init__(self, emit: Callable[[Light], None] | None) -> None:
        self._emit = emit
        self._emitted: Light | None = None

    def report(self, light: Callable[[], Light]) -> None:
        """Report the laser's light to the bench if it has changed."""
        if self._emit is not None and (present_light := light()) != self._emitted:
            self._emitted = present_light
            self._emit(present_light)
