"""Light between stand-alone emulated instruments: what a laser gives and what a meter's input sees."""

from __future__ import annotations

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
