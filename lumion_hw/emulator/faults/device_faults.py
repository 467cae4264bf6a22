"""Faults that every emulated device can have, and helpers that declare the faults of one kind of device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lumion_hw.emulator.faults.fault_table import MODULE_DEAD, Argument, ScriptedFault

if TYPE_CHECKING:
    from lumion_hw.emulator.transponders.module_fault import ModuleFault


@dataclass(frozen=True)
class Target:
    """The emulated device on which a fault acts, and the pluggable ``module`` behind an I2C bridge."""

    device: Any
    module: Any = None


def calls(hook: str, *values: Any) -> Callable[..., None]:
    """Return a fault action that calls a method of the device with fixed values."""
    return lambda target, **_: getattr(target.device, hook)(*values)


def passes(hook: str) -> Callable[..., None]:
    """Return a fault action that calls a method of the device with the arguments of the fault."""
    return lambda target, **arguments: getattr(target.device, hook)(**arguments)


def sets(name: str, value: Any) -> Callable[..., None]:
    """Return a fault action that sets an attribute of the device to a fixed value."""
    return lambda target, **_: setattr(target.device, name, value)


def calls_module(hook: str, *values: Any) -> Callable[..., None]:
    """Return a fault action that calls a method of the pluggable module with fixed values."""
    return lambda target, **_: getattr(target.module, hook)(*values)


def lasting(
    name: str, meaning: str, action: Callable[..., Callable[..., None]], member: str, *, may_precede: bool = False
) -> ScriptedFault:
    """Return a fault that switches a condition on when it begins and off when it ends.

    Args:
        name: Name of the fault.
        meaning: Description of the fault.
        action: How the device is changed: ``calls``, ``sets`` or ``calls_module``.
        member: Name of the method or attribute; it receives true at the start and false at the end.
        may_precede: Whether the condition may be present before the fault is started.
    """
    return ScriptedFault(name, meaning, begin=action(member, True), end=action(member, False), may_precede=may_precede)


def panel_fault(name: str, fault: ModuleFault) -> ScriptedFault:
    """Return a fault that the fault panel of a pluggable module starts and clears."""

    def begin(target: Target, strength: float) -> None:
        target.module.faults.inject(name, strength)

    def end(target: Target, **_: float) -> None:
        target.module.faults.clear(name)

    strength = Argument("strength", fault.strength_meaning, fault.low, fault.high, fault.unit, default=fault.strength)
    return ScriptedFault(
        name, fault.effect, (strength,), begin, end, is_present=lambda target: name in target.module.faults.active
    )


EVERY_DEVICE: tuple[ScriptedFault, ...] = (
    ScriptedFault(
        "no_power",
        "the device loses power: outputs switch off, and the device neither replies nor accepts connections",
        begin=calls("power_off"),
        end=calls("power_on"),
    ),
    ScriptedFault(
        "no_cable",
        "the cable to the host is pulled: connections are lost and refused; the device itself keeps running",
        begin=calls("pull_cable"),
        end=calls("plug_cable"),
    ),
)
"""Faults of every device."""
BUS_STUCK = lasting("bus_stuck", "the I2C bus hangs: every transaction times out", sets, "bus_stuck")
"""Fault of every module behind an I2C bridge."""
MODULE_UNPLUGGED = ScriptedFault(
    MODULE_DEAD,
    "the module is unplugged: it is dark and does not acknowledge",
    begin=calls_module("unplug"),
    end=calls_module("plug"),
)
"""Fault of every module in a socket."""
_NO_ZERO = "the meter's offset is too large to correct: zeroing fails even in the dark; readings continue"
ZERO_FAILS = lasting("zero_fails", _NO_ZERO, sets, "zero_fails")
"""Fault of power meters with a zero function."""
