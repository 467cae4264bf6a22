"""Checks that media lanes emit light or are dark, with the power measured by the module."""

from __future__ import annotations

from collections.abc import Collection

from lumion_hw.drivers.transponders.cmis import monitors
from lumion_hw.drivers.transponders.cmis.context import ModuleContext
from lumion_hw.drivers.transponders.cmis.diagnostics import Vdm
from lumion_hw.errors import VerifyError
from lumion_hw.interfaces import Quality, Reading

DARK_DBM = -30.0
"""A media lane at or below this power is dark; modules then report their floor of -40 dBm."""
LIGHT_S = 5.0
"""Time in s allowed from the activation of a data path to a power reading above the module's floor."""
DARK_S = 1.0
"""Time in s allowed until power readings show that data paths are off."""
_POLL_S = 0.1


def emitted_power(module: ModuleContext, vdm: Vdm, lanes: Collection[int]) -> dict[int, Reading]:
    """Read the emitted power of media lanes from the lane monitors, or otherwise from the VDM samples.

    Lanes without a measurement are omitted.
    """
    readings = {lane: reading["tx_power"] for lane, reading in monitors.lanes_readings(module, lanes).items()}
    sampled = {
        lane: monitors.sampled_power(vdm, "tx_power", lane)
        for lane, reading in readings.items()
        if reading.quality is Quality.NOT_SUPPORTED
    }
    measured = {lane: sampled.get(lane, reading) for lane, reading in readings.items()}
    return {lane: reading for lane, reading in measured.items() if reading is not None}


def is_lit(reading: Reading) -> bool:
    """Return whether a power reading is above the limit for a dark lane."""
    return reading.value is not None and reading.value > DARK_DBM


def await_light(module: ModuleContext, vdm: Vdm, lanes: Collection[int]) -> None:
    """Wait until all measured media lanes emit light.

    Raises ``DeviceTimeoutError`` if a lane stays dark; the message names all dark lanes.
    """
    dark: list[int] = []

    def all_lit() -> bool:
        module.state()
        dark[:] = [lane for lane, reading in emitted_power(module, vdm, lanes).items() if not is_lit(reading)]
        return not dark

    def describe() -> str:
        named = f"media lane {dark[0]} emits" if len(dark) == 1 else f"media lanes {_joined(dark)} emit"
        return f"tx_failure: {named} no light"

    module.wait(all_lit, LIGHT_S, describe)


def check_dark(module: ModuleContext, vdm: Vdm, lanes: Collection[int]) -> None:
    """Check that all measured media lanes are dark.

    Raises ``VerifyError`` if a lane emits light; the message names all such lanes with their power.
    """
    end = module.clock.now() + DARK_S
    while lit := {lane: reading for lane, reading in emitted_power(module, vdm, lanes).items() if is_lit(reading)}:
        if module.clock.now() >= end:
            first = next(iter(lit))
            named = f"media lane {first} is" if len(lit) == 1 else f"media lanes {_joined(lit)} are"
            raise module.memory.error(
                VerifyError,
                f"{named} not dark after switching off",
                wrote="Tx disable",
                read=", ".join(f"{reading.value:.2f} dBm" for reading in lit.values()),
                hint="Assume that the fibre carries light. Remove the module if it must be dark.",
            )
        module.clock.sleep(_POLL_S)


def _joined(lanes: Collection[int]) -> str:
    return ", ".join(map(str, lanes))
