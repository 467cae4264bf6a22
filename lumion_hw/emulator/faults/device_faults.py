"""Faults that every emulated device can have, and helpers that declare the faults of single kinds.

A fault acts through hooks of the emulated device, so a device does not know its faults by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lumion_hw.emulator.faults.fault_table import ScriptedFault


@dataclass(frozen=True)
class Target:
    """The device that a fault acts on.

    Attributes:
        device: The emulated device.
        module: The module behind it, if the device is a bridge.
    """

    device: Any
    module: Any = None


def calls(hook: str, *values: Any) -> Callable[..., None]:
    """Return an action that calls a device method with fixed values."""
    return lambda target, **_: getattr(target.device, hook)(*values)


def passes(hook: str) -> Callable[..., None]:
    """Return an action that calls a device method with the arguments of the fault."""
    return lambda target, **arguments: getattr(target.device, hook)(**arguments)


def sets(name: str, value: Any) -> Callable[..., None]:
    """Return an action that sets an attribute of the device."""
    return lambda target, **_: setattr(target.device, name, value)


def calls_module(hook: str, *values: Any) -> Callable[..., None]:
    """Return an action that calls a module method with fixed values."""
    return lambda target, **_: getattr(target.module, hook)(*values)


def lasting(name: str, meaning: str, action: Callable[..., Callable[..., None]], member: str) -> ScriptedFault:
    """Return a fault that lasts while a condition of the device is true.

    Args:
        name: Name of the fault.
        meaning: Description of the fault.
        action: ``calls``, ``sets`` or ``calls_module``.
        member: The method that is called with true and with false, or the attribute that is set.
    """
    return ScriptedFault(name, meaning, begin=action(member, True), end=action(member, False))


EVERY_DEVICE: tuple[ScriptedFault, ...] = (
    ScriptedFault(
        "no_power",
        "its supply fails: outputs switch off, it neither replies nor accepts connections; afterwards it powers up",
        begin=calls("power_off"),
        end=calls("power_on"),
    ),
    ScriptedFault(
        "no_cable",
        "the cable to the host is pulled: connections are lost and refused; the device itself goes on",
        begin=calls("pull_cable"),
        end=calls("plug_cable"),
    ),
)
"""Faults of every device."""
BUS_STUCK = lasting("bus_stuck", "the I2C bus hangs: every transaction times out", sets, "bus_stuck")
"""Fault of every module behind an I2C bridge."""
_NO_ZERO = "its offset is too large to correct: zeroing fails even in the dark; readings continue"
ZERO_FAILS = lasting("zero_fails", _NO_ZERO, sets, "zero_fails")
"""Fault of power meters with a zero function."""
