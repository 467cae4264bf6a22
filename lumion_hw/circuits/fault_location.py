"""Location of a loss of light on a circuit in service, from readings alone: no setting is changed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

FaultPlace = Literal[
    "controller", "transmitter", "fibre before the mesh", "path", "fibre behind the mesh", "receiver", "before the tap"
]
"""Location of a fault.

``controller``: the mesh controller has switched its heaters off. ``before the tap``: light is lost before the output's
tap, and the mesh has no monitor that shows where.
"""

BROKEN_DB = 3.0
"""Loss of light in dB from which a circuit counts as broken; a smaller loss is a degradation."""
_SAME_DB = 2.0
"""Change in dB below which light counts as unchanged."""
_MISROUTED_FRACTION = 0.2
"""If at least this fraction of the lost light appears at other ports, the mesh sends it there."""
_NOISE = 1e-3
"""Readings of ports with less than this fraction of the output port's light are not used."""


@dataclass(frozen=True)
class LightReading:
    """Readings of one circuit at one time.

    Attributes:
        launch_dbm: Launch power that the transmitter reports; ``None`` if it is dark.
        fibre_dbm: Power in the output fibre at the facet; ``None`` in the dark.
        los: Whether the receiver reports loss of signal.
        monitors_ma: Photocurrent of the mesh's own monitors by port; empty if there are none.
    """

    launch_dbm: float | None
    fibre_dbm: float | None
    los: bool
    monitors_ma: Mapping[int, float]


@dataclass(frozen=True)
class LocatedFault:
    """Location where a circuit has lost its light.

    Attributes:
        place: The part of the path where light was lost.
        detail: Description of the readings.
    """

    place: FaultPlace
    detail: str

    def __str__(self) -> str:
        """Return place and detail."""
        return f"{self.place}: {self.detail}"


def locate_fault(
    reference: LightReading, present: LightReading, exit_port: int, own_ports: frozenset[int]
) -> LocatedFault | None:
    """Return where a circuit has lost its light; ``None`` if the circuit is healthy.

    Args:
        reference: Readings from a time without a fault.
        present: Present readings.
        exit_port: Port where the light should leave the mesh.
        own_ports: Ports whose stray light comes almost only from this circuit.
    """
    if present.launch_dbm is None:
        return LocatedFault("transmitter", "it reports that it sends no light")
    # In the order of the light, because a fault at an early place causes the symptoms of all later places too.
    launch_drop_db = _level_drop_db(reference.launch_dbm, present.launch_dbm)
    if launch_drop_db > BROKEN_DB:
        return LocatedFault("transmitter", f"it launches {launch_drop_db:.1f} dB less than before")
    level_drop_db = _level_drop_db(reference.fibre_dbm, present.fibre_dbm)
    if level_drop_db <= BROKEN_DB:
        return (
            LocatedFault("receiver", "light arrives at its tap, but it reports loss of signal") if present.los else None
        )
    loss = "all light is lost" if math.isinf(level_drop_db) else f"{level_drop_db:.1f} dB are lost"
    if exit_port not in reference.monitors_ma or exit_port not in present.monitors_ma:
        return LocatedFault("before the tap", f"{loss}; the mesh has no monitor that shows where")
    # The monitor at the exit port sees the light before it enters the fibre.
    drop_db = _ratio_db(reference.monitors_ma[exit_port], present.monitors_ma[exit_port])
    if drop_db < _SAME_DB:
        return LocatedFault("fibre behind the mesh", f"{loss} behind port {exit_port}, which still emits the light")
    return _locate_in_mesh(reference.monitors_ma, present.monitors_ma, exit_port, own_ports, loss)


def _locate_in_mesh(
    reference: Mapping[int, float], present: Mapping[int, float], exit_port: int, own_ports: frozenset[int], loss: str
) -> LocatedFault:
    other_ports = [port for port in reference if port != exit_port and port in present]
    risen = {port: present[port] - reference[port] for port in other_ports}
    brightest = max(risen, key=lambda port: risen[port], default=None)
    if (
        brightest is not None
        and sum(max(rise, 0.0) for rise in risen.values()) > _MISROUTED_FRACTION * reference[exit_port]
    ):
        return LocatedFault("path", f"{loss}, and light leaves at port {brightest} instead of {exit_port}")
    # Stray light leaves the path before and behind the place of the loss. Stray light that is unchanged has left the
    # path before it, so the loss is inside the mesh.
    informative = [
        port for port in other_ports if port in own_ports and reference[port] > _NOISE * reference[exit_port]
    ]
    unchanged = [port for port in informative if _ratio_db(reference[port], present[port]) < _SAME_DB]
    if unchanged:
        return LocatedFault(
            "path", f"{loss}, but its stray light at ports {unchanged} is unchanged: the loss is on the path"
        )
    strays = f"and so is its stray light at ports {informative}" if informative else "and no other port shows it"
    return LocatedFault("fibre before the mesh", f"{loss}, {strays}")


def _level_drop_db(before_dbm: float | None, present_dbm: float | None) -> float:
    if before_dbm is None:
        return 0.0
    return math.inf if present_dbm is None else before_dbm - present_dbm


def _ratio_db(before: float, present: float) -> float:
    # The offset of a dark monitor can read zero or less, which has no decibels.
    return 10.0 * math.log10(max(before, 1e-12) / max(present, 1e-12))
