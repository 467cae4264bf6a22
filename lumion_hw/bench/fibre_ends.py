"""Stand-ins for the modules at the far ends of fibres that lead to other meshes."""

from __future__ import annotations

from lumion_hw.clock import Clock
from lumion_hw.interfaces import Monitors, SignalStatus, TransponderIdentity


class FibreEnd:
    """A port with a fibre to another mesh, in place of the module there. Thread-safe.

    The module on the other bench cannot be reached from here. Its light is switched by the program that joins the
    meshes, which also reports the power that arrives.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self._name, self._clock = name, clock
        self._arriving_dbm: float | None = None

    def report_arriving(self, power_dbm: float | None) -> None:
        """Store the power that enters the mesh here, measured on the other bench; ``None`` if it is dark."""
        self._arriving_dbm = power_dbm

    def identify(self) -> TransponderIdentity:
        """Return an identity with the name of the port."""
        return TransponderIdentity("", self._name, "", "", "", "fibre to another mesh", 0.0)

    def can_switch(self) -> bool:
        """Return that this bench cannot switch the light."""
        return False

    def enable(self) -> None:
        """Do nothing: the module on the other bench is switched there."""

    def disable(self) -> None:
        """Do nothing: the module on the other bench is switched there."""

    def monitors(self) -> Monitors:
        """Return the reported power as that of the transmitter."""
        return Monitors(None, None, None, self._arriving_dbm, None, self._clock.now())

    def status(self) -> SignalStatus:
        """Return a status without faults; whether light arrives is known only at the last module."""
        return SignalStatus(False, False, False, True, self._clock.now())

    def close(self) -> None:
        """Do nothing."""
