"""Driver of one lane of a QSFP module whose lanes have fibres of their own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from lumion_hw.interfaces import LaneMonitors, Monitors, SignalStatus, TransponderIdentity


class LaneSwitch(Protocol):
    """The functions of a module's driver that the driver of a lane needs."""

    def identify(self) -> TransponderIdentity:
        """Read the identity of the module."""

    def can_switch(self) -> bool:
        """Return whether software can switch the transmitters."""

    def enable_lane(self, lane: int) -> None:
        """Switch the transmitter of a lane on."""

    def disable_lane(self, lane: int) -> None:
        """Switch the transmitter of a lane off."""

    def missing_monitors(self) -> frozenset[str]:
        """Return the quantities of ``Monitors`` that the module does not measure."""

    def readings(self) -> tuple[Monitors, tuple[LaneMonitors, ...]]:
        """Read the monitors of the module and of its lanes."""

    def status_of(self, lanes: Iterable[int]) -> SignalStatus:
        """Read the status of lanes."""


class QsfpLane:
    """Driver of one lane of a module; implements ``Transponder``. Other lanes do not change.

    Args:
        module: Driver of the module, which opens and closes the connection.
        lane: Lane, 1 to 4.
    """

    def __init__(self, module: LaneSwitch, lane: int) -> None:
        self._module, self._lane = module, lane

    def __repr__(self) -> str:
        """Return the module and the lane as one line of text."""
        return f"<{type(self).__name__} {self._lane} of {self._module!r}>"

    def identify(self) -> TransponderIdentity:
        """Read the identity of the module. Raises ``IdentityError`` if it is not the expected one."""
        return self._module.identify()

    def can_switch(self) -> bool:
        """Return whether software can switch the transmitter."""
        return self._module.can_switch()

    def missing_monitors(self) -> frozenset[str]:
        """Return the quantities of ``Monitors`` that the module does not measure; empty before it is open."""
        return self._module.missing_monitors()

    def enable(self) -> None:
        """Leave low-power mode and switch the transmitter of this lane on.

        Raises the errors of :meth:`QsfpTransponder.enable`.
        """
        self._module.enable_lane(self._lane)

    def disable(self) -> None:
        """Switch the transmitter of this lane off. Raises the errors of :meth:`QsfpTransponder.disable`."""
        self._module.disable_lane(self._lane)

    def monitors(self) -> Monitors:
        """Read temperature and supply of the module, and bias and powers of this lane.

        Raises the errors of :meth:`QsfpTransponder.monitors`.
        """
        whole, own = self._module.readings()
        lane = own[self._lane - 1]
        return Monitors(
            temperature_c=whole.temperature_c,
            supply_v=whole.supply_v,
            tx_bias_ma=lane.tx_bias_ma,
            tx_power_dbm=lane.tx_power_dbm,
            rx_power_dbm=lane.rx_power_dbm,
            timestamp_s=whole.timestamp_s,
        )

    def status(self) -> SignalStatus:
        """Read the status of this lane. Raises the errors of :meth:`QsfpTransponder.status`."""
        return self._module.status_of((self._lane,))

    def close(self) -> None:
        """Do nothing: the module's driver closes the link. The transmitter does not change."""
