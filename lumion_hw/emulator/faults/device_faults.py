"""Faults that every emulated device can have, and what the rows of single kinds are made with.

What a row does goes through the hooks of the emulated device, so that a device needs not know of faults by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lumion_hw.emulator.faults.fault_table import ScriptedFault


@dataclass(frozen=True)
class Target:
    """What a fault acts on.

    Attributes:
        device: The emulated device.
        module: The module behind it, if it is a bridge.
    """

    device: Any
    module: Any = None


def calls(hook: str, *values: Any) -> Callable[..., None]:
    """Return what calls a hook of the device with fixed values, or none."""
    return lambda target, **_: getattr(target.device, hook)(*values)


def passes(hook: str) -> Callable[..., None]:
    """Return what calls a hook of the device with the arguments of the fault."""
    return lambda target, **arguments: getattr(target.device, hook)(**arguments)


def sets(name: str, value: Any) -> Callable[..., None]:
    """Return what sets an attribute of the device."""
    return lambda target, **_: setattr(target.device, name, value)


def calls_module(hook: str, *values: Any) -> Callable[..., None]:
    """Return what calls a hook of the module with fixed values."""
    return lambda target, **_: getattr(target.module, hook)(*values)


def lasting(name: str, meaning: str, action: Callable[..., Callable[..., None]], what: str) -> ScriptedFault:
    """Return a fault that is there while something is true.

    Args:
        name: Its name.
        meaning: What it is, in words.
        action: ``calls``, ``sets`` or ``calls_module``.
        what: The hook that is called with true and with false, or the attribute that is set so.
    """
    return ScriptedFault(name, meaning, begin=action(what, True), end=action(what, False))


EVERY_DEVICE: tuple[ScriptedFault, ...] = (
    ScriptedFault(
        "no_power",
        "its supply fails: what it drives or emits ends, no answers, no connections; back, it starts as after power-on",
        begin=calls("power_off"),
        end=calls("power_on"),
    ),
    ScriptedFault(
        "no_cable",
        "the cable to the host is pulled: connections are lost, none can be made; the device itself goes on",
        begin=calls("pull_cable"),
        end=calls("put_cable"),
    ),
)
"""Faults of every device."""
BUS_STUCK = lasting("bus_stuck", "the I2C bus hangs: every transaction times out", sets, "bus_stuck")
"""Fault of every module behind an I2C bridge."""
_NO_ZERO = "its offset is beyond what it can correct: zeroing fails in the dark too; readings go on"
ZERO_FAILS = lasting("zero_fails", _NO_ZERO, sets, "zero_fails")
"""Fault of power meters that zero."""
