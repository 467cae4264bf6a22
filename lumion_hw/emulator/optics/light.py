"""Light between stand-alone emulated instruments: emitted by a laser, received by a meter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Light:
    """Light in one fibre at one instant.

    A laser's ``light`` method can be passed to a meter directly. To model components in between, wrap it in a function.

    Attributes:
        power_w: Mean power in watts.
        wavelength_nm: Vacuum wavelength in nanometres.
        repetition_hz: Pulses per second; 0 for light that does not pulse.
    """

    power_w: float
    wavelength_nm: float = 1550.0
    repetition_hz: float = 0.0


class LightOutlet:
    """Optical output of a laser. It reports the light to the bench (``emit``) whenever the light has changed."""

    def __init__(self, emit: Callable[[Light], None] | None) -> None:
        self._emit = emit
        self._emitted: Light | None = None

    def report(self, light: Callable[[], Light]) -> None:
        """Report the laser's light to the bench if it has changed; does nothing for a laser that is not connected."""
        if self._emit is not None and (light_now := light()) != self._emitted:
            self._emitted = light_now
            self._emit(light_now)
