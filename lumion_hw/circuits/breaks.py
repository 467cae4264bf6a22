"""Where a circuit in service has lost its light, told by what can be read without touching anything.

The order of the light is the order of the questions: does the transmitter launch, does the light reach the mesh, does
it leave at the right port, does it arrive behind the fibre, does the receiver see it. For the middle three the mesh's
own monitors are compared with what they read while all was well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

FaultPlace = Literal[
    "controller", "transmitter", "fibre before the mesh", "path", "fibre behind the mesh", "receiver", "before the tap"
]
"""``controller``: it has switched its heaters off. ``before the tap``: no monitor of the mesh can tell more."""

BROKEN_DB = 3.0
"""Light lost against what was proven that counts as a break; less is a degradation."""
_SAME_DB = 2.0
"""Light that has changed by less is where it was."""
_ELSEWHERE = 0.2
"""Part of the lost light that, found at other ports, proves that the mesh sends it there."""
_NOISE = 1e-3
"""Of the light at the exit: less at a port tells nothing."""


@dataclass(frozen=True)
class LightReading:
    """What is seen of one circuit at one time.

    Attributes:
        launch_dbm: Launch power as the transmitter reports it; ``None`` if it is dark.
        fibre_dbm: Power in the fibre at the facet, as the tap behind implies; ``None`` in the dark.
        los: The receiver reports loss of signal.
        monitors_ma: Photocurrent of the mesh's own monitors by port; empty where it has none.
    """

    launch_dbm: float | None
    fibre_dbm: float | None
    los: bool
    monitors_ma: Mapping[int, float]


@dataclass(frozen=True)
class LocatedFault:
    """Where a circuit has lost its light.

    Attributes:
        place: Where.
        detail: What was seen, in words.
    """

    place: FaultPlace
    detail: str

    def __str__(self) -> str:
        """Return both."""
        return f"{self.place}: {self.detail}"


def locate_fault(
    well: LightReading, now: LightReading, exit_port: int, own_ports: frozenset[int]
) -> LocatedFault | None:
    """Return where a circuit has lost its light; ``None`` if it has not.

    Args:
        well: What was seen while all was well.
        now: What is seen now.
        exit_port: Port where the light has to leave the mesh.
        own_ports: Ports whose monitors see next to nothing but strays of this circuit.
    """
    if now.launch_dbm is None:
        return LocatedFault("transmitter", "it reports no light of its own")
    fallen_db = _fallen_db(well.launch_dbm, now.launch_dbm)
    if fallen_db > BROKEN_DB:
        return LocatedFault("transmitter", f"it launches {fallen_db:.1f} dB less than before")
    lost_db = _fallen_db(well.fibre_dbm, now.fibre_dbm)
    if lost_db <= BROKEN_DB:
        return LocatedFault("receiver", "light arrives at its tap, and it reports loss of signal") if now.los else None
    gone = "all light is gone" if math.isinf(lost_db) else f"{lost_db:.1f} dB are gone"
    if exit_port not in well.monitors_ma or exit_port not in now.monitors_ma:
        return LocatedFault("before the tap", f"{gone}; no monitor of the mesh can tell where")
    left_db = _ratio_db(well.monitors_ma[exit_port], now.monitors_ma[exit_port])
    if left_db < _SAME_DB:
        return LocatedFault("fibre behind the mesh", f"{gone} behind port {exit_port}, where the mesh still emits it")
    return _in_the_mesh(well.monitors_ma, now.monitors_ma, exit_port, own_ports, gone)


def _in_the_mesh(
    well: Mapping[int, float], now: Mapping[int, float], exit_port: int, own_ports: frozenset[int], gone: str
) -> LocatedFault:
    """Tell light that goes astray in the mesh from light that does not reach it."""
    others = [port for port in well if port != exit_port and port in now]
    risen = {port: now[port] - well[port] for port in others}
    brightest = max(risen, key=lambda port: risen[port], default=None)
    if brightest is not None and sum(max(each, 0.0) for each in risen.values()) > _ELSEWHERE * well[exit_port]:
        return LocatedFault("path", f"{gone}, and light leaves at port {brightest} instead of {exit_port}")
    # Strays leave before the place where light is lost and behind it. Those that stay have passed no such place.
    telling = [port for port in others if port in own_ports and well[port] > _NOISE * well[exit_port]]
    stayed = [port for port in telling if _ratio_db(well[port], now[port]) < _SAME_DB]
    if stayed:
        return LocatedFault("path", f"{gone}, and its strays at ports {stayed} are as before: it is lost on its way")
    how = f"as are its strays at ports {telling}" if telling else "and nothing of it is seen elsewhere"
    return LocatedFault("fibre before the mesh", f"{gone}, {how}")


def _fallen_db(before_dbm: float | None, now_dbm: float | None) -> float:
    """Return by how much a level has fallen; infinite in the dark, 0 if nothing was known."""
    if before_dbm is None:
        return 0.0
    return math.inf if now_dbm is None else before_dbm - now_dbm


def _ratio_db(before: float, now: float) -> float:
    return 10.0 * math.log10(max(before, 1e-12) / max(now, 1e-12))
