"""A SCPI and IEEE 488.2 engine for emulated instruments, without I/O.

An instrument is data plus handlers: a :class:`Profile` (identity, terminator, queue depth), a list of commands in the
spelling of its manual, and small functions that read and change its state::

    instrument = ScpiInstrument("pm0", clock, Profile("Maker,Model,SN,1.0"), on_reset=meter.reset)
    instrument.declare(
        [
            query("[:SENSe[n]]:POWer", meter.power),
            number_setting("[:SENSe[n]]:CORRection:WAVelength", WAVELENGTH, meter.get_wl, meter.set_wl, keysight_float),
        ],
        {"n": SuffixRange(1, 4)},
    )

Layers, bottom up: :mod:`errors`, :mod:`units` and :mod:`formats` (tables), :mod:`framing` (bytes to messages),
:mod:`lexer` (units to tokens), :mod:`commands` and :mod:`parameters` (declarations), :mod:`tree` (lookup), :mod:`state`
(what connections share), :mod:`standard` (commands every instrument has), :mod:`connection` (one host) and
:mod:`instrument`. They are private: users import from here.
"""

from lumion_hw.emulator.scpi.commands import Call, Form, Later, Profile, Reply, ScpiCommand, Value, action, event, query
from lumion_hw.emulator.scpi.errors import NotApplied, ScpiError
from lumion_hw.emulator.scpi.instrument import ScpiDevice, ScpiInstrument
from lumion_hw.emulator.scpi.parameters import (
    Boolean,
    Choice,
    LimitName,
    NumberOrWord,
    Numeric,
    ScpiBlock,
    Text,
    flag_attribute,
    flag_setting,
    number_attribute,
    number_setting,
    word_setting,
)
from lumion_hw.emulator.scpi.standard import group_commands
from lumion_hw.emulator.scpi.state import InstrumentState, Operation, RegisterGroup
from lumion_hw.emulator.scpi.tree import SuffixRange, Tree

__all__ = [
    "Boolean",
    "Call",
    "Choice",
    "Form",
    "InstrumentState",
    "Later",
    "LimitName",
    "NotApplied",
    "NumberOrWord",
    "Numeric",
    "Operation",
    "Profile",
    "RegisterGroup",
    "Reply",
    "ScpiBlock",
    "ScpiCommand",
    "ScpiDevice",
    "ScpiError",
    "ScpiInstrument",
    "SuffixRange",
    "Text",
    "Tree",
    "Value",
    "action",
    "event",
    "flag_attribute",
    "flag_setting",
    "group_commands",
    "number_attribute",
    "number_setting",
    "query",
    "word_setting",
]
