"""Faults of each kind of device, as rows of one table.

What a row does goes through the hooks of the emulated device, so that a device needs not know of the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from firmware_protocol import FaultSource
from lumion_hw.emulator.faults.fault_table import Argument, Places, ScriptedFault
from lumion_hw.emulator.mesh.qontrol.load import OPEN, SHORT
from lumion_hw.emulator.transponders.cmis.module_faults import FAULTS as MODULE_FAULTS

BOARD, CHAIN, SFP, CMIS, ITLA, THORLABS = (
    "lumion-mesh",
    "qontrol-q8",
    "sfp-8472",
    "cmis",
    "itla-laser",
    "thorlabs-pm",
)
BRIDGES = (SFP, CMIS)
KINDS = (
    BOARD,
    CHAIN,
    "smartlight-line-server",
    SFP,
    CMIS,
    "keysight-n77xx",
    "keysight-816x",
    THORLABS,
    "santec-mpm",
    ITLA,
    "keysight-laser",
    "santec-tsl",
    "oz-epc04",
    "thorlabs-mpc",
    "keysight-n7785c",
    "novoptel-pm1000",
)
"""All kinds of devices that can be emulated."""
EVERY = ("every device",)
"""Kinds of a fault that every device can have."""
_CHANNEL = Argument("channel", "channel of the controller", among="channel")
_CHIP_C = (-40.0, 150.0)


@dataclass(frozen=True)
class Target:
    """What a fault acts on.

    Attributes:
        device: The emulated device.
        module: The module behind it, if it is a bridge.
    """

    device: Any
    module: Any = None


def places_of(kind: str, target: Target) -> Places:
    """Return which numbers exist on a device."""
    if kind == BOARD:
        sources = {*FaultSource, *range(24, 32)}
        return {"channel": range(target.device.profile.n_dac), "source": {int(source) for source in sources}}
    if kind == CHAIN:
        return {"channel": range(target.device.n_channels), "module": range(target.device.n_present)}
    return {}


def faults_of(kind: str) -> Iterator[ScriptedFault]:
    """Yield the faults that a kind of device can have."""
    for fault in DEVICE_FAULTS:
        if kind in fault.kinds or fault.kinds == EVERY:
            yield fault


def _set(name: str, value: Any, target: Target, **_: Any) -> None:
    setattr(target.device, name, value)


def _do(name: str, target: Target, **arguments: Any) -> None:
    """Call a hook of the device."""
    getattr(target.device, name)(**arguments)


def _bare(name: str, target: Target, **_: Any) -> None:
    """Call a hook of the device that takes no arguments."""
    getattr(target.device, name)()


def _module(name: str, *values: Any) -> Any:
    """Return what calls a hook of the module with fixed values."""

    def call(target: Target, **_: Any) -> None:
        getattr(target.module, name)(*values)

    return call


def _load(load: Any) -> Any:
    def call(target: Target, channel: int) -> None:
        target.device.fail_load(channel, load)

    return call


def _panel(name: str) -> Any:
    def call(target: Target, strength: float) -> None:
        target.module.faults.inject(name, strength)

    return call


def _calm(name: str) -> Any:
    def call(target: Target, **_: Any) -> None:
        target.module.faults.clear(name)

    return call


def _panel_rows() -> Iterator[ScriptedFault]:
    """Yield the faults of a CMIS module: those of its panel."""
    for name, fault in MODULE_FAULTS.items():
        if name == "unplug":  # that is module_dead
            continue
        strength = Argument("strength", fault.counts, fault.low, fault.high, fault.unit, default=fault.strength)
        yield ScriptedFault(name, (CMIS,), fault.effect, (strength,), _panel(name), _calm(name))


DEVICE_FAULTS: tuple[ScriptedFault, ...] = (
    ScriptedFault(
        "no_power",
        EVERY,
        "its supply fails: what it drives or emits ends, no answers, no connections; back, it starts as after power-on",
        begin=partial(_bare, "power_off"),
        end=partial(_bare, "power_on"),
    ),
    ScriptedFault(
        "no_cable",
        EVERY,
        "the cable to the host is pulled: connections are lost, none can be made; the device itself goes on",
        begin=partial(_bare, "pull_cable"),
        end=partial(_bare, "put_cable"),
    ),
    ScriptedFault(
        "trip",
        (BOARD,),
        "a fault source trips and stays present until the fault ends; what has latched stays latched",
        (Argument("source", "number of the source in the protocol", among="source"),),
        lambda target, source: target.device.trip(source, present=True),
        lambda target, source: target.device.remove_condition(source),
    ),
    ScriptedFault(
        "hot_chip",
        (BOARD,),
        "the chip has this temperature; above its limit the controller trips",
        (Argument("temperature_c", "temperature of the chip", *_CHIP_C, "degC"),),
        lambda target, temperature_c: target.device.set_chip_temperature(temperature_c),
    ),
    ScriptedFault(
        "hang",
        (BOARD,),
        "the processor hangs: no ticks, no answers, outputs as they are",
        begin=partial(_bare, "freeze"),
        end=partial(_bare, "thaw"),
    ),
    ScriptedFault(
        "deaf",
        (BOARD,),
        "it reads no more bytes; everything else goes on, and so the watchdog trips",
        begin=partial(_bare, "stop_reading"),
        end=partial(_bare, "resume_reading"),
    ),
    ScriptedFault(
        "restart", (BOARD,), "the processor restarts: outputs 0, sessions forgotten", begin=partial(_bare, "reset")
    ),
    ScriptedFault(
        "lose_frames",
        (BOARD,),
        "the next good frames are lost without a trace",
        (Argument("count", "how many", 1, 1_000_000, default=1),),
        lambda target, count: target.device.lose_frames(int(count)),
    ),
    ScriptedFault(
        "corrupt_bytes",
        (BOARD,),
        "bytes in both directions are replaced at random",
        (
            Argument("rate", "probability per byte", 0.0, 1.0),
            Argument("seed", "seed of the randomness", 0, 2**32 - 1, default=0),
        ),
        lambda target, rate, seed: target.device.corrupt(rate, int(seed)),
        lambda target, **_: target.device.corrupt(0.0),
    ),
    ScriptedFault(
        "trip",
        (CHAIN,),
        "a module reports an error that nobody asked for",
        (_CHANNEL, Argument("code", "error code of the manual", 0, 99, default=1)),
        lambda target, channel, code: target.device.trip(channel, int(code)),
    ),
    ScriptedFault(
        "open_heater",
        (CHAIN,),
        "the wire of a channel breaks",
        (_CHANNEL,),
        _load(OPEN),
        partial(_do, "mend_load"),
    ),
    ScriptedFault(
        "short_heater",
        (CHAIN,),
        "a channel is shorted",
        (_CHANNEL,),
        _load(SHORT),
        partial(_do, "mend_load"),
    ),
    ScriptedFault(
        "late_reply",
        (CHAIN,),
        "the next reply comes later, and all that follow it",
        (Argument("seconds", "how much later", 0.0, 60.0, "s"),),
        partial(_do, "delay_next_reply"),
    ),
    ScriptedFault(
        "module_out",
        (CHAIN,),
        "a module is taken out of the chain: its outputs go dead, channels behind it are renumbered",
        (Argument("index", "its place in the chain", among="module"),),
        partial(_do, "take_out"),
    ),
    ScriptedFault(
        "mute",
        (CHAIN,),
        "it obeys and says nothing",
        begin=partial(_set, "silent", True),
        end=partial(_set, "silent", False),
    ),
    ScriptedFault(
        "module_dead",
        (SFP,),
        "the module loses its supply: dark, and it does not acknowledge",
        begin=_module("power_off"),
        end=_module("power_on"),
    ),
    ScriptedFault(
        "module_dead",
        (CMIS,),
        "the module is pulled out: dark, and it does not acknowledge",
        begin=_module("unplug"),
        end=_module("plug"),
    ),
    ScriptedFault(
        "bus_stuck",
        BRIDGES,
        "the I2C bus hangs: every transaction times out",
        begin=partial(_set, "bus_stuck", True),
        end=partial(_set, "bus_stuck", False),
    ),
    ScriptedFault(
        "laser_broken",
        (SFP,),
        "the laser fails for good: dark, TX_FAULT latches, and again after each try to reset it",
        begin=lambda target: target.module.break_laser(persistent=True),
        end=_module("repair_laser"),
    ),
    ScriptedFault(
        "tx_disable_pin",
        (SFP,),
        "the pin that switches the laser off is asserted",
        begin=_module("set_tx_disable_pin", True),
        end=_module("set_tx_disable_pin", False),
    ),
    ScriptedFault(
        "low_power_pin",
        (CMIS,),
        "the low-power pin is asserted: the module powers down, unless its register forbids it",
        begin=_module("set_low_power_pin", True),
        end=_module("set_low_power_pin", False),
    ),
    ScriptedFault(
        "no_host_signal",
        (CMIS,),
        "its host lanes get no electrical signal: it squelches its light",
        begin=_module("set_host_signal", 0x00),
        end=_module("set_host_signal", 0xFF),
    ),
    ScriptedFault(
        "module_reset", (CMIS,), "a pulse at its reset pin: all registers at their defaults", begin=_module("reset")
    ),
    *_panel_rows(),
    ScriptedFault(
        "disable_pin",
        (ITLA,),
        "the pin that switches the output off is pulled",
        begin=lambda target: target.device.pull_disable_pin(True),
        end=lambda target: target.device.pull_disable_pin(False),
    ),
    ScriptedFault(
        "no_sensor",
        (THORLABS,),
        "the sensor is pulled out",
        begin=partial(_bare, "pull_sensor"),
        end=partial(_bare, "put_sensor"),
    ),
)
"""Faults of single devices."""
