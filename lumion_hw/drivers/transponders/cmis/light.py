"""Checks with the module's own power readings that media lanes emit light or are dark."""

from __future__ import annotations

from collections.abc import Collection

from lumion_hw.drivers.transponders.cmis import monitors
from lumion_hw.drivers.transponders.cmis.context import ModuleContext
from lumion_hw.drivers.transponders.cmis.diagnostics import Vdm
from lumion_hw.errors import VerifyError
from lumion_hw.interfaces import Quality, Reading

DARK_DBM = -30.0
"""Power at or below which a media lane counts as dark, in dBm."""
LIGHT_S = 5.0
"""Longest time in s from the activation of a data path to its light."""
DARK_S = 1.0
"""Longest time in s from switching a data path off to darkness."""
_POLL_S = 0.1


def emitted_power(module: ModuleContext, vdm: Vdm, lanes: Collection[int]) -> dict[int, Reading]:
    """Read the emitted power of media lanes. Lanes without a measurement are omitted."""
    readings = {lane: reading["tx_power"] for lane, reading in monitors.lanes_readings(module, lanes).items()}
    sampled = {
        lane: monitors.sampled_power(vdm, "tx_power", lane)
        for lane, reading in readings.items()
        if reading.quality is Quality.NOT_SUPPORTED
    }
    measured = {lane: sampled.get(lane, reading) for lane, reading in readings.items()}
    return {lane: reading for lane, reading in measured.items() if reading is not None}


def has_light(reading: Reading) -> bool:
    """Return whether a power reading is above the limit for a dark lane."""
    return reading.value is not None and reading.value > DARK_DBM


def await_light(module: ModuleContext, vdm: Vdm, lanes: Collection[int]) -> None:
    """Wait until all measured media lanes emit light.

    Raises ``DeviceTimeoutError`` if a lane stays dark; the message names all dark lanes.
    """
    dark: list[int] = []

    def all_have_light() -> bool:
        module.state()
        dark[:] = [lane for lane, reading in emitted_power(module, vdm, lanes).items() if not has_light(reading)]
        return not dark

    def describe() -> str:
        named = f"media lane {dark[0]} emits" if len(dark) == 1 else f"media lanes {_joined(dark)} emit"
        return f"tx_failure: {named} no light"

    module.wait(all_have_light, LIGHT_S, describe)


def check_dark(module: ModuleContext, vdm: Vdm, lanes: Collection[int]) -> None:
    """Raise ``VerifyError`` if a media lane emits light; the message names all such lanes with their power."""
    end = module.clock.now() + DARK_S
    while emitting := {
        lane: reading for lane, reading in emitted_power(module, vdm, lanes).items() if has_light(reading)
    }:
        if module.clock.now() >= end:
            first = next(iter(emitting))
            named = f"media lane {first} is" if len(emitting) == 1 else f"media lanes {_joined(emitting)} are"
            raise module.memory.error(
                VerifyError,
                f"{named} not dark after switching off",
                wrote="Tx disable",
                read=", ".join(f"{reading.value:.2f} dBm" for reading in emitting.values()),
                hint="Assume that the fibre carries light. Remove the module if it must be dark.",
            )
        module.clock.sleep(_POLL_S)


def _joined(lanes: Collection[int]) -> str:
    return ", ".join(map(str, lanes))
