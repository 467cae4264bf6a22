"""The interfaces that cross to a served bench, and which of their methods change nothing."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, get_args

from lumion_hw.interfaces import CoherentTransponder, LightWatcher
from lumion_hw.interfaces.open_device import OpenDevice

INTERFACES: dict[str, type[Any]] = {
    each.__name__: each for each in (*get_args(OpenDevice), CoherentTransponder, LightWatcher)
}
"""By name: what devices are of, and what some of them can do besides."""

READS = frozenset(
    {
        "can_switch", "capabilities", "change", "close", "connections", "errors", "faults", "flags", "identify",
        "limits", "monitors", "performance", "read", "read_all", "read_back", "read_monitors", "settings", "state",
        "status", "telemetry", "wait", "wait_for_lock", "wait_locked", "wait_ready",
    }
)  # fmt: skip
"""Methods that leave the bench as it is. All others need the lease: also those that nobody has thought of here."""
SAFE = frozenset({"outputs_off"})
"""Methods that can only make things safe: anybody may."""


def members(interface: type[Any]) -> Iterator[tuple[str, bool]]:
    """Yield name of every public method and property of an interface, and whether it is a property."""
    seen = set()
    for cls in interface.__mro__:
        if cls is object or cls.__name__ in ("Protocol", "Generic"):
            continue
        for name, value in vars(cls).items():
            if name.startswith("_") or name in seen or not (inspect.isfunction(value) or isinstance(value, property)):
                continue
            seen.add(name)
            yield name, isinstance(value, property)


def interface_of(device: object) -> str | None:
    """Return the name of the interface of an open device that says most; ``None`` if it has none of these."""
    fitting = [
        name
        for name, interface in INTERFACES.items()
        if all(hasattr(type(device), member) or hasattr(device, member) for member, _ in members(interface))
    ]
    return max(fitting, key=lambda name: sum(1 for _ in members(INTERFACES[name])), default=None)
