"""Squelch of the optical output (Tx, per media lane) and of the electrical output (Rx, per host lane).

Registers: CMIS 5.2 page 10h, bytes 131 (AutoSquelchDisableTx), 132 (OutputSquelchForceTx), 138 (OutputDisableRx) and
139 (AutoSquelchDisableRx); advertised in 01h:155.5-2 and 01h:156.2-1.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lumion_hw.drivers.transponders.cmis import data_paths as dp
from lumion_hw.drivers.transponders.cmis.context import ModuleContext
from lumion_hw.drivers.transponders.squelch import Side, SquelchMode, squelch_mode
from lumion_hw.standards.cmis.codes import ModuleState

_NO_SQUELCH = 0  # 01h:155.5-4


@dataclass(frozen=True)
class _Controls:
    """Names of the register fields that control the squelch of one side."""

    automatic: str
    forced: str


_CONTROLS: dict[Side, _Controls] = {
    "tx": _Controls("tx_auto_squelch_disable", "tx_forced_squelch"),
    "rx": _Controls("rx_auto_squelch_disable", "rx_output_disable"),
}


def check(module: ModuleContext, side: Side, mode: SquelchMode | None = None) -> None:
    """Raise ``NotSupportedError`` if the module cannot set this mode, or any mode if it is ``None``."""
    module.needs(not module.advertised.flat, "squelch")
    can_disable, can_force = _supported(module, side)
    name = side.capitalize()
    if mode is None:
        module.needs(can_disable or can_force, f"control of the {name} squelch")
    elif mode == "forced":
        module.needs(can_force, f"forcing the {name} squelch")
    elif mode == "off":
        module.needs(can_disable, f"disabling the {name} squelch")
    else:
        module.needs(can_disable or can_force, f"control of the {name} squelch")
        if side == "tx":
            module.needs(module.advertised.number("tx_squelch_method") != _NO_SQUELCH, "automatic Tx squelch")


def _supported(module: ModuleContext, side: Side) -> tuple[bool, bool]:
    controls = _CONTROLS[side]
    return bool(module.advertised.supported(controls.automatic)), bool(module.advertised.supported(controls.forced))


def read(module: ModuleContext, side: Side, lanes: Collection[int]) -> dict[int, SquelchMode]:
    """Read the squelch mode of lanes. Raises ``NotSupportedError`` if the module has no control of this squelch."""
    check(module, side)
    controls = _CONTROLS[side]
    bits = {}
    with module.memory.pages.transaction():
        for name, is_supported in zip((controls.automatic, controls.forced), _supported(module, side), strict=True):
            values = module.memory.values(name) if is_supported else (False,) * len(module.memory.lanes)
            bits[name] = dict(zip(module.memory.lanes, values, strict=True))
    return {
        lane: squelch_mode(
            is_disabled=bool(bits[controls.automatic][lane]), is_forced=bool(bits[controls.forced][lane])
        )
        for lane in lanes
    }


def write(module: ModuleContext, side: Side, mode: SquelchMode, lanes: Collection[int]) -> None:
    """Set the squelch mode of lanes and read it back.

    A forced Tx squelch ends the light of these media lanes, and their data paths leave the state activated.

    Raises:
        NotSupportedError: The module does not advertise this mode.
        VerifyError: The module ignores the register.
        DeviceTimeoutError: A data path did not reach a steady state.
    """
    check(module, side, mode)
    module.guard()
    controls = _CONTROLS[side]
    can_disable, can_force = _supported(module, side)
    if can_disable and mode != "forced":
        module.memory.set_lanes(controls.automatic, lanes, mode == "off")
    if can_force:
        module.memory.set_lanes(controls.forced, lanes, mode == "forced")
    if side == "tx" and module.state() == ModuleState.READY:
        changed = [path for path in dp.data_paths(module) if set(path.media_lanes) & set(lanes)]
        dp.await_steady(module, dp.host_lanes(changed))
