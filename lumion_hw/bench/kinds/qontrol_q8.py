"""``qontrol-q8``: a chain of Qontrol current sources."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from lumion_hw.bench.file.checks import BenchData, Check, items
from lumion_hw.bench.file.devices import HeaterDriverModel
from lumion_hw.bench.file.fields import Number, QontrolModule
from lumion_hw.bench.file.heater_checks import compliance_check, heater_check
from lumion_hw.bench.file.kind import DeviceKind, DiscoveryQuery
from lumion_hw.bench.file.roles import Role
from lumion_hw.clock import Clock
from lumion_hw.links.base import Link

if TYPE_CHECKING:
    from lumion_hw.emulator.assembly import EmulatedBench
    from lumion_hw.emulator.faults.device_faults import Target
    from lumion_hw.emulator.faults.fault_table import Places, ScriptedFault
    from lumion_hw.emulator.mesh.qontrol import QontrolChain
    from lumion_hw.interfaces import MeshController


class QontrolModel(HeaterDriverModel):
    """A chain of Qontrol current sources (Q8iv family) on one serial line, 115 200 baud.

    Currents change one by one, and no watchdog switches them off, so connect the supply to an interlock. Without
    photodiodes, a calibration needs power meters at the mesh outputs.
    """

    kind: Literal["qontrol-q8"]
    modules: tuple[QontrolModule, ...] | None = Field(
        None,
        min_length=1,
        max_length=1024,
        description="Expected modules in the order of the chain, such as Q8iv-0001; opening fails if they differ.",
    )
    mode: Literal["binary", "ascii"] = Field(
        "binary", description="Format of the messages; ascii is readable on a serial monitor."
    )
    compliance_v: Number | None = Field(
        None,
        gt=0.0,
        le=100.0,
        description="Voltage limit; by default 1.5 times the voltage of a heater at heater_max_ma.",
    )
    readback_tolerance_ma: Number = Field(
        0.1, gt=0.0, le=10.0, description="Largest difference between the set and the measured current."
    )
    idle_off_s: Number | None = Field(
        None,
        ge=0.1,
        le=86400.0,
        description="Time without a call from this process after which the heaters switch off; by default never.",
    )

    @property
    def n_channels(self) -> int | None:
        """Number of channels of the modules in the bench file; ``None`` if the file names no modules."""
        return None if self.modules is None else sum(map(channels_of_module, self.modules))

    def emulated_channels(self, needed: int) -> int:
        """Return the number of channels of the modules, by default of as many modules of 8 as needed."""
        return self.n_channels or 8 * -(-needed // 8)


def channels_of_module(module: str) -> int:
    """Return the number of channels of a Qontrol module, which is the digit in its type name."""
    digits = re.search(r"[0-9]+", module.partition("-")[0])
    return int(digits[0]) if digits else 0


def _check(bench: BenchData, name: str) -> Iterator[Check]:
    yield from heater_check(bench, name, QontrolModel)
    yield from compliance_check(bench, name)
    names = bench.controllers()
    if name not in names:
        return
    if "monitor_ports" in bench.mesh:
        message = f"expected no monitor_ports: {name!r} is of kind qontrol-q8, which has no photodiodes"
        yield Check(("mesh", "monitor_ports"), message, ("devices", name), on_key=True)
    by_chain = [items(bench.devices.get(chain, {}).get("modules")) for chain in names]
    modules = [module for chain in by_chain for module in chain if isinstance(module, str)]
    needed, available = bench.channels_needed(), sum(map(channels_of_module, modules))
    if all(by_chain) and available < needed and name == names[-1]:
        message = f"expected modules with the {needed} drive channels that the mesh needs, found {available}"
        yield Check(("devices", name, "modules"), message)


def _open(name: str, model: QontrolModel, link: Link, clock: Clock) -> MeshController:
    import numpy as np

    from lumion_hw.drivers.life_cycle import close_on_error
    from lumion_hw.drivers.mesh.qontrol.controller import QontrolController

    controller = QontrolController(
        link,
        clock,
        device=name,
        expected_serial=None if model.modules is None else ",".join(model.modules),
        mode=model.mode,
        compliance_v=model.compliance_v,
        tolerance_ma=model.readback_tolerance_ma,
        idle_off_s=model.idle_off_s,
        leave_on=model.leave_on_s > 0.0,
    )
    controller.open()
    with close_on_error(controller.close):
        n_heaters = controller.info.n_heaters
        if not model.leave_on_s:  # without a watchdog, the currents set by a crashed program still flow
            controller.program(np.zeros(n_heaters))
        controller.configure(model.limits(n_heaters))
    return controller


def _emulate(bench: EmulatedBench, name: str, model: QontrolModel) -> QontrolChain:
    from lumion_hw.emulator.mesh.qontrol import (
        BAUD,
        OPEN,
        ChainProfile,
        HeaterLoad,
        ModuleSpec,
        QontrolChain,
        ReplyMode,
    )

    first = int(bench.chip_id[:3], 16) * 16  # different chips have different modules
    heaters = bench.share_of(name).heaters
    numbers = range(heaters.start // 8 + 1, heaters.stop // 8 + 1)
    names = model.modules or tuple(f"Q8iv-{first + number:04X}" for number in numbers)
    modules = [ModuleSpec(kind, _number(text)) for kind, _, text in (name.partition("-") for name in names)]
    loads = [OPEN] * sum(module.n_channels for module in modules)
    truth = bench.world.truth

    def heater_loads() -> dict[int, HeaterLoad]:
        wired = enumerate(bench.spec.heater_channels) if name in bench.spec.controllers else ()
        return {
            channel - heaters.start: HeaterLoad(
                float(truth.heater_ohm[heater]), float(truth.nonlinearity_per_mw[heater])
            )
            for heater, channel in wired
            if channel in heaters
        }

    for channel, load in heater_loads().items():
        loads[channel] = load
    chain = QontrolChain(
        name,
        bench.clock,
        bench.rng(name),
        drive=bench.driving(name),
        modules=modules,
        loads=loads,
        profile=ChainProfile(reply_mode=ReplyMode.USB1, baud=BAUD),
    )
    bench.world.before_reading.append(chain.advance)

    def age(_: float) -> None:
        for channel, load in heater_loads().items():
            chain.age_load(channel, load)

    bench.slow_drift.on_change.append(age)
    return chain


def _number(text: str) -> int | None:
    return None if text.startswith("*") else int(text, 16)


def _identify(answer: bytes) -> tuple[str, dict[str, Any]] | None:
    match = re.search(rb"\b(Q\d\w*-[0-9A-Fa-f]{4})\b", answer)
    return None if match is None else (match[1].decode(), {})


def _places(target: Target) -> Places:
    return {"channel": range(target.device.n_channels), "module": range(target.device.n_present)}


def _faults() -> tuple[ScriptedFault, ...]:
    from lumion_hw.emulator.faults.device_faults import lasting, passes, sets
    from lumion_hw.emulator.faults.fault_table import Argument, ScriptedFault
    from lumion_hw.emulator.mesh.qontrol import OPEN, SHORT

    channel = Argument("channel", "channel of the controller", component_kind="channel")
    return (
        ScriptedFault(
            "trip",
            "a module sends an unsolicited error report",
            (channel, Argument("code", "error code of the manual", 0, 99, default=1)),
            lambda target, channel, code: target.device.trip(channel, int(code)),
            places=_places,
            is_momentary=True,
        ),
        ScriptedFault(
            "open_heater",
            "the wire of a channel breaks",
            (channel,),
            lambda target, channel: target.device.fail_load(channel, OPEN),
            passes("repair_load"),
            places=_places,
        ),
        ScriptedFault(
            "short_heater",
            "a channel is shorted",
            (channel,),
            lambda target, channel: target.device.fail_load(channel, SHORT),
            passes("repair_load"),
            places=_places,
        ),
        ScriptedFault(
            "late_reply",
            "the next reply and all later ones are delayed",
            (Argument("delay_s", "delay", 0.0, 60.0, "s"),),
            passes("delay_next_reply"),
        ),
        ScriptedFault(
            "module_out",
            "a module is removed from the chain: its outputs stop working and later channels are renumbered",
            (Argument("index", "index of the module in the chain, from 0", component_kind="module"),),
            passes("remove_module"),
            places=_places,
        ),
        lasting("mute", "the chain obeys commands but sends no replies", sets, "silent"),
    )


KIND = DeviceKind(
    title="chain of Qontrol current sources",
    role=Role.MESH,
    model=QontrolModel,
    open=_open,
    emulate=_emulate,
    wire="pty",
    queries=lambda: (DiscoveryQuery("Qontrol chain (ID?)", (115200,), b"id?\n", _identify),),
    faults=_faults,
    check=_check,
)
