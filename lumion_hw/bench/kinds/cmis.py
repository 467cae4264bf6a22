"""``cmis``: CMIS modules (QSFP-DD, OSFP ...), coherent or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from lumion_hw.bench.fields import Number, Serial, StrictModel, Whole
from lumion_hw.bench.kind import DeviceKind
from lumion_hw.bench.module_connection import PIN_SCHEMES, ModuleConnection, PluggableModel, module_device
from lumion_hw.bench.roles import Role
from lumion_hw.clock import Clock
from lumion_hw.links.base import Link

if TYPE_CHECKING:
    from lumion_hw.emulator.assembly import EmulatedBench
    from lumion_hw.emulator.faults.device_faults import Target
    from lumion_hw.emulator.faults.fault_table import ScriptedFault
    from lumion_hw.emulator.transponders.i2c_bridge import I2cBridge
    from lumion_hw.interfaces import Transponder

_WITH_PINS = tuple(f"{scheme}://" for scheme in PIN_SCHEMES)


class PinsModel(StrictModel):
    """Pins of an adapter that are wired to the low-speed signals of a module's socket."""

    reset_l: Whole | None = Field(None, ge=0, le=15, description="Pin on ResetL: reset() then pulls it.")
    lp_mode: Whole | None = Field(None, ge=0, le=15, description="Pin on LPMode: power_up() and power_down() drive it.")
    int_l: Whole | None = Field(None, ge=0, le=15, description="Pin on IntL: the module asks for attention.")
    mod_prs_l: Whole | None = Field(None, ge=0, le=15, description="Pin on ModPrsL: a module is in the socket.")

    def wired(self) -> dict[str, int]:
        """Return the pins that are given, by signal."""
        return {signal: pin for signal, pin in self if pin is not None}

    @model_validator(mode="after")
    def _each_its_own(self) -> Self:
        pins = list(self.wired().values())
        if len(set(pins)) < len(pins):
            raise ValueError(f"expected a pin of its own for every signal, found {self.wired()}")
        return self


class CmisModel(PluggableModel):
    """A CMIS module (QSFP-DD, OSFP ...), coherent or not."""

    kind: Literal["cmis"]
    serial: Serial | None = Field(None, description="Expected serial number; another one is refused at opening.")
    vendor: str | None = Field(None, description="Expected vendor name.")
    part_number: str | None = Field(None, description="Expected part number.")
    media_lane: Whole = Field(1, ge=1, le=8, description="Media lane that carries the light.")
    profile: Literal["400zr", "zr-plus-high-power", "400g-dr4"] = Field(
        "400zr", description="What the module is when it is emulated; a real one says it itself."
    )
    hold_off_s: Number = Field(0.0, ge=0.0, le=1.0, description="Pause after writes and page changes, for slow boards.")
    power_request: Literal["software", "pin"] = Field(
        "software", description="Who asks for low power: the module's own bit, or the pin of its socket."
    )
    pins: PinsModel | None = Field(
        None, description="Pins of an ftdi:// (3 to 15) or mcp2221:// (0 to 3) adapter on signals of the socket."
    )

    @model_validator(mode="after")
    def _pins_of_an_adapter(self) -> Self:
        if self.pins is not None and self.address is not None and not self.address.startswith(_WITH_PINS):
            raise ValueError(f"expected an adapter with pins (ftdi:// or mcp2221://) as address, found {self.address}")
        return self


def _open(name: str, model: CmisModel, link: Link | ModuleConnection, clock: Clock) -> Transponder:
    from lumion_hw.drivers.transponders.cmis import CmisTransponder

    device, pins = module_device(link, clock, name, None if model.pins is None else model.pins.wired())
    module = CmisTransponder(
        device,
        clock,
        device=name,
        expected_vendor=model.vendor,
        expected_part_number=model.part_number,
        expected_serial=model.serial,
        quirks={"power_request": model.power_request},
        lane=model.media_lane,
        hold_off_s=model.hold_off_s,
        pins=pins,
    )
    module.open()
    return module


def _emulate(bench: EmulatedBench, name: str, model: CmisModel) -> I2cBridge:
    from lumion_hw.emulator.transponders.cmis import CmisModule, ModuleOnBus
    from lumion_hw.emulator.transponders.cmis.profiles import profile_named

    module = CmisModule(
        profile_named(model.profile),
        bench.clock,
        bench.rng(name),
        name=name,
        serial=model.emulated_serial(name),
        optics=bench.coherent_light.optics(name),
        emit=bench.coherent_light.emit(name),
        warm=bench.warm,
    )
    return bench.on_i2c(name, module, ModuleOnBus(module))


def _faults() -> tuple[ScriptedFault, ...]:
    from lumion_hw.emulator.faults.device_faults import BUS_STUCK, calls_module
    from lumion_hw.emulator.faults.fault_table import MODULE_DEAD, ScriptedFault
    from lumion_hw.emulator.transponders.cmis.faults import FAULTS

    return (
        ScriptedFault(
            MODULE_DEAD,
            "the module is pulled out: dark, and it does not acknowledge",
            begin=calls_module("unplug"),
            end=calls_module("plug"),
        ),
        BUS_STUCK,
        ScriptedFault(
            "low_power_pin",
            "the low-power pin is asserted: the module powers down, unless its register forbids it",
            begin=calls_module("set_low_power_pin", True),
            end=calls_module("set_low_power_pin", False),
        ),
        ScriptedFault(
            "no_host_signal",
            "its host lanes get no electrical signal: it squelches its light",
            begin=calls_module("set_host_signal", 0x00),
            end=calls_module("set_host_signal", 0xFF),
        ),
        ScriptedFault(
            "module_reset", "a pulse at its reset pin: all registers at their defaults", begin=calls_module("reset")
        ),
        *(_from_panel(name) for name in FAULTS if name != "unplug"),  # that is module_dead
    )


def _from_panel(name: str) -> ScriptedFault:
    """Return a fault of the emulated module's own panel."""
    from lumion_hw.emulator.faults.fault_table import Argument, ScriptedFault
    from lumion_hw.emulator.transponders.cmis.faults import FAULTS

    def begin(target: Target, strength: float) -> None:
        target.module.faults.inject(name, strength)

    def end(target: Target, **_: float) -> None:
        target.module.faults.clear(name)

    fault = FAULTS[name]
    strength = Argument("strength", fault.counts, fault.low, fault.high, fault.unit, default=fault.strength)
    return ScriptedFault(name, fault.effect, (strength,), begin, end)


KIND = DeviceKind(
    title="CMIS module (QSFP-DD, OSFP ...), coherent or not: [transponders](transponders.md)",
    role=Role.TRANSPONDER,
    model=CmisModel,
    open=_open,
    module_connections=True,
    emulate=_emulate,
    wire="pty",
    faults=_faults,
)
