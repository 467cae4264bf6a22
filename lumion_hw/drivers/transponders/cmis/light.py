"""Proof that media lanes launch light, or launch none, by the module's own measurement of each."""

from __future__ import annotations

from collections.abc import Collection

from lumion_hw.drivers.transponders.cmis import monitors
from lumion_hw.drivers.transponders.cmis.context import ModuleContext
from lumion_hw.drivers.transponders.cmis.diagnostics import Vdm
from lumion_hw.errors import VerifyError
from lumion_hw.interfaces import Quality, Reading

DARK_DBM = -30.0
"""A media lane at or below this power is dark; modules show their floor of -40 dBm then."""
LIGHT_S = 5.0
"""Time from an active data path to a power reading above the floor."""
DARK_S = 1.0
"""Time from data paths that are off to power readings that say so."""
_LOOK_S = 0.1


def launched(module: ModuleContext, vdm: Vdm, lanes: Collection[int]) -> dict[int, Reading]:
    """Read the launched power of media lanes: by the lane monitors, or else by the diagnostics of the module.

    Lanes that the module does not measure are left out.
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
    """Return whether a launched power is light. Exactly 0 dBm is 1 mW."""
    return reading.value is not None and reading.value > DARK_DBM


def await_light(module: ModuleContext, vdm: Vdm, lanes: Collection[int]) -> None:
    """Wait until every one of the media lanes that the module measures launches light.

    Raises:
        DeviceTimeoutError: One does not; the message names all that do not.
    """
    dark: list[int] = []

    def lit() -> bool:
        module.state()
        dark[:] = [lane for lane, reading in launched(module, vdm, lanes).items() if not is_lit(reading)]
        return not dark

    def words() -> str:
        named = f"media lane {dark[0]} launches" if len(dark) == 1 else f"media lanes {_listed(dark)} launch"
        return f"tx_failure: {named} no light"

    module.wait(lit, LIGHT_S, words)


def check_dark(module: ModuleContext, vdm: Vdm, lanes: Collection[int]) -> None:
    """Make sure that none of the media lanes that the module measures launches light.

    Raises:
        VerifyError: One does; the message names all that do, with their power.
    """
    end = module.clock.now() + DARK_S
    while lit := {lane: reading for lane, reading in launched(module, vdm, lanes).items() if is_lit(reading)}:
        if module.clock.now() >= end:
            first = next(iter(lit))
            named = f"media lane {first} is" if len(lit) == 1 else f"media lanes {_listed(lit)} are"
            raise module.memory.error(
                VerifyError,
                f"{named} not dark",
                wrote="Tx disable",
                read=", ".join(f"{reading.value:.2f} dBm" for reading in lit.values()),
                hint="Treat the fibre as lit; unplug the module if it has to be dark.",
            )
        module.clock.sleep(_LOOK_S)


def _listed(lanes: Collection[int]) -> str:
    return ", ".join(map(str, lanes))
