"""Commands common to all emulated Keysight instruments.

Command language: 8163/8164/8166 programming guide, pp. 60 (``*OPT?``) and 81-82 (``SLOT``). Unverified choices: an
instrument that is not a mainframe reports itself as the module in each slot; only lasers have options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from lumion_hw.emulator.scpi.commands import Call, Reply, ScpiCommand, query
from lumion_hw.emulator.scpi.errors import SUFFIX_OUT_OF_RANGE, ScpiError
from lumion_hw.emulator.scpi.formats import quoted
from lumion_hw.emulator.scpi.parameters import IndexedChoice

POWER_UNIT = IndexedChoice(("DBM", "W"), {"WATT": "W"})
"""Unit of the powers of lasers and sensors."""
TRIGGER_WIRINGS = IndexedChoice(("DISabled", "DEFault", "PASSthrough", "LOOPback"))
"""Routing of the trigger connectors."""


@dataclass(frozen=True)
class SlotModule:
    """Identity of the module in a slot of a Keysight instrument.

    Attributes:
        identity: Maker, part number, serial number and firmware.
        options: Options, as the instrument spells them.
    """

    part: str
    identity: str
    options: str = "NO CONNECTOR OPTION, NO INSTRUMENT OPTIONS"


def self_as_modules(identity: str, slots: Iterable[int]) -> dict[int, SlotModule]:
    """Return the modules by slot for an instrument that reports itself as the module in each slot."""
    return dict.fromkeys(slots, SlotModule(identity.split(",")[1], identity))


def slot_commands(modules: Mapping[int, SlotModule], slots: Iterable[int]) -> Iterable[ScpiCommand]:
    """Return the SCPI queries for slots.

    Args:
        modules: Module in each occupied slot.
        slots: All slots, in order.
    """

    def module_query(read: Callable[[SlotModule], str]) -> Callable[[Call], Reply]:
        def run(call: Call) -> Reply:
            module = modules.get(call.suffix["n"])
            if module is None:
                raise ScpiError(SUFFIX_OUT_OF_RANGE)
            return read(module)

        return run

    parts = ",".join(modules[slot].part if slot in modules else "  " for slot in slots)
    yield query("*OPT", lambda _: parts)
    yield query(":SLOT[n]:EMPTy", lambda call: str(int(call.suffix["n"] not in modules)))
    yield query(":SLOT[n]:IDN", module_query(lambda module: module.identity))
    yield query(":SLOT[n]:OPTions", module_query(lambda module: module.options))
    yield query(":SLOT[n]:TST", module_query(lambda _: f"+0,{quoted('self test OK')}"))
