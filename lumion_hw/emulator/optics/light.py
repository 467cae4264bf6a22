"""Light between stand-alone emulated instruments: what a laser gives and what a meter's input sees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Light:
    """Light in one fibre at one instant.

    A laser's ``light`` method can be handed to a meter as it is; anything between them is a function around it.

    Attributes:
        power_w: Mean power in watts.
        wavelength_nm: Vacuum wavelength in nanometres.
        repetition_hz: Pulses per second; 0 for light that does not pulse.
    """

    power_w: float
    wavelength_nm: float = 1550.0
    repetition_hz: float = 0.0


class LightOutlet:
    """Tells a laser's bench of its light, whenever that has changed.

    Args:
        emit: Called with the light; ``None`` for a laser that shines into nothing.
    """

    def __init__(self, emit: Callable[[Light], None] | None) -> None:
        self._emit = emit
        self._emitted: Light | None = None

    def show(self, light: Callable[[], Light]) -> None:
        """Tell of the light if it is another one than before; it is not computed if nobody listens."""
        if self._emit is not None and (present := light()) != self._emitted:
            self._emitted = present
            self._emit(present)
