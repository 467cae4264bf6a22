"""List, check and clear latched faults of the mesh controller of a bench.

While a fault is latched, the controller keeps its outputs off and every circuit is dark.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lumion_hw.errors import CLEAR_FAULTS, LIST_FAULTS, ConfigError, SafetyError
from lumion_hw.interfaces import Fault

if TYPE_CHECKING:
    from lumion_hw.bench.bench import Bench

HOST_SILENCE = frozenset({"WATCHDOG", "HOST_IDLE"})
"""Faults caused by a host that sent nothing for too long."""


def latched_faults(bench: Bench) -> tuple[Fault, ...]:
    """Return the latched faults of the mesh controller, oldest first; until they are cleared, the heaters stay off.

    Raises:
        LumionError: The controller does not answer.
    """
    section = bench.model.mesh
    if section is None or section.controller in bench.mesh_states:
        return ()
    return tuple(fault for fault in bench.mesh.controller.faults() if fault.latched)


def check_faults(bench: Bench) -> None:
    """Raise an error if the mesh controller has a latched fault.

    Raises:
        SafetyError: A fault is latched; the message lists all latched faults and the command that clears them.
        LumionError: The controller does not answer.
    """
    faults = latched_faults(bench)
    if faults:
        raise SafetyError(
            f"the mesh controller has switched its heaters off: {format_faults(faults)}",
            device=bench.model.mesh_section.controller,
            hint=f"{CLEAR_FAULTS}.",
        )


def find_latched(bench: Bench, name: str) -> tuple[Fault, ...]:
    """Return the latched faults with a name, such as ``WATCHDOG``, or the fault with an id.

    Raises:
        ConfigError: No latched fault has this name or id.
        LumionError: The controller does not answer.
    """
    latched = latched_faults(bench)
    matching = tuple(fault for fault in latched if name.upper() in (fault.source.upper(), str(fault.fault_id)))
    if not matching:
        raise ConfigError(
            f"no latched fault has the name or id {name!r}; latched faults: {format_faults(latched) or 'none'}",
            device=None if bench.model.mesh is None else bench.model.mesh.controller,
            hint=f"Nothing was cleared. {LIST_FAULTS}.",
        )
    return matching


def clear_faults(bench: Bench, name: str, by: str) -> tuple[Fault, ...]:
    """Clear latched faults of the mesh controller by name or id. Heaters stay off until they are programmed again.

    Args:
        bench: The bench.
        name: Source of the faults, such as ``WATCHDOG``, or the id of one fault.
        by: Name of the program or user that clears the faults, for the event log.

    Returns:
        The faults that were cleared.

    Raises:
        ConfigError: No latched fault has this name or id; nothing was cleared.
        SafetyError: The cause of a fault is still present; this fault and later ones remain latched.
        LumionError: The controller does not answer.
    """
    matching = find_latched(bench, name)
    controller = bench.mesh.controller
    for fault in matching:
        controller.clear_fault(fault.fault_id)
        bench.events.add("fault cleared", controller=bench.model.mesh_section.controller, fault=str(fault), by=by)
    return matching


def clear_host_silence(bench: Bench, by: str) -> tuple[Fault, ...]:
    """Clear the latched faults caused by a silent host, unless another fault is latched.

    ``by`` is the name of the program, for the event log.

    Raises:
        SafetyError: Another fault is latched; nothing was cleared.
        LumionError: The controller does not answer.
    """
    latched = latched_faults(bench)
    if any(fault.source not in HOST_SILENCE for fault in latched):
        check_faults(bench)
    names = {fault.source for fault in latched}
    return tuple(fault for name in names for fault in clear_faults(bench, name, by))


def format_faults(faults: Iterable[Fault]) -> str:
    """Return latched faults as text for a message."""
    return "; ".join(map(str, faults))
