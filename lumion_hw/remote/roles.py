"""Interfaces that a served bench offers, and their methods that need no lease."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, get_args

from lumion_hw.interfaces import CoherentTransponder, LightWatcher
from lumion_hw.interfaces.open_device import OpenDevice

INTERFACES: dict[str, type[Any]] = {
    interface.__name__: interface for interface in (*get_args(OpenDevice), CoherentTransponder, LightWatcher)
}
"""Interfaces of devices and of objects that devices return, by name."""

READS = frozenset(
    {
        "can_switch", "capabilities", "change", "close", "connections", "errors", "faults", "flags", "identify",
        "limits", "monitors", "performance", "read", "read_all", "read_back", "read_monitors", "settings", "state",
        "status", "telemetry", "wait", "wait_for_lock", "wait_locked", "wait_ready",
    }
)  # fmt: skip
"""Methods that change nothing. All other methods need the lease."""
SAFE = frozenset({"outputs_off"})
"""Methods that only make the bench safer and need no lease."""


def members(interface: type[Any]) -> Iterator[tuple[str, bool]]:
    """Yield the name of every public method and property of an interface, and whether it is a property."""
    listed = set()
    for cls in interface.__mro__:
        if cls is object or cls.__name__ in ("Protocol", "Generic"):
            continue
        for name, value in vars(cls).items():
            if name.startswith("_") or name in listed or not (inspect.isfunction(value) or isinstance(value, property)):
                continue
            listed.add(name)
            yield name, isinstance(value, property)


def find_interface(device: object) -> str | None:
    """Return the name of the most specific interface of a device, or ``None`` if it has no known interface."""
    matching = [
        name
        for name, interface in INTERFACES.items()
        if all(hasattr(type(device), member) or hasattr(device, member) for member, _ in members(interface))
    ]
    return max(matching, key=lambda name: sum(1 for _ in members(INTERFACES[name])), default=None)
