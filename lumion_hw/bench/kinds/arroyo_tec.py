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

    Opening sets only the tolerance, not the temperature or the output.
    """

    kind: Literal["arroyo-tec"]
    serial: str | None = Field(None, description="Expected serial number; opening fails if it differs.")
    tolerance_c: Number = Field(
        0.02,
        ge=0.01,
        le=10.0,
        description="Largest distance from the set point at which the temperature counts as stable, in degrees.",
    )
    window_s: Number = Field(
        10.0, ge=0.1, le=50.0, description="Time within the tolerance before the temperature counts as stable."
    )

    def set_up(self, device: ArroyoTec) -> ArroyoTec:
        """Set the tolerance from the bench file, but not the temperature or the output; return the controller."""
        from lumion_hw.drivers.life_cycle import close_on_error

        with close_on_error(device.close):
            device.set_tolerance(self.tolerance_c, self.window_s)
        return device


def _open(name: str, model: TemperatureControllerModel, link: Link, clock: Clock) -> TemperatureController:
    from lumion_hw.drivers.temperature.arroyo_tec import ArroyoTec

    return model.open_device(ArroyoTec(link, clock, device=name, expected_serial=model.serial))


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
    match = re.match(r"Arroyo(?: Instruments)?[ ,]+(5[234]\d\d)[ ,]+([!-+\--~]+)", answer.decode("ascii", "replace"))
    return (f"Arroyo {match[1]}", {"serial": match[2]}) if match else None


def _faults() -> tuple[ScriptedFault, ...]:
    from lumion_hw.emulator.faults.device_faults import calls, lasting

    unplugged = "the sensor is unplugged: the output switches off and stays off after the fault ends"
    opened = "the lead to the cooler is open: the output switches off and stays off after the fault ends"
    return lasting("no_sensor", unplugged, calls, "unplug_sensor"), lasting("interlock", opened, calls, "set_interlock")


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
