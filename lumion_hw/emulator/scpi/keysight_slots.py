"""What all Keysight instruments here say alike: what is in their slots, and two words of their settings.

Language: 8163/8164/8166 programming guide, pp. 60 (``*OPT?``) and 81-82 (``SLOT``). Model choices: an instrument
without a mainframe has one module of its own name in each slot; options other than those of lasers are none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from lumion_hw.emulator.scpi.commands import Call, Reply, ScpiCommand, query
from lumion_hw.emulator.scpi.errors import SUFFIX_OUT_OF_RANGE, ScpiError
from lumion_hw.emulator.scpi.formats import quoted
from lumion_hw.emulator.scpi.parameters import NumberOrWord

POWER_UNIT = NumberOrWord(("DBM", "W"), {"WATT": "W"})
"""Unit of powers, of lasers and of sensors."""
TRIGGER_WIRINGS = NumberOrWord(("DISabled", "DEFault", "PASSthrough", "LOOPback"))
"""What the trigger connectors are joined to."""


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
                raise ScpiError(SUFFIX_OUT_OF_RANGE)
            return tell(module)

        return run

    parts = ",".join(modules[slot].part if slot in modules else "  " for slot in slots)
    yield query("*OPT", lambda _: parts)
    yield query(":SLOT[n]:EMPTy", lambda call: str(int(call.suffix["n"] not in modules)))
    yield query(":SLOT[n]:IDN", of_module(lambda module: module.identity))
    yield query(":SLOT[n]:OPTions", of_module(lambda module: module.options))
    yield query(":SLOT[n]:TST", of_module(lambda _: f"+0,{quoted('self test OK')}"))
