"""Modules of emulated Keysight instruments: what there is, what a slot tells of its own, and words they share.

Language: 8163/8164/8166 programming guide, pp. 60 (``*OPT?``) and 81-82 (``SLOT``). Model choices: an instrument
without a mainframe has one module of its own name in each slot; options other than those of lasers are none. Figures of
the lasers, and of sensors other than the 81635A, are those of their classes, to be confirmed in the data sheets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from lumion_hw.emulator.lasers.swept_laser import LaserProfile
from lumion_hw.emulator.meters.n77xx_head import HEAD_81635A, HeadProfile
from lumion_hw.emulator.scpi import Call, NumberOrWord, Reply, ScpiCommand, ScpiError, query
from lumion_hw.emulator.scpi import errors as scpi_errors
from lumion_hw.emulator.scpi.formats import quoted

SLOTS = {
    "8163A": range(1, 3),
    "8163B": range(1, 3),
    "8164A": range(5),
    "8164B": range(5),
    "8166A": range(1, 18),
    "8166B": range(1, 18),
}
"""Slots of each mainframe; slot 0 takes a tunable laser and nothing else does."""
LASER_SLOT = 0
MODULE_SPEEDS_NM_PER_S = (0.5, 5.0, 10.0, 20.0, 40.0, 80.0)
"""Sweep speeds of the lasers for slot 0."""

POWER_UNIT = NumberOrWord(("DBM", "W"), {"WATT": "W"})
"""Unit of powers, of lasers and of sensors."""
TRIGGER_WIRINGS = NumberOrWord(("DISabled", "DEFault", "PASSthrough", "LOOPback"))
"""What the trigger connectors are joined to."""


@dataclass(frozen=True)
class SlotSensor:
    """One model of power sensor.

    Attributes:
        channels: Inputs.
        head: Figures of each.
    """

    channels: int
    head: HeadProfile


def _sensor(
    wavelengths_nm: tuple[float, float],
    ranges_dbm: tuple[int, int],
    noise_w: float,
    shortest_s: float = 100e-6,
    most_points: int = 20_001,
) -> SlotSensor:
    """Return a sensor of one input; ``noise_w`` is that of an average over 1 s."""
    head = HeadProfile(
        wavelength_limits_m=(wavelengths_nm[0] * 1e-9, wavelengths_nm[1] * 1e-9),
        averaging_limits_s=(shortest_s, 10.0),
        range_limits_dbm=ranges_dbm,
        noise_w_at_1_s=noise_w,
        responsivity_nm=HEAD_81635A.responsivity_nm,
        responsivity_a_per_w=HEAD_81635A.responsivity_a_per_w,
        limited_top=False,
        most_points=most_points,
    )
    return SlotSensor(1, head)


SENSORS: Mapping[str, SlotSensor] = {
    "81630B": _sensor((970.0, 1650.0), (-70, 30), 1.7e-9),
    "81634B": _sensor((800.0, 1700.0), (-110, 10), 0.035e-12),
    "81635A": SlotSensor(2, HEAD_81635A),
    "81636B": _sensor((1250.0, 1640.0), (-80, 10), 3.5e-12, shortest_s=25e-6, most_points=100_001),
}

_POWER_DBM = (-15.0, 8.5)
LASERS: Mapping[str, LaserProfile] = {
    "81600B-130": LaserProfile((1260.0, 1375.0), _POWER_DBM),
    "81600B-140": LaserProfile((1370.0, 1495.0), _POWER_DBM),
    "81600B-150": LaserProfile((1450.0, 1590.0), _POWER_DBM),
    "81600B-160": LaserProfile((1495.0, 1640.0), _POWER_DBM),
    "81600B-200": LaserProfile((1440.0, 1640.0), _POWER_DBM),
}
LOW_SSE_LOSS_DB = 5.0
"""Power that the output of low spontaneous emission has less than the other one."""


@dataclass(frozen=True)
class SlotModule:
    """What a slot tells of what is in it.

    Attributes:
        part: Part number.
        identity: Maker, part number, serial number and firmware.
        options: Options, in the words of the instrument.
    """

    part: str
    identity: str
    options: str = "NO CONNECTOR OPTION, NO INSTRUMENT OPTIONS"


def ports_of(modules: Mapping[int, str]) -> list[tuple[int, int]]:
    """Return slot and channel of every input of the sensors, in the order of the slots."""
    return [
        (slot, channel)
        for slot in sorted(modules)
        if slot != LASER_SLOT
        for channel in range(1, SENSORS[modules[slot]].channels + 1)
    ]


def module_of(slot: int, model: str) -> SlotModule:
    """Return what a module of a mainframe tells; ``model`` is one of :data:`SENSORS` or :data:`LASERS`."""
    part, _, option = model.partition("-")
    identity = f"Agilent Technologies,{part},DE{slot:08d},V1.0"
    return SlotModule(part, identity, f"NO CONNECTOR OPTION, #{option}") if option else SlotModule(part, identity)


def own_modules(identity: str, slots: Iterable[int]) -> dict[int, SlotModule]:
    """Return the slots of an instrument that is its own module: it answers as itself in each."""
    return dict.fromkeys(slots, SlotModule(identity.split(",")[1], identity))


def slot_commands(modules: Mapping[int, SlotModule], slots: Iterable[int]) -> Iterable[ScpiCommand]:
    """Return the queries of slots, whose number is the suffix ``n``.

    Args:
        modules: What is plugged in, by slot.
        slots: Every slot, in their order.
    """

    def of_module(tell: Callable[[SlotModule], str]) -> Callable[[Call], Reply]:
        def run(call: Call) -> Reply:
            module = modules.get(call.suffix["n"])
            if module is None:
                raise ScpiError(scpi_errors.SUFFIX_OUT_OF_RANGE)
            return tell(module)

        return run

    parts = ",".join(modules[slot].part if slot in modules else "  " for slot in slots)
    yield query("*OPT", lambda _: parts)
    yield query(":SLOT[n]:EMPTy", lambda call: str(int(call.suffix["n"] not in modules)))
    yield query(":SLOT[n]:IDN", of_module(lambda module: module.identity))
    yield query(":SLOT[n]:OPTions", of_module(lambda module: module.options))
    yield query(":SLOT[n]:TST", of_module(lambda _: f"+0,{quoted('self test OK')}"))
