"""``arroyo-tec``: Arroyo TECSource temperature controllers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from lumion_hw.bench.file.devices import DeviceModel
from lumion_hw.bench.file.fields import Number
from lumion_hw.bench.file.kind import DeviceKind, DiscoveryQuery, ScpiIdentity
from lumion_hw.bench.file.roles import Role
from lumion_hw.clock import Clock
from lumion_hw.links.base import Link

if TYPE_CHECKING:
    from lumion_hw.drivers.temperature.arroyo_tec import ArroyoTec
    from lumion_hw.emulator.assembly import EmulatedBench
    from lumion_hw.emulator.faults.fault_table import ScriptedFault
    from lumion_hw.emulator.temperature.arroyo_tec import EmulatedArroyoTec
    from lumion_hw.interfaces import TemperatureController


class TemperatureControllerModel(DeviceModel):
    """Arroyo TECSource 5200, 5300 or 5400 series (text over USB or serial, 38400 baud; TCP port 10001).

    Opening sets the tolerance below, and neither temperature nor output: a chip is not to warm up because a program
    starts.
    """

    kind: Literal["arroyo-tec"]
    serial: str | None = Field(None, description="Expected serial number; another one is refused at opening.")
    tolerance_c: Number = Field(0.02, ge=0.01, le=10.0, description="Distance from the set point that counts as held.")
    window_s: Number = Field(10.0, ge=0.1, le=50.0, description="Time that it has to be held before it counts.")

    def set_up(self, device: ArroyoTec) -> ArroyoTec:
        """Tell it the tolerance of the file, and neither temperature nor output; return the controller."""
        from lumion_hw.drivers.life_cycle import close_on_error

        with close_on_error(device.close):
            device.set_tolerance(self.tolerance_c, self.window_s)
        return device


def _open(name: str, model: TemperatureControllerModel, link: Link, clock: Clock) -> TemperatureController:
    from lumion_hw.drivers.temperature.arroyo_tec import ArroyoTec

    controller = ArroyoTec(link, clock, device=name, expected_serial=model.serial)
    controller.open()
    return model.set_up(controller)


def _emulate(bench: EmulatedBench, name: str, model: TemperatureControllerModel) -> EmulatedArroyoTec:
    from lumion_hw.emulator.temperature.arroyo_tec import REFERENCE_C, EmulatedArroyoTec

    controller = EmulatedArroyoTec(
        name, bench.clock, serial=model.emulated_serial(name), rng=bench.rng(name), holding=bench.warm
    )
    if name == bench.spec.temperature:
        bench.slow_drift.held_k = lambda: controller.plate_c() - REFERENCE_C
        bench.world.before_reading.append(controller.advance)
    return controller


def _identify(answer: bytes) -> tuple[str, dict[str, Any]] | None:
    found = re.match(r"Arroyo(?: Instruments)?[ ,]+(5[234]\d\d)[ ,]+([!-+\--~]+)", answer.decode("ascii", "replace"))
    return (f"Arroyo {found[1]}", {"serial": found[2]}) if found else None


def _faults() -> tuple[ScriptedFault, ...]:
    from lumion_hw.emulator.faults.device_faults import calls, lasting

    pulled = "the sensor is pulled out; the output ends, and stays off"
    opened = "the lead to the cooler is open; the output ends, and stays off"
    return lasting("no_sensor", pulled, calls, "unplug_sensor"), lasting("interlock", opened, calls, "set_interlock")


KIND = DeviceKind(
    title="Arroyo TECSource temperature controller",
    role=Role.TEMPERATURE,
    model=TemperatureControllerModel,
    open=_open,
    emulate=_emulate,
    baud=38400,
    wire="pty",
    faults=_faults,
    queries=lambda: (DiscoveryQuery("Arroyo TECSource (*IDN?)", (38400,), b"*IDN?\r\n", _identify),),
    scpi=ScpiIdentity("arroyo", "5[234]\\d\\d", names_model=False),
)
