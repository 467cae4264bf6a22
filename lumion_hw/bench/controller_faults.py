"""Latched faults of a bench's mesh controller: listed, checked before a judgement about light, cleared by name.

A controller with a latched fault keeps its outputs off, so that every circuit is dark. Nothing that depends on light
means anything until the fault is cleared and the circuits are set up again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lumion_hw.errors import CLEAR_FAULTS, LIST_FAULTS, ConfigError, SafetyError
from lumion_hw.interfaces import Fault

if TYPE_CHECKING:
    from lumion_hw.bench.bench import Bench

HOST_SILENCE = frozenset({"WATCHDOG", "HOST_IDLE"})
"""Faults whose cause is a host that was silent; a host that is back has removed the cause."""


def latched_faults(bench: Bench) -> tuple[Fault, ...]:
    """Return the faults that keep the heaters off, oldest first; none on a mesh that takes states of its cells.

    Raises:
        LumionError: The controller does not answer.
    """
    section = bench.model.mesh
    if section is None or section.controller in bench.mesh_states:
        return ()
    return tuple(fault for fault in bench.mesh.controller.faults() if fault.latched)


def check_faults(bench: Bench) -> None:
    """Make sure that no fault keeps the heaters off.

    Raises:
        SafetyError: A fault is latched; the message names each, and the command that clears it.
        LumionError: The controller does not answer.
    """
    faults = latched_faults(bench)
    if faults:
        raise SafetyError(
            f"the mesh controller has switched its heaters off: {listed(faults)}",
            device=bench.model.mesh_section.controller,
            hint=f"{CLEAR_FAULTS}.",
        )


def clear_faults(bench: Bench, name: str, by: str) -> tuple[Fault, ...]:
    """Clear every latched fault of a name, each by its id. The heaters stay off until they are programmed.

    Args:
        bench: The bench.
        name: Source of the faults, such as ``WATCHDOG``; or the id of one of them.
        by: Who clears them, for the event log.

    Returns:
        The faults that were cleared.

    Raises:
        ConfigError: No latched fault has this name or id; nothing was cleared.
        SafetyError: The cause of one is still present; that one and later ones are still latched.
        LumionError: The controller does not answer.
    """
    latched = latched_faults(bench)
    found = [fault for fault in latched if name.upper() in (fault.source.upper(), str(fault.fault_id))]
    if not found:
        raise ConfigError(
            f"no latched fault is called {name!r}; latched: {listed(latched) or 'none'}",
            device=None if bench.model.mesh is None else bench.model.mesh.controller,
            hint=f"Nothing was cleared. {LIST_FAULTS}.",
        )
    controller = bench.mesh.controller
    for fault in found:
        controller.clear_fault(fault.fault_id)
        bench.events.add("fault cleared", controller=bench.model.mesh_section.controller, fault=str(fault), by=by)
    return tuple(found)


def clear_host_silence(bench: Bench, by: str) -> tuple[Fault, ...]:
    """Clear the faults that say no more than that this host was silent, if no other fault is latched.

    Args:
        bench: The bench.
        by: The program that is back, for the event log.

    Returns:
        The faults that were cleared; none if none was latched.

    Raises:
        SafetyError: Another fault is latched; nothing was cleared.
        LumionError: The controller does not answer.
    """
    latched = latched_faults(bench)
    if any(fault.source not in HOST_SILENCE for fault in latched):
        check_faults(bench)
    return tuple(fault for name in {each.source for each in latched} for fault in clear_faults(bench, name, by))


def listed(faults: Iterable[Fault]) -> str:
    """Return faults for a message."""
    return "; ".join(map(str, faults))
